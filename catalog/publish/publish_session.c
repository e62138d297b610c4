#include "catalog/publish/publish_session.h"

#include "core/clock.h"
#include "core/digits.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REST_NS (UINT64_C(60) * TD_NS_PER_S)

struct td_publish_session {
    struct td_publish *publish;
    struct td_publish_name name;
    char id[TD_PUBLISH_SESSION_ID_BYTES];
    _Atomic int refs;                /* one is the list's */
    struct td_publish_session *next; /* under the store's lock */
    _Atomic uint64_t used_ns;        /* when the session was last continued */

    pthread_mutex_t lock;             /* of all below; taken before the store's */
    struct td_publish_stream *stream; /* NULL: the session has ended */
    uint64_t bytes;                   /* that count */
    uint64_t turn;                    /* the latest body's */
    bool is_arriving;                 /* that body has not ended */
};

/* ---- the list --------------------------------------------------------------------------------------------- */

void td_publish_session_unref(struct td_publish_session *session)
{
    if (session == NULL || atomic_fetch_sub(&session->refs, 1) > 1)
        return;
    td_publish_stream_abandon(session->stream);
    (void)pthread_mutex_destroy(&session->lock);
    free(session);
}

/* Takes a session off the list, if it is there, and drops the list's reference. */
static void unlist(struct td_publish_session *session)
{
    struct td_publish *publish = session->publish;
    pthread_mutex_lock(&publish->lock);
    struct td_publish_session **at = &publish->sessions;
    while (*at != NULL && *at != session)
        at = &(*at)->next;
    bool is_listed = *at != NULL;
    if (is_listed) {
        *at = session->next;
        publish->session_count--;
    }
    pthread_mutex_unlock(&publish->lock);
    if (is_listed)
        td_publish_session_unref(session);
}

/* Writes a random UUID. */
static bool name_session(char id[TD_PUBLISH_SESSION_ID_BYTES], struct td_error *err)
{
    uint8_t bytes[16];
    char hex[2 * sizeof bytes + 1];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_sys(err, TD_IO, errno, "cannot get random bytes");
    bytes[6] = (uint8_t)(0x40 | (bytes[6] & 0x0f)); /* version 4 */
    bytes[8] = (uint8_t)(0x80 | (bytes[8] & 0x3f));
    td_hex_write(bytes, sizeof bytes, hex);
    (void)snprintf(id, TD_PUBLISH_SESSION_ID_BYTES, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
                   hex + 20);
    return true;
}

/* Lists a session, if there is room for one more. */
static bool list_session(struct td_publish_session *session)
{
    struct td_publish *publish = session->publish;
    pthread_mutex_lock(&publish->lock);
    bool has_room = publish->session_count < TD_PUBLISH_SESSIONS;
    if (has_room) {
        publish->session_count++;
        session->next = publish->sessions;
        publish->sessions = session;
        atomic_fetch_add(&session->refs, 1);
    }
    pthread_mutex_unlock(&publish->lock);
    return has_room;
}

/* Ends the session that nobody has continued for the longest time, if that is a minute, so that others can begin. */
static bool make_room(struct td_publish *publish)
{
    struct td_publish_session *oldest = NULL;
    uint64_t oldest_ns = td_clock_ns() - REST_NS;
    pthread_mutex_lock(&publish->lock);
    for (struct td_publish_session *session = publish->sessions; session != NULL; session = session->next)
        if (atomic_load(&session->used_ns) < oldest_ns) {
            oldest = session;
            oldest_ns = atomic_load(&session->used_ns);
        }
    if (oldest != NULL)
        atomic_fetch_add(&oldest->refs, 1);
    pthread_mutex_unlock(&publish->lock);
    if (oldest == NULL)
        return false;
    td_publish_session_cancel(oldest);
    td_publish_session_unref(oldest);
    return true;
}

