/* Out of memory is an error, not an abort: the k-th allocation fails, for every k, in requests and in scans. The answer
 * is then the right one or a 503; nothing leaks, and the next request or scan is right again. */
#include "api/call/state.h"
#include "api/s3/s3.h"
#include "core/log.h"
#include "http/rendered.h"
#include "rank/made_document.h"
#include "tests/kit/scanner.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/api/served_place.h"
#include "tests/unit/api/virtual_place.h"
#include "tests/unit/tree_fixture.h"

/* ---- requests ------------------------------------------------------------------------------------------ */

static void fill(const struct tree *tree)
{
    tree_simple(tree, "m/model-00001-of-00002.safetensors", "b d");
    tree_simple(tree, "m/model-00002-of-00002.safetensors", "a c");
    tree_index(tree, "m/model.safetensors.index.json",
               "a model-00002-of-00002.safetensors b model-00001-of-00002.safetensors");
    tree_text(tree, "m/config.json", "{\"a\": [1, 2, 3], \"b\": \"\\u00e9\"}");
    tree_simple(tree, "m/variant.safetensors", "a");
    tree_text(tree, "n/bad.safetensors", "rubbish!");
    tree_simple(tree, "n/x.safetensors", "p");
    tree_simple(tree, "n/y.safetensors", "q");
    tree_simple(tree, "root.safetensors", "t");
    tree_simple(tree, "tensors/x.safetensors", "t");
    tree_simple(tree, "models--org--hub/snapshots/c0/x.safetensors", "t");
    tree_text(tree, "g/g-Q8_0.gguf", "GGUF of another kind");
    tree_text(tree, "g/mmproj.gguf", "");
    tree_text(tree, "g/LICENSE", "MIT");
    tree_symlink(tree, "n/loop.safetensors", "loop.safetensors");
    tree_symlink(tree, "n/linked.txt", "../m/config.json");
    tree_text(tree, "\xff", "");
    tree_text(tree, "datasets/d/train.jsonl", "{\"a\":1}\n{\"b\":2}\r\n\n3");
    tree_text(tree, "datasets/d/train-2.jsonl", "4\n5\n");
    tree_text(tree, "datasets/d/test.jsonl", "6\n");
    tree_text(tree, "datasets/o/d/a.jsonl", "7\n");
    tree_text(tree, "datasets/o/d/b.jsonl", "8\n");
    tree_text(tree, "datasets/o/d/README.md", "---\nconfigs:\n- data_files:\n  - split: x\n    path: 'a*'\n---\n");
}

/* Gives the model m, which registries serve, its digests, as the hasher would: of any bytes, as nothing here compares
 * them with those of the files. */
static void hash_files(struct place *place)
{
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        const char *path = snapshot->entries[i].path;
        uint8_t sum[TD_SHA256_BYTES];
        td_sha256(path, strlen(path), sum);
        if (strncmp(path, "n/", 2) != 0) /* a model whose digests are not known */
            (void)td_file_set_sha256(snapshot->entries[i].file, sum);
    }
    td_snapshot_unref(snapshot);
}

#define NO_SHA256 "0000000000000000000000000000000000000000000000000000000000000000"
#define CONFIG_SHA256 "0558b787fdbd93b2ad441e9254859ad72960def0aeb2342c9ad308ea1d6e8023" /* of "m/config.json" */
#define LAYER_SHA256 "587cb980af76fdc7e52369fd0b9d926dff266976b6f8ac631e358fecc49ff8cf"  /* of "config.json" */
#define RANK_SHA256 "b224a928ecb402fed6b39408efe348967f1d4ac74e22b73bd72c4557b47fd0d8"   /* of "tp1-rank0-none" */

/* The target of the second page of models; open_place writes it. */
static char second_page[256];

