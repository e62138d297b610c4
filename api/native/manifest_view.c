#include "api/native/manifest_view.h"

#include "api/call/tensor_text.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/buffer.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/glob.h"
#include "core/json/json.h"
#include "http/page_token.h"
#include "http/rendered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text of at most this length is kept until it is sent. A longer text is rendered twice: measured, then sent. */
enum { KEPT_BYTES = 256 * 1024 };

/* A manifest names at most this many missing files: the names of a group can claim 99,999. */
enum { MISSING_FILES_MAX = 1000 };

/* The ends of pages in tokens. A token has to fit into a request's header. So the end at a long name has three parts:
 * the name's first NAME_BYTES bytes; as 16 hexadecimal digits, the number of tensors between the first name that begins
 * with these bytes and this one; and the tag of the whole name. No other end has that length. */
enum { NAME_BYTES = 1024, NUMBER_DIGITS = 16, LONG_END_BYTES = NAME_BYTES + NUMBER_DIGITS + TD_TAG_BYTES - 1 };

/* A manifest that is rendered. */
struct view {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    struct td_shown_model shown;
    const struct td_checkpoint *checkpoint;
    struct td_document_kind kind;
    char *match; /* a copy of the glob; NULL: all names match */
    size_t match_len;
    const struct td_dtype *dtype; /* NULL: all types match */
    struct td_text listing;       /* borrowed; for write_tail, which runs while the view is created */
    bool has_sums;                /* the rows show digests */
    struct td_tensor_sums sums;   /* with has_sums: of the rows that are shown, in their order */
};

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Adds the place of each box of a tensor that is stored in several pieces. */
static void add_pieces(struct td_document *json, const struct td_model *model, const struct td_checkpoint *checkpoint,
                       const struct td_tensor *tensor)
{
    td_document_begin_array(json, "pieces");
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        const struct td_piece *piece = &tensor->pieces[i];
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "file", td_model_relative(model, checkpoint->parts[piece->part]));
        td_document_add_u64(json, "offset", piece->offset);
        td_tensor_add_numbers(json, "start", piece->starts, tensor->rank);
        td_tensor_add_numbers(json, "shape", piece->sizes, tensor->rank);
        td_document_end(json);
    }
    td_document_end(json);
}

/* Adds how the bytes are answered if they differ from the bytes in the file. Such a tensor has no offset, because
 * clients would read the wrong bytes there. */
static void add_access(struct td_document *json, const struct td_tensor *tensor)
{
    enum td_access access = td_tensor_access(tensor);
    if (access == TD_ACCESS_NONE) {
        td_document_add_bool(json, "addressable", false);
        td_document_add_string(json, "reason", tensor->reason);
        return;
    }
    const char *stored = td_tensor_stored(tensor);
    if (stored == NULL && tensor->piece_count == 0)
        td_document_add_u64(json, "offset", tensor->offset);
    if (access != TD_ACCESS_DIRECT)
        td_document_add_string(json, "access", td_access_name(access));
    if (stored != NULL)
        td_document_add_string(json, "stored", stored);
}

/* Adds a tensor's row; sum NULL: without a digest. */
static void add_tensor(struct td_document *json, const struct view *view, struct td_tensor_ref ref,
                       const struct td_tensor_sum *sum)
{
    const struct td_model *model = view->model;
    const struct td_checkpoint *checkpoint = view->checkpoint;
    const struct td_tensor *tensor = ref.tensor;
    td_document_begin_object(json, NULL);
    td_tensor_add_facts(json, &(struct td_tensor_facts){.name = td_tensor_name(tensor),
                                                        .dtype = tensor->dtype,
                                                        .shape = tensor->shape,
                                                        .rank = tensor->rank,
                                                        .nbytes = tensor->nbytes});
    td_document_add_string(json, "file", td_model_relative(model, checkpoint->parts[ref.part]));
    if (tensor->piece_count > 0)
        add_pieces(json, model, checkpoint, tensor);
    add_access(json, tensor);
    if (tensor->strides != NULL)
        td_tensor_add_numbers(json, "strides", tensor->strides, tensor->rank);
    if (tensor->alias_of != NULL)
        td_document_add_string(json, "alias_of", tensor->alias_of);
    if (sum != NULL && sum->has_bytes)
        td_tensor_add_sha256(json, sum->sum);
    if (td_document_begin_text(json, "href")) {
        (void)td_tensor_write_path(json->out, TD_TENSOR_BYTES, &view->shown, model, checkpoint,
                                   tensor); /* percent-encoded: nothing to escape */
        td_document_end_text(json);
    }
    td_document_end(json);
}

