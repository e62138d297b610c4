#include "server/cmd/shared/command_line.h"

#include "server/config/suggest.h"
#include "server/host/terminal.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool td_take_option(int argc, char **argv, int *i, const char *name, const char **value)
{
    size_t len = strlen(name);
    const char *argument = argv[*i];
    if (strncmp(argument, name, len) != 0 || (argument[len] != '\0' && argument[len] != '='))
        return false;
    if (argument[len] == '=')
        *value = argument + len + 1;
    else if (*i + 1 < argc)
        *value = argv[++*i];
    else
        *value = NULL;
    return true;
}

int td_refuse_usage(const char *fault, const char *what, const char *const *options, const char *usage)
{
    char near[TD_SUGGEST_BYTES] = "";
    if (what[0] == '-')
        td_suggest(what, "--", options, near);
    td_terminal_complain("%s%.200s%s; usage: %s", fault, what, near, usage);
    return TD_EXIT_USAGE;
}

/* ---- all arguments of a command ------------------------------------------------------------------------ */

enum { MAX_OPTIONS = 48 }; /* of one command */

/* Appends the names without dashes, but no short ones. Returns how many there are then. */
static size_t add_names(const struct td_command_option *options, const char **names, size_t count)
{
    for (; options != NULL && options->name != NULL && count < MAX_OPTIONS; options++)
        if (strncmp(options->name, "--", 2) == 0)
            names[count++] = options->name + 2;
    return count;
}

bool td_command_line_refuse(const struct td_command_line *line, const char *fault, const char *what)
{
    const char *names[MAX_OPTIONS + 2] = {NULL};
    size_t count = add_names(line->shared, names, add_names(line->options, names, 0));
    names[count] = "help";
    (void)td_refuse_usage(fault, what, names, line->usage);
    return false;
}

/* Returns the option of a list that argv[*i] is, or NULL. Sets *value as td_take_option does; to NULL for a flag. */
static const struct td_command_option *find_option(int argc, char **argv, int *i,
                                                   const struct td_command_option *options, const char **value)
{
    *value = NULL;
    for (; options != NULL && options->name != NULL; options++)
        if (options->flag != NULL ? strcmp(argv[*i], options->name) == 0
                                  : td_take_option(argc, argv, i, options->name, value))
            return options;
    return NULL;
}

/* Sets what the option sets. */
static bool set_option(const struct td_command_line *line, const struct td_command_option *option, const char *value)
{
    if (option->flag != NULL) {
        *option->flag = true;
        return true;
    }
    if (value == NULL || (value[0] == '\0' && !option->may_be_empty))
        return td_command_line_refuse(line, "a value is missing after ", option->name);
    if (option->value != NULL) {
        *option->value = value;
        return true;
    }
    if (option->values->count == TD_OPTION_VALUES)
        return td_command_line_refuse(line, "an option is given more than 64 times; one value too much is ", value);
    option->values->items[option->values->count++] = value;
    return true;
}

bool td_command_line_read(const struct td_command_line *line, int argc, char **argv, const char **others, size_t most,
                          size_t *count)
{
    *count = 0;
    for (int i = 0; i < argc && *count <= most; i++) {
        const char *argument = argv[i];
        const char *value;
        const struct td_command_option *option = find_option(argc, argv, &i, line->options, &value);
        if (option == NULL)
            option = find_option(argc, argv, &i, line->shared, &value);
        if (option != NULL && !set_option(line, option, value))
            return false;
        if (option == NULL && argument[0] == '-' && argument[1] != '\0')
            return td_command_line_refuse(line, "unknown option ", argument);
        if (option == NULL)
            others[(*count)++] = argument;
    }
    return true;
}

/* ---- paths and output ---------------------------------------------------------------------------------- */

/* Returns whether the text begins with a scheme and "://" (RFC 3986 section 3.1). */
static bool is_url(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    size_t len = strspn(text, letters);
    return len > 0 && strncmp(text + len, "://", 3) == 0;
}

bool td_local_path_check(const char *path, const char *command, struct td_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 || errno != ENOENT)
        return true;
    if (is_url(path))
        return td_error_set(
            err, TD_NOT_FOUND,
            "\"%.200s\" is a URL, and tensord %s reads local files: tensord pull URL MODEL copies a model "
            "from a server, and curl URL/models/MODEL/tensors prints its tensors",
            path, command);
    return td_error_set(err, TD_NOT_FOUND, "\"%.200s\" does not exist", path);
}

bool td_output_flush(struct td_error *err)
{
    return (fflush(stdout) == 0 && ferror(stdout) == 0) || td_error_set(err, TD_IO, "cannot write to standard output");
}

bool td_output_json(struct td_buffer *document, struct td_error *err)
{
    td_buffer_putc(document, '\n');
    bool ok = !document->failed || td_buffer_refuse(document, err);
    if (ok)
        (void)fwrite(document->data, 1, document->len, stdout);
    if (document->data != NULL)
        OPENSSL_cleanse(document->data, document->capacity);
    td_buffer_fini(document);
    return ok && td_output_flush(err);
}
