/* The changes from one version of a family to another: which tensors of their first checkpoints differ; or with
 * format=patch the elements that differ (rank/patch/patch_file.h).
 *
 * Two tensors of one name with the same type and shape are the same if they have the same content key, since files that
 * are links to others need not be hashed, or the same SHA-256. So the sets of digests hold only tensors whose keys
 * differ. Both manifests are sorted by name, and each pass goes through them side by side. */
#include "api/call/checkpoint_choice.h"
#include "api/call/hash_wait.h"
#include "api/call/tensor_text.h"
#include "api/native/listing.h"
#include "api/native/parameters.h"
#include "api/native/ranks.h"
#include "api/native/routes.h"
#include "api/native/versions.h"
#include "catalog/names/family.h"
#include "core/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* One of the two versions. */
struct side {
    const struct td_version *version;
    const struct td_checkpoint *checkpoint;
    struct td_tensor_sums sums; /* of its tensors that have to be compared, or that rows show */
};

struct comparison {
    struct side since, now;
};

/* The tensors of one name; NULL: the side has none. */
struct pair {
    const struct td_tensor *since, *now;
};

/* A place in both sides: the next tensors, and the next items of the sets. */
struct walk {
    size_t since, now, since_sum, now_sum;
};

enum verdict { SAME, CHANGED, ADDED, REMOVED };

static const struct td_tensor *tensor_at(const struct side *side, size_t i)
{
    return i < side->checkpoint->tensor_count ? td_checkpoint_tensor(side->checkpoint, i).tensor : NULL;
}

/* Sets *pair to the tensors of the next name, and moves on behind them. Returns false at the end. */
static bool next_pair(const struct comparison *comparison, struct walk *walk, struct pair *pair)
{
    *pair = (struct pair){.since = tensor_at(&comparison->since, walk->since),
                          .now = tensor_at(&comparison->now, walk->now)};
    if (pair->since != NULL && pair->now != NULL) {
        int order = td_text_compare(td_tensor_name(pair->since), td_tensor_name(pair->now));
        pair->since = order > 0 ? NULL : pair->since;
        pair->now = order < 0 ? NULL : pair->now;
    }
    walk->since += pair->since != NULL ? 1 : 0;
    walk->now += pair->now != NULL ? 1 : 0;
    return pair->since != NULL || pair->now != NULL;
}

/* Returns whether both sides have the tensor, with one type and shape. */
static bool is_comparable(const struct pair *pair)
{
    return pair->since != NULL && pair->now != NULL && pair->since->dtype == pair->now->dtype &&
           pair->since->rank == pair->now->rank &&
           (pair->now->rank == 0 ||
            memcmp(pair->since->shape, pair->now->shape, pair->now->rank * sizeof *pair->now->shape) == 0);
}

/* Adds the tensors of a pair to the sets, unless their keys show that they are the same. */
static bool add_pair(struct comparison *comparison, const struct walk *walk, const struct pair *pair,
                     struct td_error *err)
{
    struct td_tensor_sums *now = &comparison->now.sums;
    struct td_tensor_sums *since = &comparison->since.sums;
    if (pair->now == NULL)
        return true;
    if (!td_tensor_sums_add(now, walk->now - 1, err))
        return false;
    if (!is_comparable(pair))
        return true;
    if (!td_tensor_sums_add(since, walk->since - 1, err))
        return false;
    if (td_tensor_sums_last_equal(since, now)) {
        td_tensor_sums_drop_last(since);
        td_tensor_sums_drop_last(now);
    }
    return true;
}

/* Fills the sets of both sides. Errors as td_tensor_sums_add. */
static bool collect(struct comparison *comparison, struct td_error *err)
{
    struct walk walk = {0};
    struct pair pair;
    bool ok = true;
    while (ok && next_pair(comparison, &walk, &pair))
        ok = add_pair(comparison, &walk, &pair, err);
    return ok;
}

