#include "api/native/manifest_view.h"

#include "api/call/state.h"
#include "core/json/json.h"
#include "http/page_token.h"
#include "http/rendered.h"
#include "http/uri.h"
#include "tests/unit/api/json_member.h"
#include "tests/unit/api/view_text.h"
#include "tests/unit/tree_fixture.h"

#include <inttypes.h>
#include <pthread.h>

enum { LAYERS = 700 };

struct place {
    struct tree tree;
    struct scanner scanner;
    struct td_lru cache;
};

/* Makes four models: 2 * LAYERS tensors, strange names, shards, and no tensors. */
static void open_place(struct place *place)
{
    static struct tree_tensor tensors[2 * LAYERS];
    static char names[2 * LAYERS][64];
    static const struct tree_tensor strange[] = {
        {"quote \\\" backslash \\\\ slash / percent %", "U8", "[1]", 1},
        {"\\u00e9\\ud83d\\ude00 \xe6\x97\xa5", "I64", "[]", 8},
        {"", "BOOL", "[2,1]", 2},
        {"line\\nbreak\\u0001\\u007f", "F8_E4M3", "[3]", 3},
        {"?match=*&a#b", "BF16", "[0,18446744073709551615]", 0},
        {" ", "F64", "[1,1,1,1,1,1,1,1]", 8},
    };
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        (void)snprintf(names[i], sizeof names[i], "model.layers.%zu.%s", i / 2, i % 2 == 0 ? "weight" : "bias");
        tensors[i] = (struct tree_tensor){names[i], i % 2 == 0 ? "BF16" : "F32", i % 2 == 0 ? "[2,2]" : "[2]", 8};
    }
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "org/big/model.safetensors", tensors, COUNT_OF(tensors),
                       "{\"format\":\"pt\",\"a \\\"b\\\"\":\"\\u00e9\"}", 0);
    tree_simple(&place->tree, "org/big/other.safetensors", "x");
    (void)tree_tensors(&place->tree, "strange name/x y.safetensors", strange, COUNT_OF(strange), NULL, 0);
    tree_simple(&place->tree, "parted/model-00001-of-00002.safetensors", "d b");
    tree_simple(&place->tree, "parted/model-00002-of-00002.safetensors", "a c");
    tree_simple(&place->tree, "empty/x.safetensors", "");
    scanner_open(&place->scanner, &place->tree);
    (void)scanner_scan(&place->scanner);
    assert_true(td_lru_init(&place->cache, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES));
}

static void close_place(struct place *place)
{
    td_lru_fini(&place->cache);
    scanner_close(&place->scanner);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Returns the manifest's text, which the caller frees. */
static char *text_of(struct place *place, const char *model_id, const struct view_options *options)
{
    static const struct view_options whole;
    const struct td_model *model = scanner_model(&place->scanner, model_id);
    assert_non_null(model);
    return view_flatten(view_create(&place->cache, place->scanner.snapshot, model, &model->checkpoints[0],
                                    options == NULL ? &whole : options));
}

static cJSON *parse(const char *text)
{
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithOpts(text, &end, 0);
    CHECK(json != NULL, "not JSON: %.100s", text);
    CHECK(strcmp(end, "\n") == 0, "something follows: %.100s", end);
    return json;
}

static void check_shape(const cJSON *entry, const struct td_tensor *tensor)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    assert_int_equal(cJSON_GetArraySize(shape), tensor->rank);
    for (uint32_t i = 0; i < tensor->rank; i++)
        assert_true(cJSON_GetArrayItem(shape, (int)i)->valuedouble == (double)tensor->shape[i]);
}

/* Checks that an href, parsed like a request target, names the model and the tensor. Clients remove the segments "."
 * and "..", so those names have one '/' more. */
