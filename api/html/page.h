/* Pages for browsers, made of templates. A template (templates/NAME.html) is HTML with slots and sections, which
 * compile_templates.py turns into constants; templates.h has them. A page's module says how many rows a section has,
 * and writes the values of slots as plain text. The functions here escape each value in the form that its place needs,
 * so a page's module never writes HTML.
 *
 * A page is rendered while it is sent (http/rendered.h): a section of 100,000 rows costs no memory. */
#ifndef TD_API_HTML_PAGE_H
#define TD_API_HTML_PAGE_H

#include "core/buffer.h"
#include "core/error.h"
#include "http/response.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most sections within one another. */
enum { TD_PAGE_DEPTH = 3 };

/* The forms of compile_templates.py, constant text, and the beginnings and ends of sections. */
enum td_part_kind {
    TD_PART_CONSTANT, /* number: where the text begins; extra: its length in bytes */
    TD_PART_TEXT,     /* this and the next seven: a slot; number: of the slot */
    TD_PART_PRE,
    TD_PART_BDI,
    TD_PART_ATTR,
    TD_PART_PATH,
    TD_PART_QUERY,
    TD_PART_LINK,
    TD_PART_CARD,
    TD_PART_SECTION, /* number: of the section; extra: the number of the part that ends it */
    TD_PART_END,
};

struct td_part {
    enum td_part_kind kind;
    uint32_t number, extra;
};

struct td_template {
    const unsigned char *text;
    const struct td_part *parts;
    size_t part_count;
};

/* Where in a page a value is wanted. */
struct td_page_place {
    void *context; /* of the page */
    /* The numbers of the rows of the sections around it, the outermost first: a section within another one counts in
     * row[1], also if the outer one is only a condition. */
    size_t row[TD_PAGE_DEPTH];
};

/* The functions of one kind of page. Each returns and appends the same whenever it is called with the same arguments:
 * a page is rendered once to learn its length and its tag, and again to be sent. */
struct td_page_class {
    const struct td_template *page;
    /* Appends the value of a slot (enum td_NAME_slot) as plain text: any bytes. Text that is not UTF-8 is shown with
     * escapes. */
    void (*write)(const struct td_page_place *place, unsigned slot, struct td_buffer *out);
    /* Returns the number of rows of a section (enum td_NAME_section); `place` has the rows of the sections around it. A
     * condition is a section of one row or none. NULL: the template has no sections. */
    size_t (*rows)(const struct td_page_place *place, unsigned section);
    /* Returns the number of the row after row place->row[0] of an outermost section, for sections with rows that are
     * left out. NULL: the next number. */
    size_t (*next)(const struct td_page_place *place, unsigned section);
    void (*destroy)(void *context);
};

/* Answers 200 with the page, its entity tag, and the header fields that every page has. Takes `context` over, also on
 * failure: class->destroy frees it. Returns false, with no answer, when memory is short. */
bool td_page_set(struct td_response *response, const struct td_page_class *class, void *context, struct td_error *err);

/* Does the same for a path that answers JSON to other clients: also adds Vary: Accept, and a failure becomes the
 * answer.
 */
void td_page_answer(struct td_response *response, const struct td_page_class *class, void *context);

/* Appends the whole page to `out`, for the body of an error. Does not call class->next and class->destroy. */
void td_page_write(const struct td_page_class *class, void *context, struct td_buffer *out);

#endif
