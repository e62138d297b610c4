/* Reports the state of the service to systemd by the protocol of sd_notify(3): datagrams with lines NAME=VALUE to the
 * socket that $NOTIFY_SOCKET names. Without that variable all functions do nothing. No function waits: when the socket
 * is full, the datagram is dropped. Threads: one at a time. */
#ifndef TD_SERVER_HOST_NOTIFY_H
#define TD_SERVER_HOST_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { TD_NOTIFY_STATUS_BYTES = 512 }; /* of a status text, with its NUL */

struct td_notify {
    int fd; /* -1: nothing is sent */
    struct sockaddr_un address;
    socklen_t address_len;
    uint64_t watchdog_ns; /* systemd kills a service that is silent for so long; 0: never */
    uint64_t alive_ns;    /* when td_notify_alive sends again */
    char status[TD_NOTIFY_STATUS_BYTES];
};

/* Reads NOTIFY_SOCKET (a path, or "@" and the name of an abstract socket), WATCHDOG_USEC and WATCHDOG_PID, and removes
 * them from the environment, which no other thread may use during the call. If the variable is set but cannot be used,
 * logs why nothing will be sent. */
void td_notify_init(struct td_notify *notify);

/* Closes the socket. */
void td_notify_fini(struct td_notify *notify);

/* Returns whether messages are sent. */
bool td_notify_is_on(const struct td_notify *notify);

/* Sends READY=1: the service has started, or has reloaded. Returns whether that was sent. */
bool td_notify_ready(struct td_notify *notify);

/* Sends RELOADING=1 with the monotonic time. Returns whether that was sent; the caller must then call
 * td_notify_ready. */
bool td_notify_reloading(struct td_notify *notify);

/* Sends STOPPING=1. */
void td_notify_stopping(struct td_notify *notify);

/* Sends STATUS= with this text, escaped (td_utf8_escape) and cut, unless that was sent last. */
void td_notify_status(struct td_notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sends WATCHDOG=1 if a third of the watchdog's time has passed since the last time. The main loop calls this in each
 * round, at least four times within the watchdog's time. */
void td_notify_alive(struct td_notify *notify);

#endif
