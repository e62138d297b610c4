/* A manifest: the tensors and metadata that a parser found in one file. Everything is copied into the manifest's arena
 * and nothing points into the file. So a manifest outlives the file, and threads may share it once parsing has ended.
 */
#ifndef TD_PARSER_FORMAT_MANIFEST_H
#define TD_PARSER_FORMAT_MANIFEST_H

#include "core/arena.h"
#include "core/buffer.h"
#include "core/coding.h"
#include "core/error.h"
#include "core/text.h"
#include "parser/format/dtype.h"
#include "parser/format/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_MAX_RANK = 64 }; /* dimensions of a tensor: torch's and NumPy's own limit */

/* One box of a tensor that is stored in several places. Each box is row-major. */
struct td_piece {
    uint32_t part;                  /* number of the file among its checkpoint's */
    uint64_t offset;                /* of the box's first byte in that file */
    const uint64_t *starts, *sizes; /* first index and number of indices in each dimension */
};

struct td_tensor {
    const char *name; /* UTF-8, NUL-terminated, no NUL inside */
    uint32_t name_len;
    uint32_t rank;
    const struct td_dtype *dtype;
    const uint64_t *shape; /* rank sizes in elements, outermost first; NULL when rank is 0 */
    /* rank steps from one index to the next, in elements; NULL: row-major without gaps. Only for types of one element
     * per block. */
    const uint64_t *strides;
    uint64_t nbytes; /* of all elements in logical order, as they are served; 0 where unknown */
    uint64_t offset; /* of the element at index 0,...,0: in the file or, with a coding, in the decoded bytes */
    /* How the bytes that hold the tensor are stored; NULL: as they are served. Tensors in the same bytes share one. */
    const struct td_coding *coding;
    bool big_endian; /* the numbers are stored big-endian: td_dtype_swap says which bytes change places */
    /* Why the bytes cannot be served ("compressed (gzip)"); NULL: they can. With a reason, offset may be 0 because it
     * is unknown. */
    const char *reason;
    const struct td_piece *pieces; /* of a distributed checkpoint's tensor; offset then has no meaning */
    uint32_t piece_count;          /* 0: the tensor is stored at offset */
    /* Number, from 1 on, of the file among the manifest's `files` that holds the bytes; 0: the parsed file itself. A
     * tensor in another file has the reason TD_REASON_OTHER_FILE, and offset counts in that file. Only manifests of
     * single files use this; a checkpoint's tensors have 0 (catalog/model/external_data.h). */
    uint32_t file;
    /* Set by td_manifest_finish: the first name, in byte order, among the tensors that have exactly the same bytes;
     * NULL for the tensor of that name and where bytes are not shared. */
    const char *alias_of;
};

/* The reason of a tensor in another file, until the catalog has found that file. */
#define TD_REASON_OTHER_FILE "stored in another file"

/* The most metadata entries that a parser lists of a file whose metadata may be of any number. */
enum { TD_METADATA_MAX = 1000 };

struct td_metadata {
    const char *key;   /* UTF-8 */
    const char *value; /* a serialised JSON value: "\"pt\"" */
};

struct td_manifest {
    struct td_arena arena;     /* owns all that follows */
    struct td_tensor *tensors; /* sorted by name (byte order), names unique */
    size_t tensor_count;
    struct td_metadata *metadata; /* in the file's order */
    size_t metadata_count;
    /* Other files that hold tensors of this file: paths below its directory, without "." and "..", sorted, in UTF-8. */
    const char **files;
    size_t file_count;
    /* For each tensor the position of its first element in a larger tensor of the same name, as rank numbers, perhaps
     * NULL for rank 0. NULL when the file does not hold boxes of larger tensors. The sums of positions and sizes fit in
     * 64 bits. */
    const uint64_t **starts;
    struct td_coding *codings; /* of all tensors; the latest first */
    uint32_t coding_count;
    uint64_t total_bytes; /* sum of nbytes, aliases included */
    int32_t split_number; /* number of this file in a split model, from 0, as the file says; -1: it does not say */
    int32_t split_count;  /* number of files of the split model; -1: the file does not say */
    /* Set by a parser: the file is one tensor and nothing else. The tensor's name is "" here. */
    bool bare;
    /* Set by a parser whose tensors may overlap; td_manifest_finish then looks for aliases. */
    bool shares_bytes;
};

/* Makes an empty manifest for a parser. memory_bytes limits its arena (0 = no limit). */
void td_manifest_init(struct td_manifest *manifest, size_t memory_bytes);
/* Frees all that the manifest owns. The manifest is then empty. */
void td_manifest_fini(struct td_manifest *manifest);

/* Adds a copy of the tensor. *capacity, 0 before the first call, is kept by the parser. Returns the copy, which moves
 * when the next one is added; NULL and an error when out of memory. */
struct td_tensor *td_manifest_add_tensor(struct td_manifest *manifest, const struct td_tensor *tensor, size_t *capacity,
                                         struct td_error *err);

/* Replaces the last metadata entry by one that says how many entries the parser omitted because there were more than
 * TD_METADATA_MAX. omitted: 0 does nothing. Returns false when out of memory. */
bool td_manifest_note_omitted(struct td_manifest *manifest, size_t omitted, struct td_error *err);

