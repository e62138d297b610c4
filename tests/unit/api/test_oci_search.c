/* The OCI facade finds by digest: manifests and configurations of all targets, layers of images and rank files, also
 * when the table of virtual digests has dropped them. Its answers when it cannot find them. Codes are those of the
 * distribution specification ("Error codes"), statuses those of its "Pulling" sections. */
#include "api/oci/oci.h"
#include "api/oci/oci_digests.h"
#include "rank/made_document.h"
#include "tests/unit/api/hub_place.h"
#include "tests/unit/api/virtual_place.h"
#include "tests/unit/work.h"

#define RANK_TAG "tp2-rank1-fsdp"

static void open_model(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, "org/m/model.safetensors", "a b");
    tree_text(&place->tree, "org/m/config.json", "{\"model_type\":\"llama\"}");
    tree_text(&place->tree, "org/m/sub/notes.txt", "abc");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
}

FIXTURE(model, struct place, open_model, close_place)

/* Empties the store of documents, as others would after a while. */
static void forget_documents(struct place *place)
{
    td_lru_fini(&place->loop.api.documents);
    assert_true(td_lru_init(&place->loop.api.documents, &td_made_documents_class, TD_MADE_STORE_BYTES));
}

/* Asks and checks the status, and the code of an error. The caller calls answer_fini. */
static void ask(struct place *place, const char *target, int status, const char *code, struct answer *answer)
{
    char wanted[64];
    loopback_ask(&place->loop, "GET", target, NULL, answer);
    CHECK(answer->response.status == status, "%s: %d %s", target, answer->response.status, answer->body);
    (void)snprintf(wanted, sizeof wanted, "\"code\":\"%s\"", code == NULL ? "" : code);
    CHECK(code == NULL || strstr(answer->body, wanted) != NULL, "%s: %s", target, answer->body);
}

static void check_in(struct place *place, const char *name, const char *kind, const char *hex, int status,
                     const char *code)
{
    struct answer answer;
    char target[160];
    (void)snprintf(target, sizeof target, "/v2/%s/%s/sha256:%s", name, kind, hex);
    ask(place, target, status, code, &answer);
    answer_fini(&answer);
}

static void check(struct place *place, const char *kind, const char *hex, int status, const char *code)
{
    check_in(place, "org/m", kind, hex, status, code);
}

