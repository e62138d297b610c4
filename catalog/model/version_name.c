#include "catalog/model/version_name.h"

#include "core/digits.h"

#include <string.h>

static const struct {
    const char *prefix;
    bool takes_separator; /* "-" or "_" may stand between the prefix and the number */
} known_prefixes[] = {
    {"", false},    {"weight_v", false},   {"v", false},         {"version", true},
    {"step", true}, {"global_step", true}, {"globalstep", true}, {"checkpoint", true},
    {"iter", true}, {"epoch", true},       {"delta", true},
};

/* Sets *number to the value of the text after the prefix. Returns false when the name does not begin with the prefix or
 * something other than 1 to 18 digits follows. */
static bool read_after(struct td_text name, const char *prefix, bool takes_separator, uint64_t *number)
{
    struct td_text beginning = td_text_of(prefix);
    if (!td_text_begins(name, beginning))
        return false;
    struct td_text digits = td_text_skip(name, beginning.len);
    if (takes_separator && !td_text_take_char(&digits, '-'))
        (void)td_text_take_char(&digits, '_');
    return digits.len <= TD_VERSION_DIGITS && td_number_read(digits, UINT64_MAX, number);
}

bool td_version_name_parse(struct td_text name, const struct td_version_prefixes *more, uint64_t *number)
{
    uint64_t value = 0;
    bool found = false;
    for (size_t i = 0; !found && i < sizeof known_prefixes / sizeof *known_prefixes; i++)
        found = read_after(name, known_prefixes[i].prefix, known_prefixes[i].takes_separator, &value);
    for (size_t i = 0; !found && more != NULL && i < more->count; i++)
        found = read_after(name, more->items[i], false, &value);
    if (found && number != NULL)
        *number = value;
    return found;
}

bool td_version_split_folder(struct td_text folder, struct td_text *name, struct td_text *version, bool *is_subfolder)
{
    *version = folder;
    *name = td_text_take_until(version, '@');
    *is_subfolder = td_text_take_char(version, '@');
    return name->len > 0 && version->len > 0;
}

int td_version_name_compare(uint64_t a_number, struct td_text a, uint64_t b_number, struct td_text b)
{
    return a_number != b_number ? (a_number > b_number) - (a_number < b_number) : td_text_compare(a, b);
}
