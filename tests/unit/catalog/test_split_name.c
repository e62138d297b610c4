/* Names of splits by paths. Expectations follow the datasets library (data_files.py): SPLIT_PATTERN_SHARDED,
 * SPLIT_KEYWORDS, and NON_WORDS_CHARS, the characters that end a word. */
#include "catalog/dataset/split_name.h"

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
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_text name = TD_TEXT("untouched");
        bool found = td_split_of_shard(td_text_of(cases[i].path), &name);
        CHECK(found == (cases[i].name != NULL), "%s", cases[i].path);
        CHECK(td_text_equals(name, found ? cases[i].name : "untouched"), "%s: %.*s", cases[i].path, (int)name.len,
              name.p);
    }
}

static void words_of_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path, *split;
    } cases[] = {
        {"train.jsonl", "train"},
        {"my_train_file.csv", "train"},
        {"my-train-file.csv", "train"},
        {"train1.csv", "train"},
        {"0train.csv", "train"},
        {"training/part.jsonl", "train"},
        {"a/b/Train/x.jsonl", "train"},
        {"TRAIN.jsonl", "train"},
        {"data/validation-1.jsonl", "validation"},
        {"valid.jsonl", "validation"},
        {"dev.jsonl", "validation"},
        {"val/0.jsonl", "validation"},
        {"test.jsonl", "test"},
        {"testing.jsonl", "test"},
        {"x.eval.jsonl", "test"},
        {"evaluation data.jsonl", "test"},
        {"train/test.jsonl", "train"}, /* the first one from left to right */
        {"test/train.jsonl", "test"},
        {"test", "test"},
        {"retrain.jsonl", NULL},
        {"trained.jsonl", NULL},
        {"mytest.jsonl", NULL},
        {"contest/a.jsonl", NULL},
        {"develop.jsonl", NULL},
        {"values.csv", NULL},
        {"\xc3\xa9train.jsonl", "train"},
        {"tr/ain.jsonl", NULL},
        {"part-00000.jsonl", NULL},
        {"", NULL},
        {"/", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *split = td_split_of_words(td_text_of(cases[i].path));
        CHECK((split == NULL) == (cases[i].split == NULL) && (split == NULL || strcmp(split, cases[i].split) == 0),
              "%s: %s", cases[i].path, split == NULL ? "none" : split);
    }
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
        const char *split = td_split_of_words(td_text_n(copy, len));
        assert_true((split != NULL) == (len >= strlen("data/train")));
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_shards),
        cmocka_unit_test(words_of_paths),
        cmocka_unit_test(texts_end_where_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