static bool is_filtered(const struct view *view)
{
    return view->match != NULL || view->dtype != NULL;
}

static bool is_shown(const struct view *view, const struct td_tensor *tensor)
{
    if (view->dtype != NULL && tensor->dtype != view->dtype)
        return false;
    return view->match == NULL || td_glob_match(td_text_n(view->match, view->match_len), td_tensor_name(tensor));
}

static size_t write_row(void *context, size_t row, size_t shown, struct td_buffer *out)
{
    const struct view *view = context;
    struct td_tensor_ref ref = td_checkpoint_tensor(view->checkpoint, row);
    if (is_shown(view, ref.tensor)) {
        struct td_document json;
        td_document_resume(&json, out, &view->kind, "tensors", shown > 0);
        add_tensor(&json, view, ref, view->has_sums ? &view->sums.items[shown] : NULL);
    }
    return row + 1;
}

/* Returns the number of the first shown tensor from `at` on, or tensor_count. */
static size_t next_shown(const struct view *view, size_t at)
{
    const struct td_checkpoint *checkpoint = view->checkpoint;
    while (at < checkpoint->tensor_count && !is_shown(view, td_checkpoint_tensor(checkpoint, at).tensor))
        at++;
    return at;
}

static size_t count_shown(const struct view *view)
{
    size_t count = 0;
    for (size_t at = next_shown(view, 0); at < view->checkpoint->tensor_count; at = next_shown(view, at + 1))
        count++;
    return count;
}

static void add_missing_file(void *context, const char *file)
{
    td_document_add_string(context, NULL, file);
}

/* Says what an incomplete checkpoint lacks. */
static void add_incomplete(const struct td_checkpoint *checkpoint, struct td_document *json)
{
    td_document_begin_object(json, "incomplete");
    if (td_document_begin_text(json, "reason")) {
        td_partial_write_reason(checkpoint, json->out);
        td_document_end_text(json);
    }
    if (td_partial_knows_tensors(checkpoint))
        td_document_add_u64(json, "missing_tensor_count", checkpoint->lacks->tensor_count);
    td_document_add_u64(json, "missing_file_count", checkpoint->lacks->file_count);
    td_document_begin_array(json, "missing_files");
    td_partial_each_missing(checkpoint, MISSING_FILES_MAX, add_missing_file, json);
    td_document_end(json);
    td_document_end(json);
}

static void write_head(void *context, struct td_buffer *out)
{
    const struct view *view = context;
    const struct td_checkpoint *checkpoint = view->checkpoint;
    struct td_document json;
    td_document_init_kind(&json, out, &view->kind);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "model", view->shown.id);
    if (view->shown.version != NULL)
        td_document_add_string(&json, "version", view->shown.version);
    td_document_add_string(&json, "checkpoint", checkpoint->id);
    td_document_add_string(&json, "format", checkpoint->format);
    td_document_add_string(&json, "etag", checkpoint->tag);
    td_document_add_u64(&json, "tensor_count", checkpoint->tensor_count);
    td_document_add_u64(&json, "total_bytes", checkpoint->total_bytes);
    if (is_filtered(view))
        td_document_add_u64(&json, "matched_count", count_shown(view));
    if (checkpoint->lacks != NULL)
        add_incomplete(checkpoint, &json);
    td_document_begin_object(&json, "metadata");
    for (size_t i = 0; i < checkpoint->metadata_count; i++)
        td_document_add_member(&json, td_text_of(checkpoint->metadata[i].key),
                               td_text_of(checkpoint->metadata[i].value));
    td_document_end(&json);
    td_document_begin_array(&json, "tensors"); /* write_tail ends it */
}

