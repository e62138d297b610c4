/* libmicrohttpd asks for all that is left of the body each time, and takes a short count for a full socket: it then
 * waits for the kernel to say that there is room. So parts are sent until the socket is full or nothing is left. What
 * is hard:
 *   - by reference: whether the client has read an answer is proved by its next request, if that comes after the
 *     answer's end was sent. So the end is sent by itself, after the look for a request that has come already.
 *   - files that are not pinned: what the kernel has copied is of the version that was served if the files have not
 *     changed by the time at which the last bytes are copied here.
 *   - a mapping whose file has become shorter: the kernel fails with EFAULT where a load would raise SIGBUS.
 * The limits between the three ways are measured (docs/performance.md). */
#include "server/sent_body.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    VECTOR_RUNS = 64,            /* most runs of a vector */
    VECTOR_RUN_BYTES = 4 * 1024, /* a full vector of runs that are shorter on average is dearer than a window */
    END_BYTES = 256 * 1024,      /* longest end that is sent after the look for a request */
    CHECKED_BYTES = 16 * 1024    /* length of the end that is copied, so that the files can be checked before it */
};

static ssize_t fail(const struct td_sent_body *sent, const struct td_error *err)
{
    sent->how.failed(sent->how.context, err);
    errno = EIO;
    return -1;
}

static ssize_t fail_as_changed(const struct td_sent_body *sent, const char *message)
{
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_set(&err, TD_UNAVAILABLE, "%s", message);
    return fail(sent, &err);
}

static ssize_t fail_as_unreadable(const struct td_sent_body *sent)
{
    return fail_as_changed(sent, "the file shrank or cannot be read any more");
}

/* Returns the result of a system call that reads a file and sends it; a failure to read breaks the answer. */
static ssize_t check(const struct td_sent_body *sent, ssize_t n)
{
    return n < 0 && (errno == EFAULT || errno == EIO) ? fail_as_unreadable(sent) : n;
}

static void set_cork(struct td_sent_body *sent, int socket, bool is_corked)
{
    int value = is_corked ? 1 : 0;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_CORK, &value, sizeof value); /* fails where there is no TCP */
    sent->is_corked = is_corked;
}

/* Moves the cursor behind len bytes. */
static void skip(struct td_sent_body *sent, size_t len)
{
    sent->read_bytes += len;
    while (len > 0) {
        struct td_blob *blob = NULL;
        uint64_t off = 0;
        uint64_t piece;
        td_body_next(&sent->body, &sent->cursor, len, &blob, &off, &piece);
        len -= (size_t)piece;
    }
}

/* Returns how many bytes are left behind the cursor. */
static size_t left_of(const struct td_sent_body *sent)
{
    return sent->sent.len - sent->read_bytes;
}

static bool goes_by_reference(const struct td_sent_body *sent, const struct td_extent *extent)
{
    return extent->blob == sent->how.reference && extent->len > TD_REFERENCE_BYTES;
}

static const struct td_extent *extent_at(const struct td_sent_body *sent, const struct td_body_cursor *cursor)
{
    return &sent->body.extents[cursor->extent];
}

/* Returns how many bytes the next part may have, if at least `end` bytes are to be left after it. */
static size_t length_of_part(const struct td_sent_body *sent, size_t end)
{
    size_t left = left_of(sent);
    return left > END_BYTES && sent->how.reference != NULL ? left - END_BYTES : left - end;
}

/* Called before `len` bytes more are sent. */
static void look_before_end(const struct td_sent_body *sent, size_t len)
{
    if (len == left_of(sent) && sent->how.reference != NULL)
        sent->how.before_end(sent->how.context);
}

/* ---- windows ------------------------------------------------------------------------------------------- */

/* Returns how many bytes at the cursor lie in extents that are not in memory as such, at most max. */
static size_t generated_bytes(const struct td_sent_body *sent, size_t max)
{
    struct td_body_cursor cursor = sent->cursor;
    size_t bytes = 0;
    while (bytes < max && extent_at(sent, &cursor)->blob->bytes == NULL) {
        struct td_blob *blob = NULL;
        uint64_t off = 0;
        uint64_t piece;
        td_body_next(&sent->body, &cursor, max - bytes, &blob, &off, &piece);
        bytes += (size_t)piece;
    }
    return bytes;
}

/* Copies the next len bytes, at most TD_WINDOW_BYTES, into the window. The answer's end is copied only if the files
 * have not changed. */
static bool fill_window(struct td_sent_body *sent, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    if (len > sent->window_capacity) {
        free(sent->window);
        sent->window = malloc(len);
        sent->window_capacity = sent->window == NULL ? 0 : len;
        if (sent->window == NULL) {
            (void)td_error_no_memory(&err);
            return fail(sent, &err) >= 0;
        }
    }
    if (!td_body_read(&sent->body, &sent->cursor, sent->window, len, &err))
        return fail(sent, &err) >= 0;
    sent->read_bytes += len;
    if (left_of(sent) == 0 && !sent->how.is_pinned && !td_body_unchanged(&sent->body))
        return fail_as_changed(sent, "the file changed while it was sent") >= 0;
    sent->window_len = len;
    sent->window_sent = 0;
    return true;
}

