/* `tensord verify`: compares files with recorded digests, or tensors with those that a server states. */
#include "server/cmd/commands.h"

#include "core/digits.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/verify_files.h"
#include "server/cmd/verify_tensors.h"
#include "server/config/config.h"

#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 1000000 };

/* The arguments as they are read; NULL: not given. */
struct given {
    struct td_command_line line;
    const char *path, *url_list, *model;
    const char *state_dir, *recorded, *revision, *checkpoint, *match, *engine, *tp, *rank;
    struct td_copy_options options;
};

void td_cmd_verify_help(FILE *out)
{
    (void)fputs(
        "tensord verify reads every file to its end and compares its digest with recorded ones; or it reads every\n"
        "tensor of a checkpoint and compares its digest with that of a server.\n"
        "\n"
        "usage:\n"
        "  tensord verify DIR [--state-dir DIR] [--json]\n"
        "  tensord verify PATH URL[,URL...] MODEL [options]\n"
        "  tensord verify PATH URL[,URL...] MODEL --engine NAME --tp SIZE --rank R [options]\n"
        "  tensord verify PATH --digests FILE [--checkpoint ID] [--json] [--quiet]\n"
        "\n"
        "files:\n"
        "  DIR                the directory that a server serves, or a Hugging Face cache, whose blobs have their\n"
        "                     digests as names\n"
        "  --state-dir DIR    the --state-dir of the server, with the digests that it recorded\n"
        "                     (TENSORD_STATE_DIR)\n"
        "  --json             one JSON object instead of lines\n"
        "\n"
        "tensors, defaults in parentheses; TIME is seconds, or a number with ms, s, m, h or d, such as 5m:\n"
        "  PATH               a checkpoint file, or the directory of one model, in any format that a server reads;\n"
        "                     with --rank, the rank's file, or a directory with it\n"
        "  URL, MODEL         tensords, and the id of a model on them\n"
        "  --revision NAME    a version of the model: its name, its number, a ref, or latest (main)\n"
        "  --checkpoint ID    the checkpoint, here and there (the default checkpoint)\n"
        "  --match GLOB       only tensors whose names match; * stands for any text (all tensors)\n"
        "  --engine NAME --tp SIZE --rank R\n"
        "                     the tensors of rank R's file, 0 to SIZE - 1, as pull fetches it (not set)\n"
        "  --digests FILE     the digests of an answer that was kept: GET /models/MODEL/tensors?digests=1, or\n"
        "                     rank-R.json?digests=1\n"
        "  --retry-for TIME   time to try again without any progress before giving up; 0 = not at all (60s)\n"
        "  --stall TIME       time after which a connection with less than 1 KiB/s has failed (30s)\n"
        "  --token-file FILE  file with the token to send to all URLs (the variable TENSORD_TOKEN)\n"
        "  --cacert FILE      authorities in PEM to trust for https:// (those of the system)\n"
        "  --cert FILE        certificate of the client in PEM, with --key (not set)\n"
        "  --key FILE         private key of the certificate, in PEM (not set)\n"
        "  --json             one JSON object instead of lines\n"
        "  --quiet            no progress and no notes\n"
        "\n"
        "exit codes: 0 everything that was compared is unchanged; 1 a file or a tensor differs, is missing, or cannot\n"
        "            be read, the checkpoint has a tensor that the server's lacks, the server does not answer, or a\n"
        "            --state-dir is given and only names of blobs were compared; 2 wrong usage; 3 there was nothing\n"
        "            to compare.\n",
        out);
}

/* Prints a message about wrong usage. Returns false. */
static bool usage(const struct given *given, const char *fault, const char *what)
{
    return td_command_line_refuse(&given->line, fault, what);
}

/* ---- files --------------------------------------------------------------------------------------------- */

static bool has_options_of_tensors(const struct given *given)
{
    const struct td_copy_options *options = &given->options;
    return given->revision != NULL || given->checkpoint != NULL || given->match != NULL || given->engine != NULL ||
           given->tp != NULL || given->rank != NULL || options->token_file != NULL || options->ca != NULL ||
           options->cert != NULL || options->key != NULL || options->given.retry_for != NULL ||
           options->given.stall != NULL || options->quiet;
}