static void open_place(struct place *place)
{
    static const char key[] = "\"next_page_token\":\"";
    struct answer first;
    tree_open(&place->tree);
    fill(&place->tree);
    loopback_open(&place->loop, &place->tree);
    loopback_wait_indexed(place->loop.catalog);
    hash_files(place);
    note_layers(&place->loop.api, "m");
    note_rank_file(&place->loop.api, "m", "tp1-rank0-none");
    loopback_get(&place->loop, "/models?page_size=1", &first);
    const char *token = strstr(first.body, key);
    assert_non_null(token);
    token += strlen(key);
    (void)snprintf(second_page, sizeof second_page, "/models?page_size=1&page_token=%.*s", (int)strcspn(token, "\""),
                   token);
    answer_fini(&first);
}

/* Empties the caches: no mappings, no layouts, no rank files. */
static void make_cold(struct place *place)
{
    struct td_snapshot *snapshot = td_catalog_acquire(place->loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++)
        td_file_source_forget(td_catalog_maps(place->loop.catalog), &snapshot->entries[i].file->source);
    td_snapshot_unref(snapshot);
    td_lru_fini(&place->loop.api.manifests);
    assert_true(td_lru_init(&place->loop.api.manifests, &td_rendered_index_class, TD_MANIFEST_CACHE_BYTES));
    td_lru_fini(&place->loop.api.documents);
    assert_true(td_lru_init(&place->loop.api.documents, &td_made_documents_class, TD_MADE_STORE_BYTES));
    while (td_lru_drop_idle(&place->loop.api.ranks.files))
        ;
}

