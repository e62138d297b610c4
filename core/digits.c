#include "core/digits.h"

#include "core/checked.h"

size_t td_digits_take(struct td_text *text, uint64_t *out, bool *fits)
{
    uint64_t value = 0;
    bool in_range = true;
    size_t n = 0;
    for (; n < text->len && td_is_digit(text->p[n]); n++)
        in_range = in_range && td_mul_u64(value, 10, &value) && td_add_u64(value, (uint64_t)(text->p[n] - '0'), &value);
    *text = td_text_skip(*text, n);
    *out = in_range ? value : UINT64_MAX;
    if (fits != NULL)
        *fits = in_range;
    return n;
}

bool td_number_read(struct td_text text, uint64_t max, uint64_t *out)
{
    uint64_t value;
    bool fits;
    if (td_digits_take(&text, &value, &fits) == 0 || text.len > 0 || !fits || value > max)
        return false;
    *out = value;
    return true;
}

bool td_number_read_strict(struct td_text text, uint64_t max, uint64_t *out)
{
    bool padded = text.len > 1 && text.p[0] == '0';
    return !padded && td_number_read(text, max, out);
}

size_t td_number_write(uint64_t number, char out[TD_NUMBER_BYTES])
{
    char digits[TD_NUMBER_BYTES];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < n; i++)
        out[i] = digits[n - 1 - i];
    return n;
}

int td_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool td_hex_is_lower(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (td_hex_digit(text.p[i]) < 0 || (text.p[i] >= 'A' && text.p[i] <= 'F'))
            return false;
    return true;
}

static const char hex[] = "0123456789abcdef";

void td_hex_write(const uint8_t *bytes, size_t len, char *text)
{
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = hex[bytes[i] >> 4];
        text[2 * i + 1] = hex[bytes[i] & 15];
    }
    text[2 * len] = '\0';
}

bool td_hex_read_bytes(struct td_text text, uint8_t *bytes, size_t len)
{
    if (len > SIZE_MAX / 2 || text.len != 2 * len || !td_hex_is_lower(text))
        return false;
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(td_hex_digit(text.p[2 * i]) * 16 + td_hex_digit(text.p[2 * i + 1]));
    return true;
}

size_t td_hex_write_number(uint64_t number, char out[TD_HEX_NUMBER_BYTES])
{
    size_t n = 1;
    while (n < TD_HEX_NUMBER_BYTES && number >> (4 * n) != 0)
        n++;
    for (size_t i = n; i-- > 0; number >>= 4)
        out[i] = hex[number & 15];
    return n;
}

bool td_hex_read(struct td_text text, uint64_t *out)
{
    uint64_t value = 0;
    if (text.len == 0 || text.len > 16 || !td_hex_is_lower(text))
        return false;
    for (size_t i = 0; i < text.len; i++)
        value = value << 4 | (uint64_t)td_hex_digit(text.p[i]);
    *out = value;
    return true;
}
