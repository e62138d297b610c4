#include "server/cmd/pull_arguments.h"

#include "catalog/remote/remote_model.h"
#include "core/clock.h"
#include "core/digits.h"
#include "server/cmd/take_option.h"
#include "server/suggest.h"
#include "server/terminal.h"
#include "storage/fetch/fetch_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1000000, MAX_SECONDS = 30 * 86400 };

/* The options that have a value, as text. */
struct texts {
    const char *engine, *tp, *rank, *output, *revision, *connections, *retry_for, *stall, *include, *exclude;
};

/* Complains about the usage. Returns false. */
static bool usage(const char *fault, const char *what)
{
    static const char *const options[] = {"engine",    "tp",    "rank",    "output",  "revision",   "connections",
                                          "retry-for", "stall", "include", "exclude", "token-file", "cacert",
                                          "cert",      "key",   "json",    "quiet",   "help",       NULL};
    char near[TD_SUGGEST_BYTES] = "";
    if (what[0] == '-')
        td_suggest(what, "--", options, near);
    td_terminal_complain("%s%.200s%s; usage: tensord pull URL[,URL...] MODEL [-o DIR] [options]; see pull --help",
                         fault, what, near);
    return false;
}

static bool add_pattern(const char **patterns, size_t *count, const char *pattern)
{
    if (*count == TD_PULL_PATTERNS)
        return usage("there are too many patterns; one that is too much is ", pattern);
    patterns[(*count)++] = pattern;
    return true;
}

/* Takes argv[*i] if it is an option with a value; *is_one tells. Returns false after it has complained. */
static bool take_value(int argc, char **argv, int *i, struct td_pull_arguments *out, struct texts *texts, bool *is_one)
{
    const struct {
        const char *option;
        const char **value;
    } options[] = {
        {"--engine", &texts->engine},
        {"--tp", &texts->tp},
        {"--rank", &texts->rank},
        {"--output", &texts->output},
        {"-o", &texts->output},
        {"--revision", &texts->revision},
        {"--retry-for", &texts->retry_for},
        {"--stall", &texts->stall},
        {"--connections", &texts->connections},
        {"--include", &texts->include},
        {"--exclude", &texts->exclude},
        {"--token-file", &out->token_file},
        {"--cacert", &out->ca},
        {"--cert", &out->cert},
        {"--key", &out->key},
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        if (!td_take_option(argc, argv, i, options[k].option, options[k].value))
            continue;
        if (*options[k].value == NULL || (*options[k].value)[0] == '\0')
            return usage("a value is missing after ", options[k].option);
        *is_one = true;
        if (options[k].value == &texts->include)
            return add_pattern(out->include, &out->include_count, texts->include);
        if (options[k].value == &texts->exclude)
            return add_pattern(out->exclude, &out->exclude_count, texts->exclude);
        return true;
    }
    *is_one = false;
    return true;
}

/* Reads a time; "0s" and "0" mean none, where that is allowed. */
static bool read_seconds(const char *text, bool may_be_0, uint64_t *out)
{
    if (may_be_0 && (strcmp(text, "0") == 0 || strcmp(text, "0s") == 0)) {
        *out = 0;
        return true;
    }
    return td_duration_read(td_text_of(text), MAX_SECONDS, out);
}

static bool read_numbers(const struct texts *texts, struct td_pull_arguments *out)
{
    out->connections = TD_PULL_CONNECTIONS;
    out->retry_s = TD_PULL_RETRY_S;
    out->stall_s = TD_FETCH_STALL_S;
    if (texts->connections != NULL &&
        (!td_number_read_strict(td_text_of(texts->connections), TD_FETCH_MAX_CONNECTIONS, &out->connections) ||
         out->connections == 0))
        return usage("--connections takes a number from 1 to 64, not ", texts->connections);
    if (texts->retry_for != NULL && !read_seconds(texts->retry_for, true, &out->retry_s))
        return usage("--retry-for takes a number with s, m, h or d, such as 60s, or 0, not ", texts->retry_for);
    if (texts->stall != NULL && !read_seconds(texts->stall, false, &out->stall_s))
        return usage("--stall takes a number with s, m, h or d, such as 30s, not ", texts->stall);
    return true;
}

