/* Scans the directory, finds the checkpoint, and plans every rank's file as the server would. Only one rank's plan is
 * in memory at a time; the report keeps its counts. The report is printed after all ranks are planned, so that a
 * refused plan prints only its error. */
#include "server/cmd/commands.h"

#include "catalog/names/repo.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/json/json_canonical.h"
#include "rank/config_text.h"
#include "rank/tensor_source.h"
#include "server/cmd/local_path.h"
#include "server/cmd/local_scan.h"
#include "server/cmd/plan_report.h"
#include "server/cmd/take_option.h"
#include "server/config/suggest.h"
#include "server/host/terminal.h"
#include "slicing/engine/engine.h"
#include "slicing/plan_spec.h"
#include "slicing/rank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_MAX_BYTES = 64 * 1024 * 1024 }; /* of the file that --plan names */

struct arguments {
    const char *directory, *model, *engine, *tp, *plan, *checkpoint;
    uint64_t tp_size;
    bool json, no_sandbox;
};

/* The inputs of a plan. */
struct job {
    const struct arguments *arguments;
    struct td_plan_spec spec;
    char plan_id[TD_TAG_BYTES]; /* the id that a server would give to the plan; "" for an engine */
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    char *config; /* config.json, or NULL */
    size_t config_len;
};

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Reads a file of at most PLAN_MAX_BYTES. The caller frees *text. */
static bool read_descriptor(int fd, char **text, size_t *len, struct td_error *err)
{
    struct td_buffer buffer;
    td_buffer_init(&buffer);
    ssize_t n = 1;
    while (n > 0 && buffer.len <= PLAN_MAX_BYTES && td_buffer_reserve(&buffer, 65536)) {
        n = read(fd, buffer.data + buffer.len, 65536);
        buffer.len += n > 0 ? (size_t)n : 0;
    }
    bool ok = !buffer.failed || td_error_no_memory(err);
    ok = ok && (n >= 0 || td_error_sys(err, TD_IO, errno, "cannot read it"));
    ok = ok && (buffer.len <= PLAN_MAX_BYTES || td_error_set(err, TD_RESOURCE_EXHAUSTED, "it is longer than 64 MiB"));
    *text = ok ? td_buffer_release(&buffer, len) : NULL;
    td_buffer_fini(&buffer);
    return ok;
}

/* Parses the plan, and computes the id that a server would give to it. */
static bool parse_plan(struct job *job, struct td_text text, struct td_error *err)
{
    struct td_buffer canonical;
    td_buffer_init(&canonical);
    bool ok = td_plan_spec_parse(&job->spec, text, NULL, err) && td_json_canonical(text, &canonical, err) &&
              (td_digest_tag(canonical.data, canonical.len, job->plan_id) || td_error_no_memory(err));
    td_buffer_fini(&canonical);
    return ok;
}

static bool read_plan(struct job *job, struct td_error *err)
{
    const char *path = job->arguments->plan;
    struct td_error why = TD_ERROR_INIT;
    char message[TD_ERROR_TEXT_BYTES];
    char *text = NULL;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return td_error_set(err, TD_NOT_FOUND, "\"%.200s\" does not exist", path);
    bool ok = fd >= 0 || td_error_sys(&why, TD_NOT_FOUND, errno, "cannot open it");
    ok =
        ok && read_descriptor(fd, &text, &len, &why) && parse_plan(job, td_text_n(text == NULL ? "" : text, len), &why);
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return ok || td_error_set(err, why.code, "%.200s: %s", path, td_error_text(&why, message));
}

/* Reads the model's config.json, as the server does, if the engine needs it. */
static bool read_config(struct job *job, struct td_error *err)
{
    struct td_mapping_cache maps;
    const char *engine = job->spec.engine;
    if (engine == NULL || !td_engine_needs_config(td_text_of(engine)) || job->model->config == NULL)
        return true;
    if (!td_mapping_cache_init(&maps, 1, 0, false, err))
        return false;
    bool ok = td_model_config_text(&maps, job->snapshot, job->model, &job->config, &job->config_len, err);
    td_file_source_forget(&maps, &job->model->config->file->source);
    td_mapping_cache_fini(&maps);
    return ok;
}

/* Sets the error for a checkpoint that was not found, with the reason or the ids of the existing ones. */
static bool no_checkpoint(const struct job *job, struct td_error *err)
{
    const char *model = job->arguments->model;
    struct td_buffer ids;
    const struct td_problems *problems = &job->model->problems;
    if (job->model->checkpoint_count == 0 && problems->count == 0)
        return td_error_set(err, TD_NOT_FOUND, "model \"%.200s\" has no checkpoint: all its files are in other formats",
                            model);
    if (job->model->checkpoint_count == 0)
        return td_error_set(
            err, TD_NOT_FOUND,
            "model \"%.100s\" has no checkpoint that can be read: %.100s: %.160s; tensord inspect DIR lists all", model,
            problems->items[0].path, problems->items[0].message);
    td_buffer_init(&ids);
    for (size_t i = 0; i < job->model->checkpoint_count; i++)
        td_buffer_printf(&ids, "%s%s", i > 0 ? ", " : "", job->model->checkpoints[i].id);
    const char *text = td_buffer_terminate(&ids);
    (void)td_error_set(err, TD_NOT_FOUND, "model \"%.100s\" has no checkpoint \"%.100s\"; its checkpoints are %s",
                       model, job->arguments->checkpoint, text == NULL ? "" : text);
    td_buffer_fini(&ids);
    return false;
}

