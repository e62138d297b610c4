/* The plan. `rules` has the tag of each node, what it is and what it may hold: an event that breaks them is refused, so
 * that cells are in rows, and texts in blocks that have texts. A part that must not be written (too deep, a link within
 * a link, anything within an image) is kept on the stack as not written, and its texts are written all the same.
 *
 * make_url() alone decides which addresses are written. All other text goes through put_text(), which escapes. */
#include "rank/card_html.h"

#include "core/array.h"
#include "core/digits.h"
#include "core/utf8.h"
#include "http/uri.h"
#include "http/xml.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

/* Classes of nodes: rules[] says the class of each node, and the classes that it may hold. */
enum { BLOCK = 1, ITEM = 2, INLINE = 4, VERBATIM = 8, SECTION = 16, ROW = 32, CELL = 64 };

/* Where new blocks within blocks end, so that tables and texts within the deepest block fit into TD_CARD_LEVELS. */
enum { BLOCK_LEVELS = TD_CARD_LEVELS - 8 };

static const struct rule {
    unsigned is, holds;
    unsigned levels; /* elements that the node adds */
    const char *begin, *end;
} rules[TD_CARD_NODES] = {
    [TD_CARD_QUOTE] = {BLOCK, BLOCK, 1, "<blockquote>\n", "</blockquote>\n"},
    [TD_CARD_BULLETS] = {BLOCK, ITEM, 1, "<ul>\n", "</ul>\n"},
    [TD_CARD_NUMBERS] = {BLOCK, ITEM, 1, "<ol", "</ol>\n"},
    [TD_CARD_ITEM] = {ITEM, BLOCK | INLINE, 1, "<li>", "</li>\n"},
    [TD_CARD_RULE] = {BLOCK, 0, 0, "<hr>\n", ""},
    [TD_CARD_HEADING] = {BLOCK, INLINE, 1, "", ""},
    [TD_CARD_CODE_BLOCK] = {BLOCK, VERBATIM, 2, "<pre tabindex=\"0\"><code>", "</code></pre>\n"},
    [TD_CARD_PARAGRAPH] = {BLOCK, INLINE, 1, "<p>", "</p>\n"},
    [TD_CARD_TABLE] = {BLOCK, SECTION, 2, "<div class=\"scroll\" tabindex=\"0\"><table>\n", "</table></div>\n"},
    [TD_CARD_HEAD] = {SECTION, ROW, 1, "<thead>\n", "</thead>\n"},
    [TD_CARD_BODY] = {SECTION, ROW, 1, "<tbody>\n", "</tbody>\n"},
    [TD_CARD_ROW] = {ROW, CELL, 1, "<tr>", "</tr>\n"},
    [TD_CARD_HEAD_CELL] = {CELL, INLINE, 1, "<th scope=\"col\"", "</th>"},
    [TD_CARD_CELL] = {CELL, INLINE, 1, "<td", "</td>"},
    [TD_CARD_EMPHASIS] = {INLINE, INLINE, 1, "<em>", "</em>"},
    [TD_CARD_STRONG] = {INLINE, INLINE, 1, "<strong>", "</strong>"},
    [TD_CARD_STRIKE] = {INLINE, INLINE, 1, "<del>", "</del>"},
    [TD_CARD_CODE] = {INLINE, VERBATIM, 1, "<code>", "</code>"},
    [TD_CARD_LINK] = {INLINE, INLINE, 1, "<a href=\"", "</a>"},
    [TD_CARD_IMAGE] = {INLINE, INLINE, 1, "", ""},
};

/* A byte of the stack. */
enum { NODE_MASK = 0x7F, IS_WRITTEN = 0x80 };

/* ---- text ---------------------------------------------------------------------------------------------- */

/* Leaves room after the limit for the ends of all parts, the id of a heading, and the sentence about the cut. */
enum { ROOM_BYTES = 16384, LIMIT_BYTES = TD_CARD_HTML_BYTES - ROOM_BYTES };

static size_t written(const struct td_card_html *html)
{
    return html->out->len - html->start;
}

