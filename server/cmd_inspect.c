#include "server/commands.h"

#include "api/manifest_view.h"
#include "catalog/scan.h"
#include "core/buffer.h"
#include "core/json.h"
#include "core/utf8.h"
#include "server/progress.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- text for people ----------------------------------------------------------------------------------- */

/* Names from files, made safe for a terminal. */
static const char *shown(const char *text, struct td_buffer *memory)
{
    size_t len = strlen(text);
    td_buffer_clear(memory);
    if (!td_buffer_reserve(memory, 4 * len + 1))
        return "?";
    td_utf8_escape(text, len, memory->data, 4 * len + 1);
    return memory->data;
}

/* Characters, which is what a terminal's columns count (wide ones aside). */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80 ? 1 : 0;
    return width;
}

static void print_padded(const char *text, int width)
{
    (void)printf("%s%*s", text, width > width_of(text) ? width - width_of(text) : 0, "");
}

static void format_bytes(uint64_t bytes, char *out, size_t capacity)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, capacity, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}

struct columns {
    int name, dtype, shape, nbytes, file, offset;
};

/* What the other columns do not tell: how the elements are laid out, whose bytes they are, why there are none. */
static const char *note_text(const struct td_tensor *tensor, struct td_buffer *memory,
                             struct td_buffer *scratch)
{
    td_buffer_clear(memory);
    if (tensor->reason != NULL) {
        td_buffer_puts(memory, "  not addressable: ");
        td_buffer_puts(memory, shown(tensor->reason, scratch));
    }
    if (tensor->strides != NULL) {
        td_buffer_puts(memory, "  strides ");
        td_manifest_write_strides(memory, tensor);
    }
    if (tensor->alias_of != NULL) {
        td_buffer_puts(memory, "  same bytes as ");
        td_buffer_puts(memory, shown(tensor->alias_of, scratch));
    }
    const char *text = td_buffer_terminate(memory);
    return text == NULL ? "" : text;
}

static const char *offset_text(const struct td_tensor *tensor, char out[24])
{
    if (tensor->reason != NULL)
        return "-";
    (void)snprintf(out, 24, "%" PRIu64, tensor->offset);
    return out;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static const char *shape_text(const struct td_tensor *tensor, struct td_buffer *memory)
{
    td_buffer_clear(memory);
    td_manifest_write_shape(memory, tensor);
    const char *text = td_buffer_terminate(memory);
    return text == NULL ? "?" : text;
}

static struct columns measure(const struct td_model *model, const struct td_checkpoint *checkpoint,
                              struct td_buffer *memory)
{
    struct columns columns = {.name = 4, .dtype = 5, .shape = 5, .nbytes = 5, .file = 4, .offset = 6};
    char number[24];
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, i);
        columns.name = max_int(columns.name, width_of(shown(ref.tensor->name, memory)));
        columns.dtype = max_int(columns.dtype, width_of(ref.tensor->dtype->name));
        columns.shape = max_int(columns.shape, width_of(shape_text(ref.tensor, memory)));
        columns.nbytes =
            max_int(columns.nbytes, snprintf(number, sizeof number, "%" PRIu64, ref.tensor->nbytes));
        columns.offset = max_int(columns.offset, (int)strlen(offset_text(ref.tensor, number)));
        columns.file = max_int(
            columns.file, width_of(shown(td_model_relative(model, checkpoint->parts[ref.part]), memory)));
    }
    return columns;
}

