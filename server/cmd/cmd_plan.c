/* Scans the directory, finds the checkpoint, and plans every rank's file as the server would. Only one rank's plan is
 * in memory at a time; the report keeps its counts. The report is printed after all ranks are planned, so that a
 * refused plan prints only its error. */
#include "server/cmd/commands.h"

#include "catalog/names/repo.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/json/json_canonical.h"
#include "core/message/document.h"
#include "rank/tensor_source.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/shared/local_scan.h"
#include "server/host/terminal.h"
#include "slicing/engine/engine.h"
#include "slicing/plan_spec.h"
#include "slicing/rank_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

/* Counts of a rank's file. A run is a contiguous range of one tensor's bytes. */
struct tally {
    uint64_t nbytes;         /* length of the file */
    uint64_t header_bytes;   /* length of its header */
    uint64_t padding_bytes;  /* zeros that are in no tensor of the checkpoint */
    uint64_t constant_bytes; /* constants of the engine or the rules, also in no tensor of the checkpoint */
    uint64_t runs, smallest_run, largest_run; /* their number; the shortest and longest in bytes, 0 without runs */
};

/* A plan: its inputs, and what the report needs of its ranks. */
struct job {
    const struct arguments *arguments;
    struct td_plan_spec spec;
    char plan_id[TD_TAG_BYTES]; /* the id that a server would give to the plan; "" for an engine */
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    char *config; /* config.json, or NULL */
    size_t config_len;
    struct td_plan_basis basis;
    struct td_plan plan; /* of the latest rank: all ranks drop the same tensors */
    struct tally *ranks; /* spec.tp_size tallies */
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
    if (job->model->is_delta)
        return td_error_set(
            err, TD_FAILED_PRECONDITION,
            "model \"%.200s\" is a delta: its files hold the changes to %s%.200s; make the full version "
            "with tensord apply",
            model, job->model->base == NULL ? "another version" : "version ",
            job->model->base == NULL ? "" : job->model->base);
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

/* ---- counting ------------------------------------------------------------------------------------------ */

/* Counts the bytes and runs of a rank's file. */
static void tally_file(const struct td_rank_file *file, struct tally *out)
{
    *out = (struct tally){.nbytes = file->nbytes, .header_bytes = file->header_bytes};
    for (size_t i = 0; i < file->layout->block_count; i++) {
        const struct td_block *block = &file->layout->blocks[i];
        for (size_t k = 0; k < block->run_count; k++) {
            const struct td_run *run = &file->layout->runs[block->first_run + k];
            uint64_t count = run->count * block->rounds;
            if (run->source == TD_RUN_ZEROS)
                out->padding_bytes += run->len * count;
            if (run->source == TD_RANK_SOURCE_OWN)
                out->constant_bytes += run->len * count;
            if (run->source == TD_RUN_ZEROS || run->source == TD_RANK_SOURCE_OWN)
                continue;
            out->runs += count;
            out->largest_run = run->len > out->largest_run ? run->len : out->largest_run;
            out->smallest_run = out->smallest_run == 0 || run->len < out->smallest_run ? run->len : out->smallest_run;
        }
    }
    out->constant_bytes -= out->header_bytes; /* the file's own bytes are the header and the constants */
}

static void add_tally(struct tally *all, const struct tally *one)
{
    all->nbytes += one->nbytes;
    all->header_bytes += one->header_bytes;
    all->padding_bytes += one->padding_bytes;
    all->constant_bytes += one->constant_bytes;
    all->runs += one->runs;
    all->largest_run = one->largest_run > all->largest_run ? one->largest_run : all->largest_run;
    if (one->smallest_run > 0 && (all->smallest_run == 0 || one->smallest_run < all->smallest_run))
        all->smallest_run = one->smallest_run;
}

static struct tally tally_all(const struct job *job)
{
    struct tally all = {0};
    for (uint64_t rank = 0; rank < job->spec.tp_size; rank++)
        add_tally(&all, &job->ranks[rank]);
    return all;
}

/* Returns whether every tensor that is not dropped is on at least one rank. */
static bool covers_all(const struct job *job)
{
    return job->spec.ranks == NULL;
}

/* Returns the match of the plan's own rules; NULL without such rules. */
static const struct td_plan_match *match_of(const struct job *job)
{
    return job->spec.engine == NULL && job->spec.ranks == NULL ? &job->basis.match : NULL;
}

/* Returns the bytes of tensors that the ranks have beyond one copy of each tensor. */
static uint64_t repeated_bytes(const struct job *job, const struct tally *all)
{
    uint64_t once = job->checkpoint->total_bytes;
    for (size_t i = 0; i < job->plan.dropped_count; i++) {
        struct td_tensor_ref ref;
        const char *name = job->plan.dropped[i];
        if (td_checkpoint_find(job->checkpoint, td_text_of(name), &ref) && ref.tensor->reason == NULL)
            once -= ref.tensor->nbytes;
    }
    return all->nbytes - all->header_bytes - all->padding_bytes - all->constant_bytes - once;
}

/* Returns the file's length as a part of the checkpoint's tensor bytes. */
static double share_of(const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    return checkpoint->total_bytes == 0 ? 0 : (double)tally->nbytes / (double)checkpoint->total_bytes;
}

/* ---- a table ------------------------------------------------------------------------------------------- */

static void print_row(const char *name, const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    (void)printf("  %-5s %12s %8.1f %% %12" PRIu64 " %12s %12s\n", name, td_terminal_size(tally->nbytes).text,
                 100 * share_of(tally, checkpoint), tally->runs,
                 tally->runs == 0 ? "-" : td_terminal_size(tally->smallest_run).text,
                 tally->runs == 0 ? "-" : td_terminal_size(tally->largest_run).text);
}

static void print_heading(const struct job *job)
{
    struct td_buffer memory;
    td_buffer_init(&memory);
    (void)printf("%s", td_terminal_name(job->model->id, &memory));
    size_t count = job->checkpoint->tensor_count;
    (void)printf("  checkpoint %s, %zu tensor%s, %s; %s%s, tp %" PRIu64 "\n",
                 td_terminal_name(job->checkpoint->id, &memory), count, td_plural(count),
                 td_terminal_size(job->checkpoint->total_bytes).text, job->spec.engine != NULL ? "engine " : "",
                 job->spec.engine != NULL ? job->spec.engine
                 : covers_all(job)        ? "a plan with rules"
                                          : "a plan with ranks",
                 job->spec.tp_size);
    (void)printf("  %-5s %12s %10s %12s %12s %12s\n", "RANK", "BYTES", "SHARE", "RUNS", "SMALLEST", "LARGEST");
    td_buffer_fini(&memory);
}

/* Prints why all ranks together have more bytes than the checkpoint. */
static void print_surplus(const struct job *job, const struct tally *all)
{
    (void)printf("  of all: headers %s, padding %s", td_terminal_size(all->header_bytes).text,
                 td_terminal_size(all->padding_bytes).text);
    if (all->constant_bytes > 0)
        (void)printf(", constants %s", td_terminal_size(all->constant_bytes).text);
    if (covers_all(job))
        (void)printf(", repeated %s", td_terminal_size(repeated_bytes(job, all)).text);
    (void)printf("\n");
}

/* Prints a rule with its number, counted from 1, and its pattern. */
static void print_rule(const struct td_plan_match *match, size_t rule, const char *of)
{
    struct td_buffer memory;
    td_buffer_init(&memory);
    (void)printf("rule %zu%s (\"%s\")", rule + 1, of, td_terminal_name(match->rules->rules[rule].match, &memory));
    td_buffer_fini(&memory);
}

/* Prints for each unused rule whether its pattern or its place in the list is the cause. */
static void print_unused_rules(const struct td_plan_match *match)
{
    char of[32];
    uint64_t steps = TD_PLAN_MAX_STEPS;
    (void)snprintf(of, sizeof of, " of %zu", match->rules->count);
    for (size_t i = 0; i < match->unused_count; i++) {
        struct td_unused_rule why = td_plan_match_explain(match, match->unused[i], &steps);
        (void)printf("  ");
        print_rule(match, match->unused[i], of);
        (void)printf(" is used for no tensor: ");
        if (!why.known) {
            (void)printf("it matches no tensor's name, or earlier rules take every tensor that it matches\n");
        } else if (why.taker == NULL) {
            (void)printf("it matches no tensor's name\n");
        } else {
            print_rule(match, (size_t)(why.taker - match->rules->rules), "");
            (void)printf("%s every tensor that it matches\n", why.several ? " and others before it take" : " takes");
        }
    }
}

static void print_table(const struct job *job)
{
    struct td_buffer memory;
    struct tally all = tally_all(job);
    td_buffer_init(&memory);
    print_heading(job);
    for (uint64_t rank = 0; rank < job->spec.tp_size; rank++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%" PRIu64, rank);
        print_row(name, &job->ranks[rank], job->checkpoint);
    }
    print_row("all", &all, job->checkpoint);
    print_surplus(job, &all);
    for (size_t i = 0; i < job->plan.dropped_count; i++)
        (void)printf("  dropped %s\n", td_terminal_name(job->plan.dropped[i], &memory));
    td_buffer_fini(&memory);
    if (match_of(job) != NULL)
        print_unused_rules(match_of(job));
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void write_tally(struct td_document *json, const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    char share[32];
    (void)snprintf(share, sizeof share, "%.6f", share_of(tally, checkpoint));
    td_document_add_u64(json, "nbytes", tally->nbytes);
    td_document_add_raw(json, "share", td_text_of(share));
    td_document_add_u64(json, "header_bytes", tally->header_bytes);
    td_document_add_u64(json, "padding_bytes", tally->padding_bytes);
    td_document_add_u64(json, "constant_bytes", tally->constant_bytes);
    td_document_add_u64(json, "runs", tally->runs);
    td_document_add_u64(json, "smallest_run", tally->smallest_run);
    td_document_add_u64(json, "largest_run", tally->largest_run);
}

static void add_ranks(struct td_document *json, const struct job *job)
{
    td_document_begin_array(json, "ranks");
    for (uint64_t rank = 0; rank < job->spec.tp_size; rank++) {
        td_document_begin_object(json, NULL);
        td_document_add_u64(json, "rank", rank);
        write_tally(json, &job->ranks[rank], job->checkpoint);
        td_document_end(json);
    }
    td_document_end(json);
}

static void add_total(struct td_document *json, const struct job *job)
{
    struct tally all = tally_all(job);
    td_document_begin_object(json, "total");
    write_tally(json, &all, job->checkpoint);
    if (covers_all(job))
        td_document_add_u64(json, "repeated_bytes", repeated_bytes(job, &all));
    td_document_end(json);
}

static bool print_json(const struct job *job, struct td_error *err)
{
    struct td_buffer out;
    struct td_document json;
    const struct td_plan_match *match = match_of(job);
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "model", job->model->id);
    td_document_add_string(&json, "checkpoint", job->checkpoint->id);
    td_document_add_string(&json, "engine", job->plan_id[0] != '\0' ? "plan" : job->spec.engine);
    td_document_add_u64(&json, "tp_size", job->spec.tp_size);
    td_document_add_u64(&json, "checkpoint_bytes", job->checkpoint->total_bytes);
    add_ranks(&json, job);
    add_total(&json, job);
    td_document_begin_array(&json, "dropped");
    for (size_t i = 0; i < job->plan.dropped_count; i++) {
        td_document_add_string(&json, NULL, job->plan.dropped[i]);
    }
    td_document_end(&json);
    td_document_begin_array(&json, "unused_rules");
    for (size_t i = 0; match != NULL && i < match->unused_count; i++)
        td_document_add_u64(&json, NULL, match->unused[i]);
    td_document_end(&json);
    td_document_end(&json);
    return td_output_json(&out, err);
}

/* ---- planning ------------------------------------------------------------------------------------------ */

/* Plans one rank's file and counts its bytes and runs. */
static bool tally_rank(struct job *job, uint64_t rank, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(job->checkpoint);
    struct td_rank_file *file = NULL;
    struct td_text engine = td_text_of(job->spec.engine == NULL ? "" : job->spec.engine);
    const struct td_rank_label label = {
        .model = job->model->id, .engine = td_engine_label(engine), .plan_id = job->plan_id};
    td_plan_fini(&job->plan);
    bool ok = td_plan_spec_rank(&job->spec, &job->basis, &tensors, rank, &job->plan, err) &&
              td_rank_file_create_labelled(&job->plan, &tensors, &label, NULL, &file, err);
    if (ok)
        tally_file(file, &job->ranks[rank]);
    td_rank_file_unref(file);
    return ok;
}

/* Plans all ranks, then prints the report. */
static bool report_ranks(struct job *job, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(job->checkpoint);
    bool ok = td_plan_spec_match(&job->spec, td_text_n(job->config, job->config_len), &tensors, NULL, &job->basis, err);
    for (uint64_t rank = 0; ok && rank < job->spec.tp_size; rank++)
        ok = tally_rank(job, rank, err);
    if (ok && job->arguments->json)
        ok = print_json(job, err);
    else if (ok)
        print_table(job);
    td_plan_fini(&job->plan);
    td_plan_basis_fini(&job->basis);
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
    job->ranks = calloc(job->spec.tp_size, sizeof *job->ranks);
    return job->ranks != NULL ? report_ranks(job, err) : td_error_no_memory(err);
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

/* Checks --engine and --tp. Returns false after printing a message. */
static bool check_engine(const struct td_command_line *line, struct arguments *arguments)
{
    struct td_error err = TD_ERROR_INIT;
    if (!td_engine_exists(td_text_of(arguments->engine))) {
        (void)td_engine_not_found(td_text_of(arguments->engine), &err);
        return td_command_line_refuse(line, "--engine: ", err.message);
    }
    return (td_number_read(td_text_of(arguments->tp), TD_MAX_TP_SIZE, &arguments->tp_size) &&
            td_tp_size_check(arguments->tp_size, &err)) ||
           td_command_line_refuse(line, "--tp takes a number of ranks from 1 to 4096, not ", arguments->tp);
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct arguments *arguments)
{
    const struct td_command_option options[] = {{"--engine", .value = &arguments->engine, .may_be_empty = true},
                                                {"--tp", .value = &arguments->tp, .may_be_empty = true},
                                                {"--plan", .value = &arguments->plan, .may_be_empty = true},
                                                {"--checkpoint", .value = &arguments->checkpoint, .may_be_empty = true},
                                                {"--json", .flag = &arguments->json},
                                                {"--no-sandbox", .flag = &arguments->no_sandbox},
                                                {.name = NULL}};
    const struct td_command_line line = {
        .options = options,
        .usage = "tensord plan DIR MODEL (--engine NAME --tp SIZE | --plan FILE) [--checkpoint ID] [--json]; "
                 "tensord plan --help"};
    const char *others[3] = {NULL};
    size_t count;
    memset(arguments, 0, sizeof *arguments);
    if (!td_command_line_read(&line, argc, argv, others, 2, &count))
        return false;
    arguments->directory = others[0];
    arguments->model = others[1];
    if (count > 2)
        return td_command_line_refuse(&line, "only a directory and a model are allowed, but there is also ", others[2]);
    if (count < 2)
        return td_command_line_refuse(&line, "give a directory and a model", "");
    if ((arguments->plan == NULL) == (arguments->engine == NULL) ||
        (arguments->engine == NULL) != (arguments->tp == NULL))
        return td_command_line_refuse(&line, "give either --engine and --tp, or --plan", "");
    return arguments->engine == NULL || check_engine(&line, arguments);
}

int td_cmd_plan(int argc, char **argv)
{
    struct arguments arguments;
    struct job job = {.arguments = &arguments};
    struct td_error err = TD_ERROR_INIT;
    if (!read_arguments(argc, argv, &arguments))
        return TD_EXIT_USAGE;
    bool ok = plan_and_report(&job, &err);
    ok = td_output_flush(&err) && ok;
    if (!ok)
        td_terminal_complain("%s", err.message);
    free(job.ranks);
    free(job.config);
    td_plan_spec_fini(&job.spec);
    td_snapshot_unref(job.snapshot);
    return ok ? TD_EXIT_OK : TD_EXIT_FAILED;
}
