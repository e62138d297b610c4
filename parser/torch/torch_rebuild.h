/* The calls in torch.save's pickles that make tensors, and the wrappers around these calls. A call is an OBJECT of the
 * pickle, which is recorded and never made. Values may be of any kind, TD_PICKLE_NIL too. Only for parser/torch. */
#ifndef TD_PARSER_TORCH_TORCH_REBUILD_H
#define TD_PARSER_TORCH_TORCH_REBUILD_H

#include "parser/pickle/pickle.h"

#include <stdbool.h>

enum td_torch_rebuild {
    TD_REBUILD_NONE,      /* not a call that makes a tensor */
    TD_REBUILD_V1,        /* _rebuild_tensor */
    TD_REBUILD_V2,        /* _rebuild_tensor_v2 */
    TD_REBUILD_V3,        /* _rebuild_tensor_v3 */
    TD_REBUILD_Q,         /* _rebuild_qtensor: a quantised tensor */
    TD_REBUILD_WRAPPED,   /* argument 0 is the tensor */
    TD_REBUILD_CONVERTED, /* argument 0 is the tensor, argument 1 the type that it is converted to */
    TD_REBUILD_FROM_TYPE, /* (function, type, args, state) */
    TD_REBUILD_SPARSE,    /* _rebuild_sparse_tensor */
    TD_REBUILD_NESTED,    /* _rebuild_nested_tensor */
    TD_REBUILD_JAGGED,    /* argument 0 is a dict with the parts, or argument 0 and 1 are the parts */
    TD_REBUILD_META,      /* _rebuild_meta_tensor_no_storage: a shape and a type without bytes */
    TD_REBUILD_WRAPPER,   /* _rebuild_wrapper_subclass: a tensor that is made of its state */
    TD_REBUILD_INLINE,    /* an array of NumPy, or a tensor that was saved as one: the bytes are in the pickle */
};

/* Returns the value within calls that only state its type, at most 16 of them, or the value itself. TorchScript wraps
 * lists and dicts so: restore_type_tag(value, type), build_intlist(list) and so on; sets and sizes are calls with a
 * list or tuple too. */
td_pickle_ref td_torch_unwrap_tag(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns the same, and sets *call to the innermost of these calls; leaves *call alone without such calls. The call
 * copied the inner value when it ran, so items that were added to that value later are not part of the result. */
td_pickle_ref td_torch_unwrap_call(const struct td_pickle *pickle, td_pickle_ref ref, td_pickle_ref *call);

/* The call that makes a tensor. When `what` is TD_REBUILD_NONE, the other members mean nothing. */
struct td_torch_made {
    enum td_torch_rebuild what; /* never WRAPPED, CONVERTED or FROM_TYPE */
    td_pickle_ref call;         /* the OBJECT of the call */
    td_pickle_ref args;         /* the TUPLE of its arguments; of a FROM_TYPE wrapper, the inner arguments */
    td_pickle_ref converted;    /* the type that loading converts the tensor to, or NIL */
};

/* Follows Parameter(...) and similar wrappers, at most 15, to the call that makes the tensor. `what` is TD_REBUILD_NONE
 * when there is no such call. */
struct td_torch_made td_torch_unwrap_tensor(const struct td_pickle *pickle, td_pickle_ref ref);

/* Returns the state (Python attributes) that _rebuild_parameter_with_state and _rebuild_from_type_v2 set on the tensor,
 * or NIL. in_module says that the tensor belongs to a pickled nn.Module: state_dict() does not show the state there, so
 * only a wrapper subclass, which is made of its state, has one. NIL for a jagged tensor, whose state repeats its parts.
 */
td_pickle_ref td_torch_tensor_state(const struct td_pickle *pickle, td_pickle_ref ref, bool in_module);

#endif
