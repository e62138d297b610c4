#include "storage/incoming.h"

#include "core/cancel.h"
#include "core/clock.h"
#include "core/file_io.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct incoming {
    struct td_blob blob; /* first, so that a pointer to one is a pointer to the other */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd;          /* -1: none yet; does not change once it is set */
    bool has_sha256; /* readers know it */
    uint64_t stall_ns;
    uint64_t arrived;      /* the first bytes, so many, are in the file */
    uint64_t arrived_ns;   /* when that last grew */
    bool is_finished;      /* all are there, and right */
    bool is_wanted;        /* a reader has waited */
    bool has_given;        /* a reader has bytes that were not checked yet */
    struct td_error error; /* code TD_OK: the writer has not failed */
};

static struct incoming *incoming_of(struct td_blob *blob)
{
    return (struct incoming *)(void *)blob;
}

static void incoming_destroy(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    if (in->fd >= 0)
        (void)close(in->fd);
    (void)pthread_cond_destroy(&in->changed);
    (void)pthread_mutex_destroy(&in->lock);
    free(in);
}

/* Returns how many bytes may be read. Under the lock. */
static uint64_t readable(const struct incoming *in)
{
    uint64_t len = in->blob.len_bytes;
    uint64_t open = len > TD_INCOMING_HELD_BYTES ? len - TD_INCOMING_HELD_BYTES : 0;
    if (in->is_finished)
        return len;
    return in->arrived < open ? in->arrived : open;
}

/* The time between a waiting reader's checks whether its client has gone. */
static const uint64_t look_ns = UINT64_C(100000000);

/* Waits until `end` bytes may be read, and at most until the writer has failed, until_ns (0: until nothing has arrived
 * for stall_ns), or `cancel` (NULL: none) is asked. Returns whether they may be read. Under the lock. */
static bool wait_for(struct incoming *in, uint64_t end, uint64_t until_ns, const struct td_cancel *cancel)
{
    uint64_t begun_ns = td_clock_ns();
    uint64_t ask_ns = begun_ns; /* when the next question is due */
    while (in->error.code == TD_OK && readable(in) < end) {
        uint64_t now_ns = td_clock_ns();
        uint64_t since_ns = in->arrived_ns > begun_ns ? in->arrived_ns : begun_ns;
        uint64_t limit_ns = until_ns != 0 ? until_ns : since_ns + in->stall_ns;
        in->is_wanted = true;
        if (now_ns >= limit_ns || (now_ns >= ask_ns && td_cancel_is_asked(cancel)))
            return false;
        if (now_ns >= ask_ns)
            ask_ns = now_ns + look_ns;
        const struct timespec wake = td_clock_timespec(cancel != NULL && ask_ns < limit_ns ? ask_ns : limit_ns);
        (void)pthread_cond_timedwait(&in->changed, &in->lock, &wake);
    }
    return in->error.code == TD_OK;
}

static bool read_fully(int fd, uint64_t off, uint8_t *out, size_t len, struct td_error *err)
{
    ssize_t n = td_read_at(fd, out, len, off);
    if (n < 0)
        return td_error_sys(err, TD_IO, errno, "cannot read a file that is being fetched");
    return (size_t)n == len || td_error_set(err, TD_UNAVAILABLE, "a file that is being fetched has become shorter");
}

/* Reads as the blob's `read` does, and waits no longer once `cancel` (NULL: none) is asked. */
static bool read_arrived(struct incoming *in, uint64_t off, void *out, size_t len, const struct td_cancel *cancel,
                         struct td_error *err)
{
    pthread_mutex_lock(&in->lock);
    bool ok = wait_for(in, off + len, 0, cancel);
    if (in->error.code != TD_OK)
        (void)td_error_copy(err, &in->error);
    else if (!ok)
        (void)td_error_set(err, TD_UNAVAILABLE,
                           "the client has gone, or nothing of the file has arrived for %" PRIu64 " s",
                           in->stall_ns / TD_NS_PER_S);
    in->has_given = in->has_given || (ok && !in->is_finished);
    int fd = in->fd;
    pthread_mutex_unlock(&in->lock);
    return ok && read_fully(fd, off, out, len, err);
}

static bool incoming_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    return read_arrived(incoming_of(blob), off, out, len, NULL, err);
}

static bool incoming_unchanged(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    bool ok = in->error.code == TD_OK;
    pthread_mutex_unlock(&in->lock);
    return ok;
}

static bool never_pinned(struct td_blob *blob)
{
    (void)blob;
    return false;
}

static bool never_resident(struct td_blob *blob, uint64_t off, uint64_t len)
{
    (void)blob;
    (void)off;
    (void)len;
    return false;
}

