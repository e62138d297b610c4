#include "server/commands.h"

#include "api/tensor_source.h"
#include "core/json.h"
#include "server/local_scan.h"
#include "server/terminal.h"
#include "slicing/plan_spec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 * 1024 * 1024 }; /* of a plan, and of config.json */

struct arguments {
    const char *directory, *model, *engine, *tp, *plan, *checkpoint;
    bool json;
};

/* What a rank's file is made of. */
struct tally {
    uint64_t nbytes; /* of the file */
    uint64_t runs;   /* contiguous in a tensor's bytes */
    uint64_t shortest, longest;
};

/* ---- text ---------------------------------------------------------------------------------------------- */

/* All of a file of moderate size (free()). */
static bool read_descriptor(int fd, char **text, size_t *len, struct td_error *err)
{
    struct td_buffer buffer;
    td_buffer_init(&buffer);
    ssize_t n = 1;
    while (n > 0 && buffer.len <= FILE_MAX_BYTES && td_buffer_reserve(&buffer, 65536)) {
        n = read(fd, buffer.data + buffer.len, 65536);
        buffer.len += n > 0 ? (size_t)n : 0;
    }
    bool ok = !buffer.failed || td_error_no_memory(err);
    ok = ok && (n >= 0 || td_error_sys(err, TD_IO, errno, "cannot read it"));
    ok = ok && (buffer.len <= FILE_MAX_BYTES ||
                td_error_set(err, TD_RESOURCE_EXHAUSTED, "it is longer than 64 MiB"));
    *text = ok ? td_buffer_release(&buffer, len) : NULL;
    td_buffer_fini(&buffer);
    return ok;
}

static bool read_plan(const char *path, struct td_plan_spec *spec, struct td_error *err)
{
    char *text = NULL;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return td_error_sys(err, TD_NOT_FOUND, errno, "cannot open it");
    bool ok =
        read_descriptor(fd, &text, &len, err) && td_plan_spec_parse(spec, text == NULL ? "" : text, len, err);
    (void)close(fd);
    free(text);
    return ok;
}

