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

/* The options as they were given; NULL: not given. td_pull_arguments has the others. */
struct given {
    const char *engine, *tp, *rank, *revision, *connections, *retry_for, *stall, *include, *exclude;
};

/* Prints a message about wrong usage. Returns false. */
static bool usage(const char *fault, const char *what)
{
    static const char *const names[] = {"engine",    "tp",    "rank",    "output",  "revision",   "connections",
                                        "retry-for", "stall", "include", "exclude", "token-file", "cacert",
                                        "cert",      "key",   "json",    "quiet",   "help",       NULL};
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

static bool read_numbers(const struct given *given, struct td_pull_arguments *out)
{
    char fault[64];
    (void)snprintf(fault, sizeof fault, "--connections takes a number from 1 to %d, not ", TD_FETCH_MAX_CONNECTIONS);
    out->connections = TD_PULL_CONNECTIONS;
    out->retry_s = TD_PULL_RETRY_S;
    out->stall_s = TD_FETCH_STALL_S;
    if (given->connections != NULL &&
        (!td_number_read_strict(td_text_of(given->connections), TD_FETCH_MAX_CONNECTIONS, &out->connections) ||
         out->connections == 0))
        return usage(fault, given->connections);
    if (given->retry_for != NULL && !td_duration_read_s(td_text_of(given->retry_for), 0, MAX_SECONDS, &out->retry_s))
        return usage("--retry-for takes whole seconds, or a time such as 60s or 5m, from 0s to 30d, not ",
                     given->retry_for);
    if (given->stall != NULL && !td_duration_read_s(td_text_of(given->stall), 1, MAX_SECONDS, &out->stall_s))
        return usage("--stall takes whole seconds, or a time such as 30s or 5m, from 1s to 30d, not ", given->stall);
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
static bool read_rank(const struct given *given, struct td_pull_arguments *out)
{
    uint64_t tp;
    bool has_some = given->engine != NULL || given->tp != NULL || given->rank != NULL;
    if (!has_some) {
        (void)snprintf(out->revision, sizeof out->revision, "%s", given->revision == NULL ? "main" : given->revision);
        return given->revision != NULL && strlen(given->revision) >= sizeof out->revision
                   ? usage("--revision is too long: ", given->revision)
                   : true;
    }
    if (given->engine == NULL || given->tp == NULL || given->rank == NULL)
        return usage("--engine, --tp and --rank are given together, or none of them", "");
    if (given->revision != NULL)
        return usage("--revision cannot be given beside --engine, --tp and --rank, which make one", "");
    if (!td_number_read_strict(td_text_of(given->tp), MAX_RANKS, &tp) || tp == 0)
        return usage("--tp takes the number of ranks, from 1, not ", given->tp);
    if (!td_number_read_strict(td_text_of(given->rank), MAX_RANKS, &out->rank) || out->rank >= tp)
        return usage("--rank takes a number from 0 to one less than --tp, not ", given->rank);
    out->has_rank = true;
    (void)snprintf(out->revision, sizeof out->revision, "tp%" PRIu64 "-rank%" PRIu64 "-", tp, out->rank);
    return read_engine(given->engine, out);
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
static bool check_arguments(const char *list, const struct given *given, struct td_pull_arguments *out)
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
    if ((out->cert == NULL) != (out->key == NULL))
        return usage("--cert and --key are given together, or none of them", "");
    const char *slash = strrchr(out->model, '/');
    if (out->directory == NULL)
        out->directory = slash == NULL ? out->model : slash + 1;
    return read_numbers(given, out) && read_rank(given, out) && read_urls(list, out);
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
    struct given given = {0};
    const char *list = NULL;
    const struct td_value_option options[] = {
        {"--engine", &given.engine},
        {"--tp", &given.tp},
        {"--rank", &given.rank},
        {"--output", &out->directory},
        {"-o", &out->directory},
        {"--revision", &given.revision},
        {"--connections", &given.connections},
        {"--retry-for", &given.retry_for},
        {"--stall", &given.stall},
        {"--include", &given.include},
        {"--exclude", &given.exclude},
        {"--token-file", &out->token_file},
        {"--cacert", &out->ca},
        {"--cert", &out->cert},
        {"--key", &out->key},
        {NULL, NULL},
    };
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        const struct td_value_option *taken = td_take_value(argc, argv, &i, options);
        if (taken != NULL && (*taken->value == NULL || (*taken->value)[0] == '\0'))
            return usage("a value is missing after ", argument);
        if (taken != NULL && taken->value == &given.include &&
            !add_pattern(out->include, &out->include_count, given.include))
            return false;
        if (taken != NULL && taken->value == &given.exclude &&
            !add_pattern(out->exclude, &out->exclude_count, given.exclude))
            return false;
        if (taken != NULL)
            continue;
        if (strcmp(argument, "--json") == 0)
            out->json = true;
        else if (strcmp(argument, "--quiet") == 0)
            out->quiet = true;
        else if (argument[0] == '-')
            return usage("unknown option ", argument);
        else if (list == NULL)
            list = argument;
        else if (out->model == NULL)
            out->model = argument;
        else
            return too_many(list, argument);
    }
    return check_arguments(list, &given, out);
}

void td_pull_arguments_fini(struct td_pull_arguments *arguments)
{
    free(arguments->url_list);
    arguments->url_list = NULL;
}
