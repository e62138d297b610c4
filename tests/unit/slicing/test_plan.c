#include "slicing/plan/plan.h"
#include "tests/kit/plan_from_rules.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/slicing/plan_fixture.h"
#include "tests/unit/work.h"

#include <inttypes.h>

/* Writes the plan as text: "name DTYPE[shape]@axis/cells: piece, piece; ...". */
static void render(const struct td_plan *plan, const struct tensor_set *set, struct td_buffer *out)
{
    td_buffer_clear(out);
    for (size_t i = 0; i < plan->output_count; i++) {
        const struct td_plan_output *o = &plan->outputs[i];
        td_buffer_printf(out, "%s%s %s[", i > 0 ? "; " : "", o->name, o->dtype->name);
        for (uint32_t d = 0; d < o->rank; d++)
            td_buffer_printf(out, "%s%" PRIu64, d > 0 ? "," : "", o->shape[d]);
        td_buffer_printf(out, "]@%" PRIu32 "/%" PRIu64 ":", o->axis, o->cell_count);
        if (o->is_constant)
            td_buffer_printf(out, " = %g", (double)o->constant);
        for (size_t k = 0; k < o->piece_count; k++) {
            const struct td_plan_piece *p = &plan->pieces[o->first_piece + k];
            td_buffer_printf(out, " %s %" PRIu64 "+%" PRIu64,
                             p->tensor == TD_PIECE_ZEROS ? "zeros" : set->tensors[p->tensor].name, p->start, p->size);
            if (p->count > 1)
                td_buffer_printf(out, "*%" PRIu64 "/%" PRIu64, p->count, p->stride);
        }
    }
    for (size_t i = 0; i < plan->dropped_count; i++)
        td_buffer_printf(out, " -%s", plan->dropped[i]);
    assert_non_null(td_buffer_terminate(out));
}

static void check_plan(const struct td_rule *rules, size_t count, const struct tensor_set *set, uint64_t t, uint64_t r,
                       const char *wanted)
{
    struct td_rule_list list = {.rules = (struct td_rule *)(uintptr_t)rules, .count = count};
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = plan_from_rules(&list, &set->list, t, r, &plan, &err);
    CHECK(ok, "%s: %s", wanted, err.message);
    render(&plan, set, &text);
    CHECK(strcmp(text.data, wanted) == 0, "\"%s\", not \"%s\"", text.data, wanted);
    uint64_t total = 0;
    for (size_t i = 0; i < plan.output_count; i++)
        total += plan.outputs[i].nbytes;
    assert_int_equal(total, plan.total_bytes);
    assert_int_equal(plan.tp_size, t);
    assert_int_equal(plan.tp_rank, r);
    td_plan_fini(&plan);
    td_plan_fini(&plan); /* also for an empty plan */
    td_buffer_fini(&text);
}

static void check_refused(const struct td_rule_list *list, const struct tensor_set *set, uint64_t t, uint64_t r,
                          enum td_code code, const char *const *words)
{
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    CHECK(!plan_from_rules(list, &set->list, t, r, &plan, &err), "%s", words[0]);
    assert_int_equal(err.code, code);
    check_error(&err, 0, false, words[0]);
    for (size_t i = 0; i < 3 && words[i] != NULL; i++)
        CHECK(strstr(err.message, words[i]) != NULL, "%s: %s", words[i], err.message);
    assert_null(plan.outputs);
    assert_null(plan.arena.chunks);
    td_plan_fini(&plan);
}

