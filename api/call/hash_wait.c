#include "api/call/hash_wait.h"

#include "core/clock.h"
#include "core/waiting.h"

unsigned td_hash_retry_s(double left_bytes, uint64_t hashed_bytes, uint64_t took_ns)
{
    const double assumed = 1e9; /* bytes/s */
    double took_s = (double)took_ns / 1e9;
    double rate = took_s < 0.1 || hashed_bytes == 0 ? assumed : (double)hashed_bytes / took_s;
    double left_s = left_bytes / rate;
    if (left_s >= TD_HASH_RETRY_MOST_S)
        return TD_HASH_RETRY_MOST_S;
    unsigned whole_s = (unsigned)left_s;
    whole_s += (double)whole_s < left_s ? 1 : 0;
    return whole_s < TD_HASH_RETRY_LEAST_S ? TD_HASH_RETRY_LEAST_S : whole_s;
}

bool td_digests_parameter(const struct td_call *call, bool *is_wanted)
{
    const struct td_text *value = td_uri_parameter(call->uri, "digests");
    *is_wanted = value != NULL;
    if (value == NULL || td_text_equals(*value, "1"))
        return true;
    td_response_fail(call->response, 400, NULL, "digests must be 1, or be left out");
    return false;
}

void td_digests_init(const struct td_call *call, struct td_tensor_sums *sums, const struct td_model *model,
                     const struct td_checkpoint *checkpoint, struct td_rank_file *file)
{
    const struct td_tensor_sums_source source = {.catalog = call->api->catalog,
                                                 .snapshot = call->snapshot,
                                                 .model = model,
                                                 .checkpoint = checkpoint,
                                                 .file = file};
    td_tensor_sums_init(sums, &source, td_shared_budget_of(&call->api->lists, call->request->client));
}

static bool is_over(void *context)
{
    return td_call_over(context);
}

/* Hashes the tensors of a set, and waits until until_ns. Errors: of queueing and of hashing. */
static bool hash_set(const struct td_call *call, struct td_tensor_sums *sums, uint64_t until_ns, struct td_error *err)
{
    struct td_virtual_hasher *hasher = call->api->virtual_hasher;
    const struct td_cancel over = {.is_asked = is_over, .context = (void *)(uintptr_t)call};
    struct td_virtual_progress progress;
    struct td_virtual_digest unused;
    struct td_virtual_key key;
    if (td_tensor_sums_find(sums, td_virtual_hasher_digests(hasher)))
        return true;
    if (!td_tensor_sums_key(sums, &key, err) ||
        !td_tensor_sums_begin(sums, &key, hasher, &call->api->ranks.live, td_call_client(call), err) ||
        td_virtual_hasher_wait(hasher, &key, until_ns, &over, &unused, &progress, err) == TD_VIRTUAL_FAILED)
        return false;
    (void)td_tensor_sums_find(sums, td_virtual_hasher_digests(hasher));
    return true;
}

/* How much of some sets is hashed. */
struct extent_of_work {
    size_t known, count;
    double left_bytes;
};

static struct extent_of_work sum_up(struct td_tensor_sums *const *sets, size_t count)
{
    struct extent_of_work work = {0};
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sets[i]->count; k++) {
            const struct td_tensor_sum *item = &sets[i]->items[k];
            work.count += item->has_bytes ? 1 : 0;
            work.known += item->is_known ? 1 : 0;
            work.left_bytes += item->has_bytes && !item->is_known ? (double)item->nbytes : 0;
        }
    return work;
}

/* Answers 503 with the time after which hashing may be done. began_ns, hashed_bytes: when the request began to wait,
 * and how much was hashed then. */
static void fail_unready(const struct td_call *call, struct td_tensor_sums *const *sets, size_t count,
                         uint64_t began_ns, uint64_t hashed_bytes)
{
    const struct extent_of_work work = sum_up(sets, count);
    const uint64_t now_bytes = td_virtual_hasher_hashed_bytes(call->api->virtual_hasher);
    td_response_fail(call->response, 503, NULL,
                     "the SHA-256 of %zu of %zu tensors is known so far, and the others (%.2f GB) are being hashed; "
                     "try again",
                     work.known, work.count, work.left_bytes / 1e9);
    td_response_set_retry_after(call->response,
                                td_hash_retry_s(work.left_bytes, now_bytes - hashed_bytes, td_clock_ns() - began_ns));
}

bool td_digests_wait(const struct td_call *call, struct td_tensor_sums *const *sets, size_t count)
{
    struct td_virtual_hasher *hasher = call->api->virtual_hasher;
    const uint64_t began_ns = td_clock_ns();
    const uint64_t hashed_bytes = td_virtual_hasher_hashed_bytes(hasher);
    struct td_catalog_status status;
    struct td_error err = TD_ERROR_INIT;
    bool is_ready = true;
    for (size_t i = 0; i < count; i++)
        is_ready = td_tensor_sums_find(sets[i], td_virtual_hasher_digests(hasher)) && is_ready;
    if (is_ready)
        return true;
    td_catalog_get_status(call->api->catalog, &status);
    if (!status.hasher.enabled) {
        td_response_fail(call->response, 422, NULL,
                         "digests are not known, and this server hashes nothing: start it with --hash-threads 1 or "
                         "more");
        return false;
    }
    bool ok = td_may_wait(&err);
    for (size_t i = 0; ok && i < count; i++)
        ok = hash_set(call, sets[i], began_ns + TD_HASH_WAIT_NS, &err);
    if (!ok) {
        td_response_fail_error(call->response, &err);
        if (err.code == TD_RESOURCE_EXHAUSTED) /* the queue is full */
            td_response_set_retry_after(call->response, td_hash_retry_s(sum_up(sets, count).left_bytes, 0, 0));
        return false;
    }
    is_ready = sum_up(sets, count).known == sum_up(sets, count).count;
    if (!is_ready)
        fail_unready(call, sets, count, began_ns, hashed_bytes);
    return is_ready;
}
