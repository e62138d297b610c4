#include "http/xml.h"

const char *const td_xml_references[TD_XML_REFERENCES] = {
    ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};

void td_xml_begin(struct td_buffer *out)
{
    td_buffer_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
}

/* Returns the text that replaces the character at p, or NULL if it stays; sets *used to its length. Char: XML 1.0
 * section 2.2; normalised line ends and attribute values: 2.11 and 3.3.3. */
static const char *replacement(const unsigned char *p, size_t len, size_t *used)
{
    *used = 1;
    switch (*p) {
    case '\t':
        return "&#9;";
    case '\n':
        return "&#10;";
    case '\r':
        return "&#13;";
    case '\'': /* needs no reference outside of attributes */
        return NULL;
    default:
        break;
    }
    if (*p < 0x20)
        return "\xEF\xBF\xBD";
    if (*p == 0xEF && len >= 3 && p[1] == 0xBF && (p[2] == 0xBE || p[2] == 0xBF)) { /* U+FFFE, U+FFFF */
        *used = 3;
        return "\xEF\xBF\xBD";
    }
    return td_xml_reference((char)*p);
}

/* Appends UTF-8 text as character data. Characters that no document can hold, such as most control bytes, become
 * U+FFFD. Line ends and tabs become references, so that parsers keep them. */
static void escape_text(struct td_buffer *out, struct td_text text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    size_t plain = 0; /* start of the run not yet written */
    size_t used = 1;
    for (size_t i = 0; i < text.len; i += used) {
        const char *instead = replacement(p + i, text.len - i, &used);
        if (instead == NULL)
            continue;
        td_buffer_append(out, text.p + plain, i - plain);
        td_buffer_puts(out, instead);
        plain = i + used;
    }
    if (text.len > plain)
        td_buffer_append(out, text.p + plain, text.len - plain);
}

void td_xml_element(struct td_buffer *out, const char *name, struct td_text text)
{
    td_buffer_putc(out, '<');
    td_buffer_puts(out, name);
    td_buffer_putc(out, '>');
    escape_text(out, text);
    td_buffer_puts(out, "</");
    td_buffer_puts(out, name);
    td_buffer_putc(out, '>');
}
