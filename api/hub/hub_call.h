/* What the parts of the Hub facade share. Private to api/hub/hub*. */
#ifndef TD_API_HUB_HUB_CALL_H
#define TD_API_HUB_HUB_CALL_H

#include "api/call.h"
#include "api/hub/hub_path.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/repo_view.h"

/* HEAD of a file and the lists wait at most so long for digests: clients give up after ten seconds. */
#define TD_HUB_WAIT_NS UINT64_C(4500000000)

/* So much longer files that are made are planned for a list. */
#define TD_HUB_PLAN_NS UINT64_C(2500000000)

enum {
    TD_HUB_PAGE_ITEMS = 5000, /* of a tree are in one answer, and no more begin past so many bytes: */
    TD_HUB_PAGE_BYTES = 1024 * 1024,
    TD_HUB_MOST_ERRORS = 20,     /* of a repository are told; each file's stands beside it as well */
    TD_HUB_MOST_SIBLINGS = 50000 /* a description leaves more out; huggingface_hub asks for the tree then */
};

/* The tag of repositories with files that are not what their names say. */
#define TD_HUB_UNREADABLE_TAG "unreadable-files"

/* A request while it is answered. */
struct td_hub_call {
    const struct td_call *call;
    struct td_hub_path path;
    struct td_arena arena; /* for the answer */
    bool as_dataset;
    struct td_text id; /* of the repository, as it was asked for */
    const struct td_repo *repo;
    struct td_text revision; /* "main" when none was given */
    struct td_text below;    /* what follows verb and revision: a path of the tree */
    struct td_repo_view view;
    struct td_reserved reserved; /* memory that grows with what is served */
};

/* Answers an error as the Hub does: {"error": text} with X-Error-Code and X-Error-Message, by which clients tell errors
 * apart. code is one of theirs (EntryNotFound, RevisionNotFound, RepoNotFound), or NULL. Always false. */
bool td_hub_fail(const struct td_hub_call *hub, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for an error of ours. Always false. */
bool td_hub_fail_error(const struct td_hub_call *hub, const struct td_error *err);

/* Answers that hub->revision is not there, and what would be right. Always false. */
bool td_hub_no_revision(const struct td_hub_call *hub);

/* Answers that there is no file (or `what` it should be) at this path of the view. Always false. */
bool td_hub_no_file(const struct td_hub_call *hub, const char *what, struct td_text path);

/* Makes the buffer (emptied) the JSON that is answered, with the commit of the view when one is open. What was reserved
 * for a large one becomes the answer's. 503 when memory is short. */
void td_hub_answer_json(struct td_hub_call *hub, struct td_buffer *json);

/* Writes the Link field that leads to the next page at `target` (path and query), absolute because clients ask for it
 * as it stands. False when the request does not say where we are, or the field is too long. */
bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES]);

/* Adds that field, and tells caches which field it is made of: their keys have the host, but not the scheme. */
void td_hub_add_link(const struct td_hub_call *hub, const char *link);

/* A decimal number in a parameter; fallback when there is none. */
uint64_t td_hub_number(const struct td_hub_call *hub, const char *name, uint64_t fallback);

/* Whether a parameter is there and says yes: "true", "True", "1". */
bool td_hub_flag(const struct td_hub_call *hub, const char *name);

/* Opens hub->view at hub->revision. False: an error was answered. */
bool td_hub_open_view(struct td_hub_call *hub);

/* What stands for the content of an item: with digests, as a file in Git's large file storage. Waits until until_ns
 * (monotonic) for a digest. Errors as td_repo_item_stat; TD_RESOURCE_EXHAUSTED for a file that is made when
 * TD_HUB_PLAN_NS more have passed. */
struct td_hub_blob {
    uint64_t size_bytes;
    char oid[TD_COMMIT_BYTES];         /* Git's name of the pointer to it; made up when the digest is not known */
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: not known */
    size_t pointer_bytes;
};
bool td_hub_blob_of(const struct td_hub_call *hub, const struct td_repo_item *item, uint64_t until_ns,
                    struct td_hub_blob *blob, struct td_error *err);

/* Why an item that is a file is not what its name says; "" for a good one. */
const char *td_hub_error_of(const struct td_repo_item *item);

/* Adds "error" to an object; nothing for "". Clients of the Hub ignore members that they do not know. */
void td_hub_add_error(struct td_json_builder *json, const char *error);

/* Adds a time like "2026-01-02T03:04:05.678Z". */
void td_hub_add_date(struct td_json_builder *json, const char *key, int64_t time_ns);

/* All items of the view by path, reserved. Errors as td_repo_view_list and td_reserved_take. */
bool td_hub_list_items(struct td_hub_call *hub, struct td_repo_item **items, size_t *count, struct td_error *err);

/* Returns the namespace of an id: what is before its '/', else `local`. */
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

/* Answers. */
void td_hub_answer_list(struct td_hub_call *hub);       /* /api/models, /api/datasets */
void td_hub_answer_info(struct td_hub_call *hub);       /* /api/models/{id}[/revision/{revision}] */
void td_hub_answer_refs(struct td_hub_call *hub);       /* .../refs */
void td_hub_answer_commits(struct td_hub_call *hub);    /* .../commits/{revision} */
void td_hub_answer_tree(struct td_hub_call *hub);       /* .../tree/{revision}/{path} */
void td_hub_answer_paths_info(struct td_hub_call *hub); /* .../paths-info/{revision} */

#endif
