#include "catalog/remote/remote_digests.h"

#include "catalog/remote/remote_model.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "storage/fetch/fetch_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_ROWS = 1000,
    TOKEN_BYTES = 16 * 1024, /* of the token of a page */
    DTYPE_BYTES = 32,
    TAG_BYTES = 128,
    VERSION_BYTES = 1024,
    MAX_CHANGES = 4,          /* of the model, while its pages are read */
    HASHING_S = 24 * 60 * 60, /* longest wait for a page whose tensors are being hashed */
};

#define LEAST_WAIT_NS UINT64_C(250000000)
#define MOST_WAIT_NS UINT64_C(15000000000)

/* An answer as it is read. */
struct page {
    struct td_remote_digests *digests;
    struct td_json json;
    bool has_rows, has_tag;
    char next[TOKEN_BYTES];      /* the token of the next page; empty: none follows */
    char tag[TAG_BYTES];         /* "etag" */
    char version[VERSION_BYTES]; /* empty: none */
    struct td_error *err;
};

/* A row as it is read. */
struct row {
    struct td_remote_tensor tensor;
    bool has_nbytes;
};

void td_remote_digests_init(struct td_remote_digests *digests)
{
    memset(digests, 0, sizeof *digests);
    td_arena_init(&digests->arena, TD_REMOTE_MAX_DIGESTS_BYTES);
}

void td_remote_digests_fini(struct td_remote_digests *digests)
{
    td_arena_fini(&digests->arena);
    digests->items = NULL;
    digests->count = digests->capacity = 0;
}

