/* The number of elements of a tensor. Pure. */
#ifndef TD_PARSER_FORMAT_ELEMENTS_H
#define TD_PARSER_FORMAT_ELEMENTS_H

#include "parser/format/manifest.h"

#include <stdint.h>

/* Returns the product of the tensor's shape: 1 for a tensor without dimensions, UINT64_MAX for more elements. */
uint64_t td_tensor_elements(const struct td_tensor *tensor);

#endif
