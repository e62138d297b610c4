/* The OCI facade without a socket: documents word for word, as in the OCI image specification, the ModelPack
 * specification and Ollama's sources; the facade of each path; and the answers while digests are not known. */
#include "api/hub/hub.h"
#include "api/native/native.h"
#include "api/oci/oci.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/waiting.h"
#include "tests/unit/api/hub_place.h"

#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#define ABC_BLOB "/v2/org/m/blobs/sha256:" ABC_SHA256

/* Asks and checks status and media type. The caller calls answer_fini. */
static void ask(struct place *place, const char *target, const char *lines, int status, const char *type,
                struct answer *answer)
{
    loopback_ask(&place->loop, "GET", target, lines, answer);
    CHECK(answer->response.status == status, "%s: %d %s", target, answer->response.status, answer->body);
    CHECK(type == NULL || strcmp(answer->response.content_type, type) == 0, "%s: %s", target,
          answer->response.content_type);
}

static void hex_of(const char *bytes, size_t len, char hex[2 * TD_SHA256_BYTES + 1])
{
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(bytes, len, sum);
    td_hex_write(sum, sizeof sum, hex);
}

/* Answers the blob with the SHA-256 of this text, and checks that it is this text. */
static void expect_blob(struct place *place, const char *name, const char *text)
{
    char hex[2 * TD_SHA256_BYTES + 1];
    char target[256];
    char buffer[128];
    struct answer answer;
    hex_of(text, strlen(text), hex);
    (void)snprintf(target, sizeof target, "/v2/%s/blobs/sha256:%s", name, hex);
    ask(place, target, NULL, 200, "application/octet-stream", &answer);
    assert_string_equal(answer.body, text);
    assert_string_equal(answer_header(&answer, "Location", buffer), target);
    answer_fini(&answer);
}

static void open_files(struct place *place)
{
    tree_open(&place->tree);
    tree_text(&place->tree, "org/m/config.json", "{\"model_type\":\"llama\",\"architectures\":[\"L\"]}");
    tree_text(&place->tree, "org/m/sub/LICENSE", "abc");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
}

FIXTURE(files, struct place, open_files, close_place)

/* Key by key, in the order of the specifications' examples. */
static void documents_are_as_in_the_specifications(void **state)
{
    static const char config[] =
        "{\"descriptor\":{\"family\":\"llama\",\"name\":\"m\"},\"config\":{\"architecture\":\"L\"},\"modelfs\":{"
        "\"type\":\"layers\",\"diffIds\":[\"sha256:%s\",\"sha256:" ABC_SHA256 "\"]}}";
    static const char manifest[] =
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"artifactType\":"
        "\"application/vnd.cncf.model.manifest.v1+json\",\"config\":{\"mediaType\":"
        "\"application/vnd.cncf.model.config.v1+json\",\"digest\":\"sha256:%s\",\"size\":%zu},\"layers\":[{"
        "\"mediaType\":\"application/vnd.cncf.model.weight.config.v1.raw\",\"digest\":\"sha256:%s\",\"size\":44,"
        "\"annotations\":{\"org.cncf.model.filepath\":\"config.json\",\"org.opencontainers.image.title\":"
        "\"config.json\"}},{\"mediaType\":\"application/vnd.cncf.model.doc.v1.raw\",\"digest\":\"sha256:" ABC_SHA256
        "\",\"size\":3,\"annotations\":{\"org.cncf.model.filepath\":\"sub/LICENSE\","
        "\"org.opencontainers.image.title\":\"%s\"}}]}";
    static const char file[] = "{\"model_type\":\"llama\",\"architectures\":[\"L\"]}";
    char file_hex[65];
    char config_text[1024];
    char config_hex[65];
    char wanted[2048];
    struct place *place = *state;
    struct answer answer;
    hex_of(file, strlen(file), file_hex);
    (void)snprintf(config_text, sizeof config_text, config, file_hex);
    hex_of(config_text, strlen(config_text), config_hex);
    for (int is_flat = 0; is_flat < 2; is_flat++) {
        (void)snprintf(wanted, sizeof wanted, manifest, config_hex, strlen(config_text), file_hex,
                       is_flat ? "sub--LICENSE" : "sub/LICENSE");
        ask(place, is_flat ? "/v2/org/m/manifests/flat" : "/v2/org/m/manifests/main", NULL, 200,
            "application/vnd.oci.image.manifest.v1+json", &answer);
        assert_string_equal(answer.body, wanted);
        answer_fini(&answer);
    }
    expect_blob(place, "org/m", config_text);
    expect_blob(place, "org/m", file);
    expect_blob(place, "org/m", "abc");
}

