/* Manifests that clients push: which layers become files, and which texts are refused. */
#include "catalog/publish/pushed_manifest.h"

#include "core/digits.h"
#include "tests/unit/unit.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define CONFIG "\"config\":{\"mediaType\":\"application/x\",\"digest\":\"sha256:" A "\",\"size\":2}"
#define OCI_TAR "application/vnd.oci.image.layer.v1.tar"
#define LAYER(type, digest, more) "{\"mediaType\":\"" type "\",\"digest\":\"sha256:" digest "\",\"size\":7" more "}"
#define NOTE(key, value) ",\"annotations\":{\"" key "\":\"" value "\"}"
#define TITLE(value) NOTE("org.opencontainers.image.title", value)
#define OLLAMA(kind, digest) LAYER("application/vnd.ollama.image." kind, digest, "")
#define MANIFEST(layers) "{\"schemaVersion\":2," CONFIG ",\"layers\":[" layers "]}"

struct place {
    struct td_arena arena;
    struct td_pushed_manifest manifest;
    struct td_error err;
};

static void place_open(struct place *place)
{
    td_arena_init(&place->arena, 16 * 1024 * 1024);
}

static void place_close(struct place *place)
{
    td_arena_fini(&place->arena);
}

FIXTURE(place, struct place, place_open, place_close)

static bool read_one(struct place *place, const char *text)
{
    td_error_init(&place->err);
    return td_pushed_manifest_read(td_text_of(text), &place->arena, &place->manifest, &place->err);
}

static void reads(struct place *place, const char *text)
{
    CHECK(read_one(place, text), "%s: %s", text, place->err.message);
}

/* Returns the paths, separated by blanks, in a static buffer. */
static const char *paths_of(const struct td_pushed_manifest *manifest)
{
    static char out[1024];
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < manifest->file_count; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i > 0 ? " " : "", manifest->files[i].path);
    return out;
}

static void layers_that_become_files(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *layers, *paths;
    } cases[] = {
        {"", ""},
        {LAYER("application/x", B, ""), ""},
        {LAYER("application/x", B, TITLE("a.bin")), "a.bin"},
        {LAYER(OCI_TAR, B, TITLE("a.bin")), "a.bin"}, /* what oras gives plain files */
        {LAYER(OCI_TAR "+gzip", B, TITLE("a")), ""},
        {LAYER(OCI_TAR, B,
               ",\"annotations\":{\"org.opencontainers.image.title\":\"d\","
               "\"io.deis.oras.content.unpack\":\"true\"}"),
         ""},
        {LAYER(OCI_TAR, B,
               ",\"annotations\":{\"org.opencontainers.image.title\":\"d\","
               "\"io.deis.oras.content.unpack\":\"false\"}"),
         "d"},
        {LAYER("application/vnd.cncf.model.weight.v1.raw", B, NOTE("org.cncf.model.filepath", "w/a.safetensors")),
         "w/a.safetensors"},
        {LAYER("application/vnd.cncf.model.weight.v1.tar", B, NOTE("org.cncf.model.filepath", "w")), ""},
        {LAYER("application/vnd.cncf.model.weight.v1.tar+gzip", B, NOTE("org.cncf.model.filepath", "w")), ""},
        {LAYER("application/vnd.cncf.model.weight.v1.tar+zstd", B, NOTE("org.cncf.model.filepath", "w")), ""},
        {LAYER("application/vnd.docker.image.rootfs.diff.tar.gzip", B, TITLE("w")), ""},
        {LAYER("application/vnd.kitops.modelkit.model.v1.tar+gzip", B, ""), ""},
        {LAYER("application/x", B,
               ",\"annotations\":{\"org.opencontainers.image.title\":\"t\","
               "\"org.cncf.model.filepath\":\"d/f\"}"),
         "d/f"},
        {LAYER("application/x", A, TITLE("a")) "," LAYER("application/x", A, TITLE("b")), "a b"},
        {OLLAMA("model", A) "," OLLAMA("projector", B) "," OLLAMA("adapter", B) "," OLLAMA("template", B),
         "model.gguf mmproj.gguf adapter.gguf template"},
        {OLLAMA("system", B) "," OLLAMA("params", B) "," OLLAMA("license", B) "," OLLAMA("license", A),
         "system params LICENSE LICENSE-2"},
        {OLLAMA("messages", B) "," OLLAMA("other", B), "messages"},
        {OLLAMA("model", A) "," OLLAMA("model", B), "model.gguf model-2.gguf"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[4096];
        (void)snprintf(text, sizeof text, "{\"schemaVersion\":2," CONFIG ",\"layers\":[%s]}", cases[i].layers);
        reads(place, text);
        CHECK(strcmp(paths_of(&place->manifest), cases[i].paths) == 0, "%s: %s", text, paths_of(&place->manifest));
        CHECK((place->manifest.commit[0] != '\0') == (cases[i].paths[0] != '\0'), "%s", text);
    }
}

