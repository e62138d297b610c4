/* Rows of a dataset: rows, rows/{number}, rows:batchGet, index. */
#include "api/native/routes.h"

#include "catalog/dataset/data_file.h"
#include "catalog/dataset/dataset.h"
#include "core/digits.h"
#include "core/json/json_document.h"
#include "core/permutation.h"
#include "core/text.h"
#include "core/waiting.h"
#include "parser/rows/arrow/arrow.h"
#include "rank/arrow_rows.h"
#include "rank/row_answer.h"
#include "rank/row_json.h"
#include "rank/row_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_COUNT = 100 };

/* The forms that can be asked for, which come first, and a NULL. */
static const char *const form_names[TD_ROWS_BARE + 1] = {[TD_ROWS_FRAME] = "frame",
                                                         [TD_ROWS_RAW] = "raw",
                                                         [TD_ROWS_TAR] = "tar",
                                                         [TD_ROWS_ARROW] = "arrow",
                                                         [TD_ROWS_JSON] = "json"};

/* The rows and the form that a request asks for. */
struct wanted {
    const struct td_split *split;
    const struct td_split_rows *rows;
    enum td_rows_form form;
    uint64_t start, count;
    bool is_shuffled;
    uint64_t seed, epoch, shard, shard_count;
    uint64_t total; /* rows that start and count number: of the split, or of the shard */
};

/* ---- parameters ---------------------------------------------------------------------------------------- */

/* Answers an error about a split, with the names of the existing splits. `name` may be empty. */
static bool fail_split(const struct td_call *call, int status, const char *what, struct td_text name)
{
    enum { SHOWN = 8 };
    const struct td_dataset *dataset = call->dataset;
    const char **names = calloc(dataset->split_count + 1, sizeof *names);
    struct td_buffer list;
    td_buffer_init(&list);
    for (size_t i = 0; names != NULL && i < dataset->split_count; i++) {
        names[i] = dataset->splits[i].name;
        if (i < SHOWN)
            td_buffer_printf(&list, "%s%.100s", i > 0 ? ", " : "", names[i]);
    }
    const char *shown = td_buffer_terminate(&list);
    bool ok = names != NULL && shown != NULL;
    if (ok)
        td_call_fail_known(call, status, names, "dataset \"%.100s\" %s%.*s%s; choose one by split=: %s%s", dataset->id,
                           what, TD_SHOW(name, 100), name.len > 0 ? "\"" : "", shown,
                           dataset->split_count > SHOWN ? " ..." : "");
    free(names);
    td_buffer_fini(&list);
    return ok ? false : td_call_no_memory(call);
}

/* Answers why the dataset has no splits: with the first of its problems. A dataset without splits has at least one. */
static bool fail_without_splits(const struct td_call *call)
{
    const struct td_problem *first = call->dataset->problems.items;
    struct td_error err = TD_ERROR_INIT;
    (void)td_error_set(&err, TD_FAILED_PRECONDITION, "dataset \"%.100s\" has no split; \"%.100s\": %s",
                       call->dataset->id, first->path, first->message);
    td_response_fail_error(call->response, &err);
    return false;
}

/* Finds the split: the named one, or the only one. Returns false after it answered an error. */
static bool find_split(const struct td_call *call, const struct td_text *name, struct wanted *wanted)
{
    const struct td_dataset *dataset = call->dataset;
    if (dataset->split_count == 0)
        return fail_without_splits(call);
    if (name == NULL) {
        wanted->split = &dataset->splits[0];
        if (dataset->split_count > 1)
            return fail_split(call, 400, "has several splits", TD_TEXT(""));
    } else {
        wanted->split = td_dataset_find_split(dataset, *name);
        if (wanted->split == NULL)
            return fail_split(call, 404, "has no split \"", *name);
    }
    struct td_error err = TD_ERROR_INIT;
    wanted->rows = td_split_rows_get(wanted->split, &err);
    if (wanted->rows == NULL) {
        td_response_fail_error(call->response, &err);
        return false;
    }
    wanted->total = wanted->rows->row_count;
    return true;
}

