#include "api/oci/oci_hashing.h"

#include "api/oci/oci_retry.h"
#include "core/clock.h"

bool td_oci_look_up(const struct td_oci_call *oci, struct td_oci_virtual *files, size_t count)
{
    struct td_virtual_digests *digests = td_virtual_hasher_digests(oci->call->api->virtual_hasher);
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        files[i].is_known = files[i].is_known || td_virtual_digests_find(digests, &files[i].key, &files[i].digest);
        all = all && files[i].is_known;
    }
    return all;
}

bool td_oci_keep_virtual(struct td_made_documents *made, const struct td_oci_virtual *files, size_t count,
                         struct td_error *err)
{
    if (!td_made_documents_reserve_virtual(made, count, err))
        return false;
    for (size_t i = 0; i < count; i++)
        made->virtual_files[i] = (struct td_made_virtual){.key = files[i].key, .digest = files[i].digest};
    return true;
}

/* Waits for the digests in their order. Errors: of a file whose hashing failed. */
static bool wait_all(struct td_oci_call *oci, struct td_oci_virtual *files, size_t count, struct td_error *err)
{
    const struct td_cancel over = td_oci_over(oci);
    struct td_virtual_progress progress;
    for (size_t i = 0; i < count; i++) {
        if (files[i].is_known)
            continue;
        switch (td_virtual_hasher_wait(oci->call->api->virtual_hasher, &files[i].key, oci->until_ns, &over,
                                       &files[i].digest, &progress, err)) {
        case TD_VIRTUAL_KNOWN:
            files[i].is_known = true;
            break;
        case TD_VIRTUAL_UNDER_WAY:
            return true; /* the time is over */
        case TD_VIRTUAL_FAILED:
            return false;
        case TD_VIRTUAL_UNKNOWN: /* so many others were hashed meanwhile that its end is forgotten */
            return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                                "the digest of a layer was forgotten while others were hashed; try again");
        }
    }
    return true;
}

/* The state of hashing when a request began to wait. */
struct beginning {
    uint64_t at_ns, hashed_bytes;
};

static struct beginning begin_waiting(const struct td_oci_call *oci)
{
    return (struct beginning){.at_ns = td_clock_ns(),
                              .hashed_bytes = td_virtual_hasher_hashed_bytes(oci->call->api->virtual_hasher)};
}

/* The progress of hashing some files. */
struct sums {
    size_t known;
    double done_bytes, bytes;
};

/* Sums up how far hashing is, and sets oci->retry_s to the time that the rest takes. */
static struct sums sum_up(struct td_oci_call *oci, const struct td_oci_virtual *files, size_t count,
                          const struct beginning *began)
{
    const struct beginning now = begin_waiting(oci);
    struct sums sums = {0};
    struct td_virtual_progress progress;
    struct td_virtual_digest digest;
    for (size_t i = 0; i < count; i++) {
        sums.known += files[i].is_known ? 1 : 0;
        if (files[i].is_known) {
            sums.done_bytes += (double)files[i].digest.size_bytes;
            sums.bytes += (double)files[i].digest.size_bytes;
            continue;
        }
        (void)td_virtual_hasher_wait(oci->call->api->virtual_hasher, &files[i].key, 0, NULL, &digest, &progress, NULL);
        sums.done_bytes += (double)progress.done_bytes;
        sums.bytes += (double)(files[i].size_bytes > 0 ? files[i].size_bytes : progress.total_bytes);
    }
    oci->retry_s =
        td_oci_retry_s(sums.bytes - sums.done_bytes, now.hashed_bytes - began->hashed_bytes, now.at_ns - began->at_ns);
    return sums;
}

/* Sets the error for digests that are not known. */
static bool refuse(struct td_oci_call *oci, const struct td_oci_virtual *files, size_t count,
                   const struct beginning *began, struct td_error *err)
{
    const struct sums sums = sum_up(oci, files, count, began);
    oci->lack = TD_OCI_IS_HASHING;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "%zu of %zu layers (%.2f of %.2f GB) have been put together and hashed so far; try again",
                        sums.known, count, sums.done_bytes / 1e9, sums.bytes / 1e9);
}

/* Returns how many of the digests are not known. */
static size_t count_unknown(const struct td_oci_virtual *files, size_t count)
{
    size_t unknown = 0;
    for (size_t i = 0; i < count; i++)
        unknown += files[i].is_known ? 0 : 1;
    return unknown;
}

/* Has the hasher begin with all these files, and waits for them. */
static bool hash_all(struct td_oci_call *oci, struct td_oci_virtual *files, size_t first, size_t count,
                     bool (*begin)(void *context, size_t i, struct td_error *err), void *context, struct td_error *err)
{
    for (size_t i = first; i < first + count; i++)
        if (!files[i].is_known && !begin(context, i, err))
            return false;
    return wait_all(oci, files + first, count, err);
}

bool td_oci_know_virtual(struct td_oci_call *oci, struct td_oci_virtual *files, size_t count, size_t at_once,
                         bool (*begin)(void *context, size_t i, struct td_error *err), void *context,
                         struct td_error *err)
{
    struct td_catalog_status status;
    const struct beginning began = begin_waiting(oci);
    oci->lack = TD_OCI_LACKS_NOTHING;
    if (td_oci_look_up(oci, files, count))
        return true;
    td_catalog_get_status(oci->call->api->catalog, &status);
    if (!status.hasher.enabled)
        return td_oci_refuse_for_good(oci, count_unknown(files, count), "layer", err);
    for (size_t first = 0; oci->until_ns > 0 && first < count; first += at_once) {
        size_t left = count - first;
        size_t some = left < at_once ? left : at_once;
        if (!hash_all(oci, files, first, some, begin, context, err)) {
            if (err->code == TD_RESOURCE_EXHAUSTED) /* the queue is full */
                (void)sum_up(oci, files, count, &began);
            return false;
        }
        if (!td_oci_look_up(oci, files + first, some))
            break; /* the time is over */
    }
    return td_oci_look_up(oci, files, count) || refuse(oci, files, count, &began, err);
}
