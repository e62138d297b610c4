#include "api/html/model_facts.h"

#include "api/html/shown.h"
#include "catalog/scan/pipeline_tag.h"

#include <string.h>

/* Adds a fact; the caller sets its value. */
static struct td_model_fact *add(struct td_model_facts *facts, const char *name, const char *label,
                                 enum td_model_fact_form form)
{
    struct td_model_fact *fact = &facts->items[facts->count++];
    *fact = (struct td_model_fact){.name = name, .label = label, .form = form};
    return fact;
}

static void add_number(struct td_model_facts *facts, const char *name, const char *label, enum td_model_fact_form form,
                       uint64_t value)
{
    add(facts, name, label, form)->value = value;
}

/* Adds a text that is known. */
static void add_text(struct td_model_facts *facts, const char *name, const char *label, const char *text)
{
    if (text != NULL)
        add(facts, name, label, TD_FACT_TEXT)->text = text;
}

/* Adds what the default checkpoint is. */
static void add_checkpoint(struct td_model_facts *facts, const struct td_checkpoint *checkpoint, uint64_t elements)
{
    add_number(facts, "parameters", "Parameters", TD_FACT_COUNT, elements);
    add_number(facts, "tensors", "Tensors", TD_FACT_NUMBER, checkpoint->tensor_count);
    add_number(facts, "bytes", "Size of the tensors", TD_FACT_BYTES, checkpoint->total_bytes);
    add_text(facts, "format", "Format", checkpoint->format);
}

static void add_files(struct td_model_facts *facts, const struct td_model *model, size_t hashed_count)
{
    add_number(facts, "files", "Files", TD_FACT_NUMBER, model->entry_count);
    add_number(facts, "file_bytes", "Size of the files", TD_FACT_BYTES, model->file_bytes);
    struct td_model_fact *hashed = add(facts, "hashed", "Files with a known SHA-256", TD_FACT_PART);
    hashed->value = hashed_count;
    hashed->of = model->entry_count;
    if (model->entry_count == 0)
        return;
    struct td_model_fact *updated = add(facts, "updated", "Changed", TD_FACT_TIME);
    updated->value = model->updated_ns < 0 ? 0 : (uint64_t)model->updated_ns;
    updated->updated_ns = model->updated_ns;
}

/* Adds what the front matter of README.md (NULL: none) and config.json say. */
static void add_metadata(struct td_model_facts *facts, const struct td_facts *card, const char *architecture)
{
    const char *task = architecture == NULL ? NULL : td_pipeline_tag_of(architecture);
    const char *license = NULL;
    const char *base_model = NULL;
    for (size_t i = 0; card != NULL && i < card->tag_count; i++) {
        const struct td_fact_tag *tag = &card->tags[i];
        const char *prefix = td_fact_tag_prefix(tag, false);
        if (prefix == NULL)
            continue;
        if (strcmp(prefix, "license:") == 0 && license == NULL)
            license = tag->value;
        else if (strcmp(prefix, "base_model:") == 0 && base_model == NULL)
            base_model = tag->value;
        else if (facts->tag_count < TD_MODEL_TAGS)
            facts->tags[facts->tag_count++] = tag;
    }
    add_text(facts, "architecture", "Architecture", architecture);
    add_text(facts, "task", "Task", card != NULL && card->pipeline_tag != NULL ? card->pipeline_tag : task);
    add_text(facts, "library", "Library", card == NULL ? NULL : card->library_name);
    add_text(facts, "license", "Licence", license);
    add_text(facts, "base_model", "Base model", base_model);
}

void td_model_facts_find(const struct td_snapshot *snapshot, const struct td_model *model,
                         const struct td_model_sums *sums, struct td_model_facts *out)
{
    const struct td_entry *card = td_model_find_file(snapshot, model, TD_TEXT("README.md"));
    const struct td_facts *config = model->config == NULL ? NULL : model->config->file->facts;
    out->count = out->tag_count = 0;
    if (model->checkpoint_count > 0)
        add_checkpoint(out, &model->checkpoints[0], sums->elements);
    add_files(out, model, sums->hashed_count);
    add_metadata(out, card == NULL ? NULL : card->file->facts, config == NULL ? NULL : config->architecture);
    add_text(out, "revision", "Revision", model->revision);
    if (sums->upstream != NULL)
        add_text(out, "upstream", "From the upstream",
                 !sums->upstream->is_kept      ? "arriving"
                 : sums->upstream->is_verified ? "verified"
                                               : "not verified");
}

void td_model_fact_write_value(const struct td_model_fact *fact, struct td_buffer *out)
{
    if (fact->form == TD_FACT_TEXT)
        td_buffer_puts(out, fact->text);
    else
        td_buffer_u64(out, fact->value);
}

void td_model_fact_write(const struct td_model_fact *fact, struct td_buffer *out)
{
    switch (fact->form) {
    case TD_FACT_TEXT:
        td_buffer_puts(out, fact->text);
        break;
    case TD_FACT_NUMBER:
        td_shown_number(out, fact->value);
        break;
    case TD_FACT_COUNT:
        td_shown_count(out, fact->value);
        break;
    case TD_FACT_BYTES:
        td_shown_bytes(out, fact->value);
        break;
    case TD_FACT_TIME:
        td_shown_time(out, fact->updated_ns);
        break;
    case TD_FACT_PART:
        td_shown_number(out, fact->value);
        td_buffer_puts(out, " of ");
        td_shown_number(out, fact->of);
        break;
    }
}
