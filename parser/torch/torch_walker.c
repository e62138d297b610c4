#include "parser/torch/torch_walker.h"

const char *td_torch_copy_path(struct td_torch_walker *w)
{
    char *copy = td_arena_strndup(&w->manifest->arena, td_buffer_text(&w->path));
    if (copy == NULL)
        (void)td_error_no_memory(w->err);
    return copy;
}

struct td_tensor *td_torch_add_tensor(struct td_torch_walker *w)
{
    struct td_manifest *manifest = w->manifest;
    struct td_tensor *tensors = td_arena_grow(&manifest->arena, manifest->tensors, manifest->tensor_count,
                                              &w->tensor_capacity, sizeof *tensors);
    const char *name = tensors != NULL ? td_torch_copy_path(w) : NULL;
    if (name == NULL) {
        (void)td_error_no_memory(w->err);
        return NULL;
    }
    manifest->tensors = tensors;
    struct td_tensor *tensor = &tensors[manifest->tensor_count++];
    *tensor = (struct td_tensor){.name = name, .name_len = (uint32_t)w->path.len};
    return tensor;
}
