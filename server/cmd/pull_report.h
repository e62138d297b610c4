/* The report of a `tensord pull`, for people and as JSON. */
#ifndef TD_SERVER_CMD_PULL_REPORT_H
#define TD_SERVER_CMD_PULL_REPORT_H

#include "catalog/remote/remote_model.h"
#include "core/error.h"
#include "storage/fetch/fetch_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One file of the pull. */
struct td_pull_file {
    const char *path; /* in the model, by which the server is asked; borrowed from the listing */
    char *name;       /* in the directory; owned; NULL: as path */
    const struct td_fetch_expected *expected; /* borrowed from the listing */
    bool is_done;
    struct td_fetch_outcome outcome;
    uint64_t older_bytes; /* fetched of older versions, before the list was read again */
};

struct td_pull_report {
    const char *model, *revision, *directory;
    const char *commit; /* empty: not known */
    const struct td_pull_file *files;
    size_t count;
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* Returns the name of the file in the directory. */
const char *td_pull_file_name(const struct td_pull_file *file);

/* Prints one JSON object to standard output, also after a failure. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_pull_report_json(const struct td_pull_report *report, struct td_error *err);

/* Prints a line about a pull that has succeeded to standard output. */
void td_pull_report_line(const struct td_pull_report *report);

#endif