/* Returns the item of the tensor before `end` if it is the next one of the set, and moves *at behind it; else NULL. */
static const struct td_tensor_sum *take_sum(const struct td_tensor_sums *sums, size_t end, size_t *at)
{
    if (*at == sums->count || sums->items[*at].place != end - 1)
        return NULL;
    return &sums->items[(*at)++];
}

/* Judges a pair, once all digests are known. Sets *sum to the digest of the newer tensor; NULL: it is not in the set.
 */
static enum verdict judge(const struct comparison *comparison, struct walk *walk, const struct pair *pair,
                          const struct td_tensor_sum **sum)
{
    *sum = NULL;
    if (pair->now == NULL)
        return REMOVED;
    *sum = take_sum(&comparison->now.sums, walk->now, &walk->now_sum);
    if (pair->since == NULL)
        return ADDED;
    if (!is_comparable(pair))
        return CHANGED;
    const struct td_tensor_sum *before = take_sum(&comparison->since.sums, walk->since, &walk->since_sum);
    if (*sum == NULL || before == NULL)
        return SAME;
    bool is_known = (*sum)->has_bytes && before->has_bytes; /* bytes that cannot be served may have changed */
    return is_known && memcmp((*sum)->sum, before->sum, sizeof before->sum) == 0 ? SAME : CHANGED;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static bool add_href(struct td_description *description, const struct side *side, const struct td_tensor *tensor)
{
    const struct td_shown_model shown = {.id = description->call->family->id, .version = side->version->name};
    struct td_buffer href;
    td_buffer_init(&href);
    (void)td_tensor_write_path(&href, TD_TENSOR_BYTES, &shown, side->version->model, side->checkpoint, tensor);
    bool ok = !href.failed || td_error_no_memory(&description->err);
    td_document_add_text(&description->json, "href", td_buffer_text(&href));
    td_buffer_fini(&href);
    return ok;
}

/* Adds a tensor of the newer version; sum NULL: without a digest. Returns false as td_description_room. */
static bool add_row(struct td_description *description, const struct side *side, const struct td_tensor *tensor,
                    const struct td_tensor_sum *sum)
{
    enum { SIZE_BYTES = 4 /* a sixth of the digits of a size, as td_description_room counts */ };
    struct td_document *json = &description->json;
    const struct td_tensor_facts facts = {.name = td_tensor_name(tensor),
                                          .dtype = tensor->dtype,
                                          .shape = tensor->shape,
                                          .rank = tensor->rank,
                                          .nbytes = tensor->nbytes};
    if (!td_description_room(description, 2 * (size_t)tensor->name_len + (size_t)tensor->rank * SIZE_BYTES +
                                              strlen(description->call->family->id) + strlen(side->version->name)))
        return false;
    td_document_begin_object(json, NULL);
    td_tensor_add_facts(json, &facts);
    if (sum != NULL && sum->has_bytes)
        td_tensor_add_sha256(json, sum->sum);
    if (!add_href(description, side, tensor))
        return false;
    td_document_end(json);
    return true;
}

/* Adds the list of the tensors with this verdict: rows, or for REMOVED names. */
static bool add_list(struct td_description *description, const struct comparison *comparison, enum verdict verdict,
                     const char *key)
{
    struct walk walk = {0};
    struct pair pair;
    const struct td_tensor_sum *sum;
    bool ok = true;
    td_document_begin_array(&description->json, key);
    while (ok && next_pair(comparison, &walk, &pair)) {
        if (judge(comparison, &walk, &pair, &sum) != verdict)
            continue;
        if (verdict != REMOVED) {
            assert(pair.now != NULL); /* else the verdict is REMOVED */
            ok = add_row(description, &comparison->now, pair.now, sum);
            continue;
        }
        assert(pair.since != NULL); /* a pair has one of both */
        ok = td_description_room(description, pair.since->name_len);
        if (ok)
            td_document_add_text(&description->json, NULL, td_tensor_name(pair.since));
    }
    td_document_end(&description->json);
    return ok;
}

/* Adds the numbers of tensors and bytes. */
static void add_sums(struct td_description *description, const struct comparison *comparison)
{
    struct walk walk = {0};
    struct pair pair;
    const struct td_tensor_sum *sum;
    uint64_t same = 0;
    uint64_t bytes[REMOVED + 1] = {0}; /* each is at most the total of a manifest, which fits */
    while (next_pair(comparison, &walk, &pair)) {
        enum verdict verdict = judge(comparison, &walk, &pair, &sum);
        same += verdict == SAME ? 1 : 0;
        bytes[verdict] += (pair.now != NULL ? pair.now : pair.since)->nbytes;
    }
    td_document_add_u64(&description->json, "same", same);
    td_document_add_u64(&description->json, "same_bytes", bytes[SAME]);
    td_document_add_u64(&description->json, "changed_bytes", bytes[CHANGED]);
}

static void answer(const struct td_call *call, const struct comparison *comparison)
{
    struct td_description description;
    const char *since = comparison->since.version->name;
    const char *version = comparison->now.version->name;
    td_description_begin(&description, call);
    bool ok = td_description_room(&description, strlen(call->family->id) + strlen(since) + strlen(version));
    if (ok) {
        td_document_add_string(&description.json, "model", call->family->id);
        td_document_add_string(&description.json, "since", since);
        td_document_add_string(&description.json, "version", version);
        ok = add_list(&description, comparison, CHANGED, "changed") &&
             add_list(&description, comparison, ADDED, "added") &&
             add_list(&description, comparison, REMOVED, "removed");
    }
    if (ok)
        add_sums(&description, comparison);
    td_description_finish(&description, ok);
}

/* ---- patches -------------------------------------------------------------------------------------------- */

/* The parameters that come with format=patch alone. */
static const char *const part_parameters[] = {"engine", "tp_size", "tp_rank", "plan", "manifest", "since_manifest"};

enum { PART_PARAMETERS = sizeof part_parameters / sizeof *part_parameters };

/* Reads format. Returns false after it answered 400, also for a parameter that needs format=patch. */
static bool read_format(const struct td_call *call, bool *is_patch)
{
    const struct td_text *format = td_uri_parameter(call->uri, "format");
    *is_patch = format != NULL;
    if (format != NULL && !td_text_equals(*format, "patch")) {
        td_response_fail(call->response, 400, NULL, "format must be patch, or be left out");
        return false;
    }
    for (size_t i = 0; format == NULL && i < PART_PARAMETERS; i++)
        if (td_uri_parameter(call->uri, part_parameters[i]) != NULL) {
            td_response_fail(call->response, 400, NULL, "%s is a parameter of format=patch", part_parameters[i]);
            return false;
        }
    return true;
}

/* Reads engine and tp_size. Returns false after it answered 400 or 404. */
static bool read_engine(const struct td_call *call, struct td_text engine, struct td_rank_name *name)
{
    uint64_t tp_size = 0;
    if (!td_rank_name_engine(engine, 0, name)) {
        td_native_fail_engine(call, engine);
        return false;
    }
    if (!td_call_read_number(call, "tp_size", TD_MAX_TP_SIZE, &tp_size))
        return false;
    if (tp_size == 0)
        td_response_fail(call->response, 400, NULL,
                         "engine needs tp_size, the number of ranks, from 1 to %d, and tp_rank", TD_MAX_TP_SIZE);
    name->tp_size = tp_size;
    return tp_size > 0;
}

/* Reads which part of both versions is compared: by default all tensors, which is the only rank of the engine "none".
 * Sets *plan to a registered plan, which the caller drops in every case, or to NULL. Returns false after it answered an
 * error. */
static bool read_part(const struct td_call *call, struct td_patch_order *order, struct td_stored_plan **plan)
{
    const struct td_text *engine = td_uri_parameter(call->uri, "engine");
    const struct td_text *id = td_uri_parameter(call->uri, "plan");
    struct td_rank_name *name = &order->version.name;
    bool has_size = td_uri_parameter(call->uri, "tp_size") != NULL;
    bool has_rank = td_uri_parameter(call->uri, "tp_rank") != NULL;
    *plan = NULL;
    if (engine != NULL && id != NULL) {
        td_response_fail(call->response, 400, NULL, "engine and plan exclude each other");
        return false;
    }
    if ((has_size && engine == NULL) || (has_rank && engine == NULL && id == NULL) || (engine != NULL && !has_rank)) {
        td_response_fail(call->response, 400, NULL,
                         "a rank's part is named by engine, tp_size and tp_rank, or by plan and tp_rank");
        return false;
    }
    if (!td_call_read_number(call, "tp_rank", TD_MAX_TP_SIZE - 1, &order->rank))
        return false;
    if (id == NULL &&
        !(engine != NULL ? read_engine(call, *engine, name) : td_rank_name_engine(TD_TEXT("none"), 1, name)))
        return false;
    if (id != NULL) {
        *plan = td_native_find_plan(call, *id);
        if (*plan == NULL)
            return false;
        name->id = *id;
        td_stored_plan_describe(*plan, &order->version);
    }
    if (name->is_boxes)
        td_response_fail(call->response, 400, NULL,
                         "a plan of boxes gives its parts no names; a plan with \"ranks\" does, by \"as\"");
    else if (order->rank >= name->tp_size)
        td_response_fail(call->response, 400, NULL, "tp_rank must be below the number of ranks, %" PRIu64,
                         name->tp_size);
    else
        return true;
    return false;
}

/* Checks that the checkpoint has the manifest that a parameter names. Returns false after it answered 412. */
static bool check_manifest(const struct td_call *call, const char *parameter, const struct side *side)
{
    const struct td_text *tag = td_uri_parameter(call->uri, parameter);
    char text[TD_SHA256_TEXT_BYTES] = "";
    struct td_call own = *call;
    own.model = side->version->model;
    if (tag != NULL && tag->len < sizeof text)
        memcpy(text, tag->p, tag->len);
    return td_native_check_manifest(&own, side->checkpoint, tag == NULL ? NULL : text);
}

/* Answers with a patch, and takes over the reference. */
static void send_patch(const struct td_call *call, const struct comparison *comparison, struct td_patch *patch)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    td_response_note_subject(response, td_text_of(comparison->now.version->model->id));
    if (td_body_append(&response->body, &patch->blob, 0, patch->blob.len_bytes, &err)) {
        td_response_describe_bytes(response, "application/octet-stream");
        td_response_set_etag(response, patch->tag);
    } else {
        td_response_fail_error(response, &err);
    }
    td_blob_unref(&patch->blob);
}

