/* Advice for error messages about unknown names: finds the models and repositories that a name may mean. */
#ifndef TD_API_CALL_FIND_NAME_H
#define TD_API_CALL_FIND_NAME_H

#include "api/call/call.h"
#include "catalog/names/repo.h"

/* Enough bytes for every advice. */
enum { TD_NAME_ADVICE_BYTES = 1024 };

/* Writes advice about a missing model: at most 3 models below its id, or the repository of that name. The text begins
 * with "; ", or is empty. */
void td_name_advise(const struct td_snapshot *snapshot, struct td_text id, char out[TD_NAME_ADVICE_BYTES]);

/* Writes advice about a missing repository, or about an id that is too long: the repository that has a folder of this
 * path, or an id that differs in the case of letters alone. The text ends with "; ", or is empty. */
void td_name_advise_repo(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                         char out[TD_NAME_ADVICE_BYTES]);

/* The model or repository that a path in the form of the Hub's site names: /org/name, /datasets/org/name. Borrowed from
 * the snapshot. */
struct td_named_page {
    const struct td_model *model; /* NULL when no model has that name */
    const struct td_repo *repo;   /* the repository, if no model has this name */
    bool as_dataset;              /* the repository was named as a dataset */
};

/* Finds the model or repository that the path (decoded, with or without a '/' at its ends) names. Returns false when it
 * names nothing. */
bool td_name_find_page(const struct td_snapshot *snapshot, struct td_text path, struct td_named_page *out);

#endif
