/* The report of a `tensord pull`, for people and as JSON. */
#ifndef TD_SERVER_CMD_PULL_REPORT_H
#define TD_SERVER_CMD_PULL_REPORT_H

#include "core/error.h"
#include "server/cmd/pull_files.h"

#include <stdbool.h>
#include <stddef.h>

struct td_pull_report {
    const char *model, *revision, *directory;
    const char *commit; /* empty: not known */
    struct td_pull_files list;
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* Prints one JSON object to standard output, also after a failure. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_pull_report_json(const struct td_pull_report *report, struct td_error *err);

/* Prints a line about a pull that has succeeded to standard output. */
void td_pull_report_line(const struct td_pull_report *report);

#endif
