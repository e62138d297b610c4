/* The small grammars of the OCI facade: paths, digests, tags, names of GGUF files, titles, numbers of parameters, media
 * types. Expectations are those of the specifications and of the sources that the headers name. */
#include "api/call/hash_wait.h"
#include "api/oci/oci_artifact.h"
#include "api/oci/oci_document.h"
#include "api/oci/oci_target.h"
#include "tests/unit/unit.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static bool text_is(struct td_text text, const char *wanted)
{
    return wanted == NULL ? text.len == 0 : td_text_equals(text, wanted);
}

/* shows: security.md oci-requests */
static void paths_are_split(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum td_oci_endpoint endpoint;
        const char *name, *reference;
    } cases[] = {
        {"/v2/", TD_OCI_ROOT, NULL, NULL},
        {"/v2/_catalog", TD_OCI_CATALOG, NULL, NULL},
        {"/v2/a/tags/list", TD_OCI_TAGS, "a", "list"},
        {"/v2/a/b/c/tags/list", TD_OCI_TAGS, "a/b/c", "list"},
        {"/v2/a/manifests/latest", TD_OCI_MANIFEST, "a", "latest"},
        {"/v2/manifests/manifests/manifests", TD_OCI_MANIFEST, "manifests", "manifests"},
        {"/v2/a/manifests/sha256:" HEX, TD_OCI_MANIFEST, "a", "sha256:" HEX},
        {"/v2/a/b/blobs/sha256:" HEX, TD_OCI_BLOB, "a/b", "sha256:" HEX},
        {"/v2/A%20B/c/blobs/x", TD_OCI_BLOB, "A%20B/c", "x"},
        {"/v2/a/referrers/sha256:" HEX, TD_OCI_REFERRERS, "a", "sha256:" HEX},
        {"/v2/a/blobs/uploads", TD_OCI_UPLOAD, "a", NULL},
        {"/v2/a/blobs/uploads/", TD_OCI_UPLOAD, "a", NULL},
        {"/v2/a/b/blobs/uploads/1-2", TD_OCI_UPLOAD, "a/b", NULL},
        {"/v2/a//manifests/x", TD_OCI_MANIFEST, "a/", "x"}, /* of no name that there is */
    };
    static const char *const none[] = {
        "",
        "/",
        "/v2",
        "v2/",
        "/v2x/",
        "/V2/",
        "/v2//manifests/x",
        "/v2/manifests/x",
        "/v2/a/manifests/",
        "/v2/a/tags/x",
        "/v2/tags/list",
        "/v2/a/manifest/x",
        "/v2/a",
        "/v2/a/b",
        "/v2/_catalog/",
        "/v1/a/manifests/x",
        "/v2/blobs/uploads",
        "/v2/a/manifests/x/",
        "/v2/a/blobs/uploadsx/y",
    };
    struct td_oci_path path;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(td_oci_path_parse(&path, td_text_of(cases[i].path)), "%s", cases[i].path);
        CHECK(path.endpoint == cases[i].endpoint && text_is(path.name, cases[i].name), "%s", cases[i].path);
        CHECK(path.endpoint == TD_OCI_UPLOAD || text_is(path.reference, cases[i].reference), "%s", cases[i].path);
    }
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        CHECK(!td_oci_path_parse(&path, td_text_of(none[i])), "%s", none[i]);
        assert_int_equal(path.endpoint, TD_OCI_NONE);
    }
}

/* image-spec, descriptor.md, "Digests". */
/* shows: security.md oci-requests */
static void digests_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum td_oci_digest_kind kind;
    } cases[] = {
        {"sha256:" HEX, TD_OCI_DIGEST_SHA256},
        {"sha512:" HEX HEX, TD_OCI_DIGEST_OTHER},
        {"multihash+base58:QmRZxt2b1FVZPNqd8hsiykDL3TdBDeTSPX9Kv46HmX4Gx8", TD_OCI_DIGEST_OTHER},
        {"sha256+b64u:LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564", TD_OCI_DIGEST_OTHER},
        {"sha256:", TD_OCI_DIGEST_WRONG},
        {"sha256", TD_OCI_DIGEST_WRONG},
        {":" HEX, TD_OCI_DIGEST_WRONG},
        {"", TD_OCI_DIGEST_WRONG},
        {"sha256:" HEX "0", TD_OCI_DIGEST_WRONG},
        {"sha256:0", TD_OCI_DIGEST_WRONG},
        {"sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", TD_OCI_DIGEST_WRONG},
        {"SHA256:" HEX, TD_OCI_DIGEST_WRONG},
        {"sha256++x:" HEX, TD_OCI_DIGEST_WRONG},
        {"+x:" HEX, TD_OCI_DIGEST_WRONG},
        {"x+:" HEX, TD_OCI_DIGEST_WRONG},
        {"md5:a/b", TD_OCI_DIGEST_WRONG},
        {"md5:a b", TD_OCI_DIGEST_WRONG},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text hex = TD_TEXT("");
        enum td_oci_digest_kind kind = td_oci_digest_read(td_text_of(cases[i].text), &hex);
        CHECK(kind == cases[i].kind, "%s: %d", cases[i].text, (int)kind);
        CHECK(kind != TD_OCI_DIGEST_SHA256 || td_text_equals(hex, HEX), "%s", cases[i].text);
    }
}