static int run_files(const struct given *given)
{
    struct td_verify_files wanted = {
        .directory = given->path, .state_dir_given = given->state_dir != NULL, .json = given->options.json};
    if (has_options_of_tensors(given)) {
        (void)usage(given, "tensors are compared with those of a server: give its URL and a model, or --digests FILE",
                    "");
        return TD_EXIT_USAGE;
    }
    const char *state_dir = given->state_dir != NULL ? given->state_dir : td_config_environment("state-dir");
    if (state_dir != NULL && state_dir[0] != '\0') /* an empty value means none, as with serve */
        wanted.state_dir = state_dir;
    return td_verify_files(&wanted);
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

/* Reads the options of a rank. */
static bool read_rank(const struct given *given, struct td_remote_digests_query *query)
{
    bool has_some = given->engine != NULL || given->tp != NULL || given->rank != NULL;
    if (!has_some)
        return true;
    if (given->engine == NULL || given->tp == NULL || given->rank == NULL)
        return usage(given, "--engine, --tp and --rank are given together, or none of them", "");
    if (given->match != NULL)
        return usage(given, "--match cannot be given beside --engine, --tp and --rank", "");
    if (!td_number_read_strict(td_text_of(given->tp), MAX_RANKS, &query->tp_size) || query->tp_size == 0)
        return usage(given, "--tp takes the number of ranks, from 1, not ", given->tp);
    if (!td_number_read_strict(td_text_of(given->rank), MAX_RANKS, &query->rank) || query->rank >= query->tp_size)
        return usage(given, "--rank takes a number from 0 to one less than --tp, not ", given->rank);
    query->engine = given->engine;
    return true;
}

static bool read_tensors(struct given *given, struct td_verify_tensors *wanted)
{
    struct td_remote_digests_query *query = &wanted->query;
    wanted->path = given->path;
    wanted->recorded = given->recorded;
    *query =
        (struct td_remote_digests_query){.id = given->model, .checkpoint = given->checkpoint, .match = given->match};
    if (given->state_dir != NULL)
        return usage(given, "--state-dir has digests of files, and cannot be given beside those of tensors", "");
    if (given->recorded != NULL && given->url_list != NULL)
        return usage(given, "give --digests or a server, not both: ", given->url_list);
    if (given->recorded != NULL && (given->revision != NULL || given->match != NULL || given->engine != NULL ||
                                    given->tp != NULL || given->rank != NULL))
        return usage(given, "--digests has the tensors of one answer; its options are --checkpoint, --json and --quiet",
                     "");
    if (given->revision != NULL && strcmp(given->revision, "main") != 0)
        query->version = given->revision;
    if (!read_rank(given, query) || !td_copy_options_check(&given->line, &given->options))
        return false;
    wanted->options = given->options;
    return given->recorded != NULL || td_copy_urls_read(&given->line, given->url_list, &wanted->urls);
}

static int run_tensors(struct given *given)
{
    struct td_verify_tensors wanted = {0};
    int status = read_tensors(given, &wanted) ? td_verify_tensors(&wanted) : TD_EXIT_USAGE;
    td_copy_urls_fini(&wanted.urls);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct given *given)
{
    struct td_copy_options *copy = &given->options;
    const struct td_command_option options[] = {
        {"--state-dir", .value = &given->state_dir, .may_be_empty = true},
        {"--digests", .value = &given->recorded},
        {"--revision", .value = &given->revision},
        {"--checkpoint", .value = &given->checkpoint},
        {"--match", .value = &given->match},
        {"--engine", .value = &given->engine},
        {"--tp", .value = &given->tp},
        {"--rank", .value = &given->rank},
        {"--retry-for", .value = &copy->given.retry_for},
        {"--stall", .value = &copy->given.stall},
        {"--token-file", .value = &copy->token_file},
        {"--cacert", .value = &copy->ca},
        {"--cert", .value = &copy->cert},
        {"--key", .value = &copy->key},
        {"--json", .flag = &copy->json},
        {"--quiet", .flag = &copy->quiet},
        {.name = NULL},
    };
    const char *others[4] = {NULL};
    size_t count;
    given->line.options = options;
    bool ok = td_command_line_read(&given->line, argc, argv, others, 3, &count);
    given->line.options = NULL;
    given->path = others[0];
    given->url_list = others[1];
    given->model = others[2];
    if (!ok)
        return false;
    if (count == 0)
        return usage(given, "give a directory", "");
    if (count > 1 && td_copy_urls_refuse_space(&given->line, given->url_list, others[2] == NULL ? "" : others[2]))
        return false;
    if (count == 2)
        return usage(given, "only one directory is allowed, or a path, the URL of a server and a model; there is also ",
                     given->url_list);
    return count <= 3 ||
           usage(given, "only a path, the URL of a server and a model are allowed, but there is also ", others[3]);
}

int td_cmd_verify(int argc, char **argv)
{
    struct given given = {
        .line = {.usage = "tensord verify DIR [--state-dir DIR] [--json]; tensord verify PATH URL[,URL...] MODEL "
                          "[options]; see verify --help"}};
    if (!read_arguments(argc, argv, &given))
        return TD_EXIT_USAGE;
    return given.model != NULL || given.recorded != NULL ? run_tensors(&given) : run_files(&given);
}