/* Answers 412 when the request wants rows of another version than that which is served. */
static bool check_fingerprint(const struct td_call *call, const struct wanted *wanted)
{
    const struct td_text *text = td_uri_parameter(call->uri, "fingerprint");
    if (text == NULL ||
        td_text_equals(*text, wanted->rows->fingerprint)) // NOLINT(clang-analyzer-core.*): find_split has set it
        return true;
    td_response_fail(call->response, 412, NULL,
                     "split \"%.100s\" has the fingerprint %s now, not \"%.*s\": the dataset has changed, so that a "
                     "row's number may stand for another row; read GET /datasets/%.200s again",
                     wanted->split->name, wanted->rows->fingerprint, TD_SHOW(*text, 64), call->dataset->id);
    return false;
}

static bool is_arrow(const struct td_split *split)
{
    return split->format == &td_row_format_arrow;
}

/* Returns the word before "files" in a message. */
static const char *kind_of(const struct td_row_format *format)
{
    return format == &td_row_format_images ? "image" : format->name;
}

/* Answers 422, since rows of this format are not JSON, and says how to read them. */
static void refuse_json(const struct td_call *call, const struct td_row_format *format)
{
    if (format == &td_row_format_images)
        td_response_fail(call->response, 422, NULL,
                         "rows of image files are not answered as format=json; ask for rows/N, which answers an image, "
                         "or for format=frame");
    else
        td_response_fail(call->response, 422, NULL,
                         "rows of %s files are not answered as format=json, since they are no text; ask for format=%s, "
                         "or read them by the Python client",
                         format->name, format == &td_row_format_arrow ? "arrow" : "frame");
}

/* Returns whether rows of the split can have the form; answers 422 if not. */
static bool check_form(const struct td_call *call, const struct wanted *wanted)
{
    const char *format = kind_of(wanted->split->format); // NOLINT(clang-analyzer-core.*): find_split has set it
    bool arrow = is_arrow(wanted->split);
    if (wanted->form == TD_ROWS_JSON) {
        if (!td_row_json_has(wanted->split->format))
            refuse_json(call, wanted->split->format);
    } else if (arrow != (wanted->form == TD_ROWS_ARROW)) {
        td_response_fail(call->response, 422, NULL, "rows of %s files are %s", format,
                         arrow ? "answered as format=arrow" : "not answered as format=arrow; ask for format=frame");
    } else if (wanted->form == TD_ROWS_TAR && strcmp(wanted->split->format->name, "webdataset") != 0) {
        td_response_fail(call->response, 422, NULL, "rows of %s files are no members of a tar; ask for format=frame",
                         format);
    }
    return call->response->status == 200;
}

/* Reads the form. Returns false after it answered an error. */
static bool read_form(const struct td_call *call, const struct td_text *text, struct wanted *wanted)
{
    wanted->form = is_arrow(wanted->split) ? TD_ROWS_ARROW : TD_ROWS_FRAME;
    if (text == NULL)
        return true;
    for (size_t i = 0; form_names[i] != NULL; i++) {
        if (!td_text_equals(*text, form_names[i]))
            continue;
        wanted->form = (enum td_rows_form)i;
        return check_form(call, wanted);
    }
    td_call_fail_known(call, 400, form_names, "unknown format \"%.*s\"; it is frame, raw, tar, arrow or json",
                       TD_SHOW(*text, 64));
    return false;
}

/* Answers 422 when rows of the split cannot be cut out. */
static bool check_rows(const struct td_call *call, const struct wanted *wanted)
{
    // NOLINTNEXTLINE(clang-analyzer-core.*): find_split has set it
    if (wanted->rows->reason == NULL || is_arrow(wanted->split)) /* of Arrow, batches can be sent whole */
        return true;
    td_response_fail(call->response, 422, NULL, "%s", wanted->rows->reason);
    return false;
}