bool td_publish_session_begin(struct td_publish *publish, const struct td_publish_name *name,
                              struct td_publish_session **out, struct td_error *err)
{
    struct td_publish_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return td_error_no_memory(err);
    session->publish = publish;
    session->name = *name;
    atomic_store(&session->used_ns, td_clock_ns());
    atomic_store(&session->refs, 1);
    (void)pthread_mutex_init(&session->lock, NULL); /* cannot fail without attributes (glibc) */
    bool ok = name_session(session->id, err) &&
              td_publish_stream_begin(publish, name, TD_FETCH_SIZE_UNKNOWN, &session->stream, err);
    if (ok && !list_session(session) && !(make_room(publish) && list_session(session)))
        ok = td_error_set(err, TD_UNAVAILABLE, "as many uploads are open as may be (%d); try again later",
                          TD_PUBLISH_SESSIONS);
    if (ok)
        *out = session;
    else
        td_publish_session_unref(session);
    return ok;
}

struct td_publish_session *td_publish_session_find(struct td_publish *publish, const struct td_publish_name *name,
                                                   struct td_text id)
{
    pthread_mutex_lock(&publish->lock);
    struct td_publish_session *session = publish->sessions;
    while (session != NULL && (!td_text_equals(id, session->id) || strcmp(session->name.folder, name->folder) != 0))
        session = session->next;
    if (session != NULL)
        atomic_fetch_add(&session->refs, 1);
    pthread_mutex_unlock(&publish->lock);
    return session;
}

/* ---- one session ------------------------------------------------------------------------------------------ */

const char *td_publish_session_id(const struct td_publish_session *session)
{
    return session->id;
}

uint64_t td_publish_session_bytes(struct td_publish_session *session)
{
    pthread_mutex_lock(&session->lock);
    uint64_t bytes = session->bytes;
    atomic_store(&session->used_ns, td_clock_ns());
    pthread_mutex_unlock(&session->lock);
    return bytes;
}

/* Takes the stream out of a session, which has then ended. */
static struct td_publish_stream *take_stream(struct td_publish_session *session)
{
    pthread_mutex_lock(&session->lock);
    struct td_publish_stream *stream = session->stream;
    session->stream = NULL;
    pthread_mutex_unlock(&session->lock);
    return stream;
}

void td_publish_session_cancel(struct td_publish_session *session)
{
    td_publish_stream_abandon(take_stream(session));
    unlist(session);
}

/* Drops the bytes that do not count. A stream that cannot continue ends the session. The lock is held. */
static void rewind_stream(struct td_publish_session *session)
{
    session->is_arriving = false;
    if (session->stream == NULL || td_publish_stream_rewind(session->stream, session->bytes, NULL))
        return;
    td_publish_stream_abandon(session->stream);
    session->stream = NULL;
}

uint64_t td_publish_session_turn(struct td_publish_session *session)
{
    pthread_mutex_lock(&session->lock);
    if (session->is_arriving)
        rewind_stream(session);
    uint64_t turn = session->stream == NULL ? 0 : ++session->turn;
    session->is_arriving = turn > 0;
    atomic_store(&session->used_ns, td_clock_ns());
    pthread_mutex_unlock(&session->lock);
    if (turn == 0)
        unlist(session);
    return turn;
}

/* Returns whether the turn is that of the body that arrives. The lock is held. */
static bool check_turn(const struct td_publish_session *session, uint64_t turn, struct td_error *err)
{
    return (session->stream != NULL && session->is_arriving && session->turn == turn) ||
           td_error_set(err, TD_CONFLICT, "another request has continued or ended this upload");
}

bool td_publish_session_write(struct td_publish_session *session, uint64_t turn, const void *bytes, size_t len,
                              struct td_error *err)
{
    pthread_mutex_lock(&session->lock);
    bool ok = check_turn(session, turn, err) && td_publish_stream_write(session->stream, bytes, len, err);
    atomic_store(&session->used_ns, td_clock_ns());
    pthread_mutex_unlock(&session->lock);
    return ok;
}

