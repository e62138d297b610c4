/* The body of POST commits: JSON that orders a commit. */
#ifndef TD_API_NATIVE_COMMIT_TEXT_H
#define TD_API_NATIVE_COMMIT_TEXT_H

#include "catalog/publish/commit_list.h"

/* The most bytes of a commit's body. */
enum { TD_COMMIT_TEXT_BYTES = 64 * 1024 * 1024 };

/* The order, with what it borrows. */
struct td_commit_text {
    struct td_commit_order order; /* borrows from what follows */
    struct td_arena arena;
    struct td_commit_file *files;
    const char **deletions;
    size_t file_capacity, deletion_capacity;
    bool is_too_large; /* of a failure: too many files or deletions */
};

/* Reads the text. Takes memory for about twice its bytes. Call td_commit_text_fini in any case. Errors:
 * TD_INVALID_ARGUMENT, with the position where there is one; TD_FAILED_PRECONDITION with is_too_large;
 * TD_RESOURCE_EXHAUSTED. */
bool td_commit_text_read(struct td_text text, struct td_commit_text *out, struct td_error *err);

void td_commit_text_fini(struct td_commit_text *text);

#endif
