/* Targets: the documents that tags stand for. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_TARGET_H
#define TD_API_OCI_OCI_TARGET_H

#include "api/oci/oci_call.h"
#include "api/oci/oci_gguf.h"

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
};

/* Lists the targets of the tags of oci->repo, sorted by tag, in the call's arena. Some may not fit
 * (td_oci_target_fits). Errors: TD_RESOURCE_EXHAUSTED. */
bool td_oci_targets(struct td_oci_call *oci, struct td_oci_target **targets, size_t *count, struct td_error *err);

/* Returns whether the target can have file_count files. A GGUF file always fits. The forms that list all files take at
 * most TD_OCI_MOST_FILES. Errors: TD_FAILED_PRECONDITION. */
bool td_oci_target_fits(const struct td_oci_target *target, size_t file_count, struct td_error *err);

/* Returns the target of a GGUF file, which need not have a tag in the list. */
struct td_oci_target td_oci_gguf_target(const struct td_oci_gguf *gguf, const struct td_entry *projector);

/* Returns the GGUF file that "latest" means, as the Hub says: the one in Q4_K_M, else the first by path. Files in
 * several shards come last unless the client takes them; incomplete files are left out. Returns NULL if the list has no
 * GGUF file. */
const struct td_oci_target *td_oci_default_gguf(const struct td_oci_target *targets, size_t count, bool takes_shards);

/* Finds the target of a tag: a tag of the list, a quantisation in another case of letters, the name of a GGUF file, a
 * revision of a cache, or a virtual revision. Errors: TD_NOT_FOUND, with a list of existing tags; as td_oci_targets. */
bool td_oci_target_find(struct td_oci_call *oci, struct td_text tag, struct td_oci_target *target,
                        struct td_error *err);

#endif
