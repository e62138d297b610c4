/* Sessions: blobs of published repositories that arrive in the bodies of several requests, one after the other, under a
 * name that the server gives, as clients of OCI registries send them. The digest is known at the end. A body counts
 * when it has arrived whole: a cut one is dropped, so that the client can send it again. When a client continues while
 * an earlier body still seems to arrive, on a connection that is dead and not known to be, the earlier one is dropped.
 *
 * A session is two files in the own folder: sessions/ID has its bytes, and its journal, sessions/ID.journal, says how
 * many of them count. So sessions outlive the server: they are there again after a stop and after a kill at any moment,
 * and what counted counts still. After a crash of the machine the order of writes is not certain, and the digest does
 * not decide before the end; so the journal has the machine's boot id, and a session ends with the boot.
 *
 * Those that nobody continues expire. Thread-safe; a turn belongs to one thread at a time. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_SESSION_H
#define TD_CATALOG_PUBLISH_PUBLISH_SESSION_H

#include "catalog/publish/publish_store.h"
#include "catalog/publish/publish_stream.h"
#include "core/text.h"

enum {
    TD_PUBLISH_SESSIONS = 512,        /* that are open at once, of all repositories */
    TD_PUBLISH_SESSIONS_OF_ONE = 128, /* of one token */
    TD_PUBLISH_SESSION_ID_BYTES = 37, /* of a name, a random UUID (RFC 9562), with a NUL */
};

struct td_publish_session;

/* Begins a session. owner: the name of the token that asks, empty without tokens. *out has a reference for the caller.
 * When as many are open as may be, of the token or of all, ends the one of these that nobody has continued for the
 * longest time. Errors: TD_UNAVAILABLE when all of them were continued within the last minute; those of
 * td_publish_stream_begin. */
bool td_publish_session_begin(struct td_publish *publish, const struct td_publish_name *name, const char *owner,
                              struct td_publish_session **out, struct td_error *err);

/* Returns the session of this repository with this name, with a reference for the caller; NULL without it. */
struct td_publish_session *td_publish_session_find(struct td_publish *publish, const struct td_publish_name *name,
                                                   struct td_text id);

/* Drops a reference. NULL is allowed. */
void td_publish_session_unref(struct td_publish_session *session);

/* Returns the session's name. */
const char *td_publish_session_id(const struct td_publish_session *session);

/* Returns how many bytes count. */
uint64_t td_publish_session_bytes(struct td_publish_session *session);

/* Ends a session, and drops all of its bytes. */
void td_publish_session_cancel(struct td_publish_session *session);

/* Begins a body, and drops what has arrived of an earlier one that has not ended. Returns its turn, which the next
 * calls name; 0 when the session has ended. */
uint64_t td_publish_session_turn(struct td_publish_session *session);

/* Takes the next bytes of the body. Errors: TD_CONFLICT when the turn is another body's; as td_publish_stream_write. */
bool td_publish_session_write(struct td_publish_session *session, uint64_t turn, const void *bytes, size_t len,
                              struct td_error *err);

/* Has the bytes of the body count, which has arrived whole. Sets *bytes as td_publish_session_bytes. Errors:
 * TD_CONFLICT when the turn is another body's. */
bool td_publish_session_keep(struct td_publish_session *session, uint64_t turn, uint64_t *bytes, struct td_error *err);

/* Drops the bytes of the body, unless they count or the turn is another body's. */
void td_publish_session_drop(struct td_publish_session *session, uint64_t turn);

/* Ends the session with the body, which has arrived whole and may be empty: all bytes are the blob. Errors: TD_CONFLICT
 * when the turn is another body's; those of td_publish_stream_end, after which nothing of it stays. */
bool td_publish_session_end(struct td_publish_session *session, uint64_t turn, const uint8_t expected[TD_SHA256_BYTES],
                            struct td_publish_sum *out, struct td_error *err);

/* Lists the sessions that an earlier process left, when the store is opened, and removes those that cannot be
 * continued. Errors as td_own_folder_each. */
bool td_publish_sessions_load(struct td_publish *publish, struct td_error *err);

/* Frees all sessions, and leaves their files for td_publish_sessions_load. */
void td_publish_sessions_leave(struct td_publish *publish);

/* Ends sessions that nobody has continued for upload_expires_s, and releases the memory of those that nobody has
 * continued for a minute. */
void td_publish_sessions_tidy(struct td_publish *publish, uint64_t now_ns);

/* Ends the sessions of a repository's folder. */
void td_publish_sessions_close(struct td_publish *publish, const char *folder);

#endif
