/* Plan: td_transfer_create tries the ways in this order; the first that fits sends the answer.
 *   1. No body (HEAD, 304, empty): create_bodiless.
 *   2. copy, of at most TD_KEPT_BYTES: create_kept_copy, in the response of the answer before.
 *   3. create_by_sender, a body longer than TD_REFERENCE_BYTES without TLS (is_for_sender) that is ready (is_ready):
 *      file if reference_of finds a blob, else memory if pin_body has pinned the body, else checked.
 *   4. create_by_library, all else, and all until calls of libmicrohttpd have been seen to reach server/mhd/sender:
 *      file if the body is pinned and one run (create_file); else copy if it is short and not pinned (create_copy);
 *      else create_moved: memory if it is pinned (create_memory), else checked, by windows.
 * What is hard:
 *   - file, memory: a lease may break while the body is being registered. So the connection is registered first and the
 *     body checked again after that; then either this thread or the one that breaks the lease notices.
 *   - file: the kernel queues pages of the file itself, so a write shows in bytes that the client has not read.
 *     server/net/connection keeps the lease until the client has read them. An answer after which this side closes the
 *     connection is not sent in this way, since no further request would prove that the client has read it.
 *   - copy: a file that changed during the copy turns the answer into an error, while its status can still change.
 *     A copy never waits for bytes that are still being fetched: deadlines hold while an answer is sent, not before.
 *   - checked: the status is already sent, so a change can only break the answer off: the files are checked after the
 *     last bytes were read and before these are sent.
 *   - Most answers of a connection differ from the one before by their bytes and their range alone. Then the response
 *     of libmicrohttpd is used again (server/mhd/kept_response). */
#include "server/mhd/transfer.h"

#include "core/waiting.h"
#include "server/mhd/kept_response.h"
#include "server/mhd/sender.h"
#include "server/mhd/suspending.h"
#include "server/net/tcp_socket.h"
#include "server/serving/jobs.h"
#include "storage/composed.h"
#include "storage/incoming.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)TD_WINDOW_BYTES <= (int)TD_COMPOSED_WINDOW_BYTES, "windows over composed blobs are counted");

/* The next window of a body, which a job reads while the connection is suspended. */
struct window {
    struct td_job job; /* first: on the way back a job is a window */
    struct transfer *transfer;
    size_t len, sent_len; /* bytes in it, and how many of these libmicrohttpd has taken */
    bool failed;
    char bytes[TD_WINDOW_BYTES];
};

/* A body that is being sent; libmicrohttpd frees it with the response. */
struct transfer {
    struct td_body body;
    struct td_body_cursor cursor;
    uint64_t done; /* bytes read, for windows */
    struct td_link *link;
    struct window *window;     /* owned; NULL: the connection's thread reads the windows */
    struct td_transfer *about; /* the caller's; NULL unless the body is chunked, since trailers follow it */
};

static void transfer_free(void *cls)
{
    struct transfer *transfer = cls;
    td_connection_unpin(transfer->link->connection);
    td_body_fini(&transfer->body);
    free(transfer->window);
    free(transfer);
}

/* Moves the body into a transfer. Returns NULL when memory is short; the body then stays in the response. */
static struct transfer *transfer_take(struct td_response *response, struct td_link *link)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return NULL;
    transfer->body = response->body;
    transfer->link = link;
    td_body_init(&response->body);
    return transfer;
}

/* Records why the answer is broken off, and returns the code on which libmicrohttpd breaks it off. */
static ssize_t abort_transfer(struct transfer *transfer, const struct td_error *err)
{
    td_connection_break_off(transfer->link->connection, err);
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Reads the next bytes of the body. Returns their number, or the code on which libmicrohttpd breaks the answer off. */
static ssize_t read_next(struct transfer *transfer, char *out, size_t max)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t left = transfer->body.total_bytes - transfer->done;
    size_t n = left < max ? (size_t)left : max;
    if (!td_body_read(&transfer->body, &transfer->cursor, out, n, &err))
        return abort_transfer(transfer, &err);
    if (n == left && !td_body_unchanged(&transfer->body))
        return abort_transfer(transfer, &err);
    transfer->done += n;
    transfer->link->stream.more_follows = n < left;
    return (ssize_t)n;
}

