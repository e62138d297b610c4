/* Deflate streams. The only way to a byte of a stream is to inflate everything before it. So the stream is inflated
 * once from end to end, which also checks the size and the CRC, and its parts are offered to the cache. On the way
 * zlib's state is copied at the beginning of each part (the index); afterwards any part can be inflated alone, from its
 * state on.
 *
 * A stream that fits into a share of the cache is first inflated in one go by libdeflate, in half of zlib's time. That
 * leaves no states, so zlib inflates the stream again when the cache has evicted a part. zlib also decides about
 * damage.
 *
 * What is hard: a thread that makes a part holds memory of the cache already and must not wait for more. So the index
 * is made before the part, and only looked up while the part is made; when the index was evicted in between, both are
 * tried again (get_part). */
#include "storage/decoded_stream.h"

#include "core/inflate_memory.h"

#include <libdeflate.h>
#include <string.h>

enum {
    PART_MIN_BYTES = 1024 * 1024,
    PARTS_MAX = 256, /* a state for each: 12 MiB in all */
    READ_BYTES = 32 * 1024,
    ONCE_MAX_BYTES = 64 * 1024 * 1024, /* of stored and of inflated bytes, for one go */
};

/* A place in the stream at which inflating can begin. */
struct state {
    z_stream stream;     /* as it is at the beginning of a part */
    uint64_t read_bytes; /* of the stored bytes, up to there */
};

/* The state at the beginning of each part but the first. */
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

static bool refuse_damaged(const struct reader *r, const char *how)
{
    return td_error_set(r->err, TD_FAILED_PRECONDITION, "its deflated bytes %s", how);
}

/* Passes the next stored bytes to zlib; no bytes when all are read. */
static bool refill_input(struct reader *r)
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

/* Inflates the next len bytes, a part at most, to out. */
static bool inflate_some(struct reader *r, uint8_t *out, size_t len)
{
    z_stream *stream = &r->at.stream;
    stream->next_out = out;
    stream->avail_out = (uInt)len;
    while (stream->avail_out > 0 && !r->ended) {
        if (stream->avail_in == 0 && !refill_input(r))
            return false;
        int status = inflate(stream, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR)
            return td_error_no_memory(r->err);
        if (status == Z_BUF_ERROR)
            return refuse_damaged(r, "end too early");
        if (status != Z_OK && status != Z_STREAM_END)
            return refuse_damaged(r, "are damaged");
        r->ended = status == Z_STREAM_END;
    }
    return stream->avail_out == 0 || refuse_damaged(r, "unpack to fewer than the directory says");
}

/* Checks that the stream ends here, and with the last stored byte. */
static bool inflate_end(struct reader *r)
{
    uint8_t more;
    z_stream *stream = &r->at.stream;
    while (!r->ended) {
        if (stream->avail_in == 0 && !refill_input(r))
            return false;
        stream->next_out = &more;
        stream->avail_out = 1;
        int status = inflate(stream, Z_NO_FLUSH);
        if (stream->avail_out == 0)
            return refuse_damaged(r, "unpack to more than the directory says");
        if (status != Z_OK && status != Z_STREAM_END)
            return refuse_damaged(r, "have no end");
        r->ended = status == Z_STREAM_END;
    }
    return (stream->avail_in == 0 && r->at.read_bytes == r->d->coding->stored_bytes) ||
           refuse_damaged(r, "end before the stored bytes do");
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

/* Adds the reader's state to the index, at the beginning of a part. Input that zlib has not taken yet is read again. */
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

/* Inflates the part, adds it to the CRC and offers it to the cache. */
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

/* Inflates and checks all of the stream and fills the index, unless nobody waits for it any more. */
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
           refuse_damaged(r, "do not have the CRC that the directory says");
}

static size_t parts_of(const struct td_coding *coding)
{
    return (size_t)((coding->size_bytes + part_bytes(coding) - 1) / part_bytes(coding));
}

/* Returns the memory that the index takes, with one state more for the reader. */
static size_t index_bytes(const struct td_coding *coding)
{
    return sizeof(struct index) + parts_of(coding) * TD_INFLATE_STATE_BYTES;
}

/* Makes the index: a td_decode_maker. */
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

/* Returns the memory for inflating in one go: the stored and the inflated bytes. Returns 0 when that is too much. */
static size_t once_bytes(const struct td_decoding *d)
{
    const struct td_coding *coding = d->coding;
    if (coding->size_bytes > ONCE_MAX_BYTES || coding->stored_bytes > ONCE_MAX_BYTES)
        return 0;
    size_t bytes = (size_t)(coding->size_bytes + coding->stored_bytes) + TD_INFLATE_STATE_BYTES;
    return bytes <= d->cache->max_bytes / 2 ? bytes : 0; /* leaves room for the parts */
}

/* Inflates the stream to out. Returns whether its sizes and its CRC are those of the archive's directory. */
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

/* Offers copies of all parts to the cache. */
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

/* Inflates the stream in one go and offers its parts: a td_decode_maker of a part without data. */
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

/* Returns whether the cache has the part. */
static bool is_there(const struct td_decoding *d, uint64_t part)
{
    struct td_decode_key key = d->key;
    key.part = part;
    struct td_decoded_part *found = td_decode_cache_find(d->cache, &key);
    if (found != NULL)
        td_decode_cache_release(d->cache, found);
    return found != NULL;
}

/* Inflates the stream in one go and offers its parts, unless that was done before or takes too much memory. Returns
 * true for a damaged stream, too: zlib finds the damage again and reports it. Errors: those that zlib would meet
 * too. */
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

/* Gets the index from the cache; makes it if need be. */
static bool get_index(const struct td_decoding *d, struct td_decoded_part **out, struct td_error *err)
{
    const struct td_decode_job job = {.need_bytes = index_bytes(d->coding) + (size_t)part_bytes(d->coding) +
                                                    sizeof(struct reader),
                                      .is_long = true,
                                      .make = make_index,
                                      .context = (void *)(uintptr_t)d};
    return td_decoding_get(d, TD_DECODE_INDEX, &job, out, err);
}

/* Moves a new reader to the beginning of the part. */
static bool reader_begin(struct reader *r, const struct index *index, uint64_t part)
{
    if (part == 0)
        return inflateInit2(&r->at.stream, -MAX_WBITS) == Z_OK || td_error_no_memory(r->err);
    z_stream *from = (z_stream *)(uintptr_t)&index->states[part - 1].stream; /* zlib only reads it */
    r->at.read_bytes = index->states[part - 1].read_bytes;
    return inflateCopy(&r->at.stream, from) == Z_OK || td_error_no_memory(r->err);
}

/* The making of one part; index_gone is set when the cache has dropped the index. */
struct part_job {
    const struct td_decoding *d;
    uint64_t part;
    bool index_gone;
};

/* Returns a reader at the beginning of the job's part, or NULL. Does not wait for the index, since the maker of a part
 * holds memory already. */
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

/* Inflates one part: a td_decode_maker. */
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

/* Returns the part if the cache has it and the whole stream was checked, else NULL. Parts are offered before the check
 * ends. */
static struct td_decoded_part *find_part(const struct td_decoding *d, const struct td_decode_key *key)
{
    if (!is_there(d, TD_DECODE_CHECKED) && !is_there(d, TD_DECODE_INDEX))
        return NULL;
    return td_decode_cache_find(d->cache, key);
}

/* Gets the index, then the part. Sets *index_gone when the cache dropped the index in between, because others needed
 * its memory. */
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

/* Gets a part: from the cache, after inflating in one go, or from the index. */
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
