/* Commits of published repositories, and the answers about them. */
#include "api/call/publish_sink.h"
#include "api/call/publishing.h"
#include "api/native/commit_answer.h"
#include "api/native/commit_text.h"
#include "api/native/publish_handlers.h"
#include "catalog/publish/publish_notes.h"
#include "catalog/publish/publish_refs.h"
#include "core/clock.h"
#include "core/digits.h"
#include "http/reservation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- POST ---------------------------------------------------------------------------------------------- */

static bool refuse_long(const struct td_call *call)
{
    td_response_fail(call->response, 413, NULL, "the body of a commit has at most %d bytes", TD_COMMIT_TEXT_BYTES);
    return false;
}

struct td_body_sink *td_begin_commit(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    uint64_t bytes = call->request->body_bytes;
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name) ||
        (bytes != TD_BODY_LENGTH_UNKNOWN && bytes > TD_COMMIT_TEXT_BYTES && !refuse_long(call)))
        return NULL;
    if (!td_publish_check_name(&call->api->publish->disk, &name, &err)) {
        td_publishing_fail(call, &err, 500);
        return NULL;
    }
    return td_publish_sink_text(call, TD_COMMIT_TEXT_BYTES);
}

/* Answers 409 with the blobs that are not here. */
static void answer_missing(const struct td_call *call, const struct td_publish_name *name,
                           const struct td_commit_order *order, const struct td_commit_result *result)
{
    enum { MOST_LOOKED_UP = 100 }; /* each is looked up on the disk */
    struct td_buffer details;
    struct td_document json;
    td_buffer_init(&details);
    td_document_init(&json, &details);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "missing");
    for (size_t i = 0; i < result->missing_count; i++) {
        const struct td_commit_file *file = &order->files[result->missing[i]];
        struct td_publish_blob blob;
        char digest[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
        td_hex_write(file->sha256, TD_SHA256_BYTES, digest + sizeof "sha256:" - 1);
        td_document_begin_object(&json, NULL);
        td_document_add_string(&json, "digest", digest);
        if (i < MOST_LOOKED_UP && td_publish_find_blob(call->api->publish, name, file->sha256, &blob, NULL)) {
            if (!blob.is_complete)
                td_commit_answer_add_missing(&json, &blob);
            td_publish_blob_fini(&blob);
        }
        td_document_end(&json);
    }
    td_document_end(&json);
    td_document_end(&json);
    const char *text = td_buffer_terminate(&details);
    if (text == NULL)
        (void)td_call_no_memory(call);
    else
        td_response_fail(call->response, 409, text,
                         "%zu blob%s not here (details.missing): send %s, then send the same commit again",
                         result->missing_count, result->missing_count == 1 ? " is" : "s are",
                         result->missing_count == 1 ? "it" : "them");
    td_buffer_fini(&details);
}

/* Makes the commit that was ordered, or checks it for a dry run. */
static void commit(const struct td_call *call, const struct td_publish_path *path, const struct td_publish_name *name,
                   struct td_commit_order *order)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    struct td_commit_result result = {.missing = NULL};
    if (!td_publish_repo_open(&call->api->publish->disk, name, true, &repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return;
    }
    if (td_publishing_commit(call, &repo, order, &result)) {
        if (result.verdict == TD_COMMIT_LACKS_BLOBS)
            answer_missing(call, name, order, &result);
        else if (result.verdict == TD_COMMIT_WRONG_PARENT)
            td_commit_answer_parent(call, order->revision, result.parent);
        else
            td_commit_answer(call, path->id, order, &result,
                             result.verdict == TD_COMMIT_MOVED && !order->is_dry_run ? 201 : 200);
    }
    td_commit_result_fini(&result);
}

void td_end_commit(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    struct td_commit_text text;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    if (!td_publishing_begin(call, path->id, path->is_dataset, &name)) /* the token may have been revoked */
        return;
    if (!call->request->is_whole) {
        td_publishing_fail(call, &sink->err, 413);
        return;
    }
    if (td_commit_text_read(td_buffer_text(&sink->text), &text, &err))
        commit(call, path, &name, &text.order);
    else if (text.is_too_large)
        td_publishing_fail(call, &err, 413);
    else
        td_call_fail_json(call, &err);
    td_commit_text_fini(&text);
}

/* ---- GET ----------------------------------------------------------------------------------------------- */

struct listing {
    struct td_reserved reserved;
    struct td_document json;
    struct td_error *err;
};

static bool add_ref(void *context, const char *name, const char *commit)
{
    struct listing *listing = context;
    if (!td_reserved_json_room(&listing->reserved, &listing->json, strlen(name) + TD_COMMIT_BYTES, listing->err))
        return false;
    td_document_add_string(&listing->json, name, commit);
    return true;
}

static bool add_commit(struct listing *listing, const struct td_commit_note *note)
{
    struct td_document *json = &listing->json;
    char time[40];
    size_t bytes = strlen(note->message) + strlen(note->token) + 200;
    if (!td_reserved_json_room(&listing->reserved, json, bytes, listing->err))
        return false;
    (void)td_wall_rfc3339((struct td_wall){.seconds = note->time_s, .nanoseconds = note->time_ns}, time, sizeof time);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "commit", note->commit);
    td_document_add_string(json, "parent", note->parent);
    td_document_add_string(json, "message", note->message);
    td_document_add_string(json, "time", time);
    if (note->token[0] != '\0')
        td_document_add_string(json, "token", note->token);
    td_document_end(json);
    return true;
}

/* Writes the revisions and commits of a repository, to which others may commit at the same time. */
static bool list(struct listing *listing, const struct td_publish_repo *repo, struct td_text id)
{
    struct td_arena arena;
    struct td_commit_note *notes = NULL;
    size_t count = 0;
    struct td_document *json = &listing->json;
    td_arena_init(&arena, 0);
    td_document_begin_object(json, NULL);
    td_document_add_text(json, "model", id);
    td_document_begin_object(json, "refs");
    bool ok = td_publish_each_ref(repo, add_ref, listing) ||
              td_error_set(listing->err, TD_IO, "the revisions of \"%s\" cannot be read", repo->name.path);
    td_document_end(json);
    td_document_begin_array(json, "commits");
    ok = ok && td_publish_list_commits(repo, &arena, &notes, &count, listing->err);
    for (size_t i = 0; ok && i < count; i++)
        ok = add_commit(listing, &notes[i]);
    td_document_end(json);
    td_document_end(json);
    free(notes);
    td_arena_fini(&arena);
    return ok;
}

void td_handle_commits(struct td_call *call, const struct td_publish_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct td_buffer json;
    struct listing listing = {.reserved = {.budget = td_shared_budget_of(&call->api->lists, td_call_client(call))},
                              .err = &err};
    if (!td_publishing_look(call, path->id, path->is_dataset, &name))
        return;
    if (!td_publish_repo_look(&call->api->publish->disk, &name, &repo, &err)) {
        td_publishing_fail(call, &err, 500);
        return;
    }
    td_buffer_init(&json);
    td_document_init(&listing.json, &json);
    bool ok = (repo.fd >= 0 && !repo.is_new) || td_publishing_refuse_absent(call, path->id);
    if (ok) {
        ok = list(&listing, &repo, path->id);
        td_buffer_putc(&json, '\n');
        ok = ok && td_reserved_answer_json(&listing.reserved, &json, call->response, &err);
        if (!ok)
            td_publishing_fail(call, &err, 500);
    }
    td_publish_repo_look_end(&repo);
    td_buffer_fini(&json);
    td_reserved_release(&listing.reserved);
}