/* config.json; *text stays NULL without one. */
static bool read_config(const struct td_snapshot *snapshot, const struct td_model *model, char **text,
                        size_t *len, struct td_error *err)
{
    int fd;
    struct td_file_id id;
    *text = NULL;
    *len = 0;
    if (model->config == NULL)
        return true;
    if (!td_root_open_file(snapshot->root, model->config->file->source.path, &fd, &id, err))
        return false;
    bool ok = read_descriptor(fd, text, len, err);
    (void)close(fd);
    return ok;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static struct tally count_runs(const struct td_shard_file *file)
{
    struct tally tally = {.nbytes = file->nbytes};
    for (size_t i = 0; i < file->layout->block_count; i++) {
        const struct td_block *block = &file->layout->blocks[i];
        for (size_t k = 0; k < block->run_count; k++) {
            const struct td_run *run = &file->layout->runs[block->first_run + k];
            if (run->source == TD_RUN_ZEROS || run->source == TD_SHARD_SOURCE_HEADER)
                continue;
            tally.runs += run->count * block->rounds;
            tally.longest = run->len > tally.longest ? run->len : tally.longest;
            tally.shortest = tally.shortest == 0 || run->len < tally.shortest ? run->len : tally.shortest;
        }
    }
    return tally;
}

/* The plan replaces the one before. */
static bool tally_rank(const struct td_plan_spec *spec, const struct td_plan_basis *basis, const char *model,
                       const struct td_tensor_list *tensors, uint64_t rank, struct td_plan *plan,
                       struct tally *out, struct td_error *err)
{
    struct td_shard_file *file = NULL;
    struct td_shard_metadata metadata[] = {{"format", "pt"}, {"model", model}};
    td_plan_fini(plan);
    bool ok = td_plan_spec_rank(spec, basis, tensors, rank, plan, err) &&
              td_shard_file_create(plan, tensors, metadata, 2, true, &file, err);
    if (ok)
        *out = count_runs(file);
    td_shard_file_unref(file);
    return ok;
}

static void add_tally(struct tally *all, const struct tally *one)
{
    all->nbytes += one->nbytes;
    all->runs += one->runs;
    all->longest = one->longest > all->longest ? one->longest : all->longest;
    if (one->shortest > 0 && (all->shortest == 0 || one->shortest < all->shortest))
        all->shortest = one->shortest;
}

/* ---- printing ------------------------------------------------------------------------------------------ */

static double share_of(const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    return checkpoint->total_bytes == 0 ? 0 : (double)tally->nbytes / (double)checkpoint->total_bytes;
}

static void print_row(const char *name, const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    char size[TD_TERMINAL_BYTES];
    char shortest[TD_TERMINAL_BYTES];
    char longest[TD_TERMINAL_BYTES];
    td_terminal_bytes(tally->nbytes, size, sizeof size);
    td_terminal_bytes(tally->shortest, shortest, sizeof shortest);
    td_terminal_bytes(tally->longest, longest, sizeof longest);
    (void)printf("  %-5s %12s %8.1f %% %12" PRIu64 " %12s %12s\n", name, size,
                 100 * share_of(tally, checkpoint), tally->runs, tally->runs == 0 ? "-" : shortest,
                 tally->runs == 0 ? "-" : longest);
}

static void print_tally_json(const struct tally *tally, const struct td_checkpoint *checkpoint)
{
    (void)printf("\"nbytes\":%" PRIu64 ",\"share\":%.6f,\"runs\":%" PRIu64 ",\"smallest_run\":%" PRIu64
                 ",\"largest_run\":%" PRIu64 "}",
                 tally->nbytes, share_of(tally, checkpoint), tally->runs, tally->shortest, tally->longest);
}

static void print_json_text(const char *before, const char *text)
{
    struct td_buffer json;
    td_buffer_init(&json);
    td_json_write_cstring(&json, text);
    (void)printf("%s%.*s", before, (int)json.len, json.data);
    td_buffer_fini(&json);
}

static void print_heading(const struct td_model *model, const struct td_checkpoint *checkpoint,
                          const struct td_plan_spec *spec, bool json)
{
    struct td_buffer memory;
    char size[TD_TERMINAL_BYTES];
    const char *engine = spec->engine == NULL ? "plan" : spec->engine;
    if (json) {
        print_json_text("{\"model\":", model->id);
        print_json_text(",\"checkpoint\":", checkpoint->id);
        print_json_text(",\"engine\":", engine);
        (void)printf(",\"tp_size\":%" PRIu64 ",\"checkpoint_bytes\":%" PRIu64 ",\"ranks\":[", spec->tp_size,
                     checkpoint->total_bytes);
        return;
    }
    td_buffer_init(&memory);
    td_terminal_bytes(checkpoint->total_bytes, size, sizeof size);
    (void)printf("%s", td_terminal_name(model->id, &memory));
    (void)printf("  checkpoint %s, %zu tensors, %s; engine %s, tp %" PRIu64 "\n",
                 td_terminal_name(checkpoint->id, &memory), checkpoint->tensor_count, size, engine,
                 spec->tp_size);
    (void)printf("  %-5s %12s %10s %12s %12s %12s\n", "RANK", "BYTES", "SHARE", "RUNS", "SHORTEST",
                 "LONGEST");
    td_buffer_fini(&memory);
}

static void print_dropped(const struct td_plan *plan, bool json)
{
    struct td_buffer memory;
    td_buffer_init(&memory);
    for (size_t i = 0; i < plan->dropped_count; i++) {
        if (json)
            print_json_text(i > 0 ? "," : "", plan->dropped[i]);
        else
            (void)printf("  dropped %s\n", td_terminal_name(plan->dropped[i], &memory));
    }
    td_buffer_fini(&memory);
}

static bool print_ranks(const struct td_model *model, const struct td_checkpoint *checkpoint,
                        const struct td_plan_spec *spec, const struct td_plan_basis *basis, bool json,
                        struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_plan plan = {0};
    struct tally all = {0};
    bool ok = true;
    for (uint64_t rank = 0; ok && rank < spec->tp_size; rank++) {
        char name[24];
        struct tally tally;
        ok = tally_rank(spec, basis, model->id, &tensors, rank, &plan, &tally, err);
        if (!ok)
            break;
        if (rank == 0) /* only now: what fails prints nothing else */
            print_heading(model, checkpoint, spec, json);
        add_tally(&all, &tally);
        (void)snprintf(name, sizeof name, "%" PRIu64, rank);
        if (json) {
            (void)printf("%s{\"rank\":%s,", rank > 0 ? "," : "", name);
            print_tally_json(&tally, checkpoint);
        } else {
            print_row(name, &tally, checkpoint);
        }
    }
    if (ok && json) {
        (void)fputs("],\"total\":{", stdout);
        print_tally_json(&all, checkpoint);
        (void)fputs(",\"dropped\":[", stdout);
        print_dropped(&plan, json);
        (void)fputs("]}\n", stdout);
    } else if (ok) {
        print_row("all", &all, checkpoint);
        print_dropped(&plan, json);
    }
    td_plan_fini(&plan);
    return ok;
}

static bool print_plan(struct td_snapshot *snapshot, const struct td_model *model,
                       const struct td_checkpoint *checkpoint, const struct td_plan_spec *spec, bool json,
                       struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_plan_basis basis;
    char *config;
    size_t config_len;
    if (!read_config(snapshot, model, &config, &config_len, err))
        return false;
    bool ok = td_plan_spec_match(spec, config, config_len, &tensors, &basis, err) &&
              print_ranks(model, checkpoint, spec, &basis, json, err);
    td_plan_basis_fini(&basis);
    free(config);
    return ok;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int usage(const char *fault, const char *what)
{
    (void)fprintf(stderr,
                  "tensord: %s%s; usage: tensord plan DIR MODEL (--engine NAME --tp SIZE | --plan FILE) "
                  "[--checkpoint ID] [--json]\n",
                  fault, what);
    return TD_EXIT_USAGE;
}

/* Whether argv[*i] is the option `name`, with its value behind '=' or as the next argument. */
static bool take_option(int argc, char **argv, int *i, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '\0' && argv[*i][n] != '='))
        return false;
    if (argv[*i][n] == '=')
        *value = argv[*i] + n + 1;
    else if (*i + 1 < argc)
        *value = argv[++*i];
    else
        *value = NULL;
    return true;
}

