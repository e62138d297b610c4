/* Names of models that are not there as they were asked for: what they mean, and what to say of them. */
#ifndef TD_API_FIND_NAME_H
#define TD_API_FIND_NAME_H

#include "api/call.h"
#include "catalog/repo.h"

enum { TD_NAME_ADVICE_BYTES = 1024 };

/* Writes a clause about a model's id that is not there: models that are below it, or where its files are. Begins with
 * "; ", or is empty. TD_NAME_ADVICE_BYTES suffice. */
void td_name_advise(const struct td_snapshot *snapshot, struct td_text id, char out[TD_NAME_ADVICE_BYTES]);

/* Writes a clause about a repository's id that is not there, or longer than ids are: of which repository it is a
 * folder. Ends with "; ", or is empty. */
void td_name_advise_repo(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                         char out[TD_NAME_ADVICE_BYTES]);

/* The page of a path that is a name as on the Hub's site: /org/name, /datasets/org/name. */
struct td_named_page {
    const struct td_model *model; /* or NULL */
    const struct td_repo *repo;   /* the repository, when there is no model of that name */
    bool as_dataset;
};

/* Finds what a path names. False when it names nothing. */
bool td_name_find_page(const struct td_snapshot *snapshot, struct td_text path, struct td_named_page *out);

#endif
