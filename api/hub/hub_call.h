/* The state and the helpers that the parts of the Hub facade share. Private to api/hub/hub*. */
#ifndef TD_API_HUB_HUB_CALL_H
#define TD_API_HUB_HUB_CALL_H

#include "api/call.h"
#include "api/hub/hub_path.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/repo_view.h"

/* HEAD of a file and the lists wait at most this long for digests, 4.5 s: clients give up after 10 s. */
#define TD_HUB_WAIT_NS UINT64_C(4500000000)

/* A list plans rank files for at most this much longer: 2.5 s. */
#define TD_HUB_PLAN_NS UINT64_C(2500000000)

enum {
    TD_HUB_PAGE_ITEMS = 5000,        /* most items of a tree in one answer */
    TD_HUB_PAGE_BYTES = 1024 * 1024, /* a page of a tree ends with the item that crosses this */
    TD_HUB_MOST_ERRORS = 20,         /* most errors in the list of a repository; each file also has its own error */
    TD_HUB_MOST_SIBLINGS = 50000 /* a description with more files lists none; huggingface_hub then asks for the tree */
};

/* The tag of repositories with files that are not what their names say. */
#define TD_HUB_UNREADABLE_TAG "unreadable-files"

/* A request with the state of its processing. For one thread. */
struct td_hub_call {
    const struct td_call *call;
    struct td_hub_path path;
    struct td_arena arena; /* for the answer */
    bool as_dataset;
    struct td_text id; /* the repository's id, as the client wrote it */
    const struct td_repo *repo;
    struct td_text revision; /* "main" when none was given */
    struct td_text below;    /* the path after verb and revision: a path of the tree */
    struct td_repo_view view;
    struct td_reserved reserved; /* memory that grows with the number of files served */
};

/* Answers an error as the Hub does: {"error": text} with X-Error-Code and X-Error-Message, by which clients tell errors
 * apart. code is one of the Hub's (EntryNotFound, RevisionNotFound, RepoNotFound), or NULL. Returns false. */
bool td_hub_fail(const struct td_hub_call *hub, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a td_error, without a code. Returns false. */
bool td_hub_fail_error(const struct td_hub_call *hub, const struct td_error *err);

/* Answers 404: the repository has no hub->revision; the message names the revisions that it has. Returns false. */
bool td_hub_no_revision(const struct td_hub_call *hub);

/* Answers 404: the view has no file at this path. `what` is the message's word for the file, such as "file". Returns
 * false. */
bool td_hub_no_file(const struct td_hub_call *hub, const char *what, struct td_text path);

/* Answers 200 with the JSON in the buffer, which it empties, and with the commit of the view when a view is open. The
 * answer takes over the reservation of these bytes. Answers 503 when memory is short. */
void td_hub_answer_json(struct td_hub_call *hub, struct td_buffer *json);

/* Writes the Link field that leads to the next page at `target` (path and query). The link is absolute, because clients
 * do not resolve it. Returns false when the request has no plain Host, when the field is too long, and when `target`
 * has failed. */
bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES]);

/* Adds the Link field, and Vary: X-Forwarded-Proto, because the link's scheme depends on that field and the keys of
 * caches hold the host alone. */
void td_hub_add_link(const struct td_hub_call *hub, const char *link);

/* Returns the decimal number in a query parameter, at most 999,999,999; `fallback` when the parameter is missing or not
 * such a number. */
uint64_t td_hub_number(const struct td_hub_call *hub, const char *name, uint64_t fallback);

/* Returns whether a query parameter is "1" or "true" in any case of letters. */
bool td_hub_flag(const struct td_hub_call *hub, const char *name);

/* Opens hub->view at hub->revision. Returns false after answering an error. */
bool td_hub_open_view(struct td_hub_call *hub);

/* An item as Git and Git LFS would name its content. */
struct td_hub_blob {
    uint64_t size_bytes;
    char oid[TD_COMMIT_BYTES];         /* Git's name of the LFS pointer; of the item's tag, without a SHA-256 */
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: not known */
    size_t pointer_bytes;              /* length of the LFS pointer; 0 without a SHA-256 */
};

/* Describes the content of an item. Waits until until_ns (monotonic) for the digest of a file on disk. Errors as
 * td_repo_item_stat; TD_RESOURCE_EXHAUSTED for a rank file when until_ns is more than TD_HUB_PLAN_NS ago. */
bool td_hub_blob_of(const struct td_hub_call *hub, const struct td_repo_item *item, uint64_t until_ns,
                    struct td_hub_blob *blob, struct td_error *err);

/* Returns the reason why a file on disk is not what its name says; "" for a good file and for a rank file. Borrowed
 * from the snapshot. */
const char *td_hub_error_of(const struct td_repo_item *item);

/* Adds the member "error" to an object; adds nothing when `error` is "". Clients of the Hub ignore members that they do
 * not know. */
void td_hub_add_error(struct td_json_builder *json, const char *error);

/* Adds a time, ns since 1970, as "2026-01-02T03:04:05.678Z". */
void td_hub_add_date(struct td_json_builder *json, const char *key, int64_t time_ns);

/* Lists all items of the view, sorted by path, in hub->arena, and reserves their memory. Errors as td_repo_view_list
 * and td_reserved_take. */
bool td_hub_list_items(struct td_hub_call *hub, struct td_repo_item **items, size_t *count, struct td_error *err);

/* Returns the namespace of an id: the text before its '/'; "local" when the id has no '/'. */
struct td_text td_hub_author_of(const char *id);

/* Opens the object of a repository, for the caller to end, and adds the members that lists and descriptions share: from
 * "_id" to "usedStorage". The id does not depend on the name by which the client asked for the repository. Errors as
 * td_reserved_take. */
bool td_hub_begin_repo(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo *repo,
                       const char *commit, struct td_error *err);

/* Adds "errors":[{"file","error"}...]: at most TD_HUB_MOST_ERRORS files of the view that are not what their names say,
 * and sets of files that are not whole. Adds nothing when there are none. Errors as td_reserved_take. */
bool td_hub_add_errors(struct td_hub_call *hub, struct td_json_builder *json, const struct td_repo_view *view,
                       struct td_error *err);

/* The handlers. Each fills the response with the whole answer, or with an error. */
void td_hub_answer_list(struct td_hub_call *hub);       /* /api/models, /api/datasets */
void td_hub_answer_info(struct td_hub_call *hub);       /* /api/models/{id}[/revision/{revision}] */
void td_hub_answer_refs(struct td_hub_call *hub);       /* .../refs */
void td_hub_answer_commits(struct td_hub_call *hub);    /* .../commits/{revision} */
void td_hub_answer_tree(struct td_hub_call *hub);       /* .../tree/{revision}/{path} */
void td_hub_answer_paths_info(struct td_hub_call *hub); /* .../paths-info/{revision} */

#endif
