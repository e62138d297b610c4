/* Every cell of a table is formatted twice: once to measure its column (measure), once to print it (print_row). The
 * widths are limited; a wider cell pushes the rest of its row to the right. */
#include "server/cmd/commands.h"

#include "api/call/tensor_text.h"
#include "api/native/manifest_view.h"
#include "catalog/scan/scan.h"
#include "core/buffer.h"
#include "core/digits.h"
#include "core/message/document.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/shared/local_scan.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Longest metadata value and name that are shown, and widest column, in characters. --json shows everything. */
enum { METADATA_WIDTH = 100, NAME_WIDTH = 200, COLUMN_WIDTH = 100 };

enum column { NAME, DTYPE, SHAPE, BYTES, OFFSET, FILE_NUMBER, NOTE, COLUMN_COUNT };

static const struct {
    const char *title;
    bool right;
} columns[COLUMN_COUNT] = {
    [NAME] = {"NAME", false},    [DTYPE] = {"DTYPE", false},     [SHAPE] = {"SHAPE", false}, [BYTES] = {"BYTES", true},
    [OFFSET] = {"OFFSET", true}, [FILE_NUMBER] = {"FILE", true}, [NOTE] = {"NOTE", false},
};

struct table {
    const struct td_model *model;
    const struct td_checkpoint *checkpoint;
    size_t file_count;            /* files that hold tensors: the first ones of the checkpoint's parts */
    int widths[COLUMN_COUNT];     /* 0: the column is not shown */
    struct td_buffer text, shown; /* scratch memory of the last cell */
};

/* ---- cells of tables ----------------------------------------------------------------------------------- */

/* Returns the length in bytes of the first `most` characters. */
static size_t cut_len(const char *text, int most)
{
    int width = 0;
    size_t len = 0;
    for (; text[len] != '\0'; len++) {
        width += ((unsigned char)text[len] & 0xC0) != 0x80 ? 1 : 0;
        if (width > most)
            break;
    }
    return len;
}

/* Appends a name, escaped, and cut after NAME_WIDTH characters. */
static void write_name(struct table *table, const char *name)
{
    char head[4 * NAME_WIDTH + 1];
    size_t len = cut_len(name, NAME_WIDTH);
    memcpy(head, name, len);
    head[len] = '\0';
    td_buffer_puts(&table->text, td_terminal_name(head, &table->shown));
    if (name[len] != '\0')
        td_buffer_puts(&table->text, "...");
}

static void begin_note(struct td_buffer *out)
{
    if (out->len > 0)
        td_buffer_puts(out, ", ");
}

/* Writes the note of a tensor: why it has no bytes or how they are stored, its pieces, its strides, and the tensor that
 * it shares its bytes with. */
static void write_note(struct table *table, const struct td_tensor *tensor)
{
    struct td_buffer *out = &table->text;
    if (tensor->reason != NULL)
        td_buffer_printf(out, "not addressable: %s", td_terminal_name(tensor->reason, &table->shown));
    else if (td_tensor_stored(tensor) != NULL)
        td_buffer_printf(out, "%s: %s", td_access_name(td_tensor_access(tensor)),
                         td_terminal_name(td_tensor_stored(tensor), &table->shown));
    if (tensor->piece_count > 0) {
        size_t files;
        (void)td_grid_parts(td_checkpoint_grid(table->checkpoint, tensor), &files);
        begin_note(out);
        td_buffer_printf(out, "%" PRIu32 " pieces in %zu file%s", tensor->piece_count, files, td_plural(files));
    }
    if (tensor->strides != NULL) {
        begin_note(out);
        td_buffer_puts(out, "strides ");
        td_tensor_write_strides(out, tensor);
    }
    if (tensor->alias_of != NULL) {
        begin_note(out);
        td_buffer_puts(out, "same bytes as ");
        write_name(table, tensor->alias_of);
    }
}

