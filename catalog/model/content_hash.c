#define OPENSSL_API_COMPAT 0x10101000L /* as digest.c says */
#include "catalog/model/content_hash.h"

#include "core/digits.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, SPAN_BYTES = 16 * 1024 * 1024, PROBES = 16 };

struct hashing {
    int fd;
    uint8_t *buffer;
    SHA256_CTX sha256;
    SHA_CTX sha1;
    const struct td_content_hash_options *options;
};

bool td_file_identity_tag(const struct td_file_id *id, char tag[TD_TAG_BYTES])
{
    return td_digest_tag(id, sizeof *id, tag);
}

/* Counts the pages of a range that are in the page cache, by cachestat(2) of Linux 6.5, which the C library does not
 * have yet. Returns false if the kernel cannot report that, or does not for other users' files. */
static bool count_cached(int fd, uint64_t off, size_t len, uint64_t *pages)
{
    enum { SYS_CACHESTAT = 451 }; /* on every architecture but alpha */
    struct {
        uint64_t off, len;
    } range = {.off = off, .len = len};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } counts = {0};
    if (syscall(SYS_CACHESTAT, fd, &range, &counts, 0) != 0)
        return false;
    *pages = counts.cached;
    return true;
}

/* Returns whether most of the span is in the page cache before it is read here, which means that others use it. If the
 * kernel cannot report that, probes single bytes with reads that do not wait for the disk; but a probe starts a read,
 * and a fast disk may complete it before the next probe. mincore would need a mapping, and is reliable only for files
 * of this process's user. Returns true if neither works, so that the bytes stay cached. */
static bool is_cached(const struct hashing *h, uint64_t off, size_t len)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t cached;
    size_t cached_probes = 0;
    uint8_t byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    if (count_cached(h->fd, off, len, &cached))
        return cached > len / page / 2;
    for (size_t i = 0; i < PROBES; i++) {
        ssize_t n = preadv2(h->fd, &part, 1, (off_t)(off + len / PROBES * i), RWF_NOWAIT);
        if (n == 1)
            cached_probes++;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            return true; /* not all file systems support this */
    }
    return cached_probes > PROBES / 2;
}

static bool read_some(const struct hashing *h, uint64_t off, size_t len, struct td_error *err)
{
    ssize_t n = td_read_at(h->fd, h->buffer, len, off);
    if (n < 0)
        return td_error_sys(err, TD_IO, errno, "cannot read the file");
    return (size_t)n == len ||
           td_error_at(err, TD_UNAVAILABLE, off + (uint64_t)n, "the file shrank while it was hashed");
}

/* Hashes one span, and drops it from the page cache again if it was not there before. */
static bool hash_span(struct hashing *h, uint64_t off, size_t len, struct td_error *err)
{
    const struct td_content_hash_options *options = h->options;
    bool cached = is_cached(h, off, len);
    for (size_t done = 0; done < len;) {
        size_t n = len - done < READ_BYTES ? len - done : READ_BYTES;
        if (options->stop != NULL && atomic_load_explicit(options->stop, memory_order_relaxed))
            return td_error_set(err, TD_UNAVAILABLE, "hashing was stopped");
        if (!read_some(h, off + done, n, err))
            return false;
        (void)SHA256_Update(&h->sha256, h->buffer, n);
        if (options->git_sha1)
            (void)SHA1_Update(&h->sha1, h->buffer, n);
        if (options->hashed_bytes != NULL)
            atomic_fetch_add_explicit(options->hashed_bytes, n, memory_order_relaxed);
        done += n;
    }
    if (!cached)
        (void)posix_fadvise(h->fd, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
    return true;
}

static bool hash_all(struct hashing *h, const struct td_file_id *id, struct td_content_sums *sums, struct td_error *err)
{
    char prefix[40];
    uint64_t size_bytes = id->size_bytes;
    int prefix_len = snprintf(prefix, sizeof prefix, "blob %" PRIu64, size_bytes);
    (void)SHA256_Init(&h->sha256);
    (void)SHA1_Init(&h->sha1);
    (void)SHA1_Update(&h->sha1, prefix, (size_t)prefix_len + 1);
    for (uint64_t off = 0; off < size_bytes; off += SPAN_BYTES) {
        uint64_t left = size_bytes - off;
        if (!hash_span(h, off, left < SPAN_BYTES ? (size_t)left : SPAN_BYTES, err))
            return false;
        if (!td_file_id_is(h->fd, id)) /* changed, replaced or unlinked: closing the file frees its disk space */
            return td_error_set(err, TD_UNAVAILABLE, "the file changed while it was hashed");
    }
    (void)SHA256_Final(sums->sha256, &h->sha256);
    (void)SHA1_Final(sums->git_sha1, &h->sha1);
    return true;
}

bool td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                     const struct td_content_hash_options *options, struct td_content_sums *sums, struct td_error *err)
{
    struct hashing h = {.options = options};
    struct td_file_id found;
    if (!td_root_open_file(root, path, &h.fd, &found, err))
        return false;
    h.buffer = malloc(id->size_bytes < READ_BYTES ? (size_t)id->size_bytes + 1 : READ_BYTES);
    bool ok = h.buffer != NULL || td_error_no_memory(err);
    bool same = td_file_id_equal(&found, id);
    ok = ok && same && hash_all(&h, id, sums, err);
    same = same && td_file_id_is(h.fd, id);
    free(h.buffer);
    (void)close(h.fd);
    if (!same)
        return td_error_set(err, TD_UNAVAILABLE, "\"%s\" changed since it was looked at", path);
    return ok;
}

enum td_blob_name td_cache_blob_name_of(const struct td_root *root, const char *path, char name[TD_SHA256_TEXT_BYTES])
{
    if (strstr(path, "snapshots/") == NULL || !td_root_link_name(root, path, name, TD_SHA256_TEXT_BYTES) ||
        !td_hex_is_lower(td_text_of(name)))
        return TD_BLOB_NAME_NONE;
    if (strlen(name) == 2 * (size_t)TD_SHA256_BYTES)
        return TD_BLOB_NAME_SHA256;
    return strlen(name) == 2 * (size_t)TD_GIT_SHA1_BYTES ? TD_BLOB_NAME_GIT_SHA1 : TD_BLOB_NAME_NONE;
}

bool td_cache_blob_name_fits(enum td_blob_name kind, const char *name, const struct td_content_sums *sums)
{
    char text[TD_SHA256_TEXT_BYTES];
    if (kind == TD_BLOB_NAME_NONE)
        return true;
    if (kind == TD_BLOB_NAME_SHA256)
        td_hex_write(sums->sha256, TD_SHA256_BYTES, text);
    else
        td_hex_write(sums->git_sha1, TD_GIT_SHA1_BYTES, text);
    return strcmp(text, name) == 0;
}