/* Counts the framing of a chunk of n bytes, if the body is chunked: libmicrohttpd makes a chunk of all bytes that one
 * call gives it. Returns n. */
static ssize_t count_chunk(const struct transfer *transfer, ssize_t n)
{
    if (transfer->about == NULL || n <= 0)
        return n;
    transfer->about->framing_bytes += strlen("\r\n\r\n");
    for (ssize_t left = n; left > 0; left /= 16)
        transfer->about->framing_bytes++;
    return n;
}

/* Returns the code for a call after the last byte: only a chunked body has one. */
static ssize_t end_body(const struct transfer *transfer)
{
    return transfer->about != NULL ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Gives libmicrohttpd the next window, on a thread that may wait. */
static ssize_t read_window(void *cls, uint64_t pos, char *out, size_t max)
{
    struct transfer *transfer = cls;
    if (pos != transfer->done || max == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    return pos == transfer->body.total_bytes ? end_body(transfer)
                                             : count_chunk(transfer, read_next(transfer, out, max));
}

static void run_window(struct td_job *job)
{
    struct window *window = (struct window *)(void *)job;
    ssize_t n = read_next(window->transfer, window->bytes, sizeof window->bytes);
    window->failed = n <= 0;
    window->len = n <= 0 ? 0 : (size_t)n;
    window->sent_len = 0;
}

/* Gives libmicrohttpd bytes that a job has read. When it has taken the whole window, suspends the connection until a
 * job has read the next one. */
static ssize_t take_window(void *cls, uint64_t pos, char *out, size_t max)
{
    struct transfer *transfer = cls;
    struct window *window = transfer->window;
    size_t left = window->len - window->sent_len;
    if (window->failed || pos != transfer->done - left)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (pos == transfer->body.total_bytes)
        return end_body(transfer);
    if (left == 0)
        return td_jobs_run(transfer->link->jobs, &td_mhd_suspending, transfer->link->mhd, &window->job)
                   ? 0
                   : MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = left < max ? left : max;
    memcpy(out, window->bytes + window->sent_len, n);
    window->sent_len += n;
    return count_chunk(transfer, (ssize_t)n);
}

/* Gives the transfer a window to be read by jobs. Returns false without memory. */
static bool add_window(struct transfer *transfer)
{
    transfer->window = malloc(sizeof *transfer->window);
    if (transfer->window == NULL)
        return false;
    transfer->window->job.run = run_window;
    transfer->window->transfer = transfer;
    transfer->window->len = transfer->window->sent_len = 0;
    transfer->window->failed = false;
    return true;
}

static ssize_t read_nothing(void *cls, uint64_t pos, char *out, size_t max)
{
    (void)cls, (void)pos, (void)out, (void)max;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Makes a response that announces a length and sends no body, for HEAD and 304. */
static struct MHD_Response *create_bodiless(uint64_t announced_bytes)
{
    if (announced_bytes == 0)
        return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_callback(announced_bytes, 1, read_nothing, NULL, NULL);
}

/* Makes a response with a copy of the body, or of the error that *response becomes when a file changed. */
static struct MHD_Response *create_copy(struct td_response *response)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_body_cursor cursor = {0};
    size_t len = (size_t)response->body.total_bytes;
    char *bytes = malloc(len + 1);
    if (bytes == NULL)
        return NULL;
    if (!td_body_read(&response->body, &cursor, bytes, len, &err) || !td_body_unchanged(&response->body)) {
        (void)td_error_set(&err, TD_UNAVAILABLE, "the file changed while it was read; it is being read again");
        td_response_fail_error(response, &err);
        len = (size_t)response->body.total_bytes;
        char *grown = realloc(bytes, len + 1);
        memset(&cursor, 0, sizeof cursor);
        if (grown == NULL || !td_body_read(&response->body, &cursor, grown, len, NULL)) {
            free(grown == NULL ? bytes : grown);
            return NULL;
        }
        bytes = grown;
    }
    struct MHD_Response *mhd_response = MHD_create_response_from_buffer(len, bytes, MHD_RESPMEM_MUST_FREE);
    if (mhd_response == NULL)
        free(bytes);
    return mhd_response;
}

/* Makes a response that points into the body's memory and mappings. */
static struct MHD_Response *create_memory(struct transfer *transfer)
{
    struct td_body_cursor cursor = {0};
    struct td_blob *blob = NULL;
    uint64_t off = 0;
    uint64_t len;
    const struct td_body *body = &transfer->body;
    td_body_next(body, &cursor, UINT64_MAX, &blob, &off, &len);
    if (len == body->total_bytes)
        return MHD_create_response_from_buffer_with_free_callback_cls(
            (size_t)len, (void *)(uintptr_t)(blob->bytes + off), transfer_free, transfer);
    struct MHD_IoVec runs[TD_IOVEC_RUNS];
    unsigned int count = 0;
    while (len > 0) {
        runs[count].iov_base = blob->bytes + off;
        runs[count++].iov_len = (size_t)len;
        td_body_next(body, &cursor, UINT64_MAX, &blob, &off, &len);
    }
    return MHD_create_response_from_iovec(runs, count, transfer_free, transfer);
}

/* Returns the blob whose long runs can go by reference, since there will be proof of when the client has read them.
 * NULL: none. Asks the kernel. */
static struct td_blob *reference_of(const struct td_response *response, struct td_connection *connection)
{
    const struct td_body *body = &response->body;
    for (size_t i = 0; i < body->extent_count && !response->close; i++) {
        struct td_blob *blob = body->extents[i].blob;
        if (body->extents[i].len > TD_REFERENCE_BYTES && blob->class->descriptor != NULL)
            return td_read_proof_may_refer(&connection->proof, connection->fd, blob) ? blob : NULL;
    }
    return NULL;
}

/* Makes a response that libmicrohttpd sends from a descriptor, for a body of one run that may go by reference and is
 * pinned. Returns NULL when descriptors or memory are short. */
static struct MHD_Response *create_file(const struct td_body *body, struct td_connection *connection)
{
    const struct td_extent *extent = &body->extents[0];
    /* A duplicate shares the open file, so closing it does not end the lease. */
    int fd = fcntl(extent->blob->class->descriptor(extent->blob), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    struct MHD_Response *mhd_response = MHD_create_response_from_fd_at_offset64(extent->len, fd, extent->off);
    if (mhd_response == NULL)
        (void)close(fd);
    else
        td_read_proof_begin(&connection->proof, connection->fd, extent->blob, true);
    return mhd_response;
}

/* Adapts the connection's kept response to a body of its length (td_kept_response_prepare). Returns NULL without
 * memory. */
static struct td_kept_response *prepare_kept(const struct td_response *response, struct td_link *link, bool by_sender)
{
    if (link->kept == NULL)
        link->kept = calloc(1, sizeof *link->kept);
    size_t len = (size_t)response->body.total_bytes;
    bool ok = link->kept != NULL && td_kept_response_prepare(link->kept, response, len, by_sender);
    return ok ? link->kept : NULL;
}

/* Makes a response whose body server/mhd/sender sends, and sets the way. Returns NULL when it cannot send it. */
static struct MHD_Response *create_by_sender(struct td_response *response, struct td_link *link, bool pinned,
                                             struct td_transfer *transfer)
{
    struct td_connection *connection = link->connection;
    uint64_t total = response->body.total_bytes;
    char *memory = total > SIZE_MAX ? NULL : td_sender_memory((size_t)total);
    struct td_sending how = {.is_pinned = pinned};
    struct td_kept_response *kept = NULL;
    struct MHD_Response *mhd_response = NULL;
    if (memory == NULL)
        return NULL;
    if (pinned)
        how.reference = reference_of(response, connection);
    if (td_kept_response_suits(response))
        kept = prepare_kept(response, link, true);
    else
        mhd_response = MHD_create_response_from_buffer((size_t)total, memory, MHD_RESPMEM_PERSISTENT);
    /* The kernel reads ahead for pread, and less for a mapping. */
    how.is_copied = !pinned && link->jobs == NULL && !td_body_is_cached(&response->body);
    if (how.reference == NULL && total >= TD_NEAR_ANSWER_BYTES)
        td_send_queue_shorten(connection->fd, &connection->has_short_queue);
    if ((kept == NULL && mhd_response == NULL) || !td_connection_send(connection, &response->body, &how)) {
        if (mhd_response != NULL)
            MHD_destroy_response(mhd_response);
        return NULL;
    }
    transfer->is_kept = kept != NULL;
    transfer->way = how.reference != NULL ? TD_WAY_FILE : pinned ? TD_WAY_MEMORY : TD_WAY_CHECKED;
    return kept != NULL ? kept->mhd_response : mhd_response;
}

/* Returns whether the body can be sent in place; if so, the connection is registered as sending from its files. */
static bool pin_body(const struct td_body *body, struct td_connection *connection)
{
    if (body->total_bytes <= TD_COPY_BYTES || !td_body_is_pinned(body) || !td_connection_pin(connection, body))
        return false;
    /* A lease may have broken before the registration, so check again. */
    if (td_body_is_pinned(body))
        return true;
    td_connection_unpin(connection);
    return false;
}

/* Makes a response that sends the body in place or through windows. */
static struct MHD_Response *create_moved(struct td_response *response, struct td_link *link, bool pinned)
{
    struct transfer *transfer = transfer_take(response, link);
    if (transfer == NULL)
        return NULL;
    struct MHD_Response *mhd_response = NULL;
    uint64_t total = transfer->body.total_bytes;
    bool by_jobs = link->jobs != NULL;
    size_t block_bytes = by_jobs ? TD_BLOCK_BYTES : TD_WINDOW_BYTES;
    if (pinned && !by_jobs)
        td_body_touch(&transfer->body);
    if (pinned)
        mhd_response = create_memory(transfer);
    else if (!by_jobs || add_window(transfer))
        mhd_response = MHD_create_response_from_callback(total, total < block_bytes ? (size_t)total : block_bytes,
                                                         by_jobs ? take_window : read_window, transfer, transfer_free);
    if (mhd_response == NULL) /* libmicrohttpd then does not call the free callback */
        transfer_free(transfer);
    return mhd_response;
}

/* Returns whether the whole body is in memory, so that sending from its mappings does not delay other connections of
 * the thread. */
static bool is_ready(const struct td_body *body, const struct td_link *link)
{
    if (link->jobs == NULL)
        return true;
    if (body->total_bytes > TD_SHARED_BYTES) /* to look at more takes long, and its pages may go before they are sent */
        return false;
    if (td_waiting_is_forbidden() && body->total_bytes > TD_LOOK_BYTES)
        return td_may_wait(NULL);
    return td_body_is_resident(body) || (td_waiting_is_forbidden() && td_may_wait(NULL));
}

/* Makes a response with a copy of a short body, header and all, or uses the connection's last one again. Returns NULL
 * when the bytes could not be read or memory is short. */
static struct MHD_Response *create_kept_copy(const struct td_response *response, struct td_link *link,
                                             struct td_transfer *transfer)
{
    struct td_body_cursor cursor = {0};
    struct td_kept_response *kept = prepare_kept(response, link, false);
    if (kept == NULL || !td_body_read(&response->body, &cursor, kept->bytes, kept->len, NULL))
        return NULL;
    /* The lease is checked after the copy: if it still holds, no process can have written during the copy. */
    atomic_signal_fence(memory_order_seq_cst);
    if (!td_body_is_pinned(&response->body) && !td_body_unchanged(&response->body))
        return NULL;
    transfer->way = TD_WAY_COPY;
    transfer->is_kept = true;
    return kept->mhd_response;
}

/* Returns whether server/mhd/sender is to send the body. On a shared thread it sends only bodies that go out at once
 * and take little time to check. */
static bool is_for_sender(const struct td_body *body, const struct td_link *link)
{
    return body->total_bytes > TD_REFERENCE_BYTES &&
           (link->jobs == NULL || (body->total_bytes <= TD_TURN_BYTES && td_body_run_count(body) <= TD_IOVEC_RUNS));
}

/* Makes a response whose body libmicrohttpd sends, and sets the way. pinned: it can be sent in place. */
static struct MHD_Response *create_by_library(struct td_response *response, struct td_link *link, bool pinned,
                                              struct td_transfer *transfer)
{
    struct td_connection *connection = link->connection;
    uint64_t total = response->body.total_bytes;
    uint64_t runs = td_body_run_count(&response->body);
    if (pinned && runs == 1 && reference_of(response, connection) != NULL) {
        struct MHD_Response *mhd_response = create_file(&response->body, connection);
        transfer->way = TD_WAY_FILE;
        if (mhd_response != NULL)
            return mhd_response;
    }
    if (total >= TD_NEAR_ANSWER_BYTES)
        td_send_queue_shorten(connection->fd, &connection->has_short_queue);
    /* In a shared thread a window costs a job. */
    if (!pinned && total <= (link->jobs != NULL ? TD_TURN_BYTES : TD_FLAT_BYTES) &&
        !td_incoming_is_awaited(&response->body)) {
        transfer->way = TD_WAY_COPY;
        return create_copy(response);
    }
    /* The kernel reads missing pages with the socket locked, and the reaper would wait for the socket. So a body that
     * is too long to be touched first goes through windows. On a shared thread all of it is in memory (is_ready). */
    bool is_too_long = link->jobs == NULL && total > TD_LOOK_BYTES;
    if (pinned && (runs > TD_IOVEC_RUNS || is_too_long)) {
        td_connection_unpin(connection);
        pinned = false;
    }
    transfer->way = pinned ? TD_WAY_MEMORY : TD_WAY_CHECKED;
    return create_moved(response, link, pinned);
}

/* Makes the response for a body, and sets the way. */
static struct MHD_Response *create_with_body(struct td_response *response, struct td_link *link,
                                             struct td_transfer *transfer)
{
    struct td_connection *connection = link->connection;
    struct td_body *body = &response->body;
    struct MHD_Response *mhd_response = NULL;
    uint64_t cold_bytes = link->jobs == NULL ? TD_COLD_BYTES : 1; /* a shared thread never reads from a disk */
    if (body->total_bytes >= cold_bytes && !td_waiting_is_forbidden() && !td_body_is_cached(body))
        td_body_prefetch(body, TD_PREFETCH_BYTES);
    /* With TLS this process reads the bytes, not the kernel, so no mapping is sent in place: a file that shrinks would
     * raise SIGBUS in GnuTLS. */
    bool for_sender = !connection->is_tls && is_for_sender(body, link);
    bool pinned =
        !connection->is_tls && (for_sender || td_body_run_count(body) <= TD_IOVEC_RUNS) && pin_body(body, connection);
    bool ready = (pinned || link->jobs == NULL) && is_ready(body, link);
    if (pinned && !ready) {
        td_connection_unpin(connection);
        pinned = false;
    }
    if (td_waiting_was_refused())
        return NULL;
    /* A shared thread must not check files while it sends. */
    if (for_sender && ready)
        mhd_response = create_by_sender(response, link, pinned, transfer);
    return mhd_response != NULL ? mhd_response : create_by_library(response, link, pinned, transfer);
}

/* Makes a response with a chunked body, which trailers follow, and sets the way. */
static struct MHD_Response *create_chunked(struct td_response *response, struct td_link *link,
                                           struct td_transfer *about)
{
    struct td_trailers *trailers = &response->trailers;
    const bool by_jobs = link->jobs != NULL;
    struct MHD_Response *mhd_response = NULL;
    struct transfer *transfer = transfer_take(response, link);
    if (transfer == NULL)
        return NULL;
    about->way = TD_WAY_CHECKED;
    about->framing_bytes = strlen("0\r\n\r\n");
    for (size_t i = 0; i < trailers->count; i++)
        about->framing_bytes += strlen(trailers->fields[i].name) + strlen(trailers->fields[i].value) + strlen(": \r\n");
    transfer->about = about;
    if (!by_jobs || add_window(transfer))
        mhd_response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, by_jobs ? TD_BLOCK_BYTES : TD_WINDOW_BYTES,
                                                         by_jobs ? take_window : read_window, transfer, transfer_free);
    if (mhd_response == NULL) {
        transfer_free(transfer);
    } else if (!td_answer_trailers_add(mhd_response, trailers)) {
        MHD_destroy_response(mhd_response);
        mhd_response = NULL;
    }
    td_trailers_fini(trailers); /* the header must not have them, too */
    return mhd_response;
}

struct MHD_Response *td_transfer_create(struct td_response *response, struct td_link *link, bool head,
                                        struct td_transfer *transfer)
{
    struct td_connection *connection = link->connection;
    struct MHD_Response *mhd_response = NULL;
    uint64_t total = response->body.total_bytes;
    *transfer = (struct td_transfer){.way = TD_WAY_NONE, .is_long = total > TD_FLAT_BYTES};
    link->stream.more_follows = false;
    uint64_t announced_bytes = response->status == 304 ? response->announced_bytes : total;
    if (response->status == 304 || head || total == 0) {
        mhd_response = create_bodiless(announced_bytes);
        transfer->is_long = false;
    } else if (response->trailers.count > 0) {
        transfer->body_bytes = total;
        td_read_proof_hold(&connection->proof, connection->fd);
        mhd_response = create_chunked(response, link, transfer);
        announced_bytes = TD_BODY_LENGTH_UNKNOWN;
    } else {
        if (total <= TD_KEPT_BYTES && td_kept_response_suits(response) && !td_incoming_is_awaited(&response->body))
            mhd_response = create_kept_copy(response, link, transfer);
        if (mhd_response == NULL && td_waiting_was_refused())
            return NULL; /* its bytes are not in memory */
        if (mhd_response == NULL)
            mhd_response = create_with_body(response, link, transfer);
        if (transfer->way != TD_WAY_FILE)
            td_read_proof_hold(&connection->proof, connection->fd);
        if (transfer->way == TD_WAY_COPY)
            announced_bytes = response->body.total_bytes; /* a copy may have become an error */
        transfer->body_bytes = announced_bytes;
    }
    if (transfer->is_kept) {
        transfer->header_bytes = link->kept->header_bytes;
        return mhd_response;
    }
    transfer->header_bytes = td_answer_header_bytes(response, announced_bytes);
    if (mhd_response != NULL && (td_waiting_was_refused() || !td_answer_header_add(mhd_response, response))) {
        MHD_destroy_response(mhd_response);
        td_connection_end_answer(connection, false);
        mhd_response = NULL;
    }
    return mhd_response;
}

void td_transfer_release(struct MHD_Response *mhd_response, const struct td_transfer *transfer)
{
    if (mhd_response != NULL && !transfer->is_kept)
        MHD_destroy_response(mhd_response);
}
