/* GGUF files of a repository, as Ollama and llama.cpp ask for them by tags: the quantisation in their names, which
 * clients use as a tag, and their shards. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_GGUF_H
#define TD_API_OCI_OCI_GGUF_H

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

/* Sets *list, in the call's arena, to one file for each quantisation (the empty one too), sorted by quantisation. Of
 * several files with one quantisation it takes the most usable, else the first. Lists at most TD_OCI_GGUF_TAGS
 * quantisations, those of the first files. Returns false when memory is short. */
bool td_oci_gguf_list(struct td_oci_call *oci, struct td_oci_gguf **list, size_t *count);

/* Returns the image encoder of the repository: of several the one in F16, else the first; or NULL. */
const struct td_entry *td_oci_gguf_projector(const struct td_oci_call *oci);

#endif
