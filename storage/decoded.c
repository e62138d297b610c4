#include "storage/decoded.h"

#include "storage/decode_cache.h"
#include "storage/decoded_chunks.h"
#include "storage/decoded_stream.h"

#include <stdlib.h>

/* A decoded blob. */
struct decoded {
    struct td_blob_over over;
    struct td_decoding decoding;
    struct td_decoded_owner owner;
};

static struct decoded *decoded_of(struct td_blob *blob)
{
    return (struct decoded *)(void *)blob;
}

static void decoded_destroy(struct td_blob *blob)
{
    const struct decoded *d = decoded_of(blob);
    d->owner.release(d->owner.context);
    td_blob_over_destroy(blob);
}

/* Copies the error to err as td_decoding_report does, and adds the names of the tensor and its file to damage. */
static bool report_named(const struct decoded *d, const struct td_error *own, struct td_error *err)
{
    struct td_error named = *own;
    if (own->code == TD_FAILED_PRECONDITION && d->owner.tensor != NULL && d->owner.file != NULL) {
        td_error_init(&named);
        (void)td_error_set(&named, own->code, "tensor \"%.100s\" of \"%.150s\": %s", d->owner.tensor, d->owner.file,
                           own->message);
        named.pos = own->pos;
        named.sys = own->sys;
    }
    return td_decoding_report(&d->decoding, &named, err);
}

static bool decoded_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct decoded *d = decoded_of(blob);
    struct td_error own = TD_ERROR_INIT;
    bool ok = d->decoding.coding->kind == TD_CODING_DEFLATE ? td_decoded_stream_read(&d->decoding, off, out, len, &own)
                                                            : td_decoded_chunks_read(&d->decoding, off, out, len, &own);
    return ok || report_named(d, &own, err);
}

/* Fails when the stream is known to be damaged. Unpacks nothing. */
static bool check_known(const struct decoded *d, struct td_error *err)
{
    struct td_error own = TD_ERROR_INIT;
    struct td_decode_key key = d->decoding.key;
    key.part = TD_DECODE_INDEX;
    return !td_decode_cache_is_damaged(d->decoding.cache, &key, &own) || report_named(d, &own, err);
}

/* Reads the first byte, which unpacks its part, and checks all of a stream. HEAD does not wait for the latter. */
static bool decoded_prepare(struct td_blob *blob, uint64_t off, uint64_t len, bool for_head, struct td_error *err)
{
    uint8_t first;
    (void)len;
    if (for_head && decoded_of(blob)->decoding.coding->kind == TD_CODING_DEFLATE)
        return check_known(decoded_of(blob), err);
    return decoded_read(blob, off, &first, sizeof first, err);
}

static const struct td_blob_class decoded_class = {
    .destroy = decoded_destroy, .read = decoded_read, .unchanged = td_blob_over_unchanged, .prepare = decoded_prepare};

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
    struct decoded *d = is_sound(coding) ? calloc(1, sizeof *d) : NULL;
    if (d == NULL) {
        owner->release(owner->context);
        return is_sound(coding) ? td_error_no_memory(err)
                                : td_error_set(err, TD_INTERNAL, "a tensor is stored in an unknown way");
    }
    td_blob_over_init(&d->over, &decoded_class, coding->size_bytes, source, 0);
    d->decoding = (struct td_decoding){.source = source,
                                       .coding = coding,
                                       .cache = cache,
                                       .cancel = owner->cancel,
                                       .key = {.file = file, .coding = coding->number}};
    d->owner = *owner;
    *out = &d->over.blob;
    return true;
}