static bool is_over(void *context)
{
    return td_call_over(context);
}

/* Notes that both versions are read, so that they stay readable when their folders are removed (--keep-removed). */
static bool note_reads(const struct td_call *call, const struct comparison *comparison, struct td_error *err)
{
    const struct td_version *const versions[] = {comparison->since.version, comparison->now.version};
    bool ok = true;
    for (size_t i = 0; ok && call->response->asks_body && i < 2; i++)
        ok = td_removed_note_read(td_catalog_removed(call->api->catalog), call->snapshot,
                                  td_text_of(versions[i]->model->id), err);
    return ok;
}

/* Has the patch of the order made, and answers with it; with 503 while it is being made. */
static void answer_order(const struct td_call *call, const struct comparison *comparison,
                         const struct td_patch_order *order, struct td_stored_plan *plan)
{
    const struct td_cancel over = {.is_asked = is_over, .context = (void *)(uintptr_t)call};
    const uint64_t began_ns = td_clock_ns();
    struct td_error err = TD_ERROR_INIT;
    struct td_patch *patch = NULL;
    uint64_t left_bytes;
    uint64_t done_bytes;
    if (!note_reads(call, comparison, &err)) {
        td_response_fail_error(call->response, &err);
        return;
    }
    switch (td_patch_store_get(call->api->patches, order, plan, td_call_client(call), began_ns + TD_HASH_WAIT_NS, &over,
                               &patch, &left_bytes, &done_bytes, &err)) {
    case TD_PATCH_READY:
        send_patch(call, comparison, patch);
        break;
    case TD_PATCH_UNDER_WAY:
        td_response_fail(call->response, 503, NULL,
                         "the patch is being made, and %.2f GB are still to be compared; try again",
                         (double)left_bytes / 1e9);
        td_response_set_retry_after(call->response,
                                    td_hash_retry_s((double)left_bytes, done_bytes, td_clock_ns() - began_ns));
        break;
    case TD_PATCH_FAILED:
        td_response_fail_error(call->response, &err);
    }
}