/* The worked example: Qwen3-0.6B, rank 1 of 2. */
static void worked_example(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"down", "BF16", 2, {1024, 3072}, NULL}, {"k", "BF16", 2, {1024, 1024}, NULL},
        {"norm", "BF16", 1, {1024}, NULL},       {"o", "BF16", 2, {1024, 2048}, NULL},
        {"q", "BF16", 2, {2048, 1024}, NULL},    {"scale", "F32", 0, {0}, NULL},
        {"v", "BF16", 2, {1024, 1024}, NULL},
    };
    static const struct td_rule rules[] = {
        {.match = "q", .out = "qkv", .slot = 0, .parts = {{.count = 16, .unit = 128}}, .part_count = 1},
        {.match = "k",
         .out = "qkv",
         .slot = 1,
         .parts = {{.count = 8, .unit = 128, .replicate = true}},
         .part_count = 1},
        {.match = "v",
         .out = "qkv",
         .slot = 2,
         .parts = {{.count = 8, .unit = 128, .replicate = true}},
         .part_count = 1},
        {.match = "o", .dim = 1, .parts = {{.count = 16, .unit = 128}}, .part_count = 1},
        {.match = "down", .dim = -1},
    };
    struct tensor_set set;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    check_plan(
        rules, COUNT_OF(rules), &set, 2, 1,
        "scale F32[]@0/1: scale 0+1; down BF16[1024,1536]@1/1: down 1536+1536; norm BF16[1024]@0/1: norm 0+1024; "
        "o BF16[1024,1024]@1/1: o 1024+1024; qkv BF16[2048,1024]@0/1: q 1024+1024 k 512+512 v 512+512");
    tensor_set_fini(&set);
}

/* The reference's serializer sorts tensors by type, then by name. This is the order of the types in a file by
 * safetensors 0.8.0 with a tensor of each type that the package can write; F6_E3M2 and F6_E2M3 come between U8 and F4
 * by enum Dtype of tensor.rs. */
static void results_are_in_the_order_of_safetensors(void **state)
{
    (void)state;
    static const char *const order[] = {"U64",         "I64",     "F64",     "C64",     "F32", "U32",
                                        "I32",         "BF16",    "F16",     "U16",     "I16", "F8_E5M2FNUZ",
                                        "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8",  "U8",
                                        "F6_E3M2",     "F6_E2M3", "F4",      "BOOL"};
    enum { TYPES = COUNT_OF(order), TENSORS = 2 * TYPES };
    static const struct td_rule rules[] = {{.match = "**", .uneven = TD_UNEVEN_CHUNK}};
    const struct td_rule_list list = {.rules = (struct td_rule *)(uintptr_t)rules, .count = 1};
    struct tensor_spec specs[TENSORS];
    char names[TENSORS][8];
    for (size_t i = 0; i < TENSORS; i++) { /* the types are dealt to the names in another order; 5 and 22 are coprime */
        (void)snprintf(names[i], sizeof names[i], "t%02zu", i);
        specs[i] = (struct tensor_spec){.name = names[i], .dtype = order[i * 5 % TYPES], .rank = 1, .shape = {24}};
    }
    struct tensor_set set;
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    uint64_t at = 0;
    tensor_set_init(&set, specs, TENSORS);
    CHECK(plan_from_rules(&list, &set.list, 3, 1, &plan, &err), "%s", err.message);
    assert_int_equal(plan.output_count, TENSORS);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct td_plan_output *o = &plan.outputs[i];
        const struct td_plan_piece *piece = &plan.pieces[o->first_piece];
        CHECK(strcmp(o->dtype->name, order[i / 2]) == 0, "%zu: %s, not %s", i, o->dtype->name, order[i / 2]);
        CHECK(i % 2 == 0 || strcmp(o[-1].name, o->name) < 0, "%zu: %s", i, o->name);
        CHECK(o->piece_count == 1 && strcmp(set.tensors[piece->tensor].name, o->name) == 0 && piece->start == 8, "%s",
              o->name);
        CHECK(at % o->dtype->block_bytes == 0 || o->dtype->block_elems > 1, "%s is at %llu", o->name,
              (unsigned long long)at);
        at += o->nbytes;
    }
    td_plan_fini(&plan);
    tensor_set_fini(&set);
}

