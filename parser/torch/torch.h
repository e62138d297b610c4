/* PyTorch checkpoints: zip archives (torch.save since 1.6, TorchScript), and legacy files before that. The functions
 * that a pickle names are never looked up and never called (pickle.h).
 *
 * A checkpoint is a set of records: "data.pkl", "data/0" and so on. Usually the records are members of a zip archive.
 * Some HDF5 files hold the same records as datasets, so the records are an interface. */
#ifndef TD_PARSER_TORCH_TORCH_H
#define TD_PARSER_TORCH_TORCH_H

#include "parser/format/format.h"

/* A file of torch.save within another file may unpack its pickle to at most 64 times its own bytes. Without this limit
 * a file of very many small inner files could unpack each to the limit of a whole file. torch.save deflates none. */
enum { TD_TORCH_INNER_UNPACKED = 64 };

/* Returns the limits for an inner file of `bytes` bytes: its structure has at most bytes * times bytes. */
struct td_limits td_torch_inner_limits(const struct td_limits *limits, uint64_t bytes, uint64_t times);

extern const struct td_format td_format_torch; /* "pytorch": dispatches on the first bytes */

/* Returns whether torch.save wrote the zip archive: it has a member FOLDER/data.pkl. In a damaged archive only the
 * first member is checked, because torch.save writes data.pkl first. Returns false on other faults. */
bool td_torch_is_archive(const struct td_input *input, const struct td_limits *limits);

struct td_torch_record {
    uint64_t offset, nbytes; /* in the file; valid where reason is NULL */
    const char *reason;      /* why the bytes cannot be served from the file ("compressed"); NULL: they can */
    const struct td_coding
        *coding; /* how the record is stored; offset then counts in the decoded bytes. NULL: plainly */
};

/* The records of a checkpoint. The caller owns them; they are used only during the call that they are given to. */
struct td_torch_records {
    const void *context;
    /* Finds the record with this name below the archive's root ("data.pkl", "data/0"). Returns false without such a
     * member. */
    bool (*find)(const void *context, struct td_text name, struct td_torch_record *out);
    /* Returns the record's bytes, unpacked and at most limit_bytes, which the caller frees with free(); NULL on
     * failure. */
    uint8_t *(*load)(const void *context, struct td_text name, uint64_t limit_bytes, size_t *out_len,
                     struct td_error *err);
    uint64_t file_bytes;
};

/* Fills the manifest from the records and finishes it, as td_format_torch does for a zip archive. */
bool td_torch_parse_records(const struct td_torch_records *records, const struct td_limits *limits,
                            struct td_manifest *manifest, struct td_error *err);

/* Parses a zip archive for its saved object alone. When the object is a tensor, lists it under the name "", followed by
 * the tensors that it is made of; otherwise lists nothing. */
bool td_torch_parse_item(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                         struct td_error *err);

#endif
