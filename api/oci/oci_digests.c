#include "api/oci/oci_digests.h"

#include "api/oci/oci_retry.h"
#include "core/clock.h"
#include "rank/file_answer.h"

/* Returns whether the file's digest is known, or becomes so in time. */
static bool know(struct td_oci_call *oci, struct td_file *file)
{
    const struct td_call *call = oci->call;
    const struct td_cancel over = td_oci_over(oci);
    const struct td_digest_wait how = {.until_ns = oci->until_ns, .cancel = &over, .takes_any = true};
    return td_file_sha256(file) != NULL ||
           (oci->until_ns > 0 && td_catalog_wait_digest(call->api->catalog, call->snapshot, file, &how));
}

/* Sets the error for files whose digests are not known. began_ns: when the request began to wait, and `before` the
 * hasher's state then. */
static bool refuse(struct td_oci_call *oci, const struct td_entry *const *entries, size_t count, uint64_t began_ns,
                   const struct td_hasher_status *before, struct td_error *err)
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
        return td_oci_refuse_for_good(oci, count - known, "file", err);
    oci->lack = TD_OCI_IS_HASHING;
    oci->retry_s = td_oci_retry_s(bytes - known_bytes, status.hasher.hashed_bytes - before->hashed_bytes,
                                  td_clock_ns() - began_ns);
    return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                        "the SHA-256 of %zu of %zu files (%.2f of %.2f GB) is known so far, and the others are being "
                        "hashed; try again",
                        known, count, known_bytes / 1e9, bytes / 1e9);
}

/* Returns the number of the first file whose digest is not known; count when there is none. */
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
        if (!know(oci, entries[i]->file))
            return refuse(oci, entries, count, began_ns, &status.hasher, err);
    return true;
}