static const struct {
    const char *target, *lines;
    bool varies;      /* two answers differ, in numbers or boundaries */
    const char *body; /* the body of a POST; NULL: GET */
} requests[] = {
    {"/models", NULL, false, NULL},
    {"/models?page_size=1", NULL, false, NULL},
    {"/models?match=*&page_size=2", NULL, false, NULL},
    {second_page, NULL, false, NULL},
    {"/models/m", NULL, false, NULL},
    {"/models/n", NULL, false, NULL},
    {"/models/m/tensors", NULL, false, NULL},
    {"/models/m/tensors?match=*&page_size=1", NULL, false, NULL},
    {"/models/m/tensors?checkpoint=variant.safetensors&dtype=F32", NULL, false, NULL},
    {"/models/m/tensors/a", NULL, false, NULL},
    {"/models/m/tensors/a?format=stats&bins=3", NULL, false, NULL},
    {"/models/m/tensors/a", "Range: bytes=1-3", false, NULL},
    {"/models/m/tensors/a", "Range: bytes=1-3,5-6", true, NULL},
    {"/models/m/tensors", "Range: bytes=3-9", false, NULL},
    {"/models/m/tensors/a", "Range: bytes=100-", false, NULL},
    {"/models/m/tensors/a", "If-None-Match: *", false, NULL},
    {"/models/m/tensors/a", "If-Match: \"x\"", false, NULL},
    {"/models/m/tensors/absent", NULL, false, NULL},
    {"/models/m/tensors?checkpoint=absent", NULL, false, NULL},
    {"/models/m/tensors?dtype=absent", NULL, false, NULL},
    {"/models/m/tensors?slice=1", NULL, false, NULL},
    {"/models/m/tensors?page_token=AAAA", NULL, false, NULL},
    {"/models?page_size=0", NULL, false, NULL},
    {"/models/m/files/config.json", NULL, false, NULL},
    {"/models/m/tensors/a?slice=1:", NULL, false, NULL},
    {"/models/m/tensors/a?shard=0:0/2&format=npy", NULL, false, NULL},
    {"/models/m/shards/fsdp/tp2/rank-1.safetensors", NULL, false, NULL},
    {"/models/m/shards/fsdp/tp2/rank-1.safetensors", "Range: bytes=3-9", false, NULL},
    {"/models/m/shards/none/tp2/rank-0.json", NULL, false, NULL},
    {"/models/m/shards/vllm/tp2/rank-0.json", NULL, false, NULL},
    {"/models/m/model.safetensors", NULL, false, NULL},
    {"/models/absent", NULL, false, NULL},
    {"/nothing", NULL, false, NULL},
    {"/%zz", NULL, false, NULL},
    {"/healthz", NULL, false, NULL},
    {"/readyz", NULL, true, NULL},
    {"/metrics", NULL, true, NULL},
    {"/version", NULL, false, NULL},
    {"/openapi.json", NULL, false, NULL},
    {"s3:/", NULL, false, NULL},
    {"s3:/?max-buckets=1", NULL, false, NULL},
    {"s3:/local", NULL, false, NULL},
    {"s3:/local?location", NULL, false, NULL},
    {"s3:/local?list-type=2&max-keys=2&prefix=m/&delimiter=.&encoding-type=url&start-after=m/a", NULL, false, NULL},
    {"s3:/local?list-type=2&prefix=m/shards/none/tp1", NULL, false, NULL},
    {"s3:/local?list-type=2&continuation-token=AAAA", NULL, false, NULL},
    {"s3:/local/m/config.json", NULL, false, NULL},
    {"s3:/local/m/config.json", "Range: bytes=1-3", false, NULL},
    {"s3:/local/m/config.json?partNumber=1", NULL, false, NULL},
    {"s3:/local/m/config.json", "If-Match: \"x\"", false, NULL},
    {"s3:/local/m/shards/none/tp1/model-rank-0-part-0.safetensors", NULL, false, NULL},
    {"s3:/local/m/shards/none/tp1/config.json", NULL, false, NULL},
    {"s3:/local/m/absent", NULL, false, NULL},
    {"s3:/absent", NULL, false, NULL},
    {"/models/", "Accept: text/html", false, NULL},
    {"/models/m/", "Accept: text/html", false, NULL},
    {"/models/m/view/tensors?q=a", "Host: h", false, NULL},
    {"/models/m/view/tensor/a", "Host: h", false, NULL},
    {"/models/m/view/ranks?engine=none&tp=1", "Host: h", false, NULL},
    {"/compare?a=m&b=n", "Host: h", false, NULL},
    {"/compare?a=m", NULL, false, NULL},
    {"/status", "Accept: text/html", false, NULL},
    {"/status?format=json", NULL, false, NULL},
    {"/models/m/files/", NULL, false, NULL},
    {"/", "Accept: text/html", false, NULL},
    {"/m/resolve/main/", NULL, false, NULL},
    {"/api/models", NULL, false, NULL},
    {"/api/models?limit=1&search=m&sort=lastModified&full=true", "Host: h", false, NULL},
    {"/api/models/m?blobs=true", NULL, false, NULL},
    {"/api/models/m/revision/tp1-rank0-none", NULL, false, NULL},
    {"/api/models/m/refs", NULL, false, NULL},
    {"/api/models/m/commits/main", NULL, false, NULL},
    {"/api/models/m/tree/main?recursive=true&expand=true", NULL, false, NULL},
    {"/api/models/m/tree/tp1-rank0-none", NULL, false, NULL},
    {"/api/models/m/tree/main/none", NULL, false, NULL},
    {"/api/models/m/paths-info/main", NULL, false, "paths=config.json&paths=none&expand=true"},
    {"/api/models/m/paths-info/main", NULL, false, "{\"paths\":[\"config.json\"]}"},
    {"/api/models/m/paths-info/main", NULL, false, "{\"paths\":1}"},
    {"/api/models/none", NULL, false, NULL},
    {"/api/whoami-v2", NULL, false, NULL},
    {"/m/resolve/main/config.json", NULL, false, NULL},
    {"/m/resolve/tp1-rank0-none/model.safetensors", "Range: bytes=3-9", false, NULL},
    {"/m/resolve/main/none", NULL, false, NULL},
    {"/m/resolve/none/none", NULL, false, NULL},
    {"/org/hub/resolve/c0/x.safetensors", NULL, false, NULL},
    {"/v2/", NULL, false, NULL},
    {"/v2/_catalog?n=1", NULL, false, NULL},
    {"/v2/m/tags/list?n=2", NULL, false, NULL},
    {"/v2/m/manifests/main", NULL, false, NULL},
    {"/v2/m/manifests/flat", NULL, false, NULL},
    {"/v2/m/manifests/none", NULL, false, NULL},
    {"/v2/org/hub/manifests/main", NULL, false, NULL},
    {"/v2/g/manifests/Q8_0", NULL, false, NULL},
    {"/v2/g/manifests/latest", "User-Agent: llama-cpp", false, NULL},
    {"/v2/m/manifests/sha256:" NO_SHA256, NULL, false, NULL},
    {"/v2/m/blobs/sha256:" NO_SHA256, NULL, false, NULL},
    {"/v2/m/blobs/sha256:" CONFIG_SHA256, NULL, false, NULL},
    {"/v2/m/blobs/sha256:" LAYER_SHA256, NULL, false, NULL},
    {"/v2/m/blobs/sha256:" RANK_SHA256, NULL, false, NULL},
    {"/v2/m/manifests/image", NULL, false, NULL},
    {"/v2/m/manifests/tp1-rank0-none", NULL, false, NULL},
    {"/v2/n/manifests/main", NULL, false, NULL},
    {"/v2/m/referrers/sha256:" NO_SHA256, NULL, false, NULL},
    {"/v2/none/tags/list", NULL, false, NULL},
    {"/datasets", NULL, false, NULL},
    {"/datasets?page_size=1&match=*", NULL, false, NULL},
    {"/datasets/d", NULL, false, NULL},
    {"/datasets/d", "Accept: text/html", false, NULL},
    {"/datasets/o/d", NULL, false, NULL},
    {"/datasets/absent", NULL, false, NULL},
    {"/datasets/d/absent", NULL, false, NULL},
    {"/datasets/d/rows?split=train", NULL, false, NULL},
    {"/datasets/d/rows?split=train&format=raw&start=1&count=3", NULL, false, NULL},
    {"/datasets/d/rows?split=train&format=json&offset=1&length=3", NULL, false, NULL},
    {"/datasets/d/rows?split=train&order=shuffle&shard=1/2", "Range: bytes=3-9", false, NULL},
    {"/datasets/d/rows", NULL, false, NULL},
    {"/datasets/d/rows?split=absent", NULL, false, NULL},
    {"/datasets/d/rows/2?split=train", NULL, false, NULL},
    {"/datasets/d/rows/9?split=train", NULL, false, NULL},
    {"/datasets/d/rows:batchGet", NULL, false, "{\"split\":\"train\",\"indices\":[4,0,4]}"},
    {"/datasets/d/rows:batchGet?split=train", NULL, false, "{\"indices\":[5]}"},
    {"/datasets/d/rows:batchGet?split=train", NULL, false, "{\"indices\":[5"},
    {"/datasets/d/rows:batchGet?split=test", "Content-Type: application/octet-stream", false, "1234567"},
};

