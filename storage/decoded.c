#include "storage/decoded.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

static struct td_decoded *decoded_of(struct td_blob *blob)
{
    return (struct td_decoded *)(void *)blob;
}

static void decoded_destroy(struct td_blob *blob)
{
    struct td_decoded *d = decoded_of(blob);
    td_blob_unref(d->source);
    d->owner.release(d->owner.context);
    free(d);
}

static bool decoded_unchanged(struct td_blob *blob)
{
    return td_blob_unchanged(decoded_of(blob)->source);
}

/* Copies the error to err. Damage in a file that has changed meanwhile becomes TD_UNAVAILABLE. */
static bool report_error(const struct td_decoded *d, const struct td_error *own, struct td_error *err)
{
    if (own->code == TD_FAILED_PRECONDITION && !td_blob_unchanged(d->source))
        return td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read; it is being read again");
    return td_error_copy(err, own);
}

struct reported_job {
    const struct td_decoded *d;
    const struct td_decode_job *job;
};

/* Makes a part. Only damage of a file that is unchanged may stay in the cache. */
static bool make_reported(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err)
{
    const struct reported_job *reported = context;
    struct td_error own = TD_ERROR_INIT;
    return reported->job->make(reported->job->context, part, kept_bytes, &own) || report_error(reported->d, &own, err);
}

bool td_decoded_get(const struct td_decoded *d, uint64_t part, const struct td_decode_job *job,
                    struct td_decoded_part **out, struct td_error *err)
{
    struct reported_job reported = {.d = d, .job = job};
    struct td_decode_job whole = *job;
    whole.key = d->key;
    whole.key.part = part;
    whole.make = make_reported;
    whole.context = &reported;
    whole.cancel = d->owner.cancel;
    return td_decode_cache_get(d->cache, &whole, out, err);
}

/* Copies the error to err as report_error does; damage is told with the names of the tensor and its file. */
static bool report_named(const struct td_decoded *d, const struct td_error *own, struct td_error *err)
{
    struct td_error named = *own;
    if (own->code == TD_FAILED_PRECONDITION && d->owner.tensor != NULL && d->owner.file != NULL) {
        td_error_init(&named);
        (void)td_error_set(&named, own->code, "tensor \"%.100s\" of \"%.150s\": %s", d->owner.tensor, d->owner.file,
                           own->message);
        named.pos = own->pos;
        named.sys = own->sys;
    }
    return report_error(d, &named, err);
}

static bool decoded_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct td_decoded *d = decoded_of(blob);
    struct td_error own = TD_ERROR_INIT;
    bool ok = d->coding->kind == TD_CODING_DEFLATE ? td_decoded_stream_read(d, off, out, len, &own)
                                                   : td_decoded_chunks_read(d, off, out, len, &own);
    return ok || report_named(d, &own, err);
}

/* Returns whether the stream is not known to be damaged; unpacks nothing. */
static bool check_known(const struct td_decoded *d, struct td_error *err)
{
    struct td_error own = TD_ERROR_INIT;
    struct td_decode_key key = d->key;
    key.part = TD_DECODE_INDEX;
    return !td_decode_cache_is_damaged(d->cache, &key, &own) || report_named(d, &own, err);
}

/* The first byte brings its part, and of a stream the check of all, which HEAD does not wait for. */
static bool decoded_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    uint8_t first;
    (void)len;
    if (for_head && decoded_of(blob)->coding->kind == TD_CODING_DEFLATE)
        return check_known(decoded_of(blob), err);
    return decoded_read(blob, off, &first, sizeof first, err);
}

static const struct td_blob_class decoded_class = {
    .destroy = decoded_destroy, .read = decoded_read, .unchanged = decoded_unchanged, .prepare = decoded_prepare};

bool td_decoded_stored(const struct td_decoded *d, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (!td_add_u64(off, d->coding->base, &off) || !td_range_within(off, len, d->source->len_bytes))
        return td_error_set(err, TD_FAILED_PRECONDITION, "stored bytes lie outside of the file");
    return td_blob_read(d->source, off, out, len, err);
}

static bool is_sound(const struct td_coding *coding)
{
    const struct td_coding_grid *grid = &coding->grid;
    if (coding->kind == TD_CODING_DEFLATE)
        return coding->size_bytes <= TD_CODING_STREAM_MAX_BYTES;
    return coding->kind == TD_CODING_CHUNKS && grid->rank >= 1 && grid->rank <= TD_CODING_RANK_MAX &&
           grid->elem_bytes > 0 && grid->filter_count <= TD_CODING_FILTERS_MAX;
}

bool td_blob_decoded(struct td_blob *source, const struct td_coding *coding, uint64_t file,
                     struct td_decode_cache *cache, const struct td_decoded_owner *owner, struct td_blob **out,
                     struct td_error *err)
{
    struct td_decoded *d = is_sound(coding) ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) {
        owner->release(owner->context);
        return is_sound(coding) ? td_error_no_memory(err)
                                : td_error_set(err, TD_INTERNAL, "a tensor is stored in an unknown way");
    }
    d->blob.class = &decoded_class;
    atomic_init(&d->blob.refs, 1);
    d->blob.len_bytes = coding->size_bytes;
    d->source = td_blob_ref(source);
    d->coding = coding;
    d->cache = cache;
    d->owner = *owner;
    d->key.file = file;
    d->key.coding = coding->number;
    *out = &d->blob;
    return true;
}
