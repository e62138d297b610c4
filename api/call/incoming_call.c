#include "api/call/incoming_call.h"

#include "api/call/cross_site.h"
#include "catalog/names/family.h"
#include "core/clock.h"

#include <inttypes.h>
#include <string.h>

/* Returns the value of the field by which servers that pull from each other find loops; empty without one. */
static struct td_text via_of(const struct td_request *request)
{
    size_t at = 0;
    const struct td_header *via = td_request_next_header(request, TD_UPSTREAM_VIA, &at);
    return via == NULL ? TD_TEXT("") : via->value;
}

/* Returns whether the call may ask the upstream. It may not before the first scan has ended, because the scan may still
 * find the model on this server. */
static bool can_ask(const struct td_call *call)
{
    return call->api->upstream != NULL && call->stage != TD_CATALOG_STARTING;
}

static struct td_upstream_asker asker_of(const struct td_call *call)
{
    return (struct td_upstream_asker){.client = td_call_client(call), .via = via_of(call->request)};
}

static bool may_see(const struct td_call *call, struct td_text id)
{
    const struct td_token *token = call->caller.token;
    return call->caller.kind != TD_CALLER_NOBODY &&
           (token == NULL || token->models == NULL || td_token_may_see(token, id));
}

/* Returns whether the caller may see what both texts together name. */
static bool may_see_below(const struct td_call *call, struct td_text shown, struct td_text rest)
{
    struct td_buffer path;
    td_buffer_init(&path);
    td_buffer_append(&path, shown.p, shown.len);
    td_buffer_append(&path, rest.p, rest.len);
    bool may = !path.failed && may_see(call, td_buffer_text(&path));
    td_buffer_fini(&path);
    return may;
}

/* Returns whether the caller may see every directory of a model on its way as if it were a model: a directory may turn
 * out to be a model when the fetched model is published, and the names of its files need not show that earlier. `id` is
 * kept, and `shown` is what takes its place when rights are checked. */
static bool may_see_all(const struct td_call *call, const struct td_snapshot *snapshot, struct td_text id,
                        struct td_text shown)
{
    struct td_text seen = TD_TEXT(""); /* the directory of the file before */
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        struct td_text path = td_text_of(snapshot->entries[i].path);
        for (size_t n = id.len + 1; n < path.len; n++) {
            struct td_text directory = td_text_n(path.p, n);
            bool was_seen = n <= seen.len && memcmp(seen.p, path.p, n) == 0 && (n == seen.len || seen.p[n] == '/');
            if (path.p[n] != '/' || was_seen)
                continue;
            if (!may_see_below(call, shown, td_text_skip(directory, id.len)))
                return false;
            seen = directory;
        }
    }
    return true;
}

void td_incoming_call_fail_ask(const struct td_call *call, const struct td_upstream_reply *reply)
{
    int status = reply->answer == TD_UPSTREAM_IS_TAKEN      ? 409
                 : reply->answer == TD_UPSTREAM_HAS_NO_ROOM ? 507
                 : reply->answer == TD_UPSTREAM_IS_TOO_MUCH ? 429
                                                            : 503;
    td_response_fail(call->response, status, NULL, "%s", reply->why);
    if (status == 429 || status == 503)
        td_response_set_retry_after(call->response, reply->retry_after_s);
    else if (status == 507 && reply->retry_after_s > 0)
        td_response_add_header(call->response, "Retry-After", "%u", reply->retry_after_s);
}

bool td_incoming_call_waits(const struct td_call *call, struct td_text id)
{
    struct td_upstream_progress progress;
    struct td_kept_model kept;
    uint64_t until_ns = call->request->since_ns + TD_INCOMING_WAIT_NS;
    bool is_underway = td_upstream_get_progress(call->api->upstream, id, &progress);
    bool is_nearly_here =
        is_underway ? progress.left_ns <= TD_INCOMING_WAIT_NS : td_upstream_find(call->api->upstream, id, &kept);
    if (!is_nearly_here || call->request->since_ns == 0 || td_clock_ns() >= until_ns || td_call_over(call))
        return false;
    call->response->wait_until_ns = until_ns;
    return true;
}