static const char s3_mark[] = "s3:"; /* begins targets of the S3 port */

/* Makes request i and reads its body. *body becomes NULL when reading fails. */
static void ask(struct place *place, size_t i, struct td_response *response, char **body)
{
    struct loopback_request request;
    struct td_body_cursor cursor = {0};
    bool is_s3 = strncmp(requests[i].target, s3_mark, strlen(s3_mark)) == 0;
    const char *sent = requests[i].body;
    loopback_request_init(&request, sent == NULL ? "GET" : "POST", requests[i].target + (is_s3 ? strlen(s3_mark) : 0),
                          requests[i].lines);
    if (is_s3)
        request.request.facade = &td_s3_facade;
    if (sent != NULL)
        request.request.body = td_text_of(sent);
    td_api_handle(&place->loop.api, &request.request, response);
    size_t len = (size_t)response->body.total_bytes;
    *body = __real_malloc(len + 1);
    assert_non_null(*body);
    if (!td_body_read(&response->body, &cursor, *body, len, NULL)) { /* the server would close the connection */
        __real_free(*body);
        *body = NULL;
    } else {
        (*body)[len] = '\0';
    }
}

static bool has_header(const struct td_response *response, const char *name)
{
    for (size_t i = 0; i < response->header_count; i++)
        if (strcmp(response->headers[i].name, name) == 0)
            return true;
    return false;
}