static void what_a_manifest_says(void **state)
{
    struct place *place = *state;
    const struct td_pushed_manifest *m = &place->manifest;
    reads(place, "{\"schemaVersion\":2," CONFIG ",\"layers\":[" LAYER(
                     "application/x", B,
                     TITLE("a")) "],"
                                 "\"annotations\":{ \"k\" : \"v\" },\"subject\":" LAYER("t", B, "") ",\"more\":[1]}");
    assert_string_equal(m->media_type, "application/vnd.oci.image.manifest.v1+json");
    assert_string_equal(m->artifact_type, "application/x"); /* the configuration's */
    assert_string_equal(m->subject, "sha256:" B);
    CHECK(td_text_equals(m->annotations, "{ \"k\" : \"v\" }"), "%.*s", (int)m->annotations.len, m->annotations.p);
    assert_false(m->is_index);
    assert_int_equal(m->item_count, 2);
    assert_int_equal(m->items[0].sha256[0], 0xaa);
    assert_int_equal(m->items[0].size_bytes, 2);
    assert_int_equal(m->files[0].sha256[31], 0xbb);
    assert_true(m->files[0].has_size && m->files[0].size_bytes == 7);

    reads(place, "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
                 "\"artifactType\":\"application/y\",\"manifests\":[" LAYER("t", A, "") "," LAYER("t", B, "") "]}");
    assert_true(m->is_index && m->item_count == 2 && m->file_count == 0 && m->subject == NULL &&
                m->annotations.len == 0);
    assert_string_equal(m->artifact_type, "application/y");
    reads(place, "{\"schemaVersion\":2,\"manifests\":[]}");
    assert_string_equal(m->media_type, "application/vnd.oci.image.index.v1+json");
    assert_string_equal(m->artifact_type, "");
    reads(place, "{\"schemaVersion\":2,\"manifests\":null,\"annotations\":null,\"subject\":null}");
    assert_true(m->is_index && m->item_count == 0);
    reads(place, "{\"schemaVersion\":2," CONFIG ",\"layers\":null}");
    assert_int_equal(m->item_count, 1);
    reads(place, "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.x_y.z-1+json\"," CONFIG ",\"layers\":[]}");
    assert_string_equal(m->media_type, "application/vnd.x_y.z-1+json");

    reads(place, MANIFEST(LAYER("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", B, "")));
    assert_true(m->items[1].is_elsewhere && !m->items[0].is_elsewhere);
    reads(place, MANIFEST(LAYER("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", B, "")));
    assert_true(m->items[1].is_elsewhere);
}

/* The same files are the same commit, whatever else the manifest says, and in whatever order. */
static void the_commit_is_that_of_the_files(void **state)
{
    struct place *place = *state;
    char first[TD_COMMIT_BYTES];
    reads(place, MANIFEST(LAYER("application/x", A, TITLE("a")) "," LAYER("application/x", B, TITLE("b"))));
    memcpy(first, place->manifest.commit, sizeof first);
    reads(place, MANIFEST(LAYER("t", B, TITLE("b")) "," LAYER("t", B, "") "," LAYER("u", A, TITLE("a"))));
    assert_string_equal(place->manifest.commit, first);
    reads(place, MANIFEST(LAYER("t", A, TITLE("b")) "," LAYER("u", B, TITLE("a"))));
    assert_string_not_equal(place->manifest.commit, first);
}

