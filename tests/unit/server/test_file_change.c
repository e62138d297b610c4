#include "server/file_change.h"

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

struct place {
    struct tree tree;
    char paths[2][TREE_PATH_BYTES];
    struct td_file_change change;
};

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    tree_at(&place->tree, "a", place->paths[0]);
    tree_at(&place->tree, "b", place->paths[1]);
    tree_text(&place->tree, "a", "one");
    const char *const paths[] = {place->paths[0], place->paths[1]};
    td_file_change_init(&place->change, paths, 2);
}

/* Returns whether the first look sees a change, and the second none. */
static bool sees_once(struct place *place)
{
    bool seen = td_file_change_look(&place->change, true);
    assert_false(td_file_change_look(&place->change, true));
    return seen;
}

static void every_change_is_seen_once(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    assert_false(td_file_change_look(&place.change, true));
    tree_poke(&place.tree, "a", 0, "two", 3); /* the same size */
    assert_true(sees_once(&place));
    tree_text(&place.tree, "a", "longer");
    assert_true(sees_once(&place));
    tree_text(&place.tree, "new", "longer"); /* the same content under another inode */
    tree_rename(&place.tree, "new", "a");
    assert_true(sees_once(&place));
    tree_text(&place.tree, "b", "x"); /* a file that was missing */
    assert_true(sees_once(&place));
    tree_remove(&place.tree, "a");
    assert_true(sees_once(&place));
    tree_symlink(&place.tree, "a", "b");
    assert_true(sees_once(&place));
    tree_poke(&place.tree, "b", 0, "y", 1); /* behind the link */
    assert_true(sees_once(&place));
    tree_close(&place.tree);
}

static void looks_are_a_second_apart(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    tree_text(&place.tree, "a", "longer");
    assert_false(td_file_change_look(&place.change, false));
    place.change.looked_ns -= UINT64_C(1000000000);
    assert_true(td_file_change_look(&place.change, false));
    tree_close(&place.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_is_seen_once),
        cmocka_unit_test(looks_are_a_second_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
