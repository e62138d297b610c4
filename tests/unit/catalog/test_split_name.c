/* Names of splits by paths. Expectations follow the datasets library (data_files.py): SPLIT_PATTERN_SHARDED,
 * SPLIT_KEYWORDS, KEYWORDS_IN_DIR_NAME_BASE_PATTERNS, KEYWORDS_IN_FILENAME_BASE_PATTERNS, and NON_WORDS_CHARS. */
#include "catalog/model/split_name.h"

#include "tests/unit/unit.h"

static void names_of_shards(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name; /* NULL: not a shard */
    } cases[] = {
        {"data/train-00000-of-00010.parquet", "train"},
        {"data/my_split-00000-of-00001.jsonl", "my_split"},
        {"data/a-b.c-00003-of-00004-hash.jsonl.gz", "a-b.c"},
        {"data/train-00000-of-000010.jsonl", "train"}, /* "*.*" follows the last five digits */
        {"data/x-00000-of-00001-00000-of-00001.jsonl", "x"},
        {"data/-00000-of-00001.jsonl", NULL},
        {"data/train-0000-of-0010.parquet", NULL},
        {"data/train-00000-of-00010", NULL},
        {"data/train_00000-of-00010.parquet", NULL},
        {"data/train-00000-OF-00010.parquet", NULL},
        {"data/train-000a0-of-00010.parquet", NULL},
        {"data/sub/train-00000-of-00010.parquet", NULL},
        {"train-00000-of-00010.parquet", NULL},
        {"datas/train-00000-of-00010.parquet", NULL},
        {"data/", NULL},
        {"data", NULL},
        {"", NULL},
        {"data/-00000-of-00001", NULL},
        {"data/t-00000-of-0000", NULL},
        {"data/a.b-00000-of-00010", NULL}, /* no extension after the numbers */
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text name = TD_TEXT("untouched");
        bool found = td_split_of_shard(td_text_of(cases[i].path), &name);
        CHECK(found == (cases[i].name != NULL), "%s", cases[i].path);
        CHECK(td_text_equals(name, found ? cases[i].name : "untouched"), "%s: %.*s", cases[i].path, (int)name.len,
              name.p);
    }
}

enum { T = TD_SPLIT_TRAIN, V = TD_SPLIT_VALIDATION, E = TD_SPLIT_TEST };

/* The splits that get_data_patterns of datasets 5.2 finds for one file of this path, by its patterns for folders and
 * for names of files. */
static void words_of_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        unsigned folders, name;
    } cases[] = {
        {"train.jsonl", 0, T},
        {"my_train_file.csv", 0, T},
        {"my-train-file.csv", 0, T},
        {"my train.csv", 0, T},
        {"train1.csv", 0, T},
        {"0train.csv", 0, T},
        {"training_set.jsonl", 0, T},
        {"training/part.jsonl", T, 0},
        {"a/b/Train/x.jsonl", 0, 0}, /* words are in lower case */
        {"TRAIN.jsonl", 0, 0},
        {"data/validation-1.jsonl", 0, V},
        {"valid.jsonl", 0, V},
        {"dev.jsonl", 0, V},
        {"val/0.jsonl", V, 0},
        {"test.jsonl", 0, E},
        {"testing.jsonl", 0, E},
        {"x.eval.jsonl", 0, E},
        {"evaluation data.jsonl", 0, E},
        {"train/test.jsonl", T, E},
        {"train/test/x.jsonl", T | E, 0}, /* in both */
        {"train_test.jsonl", 0, T | E},
        {"train-dev-test/x.jsonl", T | V | E, 0},
        {"dataset-train/1.jsonl", T, 0},
        {"train_data/1.jsonl", T, 0},
        {"the train set/1.jsonl", T, 0},
        {"my-train/1.jsonl", T, 0},
        {"x.train", 0, 0}, /* in a file's name a separator follows the word */
        {"test", 0, 0},
        {"test/test", E, 0},
        {"retrain.jsonl", 0, 0},
        {"trained.jsonl", 0, 0},
        {"mytest.jsonl", 0, 0},
        {"contest/a.jsonl", 0, 0},
        {"latest.jsonl", 0, 0},
        {"www_farodevigo_es.jsonl", 0, 0},
        {"develop.jsonl", 0, 0},
        {"values.csv", 0, 0},
        {"\xc3\xa9train.jsonl", 0, 0}, /* other characters are no separators */
        {"data(train).jsonl", 0, 0},
        {"data[test].jsonl", 0, 0},
        {"train+more.jsonl", 0, 0},
        {"tr/ain.jsonl", 0, 0},
        {"__pycache__/test.jsonl", 0, 0},
        {"test/__x/train.jsonl", 0, 0},
        {"__test.jsonl", 0, E},
        {"_private/test.jsonl", 0, E},
        {"part-00000.jsonl", 0, 0},
        {"", 0, 0},
        {"/", 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text path = td_text_of(cases[i].path);
        CHECK(td_splits_of_folders(path) == cases[i].folders, "%s: folders %u", cases[i].path,
              td_splits_of_folders(path));
        CHECK(td_splits_of_file_name(path) == cases[i].name, "%s: name %u", cases[i].path,
              td_splits_of_file_name(path));
    }
    assert_string_equal(td_split_word(T | V | E), "train");
    assert_string_equal(td_split_word(V | E), "validation");
    assert_string_equal(td_split_word(E), "test");
}

static void folders_of_datasets(void **state)
{
    (void)state;
    static const char *const parts[] = {"data", "train", "Train", "TEST", "validation", "my-dev-set", "test_1"};
    static const char *const others[] = {"Data", "org", "latest", "contest", "data(train)", "", "a"};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        assert_true(td_split_is_folder(td_text_of(parts[i])));
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(td_split_is_folder(td_text_of(others[i])));
}

/* The texts need no NUL, and no byte behind them is looked at. */
static void texts_end_where_they_end(void **state)
{
    (void)state;
    static const char path[] = "data/train-00000-of-00010.jsonl";
    for (size_t len = 0; len < sizeof path; len++) {
        char *copy = malloc(len + (len == 0));
        struct td_text name = {0};
        assert_non_null(copy);
        memcpy(copy, path, len);
        bool is_shard = td_split_of_shard(td_text_n(copy, len), &name);
        assert_true(is_shard == (len > strlen("data/train-00000-of-00010")));
        assert_true((td_splits_of_file_name(td_text_n(copy, len)) == T) == (len > strlen("data/train")));
        assert_true(td_splits_of_folders(td_text_n(copy, len)) == 0);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_shards),
        cmocka_unit_test(words_of_paths),
        cmocka_unit_test(folders_of_datasets),
        cmocka_unit_test(texts_end_where_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
