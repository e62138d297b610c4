/* Prints what `tensord verify` finds, while it works: a line for each problem, or with --json an object whose first
 * member is the list of problems. Problems are printed as soon as they are known, so memory does not grow with their
 * number. */
#ifndef TD_SERVER_CMD_VERIFY_REPORT_H
#define TD_SERVER_CMD_VERIFY_REPORT_H

#include "core/buffer.h"
#include "core/message/document.h"
#include "server/cmd/shared/progress.h"

#include <stdbool.h>
#include <stdint.h>

/* The members are for reading, but for `json` between the functions below. */
struct td_verify_report {
    bool as_json;
    bool has_failed; /* memory was short: the object has a gap */
    struct td_document json;
    struct td_buffer text;        /* of the object, not printed yet */
    struct td_buffer shown;       /* scratch memory for td_terminal_name */
    struct td_progress *progress; /* is not shown while a problem is printed; borrowed */
};

void td_verify_report_init(struct td_verify_report *report, bool as_json, struct td_progress *progress);
void td_verify_report_fini(struct td_verify_report *report);

/* Begins the object and its list of problems. Only with --json, as the next function. */
void td_verify_report_begin(struct td_verify_report *report);

/* Prints the part of the object that was added. */
void td_verify_report_flush(struct td_verify_report *report);

/* Begin and end a problem. Without --json, the beginning is "TITLE  NAME: ", and the caller prints the rest of the line
 * between the two; with it, the members "problem" (which kind) and `key` (what `name` is of), and the caller adds more.
 * name is escaped. */
void td_verify_problem_begin(struct td_verify_report *report, const char *problem, const char *title, const char *key,
                             const char *name);
void td_verify_problem_end(struct td_verify_report *report);

/* Adds the members "expected" and "found" to a problem. */
void td_verify_problem_add(struct td_verify_report *report, const char *expected, const char *found);

/* Prints a problem: something that cannot be read, and why. */
void td_verify_print_unreadable(struct td_verify_report *report, const char *key, const char *name,
                                const char *message);

/* Begins the line of item `number` (from 0) of `count` items that could not be compared; the caller then prints the
 * item's name. From the 21st on it prints how many more there are instead, and returns false. */
bool td_verify_not_compared(uint64_t number, uint64_t count);

#endif
