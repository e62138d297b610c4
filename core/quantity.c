#include "core/quantity.h"

#include "core/checked.h"
#include "core/clock.h"
#include "core/digits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS ((uint64_t)TD_NS_PER_S)

/* Units of time, the largest first. A number without a unit is in seconds. */
static const struct {
    const char *name;
    uint64_t ns;
} time_units[] = {{"d", 86400 * NS}, {"h", 3600 * NS}, {"m", 60 * NS}, {"s", NS}, {"ms", NS / 1000}, {"", NS}};

enum { TIME_UNITS = sizeof time_units / sizeof *time_units, MOST_FRACTION_DIGITS = 9 };

/* Takes a decimal number as a count of billionths. Returns false for a number without digits, with more than nine
 * digits after its point, or of more than 2^64-1 billionths. */
static bool take_billionths(struct td_text *text, uint64_t *out)
{
    uint64_t whole;
    uint64_t fraction = 0;
    size_t digits = td_digits_take(text, &whole, NULL);
    size_t behind = td_text_take_char(text, '.') ? td_digits_take(text, &fraction, NULL) : 0;
    if (behind > MOST_FRACTION_DIGITS || digits + behind == 0)
        return false;
    for (size_t i = behind; i < MOST_FRACTION_DIGITS; i++)
        fraction *= 10;
    return td_mul_u64(whole, NS, out) && td_add_u64(*out, fraction, out);
}

bool td_duration_read(struct td_text text, uint64_t max_ns, uint64_t *ns)
{
    uint64_t billionths;
    if (!take_billionths(&text, &billionths))
        return false;
    for (size_t i = 0; i < TIME_UNITS; i++) {
        if (!td_text_equals(text, time_units[i].name))
            continue;
        uint64_t value = billionths; /* billionths of a second are nanoseconds */
        bool fits = true;
        if (time_units[i].ns < NS)
            value /= NS / time_units[i].ns;
        else
            fits = td_mul_u64(value, time_units[i].ns / NS, &value);
        if (!fits || value > max_ns)
            return false;
        *ns = value;
        return true;
    }
    return false;
}

bool td_duration_read_s(struct td_text text, uint64_t min_s, uint64_t max_s, uint64_t *seconds)
{
    uint64_t ns;
    if (!td_duration_read(text, max_s * NS, &ns) || ns % NS != 0 || ns / NS < min_s)
        return false;
    *seconds = ns / NS;
    return true;
}

static const char size_letters[] = "KMGT";

bool td_size_read(struct td_text text, uint64_t max, uint64_t *bytes)
{
    uint64_t value;
    bool fits;
    if (td_digits_take(&text, &value, &fits) == 0 || !fits)
        return false;
    if (text.len > 0) {
        const char upper = (char)(text.p[0] >= 'a' && text.p[0] <= 'z' ? text.p[0] - 'a' + 'A' : text.p[0]);
        const char *letter = upper == '\0' ? NULL : strchr(size_letters, upper);
        struct td_text rest = td_text_skip(text, 1);
        bool is_binary =
            rest.len == 0 || td_text_equals_ignore_case(rest, "i") || td_text_equals_ignore_case(rest, "ib");
        if (letter == NULL || (!is_binary && !td_text_equals_ignore_case(rest, "b")))
            return false;
        for (const char *power = size_letters; power <= letter; power++)
            if (!td_mul_u64(value, is_binary ? 1024 : 1000, &value))
                return false;
    }
    if (value > max)
        return false;
    *bytes = value;
    return true;
}

void td_duration_write(uint64_t ns, char out[TD_QUANTITY_BYTES])
{
    for (size_t i = 0; i < TIME_UNITS; i++) {
        if (ns % time_units[i].ns == 0 && (ns > 0 || time_units[i].ns == NS)) {
            (void)snprintf(out, TD_QUANTITY_BYTES, "%" PRIu64 "%s", ns / time_units[i].ns, time_units[i].name);
            return;
        }
    }
    int len = snprintf(out, TD_QUANTITY_BYTES, "%" PRIu64 ".%09" PRIu64, ns / NS, ns % NS);
    while (out[len - 1] == '0')
        len--;
    out[len] = '\0';
}

void td_size_write(uint64_t bytes, char out[TD_QUANTITY_BYTES])
{
    int power = -1;
    for (; bytes > 0 && bytes % 1024 == 0 && power + 1 < (int)sizeof size_letters - 1; power++)
        bytes /= 1024;
    if (power < 0)
        (void)snprintf(out, TD_QUANTITY_BYTES, "%" PRIu64, bytes);
    else
        (void)snprintf(out, TD_QUANTITY_BYTES, "%" PRIu64 "%c", bytes, size_letters[power]);
}
