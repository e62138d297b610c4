/* Storages and types as torch.save's pickles name them, and the places of storages' bytes. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_STORAGE_H
#define TD_PARSER_TORCH_TORCH_STORAGE_H

#include "parser/format/dtype.h"
#include "parser/pickle/pickle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A storage as its persistent id describes it: ('storage', class, key, location, numel[, view]). */
struct td_torch_storage {
    const char *key; /* not terminated; in the pickle */
    size_t key_len;
    const struct td_dtype *dtype; /* NULL: the storage's class is unknown */
    uint64_t numel;               /* elements of dtype; for a view those of the whole storage */
    uint64_t nbytes;              /* numel in bytes, 0 without a dtype */
    bool is_view;                 /* legacy: only elements [view_offset, view_offset + view_numel) are meant */
    uint64_t view_offset, view_numel;
    const char *view_key; /* the view's own key, not terminated; in the pickle */
    size_t view_key_len;
    td_pickle_ref ref; /* the PERSISTENT */
};

/* The place of a storage's bytes. */
struct td_torch_place {
    uint64_t begin, nbytes;
    const char *reason;             /* why they cannot be served; NULL: they can */
    const struct td_coding *coding; /* how the bytes that hold them are stored; NULL: plainly */
};

/* The places of all storages of a file. */
struct td_torch_places {
    const void *context;
    /* Finds the place of a storage and checks its size. `pos`, the position of the reference, is for errors. */
    bool (*find)(const void *context, const struct td_torch_storage *storage, uint64_t pos, struct td_torch_place *out,
                 struct td_error *err);
    uint64_t file_bytes; /* of the whole file */
    bool big_endian;
    bool is_legacy; /* ('module', ...) ids may occur: legacy files keep classes so, archives do not */
};

/* Reads the id of a PERSISTENT. Sets *is_storage to false for a ('module', ...) id, which only legacy files have. */
bool td_torch_storage_read(const struct td_pickle *pickle, td_pickle_ref ref, bool *is_storage,
                           struct td_torch_storage *storage, struct td_error *err);

/* Returns the type that a GLOBAL such as `torch float32` names, or NULL. */
const struct td_dtype *td_torch_dtype(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns the type that a call numpy.dtype('f4', ...) makes, or NULL. */
const struct td_dtype *td_torch_numpy_dtype(const struct td_pickle *pickle, td_pickle_ref ref);

/* Reads an INT that is not negative. Returns false, and leaves *out untouched, for all else. */
bool td_torch_read_count(const struct td_pickle *pickle, td_pickle_ref ref, uint64_t *out);

/* Refuses the file because of the value `at`, with `what` as the message. Returns false. */
bool td_torch_refuse(struct td_error *err, const struct td_pickle *pickle, td_pickle_ref at, const char *what);

#endif
