/* Texts about a tensor that several answers have: the paths of its answers, its shape and its strides, and the members
 * of its JSON object. */
#ifndef TD_API_CALL_TENSOR_TEXT_H
#define TD_API_CALL_TENSOR_TEXT_H

#include "api/call/shown_model.h"
#include "catalog/model/snapshot.h"
#include "core/arena.h"
#include "core/buffer.h"
#include "core/digest.h"
#include "core/message/document.h"

#include <stdbool.h>

/* The path between a model's id and a tensor's name, for td_tensor_write_path: to the bytes, and to the page. */
#define TD_TENSOR_BYTES "tensors"
#define TD_TENSOR_PAGE "view/tensor"

/* Appends the path of an answer about a tensor, percent-encoded, with the query that chooses the version and the
 * checkpoint: /models/{id}/{word}/{name}[?version=][&partial=1][&checkpoint=]. Returns the separator for the next
 * parameter of the query. */
const char *td_tensor_write_path(struct td_buffer *out, const char *word, const struct td_shown_model *shown,
                                 const struct td_model *model, const struct td_checkpoint *checkpoint,
                                 const struct td_tensor *tensor);

/* Finds a tensor by its name as it stands in a path of td_tensor_write_path, percent-decoded. Sets *number to the
 * tensor's number in the checkpoint. Before the names "." and ".." the path has one '/' more, since clients remove such
 * segments. Returns false when the checkpoint has no such tensor. */
bool td_tensor_find_in_path(const struct td_checkpoint *checkpoint, struct td_text name, size_t *number);

/* Appends the query of such a path alone, as above, after `separator` ("?" for the first parameter of a query). Returns
 * the separator for the next one. */
const char *td_checkpoint_write_query(struct td_buffer *out, const char *separator, const struct td_shown_model *shown,
                                      const struct td_model *model, const struct td_checkpoint *checkpoint);

/* Appends numbers as JSON: [2,3]. */
void td_tensor_write_numbers(struct td_buffer *out, const uint64_t *numbers, uint32_t count);

/* Append a tensor's shape in this form, and its strides, which must not be NULL. */
void td_tensor_write_shape(struct td_buffer *out, const struct td_tensor *tensor);
void td_tensor_write_strides(struct td_buffer *out, const struct td_tensor *tensor);

/* Adds a list of numbers. */
void td_tensor_add_numbers(struct td_document *json, const char *key, const uint64_t *numbers, uint32_t count);

/* A tensor, or a part or a result that is like one, as answers describe it. All pointers are borrowed. */
struct td_tensor_facts {
    struct td_text name;
    const struct td_dtype *dtype;
    const uint64_t *shape; /* `rank` numbers of elements */
    uint32_t rank;
    uint64_t nbytes;
};

/* Adds "name", "dtype", "shape" and "nbytes" to the innermost object. */
void td_tensor_add_facts(struct td_document *json, const struct td_tensor_facts *facts);

/* The tensors, or parts of tensors, that an answer of tensors:read has the bytes of, one after the other. The arena
 * owns all but the types. */
struct td_read_results {
    struct td_arena arena;
    struct td_tensor_facts *facts;
    size_t count;
};

/* Adds "sha256", the digest of the tensor's bytes, to the innermost object. */
void td_tensor_add_sha256(struct td_document *json, const uint8_t sum[TD_SHA256_BYTES]);

#endif
