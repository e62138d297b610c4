/* Sends runs of files by reference (sendfile) in libmicrohttpd's place. libmicrohttpd does so only from a descriptor
 * that it owns, with a new response for each answer: six system calls and some thirty small allocations more than are
 * needed.
 *
 * sender.c defines send and sendmsg in place of the C library's. libmicrohttpd is given td_sender_memory as the body,
 * which nobody can read. A call for bytes there sends the bytes of the run that is registered for the socket; any other
 * call goes to the kernel as it is. */
#ifndef TD_SERVER_SENDER_H
#define TD_SERVER_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TD_SENDER_BYTES = 16 * 1024 * 1024 }; /* longest run */

/* A run of bytes of a file. */
struct td_sent_run {
    size_t len;
    int file; /* a descriptor; borrowed */
    uint64_t off;
    /* Called before the last bytes are sent, and again when they have to be sent again. On the thread that sends. */
    void (*before_end)(void *context);
    void *context;
};

/* Returns the memory that stands for a run of up to TD_SENDER_BYTES bytes, the same for all; NULL while
 * libmicrohttpd's calls have not been seen to come here, or without address space. Any thread. */
char *td_sender_memory(void);

/* Registers the run that will be sent to this socket, which must not block; *run must stay until td_sender_end.
 * Returns false, with nothing registered, for a descriptor that is too large for the table. Called by the thread that
 * sends to the socket or, as td_sender_end, while that thread waits. */
bool td_sender_begin(int socket, const struct td_sent_run *run);

/* Ends the registration, before the socket is closed. Does nothing without one. */
void td_sender_end(int socket);

#endif
