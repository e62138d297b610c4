/* The table of options is the only place that knows them: its rows give the name, the kind of value, the bounds, the
 * default and the member of td_config. The parser applies defaults, then the environment, then the arguments. The
 * second part judges environment variables: a mistyped TENSORD_ variable has no effect, which nobody would notice,
 * while Kubernetes sets variables of that prefix for a service called tensord. */
#include "server/config.h"

#include "core/digits.h"
#include "server/suggest.h"
#include "storage/decode_cache.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_COUNT, KIND_COUNT_OR_AUTO, KIND_SECONDS, KIND_SWITCH };

struct option {
    const char *name; /* without the dashes */
    const char *value, *fallback, *help;
    enum kind kind;
    uint64_t min, max; /* of a count; of seconds, in ns */
    size_t offset;     /* of the member of td_config */
};

#define NS UINT64_C(1000000000)
#define AT(member) offsetof(struct td_config, member)

static const struct option options[] = {
    {"listen", "ADDR:PORT", "127.0.0.1:8080", "address to serve on; port 0 takes any free one", KIND_TEXT, 0, 0,
     AT(listen)},
    {"s3-listen", "ADDR:PORT", "", "address for clients of S3, read-only, path style; empty: none", KIND_TEXT, 0, 0,
     AT(s3_listen)},
    {"max-connections", "N", "1024", "open connections; more are answered 503", KIND_COUNT, 1, 60000,
     AT(max_connections)},
    {"max-connections-per-address", "N", "256", "connections from one client address; more are answered 429",
     KIND_COUNT, 1, 60000, AT(max_connections_per_address)},
    {"max-waiters", "N", "1000", "requests that wait for a model to change; more are answered 503", KIND_COUNT, 0,
     60000, AT(max_waiters)},
    {"workers", "N", "auto", "threads that share the connections for short answers; 0 = none", KIND_COUNT_OR_AUTO, 0,
     1024, AT(workers)},
    {"max-header-bytes", "N", "8192", "bytes of target and header fields together; more are answered 431", KIND_COUNT,
     512, 32768, AT(max_header_bytes)},
    {"max-body-bytes", "N", "8388608", "bytes of a POST request's body; more are answered 413", KIND_COUNT, 1024,
     268435456, AT(max_body_bytes)},
    {"header-timeout", "SECONDS", "10", "time for a request's header to arrive", KIND_SECONDS, NS / 10, 3600 * NS,
     AT(header_timeout_ns)},
    {"body-timeout", "SECONDS", "30", "time for a request's body to arrive", KIND_SECONDS, NS / 10, 3600 * NS,
     AT(body_timeout_ns)},
    {"idle-timeout", "SECONDS", "60", "time between two requests on a connection", KIND_SECONDS, NS, 3600 * NS,
     AT(idle_timeout_ns)},
    {"send-timeout", "SECONDS", "60", "time for which an answer may stand still", KIND_SECONDS, NS, 3600 * NS,
     AT(send_timeout_ns)},
    {"min-rate", "BYTES", "1024", "bytes per second, over 30 s; slower answers are cut; 0 = never", KIND_COUNT, 0,
     1000000000, AT(min_rate)},
    {"drain-delay", "SECONDS", "0", "time after SIGTERM with /readyz at 503 before connections are refused",
     KIND_SECONDS, 0, 3600 * NS, AT(drain_delay_ns)},
    {"drain-timeout", "SECONDS", "25", "time after that for running answers to end", KIND_SECONDS, 0, 86400 * NS,
     AT(drain_timeout_ns)},
    {"rescan-interval", "SECONDS", "10", "time between scans of DIR; 0 = only on SIGHUP and changes that are noticed",
     KIND_SECONDS, 0, 86400 * NS, AT(rescan_interval_ns)},
    {"watch", "on|off", "on", "scan when something changes, and publish at once what is renamed into place",
     KIND_SWITCH, 0, 0, AT(watch)},
    {"settle", "SECONDS", "2", "time for which a file must stay unchanged before it is published", KIND_SECONDS, 0,
     3600 * NS, AT(settle_ns)},
    {"rescan-from", "WHO", "local", "who may ask for a scan (POST /rescan): local, any or none", KIND_TEXT, 0, 0,
     AT(rescan_from)},
    {"require-models", "N", "0", "/readyz is 503 while fewer models are published", KIND_COUNT, 0, 100000000,
     AT(require_models)},
    {"leases", "on|off", "on", "pin files while they are sent, if the host allows it", KIND_SWITCH, 0, 0, AT(leases)},
    {"files", "mutable|immutable", "mutable", "immutable: files are only ever replaced by rename, never written to",
     KIND_TEXT, 0, 0, AT(files)},
    {"max-files", "N", "1000000", "files to list; the rest is left out and reported", KIND_COUNT, 1, 100000000,
     AT(max_files)},
    {"max-maps", "N", "16384", "files to keep mapped at once", KIND_COUNT, 16, 60000, AT(max_maps)},
    {"max-memory", "BYTES", "4294967296", "memory for what is known of all files; a file beyond it is refused",
     KIND_COUNT, 1048576, UINT64_C(999999999999), AT(max_memory)},
    {"decode-memory", "BYTES", "268435456", "memory for tensors that are stored compressed or in chunks", KIND_COUNT,
     TD_DECODE_MEMORY_BYTES, UINT64_C(999999999999), AT(decode_memory)},
    {"state-dir", "DIR", "", "directory that keeps digests of files, so that nothing is hashed twice", KIND_TEXT, 0, 0,
     AT(state_dir)},
    {"hash-threads", "N", "1", "threads that hash files for entity tags when the machine is idle; 0 = none", KIND_COUNT,
     0, 64, AT(hash_threads)},
    {"index-threads", "N", "2", "threads that find the rows of new files of datasets", KIND_COUNT, 1, 16,
     AT(index_threads)},
    {"access-log", "FILE|-|off", "-", "one line per request; - is standard output", KIND_TEXT, 0, 0, AT(access_log)},
    {"log-format", "text|json", "text", "of both logs; json: each line is an object", KIND_TEXT, 0, 0, AT(log_format)},
    {"log-level", "LEVEL", "info", "error, warn, info or debug, on standard error", KIND_TEXT, 0, 0, AT(log_level)},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };

