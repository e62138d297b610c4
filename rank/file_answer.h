/* Files as answers, the same for every facade. */
#ifndef TD_RANK_FILE_ANSWER_H
#define TD_RANK_FILE_ANSWER_H

#include "catalog/catalog.h"
#include "http/response.h"
#include "rank/rank_store.h"

/* Sets TD_CONFLICT for a file that is a Git LFS pointer: what to do about it. Returns false. */
bool td_lfs_pointer_refuse(const struct td_entry *entry, struct td_error *err);

/* Notes that the response answers bytes of the snapshot's file at this path, or of the model with this id: as its
 * subject, and if the request asks for a body, as td_removed_note_read, whose errors it has. */
bool td_note_read(struct td_catalog *catalog, const struct td_snapshot *snapshot, const char *path,
                  struct td_response *response, struct td_error *err);

/* Fills the response with a whole 200 answer of the file: body, type, validators, Last-Modified. Errors: TD_CONFLICT
 * for a Git LFS pointer; as td_note_read; as td_file_source_map; then the caller must fail the response. */
bool td_file_answer(struct td_catalog *catalog, const struct td_snapshot *snapshot, const struct td_entry *entry,
                    struct td_response *response, struct td_error *err);

/* Does the same for a rank's file and its tag, both from td_rank_store_get; sets no Last-Modified. The answer takes a
 * reference of its own on the file. Errors as td_rank_file_append; TD_RESOURCE_EXHAUSTED. */
bool td_rank_file_answer(const struct td_rank_store *store, const struct td_rank_set *set, uint64_t rank,
                         struct td_rank_file *file, const char *tag, struct td_response *response,
                         struct td_error *err);

#endif
