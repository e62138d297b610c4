/* The report of `tensord plan`: the bytes and runs of each rank's file and of all files together. */
#ifndef TD_SERVER_CMD_PLAN_REPORT_H
#define TD_SERVER_CMD_PLAN_REPORT_H

#include "catalog/model/snapshot.h"
#include "slicing/plan/plan_match.h"
#include "slicing/rank_file.h"

/* Counts of a rank's file. A run is a contiguous range of one tensor's bytes. */
struct td_plan_tally {
    uint64_t nbytes;         /* length of the file */
    uint64_t header_bytes;   /* length of its header */
    uint64_t padding_bytes;  /* zeros that are in no tensor of the checkpoint */
    uint64_t constant_bytes; /* constants of the engine or the rules, also in no tensor of the checkpoint */
    uint64_t runs, smallest_run, largest_run; /* their number; the shortest and longest in bytes, 0 without runs */
};

/* The inputs of a report; all are borrowed. */
struct td_plan_report {
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    const char *engine; /* NULL: the plan has rules or ranks of its own */
    bool by_plan;       /* the user gave a plan: JSON then has "plan" as the engine, like the server */
    uint64_t tp_size;
    const struct td_plan_tally *ranks; /* tp_size tallies */
    const struct td_plan *plan;        /* of any rank: all ranks drop the same tensors */
    const struct td_plan_match *match; /* of the plan's own rules; NULL without such rules */
    bool covers;                       /* every tensor that is not dropped is on at least one rank */
};

/* Counts the bytes and runs of a rank's file. */
void td_plan_tally_file(const struct td_rank_file *file, struct td_plan_tally *out);

/* Print the report to standard output: a table for people, or one JSON object on one line. The caller checks standard
 * output for errors. */
void td_plan_report_table(const struct td_plan_report *report);
void td_plan_report_json(const struct td_plan_report *report);

#endif