/* Numbers in names sort as numbers, and results by their names. */
static void stacks(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"e.0.down", "F32", 2, {3, 4}, NULL},  {"e.0.up", "F32", 2, {4, 3}, NULL},
        {"e.1.down", "F32", 2, {3, 4}, NULL},  {"e.1.up", "F32", 2, {4, 3}, NULL},
        {"e.10.down", "F32", 2, {3, 4}, NULL}, {"e.10.up", "F32", 2, {4, 3}, NULL},
        {"e.2.down", "F32", 2, {3, 4}, NULL},  {"e.2.up", "F32", 2, {4, 3}, NULL},
    };
    static const struct td_rule rules[] = {
        {.match = "e.*.up", .out = "w13", .stack = true},
        {.match = "e.*.down", .out = "w2", .stack = true, .dim = 1},
    };
    struct tensor_set set;
    tensor_set_init(&set, specs, 4);
    check_plan(rules, 2, &set, 2, 1,
               "w13 F32[2,2,3]@0/2: e.0.up 2+2 e.1.up 2+2; w2 F32[2,3,2]@1/2: e.0.down 2+2 e.1.down 2+2");
    struct td_rule_list list = {.rules = (struct td_rule *)(uintptr_t)rules, .count = 2};
    const char *gap[] = {"w13", "lacks a part", "e.2.up"};
    tensor_set_fini(&set);
    tensor_set_init(&set, specs, COUNT_OF(specs));
    check_refused(&list, &set, 2, 0, TD_FAILED_PRECONDITION, gap);
    tensor_set_fini(&set);
}

/* Constants use up no tensor. A rule makes one for each name that its matching, kept tensors give. They are sorted
 * among the other outputs by name. */
static void constants(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {{"l.0.o", "BF16", 2, {4, 4}, NULL},
                                               {"l.1.o", "F32", 2, {4, 4}, NULL},
                                               {"l.2.o", "F32", 2, {4, 4}, NULL},
                                               {"z", "F32", 0, {0}, NULL}};
    static const struct td_rule rules[] = {{.match = "l.*.o", .out = "l.*.k", .is_constant = true, .constant = 1},
                                           {.match = "l.*.o", .out = "l.*.p", .is_constant = true, .constant = 0.5F},
                                           {.match = "l.2.**", .drop = true},
                                           {.match = "**", .out = "one", .is_constant = true, .constant = -1},
                                           {.match = "l.*.o", .dim = 1},
                                           {.match = "no", .out = "no", .is_constant = true}};
    struct tensor_set set;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    check_plan(rules, COUNT_OF(rules), &set, 2, 1,
               "l.0.k F32[]@0/1: = 1; l.0.p F32[]@0/1: = 0.5; l.1.k F32[]@0/1: = 1; l.1.o F32[4,2]@1/1: l.1.o 2+2; "
               "l.1.p F32[]@0/1: = 0.5; one F32[]@0/1: = -1; z F32[]@0/1: z 0+1; l.0.o BF16[4,2]@1/1: l.0.o 2+2 "
               "-l.2.o");
    tensor_set_fini(&set);
}

/* A constant is unused when no name matches, or all tensors that match are left out. */
static void unused_constants_are_explained(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {{"a", "F32", 0, {0}, NULL}, {"b", "F32", 0, {0}, NULL}};
    struct td_rule rules[] = {{.match = "a", .out = "x", .is_constant = true},
                              {.match = "c", .out = "x", .is_constant = true},
                              {.match = "a", .drop = true},
                              {.match = "b", .out = "y", .is_constant = true}};
    const struct td_rule_list list = {.rules = rules, .count = COUNT_OF(rules)};
    struct td_plan_match match;
    struct tensor_set set;
    struct td_error err = TD_ERROR_INIT;
    uint64_t steps = TD_PLAN_MAX_STEPS;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    assert_true(td_plan_match(&list, &set.list, NULL, &match, &err));
    assert_int_equal(match.unused_count, 2);
    assert_true(match.unused[0] == 0 && match.unused[1] == 1);
    assert_ptr_equal(td_plan_match_explain(&match, 0, &steps).taker, &rules[2]);
    assert_null(td_plan_match_explain(&match, 1, &steps).taker);
    td_plan_match_fini(&match);
    tensor_set_fini(&set);
}