/* Reads order, seed, epoch and shard. Returns false after it answered 400. */
static bool read_order(const struct td_call *call, struct wanted *wanted)
{
    const struct td_text *order = td_uri_parameter(call->uri, "order");
    const struct td_text *shard = td_uri_parameter(call->uri, "shard");
    wanted->is_shuffled = order != NULL && td_text_equals(*order, "shuffle");
    wanted->shard_count = 1;
    if (order != NULL && !wanted->is_shuffled && !td_text_equals(*order, "file")) {
        static const char *const known[] = {"file", "shuffle", NULL};
        td_call_fail_known(call, 400, known, "unknown order \"%.*s\"; it is file or shuffle", TD_SHOW(*order, 64));
        return false;
    }
    if (!td_call_read_number(call, "seed", UINT64_MAX, &wanted->seed) ||
        !td_call_read_number(call, "epoch", UINT64_MAX, &wanted->epoch))
        return false;
    if (shard != NULL) {
        struct td_text rest = *shard, number = td_text_take_until(&rest, '/');
        if (!td_number_read(rest, UINT32_MAX, &wanted->shard_count) || wanted->shard_count == 0 ||
            !td_number_read(number, wanted->shard_count - 1, &wanted->shard)) {
            td_response_fail(call->response, 400, NULL,
                             "shard must be R/W, the R-th of W shards, R from 0 to W-1, not \"%.*s\"",
                             TD_SHOW(*shard, 64));
            return false;
        }
    }
    uint64_t rows = wanted->rows->row_count;
    wanted->total = rows > wanted->shard ? (rows - wanted->shard - 1) / wanted->shard_count + 1 : 0;
    return true;
}

/* Reads the number of parameter `name`, or of `other`, its name in the Hub's dataset viewer. Returns false after it
 * answered 400. */
static bool read_either(const struct td_call *call, const char *name, const char *other, uint64_t *out)
{
    if (td_uri_parameter(call->uri, name) == NULL)
        return td_call_read_number(call, other, UINT64_MAX, out);
    if (td_uri_parameter(call->uri, other) == NULL)
        return td_call_read_number(call, name, UINT64_MAX, out);
    td_response_fail(call->response, 400, NULL, "%s and %s are names of the same number; give one of them", name,
                     other);
    return false;
}

