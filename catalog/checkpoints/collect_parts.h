/* Units of files that hold parts of tensors: boxes, which may make a whole checkpoint, and ranks' parts, which are set
 * aside. Call the functions in their order here. Each claims its files, so that no later step takes them. Errors:
 * TD_RESOURCE_EXHAUSTED. */
#ifndef TD_CATALOG_CHECKPOINTS_COLLECT_PARTS_H
#define TD_CATALOG_CHECKPOINTS_COLLECT_PARTS_H

#include "catalog/checkpoints/checkpoint_unit.h"

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
