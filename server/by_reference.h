/* Sends a body by reference (sendfile) while libmicrohttpd believes that it sends one from memory. libmicrohttpd sends
 * by reference by itself only from a descriptor that it owns, with a new response for each answer: nine system calls
 * and some thirty small allocations, too many for a short answer.
 *
 * by_reference.c defines send and sendmsg in place of the C library's. libmicrohttpd is given td_by_reference_memory,
 * which nobody can read. A call for bytes there sends the bytes of the body that is registered for the socket; any
 * other call goes to the kernel as it is. */
#ifndef TD_SERVER_BY_REFERENCE_H
#define TD_SERVER_BY_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_BY_REFERENCE_BYTES = 256 * 1024 }; /* longest body */

/* A run of bytes of a file. */
struct td_by_reference {
    size_t len;
    int file; /* a descriptor; borrowed */
    uint64_t off;
    /* Called before each attempt to send the last bytes, on the thread that sends. */
    void (*before_end)(void *context);
    void *context;
};

/* Returns the memory that stands for a body of up to TD_BY_REFERENCE_BYTES bytes, the same for all bodies; NULL while
 * libmicrohttpd's calls have not been seen to come here, or without address space. Any thread. */
char *td_by_reference_memory(void);

/* Registers the body that will be sent to this socket, which must not block; *body must stay until
 * td_by_reference_end. Returns false, with nothing registered, for a descriptor that is too large for the table. Called
 * by the thread that sends to the socket or, as td_by_reference_end, while that thread waits. */
bool td_by_reference_begin(int socket, const struct td_by_reference *body);

/* Ends the registration, before the socket is closed. Does nothing without one. */
void td_by_reference_end(int socket);

#endif
