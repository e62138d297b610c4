#include "core/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct td_text td_text_of(const char *string)
{
    return td_text_n(string, strlen(string));
}

size_t td_text_shown(struct td_text text, size_t most)
{
    if (text.len <= most)
        return text.len;
    size_t cut = most; /* moves back over continuation bytes (10xxxxxx) to the first byte of a character (11xxxxxx) */
    while (cut > 0 && most - cut < 3 && ((unsigned char)text.p[cut] & 0xC0) == 0x80)
        cut--;
    return ((unsigned char)text.p[cut] & 0xC0) == 0xC0 ? cut : most;
}

char *td_text_copy(struct td_text text)
{
    char *copy = malloc(text.len + 1);
    if (copy == NULL)
        return NULL;
    if (text.len > 0)
        memcpy(copy, text.p, text.len);
    copy[text.len] = '\0';
    return copy;
}

bool td_text_equals(struct td_text text, const char *word)
{
    return text.len == strlen(word) && (text.len == 0 || memcmp(text.p, word, text.len) == 0);
}

bool td_text_equals_ignore_case(struct td_text text, const char *word)
{
    return text.len == strlen(word) && (text.len == 0 || strncasecmp(text.p, word, text.len) == 0);
}

bool td_text_begins_ignore_case(struct td_text text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && (len == 0 || strncasecmp(text.p, word, len) == 0);
}

int td_text_compare(struct td_text a, struct td_text b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter == 0 ? 0 : memcmp(a.p, b.p, shorter);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

bool td_text_begins(struct td_text text, struct td_text beginning)
{
    return text.len >= beginning.len && (beginning.len == 0 || memcmp(text.p, beginning.p, beginning.len) == 0);
}

bool td_text_take_char(struct td_text *text, char c)
{
    if (text->len == 0 || text->p[0] != c)
        return false;
    text->p++;
    text->len--;
    return true;
}

struct td_text td_text_take_until(struct td_text *text, char separator)
{
    const char *at = text->len == 0 ? NULL : memchr(text->p, separator, text->len);
    struct td_text part = td_text_n(text->p, at == NULL ? text->len : (size_t)(at - text->p));
    *text = td_text_skip(*text, part.len < text->len ? part.len + 1 : text->len);
    return part;
}

struct td_text td_text_take_last(struct td_text *text, char separator)
{
    const char *at = text->len == 0 ? NULL : memrchr(text->p, separator, text->len);
    struct td_text part = at == NULL ? *text : td_text_skip(*text, (size_t)(at - text->p) + 1);
    text->len = at == NULL ? 0 : (size_t)(at - text->p);
    return part;
}

struct td_text td_text_trim(struct td_text text, const char *blanks)
{
    size_t count = strlen(blanks);
    while (text.len > 0 && memchr(blanks, text.p[0], count) != NULL)
        text = td_text_skip(text, 1);
    while (text.len > 0 && memchr(blanks, text.p[text.len - 1], count) != NULL)
        text.len--;
    return text;
}

void td_text_locate(struct td_text text, uint64_t pos, size_t *line, size_t *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < text.len && i < pos; i++) {
        if (text.p[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)text.p[i] & 0xC0) != 0x80) { /* not a later byte of a character */
            ++*column;
        }
    }
}

/* Returns the part of the name at its end that is as long as the extension, or NULL when nothing comes before it. */
static const char *end_of(const char *name, const char *extension)
{
    size_t len = strlen(name);
    size_t n = strlen(extension);
    return len > n ? name + len - n : NULL;
}

bool td_has_extension(const char *name, const char *extension)
{
    const char *end = end_of(name, extension);
    return end != NULL && strcmp(end, extension) == 0;
}

bool td_has_extension_any_case(const char *name, const char *extension)
{
    const char *end = end_of(name, extension);
    return end != NULL && strcasecmp(end, extension) == 0;
}
