/* Manifests as flat text, for tests of the manifest view. */
#ifndef TD_TESTS_UNIT_API_VIEW_TEXT_H
#define TD_TESTS_UNIT_API_VIEW_TEXT_H

#include "api/native/manifest_view.h"
#include "core/text.h"
#include "tests/kit/scanner.h"
#include "tests/unit/unit.h"

struct view_options {
    const char *match, *dtype; /* NULL: none */
    size_t page_size;
    const char *after; /* NULL: the first page */
};

static inline struct td_blob *view_create(struct td_lru *cache, struct td_snapshot *snapshot,
                                          const struct td_model *model, const struct td_checkpoint *checkpoint,
                                          const struct view_options *options)
{
    struct td_manifest_query query = {.page_size = options->page_size, .page_first = options->after == NULL};
    struct td_text match = {.p = options->match, .len = options->match == NULL ? 0 : strlen(options->match)};
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    if (options->match != NULL)
        query.match = &match;
    if (options->dtype != NULL)
        query.dtype = td_dtype_find(td_text_of(options->dtype));
    if (options->after != NULL)
        query.after = td_text_of(options->after);
    query.listing = TD_TEXT("listing");
    CHECK(td_manifest_view_create(cache, snapshot, model, checkpoint, &query, &blob, &err), "%s", err.message);
    return blob;
}

/* Returns the whole text, NUL-terminated, which the caller frees. Drops the reference to the blob. */
static inline char *view_flatten(struct td_blob *blob)
{
    struct td_error err = TD_ERROR_INIT;
    char *text = malloc((size_t)blob->len_bytes + 1);
    assert_non_null(text);
    assert_true(td_blob_read(blob, 0, text, (size_t)blob->len_bytes, &err));
    text[blob->len_bytes] = '\0';
    td_blob_unref(blob);
    return text;
}

#endif
