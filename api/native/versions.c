#include "api/native/versions.h"

#include "api/call/incoming_call.h"
#include "api/call/shown_model.h"
#include "api/native/listing.h"
#include "api/native/parameters.h"
#include "api/native/routes.h"
#include "catalog/names/family.h"

#include <stdio.h>
#include <string.h>

static const char list_word[] = "versions";
static const char changes_word[] = "changes";

/* ---- one version --------------------------------------------------------------------------------------- */

enum { MOST_NAMES = 8 };

/* Writes the names of `count` versions and, unless it is empty, one more word: as JSON to `details`, {"known": [...]},
 * and between quotes to `shown`. */
static void list_names(const struct td_version *versions, size_t count, const char *more, struct td_buffer *details,
                       struct td_buffer *shown)
{
    struct td_document json;
    td_document_init(&json, details);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "known");
    for (size_t i = 0; i < count; i++) {
        td_document_add_string(&json, NULL, versions[i].name);
        td_buffer_printf(shown, "%s\"%.64s\"", i > 0 ? ", " : "", versions[i].name);
    }
    if (more[0] != '\0')
        td_document_add_string(&json, NULL, more);
    td_document_end(&json);
    td_document_end(&json);
}

/* Answers with an error whose details name the versions. */
static void fail_with_names(const struct td_call *call, int status, const struct td_version *versions, size_t count,
                            const char *more, const char *what, const char *advice)
{
    struct td_buffer details;
    struct td_buffer shown;
    td_buffer_init(&details);
    td_buffer_init(&shown);
    list_names(versions, count, more, &details, &shown);
    const char *known = td_buffer_terminate(&details);
    const char *names = td_buffer_terminate(&shown);
    if (known == NULL || names == NULL)
        (void)td_call_no_memory(call);
    else
        td_response_fail(call->response, status, known, "%s%s%s", what, names, advice);
    td_buffer_fini(&details);
    td_buffer_fini(&shown);
}

static void fail_unknown(const struct td_call *call, struct td_text text)
{
    char what[512];
    const struct td_family *family = call->family;
    size_t count = family->count < MOST_NAMES ? family->count : MOST_NAMES;
    (void)snprintf(what, sizeof what, "\"%.300s\" has no version \"%.*s\"; its newest are ", family->id,
                   TD_SHOW(text, 100));
    fail_with_names(call, 404, family->versions + family->count - count, count,
                    family->latest != NULL ? TD_VERSION_LATEST : "", what, "; GET .../versions lists all");
}

static void fail_ambiguous(const struct td_call *call, struct td_text text, const struct td_version *first)
{
    char what[512];
    size_t count = 1;
    size_t most = (size_t)(call->family->versions + call->family->count - first);
    while (count < most && count < MOST_NAMES && first[count].number == first->number)
        count++;
    (void)snprintf(what, sizeof what, "several versions of \"%.300s\" have the number %.*s: ", call->family->id,
                   TD_SHOW(text, 20));
    fail_with_names(call, 400, first, count, "", what, "; give one of these names");
}

/* Sets *version to what the text stands for in call->family. Returns false after it answered, or, with can_wait, made
 * the call wait for the version. */
static bool find_version(const struct td_call *call, struct td_text text, bool can_wait,
                         const struct td_version **version)
{
    switch (td_family_find_version(call->family, text, version)) {
    case TD_VERSION_FOUND:
        return true;
    case TD_VERSION_AMBIGUOUS:
        fail_ambiguous(call, text, *version);
        return false;
    default:
        if (!can_wait || !td_wait_for_name(call, td_model_parameters))
            fail_unknown(call, text);
        return false;
    }
}

bool td_versions_choose(const struct td_call *call, struct td_text text, const struct td_version **version)
{
    return find_version(call, text, false, version);
}

/* Sets call->version and call->model to what the text stands for in call->family. */
static bool choose_version(struct td_call *call, struct td_text text, bool is_whole_path)
{
    const struct td_version *version = NULL;
    if (!find_version(call, text, is_whole_path, &version))
        return false;
    call->version = version;
    call->model = version->model;
    return true;
}

/* Returns whether the text is this word, perhaps with a '/' at its end. */
static bool is_word(struct td_text text, const char *word)
{
    text.len -= text.len > 0 && text.p[text.len - 1] == '/' ? 1 : 0;
    return td_text_equals(text, word);
}

/* Returns whether the path ends in "/" and this word, after something else. */
static bool ends_in(struct td_text path, const char *word)
{
    path.len -= path.len > 0 && path.p[path.len - 1] == '/' ? 1 : 0;
    return td_text_equals(td_text_take_last(&path, '/'), word) && path.len > 0;
}

bool td_versions_is_list(struct td_text path)
{
    return ends_in(path, list_word);
}

bool td_versions_is_changes(struct td_text path)
{
    return ends_in(path, changes_word);
}

/* Answers that the model, which no family has the id of, has no version. */
static bool fail_without_family(const struct td_call *call, const char *id, struct td_text text)
{
    td_response_fail(call->response, 404, "{\"known\": []}", "model \"%.400s\" has no version \"%.*s\", and no other",
                     id, TD_SHOW(text, 100));
    return false;
}