/* 0, or what the process is to exit with. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    memset(arguments, 0, sizeof *arguments);
    for (int i = 0; i < argc; i++) {
        const char *option = argv[i];
        const char *value = "";
        if (strcmp(option, "--json") == 0)
            arguments->json = true;
        else if (take_option(argc, argv, &i, "--engine", &value))
            arguments->engine = value;
        else if (take_option(argc, argv, &i, "--tp", &value))
            arguments->tp = value;
        else if (take_option(argc, argv, &i, "--plan", &value))
            arguments->plan = value;
        else if (take_option(argc, argv, &i, "--checkpoint", &value))
            arguments->checkpoint = value;
        else if (option[0] == '-' && option[1] != '\0')
            return usage("unknown option ", option);
        else if (arguments->directory == NULL)
            arguments->directory = option;
        else if (arguments->model == NULL)
            arguments->model = option;
        else
            return usage("a directory and a model are enough, but there is also ", option);
        if (value == NULL)
            return usage("a value is missing after ", option);
    }
    if (arguments->model == NULL)
        return usage("a directory and a model have to be named", "");
    if ((arguments->plan == NULL) == (arguments->engine == NULL) ||
        (arguments->engine == NULL) != (arguments->tp == NULL))
        return usage("either --engine and --tp, or --plan", "");
    return 0;
}

static bool read_spec(const struct arguments *arguments, struct td_plan_spec *spec, struct td_error *err)
{
    if (arguments->plan != NULL)
        return read_plan(arguments->plan, spec, err);
    char *end;
    errno = 0;
    unsigned long size = strtoul(arguments->tp, &end, 10);
    if (arguments->tp[0] < '0' || arguments->tp[0] > '9' || *end != '\0' || errno != 0)
        return td_error_set(err, TD_INVALID_ARGUMENT, "--tp is \"%.40s\"; a number of ranks is right",
                            arguments->tp);
    return td_plan_spec_init_engine(spec, arguments->engine, strlen(arguments->engine), size, err);
}

static bool run(const struct arguments *arguments, struct td_snapshot **snapshot, struct td_plan_spec *spec,
                struct td_error *err)
{
    if (!read_spec(arguments, spec, err) || !td_local_scan(arguments->directory, snapshot, err))
        return false;
    const char *id = arguments->checkpoint;
    const struct td_model *model =
        td_snapshot_find_model(*snapshot, arguments->model, strlen(arguments->model));
    if (model == NULL)
        return td_error_set(err, TD_NOT_FOUND, "no model \"%.200s\" in %.200s; tensord inspect lists them",
                            arguments->model, arguments->directory);
    const struct td_checkpoint *checkpoint = td_model_find_checkpoint(model, id, id == NULL ? 0 : strlen(id));
    if (checkpoint == NULL)
        return td_error_set(err, TD_NOT_FOUND, "model \"%.200s\" has no checkpoint%s%.200s", arguments->model,
                            id == NULL ? "" : " ", id == NULL ? "" : id);
    return print_plan(*snapshot, model, checkpoint, spec, arguments->json, err);
}

int td_cmd_plan(int argc, char **argv)
{
    struct arguments arguments;
    struct td_snapshot *snapshot = NULL;
    struct td_plan_spec spec = {0};
    struct td_error err;
    int status = parse(argc, argv, &arguments);
    if (status != 0)
        return status;
    td_error_init(&err);
    bool ok = run(&arguments, &snapshot, &spec, &err);
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && ok)
        ok = td_error_set(&err, TD_IO, "cannot write to standard output");
    if (!ok && err.pos != TD_ERROR_POS_NONE && arguments.plan != NULL)
        (void)fprintf(stderr, "tensord: %s: %s (at byte %" PRIu64 ")\n", arguments.plan, err.message,
                      err.pos);
    else if (!ok)
        (void)fprintf(stderr, "tensord: %s\n", err.message);
    td_plan_spec_fini(&spec);
    td_snapshot_unref(snapshot);
    return ok ? TD_EXIT_OK : TD_EXIT_FAILED;
}
