/* From a pickled object graph to tensors: what torch.save's pickles mean, for archives and legacy files alike. Internal
 * to the torch readers. */
#ifndef TD_PARSER_TORCH_OBJECT_H
#define TD_PARSER_TORCH_OBJECT_H

#include "parser/manifest.h"
#include "parser/pickle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A storage as its persistent id describes it: ('storage', class, key, location, numel[, view]). */
struct td_torch_storage {
    const char *key; /* not terminated; in the pickle */
    size_t key_len;
    const struct td_dtype *dtype; /* NULL: a class that nobody knows */
    uint64_t numel;               /* elements of dtype; of the whole storage where this is a view of it */
    uint64_t nbytes;              /* numel in bytes, 0 without a dtype */
    bool is_view;                 /* legacy: elements [view_offset, view_offset + view_numel) of it */
    uint64_t view_offset, view_numel;
};

/* Where a storage's bytes are. */
struct td_torch_place {
    uint64_t begin, nbytes;
    const char *reason; /* why they cannot be served; NULL: they can */
};

struct td_torch_places {
    const void *context;
    /* The place of a storage whose reference stands at `pos`; checks its size. */
    bool (*find)(const void *context, const struct td_torch_storage *storage, uint64_t pos,
                 struct td_torch_place *out, struct td_error *err);
    bool big_endian;
    bool has_modules; /* ('module', ...) ids may occur: legacy files keep classes so, archives have none */
};

/* Reads a PERSISTENT's id. *is_storage is false for a ('module', ...) id, which only legacy files have. */
bool td_torch_storage_read(const struct td_pickle *pickle, td_pickle_ref ref, bool *is_storage,
                           struct td_torch_storage *storage, struct td_error *err);

/* Lists every tensor of the graph below root in the manifest, and what stands beside them as metadata. Names are the
 * paths, joined by dots and begun with prefix (may be ""), of a module as its state_dict() has them; the root itself has
 * the name prefix. The manifest is not finished. */
bool td_torch_walk(struct td_pickle *pickle, td_pickle_ref root, const struct td_torch_places *places,
                   const char *prefix, struct td_manifest *manifest, struct td_error *err);

#endif
