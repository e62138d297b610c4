#include "api/hub/hub_empty.h"

#include "api/call/publishing.h"
#include "catalog/publish/commit_list.h"
#include "catalog/publish/publish_store.h"
#include "core/message/document.h"
#include "core/waiting.h"

#include <string.h>

bool td_hub_empty_commit(char commit[TD_COMMIT_BYTES])
{
    const struct td_commit_list none = {.count = 0};
    return td_commit_list_id(&none, commit, NULL);
}

/* Returns whether an empty repository has this revision. */
static bool is_revision(struct td_text revision)
{
    char commit[TD_COMMIT_BYTES];
    return td_text_equals(revision, "main") || td_text_equals(revision, "HEAD") ||
           (td_hub_empty_commit(commit) && td_text_equals(revision, commit));
}

/* Returns whether there is such a repository. */
static bool is_there(struct td_hub_call *hub)
{
    const struct td_text local = TD_TEXT(TD_REPO_DEFAULT_NAMESPACE "/");
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct td_publish *publish = hub->call->api->publish;
    if (publish == NULL || !td_may_wait(NULL))
        return false;
    if (td_text_begins(hub->id, local))
        hub->id = td_text_skip(hub->id, local.len);
    if (!td_publishing_look(hub->call, hub->id, hub->as_dataset, &name) ||
        !td_publish_repo_look(&publish->disk, &name, &repo, NULL))
        return false;
    bool is_empty = repo.fd >= 0 && repo.is_new;
    td_publish_repo_look_end(&repo);
    return is_empty;
}

/* Answers the repository's description. */
static void answer_info(struct td_hub_call *hub)
{
    struct td_buffer json, id;
    struct td_document builder;
    char commit[TD_COMMIT_BYTES];
    bool has_commit = td_hub_empty_commit(commit);
    bool has_namespace = memchr(hub->id.p, '/', hub->id.len) != NULL;
    td_buffer_init(&json);
    td_buffer_init(&id);
    td_buffer_printf(&id, "%s%.*s", has_namespace ? "" : TD_REPO_DEFAULT_NAMESPACE "/", (int)hub->id.len, hub->id.p);
    struct td_text rest = td_buffer_text(&id);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_text(&builder, "_id", td_buffer_text(&id));
    td_document_add_text(&builder, "id", td_buffer_text(&id));
    if (!hub->as_dataset)
        td_document_add_text(&builder, "modelId", td_buffer_text(&id));
    td_document_add_text(&builder, "author", td_text_take_until(&rest, '/'));
    td_document_add_string(&builder, "sha", commit);
    td_document_add_bool(&builder, "private", false);
    td_document_add_bool(&builder, "disabled", false);
    td_document_add_bool(&builder, "gated", false);
    td_document_add_u64(&builder, "downloads", 0);
    td_document_add_u64(&builder, "likes", 0);
    td_document_begin_array(&builder, "tags");
    td_document_end(&builder);
    td_document_begin_array(&builder, "siblings");
    td_document_end(&builder);
    td_document_end(&builder);
    json.failed = json.failed || id.failed || !has_commit;
    td_buffer_fini(&id);
    td_buffer_putc(&json, '\n');
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}

static void answer_text(struct td_hub_call *hub, const char *text)
{
    struct td_buffer json;
    td_buffer_init(&json);
    td_buffer_puts(&json, text);
    td_hub_answer_json(hub, &json);
    td_buffer_fini(&json);
}

/* The answers of an empty repository by verb. */
static const struct {
    const char *word, *json; /* json NULL: the description */
    bool has_revision;
} verbs[] = {
    {"revision", NULL, true},
    {"tree", "[]\n", true},
    {"paths-info", "[]\n", true},
    {"commits", "[]\n", true},
    {"refs", "{\"branches\":[],\"converts\":[],\"tags\":[],\"pullRequests\":[]}\n", false},
    {"auth-check", "{}\n", false},
};

/* Answers 404 for a path in the repository. */
static void no_file(struct td_hub_call *hub)
{
    (void)td_hub_fail(hub, 404, "EntryNotFound", "%.*s has no file yet: nothing was committed", TD_SHOW(hub->id, 200));
}

static void answer_verb(struct td_hub_call *hub, size_t at)
{
    const struct td_hub_path *path = &hub->path;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!td_text_equals(path->segments[at], verbs[i].word))
            continue;
        size_t rest = verbs[i].has_revision ? at + 2 : at + 1;
        if (verbs[i].has_revision && (rest > path->count || !is_revision(path->segments[at + 1])))
            (void)td_hub_fail(hub, 404, "RevisionNotFound", "%.*s has no commit yet", TD_SHOW(hub->id, 200));
        else if (rest < path->count)
            no_file(hub);
        else if (verbs[i].json == NULL)
            answer_info(hub);
        else
            answer_text(hub, verbs[i].json);
        return;
    }
    no_file(hub);
}

bool td_hub_empty_answer(struct td_hub_call *hub, size_t at)
{
    if (!is_there(hub))
        return false;
    if (at >= hub->path.count)
        answer_info(hub);
    else
        answer_verb(hub, at);
    return true;
}
