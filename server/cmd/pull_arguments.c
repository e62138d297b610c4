#include "server/cmd/pull_arguments.h"

#include "catalog/remote/remote_model.h"
#include "core/digits.h"
#include "core/quantity.h"
#include "server/cmd/command_line.h"
#include "server/host/terminal.h"
#include "slicing/engine/engine.h"
#include "storage/fetch/fetch_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1000000, MAX_SECONDS = 30 * 86400 };

/* The options that have a value. */
enum option {
    ENGINE,
    TP,
    RANK,
    OUTPUT,
    REVISION,
    CONNECTIONS,
    RETRY_FOR,
    STALL,
    INCLUDE,
    EXCLUDE,
    TOKEN_FILE,
    CACERT,
    CERT,
    KEY,
    OPTION_COUNT
};

/* The names of all options, without the dashes: those that have a value, then the others. */
static const char *const names[] = {
    [ENGINE] = "engine",
    [TP] = "tp",
    [RANK] = "rank",
    [OUTPUT] = "output",
    [REVISION] = "revision",
    [CONNECTIONS] = "connections",
    [RETRY_FOR] = "retry-for",
    [STALL] = "stall",
    [INCLUDE] = "include",
    [EXCLUDE] = "exclude",
    [TOKEN_FILE] = "token-file",
    [CACERT] = "cacert",
    [CERT] = "cert",
    [KEY] = "key",
    "json",
    "quiet",
    "help",
    NULL,
};

/* The values of the options; NULL: the option was not given. */
struct values {
    const char *of[OPTION_COUNT];
};

/* Prints a message about wrong usage. Returns false. */
static bool usage(const char *fault, const char *what)
{
    (void)td_refuse_usage(fault, what, names, "tensord pull URL[,URL...] MODEL [-o DIR] [options]; see pull --help");
    return false;
}

static bool add_pattern(const char **patterns, size_t *count, const char *pattern)
{
    if (*count == TD_PULL_PATTERNS)
        return usage("there are too many patterns; one that is too much is ", pattern);
    patterns[(*count)++] = pattern;
    return true;
}

/* Reads argv[*i] if it is this option, also by its short name. */
static bool take_option(int argc, char **argv, int *i, enum option option, const char **value)
{
    char name[32];
    (void)snprintf(name, sizeof name, "--%s", names[option]);
    return td_take_option(argc, argv, i, name, value) ||
           (option == OUTPUT && td_take_option(argc, argv, i, "-o", value));
}

/* Reads argv[*i] if it is an option with a value, and sets *has_value to whether it is. Returns false after printing a
 * message. */
static bool take_value(int argc, char **argv, int *i, struct td_pull_arguments *out, struct values *values,
                       bool *has_value)
{
    const char *given = argv[*i];
    enum option option = 0;
    while (option < OPTION_COUNT && !take_option(argc, argv, i, option, &values->of[option]))
        option++;
    *has_value = option < OPTION_COUNT;
    if (!*has_value)
        return true;
    const char *value = values->of[option];
    if (value == NULL || value[0] == '\0')
        return usage("a value is missing after ", given);
    if (option == INCLUDE)
        return add_pattern(out->include, &out->include_count, value);
    if (option == EXCLUDE)
        return add_pattern(out->exclude, &out->exclude_count, value);
    return true;
}

static bool read_numbers(const struct values *values, struct td_pull_arguments *out)
{
    char fault[64];
    (void)snprintf(fault, sizeof fault, "--connections takes a number from 1 to %d, not ", TD_FETCH_MAX_CONNECTIONS);
    out->connections = TD_PULL_CONNECTIONS;
    out->retry_s = TD_PULL_RETRY_S;
    out->stall_s = TD_FETCH_STALL_S;
    if (values->of[CONNECTIONS] != NULL &&
        (!td_number_read_strict(td_text_of(values->of[CONNECTIONS]), TD_FETCH_MAX_CONNECTIONS, &out->connections) ||
         out->connections == 0))
        return usage(fault, values->of[CONNECTIONS]);
    if (values->of[RETRY_FOR] != NULL &&
        !td_duration_read_s(td_text_of(values->of[RETRY_FOR]), 0, MAX_SECONDS, &out->retry_s))
        return usage("--retry-for takes whole seconds, or a time such as 60s or 5m, from 0s to 30d, not ",
                     values->of[RETRY_FOR]);
    if (values->of[STALL] != NULL && !td_duration_read_s(td_text_of(values->of[STALL]), 1, MAX_SECONDS, &out->stall_s))
        return usage("--stall takes whole seconds, or a time such as 30s or 5m, from 1s to 30d, not ",
                     values->of[STALL]);
    return true;
}

/* Appends the engine to the revision, with '-' in place of '@', and sets reads_states. Takes unknown names, too, since
 * a server may have engines that this program does not know. */
static bool read_engine(const char *name, struct td_pull_arguments *out)
{
    static const char fault[] = "--engine takes the name of an engine, such as vllm, not ";
    size_t len = strlen(out->revision);
    if (name[0] == '\0' || strlen(name) > 64)
        return usage(fault, name);
    for (const char *c = name; *c != '\0'; c++) {
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9') && strchr("-.@", *c) == NULL)
            return usage(fault, name);
        out->revision[len++] = *c == '@' ? '-' : *c;
    }
    out->revision[len] = '\0';
    struct td_text tag = td_text_of(out->revision + len - strlen(name));
    const char *known = td_engine_of_tag(tag);
    out->reads_states =
        known != NULL ? td_engine_reads_states(td_text_of(known)) : td_text_begins(tag, TD_TEXT("vllm-"));
    return true;
}

