#include "server/cmd/command_line.h"

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

const struct td_value_option *td_take_value(int argc, char **argv, int *i, const struct td_value_option *options)
{
    while (options->name != NULL && !td_take_option(argc, argv, i, options->name, options->value))
        options++;
    return options->name != NULL ? options : NULL;
}

int td_refuse_usage(const char *fault, const char *what, const char *const *options, const char *usage)
{
    char near[TD_SUGGEST_BYTES] = "";
    if (what[0] == '-')
        td_suggest(what, "--", options, near);
    td_terminal_complain("%s%.200s%s; usage: %s", fault, what, near, usage);
    return TD_EXIT_USAGE;
}

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
