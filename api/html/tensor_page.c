/* Plan: the facts of a tensor are a list of those that it has. Names of the same bytes are searched among all tensors
 * of the checkpoint, and only where the parser has found some. */
#include "api/html/tensor_page.h"

#include "api/call/checkpoint_choice.h"
#include "api/call/hash_wait.h"
#include "api/call/tensor_text.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "api/html/tensors_page.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/digits.h"
#include "core/waiting.h"
#include "http/uri.h"
#include "parser/format/elements.h"
#include "rank/npy_header.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_ALIASES = 100, SHOWN_PIECES = 1000, LONG_NAME_BYTES = 256 };

enum fact {
    FACT_DTYPE,
    FACT_SHAPE,
    FACT_STRIDES,
    FACT_ELEMENTS,
    FACT_BYTES,
    FACT_FILE,
    FACT_OFFSET,
    FACT_STORED,
    FACT_CHECKPOINT,
    FACT_SHA256,
    FACTS,
};

static const struct {
    const char *name, *heading;
} facts[FACTS] = {
    {"dtype", "Type"},
    {"shape", "Shape"},
    {"strides", "Strides, in elements"},
    {"elements", "Elements"},
    {"bytes", "Size"},
    {"file", "File"},
    {"offset", "Offset in the file"},
    {"stored", "Stored"},
    {"checkpoint", "Checkpoint"},
    {"sha256", "SHA-256 of the bytes"},
};

struct page {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    struct td_shown_model shown;
    size_t number; /* of the tensor in the checkpoint */
    struct td_tensor_ref ref;
    enum fact facts[FACTS]; /* those that the tensor has */
    size_t fact_count;
    uint32_t aliases[SHOWN_ALIASES];   /* the numbers of the first tensors of the same bytes, without this one */
    size_t alias_count;                /* of all of them */
    char sha256[TD_SHA256_TEXT_BYTES]; /* empty: not known */
};

static void destroy(void *context)
{
    struct page *page = context;
    td_snapshot_unref(page->snapshot);
    free(page);
}

/* ---- what the page shows ------------------------------------------------------------------------------- */

static void find_facts(struct page *page)
{
    const struct td_tensor *tensor = page->ref.tensor;
    for (int i = 0; i < FACTS; i++) {
        const bool is_absent = (i == FACT_STRIDES && tensor->strides == NULL) ||
                               (i == FACT_OFFSET && !td_html_has_offset(tensor)) ||
                               (i == FACT_SHA256 && page->sha256[0] == '\0');
        if (!is_absent)
            page->facts[page->fact_count++] = (enum fact)i;
    }
}

/* Finds the other tensors with exactly the same bytes. */
static void find_aliases(struct page *page)
{
    const struct td_tensor *tensor = page->ref.tensor;
    const char *first = tensor->alias_of != NULL ? tensor->alias_of : tensor->name;
    for (size_t i = 0; i < page->checkpoint->tensor_count; i++) {
        const struct td_tensor_ref ref = td_checkpoint_tensor(page->checkpoint, i);
        const char *name = ref.tensor->alias_of != NULL ? ref.tensor->alias_of : ref.tensor->name;
        const bool is_other = ref.tensor->alias_of != NULL || tensor->alias_of != NULL;
        if (!is_other || i == page->number || ref.part != page->ref.part || strcmp(name, first) != 0)
            continue;
        if (page->alias_count < SHOWN_ALIASES)
            page->aliases[page->alias_count] = (uint32_t)i;
        page->alias_count++;
    }
}

/* Sets the digest of the tensor's bytes if it is known. Hashes nothing. */
static bool find_digest(const struct td_call *call, struct page *page, struct td_error *err)
{
    struct td_tensor_sums sums;
    td_digests_init(call, &sums, page->model, page->checkpoint, NULL);
    const bool ok = td_tensor_sums_add(&sums, page->number, err);
    if (ok && td_tensor_sums_find(&sums, td_virtual_hasher_digests(call->api->virtual_hasher)) &&
        sums.items[0].has_bytes)
        td_hex_write(sums.items[0].sum, sizeof sums.items[0].sum, page->sha256);
    td_tensor_sums_fini(&sums);
    return ok;
}

