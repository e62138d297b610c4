/* Names and commits of virtual revisions. */
#include "rank/virtual_revision.h"

#include "slicing/engine/engine.h"
#include "tests/unit/unit.h"

#define BASE "0123456789abcdef0123456789abcdef01234567"
#define OTHER "1123456789abcdef0123456789abcdef01234567"

static struct td_virtual_revision named(const char *name)
{
    struct td_virtual_revision revision;
    CHECK(td_virtual_revision_read_name(td_text_of(name), &revision, NULL), "%s", name);
    return revision;
}

static void names_have_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum td_revision_kind kind;
        const char *engine;
        uint64_t tp_size, rank;
    } cases[] = {
        {"safetensors", TD_REVISION_SAFETENSORS, "none", 1, 0},
        {"tp1-rank0-none", TD_REVISION_RANK, "none", 1, 0},
        {"tp8-rank7-vllm", TD_REVISION_RANK, "vllm@0.33", 8, 7},
        {"tp8-rank7-vllm-0.33", TD_REVISION_RANK, "vllm@0.33", 8, 7},
        {"tp8-rank7-vllm-0.13", TD_REVISION_RANK, "vllm@0.13", 8, 7},
        {"tp2-rank1-nano-vllm", TD_REVISION_RANK, "nano-vllm", 2, 1},
        {"tp4096-rank4095-fsdp", TD_REVISION_RANK, "fsdp", 4096, 4095},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_virtual_revision revision = named(cases[i].name);
        CHECK(revision.kind == cases[i].kind && revision.tp_size == cases[i].tp_size && revision.rank == cases[i].rank,
              "%s", cases[i].name);
        assert_string_equal(td_engine_name_of(revision.engine), cases[i].engine);
    }
}

static void other_names_are_none(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "main",
        "none",
        "Safetensors",
        "safetensors ",
        "safetensor",
        "tp",
        "tp2",
        "tp2-",
        "tp2-rank1",
        "tp2-rank1-",
        "tp2-rank-none",
        "tp2-1-none",
        "tp2-rank1-none-",
        "tp2-rank1-other",
        "tp2-rank2-none",
        "tp0-rank0-none",
        "tp4097-rank0-none",
        "tp02-rank0-none",
        "tp2-rank00-none",
        "tp+2-rank0-none",
        "tp2-rank-1-none",
        "TP2-rank0-none",
        "tp18446744073709551618-rank0-none",
        "tp2-rank18446744073709551616-none",
        "tp2-rank0-NONE",
        "tp2-rank0-vllm-0.14",
        "tp2-rank0-vllm@0.13",
        "tp2-rank0-vllm-",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_virtual_revision revision;
        CHECK(!td_virtual_revision_read_name(td_text_of(names[i]), &revision, NULL), "\"%s\"", names[i]);
    }
}

/* Only a text that resembles a name gets an error. */
static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"tp0-rank0-none", "\"tp0\" is not a number of ranks; use tp1 to tp4096"},
        {"tp4097-rank0-none", "\"tp4097\" is not a number of ranks"},
        {"tp2x", "\"tp2x\" is not a number of ranks"},
        {"tp2", "\"\" is not a rank of 2; use rank0 to rank1"},
        {"tp2-rank2-none", "\"rank2\" is not a rank of 2; use rank0 to rank1"},
        {"tp8-0-none", "\"0\" is not a rank of 8; use rank0 to rank7"},
        {"tp2-rank1-other-engine", "no engine \"other-engine\"; the engines are "},
        {"tp2-rank1", "no engine \"\""},
        {"tp2-rank1-vllm@0.13", "the engines are fsdp, nano-vllm, none, vllm, vllm-0.13, vllm-0.33"},
        {"safetensor", NULL},
        {"tpx-rank0-none", NULL},
        {"tp", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_virtual_revision revision;
        struct td_error err = TD_ERROR_INIT;
        assert_false(td_virtual_revision_read_name(td_text_of(cases[i].name), &revision, &err));
        if (cases[i].part == NULL)
            CHECK(err.code == TD_OK, "%s: %s", cases[i].name, err.message);
        else
            CHECK(err.code == TD_NOT_FOUND && strstr(err.message, cases[i].part) != NULL, "%s: %s", cases[i].name,
                  err.message);
    }
    assert_string_equal(td_virtual_revision_names(0), "safetensors");
    assert_string_equal(td_virtual_revision_names(1), "tp{n}-rank{r}-{engine}");
    assert_null(td_virtual_revision_names(2));
}

static const char *const names[] = {
    "safetensors",    "tp1-rank0-none", "tp1-rank0-fsdp",  "tp2-rank0-none",       "tp2-rank1-none",
    "tp2-rank1-vllm", "tp2-rank1-fsdp", "tp17-rank0-none", "tp4096-rank4095-none", "tp16-rank1-none",
};

