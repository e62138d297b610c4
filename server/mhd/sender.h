/* Sends bodies of answers in libmicrohttpd's place. libmicrohttpd has no way to send vectors or, beside other bytes,
 * runs of files by reference (sendfile), and it cannot be told to withhold the last bytes of a body.
 *
 * sender.c defines send, sendmsg and shutdown in place of the C library's. libmicrohttpd is given td_sender_memory as
 * the body, which nobody can read. A call for bytes there calls the body that is registered for the socket
 * (server/net/sent_sockets); any other call goes to the kernel as it is. */
#ifndef TD_SERVER_MHD_SENDER_H
#define TD_SERVER_MHD_SENDER_H

#include <stddef.h>

/* Returns the memory that stands for a body of len bytes, the same for all; NULL while libmicrohttpd's calls have not
 * been seen to come here, or without so much address space. Any thread. */
char *td_sender_memory(size_t len);

#endif
