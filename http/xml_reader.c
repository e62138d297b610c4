#include "http/xml_reader.h"

#include "core/digits.h"
#include "core/utf8.h"

#include <stdint.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

void td_xml_reader_begin(struct td_xml_reader *reader, struct td_text document)
{
    static const struct td_text mark = TD_TEXT("\xEF\xBB\xBF");
    *reader = (struct td_xml_reader){.rest = document};
    reader->is_bad = !td_utf8_valid(document.p, document.len) || memchr(document.p, '\0', document.len) != NULL;
    if (td_text_begins(document, mark))
        reader->rest = td_text_skip(document, mark.len);
}

static enum td_xml_event bad(struct td_xml_reader *reader)
{
    reader->is_bad = true;
    return TD_XML_BAD;
}

/* Removes the beginning of the rest up to this end, which is included. Returns false when it does not come. */
static bool skip_past(struct td_xml_reader *reader, struct td_text end)
{
    const char *at = memmem(reader->rest.p, reader->rest.len, end.p, end.len);
    if (at == NULL)
        return false;
    reader->rest = td_text_skip(reader->rest, (size_t)(at - reader->rest.p) + end.len);
    return true;
}

/* Passes over the declaration at the beginning, over comments and, outside of all elements, over blanks. */
static bool skip_misc(struct td_xml_reader *reader)
{
    if (!reader->is_begun) {
        reader->is_begun = true;
        if (td_text_begins(reader->rest, TD_TEXT("<?xml ")) && !skip_past(reader, TD_TEXT("?>")))
            return false;
    }
    while (true) {
        size_t len = reader->rest.len;
        while (reader->depth == 0 && reader->rest.len > 0 && strchr(blanks, *reader->rest.p) != NULL)
            reader->rest = td_text_skip(reader->rest, 1);
        if (td_text_begins(reader->rest, TD_TEXT("<!--")) && !skip_past(reader, TD_TEXT("-->")))
            return false;
        if (reader->rest.len == len)
            return true;
    }
}

/* Returns the length of a tag without its '<' and '>', or 0. A '>' in an attribute's value does not end it. */
static size_t tag_length(struct td_text rest)
{
    char quote = '\0';
    for (size_t i = 1; i < rest.len; i++) {
        char c = rest.p[i];
        if (c == '<')
            return 0;
        if (quote != '\0')
            quote = c == quote ? '\0' : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == '>')
            return i - 1;
    }
    return 0;
}

static bool is_name(struct td_text name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!td_is_letter_or_digit(name.p[i]) && strchr("_-.:", name.p[i]) == NULL && (unsigned char)name.p[i] < 0x80)
            return false;
    return name.len > 0 && !td_is_digit(name.p[0]) && name.p[0] != '-' && name.p[0] != '.';
}

static struct td_text without_prefix(struct td_text name)
{
    const char *colon = memchr(name.p, ':', name.len);
    return colon == NULL ? name : td_text_skip(name, (size_t)(colon - name.p) + 1);
}

static enum td_xml_event take_end(struct td_xml_reader *reader, struct td_text tag)
{
    struct td_text name = td_text_trim(td_text_skip(tag, 1), blanks);
    if (reader->depth == 0 || td_text_compare(name, reader->open[reader->depth - 1]) != 0)
        return bad(reader);
    reader->depth--;
    reader->name = without_prefix(name);
    return TD_XML_END;
}

static enum td_xml_event take_tag(struct td_xml_reader *reader)
{
    size_t len = tag_length(reader->rest);
    if (len == 0)
        return bad(reader);
    struct td_text tag = td_text_n(reader->rest.p + 1, len);
    reader->rest = td_text_skip(reader->rest, len + 2);
    if (tag.p[0] == '/')
        return take_end(reader, tag);
    reader->is_empty = tag.p[len - 1] == '/';
    size_t name_len = strcspn(tag.p, " \t\r\n/>"); /* the '>' is there */
    struct td_text name = td_text_n(tag.p, name_len);
    if (!is_name(name) || reader->depth == TD_XML_DEPTH)
        return bad(reader);
    reader->open[reader->depth++] = name;
    reader->name = without_prefix(name);
    return TD_XML_BEGIN;
}

