#include "api/oci/oci_titles.h"

#include "core/digest.h"
#include "core/digits.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS = 16, TITLE_MAX = 255 };

/* A title while the list is made. */
struct title {
    const char *path, *text;
    size_t place; /* in the caller's list */
};

static int compare(const void *a, const void *b)
{
    const struct title *x = a;
    const struct title *y = b;
    int order = strcmp(x->text, y->text);
    return order != 0 ? order : strcmp(x->path, y->path);
}

/* Returns the path with "--" for each '/'; NULL for want of memory. */
static const char *replace(const char *path, struct td_arena *arena)
{
    char *text = td_arena_alloc(arena, 2 * strlen(path) + 1);
    size_t len = 0;
    if (text == NULL)
        return NULL;
    for (size_t i = 0; path[i] != '\0'; i++) {
        text[len++] = path[i] == '/' ? '-' : path[i];
        if (path[i] == '/')
            text[len++] = '-';
    }
    text[len] = '\0';
    return text;
}

/* Returns the text, a title of this path, with the digits of the path's SHA-256 before it. Cuts the beginning of a text
 * that is too long, between characters of UTF-8. NULL for want of memory. */
static const char *add_digits(const char *path, const char *text, struct td_arena *arena)
{
    enum { REST_MAX = TITLE_MAX - DIGITS - 1 };
    char digits[2 * TD_SHA256_BYTES + 1];
    uint8_t sum[TD_SHA256_BYTES];
    size_t len = strlen(text);
    const char *rest = len > REST_MAX ? text + len - REST_MAX : text;
    while (rest > text && ((unsigned char)*rest & 0xC0) == 0x80)
        rest++;
    char *title = td_arena_alloc(arena, DIGITS + 1 + strlen(rest) + 1);
    if (title == NULL)
        return NULL;
    td_sha256(path, strlen(path), sum);
    td_hex_write(sum, sizeof sum, digits);
    memcpy(title, digits, DIGITS);
    title[DIGITS] = '-';
    memcpy(title + DIGITS + 1, rest, strlen(rest) + 1);
    return title;
}

/* Returns the title of a path that meets no other; NULL for want of memory. */
static const char *make(const char *path, struct td_arena *arena)
{
    const char *text = replace(path, arena);
    return text == NULL || strlen(text) <= TITLE_MAX ? text : add_digits(path, text, arena);
}

/* Gives their digits to the titles that were changed and meet others; the list is sorted. */
static bool tell_apart(struct title *titles, size_t count, struct td_arena *arena)
{
    for (size_t first = 0, end; first < count; first = end) {
        const char *text = titles[first].text;
        for (end = first + 1; end < count && strcmp(text, titles[end].text) == 0; end++)
            ;
        for (size_t i = first; end - first > 1 && i < end; i++) {
            if (strchr(titles[i].path, '/') == NULL)
                continue;
            const char *replaced = replace(titles[i].path, arena);
            titles[i].text = replaced == NULL ? NULL : add_digits(titles[i].path, replaced, arena);
            if (titles[i].text == NULL)
                return false;
        }
    }
    return true;
}

bool td_oci_flat_titles(const char *const *paths, size_t count, struct td_arena *arena, const char ***titles,
                        struct td_error *err)
{
    struct title *list = td_arena_array(arena, count, sizeof *list);
    *titles = td_arena_array(arena, count, sizeof **titles);
    if (list == NULL || *titles == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        list[i] = (struct title){.path = paths[i], .text = make(paths[i], arena), .place = i};
        if (list[i].text == NULL)
            return td_error_no_memory(err);
    }
    if (count > 0)
        qsort(list, count, sizeof *list, compare);
    if (!tell_apart(list, count, arena))
        return td_error_no_memory(err);
    if (count > 0)
        qsort(list, count, sizeof *list, compare);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(list[i].text, list[i - 1].text) == 0)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "the files \"%s\" and \"%s\" would have one title without '/': rename one of them",
                                list[i - 1].path, list[i].path);
        (*titles)[list[i].place] = list[i].text;
    }
    return true;
}
