/* Trailers: fields that follow a body (RFC 9110 section 6.5). gRPC has the status of a call there. */
#ifndef TD_HTTP_TRAILERS_H
#define TD_HTTP_TRAILERS_H

#include "core/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_TRAILERS = 3 };

struct td_trailers {
    struct td_trailer {
        const char *name; /* static, lower-case */
        char *value;      /* owned; printable ASCII */
    } fields[TD_TRAILERS];
    size_t count;
};

/* Adds a field whose value is the buffer's text, and leaves the buffer empty. Returns false, with nothing added, when
 * the buffer has failed, memory is short, or there are TD_TRAILERS fields already. */
bool td_trailers_add(struct td_trailers *trailers, const char *name, struct td_buffer *value);

/* Frees the values. There are no trailers then. */
void td_trailers_fini(struct td_trailers *trailers);

#endif
