/* The input is the front matter of a card as JSON and paths, separated by NUL. What the patterns match is compared with
 * a matcher that tries every way, from the pattern's beginning on, and remembers which ways failed. */
#include "catalog/dataset/card_splits.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { LONGEST = 80, MOST_PATHS = 8 };

/* A pattern and a path, and for each pair of rests whether they are known not to match. */
struct oracle {
    const char *pattern, *path;
    size_t pattern_len, path_len;
    bool failed[LONGEST + 1][LONGEST + 1];
};

/* Returns the position after the set that begins at p, or 0 when there is no ']' that ends it. */
static size_t set_end(const struct oracle *o, size_t p)
{
    size_t at = p + 1;
    if (at < o->pattern_len && o->pattern[at] == '!')
        at++;
    for (at++; at < o->pattern_len; at++)
        if (o->pattern[at] == ']')
            return at + 1;
    return 0;
}

/* Returns whether the set in [p, end) holds the byte. */
static bool holds(const struct oracle *o, size_t p, size_t end, char c)
{
    bool negated = o->pattern[p + 1] == '!', in = false;
    size_t at = p + (negated ? 2 : 1);
    while (at < end - 1) {
        bool is_range = end - 1 - at > 2 && o->pattern[at + 1] == '-';
        char last = o->pattern[is_range ? at + 2 : at];
        in = in || (o->pattern[at] <= c && c <= last);
        at += is_range ? 3 : 1;
    }
    return in != negated;
}

/* Returns whether the rest of the pattern matches the rest of the path. The depth is at most the sum of both lengths,
 * since each call advances in one of them. */
static bool matches(struct oracle *o, size_t p, size_t s)
{
    if (p == o->pattern_len)
        return s == o->path_len;
    if (o->failed[p][s])
        return false;
    const char *pattern = o->pattern + p;
    size_t left = o->pattern_len - p;
    bool has_byte = s < o->path_len, found = false;
    size_t end = *pattern == '[' ? set_end(o, p) : 0;
    if (left >= 3 && memcmp(pattern, "**/", 3) == 0) {
        found = matches(o, p + 3, s);
        for (size_t i = s; i < o->path_len && !found; i++)
            found = o->path[i] == '/' && matches(o, p + 3, i + 1);
    } else if (left >= 2 && memcmp(pattern, "**", 2) == 0) {
        found = matches(o, p + 2, s) || (has_byte && matches(o, p, s + 1));
    } else if (*pattern == '*') {
        found = matches(o, p + 1, s) || (has_byte && o->path[s] != '/' && matches(o, p, s + 1));
    } else if (*pattern == '?') {
        found = has_byte && o->path[s] != '/' && matches(o, p + 1, s + 1);
    } else if (end > 0) {
        found = has_byte && o->path[s] != '/' && holds(o, p, end, o->path[s]) && matches(o, end, s + 1);
    } else {
        found = has_byte && o->path[s] == *pattern && matches(o, p + 1, s + 1);
    }
    o->failed[p][s] = !found;
    return found;
}

static void check_pattern(const char *pattern, struct td_text path)
{
    static struct oracle oracle;
    uint64_t steps = 0;
    bool got = td_card_pattern_matches(pattern, path, &steps);
    FUZZ_CHECK(steps <= 8 + (uint64_t)strlen(pattern) * path.len);
    if (strlen(pattern) > LONGEST || path.len > LONGEST)
        return;
    oracle = (struct oracle){.pattern = pattern, .pattern_len = strlen(pattern), .path = path.p, .path_len = path.len};
    FUZZ_CHECK(got == matches(&oracle, 0, 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_text rest = td_text_n((const char *)data, size), json;
    struct td_arena arena;
    struct td_card_splits splits;
    struct td_error err = TD_ERROR_INIT;
    if (size == 0 || size > 4096)
        return 0;
    json = td_text_take_until(&rest, '\0');
    td_arena_init(&arena, 0);
    FUZZ_CHECK(td_card_splits_read(json, &arena, &splits, &err));
    FUZZ_CHECK(splits.count <= json.len);
    for (size_t n = 0; n < MOST_PATHS && rest.len > 0; n++) {
        struct td_text path = td_text_take_until(&rest, '\0');
        for (size_t i = 0; i < splits.count; i++) {
            FUZZ_CHECK(strlen(splits.items[i].split) <= 2 * json.len);
            check_pattern(splits.items[i].pattern, path);
        }
    }
    td_arena_fini(&arena);
    return 0;
}