static void check_href(const char *href, const struct td_model *model, const char *name)
{
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    char wanted[512];
    assert_int_equal(strspn(href, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%?="),
                     strlen(href));
    assert_true(td_uri_parse(&uri, td_text_of(href), TD_URI_STRICT, &err));
    const bool is_removed = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    (void)snprintf(wanted, sizeof wanted, "/models/%s/tensors/%s%s", model->id, is_removed ? "/" : "", name);
    CHECK(td_text_equals(uri.path, wanted), "%s", href);
    td_uri_fini(&uri);
}

/* Checks the whole manifest of a model's default checkpoint against the checkpoint itself. */
static void check_whole(struct place *place, const char *model_id)
{
    const struct td_model *model = scanner_model(&place->scanner, model_id);
    CHECK(model != NULL && model->checkpoint_count > 0, "%s: %s", model_id,
          model == NULL || model->problems.count == 0 ? "?" : model->problems.items[0].message);
    const struct td_checkpoint *c = &model->checkpoints[0];
    char *text = text_of(place, model_id, NULL);
    cJSON *json = parse(text);
    assert_string_equal(string_at(json, "model"), model_id);
    assert_string_equal(string_at(json, "checkpoint"), "safetensors");
    assert_string_equal(string_at(json, "format"), "safetensors");
    assert_string_equal(string_at(json, "etag"), c->tag);
    assert_true(whole_at(json, "tensor_count") == c->tensor_count);
    assert_true(whole_at(json, "total_bytes") == c->total_bytes);
    assert_string_equal(string_at(json, "next_page_token"), "");
    assert_null(cJSON_GetObjectItemCaseSensitive(json, "matched_count"));
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(json, "tensors");
    assert_int_equal(cJSON_GetArraySize(tensors), c->tensor_count);
    const cJSON *entry;
    size_t i = 0;
    cJSON_ArrayForEach(entry, tensors)
    {
        struct td_tensor_ref ref = td_checkpoint_tensor(c, i++);
        assert_string_equal(string_at(entry, "name"), ref.tensor->name);
        assert_string_equal(string_at(entry, "dtype"), ref.tensor->dtype->name);
        assert_true(whole_at(entry, "nbytes") == ref.tensor->nbytes);
        assert_true(whole_at(entry, "offset") == ref.tensor->offset);
        assert_string_equal(string_at(entry, "file"), td_model_relative(model, c->parts[ref.part]));
        check_shape(entry, ref.tensor);
        check_href(string_at(entry, "href"), model, ref.tensor->name);
    }
    cJSON_Delete(json);
    free(text);
}

static void whole_manifests(void **state)
{
    struct place *place = *state;
    static const char *const ids[] = {"org/big", "strange name", "parted", "empty", "org/big"};
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        check_whole(place, ids[i]);
}

static void metadata_is_passed_on(void **state)
{
    struct place *place = *state;
    char *text = text_of(place, "org/big", NULL);
    cJSON *json = parse(text);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(json, "metadata");
    assert_string_equal(string_at(metadata, "format"), "pt");
    assert_string_equal(string_at(metadata, "a \"b\""), "\xc3\xa9");
    cJSON_Delete(json);
    free(text);
    text = text_of(place, "empty", NULL);
    assert_non_null(strstr(text, "\"metadata\":{}"));
    free(text);
}

/* Compares text, because cJSON's doubles do not hold 64-bit numbers exactly. */
static void numbers_of_64_bits_are_exact(void **state)
{
    struct place *place = *state;
    char header[256];
    int n = snprintf(header + 8, sizeof header - 8,
                     "{\"hole\":{\"dtype\":\"U8\",\"shape\":[6442450947],\"data_offsets\":[0,6442450947]},"
                     "\"last\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[6442450947,6442450952]}}");
    for (int i = 0; i < 8; i++)
        header[i] = (char)((uint64_t)n >> 8 * i);
    tree_write(&place->tree, "sparse/x.safetensors", header, 8 + (size_t)n);
    tree_truncate(&place->tree, "sparse/x.safetensors", 8 + (uint64_t)n + 6442450952);
    (void)scanner_scan(&place->scanner);
    char *text = text_of(place, "sparse", NULL);
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted,
                   "\"shape\":[5],\"nbytes\":5,\"file\":\"x.safetensors\",\"offset\":%" PRIu64 ",",
                   8 + (uint64_t)n + 6442450947);
    assert_non_null(strstr(text, wanted));
    assert_non_null(strstr(text, "\"total_bytes\":6442450952,"));
    assert_non_null(strstr(text, "\"shape\":[6442450947],\"nbytes\":6442450947,"));
    free(text);
    text = text_of(place, "strange name", NULL);
    assert_non_null(strstr(text, "\"shape\":[0,18446744073709551615],\"nbytes\":0,"));
    free(text);
}