/* Reads start and count, and limits them to the existing rows. Returns false after it answered 400. */
static bool read_place(const struct td_call *call, struct wanted *wanted)
{
    uint64_t start = 0, count = DEFAULT_COUNT;
    if (!read_either(call, "start", "offset", &start) || !read_either(call, "count", "length", &count))
        return false;
    if (start > wanted->total) {
        td_response_fail(call->response, 400, NULL,
                         "%s must be from 0 to %" PRIu64 ", the number of rows, not %" PRIu64,
                         td_uri_parameter(call->uri, "offset") == NULL ? "start" : "offset", wanted->total, start);
        return false;
    }
    uint64_t left = wanted->total - start;
    wanted->start = start;
    wanted->count = count < left ? count : left;
    bool is_run = !wanted->is_shuffled && wanted->shard_count == 1 &&
                  (is_arrow(wanted->split) || td_rows_are_runs(wanted->split, wanted->form));
    if (wanted->count <= TD_ROWS_MOST || is_run)
        return true;
    td_response_fail(call->response, 400, NULL, "%s must be at most %d; ask for the rest by another request",
                     td_uri_parameter(call->uri, "length") == NULL ? "count" : "length", TD_ROWS_MOST);
    return false;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

/* Returns the media type of a body. */
static const char *type_of(const struct wanted *wanted)
{
    switch (wanted->form) {
    case TD_ROWS_ARROW:
        return "application/vnd.apache.arrow.stream";
    case TD_ROWS_TAR:
        return "application/x-tar";
    case TD_ROWS_JSON:
        return "application/json";
    case TD_ROWS_RAW:
        return wanted->split->format->is_text ? "text/plain; charset=utf-8" : "application/octet-stream";
    case TD_ROWS_BARE:
        return wanted->split->format->row_type;
    default:
        return "application/octet-stream";
    }
}

/* Sets the entity tags, made of the split's tag and of the parameters; both tags of the split change with any row.
 * Returns false after it answered an error. */
static bool set_etag(const struct td_call *call, const struct wanted *wanted)
{
    char text[TD_ETAG_BYTES], tag[TD_TAG_BYTES];
    const uint64_t asked[] = {wanted->form, wanted->start, wanted->count, wanted->is_shuffled,
                              wanted->seed, wanted->epoch, wanted->shard, wanted->shard_count};
    bool plain = !wanted->is_shuffled; /* seed and epoch change nothing then */
    if (!td_digest_tag(asked, plain ? 4 * sizeof *asked : sizeof asked, tag) ||
        (plain && wanted->shard_count > 1 && !td_digest_tag(asked, sizeof asked, tag)))
        return td_call_no_memory(call);
    (void)snprintf(text, sizeof text, "%s-%.16s", wanted->split->tag, tag);
    td_response_set_etag(call->response, text);
    (void)snprintf(text, sizeof text, "%s-%.16s", wanted->split->former_tag, tag);
    td_response_set_former_etag(call->response, text);
    return true;
}

static struct td_split_view view_of(const struct td_call *call, const struct wanted *wanted)
{
    return (struct td_split_view){.catalog = call->api->catalog,
                                  .snapshot = call->snapshot,
                                  .split = wanted->split,
                                  .rows = wanted->rows,
                                  .budget = td_shared_budget_of(&call->api->rows, call->request->client),
                                  .cancel = call->request->cancel};
}

/* Appends the rows to the body in the wanted form. */
static bool append_rows(const struct td_call *call, const struct wanted *wanted, const struct td_row_list *list,
                        uint64_t *skip, struct td_error *err)
{
    const struct td_split_view view = view_of(call, wanted);
    struct td_body *body = &call->response->body;
    if (is_arrow(wanted->split))
        return td_arrow_rows_append(&view, list, skip, body, err);
    if (wanted->form == TD_ROWS_JSON)
        return td_row_json_append(&view, list, wanted->total, body, err);
    return td_row_answer_append(&view, list, wanted->form, body, err);
}

static bool append_list(const struct td_call *call, const struct wanted *wanted, const struct td_row_list *list)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t skip = 0;
    if (append_rows(call, wanted, list, &skip, &err)) {
        if (skip > 0)
            td_response_add_header(call->response, "X-Row-Skip", "%" PRIu64, skip);
        td_response_describe_bytes(call->response, type_of(wanted));
        return true;
    }
    td_response_fail_error(call->response, &err);
    return false;
}

/* Writes the numbers of `count` rows, from position `start` of the order on. */
static void list_order(const struct wanted *wanted, uint64_t start, size_t count, uint64_t *numbers)
{
    struct td_permutation permutation;
    if (count == 0)
        return;
    if (wanted->is_shuffled)
        td_permutation_init(&permutation, wanted->rows->row_count, wanted->seed, wanted->epoch);
    for (size_t i = 0; i < count; i++) {
        uint64_t position = (start + i) * wanted->shard_count + wanted->shard;
        numbers[i] = wanted->is_shuffled ? td_permutation_at(&permutation, position) : position;
    }
}

/* Has the kernel begin to read the rows that follow in the order, as many as were asked for. */
static void read_ahead(const struct td_call *call, const struct wanted *wanted, uint64_t *numbers)
{
    uint64_t next = wanted->start + wanted->count, left = wanted->total - next;
    size_t count = left < wanted->count ? (size_t)left : (size_t)wanted->count;
    const struct td_split_view view = view_of(call, wanted);
    const struct td_row_list list = {.count = count, .numbers = numbers};
    list_order(wanted, next, count, numbers);
    td_row_answer_read_ahead(&view, &list);
}

