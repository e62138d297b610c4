/* A client of one or several servers that have the same files: their base URLs, the client's credentials, the trusted
 * authorities, and the time of retries. Any number of threads may read it; it never changes. Connections belong to a
 * session (fetch_session.h).
 *
 * libcurl does the HTTP. Only http and https are allowed, also after a redirect, and no redirect leads from https to
 * http. The token goes to the servers alone: libcurl leaves it out when a redirect leads to another host, port or
 * scheme. It never appears in a message. All servers get the same one. Which addresses a request may reach is the
 * guard's rule (fetch_guard.h). Each request says that its sender checks the file's digest (TD_INCOMING_CHECKS of
 * storage/incoming.h). The environment's proxies apply as they do for curl.
 *
 * A client has a reputation for each of its servers, which lasts from file to file: a server that has failed lately is
 * avoided while another one may be asked, and a server that has asked clients to wait (Retry-After) is not asked before
 * that time. */
#ifndef TD_STORAGE_FETCH_FETCH_CLIENT_H
#define TD_STORAGE_FETCH_FETCH_CLIENT_H

#include "core/error.h"
#include "core/text.h"
#include "storage/fetch/fetch_guard.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_MAX_SERVERS = 16,
    TD_FETCH_BAD_S = 30,       /* how long a server is avoided that has failed and has not succeeded since */
    TD_FETCH_PATIENCE_S = 300, /* bound on the time that a server can ask clients to wait */
};

/* The remembered state of one server. All zeros at the start; only keeps_patience is set then, and never changes. */
struct td_fetch_reputation {
    _Atomic uint64_t bad_until_ns;
    _Atomic uint64_t due_ns;
    _Atomic bool is_tensord;
    bool keeps_patience; /* else each file asks again, whatever the server has said before */
};

/* Records that a server has failed, or has succeeded. The time is td_clock_ns. NULL: does nothing. */
void td_fetch_reputation_failed(struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns);
void td_fetch_reputation_did_well(struct td_fetch_reputation *reputations, size_t server);

/* Returns whether the server is to be avoided. NULL: no. */
bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns);

/* Records that a server asks clients to wait for so many seconds, at most TD_FETCH_PATIENCE_S. A shorter time than an
 * earlier one changes nothing. NULL, or one that keeps no patience: does nothing. */
void td_fetch_reputation_wait(struct td_fetch_reputation *reputations, size_t server, uint64_t seconds,
                              uint64_t now_ns);

/* Returns the time (td_clock_ns) before which the server must not be asked; 0 for NULL, or if it has not asked clients
 * to wait. */
uint64_t td_fetch_reputation_due_ns(const struct td_fetch_reputation *reputations, size_t server);

/* Records whether the server is a tensord, since a tensord's 503 may be about one model alone; and returns what was
 * recorded (at first: no). NULL: does nothing. */
void td_fetch_reputation_set_kind(struct td_fetch_reputation *reputations, size_t server, bool is_tensord);
bool td_fetch_reputation_is_tensord(const struct td_fetch_reputation *reputations, size_t server);

enum {
    TD_FETCH_MAX_CONNECTIONS = 64,
    TD_FETCH_MAX_REDIRECTS = 5,
    TD_FETCH_CONNECT_S = 10,               /* a connection attempt that takes longer fails */
    TD_FETCH_STALL_S = 30,                 /* default of stall_s */
    TD_FETCH_STALL_BYTES = 1024,           /* fewer bytes in each second of stall_s: the connection has failed */
    TD_FETCH_MAX_HEADER_BYTES = 64 * 1024, /* of one answer, with those of redirects */
    TD_FETCH_TOKEN_BYTES = 4096,           /* the longest token */
};

/* The settings of a client; all but token_advice and reputations are copied. */
struct td_fetch_settings {
    const char *const *urls; /* base URLs, 1 to TD_FETCH_MAX_SERVERS, the preferred one first */
    size_t url_count;
    const char *token;                       /* NULL: none. Printable ASCII without spaces */
    const char *token_advice;                /* NULL, or the remedy for 401, for people; not copied */
    const char *ca;                          /* file of authorities in PEM; NULL: those of the system */
    const char *cert;                        /* file of the client's certificate in PEM; NULL: none */
    const char *key;                         /* file of its key in PEM; NULL when cert is NULL */
    const char *header;                      /* NULL, or a further field of each request: "Tensord-Hops: 1" */
    uint64_t retry_for_ns;                   /* how long to retry without any progress; 0: no retries */
    unsigned stall_s;                        /* seconds; 0: TD_FETCH_STALL_S */
    struct td_fetch_reputation *reputations; /* of these servers, in this order; borrowed, and may be shared by clients;
                                                NULL: nothing is remembered from file to file */
};

struct td_fetch_client;

/* Makes a client. Errors: as td_fetch_url_check; TD_INVALID_ARGUMENT for a token with other characters or for too many
 * URLs; TD_NOT_FOUND or TD_IO for a file of TLS that cannot be read; TD_RESOURCE_EXHAUSTED. */
bool td_fetch_client_create(const struct td_fetch_settings *settings, struct td_fetch_client **out,
                            struct td_error *err);

/* Frees the client, which no session may use any more. NULL is allowed. */
void td_fetch_client_destroy(struct td_fetch_client *client);

/* Reads a token from a file of one line (spaces around it are ignored) into new memory, which the caller erases and
 * frees with td_fetch_token_free. Errors: TD_NOT_FOUND, TD_IO; TD_INVALID_ARGUMENT when the file is empty or holds more
 * than a token. */
bool td_fetch_token_read(const char *path, char **token, struct td_error *err);

/* Copies a token, which the caller frees with td_fetch_token_free, without one line end after it. `source` names where
 * it stands. Errors: TD_INVALID_ARGUMENT for what can be no token, TD_RESOURCE_EXHAUSTED. */
bool td_fetch_token_take(const char *text, const char *source, char **token, struct td_error *err);
void td_fetch_token_free(char *token);

/* Return the number of servers, and the base URL of one (borrowed, NUL-terminated). */
size_t td_fetch_client_count(const struct td_fetch_client *client);
const char *td_fetch_client_url(const struct td_fetch_client *client, size_t server);

/* Returns the settings' token_advice. */
const char *td_fetch_client_token_advice(const struct td_fetch_client *client);

/* Returns whether requests have a token. */
bool td_fetch_client_has_token(const struct td_fetch_client *client);

/* Returns the settings' reputations, or NULL. */
struct td_fetch_reputation *td_fetch_client_reputations(const struct td_fetch_client *client);

/* Return the settings' retry_for_ns, and their stall_s or its default. */
uint64_t td_fetch_client_retry_for_ns(const struct td_fetch_client *client);
unsigned td_fetch_client_stall_s(const struct td_fetch_client *client);

/* Returns libcurl's list of the fields that each request has (struct curl_slist *), owned by the client. For the other
 * modules of this folder, which may put nodes of their own in front. */
void *td_fetch_client_fields(const struct td_fetch_client *client);

/* Makes a new handle of libcurl (CURL *) for a path, with its query, below a server's base URL, with all that the
 * client decides; NULL when out of memory. For the other modules of this folder; the caller cleans the handle up. A
 * handle must not outlive the client, nor the guard that watches it. */
void *td_fetch_client_handle(const struct td_fetch_client *client, size_t server, const char *path,
                             struct td_fetch_guard *guard);

/* Changes the server and the path of such a handle. Before each request td_fetch_guard_begin is called, too. Returns
 * false when out of memory. */
bool td_fetch_client_aim(const struct td_fetch_client *client, void *handle, size_t server, const char *path);

#endif
