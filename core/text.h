/* Borrowed text: a pointer and a length, without a NUL. The only type for text that somebody else owns. */
#ifndef TD_CORE_TEXT_H
#define TD_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_text {
    const char *p; /* borrowed; may be NULL when len is 0 */
    size_t len;    /* bytes */
};

/* The text of a string literal. */
#define TD_TEXT(literal) ((struct td_text){.p = (literal), .len = sizeof(literal) - 1})

/* Two arguments for "%.*s": at most the first `most` bytes of the text, as td_text_shown. Evaluates `text` twice. */
#define TD_SHOW(text, most) (int)td_text_shown((text), (most)), (text).p

/* Returns the text of `len` bytes at `p`, which it borrows. */
static inline struct td_text td_text_n(const char *p, size_t len)
{
    return (struct td_text){.p = p, .len = len};
}

/* Returns how many of the first `most` bytes a message shows: those that cut no UTF-8 character. A text that is not
 * UTF-8 may be cut anywhere. */
size_t td_text_shown(struct td_text text, size_t most);

/* Returns the text without its first n bytes; n is at most its length. A NULL pointer stays NULL. */
static inline struct td_text td_text_skip(struct td_text text, size_t n)
{
    return td_text_n(n == 0 ? text.p : text.p + n, text.len - n); /* NULL + 0 is not defined */
}

/* Return whether the byte is a digit, a letter of ASCII, or one of both, in any locale. */
static inline bool td_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline bool td_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline bool td_is_letter_or_digit(char c)
{
    return td_is_letter(c) || td_is_digit(c);
}

/* Returns the text of a NUL-terminated string, which it borrows. */
struct td_text td_text_of(const char *string);

/* Returns a copy of the text with a NUL after it, which the caller frees with free(); NULL when memory is short. */
char *td_text_copy(struct td_text text);

/* Return whether the text is this NUL-terminated word. td_text_equals_ignore_case ignores the case of ASCII letters. */
bool td_text_equals(struct td_text text, const char *word);
bool td_text_equals_ignore_case(struct td_text text, const char *word);

/* Returns whether the text begins with this NUL-terminated word, in any case of ASCII letters. */
bool td_text_begins_ignore_case(struct td_text text, const char *word);

/* Compares two texts byte by byte; a prefix comes before longer texts. All listings have this order. Returns a number
 * below, equal to or above 0. */
int td_text_compare(struct td_text a, struct td_text b);

/* Returns whether the text begins with `beginning`. */
bool td_text_begins(struct td_text text, struct td_text beginning);

/* Removes the character from the beginning of the text. Returns false and changes nothing when the text does not begin
 * with it. */
bool td_text_take_char(struct td_text *text, char c);

/* Removes and returns the part before the first separator, which is removed as well. Without a separator the part is
 * the whole text, and nothing remains. */
struct td_text td_text_take_until(struct td_text *text, char separator);

/* Removes and returns the part after the last separator, which is removed as well. Without a separator the part is the
 * whole text, and nothing remains. */
struct td_text td_text_take_last(struct td_text *text, char separator);

/* Returns the text without the characters at its ends that are among these blanks, such as " \t". */
struct td_text td_text_trim(struct td_text text, const char *blanks);

/* Sets the line and the column of byte `pos`, both from 1; columns count characters of UTF-8. */
void td_text_locate(struct td_text text, uint64_t pos, size_t *line, size_t *column);

/* Returns whether the name ends in this extension (".bin") with at least one character before it. */
bool td_has_extension(const char *name, const char *extension);

/* Does the same and ignores the case of ASCII letters. */
bool td_has_extension_any_case(const char *name, const char *extension);

#endif
