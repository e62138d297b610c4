/* Lists of tensors without files, for the tests of plans. */
#ifndef TD_TESTS_UNIT_SLICING_PLAN_FIXTURE_H
#define TD_TESTS_UNIT_SLICING_PLAN_FIXTURE_H

#include "slicing/plan/plan.h"
#include "tests/unit/unit.h"

struct tensor_spec {
    const char *name, *dtype;
    uint32_t rank;
    uint64_t shape[4];
    const char *reason;
};

struct tensor_set {
    struct td_tensor *tensors; /* sorted by name, as the specs are */
    size_t count;
    struct td_tensor_list list;
};

static inline const struct td_tensor *tensor_set_get(const void *context, size_t i)
{
    const struct tensor_set *set = context;
    return &set->tensors[i];
}

static inline void tensor_set_init(struct tensor_set *set, const struct tensor_spec *specs, size_t count)
{
    set->tensors = calloc(count + 1, sizeof *set->tensors);
    assert_non_null(set->tensors);
    set->count = count;
    for (size_t i = 0; i < count; i++) {
        struct td_tensor *tensor = &set->tensors[i];
        uint64_t elems = 1;
        if (i > 0)
            CHECK(strcmp(specs[i - 1].name, specs[i].name) < 0, "%s is not in order", specs[i].name);
        for (uint32_t d = 0; d < specs[i].rank; d++)
            elems *= specs[i].shape[d];
        tensor->name = specs[i].name;
        tensor->name_len = (uint32_t)strlen(specs[i].name);
        tensor->dtype = td_dtype_find(td_text_of(specs[i].dtype));
        tensor->rank = specs[i].rank;
        tensor->shape = specs[i].shape;
        tensor->reason = specs[i].reason;
        assert_non_null(tensor->dtype);
        CHECK(specs[i].reason != NULL || td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes), "%s", specs[i].name);
    }
    set->list = (struct td_tensor_list){.count = count, .get = tensor_set_get, .context = set};
}

static inline void tensor_set_fini(struct tensor_set *set)
{
    free(set->tensors);
}

#endif
