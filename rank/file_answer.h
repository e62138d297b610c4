/* Files as answers, the same for every facade. */
#ifndef TD_RANK_FILE_ANSWER_H
#define TD_RANK_FILE_ANSWER_H

#include "catalog/catalog.h"
#include "http/response.h"
#include "rank/rank_store.h"

/* By extension; nothing that a browser would run as a page of ours. Static. */
const char *td_content_type_of(const char *path);

/* Makes the whole file a 200 answer: body, type, validators, Last-Modified. Errors as td_file_source_map. */
bool td_file_answer(struct td_catalog *catalog, const struct td_snapshot *snapshot, const struct td_entry *entry,
                    struct td_response *response, struct td_error *err);

/* The same for a rank's file, which td_rank_store_get gave with its tag. Errors as td_rank_file_append. */
bool td_rank_file_answer(const struct td_rank_store *store, const struct td_rank_set *want, uint64_t rank,
                         struct td_rank_file *file, const char *tag, struct td_response *response,
                         struct td_error *err);

#endif
