/* `tensord apply`: makes a full version of a model from a base and deltas, without a server. */
#include "server/cmd/commands.h"

#include "core/clock.h"
#include "server/cmd/apply_versions.h"
#include "server/cmd/shared/command_line.h"
#include "server/host/terminal.h"

#include <stdio.h>
#include <stdlib.h>

struct arguments {
    struct td_apply_wanted wanted;
    const char **directories;       /* those of `wanted`; owned */
    struct td_copy_options options; /* only json and quiet */
};

/* The result, for the report. */
struct result {
    const struct td_apply *apply;
    double seconds;
    const struct td_error *failure; /* code TD_OK: none */
};

/* ---- arguments ----------------------------------------------------------------------------------------- */

void td_cmd_apply_help(FILE *out)
{
    (void)fputs(
        "tensord apply makes a full version of a model from a base and deltas, without a server.\n"
        "\n"
        "usage:\n"
        "  tensord apply [--base-version TEXT] BASE DELTA [DELTA ...] -o OUT [--json] [--quiet]\n"
        "\n"
        "  BASE                 a directory with all tensors of a version, in files of safetensors\n"
        "  DELTA                a directory with the changes from the version before, as slime and ModelExpress\n"
        "                       write it: xor or overwrite, zstd, checksums by xxh3-128 or adler32\n"
        "  -o, --output OUT     the new directory: all tensors of the last version, the other files of BASE, and an\n"
        "                       index that says the version. It appears when it is complete; until then its files\n"
        "                       are in .NAME.tensord-apply beside it\n"
        "  --base-version TEXT  the version of BASE (the one that its index says, else the number in its name)\n"
        "  --json               one JSON object about the result, also after a failure\n"
        "  --quiet              no progress, notes and result\n"
        "\n"
        "The whole chain is checked before anything is written: each DELTA must be for the version before it.\n"
        "The checksum of every changed tensor is checked, too. BASE and DELTA are only read.\n"
        "\n"
        "exit codes: 0 OUT is there; 1 it was refused, failed, or was stopped by a signal, and left nothing; 2 wrong\n"
        "usage.\n",
        out);
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    const struct td_command_option options[] = {{"--base-version", .value = &out->wanted.base_version},
                                                {"-o", .value = &out->wanted.output},
                                                {"--output", .value = &out->wanted.output},
                                                {"--json", .flag = &out->options.json},
                                                {"--quiet", .flag = &out->options.quiet},
                                                {.name = NULL}};
    const struct td_command_line line = {.options = options,
                                         .usage = "tensord apply [--base-version TEXT] BASE DELTA [DELTA ...] -o OUT "
                                                  "[--json] [--quiet]"};
    size_t most = (size_t)argc;
    *out = (struct arguments){.directories = calloc(most + 1, sizeof *out->directories)};
    if (out->directories == NULL)
        return td_command_line_refuse(&line, "out of memory", "");
    out->wanted.directories = out->directories;
    if (!td_command_line_read(&line, argc, argv, out->directories, most, &out->wanted.count))
        return false;
    if (out->wanted.count < 2)
        return td_command_line_refuse(&line, "give the base and at least one delta", "");
    if (out->wanted.output == NULL)
        return td_command_line_refuse(&line, "give the directory to make: -o OUT", "");
    return true;
}

/* ---- the report ---------------------------------------------------------------------------------------- */

static void add_report(struct td_document *json, const void *context)
{
    const struct result *result = context;
    const struct td_apply *apply = result->apply;
    const struct td_delta_chain *chain = &apply->chain;
    bool has_failed = result->failure->code != TD_OK;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "base", apply->wanted->directories[0]);
    td_document_add_u64(json, "deltas", apply->wanted->count - 1);
    td_document_add_string(json, "directory", apply->wanted->output);
    td_document_add_bool(json, "complete", !has_failed);
    if (has_failed) {
        td_document_add_string(json, "error", result->failure->message);
    } else {
        td_document_add_string(json, "base_version", chain->base_version);
        td_document_add_string(json, "version", chain->version);
        td_document_add_u64(json, "tensors", chain->tensor_count);
        td_document_add_u64(json, "changed_tensors", chain->changed_count);
        td_document_add_u64(json, "tensor_bytes", chain->total_bytes);
        td_document_add_u64(json, "changed_tensor_bytes", chain->changed_bytes);
        td_document_add_u64(json, "file_bytes", apply->output.total_bytes);
    }
    td_document_add_seconds(json, "seconds", result->seconds);
    td_document_end(json);
}

static void print_line(const void *context)
{
    const struct result *result = context;
    const struct td_apply *apply = result->apply;
    const struct td_delta_chain *chain = &apply->chain;
    td_terminal_line(stdout, "%s: version %s from %s by %zu delta%s; %zu of %zu tensors changed, %s, in %.1f s",
                     apply->wanted->output, chain->version, chain->base_version, chain->delta_count,
                     chain->delta_count == 1 ? "" : "s", chain->changed_count, chain->tensor_count,
                     td_terminal_size(apply->output.total_bytes).text, result->seconds);
}

int td_cmd_apply(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    struct td_copying copying;
    struct td_apply apply;
    int status = TD_EXIT_USAGE;
    if (read_arguments(argc, argv, &arguments)) {
        uint64_t begin_ns = td_clock_ns();
        td_copying_begin(&copying, &arguments.options);
        td_apply_init(&apply, &arguments.wanted, &copying);
        bool ok = td_apply_versions(&apply, &err);
        const struct result result = {&apply, (double)(td_clock_ns() - begin_ns) / 1e9, &err};
        if (!ok)
            td_copying_complain(&copying, &err, NULL);
        status = td_copying_finish(&copying, &(struct td_copying_report){add_report, print_line, &result}, !ok);
        td_apply_fini(&apply);
        td_copying_end(&copying);
    }
    free(arguments.directories);
    return status;
}
