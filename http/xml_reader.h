/* Reads XML 1.0 documents element by element: the small documents that clients of S3 send. Strict, without recursion
 * and without memory of its own: declarations of document types and entities, CDATA sections and processing
 * instructions are refused, attributes and prefixes of names are passed over, comments too. Pure; any thread. */
#ifndef TD_HTTP_XML_READER_H
#define TD_HTTP_XML_READER_H

#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { TD_XML_DEPTH = 8 }; /* the most elements within one another */

enum td_xml_event {
    TD_XML_BEGIN, /* an element begins: reader->name */
    TD_XML_TEXT,  /* character data, not blank alone: reader->text */
    TD_XML_END,   /* the element reader->name ends */
    TD_XML_OVER,  /* the document has ended */
    TD_XML_BAD    /* it is not such a document; all later calls return this */
};

/* A document that is being read. Texts are borrowed from it. */
struct td_xml_reader {
    struct td_text name; /* without its prefix */
    struct td_text text; /* as it stands there; td_xml_read_text decodes it */
    /* private from here on */
    struct td_text rest;
    struct td_text open[TD_XML_DEPTH]; /* the names of the elements that have begun */
    size_t depth;
    bool is_begun, is_empty, is_bad;
};

/* Begins to read a document in UTF-8. */
void td_xml_reader_begin(struct td_xml_reader *reader, struct td_text document);

/* Returns the next event. */
enum td_xml_event td_xml_reader_next(struct td_xml_reader *reader);

/* Reads the content of the element that has just begun, which must have no elements, to its end. Sets *text to the
 * character data as it stands there. Returns false for other contents. */
bool td_xml_reader_leaf(struct td_xml_reader *reader, struct td_text *text);

/* Reads the element that has just begun to its end, whatever it has. Returns false for a bad document. */
bool td_xml_reader_skip(struct td_xml_reader *reader);

/* Decodes the references of character data to out, which has room for text.len bytes, and sets *len. Line ends become
 * LF (section 2.11). Returns false for a reference to an entity that is not predefined, or to no character of XML. */
bool td_xml_read_text(struct td_text text, char *out, size_t *len);

#endif
