/* Names of GGUF files: the quantisation, which clients use as a tag, and the number of a shard. Pure. Private to
 * api/oci/. */
#ifndef TD_API_OCI_OCI_QUANT_H
#define TD_API_OCI_OCI_QUANT_H

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

#endif