/* ---- versions of the upstream -------------------------------------------------------------------------- */

/* Returns whether the call can be answered with what is here, since the upstream does not list the version, or cannot
 * be asked now: the version is here by this very name, or, with is_list, some version is. */
static bool is_here(const struct td_call *call, struct td_text id, const struct td_text *text, bool is_list)
{
    const struct td_family *family = td_family_find(call->snapshot, id);
    const struct td_version *version = NULL;
    return family != NULL && (is_list || (text != NULL && !td_text_equals(*text, TD_VERSION_LATEST) &&
                                          td_family_find_version(family, *text, &version) == TD_VERSION_FOUND));
}

/* Sets call->family, call->version and call->model to the version with this name in the call's snapshot, which has
 * just come from the upstream. */
static bool take_version(struct td_call *call, const struct td_family *family, const char *name)
{
    call->family = td_family_find(call->snapshot, td_text_of(family->id));
    enum td_version_found found = call->family == NULL
                                      ? TD_VERSION_UNKNOWN
                                      : td_family_find_version(call->family, td_text_of(name), &call->version);
    if (found == TD_VERSION_FOUND && strcmp(call->version->name, name) == 0) {
        call->model = call->version->model;
        return true;
    }
    call->version = NULL;
    td_response_fail(call->response, 404, NULL,
                     "the version \"%.100s\" of \"%.300s\" cannot be had from the upstream: it has no files there, or "
                     "its name cannot be that of a folder here",
                     name, family->id);
    return false;
}

/* Chooses the version of the upstream's list that the text stands for, and fetches it if it is not here. */
static bool choose_upstream_version(struct td_call *call, struct td_text text, bool can_wait)
{
    const struct td_family *family = &call->remote_family->family;
    const struct td_version *listed = NULL;
    struct td_snapshot *snapshot = NULL;
    call->family = family;
    if (!find_version(call, text, can_wait, &listed))
        return false;
    switch (td_incoming_call_look_version(call, listed, &snapshot)) {
    case TD_INCOMING_ANSWERED:
        return false;
    case TD_INCOMING_AGAIN:
        td_snapshot_unref(call->snapshot);
        call->snapshot = snapshot;
        break;
    case TD_INCOMING_NONE:
        break;
    }
    return take_version(call, family, listed->name);
}

bool td_versions_find_upstream(struct td_call *call, struct td_text path, struct td_text id, size_t *at, bool *is_found)
{
    const struct td_text *text = td_uri_parameter(call->uri, "version");
    bool is_list = td_versions_is_list(path);
    struct td_upstream_reply reply;
    *is_found = false;
    id.len -= id.len > 0 && id.p[id.len - 1] == '/' ? 1 : 0;
    if (call->api->upstream == NULL || (text == NULL && !is_list) || td_versions_is_changes(path))
        return true;
    if (!td_incoming_call_list_versions(call, id, &reply)) {
        if (reply.answer == TD_UPSTREAM_HAS_NOT || is_here(call, id, text, is_list))
            return true;
        td_incoming_call_fail_ask(call, &reply);
        return false;
    }
    const struct td_version *listed = NULL;
    const struct td_family *family = &call->remote_family->family;
    if (!is_list && td_family_find_version(family, *text, &listed) == TD_VERSION_UNKNOWN &&
        is_here(call, id, text, false))
        return true;
    *is_found = true;
    *at = id.len < path.len ? id.len + 1 : id.len;
    call->takes_version = !is_list;
    call->family = family;
    bool is_whole_path = *at == path.len;
    if (!is_list && family->count == 0 && !is_whole_path)
        return fail_without_family(call, family->id, *text);
    return is_list || choose_upstream_version(call, *text, is_whole_path);
}

/* ---- versions that are here ---------------------------------------------------------------------------- */

bool td_versions_find(struct td_call *call, struct td_text path, size_t *at)
{
    size_t end = 0;
    const struct td_text *text = td_uri_parameter(call->uri, "version");
    if (text == NULL && !td_versions_is_list(path) && !td_versions_is_changes(path))
        return true;
    const struct td_family *family = td_family_route(call->snapshot, path, &end);
    if (family != NULL && call->model != NULL && end < *at)
        family = NULL;
    size_t begin = family != NULL ? end : call->model != NULL ? *at : path.len;
    struct td_text rest = td_text_skip(path, begin);
    bool is_of_family = is_word(rest, list_word) || is_word(rest, changes_word);
    call->takes_version = !is_of_family;
    if (family == NULL)
        return is_of_family || text == NULL || call->model == NULL || fail_without_family(call, call->model->id, *text);
    if (is_of_family || text != NULL) {
        call->family = family;
        *at = end;
    }
    return is_of_family || text == NULL || choose_version(call, *text, rest.len == 0);
}