/* Reads windows in any order; each equals that part of the whole text. */
static void windows_equal_the_whole(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    uint64_t seed = 11;
    static const char *const ids[] = {"org/big", "parted", "empty"};
    static const struct view_options options[] = {
        {0}, {.match = "*weight"}, {.page_size = 300}, {.dtype = "F32", .page_size = 500, .after = "model.layers.3"}};
    for (size_t m = 0; m < COUNT_OF(ids); m++) {
        for (size_t o = 0; o < COUNT_OF(options); o++) {
            const struct td_model *model = scanner_model(&place->scanner, ids[m]);
            char *whole = text_of(place, ids[m], &options[o]);
            struct td_blob *blob =
                view_create(&place->cache, place->scanner.snapshot, model, &model->checkpoints[0], &options[o]);
            size_t len = strlen(whole);
            assert_true(blob->len_bytes == len && blob->bytes == NULL);
            assert_true(td_blob_unchanged(blob));
            for (int round = 0; round < 400; round++) {
                size_t off = random_below(&seed, len + 1);
                size_t most = random_below(&seed, 2) == 0 ? 100 : 70000;
                size_t n = random_below(&seed, (len - off < most ? len - off : most) + 1);
                char *window = malloc(n + 1);
                assert_non_null(window);
                assert_true(td_blob_read(blob, off, window, n, &err));
                assert_memory_equal(window, whole + off, n);
                free(window);
            }
            td_blob_unref(blob);
            free(whole);
        }
    }
}

/* Finds the text between the brackets of "tensors", and decodes the name that the page token continues after. Returns
 * false when there is no token. */
static bool take_page(char *text, char **tensors, size_t *tensors_len, struct td_buffer *after)
{
    static const char begin[] = "\"tensors\":[";
    static const char end[] = "],\"next_page_token\":\"";
    *tensors = strstr(text, begin);
    assert_non_null(*tensors);
    *tensors += strlen(begin);
    char *stop = *tensors;
    for (char *at = stop; (at = strstr(at, end)) != NULL; at++)
        stop = at;
    *tensors_len = (size_t)(stop - *tensors);
    char *token = stop + strlen(end);
    char *quote = strchr(token, '"');
    assert_non_null(quote);
    assert_string_equal(quote, "\"}\n");
    if (quote == token)
        return false;
    struct td_text listing = {.p = "listing", .len = 7};
    assert_true(td_page_token_read(td_text_n(token, (size_t)(quote - token)), listing, after));
    assert_non_null(td_buffer_terminate(after));
    return true;
}

/* Checks that the tensors of all pages, joined, equal those of the one whole page, byte for byte. */
static void check_pages(struct place *place, const char *id, struct view_options options, size_t page_size)
{
    char *whole_text = text_of(place, id, &options);
    char *whole;
    size_t whole_len;
    struct td_buffer after;
    struct td_buffer joined;
    size_t pages = 0;
    td_buffer_init(&after);
    td_buffer_init(&joined);
    bool more = take_page(whole_text, &whole, &whole_len, &after);
    assert_false(more);
    options.page_size = page_size;
    do {
        options.after = pages == 0 ? NULL : after.data;
        char *text = text_of(place, id, &options);
        cJSON *json = parse(text);
        char *tensors;
        size_t len;
        int count = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "tensors"));
        more = take_page(text, &tensors, &len, &after);
        CHECK(!more || (size_t)count == page_size, "%s: page %zu of %d", id, pages, count);
        CHECK(count > 0 || whole_len == 0, "%s: page %zu is empty", id, pages);
        if (joined.len > 0 && len > 0)
            td_buffer_putc(&joined, ',');
        td_buffer_append(&joined, tensors, len);
        cJSON_Delete(json);
        free(text);
        pages++;
    } while (more);
    CHECK(joined.len == whole_len && (whole_len == 0 || memcmp(joined.data, whole, whole_len) == 0), "%s, %zu", id,
          page_size);
    td_buffer_fini(&joined);
    td_buffer_fini(&after);
    free(whole_text);
}

static void pages_join_to_the_whole(void **state)
{
    struct place *place = *state;
    static const size_t sizes[] = {1, 7, 100, 699, 700, 701, 1399, 1400, 1401, 10000};
    static const struct view_options filters[] = {{0}, {.match = "*.weight"}, {.dtype = "F32"}, {.match = "none*"}};
    for (size_t f = 0; f < COUNT_OF(filters); f++)
        for (size_t i = 0; i < COUNT_OF(sizes); i++)
            if (sizes[i] > 1 || f == 2)
                check_pages(place, "org/big", filters[f], sizes[i]);
    static const char *const ids[] = {"parted", "empty", "strange name"};
    for (size_t m = 0; m < COUNT_OF(ids); m++)
        for (size_t size = 1; size < 8; size++)
            check_pages(place, ids[m], filters[0], size);
}