static void tags_are_checked(void **state)
{
    (void)state;
    static const char *const good[] = {"latest", "Q4_K_M", "v1.0", "_", "0", "a-b.c_d", "UD-Q2_K_XL"};
    static const char *const bad[] = {"", ".a", "-a", "a/b", "a b", "a:b", "\xC3\xA9", "a+b"};
    char text[130];
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_oci_tag_is_valid(td_text_of(good[i])), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_oci_tag_is_valid(td_text_of(bad[i])), "%s", bad[i]);
    memset(text, 'x', sizeof text);
    assert_true(td_oci_tag_is_valid(td_text_n(text, 128)));
    assert_false(td_oci_tag_is_valid(td_text_n(text, 129)));
}

/* Names as they are on the Hub. */
static void gguf_names_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *path, *quant;
        bool is_projector, is_sharded, is_first;
    } cases[] = {
        {"model-Q4_K_M.gguf", "Q4_K_M", false, false, true},
        {"Llama-3.2-1B-Instruct-f16.gguf", "F16", false, false, true},
        {"a/b/model.Q8_0.GGUF", "Q8_0", false, false, true},
        {"gemma-UD-Q4_K_XL.gguf", "UD-Q4_K_XL", false, false, true},
        {"model-IQ2_XXS.gguf", "IQ2_XXS", false, false, true},
        {"model-Q6_K_L.gguf", "Q6_K_L", false, false, true},
        {"model_q5_1.gguf", "Q5_1", false, false, true},
        {"gpt-oss-20b-mxfp4.gguf", "MXFP4", false, false, true},
        {"qwen-F16-Q4_0.gguf", "Q4_0", false, false, true}, /* the last of several */
        {"model-BF16-00001-of-00003.gguf", "BF16", false, true, true},
        {"model-BF16-00002-of-00003.gguf", "BF16", false, true, false},
        {"mmproj-model-f16.gguf", "F16", true, false, true},
        {"llava-mmproj-BF16.gguf", "BF16", true, false, true},
        {"model.gguf", "", false, false, true},
        {"xq4_k_m.gguf", "", false, false, true}, /* within a word */
        {"model-Q4_K_Mx.gguf", "", false, false, true},
        {"model-Q4_09.gguf", "", false, false, true},
        {"model-0001-of-0003.gguf", "", false, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_oci_gguf_name name;
        CHECK(td_oci_gguf_name_read(cases[i].path, &name), "%s", cases[i].path);
        CHECK(strcmp(name.quant, cases[i].quant) == 0, "%s: %s", cases[i].path, name.quant);
        CHECK(name.is_projector == cases[i].is_projector && name.is_sharded == cases[i].is_sharded &&
                  name.is_first == cases[i].is_first,
              "%s", cases[i].path);
    }
    struct td_oci_gguf_name name;
    assert_false(td_oci_gguf_name_read("model.safetensors", &name));
    assert_false(td_oci_gguf_name_read("Q4_K_M.gguf/config.json", &name));
    assert_false(td_oci_gguf_name_read(".gguf", &name));
}

static void titles_have_no_slashes(void **state)
{
    (void)state;
    static const char *const paths[] = {"a--b", "a/b", "c/d/e", "f", "a-/b"};
    static const char *const wanted[] = {"a--b", "c14cddc033f64b9d-a--b", "c--d--e", "f", "a---b"};
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    const char **titles;
    td_arena_init(&arena, 0);
    assert_true(td_oci_flat_titles(paths, COUNT_OF(paths), &arena, &titles, &err));
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        assert_string_equal(titles[i], wanted[i]); /* printf a/b | sha256sum */
    assert_true(td_oci_flat_titles(paths, 0, &arena, &titles, &err));
    td_arena_fini(&arena);
}

/* A title is the name of a file, which has 255 bytes at most (NAME_MAX in limits.h). */
static void long_titles_are_cut(void **state)
{
    (void)state;
    enum { LETTERS = 120 }; /* two bytes each */
    char paths[4][2 + 2 * LETTERS + 32];
    const char *list[4];
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    const char **titles;
    size_t used = 0;
    char letters[2 * LETTERS + 1];
    for (int i = 0; i < LETTERS; i++)
        used += (size_t)snprintf(letters + used, sizeof letters - used, "\xC3\xA9");
    for (int i = 0; i < 4; i++) { /* 254 to 257 bytes with "--" for '/' */
        (void)snprintf(paths[i], sizeof paths[i], "%.*s/%s.safetensors", i, "xyz", letters);
        list[i] = paths[i];
    }
    td_arena_init(&arena, 0);
    assert_true(td_oci_flat_titles(list, 4, &arena, &titles, &err));
    assert_memory_equal(titles[1], "x--\xC3\xA9", 5);
    assert_int_equal(strlen(titles[1]), 255);
    for (int i = 2; i < 4; i++) {
        size_t len = strlen(titles[i]);
        CHECK(len == 254 || len == 255, "%zu", len);
        CHECK(titles[i][16] == '-' && strspn(titles[i], "0123456789abcdef") == 16, "%s", titles[i]);
        assert_memory_equal(titles[i] + 17, "\xC3\xA9", 2); /* no half of a letter */
        assert_string_equal(titles[i] + len - 14, "\xC3\xA9.safetensors");
    }
    assert_string_not_equal(titles[2], titles[3]);
    td_arena_fini(&arena);
}

