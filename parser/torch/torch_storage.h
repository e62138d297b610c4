/* Storages and types as torch.save's pickles name them, and where a storage's bytes are. Internal to the torch readers.
 */
#ifndef TD_PARSER_TORCH_STORAGE_H
#define TD_PARSER_TORCH_STORAGE_H

#include "parser/dtype.h"
#include "parser/pickle/pickle.h"

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
    const char *view_key; /* what the view is kept under, as storages are under theirs */
    size_t view_key_len;
    td_pickle_ref ref; /* of the reference */
};

/* Where a storage's bytes are. */
struct td_torch_place {
    uint64_t begin, nbytes;
    const char *reason;             /* why they cannot be served; NULL: they can */
    const struct td_coding *coding; /* how what they lie in is stored; NULL: as it is */
};

struct td_torch_places {
    const void *context;
    /* The place of a storage whose reference stands at `pos`; checks its size. */
    bool (*find)(const void *context, const struct td_torch_storage *storage, uint64_t pos, struct td_torch_place *out,
                 struct td_error *err);
    uint64_t file_bytes; /* of the whole file */
    bool big_endian;
    bool is_legacy; /* ('module', ...) ids may occur: legacy files keep classes so, archives have none */
};

/* Reads a PERSISTENT's id. *is_storage is false for a ('module', ...) id, which only legacy files have. */
bool td_torch_storage_read(const struct td_pickle *pickle, td_pickle_ref ref, bool *is_storage,
                           struct td_torch_storage *storage, struct td_error *err);

/* The type that a global such as `torch float32` names, or NULL. */
const struct td_dtype *td_torch_dtype(const struct td_pickle *pickle, td_pickle_ref ref);

/* The type that a call numpy.dtype('f4', ...) makes, or NULL. */
const struct td_dtype *td_torch_numpy_dtype(const struct td_pickle *pickle, td_pickle_ref ref);

/* An INT from 0 on; false (and *out untouched) for all else. */
bool td_torch_read_count(const struct td_pickle *pickle, td_pickle_ref ref, uint64_t *out);

/* Refuses the file for the value `at`: false, with `what` as the message. */
bool td_torch_refuse(struct td_error *err, const struct td_pickle *pickle, td_pickle_ref at, const char *what);

#endif