/* The fields that clients read, and the entity tag. */
static void answers_have_their_digests(void **state)
{
    struct place *place = *state;
    struct answer answer;
    struct answer by_digest;
    char hex[65];
    char digest[80];
    char target[160];
    char buffer[128];
    ask(place, "/v2/org/m/manifests/main", NULL, 200, NULL, &answer);
    hex_of(answer.body, answer.len, hex);
    (void)snprintf(digest, sizeof digest, "sha256:%s", hex);
    assert_string_equal(answer_header(&answer, "Docker-Content-Digest", buffer), digest);
    assert_string_equal(answer_header(&answer, "Docker-Distribution-API-Version", buffer), "registry/2.0");
    assert_memory_equal(answer.response.etag + 1, digest, strlen(digest));
    assert_string_equal(answer.response.cache_control, "no-cache"); /* a tag may stand for other bytes tomorrow */
    assert_null(answer_header(&answer, "Vary", buffer));
    (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s", digest);
    ask(place, target, NULL, 200, answer.response.content_type, &by_digest);
    assert_string_equal(by_digest.body, answer.body);
    assert_string_equal(by_digest.response.cache_control, "public, max-age=31536000, immutable");
    answer_fini(&by_digest);
    (void)snprintf(target, sizeof target, "/v2/org/m/blobs/%s", digest); /* a manifest is no blob */
    ask(place, target, NULL, 404, NULL, &by_digest);
    answer_fini(&by_digest);
    answer_fini(&answer);
}

/* Documents are built once for a state of the files, and again after a change. */
static void documents_are_kept(void **state)
{
    struct place *place = *state;
    struct answer answers[3];
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            tree_text(&place->tree, "org/m/new.txt", "abc");
            loopback_rescan(&place->loop);
            hash_files(place);
        }
        ask(place, "/v2/org/m/manifests/main", NULL, 200, NULL, &answers[i]);
        assert_int_equal(place->loop.api.documents.count, i == 2 ? 2 : 1);
    }
    assert_string_equal(answers[0].body, answers[1].body);
    assert_null(strstr(answers[1].body, "new.txt"));
    assert_non_null(strstr(answers[2].body, "new.txt"));
    for (int i = 0; i < 3; i++)
        answer_fini(&answers[i]);
}

/* Nothing is hashed here: the error says what to change, and tags are listed all the same. */
static void unknown_digests_are_an_error(void **state)
{
    static const char *const targets[] = {"/v2/org/m/manifests/main", "/v2/org/m/manifests/flat",
                                          "/v2/org/m/manifests/sha256:" ABC_SHA256, ABC_BLOB};
    struct place *place = *state;
    struct answer answer;
    tree_text(&place->tree, "org/m/a", "abc");
    tree_text(&place->tree, "org/m/b", "abc");
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        ask(place, targets[i], NULL, 501, "application/json", &answer);
        assert_string_equal(answer.body, "{\"errors\":[{\"code\":\"UNSUPPORTED\",\"message\":\"the SHA-256 of 2 files "
                                         "is not known, and this server hashes nothing: start it with --hash-threads 1 "
                                         "or more\",\"detail\":{}}]}\n");
        answer_fini(&answer);
    }
    ask(place, "/v2/org/m/tags/list", NULL, 200, "application/json", &answer);
    assert_string_equal(answer.body, "{\"name\":\"org/m\",\"tags\":[\"flat\",\"image\",\"latest\",\"main\"]}");
    answer_fini(&answer);
}

/* A thread that serves many connections answers the bytes of files, and leaves what needs making to others. */
static void files_are_answered_without_waiting(void **state)
{
    static const struct {
        const char *target;
        bool is_refused;
    } cases[] = {
        {ABC_BLOB, false},
        {"/v2/org/m/blobs/sha256:" EMPTY_SHA256, true},
        {"/v2/org/m/blobs/md5:0", false}, /* nothing has such a digest */
        {"/v2/org/m/manifests/main", true},
        {"/v2/org/m/tags/list", true},
    };
    struct place *place = *state;
    expect_blob(place, "org/m", "abc"); /* the file is then mapped */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct loopback_request request;
        struct td_response response;
        loopback_request_init(&request, "GET", cases[i].target, NULL);
        td_waiting_forbid();
        td_api_handle(&place->loop.api, &request.request, &response);
        CHECK(td_waiting_allow() == cases[i].is_refused, "%s", cases[i].target);
        td_response_fini(&response);
    }
}

enum { READERS = 4, ROUNDS = 60 };

