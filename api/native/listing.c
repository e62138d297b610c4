#include "api/native/listing.h"

#include "api/html/html_index.h"
#include "api/native/parameters.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/glob.h"
#include "http/page_token.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptions -------------------------------------------------------------------------------------- */

void td_description_begin(struct td_description *description, const struct td_call *call)
{
    memset(description, 0, sizeof *description);
    description->call = call;
    description->reserved.budget = td_shared_budget_of(&call->api->lists, call->request->client);
    td_error_init(&description->err);
    td_buffer_init(&description->out);
    td_call_begin_document(call, &description->json, &description->out);
}

void td_description_finish(struct td_description *description, bool ok)
{
    struct td_response *response = description->call->response;
    td_call_end_document(description->call, &description->json);
    if (!ok || !td_reserved_answer_json(&description->reserved, &description->out, response, &description->err))
        td_response_fail_error(response, &description->err);
    td_buffer_fini(&description->out);
    td_reserved_release(&description->reserved);
}

bool td_description_room(struct td_description *description, size_t text_bytes)
{
    return td_reserved_json_room(&description->reserved, &description->json, text_bytes, &description->err);
}

void td_description_add_text_or_null(struct td_description *description, const char *key, const char *text)
{
    if (text != NULL)
        td_document_add_string(&description->json, key, text);
    else
        td_document_add_null(&description->json, key);
}

void td_description_add_updated(struct td_description *description, const struct td_model *model)
{
    if (model->entry_count > 0)
        td_document_add_time(&description->json, "updated", td_wall_of_ns(model->updated_ns));
    else
        td_document_add_null(&description->json, "updated");
}

bool td_description_add_problems(struct td_description *description, const struct td_problems *problems)
{
    struct td_document *json = &description->json;
    td_document_begin_array(json, "errors");
    for (size_t i = 0; i < problems->count; i++) {
        const struct td_problem *problem = &problems->items[i];
        if (!td_description_room(description, strlen(problem->path) + strlen(problem->message)))
            return false;
        td_document_begin_object(json, NULL);
        td_document_add_string(json, "file", problem->path);
        td_document_add_string(json, "message", problem->message);
        td_document_end(json);
    }
    td_document_end(json);
    return true;
}

/* Adds "next_page_token": the token of the page that begins after the row with this id; an empty token for NULL.
 * `listing` is the name of the listing (td_listing_name). Returns false when memory is short. */
