/* libmicrohttpd, loaded when a server starts: loading it, GnuTLS and what that needs takes longer than `inspect` takes
 * for a file. Its functions are called as td_mhd.NAME for MHD_NAME. */
#ifndef TD_SERVER_MHD_H
#define TD_SERVER_MHD_H

#include "core/error.h"

#include <microhttpd.h>
#include <stdbool.h>

#define TD_MHD_FUNCTIONS(X)                               \
    X(add_connection)                                     \
    X(add_response_header)                                \
    X(create_response_from_buffer)                        \
    X(create_response_from_buffer_with_free_callback_cls) \
    X(create_response_from_callback)                      \
    X(create_response_from_iovec)                         \
    X(destroy_response)                                   \
    X(get_connection_info)                                \
    X(get_connection_values_n)                            \
    X(get_daemon_info)                                    \
    X(get_reason_phrase_for)                              \
    X(get_version)                                        \
    X(queue_response)                                     \
    X(start_daemon)                                       \
    X(stop_daemon)

#define TD_MHD_MEMBER(name) __typeof__ (&MHD_##name)(name);
extern struct td_mhd {
    TD_MHD_FUNCTIONS(TD_MHD_MEMBER)
} td_mhd; /* NULLs until td_mhd_load has returned true */
#undef TD_MHD_MEMBER

/* Loads the library, once; it stays loaded. Not for two threads at a time. Fails with TD_FAILED_PRECONDITION when it is
 * missing or too old. */
bool td_mhd_load(struct td_error *err);

#endif