/* ---- pages --------------------------------------------------------------------------------------------- */

static struct td_text name_of(const struct td_checkpoint *checkpoint, size_t i)
{
    return td_tensor_name(td_checkpoint_tensor(checkpoint, i).tensor);
}

/* Writes the token of a page that ends with tensor i. */
static void write_token(const struct view *view, size_t i, struct td_buffer *out)
{
    char end[LONG_END_BYTES + 1];
    struct td_text name = name_of(view->checkpoint, i);
    if (name.len <= NAME_BYTES) {
        td_page_token_write(out, view->listing, name);
        return;
    }
    size_t first = td_checkpoint_after(view->checkpoint, td_text_n(name.p, NAME_BYTES));
    memcpy(end, name.p, NAME_BYTES);
    (void)snprintf(end + NAME_BYTES, NUMBER_DIGITS + 1, "%016zx", i - first);
    if (td_digest_tag(name.p, name.len, end + NAME_BYTES + NUMBER_DIGITS))
        td_page_token_write(out, view->listing, td_text_n(end, LONG_END_BYTES));
    else
        out->failed = true;
}

/* Sets *same to whether tensor i exists and its name begins with `begin` and has this tag. */
static bool compare_tag(const struct td_checkpoint *checkpoint, size_t i, struct td_text begin, struct td_text tag,
                        bool *same, struct td_error *err)
{
    char found[TD_TAG_BYTES] = "";
    *same = i < checkpoint->tensor_count && td_text_begins(name_of(checkpoint, i), begin);
    if (*same && !td_digest_tag(name_of(checkpoint, i).p, name_of(checkpoint, i).len, found))
        return td_error_no_memory(err);
    *same = *same && td_text_equals(tag, found);
    return true;
}

/* Finds the first tensor after the end of the page before. If the page's last tensor is gone, continues with the
 * tensors with greater names. If only the beginning of its name is known, continues with all names that begin so: a
 * tensor may then be shown twice, but none is missed. */
static bool find_after(const struct td_checkpoint *checkpoint, struct td_text end, size_t *out, struct td_error *err)
{
    uint64_t number;
    struct td_text begin = td_text_n(end.p, end.len < NAME_BYTES ? end.len : NAME_BYTES);
    bool same = false;
    *out = td_checkpoint_after(checkpoint, begin);
    if (end.len != LONG_END_BYTES || !td_hex_read(td_text_n(end.p + NAME_BYTES, NUMBER_DIGITS), &number))
        return true;
    struct td_text tag = td_text_skip(end, NAME_BYTES + NUMBER_DIGITS);
    size_t left = checkpoint->tensor_count - *out;
    size_t i = number < left ? *out + (size_t)number : checkpoint->tensor_count;
    if (!compare_tag(checkpoint, i, begin, tag, &same, err))
        return false;
    /* the checkpoint may have changed since the page before */
    for (size_t next = *out; !same && next < checkpoint->tensor_count; next++) {
        i = next;
        if (!td_text_begins(name_of(checkpoint, i), begin))
            break;
        if (!compare_tag(checkpoint, i, begin, tag, &same, err))
            return false;
    }
    if (same)
        *out = i + 1;
    return true;
}

static void write_tail(void *context, const struct td_rendered_end *end, struct td_buffer *out)
{
    const struct view *view = context;
    struct td_document json;
    td_document_resume(&json, out, &view->kind, "tensors", true);
    td_document_end(&json);
    if (td_document_begin_text(&json, "next_page_token")) {
        if (next_shown(view, end->next_row) < view->checkpoint->tensor_count)
            write_token(view, end->last_shown, out);
        td_document_end_text(&json);
    }
    td_document_end(&json);
    if (view->kind.form == TD_DOCUMENT_REST)
        td_buffer_putc(out, '\n');
}