void td_incoming_call_fail(const struct td_call *call, struct td_text id, const char *advice)
{
    struct td_upstream_progress progress;
    struct td_kept_model kept;
    bool is_underway = td_upstream_get_progress(call->api->upstream, id, &progress);
    if (is_underway && progress.is_listed)
        td_response_fail(call->response, 503, NULL,
                         "model \"%.*s\" is being fetched from the upstream: %" PRIu64 " of %" PRIu64
                         " bytes are here; %s",
                         TD_SHOW(id, 200), progress.arrived_bytes, progress.total_bytes, advice);
    else if (!is_underway && td_upstream_find(call->api->upstream, id, &kept))
        td_response_fail(call->response, 503, NULL,
                         "model \"%.*s\" has been fetched from the upstream and is about to be published",
                         TD_SHOW(id, 200));
    else /* it failed a moment ago, and may have started again */
        td_response_fail(call->response, 503, NULL,
                         "model \"%.*s\" could not be fetched from the upstream to its end; try again",
                         TD_SHOW(id, 200));
}

/* Continues in the snapshot of a model on its way. */
static enum td_incoming_look take_incoming(const struct td_call *call, struct td_text id, struct td_text shown,
                                           struct td_snapshot **snapshot)
{
    if (may_see_all(call, *snapshot, id, shown))
        return TD_INCOMING_AGAIN;
    td_snapshot_unref(*snapshot);
    *snapshot = NULL;
    td_incoming_call_fail(call, id, "a token that may not see all of its directories reads it when it is complete");
    return TD_INCOMING_ANSWERED;
}

/* Continues in a newer snapshot of the served directory. */
static enum td_incoming_look take_newer(const struct td_call *call, struct td_snapshot **snapshot)
{
    struct td_error err = TD_ERROR_INIT;
    *snapshot = td_call_acquire(call, &err);
    if (*snapshot != NULL)
        return TD_INCOMING_AGAIN;
    td_response_fail_error(call->response, &err);
    return TD_INCOMING_ANSWERED;
}

/* Returns whether the request may begin a fetch, which fills the disk and evicts other models. A page of another site
 * may only if it may read the answer (--cors-origin), or if a person followed its link; else answers 403. */
static bool may_begin(const struct td_call *call)
{
    const struct td_header *person = td_request_single_header(call->request, "Sec-Fetch-User");
    if (call->response->allow_origin != NULL || (person != NULL && td_text_equals(person->value, "?1")) ||
        !td_cross_site_is(call->request))
        return true;
    td_cross_site_refuse(call->request, call->response);
    return false;
}

/* Asks for a model or a version by its kept id. `shown` is the id by which rights are checked. */
static enum td_incoming_look look_for(const struct td_call *call, struct td_text id, struct td_text shown,
                                      struct td_snapshot **snapshot)
{
    struct td_upstream_reply reply;
    if (!can_ask(call) || !may_see(call, shown))
        return TD_INCOMING_NONE;
    if (!td_incoming_call_knows(call, id) && !may_begin(call))
        return TD_INCOMING_ANSWERED;
    const struct td_upstream_asker asker = asker_of(call);
    td_upstream_ask(call->api->upstream, &asker, id, &reply);
    switch (reply.answer) {
    case TD_UPSTREAM_HAS_NOT:
        return TD_INCOMING_NONE;
    case TD_UPSTREAM_SENDS:
        *snapshot = reply.snapshot;
        return take_incoming(call, id, shown, snapshot);
    case TD_UPSTREAM_SENT:
        return take_newer(call, snapshot);
    default:
        td_incoming_call_fail_ask(call, &reply);
        return TD_INCOMING_ANSWERED;
    }
}

enum td_incoming_look td_incoming_call_look(const struct td_call *call, struct td_text id,
                                            struct td_snapshot **snapshot)
{
    return td_kept_id_is_valid(id) ? look_for(call, id, id, snapshot) : TD_INCOMING_NONE;
}

/* ---- versions ------------------------------------------------------------------------------------------ */

