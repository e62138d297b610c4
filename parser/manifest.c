#include "parser/manifest.h"

#include "core/checked.h"
#include "parser/names.h"

#include <stdlib.h>
#include <string.h>

struct td_limits td_limits_default(void)
{
    return (struct td_limits){
        .max_header_bytes = UINT64_C(100000000),       /* the reference's MAX_HEADER_SIZE */
        .max_memory_bytes = (size_t)512 * 1024 * 1024, /* holds the largest header, all of it shapes */
    };
}

void td_manifest_init(struct td_manifest *manifest, size_t memory_bytes)
{
    memset(manifest, 0, sizeof *manifest);
    td_arena_init(&manifest->arena, memory_bytes);
}

void td_manifest_fini(struct td_manifest *manifest)
{
    td_arena_fini(&manifest->arena);
    memset(manifest, 0, sizeof *manifest);
}

int td_name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static struct td_name tensor_name(const void *context, size_t i)
{
    const struct td_tensor *tensors = context;
    return (struct td_name){.text = tensors[i].name, .len = tensors[i].name_len};
}

bool td_manifest_finish(struct td_manifest *manifest, struct td_error *err)
{
    size_t count = manifest->tensor_count;
    struct td_tensor *tensors = manifest->tensors;
    struct td_names names = {.count = count, .context = tensors, .get = tensor_name};
    struct td_order *order;
    if (!td_names_order(&names, &order, err))
        return false;
    td_order_apply(order, count, tensors, sizeof *tensors);
    free(order);
    size_t twice = td_names_duplicate(&names, NULL);
    if (twice < count)
        return td_error_set(err, TD_INVALID_ARGUMENT, "two tensors are named \"%.96s\"; names must be unique",
                            tensors[twice].name);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        if (!td_add_u64(total, tensors[i].nbytes, &total))
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "the tensors' sizes add up to more than 2^64-1 bytes");
    manifest->total_bytes = total;
    return true;
}

const struct td_tensor *td_manifest_find(const struct td_manifest *manifest, const char *name, size_t len)
{
    size_t low = 0;
    size_t high = manifest->tensor_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct td_tensor *tensor = &manifest->tensors[middle];
        int order = td_name_compare(name, len, tensor->name, tensor->name_len);
        if (order == 0)
            return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