/* ---- values -------------------------------------------------------------------------------------------- */

static size_t shown_aliases(const struct page *page)
{
    return page->alias_count < SHOWN_ALIASES ? page->alias_count : SHOWN_ALIASES;
}

static size_t shown_pieces(const struct page *page)
{
    return page->ref.tensor->piece_count < SHOWN_PIECES ? page->ref.tensor->piece_count : SHOWN_PIECES;
}

/* Appends the link to the tensor's bytes, in a format; NULL: bare. */
static void write_bytes_link(const struct page *page, const char *format, struct td_buffer *out)
{
    const char *separator =
        td_tensor_write_path(out, TD_TENSOR_BYTES, &page->shown, page->model, page->checkpoint, page->ref.tensor);
    if (format != NULL)
        td_buffer_printf(out, "%sformat=%s", separator, format);
}

/* Appends how the tensor's bytes are stored, for people. */
static void write_stored(const struct td_tensor *tensor, struct td_buffer *out)
{
    const enum td_access access = td_tensor_access(tensor);
    if (access == TD_ACCESS_DIRECT)
        td_buffer_puts(out, "as served, not compressed");
    else if (access == TD_ACCESS_GATHERED && tensor->piece_count == 0)
        td_buffer_puts(out, "in another order, not compressed");
    else
        td_html_write_place(tensor, out);
}

/* Appends the plain value of a fact, for scripts. */
static void write_value(const struct page *page, enum fact fact, struct td_buffer *out)
{
    const struct td_tensor *tensor = page->ref.tensor;
    switch (fact) {
    case FACT_DTYPE:
        td_buffer_puts(out, tensor->dtype->name);
        break;
    case FACT_SHAPE:
        td_tensor_write_shape(out, tensor);
        break;
    case FACT_STRIDES:
        td_tensor_write_strides(out, tensor);
        break;
    case FACT_ELEMENTS:
        td_buffer_u64(out, td_tensor_elements(tensor));
        break;
    case FACT_BYTES:
        td_buffer_u64(out, tensor->nbytes);
        break;
    case FACT_FILE:
        td_buffer_puts(out, td_model_relative(page->model, page->checkpoint->parts[page->ref.part]));
        break;
    case FACT_OFFSET:
        td_buffer_u64(out, tensor->offset);
        break;
    case FACT_STORED:
        td_buffer_puts(out, td_access_name(td_tensor_access(tensor)));
        break;
    case FACT_CHECKPOINT:
        td_buffer_puts(out, page->checkpoint->id);
        break;
    case FACT_SHA256:
        td_buffer_puts(out, page->sha256);
        break;
    case FACTS:
        break;
    }
}

/* Appends a fact as people read it. */
static void write_text(const struct page *page, enum fact fact, struct td_buffer *out)
{
    const struct td_tensor *tensor = page->ref.tensor;
    switch (fact) {
    case FACT_ELEMENTS:
        td_shown_number(out, td_tensor_elements(tensor));
        break;
    case FACT_BYTES:
        td_shown_bytes(out, tensor->nbytes);
        break;
    case FACT_OFFSET:
        td_shown_number(out, tensor->offset);
        break;
    case FACT_STORED:
        write_stored(tensor, out);
        break;
    case FACT_DTYPE:
    case FACT_SHAPE:
    case FACT_STRIDES:
    case FACT_FILE:
    case FACT_CHECKPOINT:
    case FACT_SHA256:
    case FACTS:
        write_value(page, fact, out);
        break;
    }
}

static void write_file_link(const struct page *page, struct td_buffer *out)
{
    td_shown_model_write_path(&page->shown, "files/", out);
    td_uri_encode(out, td_text_of(td_model_relative(page->model, page->checkpoint->parts[page->ref.part])), true);
    (void)td_shown_model_write_query(&page->shown, "?", out);
}

