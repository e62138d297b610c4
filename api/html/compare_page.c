#include "api/html/compare_page.h"

#include "api/call/checkpoint_choice.h"
#include "api/call/find_name.h"
#include "api/call/tensor_text.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "catalog/names/repo.h"
#include "core/clock.h"
#include "core/digits.h"
#include "rank/comparison.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROWS_PER_PAGE = 500,
    READ_SECONDS = 10,
    PAGES_MAX = 100000000 /* the largest number of a page that is read */
};

#define READ_BYTES (UINT64_C(64) << 20)

/* The changes in the order of the page, and its words for them. */
static const struct {
    enum td_change change;
    const char *label;
} shown_changes[TD_CHANGES] = {
    {TD_CHANGE_ADDED, "added"},          {TD_CHANGE_REMOVED, "removed"},     {TD_CHANGE_DTYPE, "other type"},
    {TD_CHANGE_SHAPE, "other shape"},    {TD_CHANGE_CONTENT, "other bytes"}, {TD_CHANGE_SAME, "the same"},
    {TD_CHANGE_UNKNOWN, "not compared"},
};

struct compare {
    struct td_snapshot *snapshot; /* a reference, which the comparison needs; NULL without a comparison */
    struct td_text a, b;          /* the ids of the models; or what was typed, if it is not both */
    char *typed_a, *typed_b;      /* owned; NULL with a comparison */
    struct td_comparison comparison;
    size_t first, shown; /* the differences of this page */
    size_t page, pages;  /* the page's number, from 1 on, and how many there are */
};

static void destroy(void *context)
{
    struct compare *compare = context;
    td_comparison_fini(&compare->comparison);
    td_snapshot_unref(compare->snapshot);
    free(compare->typed_a);
    free(compare->typed_b);
    free(compare);
}

static const struct td_compared *item_at(const struct td_page_place *place)
{
    const struct compare *compare = place->context;
    return &compare->comparison.items[compare->first + place->row[0]];
}

/* Returns the tensor with this number, from 1 on, of one side. */
static const struct td_tensor *tensor_of(const struct td_tensor_sums_source *side, uint32_t number)
{
    return td_checkpoint_tensor(side->checkpoint, number - 1).tensor;
}

static void write_name(const struct td_page_place *place, struct td_buffer *out)
{
    const struct compare *compare = place->context;
    const struct td_compared *item = item_at(place);
    struct td_text name = td_tensor_name(item->a > 0 ? tensor_of(&compare->comparison.a, item->a)
                                                     : tensor_of(&compare->comparison.b, item->b));
    td_buffer_append(out, name.p, name.len);
}

/* Appends a tensor's type and shape: "BF16 [4096,1024]". */
static void write_type(const struct td_tensor *tensor, struct td_buffer *out)
{
    td_buffer_puts(out, tensor->dtype->name);
    td_buffer_putc(out, ' ');
    td_tensor_write_shape(out, tensor);
}

/* Appends the link to a tensor's own page. */
static void write_link(const struct td_tensor_sums_source *side, uint32_t number, struct td_buffer *out)
{
    const struct td_shown_model shown = {.id = side->model->id};
    (void)td_tensor_write_path(out, TD_TENSOR_PAGE, &shown, side->model, side->checkpoint, tensor_of(side, number));
}

static const char *label_of(enum td_change change)
{
    for (size_t i = 0; i < TD_CHANGES; i++)
        if (shown_changes[i].change == change)
            return shown_changes[i].label;
    return "";
}

static void write_caption(const struct compare *compare, struct td_buffer *out)
{
    td_buffer_puts(out, "Tensors that differ: ");
    if (compare->pages > 1) {
        td_shown_number(out, compare->first + 1);
        td_buffer_puts(out, " to ");
        td_shown_number(out, compare->first + compare->shown);
        td_buffer_puts(out, " of ");
    }
    td_shown_number(out, compare->comparison.count);
}

