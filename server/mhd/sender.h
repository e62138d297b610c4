/* Sends bodies of answers in libmicrohttpd's place. libmicrohttpd has no way to send vectors or, beside other bytes,
 * runs of files by reference (sendfile), and it has no option to withhold the last bytes of a body.
 *
 * sender.c defines send, sendmsg and shutdown in place of the C library's. libmicrohttpd gets td_sender_memory as the
 * body, which cannot be read. When it sends bytes from there, these functions send from the body that is registered for
 * the socket (server/net/sent_body) instead; they pass all other calls to the kernel unchanged. */
#ifndef TD_SERVER_MHD_SENDER_H
#define TD_SERVER_MHD_SENDER_H

#include <stddef.h>

/* Returns the memory that takes the place of a body of len bytes; it is the same for all bodies. Returns NULL until
 * libmicrohttpd has called these functions, or when so much address space could not be reserved. Any thread. */
char *td_sender_memory(size_t len);

#endif