/* Checks that the answer is the one without a failure, or a 503. */
static void check_answer(size_t i, size_t k, const struct td_response *got, const char *body,
                         const struct td_response *wanted, const char *wanted_body)
{
    const char *what = requests[i].target;
    if (got->status == 503) {
        CHECK(has_header(got, "Retry-After"), "%s, k %zu: no Retry-After", what, k);
        CHECK(body == NULL || *body == '\0' || strstr(body, "\"UNAVAILABLE\"") != NULL ||
                  strstr(body, "<Code>ServiceUnavailable</Code>") != NULL || strstr(body, "out of memory\"}") != NULL ||
                  strstr(body, "data-status=\"503\"") != NULL,
              "%s, k %zu: %s", what, k, body);
        return;
    }
    CHECK(got->status == wanted->status, "%s, k %zu: %d, wanted %d: %s", what, k, got->status, wanted->status,
          body == NULL ? "" : body);
    CHECK((got->content_type == NULL) == (wanted->content_type == NULL), "%s, k %zu: type", what, k);
    CHECK(strcmp(got->etag, wanted->etag) == 0, "%s, k %zu: ETag %s, wanted %s", what, k, got->etag, wanted->etag);
    CHECK(got->header_count == wanted->header_count, "%s, k %zu: headers", what, k);
    if (body == NULL || requests[i].varies)
        return;
    bool is_error = wanted->status >= 400; /* errors may lack their details */
    CHECK(is_error || strcmp(body, wanted_body) == 0, "%s, k %zu: %s", what, k, body);
    CHECK(!is_error || strncmp(body, wanted_body, strlen("{\"error")) == 0, "%s, k %zu: %s", what, k, body);
}

static size_t torture_request(struct place *place, size_t i, bool cold)
{
    struct td_response wanted;
    char *wanted_body;
    make_cold(place);
    ask(place, i, &wanted, &wanted_body);
    assert_non_null(wanted_body);
    size_t k = 1;
    for (bool failed = true; failed; k++) {
        struct td_response got;
        char *body;
        if (cold)
            make_cold(place);
        alloc_count_start();
        alloc_fail_at(k);
        ask(place, i, &got, &body);
        alloc_fail_at(0);
        failed = alloc_count_get().calls >= k;
        check_answer(i, k, &got, body, &wanted, wanted_body);
        td_response_fini(&got);
        __real_free(body);
        if (cold) /* a warm cache stays */
            make_cold(place);
        CHECK(alloc_count_get().live_bytes == 0, "%s, k %zu: %zu bytes leak", requests[i].target, k,
              alloc_count_get().live_bytes);
    }
    td_response_fini(&wanted);
    __real_free(wanted_body);
    return k;
}

static void every_allocation_of_a_request(void **state)
{
    (void)state;
    struct place place;
    size_t tries = 0;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        tries += torture_request(&place, i, true);
        tries += torture_request(&place, i, false);
    }
    print_message("%zu requests, %zu failures\n", COUNT_OF(requests), tries);
    make_cold(&place);
    assert_int_equal(td_budget_used(&place.loop.api.ranks.live), 0);
    assert_int_equal(td_budget_used(&place.loop.api.rows.whole), 0);
    close_place(&place);
}

/* ---- answers that grow --------------------------------------------------------------------------------- */

/* Makes the request once for each allocation that can fail. Every answer returns all that it took from the budget. */
static void torture_counted(struct loopback *loop, const char *target)
{
    size_t before = td_budget_used(&loop->api.lists.whole);
    bool failed = true;
    for (size_t k = 1; failed; k++) {
        struct loopback_request request;
        struct td_response response;
        loopback_request_init(&request, "GET", target, NULL);
        alloc_count_start();
        alloc_fail_at(k);
        td_api_handle(&loop->api, &request.request, &response);
        alloc_fail_at(0);
        failed = alloc_count_get().calls >= k;
        CHECK(response.status == 503 || response.status == 200, "%s, k %zu: %d", target, k, response.status);
        td_response_fini(&response);
        CHECK(td_budget_used(&loop->api.lists.whole) == before, "%s, k %zu", target, k);
        CHECK(alloc_count_get().live_bytes == 0, "%s, k %zu: leak", target, k);
    }
}

/* A large answer takes memory from the budget while it is written, so that an answer without room is not built
 * first. */