static bool refuse_memory(const struct page *page)
{
    return td_arena_refuse(&page->digests->arena, "the digests of tensors", page->err);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Reads a string of any length into the arena. */
static bool keep_string(struct page *page, const char *what, const char **out)
{
    size_t len;
    if (!td_json_expect(&page->json, TD_JSON_STRING, what))
        return false;
    char *text = td_arena_alloc(&page->digests->arena, page->json.value_len + 1);
    *out = text;
    return text == NULL ? refuse_memory(page) : td_json_string(&page->json, text, page->json.value_len + 1, &len);
}

/* Reads a string of at most capacity - 1 bytes. */
static bool read_string(struct page *page, const char *what, char *out, size_t capacity)
{
    size_t len;
    return td_json_expect(&page->json, TD_JSON_STRING, what) && td_json_string(&page->json, out, capacity, &len);
}

static bool read_number(struct page *page, const char *what, uint64_t *out)
{
    return td_json_expect(&page->json, TD_JSON_NUMBER, what) && td_json_u64(&page->json, out);
}

static bool read_dtype(struct page *page, struct row *row)
{
    char name[DTYPE_BYTES];
    if (!read_string(page, "a dtype", name, sizeof name))
        return false;
    row->tensor.dtype = td_arena_strndup(&page->digests->arena, td_text_of(name));
    return row->tensor.dtype != NULL || refuse_memory(page);
}

/* Reads a list of numbers, and keeps it as text. */
static bool read_shape(struct page *page, struct row *row)
{
    char text[TD_REMOTE_MAX_DIMENSIONS * 21 + 2] = "[";
    size_t len = 1;
    size_t count = 0;
    enum td_json_token token;
    uint64_t number;
    if (!td_json_expect(&page->json, TD_JSON_ARRAY_BEGIN, "a shape"))
        return false;
    while ((token = td_json_next(&page->json)) == TD_JSON_NUMBER) {
        if (count++ == TD_REMOTE_MAX_DIMENSIONS)
            return td_json_fail(&page->json, "a shape has more than %d dimensions", TD_REMOTE_MAX_DIMENSIONS);
        if (!td_json_u64(&page->json, &number))
            return false;
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%" PRIu64, count > 1 ? "," : "", number);
    }
    if (token != TD_JSON_ARRAY_END)
        return token != TD_JSON_ERROR && td_json_fail(&page->json, "a shape holds numbers alone");
    text[len++] = ']';
    row->tensor.shape = td_arena_strndup(&page->digests->arena, td_text_n(text, len));
    return row->tensor.shape != NULL || refuse_memory(page);
}

static bool read_sha256(struct page *page, struct row *row)
{
    char text[TD_SHA256_TEXT_BYTES];
    if (!read_string(page, "a sha256", text, sizeof text))
        return false;
    row->tensor.has_sha256 = strlen(text) == sizeof text - 1 && td_hex_is_lower(td_text_of(text)) &&
                             td_hex_read_bytes(td_text_of(text), row->tensor.sha256, TD_SHA256_BYTES);
    return row->tensor.has_sha256 ||
           td_json_fail(&page->json, "a sha256 has to be %d lower-case hexadecimal digits", 2 * TD_SHA256_BYTES);
}

static bool read_row_member(struct page *page, struct row *row)
{
    if (td_json_equals(&page->json, "name"))
        return keep_string(page, "a name", &row->tensor.name);
    if (td_json_equals(&page->json, "dtype"))
        return read_dtype(page, row);
    if (td_json_equals(&page->json, "shape"))
        return read_shape(page, row);
    if (td_json_equals(&page->json, "nbytes"))
        return row->has_nbytes = read_number(page, "a number of bytes", &row->tensor.nbytes);
    if (td_json_equals(&page->json, "sha256"))
        return read_sha256(page, row);
    return td_json_skip(&page->json);
}

/* Reads a row, whose object has begun. */
static bool read_row(struct page *page)
{
    struct td_remote_digests *digests = page->digests;
    struct row row = {0};
    enum td_json_token token;
    while ((token = td_json_next(&page->json)) == TD_JSON_KEY)
        if (!read_row_member(page, &row))
            return false;
    if (token != TD_JSON_OBJECT_END)
        return false;
    if (row.tensor.name == NULL || row.tensor.dtype == NULL || row.tensor.shape == NULL || !row.has_nbytes)
        return td_json_fail(&page->json, "a tensor has no name, dtype, shape or nbytes");
    struct td_remote_tensor *items =
        td_arena_grow(&digests->arena, digests->items, digests->count, &digests->capacity, sizeof *items);
    if (items == NULL)
        return refuse_memory(page);
    digests->items = items;
    items[digests->count++] = row.tensor;
    return true;
}

static bool read_rows(struct page *page)
{
    enum td_json_token token;
    if (!td_json_expect(&page->json, TD_JSON_ARRAY_BEGIN, "a list of tensors"))
        return false;
    page->has_rows = true;
    while ((token = td_json_next(&page->json)) == TD_JSON_OBJECT_BEGIN)
        if (!read_row(page))
            return false;
    return token == TD_JSON_ARRAY_END ||
           (token != TD_JSON_ERROR && td_json_fail(&page->json, "a list of tensors holds objects alone"));
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static bool read_member(struct page *page)
{
    uint64_t count;
    if (td_json_equals(&page->json, "tensors"))
        return read_rows(page);
    if (td_json_equals(&page->json, "next_page_token"))
        return read_string(page, "a token", page->next, sizeof page->next);
    if (td_json_equals(&page->json, "etag"))
        return page->has_tag = read_string(page, "an etag", page->tag, sizeof page->tag);
    if (td_json_equals(&page->json, "version"))
        return read_string(page, "a version", page->version, sizeof page->version);
    if (td_json_equals(&page->json, "matched_count"))
        return page->digests->is_selection = read_number(page, "a number of tensors", &count);
    return td_json_skip(&page->json);
}

/* Adds the rows of an answer to the list, unsorted. */
static bool read_page(struct page *page, struct td_text answer)
{
    enum td_json_token token;
    td_json_init(&page->json, answer, 0, page->err);
    if (!td_json_expect(&page->json, TD_JSON_OBJECT_BEGIN, "a list of digests, an object,"))
        return false;
    while ((token = td_json_next(&page->json)) == TD_JSON_KEY)
        if (!read_member(page))
            return false;
    if (token != TD_JSON_OBJECT_END)
        return false;
    if (!page->has_rows || !page->has_tag)
        return td_json_fail(&page->json, "a list of digests needs \"tensors\" and \"etag\"");
    return td_json_expect(&page->json, TD_JSON_END, "the end of the list");
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct td_remote_tensor *)a)->name, ((const struct td_remote_tensor *)b)->name);
}

struct td_remote_tensor *td_remote_digests_find(const struct td_remote_digests *digests, const char *name)
{
    const struct td_remote_tensor key = {.name = name};
    return digests->count == 0 ? NULL : bsearch(&key, digests->items, digests->count, sizeof key, compare_tensors);
}

