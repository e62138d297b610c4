/* Reads the HTML of a card as a browser would, and knows nothing of the writer: only the elements, attributes and
 * addresses that docs/security.md names may be in it, each element ends where it has to, and no id occurs twice. */
#ifndef TD_TESTS_FUZZ_CARD_ORACLE_H
#define TD_TESTS_FUZZ_CARD_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ORACLE_LEVELS = 32, ORACLE_IDS = 1000 };

struct oracle {
    const char *p, *end;
    const char *base; /* with which addresses of files begin */
    const char *open[ORACLE_LEVELS];
    size_t depth;
    const char *ids[ORACLE_IDS];
    size_t id_lens[ORACLE_IDS];
    size_t id_count;
    size_t links; /* that are open */
};

/* The elements, and those of their attributes that must be there (first) and that may be there. */
static const struct {
    const char *name, *must, *may;
    bool is_void;
} oracle_elements[] = {{"blockquote", "", "", false},
                       {"ul", "", "", false},
                       {"ol", "", "start", false},
                       {"li", "", "", false},
                       {"hr", "", "", true},
                       {"br", "", "", true},
                       {"h2", "", "id", false},
                       {"h3", "", "id", false},
                       {"h4", "", "id", false},
                       {"h5", "", "id", false},
                       {"h6", "", "id", false},
                       {"pre", "tabindex", "", false},
                       {"code", "", "", false},
                       {"p", "", "", false},
                       {"div", "class tabindex", "", false},
                       {"table", "", "", false},
                       {"thead", "", "", false},
                       {"tbody", "", "", false},
                       {"tr", "", "", false},
                       {"th", "scope", "align", false},
                       {"td", "", "align", false},
                       {"em", "", "", false},
                       {"strong", "", "", false},
                       {"del", "", "", false},
                       {"a", "href", "rel title", false},
                       {"img", "src alt loading", "title", true}};

static inline bool oracle_has_word(const char *words, const char *word, size_t len)
{
    for (const char *p = words; *p != '\0';) {
        size_t n = strcspn(p, " ");
        if (n == len && memcmp(p, word, len) == 0)
            return true;
        p += n + (p[n] == ' ' ? 1 : 0);
    }
    return false;
}

