/* Only server/config/config_options knows the options. The parser applies defaults, then the file, then the
 * environment, then the arguments. With a file it does so twice, since environment and arguments name the file. The
 * second part of this source judges environment variables: a mistyped TENSORD_ variable has no effect, which users
 * would not notice, while Kubernetes sets variables with that prefix for a service called tensord. */
#include "server/config/config.h"

#include "http/cors.h"
#include "server/config/config_file.h"
#include "server/config/suggest.h"
#include "server/host/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char print_option[] = "print-config";

void td_config_variable(const char *option, char out[TD_VARIABLE_BYTES])
{
    (void)snprintf(out, TD_VARIABLE_BYTES, "TENSORD_%s", option);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

const char *td_config_environment(const char *option)
{
    char name[TD_VARIABLE_BYTES];
    td_config_variable(option, name);
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Returns the option of the command line and the environment with this name, or NULL. */
static const struct td_option *find_option(struct td_text name)
{
    const struct td_option *option = td_option_find(name);
    return option == NULL || option->place == TD_OPTION_FILE_ONLY ? NULL : option;
}

bool td_config_has_option(const char *argument)
{
    size_t len = strcspn(argument, "=");
    if (strncmp(argument, "--", 2) != 0)
        return false;
    struct td_text name = td_text_n(argument + 2, len - 2);
    return find_option(name) != NULL || td_text_equals(name, print_option);
}

/* Writes the names of the options of the command line and the environment, and returns how many there are. */
static size_t list_names(const char *names[TD_OPTIONS_MAX])
{
    const struct td_option *option;
    size_t count = 0;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++)
        if (option->place != TD_OPTION_FILE_ONLY)
            names[count++] = option->name;
    return count;
}

/* Options of other servers for an address or a port. */
static const char *const address_options[] = {"-p", "--port", "--host", "--bind", "--address", "--addr", NULL};

bool td_config_is_address_option(const char *argument)
{
    size_t len = strcspn(argument, "=");
    for (const char *const *option = address_options; *option != NULL; option++)
        if (strlen(*option) == len && strncmp(argument, *option, len) == 0)
            return true;
    return false;
}

static bool unknown_option(const char *argument, struct td_error *err)
{
    if (td_config_is_address_option(argument))
        return td_error_set(
            err, TD_INVALID_ARGUMENT,
            "unknown option \"%.200s\": address and port are given together, --listen 0.0.0.0:8080; see "
            "tensord serve --help",
            argument);
    const char *names[TD_OPTIONS_MAX + 3];
    char near[TD_SUGGEST_BYTES];
    size_t end = list_names(names);
    names[end++] = print_option;
    names[end++] = "help";
    names[end] = NULL;
    td_suggest(argument, "--", names, near);
    return td_error_set(err, TD_INVALID_ARGUMENT, "unknown option \"%.200s\"%s; see tensord serve --help", argument,
                        near);
}

static bool apply_defaults(struct td_config *config, struct td_error *err)
{
    const struct td_option *option;
    config->print = TD_CONFIG_PRINT_NOTHING;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++)
        if (!td_option_set(config, option, TD_CONFIG_DEFAULT, option->name, option->fallback, err))
            return false;
    return true;
}

static bool apply_environment(struct td_config *config, struct td_error *err)
{
    const struct td_option *option;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++) {
        char name[TD_VARIABLE_BYTES];
        const char *value = option->place == TD_OPTION_FILE_ONLY ? NULL : td_config_environment(option->name);
        td_config_variable(option->name, name);
        if (value != NULL && !td_option_set(config, option, TD_CONFIG_ENVIRONMENT, name, value, err))
            return false;
    }
    return true;
}

static bool apply_directory(struct td_config *config, const char *argument, struct td_error *err)
{
    const struct td_option *option = td_option_find(TD_TEXT("directory"));
    if (td_option_source(config, option) == TD_CONFIG_ARGUMENT)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "only one directory can be served, but \"%s\" and \"%s\" are given", config->directory,
                            argument);
    return td_option_set(config, option, TD_CONFIG_ARGUMENT, "DIR", argument, err);
}

/* Reads the value of --print-config: NULL, or the text after "=". */
static bool apply_print(struct td_config *config, const char *form, struct td_error *err)
{
    config->print = form == NULL ? TD_CONFIG_PRINT_JSON : TD_CONFIG_PRINT_SOURCES;
    return form == NULL || strcmp(form, "sources") == 0 ||
           td_error_set(err, TD_INVALID_ARGUMENT, "--%s takes =sources or nothing, not \"%.200s\"", print_option, form);
}

