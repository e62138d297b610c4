/* The calls by which torch.save's pickles make tensors, seen through what is wrapped around them. Internal to the torch
 * readers. */
#ifndef TD_PARSER_TORCH_REBUILD_H
#define TD_PARSER_TORCH_REBUILD_H

#include "parser/pickle/pickle.h"

#include <stdbool.h>

enum td_torch_rebuild {
    TD_REBUILD_NONE,
    TD_REBUILD_V1,
    TD_REBUILD_V2,
    TD_REBUILD_V3,
    TD_REBUILD_Q,
    TD_REBUILD_WRAPPED,   /* argument 0 is the tensor */
    TD_REBUILD_CONVERTED, /* likewise, and argument 1 the type that it gets */
    TD_REBUILD_FROM_TYPE, /* (function, type, args, state) */
    TD_REBUILD_SPARSE,
    TD_REBUILD_NESTED,
    TD_REBUILD_JAGGED, /* argument 0 is a dict with the parts, or argument 0 and 1 are the parts */
    TD_REBUILD_META,
    TD_REBUILD_WRAPPER,
    TD_REBUILD_INLINE,
};

/* TorchScript says the types of lists and dicts by calls around them: restore_type_tag(value, type),
 * build_intlist(list) and so on; sets and sizes are calls with a list or tuple too. What is within, or the value
 * itself. */
td_pickle_ref td_torch_unwrap_tag(const struct td_pickle *pickle, td_pickle_ref ref);

/* The same; *call becomes the innermost of these calls, where there is one: what is within was as it is read there. */
td_pickle_ref td_torch_unwrap_call(const struct td_pickle *pickle, td_pickle_ref ref, td_pickle_ref *call);

/* The call that makes a tensor. */
struct td_torch_made {
    enum td_torch_rebuild what; /* never WRAPPED, CONVERTED or FROM_TYPE */
    td_pickle_ref call;         /* the object that is made by it */
    td_pickle_ref args;
    td_pickle_ref converted; /* the type that the tensor is given when it is loaded, or NIL */
};

/* Follows Parameter(...) and the like to the call that makes the tensor. */
struct td_torch_made td_torch_unwrap_tensor(const struct td_pickle *pickle, td_pickle_ref ref);

/* What _rebuild_parameter_with_state and _rebuild_from_type_v2 set on the tensor, or NIL. state_dict() shows none of
 * it, so within a module only a tensor that is made of it has any. NIL for a jagged tensor, whose state repeats its
 * parts. */
td_pickle_ref td_torch_tensor_state(const struct td_pickle *pickle, td_pickle_ref ref, bool in_module);

#endif