/* Returns the text of a cell; valid until the next call. */
static const char *cell(struct table *table, enum column column, struct td_tensor_ref ref)
{
    const struct td_tensor *tensor = ref.tensor;
    struct td_buffer *out = &table->text;
    bool in_pieces = tensor->piece_count > 0;
    td_buffer_clear(out);
    switch (column) {
    case NAME:
        if (tensor->name_len == 0)
            td_buffer_puts(out, "\"\"");
        else
            write_name(table, tensor->name);
        break;
    case DTYPE:
        td_buffer_puts(out, tensor->dtype->name);
        break;
    case SHAPE:
        td_tensor_write_shape(out, tensor);
        break;
    case BYTES:
        td_buffer_u64(out, tensor->nbytes);
        break;
    case OFFSET:
        if (tensor->reason == NULL && !in_pieces && td_tensor_stored(tensor) == NULL)
            td_buffer_u64(out, tensor->offset);
        else
            td_buffer_putc(out, '-');
        break;
    case FILE_NUMBER:
        if (ref.part < table->file_count && !in_pieces)
            td_buffer_u64(out, (uint64_t)ref.part + 1);
        else
            td_buffer_putc(out, '-');
        break;
    default:
        write_note(table, tensor);
        break;
    }
    const char *text = td_buffer_terminate(out);
    return text == NULL ? "?" : text;
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static void measure(struct table *table)
{
    for (enum column c = 0; c < COLUMN_COUNT; c++) {
        int widest = 0;
        if (c == FILE_NUMBER && table->file_count <= 1)
            continue;
        for (size_t i = 0; i < table->checkpoint->tensor_count; i++) {
            int width = td_terminal_width(cell(table, c, td_checkpoint_tensor(table->checkpoint, i)));
            widest = width > widest ? width : widest;
        }
        int title = td_terminal_width(columns[c].title);
        widest = widest < COLUMN_WIDTH ? widest : COLUMN_WIDTH;
        if (c != NOTE || widest > 0)
            table->widths[c] = widest > title ? widest : title;
    }
}

/* Prints a tensor's row, or the titles if ref is NULL, without blanks at the end of the line. */
static void print_row(struct table *table, const struct td_tensor_ref *ref)
{
    int blanks = 2;
    for (enum column c = 0; c < COLUMN_COUNT; c++) {
        if (table->widths[c] == 0)
            continue;
        const char *text = ref == NULL ? columns[c].title : cell(table, c, *ref);
        int width = td_terminal_width(text);
        int free_width = width < table->widths[c] ? table->widths[c] - width : 0;
        if (text[0] == '\0') {
            blanks += free_width + 2;
            continue;
        }
        (void)printf("%*s%s", columns[c].right ? blanks + free_width : blanks, "", text);
        blanks = columns[c].right ? 2 : free_width + 2;
    }
    (void)putchar('\n');
}

static void print_totals(const struct td_checkpoint *checkpoint)
{
    size_t unserved = 0;
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        unserved += td_checkpoint_tensor(checkpoint, i).tensor->reason != NULL ? 1 : 0;
    for (size_t d = 0; td_dtype_at(d) != NULL; d++) {
        size_t count = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < checkpoint->tensor_count; i++) {
            const struct td_tensor *tensor = td_checkpoint_tensor(checkpoint, i).tensor;
            if (tensor->dtype == td_dtype_at(d) && tensor->reason == NULL) {
                count++;
                bytes += tensor->nbytes;
            }
        }
        if (count == 0)
            continue;
        (void)printf("  total %-12s %8zu tensor%s  %12s\n", td_dtype_at(d)->name, count, count == 1 ? " " : "s",
                     td_terminal_size(bytes).text);
    }
    if (unserved > 0)
        (void)printf("  not addressable    %8zu tensor%s\n", unserved, td_plural(unserved));
}

static void print_metadata(struct table *table)
{
    const struct td_checkpoint *checkpoint = table->checkpoint;
    for (size_t i = 0; i < checkpoint->metadata_count; i++) {
        (void)printf("  metadata %s = ", td_terminal_name(checkpoint->metadata[i].key, &table->shown));
        const char *value = td_terminal_name(checkpoint->metadata[i].value, &table->shown);
        size_t len = cut_len(value, METADATA_WIDTH);
        (void)printf("%.*s%s\n", (int)len, value, value[len] == '\0' ? "" : "...");
    }
}

static void print_heading(struct table *table)
{
    const struct td_checkpoint *checkpoint = table->checkpoint;
    (void)printf("%s", td_terminal_name(table->model->id, &table->shown));
    (void)printf("  checkpoint %s, format %s, %zu tensor%s, %s in ", td_terminal_name(checkpoint->id, &table->shown),
                 checkpoint->format, checkpoint->tensor_count, td_plural(checkpoint->tensor_count),
                 td_terminal_size(checkpoint->total_bytes).text);
    if (table->file_count == 1)
        (void)printf("%s\n", td_terminal_name(td_model_relative(table->model, checkpoint->parts[0]), &table->shown));
    else
        (void)printf("%zu files\n", table->file_count);
}

