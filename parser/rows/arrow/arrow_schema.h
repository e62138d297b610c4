/* The schema of an Arrow IPC file: which buffers each of its record batches has, and what people read of its columns.
 * Source: Schema.fbs of the Arrow format, version 1.5 (metadata versions V4 and V5), and "Arrow Columnar Format". */
#ifndef TD_PARSER_ROWS_ARROW_ARROW_SCHEMA_H
#define TD_PARSER_ROWS_ARROW_ARROW_SCHEMA_H

#include "core/buffer.h"
#include "parser/rows/arrow/flatbuffer.h"

enum { TD_ARROW_MAX_DEPTH = 64 }; /* of fields in fields */

/* Why rows cannot be cut out of batches, or gathered from several. */
enum td_arrow_obstacle {
    TD_ARROW_NO_OBSTACLE,
    TD_ARROW_COMPRESSED,
    TD_ARROW_BIG_ENDIAN,
    TD_ARROW_UNION,
    TD_ARROW_RUN_END,
    TD_ARROW_VIEW,
    TD_ARROW_UNKNOWN_TYPE,
    TD_ARROW_REPLACED, /* of gathering alone: the same number means other dictionary values in other batches */
    TD_ARROW_OBSTACLES
};

/* Returns the obstacle as a sentence without a stop, static; NULL: none. */
const char *td_arrow_obstacle_text(uint64_t obstacle);

/* The buffers of a field in a record batch, in order. All but TD_ARROW_NULL begin with the bitmap of the items that are
 * not null.
 */
enum td_arrow_layout {
    TD_ARROW_NULL,       /* no buffers */
    TD_ARROW_FIXED,      /* values of `width` bits: 1, or a multiple of 8 that may be 0 */
    TD_ARROW_BYTES,      /* offsets of `width` bytes, and the bytes between them */
    TD_ARROW_LIST,       /* offsets of `width` bytes into the one child */
    TD_ARROW_FIXED_LIST, /* `width` items of the one child */
    TD_ARROW_STRUCT,     /* children of the same length */
};

enum { TD_ARROW_NO_PARENT = UINT32_MAX };

/* A field that has a node in every record batch. A field of a dictionary type has that of its indices. */
struct td_arrow_node {
    enum td_arrow_layout layout;
    uint32_t parent; /* index of the node around it, which comes before it; TD_ARROW_NO_PARENT: a column */
    uint64_t width;
};

struct td_arrow_schema {
    struct td_arrow_node *nodes; /* in the order of a batch; owned */
    size_t node_count, node_capacity;
    size_t buffer_count; /* of a record batch; not counted with an obstacle */
    enum td_arrow_obstacle obstacle;
    struct td_budget *budget; /* of the nodes */
};

/* Returns how many buffers a node has. */
size_t td_arrow_buffers_of(enum td_arrow_layout layout);

/* Texts to make of a schema beside its nodes. NULL: the text is not needed. */
struct td_arrow_texts {
    struct td_buffer *columns; /* gets the JSON array of td_row_index.columns, types as pyarrow prints them; an
                                  extension type is shown as the type of its storage */
    struct td_buffer *traits; /* gets what `columns` lacks: which fields may be null, numbers of dictionaries, metadata;
                                 in a private form, equal for schemas with equal traits */
};

/* Reads the schema table of a schema message or of a footer. The caller ends *out by td_arrow_schema_fini, after an
 * error too. The budgets of *out and of the texts bound the memory. Errors: TD_INVALID_ARGUMENT with the position,
 * TD_RESOURCE_EXHAUSTED. */
bool td_arrow_schema_read(const struct td_flatbuffer *buffer, const struct td_flat_table *schema,
                          struct td_budget *budget, const struct td_arrow_texts *texts, struct td_arrow_schema *out,
                          struct td_error *err);

/* Returns whether record batches of both schemas have the same buffers. */
bool td_arrow_schema_equal(const struct td_arrow_schema *a, const struct td_arrow_schema *b);

void td_arrow_schema_fini(struct td_arrow_schema *schema);

#endif