/* A page continues after a name that need not exist: the checkpoint may have changed since the page before. */
static void pages_continue_after_any_name(void **state)
{
    static const struct {
        const char *after, *names;
    } cases[] = {{"", "a b c d"}, {"a", "b c d"}, {"aa", "b c d"}, {"b", "c d"}, {"c", "d"}, {"d", ""}, {"zz", ""}};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct view_options options = {.page_size = 100, .after = cases[i].after};
        char *text = text_of(place, "parted", &options);
        cJSON *json = parse(text);
        char got[64] = "";
        const cJSON *entry;
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(json, "tensors"))
        {
            if (got[0] != '\0')
                (void)strcat(got, " ");
            (void)strcat(got, string_at(entry, "name"));
        }
        CHECK(strcmp(got, cases[i].names) == 0, "after \"%s\": %s", cases[i].after, got);
        assert_string_equal(string_at(json, "next_page_token"), "");
        cJSON_Delete(json);
        free(text);
    }
}

/* ---- long names ---------------------------------------------------------------------------------------- */

enum { LONG_NAMES = 20, LONG_NAME_BYTES = 6000, BEGINNING_BYTES = 1024 };

/* Writes a checkpoint with 4 names about as long as the part of a name that a token holds, and then, in the order of
 * names, LONG_NAMES names that differ in the last byte alone. Leaves out the long name with number `without`. */
static void write_long_names(struct tree *tree, size_t without)
{
    static char names[LONG_NAMES + 4][LONG_NAME_BYTES + 1];
    struct tree_tensor tensors[LONG_NAMES + 4];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len = i < LONG_NAMES ? LONG_NAME_BYTES : BEGINNING_BYTES - 2 + (i - LONG_NAMES);
        memset(names[i], 'n', len);
        names[i][len - 1] = i < LONG_NAMES ? (char)('a' + i) : 'n';
        names[i][len] = '\0';
        if (i != without)
            tensors[count++] = (struct tree_tensor){names[i], "U8", "[1]", 1};
    }
    (void)tree_tensors(tree, "long/x.safetensors", tensors, count, NULL, 0);
}

static void tokens_of_long_names_are_short(void **state)
{
    struct place *place = *state;
    write_long_names(&place->tree, SIZE_MAX);
    (void)scanner_scan(&place->scanner);
    static const struct view_options all = {0};
    for (size_t size = 1; size < LONG_NAMES + 4; size++)
        check_pages(place, "long", all, size);
    for (size_t size = 1; size <= LONG_NAMES + 4; size++) {
        struct view_options options = {.page_size = size};
        char *text = text_of(place, "long", &options);
        cJSON *json = parse(text);
        CHECK(strlen(string_at(json, "next_page_token")) <= 1500, "%zu", size);
        cJSON_Delete(json);
        free(text);
    }
}

/* The name that a page ended with is found where it is now. When it is gone, no other name is missed. */
static void long_names_may_change_between_pages(void **state)
{
    (void)state;
    for (size_t gone = 0; gone < LONG_NAMES; gone += 4) {
        for (size_t last = 0; last < LONG_NAMES; last += 3) {
            struct place place;
            struct td_buffer after;
            char *tensors;
            size_t len;
            open_place(&place);
            td_buffer_init(&after);
            write_long_names(&place.tree, SIZE_MAX);
            (void)scanner_scan(&place.scanner);
            struct view_options options = {.page_size = 4 + last + 1};
            char *text = text_of(&place, "long", &options);
            assert_true(take_page(text, &tensors, &len, &after));
            free(text);
            tree_remove(&place.tree, "long/x.safetensors");
            write_long_names(&place.tree, gone);
            (void)scanner_scan(&place.scanner);
            options = (struct view_options){.after = after.data};
            text = text_of(&place, "long", &options);
            cJSON *json = parse(text);
            int left = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "tensors"));
            int behind = LONG_NAMES - 1 - (int)last - (gone > last ? 1 : 0);
            int wanted = gone == last ? LONG_NAMES : behind; /* the others and the name of 1,025 bytes */
            CHECK(left == wanted, "%zu gone, page to %zu: %d, wanted %d", gone, last, left, wanted);
            cJSON_Delete(json);
            free(text);
            td_buffer_fini(&after);
            close_place(&place);
        }
    }
}

