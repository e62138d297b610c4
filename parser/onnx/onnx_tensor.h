/* TensorProto, the message that an ONNX model holds its tensors in. Internal to the ONNX reader. Sources: onnx.proto of
 * onnx 1.23 (field numbers, types, how elements are stored), onnx/checker.cc (check_tensor: what is refused). */
#ifndef TD_PARSER_ONNX_TENSOR_H
#define TD_PARSER_ONNX_TENSOR_H

#include "parser/manifest.h"
#include "parser/onnx/protobuf.h"

#include <stdbool.h>

struct td_onnx {
    struct td_protobuf in;
    struct td_manifest *manifest;
    struct td_error *err;
};

struct td_onnx_tensor {
    struct td_tensor
        tensor;       /* without a name: rank and shape, dtype, where its bytes are or why they cannot be served */
    const char *name; /* its own, in the arena; NULL without one */
    size_t name_len;
    const char *location; /* of a tensor whose bytes are in another file: the path below the model's directory, without
                                     "." and empty components, in the arena; else NULL */
    uint64_t at;          /* of the message: for errors */
};

/* Reads the TensorProto that the field holds. A tensor that the reference's checker refuses is refused. */
bool td_onnx_read_tensor(struct td_onnx *onnx, const struct td_protobuf_field *message, struct td_onnx_tensor *out);

/* Reads one of the dimensions, which a writer may also pack. */
bool td_onnx_read_dims(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t dims[TD_MAX_RANK],
                       uint32_t *rank);

/* Whether the field has this wire type; refuses the file when not. */
bool td_onnx_expect(struct td_onnx *onnx, const struct td_protobuf_field *field, enum td_protobuf_wire wire);

/* Refuses the file when `seen` has the field's number, which is below 64, already; adds it. */
bool td_onnx_once(struct td_onnx *onnx, const struct td_protobuf_field *field, uint64_t *seen);

/* A copy of a text in the arena; NULL when it is no UTF-8, has a NUL in it, or on a fault. */
char *td_onnx_text(struct td_onnx *onnx, const struct td_protobuf_field *field, const char *what);

#endif
