#include "api/hub/hub_write.h"

#include "api/call/publish_sink.h"
#include "catalog/publish/publish_store.h"

#include <string.h>

#define LOCAL TD_REPO_DEFAULT_NAMESPACE "/"

/* Most bytes of the tree of a JSON body: 256 files with their paths and samples, and what small bodies need. */
enum { BODY_FREE_BYTES = 2 * 1024 * 1024, BODY_PER_BYTE = 4 };

bool td_hub_write_begin(struct td_hub_write *write)
{
    struct td_hub_call *hub = &write->hub;
    if (td_text_begins(hub->id, TD_TEXT(LOCAL)))
        hub->id = td_text_skip(hub->id, sizeof LOCAL - 1);
    return td_publishing_begin(hub->call, hub->id, hub->as_dataset, &write->name);
}

static bool no_repository(struct td_hub_write *write)
{
    return td_hub_fail(&write->hub, 404, "RepoNotFound", "no %s \"%.*s\" was published; create it first",
                       write->hub.as_dataset ? "dataset" : "model", TD_SHOW(write->hub.id, 200));
}

bool td_hub_write_open(struct td_hub_write *write, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->hub.call;
    if (!td_publish_repo_open(&call->api->publish->disk, &write->name, false, repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return false;
    }
    if (repo->fd >= 0)
        return true;
    td_publish_repo_close(repo);
    return no_repository(write);
}

bool td_hub_write_look(struct td_hub_write *write, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    while (td_publish_repo_look(&write->hub.call->api->publish->disk, &write->name, repo, &err)) {
        if (repo->fd >= 0)
            return true;
        if (!td_hub_write_open(write, repo))
            return false;            /* it has answered */
        td_publish_repo_close(repo); /* it was created just now */
    }
    td_publishing_fail(write->hub.call, &err, 500);
    return false;
}

bool td_hub_write_has_repo(struct td_hub_write *write)
{
    struct td_publish_repo repo;
    bool ok = td_hub_write_look(write, &repo);
    if (ok)
        td_publish_repo_look_end(&repo);
    return ok;
}

bool td_hub_write_has_main(const struct td_publish_repo *repo)
{
    char commit[TD_COMMIT_BYTES];
    return !repo->is_new && td_publish_resolve(repo, "main", commit);
}

bool td_hub_write_resolve(struct td_hub_write *write, const struct td_publish_repo *repo, const char *revision,
                          char commit[TD_COMMIT_BYTES])
{
    commit[0] = '\0';
    if (!repo->is_new && td_publish_resolve(repo, revision, commit))
        return true;
    return !td_hub_write_has_main(repo) ||
           td_hub_fail(&write->hub, 404, "RevisionNotFound", "%.*s has no revision \"%.100s\"",
                       TD_SHOW(write->hub.id, 200), revision);
}

const char *td_hub_write_copy(struct td_hub_write *write, struct td_text text)
{
    if (text.len > 0 && memchr(text.p, '\0', text.len) != NULL) {
        (void)td_hub_fail(&write->hub, 400, NULL, "a name holds no NUL");
        return NULL;
    }
    const char *copy = td_arena_strndup(&write->hub.arena, text);
    if (copy == NULL)
        (void)td_call_no_memory(write->hub.call);
    return copy;
}

bool td_hub_write_refuse(struct td_hub_write *write, const struct td_hub_body *body)
{
    td_call_fail_json(write->hub.call, &body->err);
    return false;
}

bool td_hub_write_read(struct td_hub_write *write, struct td_hub_body *body)
{
    struct td_arena *arena = &write->hub.arena;
    const struct td_call *call = write->hub.call;
    const size_t limit = arena->limit_bytes;
    const struct td_publish_sink *sink = td_publish_sink_of(call);
    struct td_text text = td_buffer_text(&sink->text);
    if (!call->request->is_whole) {
        td_publishing_fail(call, &sink->err, 413);
        return false;
    }
    if (text.len == 0)
        text = TD_TEXT("{}");
    td_error_init(&body->err);
    arena->limit_bytes = arena->used_bytes + BODY_FREE_BYTES + BODY_PER_BYTE * text.len;
    td_json_document_read(&body->document, text, arena, &body->err);
    arena->limit_bytes = limit;
    body->root = td_json_document_object(&body->document, "an object");
    return (body->root != NULL && td_json_document_end(&body->document)) || td_hub_write_refuse(write, body);
}

const char *td_hub_write_string(struct td_hub_write *write, struct td_hub_body *body, const cJSON *object,
                                const char *name, const char *otherwise)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    const char *text = NULL;
    if (item == NULL || cJSON_IsNull(item))
        return otherwise;
    if (td_json_item_is_string(item))
        text = td_json_document_string(&body->document, item);
    else
        (void)td_json_document_fail(&body->document, item, "\"%s\" is a string", name);
    if (text == NULL)
        (void)td_hub_write_refuse(write, body);
    return text;
}

void td_hub_write_url(const struct td_hub_write *write, struct td_buffer *out)
{
    const struct td_hub_call *hub = &write->hub;
    struct td_text host = td_request_host(hub->call->request);
    td_buffer_printf(out, "%s://%.*s/%s", td_request_scheme(hub->call->request), (int)host.len, host.p,
                     hub->as_dataset ? "datasets/" : "");
    if (memchr(hub->id.p, '/', hub->id.len) == NULL)
        td_buffer_puts(out, LOCAL); /* clients want two segments */
    td_uri_encode(out, hub->id, true);
}

void td_hub_write_answer(struct td_hub_write *write, struct td_buffer *json)
{
    td_buffer_putc(json, '\n');
    td_response_set_text(write->hub.call->response, "application/json", "no-store", json);
    td_buffer_fini(json);
}

void td_hub_write_answer_text(struct td_hub_write *write, const char *json)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, json);
    td_hub_write_answer(write, &text);
}
