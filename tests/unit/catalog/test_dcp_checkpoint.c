/* Limits of a .metadata in proportion to its size: docs/formats.md, "Distributed checkpoints". */
#include "catalog/model/dcp_checkpoint.h"

#include "tests/unit/unit.h"

/* shows: security.md content-dcp-pieces */
static void pieces_are_in_proportion_to_the_pickle(void **state)
{
    (void)state;
    struct td_dcp_tensor tensors[] = {{.rank = 1, .piece_count = 1000}, {.rank = 2, .piece_count = 24}, {0}};
    const struct td_dcp dcp = {.tensors = tensors, .tensor_count = COUNT_OF(tensors)};
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_dcp_check(&dcp, 16 * 1024, SIZE_MAX, &err));
    assert_false(td_dcp_check(&dcp, 16 * 1024 - 1, SIZE_MAX, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    check_says(&err, "1024 pieces", "too many pieces");
}

static void the_join_is_charged(void **state)
{
    (void)state;
    struct td_dcp_tensor tensors[] = {{.rank = 1, .piece_count = 1000}, {.rank = 2, .piece_count = 24}};
    struct td_dcp dcp = {.tensors = tensors, .tensor_count = COUNT_OF(tensors)};
    uint64_t join = td_dcp_join_bytes(&dcp);
    assert_true(join >= 1024 * (sizeof(struct td_piece) + 3 * sizeof(uint64_t))); /* a piece and its place, for each */
    dcp.arena.used_bytes = 5000;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_dcp_check(&dcp, UINT64_MAX, (size_t)join + 5000, &err));
    assert_false(td_dcp_check(&dcp, UINT64_MAX, (size_t)join + 4999, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    check_says(&err, "memory", "too much memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_in_proportion_to_the_pickle),
        cmocka_unit_test(the_join_is_charged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