static bool find_checkpoint(struct job *job, struct td_error *err)
{
    const struct arguments *arguments = job->arguments;
    const char *id = arguments->checkpoint;
    if (!td_local_path_check(arguments->directory, "plan", err) ||
        !td_local_scan(arguments->directory, !arguments->no_sandbox, &job->snapshot, err))
        return false;
    size_t len = strlen(arguments->model);
    const char *name = td_repo_resolve(job->snapshot, arguments->model, &len);
    job->model = td_snapshot_find_model(job->snapshot, td_text_n(name, len));
    if (job->model == NULL)
        return td_error_set(err, TD_NOT_FOUND, "no model \"%.200s\" in %.200s; tensord inspect lists them",
                            arguments->model, arguments->directory);
    job->checkpoint = td_model_find_checkpoint(job->model, td_text_n(id, id == NULL ? 0 : strlen(id)));
    return job->checkpoint != NULL || no_checkpoint(job, err);
}

/* ---- planning ------------------------------------------------------------------------------------------ */

/* Plans one rank's file and counts its bytes and runs. *plan is freed and receives the rank's plan. */
static bool tally_rank(const struct job *job, const struct td_plan_basis *basis, uint64_t rank, struct td_plan *plan,
                       struct td_plan_tally *out, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(job->checkpoint);
    struct td_rank_file *file = NULL;
    struct td_text engine = td_text_of(job->spec.engine == NULL ? "" : job->spec.engine);
    const struct td_rank_label label = {
        .model = job->model->id, .engine = td_engine_label(engine), .plan_id = job->plan_id};
    td_plan_fini(plan);
    bool ok = td_plan_spec_rank(&job->spec, basis, &tensors, rank, plan, err) &&
              td_rank_file_create_labelled(plan, &tensors, &label, NULL, &file, err);
    if (ok)
        td_plan_tally_file(file, out);
    td_rank_file_unref(file);
    return ok;
}

static void print_report(const struct job *job, const struct td_plan_basis *basis, const struct td_plan_tally *ranks,
                         const struct td_plan *plan)
{
    bool by_rules = job->spec.engine == NULL && job->spec.ranks == NULL;
    const struct td_plan_report report = {.model = job->model,
                                          .checkpoint = job->checkpoint,
                                          .engine = job->spec.engine,
                                          .by_plan = job->plan_id[0] != '\0',
                                          .tp_size = job->spec.tp_size,
                                          .ranks = ranks,
                                          .plan = plan,
                                          .match = by_rules ? &basis->match : NULL,
                                          .covers = job->spec.ranks == NULL};
    if (job->arguments->json)
        td_plan_report_json(&report);
    else
        td_plan_report_table(&report);
}

/* Plans all ranks, then prints the report. */
static bool report_ranks(const struct job *job, struct td_plan_tally *ranks, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(job->checkpoint);
    struct td_plan_basis basis;
    struct td_plan plan = {0};
    bool ok = td_plan_spec_match(&job->spec, td_text_n(job->config, job->config_len), &tensors, NULL, &basis, err);
    for (uint64_t rank = 0; ok && rank < job->spec.tp_size; rank++)
        ok = tally_rank(job, &basis, rank, &plan, &ranks[rank], err);
    if (ok)
        print_report(job, &basis, ranks, &plan);
    td_plan_fini(&plan);
    td_plan_basis_fini(&basis);
    return ok;
}

static bool plan_and_report(struct job *job, struct td_error *err)
{
    const struct arguments *arguments = job->arguments;
    bool ok = arguments->plan != NULL
                  ? read_plan(job, err)
                  : td_plan_spec_init_engine(&job->spec, td_text_of(td_engine_own_name(td_text_of(arguments->engine))),
                                             arguments->tp_size, err);
    if (ok && job->spec.boxes != NULL)
        return td_error_set(
            err, TD_INVALID_ARGUMENT,
            "%.200s: a plan with \"boxes\" is not for ranks; POST it to a server, which answers with its "
            "size",
            arguments->plan);
    if (!ok || !find_checkpoint(job, err) || !read_config(job, err))
        return false;
    struct td_plan_tally *ranks = calloc(job->spec.tp_size, sizeof *ranks);
    ok = ranks != NULL ? report_ranks(job, ranks, err) : td_error_no_memory(err);
    free(ranks);
    return ok;
}

/* ---- the command --------------------------------------------------------------------------------------- */

