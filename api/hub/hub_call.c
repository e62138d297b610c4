#include "api/hub/hub_call.h"

#include "core/clock.h"
#include "core/digits.h"
#include "http/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths --------------------------------------------------------------------------------------------- */

void td_hub_path_split(struct td_hub_path *path, struct td_text raw_path)
{
    path->count = 0;
    path->memory = NULL;
    path->is_folder = raw_path.len > 0 && raw_path.p[raw_path.len - 1] == '/';
    for (size_t at = 0, end; at < raw_path.len; at = end + 1) {
        bool is_last = path->count + 1 == TD_HUB_MAX_SEGMENTS;
        end = at;
        while (end < raw_path.len && (raw_path.p[end] != '/' || is_last))
            end++;
        if (end > at)
            path->segments[path->count++] = td_text_n(raw_path.p + at, end - at);
    }
}

bool td_hub_path_parse(struct td_hub_path *path, struct td_text raw_path, struct td_error *err)
{
    td_hub_path_split(path, raw_path);
    path->memory = malloc(raw_path.len + 1);
    if (path->memory == NULL)
        return td_error_no_memory(err);
    char *to = path->memory;
    for (size_t i = 0; i < path->count; i++) {
        struct td_text raw = path->segments[i];
        struct td_text *segment = &path->segments[i];
        segment->p = to;
        if (!td_uri_decode(raw, false, TD_URI_TARGET, to, &segment->len, err))
            return false;
        to += segment->len;
        *to++ = '/';
    }
    return true;
}

void td_hub_path_fini(struct td_hub_path *path)
{
    free(path->memory);
    path->memory = NULL;
}

struct td_text td_hub_path_join(const struct td_hub_path *path, size_t first, size_t end)
{
    if (first >= end)
        return TD_TEXT("");
    const struct td_text *last = &path->segments[end - 1];
    const char *from = path->segments[first].p;
    return td_text_n(from, (size_t)(last->p + last->len - from));
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES])
{
    struct td_text host = td_request_host(hub->call->request);
    if (host.len == 0 || target->failed)
        return false;
    int len = snprintf(link, TD_HEADER_VALUE_BYTES, "<%s://%.*s%.*s>; rel=\"next\"",
                       td_request_scheme(hub->call->request), (int)host.len, host.p, (int)target->len, target->data);
    return len > 0 && len < TD_HEADER_VALUE_BYTES;
}

void td_hub_add_link(const struct td_hub_call *hub, const char *link)
{
    td_response_add_header(hub->call->response, "Link", "%s", link);
    td_response_add_header(hub->call->response, "Vary", "X-Forwarded-Proto");
}

bool td_hub_is_yes(struct td_text value)
{
    return td_text_equals_ignore_case(value, "true") || td_text_equals(value, "1");
}

bool td_hub_flag(const struct td_hub_call *hub, const char *name)
{
    const struct td_text *value = td_uri_parameter(hub->call->uri, name);
    return value != NULL && td_hub_is_yes(*value);
}

/* ---- the view --------------------------------------------------------------------------------------------- */