/* Returns whether an argument after a switch is meant as its value, valid or not, since no directory has such a
 * name. */
static bool is_for_switch(const char *argument)
{
    static const char *const words[] = {"on", "off", "yes", "no", "true", "false", "1", "0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(argument, words[i]) == 0)
            return true;
    return false;
}

/* Returns whether the option is a switch that is off by default and has no value after it, which means "on". next: the
 * argument after it, or NULL. */
static bool is_bare_switch(const struct td_option *option, const char *next)
{
    return option->kind == TD_OPTION_SWITCH && strcmp(option->fallback, "off") == 0 &&
           (next == NULL || !is_for_switch(next));
}

static bool apply_arguments(struct td_config *config, int argc, char **argv, struct td_error *err)
{
    bool only_names = false;
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        if (!only_names && strcmp(argument, "--") == 0) {
            only_names = true;
            continue;
        }
        if (only_names || strncmp(argument, "--", 2) != 0) {
            if (!only_names && argument[0] == '-' && argument[1] != '\0')
                return unknown_option(argument, err);
            if (!apply_directory(config, argument, err))
                return false;
            continue;
        }
        const char *equals = strchr(argument, '=');
        size_t len = equals == NULL ? strlen(argument) - 2 : (size_t)(equals - argument) - 2;
        struct td_text name = td_text_n(argument + 2, len);
        if (td_text_equals(name, print_option)) {
            if (!apply_print(config, equals == NULL ? NULL : equals + 1, err))
                return false;
            continue;
        }
        const struct td_option *option = find_option(name);
        if (option == NULL)
            return unknown_option(argument, err);
        const char *value = equals == NULL ? NULL : equals + 1;
        if (value == NULL && is_bare_switch(option, i + 1 < argc ? argv[i + 1] : NULL))
            value = "on";
        if (value == NULL && i + 1 >= argc)
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s needs a value: %s %s", argument, argument, option->value);
        if (value == NULL)
            value = argv[++i];
        char shown[64];
        (void)snprintf(shown, sizeof shown, "--%s", option->name);
        if (!td_option_set(config, option, TD_CONFIG_ARGUMENT, shown, value, err))
            return false;
    }
    return true;
}

/* Applies everything in the order of precedence. file: the configuration file, or empty. */
static bool apply_all(struct td_config *config, const char *file, int argc, char **argv, struct td_error *err)
{
    return apply_defaults(config, err) && (file[0] == '\0' || td_config_file_read(config, file, err)) &&
           apply_environment(config, err) && apply_arguments(config, argc, argv, err);
}

/* Checks the options of TLS, since some of them need others. */
static bool check_tls(const struct td_config *config, struct td_error *err)
{
    bool has_cert = config->tls_cert[0] != '\0';
    bool has_key = config->tls_key[0] != '\0';
    if (has_cert != has_key)
        return td_error_set(err, TD_INVALID_ARGUMENT, "--tls-%s is given without --tls-%s; TLS needs both",
                            has_cert ? "cert" : "key", has_cert ? "key" : "cert");
    if (!has_cert && config->tls_client_ca[0] != '\0')
        return td_error_set(err, TD_INVALID_ARGUMENT, "--tls-client-ca needs TLS: give --tls-cert and --tls-key, too");
    if (!has_cert && config->plain_listen[0] != '\0')
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "--plain-listen is for a server with TLS: without --tls-cert, --listen is plain already");
    return true;
}

/* Refuses words such as "none" and "stdout", which are not meant as the name of a file. */
static bool check_access_log(const struct td_config *config, struct td_error *err)
{
    static const struct {
        const char *word, *meant;
    } words[] = {
        {"off", "off"},  {"none", "off"},     {"no", "off"},     {"false", "off"},  {"0", "off"},
        {"null", "off"}, {"disabled", "off"}, {"stdout", "off"}, {"stderr", "off"}, {"syslog", "off"},
        {"on", "-"},     {"yes", "-"},        {"true", "-"},     {"1", "-"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(config->access_log, "off") != 0 && strcasecmp(config->access_log, words[i].word) == 0)
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "--access-log takes FILE, - (standard output) or off, not \"%s\" (did you mean %s?); a "
                                "file of that name is ./%s",
                                config->access_log, words[i].meant, config->access_log);
    return true;
}

