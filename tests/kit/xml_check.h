/* A strict reader of the XML that the server writes: a declaration, elements without attributes (the root may have S3's
 * xmlns), character data. Stricter than XML 1.0. Call xml_is_well_formed; the other functions are its parts. Texts need
 * no NUL. */
#ifndef TD_TESTS_KIT_XML_CHECK_H
#define TD_TESTS_KIT_XML_CHECK_H

#include "core/utf8.h"

#include <stdbool.h>
#include <string.h>

enum { XML_DEPTH = 8 };

/* Returns the length of the reference (XML 1.0 section 4.1) at p: one of the seven that the server writes; else 0. */
static inline size_t xml_reference(const char *p, size_t len)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#9;", "&#10;", "&#13;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (len >= strlen(known[i]) && memcmp(p, known[i], strlen(known[i])) == 0)
            return strlen(known[i]);
    return 0;
}

/* Returns whether the byte at p is, or belongs to, a Char (section 2.2), in UTF-8 that was checked before; len > 0
 * bytes are left. Of control characters only '\n' is allowed: a reader would not keep '\r' (2.11), and the server
 * writes a tab as a reference. */
static inline bool xml_is_char(const unsigned char *p, size_t len)
{
    if (*p < 0x20)
        return *p == '\n';
    return !(len >= 3 && p[0] == 0xEF && p[1] == 0xBF && p[2] >= 0xBE);
}

/* Returns the length of the tag's name at p, after its '<' or '</', or 0. Names have ASCII letters only. */
static inline size_t xml_name(const char *p, size_t len)
{
    size_t n = 0;
    while (n < len && ((p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z')))
        n++;
    return n;
}

/* Returns whether the text is one well-formed document with a line end after it, nested at most XML_DEPTH deep. */
static inline bool xml_is_well_formed(const char *text, size_t len)
{
    static const char declaration[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    static const char xmlns[] = " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
    const char *names[XML_DEPTH];
    size_t lens[XML_DEPTH];
    size_t depth = 0;
    bool begun = false;
    size_t i = sizeof declaration - 1;
    if (len <= i || memcmp(text, declaration, i) != 0 || text[len - 1] != '\n' || !td_utf8_valid(text, len))
        return false;
    for (len--; i < len;) {
        if (text[i] != '<') {
            size_t n = text[i] == '&' ? xml_reference(text + i, len - i)
                                      : xml_is_char((const unsigned char *)text + i, len - i);
            if (n == 0 || depth == 0)
                return false;
            i += n;
            continue;
        }
        bool ends = text[++i] == '/';
        i += ends ? 1 : 0;
        size_t n = xml_name(text + i, len - i);
        const char *name = text + i;
        i += n;
        if (n == 0 || (!ends && depth == 0 && begun))
            return false;
        if (ends) {
            if (depth == 0 || lens[--depth] != n || memcmp(names[depth], name, n) != 0)
                return false;
        } else {
            if (depth == 0 && len - i > sizeof xmlns && memcmp(text + i, xmlns, sizeof xmlns - 1) == 0)
                i += sizeof xmlns - 1;
            begun = true;
            if (text[i] == '/') {
                i++;
            } else if (depth < XML_DEPTH) {
                names[depth] = name;
                lens[depth++] = n;
            } else {
                return false;
            }
        }
        if (i >= len || text[i++] != '>')
            return false;
    }
    return begun && depth == 0;
}

#endif
