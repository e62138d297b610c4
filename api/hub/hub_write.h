/* A request that changes a repository by the Hub's interface: what its handlers share. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_WRITE_H
#define TD_API_HUB_HUB_WRITE_H

#include "api/call/publishing.h"
#include "api/hub/hub_call.h"
#include "core/json/json_document.h"
#include "core/message/document.h"

#include <stdbool.h>

/* For one thread. */
struct td_hub_write {
    struct td_hub_call hub;      /* id, as_dataset, and `revision`: the path after the verb, decoded */
    struct td_publish_name name; /* after td_hub_write_begin */
};

/* Checks that the caller may publish to hub.id, and sets the name. Takes the default namespace off the id: "local/demo"
 * is "demo". Returns false after it answered, as td_publishing_begin. */
bool td_hub_write_begin(struct td_hub_write *write);

/* Opens the repository, which must have been created; the caller closes it. Returns false after it answered: 404 with
 * RepoNotFound; 409 for a directory of the operator; as td_publishing_fail. */
bool td_hub_write_open(struct td_hub_write *write, struct td_publish_repo *repo);

/* Opens the repository for a request that changes nothing, and so waits for no commit; the caller calls
 * td_publish_repo_look_end. Returns false after it answered, as td_hub_write_open. */
bool td_hub_write_look(struct td_hub_write *write, struct td_publish_repo *repo);

/* Checks that the repository was created; leaves it closed. Returns false after it answered, as td_hub_write_look. */
bool td_hub_write_has_repo(struct td_hub_write *write);

/* Returns whether the open repository has a revision main. Until then main counts as there and empty, as a new
 * repository on the Hub is, and a commit may make any revision: clients make a branch of main before they commit. */
bool td_hub_write_has_main(const struct td_publish_repo *repo);

/* Sets commit to that of a revision to which the client wants to commit; to an empty text when the commit makes the
 * revision. Returns false after it answered 404 with RevisionNotFound, but leaves the repository open. */
bool td_hub_write_resolve(struct td_hub_write *write, const struct td_publish_repo *repo, const char *revision,
                          char commit[TD_COMMIT_BYTES]);

/* Returns a NUL-terminated copy in hub.arena, or NULL after it answered 400 for a text with a NUL, or 503. */
const char *td_hub_write_copy(struct td_hub_write *write, struct td_text text);

/* A JSON object that the request's body is. */
struct td_hub_body {
    struct td_json_document document;
    const cJSON *root;
    struct td_error err;
};

/* Reads the body; an empty one is {}. Ignores members that nobody asks for. The tree lives in hub.arena. Returns false
 * after it answered 400 or 413. */
bool td_hub_write_read(struct td_hub_write *write, struct td_hub_body *body);

/* Returns the text of a member of an object in the body, `otherwise` if there is no such member or it is null, or NULL
 * after it answered 400 for a member of another type. */
const char *td_hub_write_string(struct td_hub_write *write, struct td_hub_body *body, const cJSON *object,
                                const char *name, const char *otherwise);

/* Answers 400 for the fault in body->err. Returns false. */
bool td_hub_write_refuse(struct td_hub_write *write, const struct td_hub_body *body);

/* Appends the absolute URL of the repository, as clients know it: "http://host/org/name". The caller checks
 * out->failed. */
void td_hub_write_url(const struct td_hub_write *write, struct td_buffer *out);

/* Answers with this JSON text, without the newline at its end. */
void td_hub_write_answer_text(struct td_hub_write *write, const char *json);

/* Answers with the JSON in the buffer, or 503 when it has failed, and frees it. */
void td_hub_write_answer(struct td_hub_write *write, struct td_buffer *json);

#endif