/* Checks the list of --cors-origin. */
static bool check_cors(const struct td_config *config, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_cors *cors = NULL;
    bool ok = config->cors_origins[0] == '\0' || td_cors_create(config->cors_origins, &cors, &why);
    td_cors_destroy(cors);
    return ok || td_error_set(err, why.code, "--cors-origin: %s", why.message);
}

/* Checks the schemes of --upstream, and refuses options that have no effect without it. */
static bool check_upstream(const struct td_config *config, struct td_error *err)
{
    struct td_text rest = td_text_of(config->upstream);
    const char *lone = config->upstream_token_file[0] != '\0' ? "upstream-token-file"
                       : config->upstream_ca[0] != '\0'       ? "upstream-ca"
                       : config->cache_max_bytes != 0         ? "cache-max-bytes"
                                                              : NULL;
    if (rest.len == 0)
        return lone == NULL ||
               td_error_set(err, TD_INVALID_ARGUMENT, "--%s has no effect without --upstream: give that, too", lone);
    if (rest.p[rest.len - 1] == ',')
        return td_error_set(err, TD_INVALID_ARGUMENT, "--upstream: an empty URL follows the last comma");
    while (rest.len > 0) {
        struct td_text url = td_text_take_until(&rest, ',');
        bool has_password = memchr(url.p, '@', url.len) != NULL; /* no message repeats it */
        if (!td_text_begins_ignore_case(url, "http://") && !td_text_begins_ignore_case(url, "https://"))
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "--upstream: the URL must begin with http:// or https://, but it is \"%.*s\"",
                                TD_SHOW(has_password ? TD_TEXT("...@...") : url, 200));
    }
    return true;
}

/* Refuses the options of a server that fetches and is published to. */
static bool check_publish(const struct td_config *config, struct td_error *err)
{
    return strcmp(config->publish, "off") == 0 || config->upstream[0] == '\0' ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "--publish %s is not possible together with --upstream: publish to the upstream, or leave one "
                        "of them out",
                        config->publish);
}

/* Refuses the options of a server that evicts models to free their disk, and keeps what was removed. */
static bool check_keep_removed(const struct td_config *config, struct td_error *err)
{
    return config->keep_removed_ns == 0 || config->upstream[0] == '\0' ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "--keep-removed is not possible together with --upstream: models that are evicted would keep "
                        "their disk; leave one of them out");
}

bool td_config_parse(struct td_config *config, int argc, char **argv, struct td_error *err)
{
    memset(config, 0, sizeof *config);
    td_arena_init(&config->strings, 0); /* the length of the file bounds it */
    bool ok = apply_all(config, "", argc, argv, err);
    if (ok && config->file[0] != '\0')
        ok = apply_all(config, config->file, argc, argv, err);
    if (ok && config->directory[0] == '\0')
        ok = td_error_set(err, TD_INVALID_ARGUMENT,
                          "no directory is given; usage: tensord serve DIR, or --config FILE with the key "
                          "\"directory\"");
    ok = ok && check_tls(config, err) && check_cors(config, err) && check_upstream(config, err) &&
         check_publish(config, err) && check_keep_removed(config, err) && check_access_log(config, err);
    if (!ok)
        td_config_fini(config);
    return ok;
}

void td_config_fini(struct td_config *config)
{
    td_arena_fini(&config->strings);
}

bool td_config_update(struct td_config *config, const struct td_config *fresh, struct td_buffer *changed,
                      struct td_buffer *kept)
{
    const struct td_option *option;
    bool is_changed = false;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++) {
        if (td_option_is_same(config, fresh, option))
            continue;
        struct td_buffer *names = option->is_live ? changed : kept;
        td_buffer_printf(names, "%s%s", names->len == 0 ? "" : ", ", option->name);
        if (option->is_live)
            td_option_copy(config, fresh, option);
        is_changed |= option->is_live;
    }
    return is_changed;
}

static bool ends_with(struct td_text text, const char *end)
{
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.p + text.len - n, end, n) == 0;
}

/* Returns whether a name ends with "_PORT_", a number and "_TCP", "_UDP" or "_SCTP", and perhaps "_PROTO", "_PORT" or
 * "_ADDR" after that. */
