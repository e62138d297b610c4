#include "catalog/dataset/split_name.h"

#include <stddef.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool are_digits(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_digit(p[i]))
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
            are_digits(p + 5 + NUMBER_DIGITS, NUMBER_DIGITS)) {
            *name = td_text_n(file.p, i);
            return true;
        }
    }
    return false;
}

const char *td_split_of_words(struct td_text path)
{
    static const struct {
        const char *word, *split;
    } words[] = {{"train", "train"},      {"training", "train"}, {"validation", "validation"},
                 {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
                 {"test", "test"},        {"testing", "test"},   {"eval", "test"},
                 {"evaluation", "test"}};
    for (size_t begin = 0, end; begin < path.len; begin = end + 1) {
        for (end = begin; end < path.len && td_is_letter(path.p[end]);)
            end++;
        struct td_text word = td_text_n(path.p + begin, end - begin);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (td_text_equals_ignore_case(word, words[i].word))
                return words[i].split;
    }
    return NULL;
}
