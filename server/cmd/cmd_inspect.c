#include "server/cmd/commands.h"

#include "api/native/manifest_view.h"
#include "catalog/scan/scan.h"
#include "core/buffer.h"
#include "core/json/json_build.h"
#include "server/cmd/inspect_table.h"
#include "server/cmd/local_path.h"
#include "server/cmd/local_scan.h"
#include "server/config/suggest.h"
#include "server/host/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- JSON ---------------------------------------------------------------------------------------------- */

/* Prints the manifest that a server would answer, without the newline at its end. */
static bool print_manifest(struct td_snapshot *snapshot, const struct td_model *model,
                           const struct td_checkpoint *checkpoint, struct td_error *err)
{
    enum { WINDOW = 64 * 1024 };
    struct td_manifest_query query = {.page_first = true};
    struct td_blob *blob = NULL;
    char *window = malloc(WINDOW);
    bool ok = window != NULL || td_error_no_memory(err);
    ok = ok && td_manifest_view_create(NULL, snapshot, model, checkpoint, &query, &blob, err);
    for (uint64_t off = 0; ok && off < blob->len_bytes - 1;) {
        uint64_t left = blob->len_bytes - 1 - off;
        size_t n = left < WINDOW ? (size_t)left : WINDOW;
        ok = td_blob_read(blob, off, window, n, err) &&
             (fwrite(window, 1, n, stdout) == n || td_error_set(err, TD_IO, "cannot write to standard output"));
        off += n;
    }
    td_blob_unref(blob);
    free(window);
    return ok;
}

static void print_json_error(const char *model, const struct td_problem *problem, bool first)
{
    struct td_buffer out;
    struct td_json_builder json;
    td_buffer_init(&out);
    td_buffer_puts(&out, first ? "" : ",");
    td_json_builder_init(&json, &out);
    td_json_begin_object(&json, NULL);
    if (model != NULL)
        td_json_add_string(&json, "model", model);
    td_json_add_string(&json, "file", problem->path);
    td_json_add_string(&json, "message", problem->message);
    td_json_end(&json);
    td_json_builder_fini(&json);
    (void)fwrite(out.data, 1, out.len, stdout);
    td_buffer_fini(&out);
}

/* Prints the frame by hand and not by json_build.h: a manifest goes to standard output in windows, and is never whole
 * in memory. */
static bool print_directory_json(struct td_snapshot *snapshot, struct td_error *err)
{
    bool first = true;
    (void)fputs("{\"models\":[", stdout);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        for (size_t j = 0; j < snapshot->models[i].checkpoint_count; j++) {
            if (!first)
                (void)putchar(',');
            first = false;
            if (!print_manifest(snapshot, &snapshot->models[i], &snapshot->models[i].checkpoints[j], err))
                return false;
        }
    }
    first = true;
    (void)fputs("],\"errors\":[", stdout);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        for (size_t j = 0; j < snapshot->models[i].problems.count; j++) {
            print_json_error(snapshot->models[i].id, &snapshot->models[i].problems.items[j], first);
            first = false;
        }
    }
    for (size_t i = 0; i < snapshot->problems.count; i++) {
        print_json_error(NULL, &snapshot->problems.items[i], first);
        first = false;
    }
    (void)fputs("]}\n", stdout);
    return true;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Writes a line for each refused file to standard error, and returns how many there are. */
static size_t report_problems(const struct td_snapshot *snapshot)
{
    size_t count = snapshot->problems.count;
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        count += model->problems.count;
        for (size_t j = 0; j < model->problems.count; j++) {
            const struct td_problem *problem = &model->problems.items[j];
            bool below = model->directory_len > 0;
            td_terminal_complain("%s%s%s: %s", below ? model->id : "", below ? "/" : "", problem->path,
                                 problem->message);
        }
    }
    for (size_t i = 0; i < snapshot->problems.count; i++)
        td_terminal_complain("%s: %s", snapshot->problems.items[i].path, snapshot->problems.items[i].message);
    return count;
}

static bool print_snapshot(struct td_snapshot *snapshot, bool directory, bool json, struct td_error *err)
{
    if (json && directory)
        return print_directory_json(snapshot, err);
    bool first = true;
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        for (size_t j = 0; j < model->checkpoint_count; j++) {
            if (json) {
                if (!print_manifest(snapshot, model, &model->checkpoints[j], err))
                    return false;
                (void)putchar('\n');
                continue;
            }
            if (!first)
                (void)putchar('\n');
            first = false;
            td_inspect_table_print(model, &model->checkpoints[j]);
        }
    }
    return true;
}

void td_cmd_inspect_help(FILE *out)
{
    (void)fputs("tensord inspect prints the tensors of a checkpoint, without a server.\n"
                "\n"
                "usage:\n"
                "  tensord inspect FILE [options]    one checkpoint file\n"
                "  tensord inspect DIR [options]     every model below DIR\n"
                "\n"
                "  --json           manifests as a server would answer them, instead of tables\n"
                "  --no-sandbox     parse in this process, for debugging; not for files of strangers\n"
                "\n"
                "exit codes: 0 success, 1 a file was refused (the rest is still printed), 2 wrong usage.\n",
                out);
}

static int usage(const char *fault, const char *what)
{
    static const char *const options[] = {"json", "no-sandbox", "help", NULL};
    char near[TD_SUGGEST_BYTES] = "";
    if (what[0] == '-')
        td_suggest(what, "--", options, near);
    td_terminal_complain("%s%s%s; usage: tensord inspect FILE|DIR [--json] [--no-sandbox]", fault, what, near);
    return TD_EXIT_USAGE;
}

/* Reads one checkpoint file. */
static bool scan_file(const char *path, bool sandboxed, struct td_snapshot **snapshot, struct td_error *err)
{
    struct td_limits limits = td_limits_default();
    struct td_parse_pool *parsers = sandboxed ? td_local_parsers() : NULL;
    bool ok = td_scan_file(path, &limits, parsers, snapshot, err);
    td_parse_pool_destroy(parsers);
    return ok;
}

int td_cmd_inspect(int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    bool sandboxed = true;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--no-sandbox") == 0)
            sandboxed = false;
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            return usage("unknown option ", argv[i]);
        else if (path != NULL)
            return usage("only one path is allowed, but there is also ", argv[i]);
        else
            path = argv[i];
    }
    if (path == NULL)
        return usage("give a file or a directory", "");
    struct td_error err = TD_ERROR_INIT;
    struct stat st;
    struct td_snapshot *snapshot = NULL;
    char text[TD_ERROR_TEXT_BYTES];
    if (!td_local_path_check(path, "inspect", &err)) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_FAILED;
    }
    bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    bool ok =
        (directory ? td_local_scan(path, sandboxed, &snapshot, &err) : scan_file(path, sandboxed, &snapshot, &err)) &&
        print_snapshot(snapshot, directory, json, &err);
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && ok)
        ok = td_error_set(&err, TD_IO, "cannot write to standard output");
    size_t problems = snapshot == NULL ? 0 : report_problems(snapshot);
    if (ok && directory && snapshot != NULL && snapshot->model_count == 0 && problems == 0 && !json)
        td_terminal_line(stdout, "no checkpoint files below %s", path);
    if (!ok)
        td_terminal_complain("%s: %s", path, td_error_text(&err, text));
    td_snapshot_unref(snapshot);
    return ok && problems == 0 ? TD_EXIT_OK : TD_EXIT_FAILED;
}