/* Sorts the list, and takes tag and version from its last page. */
static bool finish(struct td_remote_digests *digests, const struct page *page)
{
    if (digests->count > 0)
        qsort(digests->items, digests->count, sizeof *digests->items, compare_tensors);
    for (size_t i = 1; i < digests->count; i++)
        if (strcmp(digests->items[i - 1].name, digests->items[i].name) == 0)
            return td_error_set(page->err, TD_INVALID_ARGUMENT, "two tensors have the name \"%.200s\"",
                                digests->items[i].name);
    digests->tag = td_arena_strndup(&digests->arena, td_text_of(page->tag));
    digests->version = page->version[0] == '\0' ? NULL : td_arena_strndup(&digests->arena, td_text_of(page->version));
    return (digests->tag != NULL && (digests->version != NULL || page->version[0] == '\0')) || refuse_memory(page);
}

bool td_remote_digests_read(struct td_remote_digests *digests, struct td_text answer, struct td_error *err)
{
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL)
        return td_error_no_memory(err);
    page->digests = digests;
    page->err = err;
    bool ok = read_page(page, answer);
    if (ok && page->next[0] != '\0')
        ok = td_error_set(err, TD_INVALID_ARGUMENT,
                          "this is one page of a longer list: ask for the list without page_size");
    ok = ok && finish(digests, page);
    free(page);
    return ok;
}

/* ---- asking -------------------------------------------------------------------------------------------- */

/* The means to get a list. */
struct asking {
    struct td_fetch_session *session;
    const struct td_remote_digests_query *query;
    struct td_remote_digests *digests;
    struct page page;
    size_t server;
    struct td_fetch_answer answer;
    struct td_buffer path, body;
    struct td_error *err;
};

static const char *url_of(const struct asking *asking)
{
    return td_fetch_client_url(td_fetch_session_client(asking->session), asking->server);
}

static void add_parameter(struct td_buffer *path, const char *name, const char *value)
{
    if (value == NULL)
        return;
    td_buffer_printf(path, "&%s=", name);
    td_fetch_url_append_path(path, td_text_of(value));
}

static void write_path(struct asking *asking, bool is_first)
{
    const struct td_remote_digests_query *query = asking->query;
    struct td_buffer *path = &asking->path;
    td_buffer_clear(path);
    td_buffer_puts(path, "/models/");
    td_fetch_url_append_path(path, td_text_of(query->id));
    if (query->engine != NULL) {
        td_buffer_puts(path, "/shards/");
        td_fetch_url_append_path(path, td_text_of(query->engine));
        td_buffer_printf(path, "/tp%" PRIu64 "/rank-%" PRIu64 ".json?digests=1", query->tp_size, query->rank);
    } else {
        td_buffer_printf(path, "/tensors?digests=1&page_size=%d", PAGE_ROWS);
    }
    add_parameter(path, "version", query->version);
    add_parameter(path, "checkpoint", query->checkpoint);
    add_parameter(path, "match", query->match);
    add_parameter(path, "page_token", is_first ? NULL : asking->page.next);
}

/* Sets the error for an answer other than 200. */
static bool refuse_answer(const struct asking *asking)
{
    const struct td_fetch_client *client = td_fetch_session_client(asking->session);
    char what[400];
    (void)snprintf(what, sizeof what, "%.160s, digests of %.96s", url_of(asking), asking->query->id);
    return td_fetch_fault_of_answer(
        &asking->answer, asking->answer.status == 401 ? td_fetch_client_token_advice(client) : NULL, what, asking->err);
}

/* Asks for a page, from asking->server alone (`only`) or from it on, until the tensors are hashed: again and again, as
 * long as the server says another number of tensors that are. */
static bool ask_hashed(struct asking *asking, const char *path, bool only)
{
    const uint64_t until_ns = td_clock_ns() + HASHING_S * TD_NS_PER_S;
    char before[TD_FETCH_MESSAGE_BYTES] = "";
    for (;;) {
        struct td_error why = TD_ERROR_INIT;
        if (td_fetch_session_get(asking->session, path, TD_REMOTE_MAX_DIGEST_PAGE, only, &asking->server,
                                 &asking->answer, &asking->body, &why))
            return true;
        const struct td_fetch_answer *answer = &asking->answer;
        if (why.code != TD_UNAVAILABLE || answer->status != 503 || strstr(answer->message, "hashed") == NULL ||
            strcmp(answer->message, before) == 0 || td_clock_ns() >= until_ns)
            return td_error_copy(asking->err, &why);
        (void)snprintf(before, sizeof before, "%s", answer->message);
        uint64_t wait_ns = answer->retry_after_s * TD_NS_PER_S; /* at most an hour */
        wait_ns = wait_ns < LEAST_WAIT_NS ? LEAST_WAIT_NS : wait_ns > MOST_WAIT_NS ? MOST_WAIT_NS : wait_ns;
        if (!td_fetch_session_wait(asking->session, td_clock_ns() + wait_ns))
            return td_error_set(asking->err, TD_CONFLICT, "stopped while %s hashed tensors", url_of(asking));
    }
}

