/* Tests the splits that a card declares, and the paths that its patterns name. Forms of `configs`: the Hub's
 * documentation, "Manual configuration". Patterns: what fsspec's glob_translate answers, by which the datasets library
 * resolves them. */
#include "catalog/dataset/card_splits.h"

#include "tests/unit/alloc_trials.h"

#include <stdarg.h>

/* ---- patterns ---- */

static const struct {
    const char *pattern, *matches, *others; /* paths, separated by ';' */
} patterns[] = {
    {"train.jsonl", "train.jsonl", "a/train.jsonl;train.jsonl2;train.json;"},
    {"*.jsonl", "a.jsonl;.jsonl", "a/b.jsonl;a.jsonl2"},
    {"*", "a;a.b", "a/b"},
    {"data/*", "data/a", "data/a/b;x/data/a;data"},
    {"data/**", "data/a;data/a/b;data/", "data;xdata/a"},
    {"**", "a;a/b/c", NULL},
    {"**/*.csv", "a.csv;x/y/a.csv", "a.tsv;csv"},
    {"**/x.csv", "x.csv;a/x.csv;a/b/x.csv", "ax.csv;a/bx.csv"},
    {"a/**/b", "a/b;a/x/b;a/x/y/b", "ab;a/xb;a/b/c"},
    {"**/a/**", "a/b;x/a/b;x/a/b/c", "a;x/ab/c"},
    {"**/**/x", "x;a/x;a/b/x", "ax"},
    {"*/b", "a/b", "b;a/c/b"},
    {"*/*/*", "a/b/c", "a/b;a/b/c/d"},
    {"**/train/*/**", "train/x/y;a/train/x/y/z", "train/x"},
    {"en/*.json", "en/a.json", "en/sub/a.json;fr/a.json"},
    {"data/train-*", "data/train-00000-of-00001.parquet;data/train-", "data/train-a/b;data/train"},
    {"data/train-[0-9][0-9]-of-??.csv", "data/train-00-of-10.csv", "data/train-0a-of-10.csv;data/train-00-of-1.csv"},
    {"[!a]b", "bb;cb;!b", "ab;b"},
    {"[ab]c", "ac;bc", "cc;abc"},
    {"[a-c]d", "ad;bd;cd", "dd;-d"},
    {"[a-]d", "ad;-d", "bd"},
    {"[-a]d", "ad;-d", "bd"},
    {"[]]d", "]d", "d;[]]d"},
    {"[]a]d", "]d;ad", "d;[d"},
    {"[!]]d", "ad;[d", "]d;d;a]d"},
    {"[!]a]d", "bd", "]d;ad"},
    {"[^a]b", "ab;^b", "bb"},
    {"[*]", "*", "a"},
    {"[?]x", "?x", "ax"},
    {"[ab", "[ab", "a;b"},
    {"[]", "[]", "];["},
    {"[!]", "[!]", "!;a"},
    {"[", "[", "a"},
    {"a[z-a]b", NULL, "azb;aab;amb"},
    {"a[/]b", NULL, "a/b;ab"},
    {"a?c", "abc", "a/c;ac"},
    {"a.c", "a.c", "abc"},
    {"(a)+{b}|$^\\", "(a)+{b}|$^\\", "a"},
    {"b[0-9]*", "b1;b12", "bx;b1/c"},
    {"caf\xc3\xa9/*.csv", "caf\xc3\xa9/a.csv", "cafe/a.csv"},
};

static uint64_t steps;

static void check_paths(const char *pattern, const char *paths, bool wanted)
{
    for (size_t len; paths != NULL && *paths != '\0'; paths += len + (paths[len] == ';' ? 1 : 0)) {
        len = strcspn(paths, ";");
        char *copy = malloc(len + (len == 0)); /* exactly its size: no NUL is needed */
        assert_non_null(copy);
        memcpy(copy, paths, len);
        bool got = td_card_pattern_matches(pattern, td_text_n(copy, len), &steps);
        free(copy);
        CHECK(got == wanted, "%s and %.*s", pattern, (int)len, paths);
    }
}

