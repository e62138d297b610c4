#include "rank/repo_about.h"

#include "catalog/scan/pipeline_tag.h"
#include "core/checked.h"

#include <string.h>

static const struct td_entry *find_file(const struct td_repo_view *view, const char *name)
{
    const struct td_entry *entry = td_snapshot_find_in_run(view->snapshot, view->first_entry, view->entry_count,
                                                           view->prefix_len, td_text_of(name));
    return entry != NULL && td_repo_view_keeps(view, entry) ? entry : NULL;
}

static const struct td_facts *facts_of(const struct td_repo_view *view, const char *name)
{
    const struct td_entry *entry = find_file(view, name);
    return entry == NULL ? NULL : entry->file->facts;
}

/* Returns the library that the files are for, if the card does not name one. */
static const char *derive_library(const struct td_repo_about *about)
{
    const struct td_facts *config = about->config;
    if (about->adapter != NULL)
        return "peft";
    if (find_file(about->view, "modules.json") != NULL ||
        find_file(about->view, "config_sentence_transformers.json") != NULL)
        return "sentence-transformers";
    if (about->diffusers != NULL)
        return "diffusers";
    return config != NULL && (config->architecture != NULL || config->model_type != NULL) ? "transformers" : NULL;
}

static void add_derived_tag(struct td_repo_about *about, const char *tag)
{
    if (tag == NULL || about->derived_count == TD_DERIVED_TAGS)
        return;
    for (size_t i = 0; i < about->derived_count; i++)
        if (strcmp(about->derived[i], tag) == 0)
            return;
    about->derived[about->derived_count++] = tag;
}

/* Derives the formats of the checkpoints, also of folders below. The names are those of manifests; safetensors,
 * pytorch, gguf, keras and onnx are the Hub's words, too. */
static void derive_formats(struct td_repo_about *about)
{
    enum { MOST_MODELS = 32 };
    const struct td_repo_models models = td_repo_view_models(about->view);
    const struct td_model *model;
    for (size_t i = 0; i < MOST_MODELS && (model = td_repo_models_get(&models, i)) != NULL; i++)
        for (size_t j = 0; j < model->checkpoint_count; j++)
            add_derived_tag(about, td_repo_view_format(about->view, &model->checkpoints[j]));
}

void td_repo_about_init(struct td_repo_about *about, const struct td_repo_view *view, bool of_dataset,
                        size_t error_count)
{
    *about = (struct td_repo_about){.view = view, .of_dataset = of_dataset, .card = facts_of(view, "README.md")};
    add_derived_tag(about, error_count > 0 ? TD_UNREADABLE_TAG : NULL);
    if (of_dataset)
        return;
    about->config = facts_of(view, "config.json");
    about->tokenizer = facts_of(view, "tokenizer_config.json");
    about->diffusers = facts_of(view, "model_index.json");
    about->adapter = facts_of(view, "adapter_config.json");
    const struct td_facts *card = about->card;
    const struct td_facts *config = about->config;
    const char *task = config != NULL && config->architecture != NULL ? td_pipeline_tag_of(config->architecture) : NULL;
    about->library = card != NULL && card->library_name != NULL ? card->library_name : derive_library(about);
    if (task == NULL && about->library != NULL && strcmp(about->library, "sentence-transformers") == 0)
        task = "sentence-similarity";
    about->pipeline_tag = card != NULL && card->pipeline_tag != NULL ? card->pipeline_tag : task;
    add_derived_tag(about, about->library);
    derive_formats(about);
    add_derived_tag(about, config == NULL ? NULL : config->model_type);
    add_derived_tag(about, about->pipeline_tag);
    add_derived_tag(about, about->tokenizer != NULL && about->tokenizer->has_chat_template ? "conversational" : NULL);
}

const struct td_checkpoint *td_repo_about_checkpoint(const struct td_repo_about *about, const char *format)
{
    const struct td_repo_models models = td_repo_view_models(about->view);
    const struct td_model *model = td_repo_models_get(&models, 0);
    if (model == NULL || about->view->kind != TD_REVISION_FILES || td_repo_view_directory(about->view, model).len > 0)
        return NULL;
    for (size_t i = 0; i < model->checkpoint_count; i++)
        if (strcmp(model->checkpoints[i].format, format) == 0)
            return &model->checkpoints[i];
    return NULL;
}

size_t td_checkpoint_sum_elements(const struct td_checkpoint *checkpoint, struct td_dtype_count counts[TD_SUM_DTYPES],
                                  uint64_t *total)
{
    size_t count = 0;
    *total = 0;
    for (size_t p = 0; p < checkpoint->part_count; p++) {
        const struct td_file *file = checkpoint->parts[p]->file;
        for (size_t i = 0; i < file->count_count; i++) {
            const struct td_dtype_count *one = &file->counts[i];
            size_t at = 0;
            while (at < count && counts[at].dtype != one->dtype)
                at++;
            if (at == count && count == TD_SUM_DTYPES)
                continue;
            if (at == count)
                counts[count++] = (struct td_dtype_count){.dtype = one->dtype};
            if (!td_add_u64(counts[at].elems, one->elems, &counts[at].elems))
                counts[at].elems = UINT64_MAX;
            if (!td_add_u64(*total, one->elems, total))
                *total = UINT64_MAX;
        }
    }
    return count;
}