bool td_publish_session_keep(struct td_publish_session *session, uint64_t turn, uint64_t *bytes, struct td_error *err)
{
    pthread_mutex_lock(&session->lock);
    bool ok = check_turn(session, turn, err);
    if (ok) {
        session->is_arriving = false;
        session->bytes = td_publish_stream_bytes(session->stream);
    }
    *bytes = session->bytes;
    pthread_mutex_unlock(&session->lock);
    return ok;
}

void td_publish_session_drop(struct td_publish_session *session, uint64_t turn)
{
    pthread_mutex_lock(&session->lock);
    if (check_turn(session, turn, NULL))
        rewind_stream(session);
    bool has_ended = session->stream == NULL;
    pthread_mutex_unlock(&session->lock);
    if (has_ended)
        unlist(session);
}

bool td_publish_session_end(struct td_publish_session *session, uint64_t turn, const uint8_t expected[TD_SHA256_BYTES],
                            struct td_publish_sum *out, struct td_error *err)
{
    pthread_mutex_lock(&session->lock);
    bool ok = turn > 0 ? check_turn(session, turn, err)
                       : (session->stream != NULL && !session->is_arriving) ||
                             td_error_set(err, TD_CONFLICT, "another request continues this upload, or has ended it");
    struct td_publish_stream *stream = ok ? session->stream : NULL;
    if (ok)
        session->stream = NULL;
    pthread_mutex_unlock(&session->lock);
    if (!ok)
        return false;
    unlist(session);
    return td_publish_stream_end(stream, expected, out, err);
}

/* ---- all sessions ----------------------------------------------------------------------------------------- */

/* Ends the session, or has it rest, if nobody has continued it for long. Returns whether it has ended. */
static bool age(struct td_publish_session *session, uint64_t now_ns)
{
    pthread_mutex_lock(&session->lock);
    uint64_t used_ns = atomic_load(&session->used_ns);
    uint64_t idle_ns = now_ns > used_ns ? now_ns - used_ns : 0;
    bool is_old = idle_ns / TD_NS_PER_S > session->publish->config.upload_expires_s;
    if (!is_old && idle_ns > REST_NS && !session->is_arriving && session->stream != NULL)
        td_publish_stream_rest(session->stream);
    pthread_mutex_unlock(&session->lock);
    return is_old;
}

/* Returns the session of the folder (NULL: of any) after this one in the list, or the first; with a reference. */
static struct td_publish_session *next_of(struct td_publish *publish, const struct td_publish_session *after,
                                          const char *folder)
{
    pthread_mutex_lock(&publish->lock);
    struct td_publish_session *session = publish->sessions;
    while (after != NULL && session != NULL && session != after)
        session = session->next;
    session = after != NULL && session != NULL ? session->next : session;
    while (session != NULL && folder != NULL && strcmp(session->name.folder, folder) != 0)
        session = session->next;
    if (session != NULL)
        atomic_fetch_add(&session->refs, 1);
    pthread_mutex_unlock(&publish->lock);
    return session;
}

void td_publish_sessions_tidy(struct td_publish *publish, uint64_t now_ns)
{
    struct td_publish_session *session = next_of(publish, NULL, NULL);
    while (session != NULL) {
        struct td_publish_session *next = next_of(publish, session, NULL); /* NULL when it was ended just now */
        if (age(session, now_ns))
            td_publish_session_cancel(session);
        td_publish_session_unref(session);
        session = next;
    }
}

void td_publish_sessions_close(struct td_publish *publish, const char *folder)
{
    for (struct td_publish_session *session = next_of(publish, NULL, folder); session != NULL;
         session = next_of(publish, NULL, folder)) {
        td_publish_session_cancel(session);
        td_publish_session_unref(session); // NOLINT(clang-analyzer-unix.Malloc): it is off the list
    }
}