static void write_fact(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const enum fact fact = page->facts[place->row[0]];
    switch (slot) {
    case TD_SLOT_TENSOR_FACT:
        td_buffer_puts(out, facts[fact].name);
        break;
    case TD_SLOT_TENSOR_HEADING:
        td_buffer_puts(out, facts[fact].heading);
        break;
    case TD_SLOT_TENSOR_VALUE:
    case TD_SLOT_TENSOR_LINK_TEXT:
        write_value(page, fact, out);
        break;
    case TD_SLOT_TENSOR_TEXT:
        write_text(page, fact, out);
        break;
    case TD_SLOT_TENSOR_FACT_LINK:
        write_file_link(page, out);
        break;
    default:
        break;
    }
}

static void write_piece(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    const struct td_piece *piece = &tensor->pieces[place->row[0]];
    switch (slot) {
    case TD_SLOT_TENSOR_PIECE:
        td_buffer_u64(out, place->row[0]);
        break;
    case TD_SLOT_TENSOR_PIECE_FILE:
        td_buffer_puts(out, td_model_relative(page->model, page->checkpoint->parts[piece->part]));
        break;
    case TD_SLOT_TENSOR_PIECE_OFFSET:
        td_buffer_u64(out, piece->offset);
        break;
    case TD_SLOT_TENSOR_PIECE_OFFSET_SHOWN:
        td_shown_number(out, piece->offset);
        break;
    case TD_SLOT_TENSOR_PIECE_START:
        td_tensor_write_numbers(out, piece->starts, tensor->rank);
        break;
    case TD_SLOT_TENSOR_PIECE_SHAPE:
        td_tensor_write_numbers(out, piece->sizes, tensor->rank);
        break;
    default:
        break;
    }
}

static void write_alias(const struct td_page_place *place, enum td_tensor_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *alias = td_checkpoint_tensor(page->checkpoint, page->aliases[place->row[0]]).tensor;
    if (slot == TD_SLOT_TENSOR_ALIAS)
        td_html_write_tensor_name(alias, out);
    else
        (void)td_tensor_write_path(out, TD_TENSOR_PAGE, &page->shown, page->model, page->checkpoint, alias);
}