static void print_tensors(const struct td_model *model, const struct td_checkpoint *checkpoint,
                          struct td_buffer *memory)
{
    struct columns columns = measure(model, checkpoint, memory);
    struct td_buffer note;
    char number[24];
    td_buffer_init(&note);
    (void)fputs("  ", stdout);
    print_padded("NAME", columns.name + 2);
    print_padded("DTYPE", columns.dtype + 2);
    print_padded("SHAPE", columns.shape + 2);
    (void)printf("%*s  %*s  FILE\n", columns.nbytes, "BYTES", columns.offset, "OFFSET");
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, i);
        (void)fputs("  ", stdout);
        print_padded(shown(ref.tensor->name, memory), columns.name + 2);
        print_padded(ref.tensor->dtype->name, columns.dtype + 2);
        print_padded(shape_text(ref.tensor, memory), columns.shape + 2);
        (void)printf("%*" PRIu64 "  %*s  %s", columns.nbytes, ref.tensor->nbytes, columns.offset,
                     offset_text(ref.tensor, number),
                     shown(td_model_relative(model, checkpoint->parts[ref.part]), memory));
        (void)printf("%s\n", note_text(ref.tensor, &note, memory));
    }
    td_buffer_fini(&note);
}

static void print_totals(const struct td_checkpoint *checkpoint)
{
    char size[32];
    for (size_t d = 0; td_dtype_at(d) != NULL; d++) {
        size_t count = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < checkpoint->tensor_count; i++) {
            const struct td_tensor *tensor = td_checkpoint_tensor(checkpoint, i).tensor;
            if (tensor->dtype == td_dtype_at(d)) {
                count++;
                bytes += tensor->nbytes;
            }
        }
        if (count == 0)
            continue;
        format_bytes(bytes, size, sizeof size);
        (void)printf("  total %-12s %8zu tensor%s  %12s\n", td_dtype_at(d)->name, count,
                     count == 1 ? " " : "s", size);
    }
}

static void print_checkpoint(const struct td_model *model, const struct td_checkpoint *checkpoint)
{
    struct td_buffer memory;
    char size[32];
    td_buffer_init(&memory);
    format_bytes(checkpoint->total_bytes, size, sizeof size);
    (void)printf("%s", shown(model->id, &memory));
    (void)printf("  checkpoint %s, format %s, %zu tensor%s, %s in %zu file%s\n",
                 shown(checkpoint->id, &memory), checkpoint->format, checkpoint->tensor_count,
                 checkpoint->tensor_count == 1 ? "" : "s", size, checkpoint->part_count,
                 checkpoint->part_count == 1 ? "" : "s");
    print_tensors(model, checkpoint, &memory);
    print_totals(checkpoint);
    for (size_t i = 0; i < checkpoint->metadata_count; i++) {
        (void)printf("  metadata %s", shown(checkpoint->metadata[i].key, &memory));
        (void)printf(" = %s\n", shown(checkpoint->metadata[i].value, &memory));
    }
    td_buffer_fini(&memory);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static bool print_manifest(struct td_snapshot *snapshot, const struct td_model *model,
                           const struct td_checkpoint *checkpoint, struct td_error *err)
{
    enum { WINDOW = 64 * 1024 };
    struct td_view_query query = {.page_first = true};
    struct td_blob *blob = NULL;
    char *window = malloc(WINDOW);
    bool ok = window != NULL || td_error_no_memory(err);
    ok = ok && td_manifest_view_create(NULL, snapshot, model, checkpoint, &query, &blob, err);
    for (uint64_t off = 0; ok && off < blob->len_bytes;) {
        uint64_t left = blob->len_bytes - off;
        size_t n = left < WINDOW ? (size_t)left : WINDOW;
        ok = td_blob_read(blob, off, window, n, err) &&
             (fwrite(window, 1, n, stdout) == n ||
              td_error_set(err, TD_IO, "cannot write to standard output"));
        off += n;
    }
    td_blob_unref(blob);
    free(window);
    return ok;
}

static void print_json_error(const char *model, const struct td_problem *problem, bool first)
{
    struct td_buffer json;
    td_buffer_init(&json);
    td_buffer_puts(&json, first ? "{" : ",{");
    if (model != NULL) {
        td_buffer_puts(&json, "\"model\":");
        td_json_write_cstring(&json, model);
        td_buffer_putc(&json, ',');
    }
    td_buffer_puts(&json, "\"file\":");
    td_json_write_cstring(&json, problem->path);
    td_buffer_puts(&json, ",\"message\":");
    td_json_write_cstring(&json, problem->message);
    td_buffer_putc(&json, '}');
    (void)fwrite(json.data, 1, json.len, stdout);
    td_buffer_fini(&json);
}

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

/* One line per refused file on standard error; how many there are. */
static size_t report_problems(const struct td_snapshot *snapshot)
{
    struct td_buffer memory;
    size_t count = snapshot->problems.count;
    td_buffer_init(&memory);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        count += model->problems.count;
        for (size_t j = 0; j < model->problems.count; j++) {
            const struct td_problem *problem = &model->problems.items[j];
            (void)fputs("tensord: ", stderr);
            if (model->directory_len > 0)
                (void)fprintf(stderr, "%s/", shown(model->id, &memory));
            (void)fprintf(stderr, "%s", shown(problem->path, &memory));
            (void)fprintf(stderr, ": %s\n", shown(problem->message, &memory));
        }
    }
    for (size_t i = 0; i < snapshot->problems.count; i++) {
        (void)fprintf(stderr, "tensord: %s", shown(snapshot->problems.items[i].path, &memory));
        (void)fprintf(stderr, ": %s\n", shown(snapshot->problems.items[i].message, &memory));
    }
    td_buffer_fini(&memory);
    return count;
}

