/* `tensord pull`: copies a model, or the files of one rank, from servers into a directory. */
#include "server/cmd/commands.h"

#include "core/clock.h"
#include "core/digits.h"
#include "server/cmd/pull_model.h"
#include "server/cmd/shared/command_line.h"
#include "server/host/terminal.h"
#include "slicing/engine/engine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- arguments ----------------------------------------------------------------------------------------- */

enum { MAX_RANKS = 1000000 };

struct arguments {
    struct td_copy_urls urls;
    struct td_pull_wanted wanted;
    struct td_copy_options copy;
};

/* The arguments as they are read; NULL: not given. struct arguments has the others. */
struct given {
    struct td_command_line line;
    struct td_copy_model model;
    const char *engine, *tp, *rank, *revision;
};

/* Prints a message about wrong usage. Returns false. */
static bool usage(const struct given *given, const char *fault, const char *what)
{
    return td_command_line_refuse(&given->line, fault, what);
}

/* Appends the engine to the revision, with '-' in place of '@', and sets reads_states. Takes unknown names, too, since
 * a server may have engines that this program does not know. */
static bool read_engine(const struct given *given, struct arguments *out)
{
    const char *name = given->engine;
    static const char fault[] = "--engine takes the name of an engine, such as vllm, not ";
    size_t len = strlen(out->wanted.revision);
    if (name[0] == '\0' || strlen(name) > 64)
        return usage(given, fault, name);
    for (const char *c = name; *c != '\0'; c++) {
        if ((*c < 'a' || *c > 'z') && (*c < '0' || *c > '9') && strchr("-.@", *c) == NULL)
            return usage(given, fault, name);
        out->wanted.revision[len++] = *c == '@' ? '-' : *c;
    }
    out->wanted.revision[len] = '\0';
    struct td_text tag = td_text_of(out->wanted.revision + len - strlen(name));
    const char *known = td_engine_of_tag(tag);
    out->wanted.reads_states =
        known != NULL ? td_engine_reads_states(td_text_of(known)) : td_text_begins(tag, TD_TEXT("vllm-"));
    return true;
}

/* Writes the revision of a rank's files, by its name on the Hub: tp8-rank0-vllm. */
static bool read_rank(const struct given *given, struct arguments *out)
{
    uint64_t tp;
    bool has_some = given->engine != NULL || given->tp != NULL || given->rank != NULL;
    if (!has_some) {
        (void)snprintf(out->wanted.revision, sizeof out->wanted.revision, "%s",
                       given->revision == NULL ? "main" : given->revision);
        return given->revision != NULL && strlen(given->revision) >= sizeof out->wanted.revision
                   ? usage(given, "--revision is too long: ", given->revision)
                   : true;
    }
    if (given->engine == NULL || given->tp == NULL || given->rank == NULL)
        return usage(given, "--engine, --tp and --rank are given together, or none of them", "");
    if (given->revision != NULL)
        return usage(given, "--revision cannot be given beside --engine, --tp and --rank, which make one", "");
    if (!td_number_read_strict(td_text_of(given->tp), MAX_RANKS, &tp) || tp == 0)
        return usage(given, "--tp takes the number of ranks, from 1, not ", given->tp);
    if (!td_number_read_strict(td_text_of(given->rank), MAX_RANKS, &out->wanted.rank) || out->wanted.rank >= tp)
        return usage(given, "--rank takes a number from 0 to one less than --tp, not ", given->rank);
    out->wanted.has_rank = true;
    (void)snprintf(out->wanted.revision, sizeof out->wanted.revision, "tp%" PRIu64 "-rank%" PRIu64 "-", tp,
                   out->wanted.rank);
    return read_engine(given, out);
}

/* Reads the arguments. Returns false after printing a message; the caller frees the URLs in any case. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    static const struct td_copy_command command = {"pull", "pulled", "a revision is given by --revision"};
    struct given given = {0};
    const struct td_command_option options[] = {
        {"--engine", .value = &given.engine},
        {"--tp", .value = &given.tp},
        {"--rank", .value = &given.rank},
        {"--output", .value = &given.model.directory},
        {"-o", .value = &given.model.directory},
        {"--revision", .value = &given.revision},
        {.name = NULL},
    };
    struct td_command_option shared[TD_COPY_ROWS];
    memset(out, 0, sizeof *out);
    td_copy_options_list(&out->copy, shared);
    given.line =
        (struct td_command_line){.options = options,
                                 .shared = shared,
                                 .usage = "tensord pull URL[,URL...] MODEL [-o DIR] [options]; see pull --help"};
    if (!td_copy_model_read(&command, &given.line, argc, argv, &given.model))
        return false;
    out->wanted.model = given.model.model;
    out->wanted.directory = given.model.directory;
    return td_copy_options_check(&given.line, &out->copy) && read_rank(&given, out) &&
           td_copy_urls_read(&given.line, given.model.list, &out->urls);
}

/* ---- the result ---------------------------------------------------------------------------------------- */

