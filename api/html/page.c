/* Plan: a page's rows, as http/rendered counts them, are the parts of the template outside of sections (each run of
 * them is one row) and the rows of its outermost sections. Inner sections are rendered with the row around them.
 *
 * What is hard: values come from strangers. write_value is the only place where a value becomes HTML. */
#include "api/html/page.h"

#include "core/utf8.h"
#include "http/rendered.h"
#include "http/uri.h"
#include "http/xml.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_NAME_BYTES = 256 }; /* of a name; the middle of a longer one is left out */

/* A run of parts outside of sections, or one outermost section. */
struct stretch {
    size_t part, end;        /* the parts part .. end - 1; of a section without its first and last part */
    size_t first, row_count; /* numbers of rows of the page */
    unsigned section;
    bool is_section;
};

struct page {
    const struct td_page_class *class;
    void *context;
    struct td_buffer value; /* of one slot, before it is escaped */
    struct stretch *stretches;
    size_t stretch_count;
};

/* ---- values -------------------------------------------------------------------------------------------- */

/* Appends an escape in a notation that people know: \x0a. */
static void show_byte(struct td_buffer *out, unsigned char byte)
{
    td_buffer_printf(out, "\\x%02x", byte);
}

/* Returns whether the character of n bytes changes the direction of the text around it, or is a control character of
 * more than one byte. */