static void filters_select(void **state)
{
    static const struct {
        struct view_options options;
        size_t matched;
    } cases[] = {
        {{.match = "*"}, 2 * LAYERS},
        {{.match = "*.weight"}, LAYERS},
        {{.match = "model.layers.1.*"}, 2},
        {{.match = "model.layers.?.bias"}, 10},
        {{.match = "model.layers.[12]??.weight"}, 200},
        {{.match = ""}, 0},
        {{.match = "MODEL*"}, 0},
        {{.dtype = "F32"}, LAYERS},
        {{.dtype = "I8"}, 0},
        {{.dtype = "BF16", .match = "*bias"}, 0},
        {{.dtype = "F32", .match = "*1?.bias"}, 70},
    };
    struct place *place = *state;
    const struct td_checkpoint *c = &scanner_model(&place->scanner, "org/big")->checkpoints[0];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *text = text_of(place, "org/big", &cases[i].options);
        cJSON *json = parse(text);
        CHECK(whole_at(json, "matched_count") == cases[i].matched, "%zu: %s", i, text);
        CHECK((size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "tensors")) == cases[i].matched, "%zu",
              i);
        /* counts are of the whole checkpoint, whatever the filter */
        assert_true(whole_at(json, "tensor_count") == 2 * LAYERS && whole_at(json, "total_bytes") == c->total_bytes);
        cJSON_Delete(json);
        free(text);
        struct view_options page = cases[i].options;
        page.page_size = 3;
        text = text_of(place, "org/big", &page);
        json = parse(text);
        CHECK(whole_at(json, "matched_count") == cases[i].matched, "%zu: a page counts all", i);
        CHECK((*string_at(json, "next_page_token") != '\0') == (cases[i].matched > 3), "%zu", i);
        cJSON_Delete(json);
        free(text);
    }
}

static void hrefs_name_other_checkpoints(void **state)
{
    struct place *place = *state;
    const struct td_model *model = scanner_model(&place->scanner, "org/big");
    assert_int_equal(model->checkpoint_count, 2);
    struct view_options whole = {0};
    for (int round = 0; round < 2; round++) { /* rendered first, then from the cache */
        char *text =
            view_flatten(view_create(&place->cache, place->scanner.snapshot, model, &model->checkpoints[1], &whole));
        assert_non_null(strstr(text, "\"href\":\"/models/org/big/tensors/x?checkpoint=other.safetensors\""));
        free(text);
        text = text_of(place, "org/big", NULL);
        assert_null(strstr(text, "?checkpoint="));
        free(text);
    }
}

/* RFC 3986 section 5.2.4: clients remove the segments "." and ".." from a path before they ask. Proxies may remove
 * empty ones. */
static void hrefs_survive_clients(void **state)
{
    static const struct tree_tensor dotted[] = {
        {".", "U8", "[1]", 1},    {"..", "U8", "[1]", 1},   {"a/../b", "U8", "[1]", 1}, {"a/./b", "U8", "[1]", 1},
        {"../x", "U8", "[1]", 1}, {"x/..", "U8", "[1]", 1}, {"...", "U8", "[1]", 1},    {"a..b/.c", "U8", "[1]", 1},
        {"a//b", "U8", "[1]", 1}, {"/", "U8", "[1]", 1},    {"a.b", "U8", "[1]", 1},    {"/a", "U8", "[1]", 1},
        {"a/", "U8", "[1]", 1},
    };
    struct tree *tree = *state;
    struct scanner scanner;
    struct view_options whole = {0};
    (void)tree_tensors(tree, "m/x.safetensors", dotted, COUNT_OF(dotted), NULL, 0);
    scanner_open(&scanner, tree);
    (void)scanner_scan(&scanner);
    const struct td_model *model = scanner_model(&scanner, "m");
    assert_int_equal(model->checkpoints[0].tensor_count, COUNT_OF(dotted));
    char *text = view_flatten(view_create(NULL, scanner.snapshot, model, &model->checkpoints[0], &whole));
    cJSON *json = parse(text);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(json, "tensors"))
    {
        const char *href = string_at(entry, "href");
        check_href(href, model, string_at(entry, "name"));
        for (const char *at = href; at != NULL; at = strchr(at + 1, '/')) {
            size_t n = strcspn(at + 1, "/");
            CHECK(n > 0 && !(n == 1 && at[1] == '.') && !(n == 2 && at[1] == '.' && at[2] == '.'), "%s", href);
        }
    }
    cJSON_Delete(json);
    free(text);
    scanner_close(&scanner);
}

