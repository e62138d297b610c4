/* Answers in the Hub's form: errors, and JSON. Private to api/hub/. */
#ifndef TD_API_HUB_HUB_ANSWER_H
#define TD_API_HUB_HUB_ANSWER_H

#include "api/hub/hub_call.h"

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

/* Answers the error of td_hub_try_view; when the revision does not exist, a 404 that names those that do. Returns
 * false. */
bool td_hub_fail_view(const struct td_hub_call *hub, const struct td_error *err);

/* Opens hub->view at hub->revision. Returns false after answering an error. */
bool td_hub_open_view(struct td_hub_call *hub);

/* Adds a time, ns since 1970, as "2026-01-02T03:04:05.678Z". */
void td_hub_add_date(struct td_json_builder *json, const char *key, int64_t time_ns);

#endif
