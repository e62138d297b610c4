/* The tree of modules: expectations are sums over the names of each test, counted by hand. */
#include "api/html/module_tree.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 32 * 1024, MANY = 100000 };

struct tensor {
    const char *name;
    uint64_t elements, bytes;
};

/* Writes the lines as text: "a(2 tensors 10 20){ ... }", "a.b(1 1 1)", "+3". */
static void write_lines(const struct td_module_line *lines, size_t count, char *text)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const struct td_module_line *line = &lines[i];
        char *at = text + used;
        size_t room = TEXT_BYTES - used;
        if (line->kind == TD_MODULE_MORE)
            used += (size_t)snprintf(at, room, " +%zu", line->more);
        else if (line->kind == TD_MODULE_CLOSE)
            used += (size_t)snprintf(at, room, " }");
        else
            used += (size_t)snprintf(at, room, " %.*s|%.*s(%llu %llu %llu)%s", (int)line->name_at, line->path.p,
                                     (int)(line->path.len - line->name_at), line->path.p + line->name_at,
                                     (unsigned long long)line->tensors, (unsigned long long)line->elements,
                                     (unsigned long long)line->bytes, line->kind == TD_MODULE_OPEN ? "{" : "");
        assert_true(used < TEXT_BYTES);
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static void expect_tree(struct tensor *tensors, size_t count, const char *wanted)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_module_line *lines;
    size_t line_count;
    char *text = malloc(TEXT_BYTES);
    struct td_module_tree *tree = td_module_tree_create();
    assert_true(text != NULL && tree != NULL);
    qsort(tensors, count, sizeof *tensors, compare_names);
    for (size_t i = 0; i < count; i++)
        td_module_tree_add(tree, td_text_of(tensors[i].name), tensors[i].elements, tensors[i].bytes);
    assert_true(td_module_tree_finish(tree, &lines, &line_count, &err));
    write_lines(lines, line_count, text);
    CHECK(strcmp(text, wanted) == 0, "%s, wanted %s", text, wanted);
    free(lines);
    free(text);
}

static void sums_of_each_level(void **state)
{
    (void)state;
    struct tensor tensors[] = {
        {"lm_head.weight", 100, 200},
        {"model.embed.weight", 50, 100},
        {"model.layers.0.mlp.up", 7, 14},
        {"model.layers.0.mlp.down", 8, 16},
        {"model.layers.10.mlp.up", 1, 2},
        {"model.layers.2.norm", 3, 6},
        {"alone", 1000, 2000},
        {"model.norm", 5, 10},
    };
    expect_tree(tensors, COUNT_OF(tensors),
                " |lm_head(1 100 200)"
                " |model(6 74 148){"
                " model.|embed(1 50 100)"
                " model.|layers(4 19 38){"
                " model.layers.|0(2 15 30) model.layers.|2(1 3 6) model.layers.|10(1 1 2) }"
                " }");
}

static void names_that_make_no_modules(void **state)
{
    (void)state;
    struct tensor plain[] = {{"a", 1, 1}, {"b", 1, 1}, {"", 1, 1}, {"...", 1, 1}, {"/", 1, 1}};
    expect_tree(plain, COUNT_OF(plain), "");
    expect_tree(plain, 0, "");
}

/* Characters that divide parts belong to the part after them. Names of modules that begin alike stay apart, also where
 * '-' and '0', which come before and after '.' and '/', continue them. */
static void odd_names(void **state)
{
    (void)state;
    struct tensor tensors[] = {{"a.x", 1, 1}, {"a/y", 2, 2},    {"a-b.x", 4, 4},  {"a0.x", 8, 8},
                               {"a", 16, 16}, {"/a/x", 32, 32}, {"b..c.x", 1, 1}, {"b.c.x", 2, 2}};
    expect_tree(tensors, COUNT_OF(tensors),
                " |/a(1 32 32) |a(2 3 3) |a-b(1 4 4) |a0(1 8 8) |b(2 3 3){ b..|c(1 1 1) b.|c(1 2 2) }");
}

/* Numbers are in the order of their values, whatever zeros they begin with. */
static void numbers_in_order(void **state)
{
    (void)state;
    struct tensor tensors[] = {{"l10.x", 1, 1},
                               {"l9.x", 1, 1},
                               {"l009.x", 1, 1},
                               {"l1a.x", 1, 1},
                               {"l99999999999999999999999.x", 1, 1},
                               {"l100000000000000000000000.x", 1, 1}};
    expect_tree(tensors, COUNT_OF(tensors),
                " |l1a(1 1 1) |l009(1 1 1) |l9(1 1 1) |l10(1 1 1) |l99999999999999999999999(1 1 1)"
                " |l100000000000000000000000(1 1 1)");
}