/* The cache holds layouts only: the text is the same with and without it, also while layouts are dropped. */
static void the_cache_changes_nothing(void **state)
{
    enum { MODELS = 80, CACHE_BYTES = 16 * 1024 };
    struct tree *tree = *state;
    struct scanner scanner;
    struct td_lru cache;
    struct view_options whole = {0};
    char name[64];
    for (int i = 0; i < MODELS; i++) {
        (void)snprintf(name, sizeof name, "m%d/x.safetensors", i);
        tree_simple(tree, name, i % 2 == 0 ? "a b c" : "a");
    }
    scanner_open(&scanner, tree);
    (void)scanner_scan(&scanner);
    assert_true(td_lru_init(&cache, &td_rendered_index_class, CACHE_BYTES));
    uint64_t seed = 12;
    for (int round = 0; round < 1000; round++) {
        const struct td_model *model = &scanner.snapshot->models[random_below(&seed, scanner.snapshot->model_count)];
        char *cached = view_flatten(view_create(&cache, scanner.snapshot, model, &model->checkpoints[0], &whole));
        char *fresh = view_flatten(view_create(NULL, scanner.snapshot, model, &model->checkpoints[0], &whole));
        assert_string_equal(cached, fresh);
        free(cached);
        free(fresh);
    }
    CHECK(cache.count > 2 && cache.count < MODELS / 2, "%zu of %d", cache.count, MODELS); /* some stay, most go */
    td_lru_fini(&cache);
    scanner_close(&scanner);
}

/* A view keeps its snapshot while a newer one is current. */
static void a_view_holds_its_snapshot(void **state)
{
    struct place *place = *state;
    struct view_options whole = {0};
    const struct td_model *model = scanner_model(&place->scanner, "parted");
    char *before = text_of(place, "parted", NULL);
    struct td_blob *blob = view_create(NULL, place->scanner.snapshot, model, &model->checkpoints[0], &whole);
    tree_remove(&place->tree, "parted");
    (void)scanner_scan(&place->scanner);
    assert_null(scanner_model(&place->scanner, "parted"));
    char *after = view_flatten(blob);
    assert_string_equal(before, after);
    free(before);
    free(after);
}

struct reader {
    struct place *place;
    const char *wanted;
    uint64_t seed;
    int wrong;
};

static void *read_views(void *argument)
{
    struct reader *reader = argument;
    struct td_snapshot *snapshot = reader->place->scanner.snapshot;
    const struct td_model *model = td_snapshot_find_model(snapshot, TD_TEXT("org/big"));
    struct td_manifest_query whole = {.page_first = true};
    size_t len = strlen(reader->wanted);
    for (int round = 0; round < 30; round++) {
        struct td_blob *blob = NULL;
        struct td_error err = TD_ERROR_INIT;
        char window[3000];
        if (!td_manifest_view_create(&reader->place->cache, snapshot, model, &model->checkpoints[0], &whole, &blob,
                                     &err)) {
            reader->wrong++;
            continue;
        }
        for (int i = 0; i < 5; i++) {
            size_t off = random_below(&reader->seed, len - sizeof window);
            reader->wrong += !td_blob_read(blob, off, window, sizeof window, &err) ||
                             memcmp(window, reader->wanted + off, sizeof window) != 0;
        }
        td_blob_unref(blob);
    }
    return NULL;
}

static void threads_share_the_layouts(void **state)
{
    enum { THREADS = 4 };
    struct place *place = *state;
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    char *wanted = text_of(place, "org/big", NULL);
    td_lru_fini(&place->cache); /* an empty cache, so that all threads make the layout at once */
    assert_true(td_lru_init(&place->cache, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES));
    for (size_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.place = place, .wanted = wanted, .seed = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, read_views, &readers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    free(wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, whole_manifests),
        TEST_IN(place, metadata_is_passed_on),
        TEST_IN(place, numbers_of_64_bits_are_exact),
        TEST_IN(place, windows_equal_the_whole),
        TEST_IN(place, pages_join_to_the_whole),
        TEST_IN(place, pages_continue_after_any_name),
        TEST_IN(place, tokens_of_long_names_are_short),
        cmocka_unit_test(long_names_may_change_between_pages),
        TEST_IN(place, filters_select),
        TEST_IN(place, hrefs_name_other_checkpoints),
        TEST_IN(tree, hrefs_survive_clients),
        TEST_IN(tree, the_cache_changes_nothing),
        TEST_IN(place, a_view_holds_its_snapshot),
        TEST_IN(place, threads_share_the_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
