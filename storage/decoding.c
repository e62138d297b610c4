#include "storage/decoding.h"

#include "core/checked.h"

bool td_decoding_stored(const struct td_decoding *d, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (!td_add_u64(off, d->coding->base, &off) || !td_range_within(off, len, d->source->len_bytes))
        return td_error_set(err, TD_FAILED_PRECONDITION, "stored bytes are outside of the file");
    return td_blob_read(d->source, off, out, len, err);
}

bool td_decoding_report(const struct td_decoding *d, const struct td_error *own, struct td_error *err)
{
    if (own->code == TD_FAILED_PRECONDITION && !td_blob_unchanged(d->source))
        return td_error_set(err, TD_UNAVAILABLE, "the file changed while it was read; it is being read again");
    return td_error_copy(err, own);
}

/* A job whose errors go through td_decoding_report. */
struct reported_job {
    const struct td_decoding *d;
    const struct td_decode_job *job;
};

/* Makes a part by the job. Damage in a file that has changed gets another error, so the cache does not keep it. */
static bool make_reported(void *context, struct td_decoded_part *part, size_t *kept_bytes, struct td_error *err)
{
    const struct reported_job *reported = context;
    struct td_error own = TD_ERROR_INIT;
    return reported->job->make(reported->job->context, part, kept_bytes, &own) ||
           td_decoding_report(reported->d, &own, err);
}

bool td_decoding_get(const struct td_decoding *d, uint64_t part, const struct td_decode_job *job,
                     struct td_decoded_part **out, struct td_error *err)
{
    struct reported_job reported = {.d = d, .job = job};
    struct td_decode_job whole = *job;
    whole.key = d->key;
    whole.key.part = part;
    whole.make = make_reported;
    whole.context = &reported;
    whole.cancel = d->cancel;
    return td_decode_cache_get(d->cache, &whole, out, err);
}