static void texts_that_are_refused(void **state)
{
    struct place *place = *state;
    static const char *const cases[] = {
        "",
        "[]",
        "{}",
        "{\"schemaVersion\":2}",
        "{\"schemaVersion\":1," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":\"2\"," CONFIG ",\"layers\":[]}",
        "{" CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2," CONFIG "}",
        "{\"schemaVersion\":2,\"layers\":[]}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":{}}",
        "{\"schemaVersion\":2,\"config\":[],\"layers\":[]}",
        "{\"schemaVersion\":2,\"manifests\":{}}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[],\"manifests\":[]}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[],\"layers\":[]}",
        "{\"schemaVersion\":2," CONFIG "," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\"," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"manifests\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"text/html\"," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"application/xhtml+xml\"," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":\"application/x\\r\\njson\"," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2,\"mediaType\":7," CONFIG ",\"layers\":[]}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[],\"annotations\":{\"a\":1}}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[],\"annotations\":[]}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[],\"subject\":{}}",
        "{\"schemaVersion\":2," CONFIG ",\"layers\":[]} x",
        MANIFEST("7"),
        MANIFEST("{}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha512:" A A "\",\"size\":1}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:AAAA\",\"size\":1}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"" A "\",\"size\":1}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\"}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\",\"size\":-1}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\",\"size\":1.5}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\",\"size\":9223372036854775808}"),
        MANIFEST("{\"digest\":\"sha256:" A "\",\"size\":1}"),
        MANIFEST("{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\",\"digest\":\"sha256:" B "\",\"size\":1}"),
        MANIFEST(LAYER("t", A, TITLE(""))),
        MANIFEST(LAYER("t", A, TITLE("/etc/passwd"))),
        MANIFEST(LAYER("t", A, TITLE("../a"))),
        MANIFEST(LAYER("t", A, TITLE("a/../b"))),
        MANIFEST(LAYER("t", A, TITLE("a//b"))),
        MANIFEST(LAYER("t", A, TITLE("./a"))),
        MANIFEST(LAYER("t", A, TITLE(".hidden"))),
        MANIFEST(LAYER("t", A, TITLE("a\\u0000b"))),
        MANIFEST(LAYER("t", A, TITLE("a\\nb"))),
        MANIFEST(LAYER("t", A, TITLE("a")) "," LAYER("t", B, TITLE("a"))),
        MANIFEST(LAYER("t", A, TITLE("a")) "," LAYER("t", B, TITLE("a/b"))),
        MANIFEST(LAYER("t", A, ",\"annotations\":{\"org.opencontainers.image.title\":7}")),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(!read_one(place, cases[i]), "%s: is taken", cases[i]);
        CHECK(place->err.code == TD_INVALID_ARGUMENT, "%s: %d %s", cases[i], (int)place->err.code, place->err.message);
    }
}

static void digests(void **state)
{
    uint8_t sum[TD_SHA256_BYTES];
    (void)state;
    assert_true(td_pushed_digest_read(TD_TEXT("sha256:" A), sum));
    assert_false(td_pushed_digest_read(TD_TEXT("sha256:" A "a"), sum));
    assert_false(td_pushed_digest_read(TD_TEXT("sha512:" A), sum));
    assert_false(
        td_pushed_digest_read(TD_TEXT("sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), sum));
}

/* The longest manifest of many layers takes bounded memory and time. */
static void a_long_manifest(void **state)
{
    struct place *place = *state;
    struct td_buffer text;
    size_t count = 0;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{\"schemaVersion\":2," CONFIG ",\"layers\":[");
    for (; text.len < TD_PUSHED_MANIFEST_MAX - 400; count++)
        td_buffer_printf(&text,
                         "%s{\"mediaType\":\"t\",\"digest\":\"sha256:" A "\",\"size\":7,\"annotations\":{"
                         "\"org.opencontainers.image.title\":\"d/%zu\"}}",
                         count > 0 ? "," : "", count);
    td_buffer_puts(&text, "]}");
    td_arena_fini(&place->arena);
    td_arena_init(&place->arena, 64 * 1024 * 1024);
    reads(place, td_buffer_terminate(&text));
    assert_int_equal(place->manifest.file_count, count);
    td_arena_fini(&place->arena);
    td_arena_init(&place->arena, 1024 * 1024);
    assert_false(read_one(place, td_buffer_terminate(&text)));
    CHECK(place->err.code == TD_FAILED_PRECONDITION, "%d %s", (int)place->err.code, place->err.message);
    td_buffer_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, layers_that_become_files),
        TEST_IN(place, what_a_manifest_says),
        TEST_IN(place, the_commit_is_that_of_the_files),
        TEST_IN(place, texts_that_are_refused),
        cmocka_unit_test(digests),
        TEST_IN(place, a_long_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