static bool is_unseen(const unsigned char *p, size_t n)
{
    if (n == 2)
        return p[0] == 0xc2 && p[1] < 0xa0; /* U+0080 to U+009F */
    if (n != 3 || p[0] != 0xe2)
        return n == 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf; /* U+FEFF */
    return (p[1] == 0x80 && ((p[2] >= 0x8b && p[2] <= 0x8f) || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
           (p[1] == 0x81 && p[2] >= 0xa0 && p[2] <= 0xaf); /* U+200B to 200F, 2028 to 202E, 2060 to 206F */
}

/* Appends the beginning of the text that every place shows as it is: printable characters of ASCII without a meaning in
 * HTML. Returns its length. */
static size_t write_plain(struct td_buffer *out, struct td_text text)
{
    size_t len = 0;
    while (len < text.len && text.p[len] >= 0x20 && text.p[len] < 0x7f && td_xml_reference(text.p[len]) == NULL)
        len++;
    td_buffer_append(out, text.p, len);
    return len;
}

/* Appends text. What does not print is shown as an escape; with has_lines, line feeds and tabs stay. */
static void write_text(struct td_buffer *out, struct td_text text, bool has_lines)
{
    const unsigned char *p = (const unsigned char *)text.p;
    for (size_t at = write_plain(out, text); at < text.len; at += write_plain(out, td_text_skip(text, at))) {
        size_t n = td_utf8_sequence(p + at, text.len - at);
        bool is_control = n <= 1 && (p[at] < 0x20 || p[at] == 0x7f);
        if (n == 0 || (is_control && !(has_lines && (p[at] == '\n' || p[at] == '\t'))))
            show_byte(out, p[at]);
        else if (n > 1 && is_unseen(p + at, n))
            for (size_t i = 0; i < n; i++)
                show_byte(out, p[at + i]);
        else if (n == 1 && td_xml_reference(text.p[at]) != NULL)
            td_buffer_puts(out, td_xml_reference(text.p[at]));
        else
            td_buffer_append(out, p + at, n);
        at += n == 0 ? 1 : n;
    }
}

/* Appends text for the value of an attribute, so that scripts read the same text: control characters as references.
 * U+FFFD stands for what no document can hold. */
static void write_attribute(struct td_buffer *out, struct td_text text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    for (size_t at = write_plain(out, text); at < text.len; at += write_plain(out, td_text_skip(text, at))) {
        size_t n = td_utf8_sequence(p + at, text.len - at);
        if (n == 0 || p[at] == 0)
            td_buffer_puts(out, "\xef\xbf\xbd");
        else if (n == 1 && (p[at] < 0x20 || p[at] == 0x7f))
            td_buffer_printf(out, "&#%u;", p[at]);
        else if (n == 1 && td_xml_reference(text.p[at]) != NULL)
            td_buffer_puts(out, td_xml_reference(text.p[at]));
        else
            td_buffer_append(out, p + at, n);
        at += n == 0 ? 1 : n;
    }
}

/* Returns whether the character of n bytes is a space, of any width. */
static bool is_space(const unsigned char *p, size_t n)
{
    static const char *const wide[] = {"\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (td_text_equals(td_text_n((const char *)p, n), wide[i]))
            return true;
    return n == 1 ? *p == ' ' : n == 3 && p[0] == 0xe2 && p[1] == 0x80 && p[2] <= 0x8a; /* U+2000 to U+200A */
}

/* Returns whether the text consists of spaces alone. */
static bool is_blank(struct td_text text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    for (size_t at = 0, n = 0; at < text.len; at += n) {
        n = td_utf8_sequence(p + at, text.len - at);
        if (!is_space(p + at, n))
            return false;
    }
    return true;
}

static void write_name(struct td_buffer *out, struct td_text name)
{
    const size_t half = SHOWN_NAME_BYTES / 2;
    if (name.len <= half && is_blank(name)) { /* else its link would have nothing to be seen */
        td_buffer_puts(out, "<bdi>");
        for (size_t i = 0; i < name.len; i++)
            show_byte(out, (unsigned char)name.p[i]);
        td_buffer_puts(out, "</bdi>");
        return;
    }
    if (name.len <= SHOWN_NAME_BYTES) {
        td_buffer_puts(out, "<bdi>");
        write_text(out, name, false);
        td_buffer_puts(out, "</bdi>");
        return;
    }
    td_buffer_puts(out, "<bdi title=\"");
    write_attribute(out, name);
    td_buffer_puts(out, "\">");
    write_text(out, td_text_n(name.p, td_utf8_cut(name, half)), false);
    td_buffer_puts(out, "&hellip;");
    write_text(out, td_text_skip(name, td_utf8_cut_end(name, half)), false);
    td_buffer_puts(out, "</bdi>");
}

/* Appends a path. A '/' at its beginning would make "//host" of it. */
static void write_path(struct td_buffer *out, struct td_text path)
{
    if (td_text_take_char(&path, '/'))
        td_buffer_puts(out, "%2F");
    td_uri_encode(out, path, true);
}

/* Appends a link if it leads to this server; else a link that leads nowhere. */
static void write_link(struct td_buffer *out, struct td_text link)
{
    bool is_path = link.len > 0 && link.p[0] == '/' && (link.len == 1 || (link.p[1] != '/' && link.p[1] != '\\'));
    bool is_part = link.len > 0 && (link.p[0] == '?' || link.p[0] == '#');
    write_attribute(out, is_path || is_part ? link : TD_TEXT("#"));
}

static void write_value(struct td_buffer *out, enum td_part_kind form, struct td_text value)
{
    switch (form) {
    case TD_PART_TEXT:
        write_text(out, value, false);
        break;
    case TD_PART_PRE:
        write_text(out, value, true);
        break;
    case TD_PART_BDI:
        write_name(out, value);
        break;
    case TD_PART_ATTR:
        write_attribute(out, value);
        break;
    case TD_PART_PATH:
        write_path(out, value);
        break;
    case TD_PART_QUERY:
        td_uri_encode(out, value, false);
        break;
    case TD_PART_LINK:
        write_link(out, value);
        break;
    case TD_PART_CARD:
        td_buffer_append(out, value.p, value.len);
        break;
    case TD_PART_CONSTANT:
    case TD_PART_SECTION:
    case TD_PART_END:
        break;
    }
}

/* ---- rendering ----------------------------------------------------------------------------------------- */

/* Renders the parts first .. end - 1. `depth` sections are around them; templates have at most TD_PAGE_DEPTH. */
static void write_parts(struct page *page, size_t first, size_t end, struct td_page_place *place, size_t depth,
                        struct td_buffer *out)
{
    const struct td_template *template = page->class->page;
    for (size_t i = first; i < end && !out->failed; i++) {
        const struct td_part *part = &template->parts[i];
        if (part->kind == TD_PART_CONSTANT) {
            td_buffer_append(out, template->text + part->number, part->extra);
        } else if (part->kind == TD_PART_SECTION) {
            size_t count = page->class->rows(place, part->number);
            for (size_t row = 0; depth < TD_PAGE_DEPTH && row < count && !out->failed; row++) {
                place->row[depth] = row;
                write_parts(page, i + 1, part->extra, place, depth + 1, out);
            }
            i = part->extra;
        } else {
            td_buffer_clear(&page->value);
            page->class->write(place, part->number, &page->value);
            write_value(out, part->kind, td_buffer_text(&page->value));
            out->failed = out->failed || page->value.failed;
        }
    }
}

/* Finds the stretches of the template. Returns false when memory is short. */
static bool find_stretches(struct page *page)
{
    const struct td_template *template = page->class->page;
    size_t count = 0;
    page->stretches = calloc(template->part_count + 1, sizeof *page->stretches);
    if (page->stretches == NULL)
        return false;
    for (size_t i = 0; i < template->part_count;) {
        struct stretch *stretch = &page->stretches[count++];
        const struct td_part *part = &template->parts[i];
        stretch->first = count == 1 ? 0 : stretch[-1].first + stretch[-1].row_count;
        stretch->is_section = part->kind == TD_PART_SECTION;
        if (stretch->is_section) {
            const struct td_page_place place = {.context = page->context};
            stretch->section = part->number;
            stretch->part = i + 1;
            stretch->end = part->extra;
            stretch->row_count = page->class->rows(&place, part->number);
            i = part->extra + 1;
            continue;
        }
        stretch->part = i;
        while (i < template->part_count && template->parts[i].kind != TD_PART_SECTION)
            i++;
        stretch->end = i;
        stretch->row_count = 1;
    }
    page->stretch_count = count;
    return true;
}

static size_t row_count(const struct page *page)
{
    const struct stretch *last = &page->stretches[page->stretch_count - 1];
    return last->first + last->row_count;
}

/* For td_rendered_class: templates have no text outside of their rows. */
static void write_nothing(void *context, struct td_buffer *out)
{
    (void)context;
    (void)out;
}

static void write_no_tail(void *context, const struct td_rendered_end *end, struct td_buffer *out)
{
    (void)context;
    (void)end;
    (void)out;
}

static size_t write_row(void *context, size_t row, size_t shown, struct td_buffer *out)
{
    struct page *page = context;
    size_t i = 0;
    (void)shown;
    while (i + 1 < page->stretch_count && page->stretches[i + 1].first <= row)
        i++;
    const struct stretch *stretch = &page->stretches[i];
    struct td_page_place place = {.context = page->context, .row = {row - stretch->first}};
    write_parts(page, stretch->part, stretch->end, &place, stretch->is_section ? 1 : 0, out);
    if (!stretch->is_section || page->class->next == NULL)
        return row + 1;
    place.row[0] = row - stretch->first;
    return stretch->first + page->class->next(&place, stretch->section);
}

static void destroy(void *context)
{
    struct page *page = context;
    page->class->destroy(page->context);
    td_buffer_fini(&page->value);
    free(page->stretches);
    free(page);
}

static const struct td_rendered_class rendered_class = {write_nothing, write_row, write_no_tail, destroy};

bool td_page_set(struct td_response *response, const struct td_page_class *class, void *context, struct td_error *err)
{
    struct td_blob *blob = NULL;
    char tag[TD_TAG_BYTES];
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        class->destroy(context);
        return td_error_no_memory(err);
    }
    page->class = class;
    page->context = context;
    td_buffer_init(&page->value);
    if (!find_stretches(page)) {
        destroy(page);
        return td_error_no_memory(err);
    }
    const struct td_rendered_rows rows = {.end = row_count(page), .most_shown = SIZE_MAX, .most_marks = 256};
    bool ok = td_rendered_create(&rendered_class, page, &rows, NULL, NULL, &blob, tag, err) &&
              td_body_append(&response->body, blob, 0, blob->len_bytes, err);
    td_blob_unref(blob);
    if (!ok)
        return false;
    td_response_describe(response, "text/html; charset=utf-8");
    td_response_set_etag(response, tag);
    td_response_add_page_headers(response);
    return true;
}

void td_page_answer(struct td_response *response, const struct td_page_class *class, void *context)
{
    struct td_error err = TD_ERROR_INIT;
    if (!td_page_set(response, class, context, &err))
        td_response_fail_error(response, &err);
    td_response_add_header(response, "Vary", "Accept");
}

void td_page_write(const struct td_page_class *class, void *context, struct td_buffer *out)
{
    struct page page = {.class = class, .context = context};
    struct td_page_place place = {.context = context};
    td_buffer_init(&page.value);
    write_parts(&page, 0, class->page->part_count, &place, 0, out);
    td_buffer_fini(&page.value);
}