static void patterns_name_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        check_paths(patterns[i].pattern, patterns[i].matches, true);
        check_paths(patterns[i].pattern, patterns[i].others, false);
    }
    assert_true(td_card_pattern_matches("", TD_TEXT(""), &steps));
    assert_false(td_card_pattern_matches("", TD_TEXT("a"), &steps));
    assert_false(td_card_pattern_matches("*a", TD_TEXT(""), &steps));
}

/* Hidden files and files in __pycache__ are left out unless the pattern has as many such parts. */
static void special_folders(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool shows;
    } cases[] = {
        {"**", "a/b.csv", true},      {"**", "__pycache__/b.csv", false},
        {"**", "a/__x/b.csv", false}, {"__x/*", "__x/b.csv", true},
        {"__*/*", "__x/b.csv", true}, {"**/__y/*", "__x/__y/b.csv", false},
        {"*", "__b.csv", true}, /* a file, not a folder */
        {"**", ".h/b.csv", false},    {"*", ".b.csv", false},
        {".*", ".b.csv", true},       {".h/*", ".h/b.csv", true},
        {"../x", "x", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_card_pattern_shows(td_text_of(cases[i].pattern), td_text_of(cases[i].path)) == cases[i].shows,
              "%s, %s", cases[i].pattern, cases[i].path);
}