/* A snapshot of a Hugging Face cache consists of symlinks to files beside it, so it is looked at from the folder that
 * holds both. */
static bool scan_directory(const char *path, struct td_snapshot **snapshot, struct td_error *err)
{
    struct td_hub_place place;
    char real_path[PATH_MAX];
    struct td_scan_config config = td_scan_config_default();
    struct td_scan_progress progress = {0};
    struct td_unsettled_list unsettled = {0};
    struct td_root *root = NULL;
    _Atomic bool never = false;
    config.settle_ns = 0;
    if (realpath(path, real_path) != NULL && td_hub_cache_place(real_path, &place))
        config.place = &place;
    struct td_progress line;
    td_progress_start(&line, path, &progress);
    bool ok = td_root_create(config.place == NULL ? path : place.folder, &root, err) &&
              td_scan(root, NULL, NULL, &config, &unsettled, &progress, &never, snapshot, err);
    td_progress_stop(&line);
    td_unsettled_list_fini(&unsettled);
    td_root_unref(root);
    return ok;
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
                continue;
            }
            if (!first)
                (void)putchar('\n');
            first = false;
            print_checkpoint(model, &model->checkpoints[j]);
        }
    }
    return true;
}

static int usage(const char *fault, const char *what)
{
    (void)fprintf(stderr, "tensord: %s%s; usage: tensord inspect FILE|DIR [--json]\n", fault, what);
    return TD_EXIT_USAGE;
}

int td_cmd_inspect(int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            return usage("unknown option ", argv[i]);
        else if (path != NULL)
            return usage("one path is enough, but there is also ", argv[i]);
        else
            path = argv[i];
    }
    if (path == NULL)
        return usage("which file or directory?", "");
    struct td_error err;
    struct stat st;
    struct td_snapshot *snapshot = NULL;
    struct td_limits limits = td_limits_default();
    td_error_init(&err);
    bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    bool ok =
        (directory ? scan_directory(path, &snapshot, &err) : td_scan_file(path, &limits, &snapshot, &err)) &&
        print_snapshot(snapshot, directory, json, &err);
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && ok)
        ok = td_error_set(&err, TD_IO, "cannot write to standard output");
    size_t problems = snapshot == NULL ? 0 : report_problems(snapshot);
    if (ok && directory && snapshot != NULL && snapshot->model_count == 0 && problems == 0 && !json)
        (void)printf("no checkpoint files below %s\n", path);
    if (!ok && err.pos != TD_ERROR_POS_NONE)
        (void)fprintf(stderr, "tensord: %s: %s (at byte %" PRIu64 ")\n", path, err.message, err.pos);
    else if (!ok)
        (void)fprintf(stderr, "tensord: %s: %s\n", path, err.message);
    td_snapshot_unref(snapshot);
    return ok && problems == 0 ? TD_EXIT_OK : TD_EXIT_FAILED;
}