static void empty_and_dropped(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"a", "F32", 2, {3, 0}, NULL}, {"b", "F32", 2, {0, 3}, NULL},      {"c", "F32", 1, {2}, NULL},
        {"d", "F32", 2, {2, 2}, NULL}, {"e", "STRING", 1, {2}, "strings"}, {"f", "F32", 1, {1}, NULL},
    };
    static const struct td_rule rules[] = {
        {.match = "d", .drop = true}, {.match = "e", .drop = true}, {.match = "*", .uneven = TD_UNEVEN_CHUNK}};
    struct tensor_set set;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    check_plan(rules, 3, &set, 4, 1,
               "a F32[1,0]@0/1: a 1+1; b F32[0,3]@0/1:; c F32[1]@0/1: c 1+1; f F32[0]@0/1: -d -e");
    check_plan(rules, 3, &set, 4, 3, "a F32[0,0]@0/1:; b F32[0,3]@0/1:; c F32[0]@0/1:; f F32[0]@0/1: -d -e");
    const char *words[] = {"\"e\"", "strings", NULL};
    check_refused(&(struct td_rule_list){.rules = (struct td_rule *)(uintptr_t)&rules[2], .count = 1}, &set, 4, 3,
                  TD_FAILED_PRECONDITION, words);
    set.list.count = 0;
    check_plan(rules, 3, &set, 4, 3, "");
    check_plan(NULL, 0, &set, 1, 0, "");
    tensor_set_fini(&set);
}

/* One match serves all ranks of any number of ranks: each plan equals the plan that is made alone. */
static void a_match_serves_all_ranks(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"a.k", "F32", 2, {4, 3}, NULL},
        {"a.q", "F32", 2, {8, 3}, NULL},
        {"n", "F32", 1, {5}, NULL},
        {"x", "F32", 2, {2, 2}, NULL},
    };
    static const struct td_rule rules[] = {
        {.match = "*.q", .out = "*.qk"}, {.match = "*.k", .out = "*.qk", .slot = 1}, {.match = "x", .drop = true}};
    static const char *const wanted[] = {
        "a.qk F32[12,3]@0/1: a.q 0+8 a.k 0+4; n F32[5]@0/1: n 0+5 -x",
        "a.qk F32[6,3]@0/1: a.q 0+4 a.k 0+2; n F32[5]@0/1: n 0+5 -x",
        "a.qk F32[6,3]@0/1: a.q 4+4 a.k 2+2; n F32[5]@0/1: n 0+5 -x",
    };
    static const uint64_t ranks[][2] = {{1, 0}, {2, 0}, {2, 1}};
    struct td_rule_list list = {.rules = (struct td_rule *)(uintptr_t)rules, .count = COUNT_OF(rules)};
    struct tensor_set set;
    struct td_plan_match match;
    struct td_buffer text;
    struct td_error err = TD_ERROR_INIT;
    td_buffer_init(&text);
    tensor_set_init(&set, specs, COUNT_OF(specs));
    assert_true(td_plan_match(&list, &set.list, NULL, &match, NULL));
    for (size_t i = 0; i < COUNT_OF(ranks); i++) {
        struct td_plan plan;
        assert_true(td_plan_from_match(&match, ranks[i][0], ranks[i][1], &plan, NULL));
        render(&plan, &set, &text);
        CHECK(strcmp(text.data, wanted[i]) == 0, "%s", text.data);
        td_plan_fini(&plan);
    }
    struct td_plan none;
    assert_false(td_plan_from_match(&match, 3, 0, &none, &err)); /* 8 rows for 3 ranks */
    assert_true(err.code == TD_FAILED_PRECONDITION && none.outputs == NULL);
    td_error_init(&err);
    assert_false(td_plan_from_match(&match, 2, 2, &none, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_plan_match_fini(&match);
    td_buffer_fini(&text);
    tensor_set_fini(&set);
}

/* A rule has no tensor because it matches none, or because earlier rules, drops included, take all that it matches.
 * When the steps do not suffice the answer is "not known". */
static void unused_rules_are_explained(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"a.bias", "F32", 1, {4}, NULL}, {"a.weight", "F32", 1, {4}, NULL}, {"b.bias", "F32", 1, {4}, NULL}};
    struct td_rule rules[] = {{.match = "c.*"},  {.match = "a.weight", .drop = true},
                              {.match = "**"},   {.match = "*.weight"},
                              {.match = "a.**"}, {.match = "b.bias"}};
    static const struct {
        uint32_t rule;
        int taker; /* -1: none */
        bool several;
    } wanted[] = {{0, -1, false}, {3, 1, false}, {4, 2, true}, {5, 2, false}};
    const struct td_rule_list list = {.rules = rules, .count = COUNT_OF(rules)};
    struct td_plan_match match;
    struct tensor_set set;
    struct td_error err = TD_ERROR_INIT;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    assert_true(td_plan_match(&list, &set.list, NULL, &match, &err));
    assert_int_equal(match.unused_count, COUNT_OF(wanted));
    uint64_t steps = TD_PLAN_MAX_STEPS;
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        assert_int_equal(match.unused[i], wanted[i].rule);
        struct td_unused_rule why = td_plan_match_explain(&match, wanted[i].rule, &steps);
        assert_true(why.known);
        assert_int_equal(why.taker == NULL ? -1 : why.taker - rules, wanted[i].taker);
        assert_int_equal(why.several, wanted[i].several);
    }
    uint64_t needed = TD_PLAN_MAX_STEPS;
    (void)td_plan_match_explain(&match, 5, &needed);
    needed = TD_PLAN_MAX_STEPS - needed;
    assert_true(needed > 0 && needed < 100);
    for (uint64_t few = 0; few <= needed + 1; few++) {
        steps = few;
        assert_int_equal(td_plan_match_explain(&match, 5, &steps).known, few > needed);
    }
    td_plan_match_fini(&match);
    tensor_set_fini(&set);
}