/* Makes the revision of a rank's files, by its name on the Hub: tp8-rank0-vllm. */
static bool read_rank(const struct texts *texts, struct td_pull_arguments *out)
{
    uint64_t tp;
    bool has_some = texts->engine != NULL || texts->tp != NULL || texts->rank != NULL;
    if (!has_some) {
        (void)snprintf(out->revision, sizeof out->revision, "%s", texts->revision == NULL ? "main" : texts->revision);
        return texts->revision != NULL && strlen(texts->revision) >= sizeof out->revision
                   ? usage("--revision is too long: ", texts->revision)
                   : true;
    }
    if (texts->engine == NULL || texts->tp == NULL || texts->rank == NULL)
        return usage("--engine, --tp and --rank are given together, or none of them", "");
    if (texts->revision != NULL)
        return usage("--revision cannot be given beside --engine, --tp and --rank, which make one", "");
    if (!td_number_read_strict(td_text_of(texts->tp), MAX_RANKS, &tp) || tp == 0)
        return usage("--tp takes the number of ranks, from 1, not ", texts->tp);
    if (!td_number_read_strict(td_text_of(texts->rank), MAX_RANKS, &out->rank) || out->rank >= tp)
        return usage("--rank takes a number from 0 to one less than --tp, not ", texts->rank);
    for (const char *c = texts->engine; *c != '\0'; c++)
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9') && *c != '-')
            return usage("--engine takes the name of an engine, such as vllm, not ", texts->engine);
    if (strlen(texts->engine) > 64)
        return usage("--engine takes the name of an engine, such as vllm, not ", texts->engine);
    out->has_rank = true;
    (void)snprintf(out->revision, sizeof out->revision, "tp%" PRIu64 "-rank%" PRIu64 "-%s", tp, out->rank,
                   texts->engine);
    return true;
}

/* Splits URL[,URL...] and checks each one. */
static bool read_urls(const char *list, struct td_pull_arguments *out)
{
    struct td_text base;
    struct td_error err = TD_ERROR_INIT;
    out->url_list = strdup(list);
    if (out->url_list == NULL) {
        td_terminal_complain("out of memory");
        return false;
    }
    for (char *next = out->url_list, *one; (one = strsep(&next, ",")) != NULL;) {
        if (out->url_count == TD_FETCH_MAX_SERVERS)
            return usage("give at most 16 URLs", "");
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

/* Checks what was given, and fills in what was not. */
static bool check(const char *list, const struct texts *texts, struct td_pull_arguments *out)
{
    struct td_error err = TD_ERROR_INIT;
    if (list == NULL || out->model == NULL)
        return usage("give the URL of a server and a model", "");
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
    out->directory = texts->output != NULL ? texts->output : slash == NULL ? out->model : slash + 1;
    return read_numbers(texts, out) && read_rank(texts, out) && read_urls(list, out);
}

/* Complains about one argument too many, with the likely reason. Returns false. */
static bool too_many(const char *list, const char *argument)
{
    if (list[0] != '\0' && list[strlen(list) - 1] == ',')
        return usage("no space may be after the comma between URLs, but there is one before another argument: ",
                     argument);
    return usage("only one model is pulled at a time (its directory is given by -o DIR), but there is also ", argument);
}

bool td_pull_arguments_read(int argc, char **argv, struct td_pull_arguments *out)
{
    struct texts texts = {0};
    const char *list = NULL;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc; i++) {
        bool is_one;
        if (!take_value(argc, argv, &i, out, &texts, &is_one))
            return false;
        if (is_one)
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
    return check(list, &texts, out);
}

void td_pull_arguments_fini(struct td_pull_arguments *arguments)
{
    free(arguments->url_list);
    arguments->url_list = NULL;
}
