#include "api/html/model_advice.h"

#include "catalog/checkpoints/partial_checkpoint.h"

enum { MISSING_SHOWN = 5 }; /* names of missing files in an advice */

struct missing {
    struct td_buffer *out;
    size_t count;
};

static void write_missing(void *context, const char *file)
{
    struct missing *missing = context;
    td_buffer_puts(missing->out, missing->count++ == 0 ? " " : ", ");
    td_buffer_puts(missing->out, file);
}

/* Returns the incomplete checkpoint whose problem stands at this entry, or NULL. */
static const struct td_checkpoint *find_partial(const struct td_model *model, const struct td_entry *entry)
{
    for (size_t i = 0; i < model->partial_count; i++) {
        const struct td_checkpoint *partial = &model->partials[i];
        const struct td_entry *index = partial->lacks == NULL ? NULL : partial->lacks->index;
        if (!partial->is_rank_part && partial->lacks != NULL && entry == (index != NULL ? index : partial->parts[0]))
            return partial;
    }
    return NULL;
}

void td_model_write_advice(const struct td_snapshot *snapshot, const struct td_model *model,
                           const struct td_problem *problem, struct td_buffer *out)
{
    const struct td_entry *entry = td_model_find_file(snapshot, model, td_text_of(problem->path));
    const struct td_file *file = entry == NULL ? NULL : entry->file;
    const struct td_checkpoint *partial = entry == NULL ? NULL : find_partial(model, entry);
    if (partial != NULL && partial->lacks->file_count > 0) {
        struct missing missing = {.out = out};
        td_buffer_puts(out, "Put the missing files into the folder:");
        td_partial_each_missing(partial, MISSING_SHOWN, write_missing, &missing);
        if (partial->lacks->file_count > missing.count)
            td_buffer_printf(out, " and %zu more", partial->lacks->file_count - missing.count);
        td_buffer_puts(out, ". The tensors that are there can be read already, see Checkpoints.");
    } else if (file != NULL && file->is_lfs_pointer) {
        td_buffer_puts(out, "Run \"git lfs pull\" in the folder, which fetches the content.");
    } else if (file != NULL && file->needed_bytes > 0) {
        td_buffer_puts(out, "Give the server more memory by --max-memory, or serve fewer files.");
    } else if (file != NULL && file->transient) {
        td_buffer_puts(out, "The server reads the file again with its next scan. If the reason stays, look at the "
                            "disk.");
    } else if (file != NULL && file->kind == TD_FILE_PLAIN && file->error != NULL) {
        td_buffer_puts(out, "Mend the file. Until then the model may lack metadata; its tensors are not affected.");
    } else if (file != NULL && file->error != NULL) {
        td_buffer_puts(out, "The file was cut off, or is not of the format that its name says. Copy or fetch it again, "
                            "and compare its SHA-256 with that of its source.");
    } else {
        td_buffer_puts(out, "Put right what the message names. The server's next scan reads the files again.");
    }
}
