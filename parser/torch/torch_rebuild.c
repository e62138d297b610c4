#include "parser/torch/torch_rebuild.h"

#include "core/text.h"

#include <stddef.h>

/* Returns whether the value is a call that only states the type of its one argument. */
static bool is_tag(const struct td_pickle *p, td_pickle_ref ref)
{
    static const struct {
        const char *module, *name;
    } tags[] = {
        {"torch.jit._pickle", "restore_type_tag"},
        {"torch.jit._pickle", "build_intlist"},
        {"torch.jit._pickle", "build_tensorlist"},
        {"torch.jit._pickle", "build_doublelist"},
        {"torch.jit._pickle", "build_boollist"},
        {"torch", "Size"},
        {"__builtin__", "set"}, /* of protocols below 4 */
        {"__builtin__", "frozenset"},
        {"builtins", "set"},
        {"builtins", "frozenset"},
    };
    size_t len;
    td_pickle_ref callable = td_pickle_callable(p, ref);
    const char *name = td_pickle_text(p, td_pickle_name(p, callable), &len);
    for (size_t k = 0; name != NULL && k < sizeof tags / sizeof *tags; k++)
        if (td_text_equals(td_text_n(name, len), tags[k].name) &&
            td_pickle_string_is(p, td_pickle_module(p, callable), tags[k].module))
            return true;
    return false;
}

td_pickle_ref td_torch_unwrap_tag(const struct td_pickle *p, td_pickle_ref ref)
{
    td_pickle_ref call = TD_PICKLE_NIL;
    return td_torch_unwrap_call(p, ref, &call);
}

td_pickle_ref td_torch_unwrap_call(const struct td_pickle *p, td_pickle_ref ref, td_pickle_ref *call)
{
    enum { TAGS_MAX = 16 };
    for (size_t i = 0; i < TAGS_MAX && is_tag(p, ref); i++) {
        *call = ref;
        ref = td_pickle_item(p, td_pickle_args(p, ref), 0);
    }
    return ref;
}

static const struct {
    const char *module, *name;
    enum td_torch_rebuild what;
} rebuilds[] = {
    {"torch._utils", "_rebuild_tensor", TD_REBUILD_V1},
    {"torch._utils", "_rebuild_tensor_v2", TD_REBUILD_V2},
    {"torch._utils", "_rebuild_tensor_v3", TD_REBUILD_V3},
    {"torch._utils", "_rebuild_qtensor", TD_REBUILD_Q},
    {"torch._utils", "_rebuild_parameter", TD_REBUILD_WRAPPED},
    {"torch._utils", "_rebuild_parameter_with_state", TD_REBUILD_WRAPPED},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", TD_REBUILD_CONVERTED},
    {"torch._tensor", "_rebuild_from_type_v2", TD_REBUILD_FROM_TYPE},
    {"torch._tensor", "_rebuild_from_type", TD_REBUILD_FROM_TYPE}, /* of before 1.9, in torch.tensor then */
    {"torch.tensor", "_rebuild_from_type", TD_REBUILD_FROM_TYPE},
    {"torch.tensor", "_rebuild_from_type_v2", TD_REBUILD_FROM_TYPE},
    {"torch._utils", "_rebuild_sparse_tensor", TD_REBUILD_SPARSE},
    {"torch._utils", "_rebuild_nested_tensor", TD_REBUILD_NESTED},
    {"torch.nested._internal.nested_tensor", "_rebuild_njt", TD_REBUILD_JAGGED},
    {"torch.nested._internal.nested_tensor", "NestedTensor", TD_REBUILD_JAGGED}, /* of torch 2.1 to 2.3 */
    {"torch._utils", "_rebuild_meta_tensor_no_storage", TD_REBUILD_META},
    {"torch._utils", "_rebuild_wrapper_subclass", TD_REBUILD_WRAPPER},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", TD_REBUILD_INLINE},
    {"torch._utils", "_rebuild_xla_tensor", TD_REBUILD_INLINE},
    {"numpy.core.multiarray", "_reconstruct", TD_REBUILD_INLINE},
    {"numpy._core.multiarray", "_reconstruct", TD_REBUILD_INLINE},
    {"numpy._core.numeric", "_frombuffer", TD_REBUILD_INLINE},
    {"numpy.core.numeric", "_frombuffer", TD_REBUILD_INLINE},
};

static enum td_torch_rebuild rebuild_of(const struct td_pickle *p, td_pickle_ref callable)
{
    for (size_t i = 0; i < sizeof rebuilds / sizeof *rebuilds; i++)
        if (td_pickle_is_global(p, callable, rebuilds[i].module, rebuilds[i].name))
            return rebuilds[i].what;
    return TD_REBUILD_NONE;
}

/* Sets made->what to the kind of object that the callable makes. When the callable wraps another call, advances to that
 * call and returns true. */
static bool unwrap_callable(const struct td_pickle *p, struct td_torch_made *made, td_pickle_ref *callable)
{
    made->what = rebuild_of(p, *callable);
    if (made->what == TD_REBUILD_FROM_TYPE) {
        *callable = td_pickle_item(p, made->args, 0);
        made->args = td_pickle_item(p, made->args, 2);
        return true;
    }
    if (made->what != TD_REBUILD_WRAPPED && made->what != TD_REBUILD_CONVERTED)
        return false;
    if (made->what == TD_REBUILD_CONVERTED && made->converted == TD_PICKLE_NIL)
        made->converted = td_pickle_item(p, made->args, 1);
    made->call = td_pickle_item(p, made->args, 0);
    *callable = td_pickle_callable(p, made->call);
    made->args = td_pickle_args(p, made->call);
    return true;
}

struct td_torch_made td_torch_unwrap_tensor(const struct td_pickle *p, td_pickle_ref ref)
{
    enum { WRAPPERS_MAX = 16 };
    struct td_torch_made made = {.call = ref, .args = td_pickle_args(p, ref)};
    td_pickle_ref callable = td_pickle_callable(p, ref);
    int wrappers = 0;
    while (wrappers < WRAPPERS_MAX && unwrap_callable(p, &made, &callable))
        wrappers++;
    if (wrappers == WRAPPERS_MAX || td_pickle_kind(p, made.args) != TD_PICKLE_TUPLE)
        made.what = TD_REBUILD_NONE;
    return made;
}

td_pickle_ref td_torch_tensor_state(const struct td_pickle *p, td_pickle_ref ref, bool in_module)
{
    td_pickle_ref callable = td_pickle_callable(p, ref);
    if (!td_pickle_is_global(p, callable, "torch._utils", "_rebuild_parameter_with_state") &&
        rebuild_of(p, callable) != TD_REBUILD_FROM_TYPE)
        return TD_PICKLE_NIL;
    enum td_torch_rebuild what = td_torch_unwrap_tensor(p, ref).what;
    if ((in_module && what != TD_REBUILD_WRAPPER) || what == TD_REBUILD_JAGGED)
        return TD_PICKLE_NIL;
    return td_pickle_item(p, td_pickle_args(p, ref), 3);
}