/* The work is counted, and bounded by the lengths' product whatever the stars. */
/* shows: security.md rows-patterns */
static void many_stars(void **state)
{
    (void)state;
    static char pattern[520], path[4000];
    memset(path, 'a', sizeof path);
    for (size_t i = 0; i + 1 < sizeof pattern; i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    double began = cpu_seconds();
    pattern[511] = 'b';
    pattern[512] = '\0'; /* as many tokens as are looked at */
    steps = 5;
    assert_false(td_card_pattern_matches(pattern, td_text_n(path, sizeof path), &steps));
    assert_int_equal(steps, 5 + 8 + 512 * sizeof path);
    pattern[511] = 'a';
    assert_true(td_card_pattern_matches(pattern, td_text_n(path, sizeof path), &steps));
    pattern[512] = '*'; /* one more */
    assert_false(td_card_pattern_matches(pattern, td_text_n(path, sizeof path), &steps));
    assert_true(cpu_seconds() - began < 20); /* backtracking would not end */
    steps = 0;
    assert_false(td_card_pattern_matches("data/b/*", TD_TEXT("data/a/x"), &steps));
    assert_int_equal(steps, 8); /* the literal beginning costs little */
    assert_true(td_card_pattern_matches("data/a/*", TD_TEXT("data/a/xyz"), &steps));
    assert_int_equal(steps, 8 + 8 + 3);
}

/* ---- the card ---- */

/* Appends to out[used, 4096). Returns the new length. */
__attribute__((format(printf, 3, 4))) static size_t add(char out[4096], size_t used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(out + used, 4096 - used, format, arguments);
    va_end(arguments);
    assert_true(len >= 0 && (size_t)len < 4096 - used);
    return used + (size_t)len;
}

/* Reads a card and writes its patterns as "split=pattern split=pattern ...", with "folder:" before a pattern and
 * "config@folder" for a configuration without patterns. Copies the fault. */
static void read_card(const char *json, char out[4096], char fault[TD_ERROR_MESSAGE_BYTES])
{
    struct td_arena arena;
    struct td_card_splits splits;
    struct td_error err = TD_ERROR_INIT;
    size_t used = 0, len = strlen(json);
    char *copy = malloc(len + (len == 0));
    assert_non_null(copy);
    memcpy(copy, json, len);
    td_arena_init(&arena, 0);
    CHECK(td_card_splits_read(td_text_n(copy, len), &arena, &splits, &err), "%s: %s", json, err.message);
    free(copy); /* nothing points into the text */
    out[0] = '\0';
    for (size_t c = 0; c < splits.config_count; c++) {
        const struct td_card_config *config = &splits.configs[c];
        int folder_len = (int)config->folder.len;
        if (!config->has_patterns)
            used = add(out, used, " %s@%.*s", config->name == NULL ? "" : config->name, folder_len, config->folder.p);
        for (size_t i = config->first; i < config->first + config->count; i++)
            used = add(out, used, " %s=%.*s%s%s", splits.items[i].split, folder_len, config->folder.p,
                       folder_len > 0 ? ":" : "", splits.items[i].pattern);
    }
    if (used > 0)
        memmove(out, out + 1, used);
    (void)snprintf(fault, TD_ERROR_MESSAGE_BYTES, "%s", splits.fault == NULL ? "" : splits.fault);
    td_arena_fini(&arena);
}

static const struct {
    const char *json, *wanted, *fault; /* fault NULL: none */
} cards[] = {
    /* one configuration without and with a name */
    {"{\"configs\":[{\"data_files\":\"a.csv\"}]}", "train=a.csv", NULL},
    {"{\"configs\":[{\"config_name\":\"default\",\"data_files\":\"data/*.csv\"}]}", "train=data/*.csv", NULL},
    {"{\"configs\":[{\"config_name\":\"x\",\"data_files\":\"a.csv\"}]}", "train=a.csv", NULL},
    {"{\"configs\":[{\"data_files\":[\"a.csv\",\"./b.csv\"]}]}", "train=a.csv train=b.csv", NULL},
    {"{\"configs\":[{\"data_files\":[{\"split\":\"train\",\"path\":\"a.csv\"},"
     "{\"split\":\"test\",\"path\":[\"b.csv\",\"c/*\"]}]}]}",
     "train=a.csv test=b.csv test=c/*", NULL},
    {"{\"license\":\"mit\",\"configs\":[{\"data_files\":[{\"path\":\"a.csv\"}]}],\"x\":[{}]}", "train=a.csv", NULL},
    /* several: that with `default: true`, else "default", else the first has plain names */
    {"{\"configs\":[{\"config_name\":\"a\",\"data_files\":\"1\"},{\"config_name\":\"b\",\"data_files\":\"2\"}]}",
     "train=1 b/train=2", NULL},
    {"{\"configs\":[{\"config_name\":\"a\",\"data_files\":\"1\"},"
     "{\"config_name\":\"b\",\"data_files\":\"2\",\"default\":true}]}",
     "a/train=1 train=2", NULL},
    {"{\"configs\":[{\"config_name\":\"a\",\"data_files\":\"1\"},"
     "{\"config_name\":\"default\",\"data_files\":\"2\"},{\"config_name\":\"c\",\"data_files\":"
     "[{\"split\":\"test\",\"path\":\"3\"}],\"default\":false}]}",
     "a/train=1 train=2 c/test=3", NULL},
    {"{\"configs\":[{\"config_name\":\"default\",\"data_files\":\"1\"},"
     "{\"config_name\":\"b\",\"data_files\":\"2\",\"default\":true}]}",
     "default/train=1 train=2", NULL},
    {"{\"configs\":[{\"config_name\":1,\"data_files\":\"a\"},{\"config_name\":2.5,\"data_files\":\"b\"}]}",
     "train=a 2.5/train=b", NULL},
    /* folders, with and without patterns */
    {"{\"configs\":[{\"config_name\":\"a\",\"data_dir\":\"x\"},{\"config_name\":\"b\",\"data_dir\":\"y/z/\"}]}",
     "@x/ b@y/z/", NULL},
    {"{\"configs\":[{\"data_dir\":\"./x//\",\"data_files\":\"a*\"},{\"config_name\":\"b\",\"data_dir\":\"y\","
     "\"data_files\":[{\"split\":\"test\",\"path\":\"./b\"}]}]}",
     "train=x/:a* b/test=y/:b", NULL},
    {"{\"configs\":[{\"data_dir\":\".\"},{\"config_name\":\"b\",\"data_dir\":\"./\"},{\"config_name\":\"c\","
     "\"data_dir\":null,\"data_files\":null}]}",
     "@ b@ c@", NULL},
    {"{\"configs\":[{\"config_name\":\"a\"}]}", "@", NULL},
    {"{\"configs\":[{\"data_dir\":\"a/../../b\"}]}", "@", "data_dir of configuration \"default\" is no folder below"},
    {"{\"configs\":[{\"config_name\":\"x\",\"data_dir\":\"/etc\"}]}", "@", "data_dir of configuration \"x\" is no"},
    {"{\"configs\":[{\"data_dir\":7}]}", "@", "data_dir of configuration \"default\" is no folder"},
    /* nothing, or not what it should be */
    {"", "", NULL},
    {"{}", "", NULL},
    {"[]", "", NULL},
    {"null", "", NULL},
    {"{\"configs\":null}", "", NULL},
    {"{\"configs\":[]}", "", NULL},
    {"{\"configs\":{}}", "", "configs is not a list"},
    {"{\"configs\":\"a\"}", "", "configs is not a list"},
    {"{\"configs\":[1,null,\"x\",[],{}]}", "@", "a configuration is not a map"},
    {"{\"configs\":[{\"data_files\":null},{\"data_files\":7},{\"data_files\":{\"train\":\"a\"}}]}", "@",
     "data_files of configuration \"default\" is neither a path nor a list"},
    {"{\"configs\":[{\"config_name\":\"m\",\"data_files\":{\"train\":\"a\"}},{\"data_files\":\"b\"}]}", "train=b",
     "data_files of configuration \"m\" is neither a path nor a list"},
    {"{\"configs\":[{\"data_files\":[1,null,[\"x\"],[[]],{\"split\":\"a\"},{\"path\":7},{\"path\":[1,\"ok\",[]]}]}]}",
     "train=ok", "data_files of configuration \"default\" has an item without a path"},
    {"{\"configs\":[{\"data_files\":[{\"path\":[1,\"ok\",[]]}]}]}", "train=ok",
     "a path of configuration \"default\" is not text"},
    {"{\"configs\":[{\"data_files\":[{\"split\":2020,\"path\":\"a\"},{\"split\":null,\"path\":\"b\"},"
     "{\"split\":\"x\\u0000y\",\"path\":\"c\"},{\"split\":\"ok\",\"path\":\"d\\u0000e\"}]}]}",
     "", "the name of a split of configuration \"default\" is not text"},
    {"{\"configs\":[{\"config_name\":true,\"data_files\":\"a\"}]}", "train=a", "the name of a configuration"},
    {"{\"configs\":[{\"data_files\":\"\"}]}", "train=", NULL},
    {"{\"configs\":[{\"data_files\":[{\"split\":\"\",\"path\":\"a\"}]}]}", "=a", NULL},
    {"{\"Configs\":[{\"data_files\":\"a\"}]}", "", NULL},
    {"{\"configs\":[{\"data_files\":\"a\"}", "train=a", NULL}, /* cut off: read up to there */
    {"{\"configs\":[{\"data_files\":[{\"split\":\"caf\\u00e9\",\"path\":\"\\u00e9/*\"}]}]}", "caf\xc3\xa9=\xc3\xa9/*",
     NULL},
};

static void cards_declare_splits(void **state)
{
    (void)state;
    char got[4096], fault[TD_ERROR_MESSAGE_BYTES];
    for (size_t i = 0; i < COUNT_OF(cards); i++) {
        read_card(cards[i].json, got, fault);
        CHECK(strcmp(got, cards[i].wanted) == 0, "%s: %s, wanted %s", cards[i].json, got, cards[i].wanted);
        const char *wanted = cards[i].fault;
        CHECK(wanted == NULL ? fault[0] == '\0' : strncmp(fault, wanted, strlen(wanted)) == 0, "%s: %s", cards[i].json,
              fault);
    }
}

/* Every prefix of a card, and every card with one byte changed, is read without a fault. */
static void damaged_cards(void **state)
{
    (void)state;
    static const char bytes[] = "\"{}[]:,\\\0x1";
    char got[4096], fault[TD_ERROR_MESSAGE_BYTES];
    for (size_t i = 0; i < COUNT_OF(cards); i++) {
        char text[512];
        size_t len = strlen(cards[i].json);
        assert_true(len < sizeof text);
        for (size_t cut = 0; cut <= len; cut++) {
            memcpy(text, cards[i].json, cut);
            text[cut] = '\0';
            read_card(text, got, fault);
            for (size_t k = 0; cut < len && k < sizeof bytes - 1; k++) {
                memcpy(text, cards[i].json, len + 1);
                text[cut] = bytes[k];
                read_card(text, got, fault);
            }
        }
    }
}

enum { MOST = 10000 };

/* There are at most 10,000 patterns, and reading them is not quadratic. */
/* shows: security.md rows-patterns */
static void a_card_with_many_patterns(void **state)
{
    (void)state;
    enum { EACH = 16, COUNT = 60000 };
    struct td_arena arena;
    struct td_card_splits splits;
    struct td_error err = TD_ERROR_INIT;
    char *json = malloc((size_t)COUNT * EACH + 64);
    assert_non_null(json);
    for (int form = 0; form < 2; form++) {
        size_t len = (size_t)sprintf(json, "{\"configs\":[{\"data_files\":[%s", form == 0 ? "" : "{\"path\":[");
        for (int i = 0; i < COUNT; i++)
            len += (size_t)sprintf(json + len, "%s\"%d\"", i == 0 ? "" : ",", i);
        len += (size_t)sprintf(json + len, "%s]}]}", form == 0 ? "" : "]}");
        td_arena_init(&arena, 0);
        double began = cpu_seconds();
        assert_true(td_card_splits_read(td_text_n(json, len), &arena, &splits, &err));
        assert_true(cpu_seconds() - began < 10);
        assert_int_equal(splits.count, MOST);
        assert_string_equal(splits.fault, "the patterns past number 10000 are left out");
        assert_string_equal(splits.items[MOST - 1].pattern, "9999");
        td_arena_fini(&arena);
    }
    free(json);
}

/* With every allocation failing in turn, the result is either whole or an error. */
static void out_of_memory(void **state)
{
    (void)state;
    static char json[65536];
    size_t len = (size_t)sprintf(json, "{\"configs\":["), wanted = 0;
    for (; len < 60000; wanted++)
        len += (size_t)sprintf(json + len,
                               "%s{\"config_name\":\"c%zu\",\"data_files\":[{\"split\":\"s\",\"path\":\"p\"}]}",
                               wanted == 0 ? "" : ",", wanted);
    len += (size_t)sprintf(json + len, "]}");
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_arena arena;
        struct td_card_splits splits;
        struct td_error err = TD_ERROR_INIT;
        td_arena_init(&arena, 0);
        bool done = td_card_splits_read(td_text_n(json, len), &arena, &splits, &err);
        alloc_tried(&trials, done, &err);
        CHECK(!done || splits.count == wanted, "%zu patterns", splits.count);
        td_arena_fini(&arena);
    }
    assert_true(trials.k > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_name_paths), cmocka_unit_test(special_folders),
        cmocka_unit_test(many_stars),          cmocka_unit_test(cards_declare_splits),
        cmocka_unit_test(damaged_cards),       cmocka_unit_test(a_card_with_many_patterns),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