void td_versions_add_header(const struct td_call *call)
{
    if (call->version != NULL && call->response->status < 400)
        td_shown_model_add_version(call->response, call->version->name);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const void *version_rows(const struct td_call *call, size_t *count, size_t *row_bytes)
{
    *count = call->family == NULL ? 0 : call->family->count;
    *row_bytes = sizeof *call->family->versions;
    return call->family == NULL ? NULL : call->family->versions;
}

static size_t versions_after(const struct td_call *call, struct td_text name)
{
    return call->family == NULL ? 0 : td_family_after(call->snapshot, call->family, name);
}

static const char *name_row(const void *row)
{
    return ((const struct td_version *)row)->name;
}

static const char *latest_name(const struct td_call *call)
{
    return call->family == NULL || call->family->latest == NULL ? NULL : call->family->latest->name;
}

static const char *id_of(const struct td_call *call)
{
    return call->family == NULL ? call->model->id : call->family->id;
}

static bool begin_list(struct td_description *description)
{
    const char *id = id_of(description->call);
    const char *latest = latest_name(description->call);
    if (!td_description_room(description, strlen(id) + (latest == NULL ? 0 : strlen(latest))))
        return false;
    td_document_add_string(&description->json, "model", id);
    td_description_add_text_or_null(description, "latest", latest);
    return true;
}

static void digest_begin(struct td_digest *digest, const struct td_call *call)
{
    const char *latest = latest_name(call);
    td_digest_add_cstring(digest, id_of(call));
    td_digest_add_cstring(digest, latest == NULL ? "" : latest);
}

/* Adds everything that add_row shows of the version. */
static void digest_row(struct td_digest *digest, const void *row)
{
    const struct td_version *version = row;
    const struct td_model *model = version->model;
    const uint64_t numbers[] = {model->total_bytes, model->file_bytes,       (uint64_t)model->updated_ns,
                                model->is_delta,    version->commit != NULL, version->ref_count};
    td_digest_add_cstring(digest, version->name);
    td_digest_add(digest, numbers, sizeof numbers);
    td_digest_add_cstring(digest, model->base == NULL ? "" : model->base);
    td_digest_add_cstring(digest, version->commit == NULL ? "" : version->commit);
    for (size_t i = 0; i < version->ref_count; i++)
        td_digest_add_cstring(digest, version->refs[i]);
}

/* Adds the path of the version's description. */
static bool add_href(struct td_description *description, const struct td_version *version)
{
    const struct td_shown_model shown = {.id = description->call->family->id, .version = version->name};
    struct td_buffer href;
    td_buffer_init(&href);
    td_buffer_puts(&href, "/models/");
    td_uri_encode(&href, td_text_of(shown.id), true);
    (void)td_shown_model_write_query(&shown, "?", &href);
    bool ok = !href.failed || td_error_no_memory(&description->err);
    td_document_add_text(&description->json, "href", td_buffer_text(&href));
    td_buffer_fini(&href);
    return ok;
}

/* Adds the members that versions of caches have. */
static bool add_refs(struct td_description *description, const struct td_version *version)
{
    struct td_document *json = &description->json;
    td_document_add_string(json, "commit", version->commit);
    td_document_begin_array(json, "refs");
    for (size_t i = 0; i < version->ref_count; i++) {
        if (!td_description_room(description, strlen(version->refs[i])))
            return false;
        td_document_add_string(json, NULL, version->refs[i]);
    }
    td_document_end(json);
    return true;
}

static bool add_row(struct td_description *description, const void *row)
{
    const struct td_version *version = row;
    const struct td_model *model = version->model;
    struct td_document *json = &description->json;
    size_t text_bytes = 2 * strlen(version->name) + strlen(description->call->family->id) +
                        (model->base == NULL ? 0 : strlen(model->base)) +
                        (version->commit == NULL ? 0 : strlen(version->commit));
    if (!td_description_room(description, text_bytes))
        return false;
    td_document_add_string(json, "version", version->name);
    if (version->has_number)
        td_document_add_u64(json, "number", version->number);
    else
        td_document_add_null(json, "number");
    td_document_add_string(json, "kind", model->is_delta ? "delta" : "full");
    td_description_add_text_or_null(description, "base", model->base);
    if (!add_href(description, version))
        return false;
    td_document_add_u64(json, "total_bytes", model->total_bytes);
    td_document_add_u64(json, "file_bytes", model->file_bytes);
    td_description_add_updated(description, model);
    return version->commit == NULL || add_refs(description, version);
}

/* The state of the lists of models without versions, which is short to compute and kept nowhere. */
static _Atomic(char *) *kept_state(const struct td_call *call)
{
    return call->family == NULL ? NULL : call->family->list_state;
}

const char *const td_versions_parameters[] = {"page_size", "page_token", "wait", "timeout", NULL};

void td_handle_versions(const struct td_call *call)
{
    struct td_call own = *call;
    if (own.family == NULL)
        own.family = td_family_find(call->snapshot, td_text_of(call->model->id));
    const struct td_list list = {.number = TD_LISTS,
                                 .state = kept_state,
                                 .kind = list_word,
                                 .of = id_of(&own),
                                 .rows = version_rows,
                                 .after = versions_after,
                                 .begin = begin_list,
                                 .digest_begin = digest_begin,
                                 .name = name_row,
                                 .digest = digest_row,
                                 .add = add_row};
    td_listing_answer(&own, &list);
}