/* Asks for a manifest, by its tag and by the digest that came, and for its configuration, again and again. */
static void *read_manifests(void *context)
{
    struct place *place = context;
    for (int i = 0; i < ROUNDS; i++) {
        struct answer answer;
        struct answer by_digest;
        char target[256];
        char buffer[128];
        ask(place, i % 2 == 0 ? "/v2/org/m/manifests/main" : "/v2/org/m/manifests/flat", NULL, 200, NULL, &answer);
        (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s",
                       answer_header(&answer, "Docker-Content-Digest", buffer));
        ask(place, target, NULL, 200, NULL, &by_digest);
        assert_string_equal(by_digest.body, answer.body);
        answer_fini(&by_digest);
        answer_fini(&answer);
    }
    return NULL;
}

/* Threads that make and read the same documents, while new snapshots are published. */
static void many_threads_get_the_same(void **state)
{
    struct place *place = *state;
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_manifests, place), 0);
    for (int i = 0; i < 10; i++)
        loopback_rescan(&place->loop);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(place->loop.api.documents.count, 2);
}

static void paths_have_their_facade(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        const struct td_facade *facade;
    } cases[] = {
        {"/v2/", &td_oci_facade},
        {"/v2/?x", &td_oci_facade},
        {"/v2/_catalog?n=1", &td_oci_facade},
        {"/v2/a/manifests/main", &td_oci_facade},
        {"/v2/a/b/blobs/sha256%3Ax", &td_oci_facade},
        {"/v2/a/blobs/uploads/", &td_oci_facade},
        {"/v2", &td_oci_facade},
        {"/v2?n=1", &td_oci_facade},
        {"/v2/a", &td_oci_facade},
        {"/v2/a/manifests%2Fmain", &td_oci_facade},
        {"/v2a/", &td_native_facade},
        {"/v", &td_native_facade},
        {"/models/v2/a/manifests/main", &td_native_facade},
        {"/v2/a/resolve/main/x", &td_hub_facade},
        {"/v2/a/resolve/main/manifests/x", &td_hub_facade},
        {"/v2/a/raw/main/tags/list", &td_hub_facade},
        {"/api/models/v2/a/tree/main/blobs/x", &td_hub_facade},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_api_facade(td_main_port, td_text_of(cases[i].target)) == cases[i].facade, "%s", cases[i].target);
    assert_false(td_api_is_text(td_main_port, TD_TEXT("/v2/a/blobs/sha256:x"), false));
    assert_true(td_api_is_text(td_main_port, TD_TEXT("/v2/a/manifests/x"), false));
}

/* No byte of a name that a client made up begins a field of the answer. */
/* shows: security.md oci-requests */
static void names_are_escaped_in_fields(void **state)
{
    struct place *place = *state;
    struct answer answer;
    char buffer[128];
    tree_text(&place->tree, "o\xC3\xA9 x/m/a", "abc");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
    ask(place, "/v2/o\xC3\xA9%20x/m/blobs/sha256%3A" ABC_SHA256, NULL, 200, NULL, &answer);
    assert_string_equal(answer_header(&answer, "Location", buffer), "/v2/o%C3%A9%20x/m/blobs/sha256:" ABC_SHA256);
    answer_fini(&answer);
    ask(place, "/v2/o\xC3\xA9%20x/m/tags/list?n=1", NULL, 200, NULL, &answer);
    assert_string_equal(answer_header(&answer, "Link", buffer),
                        "</v2/o%C3%A9%20x/m/tags/list?n=1&last=flat>; rel=\"next\"");
    answer_fini(&answer);
}

/* More files than a manifest can name: an error that says so, and no work that grows with them. */
/* shows: security.md oci-large-repositories */
static void large_repositories_are_no_artifacts(void **state)
{
    enum { FILES = 10001 };
    static const char *const targets[] = {"/v2/org/m/manifests/main", "/v2/org/m/manifests/flat",
                                          "/v2/org/m/manifests/image", "/v2/org/m/manifests/latest",
                                          "/v2/org/m/tags/list"};
    struct place *place = *state;
    struct answer answer;
    char path[64];
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "org/m/%d", i);
        tree_text(&place->tree, path, "");
    }
    loopback_open(&place->loop, &place->tree);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        ask(place, targets[i], NULL, 422, NULL, &answer);
        assert_non_null(strstr(answer.body, "the repository has 10001 files, and an artifact at most 10000"));
        answer_fini(&answer);
    }
}