/* Prints a heading, a row for each tensor, the files, the totals by data type, and the metadata. */
static void print_checkpoint(const struct td_model *model, const struct td_checkpoint *checkpoint)
{
    struct table table = {.model = model, .checkpoint = checkpoint};
    for (size_t i = 0; i < checkpoint->part_count; i++)
        table.file_count += checkpoint->parts[i]->file->kind != TD_FILE_DCP_METADATA ? 1 : 0;
    td_buffer_init(&table.text);
    td_buffer_init(&table.shown);
    print_heading(&table);
    measure(&table);
    print_row(&table, NULL);
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, i);
        print_row(&table, &ref);
    }
    for (size_t i = 0; table.file_count > 1 && i < table.file_count; i++)
        (void)printf("  file %zu = %s\n", i + 1,
                     td_terminal_name(td_model_relative(model, checkpoint->parts[i]), &table.shown));
    print_totals(checkpoint);
    print_metadata(&table);
    td_buffer_fini(&table.text);
    td_buffer_fini(&table.shown);
}

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
        ok = td_blob_read(blob, off, window, n, err) && (fwrite(window, 1, n, stdout) == n || td_output_flush(err));
        off += n;
    }
    td_blob_unref(blob);
    free(window);
    return ok;
}

static void add_problems(struct td_document *json, const char *model, const struct td_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) {
        td_document_begin_object(json, NULL);
        if (model != NULL)
            td_document_add_string(json, "model", model);
        td_document_add_string(json, "file", problems->items[i].path);
        td_document_add_string(json, "message", problems->items[i].message);
        td_document_end(json);
    }
}

/* Prints the list of problems, of all models and of no model. */
static bool print_json_problems(const struct td_snapshot *snapshot, struct td_error *err)
{
    struct td_buffer out;
    struct td_document json;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_array(&json, NULL);
    for (size_t i = 0; i < snapshot->model_count; i++)
        add_problems(&json, snapshot->models[i].id, &snapshot->models[i].problems);
    add_problems(&json, NULL, &snapshot->problems);
    td_document_end(&json);
    bool ok = !out.failed || td_buffer_refuse(&out, err);
    if (ok)
        (void)fwrite(out.data, 1, out.len, stdout);
    td_buffer_fini(&out);
    return ok;
}

/* Prints the frame by hand, because a manifest goes to standard output in windows, and is never whole in memory. */
static bool print_directory_json(struct td_snapshot *snapshot, struct td_error *err)
{
    const char *before = "";
    (void)fputs("{\"models\":[", stdout);
    for (size_t i = 0; i < snapshot->model_count; i++) {
        for (size_t j = 0; j < snapshot->models[i].checkpoint_count; j++) {
            (void)fputs(before, stdout);
            before = ",";
            if (!print_manifest(snapshot, &snapshot->models[i], &snapshot->models[i].checkpoints[j], err))
                return false;
        }
    }
    (void)fputs("],\"errors\":", stdout);
    bool ok = print_json_problems(snapshot, err);
    (void)fputs("}\n", stdout);
    return ok;
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

/* Prints what a delta is, in place of its checkpoints. */
static void print_delta(const struct td_model *model, bool is_first)
{
    struct td_buffer id;
    struct td_buffer base;
    td_buffer_init(&id);
    td_buffer_init(&base);
    (void)printf("%s%s\n", is_first ? "" : "\n", td_terminal_name(model->id, &id));
    (void)printf("  delta: its files hold the changes to %s%s; make the full version with tensord apply\n",
                 model->base == NULL ? "another version" : "version ",
                 model->base == NULL ? "" : td_terminal_name(model->base, &base));
    td_buffer_fini(&id);
    td_buffer_fini(&base);
}

static bool print_snapshot(struct td_snapshot *snapshot, bool directory, bool json, struct td_error *err)
{
    if (json && directory)
        return print_directory_json(snapshot, err);
    bool first = true;
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        if (model->is_delta && !json) {
            print_delta(model, first);
            first = false;
        }
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
            print_checkpoint(model, &model->checkpoints[j]);
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
    return td_refuse_usage(fault, what, options, "tensord inspect FILE|DIR [--json] [--no-sandbox]");
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
    bool ok = (directory ? td_local_scan(path, sandboxed, &snapshot, &err)
                         : td_local_scan_file(path, sandboxed, false, &snapshot, &err)) &&
              print_snapshot(snapshot, directory, json, &err);
    ok = td_output_flush(&err) && ok;
    size_t problems = snapshot == NULL ? 0 : report_problems(snapshot);
    if (ok && directory && snapshot != NULL && snapshot->model_count == 0 && problems == 0 && !json)
        td_terminal_line(stdout, "no checkpoint files below %s", path);
    if (!ok)
        td_terminal_complain("%s: %s", path, td_error_text(&err, text));
    td_snapshot_unref(snapshot);
    return ok && problems == 0 ? TD_EXIT_OK : TD_EXIT_FAILED;
}
