/* Text in XML 1.0 documents, and what HTML shares with them. When memory is short, out->failed is set
 * (core/buffer.h). */
#ifndef TD_HTTP_XML_H
#define TD_HTTP_XML_H

#include "core/buffer.h"
#include "core/text.h"

#include <stddef.h>

#define TD_XML_TYPE "application/xml"

/* See td_xml_reference. */
enum { TD_XML_REFERENCES = '>' + 1 };
extern const char *const td_xml_references[TD_XML_REFERENCES];

/* Returns the reference that stands for a character with a meaning in XML and HTML, static; NULL for all others. */
static inline const char *td_xml_reference(char c)
{
    return (unsigned char)c < TD_XML_REFERENCES ? td_xml_references[(unsigned char)c] : NULL;
}

/* Appends the XML declaration (UTF-8) and a line end. */
void td_xml_begin(struct td_buffer *out);

/* Appends <name>text</name>. Escapes the text, not the name; characters that no document can hold become U+FFFD. */
void td_xml_element(struct td_buffer *out, const char *name, struct td_text text);

#endif