/* Returns the text that replaces a byte in HTML; NULL for a byte that stays. */
static const char *escape_of(char c)
{
    bool is_control = ((unsigned char)c < 0x20 && c != '\t' && c != '\n') || c == 0x7F;
    return is_control ? REPLACEMENT : td_xml_reference(c);
}

/* Appends text so that nothing in it begins a tag or ends an attribute. Cuts it where the HTML is full. */
static void put_text(struct td_card_html *html, struct td_text text)
{
    size_t plain = 0; /* start of the run that is not yet written */
    size_t room = written(html) < LIMIT_BYTES ? LIMIT_BYTES - written(html) : 0;
    size_t len = td_text_shown(text, room);
    html->is_full = html->is_full || len < text.len;
    for (size_t i = 0; i < len; i++) {
        const char *escape = escape_of(text.p[i]);
        if (escape == NULL)
            continue;
        td_buffer_append(html->out, text.p + plain, i - plain);
        td_buffer_puts(html->out, escape);
        plain = i + 1;
        if (written(html) > LIMIT_BYTES) {
            html->is_full = true;
            return;
        }
    }
    td_buffer_append(html->out, text.p + plain, len - plain);
}

/* Returns the length of the entity that the text begins with; 0 when it begins with none. */
static size_t entity_len(struct td_text text)
{
    enum { MOST_BYTES = 50 }; /* as md4c */
    size_t i = 1;
    if (text.len < 3 || text.p[0] != '&')
        return 0;
    i += text.p[1] == '#' ? 1 : 0;
    while (i < text.len && i < MOST_BYTES && td_is_letter_or_digit(text.p[i]))
        i++;
    if (i == text.len || text.p[i] != ';')
        return 0;
    bool is_name = td_is_letter(text.p[1]) && i > 2;
    return is_name || td_card_entity_number(td_text_n(text.p, i + 1)) != 0 ? i + 1 : 0;
}

/* Appends an entity with a name as it is, since browsers know the names, and one with a number as the character. */
static void put_entity(struct td_card_html *html, struct td_text entity)
{
    char bytes[4];
    uint32_t c = td_card_entity_number(entity);
    if (c != 0)
        put_text(html, td_text_n(bytes, td_utf8_encode(c, bytes)));
    else
        td_buffer_append(html->out, entity.p, entity.len);
}

/* Appends text in which entities stay entities. */
static void put_text_with_entities(struct td_card_html *html, struct td_text text)
{
    while (text.len > 0 && !html->is_full) {
        const char *next = memchr(text.p, '&', text.len);
        size_t plain = next == NULL ? text.len : (size_t)(next - text.p);
        put_text(html, td_text_n(text.p, plain));
        text = td_text_skip(text, plain);
        size_t len = entity_len(text);
        if (len > 0)
            put_entity(html, td_text_n(text.p, len));
        else
            put_text(html, td_text_n(text.p, text.len > 0 ? 1 : 0));
        text = td_text_skip(text, len > 0 || text.len == 0 ? len : 1);
    }
}

/* ---- ids of headings ----------------------------------------------------------------------------------- */

enum { WORDS_BYTES = 128 };

/* Appends the words of a text as they are in an id: letters, digits, '_' and '-', in lower case where they are ASCII,
 * with '-' for blanks. Leaves out what is mostly punctuation and pictures in other scripts: U+0080 to U+00BF, U+2000 to
 * U+2FFF, U+3000 to U+303F, and all from U+E000 on. */
static void put_words(struct td_buffer *out, struct td_text text)
{
    const uint8_t *p = (const uint8_t *)text.p;
    size_t n;
    for (size_t i = 0; i < text.len && out->len < WORDS_BYTES; i += n) {
        char c = text.p[i];
        n = td_utf8_sequence(p + i, text.len - i);
        if (n == 1 && (td_is_letter_or_digit(c) || c == '_' || c == '-'))
            td_buffer_putc(out, c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c);
        else if (c == ' ' || c == '\n')
            td_buffer_putc(out, '-');
        else if ((n == 2 && p[i] >= 0xC3) ||
                 (n == 3 && p[i] != 0xE2 && p[i] < 0xEE && !(p[i] == 0xE3 && p[i + 1] == 0x80)))
            td_buffer_append(out, text.p + i, n);
        n += n == 0 ? 1 : 0;
    }
}

