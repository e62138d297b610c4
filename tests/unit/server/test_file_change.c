#include "server/host/option_file.h"

#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[] = "/tmp/tensord-test-XXXXXX";
static char path[64], link_path[64];

static int setup(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/file", folder);
    (void)snprintf(link_path, sizeof link_path, "%s/link", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(link_path);
    return rmdir(folder);
}

static void write_file(const char *to, const char *text)
{
    FILE *file = fopen(to, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Polls as if the last poll was long ago. */
static bool look(struct td_file_change *change)
{
    change->looked_ns = 0;
    return td_file_change_look(change, false);
}

static void a_change_is_told_of_once_when_the_file_is_at_rest(void **state)
{
    (void)state;
    write_file(path, "one");
    struct td_file_change change = {.paths = {NULL, path}};
    td_file_change_note(&change);
    assert_false(look(&change));
    write_file(path, "longer");
    assert_false(look(&change)); /* may still be written */
    write_file(path, "longer still");
    assert_false(look(&change));
    assert_true(look(&change));
    assert_false(look(&change));
    assert_int_equal(unlink(path), 0);
    assert_false(look(&change));
    assert_true(look(&change));
    assert_false(look(&change));
}

static void another_target_of_a_link_is_a_change(void **state)
{
    (void)state;
    char other[80];
    (void)snprintf(other, sizeof other, "%s-other", path);
    write_file(path, "same");
    write_file(other, "same");
    assert_int_equal(symlink(path, link_path), 0);
    struct td_file_change change = {.paths = {link_path}};
    td_file_change_note(&change);
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(symlink(other, link_path), 0);
    assert_false(look(&change));
    assert_true(look(&change));
    assert_int_equal(unlink(other), 0);
}

static void what_was_noted_is_known(void **state)
{
    (void)state;
    write_file(path, "one");
    struct td_file_change change = {.paths = {path, ""}};
    td_file_change_note(&change);
    write_file(path, "two and more");
    assert_false(look(&change));
    td_file_change_note(&change);
    assert_false(look(&change));
    assert_false(look(&change));
}

static void a_second_look_comes_later(void **state)
{
    (void)state;
    write_file(path, "one");
    struct td_file_change change = {.paths = {path}};
    td_file_change_note(&change);
    write_file(path, "two and more");
    assert_false(look(&change));
    assert_false(td_file_change_look(&change, false)); /* too soon after the last one */
    assert_true(look(&change));
}

/* shows: security.md token-descriptors */
static void a_reading_that_failed_is_tried_again_if_it_may_succeed(void **state)
{
    (void)state;
    write_file(path, "one");
    struct td_file_change change = {.paths = {path}};
    td_file_change_note(&change);
    static const struct {
        enum td_code code;
        bool is_logged, is_tried_again;
    } steps[] = {
        {TD_FAILED_PRECONDITION, true, false},
        {TD_IO, true, true},
        {TD_RESOURCE_EXHAUSTED, false, true},
        {TD_FAILED_PRECONDITION, true, false},
        {TD_IO, true, true},
        {TD_OK, false, false},
        {TD_IO, true, true},
    };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        const struct td_error err = {.code = steps[i].code};
        CHECK(td_file_change_end(&change, &err) == steps[i].is_logged, "step %zu", i);
        CHECK(look(&change) == steps[i].is_tried_again, "step %zu", i);
        CHECK(!look(&change), "step %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_is_told_of_once_when_the_file_is_at_rest),
        cmocka_unit_test(another_target_of_a_link_is_a_change),
        cmocka_unit_test(what_was_noted_is_known),
        cmocka_unit_test(a_second_look_comes_later),
        cmocka_unit_test(a_reading_that_failed_is_tried_again_if_it_may_succeed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
