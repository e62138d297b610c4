#include "server/terminal.h"

#include "core/utf8.h"

#include <stdio.h>
#include <string.h>

const char *td_terminal_name(const char *text, struct td_buffer *memory)
{
    size_t len = strlen(text);
    td_buffer_clear(memory);
    if (!td_buffer_reserve(memory, 4 * len + 1))
        return "?";
    td_utf8_escape(text, len, memory->data, 4 * len + 1);
    return memory->data;
}

int td_terminal_width(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80 ? 1 : 0;
    return width;
}

void td_terminal_bytes(uint64_t bytes, char *out, size_t capacity)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, capacity, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}