static struct td_card_id *find_id(const struct td_card_html *html, struct td_text words)
{
    for (size_t i = 0; i < html->item_count; i++) {
        const struct td_card_id *item = &html->items[i];
        if (item->len == words.len && memcmp(html->ids.data + item->off, words.p, words.len) == 0)
            return &html->items[i];
    }
    return NULL;
}

/* Makes the words of the heading an id that no other heading has: appends "-1", "-2" ... Returns false when the
 * heading gets no id, because it has no words or there are too many headings. */
static bool make_id(struct td_card_html *html)
{
    enum { TRIES = 8 };
    struct td_buffer *words = &html->words;
    const size_t len = words->len;
    if (len == 0 || words->failed || html->item_count == TD_CARD_IDS ||
        !TD_ARRAY_GROW(html->items, html->item_count, html->item_capacity, NULL))
        return false;
    struct td_card_id *same = find_id(html, td_buffer_text(words));
    for (int tries = 0; same != NULL && find_id(html, td_buffer_text(words)) != NULL; tries++) {
        if (tries == TRIES)
            return false;
        words->len = len;
        td_buffer_printf(words, "-%u", ++same->next);
    }
    html->items[html->item_count++] = (struct td_card_id){.off = html->ids.len, .len = words->len};
    td_buffer_append(&html->ids, words->data, words->len);
    return true;
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

/* Where an address leads. */
enum place { NOWHERE, OTHER_SITE, MAIL, FOLDER, FRAGMENT };

/* Removes and returns the next character of an address as a lenient reader sees it: without blanks and control
 * characters, and with percent signs decoded. Returns -1 at the end. */
static int next_seen(struct td_text *rest)
{
    while (rest->len > 0) {
        int c = (unsigned char)rest->p[0];
        size_t used = 1;
        int high = c == '%' && rest->len > 2 ? td_hex_digit(rest->p[1]) : -1;
        int low = high >= 0 ? td_hex_digit(rest->p[2]) : -1;
        if (low >= 0) {
            c = high * 16 + low;
            used = 3;
        }
        *rest = td_text_skip(*rest, used);
        if (c > 0x20 && c != 0x7F)
            return c;
    }
    return -1;
}

/* Returns where the address leads. If a lenient reader would see a scheme, it must be a known one, and be spelled
 * plainly. */
static enum place place_of(struct td_text address)
{
    struct td_text rest = address;
    char scheme[8] = {0};
    size_t len = 0;
    int c = next_seen(&rest);
    if (address.len > 0 && address.p[0] == '#')
        return FRAGMENT;
    if (c < 0 || c == '/' || c == '\\' || c == '?' || c == '#')
        return NOWHERE;
    bool may_be_scheme = c < 0x80 && td_is_letter((char)c);
    for (; c >= 0 && c < 0x80 && (td_is_letter_or_digit((char)c) || c == '+' || c == '-' || c == '.');
         c = next_seen(&rest)) {
        if (len < sizeof scheme - 1)
            scheme[len] = (char)c;
        len++;
    }
    if (c != ':' || !may_be_scheme)
        return FOLDER;
    if (len >= sizeof scheme || !td_text_begins_ignore_case(address, scheme) || address.p[len] != ':')
        return NOWHERE;
    struct td_text name = td_text_n(scheme, len);
    if (td_text_equals_ignore_case(name, "mailto"))
        return address.len > len + 1 ? MAIL : NOWHERE;
    bool is_web = td_text_equals_ignore_case(name, "http") || td_text_equals_ignore_case(name, "https");
    rest = td_text_skip(address, len + 1);
    return is_web && rest.len > 2 && rest.p[0] == '/' && rest.p[1] == '/' ? OTHER_SITE : NOWHERE;
}

/* Appends an address, with percent signs for the bytes that may not stand in one. */
static void put_address(struct td_buffer *out, struct td_text address)
{
    static const char allowed[] = "-._~:/?#[]@!$&()*+,;=%";
    for (size_t i = 0; i < address.len; i++) {
        char c = address.p[i];
        if (c != '\0' && (td_is_letter_or_digit(c) || strchr(allowed, c) != NULL))
            td_buffer_putc(out, c);
        else
            td_uri_encode(out, td_text_n(&c, 1), false);
    }
}

/* Decodes a part of an address into html->path. Returns false when it cannot be decoded, or has control characters or
 * a backslash, which browsers take for '/'. */
static bool decode_part(struct td_card_html *html, struct td_text part)
{
    struct td_error none = TD_ERROR_INIT;
    td_buffer_clear(&html->path);
    if (!td_buffer_reserve(&html->path, part.len + 1) ||
        !td_uri_decode(part, false, "a link", html->path.data, &html->path.len, &none))
        return false;
    for (size_t i = 0; i < html->path.len; i++) {
        unsigned char c = (unsigned char)html->path.data[i];
        if (c < 0x20 || c == 0x7F || c == '\\')
            return false;
    }
    return true;
}

/* Removes "." and ".." from the decoded path in html->path. Returns false when it leads above its beginning. */
static bool resolve_path(struct td_buffer *path)
{
    struct td_text rest = td_text_n(path->data, path->len);
    size_t len = 0;
    bool ends_in_slash = path->len > 0 && path->data[path->len - 1] == '/';
    bool is_folder = false;
    while (rest.len > 0) {
        struct td_text part = td_text_take_until(&rest, '/');
        is_folder = part.len == 0 || td_text_equals(part, ".") || td_text_equals(part, "..");
        if (td_text_equals(part, "..")) {
            if (len == 0)
                return false;
            for (len--; len > 0 && path->data[len - 1] != '/';)
                len--;
        } else if (!is_folder) {
            memmove(path->data + len, part.p, part.len);
            len += part.len;
            path->data[len++] = '/'; /* over the separator, or in the byte that decode_part() reserves */
        }
    }
    path->len = len - (len > 0 && !is_folder && !ends_in_slash ? 1 : 0);
    return true;
}

/* Writes the address to html->url as a page may have it, not yet escaped for HTML. Returns false for an address that
 * becomes text. */
static bool make_url(struct td_card_html *html, struct td_text address, enum place *place)
{
    struct td_buffer *url = &html->url;
    td_buffer_clear(url);
    *place = place_of(address);
    if (*place == OTHER_SITE || *place == MAIL) {
        put_address(url, address);
    } else if (*place == FRAGMENT) {
        if (!decode_part(html, td_text_skip(address, 1)))
            return false;
        put_words(url, td_buffer_text(&html->path));
        td_buffer_clear(&html->path);
        td_buffer_append(&html->path, url->data, url->len);
        td_buffer_clear(url);
        td_buffer_puts(url, "#card-");
        td_uri_encode(url, td_buffer_text(&html->path), false);
        return html->path.len > 0;
    } else if (*place == FOLDER) {
        size_t len = 0;
        while (len < address.len && address.p[len] != '?' && address.p[len] != '#')
            len++;
        if (!decode_part(html, td_text_n(address.p, len)) || !resolve_path(&html->path))
            return false;
        td_buffer_append(url, html->base.p, html->base.len);
        td_uri_encode(url, td_buffer_text(&html->path), true);
        put_address(url, td_text_skip(address, len));
    }
    return *place != NOWHERE;
}

/* ---- parts that begin ---------------------------------------------------------------------------------- */

static enum td_card_node top_of(const struct td_card_html *html)
{
    return (enum td_card_node)((unsigned char)html->open.data[html->open.len - 1] & NODE_MASK);
}

/* Returns the classes of nodes that may begin now. */
static unsigned holds_now(const struct td_card_html *html)
{
    return html->open.len == 0 ? BLOCK : rules[top_of(html)].holds;
}

static bool is_top_written(const struct td_card_html *html)
{
    return html->open.len == 0 || ((unsigned char)html->open.data[html->open.len - 1] & IS_WRITTEN) != 0;
}

/* Writes the mark of a task before the first text of its item. */
static void put_task(struct td_card_html *html)
{
    if (html->task != 0)
        td_buffer_puts(html->out, html->task == 1 ? "\xE2\x98\x90 " : "\xE2\x98\x91 "); /* U+2610, U+2611 */
    html->task = 0;
}

/* Returns whether the part is written: it is neither too deep nor within an image. */
static bool may_write(const struct td_card_html *html, enum td_card_node node)
{
    const struct rule *rule = &rules[node];
    if (rule->is == ITEM)
        return is_top_written(html); /* as its list */
    if (node == TD_CARD_QUOTE)
        return html->levels < BLOCK_LEVELS;
    if (node == TD_CARD_BULLETS || node == TD_CARD_NUMBERS)
        return html->levels + 1 < BLOCK_LEVELS;
    return rule->is != INLINE || (html->images == 0 && html->levels < TD_CARD_LEVELS);
}

/* Appends the end of a value with an address, the `rel` of a link to another site, and the title. */
static void put_address_end(struct td_card_html *html, struct td_text title, bool is_other)
{
    td_buffer_puts(html->out, is_other ? "\" rel=\"noreferrer nofollow noopener\"" : "\"");
    if (title.len == 0)
        return;
    td_buffer_puts(html->out, " title=\"");
    put_text_with_entities(html, title);
    td_buffer_putc(html->out, '"');
}

/* Begins a link. Returns false for an address that becomes text. */
static bool begin_link(struct td_card_html *html, const struct td_card_event *event)
{
    enum place place;
    if (html->in_link || !make_url(html, event->text, &place))
        return false;
    td_buffer_puts(html->out, rules[TD_CARD_LINK].begin);
    put_text(html, td_buffer_text(&html->url));
    put_address_end(html, event->title, place == OTHER_SITE || place == MAIL);
    td_buffer_putc(html->out, '>');
    return true;
}

/* Begins an image, or a link in its place. Returns false for an address that becomes text. */
static bool begin_image(struct td_card_html *html, const struct td_card_event *event)
{
    enum place place;
    bool has_url = make_url(html, event->text, &place);
    if (has_url && place == FOLDER) {
        html->image = TD_CARD_IMAGE_FILE;
        td_buffer_puts(html->out, "<img loading=\"lazy\" src=\"");
        put_text(html, td_buffer_text(&html->url));
        put_address_end(html, event->title, false);
        td_buffer_puts(html->out, " alt=\"");
        return true;
    }
    if (!has_url || place != OTHER_SITE || !begin_link(html, event))
        return false;
    html->image = TD_CARD_IMAGE_LINK;
    return true;
}

/* Writes the beginning of a part. Returns false for a part that only its texts are written of. */
static bool put_begin(struct td_card_html *html, const struct td_card_event *event)
{
    static const char *const aligns[] = {[TD_CARD_ALIGN_NONE] = ">",
                                         [TD_CARD_ALIGN_LEFT] = " align=\"left\">",
                                         [TD_CARD_ALIGN_CENTER] = " align=\"center\">",
                                         [TD_CARD_ALIGN_RIGHT] = " align=\"right\">"};
    if (!may_write(html, event->node))
        return false;
    if (event->node == TD_CARD_LINK)
        return begin_link(html, event);
    if (event->node == TD_CARD_IMAGE)
        return begin_image(html, event);
    td_buffer_puts(html->out, rules[event->node].begin);
    if (event->node == TD_CARD_NUMBERS)
        td_buffer_printf(html->out, event->number == 1 ? ">\n" : " start=\"%u\">\n", event->number);
    else if (rules[event->node].is == CELL)
        td_buffer_puts(html->out, aligns[event->number]);
    return true;
}

/* Returns whether the event's number is one that its node can have. */
static bool is_number_right(const struct td_card_event *event)
{
    enum { LEVELS = 6, MOST_NUMBER = 999999999, TASKS = 2 };
    switch (event->node) {
    case TD_CARD_HEADING:
        return event->number >= 1 && event->number <= LEVELS;
    case TD_CARD_NUMBERS:
        return event->number <= MOST_NUMBER;
    case TD_CARD_ITEM:
        return event->number <= TASKS;
    case TD_CARD_HEAD_CELL:
    case TD_CARD_CELL:
        return event->number <= TD_CARD_ALIGN_RIGHT;
    default:
        return true;
    }
}

/* Notes where the text of a part begins. */
static void note_begin(struct td_card_html *html, const struct td_card_event *event, bool is_written)
{
    bool makes_link = event->node == TD_CARD_LINK ||
                      (event->node == TD_CARD_IMAGE && html->images == 0 && html->image == TD_CARD_IMAGE_LINK);
    if (makes_link && is_written) {
        html->in_link = true;
        html->link_at = html->out->len;
    }
    if (event->node == TD_CARD_IMAGE && html->images++ == 0)
        html->image_at = html->out->len;
    if (event->node == TD_CARD_HEADING) {
        html->heading_level = event->number < 6 ? event->number + 1 : 6;
        html->heading_at = html->out->len;
        td_buffer_clear(&html->words);
    }
    html->in_heading = html->in_heading || event->node == TD_CARD_HEADING;
    html->levels += is_written ? rules[event->node].levels : 0;
    td_buffer_putc(&html->open, (char)(event->node | (is_written ? IS_WRITTEN : 0)));
}

/* Begins a part. Returns false when it may not begin here. */
static bool begin_part(struct td_card_html *html, const struct td_card_event *event)
{
    if ((rules[event->node].is & holds_now(html)) == 0 || !is_number_right(event))
        return false;
    const size_t before = html->out->len;
    if (event->node != TD_CARD_PARAGRAPH)
        put_task(html);
    if (html->images == 0)
        html->image = TD_CARD_IMAGE_TEXT;
    bool is_written = put_begin(html, event);
    html->is_full = html->is_full || written(html) > LIMIT_BYTES;
    if (html->is_full) {
        html->out->len = before; /* a tag is written whole or not at all */
        return true;
    }
    note_begin(html, event, is_written);
    if (event->node == TD_CARD_PARAGRAPH)
        put_task(html);
    if (event->node == TD_CARD_ITEM)
        html->task = event->number;
    return true;
}

/* ---- parts that end ------------------------------------------------------------------------------------ */

/* Puts the tags around the text of a heading, which has ended. A heading without a text is left out. */
static void end_heading(struct td_card_html *html)
{
    struct td_buffer *out = html->out;
    struct td_buffer *tag = &html->url;
    html->in_heading = false;
    size_t len = out->len - html->heading_at;
    if (len == 0)
        return;
    td_buffer_clear(tag);
    if (make_id(html)) {
        td_buffer_printf(tag, "<h%u id=\"card-", html->heading_level);
        td_buffer_append(tag, html->words.data, html->words.len);
        td_buffer_puts(tag, "\">");
    } else {
        td_buffer_printf(tag, "<h%u>", html->heading_level);
    }
    if (tag->failed || !td_buffer_reserve(out, tag->len)) {
        out->failed = true;
        return;
    }
    memmove(out->data + html->heading_at + tag->len, out->data + html->heading_at, len);
    memcpy(out->data + html->heading_at, tag->data, tag->len);
    out->len += tag->len;
    td_buffer_printf(out, "</h%u>\n", html->heading_level);
}

/* Ends the outermost image. Writes a word in place of a missing description where a text is needed: in a link, and
 * where no image is shown. */
static void end_image(struct td_card_html *html, bool is_written)
{
    bool needs_word = html->in_link || html->image != TD_CARD_IMAGE_FILE;
    if (html->out->len == html->image_at && needs_word)
        td_buffer_puts(html->out, "image");
    if (!is_written)
        return;
    td_buffer_puts(html->out, html->image == TD_CARD_IMAGE_FILE ? "\">" : rules[TD_CARD_LINK].end);
    if (html->image == TD_CARD_IMAGE_LINK)
        html->in_link = false;
}

/* Ends a link. Writes a word in a link without a text. */
static void end_link(struct td_card_html *html)
{
    if (html->out->len == html->link_at)
        td_buffer_puts(html->out, "link");
    td_buffer_puts(html->out, rules[TD_CARD_LINK].end);
    html->in_link = false;
}

/* Ends the part that began last. */
static void end_part(struct td_card_html *html)
{
    enum td_card_node node = top_of(html);
    bool is_written = is_top_written(html);
    html->open.len--;
    html->levels -= is_written ? rules[node].levels : 0;
    if (node == TD_CARD_ITEM)
        put_task(html);
    if (node == TD_CARD_HEADING)
        end_heading(html);
    else if (node == TD_CARD_IMAGE && --html->images == 0)
        end_image(html, is_written);
    else if (node == TD_CARD_LINK && is_written)
        end_link(html);
    else if (is_written)
        td_buffer_puts(html->out, rules[node].end);
}

/* ---- events -------------------------------------------------------------------------------------------- */

/* Takes a text, or the end of a line. Returns false where no text may be. */
static bool take_text(struct td_card_html *html, const struct td_card_event *event)
{
    if ((holds_now(html) & (INLINE | VERBATIM)) == 0)
        return false;
    put_task(html);
    bool is_end = event->kind == TD_CARD_LINE_END || event->kind == TD_CARD_LINE_BREAK;
    if (html->in_heading && event->kind != TD_CARD_ENTITY)
        put_words(&html->words, is_end ? TD_TEXT(" ") : event->text);
    if (event->kind == TD_CARD_TEXT)
        put_text(html, event->text);
    else if (event->kind == TD_CARD_ENTITY)
        put_text_with_entities(html, event->text);
    else
        td_buffer_puts(html->out, event->kind == TD_CARD_LINE_BREAK && html->images == 0 ? "<br>\n" : "\n");
    html->is_full = html->is_full || written(html) > LIMIT_BYTES;
    return true;
}

void td_card_html_begin(struct td_card_html *html, struct td_text base, struct td_buffer *out)
{
    *html = (struct td_card_html){.out = out, .start = out->len, .base = base};
    td_buffer_init(&html->open);
    td_buffer_init(&html->url);
    td_buffer_init(&html->path);
    td_buffer_init(&html->words);
    td_buffer_init(&html->ids);
}

static bool has_failed(const struct td_card_html *html)
{
    return html->out->failed || html->open.failed || html->url.failed || html->path.failed || html->words.failed ||
           html->ids.failed;
}

bool td_card_html_take(void *context, const struct td_card_event *event, struct td_error *err)
{
    struct td_card_html *html = context;
    bool is_right = true;
    if (event->kind == TD_CARD_BEGIN)
        is_right = begin_part(html, event);
    else if (event->kind != TD_CARD_END)
        is_right = take_text(html, event);
    else if (html->open.len > 0)
        end_part(html);
    else
        is_right = false;
    if (has_failed(html))
        return td_error_no_memory(err);
    if (!is_right)
        return td_error_set(err, TD_INTERNAL, "the parser's process gave a card that cannot be right");
    return !html->is_full;
}

bool td_card_html_end(struct td_card_html *html, bool is_cut, struct td_error *err)
{
    while (html->open.len > 0)
        end_part(html);
    if (is_cut || html->is_full) {
        td_buffer_puts(html->out, "<p>The card is cut here. <a href=\"");
        td_buffer_append(html->out, html->base.p, html->base.len);
        td_buffer_puts(html->out, "README.md\">README.md</a> has all of it.</p>\n");
    }
    bool ok = !has_failed(html) || td_error_no_memory(err);
    free(html->items);
    td_buffer_fini(&html->open);
    td_buffer_fini(&html->url);
    td_buffer_fini(&html->path);
    td_buffer_fini(&html->words);
    td_buffer_fini(&html->ids);
    return ok;
}