/* A file whose name was chosen so that the digits do not help. */
/* shows: security.md oci-names */
static void titles_that_still_meet_are_an_error(void **state)
{
    (void)state;
    static const char *const paths[] = {"a--b", "a/b", "c14cddc033f64b9d-a--b"};
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    const char **titles;
    td_arena_init(&arena, 0);
    assert_false(td_oci_flat_titles(paths, COUNT_OF(paths), &arena, &titles, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "\"a/b\" and \"c14cddc033f64b9d-a--b\""));
    td_arena_fini(&arena);
}

/* modelpack/model-spec, docs/config.md, "paramSize": at most one digit after the point, and a letter. */
static void sizes_are_written(void **state)
{
    (void)state;
    static const struct {
        uint64_t count;
        const char *text;
    } cases[] = {
        {0, "0.0K"},
        {99, "0.0K"},
        {999, "0.9K"},
        {1000, "1.0K"},
        {999999, "999.9K"},
        {6738415616, "6.7B"},
        {405853388800, "405.8B"},
        {UINT64_C(1000000000000), "1.0T"},
        {UINT64_MAX, "18446.7Q"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[TD_OCI_SIZE_BYTES];
        td_oci_write_size(cases[i].count, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void files_have_media_types(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint64_t bytes;
        const char *kind;
    } cases[] = {
        {"model-00001-of-00002.safetensors", 1, "weight"},
        {"sub/pytorch_model.BIN", 1, "weight"},
        {"model.gguf", 0, "weight"},
        {"config.json", 1, "weight.config"},
        {"tokenizer.json", 20000000, "weight.config"},
        {"merges.txt", 1, "weight.config"},
        {"tokenizer.model", 1, "weight.config"},
        {"chat_template.jinja", 1, "weight.config"},
        {"README.md", 1, "doc"},
        {"LICENSE", 1, "doc"},
        {"license.txt", 1, "doc"},
        {"figures/loss.png", 1, "doc"},
        {"modeling_x.py", 1, "code"},
        {"train.parquet", 1, "dataset"},
        {"unknown.xyz", 1, "weight.config"},
        {"unknown.xyz", 16777216, "weight"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_file file = {.source = {.id = {.size_bytes = cases[i].bytes}}};
        const struct td_entry entry = {.path = cases[i].path, .file = &file};
        char wanted[128];
        (void)snprintf(wanted, sizeof wanted, "application/vnd.cncf.model.%s.v1.raw", cases[i].kind);
        CHECK(strcmp(td_oci_layer_type(&entry), wanted) == 0, "%s: %s", cases[i].path, td_oci_layer_type(&entry));
    }
}

/* Retry-After: the time for the remaining bytes, at the rate at which bytes were hashed while the request waited. */
static void clients_are_told_when_to_ask_again(void **state)
{
    (void)state;
    static const struct {
        double left_bytes;
        uint64_t hashed_bytes, took_ns;
        unsigned wanted_s;
    } cases[] = {
        {40e9, UINT64_C(50000000000), UINT64_C(25000000000), 20}, /* 2 GB/s */
        {41e9, UINT64_C(50000000000), UINT64_C(25000000000), 21}, /* 20.5 s: not too early */
        {1e9, UINT64_C(100000000000), UINT64_C(25000000000), 1},  /* a quarter of a second: the least */
        {0, 1, UINT64_C(25000000000), 1},
        {1e12, UINT64_C(25000000000), UINT64_C(25000000000), 60}, /* 1,000 s: not too late */
        {1.8e19, 1, UINT64_MAX, 60},
        {5e9, 0, UINT64_C(25000000000), 5}, /* nothing was hashed: 1 GB/s */
        {5e9, 1000, UINT64_C(1000), 5},     /* nothing can be said after 1 us */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_hash_retry_s(cases[i].left_bytes, cases[i].hashed_bytes, cases[i].took_ns) == cases[i].wanted_s,
              "case %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_split),        cmocka_unit_test(digests_are_read),
        cmocka_unit_test(tags_are_checked),       cmocka_unit_test(gguf_names_are_read),
        cmocka_unit_test(titles_have_no_slashes), cmocka_unit_test(titles_that_still_meet_are_an_error),
        cmocka_unit_test(long_titles_are_cut),    cmocka_unit_test(sizes_are_written),
        cmocka_unit_test(files_have_media_types), cmocka_unit_test(clients_are_told_when_to_ask_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