void td_cmd_plan_help(FILE *out)
{
    (void)fputs("tensord plan prints what each rank of a tensor-parallel job gets of a checkpoint, without a server.\n"
                "\n"
                "usage:\n"
                "  tensord plan DIR MODEL --engine NAME --tp SIZE [--checkpoint ID] [--json] [--no-sandbox]\n"
                "  tensord plan DIR MODEL --plan FILE [--checkpoint ID] [--json] [--no-sandbox]\n"
                "\n"
                "  DIR, MODEL       a model below DIR by its id, as tensord inspect DIR lists them\n"
                "  --engine NAME    the engine whose layout is planned: ",
                out);
    for (size_t i = 0; i < TD_ENGINE_NAME_COUNT; i++)
        (void)fprintf(out, "%s%s", i == 0 ? "" : i + 1 < TD_ENGINE_NAME_COUNT ? ", " : " or ", td_engine_name(i));
    (void)fputs(
        "\n"
        "  --tp SIZE        the number of ranks, 1 to 4096\n"
        "  --plan FILE      a plan in JSON instead, as POST /models/{id}/plans takes it (docs/slicing.md)\n"
        "  --checkpoint ID  the checkpoint (default: the model's default checkpoint)\n"
        "  --json           one JSON object instead of a table\n"
        "  --no-sandbox     parse in this process, for debugging; not for files of strangers\n"
        "\n"
        "columns:\n"
        "  BYTES, SHARE       length of the rank's file, also in per cent of the checkpoint's tensor bytes\n"
        "  RUNS               number of contiguous stretches of tensors in the file\n"
        "  SMALLEST, LARGEST  length of the shortest and the longest of these runs\n"
        "  of all             bytes of headers, of padding (zeros), and of tensors on several ranks beyond one copy\n"
        "\n"
        "exit codes: 0 success, 1 the model or the plan was refused, 2 wrong usage.\n",
        out);
}

static int usage(const char *fault, const char *what)
{
    static const char *const options[] = {"engine", "tp", "plan", "checkpoint", "json", "no-sandbox", "help", NULL};
    char near[TD_SUGGEST_BYTES] = "";
    if (what[0] == '-')
        td_suggest(what, "--", options, near);
    td_terminal_complain("%s%s%s; usage: tensord plan DIR MODEL (--engine NAME --tp SIZE | --plan FILE) "
                         "[--checkpoint ID] [--json]; tensord plan --help",
                         fault, what, near);
    return TD_EXIT_USAGE;
}

/* Checks --engine and --tp. Returns 0, or the exit code after printing a message. */
static int check_engine(struct arguments *arguments)
{
    struct td_error err = TD_ERROR_INIT;
    if (!td_engine_exists(td_text_of(arguments->engine))) {
        (void)td_engine_not_found(td_text_of(arguments->engine), &err);
        return usage("--engine: ", err.message);
    }
    if (!td_number_read(td_text_of(arguments->tp), TD_MAX_TP_SIZE, &arguments->tp_size) ||
        !td_tp_size_check(arguments->tp_size, &err))
        return usage("--tp takes a number of ranks from 1 to 4096, not ", arguments->tp);
    return 0;
}

/* Reads the arguments. Returns 0, or the exit code after printing a message. */
static int read_arguments(int argc, char **argv, struct arguments *arguments)
{
    memset(arguments, 0, sizeof *arguments);
    for (int i = 0; i < argc; i++) {
        const char *option = argv[i];
        const char *value = "";
        if (strcmp(option, "--json") == 0)
            arguments->json = true;
        else if (strcmp(option, "--no-sandbox") == 0)
            arguments->no_sandbox = true;
        else if (td_take_option(argc, argv, &i, "--engine", &value))
            arguments->engine = value;
        else if (td_take_option(argc, argv, &i, "--tp", &value))
            arguments->tp = value;
        else if (td_take_option(argc, argv, &i, "--plan", &value))
            arguments->plan = value;
        else if (td_take_option(argc, argv, &i, "--checkpoint", &value))
            arguments->checkpoint = value;
        else if (option[0] == '-' && option[1] != '\0')
            return usage("unknown option ", option);
        else if (arguments->directory == NULL)
            arguments->directory = option;
        else if (arguments->model == NULL)
            arguments->model = option;
        else
            return usage("only a directory and a model are allowed, but there is also ", option);
        if (value == NULL)
            return usage("a value is missing after ", option);
    }
    if (arguments->model == NULL)
        return usage("give a directory and a model", "");
    if ((arguments->plan == NULL) == (arguments->engine == NULL) ||
        (arguments->engine == NULL) != (arguments->tp == NULL))
        return usage("give either --engine and --tp, or --plan", "");
    return arguments->engine == NULL ? 0 : check_engine(arguments);
}

int td_cmd_plan(int argc, char **argv)
{
    struct arguments arguments;
    struct job job = {.arguments = &arguments};
    struct td_error err = TD_ERROR_INIT;
    int status = read_arguments(argc, argv, &arguments);
    if (status != 0)
        return status;
    bool ok = plan_and_report(&job, &err);
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && ok)
        ok = td_error_set(&err, TD_IO, "cannot write to standard output");
    if (!ok)
        td_terminal_complain("%s", err.message);
    free(job.config);
    td_plan_spec_fini(&job.spec);
    td_snapshot_unref(job.snapshot);
    return ok ? TD_EXIT_OK : TD_EXIT_FAILED;
}