/* Prints why the pull failed, and where its files are kept. */
static void print_failure(const struct td_pull *pull, const struct td_error *err)
{
    char kept[PATH_MAX + 100];
    (void)snprintf(kept, sizeof kept, "what was fetched is kept in \"%s\", and the same command resumes from there",
                   pull->directory.root == NULL ? "" : td_pull_directory_kept(&pull->directory));
    td_copying_complain(pull->copying, err, pull->directory.root == NULL ? NULL : kept);
}

/* Prints the result of the pull. Returns the exit code. */
static int report_result(const struct td_pull *pull, uint64_t begin_ns, const struct td_error *err)
{
    const struct td_pull_report report = {
        .model = pull->wanted->model,
        .revision = pull->wanted->revision,
        .commit = pull->model.commit,
        .directory = err->code != TD_OK && pull->directory.root != NULL ? td_pull_directory_kept(&pull->directory)
                                                                        : pull->wanted->directory,
        .list = pull->list,
        .seconds = (double)(td_clock_ns() - begin_ns) / 1e9,
        .failure = err,
    };
    if (err->code != TD_OK)
        print_failure(pull, err);
    return td_copying_finish(pull->copying,
                             &(struct td_copying_report){td_pull_report_add, td_pull_report_line, &report},
                             err->code != TD_OK);
}

void td_cmd_pull_help(FILE *out)
{
    (void)fputs(
        "tensord pull copies a model, or the files of one rank, from a server into a directory.\n\n"
        "usage:\n"
        "  tensord pull URL[,URL...] MODEL [-o DIR] [options]\n"
        "  tensord pull URL[,URL...] MODEL --engine NAME --tp SIZE --rank R [-o DIR] [options]\n\n"
        "  URL                a tensord, or another server with the interface of the Hugging Face Hub, such as\n"
        "                     http://weights:8080; with several, each file comes from all of them, and from the\n"
        "                     others when one fails\n"
        "  MODEL              the id of a model, such as org/name; datasets are not pulled\n"
        "\n"
        "options, defaults in parentheses; TIME is seconds, or a number with ms, s, m, h or d, such as 5m:\n"
        "  -o, --output DIR   where the files go, by their names in the model (the last part of MODEL). One that is\n"
        "                     not there appears when all files have come; until then they are in\n"
        "                     .NAME.tensord-pull beside it. One that is there gets each file when it is complete\n"
        "  --engine NAME --tp SIZE --rank R\n"
        "                     of the weights only what rank R, 0 to SIZE - 1, needs, beside all other files: for\n"
        "                     vllm as model-rank-R-part-0.safetensors, else as rank-R.safetensors (not set)\n"
        "  --revision NAME    branch, tag or commit (main)\n",
        out);
    td_copy_options_help(out, "at once, over all servers",
                         "  --token-file FILE  file with the token to send to all URLs (the variable TENSORD_TOKEN)\n");
    (void)fputs(
        "\n"
        "An interrupted pull resumes where it ended when the same command is run again. A file gets its name when\n"
        "it is complete and its digest is right; until then its name begins with a dot. Files that are there with\n"
        "the right digest are not fetched again.\n"
        "\n"
        "exit codes: 0 all files are there; 1 it failed, or was stopped by a signal; 2 wrong usage.\n",
        out);
}

int td_cmd_pull(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    struct td_copying copying;
    struct td_pull pull;
    int status = TD_EXIT_USAGE;
    if (read_arguments(argc, argv, &arguments)) {
        uint64_t begin_ns = td_clock_ns();
        td_copying_begin(&copying, &arguments.copy);
        td_pull_init(&pull, &arguments.wanted, &copying);
        if (td_copying_connect(&copying, arguments.urls.items, arguments.urls.count, &err))
            (void)td_pull_model(&pull, &err);
        status = report_result(&pull, begin_ns, &err);
        td_pull_fini(&pull);
        td_copying_end(&copying);
    }
    td_copy_urls_fini(&arguments.urls);
    return status;
}
