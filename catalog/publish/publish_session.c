#include "catalog/publish/publish_session.h"

#include "catalog/publish/publish_folder.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "storage/fetch/fetch_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define REST_NS (UINT64_C(60) * TD_NS_PER_S)

static const char sessions_folder[] = "sessions", journal_end[] = ".journal";

/* Lines of a journal: how many bytes count, in TD_NUMBER_BYTES digits; the boot id; the repository's folder; the token.
 */
enum { JOURNAL_BYTES = TD_NUMBER_BYTES + TD_FETCH_BOOT_BYTES + NAME_MAX + TD_PUBLISH_OWNER_BYTES + 5 };

struct td_publish_session {
    struct td_publish *publish;
    struct td_publish_name name;
    char id[TD_PUBLISH_SESSION_ID_BYTES];
    char owner[TD_PUBLISH_OWNER_BYTES];
    _Atomic int refs;                /* one is the list's */
    struct td_publish_session *next; /* under the store's lock */
    _Atomic uint64_t used_ns;        /* when the session was last continued */

    pthread_mutex_t lock;             /* of all below; taken before the store's */
    struct td_publish_stream *stream; /* NULL: the session has ended */
    uint64_t bytes;                   /* that count; the journal says so, too */
    uint64_t turn;                    /* the latest body's */
    bool is_arriving;                 /* that body has not ended */
};

/* ---- files ------------------------------------------------------------------------------------------------ */

/* Writes the path of a session's bytes, or of its journal, below the own folder. */
static void write_path(const char *id, const char *end, char path[TD_OWN_NAME_BYTES])
{
    (void)snprintf(path, TD_OWN_NAME_BYTES, "%s/%s%s", sessions_folder, id, end);
}