static enum td_xml_event take_text(struct td_xml_reader *reader)
{
    const char *end = memchr(reader->rest.p, '<', reader->rest.len);
    if (end == NULL || reader->depth == 0)
        return bad(reader);
    reader->text = td_text_n(reader->rest.p, (size_t)(end - reader->rest.p));
    reader->rest = td_text_skip(reader->rest, reader->text.len);
    return TD_XML_TEXT;
}

enum td_xml_event td_xml_reader_next(struct td_xml_reader *reader)
{
    if (reader->is_bad)
        return TD_XML_BAD;
    if (reader->is_empty) {
        reader->is_empty = false;
        reader->name = without_prefix(reader->open[--reader->depth]);
        return TD_XML_END;
    }
    bool was_begun = reader->is_begun;
    while (true) {
        if (!skip_misc(reader))
            return bad(reader);
        if (reader->rest.len == 0)
            return was_begun && reader->depth == 0 ? TD_XML_OVER : bad(reader);
        if (*reader->rest.p == '<') {
            if (was_begun && reader->depth == 0)
                return bad(reader); /* a second root */
            return take_tag(reader);
        }
        if (take_text(reader) == TD_XML_BAD)
            return TD_XML_BAD;
        if (td_text_trim(reader->text, blanks).len > 0)
            return TD_XML_TEXT;
    }
}

bool td_xml_reader_leaf(struct td_xml_reader *reader, struct td_text *text)
{
    *text = TD_TEXT("");
    enum td_xml_event event = td_xml_reader_next(reader);
    if (event == TD_XML_TEXT) {
        *text = reader->text;
        event = td_xml_reader_next(reader);
    }
    return event == TD_XML_END;
}

bool td_xml_reader_skip(struct td_xml_reader *reader)
{
    size_t depth = reader->depth;
    while (true) {
        enum td_xml_event event = td_xml_reader_next(reader);
        if (event == TD_XML_BAD || event == TD_XML_OVER)
            return false;
        if (event == TD_XML_END && reader->depth < depth)
            return true;
    }
}

/* ---- character data ------------------------------------------------------------------------------------ */

/* Reads the number of a character reference, "#38" or "#x26". */
static bool read_number(struct td_text name, uint32_t *out)
{
    uint32_t value = 0;
    bool is_hex = name.len > 1 && name.p[1] == 'x';
    struct td_text digits = td_text_skip(name, is_hex ? 2 : 1);
    for (size_t i = 0; i < digits.len; i++) {
        int digit = td_hex_digit(digits.p[i]);
        if (digit < 0 || (!is_hex && digit > 9) || value > 0x10FFFF)
            return false;
        value = value * (is_hex ? 16 : 10) + (uint32_t)digit;
    }
    *out = value;
    return digits.len > 0;
}

/* Returns whether a document may hold the character (section 2.2). */
static bool is_character(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0xD800) || (c >= 0xE000 && c < 0xFFFE) ||
           (c >= 0x10000 && c <= 0x10FFFF);
}

/* Reads a reference without its '&' and ';'. */
static bool read_reference(struct td_text name, uint32_t *c)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    if (name.len > 0 && name.p[0] == '#')
        return read_number(name, c) && is_character(*c);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!td_text_equals(name, known[i].name))
            continue;
        *c = (uint32_t)known[i].c;
        return true;
    }
    return false;
}

bool td_xml_read_text(struct td_text text, char *out, size_t *len)
{
    *len = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint32_t c;
        if (text.p[i] == '\r') {
            if (i + 1 == text.len || text.p[i + 1] != '\n')
                out[(*len)++] = '\n';
            continue;
        }
        if (text.p[i] != '&') {
            out[(*len)++] = text.p[i];
            continue;
        }
        const char *end = memchr(text.p + i, ';', text.len - i);
        if (end == NULL || !read_reference(td_text_n(text.p + i + 1, (size_t)(end - text.p) - i - 1), &c))
            return false;
        *len += td_utf8_encode(c, out + *len); /* no more bytes than the reference has */
        i = (size_t)(end - text.p);
    }
    return true;
}
