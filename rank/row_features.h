/* Infers the features of rows, which are the names and types of their members, from the values of these rows, and
 * writes them in the format of the library `datasets` (Features.to_dict):
 *
 *     strings {"dtype":"string","_type":"Value"}, and likewise bool, int64 (whole numbers), float64 and null
 *     arrays {"feature":TYPE,"_type":"List"}, objects {"NAME":TYPE,...}
 *     values of different types in one place, and arrays or objects too deep or with too many names: {"_type":"Json"}
 *
 * Names are equal if their spellings in JSON are. Time and memory are bounded by the length of the rows. Threads: one
 * at a time. */
#ifndef TD_RANK_ROW_FEATURES_H
#define TD_RANK_ROW_FEATURES_H

#include "core/budget.h"
#include "core/buffer.h"
#include "core/json/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_ROW_COLUMNS_MOST = 4096,   /* members of a row */
    TD_ROW_FEATURES_MOST = 16384, /* names and elements at all depths; more become Json */
    TD_ROW_FEATURES_DEPTH = 32    /* levels of arrays and objects in a row; deeper values become Json */
};

struct td_row_feature;

struct td_row_features {
    struct td_row_feature *nodes; /* [0] is the row; owned */
    uint32_t *slots;              /* hash table of node numbers by parent and name; owned */
    uint32_t count, column_count;
    uint64_t key;           /* secret, of the hashes */
    struct td_buffer names; /* of the nodes, back to back */
    struct td_budget *budget;
};

/* Takes the memory from the budget (borrowed). Errors: TD_RESOURCE_EXHAUSTED, or as td_budget_refuse. Call
 * td_row_features_fini in every case. */
bool td_row_features_init(struct td_row_features *features, struct td_budget *budget, struct td_error *err);

void td_row_features_fini(struct td_row_features *features);

/* Reads a row, which is one JSON value. Sets *is_object. A row that is not an object counts as an object with one
 * member, "row". Errors: TD_INVALID_ARGUMENT with the position in the text when it is not JSON; TD_FAILED_PRECONDITION
 * for more than TD_ROW_COLUMNS_MOST members; TD_RESOURCE_EXHAUSTED. */
bool td_row_features_read(struct td_row_features *features, struct td_text row, bool *is_object, struct td_error *err);

/* Adds a member that is a string in all rows of a group, such as the rows of one file. Group numbers are not 0. The
 * name is spelled as in JSON, without quotes. Sets *again to whether the group had a member of this name already.
 * Errors: as td_row_features_read. */
bool td_row_features_add_string(struct td_row_features *features, struct td_text name, uint64_t group, bool *again,
                                struct td_error *err);

/* Appends the features: [{"feature_idx":0,"name":"x","type":{...}}, ...]. */
void td_row_features_write(const struct td_row_features *features, struct td_buffer *out);

#endif