static void destroy_view(void *context)
{
    struct view *view = context;
    td_tensor_sums_fini(&view->sums);
    td_snapshot_unref(view->snapshot);
    free(view->match);
    free(view);
}

static const struct td_rendered_class manifest_class = {write_head, write_row, write_tail, destroy_view};

/* Makes the view of the query's tensors, without their digests. Returns NULL when memory is short. */
static struct view *create_view(struct td_snapshot *snapshot, const struct td_model *model,
                                const struct td_checkpoint *checkpoint, const struct td_manifest_query *query)
{
    struct view *view = calloc(1, sizeof *view);
    if (view == NULL)
        return NULL;
    view->snapshot = td_snapshot_ref(snapshot);
    view->model = model;
    view->checkpoint = checkpoint;
    view->dtype = query->dtype;
    view->listing = query->listing;
    if (query->kind != NULL)
        view->kind = *query->kind;
    if (query->match == NULL)
        return view;
    view->match_len = query->match->len;
    view->match = malloc(view->match_len + 1);
    if (view->match == NULL) {
        destroy_view(view);
        return NULL;
    }
    memcpy(view->match, query->match->p, view->match_len);
    return view;
}

/* Returns how many rows the query's page has at most. */
static size_t most_shown(const struct td_manifest_query *query)
{
    return query->page_size == 0 ? SIZE_MAX : query->page_size;
}

bool td_manifest_view_collect(const struct td_manifest_query *query, struct td_tensor_sums *sums, struct td_error *err)
{
    const struct td_tensor_sums_source *source = &sums->source;
    size_t at = 0;
    if (!query->page_first && !find_after(source->checkpoint, query->after, &at, err))
        return false;
    struct view *view = create_view(source->snapshot, source->model, source->checkpoint, query);
    bool ok = view != NULL || td_error_no_memory(err);
    while (ok && sums->count < most_shown(query) && (at = next_shown(view, at)) < source->checkpoint->tensor_count)
        ok = td_tensor_sums_add(sums, at++, err);
    if (view != NULL)
        destroy_view(view);
    return ok;
}

bool td_manifest_view_create(struct td_lru *cache, struct td_snapshot *snapshot, const struct td_model *model,
                             const struct td_checkpoint *checkpoint, const struct td_manifest_query *query,
                             struct td_blob **out, struct td_error *err)
{
    char key[TD_TAG_BYTES + 8];
    char state[TD_TAG_BYTES];
    size_t first = 0;
    const struct td_shown_model own = {.id = model->id};
    const struct td_shown_model shown = query->shown.id == NULL ? own : query->shown;
    if (!td_shown_model_key(&shown, checkpoint->tag, state, err))
        return false;
    if (!query->page_first && !find_after(checkpoint, query->after, &first, err))
        return false;
    struct view *view = create_view(snapshot, model, checkpoint, query);
    if (view == NULL)
        return td_error_no_memory(err);
    view->shown = shown;
    view->has_sums = query->sums != NULL;
    if (view->has_sums) {
        view->sums = *query->sums;
        td_tensor_sums_init(query->sums, &view->sums.source, view->sums.budget);
    }
    bool is_whole = !is_filtered(view) && query->page_size == 0 && query->page_first && !view->has_sums &&
                    view->kind.form == TD_DOCUMENT_REST;
    const struct td_rendered_rows rows = {
        .first = first,
        .end = checkpoint->tensor_count,
        .most_shown = most_shown(query),
        .most_bytes = view->kind.form == TD_DOCUMENT_REST ? 0 : TD_MESSAGE_MOST_BYTES,
        .keep_bytes = KEPT_BYTES,
        .most_marks = SIZE_MAX,
    };
    /* hrefs differ when the checkpoint is not the default one */
    (void)snprintf(key, sizeof key, "%s%s", state, td_model_is_default_checkpoint(model, checkpoint) ? "" : "-other");
    return td_rendered_create(&manifest_class, view, &rows, is_whole ? cache : NULL, key, out, NULL, err);
}
