#include "server/host/terminal.h"

#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Writes the escaped text between `before` and `after` in one piece; when out of memory, only its beginning. */
static void write_shown(FILE *out, const char *before, struct td_text text, const char *after)
{
    char small[1024];
    struct td_buffer memory;
    td_buffer_init(&memory);
    bool fits = td_buffer_reserve(&memory, 4 * text.len + 1);
    char *shown = fits ? memory.data : small;
    td_utf8_escape(text, shown, fits ? 4 * text.len + 1 : sizeof small);
    (void)fprintf(out, "%s%s%s", before, shown, after);
    td_buffer_fini(&memory);
}

__attribute__((format(printf, 3, 0))) static void write_line(FILE *out, const char *before, const char *format,
                                                             va_list args)
{
    char small[1024];
    struct td_buffer memory;
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    size_t len = n < 0 ? 0 : (size_t)n;
    td_buffer_init(&memory);
    const char *text = small;
    if (len >= sizeof small && td_buffer_reserve(&memory, len + 1)) {
        (void)vsnprintf(memory.data, len + 1, format, again);
        text = memory.data;
    }
    va_end(again);
    write_shown(out, before, td_text_of(text), "\n");
    td_buffer_fini(&memory);
}

void td_terminal_line(FILE *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(out, "", format, args);
    va_end(args);
}

void td_terminal_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(stderr, "tensord: ", format, args);
    va_end(args);
}

void td_terminal_text(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        write_shown(out, "", td_text_n(text, len), "\n");
        text += text[len] == '\n' ? len + 1 : len;
    }
}

const char *td_terminal_name(const char *text, struct td_buffer *memory)
{
    size_t len = strlen(text);
    td_buffer_clear(memory);
    if (!td_buffer_reserve(memory, 4 * len + 1))
        return "?";
    td_utf8_escape(td_text_n(text, len), memory->data, 4 * len + 1);
    return memory->data;
}

int td_terminal_width(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80 ? 1 : 0;
    return width;
}

struct td_terminal_size td_terminal_size(uint64_t bytes)
{
    struct td_terminal_size size;
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(size.text, sizeof size.text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return size;
}