static void write_slot(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    const struct compare *compare = place->context;
    const struct td_comparison *comparison = &compare->comparison;
    switch ((enum td_compare_slot)slot) {
    case TD_SLOT_COMPARE_TITLE:
        td_buffer_puts(out, "Compare two models");
        break;
    case TD_SLOT_COMPARE_A:
        td_buffer_append(out, compare->a.p, compare->a.len);
        break;
    case TD_SLOT_COMPARE_B:
        td_buffer_append(out, compare->b.p, compare->b.len);
        break;
    case TD_SLOT_COMPARE_COUNT_LABEL:
        td_buffer_puts(out, shown_changes[place->row[1]].label);
        break;
    case TD_SLOT_COMPARE_COUNT_NAME:
        td_buffer_puts(out, td_change_name(shown_changes[place->row[1]].change));
        break;
    case TD_SLOT_COMPARE_COUNT:
        td_buffer_u64(out, comparison->counts[shown_changes[place->row[1]].change]);
        break;
    case TD_SLOT_COMPARE_COUNT_SHOWN:
        td_shown_number(out, comparison->counts[shown_changes[place->row[1]].change]);
        break;
    case TD_SLOT_COMPARE_UNREAD_COUNT: {
        uint64_t count = comparison->counts[TD_CHANGE_UNKNOWN];
        td_shown_number(out, count);
        td_buffer_printf(out, " tensor%s", td_plural(count));
        break;
    }
    case TD_SLOT_COMPARE_READ_BYTES:
        td_shown_bytes(out, READ_BYTES);
        break;
    case TD_SLOT_COMPARE_READ_SECONDS:
        td_buffer_u64(out, READ_SECONDS);
        break;
    case TD_SLOT_COMPARE_TOTAL:
        td_buffer_u64(out, comparison->count);
        break;
    case TD_SLOT_COMPARE_CAPTION:
        write_caption(compare, out);
        break;
    case TD_SLOT_COMPARE_NAME:
        write_name(place, out);
        break;
    case TD_SLOT_COMPARE_CHANGE:
        td_buffer_puts(out, td_change_name(item_at(place)->change));
        break;
    case TD_SLOT_COMPARE_CHANGE_LABEL:
        td_buffer_puts(out, label_of(item_at(place)->change));
        break;
    case TD_SLOT_COMPARE_A_LINK:
        write_link(&comparison->a, item_at(place)->a, out);
        break;
    case TD_SLOT_COMPARE_B_LINK:
        write_link(&comparison->b, item_at(place)->b, out);
        break;
    case TD_SLOT_COMPARE_A_TYPE:
        write_type(tensor_of(&comparison->a, item_at(place)->a), out);
        break;
    case TD_SLOT_COMPARE_B_TYPE:
        write_type(tensor_of(&comparison->b, item_at(place)->b), out);
        break;
    case TD_SLOT_COMPARE_PAGE:
        td_buffer_u64(out, compare->page);
        break;
    case TD_SLOT_COMPARE_PAGES:
        td_buffer_u64(out, compare->pages);
        break;
    case TD_SLOT_COMPARE_PREVIOUS_PAGE:
        td_buffer_u64(out, compare->page - 1);
        break;
    case TD_SLOT_COMPARE_NEXT_PAGE:
        td_buffer_u64(out, compare->page + 1);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct compare *compare = place->context;
    const struct td_comparison *comparison = &compare->comparison;
    const bool has_result = compare->snapshot != NULL;
    switch ((enum td_compare_section)section) {
    case TD_SECTION_COMPARE_RESULT:
    case TD_SECTION_COMPARE_RESULT_END:
        return has_result ? 1 : 0;
    case TD_SECTION_COMPARE_COUNTS:
        return TD_CHANGES;
    case TD_SECTION_COMPARE_UNREAD:
        return comparison->counts[TD_CHANGE_UNKNOWN] > 0 ? 1 : 0;
    case TD_SECTION_COMPARE_EQUAL:
        return comparison->count == 0 ? 1 : 0;
    case TD_SECTION_COMPARE_TABLE:
    case TD_SECTION_COMPARE_TABLE_END:
        return comparison->count > 0 ? 1 : 0;
    case TD_SECTION_COMPARE_ROWS:
        return compare->shown;
    case TD_SECTION_COMPARE_IN_A:
        return item_at(place)->a > 0 ? 1 : 0;
    case TD_SECTION_COMPARE_IN_B:
        return item_at(place)->b > 0 ? 1 : 0;
    case TD_SECTION_COMPARE_PAGED:
        return compare->pages > 1 ? 1 : 0;
    case TD_SECTION_COMPARE_PREVIOUS:
        return compare->page > 1 ? 1 : 0;
    case TD_SECTION_COMPARE_NEXT:
        return compare->page < compare->pages ? 1 : 0;
    }
    return 0;
}

static const struct td_page_class compare_class = {
    .page = &td_template_compare, .write = write_slot, .rows = count_rows, .destroy = destroy};

/* ---- the request ----------------------------------------------------------------------------------------- */

/* Answers 404 for an id that no model has. */
static void fail_missing(const struct td_call *call, struct td_text id)
{
    char advice[TD_NAME_ADVICE_BYTES];
    td_name_advise(call->snapshot, id, advice);
    td_response_fail(call->response, 404, NULL, "model \"%.*s\" not found%s; GET /models lists models",
                     TD_SHOW(id, 400), advice);
}

/* Finds the model with this id and its default checkpoint. Returns false after it answered. */
static bool open_side(const struct td_call *call, struct td_text id, struct td_tensor_sums_source *side)
{
    struct td_call own = *call; /* a call for this model */
    struct td_text name = id;
    name.p = td_repo_resolve(call->snapshot, id.p, &name.len);
    const struct td_model *model = own.model = td_snapshot_find_model(call->snapshot, name);
    if (model == NULL) {
        fail_missing(call, id);
        return false;
    }
    struct td_text directory = td_text_n(model->id, model->directory_len);
    if ((directory.len > 0 || call->snapshot->root_is_model) && !td_call_may_describe(call, directory))
        return false;
    if (model->is_delta)
        td_call_refuse_delta(&own);
    const struct td_checkpoint *checkpoint = model->is_delta ? NULL : td_checkpoint_parameter(&own);
    if (checkpoint == NULL)
        return false;
    td_response_note_subject(call->response, td_text_of(model->id));
    *side = (struct td_tensor_sums_source){
        .catalog = call->api->catalog, .snapshot = call->snapshot, .model = model, .checkpoint = checkpoint};
    return true;
}

static bool is_over(void *context)
{
    return td_call_over(context);
}

/* Compares the models of both ids. Returns false after it answered an error. */
static bool compare_models(const struct td_call *call, struct td_text a, struct td_text b, struct compare *compare)
{
    struct td_tensor_sums_source sides[2];
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel over = {.is_asked = is_over, .context = (void *)(uintptr_t)call};
    const struct td_comparison_limits limits = {
        .read_bytes = READ_BYTES, .read_ns = READ_SECONDS * TD_NS_PER_S, .cancel = &over};
    if (!open_side(call, a, &sides[0]) || !open_side(call, b, &sides[1]))
        return false;
    compare->snapshot = td_snapshot_ref(call->snapshot);
    compare->a = td_text_of(sides[0].model->id);
    compare->b = td_text_of(sides[1].model->id);
    if (td_comparison_make(&compare->comparison, &sides[0], &sides[1],
                           td_virtual_hasher_digests(call->api->virtual_hasher), &limits,
                           td_shared_budget_of(&call->api->lists, call->request->client), &err))
        return true;
    td_response_fail_error(call->response, &err);
    return false;
}

/* Chooses the rows of the page with this number; of the last page if there are fewer. */
static void choose_rows(struct compare *compare, uint64_t page)
{
    const size_t count = compare->comparison.count;
    compare->pages = count == 0 ? 1 : (count - 1) / ROWS_PER_PAGE + 1;
    compare->page = page > compare->pages ? compare->pages : (size_t)page;
    compare->first = (compare->page - 1) * ROWS_PER_PAGE;
    compare->shown = count - compare->first < ROWS_PER_PAGE ? count - compare->first : ROWS_PER_PAGE;
}

/* Reads the parameters. Returns false after it answered 400. */
static bool read_parameters(const struct td_call *call, struct td_text *a, struct td_text *b, uint64_t *page)
{
    static const char *const known[] = {"a", "b", "page", NULL};
    const struct td_text *first = td_uri_parameter(call->uri, "a");
    const struct td_text *second = td_uri_parameter(call->uri, "b");
    *a = first == NULL ? TD_TEXT("") : *first;
    *b = second == NULL ? TD_TEXT("") : *second;
    *page = 1;
    if (!td_call_check_parameters(call, known) || !td_call_read_number(call, "page", PAGES_MAX, page))
        return false;
    if (*page == 0)
        td_response_fail(call->response, 400, NULL, "page must be at least 1");
    return *page > 0;
}

/* Copies what was typed, for the form alone. Returns false when memory is short. */
static bool keep_typed(struct compare *compare, struct td_text a, struct td_text b)
{
    compare->typed_a = td_text_copy(a);
    compare->typed_b = td_text_copy(b);
    if (compare->typed_a == NULL || compare->typed_b == NULL)
        return false;
    compare->a = td_text_of(compare->typed_a);
    compare->b = td_text_of(compare->typed_b);
    return true;
}

void td_html_compare(const struct td_call *call)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_text a;
    struct td_text b;
    uint64_t page;
    if (!read_parameters(call, &a, &b, &page))
        return;
    struct compare *compare = calloc(1, sizeof *compare);
    bool ok = compare != NULL;
    if (ok && a.len > 0 && b.len > 0) {
        if (!compare_models(call, a, b, compare)) {
            destroy(compare);
            return;
        }
        choose_rows(compare, page);
    } else {
        ok = ok && keep_typed(compare, a, b);
    }
    if (!ok) {
        if (compare != NULL)
            destroy(compare);
        (void)td_call_no_memory(call);
        return;
    }
    if (!td_page_set(call->response, &compare_class, compare, &err))
        td_response_fail_error(call->response, &err);
}
