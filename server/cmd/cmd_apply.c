/* `tensord apply`: makes a full version of a model from a base and deltas, without a server. */
#include "server/cmd/commands.h"

#include "catalog/delta/delta_output.h"
#include "catalog/model/file_kind.h"
#include "catalog/model/hub_cache.h"
#include "core/clock.h"
#include "server/cmd/command_line.h"
#include "server/cmd/copying.h"
#include "server/cmd/pull_directory.h"
#include "server/host/terminal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of the name of the directory that has the files until all are there. */
#define STAGING_END ".tensord-apply"

struct arguments {
    const char *base_version, *out; /* NULL: not given */
    const char **directories;       /* the base, then the deltas; owned */
    size_t count;
    struct td_copy_options options; /* only json and quiet */
};

/* A directory that was given, as a place below a root. */
struct given {
    char real_path[PATH_MAX]; /* without symlinks */
    char above[PATH_MAX];     /* path of the root */
    struct td_hub_place in_cache;
    struct td_root *root; /* owned */
    struct td_delta_place place;
};

struct apply {
    const struct arguments *arguments;
    struct td_copying copying;
    struct given *given; /* one for each directory; owned */
    struct td_delta_chain chain;
    struct td_delta_output output;
    struct td_pull_directory directory;
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
    const struct td_command_option options[] = {{"--base-version", .value = &out->base_version},
                                                {"-o", .value = &out->out},
                                                {"--output", .value = &out->out},
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
    if (!td_command_line_read(&line, argc, argv, out->directories, most, &out->count))
        return false;
    if (out->count < 2)
        return td_command_line_refuse(&line, "give the base and at least one delta", "");
    if (out->out == NULL)
        return td_command_line_refuse(&line, "give the directory to make: -o OUT", "");
    return true;
}

/* ---- directories --------------------------------------------------------------------------------------- */

/* Opens a directory that was given. Its symlinks may lead to directories beside it, since writers of versions link
 * unchanged files to the version before; those of a snapshot in a Hugging Face cache lead to the folder of the blobs.
 */
static bool open_given(const char *path, struct given *given, struct td_error *err)
{
    if (!td_local_path_check(path, "apply", err))
        return false;
    if (realpath(path, given->real_path) == NULL)
        return td_error_sys(err, TD_IO, errno, "cannot open \"%.200s\"", path);
    const char *name = td_base_name(given->real_path);
    given->place = (struct td_delta_place){.shown = path, .name = name, .below = name};
    if (td_hub_cache_place(given->real_path, &given->in_cache)) {
        (void)snprintf(given->above, sizeof given->above, "%s", given->in_cache.folder);
        given->place.below = given->in_cache.below;
    } else {
        size_t len = (size_t)(name - given->real_path); /* with the slash */
        (void)snprintf(given->above, sizeof given->above, "%.*s", (int)len, given->real_path);
    }
    if (!td_root_create(given->above, &given->root, err))
        return false;
    given->place.root = given->root;
    return true;
}

static bool open_all(struct apply *apply, struct td_error *err)
{
    const struct arguments *arguments = apply->arguments;
    apply->given = calloc(arguments->count + 1, sizeof *apply->given);
    if (apply->given == NULL) {
        (void)td_error_no_memory(err);
        return false;
    }
    for (size_t i = 0; i < arguments->count; i++)
        if (!open_given(arguments->directories[i], &apply->given[i], err))
            return false;
    return true;
}

/* Refuses a new directory inside a directory that is only read. */
static bool check_outside(const struct apply *apply, struct td_error *err)
{
    const char *out = apply->arguments->out;
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/')
        len--;
    while (len > 0 && out[len - 1] != '/')
        len--;
    char above[PATH_MAX];
    char real_path[PATH_MAX];
    (void)snprintf(above, sizeof above, "%.*s", len == 0 ? 1 : (int)len, len == 0 ? "." : out);
    if (realpath(above, real_path) == NULL)
        return true; /* a directory that is still to be made, or cannot be */
    for (size_t i = 0; i < apply->arguments->count; i++) {
        size_t n = strlen(apply->given[i].real_path);
        if (strncmp(real_path, apply->given[i].real_path, n) == 0 && (real_path[n] == '\0' || real_path[n] == '/'))
            return td_error_set(err, TD_INVALID_ARGUMENT, "\"%.200s\" would be inside \"%.200s\", which is only read",
                                out, apply->given[i].place.shown);
    }
    return true;
}

/* ---- the work ------------------------------------------------------------------------------------------ */

static void note_written(void *context, uint64_t bytes)
{
    struct apply *apply = context;
    atomic_fetch_add(&apply->copying.done_bytes, bytes);
}

static bool open_chain(struct apply *apply, struct td_error *err)
{
    size_t count = apply->arguments->count - 1;
    struct td_delta_place *places = calloc(apply->arguments->count, sizeof *places);
    if (places == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        places[i] = apply->given[i + 1].place;
    bool ok = td_delta_chain_open(&apply->chain, &apply->given[0].place, apply->arguments->base_version, places, count,
                                  &apply->copying.cancel, err);
    free(places);
    return ok;
}

/* Says which files of the base are not in the new directory. */
static void note_left_out(struct apply *apply)
{
    char text[NAME_MAX + 200];
    size_t count = apply->output.left_out_count;
    if (count == 0)
        return;
    (void)snprintf(text, sizeof text,
                   "%zu file%s of the base (%s%s) left out: weights to which the deltas are not applied", count,
                   count > 1 ? "s" : "", apply->output.left_out, count > 1 ? ", ... are" : " is");
    td_copying_note(&apply->copying, text);
}

/* Writes the new directory, and gives it its name. */
static bool write_directory(struct apply *apply, struct td_error *err)
{
    if (!td_pull_directory_open_alone(apply->arguments->out, STAGING_END, &apply->directory, err))
        return false;
    atomic_store(&apply->copying.total_bytes, apply->output.total_bytes);
    td_copying_show(&apply->copying, "", apply->arguments->out);
    bool ok =
        td_delta_output_write(&apply->output, apply->directory.lock, td_pull_directory_kept(&apply->directory), err) &&
        td_copying_check(&apply->copying, err) && td_pull_directory_publish(&apply->directory, err);
    td_copying_show_end(&apply->copying);
    return ok;
}

static bool apply_all(struct apply *apply, struct td_error *err)
{
    apply->output = (struct td_delta_output){
        .chain = &apply->chain, .cancel = &apply->copying.cancel, .advance = note_written, .context = apply};
    if (!open_all(apply, err) || !check_outside(apply, err) || !open_chain(apply, err) ||
        !td_delta_output_list(&apply->output, err))
        return false;
    note_left_out(apply);
    bool ok = write_directory(apply, err);
    if (!ok && apply->directory.staging != NULL && apply->directory.root != NULL)
        td_pull_directory_discard(&apply->directory);
    return ok;
}

/* ---- the report ---------------------------------------------------------------------------------------- */

static void add_report(struct td_json_builder *json, const void *context)
{
    const struct apply *apply = context;
    const struct td_delta_chain *chain = &apply->chain;
    bool has_failed = apply->failure->code != TD_OK;
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "base", apply->arguments->directories[0]);
    td_json_add_u64(json, "deltas", apply->arguments->count - 1);
    td_json_add_string(json, "directory", apply->arguments->out);
    td_json_add_bool(json, "complete", !has_failed);
    if (has_failed) {
        td_json_add_string(json, "error", apply->failure->message);
    } else {
        td_json_add_string(json, "base_version", chain->base_version);
        td_json_add_string(json, "version", chain->version);
        td_json_add_u64(json, "tensors", chain->tensor_count);
        td_json_add_u64(json, "changed_tensors", chain->changed_count);
        td_json_add_u64(json, "tensor_bytes", chain->total_bytes);
        td_json_add_u64(json, "changed_tensor_bytes", chain->changed_bytes);
        td_json_add_u64(json, "file_bytes", apply->output.total_bytes);
    }
    td_json_add_seconds(json, "seconds", apply->seconds);
    td_json_end(json);
}

static void print_line(const void *context)
{
    const struct apply *apply = context;
    const struct td_delta_chain *chain = &apply->chain;
    td_terminal_line(stdout, "%s: version %s from %s by %zu delta%s; %zu of %zu tensors changed, %s, in %.1f s",
                     apply->arguments->out, chain->version, chain->base_version, chain->delta_count,
                     chain->delta_count == 1 ? "" : "s", chain->changed_count, chain->tensor_count,
                     td_terminal_size(apply->output.total_bytes).text, apply->seconds);
}

int td_cmd_apply(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    int status = TD_EXIT_USAGE;
    if (read_arguments(argc, argv, &arguments)) {
        uint64_t begin_ns = td_clock_ns();
        struct apply apply = {.arguments = &arguments, .directory = {.lock = -1}, .failure = &err};
        td_copying_begin(&apply.copying, &arguments.options);
        bool ok = apply_all(&apply, &err);
        apply.seconds = (double)(td_clock_ns() - begin_ns) / 1e9;
        if (!ok)
            td_copying_complain(&apply.copying, &err, NULL);
        status = td_copying_finish(&apply.copying, &(struct td_copying_report){add_report, print_line, &apply}, !ok);
        td_copying_end(&apply.copying);
        td_pull_directory_close(&apply.directory);
        td_delta_output_fini(&apply.output);
        td_delta_chain_fini(&apply.chain);
        for (size_t i = 0; apply.given != NULL && i < arguments.count; i++)
            td_root_unref(apply.given[i].root);
        free(apply.given);
    }
    free(arguments.directories);
    return status;
}
