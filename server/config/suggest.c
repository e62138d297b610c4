#include "server/config/suggest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX_BYTES = 40, PREFIX_MIN_BYTES = 2 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the optimal string alignment distance of two words of at most WORD_MAX_BYTES: the number of insertions,
 * deletions, substitutions and swaps of neighbours that turn one into the other. Keeps three rows of the table. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][WORD_MAX_BYTES + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t wrong = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = least(wrong, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

/* Returns how many letters may be wrong: a third of them, at least one, at most three. */
static size_t tolerance(size_t len)
{
    size_t third = len / 3;
    return third == 0 ? 1 : least(third, 3);
}

const char *td_suggest_nearest(struct td_text word, const char *const *known)
{
    const char *best = NULL;
    if (word.len == 0 || word.len > WORD_MAX_BYTES)
        return NULL;
    size_t best_distance = tolerance(word.len) + 1;
    for (; *known != NULL; known++) {
        size_t known_len = strlen(*known);
        if (known_len > WORD_MAX_BYTES)
            continue;
        bool begins = word.len >= PREFIX_MIN_BYTES && strncmp(*known, word.p, word.len) == 0;
        size_t far = begins ? 1 : distance(word.p, word.len, *known, known_len);
        if (far < best_distance && far < known_len) {
            best = *known;
            best_distance = far;
        }
    }
    return best;
}

void td_suggest(const char *word, const char *prefix, const char *const *known, char out[TD_SUGGEST_BYTES])
{
    size_t dashes = strspn(word, "-");
    bool has_prefix = dashes == strlen(prefix);
    word += dashes;
    size_t len = strcspn(word, "=");
    const char *found = td_suggest_nearest(td_text_n(word, len), known);
    bool is_right = found != NULL && has_prefix && strlen(found) == len && memcmp(found, word, len) == 0;
    out[0] = '\0';
    if (found != NULL && !is_right)
        (void)snprintf(out, TD_SUGGEST_BYTES, " (did you mean %s%s?)", prefix, found);
}