/* Answers with the elements that differ between both sides. call->model is that of the newer version. */
static void answer_patch(const struct td_call *call, const struct comparison *comparison)
{
    const struct side *since = &comparison->since;
    const struct side *now = &comparison->now;
    struct td_stored_plan *plan;
    struct td_patch_order order = {
        .since_name = since->version->name,
        .version_name = now->version->name,
        .version = {.snapshot = call->snapshot, .model = now->version->model, .checkpoint = now->checkpoint}};
    const bool ok = read_part(call, &order, &plan);
    order.since = order.version;
    order.since.model = since->version->model;
    order.since.checkpoint = since->checkpoint;
    if (ok && check_manifest(call, "since_manifest", since) && check_manifest(call, "manifest", now) &&
        (plan == NULL || td_native_check_manifest(call, now->checkpoint, td_stored_plan_manifest(plan))))
        answer_order(call, comparison, &order, plan);
    td_stored_plan_unref(plan);
}

/* ---- the request --------------------------------------------------------------------------------------- */

/* Finds the version that the text stands for, and its first checkpoint. Returns false after it answered an error. */
static bool open_side(const struct td_call *call, struct td_text text, struct side *side)
{
    struct td_call own = *call;
    if (!td_versions_choose(call, text, &side->version))
        return false;
    own.model = side->version->model;
    if (own.model->is_delta) {
        td_call_refuse_delta(&own);
        return false;
    }
    side->checkpoint = td_checkpoint_parameter(&own);
    return side->checkpoint != NULL;
}

