#include "server/cmd/push_site.h"

#include "core/array.h"

#include <stdlib.h>
#include <unistd.h>

/* Files are sent in parts of this size, by several connections. */
#define PART_BYTES (UINT64_C(32) * 1024 * 1024)

_Static_assert(PART_BYTES % TD_REMOTE_PIECE_BYTES == 0, "parts must end where pieces do");

/* Most times in a row that the server lacks as much as before, although everything was sent. */
enum { MAX_STUCK = 3 };

/* A range of a file that one request sends. */
struct td_push_part {
    const struct td_push_file *file;
    struct td_push_sending *sending;
    struct td_remote_span span;
};

/* A thread that sends parts. */
struct worker {
    struct td_crew_member member; /* first */
    struct td_push_site *site;
    struct td_fetch_session *session;
};

static bool is_cancelled(void *context)
{
    const struct td_push_site *site = context;
    return atomic_load(&site->has_failed) || td_copying_has_signal();
}

bool td_push_site_init(struct td_push_site *site, const struct td_push_order *order, size_t server,
                       struct td_error *err)
{
    *site = (struct td_push_site){
        .member = {.err = TD_ERROR_INIT}, .order = order, .server = server, .least_bytes = UINT64_MAX};
    site->cancel = (struct td_cancel){.is_asked = is_cancelled, .context = site};
    site->sendings = calloc(order->files->count, sizeof *site->sendings);
    return (site->sendings != NULL || td_error_no_memory(err)) &&
           td_fetch_session_create(order->copying->client, &site->cancel, &order->copying->notes, &site->session, err);
}

void td_push_site_fini(struct td_push_site *site)
{
    td_remote_lacks_fini(&site->reply.lacks);
    td_fetch_session_destroy(site->session);
    free(site->sendings);
    free(site->parts);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static bool add_part(struct td_push_site *site, const struct td_push_file *file, uint64_t first, uint64_t end,
                     struct td_error *err)
{
    if (!TD_ARRAY_GROW(site->parts, site->part_count, site->part_capacity, err))
        return false;
    site->parts[site->part_count++] =
        (struct td_push_part){.file = file,
                              .sending = &site->sendings[file - site->order->files->files],
                              .span = {.first = first, .end = end}};
    return true;
}

/* Adds the parts of a range that the server lacks. One connection sends a range at once. */
static bool add_parts(struct td_push_site *site, const struct td_push_file *file, struct td_remote_span span,
                      struct td_error *err)
{
    /* an empty file is one part, too */
    if (site->order->copying->options->connections == 1 || span.first == span.end)
        return add_part(site, file, span.first, span.end, err);
    for (uint64_t at = span.first, end; at < span.end; at = end) {
        end = at - at % PART_BYTES + PART_BYTES;
        end = end < span.end ? end : span.end;
        if (!add_part(site, file, at, end, err))
            return false;
    }
    return true;
}

static bool refuse_lack(const struct td_push_site *site, const char *why, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "%.96s to %.200s: the server asks for %s", site->order->commit.id,
                        td_fetch_client_url(site->order->copying->client, site->server), why);
}

/* Adds the parts of one blob that the server lacks. Ranges are widened to whole pieces. */
static bool add_lack(struct td_push_site *site, const struct td_remote_lack *lack, struct td_error *err)
{
    const struct td_remote_lacks *lacks = &site->reply.lacks;
    const struct td_push_file *file = td_push_files_of_digest(site->order->files, lack->sha256);
    struct td_push_sending *sending = file == NULL ? NULL : &site->sendings[file - site->order->files->files];
    if (file == NULL || sending->is_lacking)
        return refuse_lack(site, "a blob that no file has, or twice for one", err);
    uint64_t size_bytes = file->blob.size_bytes;
    uint64_t before = 0;
    sending->is_lacking = true;
    atomic_store(&sending->is_sent, false);
    if (lack->span_count == 0)
        return add_parts(site, file, (struct td_remote_span){0, size_bytes}, err);
    for (size_t i = 0; i < lack->span_count; i++) {
        struct td_remote_span span = lacks->spans[lack->span_first + i];
        if (span.first < before || span.end > size_bytes)
            return refuse_lack(site, "bytes that the file does not have, or not in their order", err);
        span.first -= span.first % TD_REMOTE_PIECE_BYTES;
        before = span.end + (TD_REMOTE_PIECE_BYTES - span.end % TD_REMOTE_PIECE_BYTES) % TD_REMOTE_PIECE_BYTES;
        span.end = before < size_bytes ? before : size_bytes;
        if (!add_parts(site, file, span, err))
            return false;
    }
    return true;
}

static bool check_cancelled(const struct td_push_site *site, struct td_error *err)
{
    return !td_cancel_is_asked(&site->cancel) || td_error_set(err, TD_CONFLICT, "stopped");
}

