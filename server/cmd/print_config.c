#include "server/cmd/print_config.h"

#include "server/host/terminal.h"

#include <errno.h>

/* Widths of the first two columns of the table; longer values push the third column aside. */
enum { KEY_COLUMN = 28, VALUE_COLUMN = 20 };

/* Writes where the option's value comes from: its spelling there, the file's path, or "default". */
static void write_source(const struct td_config *config, const struct td_option *option, struct td_buffer *out)
{
    char variable[TD_VARIABLE_BYTES];
    switch (td_option_source(config, option)) {
    case TD_CONFIG_DEFAULT:
        td_buffer_puts(out, "default");
        return;
    case TD_CONFIG_FILE:
        td_buffer_puts(out, config->file);
        return;
    case TD_CONFIG_ENVIRONMENT:
        td_config_variable(option->name, variable);
        td_buffer_puts(out, variable);
        return;
    case TD_CONFIG_ARGUMENT:
        if (option->place == TD_OPTION_FILE_ONLY)
            td_buffer_puts(out, option->value);
        else
            td_buffer_printf(out, "--%s", option->name);
        return;
    }
}

/* Appends a line of the JSON object, or of the table without its line feed. */
static bool write_option(const struct td_config *config, const struct td_option *option, bool is_first,
                         struct td_buffer *out, struct td_error *err)
{
    struct td_buffer value;
    td_buffer_init(&value);
    bool ok = td_option_write_json(config, option, &value);
    struct td_text text = td_buffer_text(&value);
    if (!ok) {
        (void)td_error_set(err, TD_FAILED_PRECONDITION, "the value of %s is not UTF-8, so JSON cannot hold it",
                           option->name);
    } else if (value.failed) {
        ok = td_buffer_refuse(&value, err);
    } else if (config->print == TD_CONFIG_PRINT_SOURCES) {
        td_buffer_printf(out, "%-*s %-*.*s ", KEY_COLUMN, option->name, VALUE_COLUMN, (int)text.len, text.p);
        write_source(config, option, out);
    } else {
        td_buffer_printf(out, "%s\n  \"%s\": ", is_first ? "" : ",", option->name);
        td_buffer_append(out, text.p, text.len);
    }
    td_buffer_fini(&value);
    return ok;
}

static bool print_table(const struct td_config *config, FILE *out, struct td_error *err)
{
    const struct td_option *option;
    struct td_buffer line;
    bool ok = true;
    td_buffer_init(&line);
    td_terminal_line(out, "%-*s %-*s %s", KEY_COLUMN, "KEY", VALUE_COLUMN, "VALUE", "FROM");
    for (size_t i = 0; ok && (option = td_option_at(i)) != NULL; i++) {
        if (option->place == TD_OPTION_NOT_IN_FILE)
            continue;
        td_buffer_clear(&line);
        ok = write_option(config, option, false, &line, err);
        const char *text = td_buffer_terminate(&line);
        if (ok && text == NULL)
            ok = td_buffer_refuse(&line, err);
        if (ok)
            td_terminal_line(out, "%s", text);
    }
    td_buffer_fini(&line);
    return ok;
}

static bool print_json(const struct td_config *config, FILE *out, struct td_error *err)
{
    const struct td_option *option;
    struct td_buffer text;
    bool ok = true;
    bool is_first = true;
    td_buffer_init(&text);
    td_buffer_putc(&text, '{');
    for (size_t i = 0; ok && (option = td_option_at(i)) != NULL; i++) {
        if (option->place == TD_OPTION_NOT_IN_FILE)
            continue;
        ok = write_option(config, option, is_first, &text, err);
        is_first = false;
    }
    td_buffer_puts(&text, "\n}\n");
    if (ok && text.failed)
        ok = td_buffer_refuse(&text, err);
    if (ok)
        (void)fwrite(text.data, 1, text.len, out);
    td_buffer_fini(&text);
    return ok;
}

bool td_print_config(const struct td_config *config, FILE *out, struct td_error *err)
{
    bool ok = config->print == TD_CONFIG_PRINT_SOURCES ? print_table(config, out, err) : print_json(config, out, err);
    if (ok && (fflush(out) != 0 || ferror(out)))
        ok = td_error_sys(err, TD_IO, errno, "cannot write the configuration");
    return ok;
}
