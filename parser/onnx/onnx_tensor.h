/* TensorProto, the message that holds a tensor of an ONNX model. Only for parser/onnx. Sources: onnx.proto of onnx 1.23
 * (field numbers, types, storage of elements), onnx/checker.cc (check_tensor: what is refused). A function that returns
 * false or NULL has set the error. */
#ifndef TD_PARSER_ONNX_ONNX_TENSOR_H
#define TD_PARSER_ONNX_ONNX_TENSOR_H

#include "parser/format/manifest.h"
#include "parser/onnx/protobuf.h"

#include <stdbool.h>

struct td_onnx {
    struct td_protobuf in;
    struct td_manifest *manifest;
    struct td_error *err;
};

struct td_onnx_tensor {
    /* Without a name: rank, shape, dtype, and the place of the bytes or the reason why they cannot be served. */
    struct td_tensor tensor;
    const char *name; /* in the arena; NULL without a name */
    size_t name_len;
    /* The file that holds the bytes, when that is another file: the path below the model's directory, without "." and
     * empty components, in the arena; else NULL. */
    const char *location;
    uint64_t at; /* position of the message: for errors */
};

/* Reads the TensorProto that the field holds. Refuses a tensor that the reference's checker refuses. */
bool td_onnx_read_tensor(struct td_onnx *onnx, const struct td_protobuf_field *message, struct td_onnx_tensor *out);

/* Appends the dimension, or the packed dimensions, that the field holds to dims. */
bool td_onnx_read_dims(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t dims[TD_MAX_RANK],
                       uint32_t *rank);

/* Requires that the field has this wire type. */
bool td_onnx_expect(struct td_onnx *onnx, const struct td_protobuf_field *field, enum td_protobuf_wire wire);

/* Requires that the field's number, which is below 64, is not in the set *seen, and adds it. */
bool td_onnx_once(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t *seen);

/* Returns a copy of a text in the arena, terminated. Refuses a text that is not UTF-8 or holds a NUL; `what` names it.
 */
char *td_onnx_text(struct td_onnx *onnx, const struct td_protobuf_field *field, const char *what);

#endif
