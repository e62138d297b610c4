#include "parser/formats.h"

#include "core/text.h"
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
#include "parser/torch/torch_legacy.h"

#include <string.h>

static const struct td_format *const formats[] = {
    &td_format_safetensors, &td_format_torch, &td_format_distcp, &td_format_hdf5, &td_format_keras,
    &td_format_gguf,        &td_format_npy,   &td_format_npz,    &td_format_onnx, &td_format_pt2,
};

enum { HEAD_BYTES = TD_TORCH_LEGACY_HEAD_BYTES }; /* of a file, enough for every check here */

/* The first bytes of formats whose files may have other formats' names. */
static const struct {
    struct td_text bytes;
    const struct td_format *format;
} magics[] = {
    {TD_TEXT("\x89HDF\r\n\x1a\n"), &td_format_hdf5},
    {TD_TEXT("GGUF"), &td_format_gguf},
    {TD_TEXT("PK\3\4"), &td_format_torch},
};

const struct td_format *td_format_at(size_t i)
{
    return i < sizeof formats / sizeof *formats ? formats[i] : NULL;
}

static bool ends_in(const char *file_name, const char *const *extensions)
{
    for (; *extensions != NULL; extensions++)
        if (td_has_extension_any_case(file_name, *extensions))
            return true;
    return false;
}

const struct td_format *td_format_for_name(const char *file_name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (ends_in(file_name, formats[i]->extensions)) // NOLINT(clang-analyzer-core.NullDereference): no entry is NULL
            return formats[i];
    return NULL;
}

bool td_format_may_have_name(const char *file_name)
{
    static const char *const extensions[] = {".tar", ".pkl", ".pickle", ".model", ".mdl", NULL};
    return td_format_for_name(file_name) == NULL && ends_in(file_name, extensions);
}

/* Returns whether files of many kinds have such a name, so that only the bytes show whether one is a checkpoint. */
static bool needs_bytes(const char *file_name)
{
    static const char *const extensions[] = {".bin", ".pth.tar", ".pt.tar", ".ckpt.tar", ".th",
                                             ".ptl", ".pyth",    ".sft",    NULL};
    if (td_has_extension(file_name, ".bin") && strncmp(file_name, "pytorch_model", strlen("pytorch_model")) == 0)
        return false;
    return td_format_for_name(file_name) == NULL || ends_in(file_name, extensions);
}

/* Returns whether these may be the first bytes of a safetensors file: a header's length, then '{'. */
static bool is_safetensors(const uint8_t *head, size_t len, uint64_t size_bytes)
{
    enum { PREFIX_BYTES = 8 };
    return len > PREFIX_BYTES && head[PREFIX_BYTES] == '{' && td_load_le64(head) <= size_bytes - PREFIX_BYTES;
}

/* Returns the format by the bytes of a file for which needs_bytes() holds; NULL: it is no checkpoint. Any program may
 * have written a zip archive, so it counts as PyTorch's only with a data.pkl. */
static const struct td_format *choose_by_bytes(const struct td_format *by_magic, const uint8_t *head, size_t len,
                                               const struct td_input *input, const struct td_limits *limits)
{
    if (by_magic == &td_format_torch && !td_torch_is_legacy(head, len))
        return td_torch_is_archive(input, limits) ? by_magic : NULL;
    if (by_magic == NULL && is_safetensors(head, len, input->size_bytes))
        return &td_format_safetensors;
    return by_magic;
}

/* Returns the format by the first bytes, or NULL. One byte alone, such as a pickle's 0x80, is not enough. */
static const struct td_format *format_of_head(const uint8_t *head, size_t len)
{
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (td_text_begins(td_text_n((const char *)head, len), magics[i].bytes))
            return magics[i].format;
    return td_torch_is_legacy(head, len) ? &td_format_torch : NULL;
}

/* Returns the format of a file by its name and first bytes, or NULL. PyTorch's and HDF5's extensions are used for each
 * other's files, and .bin and others for any file, so there the bytes decide. */
static const struct td_format *choose_format(const char *file_name, const uint8_t *head, size_t len,
                                             const struct td_input *input, const struct td_limits *limits)
{
    const struct td_format *by_name = td_format_for_name(file_name);
    const struct td_format *by_magic = format_of_head(head, len);
    const bool is_bin = td_has_extension_any_case(file_name, ".bin"); /* a zip archive of this name is PyTorch's */
    if (needs_bytes(file_name))
        return is_bin ? by_magic : choose_by_bytes(by_magic, head, len, input, limits);
    if ((by_name == &td_format_torch || by_name == &td_format_hdf5) && by_magic != NULL)
        return by_magic;
    return by_name;
}

/* ---- Git LFS pointers ---- */

#define LFS_VERSION "version https://git-lfs"

/* Returns whether a file that begins with these bytes can be a pointer: a pointer begins with `version` and the URL of
 * the specification. */
static bool is_lfs_pointer(const uint8_t *head, size_t len)
{
    return td_text_begins(td_text_n((const char *)head, len), TD_TEXT(LFS_VERSION));
}

bool td_lfs_pointer_check(const struct td_input *input, bool *is, struct td_error *err)
{
    uint8_t head[sizeof LFS_VERSION - 1];
    *is = false;
    if (input->size_bytes < sizeof head || input->size_bytes >= TD_LFS_POINTER_BYTES)
        return true;
    if (!td_input_read(input, 0, head, sizeof head, err))
        return false;
    *is = is_lfs_pointer(head, sizeof head);
    return true;
}

/* ---- parsing a file ---- */

/* Names a bare tensor after the file's stem. */
static bool name_bare_tensor(struct td_manifest *manifest, const char *file_name, struct td_error *err)
{
    if (!manifest->bare)
        return true;
    const char *dot = strrchr(file_name, '.');
    size_t len = dot == NULL ? strlen(file_name) : (size_t)(dot - file_name);
    char *name = td_arena_strndup(&manifest->arena, td_text_n(file_name, len));
    if (name == NULL)
        return td_error_no_memory(err);
    manifest->tensors[0].name = name;
    manifest->tensors[0].name_len = (uint32_t)len;
    return true;
}

bool td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                     const struct td_format **format, struct td_manifest *manifest, struct td_error *err)
{
    uint8_t head[HEAD_BYTES];
    size_t len = input->size_bytes < sizeof head ? (size_t)input->size_bytes : sizeof head;
    *format = td_format_for_name(file_name);
    if (*format == NULL && !td_format_may_have_name(file_name))
        return true;
    if (!td_input_read(input, 0, head, len, err))
        return false;
    if (is_lfs_pointer(head, len))
        return td_error_at(err, TD_INVALID_ARGUMENT, 0, TD_LFS_POINTER_REASON);
    *format = choose_format(file_name, head, len, input, limits);
    if (*format == NULL)
        return true;
    return (*format)->parse(input, limits, manifest, err) && name_bare_tensor(manifest, file_name, err);
}