/* Moves past one entity. */
static inline bool oracle_entity(struct oracle *o)
{
    const char *at = o->p + 1;
    bool is_number = at < o->end && *at == '#';
    at += is_number ? 1 : 0;
    const char *first = at;
    while (at < o->end && ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')))
        at++;
    if (at == first || at == o->end || *at != ';')
        return false;
    o->p = at + 1;
    return true;
}

static inline bool oracle_is_control(char c)
{
    return (unsigned char)c < 0x20 ? c != '\n' && c != '\t' : c == 0x7F;
}

/* Returns whether the value, which may have "&amp;", is an address of a file: below the base, without ".." in it. */
static inline bool oracle_is_file(const struct oracle *o, const char *value, size_t len)
{
    size_t base_len = strlen(o->base);
    if (len < base_len || memcmp(value, o->base, base_len) != 0)
        return false;
    const char *end = value + len;
    const char *at = value + base_len;
    while (at < end && *at != '?' && *at != '#') {
        size_t n = 0;
        while (at + n < end && strchr("/?#", at[n]) == NULL)
            n++;
        bool is_dots = (n == 1 && *at == '.') || (n == 2 && at[0] == '.' && at[1] == '.');
        if (is_dots ||
            (n >= 3 && strncasecmp(at, "%2e", 3) == 0 && (n == 3 || strncasecmp(at + n - 3, "%2e", 3) == 0)) ||
            memchr(at, '\\', n) != NULL || memchr(at, ':', n) != NULL)
            return false;
        at += n + (at + n < end && at[n] == '/' ? 1 : 0);
    }
    return true;
}

static inline bool oracle_begins(const char *value, size_t len, const char *word)
{
    return len > strlen(word) && strncasecmp(value, word, strlen(word)) == 0;
}

/* Judges the value of an attribute. *is_other: it is an address of another site. */
static inline bool oracle_value(struct oracle *o, const char *name, size_t name_len, const char *value, size_t len,
                                bool *is_other)
{
#define IS(word) (name_len == strlen(word) && memcmp(name, word, name_len) == 0)
#define VALUE(word) (len == strlen(word) && memcmp(value, word, len) == 0)
    if (IS("title") || IS("alt"))
        return true;
    if (IS("rel"))
        return VALUE("noreferrer nofollow noopener");
    if (IS("tabindex"))
        return VALUE("0");
    if (IS("class"))
        return VALUE("scroll");
    if (IS("scope"))
        return VALUE("col");
    if (IS("loading"))
        return VALUE("lazy");
    if (IS("align"))
        return VALUE("left") || VALUE("center") || VALUE("right");
    if (IS("start"))
        return len > 0 && len <= 9 && strspn(value, "0123456789") == len;
    if (IS("src"))
        return oracle_is_file(o, value, len);
    if (IS("id")) {
        for (size_t i = 0; i < o->id_count; i++)
            if (o->id_lens[i] == len && memcmp(o->ids[i], value, len) == 0)
                return false;
        if (o->id_count == ORACLE_IDS || !oracle_begins(value, len, "card-") || memchr(value, ' ', len) != NULL)
            return false;
        o->ids[o->id_count] = value;
        o->id_lens[o->id_count++] = len;
        return true;
    }
    *is_other = oracle_begins(value, len, "http://") || oracle_begins(value, len, "https://") ||
                oracle_begins(value, len, "mailto:");
    bool is_clean = memchr(value, '\\', len) == NULL && memchr(value, ' ', len) == NULL &&
                    memchr(value, '\n', len) == NULL && memchr(value, '\t', len) == NULL;
    return is_clean && (*is_other || oracle_begins(value, len, "#card-") || oracle_is_file(o, value, len));
#undef IS
#undef VALUE
}

/* Reads the tag that begins at o->p. */
static inline const char *oracle_tag(struct oracle *o)
{
    bool is_end = o->p + 1 < o->end && o->p[1] == '/';
    const char *name = o->p + (is_end ? 2 : 1);
    size_t len = 0, kind = 0;
    while (name + len < o->end && ((name[len] >= 'a' && name[len] <= 'z') || (name[len] >= '0' && name[len] <= '9')))
        len++;
    while (kind < sizeof oracle_elements / sizeof *oracle_elements &&
           (strlen(oracle_elements[kind].name) != len || memcmp(oracle_elements[kind].name, name, len) != 0))
        kind++;
    if (kind == sizeof oracle_elements / sizeof *oracle_elements)
        return "an element that is not allowed";
    o->p = name + len;
    if (is_end) {
        if (o->depth == 0 || o->open[o->depth - 1] != oracle_elements[kind].name || o->p == o->end || *o->p != '>')
            return "an element ends that is not the last one";
        o->depth--;
        o->links -= strcmp(oracle_elements[kind].name, "a") == 0 ? 1 : 0;
        o->p++;
        return NULL;
    }
    size_t must = 0;
    bool is_other = false, has_rel = false;
    const char *seen[8];
    size_t seen_lens[8], seen_count = 0;
    while (o->p < o->end && *o->p == ' ') {
        const char *attribute = ++o->p;
        size_t n = 0;
        while (attribute + n < o->end && attribute[n] >= 'a' && attribute[n] <= 'z')
            n++;
        bool is_must = oracle_has_word(oracle_elements[kind].must, attribute, n);
        if (!is_must && !oracle_has_word(oracle_elements[kind].may, attribute, n))
            return "an attribute that is not allowed";
        for (size_t i = 0; i < seen_count; i++)
            if (seen_lens[i] == n && memcmp(seen[i], attribute, n) == 0)
                return "an attribute occurs twice";
        if (seen_count == 8)
            return "too many attributes";
        seen[seen_count] = attribute;
        seen_lens[seen_count++] = n;
        must += is_must ? 1 : 0;
        o->p = attribute + n;
        if (o->end - o->p < 2 || o->p[0] != '=' || o->p[1] != '"')
            return "an attribute without a quoted value";
        const char *value = o->p += 2;
        while (o->p < o->end && *o->p != '"') {
            if (*o->p == '<' || *o->p == '>' || oracle_is_control(*o->p))
                return "a character that is not allowed in a value";
            if (*o->p == '&' ? !oracle_entity(o) : (o->p++, false))
                return "'&' without an entity in a value";
        }
        if (o->p == o->end)
            return "a value without an end";
        if (!oracle_value(o, attribute, n, value, (size_t)(o->p - value), &is_other))
            return "a value that is not allowed";
        has_rel = has_rel || (n == 3 && memcmp(attribute, "rel", 3) == 0);
        o->p++;
    }
    size_t wanted = oracle_elements[kind].must[0] == '\0' ? 0 : 1;
    for (const char *p = oracle_elements[kind].must; *p != '\0'; p++)
        wanted += *p == ' ' ? 1 : 0;
    if (must != wanted || is_other != has_rel)
        return "an attribute is missing";
    if (o->p == o->end || *o->p != '>')
        return "a tag without an end";
    o->p++;
    if (oracle_elements[kind].is_void)
        return NULL;
    if (o->depth == ORACLE_LEVELS)
        return "elements are nested too deep";
    o->links += strcmp(oracle_elements[kind].name, "a") == 0 ? 1 : 0;
    if (o->links > 1)
        return "a link within a link";
    o->open[o->depth++] = oracle_elements[kind].name;
    return NULL;
}

/* Returns what is wrong with the HTML; NULL: nothing. */
static inline const char *oracle_check(const char *html, size_t len, const char *base)
{
    if (len == 0)
        return NULL;
    struct oracle *o = calloc(1, sizeof *o);
    const char *fault = o == NULL ? "no memory" : NULL;
    if (o == NULL)
        return fault;
    o->p = html;
    o->end = html + len;
    o->base = base;
    while (fault == NULL && o->p < o->end) {
        if (*o->p == '<')
            fault = oracle_tag(o);
        else if (*o->p == '&')
            fault = oracle_entity(o) ? NULL : "'&' without an entity";
        else if (*o->p == '>' || oracle_is_control(*o->p))
            fault = "a character that is not allowed";
        else
            o->p++;
    }
    if (fault == NULL && o->depth > 0)
        fault = "an element has no end";
    free(o);
    return fault;
}

#endif