/* Checks the status of the blob with the SHA-256 of this text. */
static void check_blob(struct place *place, const char *name, int status)
{
    uint8_t sum[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    virtual_sum(name, sum, hex);
    check(place, "blobs", hex, status, status == 404 ? "BLOB_UNKNOWN" : NULL);
}

/* Gets the manifest of a tag, and writes its SHA-256. */
static void get_tag(struct place *place, const char *tag, char hex[TD_SHA256_TEXT_BYTES])
{
    struct answer answer;
    char target[160];
    uint8_t sum[TD_SHA256_BYTES];
    (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s", tag);
    ask(place, target, 200, NULL, &answer);
    td_sha256(answer.body, answer.len, sum);
    td_hex_write(sum, sizeof sum, hex);
    answer_fini(&answer);
}

static void check_layers(struct place *place, int status)
{
    static const char *const paths[] = {"config.json", "model.safetensors", "sub/notes.txt"};
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        check_blob(place, paths[i], status);
}

/* A client may get the manifest of an image and ask for the layers much later: while the manifest is kept, so are they.
 */
static void layers_of_a_kept_image_are_found(void **state)
{
    struct place *place = *state;
    char hex[TD_SHA256_TEXT_BYTES];
    note_layers(&place->loop.api, "org/m");
    get_tag(place, "image", hex);
    drop_digests(&place->loop.api, TD_REVISION_FILES);
    check_layers(place, 200);
    forget_documents(place);
    check_layers(place, 404); /* the digests were dropped, indeed, and nothing is hashed here */
}

/* A manifest that is sent again, by its tag or by its digest, adds the files that it names to the table. */
static void what_a_kept_manifest_names_is_known_again(void **state)
{
    (void)state;
    struct place place;
    char hex[TD_SHA256_TEXT_BYTES];
    for (int by_digest = 0; by_digest < 2; by_digest++) {
        open_model(&place);
        note_layers(&place.loop.api, "org/m");
        note_rank_file(&place.loop.api, "org/m", RANK_TAG);
        get_tag(&place, "image", hex);
        drop_digests(&place.loop.api, TD_REVISION_FILES);
        if (by_digest)
            check(&place, "manifests", hex, 200, NULL);
        else
            get_tag(&place, "image", hex);
        get_tag(&place, RANK_TAG, hex);
        drop_digests(&place.loop.api, TD_REVISION_RANK);
        if (by_digest)
            check(&place, "manifests", hex, 200, NULL);
        else
            get_tag(&place, RANK_TAG, hex);
        check_blob(&place, RANK_TAG, 200);
        forget_documents(&place);
        check_layers(&place, 200);
        check_blob(&place, RANK_TAG, 200);
        close_place(&place);
    }
}

/* Gets the manifest of a tag, and writes the SHA-256 of the configuration that it names. */
static void get_config(struct place *place, const char *tag, char hex[TD_SHA256_TEXT_BYTES])
{
    struct answer answer;
    char target[160];
    (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s", tag);
    ask(place, target, 200, NULL, &answer);
    cJSON *json = cJSON_Parse(answer.body);
    assert_non_null(json);
    const char *digest = string_at(cJSON_GetObjectItem(json, "config"), "digest");
    assert_int_equal(strlen(digest), strlen("sha256:") + 64);
    (void)snprintf(hex, TD_SHA256_TEXT_BYTES, "%s", digest + strlen("sha256:"));
    cJSON_Delete(json);
    answer_fini(&answer);
}

/* The same of a rank, whatever the client asks for first: while its documents are kept, all that they name is found. In
 * another repository it is unknown, without a look at the ranks there. */
static void what_a_kept_rank_names_is_found(void **state)
{
    (void)state;
    enum { FILE, CONFIG, MANIFEST, KINDS };
    struct place place;
    char file[TD_SHA256_TEXT_BYTES];
    char config[TD_SHA256_TEXT_BYTES];
    char manifest[TD_SHA256_TEXT_BYTES];
    uint8_t sum[TD_SHA256_BYTES];
    virtual_sum(RANK_TAG, sum, file);
    for (int first = 0; first < KINDS; first++) {
        open_model(&place);
        tree_simple(&place.tree, "org/other/model.safetensors", "a b");
        loopback_rescan(&place.loop);
        hash_files(&place);
        note_rank_file(&place.loop.api, "org/m", RANK_TAG);
        get_tag(&place, RANK_TAG, manifest);
        get_config(&place, RANK_TAG, config);
        drop_digests(&place.loop.api, TD_REVISION_RANK);
        drop_documents(&place.loop.api);
        for (int i = first; i < first + KINDS; i++)
            check(&place, i % KINDS == MANIFEST ? "manifests" : "blobs",
                  i % KINDS == FILE     ? file
                  : i % KINDS == CONFIG ? config
                                        : manifest,
                  200, NULL);
        check_in(&place, "org/other", "blobs", file, 404, "BLOB_UNKNOWN");
        check_in(&place, "org/other", "blobs", config, 404, "BLOB_UNKNOWN");
        check_in(&place, "org/other", "manifests", manifest, 404, "MANIFEST_UNKNOWN");
        drop_digests(&place.loop.api, TD_REVISION_RANK);
        drop_documents(&place.loop.api);
        forget_documents(&place);
        check(&place, "blobs", file, 404, "BLOB_UNKNOWN"); /* the table had dropped all, indeed */
        check(&place, "blobs", config, 404, "BLOB_UNKNOWN");
        check(&place, "manifests", manifest, 404, "MANIFEST_UNKNOWN");
        close_place(&place);
    }
}

/* Layers are found before anybody asked this process for the manifest, as after a restart; then the documents are kept,
 * so that the next layer costs less. */
static void layers_are_found_without_documents(void **state)
{
    struct place *place = *state;
    note_layers(&place->loop.api, "org/m");
    assert_int_equal(place->loop.api.documents.count, 0);
    check_blob(place, "model.safetensors", 200);
    assert_int_equal(place->loop.api.documents.count, 1);
    check_layers(place, 200);
    check_blob(place, "no layer", 404);
}

/* Returns the work of answering one layer of an image of so many layers, after the first one was answered. */
static uint64_t work_of_a_layer(int files)
{
    struct place place;
    char name[64];
    tree_open(&place.tree);
    tree_simple(&place.tree, "org/m/model.safetensors", "a");
    for (int i = 1; i < files; i++) {
        (void)snprintf(name, sizeof name, "org/m/%03d.txt", i);
        tree_text(&place.tree, name, name);
    }
    loopback_open(&place.loop, &place.tree);
    hash_files(&place);
    note_layers(&place.loop.api, "org/m");
    check_blob(&place, "001.txt", 200);
    uint64_t work = work_now();
    check_blob(&place, "002.txt", 200);
    work = work_now() - work;
    close_place(&place);
    return work;
}

/* The cost of answering all layers of an image does not grow with the square of their number. */
static void a_layer_costs_nothing_for_the_others(void **state)
{
    (void)state;
    uint64_t few = work_of_a_layer(10);
    uint64_t many = work_of_a_layer(100);
    CHECK(few > 0 && many < few + few / 4, "%llu and %llu blocks", (unsigned long long)few, (unsigned long long)many);
}

/* The server knows that a digest is of a rank's document, and lacks the digest of the rank's file: it cannot say that
 * there is nothing. */
static void ranks_whose_digests_are_lacking_are_no_404(void **state)
{
    struct place *place = *state;
    char hex[TD_SHA256_TEXT_BYTES];
    note_rank_file(&place->loop.api, "org/m", RANK_TAG);
    get_tag(place, RANK_TAG, hex);
    forget_documents(place);
    check(place, "manifests", hex, 200, NULL);
    forget_documents(place);
    drop_digests(&place->loop.api, TD_REVISION_RANK);
    check(place, "manifests", hex, 501, "UNSUPPORTED");
    check(place, "blobs", EMPTY_SHA256, 404, "BLOB_UNKNOWN"); /* what the one lacked says nothing of others */
}

/* Manifests are found among manifests alone, and other documents among blobs alone. */
static void manifests_and_blobs_are_told_apart(void **state)
{
    struct place *place = *state;
    char manifest_hex[TD_SHA256_TEXT_BYTES];
    char config_hex[TD_SHA256_TEXT_BYTES];
    get_config(place, "main", config_hex);
    get_tag(place, "main", manifest_hex);
    for (int forgotten = 0; forgotten < 2; forgotten++) {
        check(place, "manifests", manifest_hex, 200, NULL);
        check(place, "blobs", config_hex, 200, NULL);
        check(place, "blobs", manifest_hex, 404, "BLOB_UNKNOWN");
        check(place, "manifests", config_hex, 404, "MANIFEST_UNKNOWN");
        check(place, "manifests", ABC_SHA256, 404, "MANIFEST_UNKNOWN"); /* a file of the model */
        check(place, "blobs", ABC_SHA256, 200, NULL);
        forget_documents(place);
    }
}

/* A manifest of any revision of a cache, and of the flat form, is found by its digest by a server that has not made it
 * yet. */
static void manifests_of_all_targets_are_found(void **state)
{
    static const char *const tags[] = {"main", "flat", "v1.0", C0, C1};
    struct place *place = *state;
    tree_simple(&place->tree, "models--org--m/snapshots/" C1 "/model.safetensors", "a");
    tree_text(&place->tree, "models--org--m/snapshots/" C1 "/sub/new.txt", "new");
    tree_text(&place->tree, "models--org--m/snapshots/" C0 "/old.txt", "abc");
    tree_text(&place->tree, "models--org--m/refs/main", C1);
    tree_text(&place->tree, "models--org--m/refs/v1.0", C0);
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        char hex[TD_SHA256_TEXT_BYTES];
        get_tag(place, tags[i], hex);
        forget_documents(place);
        check(place, "manifests", hex, 200, NULL);
        forget_documents(place);
    }
    check(place, "manifests", EMPTY_SHA256, 404, "MANIFEST_UNKNOWN");
}

/* A configuration has the format of the files that its manifest names (modelpack/model-spec, docs/config.md), which at
 * a virtual revision is not that of the files on disk. */
static void configurations_tell_the_format_of_their_layers(void **state)
{
    static const char *const tags[][2] = {{"main", "pt"}, {"safetensors", "safetensors"}, {RANK_TAG, "safetensors"}};
    struct place *place = *state;
    copy_pickle(&place->tree, "org/m/pytorch_model.bin");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
    note_rank_file(&place->loop.api, "org/m", "safetensors");
    note_rank_file(&place->loop.api, "org/m", RANK_TAG);
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        struct answer answer;
        char target[160];
        (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s", tags[i][0]);
        ask(place, target, 200, NULL, &answer);
        cJSON *manifest = cJSON_Parse(answer.body);
        (void)snprintf(target, sizeof target, "/v2/org/m/blobs/%s",
                       string_at(cJSON_GetObjectItem(manifest, "config"), "digest"));
        cJSON_Delete(manifest);
        answer_fini(&answer);
        ask(place, target, 200, NULL, &answer);
        cJSON *config = cJSON_Parse(answer.body);
        assert_string_equal(string_at(cJSON_GetObjectItem(config, "config"), "format"), tags[i][1]);
        cJSON_Delete(config);
        answer_fini(&answer);
    }
}

/* ---- while layers are hashed --------------------------------------------------------------------------- */

static bool refuse_to_begin(void *context, size_t i, struct td_error *err)
{
    (void)context;
    (void)i;
    return td_error_set(err, TD_RESOURCE_EXHAUSTED, "the queue is full");
}

/* Answers a call that needs the digest of a layer of 7 GB, and may not wait; or finds the queue full. */
static void ask_too_early(struct place *place, bool is_full, struct td_response *response)
{
    struct loopback_request request;
    struct td_error err = TD_ERROR_INIT;
    struct td_oci_virtual layer = {.size_bytes = UINT64_C(7000000000)};
    loopback_request_init(&request, "GET", "/v2/org/m/manifests/image", NULL);
    td_response_init_for(response, &request.request);
    struct td_call call = {.api = &place->loop.api, .request = &request.request, .response = response};
    struct td_oci_call oci = {.call = &call, .own = &call, .until_ns = is_full ? 1 : 0};
    assert_false(td_oci_know_virtual(&oci, &layer, 1, 1, refuse_to_begin, NULL, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_false(td_oci_fail_error(&oci, &err, "MANIFEST_UNKNOWN"));
}

static const char *retry_after(const struct td_response *response)
{
    for (size_t i = 0; i < response->header_count; i++)
        if (strcmp(response->headers[i].name, "Retry-After") == 0)
            return response->headers[i].value;
    return "none";
}

/* RFC 9110, section 10.2.3: Retry-After says how long the client ought to wait. */
static void answers_tell_when_hashing_may_have_ended(void **state)
{
    struct place *place = *state;
    struct td_response response;
    tree_simple(&place->tree, "org/m/model.safetensors", "a");
    struct td_catalog_config config = {
        .root = place->tree.path, .max_maps = 8, .scan = td_scan_config_default(), .hash_threads = 1};
    assert_true(td_catalog_create(&config, &place->loop.catalog, NULL));
    assert_true(td_api_init(&place->loop.api, place->loop.catalog, NULL));
    for (int is_full = 0; is_full < 2; is_full++) {
        ask_too_early(place, is_full, &response);
        assert_int_equal(response.status, 503);
        assert_string_equal(retry_after(&response), "7"); /* at 1 GB/s, as nothing else is known */
        td_response_fini(&response);
    }
    atomic_store(&place->loop.api.draining, true); /* another server may answer at once */
    ask_too_early(place, false, &response);
    assert_string_equal(retry_after(&response), "1");
    td_response_fini(&response);
}

/* Some layers may be known to a server that hashes nothing, as from a state directory: the answer counts the others. */
static void layers_that_are_known_are_not_counted(void **state)
{
    struct place *place = *state;
    struct loopback_request request;
    struct td_response response;
    struct td_error err = TD_ERROR_INIT;
    struct td_oci_virtual layers[3] = {{.is_known = true}, {.is_known = false}, {.is_known = true}};
    loopback_request_init(&request, "GET", "/v2/org/m/manifests/image", NULL);
    td_response_init_for(&response, &request.request);
    struct td_call call = {.api = &place->loop.api, .request = &request.request, .response = &response};
    struct td_oci_call oci = {.call = &call, .own = &call};
    assert_false(td_oci_know_virtual(&oci, layers, COUNT_OF(layers), 1, refuse_to_begin, NULL, &err));
    assert_string_equal(err.message, "the SHA-256 of 1 layer is not known, and this server hashes nothing: start it "
                                     "with --hash-threads 1 or more");
    assert_false(td_oci_fail_error(&oci, &err, "MANIFEST_UNKNOWN"));
    assert_int_equal(response.status, 501);
    td_response_fini(&response);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(model, layers_of_a_kept_image_are_found),
        cmocka_unit_test(what_a_kept_manifest_names_is_known_again),
        cmocka_unit_test(what_a_kept_rank_names_is_found),
        TEST_IN(model, layers_are_found_without_documents),
        cmocka_unit_test(a_layer_costs_nothing_for_the_others),
        TEST_IN(model, ranks_whose_digests_are_lacking_are_no_404),
        TEST_IN(model, manifests_and_blobs_are_told_apart),
        TEST_IN(unserved, manifests_of_all_targets_are_found),
        TEST_IN(unserved, configurations_tell_the_format_of_their_layers),
        TEST_IN(unserved, answers_tell_when_hashing_may_have_ended),
        TEST_IN(model, layers_that_are_known_are_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
