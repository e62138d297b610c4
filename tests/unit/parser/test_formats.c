#include "parser/formats.h"
#include "parser/gguf.h"
#include "parser/hdf5/hdf5.h"
#include "parser/keras.h"
#include "parser/npy.h"
#include "parser/npz.h"
#include "parser/onnx/onnx.h"
#include "parser/safetensors.h"
#include "parser/torch/pt2.h"
#include "parser/torch/torch.h"
#include "parser/torch/torch_distcp.h"
#include "tests/unit/parser/format_fixture.h"

static void extension_decides(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const struct td_format *format;
    } cases[] = {
        {"model.safetensors", &td_format_safetensors},
        {"a.safetensors", &td_format_safetensors},
        {"model-00001-of-00002.safetensors", &td_format_safetensors},
        {"a.b.safetensors", &td_format_safetensors},
        {".a.safetensors", &td_format_safetensors},
        {" .safetensors", &td_format_safetensors},
        {"consolidated.00.pth", &td_format_torch},
        {"pytorch_model.bin", &td_format_torch},
        {"a.pt", &td_format_torch},
        {"a.ckpt", &td_format_torch},
        {"__0_0.distcp", &td_format_distcp},
        {"model.weights.h5", &td_format_hdf5},
        {"a.hdf5", &td_format_hdf5},
        {"a.keras", &td_format_keras},
        {"m-Q4_K_M.gguf", &td_format_gguf},
        {"a.npy", &td_format_npy},
        {"a.npz", &td_format_npz},
        {"a.onnx", &td_format_onnx},
        {"a.pt2", &td_format_pt2},
        {"a.onnx.data", NULL},
        {"a.onnx_data", NULL},
        {"", NULL},
        {"safetensors", NULL},
        {".safetensors", NULL} /* an extension without a name */,
        {"model.safetensors.index.json", NULL},
        {"model.safetensors.tmp", NULL},
        {"model.SafeTensors", &td_format_safetensors},
        {"MODEL.PT", &td_format_torch},
        {"a.sft", &td_format_safetensors},
        {"model_best.pth.tar", &td_format_torch},
        {"a.th", &td_format_torch},
        {"a.ptl", &td_format_torch},
        {"a.tar", NULL},
        {"a.pkl", NULL},
        {"tokenizer.model", NULL},
        {"model.safetensor", NULL},
        {"modelsafetensors", NULL},
        {"pt", NULL},
        {"model.bin.index.json", NULL},
        {".metadata", NULL},
        {"config.json", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_format_for_name(cases[i].name) == cases[i].format, "%s", cases[i].name);
}

static void names_that_may_be_checkpoints(void **state)
{
    (void)state;
    static const char *const may[] = {"a.tar", "A.TAR", "a.pkl", "a.pickle", "tokenizer.model", "a.mdl"};
    static const char *const no[] = {"a.pth.tar", "a.pt", "a.tar.gz", ".tar", "tar", "a.json", ""};
    for (size_t i = 0; i < COUNT_OF(may); i++)
        CHECK(td_format_may_have_name(may[i]), "%s", may[i]);
    for (size_t i = 0; i < COUNT_OF(no); i++)
        CHECK(!td_format_may_have_name(no[i]), "%s", no[i]);
}

/* Parses bytes that are not a valid file. *format is the format that was chosen for them. */
static bool parse_head(const char *name, const char *bytes, size_t len, const struct td_format **format,
                       struct td_error *err)
{
    struct td_limits limits = td_limits_default();
    struct td_input input = td_input_memory(bytes, len);
    struct td_manifest manifest;
    *format = &td_format_npy;
    td_error_init(err);
    td_manifest_init(&manifest, limits.max_memory_bytes);
    bool ok = td_format_parse(name, &input, &limits, format, &manifest, err);
    assert_int_equal(manifest.tensor_count, 0);
    td_manifest_fini(&manifest);
    return ok;
}