/* shows: security.md hub-large-answers */
static void large_answers_are_counted_while_they_grow(void **state)
{
    enum { FILES = 3000, LEFT_BYTES = 256 * 1024, UNCOUNTED_BYTES = 64 * 1024, OTHER_BYTES = 32 * 1024 };
    static const char *const targets[] = {"/api/models/o/n/tree/main", "/api/models/o/n", "/api/models?full=true",
                                          "/models/o/n"};
    struct place *place = *state;
    for (int i = 0; i < FILES; i++) {
        char name[256];
        (void)snprintf(name, sizeof name, "o/n/%0200d", i);
        tree_text(&place->tree, name, "");
    }
    tree_simple(&place->tree, "o/n/model.safetensors", "a");
    loopback_open(&place->loop, &place->tree);
    struct td_budget *live = &place->loop.api.lists.whole;
    const size_t whole = live->max_bytes;
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        struct answer answer;
        struct loopback_request request;
        struct td_response response;
        loopback_get(&place->loop, targets[i], &answer);
        CHECK(answer.response.status == 200 && answer.len > 2 * LEFT_BYTES, "%s: %zu", targets[i], answer.len);
        /* the memory for building the answer was returned */
        CHECK(td_budget_used(live) == answer.len, "%s", targets[i]);
        answer_fini(&answer);
        assert_true(td_budget_take(live, whole - LEFT_BYTES));
        loopback_request_init(&request, "GET", targets[i], NULL);
        alloc_count_start();
        td_api_handle(&place->loop.api, &request.request, &response);
        size_t peak = alloc_count_get().peak_bytes;
        CHECK(response.status == 503 && has_header(&response, "Retry-After"), "%s: %d", targets[i], response.status);
        CHECK(peak < LEFT_BYTES + UNCOUNTED_BYTES + OTHER_BYTES, "%s: %zu bytes", targets[i], peak);
        td_response_fini(&response);
        td_budget_give(live, whole - LEFT_BYTES);
        torture_counted(&place->loop, targets[i]);
        assert_int_equal(td_budget_used(live), 0);
    }
}

/* ---- scans --------------------------------------------------------------------------------------------- */

/* Returns all that a snapshot shows, as text. */
static char *describe(const struct td_snapshot *snapshot)
{
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < snapshot->entry_count; i++)
        td_buffer_printf(&out, "entry %s %s\n", snapshot->entries[i].path, td_file_tag(snapshot->entries[i].file));
    for (size_t i = 0; i < snapshot->problems.count; i++)
        td_buffer_printf(&out, "problem %s %s\n", snapshot->problems.items[i].path,
                         snapshot->problems.items[i].message);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        td_buffer_printf(&out, "model %s %s\n", model->id, model->revision == NULL ? "-" : model->revision);
        for (size_t k = 0; k < model->checkpoint_count; k++)
            td_buffer_printf(&out, "  checkpoint %s %zu %s\n", model->checkpoints[k].id,
                             model->checkpoints[k].tensor_count, model->checkpoints[k].tag);
        for (size_t k = 0; k < model->problems.count; k++)
            td_buffer_printf(&out, "  problem %s %s\n", model->problems.items[k].path,
                             model->problems.items[k].message);
    }
    char *text = td_buffer_terminate(&out);
    assert_non_null(text);
    return text;
}

static char *describe_clean_scan(const struct tree *tree)
{
    struct scanner scanner;
    scanner_open(&scanner, tree);
    char *text = describe(scanner_scan(&scanner));
    scanner_close(&scanner);
    return text;
}

/* Scans with a failing allocation, then without: whatever the first scan published, the second must be right. Returns
 * whether the allocation was reached. */
static bool torture_scan(const struct tree *tree, size_t k, const char *wanted, size_t *refused)
{
    struct scanner scanner;
    struct td_error err = TD_ERROR_INIT;
    alloc_count_start();
    scanner_open(&scanner, tree);
    size_t before = alloc_count_get().calls;
    alloc_fail_at(k);
    bool ok = scanner_try(&scanner, &err);
    alloc_fail_at(0);
    bool reached = alloc_count_get().calls - before >= k;
    CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED, "k %zu: %s", k, err.message);
    CHECK(ok || scanner.snapshot == NULL, "k %zu", k);
    *refused += !ok;
    char *now = describe(scanner_scan(&scanner));
    CHECK(strcmp(now, wanted) == 0, "k %zu:\n%s\nwanted:\n%s", k, now, wanted);
    free(now);
    scanner_close(&scanner);
    CHECK(alloc_count_get().live_bytes == 0, "k %zu: %zu bytes leak", k, alloc_count_get().live_bytes);
    return reached;
}

