#include "storage/incoming.h"

#include "core/clock.h"
#include "core/read_at.h"

#include <assert.h>
#include <errno.h>
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

/* Waits until `end` bytes may be read, and at most until the writer has failed or until_ns (0: until nothing has
 * arrived for stall_ns). Returns whether they may be read. Under the lock. */
static bool wait_for(struct incoming *in, uint64_t end, uint64_t until_ns)
{
    uint64_t begun_ns = td_clock_ns();
    while (in->error.code == TD_OK && readable(in) < end) {
        uint64_t since_ns = in->arrived_ns > begun_ns ? in->arrived_ns : begun_ns;
        uint64_t limit_ns = until_ns != 0 ? until_ns : since_ns + in->stall_ns;
        const struct timespec limit = td_clock_timespec(limit_ns);
        in->is_wanted = true;
        if (td_clock_ns() >= limit_ns)
            return false;
        (void)pthread_cond_timedwait(&in->changed, &in->lock, &limit);
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

static bool incoming_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct incoming *in = incoming_of(blob);
    pthread_mutex_lock(&in->lock);
    bool ok = wait_for(in, off + len, 0);
    if (in->error.code != TD_OK)
        (void)td_error_copy(err, &in->error);
    else if (!ok)
        (void)td_error_set(err, TD_UNAVAILABLE, "nothing of the file has arrived for %llu s",
                           (unsigned long long)(in->stall_ns / 1000000000));
    int fd = in->fd;
    pthread_mutex_unlock(&in->lock);
    return ok && read_fully(fd, off, out, len, err);
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

/* Waits a little for the first byte. A writer that is slow is no error: the answer begins, and its bytes follow. */
static bool incoming_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    struct incoming *in = incoming_of(blob);
    (void)len;
    uint64_t wait_ns = in->stall_ns < TD_INCOMING_PREPARE_NS ? in->stall_ns : TD_INCOMING_PREPARE_NS;
    pthread_mutex_lock(&in->lock);
    if (!for_head)
        (void)wait_for(in, off + 1, td_clock_ns() + wait_ns);
    bool ok = in->error.code == TD_OK || td_error_copy(err, &in->error);
    pthread_mutex_unlock(&in->lock);
    return ok;
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
    in->blob.class = &incoming_class;
    atomic_init(&in->blob.refs, 1);
    in->blob.len_bytes = len_bytes;
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

/* An incoming blob whose bytes are all held until its writer has finished. */
struct held {
    struct td_blob blob; /* first, as in struct incoming */
    struct td_blob *of;  /* one reference */
};

static struct td_blob *blob_behind(struct td_blob *blob)
{
    return ((struct held *)(void *)blob)->of;
}

static void held_destroy(struct td_blob *blob)
{
    td_blob_unref(blob_behind(blob));
    free(blob);
}

/* The blob behind it gives its last byte out only when all bytes are right. */
static bool held_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct td_blob *of = blob_behind(blob);
    uint8_t last;
    return incoming_read(of, of->len_bytes - 1, &last, 1, err) && incoming_read(of, off, out, len, err);
}

static bool held_unchanged(struct td_blob *blob)
{
    return incoming_unchanged(blob_behind(blob));
}

static bool held_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    struct td_blob *of = blob_behind(blob);
    (void)off;
    (void)len;
    return incoming_prepare(of, of->len_bytes - 1, 1, for_head, err);
}

static const struct td_blob_class held_class = {.destroy = held_destroy,
                                                .read = held_read,
                                                .unchanged = held_unchanged,
                                                .pinned = never_pinned,
                                                .resident = never_resident,
                                                .prepare = held_prepare};

/* Returns a held blob with one reference, or NULL when memory is short. */
static struct td_blob *create_held(struct td_blob *of)
{
    struct held *held = calloc(1, sizeof *held);
    if (held == NULL)
        return NULL;
    held->of = td_blob_ref(of);
    held->blob.class = &held_class;
    atomic_init(&held->blob.refs, 1);
    held->blob.len_bytes = of->len_bytes;
    return &held->blob;
}

/* Puts held blobs in the place of incoming ones. */
static bool hold_all(struct td_body *body, struct td_error *err)
{
    for (size_t i = 0; i < body->extent_count; i++) {
        struct td_extent *extent = &body->extents[i];
        if (extent->blob->class != &incoming_class)
            continue;
        struct td_blob *held = create_held(extent->blob);
        if (held == NULL)
            return td_error_no_memory(err);
        td_blob_unref(extent->blob);
        extent->blob = held;
    }
    return true;
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

bool td_incoming_hold_end(struct td_body *body, struct td_error *err)
{
    bool is_short = body->total_bytes <= TD_INCOMING_HELD_BYTES || count_incoming(body) > 1;
    uint64_t open = is_short ? 0 : body->total_bytes - TD_INCOMING_HELD_BYTES;
    struct td_body made;
    struct td_body end;
    td_body_init(&made);
    td_body_init(&end);
    bool ok = td_body_cut(body, 0, open, &made, err) && td_body_cut(body, open, body->total_bytes - open, &end, err) &&
              hold_all(&end, err) && append_all(&made, &end, err);
    td_body_fini(&end);
    if (!ok) {
        td_body_fini(&made);
        return false;
    }
    td_body_fini(body);
    *body = made;
    return true;
}