static void sums_stop_at_the_largest_number(void **state)
{
    (void)state;
    struct tensor tensors[] = {{"m.a", UINT64_MAX - 1, 1}, {"m.b", 5, UINT64_MAX}};
    expect_tree(tensors, COUNT_OF(tensors), " |m(2 18446744073709551615 18446744073709551615)");
}

/* Adds names made by `format` of 0 .. count - 1, sorted, and counts the lines of each kind. */
static void count_lines(const char *const *names, size_t count, size_t kinds[4], size_t *more_in_all)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_module_line *lines;
    size_t line_count;
    struct td_module_tree *tree = td_module_tree_create();
    assert_non_null(tree);
    for (size_t i = 0; i < count; i++)
        td_module_tree_add(tree, td_text_of(names[i]), 1, 1);
    assert_true(td_module_tree_finish(tree, &lines, &line_count, &err));
    memset(kinds, 0, 4 * sizeof *kinds);
    *more_in_all = 0;
    for (size_t i = 0; i < line_count; i++) {
        kinds[lines[i].kind]++;
        *more_in_all += lines[i].more;
    }
    free(lines);
}

/* 100,000 modules of the first level: 200 are listed, and the rest is counted. */
static void many_modules(void **state)
{
    (void)state;
    char(*names)[16] = malloc(sizeof(char[16]) * MANY);
    const char **sorted = malloc(sizeof *sorted * MANY);
    size_t kinds[4];
    size_t more;
    assert_true(names != NULL && sorted != NULL);
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "m%06zu.w.x", i);
        sorted[i] = names[i];
    }
    count_lines(sorted, MANY, kinds, &more);
    assert_int_equal(kinds[TD_MODULE_OPEN], TD_MODULES_LISTED); /* each with one module that is not listed */
    assert_int_equal(kinds[TD_MODULE_ALONE], 0);
    assert_int_equal(more, MANY - TD_MODULES_LISTED + TD_MODULES_LISTED);
    free(sorted);
    free(names);
}

/* A GGUF of 32 layers of 9 modules: the layers are listed before what is in them. */
static void levels_come_before_what_is_in_them(void **state)
{
    (void)state;
    static char names[32 * 9 + 1][24];
    const char *sorted[32 * 9 + 1];
    size_t kinds[4];
    size_t more;
    for (size_t i = 0; i < (size_t)32 * 9; i++)
        (void)snprintf(names[i], sizeof names[i], "blk.%02zu.m%zu.weight", i / 9, i % 9);
    (void)snprintf(names[32 * 9], sizeof names[0], "output.weight");
    for (size_t i = 0; i < COUNT_OF(sorted); i++)
        sorted[i] = names[i];
    count_lines(sorted, COUNT_OF(sorted), kinds, &more);
    assert_int_equal(kinds[TD_MODULE_OPEN], 1 + 32);
    assert_int_equal(kinds[TD_MODULE_OPEN] + kinds[TD_MODULE_ALONE], TD_MODULES_LISTED);
    assert_int_equal(more, 2 + 32 + 32 * 9 - TD_MODULES_LISTED);
}

/* A name of a million parts takes time in proportion to its first three parts, and its length for each comparison. */
static void a_name_of_many_parts(void **state)
{
    (void)state;
    enum { PARTS = 500000 };
    char *name = malloc(2 * PARTS + 1);
    assert_non_null(name);
    for (size_t i = 0; i < PARTS; i++)
        memcpy(name + 2 * i, "a.", 2);
    name[2 * PARTS] = '\0';
    struct tensor tensors[] = {{name, 1, 1}, {name + 2, 1, 1}};
    expect_tree(tensors, COUNT_OF(tensors), " |a(2 2 2){ a.|a(2 2 2){ a.a.|a(2 2 2) } }");
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_each_level),
        cmocka_unit_test(names_that_make_no_modules),
        cmocka_unit_test(odd_names),
        cmocka_unit_test(numbers_in_order),
        cmocka_unit_test(sums_stop_at_the_largest_number),
        cmocka_unit_test(many_modules),
        cmocka_unit_test(levels_come_before_what_is_in_them),
        cmocka_unit_test(a_name_of_many_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