/* Writes the revision of a rank's files, by its name on the Hub: tp8-rank0-vllm. */
static bool read_rank(const struct values *values, struct td_pull_arguments *out)
{
    uint64_t tp;
    bool has_some = values->of[ENGINE] != NULL || values->of[TP] != NULL || values->of[RANK] != NULL;
    if (!has_some) {
        (void)snprintf(out->revision, sizeof out->revision, "%s",
                       values->of[REVISION] == NULL ? "main" : values->of[REVISION]);
        return values->of[REVISION] != NULL && strlen(values->of[REVISION]) >= sizeof out->revision
                   ? usage("--revision is too long: ", values->of[REVISION])
                   : true;
    }
    if (values->of[ENGINE] == NULL || values->of[TP] == NULL || values->of[RANK] == NULL)
        return usage("--engine, --tp and --rank are given together, or none of them", "");
    if (values->of[REVISION] != NULL)
        return usage("--revision cannot be given beside --engine, --tp and --rank, which make one", "");
    if (!td_number_read_strict(td_text_of(values->of[TP]), MAX_RANKS, &tp) || tp == 0)
        return usage("--tp takes the number of ranks, from 1, not ", values->of[TP]);
    if (!td_number_read_strict(td_text_of(values->of[RANK]), MAX_RANKS, &out->rank) || out->rank >= tp)
        return usage("--rank takes a number from 0 to one less than --tp, not ", values->of[RANK]);
    out->has_rank = true;
    (void)snprintf(out->revision, sizeof out->revision, "tp%" PRIu64 "-rank%" PRIu64 "-", tp, out->rank);
    return read_engine(values->of[ENGINE], out);
}

/* Splits URL[,URL...] and checks each one. */
static bool read_urls(const char *list, struct td_pull_arguments *out)
{
    struct td_text base;
    struct td_error err = TD_ERROR_INIT;
    char fault[32];
    (void)snprintf(fault, sizeof fault, "give at most %d URLs", TD_FETCH_MAX_SERVERS);
    out->url_list = strdup(list);
    if (out->url_list == NULL) {
        td_terminal_complain("out of memory");
        return false;
    }
    for (char *next = out->url_list, *one; (one = strsep(&next, ",")) != NULL;) {
        if (out->url_count == TD_FETCH_MAX_SERVERS)
            return usage(fault, "");
        if (one[0] == '\0')
            return usage("there is a comma too many in the list of URLs: ", list);
        if (!td_fetch_url_check(one, &base, &err)) {
            td_terminal_complain("%s", err.message);
            return false;
        }
        out->urls[out->url_count++] = one;
    }
    return true;
}

/* Returns whether the model is named like a dataset in URLs; if so, prints how to fetch datasets. */
static bool is_dataset(const char *model)
{
    static const char begin[] = "datasets/";
    if (strncmp(model, begin, sizeof begin - 1) != 0)
        return false;
    td_terminal_complain("pull copies models, and \"%s\" names a dataset: get it by HF_ENDPOINT=URL hf download "
                         "--repo-type dataset %s",
                         model, model + sizeof begin - 1);
    return true;
}

/* Checks the arguments, and sets the defaults of those that were not given. */
static bool check_arguments(const char *list, const struct values *values, struct td_pull_arguments *out)
{
    struct td_error err = TD_ERROR_INIT;
    if (list == NULL || out->model == NULL)
        return usage("give the URL of a server and a model", "");
    if (is_dataset(out->model))
        return false;
    if (!td_remote_id_check(td_text_of(out->model), &err)) {
        bool has_url = strstr(out->model, "://") != NULL;
        bool has_revision = !has_url && strpbrk(out->model, ":@") != NULL;
        bool has_space = has_url && list[0] != '\0' && list[strlen(list) - 1] == ',';
        td_terminal_complain("%s%s", err.message,
                             has_space      ? " (no space after the comma?)"
                             : has_url      ? " (URL and model are swapped?)"
                             : has_revision ? " (a revision is given by --revision)"
                                            : "");
        return false;
    }
    out->token_file = values->of[TOKEN_FILE];
    out->ca = values->of[CACERT];
    out->cert = values->of[CERT];
    out->key = values->of[KEY];
    if ((out->cert == NULL) != (out->key == NULL))
        return usage("--cert and --key are given together, or none of them", "");
    const char *slash = strrchr(out->model, '/');
    out->directory = values->of[OUTPUT] != NULL ? values->of[OUTPUT] : slash == NULL ? out->model : slash + 1;
    return read_numbers(values, out) && read_rank(values, out) && read_urls(list, out);
}

/* Prints a message about one argument too many, with the likely reason. Returns false. */
static bool too_many(const char *list, const char *argument)
{
    if (list[0] != '\0' && list[strlen(list) - 1] == ',')
        return usage("no space may be after the comma between URLs, but there is one before another argument: ",
                     argument);
    return usage("only one model is pulled at a time (its directory is given by -o DIR), but there is also ", argument);
}

bool td_pull_arguments_read(int argc, char **argv, struct td_pull_arguments *out)
{
    struct values values = {0};
    const char *list = NULL;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc; i++) {
        bool has_value;
        if (!take_value(argc, argv, &i, out, &values, &has_value))
            return false;
        if (has_value)
            continue;
        if (strcmp(argv[i], "--json") == 0)
            out->json = true;
        else if (strcmp(argv[i], "--quiet") == 0)
            out->quiet = true;
        else if (argv[i][0] == '-')
            return usage("unknown option ", argv[i]);
        else if (list == NULL)
            list = argv[i];
        else if (out->model == NULL)
            out->model = argv[i];
        else
            return too_many(list, argv[i]);
    }
    return check_arguments(list, &values, out);
}

void td_pull_arguments_fini(struct td_pull_arguments *arguments)
{
    free(arguments->url_list);
    arguments->url_list = NULL;
}