/* A call, and a family of versions: context for may_see_version. */
struct seen_by {
    const struct td_call *call;
    const struct td_family *family;
};

/* Returns whether the caller may see a version that is a folder, FAMILY/VERSION. */
static bool may_see_version(const void *context, const struct td_version *version)
{
    const struct seen_by *by = context;
    struct td_buffer rest;
    td_buffer_init(&rest);
    td_buffer_printf(&rest, "/%s", version->name);
    bool may = !rest.failed && may_see_below(by->call, td_text_of(by->family->id), td_buffer_text(&rest));
    td_buffer_fini(&rest);
    return may;
}

/* Sets *family to what the caller may see of it, and drops its own reference. Returns false when that is nothing. */
static bool show_family(const struct td_call *call, struct td_remote_family **family)
{
    const struct td_token *token = call->caller.token;
    struct td_remote_family *all = *family;
    const struct seen_by by = {.call = call, .family = &all->family};
    struct td_error err = TD_ERROR_INIT;
    bool sees_id = may_see(call, td_text_of(all->family.id));
    if (token == NULL || token->models == NULL || (all->family.is_cache && sees_id))
        return true;
    *family = NULL;
    bool ok = !all->family.is_cache && td_remote_family_filter(all, may_see_version, &by, family, &err);
    td_remote_family_unref(all);
    if (ok && ((*family)->family.count > 0 || sees_id))
        return true;
    td_remote_family_unref(*family);
    *family = NULL;
    return false;
}

bool td_incoming_call_list_versions(struct td_call *call, struct td_text id, struct td_upstream_reply *reply)
{
    const struct td_model *here = call->snapshot == NULL ? NULL : td_snapshot_find_model(call->snapshot, id);
    *reply = (struct td_upstream_reply){.answer = TD_UPSTREAM_HAS_NOT};
    if (!can_ask(call) || call->caller.kind == TD_CALLER_NOBODY || call->remote_family != NULL ||
        (here != NULL && !td_incoming_call_knows(call, id)))
        return call->remote_family != NULL;
    const struct td_upstream_asker asker = asker_of(call);
    struct td_remote_family *family = NULL;
    if (td_upstream_find_family(call->api->upstream, &asker, id, &family, reply) != TD_UPSTREAM_SENT)
        return false;
    if (!show_family(call, &family)) {
        reply->answer = TD_UPSTREAM_HAS_NOT;
        return false;
    }
    call->remote_family = family;
    return true;
}

/* Returns whether the version is in the call's snapshot. */
static bool is_here(const struct td_call *call, const struct td_family *family, const char *name)
{
    const struct td_family *here = td_family_find(call->snapshot, td_text_of(family->id));
    const struct td_version *found = NULL;
    return here != NULL && td_family_find_version(here, td_text_of(name), &found) == TD_VERSION_FOUND &&
           strcmp(found->name, name) == 0;
}

/* Writes the id under which the version is kept. A subfolder of NAME is a model of its own, NAME/VERSION, at the
 * upstream and here, unless NAME is a model here, or the scan does not know the name for that of a version. */
static bool write_kept_id(const struct td_call *call, const struct td_family *family, const char *name,
                          char out[TD_UPSTREAM_ID_BYTES])
{
    const struct td_text id = td_text_of(family->id);
    const struct td_version_prefixes *prefixes = td_families_of(call->snapshot)->prefixes;
    bool is_model = memchr(id.p, '/', id.len) == NULL && td_snapshot_find_model(call->snapshot, id) == NULL &&
                    !td_incoming_call_knows(call, id) && td_version_name_parse(td_text_of(name), prefixes, NULL);
    const char *mark = family->is_cache ? TD_KEPT_REVISION : is_model ? TD_KEPT_MODEL : TD_KEPT_SUBFOLDER;
    return td_kept_id_write(id, mark, td_text_of(name), out);
}