static bool ends_with_port(struct td_text name)
{
    static const char *const details[] = {"_PROTO", "_PORT", "_ADDR"};
    static const char *const protocols[] = {"_TCP", "_UDP", "_SCTP"};
    for (size_t i = 0; i < sizeof details / sizeof *details; i++) {
        if (ends_with(name, details[i])) {
            name.len -= strlen(details[i]);
            break;
        }
    }
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        if (!ends_with(name, protocols[i]))
            continue;
        size_t end = name.len - strlen(protocols[i]);
        size_t start = end;
        while (start > 0 && isdigit((unsigned char)name.p[start - 1]))
            start--;
        return start < end && ends_with(td_text_n(name.p, start), "_PORT_");
    }
    return false;
}

/* Returns whether Kubernetes or Docker sets such a variable for a service (a "service link"). */
static bool is_service_link(struct td_text name, const char *value)
{
    static const char named_port[] = "_SERVICE_PORT_";
    const char *at = strstr(name.p, named_port);
    return ends_with(name, "_SERVICE_HOST") || ends_with(name, "_SERVICE_PORT") ||
           (at != NULL && at + sizeof named_port - 1 < name.p + name.len) || ends_with_port(name) ||
           (ends_with(name, "_PORT") && strstr(value, "://") != NULL);
}

enum td_variable td_config_judge_variable(const char *variable, char near[TD_VARIABLE_BYTES])
{
    static const char prefix[] = "TENSORD_";
    static const char for_client[] = "TENSORD_TOKEN"; /* the Python client's, which may run beside the server */
    const char *names[TD_OPTIONS_MAX + 1];
    char word[TD_VARIABLE_BYTES] = "";
    size_t len = strcspn(variable, "=");
    const char *value = variable[len] == '=' ? variable + len + 1 : "";
    if (strncmp(variable, prefix, sizeof prefix - 1) != 0 || value[0] == '\0' ||
        is_service_link(td_text_n(variable, len), value))
        return TD_VARIABLE_KNOWN;
    if (len == sizeof for_client - 1 && strncmp(variable, for_client, len) == 0)
        return TD_VARIABLE_KNOWN;
    size_t word_len = len - (sizeof prefix - 1);
    if (word_len + sizeof prefix > sizeof word) /* longer than any option's name */
        return TD_VARIABLE_UNKNOWN;
    for (size_t i = 0; i < word_len; i++) {
        char c = variable[sizeof prefix - 1 + i];
        word[i] = c == '_' ? '-' : (char)tolower((unsigned char)c);
    }
    td_config_variable(word, near);
    if (find_option(td_text_n(word, word_len)) != NULL && strlen(near) == len && memcmp(near, variable, len) == 0)
        return TD_VARIABLE_KNOWN;
    names[list_names(names)] = NULL;
    const char *meant = td_suggest_nearest(td_text_n(word, word_len), names);
    if (meant == NULL)
        return TD_VARIABLE_UNKNOWN;
    td_config_variable(meant, near);
    return TD_VARIABLE_MISSPELLED;
}

/* ---- texts for people ---------------------------------------------------------------------------------- */

void td_config_help(FILE *out)
{
    const struct td_option *option;
    char flag[64];
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++) {
        if (option->place == TD_OPTION_FILE_ONLY)
            continue;
        (void)snprintf(flag, sizeof flag, "--%s %s", option->name, option->value);
        (void)fprintf(out, "  %-33s %s (%s)\n", flag, option->help,
                      option->fallback[0] == '\0' ? "not set" : option->fallback);
    }
    (void)snprintf(flag, sizeof flag, "--%s[=sources]", print_option);
    (void)fprintf(out, "  %-33s print what would be used as JSON, or with its sources; serve nothing\n", flag);
    (void)fputs("\n  TIME: seconds, or a number with ms, s, m, h or d, such as 500ms or 2m\n"
                "  SIZE: bytes, or a number with K, M, G or T, such as 4G\n",
                out);
}

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

bool td_config_print(const struct td_config *config, FILE *out, struct td_error *err)
{
    bool ok = config->print == TD_CONFIG_PRINT_SOURCES ? print_table(config, out, err) : print_json(config, out, err);
    if (ok && (fflush(out) != 0 || ferror(out)))
        ok = td_error_sys(err, TD_IO, errno, "cannot write the configuration");
    return ok;
}
