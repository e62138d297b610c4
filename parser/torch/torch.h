/* PyTorch checkpoints: zip archives (torch.save since 1.6, TorchScript), legacy files before that. What a pickle would
 * run is never looked up and never called (pickle.h).
 *
 * A checkpoint is a set of records, "data.pkl" and "data/0" and so on. Usually they are members of a zip archive; HDF5
 * files exist that hold the same records as datasets, hence the interface. */
#ifndef TD_PARSER_TORCH_H
#define TD_PARSER_TORCH_H

#include "parser/format.h"

/* How many times as many bytes as a file of torch.save takes within another file its pickle may unpack to: a file can
 * hold very many, each of which could otherwise be small and unpack to the limit of a whole file. torch.save deflates
 * none. */
enum { TD_TORCH_INNER_UNPACKED = 64 };

/* The limits for such a file of `bytes` bytes, whose structure may have so many times as many. */
struct td_limits td_torch_inner_limits(const struct td_limits *limits, uint64_t bytes, uint64_t times);

extern const struct td_format td_format_torch; /* "pytorch": dispatches on the first bytes */

struct td_torch_record {
    uint64_t offset, nbytes;        /* in the file, where reason is NULL */
    const char *reason;             /* why the bytes cannot be served from the file ("compressed"); NULL: they can */
    const struct td_coding *coding; /* how the record is stored; offset is in its bytes then. NULL: as it is */
};

struct td_torch_records {
    const void *context;
    /* The record with this name below the archive's root ("data.pkl", "data/0"); false when there is none. */
    bool (*find)(const void *context, struct td_text name, struct td_torch_record *out);
    /* Its bytes, unpacked, in memory of its own (free()), at most limit_bytes; NULL on failure. */
    uint8_t *(*load)(const void *context, struct td_text name, uint64_t limit_bytes, size_t *out_len,
                     struct td_error *err);
    uint64_t file_bytes;
};

/* Fills the manifest from the records: what td_format_torch does with a zip archive once it is open. */
bool td_torch_parse_records(const struct td_torch_records *records, const struct td_limits *limits,
                            struct td_manifest *manifest, struct td_error *err);

/* A zip archive of which only the saved object itself counts: if that is a tensor, it is listed under the name "",
 * before what it is made of; else there is none. */
bool td_torch_parse_item(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                         struct td_error *err);

#endif
