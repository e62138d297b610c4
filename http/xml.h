/* Text in XML 1.0 documents. */
#ifndef TD_HTTP_XML_H
#define TD_HTTP_XML_H

#include "core/buffer.h"
#include "core/text.h"
#include "http/request.h"

#define TD_XML_TYPE "application/xml"

/* Begins a document. */
void td_xml_begin(struct td_buffer *out);

/* Appends text, which is UTF-8, as character data. What no document can hold, such as most control bytes, becomes
 * U+FFFD; line ends and tabs are written so that they stay what they are. */
void td_xml_escape(struct td_buffer *out, struct td_text text);

/* Appends <name>text</name>. */
void td_xml_element(struct td_buffer *out, const char *name, struct td_text text);

#endif