/* Waits briefly for the byte at `off`; for HEAD only if the file is small. Stops waiting once `cancel` (NULL: none) is
 * asked. A slow writer is not an error: the answer begins, and its bytes follow. */
static bool prepare_byte(struct incoming *in, uint64_t off, bool for_head, const struct td_cancel *cancel,
                         struct td_error *err)
{
    uint64_t wait_ns = in->stall_ns < TD_INCOMING_PREPARE_NS ? in->stall_ns : TD_INCOMING_PREPARE_NS;
    pthread_mutex_lock(&in->lock);
    if (!for_head || in->blob.len_bytes < TD_INCOMING_SMALL_BYTES)
        (void)wait_for(in, off + 1, td_clock_ns() + wait_ns, cancel);
    bool ok = in->error.code == TD_OK || td_error_copy(err, &in->error);
    pthread_mutex_unlock(&in->lock);
    return ok;
}

static bool incoming_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    (void)len;
    return prepare_byte(incoming_of(blob), off, for_head, NULL, err);
}

static const struct td_blob_class incoming_class = {.destroy = incoming_destroy,
                                                    .read = incoming_read,
                                                    .unchanged = incoming_unchanged,
                                                    .pinned = never_pinned,
                                                    .resident = never_resident,
                                                    .prepare = incoming_prepare};

bool td_incoming_create(uint64_t len_bytes, bool has_sha256, uint64_t stall_ns, struct td_blob **out,
                        struct td_error *err)
{
    struct incoming *in = calloc(1, sizeof *in);
    if (in == NULL)
        return td_error_no_memory(err);
    bool has_lock = pthread_mutex_init(&in->lock, NULL) == 0;
    if (!has_lock || !td_clock_condition_init(&in->changed)) {
        if (has_lock)
            (void)pthread_mutex_destroy(&in->lock);
        free(in);
        return td_error_no_memory(err);
    }
    td_error_init(&in->error);
    in->fd = -1;
    in->has_sha256 = has_sha256;
    in->stall_ns = stall_ns;
    td_blob_init(&in->blob, &incoming_class, len_bytes);
    *out = &in->blob;
    return true;
}

void td_incoming_attach(struct td_blob *blob, int fd)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    assert(in->fd < 0);
    in->fd = fd;
    pthread_mutex_unlock(&in->lock);
}

void td_incoming_advance(struct td_blob *blob, uint64_t bytes)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    if (bytes > in->arrived) {
        in->arrived = bytes;
        in->arrived_ns = td_clock_ns();
        pthread_cond_broadcast(&in->changed);
    }
    pthread_mutex_unlock(&in->lock);
}

void td_incoming_finish(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    assert(in->fd >= 0);
    in->is_finished = true;
    in->arrived = in->blob.len_bytes;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

void td_incoming_fail(struct td_blob *blob, const struct td_error *why)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    if (!in->is_finished && in->error.code == TD_OK)
        in->error = *why;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->lock);
}

uint64_t td_incoming_arrived(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    uint64_t arrived = in->arrived;
    pthread_mutex_unlock(&in->lock);
    return arrived;
}

bool td_incoming_has_given(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    bool has_given = in->has_given;
    pthread_mutex_unlock(&in->lock);
    return has_given;
}

bool td_incoming_take_wanted(struct td_blob *blob)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    bool is_wanted = in->is_wanted;
    in->is_wanted = false;
    pthread_mutex_unlock(&in->lock);
    return is_wanted;
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

/* An incoming blob as one answer reads it: for as long as the answer's client is there. */
struct answered {
    struct td_blob_over over;       /* the source is the incoming blob */
    const struct td_cancel *cancel; /* NULL: none */
    bool is_held;                   /* no byte is given out before the writer has finished */
};

static struct answered *answered_of(struct td_blob *blob)
{
    return (struct answered *)(void *)blob;
}

/* Reads bytes that have arrived. When is_held, waits for the last byte first, which arrives only when all bytes are
 * right. */
static bool answered_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct answered *answered = answered_of(blob);
    struct incoming *in = incoming_of(answered->over.source);
    uint8_t last;
    return (!answered->is_held || read_arrived(in, blob->len_bytes - 1, &last, 1, answered->cancel, err)) &&
           read_arrived(in, off, out, len, answered->cancel, err);
}

static bool answered_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    const struct answered *answered = answered_of(blob);
    (void)len;
    return prepare_byte(incoming_of(answered->over.source), answered->is_held ? blob->len_bytes - 1 : off, for_head,
                        answered->cancel, err);
}

