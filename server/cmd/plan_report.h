/* What `tensord plan` prints: of each rank's file, and of all together, the bytes and the runs that it is made of. */
#ifndef TD_SERVER_PLAN_REPORT_H
#define TD_SERVER_PLAN_REPORT_H

#include "catalog/snapshot.h"
#include "slicing/plan_match.h"
#include "slicing/rank_file.h"

/* What a rank's file is made of. A run lies contiguously in the bytes of one tensor. */
struct td_plan_tally {
    uint64_t nbytes;        /* of the file */
    uint64_t header_bytes;  /* of its header */
    uint64_t padding_bytes; /* zeros that no tensor has */
    uint64_t runs, smallest_run, largest_run;
};

/* All is borrowed. */
struct td_plan_report {
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    const char *engine; /* NULL: rules or ranks that were given */
    bool by_plan;       /* a plan was given: JSON then says "plan" for the engine, as the server does */
    uint64_t tp_size;
    const struct td_plan_tally *ranks; /* tp_size of them */
    const struct td_plan *plan;        /* of any rank: the dropped tensors are those of all */
    const struct td_plan_match *match; /* of rules that were given; NULL: of an engine, or none */
    bool covers;                       /* by rules: all that is not dropped is on one rank at least */
};

void td_plan_tally_file(const struct td_rank_file *file, struct td_plan_tally *out);

/* To standard output; errors there are for the caller to see. */
void td_plan_report_table(const struct td_plan_report *report);
void td_plan_report_json(const struct td_plan_report *report); /* one line */

#endif
