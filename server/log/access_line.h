/* Lines of the access log, in the forms that docs/run.md describes. A line is written for every request, so each
 * connection keeps the parts that its lines have in common, and no text goes through printf.
 *
 * Threads: one at a time for each connection. */
#ifndef TD_SERVER_LOG_ACCESS_LINE_H
#define TD_SERVER_LOG_ACCESS_LINE_H

#include "core/buffer.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text.h"
#include "http/trace_context.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

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
 * memory. Method, target and fields are escaped (td_utf8_escape) and cut to 1,023 bytes each; a
 * line of JSON has at most 10,000 bytes. The seconds have six
 * decimals, rounded to the nearest microsecond. */
struct td_text td_access_lines_write(struct td_access_lines *lines, const struct td_access_event *event);

#endif