#define BYTES(text) text, sizeof(text) - 1
#define HDF5 BYTES("\x89HDF\r\n\x1a\n....")
#define ZIP BYTES("PK\3\4........")
#define GGUF BYTES("GGUF........")
#define OTHER BYTES("............")
#define PICKLE BYTES("\x80\2}q\0(X\4\0\0\0name") /* pickle.dump({"name": ...}, file, 2) */
/* How torch.save begins with _use_new_zipfile_serialization=False, at protocols 2, 3, 4 and 5. */
#define MAGIC "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
#define FRAME "\x95\x0d\0\0\0\0\0\0\0"
#define LEGACY2 BYTES("\x80\2" MAGIC ".\x80\2M\xe9\3.\x80\2}")
#define LEGACY3 BYTES("\x80\3" MAGIC ".\x80\3M\xe9\3.\x80\3}")
#define LEGACY4 BYTES("\x80\4" FRAME MAGIC ".\x80\4\x95\4")
#define LEGACY5 BYTES("\x80\5" FRAME MAGIC ".\x80\5\x95\4")

/* The first bytes choose the format. The chosen parser then refuses the file; without a format there is no error. */
static void content_decides_where_the_name_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes;
        size_t len;
        const struct td_format *format;
    } cases[] = {
        {"a.pt", HDF5, &td_format_hdf5},
        {"a.bin", GGUF, &td_format_gguf},
        {"a.bin", ZIP, &td_format_torch},
        {"a.h5", ZIP, &td_format_torch},
        {"a.h5", OTHER, &td_format_hdf5} /* a userblock, perhaps */,
        {"a.h5", BYTES("\x80..........."), &td_format_hdf5},
        {"a.h5", LEGACY2, &td_format_torch},
        {"a.pt", OTHER, &td_format_torch},
        {"a.pt", PICKLE, &td_format_torch},
        {"a.bin", LEGACY2, &td_format_torch},
        {"a.bin", LEGACY3, &td_format_torch},
        {"a.bin", LEGACY4, &td_format_torch},
        {"a.bin", LEGACY5, &td_format_torch},
        {"a.bin", PICKLE, NULL},
        {"a.bin", BYTES("\x80"), NULL},
        {"a.bin", BYTES("\x80..........................."), NULL},
        {"a.bin", BYTES("\x80\2" MAGIC), &td_format_torch},
        {"a.bin", BYTES("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50"), NULL},
        {"a.bin", BYTES("\x80\4" FRAME), NULL},
        {"a.bin", OTHER, NULL},
        {"a.bin", BYTES(""), NULL},
        {"pytorch_model.bin", OTHER, &td_format_torch},
        {"pytorch_model.bin", PICKLE, &td_format_torch},
        {"pytorch_model-00001-of-00002.bin", BYTES(""), &td_format_torch},
        {"a.npy", ZIP, &td_format_npy},
        {"a.npz", HDF5, &td_format_npz},
        {"a.gguf", ZIP, &td_format_gguf},
        {"a.keras", HDF5, &td_format_keras},
        {"a.safetensors", GGUF, &td_format_safetensors},
        {"a.json", GGUF, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_format *format;
        struct td_error err;
        bool ok = parse_head(cases[i].name, cases[i].bytes, cases[i].len, &format, &err);
        CHECK(format == cases[i].format, "case %zu: %s", i, cases[i].name);
        CHECK(ok == (format == NULL), "case %zu: %s", i, cases[i].name);
    }
}