static void *member(struct td_config *config, const struct option *option)
{
    return (char *)config + option->offset;
}

/* Reads decimal seconds with up to nine digits on each side of the point, exactly. Returns false for other text. */
static bool parse_seconds(const char *text, uint64_t *ns)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; isdigit((unsigned char)text[i]); i++) {
        if (i == 9)
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    bool digits = i > 0;
    value *= NS;
    if (text[i] == '.') {
        uint64_t unit = NS / 10;
        for (i++; isdigit((unsigned char)text[i]) && unit > 0; i++, unit /= 10) {
            value += unit * (uint64_t)(text[i] - '0');
            digits = true;
        }
    }
    *ns = value;
    return digits && text[i] == '\0';
}

/* Sets the option's member. `source` says where the value comes from, for messages: "--listen" or "TENSORD_LISTEN". */
static bool set_option(struct td_config *config, const struct option *option, const char *source, const char *value,
                       struct td_error *err)
{
    void *to = member(config, option);
    uint64_t number = 0;
    switch (option->kind) {
    case KIND_TEXT:
        *(const char **)to = value;
        return true;
    case KIND_SWITCH:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s takes on or off, not \"%s\"", source, value);
        *(bool *)to = strcmp(value, "on") == 0;
        return true;
    case KIND_COUNT_OR_AUTO:
        if (strcmp(value, "auto") == 0) {
            *(uint64_t *)to = TD_CONFIG_AUTO;
            return true;
        }
        /* fall through */
    case KIND_COUNT:
        if (!td_number_read(td_text_of(value), UINT64_MAX, &number) || number < option->min || number > option->max)
            return td_error_set(err, TD_INVALID_ARGUMENT,
                                "%s takes %sa whole number from %" PRIu64 " to %" PRIu64 ", not \"%s\"", source,
                                option->kind == KIND_COUNT_OR_AUTO ? "auto or " : "", option->min, option->max, value);
        *(uint64_t *)to = number;
        return true;
    case KIND_SECONDS:
        if (!parse_seconds(value, &number) || number < option->min || number > option->max)
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s takes seconds from %g to %g, not \"%s\"", source,
                                (double)option->min / 1e9, (double)option->max / 1e9, value);
        *(uint64_t *)to = number;
        return true;
    }
    return td_error_set(err, TD_INTERNAL, "unknown kind of option");
}

