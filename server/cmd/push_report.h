/* The report of a push, for people and as JSON. */
#ifndef TD_SERVER_CMD_PUSH_REPORT_H
#define TD_SERVER_CMD_PUSH_REPORT_H

#include "core/error.h"
#include "core/message/document.h"
#include "server/cmd/push_site.h"

struct td_push_report {
    const char *model, *revision;
    const char *const *urls; /* of the servers */
    size_t url_count;
    const struct td_push_site *sites; /* one for each URL; NULL: the push ended before a server was asked */
    const struct td_push_files *files;
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* For td_copying_finish; report is a td_push_report. Add an object, and print a line about each server where the commit
 * is made. */
void td_push_report_add(struct td_document *json, const void *report);
void td_push_report_line(const void *report);

#endif