/* A commit has 40 hexadecimal digits, as Git's, differs for each revision and each base, and encodes the revision. */
static void commits_say_what_they_are(void **state)
{
    (void)state;
    char commits[2 * COUNT_OF(names)][TD_COMMIT_BYTES];
    for (size_t i = 0; i < COUNT_OF(commits); i++) {
        struct td_virtual_revision revision = named(names[i / 2]);
        struct td_virtual_revision found;
        assert_true(td_virtual_revision_write_commit(&revision, i % 2 == 0 ? BASE : OTHER, commits[i]));
        assert_int_equal(strlen(commits[i]), 40);
        assert_int_equal(strspn(commits[i], "0123456789abcdef"), 40);
        assert_true(td_virtual_revision_read_commit(td_text_of(commits[i]), &found));
        CHECK(found.kind == revision.kind && found.engine == revision.engine && found.tp_size == revision.tp_size &&
                  found.rank == revision.rank,
              "%s", commits[i]);
        for (size_t k = 0; k < i; k++) /* also the digest in the first 24 digits differs */
            CHECK(strncmp(commits[i], commits[k], 24) != 0, "%s %s", commits[i], commits[k]);
    }
}

/* Clients keep commits and ask by them. Only a new TD_ENGINE_REVISION may give a revision another commit. */
static void commits_stay_the_same(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"safetensors", "736f1746dd9b07755ceb49bd0102000001000000"},
        {"tp2-rank1-fsdp", "1bd51c40113950b7a2b8c0940200000002000001"},
        {"tp2-rank1-nano-vllm", "7a373d33ec327cc22e8c4ef60201000002000001"},
        {"tp2-rank1-none", "0b04f3a602996081fd17b6b40202000002000001"},
        {"tp2-rank1-vllm-0.13", "e7df7dec1c014437523649d60203000002000001"}, /* was "vllm" without a version */
        {"tp2-rank1-vllm-0.33", "76cb22a0f288cd4983bcfaca0204000002000001"},
        {"tp2-rank1-vllm", "76cb22a0f288cd4983bcfaca0204000002000001"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_virtual_revision revision = named(cases[i][0]);
        char commit[TD_COMMIT_BYTES];
        assert_true(td_virtual_revision_write_commit(&revision, BASE, commit));
        CHECK(strcmp(commit, cases[i][1]) == 0, "%s: %s", cases[i][0], commit);
    }
}

/* Digits 24 on: two of the kind, two of the engine, six of the number of ranks, six of the rank. */
static void what_cannot_be_made_has_no_commit(void **state)
{
    (void)state;
    static const struct {
        const char *parameters;
        bool is_one;
    } cases[] = {
        {"0202000001000000", true} /* tp1-rank0-none */,
        {"0203001000000fff", true} /* tp4096-rank4095-vllm-0.13 */,
        {"0204001000000fff", true} /* tp4096-rank4095-vllm-0.33 */,
        {"0102000001000000", true} /* safetensors */,
        {"0002000001000000", false} /* the files as they are */,
        {"0302000001000000", false} /* all ranks: not a revision */,
        {"0402000001000000", false},
        {"ff02000001000000", false},
        {"02fe000001000000", false} /* no engine */,
        {"02ff000001000000", false},
        {"0202000000000000", false} /* no ranks */,
        {"0202000001000001", false},
        {"0202001001000000", false} /* 4097 */,
        {"0202ffffff000000", false},
        {"0101000001000000", false} /* safetensors have a single form */,
        {"0102000002000000", false},
        {"0102000002000001", false},
        {"0202000001000 00", false},
        {"020200000A000000", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char commit[TD_COMMIT_BYTES];
        struct td_virtual_revision revision;
        (void)snprintf(commit, sizeof commit, "%.24s%s", BASE, cases[i].parameters);
        CHECK(td_virtual_revision_read_commit(td_text_of(commit), &revision) == cases[i].is_one, "%s",
              cases[i].parameters);
        assert_false(td_virtual_revision_read_commit(td_text_n(commit, 39), &revision));
        assert_false(td_virtual_revision_read_commit(td_text_n(commit, 41), &revision));
        assert_false(td_virtual_revision_read_commit(td_text_n(commit, 0), &revision));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_parameters), cmocka_unit_test(other_names_are_none),
        cmocka_unit_test(what_is_wrong_is_said), cmocka_unit_test(commits_say_what_they_are),
        cmocka_unit_test(commits_stay_the_same), cmocka_unit_test(what_cannot_be_made_has_no_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
