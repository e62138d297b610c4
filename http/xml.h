/* Text in XML 1.0 documents. When memory is short, out->failed is set (core/buffer.h). */
#ifndef TD_HTTP_XML_H
#define TD_HTTP_XML_H

#include "core/buffer.h"
#include "core/text.h"

#define TD_XML_TYPE "application/xml"

/* Appends the XML declaration (UTF-8) and a line end. */
void td_xml_begin(struct td_buffer *out);

/* Appends <name>text</name>. Escapes the text, not the name; characters that no document can hold become U+FFFD. */
void td_xml_element(struct td_buffer *out, const char *name, struct td_text text);

#endif