/* Writes the name of the option's variable: "state-dir" becomes TENSORD_STATE_DIR. */
static void environment_name(const char *option, char out[TD_VARIABLE_BYTES])
{
    (void)snprintf(out, TD_VARIABLE_BYTES, "TENSORD_%s", option);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

const char *td_config_environment(const char *option)
{
    char name[TD_VARIABLE_BYTES];
    environment_name(option, name);
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
    return value == NULL || value[0] == '\0' ? NULL : value;
}

static const struct option *find_option(struct td_text name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strlen(options[i].name) == name.len && memcmp(options[i].name, name.p, name.len) == 0)
            return &options[i];
    return NULL;
}

bool td_config_has_option(const char *argument)
{
    size_t len = strcspn(argument, "=");
    return strncmp(argument, "--", 2) == 0 && find_option(td_text_n(argument + 2, len - 2)) != NULL;
}

/* Writes the options' names, and returns how many there are. */
static size_t list_names(const char *names[OPTION_COUNT])
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        names[i] = options[i].name;
    return OPTION_COUNT;
}

static bool unknown_option(const char *argument, struct td_error *err)
{
    const char *names[OPTION_COUNT + 2];
    char near[TD_SUGGEST_BYTES];
    size_t end = list_names(names);
    names[end] = "help";
    names[end + 1] = NULL;
    td_suggest(argument, "--", names, near);
    return td_error_set(err, TD_INVALID_ARGUMENT, "unknown option \"%.200s\"%s; see tensord serve --help", argument,
                        near);
}

/* Sets each option from its variable or, without one, to its default. */
static bool apply_defaults(struct td_config *config, struct td_error *err)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char name[TD_VARIABLE_BYTES];
        const char *value = td_config_environment(options[i].name);
        environment_name(options[i].name, name);
        if (!set_option(config, &options[i], name, value != NULL ? value : options[i].fallback, err))
            return false;
    }
    return true;
}

bool td_config_parse(struct td_config *config, int argc, char **argv, struct td_error *err)
{
    memset(config, 0, sizeof *config);
    if (!apply_defaults(config, err))
        return false;
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
            if (config->directory != NULL)
                return td_error_set(err, TD_INVALID_ARGUMENT,
                                    "only one directory can be served, but \"%s\" and \"%s\" are given",
                                    config->directory, argument);
            config->directory = argument;
            continue;
        }
        const char *equals = strchr(argument, '=');
        size_t len = equals == NULL ? strlen(argument) - 2 : (size_t)(equals - argument) - 2;
        const struct option *option = find_option(td_text_n(argument + 2, len));
        if (option == NULL)
            return unknown_option(argument, err);
        if (equals == NULL && i + 1 >= argc)
            return td_error_set(err, TD_INVALID_ARGUMENT, "%s needs a value: %s %s", argument, argument, option->value);
        const char *value = equals == NULL ? argv[++i] : equals + 1;
        char source[64];
        (void)snprintf(source, sizeof source, "--%s", option->name);
        if (!set_option(config, option, source, value, err))
            return false;
    }
    if (config->directory == NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT, "no directory is given; usage: tensord serve DIR");
    return true;
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
    const char *names[OPTION_COUNT + 1];
    char word[TD_VARIABLE_BYTES] = "";
    size_t len = strcspn(variable, "=");
    const char *value = variable[len] == '=' ? variable + len + 1 : "";
    if (strncmp(variable, prefix, sizeof prefix - 1) != 0 || value[0] == '\0' ||
        is_service_link(td_text_n(variable, len), value))
        return TD_VARIABLE_KNOWN;
    size_t word_len = len - (sizeof prefix - 1);
    if (word_len + sizeof prefix > sizeof word) /* longer than any option's name */
        return TD_VARIABLE_UNKNOWN;
    for (size_t i = 0; i < word_len; i++) {
        char c = variable[sizeof prefix - 1 + i];
        word[i] = c == '_' ? '-' : (char)tolower((unsigned char)c);
    }
    environment_name(word, near);
    if (find_option(td_text_n(word, word_len)) != NULL && strlen(near) == len && memcmp(near, variable, len) == 0)
        return TD_VARIABLE_KNOWN;
    names[list_names(names)] = NULL;
    const char *meant = td_suggest_nearest(td_text_n(word, word_len), names);
    if (meant == NULL)
        return TD_VARIABLE_UNKNOWN;
    environment_name(meant, near);
    return TD_VARIABLE_MISSPELLED;
}

void td_config_help(FILE *out)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char flag[64];
        (void)snprintf(flag, sizeof flag, "--%s %s", options[i].name, options[i].value);
        (void)fprintf(out, "  %-33s %s (%s)\n", flag, options[i].help,
                      options[i].fallback[0] == '\0' ? "not set" : options[i].fallback);
    }
}
