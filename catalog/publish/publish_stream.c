#include "catalog/publish/publish_stream.h"

#include "catalog/publish/publish_folder.h"
#include "core/digits.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Taken from the bound at a time, while the size is not known: as much as has arrived, within these limits. */
#define LEAST_STEP_BYTES (UINT64_C(256) * 1024)
#define MOST_STEP_BYTES (UINT64_C(16) * 1024 * 1024)

struct td_publish_stream {
    struct td_publish *publish;
    struct td_publish_name name;
    char path[TD_OWN_NAME_BYTES]; /* of the file, in the own folder */
    int fd;
    uint64_t size_bytes; /* TD_FETCH_SIZE_UNKNOWN: not known */
    uint64_t at, taken;  /* bytes that arrived, bytes taken from the bound */
    struct td_fetch_block *block;
    struct td_fetch_hasher *hasher; /* NULL: not needed yet */
};

/* Creates the file, with room for the bytes if their number is known. */
static bool create_file(struct td_publish_stream *stream, struct td_error *err)
{
    struct td_own_folder *own = &stream->publish->disk.own;
    stream->fd = openat(own->fd, stream->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (stream->fd < 0)
        return td_publish_fail(&stream->name, "begin a blob of", err);
    bool is_known = stream->size_bytes != TD_FETCH_SIZE_UNKNOWN && stream->size_bytes > 0;
    if (!is_known || fallocate(stream->fd, 0, 0, (off_t)stream->size_bytes) == 0 || errno == EOPNOTSUPP ||
        errno == ENOSYS)
        return true;
    return td_publish_fail(&stream->name, "reserve the space on disk for a blob of", err);
}

/* Makes a stream without a file. */
static struct td_publish_stream *make_stream(struct td_publish *publish, const struct td_publish_name *name,
                                             const char *path, uint64_t size_bytes, struct td_error *err)
{
    struct td_publish_stream *stream = calloc(1, sizeof *stream);
    struct td_fetch_block *block = malloc(sizeof *block);
    if (stream == NULL || block == NULL) {
        free(stream);
        free(block);
        (void)td_error_no_memory(err);
        return NULL;
    }
    *stream = (struct td_publish_stream){
        .publish = publish, .name = *name, .fd = -1, .size_bytes = size_bytes, .block = block};
    (void)snprintf(stream->path, sizeof stream->path, "%s", path);
    block->len = 0;
    block->off = 0;
    return stream;
}

/* Begins a stream in a new file. */
static bool begin_file(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                       uint64_t size_bytes, struct td_publish_stream **out, struct td_error *err)
{
    uint64_t bytes = size_bytes == TD_FETCH_SIZE_UNKNOWN ? 0 : size_bytes;
    if (bytes > INT64_MAX)
        return td_error_set(err, TD_INVALID_ARGUMENT, "no file has %" PRIu64 " bytes", bytes);
    if (!td_publish_check_name(&publish->disk, name, err)) /* now, and not after the body */
        return false;
    struct td_publish_stream *stream = make_stream(publish, name, path, size_bytes, err);
    if (stream == NULL)
        return false;
    if (td_own_folder_check_room(&publish->disk.own, bytes, err) && td_publish_take(publish, bytes, err)) {
        stream->taken = bytes;
        if (td_own_folder_check(&publish->disk.own, err) && create_file(stream, err)) {
            *out = stream;
            return true;
        }
    }
    td_publish_stream_abandon(stream);
    return false;
}

bool td_publish_stream_begin(struct td_publish *publish, const struct td_publish_name *name, uint64_t size_bytes,
                             struct td_publish_stream **out, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    (void)snprintf(path, sizeof path, "incoming/stream-%" PRIu64,
                   atomic_fetch_add_explicit(&publish->stream_number, 1, memory_order_relaxed));
    return begin_file(publish, name, path, size_bytes, out, err);
}

bool td_publish_stream_begin_at(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                                struct td_publish_stream **out, struct td_error *err)
{
    return begin_file(publish, name, path, TD_FETCH_SIZE_UNKNOWN, out, err);
}

/* Opens the file that an earlier process wrote, and places the stream behind its first `bytes`. */
static bool reopen_file(struct td_publish_stream *stream, uint64_t bytes, struct td_error *err)
{
    struct stat st;
    stream->fd = openat(stream->publish->disk.own.fd, stream->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (stream->fd < 0 && errno != ENOENT)
        return td_publish_fail(&stream->name, "resume a blob of", err);
    if (stream->fd < 0 || fstat(stream->fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < bytes)
        return td_error_set(err, TD_NOT_FOUND, "the unfinished blob is not there, or shorter than it was");
    stream->block->off = bytes;
    stream->at = bytes;
    return (ftruncate(stream->fd, (off_t)bytes) == 0 && lseek(stream->fd, (off_t)bytes, SEEK_SET) >= 0) ||
           td_publish_fail(&stream->name, "resume a blob of", err);
}

bool td_publish_stream_resume(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                              uint64_t bytes, struct td_publish_stream **out, struct td_error *err)
{
    struct td_publish_stream *stream = make_stream(publish, name, path, TD_FETCH_SIZE_UNKNOWN, err);
    if (stream == NULL)
        return false;
    if (reopen_file(stream, bytes, err)) {
        td_publish_take_anyway(publish, bytes);
        stream->taken = bytes;
        *out = stream;
        return true;
    }
    td_publish_stream_abandon(stream);
    return false;
}

bool td_publish_stream_save(struct td_publish_stream *stream, struct td_error *err)
{
    struct td_fetch_block *block = stream->block;
    return td_write_at(stream->fd, block->bytes, block->len, block->off) ||
           td_publish_fail(&stream->name, "write a blob of", err);
}

/* Writes the block and passes it to the hasher. */
static bool write_block(struct td_publish_stream *stream, struct td_error *err)
{
    struct td_fetch_block *block = stream->block;
    if (!td_write_all(stream->fd, block->bytes, block->len))
        return td_publish_fail(&stream->name, "write a blob of", err);
    td_publish_note_bytes(stream->publish, block->len);
    if (stream->hasher == NULL &&
        !td_fetch_hasher_start(stream->fd, TD_FETCH_SIZE_UNKNOWN, false, &stream->hasher, err))
        return false;
    if (td_fetch_hasher_give(stream->hasher, block))
        stream->block = td_fetch_hasher_block(stream->hasher);
    else
        td_fetch_hasher_advance(stream->hasher, stream->at);
    if (stream->block == NULL)
        return td_error_no_memory(err);
    stream->block->len = 0;
    stream->block->off = stream->at;
    return true;
}

/* Takes more bytes from the bound when those that were taken are used up. */
static bool take_more(struct td_publish_stream *stream, size_t len, struct td_error *err)
{
    if (stream->taken - stream->at >= len)
        return true;
    uint64_t lack = len - (stream->taken - stream->at);
    uint64_t step = stream->at < LEAST_STEP_BYTES  ? LEAST_STEP_BYTES
                    : stream->at > MOST_STEP_BYTES ? MOST_STEP_BYTES
                                                   : stream->at;
    if (step <= lack || !td_publish_take(stream->publish, step, NULL)) {
        step = lack;
        if (!td_publish_take(stream->publish, step, err))
            return false;
    }
    stream->taken += step;
    return true;
}

bool td_publish_stream_write(struct td_publish_stream *stream, const void *bytes, size_t len, struct td_error *err)
{
    const char *from = bytes;
    if (stream->size_bytes != TD_FETCH_SIZE_UNKNOWN && len > stream->size_bytes - stream->at)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the body has more than the %" PRIu64 " bytes that it announced",
                            stream->size_bytes);
    if (stream->size_bytes == TD_FETCH_SIZE_UNKNOWN && !take_more(stream, len, err))
        return false;
    while (len > 0) {
        size_t n = td_fetch_block_add(stream->block, from, len);
        stream->at += n;
        from += n;
        len -= n;
        if (stream->block->len == TD_FETCH_BLOCK_BYTES && !write_block(stream, err))
            return false;
    }
    return true;
}

uint64_t td_publish_stream_bytes(const struct td_publish_stream *stream)
{
    return stream->at;
}

void td_publish_stream_rest(struct td_publish_stream *stream)
{
    td_fetch_hasher_stop(stream->hasher);
    stream->hasher = NULL;
}

bool td_publish_stream_rewind(struct td_publish_stream *stream, uint64_t bytes, struct td_error *err)
{
    struct td_fetch_block *block = stream->block;
    if (block == NULL)
        return td_error_no_memory(err); /* a write failed for want of it */
    if (bytes < block->off) {
        td_publish_stream_rest(stream); /* bytes that are dropped may have been hashed */
        block->off = bytes;
    }
    block->len = (size_t)(bytes - block->off);
    stream->at = bytes;
    /* a write that failed may have written a part; what td_publish_stream_save has written stays */
    return (ftruncate(stream->fd, (off_t)bytes) == 0 && lseek(stream->fd, (off_t)block->off, SEEK_SET) >= 0) ||
           td_publish_fail(&stream->name, "write a blob of", err);
}

/* Writes what is left of the bytes, makes them durable, and sets the digest. */
static bool finish_file(struct td_publish_stream *stream, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_fetch_sums sums;
    bool is_in_memory = stream->hasher == NULL && stream->block->off == 0; /* all of it is in the block */
    if (is_in_memory)
        td_sha256(stream->block->bytes, stream->block->len, sum);
    if (is_in_memory && !td_write_all(stream->fd, stream->block->bytes, stream->block->len))
        return td_publish_fail(&stream->name, "write a blob of", err);
    if (is_in_memory)
        td_publish_note_bytes(stream->publish, stream->block->len);
    else if ((stream->block->len > 0 || stream->hasher == NULL) && !write_block(stream, err))
        return false;
    /* the reserved space may be longer than the bytes */
    if (ftruncate(stream->fd, (off_t)stream->at) != 0 || fdatasync(stream->fd) != 0)
        return td_publish_fail(&stream->name, "write a blob of", err);
    if (is_in_memory)
        return true;
    td_fetch_hasher_set_size(stream->hasher, stream->at);
    if (!td_fetch_hasher_wait(stream->hasher, NULL, &sums, err))
        return false;
    memcpy(sum, sums.sha256, TD_SHA256_BYTES);
    return true;
}

bool td_publish_place_blob(struct td_publish *publish, const struct td_publish_name *name, const char *path,
                           const uint8_t sum[TD_SHA256_BYTES], bool *was_here, struct td_error *err)
{
    struct td_publish_repo repo;
    char hex[TD_SHA256_TEXT_BYTES];
    uint64_t here_bytes;
    td_hex_write(sum, TD_SHA256_BYTES, hex);
    if (!td_publish_repo_open(&publish->disk, name, true, &repo, err))
        return false;
    int blobs = td_folder_open(repo.fd, "blobs");
    bool ok = blobs >= 0 && renameat2(publish->disk.own.fd, path, blobs, hex, RENAME_NOREPLACE) == 0;
    int sys = errno;
    *was_here = !ok && blobs >= 0 && sys == EEXIST && td_publish_keep_blob(&repo, sum, &here_bytes);
    errno = sys;
    if (!ok && !*was_here)
        (void)td_publish_fail(name, "place a blob of", err);
    td_publish_repo_close(&repo);
    if (ok)
        td_publish_note_blob(publish, blobs, hex, sum);
    if (blobs >= 0)
        (void)close(blobs);
    return ok || *was_here;
}

bool td_publish_stream_end(struct td_publish_stream *stream, const uint8_t *expected, struct td_publish_sum *out,
                           struct td_error *err)
{
    uint8_t sum[TD_SHA256_BYTES];
    bool was_here = false;
    bool ok = stream->size_bytes == TD_FETCH_SIZE_UNKNOWN || stream->at == stream->size_bytes ||
              td_error_set(err, TD_INVALID_ARGUMENT, "the body ended %" PRIu64 " bytes before its announced end",
                           stream->size_bytes - stream->at);
    ok = ok && finish_file(stream, sum, err);
    if (ok && expected != NULL && memcmp(sum, expected, sizeof sum) != 0) {
        td_publish_note_refused(stream->publish);
        ok = td_error_set(err, TD_FAILED_PRECONDITION, "the bytes that arrived have another digest");
    }
    ok = ok && td_publish_place_blob(stream->publish, &stream->name, stream->path, sum, &was_here, err);
    if (ok) {
        out->size_bytes = stream->at;
        memcpy(out->sha256, sum, sizeof out->sha256);
    }
    if (ok && !was_here) { /* the blob keeps the bytes that it has */
        td_publish_give_back(stream->publish, stream->taken - stream->at);
        stream->taken = 0;
    }
    td_publish_stream_abandon(stream);
    return ok;
}

static bool take_copied(void *context, const void *bytes, size_t len, struct td_error *err)
{
    return td_publish_stream_write(context, bytes, len, err);
}

bool td_publish_stream_copy(struct td_publish *publish, const struct td_publish_name *name, struct td_blob *source,
                            const uint8_t *expected, struct td_publish_sum *out, struct td_error *err)
{
    struct td_publish_stream *stream = NULL;
    /* clang-tidy cannot see that begin sets the stream */
    if (!td_publish_stream_begin(publish, name, source->len_bytes, &stream, err) || stream == NULL)
        return false;
    if (td_blob_copy_to(source, 0, source->len_bytes, take_copied, stream, err))
        return td_publish_stream_end(stream, expected, out, err);
    td_publish_stream_abandon(stream);
    return false;
}

void td_publish_stream_leave(struct td_publish_stream *stream)
{
    if (stream == NULL)
        return;
    td_fetch_hasher_stop(stream->hasher);
    if (stream->fd >= 0)
        (void)close(stream->fd);
    td_publish_give_back(stream->publish, stream->taken);
    free(stream->block);
    free(stream);
}

void td_publish_stream_abandon(struct td_publish_stream *stream)
{
    if (stream != NULL && stream->fd >= 0) /* the file is not there any more if the blob has its place */
        (void)unlinkat(stream->publish->disk.own.fd, stream->path, 0);
    td_publish_stream_leave(stream);
}
