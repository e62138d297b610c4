/* A directory for each test: TEST_IN(tree, test) hands it a struct tree. */
#ifndef TD_TESTS_UNIT_TREE_FIXTURE_H
#define TD_TESTS_UNIT_TREE_FIXTURE_H

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

FIXTURE(tree, struct tree, tree_open, tree_close)

/* Copies a file of tests/data into the tree. */
static inline void copy_data(const struct tree *tree, const char *data, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, TD_TEST_DATA "/%s", data);
    tree_copy(tree, path, name);
}

/* Writes a pickle of torch.save. */
static inline void copy_pickle(const struct tree *tree, const char *name)
{
    tree_copy(tree, TD_TEST_DATA "/torch/checkpoint.pt", name);
}

#endif
