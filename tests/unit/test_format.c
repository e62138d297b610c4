#include "parser/format.h"
#include "parser/gguf.h"
#include "parser/hdf5.h"
#include "parser/keras.h"
#include "parser/npy.h"
#include "parser/npz.h"
#include "parser/safetensors.h"
#include "parser/torch.h"
#include "parser/torch_dcp.h"
#include "tests/unit/unit.h"

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
        {"", NULL},
        {"safetensors", NULL},
        {".safetensors", NULL} /* an extension without a name */,
        {"model.safetensors.index.json", NULL},
        {"model.safetensors.tmp", NULL},
        {"model.SafeTensors", NULL},
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

/* What a file's first bytes make of it; the rest is refused by the parser that is chosen. */
static void content_decides_where_the_name_does_not(void **state)
{
    (void)state;
    static const char hdf5[] = "\x89HDF\r\n\x1a\n....";
    static const char zip[] = "PK\3\4........";
    static const char gguf[] = "GGUF........";
    static const char pickle[] = "\x80\2........";
    static const char other[] = "............";
    static const struct {
        const char *name, *bytes;
        const struct td_format *format;
    } cases[] = {
        {"a.pt", hdf5, &td_format_hdf5},
        {"a.bin", gguf, &td_format_gguf},
        {"a.h5", zip, &td_format_torch},
        {"a.h5", other, &td_format_hdf5} /* a userblock, perhaps */,
        {"a.pt", other, &td_format_torch},
        {"a.bin", pickle, &td_format_torch},
        {"a.bin", other, NULL},
        {"pytorch_model.bin", other, &td_format_torch},
        {"a.bin", "", NULL},
        {"pytorch_model-00001-of-00002.bin", "", &td_format_torch},
        {"a.npy", zip, &td_format_npy},
        {"a.npz", hdf5, &td_format_npz},
        {"a.gguf", zip, &td_format_gguf},
        {"a.keras", hdf5, &td_format_keras},
        {"a.safetensors", gguf, &td_format_safetensors},
        {"a.json", gguf, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct td_format *format = &td_format_npy;
        struct td_limits limits = td_limits_default();
        struct td_input input = td_input_memory(cases[i].bytes, strlen(cases[i].bytes));
        struct td_manifest manifest;
        struct td_error err;
        td_error_init(&err);
        td_manifest_init(&manifest, limits.max_memory_bytes);
        bool ok = td_format_parse(cases[i].name, &input, &limits, &format, &manifest, &err);
        CHECK(format == cases[i].format, "%s, %s", cases[i].name, cases[i].bytes);
        CHECK(ok == (format == NULL), "%s, %s", cases[i].name, cases[i].bytes);
        assert_int_equal(manifest.tensor_count, 0);
        td_manifest_fini(&manifest);
    }
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
        struct td_error err;
        td_error_init(&err);
        td_manifest_init(&manifest, limits.max_memory_bytes);
        CHECK(td_format_parse(cases[i].name, &input, &limits, &format, &manifest, &err), "%s", err.message);
        assert_int_equal(manifest.tensor_count, 1);
        assert_string_equal(manifest.tensors[0].name, cases[i].tensor);
        assert_int_equal(manifest.tensors[0].name_len, strlen(cases[i].tensor));
        td_manifest_fini(&manifest);
    }
}

static void format_knows_its_name(void **state)
{
    (void)state;
    assert_string_equal(td_format_safetensors.name, "safetensors");
    assert_string_equal(td_format_safetensors.extensions[0], ".safetensors");
    assert_null(td_format_safetensors.extensions[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extension_decides),
        cmocka_unit_test(content_decides_where_the_name_does_not),
        cmocka_unit_test(bare_tensors_are_named_by_the_file),
        cmocka_unit_test(format_knows_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