static void every_allocation_of_a_scan(void **state)
{
    struct tree *tree = *state;
    size_t refused = 0;
    size_t k = 1;
    fill(tree);
    char *wanted = describe_clean_scan(tree);
    while (torture_scan(tree, k, wanted, &refused))
        k++;
    print_message("%zu failures, %zu scans refused\n", k - 1, refused);
    assert_true(refused > 20);
    free(wanted);
}

/* The same with files that have not settled, and with a snapshot to share files with. */
static void every_allocation_of_a_rescan(void **state)
{
    struct tree *tree = *state;
    fill(tree);
    size_t refused = 0;
    for (size_t k = 1;; k++) {
        struct scanner scanner;
        struct td_error err = TD_ERROR_INIT;
        tree_simple(tree, "n/x.safetensors", "p");
        alloc_count_start();
        scanner_open(&scanner, tree);
        (void)scanner_scan(&scanner);
        char *first = describe(scanner.snapshot);
        scanner.config.settle_ns = UINT64_C(3600000000000);
        tree_simple(tree, "n/x.safetensors", "changed");
        tree_simple(tree, "new/x.safetensors", "t");
        size_t before = alloc_count_get().calls;
        alloc_fail_at(k);
        bool ok = scanner_try(&scanner, &err);
        alloc_fail_at(0);
        bool reached = alloc_count_get().calls - before >= k;
        CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED, "k %zu: %s", k, err.message);
        refused += !ok;
        if (!ok) { /* the last snapshot stays */
            char *still = describe(scanner.snapshot);
            CHECK(strcmp(first, still) == 0, "k %zu", k);
            free(still);
        }
        free(first);
        assert_int_equal(scanner_scan(&scanner)->unsettled.count, 2);
        scanner.config.settle_ns = 0;
        char *settled = describe(scanner_scan(&scanner));
        scanner_close(&scanner);
        char *wanted = describe_clean_scan(tree);
        CHECK(strcmp(settled, wanted) == 0, "k %zu:\n%s\nwanted:\n%s", k, settled, wanted);
        free(settled);
        free(wanted);
        CHECK(alloc_count_get().live_bytes == 0, "k %zu: %zu bytes leak", k, alloc_count_get().live_bytes);
        tree_remove(tree, "new");
        if (!reached)
            break;
    }
    assert_true(refused > 40);
}

static void every_allocation_of_a_file_by_itself(void **state)
{
    struct tree *tree = *state;
    struct td_limits limits = td_limits_default();
    char path[TREE_PATH_BYTES];
    tree_simple(tree, "x.safetensors", "a b");
    tree_at(tree, "x.safetensors", path);
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_snapshot *snapshot = NULL;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_scan_file(path, &limits, NULL, &snapshot, &err);
        alloc_tried(&trials, ok, &err);
        td_snapshot_unref(snapshot);
    }
    assert_true(trials.k > 9);
}

/* A failed td_root_create leaves no root. */
static void every_allocation_of_a_root(void **state)
{
    struct tree *tree = *state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_root *root = NULL;
        struct td_error err = TD_ERROR_INIT;
        bool ok = td_root_create(tree->path, &root, &err);
        alloc_tried(&trials, ok, &err);
        assert_int_equal(root != NULL, ok);
        td_root_unref(root);
    }
    assert_true(trials.k > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_request),
        TEST_IN(unserved, large_answers_are_counted_while_they_grow),
        TEST_IN(tree, every_allocation_of_a_scan),
        TEST_IN(tree, every_allocation_of_a_rescan),
        TEST_IN(tree, every_allocation_of_a_file_by_itself),
        TEST_IN(tree, every_allocation_of_a_root),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
