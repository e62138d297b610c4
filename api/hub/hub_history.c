#include "api/hub/hub_history.h"

#include "catalog/publish/publish_notes.h"
#include "catalog/publish/publish_store.h"
#include "core/clock.h"
#include "core/message/document.h"
#include "core/waiting.h"

#include <string.h>

/* Adds a commit: the first line of its message is the title. */
static bool add_commit(struct td_hub_call *hub, struct td_document *json, const struct td_commit_note *note,
                       struct td_error *err)
{
    char date[40];
    struct td_text message = td_text_of(note->message);
    if (!td_reserved_json_room(&hub->reserved, json, message.len + strlen(note->token) + 200, err))
        return false;
    (void)td_wall_rfc3339((struct td_wall){.seconds = note->time_s, .nanoseconds = note->time_ns}, date, sizeof date);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "id", note->commit);
    td_document_add_text(json, "title", td_text_take_until(&message, '\n'));
    td_document_add_text(json, "message", td_text_trim(message, "\n"));
    td_document_begin_array(json, "authors");
    if (note->token[0] != '\0') {
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "user", note->token);
        td_document_end(json);
    }
    td_document_end(json);
    td_document_add_string(json, "date", date);
    td_document_end(json);
    return true;
}

/* Returns whether the commit is among those that were added: a revision may have come back to a commit. */
static bool was_added(const struct td_commit_note *notes, size_t count, const char *commit)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(notes[i].commit, commit) == 0)
            return true;
    return false;
}

/* Adds the commits of an open repository. */
static bool add_commits(struct td_hub_call *hub, const struct td_publish_repo *repo, struct td_document *json,
                        size_t *count, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_commit_note *notes = td_arena_array(&hub->arena, TD_HUB_MOST_COMMITS, sizeof *notes);
    const char *commit = hub->view.commit;
    const char *revision = td_arena_strndup(&hub->arena, hub->revision);
    if (notes == NULL || revision == NULL)
        return td_error_no_memory(err);
    while (*count < TD_HUB_MOST_COMMITS && commit[0] != '\0' && !was_added(notes, *count, commit)) {
        if (!td_publish_note_read_in(repo, revision, commit, &hub->arena, &notes[*count], &why))
            return why.code == TD_NOT_FOUND || why.code == TD_FAILED_PRECONDITION || td_error_copy(err, &why);
        if (!add_commit(hub, json, &notes[*count], err))
            return false;
        commit = notes[(*count)++].parent;
    }
    return true;
}

bool td_hub_history_add(struct td_hub_call *hub, struct td_document *json, size_t *count, struct td_error *err)
{
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct td_publish *publish = hub->call->api->publish;
    *count = 0;
    if (publish == NULL || hub->view.kind != TD_REVISION_FILES || !td_may_wait(NULL) ||
        !td_publish_name(hub->repo->id, hub->repo->is_dataset_folder, &name, NULL) ||
        !td_publish_repo_look(&publish->disk, &name, &repo, NULL))
        return true;
    bool ok = repo.fd < 0 || repo.is_new || add_commits(hub, &repo, json, count, err);
    td_publish_repo_look_end(&repo);
    return ok;
}
