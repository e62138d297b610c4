/* The names under which an answer shows a model: its own id; or, when ?version= has chosen the model among the versions
 * of a family (catalog/names/family.h), the id of the family and the name of the version. */
#ifndef TD_API_CALL_SHOWN_MODEL_H
#define TD_API_CALL_SHOWN_MODEL_H

#include "api/call/call.h"
#include "core/buffer.h"
#include "core/message/document.h"

/* Borrowed from the snapshot. */
struct td_shown_model {
    const char *id;
    const char *version; /* NULL: no version was asked for */
};

/* Returns the names for a model in the answer to the call. */
struct td_shown_model td_shown_model_of(const struct td_call *call, const struct td_model *model);

/* Adds the members "model" and, if there is one, "version" to a JSON object. */
void td_shown_model_add(const struct td_call *call, const struct td_model *model, struct td_document *json);

/* Appends the path of an answer about the model, percent-encoded and without its query: /models/{id}/{below}. */
void td_shown_model_write_path(const struct td_shown_model *shown, const char *below, struct td_buffer *out);

/* Appends the query that leads to the version, after `separator`: "?version=step-12". Returns the separator for the
 * next parameter of the query. Appends nothing, and returns `separator`, without a version. */
const char *td_shown_model_write_query(const struct td_shown_model *shown, const char *separator,
                                       struct td_buffer *out);

/* Adds X-Tensord-Version: the name of a version, percent-encoded. */
void td_shown_model_add_version(struct td_response *response, const char *version);

/* Writes the tag of an answer that shows the names, made of a tag of its content. It is that tag, unless a ref names
 * the version, since such a name may change while the content stays. Returns false after it answered an error. */
bool td_shown_model_tag(const struct td_call *call, const char *tag, char out[TD_TAG_BYTES]);

/* Writes a key that differs for any two of the names and of the tags: the tag itself without a version. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_shown_model_key(const struct td_shown_model *shown, const char *tag, char out[TD_TAG_BYTES],
                        struct td_error *err);

#endif