static ssize_t send_window(struct td_sent_body *sent, int socket)
{
    size_t len = sent->window_len - sent->window_sent;
    int more = left_of(sent) > 0 ? MSG_MORE : 0;
    ssize_t n = send(socket, sent->window + sent->window_sent, len, MSG_NOSIGNAL | more);
    sent->window_sent += n < 0 ? 0 : (size_t)n;
    return n;
}

/* ---- in place and by reference ------------------------------------------------------------------------- */

/* A vector of the next runs, up to the first that goes another way. */
struct vector {
    struct iovec runs[VECTOR_RUNS];
    size_t count, bytes;
};

static void collect(const struct td_sent_body *sent, size_t max, struct vector *vector)
{
    struct td_body_cursor cursor = sent->cursor;
    vector->count = vector->bytes = 0;
    while (vector->count < VECTOR_RUNS && vector->bytes < max) {
        struct td_blob *blob = NULL;
        uint64_t off = 0;
        uint64_t piece;
        const struct td_extent *extent = extent_at(sent, &cursor);
        if (extent->blob->bytes == NULL || goes_by_reference(sent, extent))
            return;
        td_body_next(&sent->body, &cursor, max - vector->bytes, &blob, &off, &piece);
        vector->runs[vector->count++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)(blob->bytes + off), .iov_len = (size_t)piece};
        vector->bytes += (size_t)piece;
    }
}

static ssize_t send_vector(struct td_sent_body *sent, int socket, struct vector *vector)
{
    int more = vector->bytes < left_of(sent) ? MSG_MORE : 0;
    struct msghdr message = {.msg_iov = vector->runs, .msg_iovlen = vector->count};
    look_before_end(sent, vector->bytes);
    ssize_t n = check(sent, sendmsg(socket, &message, MSG_NOSIGNAL | more));
    if (n > 0)
        skip(sent, (size_t)n);
    return n;
}

/* Sends some of the run at the cursor by reference. */
static ssize_t send_reference(struct td_sent_body *sent, int socket)
{
    struct td_body_cursor cursor = sent->cursor;
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t len;
    td_body_next(&sent->body, &cursor, length_of_part(sent, 0), &blob, &off, &len);
    look_before_end(sent, (size_t)len);
    off_t at = (off_t)off;
    ssize_t n = check(sent, sendfile(socket, blob->class->descriptor(blob), &at, (size_t)len));
    if (n == 0) /* the file has become shorter */
        return fail_as_unreadable(sent);
    if (n > 0)
        skip(sent, (size_t)n);
    return n;
}

/* ---- the body ------------------------------------------------------------------------------------------ */

/* Sends the next part. Returns as send(2). */
static ssize_t send_part(struct td_sent_body *sent, int socket)
{
    struct vector vector = {.count = 0};
    size_t left = left_of(sent);
    size_t end = sent->how.is_pinned ? 0 : CHECKED_BYTES; /* is copied in any case */
    size_t window = left < TD_WINDOW_BYTES ? left : TD_WINDOW_BYTES;
    if (sent->window_sent < sent->window_len)
        return send_window(sent, socket);
    if (left > end && !sent->how.is_copied) {
        size_t generated = generated_bytes(sent, window);
        if (generated > 0)
            window = generated;
        else if (goes_by_reference(sent, extent_at(sent, &sent->cursor)))
            return send_reference(sent, socket);
        else
            collect(sent, length_of_part(sent, end), &vector);
    }
    if (vector.count > 0 && (vector.count < VECTOR_RUNS || vector.bytes >= (size_t)VECTOR_RUNS * VECTOR_RUN_BYTES))
        return send_vector(sent, socket, &vector);
    look_before_end(sent, window);
    return fill_window(sent, window) ? send_window(sent, socket) : -1;
}

static ssize_t send_body(void *context, int socket, size_t at, size_t len)
{
    struct td_sent_body *sent = context;
    size_t done = 0;
    if (at != sent->read_bytes - (sent->window_len - sent->window_sent) || len != sent->sent.len - at) {
        errno = EINVAL; /* libmicrohttpd asks for all that is left */
        return -1;
    }
    if (at == 0 && sent->how.reference != NULL && td_body_run_count(&sent->body) > 1)
        set_cork(sent, socket, true);
    while (done < len) {
        ssize_t n = send_part(sent, socket);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN && done > 0 ? (ssize_t)done : -1;
        done += (size_t)n;
    }
    if (sent->is_corked)
        set_cork(sent, socket, false);
    return (ssize_t)done;
}

void td_sent_body_init(struct td_sent_body *sent, struct td_body *body, const struct td_sending *how)
{
    *sent = (struct td_sent_body){.body = *body, .how = *how};
    sent->sent = (struct td_sent){.len = (size_t)body->total_bytes, .send = send_body, .context = sent};
    td_body_init(body);
}

void td_sent_body_fini(struct td_sent_body *sent)
{
    if (sent->sent.send == NULL)
        return;
    td_body_fini(&sent->body);
    free(sent->window);
    memset(sent, 0, sizeof *sent);
}
