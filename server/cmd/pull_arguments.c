#include "server/cmd/pull_arguments.h"

#include "catalog/remote/remote_model.h"
#include "core/digits.h"
#include "server/host/terminal.h"
#include "slicing/engine/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 1000000 };

/* The arguments as they are read; NULL: not given. td_pull_arguments has the others. */
struct given {
    struct td_command_line line;
    const char *url_list, *engine, *tp, *rank, *revision;
};

/* Prints a message about wrong usage. Returns false. */
static bool usage(const struct given *given, const char *fault, const char *what)
{
    return td_command_line_refuse(&given->line, fault, what);
}

/* Appends the engine to the revision, with '-' in place of '@', and sets reads_states. Takes unknown names, too, since
 * a server may have engines that this program does not know. */
static bool read_engine(const struct given *given, struct td_pull_arguments *out)
{
    const char *name = given->engine;
    static const char fault[] = "--engine takes the name of an engine, such as vllm, not ";
    size_t len = strlen(out->revision);
    if (name[0] == '\0' || strlen(name) > 64)
        return usage(given, fault, name);
    for (const char *c = name; *c != '\0'; c++) {
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9') && strchr("-.@", *c) == NULL)
            return usage(given, fault, name);
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
                   ? usage(given, "--revision is too long: ", given->revision)
                   : true;
    }
    if (given->engine == NULL || given->tp == NULL || given->rank == NULL)
        return usage(given, "--engine, --tp and --rank are given together, or none of them", "");
    if (given->revision != NULL)
        return usage(given, "--revision cannot be given beside --engine, --tp and --rank, which make one", "");
    if (!td_number_read_strict(td_text_of(given->tp), MAX_RANKS, &tp) || tp == 0)
        return usage(given, "--tp takes the number of ranks, from 1, not ", given->tp);
    if (!td_number_read_strict(td_text_of(given->rank), MAX_RANKS, &out->rank) || out->rank >= tp)
        return usage(given, "--rank takes a number from 0 to one less than --tp, not ", given->rank);
    out->has_rank = true;
    (void)snprintf(out->revision, sizeof out->revision, "tp%" PRIu64 "-rank%" PRIu64 "-", tp, out->rank);
    return read_engine(given, out);
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
static bool check_arguments(const struct given *given, struct td_pull_arguments *out)
{
    struct td_error err = TD_ERROR_INIT;
    const char *list = given->url_list;
    if (list == NULL || out->model == NULL)
        return usage(given, "give the URL of a server and a model", "");
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
    const char *slash = strrchr(out->model, '/');
    if (out->directory == NULL)
        out->directory = slash == NULL ? out->model : slash + 1;
    return td_copy_options_check(&given->line, &out->copy) && read_rank(given, out) &&
           td_copy_urls_read(&given->line, given->url_list, &out->urls);
}

/* Prints a message about one argument too many, with the likely reason. Returns false. */
static bool too_many(const struct given *given, const char *argument)
{
    if (td_copy_urls_refuse_space(&given->line, given->url_list, argument))
        return false;
    return usage(given, "only one model is pulled at a time (its directory is given by -o DIR), but there is also ",
                 argument);
}

bool td_pull_arguments_read(int argc, char **argv, struct td_pull_arguments *out)
{
    struct given given = {0};
    const struct td_command_option options[] = {
        {"--engine", .value = &given.engine},
        {"--tp", .value = &given.tp},
        {"--rank", .value = &given.rank},
        {"--output", .value = &out->directory},
        {"-o", .value = &out->directory},
        {"--revision", .value = &given.revision},
        {.name = NULL},
    };
    struct td_command_option shared[TD_COPY_ROWS];
    const char *others[3] = {NULL};
    size_t count;
    memset(out, 0, sizeof *out);
    td_copy_options_list(&out->copy, shared);
    given.line =
        (struct td_command_line){.options = options,
                                 .shared = shared,
                                 .usage = "tensord pull URL[,URL...] MODEL [-o DIR] [options]; see pull --help"};
    if (!td_command_line_read(&given.line, argc, argv, others, 2, &count))
        return false;
    given.url_list = others[0];
    out->model = others[1];
    return count > 2 ? too_many(&given, others[2]) : check_arguments(&given, out);
}

void td_pull_arguments_fini(struct td_pull_arguments *arguments)
{
    td_copy_urls_fini(&arguments->urls);
}
