/* The access log: one line for each request, written by a thread of its own from a queue of at most 1 MiB. The thread
 * collects lines for 25 ms, or until 64 KiB are queued, and writes them at once: it is not woken for every line. When
 * the log's reader is slow or stopped, lines are dropped and counted; a request never waits.
 *
 * The lines have the forms that docs/run.md describes. Each connection keeps the parts that its lines have in common,
 * and no text goes through printf; one thread at a time writes the lines of a connection. */
#ifndef TD_SERVER_LOG_ACCESS_LOG_H
#define TD_SERVER_LOG_ACCESS_LOG_H

#include "core/buffer.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "http/request_id.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_access_log;

/* Opens the log. `target` is a file name (lines are appended), "-" for standard output, or "off" for a log that writes
 * nothing. *dropped, which must outlive the log, counts lost lines. Errors: TD_IO when the file cannot be opened,
 * TD_RESOURCE_EXHAUSTED. */
bool td_access_log_create(const char *target, _Atomic uint64_t *dropped, struct td_access_log **out,
                          struct td_error *err);

/* Reopens the log's file by its name, creates it if it was renamed or removed, and continues there. No line is lost;
 * lines that are being written may still reach the old file. Does nothing for a log without a file. Sets *reopened. Any
 * thread, one at a time. Errors: TD_IO when the file cannot be opened, or is a named pipe without a reader; the log
 * then keeps the old file. */
bool td_access_log_reopen(struct td_access_log *log, bool *reopened, struct td_error *err);

/* Writes the queued lines, for at most 1 s, stops the thread, and frees the log, which no other thread may use any
 * more. NULL is allowed. */
void td_access_log_destroy(struct td_access_log *log);

/* Returns whether lines are written at all: false for "off". Any thread. */
bool td_access_log_is_on(const struct td_access_log *log);

/* Queues one line, which includes its newline. Does not block. Any thread. */
void td_access_log_write(struct td_access_log *log, const char *line, size_t len);

/* ---- lines --------------------------------------------------------------------------------------------- */

/* The parts that all lines of one connection share, kept between them. */
struct td_access_lines {
    enum td_log_form form;
    struct td_buffer line; /* the latest line; its memory is kept for the next one, unless the line was long */
    char client[INET6_ADDRSTRLEN];
    size_t client_len;
    char time[40]; /* of the latest line; empty before the first one */
    size_t time_len;
    int64_t time_second;
};

/* An answer that has ended. All texts are borrowed. */
struct td_access_event {
    struct td_wall end;
    struct td_text method, target; /* any bytes, as the client sent them */
    int status;
    uint64_t sent_bytes, length_bytes; /* of the answer's body: sent, and as a whole */
    uint64_t took_ns;
    bool is_upload;              /* its body went to a sink */
    uint64_t received_bytes;     /* of that body */
    uint64_t waited_ns;          /* for a change, before that; 0: it did not wait */
    const char *route;           /* its label */
    const char *cut;             /* the label of the reason; NULL: the answer is complete */
    const struct td_text *range; /* the field's value, any bytes; NULL: the request has no such field */
    const struct td_text *agent;
    const char *token;                    /* the name of the token that asked; empty: none */
    const char *request_id;               /* printable; empty: the request has no id */
    const struct td_trace_context *trace; /* NULL: the request has no context */
};

/* Prepares for lines about a client with this address; an IPv4 address is IPv4-mapped. */
void td_access_lines_init(struct td_access_lines *lines, const struct in6_addr *client, enum td_log_form form);

/* Frees the memory. The lines may also be all zero bytes. */
void td_access_lines_fini(struct td_access_lines *lines);

/* Returns the line about an answer with its newline, borrowed until the next call; the empty text when there is no
 * memory. Method, target and fields are escaped (td_utf8_escape) and cut to 1,023 bytes each; a line of JSON has at
 * most 10,000 bytes. The seconds have six decimals, rounded to the nearest microsecond. */
struct td_text td_access_lines_write(struct td_access_lines *lines, const struct td_access_event *event);

#endif
