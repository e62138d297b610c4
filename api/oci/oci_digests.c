#include "api/oci/oci_digests.h"

#include "api/call/hash_wait.h"
#include "core/clock.h"
#include "core/digits.h"
#include "rank/file_answer.h"

/* ---- waiting ------------------------------------------------------------------------------------------- */

static bool is_over(void *context)
{
    const struct td_oci_call *oci = context;
    return td_call_over(oci->call);
}

/* Returns the check that ends a wait for a digest when the call is over (td_call_over). Borrows the call. */
static struct td_cancel over_of(struct td_oci_call *oci)
{
    return (struct td_cancel){.is_asked = is_over, .context = oci};
}

/* Sets oci->lack and the error for a server that does not hash: `unknown` digests are missing. `noun` names in the
 * singular what they are digests of. The error says what to change. Returns false. */
static bool refuse_for_good(struct td_oci_call *oci, size_t unknown, const char *noun, struct td_error *err)
{
    oci->lack = TD_OCI_HASHES_NOTHING;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "the SHA-256 of %zu %s%s is not known, and this server hashes nothing: start it with "
                        "--hash-threads 1 or more",
                        unknown, noun, td_plural(unknown));
}

/* ---- files on disk ------------------------------------------------------------------------------------- */

/* Returns whether the file's digest is known, or becomes so in time. */
static bool know_file(struct td_oci_call *oci, struct td_file *file)
{
    const struct td_call *call = oci->call;
    const struct td_cancel over = over_of(oci);
    const struct td_digest_wait how = {.until_ns = oci->until_ns, .cancel = &over, .takes_any = true};
    return td_file_sha256(file) != NULL ||
           (oci->until_ns > 0 && td_catalog_wait_digest(call->api->catalog, call->snapshot, file, &how));
}

/* Sets the error for files whose digests are not known. began_ns: when the request began to wait, and `before` the
 * hasher's state then. */
static bool refuse_files(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count,
                         uint64_t began_ns, const struct td_hasher_status *before, struct td_error *err)
{
    struct td_catalog_status status;
    size_t known = 0;
    double known_bytes = 0;
    double bytes = 0;
    td_catalog_get_status(oci->call->api->catalog, &status);
    for (size_t i = 0; i < count; i++) {
        double size = (double)entries[i]->file->source.id.size_bytes;
        bool is_known = td_file_sha256(entries[i]->file) != NULL;
        known += is_known ? 1 : 0;
        known_bytes += is_known ? size : 0;
        bytes += size;
    }
    if (!status.hasher.enabled)
        return refuse_for_good(oci, count - known, "file", err);
    oci->lack = TD_OCI_IS_HASHING;
    oci->retry_s = td_hash_retry_s(bytes - known_bytes, status.hasher.hashed_bytes - before->hashed_bytes,
                                   td_clock_ns() - began_ns);
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "the SHA-256 of %zu of %zu files (%.2f of %.2f GB) is known so far, and the others are being "
                        "hashed; try again",
                        known, count, known_bytes / 1e9, bytes / 1e9);
}

/* Returns the number of the first file whose digest is not known; count if all are known. */
static size_t first_unknown(const struct td_entry *const *entries, size_t count)
{
    size_t i = 0;
    while (i < count && td_file_sha256(entries[i]->file) != NULL)
        i++;
    return i;
}

bool td_oci_know_digests(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count,
                         struct td_error *err)
{
    struct td_catalog_status status;
    for (size_t i = 0; i < count; i++)
        if (entries[i]->file->is_lfs_pointer)
            return td_lfs_pointer_refuse(entries[i], err);
    size_t first = first_unknown(entries, count);
    if (first == count)
        return true;
    const uint64_t began_ns = td_clock_ns();
    td_catalog_get_status(oci->call->api->catalog, &status);
    for (size_t i = first; i < count; i++)
        if (!know_file(oci, entries[i]->file))
            return refuse_files(oci, entries, count, began_ns, &status.hasher, err);
    return true;
}

/* ---- virtual files ------------------------------------------------------------------------------------- */

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
    const struct td_cancel over = over_of(oci);
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
        case TD_VIRTUAL_UNKNOWN: /* the table dropped the result because many others were hashed since */
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
        td_hash_retry_s(sums.bytes - sums.done_bytes, now.hashed_bytes - began->hashed_bytes, now.at_ns - began->at_ns);
    return sums;
}

/* Sets the error for digests that are not known. */
static bool refuse_layers(struct td_oci_call *oci, const struct td_oci_virtual *files, size_t count,
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
        return refuse_for_good(oci, count_unknown(files, count), "layer", err);
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
    return td_oci_look_up(oci, files, count) || refuse_layers(oci, files, count, &began, err);
}
