#include "catalog/upstream/fetching.h"

#include "tests/unit/unit.h"

static void the_oldest_wrong_tags_are_forgotten(void **state)
{
    static struct td_wrong_tags tags;
    char tag[32];
    (void)state;
    assert_false(td_wrong_tags_has(&tags, TD_TEXT("\"\"")));
    for (int i = 0; i < TD_WRONG_TAGS + 2; i++) {
        (void)snprintf(tag, sizeof tag, "%08d", i);
        td_wrong_tags_add(&tags, tag);
    }
    assert_false(td_wrong_tags_has(&tags, TD_TEXT("\"00000001\"")));
    assert_true(td_wrong_tags_has(&tags, TD_TEXT("\"00000002\"")));
    (void)snprintf(tag, sizeof tag, "\"%08d-part\"", TD_WRONG_TAGS + 1);
    assert_true(td_wrong_tags_has(&tags, td_text_of(tag))); /* a facade has put something behind it */
    assert_false(td_wrong_tags_has(&tags, TD_TEXT("\"0000000")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_oldest_wrong_tags_are_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
