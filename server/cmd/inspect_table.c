/* Every cell is formatted twice: once to measure its column (measure), once to print it (print_row). The widths are
 * limited; a wider cell pushes the rest of its row to the right. */
#include "server/cmd/inspect_table.h"

#include "api/native/manifest_view.h"
#include "core/digits.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- cells --------------------------------------------------------------------------------------------- */

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
        td_manifest_write_strides(out, tensor);
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
        td_manifest_write_shape(out, tensor);
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
    char size[32];
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
        td_terminal_bytes(bytes, size, sizeof size);
        (void)printf("  total %-12s %8zu tensor%s  %12s\n", td_dtype_at(d)->name, count, count == 1 ? " " : "s", size);
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
    char size[32];
    td_terminal_bytes(checkpoint->total_bytes, size, sizeof size);
    (void)printf("%s", td_terminal_name(table->model->id, &table->shown));
    (void)printf("  checkpoint %s, format %s, %zu tensor%s, %s in ", td_terminal_name(checkpoint->id, &table->shown),
                 checkpoint->format, checkpoint->tensor_count, td_plural(checkpoint->tensor_count), size);
    if (table->file_count == 1)
        (void)printf("%s\n", td_terminal_name(td_model_relative(table->model, checkpoint->parts[0]), &table->shown));
    else
        (void)printf("%zu files\n", table->file_count);
}

void td_inspect_table_print(const struct td_model *model, const struct td_checkpoint *checkpoint)
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