/* The blocks of GGUF are along the last dimension; a type below a byte has several elements to a block. */
static void blocks(void **state)
{
    (void)state;
    static const struct tensor_spec four[] = {{"w", "F4", 2, {3, 6}, NULL}};
    static const struct tensor_spec odd[] = {{"w", "F4", 2, {4, 3}, NULL}};
    static const struct tensor_spec q4[] = {{"w", "Q4_0", 2, {6, 96}, NULL}};
    static const struct {
        const struct tensor_spec *spec;
        int32_t dim;
        uint64_t t;
        const char *wanted; /* NULL: refused */
    } cases[] = {
        {four, 0, 3, "w F4[1,6]@0/1: w 1+1"},
        {four, 1, 3, "w F4[3,2]@1/1: w 2+2"},
        {four, 1, 2, NULL},
        {odd, 0, 2, "w F4[2,3]@0/1: w 2+2"},
        {odd, 0, 4, NULL},
        {odd, 1, 3, NULL},
        {q4, 0, 3, "w Q4_0[2,96]@0/1: w 2+2"},
        {q4, 1, 3, "w Q4_0[6,32]@1/1: w 32+32"},
        {q4, 1, 2, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tensor_set set;
        struct td_rule rule = {.match = "*", .dim = cases[i].dim};
        struct td_rule_list list = {.rules = &rule, .count = 1};
        struct td_rule whole = {.match = "*", .whole = true, .dim = 1};
        struct td_plan plan;
        struct td_error err = TD_ERROR_INIT;
        tensor_set_init(&set, cases[i].spec, 1);
        if (cases[i].wanted != NULL)
            check_plan(&rule, 1, &set, cases[i].t, 1, cases[i].wanted);
        else
            check_refused(&list, &set, cases[i].t, 1, TD_FAILED_PRECONDITION,
                          (const char *[3]){"\"w\"", "within a block"});
        list.rules = &whole;
        assert_true(plan_from_rules(&list, &set.list, cases[i].t, 1, &plan, &err));
        assert_int_equal(plan.total_bytes, set.tensors[0].nbytes);
        td_plan_fini(&plan);
        tensor_set_fini(&set);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {
        {"a.w", "F32", 2, {4, 4}, NULL}, {"b.w", "I32", 2, {4, 4}, NULL}, {"s", "F32", 1, {4}, NULL}};
    static const struct {
        struct td_rule rules[3];
        size_t count;
        bool plain;
        const char *words[3];
    } cases[] = {
        {{{0}}, 0, false, {"\"a.w\"", "no rule"}},
        {{{.match = "a.w"}}, 1, false, {"\"b.w\"", "no rule"}},
        {{{.match = "*.w"}}, 1, true, {"\"b.w\"", "I32", "quantised"}},
        {{{.match = "**"}, {.match = "s", .out = "b.w", .is_constant = true}}, 2, false, {"\"b.w\"", "constant"}},
        {{{.match = "**"},
          {.match = "s", .out = "x", .is_constant = true, .constant = 1},
          {.match = "a.w", .out = "x", .is_constant = true, .constant = 1.5F}},
         3,
         false,
         {"\"x\"", "1 and 1.5"}},
        {{{.match = "b.**", .refuse = "because"}, {.match = "**"}}, 2, false, {"\"b.w\"", "because"}},
        {{{.match = "*.w", .out = "x"}}, 1, false, {"\"a.w\"", "\"b.w\"", "\"x\""}},
        {{{.match = "a.w", .out = "s"}, {.match = "**"}}, 2, false, {"\"a.w\"", "\"s\""}},
        {{{.match = "*.w", .out = "x", .stack = true}}, 1, false, {"\"a.w\"", "index"}},
        {{{.match = "a.w", .out = "x", .stack = true}, {.match = "**"}}, 2, false, {"\"a.w\"", "wildcard"}},
        {{{.match = "a.w", .out = "x"}, {.match = "b.w", .out = "x", .slot = 1}},
         2,
         false,
         {"\"a.w\"", "\"b.w\"", "joined"}},
        {{{.match = "a.w", .out = "x"}, {.match = "c", .out = "x", .slot = 1}, {.match = "**"}},
         3,
         false,
         {"\"x\"", "lacks", "\"a.w\""}},
        {{{.match = "**", .dim = 2}}, 1, false, {"\"a.w\"", "2 dimensions"}},
        {{{.match = "**", .dim = -3}}, 1, false, {"\"a.w\"", "2 dimensions"}},
        {{{.match = "**", .parts = {{.count = 3, .unit = 1}}, .part_count = 1}}, 1, false, {"\"a.w\"", "not the 4"}},
    };
    struct tensor_set set;
    tensor_set_init(&set, specs, COUNT_OF(specs));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_rule_list list = {.rules = (struct td_rule *)(uintptr_t)cases[i].rules,
                                    .count = cases[i].count,
                                    .plain_types_only = cases[i].plain};
        check_refused(&list, &set, 2, 0, TD_FAILED_PRECONDITION, cases[i].words);
    }
    struct td_rule all = {.match = "**", .whole = true};
    struct td_rule_list list = {.rules = &all, .count = 1};
    check_refused(&list, &set, 0, 0, TD_INVALID_ARGUMENT, (const char *[3]){"tp_size is 0"});
    check_refused(&list, &set, TD_MAX_TP_SIZE + 1, 0, TD_INVALID_ARGUMENT, (const char *[3]){"4097"});
    check_refused(&list, &set, 2, 2, TD_INVALID_ARGUMENT, (const char *[3]){"rank 2"});
    tensor_set_fini(&set);
}

/* Sizes that overflow only by padding, and only by stacking: in elements, and in bytes. */
static void overflow(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {{"a", "F64", 1, {8}, NULL}};
    struct td_rule pad = {.match = "a", .pad_to = UINT64_MAX};
    struct td_rule_list list = {.rules = &pad, .count = 1};
    struct tensor_set set;
    tensor_set_init(&set, specs, 1);
    check_refused(&list, &set, 1, 0, TD_FAILED_PRECONDITION, (const char *[3]){"\"a\"", "2^64"});
    tensor_set_fini(&set);
    static const struct tensor_spec cells[][2] = {
        {{"e.0", "U8", 1, {UINT64_C(1) << 63}, NULL}, {"e.1", "U8", 1, {UINT64_C(1) << 63}, NULL}},
        {{"e.0", "F64", 1, {UINT64_C(1) << 60}, NULL}, {"e.1", "F64", 1, {UINT64_C(1) << 60}, NULL}},
    };
    struct td_rule stack = {.match = "e.*", .out = "stack", .stack = true, .whole = true};
    list.rules = &stack;
    for (size_t i = 0; i < COUNT_OF(cells); i++) {
        tensor_set_init(&set, cells[i], 2);
        check_refused(&list, &set, 1, 0, TD_FAILED_PRECONDITION, (const char *[3]){"\"e.0\"", "past 2^64-1"});
        tensor_set_fini(&set);
        struct td_plan plan; /* one cell fits */
        struct td_error err = TD_ERROR_INIT;
        tensor_set_init(&set, cells[i], 1);
        CHECK(plan_from_rules(&list, &set.list, 1, 0, &plan, &err), "%zu: %s", i, err.message);
        td_plan_fini(&plan);
        tensor_set_fini(&set);
    }
}

/* ---- scale ---- */

enum { MANY = SANITIZED ? 10000 : 100000 };

struct many {
    struct td_tensor *tensors;
    char (*names)[48];
    struct td_tensor_list list;
};

static const struct td_tensor *many_get(const void *context, size_t i)
{
    return &((const struct many *)context)->tensors[i];
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Makes the experts of 64 layers; the experts of a layer become one result. */
static void many_init(struct many *many, size_t count)
{
    static const uint64_t shape[] = {8, 8};
    many->names = calloc(count, sizeof *many->names);
    many->tensors = calloc(count, sizeof *many->tensors);
    assert_true(many->names != NULL && many->tensors != NULL);
    for (size_t i = 0; i < count; i++)
        (void)snprintf(many->names[i], sizeof many->names[i], "model.layers.%zu.experts.%zu.up", i % 64, i / 64);
    qsort(many->names, count, sizeof *many->names, compare_names);
    for (size_t i = 0; i < count; i++)
        many->tensors[i] = (struct td_tensor){.name = many->names[i],
                                              .name_len = (uint32_t)strlen(many->names[i]),
                                              .dtype = td_dtype_find(TD_TEXT("F32")),
                                              .rank = 2,
                                              .shape = shape,
                                              .nbytes = 256};
    many->list = (struct td_tensor_list){.count = count, .get = many_get, .context = many};
}

static void many_fini(struct many *many)
{
    free(many->names);
    free(many->tensors);
}

static uint64_t plan_work(size_t count, size_t *peak_bytes)
{
    struct td_rule rules[] = {{.match = "**.norm"},
                              {.match = "model.layers.*.experts.*.down", .out = "model.layers.*.w2", .stack = true},
                              {.match = "model.layers.*.experts.*.up", .out = "model.layers.*.w13", .stack = true}};
    struct td_rule_list list = {.rules = rules, .count = COUNT_OF(rules)};
    struct many many;
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    many_init(&many, count);
    alloc_count_start();
    uint64_t work = work_now();
    CHECK(plan_from_rules(&list, &many.list, 8, 3, &plan, &err), "%s", err.message);
    work = work_now() - work;
    *peak_bytes = alloc_count_get().peak_bytes;
    assert_int_equal(plan.output_count, 64);
    assert_int_equal(plan.piece_count, count);
    td_plan_fini(&plan);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    many_fini(&many);
    return work;
}

static void a_hundred_thousand_tensors(void **state)
{
    (void)state;
    size_t peak;
    uint64_t half = plan_work(MANY / 128 * 64, &peak);
    uint64_t work = plan_work(MANY / 64 * 64, &peak);
    print_message("%d tensors: %llu blocks, %zu KiB\n", MANY, (unsigned long long)work, peak / 1024);
    check_linear(half, work, "a plan");
    assert_true(peak < (size_t)MANY * 400);
}

/* Matching stops with an error when the rules need too many steps for every name. */
/* shows: security.md client-plans */
static void matching_is_bounded(void **state)
{
    (void)state;
    enum { RULES = 10000 };
    struct td_rule *rules = calloc(RULES, sizeof *rules);
    struct td_rule_list list = {.rules = rules, .count = RULES};
    struct many many;
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    assert_non_null(rules);
    for (size_t i = 0; i < RULES; i++)
        rules[i].match = i + 1 < RULES ? "**e**e**e**e**e**x**p" : "**";
    many_init(&many, MANY / 64 * 64);
    assert_false(plan_from_rules(&list, &many.list, 8, 3, &plan, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "10000 rules"));
    many_fini(&many);
    free(rules);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const struct tensor_spec specs[] = {{"a.k", "F32", 2, {4, 4}, NULL},   {"a.q", "F32", 2, {4, 4}, NULL},
                                               {"e.0.w", "F32", 2, {4, 4}, NULL}, {"e.1.w", "F32", 2, {4, 4}, NULL},
                                               {"gone", "F32", 2, {4, 4}, NULL},  {"s", "F32", 1, {4}, NULL}};
    struct td_rule rules[] = {{.match = "*.q", .out = "*.qk"},
                              {.match = "*.k", .out = "*.qk", .slot = 1},
                              {.match = "e.*.w", .out = "stack", .stack = true},
                              {.match = "gone", .drop = true},
                              {.match = "e.*.w", .out = "*.scale", .is_constant = true},
                              {.match = "**", .out = "one", .is_constant = true}};
    struct td_rule_list list = {.rules = rules, .count = COUNT_OF(rules)};
    struct tensor_set set;
    struct alloc_trials trials = {0};
    tensor_set_init(&set, specs, COUNT_OF(specs));
    while (alloc_try(&trials)) {
        struct td_plan plan;
        struct td_error err = TD_ERROR_INIT;
        bool ok = plan_from_rules(&list, &set.list, 2, 1, &plan, &err);
        alloc_tried(&trials, ok, &err);
        td_plan_fini(&plan);
    }
    assert_true(trials.k > 4);
    tensor_set_fini(&set);
}

/* Matching and planning take memory from the budget before they allocate it, and give all of it back. */
/* shows: security.md client-rank-files */
static void budgets_are_never_exceeded(void **state)
{
    (void)state;
    enum { TENSORS = 64 * 40 };
    struct td_rule rules[] = {{.match = "**.norm"},
                              {.match = "**.up", .out = "**.scale", .is_constant = true, .constant = 1},
                              {.match = "model.layers.*.experts.*.down", .out = "model.layers.*.w2", .stack = true},
                              {.match = "model.layers.*.experts.*.up", .out = "model.layers.*.w13", .stack = true}};
    struct td_rule_list list = {.rules = rules, .count = COUNT_OF(rules)};
    struct many many;
    bool ok = false;
    many_init(&many, TENSORS);
    for (size_t max = 0; !ok; max += 20011) {
        struct td_budget budget;
        struct td_plan_match match = {0};
        struct td_plan plan = {0};
        struct td_error err = TD_ERROR_INIT;
        td_budget_init(&budget, max, "plans");
        alloc_count_start();
        ok = td_plan_match(&list, &many.list, &budget, &match, &err) && td_plan_from_match(&match, 8, 3, &plan, &err);
        size_t peak = alloc_count_get().peak_bytes;
        /* realloc may hold two copies of the pieces or of the results for a moment */
        CHECK(peak <= max + TENSORS * sizeof(struct td_plan_output), "%zu of %zu bytes", peak, max);
        CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED || err.code == TD_FAILED_PRECONDITION, "%s", err.message);
        td_plan_fini(&plan);
        td_plan_match_fini(&match);
        assert_int_equal(td_budget_used(&budget), 0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    many_fini(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_example),
        cmocka_unit_test(results_are_in_the_order_of_safetensors),
        cmocka_unit_test(stacks),
        cmocka_unit_test(constants),
        cmocka_unit_test(unused_constants_are_explained),
        cmocka_unit_test(empty_and_dropped),
        cmocka_unit_test(a_match_serves_all_ranks),
        cmocka_unit_test(budgets_are_never_exceeded),
        cmocka_unit_test(unused_rules_are_explained),
        cmocka_unit_test(blocks),
        cmocka_unit_test(refusals),
        cmocka_unit_test(overflow),
        cmocka_unit_test(a_hundred_thousand_tensors),
        cmocka_unit_test(matching_is_bounded),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
