/* A directory for each test: TEST_IN(tree, test) hands it a struct tree. */
#ifndef TD_TESTS_UNIT_TREE_FIXTURE_H
#define TD_TESTS_UNIT_TREE_FIXTURE_H

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

FIXTURE(tree, struct tree, tree_open, tree_close)

#endif
