#include "rank/rank_list.h"

#include "core/clock.h"

#include <inttypes.h>

bool td_rank_list_check(const struct td_rank_set *set, struct td_error *err)
{
    const size_t tensors = set->checkpoint->tensor_count;
    if (set->name.is_boxes || tensors <= TD_RANK_LIST_WORK_MAX / set->name.tp_size)
        return true;
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "a plan of %zu tensors for %" PRIu64 " ranks is too much at once; %d tensors times ranks are "
                        "the most",
                        tensors, set->name.tp_size, TD_RANK_LIST_WORK_MAX);
}

bool td_rank_list_make(struct td_rank_maker *maker, const struct td_cancel *cancel,
                       bool (*take)(void *context, uint64_t rank, const struct td_rank_file *file, const char *tag,
                                    struct td_error *err),
                       void *context, struct td_error *err)
{
    const uint64_t until_ns = td_clock_ns() + TD_RANK_LIST_S * TD_NS_PER_S;
    const uint64_t tp_size = maker->set->name.tp_size;
    for (uint64_t rank = 0; rank < tp_size; rank++) {
        struct td_rank_file *file = NULL;
        char tag[TD_TAG_BYTES] = "";
        if (td_cancel_is_asked(cancel))
            return td_error_set(err, TD_RESOURCE_EXHAUSTED, "the server is shutting down");
        if (td_clock_ns() > until_ns)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "planning %" PRIu64 " ranks takes more than %d s; use fewer or simpler rules", tp_size,
                                TD_RANK_LIST_S);
        if (!td_rank_maker_get(maker, rank, &file, tag, err))
            return false;
        bool ok = take(context, rank, file, tag, err);
        td_rank_file_unref(file);
        if (!ok)
            return false;
    }
    return true;
}