enum td_incoming_look td_incoming_call_look_version(const struct td_call *call, const struct td_version *version,
                                                    struct td_snapshot **snapshot)
{
    const struct td_family *family = &call->remote_family->family;
    char kept[TD_UPSTREAM_ID_BYTES];
    struct td_buffer shown;
    if (is_here(call, family, version->name) || !write_kept_id(call, family, version->name, kept))
        return TD_INCOMING_NONE;
    td_buffer_init(&shown);
    td_buffer_puts(&shown, family->id);
    if (!family->is_cache)
        td_buffer_printf(&shown, "/%s", version->name);
    enum td_incoming_look look =
        shown.failed ? TD_INCOMING_NONE : look_for(call, td_text_of(kept), td_buffer_text(&shown), snapshot);
    td_buffer_fini(&shown);
    return look;
}

/* ---- models on this server ----------------------------------------------------------------------------- */

struct td_text td_incoming_call_id(struct td_text path)
{
    struct td_text rest = path;
    struct td_text first = td_text_take_until(&rest, '/');
    struct td_text second = td_text_take_until(&rest, '/');
    return td_text_n(path.p, second.len == 0 ? first.len : first.len + 1 + second.len);
}

bool td_incoming_call_knows(const struct td_call *call, struct td_text id)
{
    struct td_upstream *upstream = call->api->upstream;
    struct td_upstream_progress progress;
    struct td_kept_model kept;
    return upstream != NULL &&
           (td_upstream_get_progress(upstream, id, &progress) || td_upstream_find(upstream, id, &kept));
}

struct td_text td_incoming_call_known_id(const struct td_call *call, struct td_text path)
{
    struct td_text rest = path;
    struct td_text first = td_text_take_until(&rest, '/');
    struct td_text id = td_incoming_call_id(path);
    return !td_incoming_call_knows(call, id) && td_incoming_call_knows(call, first) ? first : id;
}

bool td_incoming_call_is_of(const struct td_snapshot *snapshot)
{
    return snapshot->root == NULL && snapshot->entry_count > 0 && snapshot->entries[0].file->source.incoming != NULL;
}

bool td_incoming_call_awaits(const struct td_call *call)
{
    const struct td_model *model = call->model;
    if (!td_incoming_call_is_of(call->snapshot))
        return false;
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct td_entry *entry = &call->snapshot->entries[model->first_entry + i];
        bool is_below = strchr(td_model_relative(model, entry), '/') != NULL;
        if (!is_below && entry->file->kind != TD_FILE_PLAIN)
            return true;
    }
    return false;
}

void td_incoming_call_note_read(const struct td_call *call, struct td_text path)
{
    if (call->api->upstream == NULL)
        return;
    struct td_text rest = path;
    struct td_text first = td_text_take_until(&rest, '/');
    struct td_text id = td_incoming_call_id(path);
    td_upstream_note_read(call->api->upstream, first);
    if (id.len > first.len)
        td_upstream_note_read(call->api->upstream, id);
}

size_t td_incoming_call_list(const struct td_call *call, struct td_upstream_arrival out[TD_UPSTREAM_MODELS])
{
    size_t count = 0;
    if (call->api->upstream == NULL)
        return 0;
    size_t all = td_upstream_get_arrivals(call->api->upstream, out, TD_UPSTREAM_MODELS);
    for (size_t i = 0; i < all; i++)
        if (may_see(call, td_text_of(out[i].id)))
            out[count++] = out[i];
    return count;
}

bool td_incoming_call_state(const struct td_call *call, struct td_incoming_state *out)
{
    struct td_upstream_progress progress = {0};
    struct td_kept_model kept = {0};
    *out = (struct td_incoming_state){.is_kept = false};
    if (call->api->upstream == NULL)
        return false;
    struct td_text id = td_incoming_call_known_id(call, td_text_of(call->model->id));
    out->is_kept = td_upstream_find(call->api->upstream, id, &kept);
    if (!out->is_kept && !td_incoming_call_is_of(call->snapshot))
        return false;
    out->is_verified = kept.is_verified;
    out->has_progress = !out->is_kept && td_upstream_get_progress(call->api->upstream, id, &progress);
    out->arrived_bytes = progress.arrived_bytes;
    out->total_bytes = progress.total_bytes;
    return true;
}