/* Writes the journal of a new session: no byte counts yet. */
static bool begin_journal(const struct td_publish_session *session, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    char boot[TD_FETCH_BOOT_BYTES];
    char text[JOURNAL_BYTES];
    td_fetch_read_boot(boot);
    int len = snprintf(text, sizeof text, "%0*d\n%s\n%s\n%s\n", TD_NUMBER_BYTES, 0, boot, session->name.folder,
                       session->owner);
    write_path(session->id, journal_end, path);
    int fd = openat(session->publish->disk.own.fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && td_write_at(fd, text, (size_t)len, 0);
    ok = ok || td_publish_fail(&session->name, "begin an upload to", err);
    td_folder_close(fd);
    return ok;
}

/* Writes to the journal that so many bytes count. */
static bool note_bytes(const struct td_publish_session *session, uint64_t bytes, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    char digits[TD_NUMBER_BYTES + 1];
    (void)snprintf(digits, sizeof digits, "%0*" PRIu64, TD_NUMBER_BYTES, bytes);
    write_path(session->id, journal_end, path);
    int fd = openat(session->publish->disk.own.fd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    bool ok = (fd >= 0 && td_write_at(fd, digits, TD_NUMBER_BYTES, 0)) ||
              td_publish_fail(&session->name, "continue an upload to", err);
    td_folder_close(fd);
    return ok;
}

static void remove_journal(const struct td_publish *publish, const char *id)
{
    char path[TD_OWN_NAME_BYTES];
    write_path(id, journal_end, path);
    (void)unlinkat(publish->disk.own.fd, path, 0);
}

/* Reads the journal: the session's repository and token, how many bytes count, and when that was written (seconds
 * since 1970). Returns false for one that was not written since the machine's boot. */
static bool read_journal(struct td_publish_session *session, int64_t *written_s)
{
    char path[TD_OWN_NAME_BYTES];
    char boot[TD_FETCH_BOOT_BYTES];
    char text[JOURNAL_BYTES];
    char folder[NAME_MAX + 1];
    struct stat st = {.st_size = 0};
    write_path(session->id, journal_end, path);
    int fd = openat(session->publish->disk.own.fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 || fstat(fd, &st) != 0 ? -1 : td_read_at(fd, text, sizeof text, 0);
    td_folder_close(fd);
    struct td_text rest = td_text_n(text, n < 0 ? 0 : (size_t)n);
    td_fetch_read_boot(boot);
    if (!td_number_read(td_text_take_until(&rest, '\n'), INT64_MAX, &session->bytes) || boot[0] == '\0' ||
        !td_text_equals(td_text_take_until(&rest, '\n'), boot))
        return false;
    struct td_text line = td_text_take_until(&rest, '\n');
    (void)snprintf(folder, sizeof folder, "%.*s", TD_SHOW(line, NAME_MAX));
    line = td_text_take_until(&rest, '\n');
    (void)snprintf(session->owner, sizeof session->owner, "%.*s", TD_SHOW(line, TD_PUBLISH_OWNER_BYTES - 1));
    *written_s = st.st_mtim.tv_sec;
    return td_publish_name_of_folder(folder, &session->name);
}

/* ---- the list --------------------------------------------------------------------------------------------- */

void td_publish_session_unref(struct td_publish_session *session)
{
    if (session == NULL || atomic_fetch_sub(&session->refs, 1) > 1)
        return;
    if (session->stream != NULL)
        remove_journal(session->publish, session->id);
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

static bool is_of(const struct td_publish_session *session, const char *owner)
{
    return owner[0] != '\0' && strcmp(session->owner, owner) == 0;
}

/* Returns whether the token has as many sessions as one may have. The store's lock is held. */
static bool has_share(const struct td_publish *publish, const char *owner)
{
    size_t count = 0;
    for (const struct td_publish_session *session = publish->sessions; session != NULL; session = session->next)
        count += is_of(session, owner) ? 1 : 0;
    return count >= TD_PUBLISH_SESSIONS_OF_ONE;
}

/* Lists a session, if there is room for one more. Sets *is_share to whether there is none for its token alone. */
static bool list_session(struct td_publish_session *session, bool *is_share)
{
    struct td_publish *publish = session->publish;
    pthread_mutex_lock(&publish->lock);
    *is_share = has_share(publish, session->owner);
    bool has_room = publish->session_count < TD_PUBLISH_SESSIONS && !*is_share;
    if (has_room) {
        publish->session_count++;
        session->next = publish->sessions;
        publish->sessions = session;
        atomic_fetch_add(&session->refs, 1);
    }
    pthread_mutex_unlock(&publish->lock);
    return has_room;
}

/* Ends the session of this token (NULL: of any) that nobody has continued for the longest time, if that is a minute, so
 * that others can begin. */
static bool make_room(struct td_publish *publish, const char *owner)
{
    struct td_publish_session *oldest = NULL;
    uint64_t oldest_ns = td_clock_ns() - REST_NS;
    pthread_mutex_lock(&publish->lock);
    for (struct td_publish_session *session = publish->sessions; session != NULL; session = session->next)
        if (atomic_load(&session->used_ns) < oldest_ns && (owner == NULL || is_of(session, owner))) {
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

/* Makes a session that is not listed, with one reference. */
static struct td_publish_session *make_session(struct td_publish *publish, struct td_error *err)
{
    struct td_publish_session *session = calloc(1, sizeof *session);
    if (session == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    session->publish = publish;
    atomic_store(&session->used_ns, td_clock_ns());
    atomic_store(&session->refs, 1);
    (void)pthread_mutex_init(&session->lock, NULL); /* cannot fail without attributes (glibc) */
    return session;
}

/* Lists a new session; ends another one where that makes room. Errors: TD_UNAVAILABLE. */
static bool find_room(struct td_publish_session *session, struct td_error *err)
{
    bool is_share;
    if (list_session(session, &is_share) ||
        (make_room(session->publish, is_share ? session->owner : NULL) && list_session(session, &is_share)))
        return true;
    return is_share ? td_error_set(err, TD_UNAVAILABLE,
                                   "the token \"%s\" has as many uploads open as one may have (%d); try again later",
                                   session->owner, TD_PUBLISH_SESSIONS_OF_ONE)
                    : td_error_set(err, TD_UNAVAILABLE, "as many uploads are open as may be (%d); try again later",
                                   TD_PUBLISH_SESSIONS);
}

bool td_publish_session_begin(struct td_publish *publish, const struct td_publish_name *name, const char *owner,
                              struct td_publish_session **out, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    struct td_publish_session *session = make_session(publish, err);
    if (session == NULL)
        return false;
    session->name = *name;
    (void)snprintf(session->owner, sizeof session->owner, "%s", owner);
    bool ok = name_session(session->id, err);
    write_path(session->id, "", path);
    ok = ok && td_publish_stream_begin_at(publish, name, path, &session->stream, err) && begin_journal(session, err) &&
         find_room(session, err);
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
    struct td_publish_stream *stream = take_stream(session);
    if (stream != NULL)
        remove_journal(session->publish, session->id);
    td_publish_stream_abandon(stream);
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
    remove_journal(session->publish, session->id);
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
    uint64_t arrived = ok ? td_publish_stream_bytes(session->stream) : 0;
    ok = ok && td_publish_stream_save(session->stream, err) && note_bytes(session, arrived, err);
    if (ok) {
        session->is_arriving = false;
        session->bytes = arrived;
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
    bool ok = check_turn(session, turn, err);
    struct td_publish_stream *stream = ok ? session->stream : NULL;
    if (ok)
        session->stream = NULL;
    pthread_mutex_unlock(&session->lock);
    if (!ok)
        return false;
    unlist(session);
    ok = td_publish_stream_end(stream, expected, out, err);
    remove_journal(session->publish, session->id);
    return ok;
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

/* Lists the session with this id that an earlier process left. Returns false when it cannot be continued. */
static bool load_session(struct td_publish *publish, const char *id)
{
    char path[TD_OWN_NAME_BYTES];
    int64_t written_s;
    struct td_publish_session *session = make_session(publish, NULL);
    if (session == NULL)
        return false;
    (void)snprintf(session->id, sizeof session->id, "%s", id);
    write_path(id, "", path);
    bool ok = read_journal(session, &written_s) &&
              td_publish_stream_resume(publish, &session->name, path, session->bytes, &session->stream, NULL);
    if (ok) {
        int64_t age_s = td_wall_now().seconds - written_s;
        uint64_t age_ns = age_s > 0 ? (uint64_t)age_s * TD_NS_PER_S : 0;
        uint64_t now_ns = td_clock_ns();
        atomic_store(&session->used_ns, age_ns < now_ns ? now_ns - age_ns : 0);
        bool is_share;
        ok = list_session(session, &is_share);
    }
    td_publish_session_unref(session);
    return ok;
}

static bool load_file(void *context, const char *name, struct td_error *err)
{
    struct td_publish *publish = context;
    struct td_text rest = td_text_of(name);
    struct td_text id = td_text_take_until(&rest, '.');
    char path[TD_OWN_NAME_BYTES];
    (void)err;
    if (td_text_equals(rest, journal_end + 1))
        return true; /* with its session, below */
    write_path(name, "", path);
    if (id.len != TD_PUBLISH_SESSION_ID_BYTES - 1 || rest.len > 0 || !load_session(publish, name))
        (void)unlinkat(publish->disk.own.fd, path, 0);
    return true;
}

/* Removes a journal whose session is not there. */
static bool remove_lone_journal(void *context, const char *name, struct td_error *err)
{
    struct td_publish *publish = context;
    struct td_text rest = td_text_of(name);
    char id[NAME_MAX + 1];
    char path[TD_OWN_NAME_BYTES];
    struct td_text before = td_text_take_until(&rest, '.');
    (void)err;
    (void)snprintf(id, sizeof id, "%.*s", TD_SHOW(before, NAME_MAX));
    write_path(id, "", path);
    if (rest.len > 0 && faccessat(publish->disk.own.fd, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        remove_journal(publish, id);
    return true;
}

bool td_publish_sessions_load(struct td_publish *publish, struct td_error *err)
{
    return td_own_folder_each(&publish->disk.own, sessions_folder, load_file, publish, err) &&
           td_own_folder_each(&publish->disk.own, sessions_folder, remove_lone_journal, publish, err);
}

void td_publish_sessions_leave(struct td_publish *publish)
{
    for (struct td_publish_session *session = next_of(publish, NULL, NULL); session != NULL;
         session = next_of(publish, NULL, NULL)) {
        td_publish_stream_leave(take_stream(session));
        unlist(session);
        td_publish_session_unref(session); // NOLINT(clang-analyzer-unix.Malloc): it is off the list
    }
}
