/* The manifest of a delta of SkyRL's trainer, manifest.json (skyrl/backends/skyrl_train/weight_sync/delta): of each
 * changed tensor the file and the checksum, and both versions. Each change is the XOR of the old and the new bytes,
 * as one frame of Zstandard. */
#ifndef TD_CATALOG_DELTA_DELTA_MANIFEST_H
#define TD_CATALOG_DELTA_DELTA_MANIFEST_H

#include "core/arena.h"
#include "core/buffer.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

/* The checksums of the changed tensors' new bytes. All zeros: none. */
struct td_delta_sums {
    struct td_arena arena;
    struct td_delta_named_sum {
        struct td_text name, sum;
    } * items; /* sorted by name; in the arena */
    size_t count, capacity;
};

/* Reads the manifest, appends to `index` the text of an index that says the same (delta_index.h), in which only the
 * names of files are still unchecked, and fills *sums, which td_delta_sums_fini frees in any case. Errors:
 * TD_INVALID_ARGUMENT for a manifest without `version`, `base_version` or `tensors`, for wrong members of one of the
 * tensors, for a payload_key that is not the tensor's name, for checksums of several kinds, and for two tensors of one
 * name; TD_RESOURCE_EXHAUSTED. */
bool td_delta_manifest_read(struct td_text text, struct td_buffer *index, struct td_delta_sums *sums,
                            struct td_error *err);
void td_delta_sums_fini(struct td_delta_sums *sums);

/* Returns the checksum of a tensor, or an empty text. */
struct td_text td_delta_sums_find(const struct td_delta_sums *sums, struct td_text name);

#endif
