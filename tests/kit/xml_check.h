/* A strict reader of the XML that the server writes: a declaration, elements with at most an xmlns, character data. */
#ifndef TD_TESTS_XML_CHECK_H
#define TD_TESTS_XML_CHECK_H

#include "core/utf8.h"

#include <stdbool.h>
#include <string.h>

enum { XML_DEPTH = 8 };

/* XML 1.0 section 4.1: &amp; &lt; &gt; &quot; or the number of a Char. Returns its length, or 0 when p is no
 * reference. */
static inline size_t xml_reference(const char *p, size_t len)
{
    static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#9;", "&#10;", "&#13;"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (len >= strlen(known[i]) && memcmp(p, known[i], strlen(known[i])) == 0)
            return strlen(known[i]);
    return 0;
}

/* Section 2.2: Char, in UTF-8 that was checked before. Refuses '\r', which a reader would not keep (2.11). */
static inline bool xml_is_char(const unsigned char *p, size_t len)
{
    if (*p < 0x20)
        return *p == '\n';
    return !(len >= 3 && p[0] == 0xEF && p[1] == 0xBF && p[2] >= 0xBE);
}

/* Returns the length of the tag's name at p, behind its '<' or '</', or 0. */
static inline size_t xml_name(const char *p, size_t len)
{
    size_t n = 0;
    while (n < len && ((p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z')))
        n++;
    return n;
}

/* Returns whether the text is one well-formed document with a line end behind it. */
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
