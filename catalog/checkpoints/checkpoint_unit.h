/* Units, from which checkpoint.c makes the checkpoints of a directory. A unit is a set of files that may become a
 * checkpoint. All functions are for the one thread that builds the snapshot. */
#ifndef TD_CATALOG_CHECKPOINTS_CHECKPOINT_UNIT_H
#define TD_CATALOG_CHECKPOINTS_CHECKPOINT_UNIT_H

#include "catalog/checkpoints/shard_group.h"
#include "catalog/model/candidate.h"
#include "catalog/model/snapshot.h"

/* Families of checkpoints. The default of a family gets the family's name as its id. */
enum td_family { TD_FAMILY_SAFETENSORS, TD_FAMILY_PYTORCH, TD_FAMILY_OTHER };

/* A set of files that may become a checkpoint. */
struct td_unit {
    const char *name; /* the id, unless the unit is its family's default */
    enum td_family family;
    bool joined;                        /* joined with another unit, which has its parts */
    bool is_variant;                    /* a variant of another unit (weights_name.h), such as fp16 */
    const struct td_entry *index_entry; /* NULL without an index */
    const struct td_entry **parts;      /* owned until a checkpoint takes the list */
    size_t part_count;
    struct td_shard_range range;     /* of a -NNNNN-of-NNNNN group: the numbers of its shards; count 0: no group */
    const char *requested_id;        /* of a group: the id that it gets if nothing else has it; else NULL */
    struct td_joined_tensors *boxes; /* a reference to the tensors joined from boxes; NULL: no boxes */
    const char *part_reason;         /* of a rank part: why it is not the whole model; else NULL */
};

/* The builder: the candidates of one directory and the units that they become. */
struct td_unit_builder {
    struct td_snapshot *snapshot;
    const struct td_snapshot *previous; /* or NULL */
    struct td_model *model;
    const struct td_candidate *candidates; /* sorted by path */
    bool *claimed;                         /* per candidate: belongs to an index or a group */
    size_t count;
    struct td_unit *units;
    size_t unit_count, unit_capacity;
    struct td_unit *asides; /* units that lack files, and rank parts */
    size_t aside_count, aside_capacity;
    const char *first_part; /* path of the first rank part; NULL: none */
    size_t rank_part_count;
    struct td_error *err;
};

/* Returns the family, by the name of a file or an index. */
enum td_family td_family_of(const char *name);

/* Adds a problem of the model. */
void td_units_problem(struct td_unit_builder *b, const char *path, const char *message);

/* Adds a unit with room for `capacity` parts. Returns NULL, with the error set, for want of memory. The next call may
 * move it. */
struct td_unit *td_unit_add(struct td_unit_builder *b, const char *name, size_t capacity);

/* Moves the last unit to those that lack files. Returns it with an empty list of parts, to be filled again, or NULL for
 * want of memory. */
struct td_unit *td_unit_set_aside(struct td_unit_builder *b);

/* Returns the index of the candidate with this base name, or SIZE_MAX. */
size_t td_units_find(const struct td_unit_builder *b, const char *name);

/* Returns the model that the snapshot before had in place of this one, or NULL. */
const struct td_model *td_units_previous_model(const struct td_unit_builder *b);

/* Returns the joined tensors that the snapshot before made of the same files, or NULL. */
struct td_joined_tensors *td_units_previous_join(const struct td_unit_builder *b, const struct td_unit *unit);

/* ---- files that hold parts of tensors ------------------------------------------------------------------ */

/* Boxes may make a whole checkpoint; ranks' parts are set aside. Call the functions in their order here. Each claims
 * its files, so that no later step takes them. Errors: TD_RESOURCE_EXHAUSTED. */

/* Collects the files that hold boxes of tensors. When the boxes do not fill all tensors, sets the files aside as rank
 * parts. */
bool td_collect_boxes(struct td_unit_builder *b);

/* Sets aside the files that hold one rank's part of the tensors. */
bool td_collect_rank_parts(struct td_unit_builder *b);

/* Sets aside the files beside rank parts that hold no tensors or a trainer's state, so that clients do not take them
 * for the model. */
bool td_collect_beside_parts(struct td_unit_builder *b);

/* Adds a problem when the model has rank parts and no checkpoint with tensors. Call when the checkpoints are made. */
void td_report_parts(struct td_unit_builder *b);

#endif
