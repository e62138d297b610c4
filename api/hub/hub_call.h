/* The state of a request that the parts of the Hub's facade share: the segments of its path, its parameters and links,
 * and its answers in the Hub's form. Clients quote a revision whole (refs%2Fpr%2F1) or not at all, so the raw path is
 * split first, and its segments are decoded afterwards. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_CALL_H
#define TD_API_HUB_HUB_CALL_H

#include "api/call/call.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/repo_view.h"

enum { TD_HUB_MAX_SEGMENTS = 256 };

/* The segments of a path. In memory one '/' stands between two of them, so joined neighbours are one stretch of text.
 */
struct td_hub_path {
    char *memory; /* of the decoded segments, owned; NULL after td_hub_path_split */
    struct td_text segments[TD_HUB_MAX_SEGMENTS];
    size_t count;
    bool is_folder; /* the path ends in '/' */
};

/* Splits a path without decoding it or allocating memory: the segments point into the raw path. Drops empty segments
 * (// or a '/' at the end). A path of more than TD_HUB_MAX_SEGMENTS has the rest in its last segment. */
void td_hub_path_split(struct td_hub_path *path, struct td_text raw_path);

/* Splits and decodes. Errors: TD_INVALID_ARGUMENT (a bad escape, not UTF-8), TD_RESOURCE_EXHAUSTED. Call
 * td_hub_path_fini in every case. */
bool td_hub_path_parse(struct td_hub_path *path, struct td_text raw_path, struct td_error *err);
void td_hub_path_fini(struct td_hub_path *path);

/* Returns the parsed segments first to end - 1, joined by '/'; borrowed from the path; empty when first >= end. */
struct td_text td_hub_path_join(const struct td_hub_path *path, size_t first, size_t end);

enum {
    TD_HUB_PAGE_ITEMS = 5000,        /* most items of a tree in one answer */
    TD_HUB_PAGE_BYTES = 1024 * 1024, /* a page of a tree ends with the item that crosses this */
    TD_HUB_MOST_SIBLINGS = 50000 /* a description with more files lists none; huggingface_hub then asks for the tree */
};

/* A request with the state of its processing. For one thread. */
struct td_hub_call {
    const struct td_call *call;
    struct td_call *own;          /* what `call` points to, to change its snapshot; NULL while nothing is looked up */
    struct td_snapshot *incoming; /* the snapshot of a model on its way, with a reference; NULL: none */
    struct td_hub_path path;
    struct td_arena arena; /* for the answer */
    bool as_dataset;
    struct td_text id; /* the repository's id, as the client wrote it */
    const struct td_repo *repo;
    struct td_text revision; /* "main" when none was given */
    struct td_text version;  /* the name of the upstream's version that the revision stands for; empty: of none */
    struct td_text below;    /* the path after verb and revision: a path of the tree */
    struct td_repo_view view;
    struct td_reserved reserved; /* memory that grows with the number of files served */
};

/* Writes the Link field that leads to the next page at `target` (path and query). The link is absolute, because clients
 * do not resolve it. Returns false when the request has no plain Host, when the field is too long, and when `target`
 * has failed. */
bool td_hub_next_link(const struct td_hub_call *hub, const struct td_buffer *target, char link[TD_HEADER_VALUE_BYTES]);

/* Adds the Link field, and Vary: X-Forwarded-Proto, because the link's scheme depends on that field and the keys of
 * caches hold the host alone. */
void td_hub_add_link(const struct td_hub_call *hub, const char *link);

/* Returns whether the value of a parameter is "1" or "true" in any case of letters. td_hub_flag looks it up in the
 * query. */
bool td_hub_is_yes(struct td_text value);
bool td_hub_flag(const struct td_hub_call *hub, const char *name);

/* Opens hub->view at hub->revision; hub->view.commit is empty after a failure. Answers nothing. Errors as
 * td_repo_view_open. */
bool td_hub_try_view(struct td_hub_call *hub, struct td_error *err);

/* Answers an error as the Hub does: {"error": text} with X-Error-Code and X-Error-Message, by which clients distinguish
 * errors. code is one of the Hub's (EntryNotFound, RevisionNotFound, RepoNotFound), or NULL. Returns false. */
bool td_hub_fail(const struct td_hub_call *hub, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a td_error, without a code. Returns false. */
bool td_hub_fail_error(const struct td_hub_call *hub, const struct td_error *err);

/* Answers 404: the view has no file at this path. `what` is the message's word for the file, such as "file". Returns
 * false. */
bool td_hub_no_file(const struct td_hub_call *hub, const char *what, struct td_text path);

/* Reads the query parameter cursor, the number (at most 999,999,999) that an earlier page's link gave; 0 when it is
 * missing or empty. Returns false after it answered 400 because it is anything else. */
bool td_hub_cursor(const struct td_hub_call *hub, uint64_t *cursor);

/* Answers 200 with the JSON in the buffer, which it empties, and with the commit of the view when a view is open. The
 * answer takes over the reservation of these bytes. Answers 503 when memory is short. */
void td_hub_answer_json(struct td_hub_call *hub, struct td_buffer *json);

/* Ends the outermost level of a JSON document and answers it, or answers the error; TD_OK: an error was answered
 * already. Frees the builder and its buffer. */
void td_hub_answer_built(struct td_hub_call *hub, bool ok, struct td_document *json, const struct td_error *err);

/* Answers the error of td_hub_try_view; when the revision does not exist, a 404 that names those that do. Returns
 * false. */
bool td_hub_fail_view(const struct td_hub_call *hub, const struct td_error *err);

/* Adds a time, ns since 1970, as "2026-01-02T03:04:05.678Z". */
void td_hub_add_date(struct td_document *json, const char *key, int64_t time_ns);

#endif