/* A pointer as in git-lfs's docs/spec.md is recognised in place of a checkpoint of any format. */
static void lfs_pointers_are_named(void **state)
{
    (void)state;
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
    static const char *const names[] = {"a.safetensors", "a.pt",    "a.bin",   "pytorch_model.bin",
                                        "a.h5",          "a.keras", "a.gguf",  "a.npy",
                                        "a.npz",         "a.onnx",  "a.distcp"};
    const struct td_format *format;
    struct td_error err;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_false(parse_head(names[i], pointer, sizeof pointer - 1, &format, &err));
        assert_ptr_equal(format, td_format_for_name(names[i]));
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_true(err.pos == 0);
        assert_string_equal(err.message, "a Git LFS pointer, not the file itself; run git lfs pull");
    }
    assert_true(parse_head("a.json", pointer, sizeof pointer - 1, &format, &err));
    assert_true(parse_head("a.bin", BYTES("version https://example.org"), &format, &err));
}

static void bare_tensors_are_named_by_the_file(void **state)
{
    (void)state;
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";
    char file[128];
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (char)(sizeof header - 1);
    file[9] = 0;
    memcpy(file + 10, header, sizeof header - 1);
    memcpy(file + 10 + sizeof header - 1, "1234", 4);
    static const struct {
        const char *name, *tensor;
    } cases[] = {{"weights.npy", "weights"}, {"a.b.npy", "a.b"}, {" .npy", " "}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_format *format;
        struct td_limits limits = td_limits_default();
        struct td_input input = td_input_memory(file, 10 + sizeof header - 1 + 4);
        struct td_manifest manifest;
        struct td_error err = TD_ERROR_INIT;
        td_manifest_init(&manifest, limits.max_memory_bytes);
        CHECK(td_format_parse(cases[i].name, &input, &limits, &format, &manifest, &err), "%s", err.message);
        assert_int_equal(manifest.tensor_count, 1);
        assert_string_equal(manifest.tensors[0].name, cases[i].tensor);
        assert_int_equal(manifest.tensors[0].name_len, strlen(cases[i].tensor));
        td_manifest_fini(&manifest);
    }
}

/* Only a tensor that is the whole file takes the file's name. An empty name within a file stays empty. */
static void only_bare_tensors_are(void **state)
{
    (void)state;
    static const struct {
        const char *folder, *file, *extension, *tensor;
    } cases[] = {
        {"torch", "bare", ".pt", "bare"}, {"torch", "legacy_bare", ".pt", "legacy_bare"},
        {"torch", "unnamed", ".pt", ""},  {"torch", "list", ".pt", "0"},
        {"npz", "unnamed", ".npz", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t len;
        char name[64];
        char *bytes = read_file(cases[i].folder, cases[i].file, cases[i].extension, &len);
        const struct td_format *format;
        struct td_limits limits = td_limits_default();
        struct td_input input = td_input_memory(bytes, len);
        struct td_manifest manifest;
        struct td_error err = TD_ERROR_INIT;
        td_manifest_init(&manifest, limits.max_memory_bytes);
        (void)snprintf(name, sizeof name, "%s%s", cases[i].file, cases[i].extension);
        CHECK(td_format_parse(name, &input, &limits, &format, &manifest, &err), "%s", err.message);
        CHECK(strcmp(manifest.tensors[0].name, cases[i].tensor) == 0, "%s: \"%s\"", name, manifest.tensors[0].name);
        assert_int_equal(manifest.tensors[0].name_len, strlen(cases[i].tensor));
        td_manifest_fini(&manifest);
        __real_free(bytes);
    }
}

static void format_knows_its_name(void **state)
{
    (void)state;
    assert_string_equal(td_format_safetensors.name, "safetensors");
    assert_string_equal(td_format_safetensors.extensions[0], ".safetensors");
    assert_string_equal(td_format_safetensors.extensions[1], ".sft");
    assert_null(td_format_safetensors.extensions[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extension_decides),
        cmocka_unit_test(names_that_may_be_checkpoints),
        cmocka_unit_test(content_decides_where_the_name_does_not),
        cmocka_unit_test(lfs_pointers_are_named),
        cmocka_unit_test(bare_tensors_are_named_by_the_file),
        cmocka_unit_test(only_bare_tensors_are),
        cmocka_unit_test(format_knows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