static const struct td_blob_class answered_class = {.destroy = td_blob_over_destroy,
                                                    .read = answered_read,
                                                    .unchanged = td_blob_over_unchanged,
                                                    .pinned = never_pinned,
                                                    .resident = never_resident,
                                                    .prepare = answered_prepare};

/* Returns an answer's blob with one reference, or NULL when memory is short. */
static struct td_blob *create_answered(struct td_blob *of, const struct td_cancel *cancel, bool is_held)
{
    struct answered *answered = calloc(1, sizeof *answered);
    if (answered == NULL)
        return NULL;
    td_blob_over_init(&answered->over, &answered_class, of->len_bytes, of, 0);
    answered->cancel = cancel;
    answered->is_held = is_held;
    return &answered->over.blob;
}

/* Puts an answer's blobs in the place of incoming ones. */
static bool replace_all(struct td_body *body, const struct td_cancel *cancel, bool is_held, struct td_error *err)
{
    for (size_t i = 0; i < body->extent_count; i++) {
        struct td_extent *extent = &body->extents[i];
        if (extent->blob->class != &incoming_class)
            continue;
        struct td_blob *answered = create_answered(extent->blob, cancel, is_held);
        if (answered == NULL)
            return td_error_no_memory(err);
        td_blob_unref(extent->blob);
        extent->blob = answered;
    }
    return true;
}

bool td_incoming_end_with(struct td_body *body, const struct td_cancel *cancel, struct td_error *err)
{
    return replace_all(body, cancel, false, err);
}

/* Returns whether reading the extent would wait. */
static bool extent_is_awaited(const struct td_extent *extent)
{
    if (extent->blob->class != &answered_class)
        return false;
    const struct answered *answered = answered_of(extent->blob);
    struct incoming *in = incoming_of(answered->over.source);
    uint64_t end = extent->off + (extent->count - 1) * extent->stride + extent->len; /* td_body has checked it */
    pthread_mutex_lock(&in->lock);
    bool is_awaited = in->error.code == TD_OK && readable(in) < (answered->is_held ? in->blob.len_bytes : end);
    pthread_mutex_unlock(&in->lock);
    return is_awaited;
}

bool td_incoming_is_awaited(const struct td_body *body)
{
    for (size_t i = 0; i < body->extent_count; i++)
        if (extent_is_awaited(&body->extents[i]))
            return true;
    return false;
}

static size_t count_incoming(const struct td_body *body)
{
    size_t count = 0;
    for (size_t i = 0; i < body->extent_count; i++)
        count += body->extents[i].blob->class == &incoming_class ? 1 : 0;
    return count;
}

static bool append_all(struct td_body *body, const struct td_body *more, struct td_error *err)
{
    for (size_t i = 0; i < more->extent_count; i++) {
        const struct td_extent *extent = &more->extents[i];
        if (!td_body_append_runs(body, extent->blob, extent->off, extent->len, extent->count, extent->stride, err))
            return false;
    }
    return true;
}

enum td_incoming_worth td_incoming_worth_of(const struct td_body *body)
{
    enum td_incoming_worth worst = TD_INCOMING_CHECKED;
    for (size_t i = 0; i < body->extent_count; i++) {
        struct td_blob *blob = body->extents[i].blob;
        if (blob->class != &incoming_class)
            continue;
        struct incoming *in = incoming_of(blob);
        pthread_mutex_lock(&in->lock);
        enum td_incoming_worth worth = in->is_finished  ? TD_INCOMING_CHECKED
                                       : in->has_sha256 ? TD_INCOMING_CHECKABLE
                                                        : TD_INCOMING_UNCHECKED;
        pthread_mutex_unlock(&in->lock);
        worst = worth > worst ? worth : worst;
    }
    return worst;
}

bool td_incoming_hold_end(struct td_body *body, const struct td_cancel *cancel, struct td_error *err)
{
    bool is_short = body->total_bytes <= TD_INCOMING_HELD_BYTES || count_incoming(body) > 1;
    uint64_t open = is_short ? 0 : body->total_bytes - TD_INCOMING_HELD_BYTES;
    struct td_body made;
    struct td_body end;
    td_body_init(&made);
    td_body_init(&end);
    bool ok = td_body_cut(body, 0, open, &made, err) && td_body_cut(body, open, body->total_bytes - open, &end, err) &&
              replace_all(&made, cancel, false, err) && replace_all(&end, cancel, true, err) &&
              append_all(&made, &end, err);
    td_body_fini(&end);
    if (!ok) {
        td_body_fini(&made);
        return false;
    }
    td_body_fini(body);
    *body = made;
    return true;
}