/* Appends rows in another order than that of the files. */
static bool append_ordered(const struct td_call *call, const struct wanted *wanted)
{
    size_t count = (size_t)wanted->count; /* at most TD_ROWS_MOST */
    if (count > TD_ROWS_QUICK && !td_may_wait(NULL))
        return false;
    uint64_t *numbers = malloc((count + 1) * sizeof *numbers);
    if (numbers == NULL)
        return td_call_no_memory(call);
    const struct td_row_list list = {.count = count, .numbers = numbers};
    list_order(wanted, wanted->start, count, numbers);
    bool ok = append_list(call, wanted, &list);
    if (ok && !is_arrow(wanted->split))
        read_ahead(call, wanted, numbers);
    free(numbers);
    return ok;
}

static void add_counts(const struct td_call *call, const struct wanted *wanted)
{
    td_response_add_header(call->response, "X-Row-Start", "%" PRIu64, wanted->start);
    td_response_add_header(call->response, "X-Row-Count", "%" PRIu64, wanted->count);
    td_response_add_header(call->response, "X-Row-Total", "%" PRIu64, wanted->total);
}

void td_handle_rows(const struct td_call *call)
{
    static const char *const known[] = {"split", "start", "offset", "count", "length",      "format",
                                        "order", "seed",  "epoch",  "shard", "fingerprint", NULL};
    struct wanted wanted = {0};
    if (!td_call_check_parameters(call, known) || !find_split(call, td_uri_parameter(call->uri, "split"), &wanted) ||
        !check_fingerprint(call, &wanted) || !check_rows(call, &wanted) ||
        !read_form(call, td_uri_parameter(call->uri, "format"), &wanted) || !read_order(call, &wanted) ||
        !read_place(call, &wanted))
        return;
    const struct td_row_list list = {.first = wanted.start, .count = (size_t)wanted.count};
    bool in_order = !wanted.is_shuffled && wanted.shard_count == 1;
    if (in_order ? !append_list(call, &wanted, &list) : !append_ordered(call, &wanted))
        return;
    if (set_etag(call, &wanted))
        add_counts(call, &wanted);
}