/* Sorts the tensors by name, sums up total_bytes and looks for aliases. Every parser ends with this call. Errors:
 * TD_INVALID_ARGUMENT for a repeated name, which the message has, and for a total of 2^64 bytes or more;
 * TD_RESOURCE_EXHAUSTED. */
bool td_manifest_finish(struct td_manifest *manifest, struct td_error *err);

/* Checks that a tensor's bytes are within [begin, end) of the file, whatever its strides. Needs dtype, rank, shape,
 * strides and offset; sets nbytes, and drops strides that say row-major. A tensor without elements may be anywhere.
 * Errors: TD_INVALID_ARGUMENT at position pos, with the tensor's name, on an overflow, on 2^63 bytes or more (torch,
 * NumPy and HDF5 count in signed 64 bits), or when the tensor exceeds the range. */
bool td_tensor_place(struct td_tensor *tensor, uint64_t begin, uint64_t end, uint64_t pos, struct td_error *err);

/* Returns whether the tensor's strides, which must be set, say row-major without gaps. elems is the number of elements.
 * The stride of a dimension of size 1 or 0 does not matter. */
bool td_tensor_is_row_major(const struct td_tensor *tensor, uint64_t elems);

/* How a tensor's bytes are read from its file. */
enum td_access {
    TD_ACCESS_NONE,     /* not at all: the tensor has a reason */
    TD_ACCESS_DIRECT,   /* the file has them as they are served */
    TD_ACCESS_GATHERED, /* the file has them in another order or in several pieces */
    TD_ACCESS_SWAPPED,  /* the file has them big-endian */
    TD_ACCESS_DECODED,  /* the file has them packed */
};
/* Returns how the tensor's bytes are read. Packed bytes that are also big-endian or in pieces count as packed. */
enum td_access td_tensor_access(const struct td_tensor *tensor);

/* Returns "none", "direct" and so on, as manifests show it. */
const char *td_access_name(enum td_access access);

/* Returns how the bytes are stored ("big-endian", "compressed (gzip)"), or NULL when they are direct or gathered, which
 * offset, strides and pieces describe. */
const char *td_tensor_stored(const struct td_tensor *tensor);

/* Adds a coding to the manifest, in its arena, with zeros in all members but `number` and `next`. Returns NULL, and
 * sets no error, when out of memory. */
struct td_coding *td_manifest_add_coding(struct td_manifest *manifest);

/* Copies the codings of `from` to `to`, so that `from` may end afterwards. (*copies)[i], in the arena of `to`, is the
 * copy of coding number i. off, the position of the file of `from` in that of `to`, is added to the base of each copy.
 * Returns false when out of memory, or for an offset past 2^64-1. */
bool td_manifest_copy_codings(struct td_manifest *to, const struct td_manifest *from, uint64_t off,
                              const struct td_coding ***copies, struct td_error *err);

/* Copies a tensor of another manifest, which may end afterwards, to *out, under the name `name`, which is in the arena
 * of `to`. The caller adds *out to the tensors of `to`. codings come from td_manifest_copy_codings, and may be NULL for
 * a tensor without a coding. off is added to the offset of a tensor without a coding. Aliases and pieces are not
 * copied. Returns false when out of memory, or for an offset past 2^64-1. */
bool td_manifest_copy_tensor(struct td_manifest *to, const struct td_tensor *from, const char *name,
                             const struct td_coding *const *codings, uint64_t off, struct td_tensor *out,
                             struct td_error *err);

/* Adds off to every offset, for a manifest that was parsed through a window that begins at off. Returns false for an
 * offset past 2^64-1. */
bool td_manifest_shift(struct td_manifest *manifest, uint64_t off, struct td_error *err);

/* Returns the tensor's name, borrowed. */
static inline struct td_text td_tensor_name(const struct td_tensor *tensor)
{
    return td_text_n(tensor->name, tensor->name_len);
}

/* Returns the names of the tensors as a list, which borrows the tensors. */
struct td_names td_tensor_names(const struct td_tensor *tensors, size_t count);

/* Returns the tensor with this name, or NULL, by binary search. The manifest must be finished. */
const struct td_tensor *td_manifest_find(const struct td_manifest *manifest, struct td_text name);

/* ---- metadata ---- */

enum { TD_METADATA_TEXT_MAX = 4096 }; /* most bytes of a text that are shown */

/* Returns the keys of the metadata as a list of names, which borrows the metadata. */
struct td_names td_metadata_keys(const struct td_metadata *metadata, size_t count);

/* Returns the value of this key in a file's own metadata, as JSON, borrowed; NULL when the key is absent. */
const char *td_metadata_find(const struct td_metadata *metadata, size_t count, const char *key);

/* Appends a text as a JSON value. `len` is the length of the whole text in bytes; `shown` is the text or its beginning,
 * at most TD_METADATA_TEXT_MAX bytes. A beginning is written as {"length":LEN,"first":"..."}. is_utf8 says whether
 * `shown` is UTF-8; other text is escaped by td_utf8_escape. The parsers write metadata by hand and not by
 * core/message/document.h, because the values are small and are written item by item while the file is read. */
void td_metadata_write_text(struct td_buffer *out, struct td_text shown, bool is_utf8, uint64_t len);

#endif
