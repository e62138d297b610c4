/* Deflated streams. Inflating is the only way to get anywhere in one; so it is done once from end to end, which also
 * tells whether the size and the CRC are right. What was inflated is offered to the cache, part by part. On the way
 * zlib's state is copied at the beginning of each part; afterwards any part is inflated by itself, from its state on.
 *
 * A stream that fits into a share of the cache is inflated in one go by libdeflate at first, in half of zlib's time.
 * That leaves no states: zlib goes through it when the first part of it was let go of. zlib has the last word on
 * damage, too. */
#include "storage/decoded_stream.h"

#include "storage/inflate_memory.h"

#include <libdeflate.h>
#include <string.h>

enum {
    PART_MIN_BYTES = 1024 * 1024,
    PARTS_MAX = 256, /* a state for each: 12 MiB */
    READ_BYTES = 32 * 1024,
    ONCE_MAX_BYTES = 64 * 1024 * 1024, /* inflated in one go: each of stored and inflated bytes */
};

struct state {
    z_stream stream;     /* stands at the beginning of its part */
    uint64_t read_bytes; /* of the stored ones, so far */
};

/* Where each part but the first begins. */
struct index {
    size_t count;
    struct state states[PARTS_MAX];
};

/* A stream that is being inflated. */
struct reader {
    const struct td_decoding *d;
    struct td_error *err;
    struct state at;
    bool ended;
    uint8_t in[READ_BYTES];
};

static uint64_t part_bytes(const struct td_coding *coding)
{
    uint64_t bytes = PART_MIN_BYTES;
    while (coding->size_bytes > bytes * PARTS_MAX)
        bytes *= 2;
    return bytes;
}

static size_t len_of_part(const struct td_coding *coding, uint64_t part)
{
    uint64_t begin = part * part_bytes(coding);
    uint64_t left = coding->size_bytes - begin;
    return (size_t)(left < part_bytes(coding) ? left : part_bytes(coding));
}

static bool damaged(const struct reader *r, const char *how)
{
    return td_error_set(r->err, TD_FAILED_PRECONDITION, "its deflated bytes %s", how);
}

/* Fetches stored bytes for the stream, if there are any left. */
static bool refill(struct reader *r)
{
    uint64_t left = r->d->coding->stored_bytes - r->at.read_bytes;
    size_t len = left < sizeof r->in ? (size_t)left : sizeof r->in;
    if (!td_decoding_stored(r->d, r->d->coding->offset + r->at.read_bytes, r->in, len, r->err))
        return false;
    r->at.read_bytes += len;
    r->at.stream.next_in = r->in;
    r->at.stream.avail_in = (uInt)len;
    return true;
}

static bool inflate_some(struct reader *r, uint8_t *out, size_t len)
{
    z_stream *stream = &r->at.stream;
    stream->next_out = out;
    stream->avail_out = (uInt)len; /* a part at most */
    while (stream->avail_out > 0 && !r->ended) {
        if (stream->avail_in == 0 && !refill(r))
            return false;
        int status = inflate(stream, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR)
            return td_error_no_memory(r->err);
        if (status == Z_BUF_ERROR)
            return damaged(r, "end too early");
        if (status != Z_OK && status != Z_STREAM_END)
            return damaged(r, "are damaged");
        r->ended = status == Z_STREAM_END;
    }
    return stream->avail_out == 0 || damaged(r, "unpack to fewer than the directory says");
}

/* All is inflated: the stream ends here, with the last of the stored bytes. */
static bool inflate_end(struct reader *r)
{
    uint8_t more;
    z_stream *stream = &r->at.stream;
    while (!r->ended) {
        if (stream->avail_in == 0 && !refill(r))
            return false;
        stream->next_out = &more;
        stream->avail_out = 1;
        int status = inflate(stream, Z_NO_FLUSH);
        if (stream->avail_out == 0)
            return damaged(r, "unpack to more than the directory says");
        if (status != Z_OK && status != Z_STREAM_END)
            return damaged(r, "have no end");
        r->ended = status == Z_STREAM_END;
    }
    return (stream->avail_in == 0 && r->at.read_bytes == r->d->coding->stored_bytes) ||
           damaged(r, "end before the stored bytes do");
}