/* Returns the media type of an image by its name, or NULL. */
static const char *image_type(const char *path)
{
    static const struct {
        const char *extension, *type;
    } types[] = {{".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".png", "image/png"},  {".webp", "image/webp"},
                 {".gif", "image/gif"},  {".bmp", "image/bmp"},   {".tif", "image/tiff"}, {".tiff", "image/tiff"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (td_has_extension_any_case(path, types[i].extension))
            return types[i].type;
    return NULL;
}

/* Adds X-Row-Path: the path of the row's file in the dataset, percent-encoded. A path that is too long for a field is
 * left out. */
static void add_path(const struct td_call *call, const struct td_split_file *file)
{
    struct td_buffer path;
    td_buffer_init(&path);
    td_uri_encode(&path, td_text_of(td_repo_relative(call->dataset->repo, file->entry)), true);
    if (!path.failed && path.len < TD_HEADER_VALUE_BYTES)
        td_response_add_header_text(call->response, "X-Row-Path", td_buffer_text(&path));
    td_buffer_fini(&path);
}

void td_handle_row(const struct td_call *call)
{
    static const char *const known[] = {"split", "fingerprint", NULL};
    struct wanted wanted = {0};
    if (!td_call_check_parameters(call, known) || !find_split(call, td_uri_parameter(call->uri, "split"), &wanted) ||
        !check_fingerprint(call, &wanted) || !check_rows(call, &wanted))
        return;
    wanted.form = is_arrow(wanted.split) ? TD_ROWS_ARROW : TD_ROWS_BARE;
    wanted.count = 1;
    if (!td_number_read(call->rest, UINT64_MAX, &wanted.start) || wanted.start >= wanted.total) {
        if (wanted.total == 0)
            td_response_fail(call->response, 404, NULL, "split \"%.100s\" has no rows", wanted.split->name);
        else
            td_response_fail(call->response, 404, NULL, "there is no row \"%.*s\"; rows are 0 to %" PRIu64,
                             TD_SHOW(call->rest, 64), wanted.total - 1);
        return;
    }
    const struct td_row_list list = {.first = wanted.start, .count = 1};
    if (!append_list(call, &wanted, &list))
        return;
    if (wanted.split->format == &td_row_format_images) {
        uint64_t within;
        size_t number = td_split_locate(wanted.split, wanted.rows, wanted.start, &within);
        const char *type = image_type(wanted.split->files[number].entry->path);
        call->response->content_type = type != NULL ? type : call->response->content_type;
        add_path(call, &wanted.split->files[number]);
    }
    if (set_etag(call, &wanted))
        add_counts(call, &wanted);
}

void td_handle_row_table(const struct td_call *call)
{
    static const char *const known[] = {"split", "fingerprint", NULL};
    struct wanted wanted = {0};
    struct td_error err = TD_ERROR_INIT;
    if (!td_call_check_parameters(call, known) || !find_split(call, td_uri_parameter(call->uri, "split"), &wanted) ||
        !check_fingerprint(call, &wanted))
        return;
    const struct td_split_view view = view_of(call, &wanted);
    if (!td_row_table_append(&view, call->dataset, &call->response->body, &err)) {
        td_response_fail_error(call->response, &err);
        return;
    }
    td_response_describe_bytes(call->response, "application/octet-stream");
    wanted.form = TD_ROWS_FORMS; /* another representation than rows */
    set_etag(call, &wanted);
    td_response_add_header(call->response, "X-Row-Total", "%" PRIu64, wanted.total);
}

/* ---- batches ------------------------------------------------------------------------------------------- */

/* A batch while its request is read. The numbers are owned. */
struct batch {
    uint64_t *numbers;
    size_t count;
    const char *split, *format; /* of the JSON; NULL: not given */
};

static bool fail_count(struct td_error *err)
{
    return td_error_set(err, TD_INVALID_ARGUMENT, "a batch has at most %d rows; make several requests", TD_ROWS_MOST);
}

/* Reads little-endian numbers of 8 bytes. */
static bool read_packed(struct td_text body, struct batch *batch, struct td_error *err)
{
    size_t count = body.len / 8;
    if (body.len % 8 != 0)
        return td_error_set(
            err, TD_INVALID_ARGUMENT,
            "packed indices are little-endian numbers of 8 bytes, and %zu bytes are no multiple of that", body.len);
    if (count > TD_ROWS_MOST)
        return fail_count(err);
    batch->numbers = malloc((count + 1) * sizeof *batch->numbers);
    if (batch->numbers == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        batch->numbers[i] = td_load_le64((const uint8_t *)body.p + 8 * i);
    batch->count = count;
    return true;
}

static bool read_indices(const struct td_json_document *document, const cJSON *list, struct batch *batch,
                         struct td_error *err)
{
    if (!cJSON_IsArray(list))
        return td_json_document_fail(document, list, "a list of row numbers expected");
    size_t count = (size_t)cJSON_GetArraySize(list);
    if (count > TD_ROWS_MOST)
        return fail_count(err);
    batch->numbers = malloc((count + 1) * sizeof *batch->numbers);
    if (batch->numbers == NULL)
        return td_error_no_memory(err);
    for (const cJSON *item = list->child; item != NULL; item = item->next)
        if (!td_json_document_u64(document, item, &batch->numbers[batch->count++]))
            return td_json_document_fail(document, item, "a row's number expected, a whole number from 0 on");
    return true;
}

static bool read_member(const struct td_json_document *document, const cJSON *item, struct batch *batch,
                        struct td_error *err)
{
    bool is_split = strcmp(item->string, "split") == 0;
    if (strcmp(item->string, "indices") == 0)
        return batch->numbers == NULL ? read_indices(document, item, batch, err)
                                      : td_json_document_fail_key(document, item, "\"indices\" is given twice");
    if (!is_split && strcmp(item->string, "format") != 0)
        return td_json_document_unknown_key(document, item, "the keys are \"split\", \"indices\" and \"format\"");
    const char **place = is_split ? &batch->split : &batch->format;
    if (*place != NULL)
        return td_json_document_fail_key(document, item, "given twice");
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "a string expected");
    *place = td_json_document_string(document, item);
    return *place != NULL;
}

/* The tree takes some 100 bytes for each number, of at least two bytes with its comma. */
enum { TREE_FREE_BYTES = 65536, TREE_PER_BYTE = 80 };

/* TD_ROWS_MOST numbers of 20 digits, with their commas and blanks. */
enum { JSON_MOST_BYTES = 2097152 };

static bool read_json(struct td_text body, struct td_arena *arena, struct batch *batch, struct td_error *err)
{
    struct td_json_document document;
    td_json_document_read(&document, td_text_n(body.p == NULL ? "" : body.p, body.len), arena, err);
    const cJSON *root = td_json_document_object(&document, "an object with \"split\", \"indices\" and \"format\"");
    if (root == NULL)
        return false;
    for (const cJSON *item = root->child; item != NULL; item = item->next)
        if (!read_member(&document, item, batch, err))
            return false;
    if (!td_json_document_end(&document))
        return false;
    return batch->numbers != NULL || td_error_at(err, TD_INVALID_ARGUMENT, body.len, "\"indices\" is missing");
}

static bool check_indices(const struct td_call *call, const struct wanted *wanted, const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->numbers[i] < wanted->total)
            continue;
        if (wanted->total == 0)
            td_response_fail(call->response, 400, NULL, "split \"%.100s\" has no rows", wanted->split->name);
        else
            td_response_fail(call->response, 400, NULL, "index %zu of the batch is %" PRIu64 "; rows are 0 to %" PRIu64,
                             i, batch->numbers[i], wanted->total - 1);
        return false;
    }
    return true;
}

/* Returns the text of a member of the JSON, or else of the query's parameter; NULL when neither is given. */
static const struct td_text *member_or_parameter(const struct td_call *call, const char *name, const char *member,
                                                 struct td_text *text)
{
    if (member == NULL)
        return td_uri_parameter(call->uri, name);
    *text = td_text_of(member);
    return text;
}

static void answer_batch(const struct td_call *call, const struct batch *batch)
{
    struct wanted wanted = {0};
    struct td_text split, format;
    if (!find_split(call, member_or_parameter(call, "split", batch->split, &split), &wanted) ||
        !check_fingerprint(call, &wanted) || !check_rows(call, &wanted) ||
        !read_form(call, member_or_parameter(call, "format", batch->format, &format), &wanted) ||
        !check_indices(call, &wanted, batch))
        return;
    const struct td_row_list list = {.count = batch->count, .numbers = batch->numbers};
    wanted.count = batch->count;
    if (!append_list(call, &wanted, &list))
        return;
    call->response->accept_ranges = false; /* a POST has none */
    call->response->cache_control = "no-store";
    td_response_add_header(call->response, "X-Row-Count", "%zu", batch->count);
    td_response_add_header(call->response, "X-Row-Total", "%" PRIu64, wanted.total);
}

void td_handle_rows_batch(const struct td_call *call)
{
    static const char *const known[] = {"split", "format", "fingerprint", NULL};
    const struct td_header *type;
    struct batch batch = {0};
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    size_t at = 0;
    if (!td_call_check_parameters(call, known))
        return;
    if (call->request->body.len > JSON_MOST_BYTES) {
        td_response_fail(call->response, 400, NULL, "a batch has at most %d rows, and its text at most %d bytes",
                         TD_ROWS_MOST, JSON_MOST_BYTES);
        return;
    }
    type = td_request_next_header(call->request, "Content-Type", &at);
    bool is_packed = type != NULL && td_text_begins_ignore_case(type->value, "application/octet-stream");
    td_arena_init_budget(&arena, TREE_FREE_BYTES + TREE_PER_BYTE * call->request->body.len,
                         td_shared_budget_of(&call->api->rows, call->request->client));
    if (is_packed ? read_packed(call->request->body, &batch, &err)
                  : read_json(call->request->body, &arena, &batch, &err))
        answer_batch(call, &batch);
    else
        td_call_fail_json(call, &err);
    free(batch.numbers);
    td_arena_fini(&arena);
}
