/* A tree of files and a server over it that needs no socket. */
#ifndef TD_TESTS_UNIT_API_SERVED_PLACE_H
#define TD_TESTS_UNIT_API_SERVED_PLACE_H

#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

struct place {
    struct tree tree;
    struct loopback loop;
};

static inline void open_tree(struct place *place)
{
    tree_open(&place->tree);
}

static inline void close_place(struct place *place)
{
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

/* An empty tree: the test writes its files, then calls loopback_open. */
FIXTURE(unserved, struct place, open_tree, close_place)

static inline void expect_status(struct place *place, const char *target, int status)
{
    struct answer answer;
    loopback_get(&place->loop, target, &answer);
    CHECK(answer.response.status == status, "%s: %d, wanted %d: %s", target, answer.response.status, status,
          answer.body);
    answer_fini(&answer);
}

#endif
