/* ONNX models (.onnx). Lists the initialisers of the main graph, whose bytes are in the file or in files beside it.
 * Source: onnx.proto of onnx 1.23. */
#ifndef TD_PARSER_ONNX_ONNX_H
#define TD_PARSER_ONNX_ONNX_H

#include "parser/format/format.h"

extern const struct td_format td_format_onnx; /* "onnx" */

#endif