static void write_pieces_caption(const struct page *page, struct td_buffer *out)
{
    td_shown_number(out, page->ref.tensor->piece_count);
    td_buffer_puts(out, " pieces");
    if (shown_pieces(page) < page->ref.tensor->piece_count)
        td_buffer_printf(out, ", here the first %zu; the manifest lists all", shown_pieces(page));
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    const enum td_tensor_slot slot = (enum td_tensor_slot)number;
    switch (slot) {
    case TD_SLOT_TENSOR_TITLE:
        td_html_write_tensor_name(tensor, out);
        td_buffer_printf(out, " of %s", page->shown.id);
        break;
    case TD_SLOT_TENSOR_MODEL:
        td_buffer_puts(out, page->shown.id);
        if (page->shown.version != NULL)
            td_buffer_printf(out, " (%s)", page->shown.version);
        break;
    case TD_SLOT_TENSOR_MODEL_LINK:
        td_shown_model_write_path(&page->shown, "", out);
        (void)td_shown_model_write_query(&page->shown, "?", out);
        break;
    case TD_SLOT_TENSOR_TENSORS_LINK:
        td_shown_model_write_path(&page->shown, "view/tensors", out);
        (void)td_checkpoint_write_query(out, "?", &page->shown, page->model, page->checkpoint);
        break;
    case TD_SLOT_TENSOR_NAME_SHOWN:
        td_html_write_tensor_name(tensor, out);
        break;
    case TD_SLOT_TENSOR_WHOLE_NAME:
        td_buffer_append(out, tensor->name, tensor->name_len);
        break;
    case TD_SLOT_TENSOR_REASON:
        td_buffer_puts(out, tensor->reason);
        break;
    case TD_SLOT_TENSOR_FACT:
    case TD_SLOT_TENSOR_VALUE:
    case TD_SLOT_TENSOR_HEADING:
    case TD_SLOT_TENSOR_TEXT:
    case TD_SLOT_TENSOR_FACT_LINK:
    case TD_SLOT_TENSOR_LINK_TEXT:
        write_fact(place, slot, out);
        break;
    case TD_SLOT_TENSOR_ALIAS:
    case TD_SLOT_TENSOR_ALIAS_LINK:
        write_alias(place, slot, out);
        break;
    case TD_SLOT_TENSOR_MORE_ALIAS_COUNT:
        td_shown_number(out, page->alias_count - shown_aliases(page));
        break;
    case TD_SLOT_TENSOR_PIECES_CAPTION:
        write_pieces_caption(page, out);
        break;
    case TD_SLOT_TENSOR_PIECE:
    case TD_SLOT_TENSOR_PIECE_FILE:
    case TD_SLOT_TENSOR_PIECE_OFFSET:
    case TD_SLOT_TENSOR_PIECE_OFFSET_SHOWN:
    case TD_SLOT_TENSOR_PIECE_START:
    case TD_SLOT_TENSOR_PIECE_SHAPE:
        write_piece(place, slot, out);
        break;
    case TD_SLOT_TENSOR_RAW_LINK:
        write_bytes_link(page, NULL, out);
        break;
    case TD_SLOT_TENSOR_NPY_LINK:
        write_bytes_link(page, "npy", out);
        break;
    case TD_SLOT_TENSOR_SAFETENSORS_LINK:
        write_bytes_link(page, "safetensors", out);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    const struct td_tensor *tensor = page->ref.tensor;
    switch ((enum td_tensor_section)section) {
    case TD_SECTION_TENSOR_LONG_NAME:
        return tensor->name_len > LONG_NAME_BYTES;
    case TD_SECTION_TENSOR_REFUSED:
        return tensor->reason != NULL;
    case TD_SECTION_TENSOR_FACTS:
        return page->fact_count;
    case TD_SECTION_TENSOR_PLAIN:
        return page->facts[place->row[0]] != FACT_FILE;
    case TD_SECTION_TENSOR_LINKED:
        return page->facts[place->row[0]] == FACT_FILE;
    case TD_SECTION_TENSOR_ALIASES_HEAD:
    case TD_SECTION_TENSOR_ALIASES_END:
        return page->alias_count > 0;
    case TD_SECTION_TENSOR_ALIASES:
        return shown_aliases(page);
    case TD_SECTION_TENSOR_MORE_ALIASES:
        return page->alias_count > SHOWN_ALIASES;
    case TD_SECTION_TENSOR_PIECES_HEAD:
    case TD_SECTION_TENSOR_PIECES_END:
        return tensor->piece_count > 0;
    case TD_SECTION_TENSOR_PIECES:
        return shown_pieces(page);
    case TD_SECTION_TENSOR_LINKS:
        return tensor->reason == NULL;
    case TD_SECTION_TENSOR_NPY:
        return td_npy_has_type(tensor->dtype);
    case TD_SECTION_TENSOR_SAFETENSORS:
        return td_dtype_is_safetensors(tensor->dtype);
    }
    return 0;
}

/* ---- the call ------------------------------------------------------------------------------------------ */

/* Finds the tensor that the path names, and all that the page shows of it. Returns false after it answered an error. */
static bool find_tensor(const struct td_call *call, struct page *page)
{
    struct td_error err = TD_ERROR_INIT;
    page->checkpoint = td_html_choose_checkpoint(call);
    if (page->checkpoint == NULL)
        return false;
    if (!td_tensor_find_in_path(page->checkpoint, call->rest, &page->number)) {
        td_call_fail_tensor(call, page->checkpoint);
        return false;
    }
    page->ref = td_checkpoint_tensor(page->checkpoint, page->number);
    if (!td_may_wait(&err) || !find_digest(call, page, &err)) { /* a checkpoint may have many tensors */
        td_response_fail_error(call->response, &err);
        return false;
    }
    find_facts(page);
    find_aliases(page);
    return true;
}

void td_html_tensor(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_tensor, .write = write_slot, .rows = count_rows, .destroy = destroy};
    static const char *const known[] = {"checkpoint", "partial", NULL};
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known))
        return;
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->model = call->model;
    page->shown = td_shown_model_of(call, call->model);
    if (!find_tensor(call, page)) {
        destroy(page);
        return;
    }
    if (!td_page_set(call->response, &class, page, &err))
        td_response_fail_error(call->response, &err);
}
