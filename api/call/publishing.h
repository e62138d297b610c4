/* Publishing, as all facades do it: who may publish, to which repository, and commits and removals that every face of
 * the server shows when their answer comes. */
#ifndef TD_API_CALL_PUBLISHING_H
#define TD_API_CALL_PUBLISHING_H

#include "api/call/call.h"
#include "catalog/publish/publish_commit.h"

/* Checks that the caller may publish to the repository with this id, and sets *name. Touches no disk. Returns false
 * after it answered: as td_access_may_publish; 400 for the id. */
bool td_publishing_begin(const struct td_call *call, struct td_text id, bool is_dataset, struct td_publish_name *name);

/* Does the same for a caller that only asks about the repository: checks that it may see it. Returns false after it
 * answered 400 for the id, or 404. */
bool td_publishing_look(const struct td_call *call, struct td_text id, bool is_dataset, struct td_publish_name *name);

/* Return whether the caller may see the repository with this id, and whether its token may write to it. Answer nothing.
 */
bool td_publishing_may_see(const struct td_call *call, struct td_text id, bool is_dataset);
bool td_publishing_may_write(const struct td_call *call, struct td_text id, bool is_dataset);

/* Answers 404: nothing was published under this id. Returns false. */
bool td_publishing_refuse_absent(const struct td_call *call, struct td_text id);

/* Answers an error of catalog/publish: 507 where there is no room on the disk or in --publish-max-bytes, `precondition`
 * for TD_FAILED_PRECONDITION, 500 for the host's faults. */
void td_publishing_fail(const struct td_call *call, const struct td_error *err, int precondition);

/* Makes the commit in an open repository, which it closes. Sets the order's token and callback. When the commit was
 * made, also as one that is unchanged, waits until the catalog shows it, and writes a line about it to the log. The
 * caller calls td_commit_result_fini in any case. Returns false after it answered: 400, 404 and 409 by the codes of
 * td_publish_commit; 413 for too many files; 503 when the commit was made and cannot be shown; as td_publishing_fail.
 */
bool td_publishing_commit(const struct td_call *call, struct td_publish_repo *repo, struct td_commit_order *order,
                          struct td_commit_result *result);

/* Does the same without an answer. Errors as td_publish_commit; TD_UNAVAILABLE when it cannot be shown. */
bool td_publishing_try(const struct td_call *call, struct td_publish_repo *repo, struct td_commit_order *order,
                       struct td_commit_result *result, struct td_error *err);

/* Removes a repository, and waits until no face shows it. Errors as td_publish_remove; TD_UNAVAILABLE when it cannot be
 * seen whether it is shown. */
bool td_publishing_remove(const struct td_call *call, const struct td_publish_name *name, struct td_error *err);

/* Removes a repository if `may` says so while nobody else changes it, and waits until no face shows it. Sets
 * *is_removed. Errors as td_publishing_remove. */
bool td_publishing_remove_if(const struct td_call *call, const struct td_publish_name *name,
                             bool (*may)(void *context, const struct td_publish_repo *repo), void *context,
                             bool *is_removed, struct td_error *err);

/* Removes a repository whose only revision has no file, and waits until no face shows it; leaves any other. Errors as
 * td_publishing_remove. */
bool td_publishing_remove_empty(const struct td_call *call, const struct td_publish_name *name, struct td_error *err);

/* Waits until every face shows what was changed: `what`, such as "it was moved". Returns false after it answered 503.
 */
bool td_publishing_show(const struct td_call *call, const char *what);

/* Ends the hold on a model whose folder this server has removed: it does not outlive the folder. Call it when the
 * catalog shows the removal. */
void td_publishing_forget(const struct td_call *call, const struct td_publish_name *name);

#endif