static bool add_next_page(struct td_description *description, struct td_text listing, const char *last_id)
{
    struct td_buffer token;
    td_buffer_init(&token);
    if (last_id != NULL)
        td_page_token_write(&token, listing, td_text_of(last_id));
    bool ok = !token.failed || td_error_no_memory(&description->err);
    td_document_add_text(&description->json, "next_page_token", td_buffer_text(&token));
    td_buffer_fini(&token);
    return ok;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

bool td_listing_page_size(const struct td_call *call, size_t *size)
{
    const struct td_text *text = td_uri_parameter(call->uri, "page_size");
    uint64_t value = 0;
    if (text == NULL)
        return true;
    if (!td_number_read(*text, TD_PAGE_SIZE_MAX, &value) || value < 1) {
        td_response_fail(call->response, 400, NULL, "page_size must be a whole number from 1 to %d", TD_PAGE_SIZE_MAX);
        return false;
    }
    *size = (size_t)value;
    return true;
}

bool td_listing_page_token(const struct td_call *call, struct td_text listing, struct td_buffer *after, bool *first)
{
    const struct td_text *token = td_uri_parameter(call->uri, "page_token");
    *first = token == NULL || token->len == 0;
    return *first || td_call_read_page_token(call, token, listing,
                                             "page_token is not one that this listing gave out: repeat the request "
                                             "that gave it, with the same parameters, or leave it out to begin again",
                                             after);
}

bool td_listing_name(const struct td_call *call, struct td_buffer *out, const char *kind, const char *id,
                     const struct td_text *const *filters, size_t count)
{
    td_buffer_puts(out, kind);
    td_buffer_putc(out, '\n');
    td_buffer_puts(out, id);
    for (size_t i = 0; i < count; i++) {
        td_buffer_putc(out, '\n');
        if (filters[i] != NULL) {
            td_buffer_putc(out, '=');
            td_buffer_append(out, filters[i]->p, filters[i]->len);
        }
    }
    return !out->failed || td_call_no_memory(call);
}

/* The list that a call asks for. */
struct rows {
    const struct td_list *list;
    const char *first;
    size_t count, row_bytes;
    const struct td_text *match; /* NULL: the list has no filter */
};

static struct rows rows_of(const struct td_call *call, const struct td_list *list)
{
    struct rows rows = {.list = list, .match = td_uri_parameter(call->uri, "match")};
    rows.first = list->rows(call, &rows.count, &rows.row_bytes);
    return rows;
}

static const void *row_at(const struct rows *rows, size_t i)
{
    return rows->first + i * rows->row_bytes;
}

/* Returns the row's name, or NULL when the list does not show the row. */
static const char *listed_name(const struct rows *rows, const void *row)
{
    const char *name = rows->list->name(row);
    return name != NULL && (rows->match == NULL || td_glob_match(*rows->match, td_text_of(name))) ? name : NULL;
}

/* Adds to the digest everything that the list shows on all of its pages. */
static void digest_list(const struct td_call *call, const struct rows *rows, struct td_digest *digest)
{
    const struct td_problems *problems = &call->snapshot->problems;
    if (rows->list->digest_begin != NULL)
        rows->list->digest_begin(digest, call);
    for (size_t i = 0; i < rows->count; i++)
        if (listed_name(rows, row_at(rows, i)) != NULL)
            rows->list->digest(digest, row_at(rows, i));
    for (size_t i = 0; rows->list->has_problems && i < problems->count; i++) {
        td_digest_add_cstring(digest, problems->items[i].path);
        td_digest_add_cstring(digest, problems->items[i].message);
    }
}

/* Adds at most `limit` rows from row number `at` on, and the next page's token. Returns false as
 * td_description_room. */
static bool add_page(struct td_description *description, const struct rows *rows, size_t at, size_t limit,
                     struct td_text listing)
{
    const struct td_list *list = rows->list;
    const struct td_problems *problems = &description->call->snapshot->problems;
    const char *last = NULL;
    size_t shown = 0;
    if (list->begin != NULL && !list->begin(description))
        return false;
    td_document_begin_array(&description->json, list->kind);
    for (; at < rows->count; at++) {
        const void *row = row_at(rows, at);
        const char *name = listed_name(rows, row);
        if (name == NULL)
            continue;
        if (shown++ == limit || (description->call->kind != NULL && description->out.len >= TD_MESSAGE_MOST_BYTES))
            break;
        td_document_begin_object(&description->json, NULL);
        if (!list->add(description, row))
            return false;
        td_document_end(&description->json);
        last = name;
    }
    td_document_end(&description->json);
    return (!list->has_problems || problems->count == 0 || td_description_add_problems(description, problems)) &&
           add_next_page(description, listing, at < rows->count ? last : NULL);
}

/* A hash over each whole list. The first request that needs it computes it, and the others share it. */
struct list_states {
    struct td_snapshot_part part;
    _Atomic(char *) states[TD_LISTS]; /* owned, and never changed once it is set; NULL: not asked for */
};

static void destroy_states(struct td_snapshot_part *part)
{
    struct list_states *states = (struct list_states *)(void *)part;
    for (size_t i = 0; i < TD_LISTS; i++)
        free(atomic_load(&states->states[i]));
    free(states);
}

/* Returns the states of the snapshot's lists; the first caller creates the part. Returns NULL when memory is short. */
static struct list_states *states_of(struct td_snapshot *snapshot)
{
    struct td_snapshot_part *part = td_snapshot_get_part(snapshot, TD_PART_LISTS);
    if (part == NULL) {
        struct list_states *made = calloc(1, sizeof *made);
        if (made == NULL)
            return NULL;
        made->part.destroy = destroy_states;
        part = td_snapshot_add_part(snapshot, TD_PART_LISTS, &made->part);
    }
    return (struct list_states *)(void *)part;
}

/* Sets *kept to where the state of the list is kept; NULL: nowhere. Returns false when memory is short. */
static bool find_kept(const struct td_call *call, const struct rows *rows, _Atomic(char *) **kept)
{
    const struct td_list *list = rows->list;
    *kept = NULL;
    if (rows->match != NULL)
        return true;
    if (list->number == TD_LISTS) {
        *kept = list->state(call);
        return true;
    }
    struct list_states *states = states_of(call->snapshot);
    if (states != NULL)
        *kept = &states->states[list->number];
    return states != NULL;
}

/* Computes the state of the call's list on all of its pages. The snapshot stores the state of a list without a filter,
 * so that each page of a long list does not take time in proportion to the list. Returns false after it answered an
 * error. */
static bool make_state(const struct td_call *call, const struct rows *rows, char state[TD_TAG_BYTES])
{
    _Atomic(char *) *kept;
    if (!find_kept(call, rows, &kept))
        return td_call_no_memory(call);
    const char *known = kept == NULL ? NULL : atomic_load(kept);
    if (known != NULL) {
        memcpy(state, known, TD_TAG_BYTES);
        return true;
    }
    struct td_digest *digest = td_digest_create();
    digest_list(call, rows, digest);
    if (!td_digest_finish(digest, state))
        return td_call_no_memory(call);
    char *none = NULL;
    char *copy = kept == NULL ? NULL : strdup(state);
    if (copy != NULL && !atomic_compare_exchange_strong(kept, &none, copy))
        free(copy); /* another request was first, with the same state */
    return true;
}

/* Answers the page of the list that begins with row number `at`. */
static void answer_page(const struct td_call *call, const struct td_list *list, size_t at, size_t limit,
                        struct td_text listing)
{
    struct td_description description;
    char state[TD_TAG_BYTES];
    const struct rows rows = rows_of(call, list);
    if (!make_state(call, &rows, state) || (list->of == NULL && !td_call_may_list(call)))
        return;
    enum td_wait wait = td_wait_parameter(call, state, state);
    if (wait == TD_WAIT_ANSWERED)
        return;
    td_description_begin(&description, call);
    td_description_finish(&description, add_page(&description, &rows, at, limit, listing));
    if (list->has_html)
        td_html_add_vary(call);
    td_wait_end(call->response, wait, state);
}

void td_listing_answer(const struct td_call *call, const struct td_list *list)
{
    static const char *const known[] = {"page_size", "page_token", "match", "wait", "timeout", NULL};
    static const char *const known_of_one[] = {"page_size", "page_token", "wait", "timeout", NULL};
    const struct td_text *filters[] = {td_uri_parameter(call->uri, "match")};
    size_t limit = TD_PAGE_SIZE_MAX;
    bool first;
    struct td_buffer name;
    struct td_buffer after;
    td_buffer_init(&name);
    td_buffer_init(&after);
    if (td_call_check_parameters(call, list->of == NULL ? known : known_of_one) && td_listing_page_size(call, &limit) &&
        td_listing_name(call, &name, list->kind, list->of == NULL ? "" : list->of, filters, 1) &&
        td_listing_page_token(call, td_buffer_text(&name), &after, &first))
        answer_page(call, list, first ? 0 : list->after(call, td_buffer_text(&after)), limit, td_buffer_text(&name));
    td_buffer_fini(&name);
    td_buffer_fini(&after);
}
