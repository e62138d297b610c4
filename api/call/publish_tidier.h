/* Tidies what is published in the background: everything at the start and then once in a minute; and a repository to
 * which many commits were made, because each of them is a snapshot that every scan walks. Thread-safe, except create
 * and destroy. */
#ifndef TD_API_CALL_PUBLISH_TIDIER_H
#define TD_API_CALL_PUBLISH_TIDIER_H

#include "catalog/publish/publish.h"

struct td_publish_tidier;

/* Starts a thread that tidies. `publish` is borrowed. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_publish_tidier_create(struct td_publish *publish, struct td_publish_tidier **out, struct td_error *err);

/* Stops the thread soon, and waits for its end. NULL: does nothing. */
void td_publish_tidier_destroy(struct td_publish_tidier *tidier);

/* Notes that a revision of the repository moved to another commit. After several of them, it is tidied soon. */
void td_publish_tidier_note(struct td_publish_tidier *tidier, const struct td_publish_name *name);

#endif