/* Gets a page: the first one from the servers in turn until one has the model, later ones from the same server. */
static bool get_page(struct asking *asking, bool is_first)
{
    const size_t count = td_fetch_client_count(td_fetch_session_client(asking->session));
    write_path(asking, is_first);
    const char *path = td_buffer_terminate(&asking->path);
    if (path == NULL)
        return td_buffer_refuse(&asking->path, asking->err);
    for (size_t tries = 1;; tries++) {
        if (!ask_hashed(asking, path, !is_first))
            return false;
        if (!is_first || asking->answer.status < 400 || tries >= count)
            return asking->answer.status == 200 || refuse_answer(asking);
        asking->server = (asking->server + 1) % count;
    }
}

static bool take_page(struct asking *asking)
{
    struct td_error why = TD_ERROR_INIT;
    asking->page = (struct page){.digests = asking->digests, .err = &why};
    return read_page(&asking->page, td_buffer_text(&asking->body)) ||
           td_error_set(asking->err, why.code, "the digests of %s: %s", url_of(asking), why.message);
}

/* Reads all pages. Sets *has_changed, and stops, when a page is of another state of the model than the first one. */
static bool get_pages(struct asking *asking, bool *has_changed)
{
    char tag[TAG_BYTES] = "";
    for (size_t pages = 0; pages < TD_REMOTE_MAX_DIGEST_PAGES; pages++) {
        if (!get_page(asking, pages == 0) || !take_page(asking))
            return false;
        *has_changed = pages > 0 && strcmp(tag, asking->page.tag) != 0;
        if (*has_changed || asking->page.next[0] == '\0')
            return true;
        (void)snprintf(tag, sizeof tag, "%s", asking->page.tag);
    }
    return td_error_set(asking->err, TD_FAILED_PRECONDITION, "the digests of %s have more than %d pages",
                        url_of(asking), TD_REMOTE_MAX_DIGEST_PAGES);
}

/* Refuses a server that answers, but is no tensord. One that wants a token is refused with the list. */
static bool check_kind(struct asking *asking)
{
    struct td_remote_kinds kinds = {0};
    unsigned status = 0;
    if (!td_remote_find_kind(asking->session, &kinds, &asking->server, &status, asking->err))
        return false;
    return kinds.is_tensord[asking->server] || status == 401 || status == 403 ||
           td_error_set(asking->err, TD_FAILED_PRECONDITION,
                        "%s is no tensord, and only a tensord has digests of tensors", url_of(asking));
}

static bool get_list(struct asking *asking)
{
    bool has_changed = true;
    if (!check_kind(asking))
        return false;
    for (unsigned changes = 0; has_changed; changes++) {
        td_remote_digests_fini(asking->digests);
        td_remote_digests_init(asking->digests);
        if (changes > MAX_CHANGES)
            return td_error_set(asking->err, TD_FAILED_PRECONDITION,
                                "%s changed on %s while its digests were read, %d times", asking->query->id,
                                url_of(asking), MAX_CHANGES);
        if (!get_pages(asking, &has_changed))
            return false;
    }
    struct td_error why = TD_ERROR_INIT;
    asking->page.err = &why;
    asking->digests->server = asking->server;
    return finish(asking->digests, &asking->page) ||
           td_error_set(asking->err, why.code, "the digests of %s: %s", url_of(asking), why.message);
}

bool td_remote_digests_get(struct td_fetch_session *session, const struct td_remote_digests_query *query,
                           struct td_remote_digests *digests, struct td_error *err)
{
    struct asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL)
        return td_error_no_memory(err);
    asking->session = session;
    asking->query = query;
    asking->digests = digests;
    asking->err = err;
    td_buffer_init(&asking->path);
    td_buffer_init(&asking->body);
    bool ok = get_list(asking);
    td_buffer_fini(&asking->path);
    td_buffer_fini(&asking->body);
    free(asking);
    return ok;
}
