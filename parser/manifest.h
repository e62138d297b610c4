/* A manifest: what a parser found in one file. Everything in it is copied into its arena, nothing points into
 * the file, so it outlives the file and is safe to share between threads once parsing has ended. */
#ifndef TD_PARSER_MANIFEST_H
#define TD_PARSER_MANIFEST_H

#include "core/arena.h"
#include "core/coding.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_RANK = 64 }; /* dimensions of a tensor: torch's and NumPy's own limit */

/* A box of a tensor that lies in several places, row-major in each. */
struct td_piece {
    uint32_t part;                  /* which of its checkpoint's files */
    uint64_t offset;                /* of its first byte in that file */
    const uint64_t *starts, *sizes; /* first index and number of indices in each dimension */
};

struct td_tensor {
    const char *name; /* UTF-8, NUL-terminated, no NUL inside */
    uint32_t name_len;
    uint32_t rank;
    const struct td_dtype *dtype;
    const uint64_t *shape; /* rank sizes, outermost first, elements; NULL when rank is 0 */
    /* rank steps from one index to the next, elements; NULL: row-major without gaps. Only for types of one element per
     * block. */
    const uint64_t *strides;
    uint64_t nbytes; /* all elements in logical order, which is what is served; 0 where unknown */
    uint64_t offset; /* of the element at index 0,...,0, from the start of the file or, with a coding, of its bytes */
    const struct td_coding
        *coding;     /* how what it lies in is stored; NULL: as it is answered. One for all tensors in it */
    bool big_endian; /* its numbers are stored big-endian: td_dtype_swap says which bytes change places */
    /* Why its bytes cannot be served ("compressed (gzip)"); NULL: they can. With a reason, offset may be 0 for want of
     * a better one. */
    const char *reason;
    const struct td_piece *pieces; /* of a distributed checkpoint's tensor; offset is then of no meaning */
    uint32_t piece_count;          /* 0: the tensor lies at offset */
    /* Of a tensor whose bytes are in another file, in manifests of files alone: number of that file among the
     * manifest's from 1 on; 0: in the file itself. Such a tensor has the reason TD_REASON_OTHER_FILE, and offset counts
     * in the other file. A checkpoint's tensors have 0 (catalog/external_data.h). */
    uint32_t file;
    /* Set by td_manifest_finish: the first name, in byte order, of the tensors that have exactly the same bytes; NULL
     * for that one and where bytes are not shared. */
    const char *alias_of;
};

/* Until the other file is found. */
#define TD_REASON_OTHER_FILE "stored in another file"

struct td_metadata {
    const char *key;   /* UTF-8 */
    const char *value; /* a JSON value, already serialised: "\"pt\"" */
};

struct td_manifest {
    struct td_arena arena;     /* owns all that follows */
    struct td_tensor *tensors; /* sorted by name (byte order), names unique */
    size_t tensor_count;
    struct td_metadata *metadata; /* in the file's order */
    size_t metadata_count;
    /* Other files that hold tensors of this one: paths below its directory, without "." and "..", sorted, in UTF-8. */
    const char **files;
    size_t file_count;
    struct td_coding *codings; /* all that its tensors have, the latest first */
    uint32_t coding_count;
    uint64_t total_bytes; /* sum of nbytes, aliases included */
    int32_t split_number; /* which file of a split model it says that it is, from 0; -1: it does not say */
    int32_t split_count;  /* of how many; -1: it does not say */
    /* Set by a parser: the file is one tensor and nothing else, so it has no name but the file's and is called "" here.
     */
    bool bare;
    /* Set by a parser whose tensors may overlap; td_manifest_finish then looks for aliases. */
    bool shares_bytes;
};

/* Empties a manifest for use by a parser; memory_bytes bounds its arena (0 = none). */
void td_manifest_init(struct td_manifest *manifest, size_t memory_bytes);
void td_manifest_fini(struct td_manifest *manifest);

/* Sorts the tensors by name and requires names to be unique and the total to fit 64 bits. Every parser ends
 * with it. On failure *err names the duplicate. */
bool td_manifest_finish(struct td_manifest *manifest, struct td_error *err);

/* Checks that a tensor's bytes lie within [begin, end) of the file, whatever its strides, and fills in nbytes; drops
 * strides that say row-major. dtype, rank, shape, strides and offset are set. False on an overflow, on 2^63 bytes or
 * more (torch, NumPy and HDF5 count in signed 64 bits), or a tensor that leaves its bounds: *err at position pos names
 * it. A tensor without elements lies anywhere. */
bool td_tensor_place(struct td_tensor *tensor, uint64_t begin, uint64_t end, uint64_t pos, struct td_error *err);

/* Whether the strides, which are set, say row-major without gaps: the steps that a shape of so many elements implies.
 * Steps over one element or fewer mean nothing. */
bool td_tensor_is_row_major(const struct td_tensor *tensor, uint64_t elems);

/* How a tensor's bytes come out of its file. */
enum td_access {
    TD_ACCESS_NONE,     /* not at all: there is a reason */
    TD_ACCESS_DIRECT,   /* they lie in the file as they are answered */
    TD_ACCESS_GATHERED, /* they lie there, in another order or in several pieces */
    TD_ACCESS_SWAPPED,  /* they are stored big-endian */
    TD_ACCESS_DECODED,  /* they are unpacked */
};
enum td_access td_tensor_access(const struct td_tensor *tensor);
const char *td_access_name(enum td_access access);

/* How they are stored, where that is neither direct nor told by strides and pieces: "big-endian", "compressed (gzip)";
 * else NULL. */
const char *td_tensor_stored(const struct td_tensor *tensor);

/* A new coding, all zeros but its number, among those of the manifest; NULL when out of memory. */
struct td_coding *td_manifest_add_coding(struct td_manifest *manifest);

/* Copies the codings of another manifest, which may end afterwards: number i of its codings is (*copies)[i], in the
 * arena of `to`. off is added to the base of each: where the other file begins in that of `to`. False: out of memory,
 * or an offset past 2^64-1. */
bool td_manifest_copy_codings(struct td_manifest *to, const struct td_manifest *from, uint64_t off,
                              const struct td_coding ***copies, struct td_error *err);

/* Copies a tensor of another manifest, which may end afterwards, to *out, which is not yet among the tensors of `to`;
 * its name is then `name`, which is in the arena of `to`. codings are what td_manifest_copy_codings made of the
 * other's, and may be NULL for a tensor without one. off is added to the offset of a tensor without a coding. Aliases
 * and pieces are not copied. False: out of memory, or an offset past 2^64-1. */
bool td_manifest_copy_tensor(struct td_manifest *to, const struct td_tensor *from, const char *name,
                             const struct td_coding *const *codings, uint64_t off, struct td_tensor *out,
                             struct td_error *err);

/* Adds off to every offset: what was parsed through a window that begins there. */
bool td_manifest_shift(struct td_manifest *manifest, uint64_t off, struct td_error *err);

static inline struct td_text td_tensor_name(const struct td_tensor *tensor)
{
    return td_text_n(tensor->name, tensor->name_len);
}

/* The tensor with this name, or NULL. Binary search. */
const struct td_tensor *td_manifest_find(const struct td_manifest *manifest, struct td_text name);

#endif
