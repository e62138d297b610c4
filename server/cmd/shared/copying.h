/* Shared parts of `tensord pull` and `tensord push`: the connection to the servers, signals, notes on standard
 * error, and the progress line. */
#ifndef TD_SERVER_CMD_SHARED_COPYING_H
#define TD_SERVER_CMD_SHARED_COPYING_H

#include "core/cancel.h"
#include "core/error.h"
#include "core/message/document.h"
#include "server/cmd/shared/copy_options.h"
#include "server/cmd/shared/progress.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_session.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The state of a command that copies files; its threads share it. Only td_copying_begin and td_copying_end change what
 * is not atomic. */
struct td_copying {
    const struct td_copy_options *options;
    struct td_fetch_client *client;
    struct td_cancel cancel;     /* asked by a signal, and by has_failed */
    struct td_fetch_notes notes; /* are printed, unless --quiet is given */
    _Atomic bool has_failed;     /* a thread has, so that the others stop */
    _Atomic uint64_t done_bytes; /* for the progress line, of total_bytes; with those of server_bytes */
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t server_bytes[TD_FETCH_MAX_SERVERS]; /* of each server that files are sent to */
    _Atomic size_t waiting;                              /* number of waits for a server's bytes that last now */
    struct td_progress progress; /* td_copying_show starts it; for td_progress_pause and td_progress_resume */

    /* private */
    struct td_fetch_reputation reputations[TD_FETCH_MAX_SERVERS];
    char token_advice[TD_FETCH_ADVICE_BYTES];     /* for answers of 401 */
    struct td_meter meter;                        /* used by the progress thread alone */
    const char *doing;                            /* a word before the progress; borrowed */
    _Atomic unsigned noted[TD_FETCH_MAX_SERVERS]; /* notes about each server */
};

/* Prepares: blocks SIGINT and SIGTERM, so that they stay pending until `cancel` sees them, and ignores SIGPIPE and
 * SIGXFSZ, so that a closed connection and a limit on the size of files are errors of the calls. options is borrowed.
 * The caller calls td_copying_end in any case. */
void td_copying_begin(struct td_copying *copying, const struct td_copy_options *options);

/* Makes the client of these servers, with the token of --token-file or TENSORD_TOKEN. Errors: as td_fetch_token_read,
 * td_fetch_token_take and td_fetch_client_create. */
bool td_copying_connect(struct td_copying *copying, const char *const *urls, size_t url_count, struct td_error *err);

/* Frees the client. */
void td_copying_end(struct td_copying *copying);

/* Returns whether a signal that ends the command is pending. */
bool td_copying_has_signal(void);

/* Sets an error, and returns false, when the command is to stop. Loops over the files call it, since there may be so
 * many that a loop takes long. Errors: TD_CONFLICT. */
bool td_copying_check(const struct td_copying *copying, struct td_error *err);

/* Prints a note to standard error, unless --quiet is given. Any thread. */
void td_copying_note(struct td_copying *copying, const char *text);

/* Shows progress from here to td_copying_show_end, unless --quiet is given: `doing` (such as "reading", or ""), and
 * done_bytes of total_bytes. what names the model or directory. Both texts are borrowed. */
void td_copying_show(struct td_copying *copying, const char *doing, const char *what);
void td_copying_show_end(struct td_copying *copying);

/* The report of a command at its end. */
struct td_copying_report {
    void (*add_json)(struct td_document *json, const void *report); /* adds an object */
    void (*print_line)(const void *report);                         /* after a success */
    const void *report;
};

/* Prints the report: with --json an object, also after a failure; else its line, unless the command has failed or
 * --quiet is given. Returns the exit code. */
int td_copying_finish(const struct td_copying *copying, const struct td_copying_report *report, bool has_failed);

/* Prints why the command has failed. kept: how the copied bytes are kept, for a failure after which the same command
 * continues; NULL: nothing is kept. */
void td_copying_complain(const struct td_copying *copying, const struct td_error *err, const char *kept);

#endif
