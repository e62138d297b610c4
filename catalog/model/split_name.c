#include "catalog/model/split_name.h"

#include <stddef.h>
#include <string.h>

static bool are_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!td_is_digit(p[i]))
            return false;
    return true;
}

/* The end of a shard's name before its extensions: "-00000-of-00010". */
enum { NUMBER_DIGITS = 5, SHARD_END = 1 + NUMBER_DIGITS + 4 + NUMBER_DIGITS };

bool td_split_of_shard(struct td_text path, struct td_text *name)
{
    static const char data[] = "data/";
    if (!td_text_begins(path, TD_TEXT(data)))
        return false;
    struct td_text file = td_text_skip(path, sizeof data - 1);
    if (memchr(file.p, '/', file.len) != NULL)
        return false;
    for (size_t i = 1; i + SHARD_END < file.len; i++) {
        const char *p = file.p + i;
        if (p[0] == '-' && are_digits(p + 1, NUMBER_DIGITS) && memcmp(p + 1 + NUMBER_DIGITS, "-of-", 4) == 0 &&
            are_digits(p + 5 + NUMBER_DIGITS, NUMBER_DIGITS) &&
            memchr(p + SHARD_END, '.', file.len - i - SHARD_END) != NULL) {
            *name = td_text_n(file.p, i);
            return true;
        }
    }
    return false;
}

/* ---- words ---- */

static const struct {
    const char *word;
    unsigned split;
} words[] = {
    {"train", TD_SPLIT_TRAIN},      {"training", TD_SPLIT_TRAIN}, {"validation", TD_SPLIT_VALIDATION},
    {"valid", TD_SPLIT_VALIDATION}, {"dev", TD_SPLIT_VALIDATION}, {"val", TD_SPLIT_VALIDATION},
    {"test", TD_SPLIT_TEST},        {"testing", TD_SPLIT_TEST},   {"eval", TD_SPLIT_TEST},
    {"evaluation", TD_SPLIT_TEST},
};

static bool is_separator(char c)
{
    return c == '-' || c == '.' || c == '_' || c == ' ' || td_is_digit(c);
}

/* Returns the splits that words in a name stand for. needs_end: a word counts only if a separator follows it; the end
 * of the name does not count. */
static unsigned splits_of_name(struct td_text name, bool needs_end, bool any_case)
{
    unsigned splits = 0;
    for (size_t begin = 0, end; begin < name.len; begin = end + 1) {
        for (end = begin; end < name.len && !is_separator(name.p[end]);)
            end++;
        struct td_text word = td_text_n(name.p + begin, end - begin);
        for (size_t i = 0; i < sizeof words / sizeof *words && (end < name.len || !needs_end); i++)
            if (any_case ? td_text_equals_ignore_case(word, words[i].word) : td_text_equals(word, words[i].word))
                splits |= words[i].split;
    }
    return splits;
}

/* Takes the next folder from the path. Returns false when only the file's name is left. */
static bool take_folder(struct td_text *path, struct td_text *folder)
{
    if (memchr(path->p, '/', path->len) == NULL)
        return false;
    *folder = td_text_take_until(path, '/');
    return true;
}

/* Returns whether the file is in a folder such as __pycache__, which the library skips. */
static bool is_in_special_folder(struct td_text path)
{
    struct td_text folder;
    while (take_folder(&path, &folder))
        if (td_text_begins(folder, TD_TEXT("__")))
            return true;
    return false;
}

unsigned td_splits_of_folders(struct td_text path)
{
    unsigned splits = 0;
    struct td_text folder;
    if (is_in_special_folder(path))
        return 0;
    while (take_folder(&path, &folder))
        splits |= splits_of_name(folder, false, false);
    return splits;
}

unsigned td_splits_of_file_name(struct td_text path)
{
    struct td_text folder;
    if (is_in_special_folder(path))
        return 0;
    while (take_folder(&path, &folder))
        continue;
    return splits_of_name(path, true, false);
}

const char *td_split_word(unsigned splits)
{
    return (splits & TD_SPLIT_TRAIN) != 0 ? "train" : (splits & TD_SPLIT_VALIDATION) != 0 ? "validation" : "test";
}

bool td_split_is_folder(struct td_text name)
{
    return td_text_equals(name, "data") || splits_of_name(name, false, true) != 0;
}