bool td_hub_try_view(struct td_hub_call *hub, struct td_error *err)
{
    td_error_init(err);
    bool ok = td_repo_view_open(hub->call->snapshot, hub->repo, hub->revision, &hub->view, err);
    if (ok)
        td_repo_view_note(&hub->view, hub->revision, hub->call->response);
    else
        hub->view.commit[0] = '\0';
    return ok;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

/* Adds the text of the error as a header field, which clients show of an answer to HEAD. A header holds a part of a
 * long text. */
static void add_message(const struct td_hub_call *hub, const char *text)
{
    char shown[TD_HEADER_VALUE_BYTES];
    size_t len = 0;
    for (; text[len] != '\0' && len < sizeof shown - 1; len++)
        shown[len] = text[len] < ' ' || text[len] > '~'
                         ? '?'
                         : text[len]; /* RFC 9110 section 5.5: visible ASCII, which every client reads */
    shown[len] = '\0';
    td_response_add_header(hub->call->response, "X-Error-Message", "%s", shown);
}

static void add_commit(const struct td_hub_call *hub)
{
    if (hub->view.commit[0] != '\0')
        td_response_add_header(hub->call->response, "X-Repo-Commit", "%s", hub->view.commit);
}

bool td_hub_fail(const struct td_hub_call *hub, int status, const char *code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct td_response *response = hub->call->response;
    td_response_fail(response, status, NULL, "%s", text);
    if (response->status == status) { /* else memory was short, and the answer is a 503 */
        if (code != NULL)
            td_response_add_header(response, "X-Error-Code", "%s", code);
        add_message(hub, text);
    }
    add_commit(hub);
    return false;
}

bool td_hub_fail_error(const struct td_hub_call *hub, const struct td_error *err)
{
    td_response_fail_error(hub->call->response, err);
    add_message(hub, err->message);
    add_commit(hub);
    return false;
}

bool td_hub_no_file(const struct td_hub_call *hub, const char *what, struct td_text path)
{
    return td_hub_fail(hub, 404, "EntryNotFound",
                       "%.*s has no %s \"%.*s\" at revision %s; GET /api/%s/%.*s/tree/%s lists what there is",
                       TD_SHOW(hub->id, 200), what, TD_SHOW(path, 200), hub->view.commit,
                       hub->as_dataset ? "datasets" : "models", TD_SHOW(hub->id, 200), hub->view.commit);
}

bool td_hub_cursor(const struct td_hub_call *hub, uint64_t *cursor)
{
    const struct td_text *text = td_uri_parameter(hub->call->uri, "cursor");
    *cursor = 0;
    return text == NULL || text->len == 0 || td_number_read(*text, 999999999, cursor) ||
           td_hub_fail(hub, 400, NULL,
                       "cursor \"%.*s\" is not one that a list gave out: follow the Link field of the page before, or "
                       "leave it out to begin again",
                       TD_SHOW(*text, 60));
}

/* ---- revisions ----------------------------------------------------------------------------------------- */

/* Returns whether rank files can be made of a checkpoint of the repository: whether the smallest set exists. */
static bool can_be_split(const struct td_hub_call *hub)
{
    static const char any[] = "tp1-rank0-none";
    struct td_repo_view view;
    struct td_error err = TD_ERROR_INIT;
    return td_repo_view_open(hub->call->snapshot, hub->repo, td_text_of(any), &view, &err);
}

/* Writes the revisions that exist: "it has main, v1.0, refs/pr/1, safetensors, tp{n}-rank{r}-{engine}". Names some refs
 * of many. */
static void list_revisions(const struct td_hub_call *hub, bool splits, char *out, size_t capacity)
{
    enum { MOST_REFS = 8 };
    const struct td_repo *repo = hub->repo;
    size_t count = 0;
    size_t used = (size_t)snprintf(out, capacity, repo->lacks_main ? "it has no main" : "it has main");
    if (hub->revision.len == TD_COMMIT_BYTES - 1 &&
        !repo->lacks_main) /* a client that asks by a commit learns the present commit */
        used += (size_t)snprintf(out + used, capacity - used, " (%s)", repo->commit);
    for (size_t i = 0; i < repo->ref_count && count <= MOST_REFS; i++) {
        const char *name = repo->refs[i].name;
        if (strcmp(name, "main") == 0 || td_repo_of_ref(repo, &repo->refs[i]) == NULL)
            continue;
        count++;
        if (used < capacity)
            used += (size_t)snprintf(out + used, capacity - used, count > MOST_REFS ? ", ..." : ", %.60s", name);
    }
    for (size_t i = 0; splits && used < capacity && td_virtual_revision_names(i) != NULL; i++)
        used += (size_t)snprintf(out + used, capacity - used, ", %s", td_virtual_revision_names(i));
}

/* Answers 404: the repository has no hub->revision; the message names the revisions that it has. */
static bool no_revision(const struct td_hub_call *hub)
{
    char there[768];
    struct td_text revision = hub->revision;
    struct td_error err = TD_ERROR_INIT;
    bool splits = can_be_split(hub);
    struct td_virtual_revision virtual;
    bool looks_virtual = td_virtual_revision_read_name(revision, &virtual, &err) || err.code != TD_OK;
    if (looks_virtual && !splits)
        (void)snprintf(there, sizeof there, "it has no checkpoint that this could be made of");
    else if (err.code != TD_OK)
        (void)snprintf(there, sizeof there, "%s", err.message);
    else
        list_revisions(hub, splits, there, sizeof there);
    return td_hub_fail(hub, 404, "RevisionNotFound", "%.*s has no revision \"%.*s\": %s", TD_SHOW(hub->id, 120),
                       TD_SHOW(revision, 100), there);
}

bool td_hub_fail_view(const struct td_hub_call *hub, const struct td_error *err)
{
    return err->code == TD_NOT_FOUND ? no_revision(hub) : td_hub_fail_error(hub, err);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

void td_hub_answer_json(struct td_hub_call *hub, struct td_buffer *json)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_reserved_answer_json(&hub->reserved, json, hub->call->response, &err))
        add_commit(hub);
    else
        (void)td_hub_fail_error(hub, &err);
}

void td_hub_answer_built(struct td_hub_call *hub, bool ok, struct td_document *json, const struct td_error *err)
{
    struct td_buffer *out = json->out;
    td_document_end(json);
    if (ok) {
        td_buffer_putc(out, '\n');
        td_hub_answer_json(hub, out);
    } else if (err->code != TD_OK) {
        (void)td_hub_fail_error(hub, err);
    }
    td_buffer_fini(out);
}

void td_hub_add_date(struct td_document *json, const char *key, int64_t time_ns)
{
    char text[40];
    size_t len = td_wall_rfc3339(td_wall_of_ns(time_ns), text, sizeof text);
    td_document_add_text(json, key, td_text_n(text, len));
}