/* Makes the parts that the server lacks, by its reply. Sets *bytes to their sum. */
static bool make_parts(struct td_push_site *site, uint64_t *bytes, struct td_error *err)
{
    site->part_count = 0;
    *bytes = 0;
    for (size_t i = 0; i < site->order->files->count; i++)
        site->sendings[i].is_lacking = false;
    for (size_t i = 0; i < site->reply.lacks.count; i++)
        if (!check_cancelled(site, err) || !add_lack(site, &site->reply.lacks.items[i], err))
            return false;
    for (size_t i = 0; i < site->part_count; i++)
        *bytes += site->parts[i].span.end - site->parts[i].span.first;
    return true;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* Returns the counter of the bytes that the server has. */
static _Atomic uint64_t *done_bytes_of(const struct td_push_site *site)
{
    return &site->order->copying->server_bytes[site->server];
}

static bool send_part(struct worker *worker, const struct td_push_part *part, struct td_error *err)
{
    struct td_push_site *site = worker->site;
    struct td_copying *copying = site->order->copying;
    const struct td_push_file *file = part->file;
    struct td_error why = TD_ERROR_INIT;
    bool is_complete = false;
    int fd;
    if (!td_push_file_open(site->order->files, file, &fd, err))
        return false;
    const struct td_remote_sending sending = {.server = site->server,
                                              .id = site->order->commit.id,
                                              .shown = file->path,
                                              .blob = file->blob,
                                              .fd = fd,
                                              .sent_bytes = &part->sending->sent_bytes,
                                              .done_bytes = done_bytes_of(site)};
    atomic_fetch_add(&copying->waiting, 1);
    bool ok = td_remote_blob_send(worker->session, &sending, part->span, &is_complete, &why);
    atomic_fetch_sub(&copying->waiting, 1);
    bool may_have_changed = why.code == TD_INVALID_ARGUMENT || why.code == TD_FAILED_PRECONDITION;
    if (may_have_changed) /* then that is the cause */
        (void)td_push_file_check(file, fd, err);
    (void)close(fd);
    if (ok && is_complete)
        atomic_store(&part->sending->is_sent, true);
    return ok || td_error_copy(err, &why);
}

/* Sends parts until none is left, or a thread of this site has failed. */
static void *send_parts(void *argument)
{
    struct worker *worker = argument;
    struct td_push_site *site = worker->site;
    size_t i;
    while (!atomic_load(&site->has_failed) && (i = atomic_fetch_add(&site->next, 1)) < site->part_count) {
        const struct td_push_part *part = &site->parts[i];
        if (atomic_load(&part->sending->is_sent)) /* by another client */
            atomic_fetch_add(done_bytes_of(site), part->span.end - part->span.first);
        else if (!send_part(worker, part, &worker->member.err))
            atomic_store(&site->has_failed, true);
    }
    return NULL;
}

/* Sends all parts by several workers, as many as sessions can be made for. The first one uses the site's session. */
static bool send_all(struct td_push_site *site, struct td_error *err)
{
    struct worker workers[TD_FETCH_MAX_CONNECTIONS];
    const struct td_copying *copying = site->order->copying;
    size_t wanted = (size_t)copying->options->connections;
    size_t count = 1;
    wanted = wanted < site->part_count ? wanted : site->part_count;
    atomic_store(&site->next, 0);
    workers[0] = (struct worker){.member = {.err = TD_ERROR_INIT}, .site = site, .session = site->session};
    for (; count < wanted; count++) {
        struct worker *worker = &workers[count];
        *worker = (struct worker){.member = {.err = TD_ERROR_INIT}, .site = site};
        if (!td_fetch_session_create(copying->client, &site->cancel, &copying->notes, &worker->session, NULL))
            break;
    }
    bool ok = td_crew_run(workers, count, sizeof *workers, send_parts, err);
    for (size_t i = 1; i < count; i++)
        td_fetch_session_destroy(workers[i].session);
    return ok && check_cancelled(site, err);
}

/* ---- the commit ---------------------------------------------------------------------------------------- */

bool td_push_site_ask(struct td_push_site *site, bool is_dry_run, struct td_error *err)
{
    struct td_remote_commit commit = site->order->commit;
    uint64_t lacking_bytes = 0;
    commit.server = site->server;
    commit.is_dry_run = is_dry_run;
    td_remote_lacks_fini(&site->reply.lacks);
    if (!td_remote_commit_ask(site->session, &commit, &site->reply, err) || !make_parts(site, &lacking_bytes, err))
        return false;
    atomic_store(done_bytes_of(site), site->order->files->digest_bytes - lacking_bytes);
    site->is_done = site->reply.is_made && !is_dry_run;
    site->stuck = lacking_bytes < site->least_bytes ? 0 : site->stuck + 1;
    site->least_bytes = lacking_bytes < site->least_bytes ? lacking_bytes : site->least_bytes;
    site->has_sent = site->has_sent || site->part_count > 0;
    return site->reply.is_made || site->stuck < MAX_STUCK ||
           refuse_lack(site, "the same bytes again, although they were sent several times", err);
}

bool td_push_site_send(struct td_push_site *site, bool is_dry_run, struct td_error *err)
{
    while (!site->reply.is_made)
        if (!send_all(site, err) || !td_push_site_ask(site, is_dry_run, err))
            return false;
    return true;
}
