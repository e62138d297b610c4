/* Targets: the documents that tags stand for. GGUF files have tags by the quantisation in their names, as Ollama and
 * llama.cpp ask for them. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_TARGET_H
#define TD_API_OCI_OCI_TARGET_H

#include "api/oci/oci_call.h"

#include <stdbool.h>

enum { TD_OCI_QUANT_BYTES = 32 };

struct td_oci_gguf_name {
    char quant[TD_OCI_QUANT_BYTES]; /* in capitals: "Q4_K_M", "UD-Q4_K_XL"; empty: not in the name */
    bool is_projector;              /* an image encoder (mmproj), which belongs to a model */
    bool is_sharded;                /* one of several files: model-00001-of-00003.gguf */
    bool is_first;                  /* not sharded, or the first shard */
};

/* Reads the name of a file by its path. Returns false if the name is not a GGUF file's. The quantisation is the last
 * word of the name that looks like one, as on the Hub (huggingface.js, packages/tasks/src/gguf.ts,
 * parseGGUFQuantLabel). */
bool td_oci_gguf_name_read(const char *path, struct td_oci_gguf_name *name);

/* The most tags of GGUF files. There are some 60 quantisations, but any word of a name may look like one. */
enum { TD_OCI_GGUF_TAGS = 256 };

/* Clients that can use a GGUF file, the most usable kind first. */
enum td_oci_gguf_use {
    TD_OCI_GGUF_SINGLE,     /* one file: all clients */
    TD_OCI_GGUF_SHARDED,    /* all shards exist: llama.cpp alone */
    TD_OCI_GGUF_INCOMPLETE, /* shards are missing: no client */
};

/* A GGUF file of a model, or the first shard of a sharded file. */
struct td_oci_gguf {
    const struct td_entry *entry; /* or NULL */
    struct td_oci_gguf_name name;
    enum td_oci_gguf_use use;
};

/* A walk over the GGUF files of the models in oci->repo, by path. Ends after TD_OCI_MOST_FILES files. Starts zeroed. */
struct td_oci_gguf_walk {
    size_t number, seen;
};

/* Sets *gguf to the next model's file. Returns false past the last. */
bool td_oci_gguf_next(const struct td_oci_call *oci, struct td_oci_gguf_walk *walk, struct td_oci_gguf *gguf);

/* Returns the image encoder of the repository: of several the one in F16, else the first; or NULL. */
const struct td_entry *td_oci_gguf_projector(const struct td_oci_call *oci);

/* The forms in which a repository is served. One function builds each (oci_make.c). */
enum td_oci_form {
    TD_OCI_ARTIFACT, /* the ModelPack artifact */
    TD_OCI_FLAT,     /* the same with titles without '/' */
    TD_OCI_GGUF,     /* a GGUF file for Ollama */
    TD_OCI_IMAGE,    /* an image for container runtimes */
    TD_OCI_FORMS,
};

/* The target of one tag. Borrows the snapshot and the call's arena. */
struct td_oci_target {
    const char *tag; /* as td_oci_targets lists it */
    enum td_oci_form form;
    struct td_text revision;          /* of the repository; "main" for all but refs of a cache and rank revisions */
    struct td_oci_gguf gguf;          /* of GGUF */
    const struct td_entry *projector; /* of GGUF: the image encoder that goes with it, or NULL */
    bool is_alias;                    /* the tag is "latest", which stands for another tag's target */
    bool is_pushed;                   /* the tag names a manifest that was pushed; the form says nothing */
};

/* Targets in the call's arena. Starts zeroed. */
struct td_oci_target_list {
    struct td_oci_target *items;
    size_t count, capacity;
};

/* Adds a copy of a target to the list. Returns false for want of memory. */
bool td_oci_target_add(struct td_oci_call *oci, struct td_oci_target_list *list, const struct td_oci_target *target);

/* Lists the targets of the tags of oci->repo, sorted by tag. A revision without files, as publishing can make, has
 * none. Some may not fit (td_oci_target_fits). Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_targets(struct td_oci_call *oci, struct td_oci_target_list *list, struct td_error *err);

/* Sorts the list by tag. */
void td_oci_targets_sort(struct td_oci_target_list *list);

/* Returns whether the target can have file_count files. A GGUF file and what was pushed always fit. The forms that list
 * all files take at most TD_OCI_MOST_FILES. Errors: TD_FAILED_PRECONDITION. */
bool td_oci_target_fits(const struct td_oci_target *target, size_t file_count, struct td_error *err);

/* Returns the target of a GGUF file, which need not have a tag in the list. */
struct td_oci_target td_oci_gguf_target(const struct td_oci_gguf *gguf, const struct td_entry *projector);

/* Returns the GGUF file that "latest" means, as the Hub says: the one in Q4_K_M, else the first by path. Files in
 * several shards come last unless the client takes them; incomplete files are left out. Returns NULL if the list has no
 * GGUF file. */
const struct td_oci_target *td_oci_default_gguf(const struct td_oci_target_list *list, bool takes_shards);

/* Finds the target of a tag: a tag of the list, a quantisation in another case of letters, the name of a GGUF file, a
 * revision of a cache, or a virtual revision. Errors: TD_NOT_FOUND, with a list of existing tags; as td_oci_targets. */
bool td_oci_target_find(struct td_oci_call *oci, struct td_text tag, struct td_oci_target *target,
                        struct td_error *err);

#endif
