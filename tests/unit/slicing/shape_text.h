/* Shapes as tests/data/slices.txt and joins.txt write them. */
#ifndef TD_TESTS_UNIT_SLICING_SHAPE_TEXT_H
#define TD_TESTS_UNIT_SLICING_SHAPE_TEXT_H

#include "parser/format/manifest.h"

#include <stdlib.h>
#include <string.h>

struct shape {
    uint32_t rank;
    uint64_t sizes[TD_MAX_RANK];
};

/* Parses "3x4" or "scalar". Changes the text. */
static inline struct shape shape_of(char *text)
{
    struct shape shape = {0};
    char *rest = NULL;
    if (strcmp(text, "scalar") == 0)
        return shape;
    for (char *size = strtok_r(text, "x", &rest); size != NULL; size = strtok_r(NULL, "x", &rest))
        shape.sizes[shape.rank++] = strtoull(size, NULL, 10);
    return shape;
}

#endif