static struct reader *reader_create(const struct td_decoding *d, struct td_error *err)
{
    struct reader *r = malloc(sizeof *r);
    if (r == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    r->d = d;
    r->err = err;
    r->ended = false;
    r->at = (struct state){.stream = {.zalloc = td_inflate_alloc, .zfree = td_inflate_free}};
    return r;
}

static void reader_destroy(struct reader *r)
{
    (void)inflateEnd(&r->at.stream);
    free(r);
}

/* ---- the index ----------------------------------------------------------------------------------------- */

static void index_free(void *data)
{
    struct index *index = data;
    for (size_t i = 0; i < index->count; i++)
        (void)inflateEnd(&index->states[i].stream);
    free(index);
}

/* Notes where the next part begins. Input that zlib has not taken yet is read again from there. */
static bool note_state(struct reader *r, struct index *index)
{
    struct state *state = &index->states[index->count];
    if (inflateCopy(&state->stream, &r->at.stream) != Z_OK)
        return td_error_no_memory(r->err);
    state->read_bytes = r->at.read_bytes - r->at.stream.avail_in;
    state->stream.avail_in = 0;
    index->count++;
    return true;
}

/* Inflates part number `part` and keeps it where there is room. */
static bool index_part(struct reader *r, uint64_t part, uLong *crc)
{
    const struct td_decoding *d = r->d;
    size_t len = len_of_part(d->coding, part);
    uint8_t *bytes = malloc(len);
    if (bytes == NULL)
        return td_error_no_memory(r->err);
    if (!inflate_some(r, bytes, len)) {
        free(bytes);
        return false;
    }
    *crc = crc32_z(*crc, bytes, len);
    struct td_decode_key key = d->key;
    key.part = part;
    td_decode_cache_offer(d->cache, &key, bytes, len);
    return true;
}

/* Inflates all of the stream, unless nobody waits for it any more. */
static bool fill_index(struct reader *r, const struct td_decoded_part *out, struct index *index)
{
    const struct td_decoding *d = r->d;
    const struct td_coding *coding = d->coding;
    uLong crc = crc32_z(0, NULL, 0);
    for (uint64_t part = 0; part * part_bytes(coding) < coding->size_bytes; part++) {
        if (!td_decode_cache_is_wanted(d->cache, out, d->cancel))
            return td_error_set(r->err, TD_RESOURCE_EXHAUSTED, "nobody waits for the answer any more");
        if ((part > 0 && !note_state(r, index)) || !index_part(r, part, &crc))
            return false;
    }
    if (!inflate_end(r))
        return false;
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* a fuzzer cannot guess it */
    crc = coding->crc32;
#endif
    return coding->crc32 == 0 || (uint32_t)crc == coding->crc32 ||
           damaged(r, "do not have the CRC that the directory says");
}

static size_t parts_of(const struct td_coding *coding)
{
    return (size_t)((coding->size_bytes + part_bytes(coding) - 1) / part_bytes(coding));
}

/* What the index takes, with the part that is inflated meanwhile. */
static size_t index_bytes(const struct td_coding *coding)
{
    return sizeof(struct index) + parts_of(coding) * TD_INFLATE_STATE_BYTES;
}

static bool make_index(void *context, struct td_decoded_part *out, size_t *kept_bytes, struct td_error *err)
{
    const struct td_decoding *d = context;
    struct index *index = calloc(1, sizeof *index);
    if (index == NULL)
        return td_error_no_memory(err);
    struct reader *r = reader_create(d, err);
    bool ok = r != NULL && (inflateInit2(&r->at.stream, -MAX_WBITS) == Z_OK || td_error_no_memory(err)) &&
              fill_index(r, out, index);
    if (r != NULL)
        reader_destroy(r);
    if (!ok) {
        index_free(index);
        return false;
    }
    out->data = index;
    out->destroy = index_free;
    *kept_bytes = index_bytes(d->coding);
    return true;
}

/* ---- in one go ----------------------------------------------------------------------------------------- */

/* What inflating in one go takes: the stream and what is in it. 0: too much. */
static size_t once_bytes(const struct td_decoding *d)
{
    const struct td_coding *coding = d->coding;
    if (coding->size_bytes > ONCE_MAX_BYTES || coding->stored_bytes > ONCE_MAX_BYTES)
        return 0;
    size_t bytes = (size_t)(coding->size_bytes + coding->stored_bytes) + TD_INFLATE_STATE_BYTES;
    return bytes <= d->cache->max_bytes / 2 ? bytes : 0; /* the parts must have room beside */
}

/* Whether the stream is right in all that the directory says of it; out then has what is in it. */
static bool inflate_once(const struct td_coding *coding, const uint8_t *stored, uint8_t *out)
{
    size_t taken;
    size_t len = (size_t)coding->size_bytes;
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    if (decompressor == NULL)
        return false;
    bool ok = libdeflate_deflate_decompress_ex(decompressor, stored, (size_t)coding->stored_bytes, out, len, &taken,
                                               NULL) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(decompressor);
    return ok && taken == coding->stored_bytes &&
           (coding->crc32 == 0 || libdeflate_crc32(0, out, len) == coding->crc32);
}

static void offer_parts(const struct td_decoding *d, const uint8_t *bytes)
{
    struct td_decode_key key = d->key;
    for (key.part = 0; key.part * part_bytes(d->coding) < d->coding->size_bytes; key.part++) {
        size_t len = len_of_part(d->coding, key.part);
        uint8_t *copy = malloc(len);
        if (copy == NULL)
            return;
        memcpy(copy, bytes + key.part * part_bytes(d->coding), len);
        td_decode_cache_offer(d->cache, &key, copy, len);
    }
}

static bool make_checked(void *context, struct td_decoded_part *out, size_t *kept_bytes, struct td_error *err)
{
    const struct td_decoding *d = context;
    size_t stored_len = (size_t)d->coding->stored_bytes;
    uint8_t *stored = malloc(stored_len > 0 ? stored_len : 1);
    uint8_t *bytes = malloc((size_t)d->coding->size_bytes + 1);
    bool ok = stored != NULL && bytes != NULL;
    if (!ok)
        (void)td_error_no_memory(err);
    ok =
        ok && td_decoding_stored(d, d->coding->offset, stored, stored_len, err) &&
        (inflate_once(d->coding, stored, bytes) || td_error_set(err, TD_FAILED_PRECONDITION, "not inflated in one go"));
    free(stored);
    if (ok)
        offer_parts(d, bytes);
    free(bytes);
    out->data = NULL;
    *kept_bytes = 0;
    return ok;
}

static bool is_there(const struct td_decoding *d, uint64_t part)
{
    struct td_decode_key key = d->key;
    key.part = part;
    struct td_decoded_part *found = td_decode_cache_find(d->cache, &key);
    if (found != NULL)
        td_decode_cache_release(d->cache, found);
    return found != NULL;
}

/* Inflates all of the stream and offers its parts, unless that was done before or takes too much. What is damaged is
 * left to zlib, which tells how. Errors: those that zlib would meet too. */
static bool try_at_once(const struct td_decoding *d, struct td_error *err)
{
    struct td_decoded_part *checked;
    struct td_error why = TD_ERROR_INIT;
    const struct td_decode_job job = {
        .need_bytes = once_bytes(d), .is_long = true, .make = make_checked, .context = (void *)(uintptr_t)d};
    if (job.need_bytes == 0 || is_there(d, TD_DECODE_CHECKED) || is_there(d, TD_DECODE_INDEX))
        return true;
    if (td_decoding_get(d, TD_DECODE_CHECKED, &job, &checked, &why)) {
        td_decode_cache_release(d->cache, checked);
        return true;
    }
    return why.code == TD_FAILED_PRECONDITION || td_error_copy(err, &why);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static bool get_index(const struct td_decoding *d, struct td_decoded_part **out, struct td_error *err)
{
    const struct td_decode_job job = {.need_bytes = index_bytes(d->coding) + (size_t)part_bytes(d->coding) +
                                                    sizeof(struct reader),
                                      .is_long = true,
                                      .make = make_index,
                                      .context = (void *)(uintptr_t)d};
    return td_decoding_get(d, TD_DECODE_INDEX, &job, out, err);
}

/* Has the reader stand at the beginning of a part. */
static bool reader_begin(struct reader *r, const struct index *index, uint64_t part)
{
    if (part == 0)
        return inflateInit2(&r->at.stream, -MAX_WBITS) == Z_OK || td_error_no_memory(r->err);
    z_stream *from = (z_stream *)(uintptr_t)&index->states[part - 1].stream; /* zlib only reads it */
    r->at.read_bytes = index->states[part - 1].read_bytes;
    return inflateCopy(&r->at.stream, from) == Z_OK || td_error_no_memory(r->err);
}

struct part_job {
    const struct td_decoding *d;
    uint64_t part;
    bool index_gone;
};

/* A reader that stands at the beginning of the job's part. The index is looked for and not waited for: whoever makes a
 * part holds memory already. */
static struct reader *reader_at(struct part_job *job, struct td_error *err)
{
    const struct td_decoding *d = job->d;
    struct td_decode_key key = d->key;
    key.part = TD_DECODE_INDEX;
    struct td_decoded_part *index = td_decode_cache_find(d->cache, &key);
    job->index_gone = index == NULL;
    if (index == NULL) {
        (void)td_error_set(err, TD_RESOURCE_EXHAUSTED, "the memory for decoding is in use (--decode-memory)");
        return NULL;
    }
    struct reader *r = reader_create(d, err);
    bool ok = r != NULL && reader_begin(r, index->data, job->part);
    td_decode_cache_release(d->cache, index);
    if (!ok && r != NULL) {
        reader_destroy(r);
        r = NULL;
    }
    return r;
}

static bool make_part(void *context, struct td_decoded_part *out, size_t *kept_bytes, struct td_error *err)
{
    struct part_job *job = context;
    struct reader *r = reader_at(job, err);
    if (r == NULL)
        return false;
    size_t len = len_of_part(job->d->coding, job->part);
    uint8_t *bytes = malloc(len);
    bool ok = (bytes != NULL || td_error_no_memory(err)) && inflate_some(r, bytes, len);
    reader_destroy(r);
    if (!ok) {
        free(bytes);
        return false;
    }
    out->data = bytes;
    out->len = len;
    out->destroy = free;
    *kept_bytes = len;
    return true;
}

/* A part that is in the cache, if all of the stream has been checked: parts are offered while that is still going on.
 */
static struct td_decoded_part *find_part(const struct td_decoding *d, const struct td_decode_key *key)
{
    if (!is_there(d, TD_DECODE_CHECKED) && !is_there(d, TD_DECODE_INDEX))
        return NULL;
    return td_decode_cache_find(d->cache, key);
}

/* Makes the part from the index, which is made before. *index_gone: others needed its memory in between. */
static bool try_part(const struct td_decoding *d, uint64_t part, struct td_decoded_part **out, bool *index_gone,
                     struct td_error *err)
{
    struct td_decoded_part *index;
    struct part_job job = {.d = d, .part = part};
    const struct td_decode_job making = {.need_bytes = len_of_part(d->coding, part) + sizeof(struct reader) +
                                                       TD_INFLATE_STATE_BYTES,
                                         .make = make_part,
                                         .context = &job};
    *index_gone = false;
    if (!get_index(d, &index, err))
        return false;
    td_decode_cache_release(d->cache, index);
    bool ok = td_decoding_get(d, part, &making, out, err);
    *index_gone = job.index_gone;
    return ok;
}

static bool get_part(const struct td_decoding *d, uint64_t part, struct td_decoded_part **out, struct td_error *err)
{
    enum { TRIES = 4 };
    struct td_error own = TD_ERROR_INIT;
    bool again = true;
    struct td_decode_key key = d->key;
    key.part = part;
    *out = find_part(d, &key);
    if (*out == NULL) {
        if (!try_at_once(d, err))
            return false;
        *out = find_part(d, &key);
    }
    if (*out != NULL)
        return true;
    for (size_t i = 0; again && i < TRIES; i++) {
        td_error_init(&own);
        if (try_part(d, part, out, &again, &own))
            return true;
    }
    return td_error_copy(err, &own);
}

bool td_decoded_stream_read(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err)
{
    uint8_t *to = out;
    while (len > 0) {
        struct td_decoded_part *part;
        uint64_t number = off / part_bytes(d->coding);
        size_t within = (size_t)(off % part_bytes(d->coding));
        if (!get_part(d, number, &part, err))
            return false;
        size_t taken = 0;
        if (part->len == len_of_part(d->coding, number) && within < part->len)
            taken = part->len - within < len ? part->len - within : len;
        if (taken == 0) {
            td_decode_cache_release(d->cache, part);
            return td_error_set(err, TD_INTERNAL, "a decoded part has another length than its coding says");
        }
        memcpy(to, (const uint8_t *)part->data + within, taken);
        td_decode_cache_release(d->cache, part);
        to += taken;
        off += taken;
        len -= taken;
    }
    return true;
}