/* The GGUF files of such a repository have manifests all the same, since these do not list its other files. */
/* shows: security.md oci-large-repositories */
static void gguf_files_of_large_repositories_are_pulled(void **state)
{
    enum { FILES = 10001 };
    static const char *const tags[] = {"Q8_0", "latest", "zz-Q8_0.gguf"};
    struct place *place = *state;
    struct answer answer;
    struct answer by_digest;
    char path[64];
    char target[192];
    char buffer[128];
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "org/m/%d", i);
        tree_text(&place->tree, path, "");
    }
    tree_copy(&place->tree, TD_TEST_DATA "/gguf/alignment.gguf", "org/m/zz-Q8_0.gguf");
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
    ask(place, "/v2/org/m/tags/list", NULL, 200, NULL, &answer);
    assert_string_equal(answer.body, "{\"name\":\"org/m\",\"tags\":[\"Q8_0\",\"latest\"]}");
    answer_fini(&answer);
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s", tags[i]);
        ask(place, target, NULL, 200, "application/vnd.docker.distribution.manifest.v2+json", &answer);
        (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s",
                       answer_header(&answer, "Docker-Content-Digest", buffer));
        ask(place, target, NULL, 200, NULL, &by_digest);
        answer_fini(&by_digest);
        for (const char *at = strstr(answer.body, "sha256:"); at != NULL; at = strstr(at + 1, "sha256:")) {
            (void)snprintf(target, sizeof target, "/v2/org/m/blobs/%.71s", at);
            ask(place, target, NULL, 200, NULL, &by_digest);
            answer_fini(&by_digest);
        }
        answer_fini(&answer);
    }
    ask(place, "/v2/org/m/manifests/main", NULL, 422, NULL, &answer);
    answer_fini(&answer);
}

/* A repository with very many GGUF files of one quantisation: an unknown digest does not cost a manifest for each of
 * them, but a manifest that was sent by the name of any file is found. */
/* shows: security.md oci-many-files */
static void unknown_digests_cost_little(void **state)
{
    enum { FILES = 600, MOST_MADE = 300 };
    struct place *place = *state;
    struct answer answer;
    char name[64];
    char target[192];
    char buffer[128];
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "org/m/%03d-Q8_0.gguf", i);
        tree_text(&place->tree, name, i == FILES - 1 ? "last" : "abc");
    }
    loopback_open(&place->loop, &place->tree);
    hash_files(place);
    ask(place, "/v2/org/m/blobs/sha256:" EMPTY_SHA256, NULL, 404, NULL, &answer);
    answer_fini(&answer);
    CHECK(place->loop.api.documents.count <= MOST_MADE, "%zu", place->loop.api.documents.count);
    ask(place, "/v2/org/m/manifests/599-Q8_0.gguf", NULL, 200, NULL, &answer);
    (void)snprintf(target, sizeof target, "/v2/org/m/manifests/%s",
                   answer_header(&answer, "Docker-Content-Digest", buffer));
    answer_fini(&answer);
    ask(place, target, NULL, 200, NULL, &answer);
    answer_fini(&answer);
    ask(place, "/v2/org/m/tags/list", NULL, 200, NULL, &answer);
    assert_string_equal(answer.body, "{\"name\":\"org/m\",\"tags\":[\"Q8_0\",\"flat\",\"image\",\"latest\",\"main\"]}");
    answer_fini(&answer);
}

/* Returns the least time of this thread's processor, in ns, that the list of tags takes with so many models below the
 * repository. */
static uint64_t time_of_tags(int models)
{
    struct place place;
    struct answer answer;
    uint64_t least = UINT64_MAX;
    char name[64];
    tree_open(&place.tree);
    for (int i = 0; i < models; i++) {
        (void)snprintf(name, sizeof name, "org/m/%04d/model.safetensors", i);
        tree_simple(&place.tree, name, "a");
    }
    loopback_open(&place.loop, &place.tree);
    for (int i = 0; i < 5; i++) {
        struct timespec from;
        struct timespec to;
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        ask(&place, "/v2/org/m/tags/list", NULL, 200, NULL, &answer);
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        answer_fini(&answer);
        uint64_t ns = (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u + (uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec;
        least = ns < least ? ns : least;
    }
    close_place(&place);
    return least;
}

/* Eight times as many models take some eight times as long, and not 64 times. */
/* shows: security.md oci-many-files */
static void tags_cost_what_there_are_models(void **state)
{
    (void)state;
    uint64_t few = time_of_tags(250);
    uint64_t many = time_of_tags(2000);
    CHECK(many < 24 * few, "%" PRIu64 " ns and %" PRIu64 " ns", few, many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(files, documents_are_as_in_the_specifications),
        TEST_IN(files, answers_have_their_digests),
        TEST_IN(files, documents_are_kept),
        TEST_IN(unserved, unknown_digests_are_an_error),
        TEST_IN(files, files_are_answered_without_waiting),
        TEST_IN(files, many_threads_get_the_same),
        cmocka_unit_test(paths_have_their_facade),
        TEST_IN(unserved, names_are_escaped_in_fields),
        TEST_IN(unserved, large_repositories_are_no_artifacts),
        TEST_IN(unserved, gguf_files_of_large_repositories_are_pulled),
        TEST_IN(unserved, unknown_digests_cost_little),
        cmocka_unit_test(tags_cost_what_there_are_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
