/* GGUF files of a repository, as Ollama and llama.cpp ask for them by tags: the quantisation in their names, which
 * clients use as a tag, and their shards. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_GGUF_H
#define TD_API_OCI_OCI_GGUF_H

#include "api/oci/oci_call.h"
#include "core/text.h"

#include <stdbool.h>

enum { TD_OCI_QUANT_BYTES = 32 };

struct td_oci_gguf_name {
    char quant[TD_OCI_QUANT_BYTES]; /* in capitals: "Q4_K_M", "UD-Q4_K_XL"; empty: the name says none */
    bool is_projector;              /* an image encoder (mmproj), which belongs to a model */
    bool is_sharded;                /* one of several files: model-00001-of-00003.gguf */
    bool is_first;                  /* not sharded, or the first shard */
};

/* Reads the name of a file by its path. Returns false when it is no GGUF file's name. The quantisation is the last word
 * in the name that is one, as the Hub finds it (huggingface.js, packages/tasks/src/gguf.ts, parseGGUFQuantLabel). */
bool td_oci_gguf_name_read(const char *path, struct td_oci_gguf_name *name);

/* The most tags of GGUF files. Names may have any words that look like quantisations; there are some 60 real ones. */
enum { TD_OCI_GGUF_TAGS = 256 };

/* Who can use a GGUF file, the best first. */
enum td_oci_gguf_use {
    TD_OCI_GGUF_SINGLE,     /* one file: everybody */
    TD_OCI_GGUF_SHARDED,    /* all shards are there: llama.cpp alone */
    TD_OCI_GGUF_INCOMPLETE, /* shards are missing: nobody */
};

/* A GGUF file of a model, or the first shard of one. */
struct td_oci_gguf {
    const struct td_entry *entry; /* NULL: none */
    struct td_oci_gguf_name name;
    enum td_oci_gguf_use use;
};

/* A walk through the models' GGUF files of oci->repo, by path. Looks at TD_OCI_MOST_FILES of them. Begins zeroed. */
struct td_oci_gguf_walk {
    size_t number, seen;
};

/* Sets *gguf to the next model's file. Returns false past the last. */
bool td_oci_gguf_next(const struct td_oci_call *oci, struct td_oci_gguf_walk *walk, struct td_oci_gguf *gguf);

/* Sets *list, in the call's arena, to the file of each quantisation, sorted by these words, among which is the empty
 * one: of several files the one of the best use, else the first. Of more than TD_OCI_GGUF_TAGS words those of the first
 * files. Returns false for want of memory. */
bool td_oci_gguf_list(struct td_oci_call *oci, struct td_oci_gguf **list, size_t *count);

/* Returns the image encoder of the repository: the one in F16 of several, else the first. NULL when there is none. */
const struct td_entry *td_oci_gguf_projector(const struct td_oci_call *oci);

#endif