/* Answers which tensors differ. */
static void answer_changes(const struct td_call *call, struct comparison *comparison)
{
    struct td_tensor_sums *const sets[] = {&comparison->since.sums, &comparison->now.sums};
    struct td_error err = TD_ERROR_INIT;
    td_digests_init(call, sets[0], comparison->since.version->model, comparison->since.checkpoint, NULL);
    td_digests_init(call, sets[1], comparison->now.version->model, comparison->now.checkpoint, NULL);
    if (!collect(comparison, &err))
        td_response_fail_error(call->response, &err);
    else if (td_digests_wait(call, sets, 2))
        answer(call, comparison);
    td_tensor_sums_fini(sets[0]);
    td_tensor_sums_fini(sets[1]);
}

/* Answers changes?since=&version=. */
void td_handle_changes(const struct td_call *call)
{
    static const char *const known[] = {"since",   "version", "format",   "engine",         "tp_size",
                                        "tp_rank", "plan",    "manifest", "since_manifest", NULL};
    struct td_call own = *call;
    bool is_patch;
    struct comparison comparison = {0};
    const struct td_text *since = td_uri_parameter(call->uri, "since");
    const struct td_text *version = td_uri_parameter(call->uri, "version");
    if (!td_call_check_parameters(call, known) || !read_format(call, &is_patch))
        return;
    if (since == NULL) {
        td_response_fail(call->response, 400, NULL,
                         "since is missing: the version to compare with, as in "
                         "changes?since=step-1");
        return;
    }
    if (own.family == NULL)
        own.family = td_family_find(call->snapshot, td_text_of(call->model->id));
    if (own.family == NULL) {
        td_response_fail(call->response, 404, "{\"known\": []}", "model \"%.400s\" has no versions", call->model->id);
        return;
    }
    if (!open_side(&own, *since, &comparison.since) ||
        !open_side(&own, version == NULL ? TD_TEXT(TD_VERSION_LATEST) : *version, &comparison.now))
        return;
    own.model = comparison.now.version->model;
    if (is_patch)
        answer_patch(&own, &comparison);
    else
        answer_changes(&own, &comparison);
}
