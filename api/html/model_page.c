/* Plan: td_html_model computes in one pass over the tensors of the default checkpoint, and in one over the files, what
 * the page shows of them. The slots then write what is kept in `struct page`.
 *
 * What is hard: a page is rendered twice, and must be the same both times. So what changes while the snapshot stays
 * (digests, the progress of a fetch) is copied once. */
#include "api/html/model_page.h"

#include "api/call/incoming_call.h"
#include "api/html/card_view.h"
#include "api/html/command_words.h"
#include "api/html/model_advice.h"
#include "api/html/model_commands.h"
#include "api/html/model_facts.h"
#include "api/html/module_tree.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "catalog/names/family.h"
#include "catalog/names/repo.h"
#include "core/checked.h"
#include "core/waiting.h"
#include "http/reservation.h"
#include "parser/format/elements.h"

#include <stdlib.h>
#include <string.h>

enum {
    FILE_ROWS = 500,
    VERSION_ROWS = 20,
    BAR_WIDTH = 1000,
    BAR_CLASSES = 6, /* c1 .. c6 of the style */
};

/* The tensors of one type; those that have the same bytes as another one count once. */
struct type_sum {
    const struct td_dtype *dtype;
    uint64_t tensors, elements, bytes;
};

struct page {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    struct td_reserved reserved;
    const struct td_checkpoint *whole; /* the default checkpoint, or NULL */
    struct type_sum types[TD_DTYPE_COUNT];
    size_t type_count;
    uint64_t elements, bytes; /* of all types */
    struct td_module_line *lines;
    size_t line_count;
    struct td_model_facts facts;
    struct td_card_view card;
    bool hashed[FILE_ROWS]; /* whether the digest of a file that is shown was known */
    size_t hashed_count;    /* of all files */
    bool is_incoming, is_from_upstream;
    struct td_incoming_state upstream;
    const struct td_family *family; /* that the model is a version of, or that has the model's id; or NULL */
    const struct td_model *base;    /* the model that a delta changes, if it is here */
    bool needs_token;
    struct td_model_commands commands;
};

static void destroy(void *context)
{
    struct page *page = context;
    td_model_commands_fini(&page->commands);
    td_card_view_fini(&page->card);
    free(page->lines);
    td_reserved_release(&page->reserved);
    td_snapshot_unref(page->snapshot);
    free(page);
}

/* ---- what the page shows ------------------------------------------------------------------------------- */

/* Adds to a sum that stops at 2^64-1. */
static void add_to(uint64_t *sum, uint64_t value)
{
    if (!td_add_u64(*sum, value, sum))
        *sum = UINT64_MAX;
}

/* Orders types by their bytes, the largest first, then by their numbers. */
static int compare_types(const void *a, const void *b)
{
    const struct type_sum *x = a;
    const struct type_sum *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return td_dtype_number(x->dtype) < td_dtype_number(y->dtype) ? -1 : 1;
}

/* Sums the tensors of the default checkpoint by type and by module. */
static bool sum_tensors(struct page *page, struct td_error *err)
{
    struct td_module_tree *tree = td_module_tree_create();
    if (tree == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; page->whole != NULL && i < page->whole->tensor_count; i++) {
        const struct td_tensor *tensor = td_checkpoint_tensor(page->whole, i).tensor;
        bool counts = tensor->alias_of == NULL;
        uint64_t elements = counts ? td_tensor_elements(tensor) : 0;
        uint64_t bytes = counts ? tensor->nbytes : 0;
        td_module_tree_add(tree, td_text_n(tensor->name, tensor->name_len), elements, bytes);
        if (tensor->dtype == NULL || !counts)
            continue;
        struct type_sum *sum = &page->types[td_dtype_number(tensor->dtype)];
        sum->dtype = tensor->dtype;
        sum->tensors++;
        add_to(&sum->elements, elements);
        add_to(&sum->bytes, bytes);
        add_to(&page->elements, elements);
        add_to(&page->bytes, bytes);
    }
    for (size_t i = 0; i < TD_DTYPE_COUNT; i++)
        if (page->types[i].dtype != NULL)
            page->types[page->type_count++] = page->types[i];
    qsort(page->types, page->type_count, sizeof *page->types, compare_types);
    return td_module_tree_finish(tree, &page->lines, &page->line_count, err) &&
           td_reserved_take(&page->reserved, page->line_count * sizeof *page->lines, err);
}

static const struct td_entry *file_at(const struct page *page, size_t i)
{
    return &page->snapshot->entries[page->model->first_entry + i];
}

static size_t file_rows(const struct page *page)
{
    return page->model->entry_count < FILE_ROWS ? page->model->entry_count : FILE_ROWS;
}

static void note_digests(struct page *page)
{
    for (size_t i = 0; i < page->model->entry_count; i++) {
        bool is_hashed = td_file_sha256(file_at(page, i)->file) != NULL;
        page->hashed_count += is_hashed ? 1 : 0;
        if (i < FILE_ROWS)
            page->hashed[i] = is_hashed;
    }
}

/* Reads the model's card. Its links lead to the files as the Hub's clients name them, if they have a name for the
 * model. */
static void read_card(const struct td_call *call, struct page *page)
{
    const struct td_repo *repo = td_repo_find(page->snapshot, false, td_text_of(page->model->id));
    struct td_buffer base;
    td_buffer_init(&base);
    td_buffer_puts(&base, repo == NULL ? "/models/" : "/");
    td_uri_encode(&base, td_text_of(repo == NULL ? page->model->id : repo->hub_id), true);
    td_buffer_puts(&base, repo == NULL ? "/files/" : "/resolve/main/");
    td_card_view_read(call, td_model_find_file(page->snapshot, page->model, TD_TEXT("README.md")), &base, &page->card);
    td_buffer_fini(&base);
}

/* Finds the family of the model, and the version that a delta changes. */
static void find_family(struct page *page)
{
    size_t rest;
    const struct td_model *model = page->model;
    const struct td_family *family = td_family_route(page->snapshot, td_text_of(model->id), &rest);
    for (size_t i = 0; family != NULL && i < family->count; i++) {
        const struct td_version *version = &family->versions[i];
        if (version->model == model || strcmp(family->id, model->id) == 0)
            page->family = family;
        if (model->base != NULL && strcmp(version->name, model->base) == 0)
            page->base = version->model;
    }
}

/* ---- problems ------------------------------------------------------------------------------------------ */

static void write_problem(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_problems *problems = &page->model->problems;
    const struct td_problem *problem = &problems->items[place->row[0]];
    switch (slot) {
    case TD_SLOT_MODEL_PROBLEM_FILE:
        td_buffer_puts(out, problem->path);
        break;
    case TD_SLOT_MODEL_PROBLEM:
        td_buffer_puts(out, problem->message);
        break;
    case TD_SLOT_MODEL_ADVICE:
        td_model_write_advice(page->snapshot, page->model, problem, out);
        break;
    default:
        break;
    }
}

/* ---- facts and types ----------------------------------------------------------------------------------- */

static void write_fact(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_model_fact *fact = &page->facts.items[place->row[0]];
    if (slot == TD_SLOT_MODEL_FACT)
        td_buffer_puts(out, fact->name);
    else if (slot == TD_SLOT_MODEL_FACT_LABEL)
        td_buffer_puts(out, fact->label);
    else if (slot == TD_SLOT_MODEL_FACT_VALUE)
        td_model_fact_write_value(fact, out);
    else
        td_model_fact_write(fact, out);
}

static void write_tag(const struct td_page_place *place, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_fact_tag *tag = page->facts.tags[place->row[0]];
    td_buffer_puts(out, td_fact_tag_prefix(tag, false));
    td_buffer_puts(out, tag->value);
}

/* Returns the share of the bytes, times 10,000. */
static unsigned share_of(const struct page *page, uint64_t bytes)
{
    return page->bytes == 0 ? 0 : (unsigned)((double)bytes / (double)page->bytes * 10000 + 0.5);
}

/* Appends where the bar of a type begins (its number), in units of the drawing. */
static void write_bar_x(const struct page *page, size_t number, struct td_buffer *out)
{
    double before = 0;
    for (size_t i = 0; i < number; i++)
        before += (double)page->types[i].bytes;
    td_buffer_printf(out, "%.2f", page->bytes == 0 ? 0 : before / (double)page->bytes * BAR_WIDTH);
}

static void write_bar_label(const struct page *page, struct td_buffer *out)
{
    td_buffer_puts(out, "Share of the bytes by type:");
    for (size_t i = 0; i < page->type_count; i++) {
        unsigned share = share_of(page, page->types[i].bytes);
        td_buffer_printf(out, "%s %s %u.%02u%%", i > 0 ? "," : "", page->types[i].dtype->name, share / 100,
                         share % 100);
    }
}

static void write_type(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct type_sum *type = &page->types[place->row[0]];
    unsigned share = share_of(page, type->bytes);
    switch (slot) {
    case TD_SLOT_MODEL_DTYPE:
        td_buffer_puts(out, type->dtype->name);
        break;
    case TD_SLOT_MODEL_DTYPE_BYTES:
        td_buffer_u64(out, type->bytes);
        break;
    case TD_SLOT_MODEL_DTYPE_SIZE:
        td_shown_bytes(out, type->bytes);
        break;
    case TD_SLOT_MODEL_DTYPE_ELEMENTS:
        td_buffer_u64(out, type->elements);
        break;
    case TD_SLOT_MODEL_DTYPE_COUNT:
        td_shown_number(out, type->elements);
        break;
    case TD_SLOT_MODEL_DTYPE_TENSORS:
        td_shown_number(out, type->tensors);
        break;
    case TD_SLOT_MODEL_DTYPE_SHARE:
        td_buffer_printf(out, "%u.%02u%%", share / 100, share % 100);
        break;
    case TD_SLOT_MODEL_BAR_CLASS:
        td_buffer_printf(out, "c%zu", place->row[0] < BAR_CLASSES ? place->row[0] + 1 : (size_t)BAR_CLASSES);
        break;
    case TD_SLOT_MODEL_BAR_X:
        write_bar_x(page, place->row[0], out);
        break;
    case TD_SLOT_MODEL_BAR_WIDTH:
        td_buffer_printf(out, "%.2f", page->bytes == 0 ? 0 : (double)type->bytes / (double)page->bytes * BAR_WIDTH);
        break;
    default:
        break;
    }
}

/* ---- modules ------------------------------------------------------------------------------------------- */

static void write_module(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_module_line *line = &page->lines[place->row[0]];
    switch (slot) {
    case TD_SLOT_MODEL_MODULE:
        td_buffer_append(out, line->path.p, line->path.len);
        break;
    case TD_SLOT_MODEL_MODULE_NAME:
        td_buffer_append(out, line->path.p + line->name_at, line->path.len - line->name_at);
        break;
    case TD_SLOT_MODEL_MODULE_BYTES:
        td_buffer_u64(out, line->bytes);
        break;
    case TD_SLOT_MODEL_MODULE_ELEMENTS:
        td_buffer_u64(out, line->elements);
        break;
    case TD_SLOT_MODEL_MODULE_TEXT:
        td_shown_bytes(out, line->bytes);
        td_buffer_puts(out, ", ");
        td_shown_count(out, line->elements);
        td_buffer_puts(out, line->elements == 1 ? " parameter, " : " parameters, ");
        td_shown_number(out, line->tensors);
        td_buffer_puts(out, line->tensors == 1 ? " tensor" : " tensors");
        break;
    case TD_SLOT_MODEL_MORE:
        td_buffer_u64(out, line->more);
        break;
    case TD_SLOT_MODEL_MORE_SHOWN:
        td_shown_number(out, line->more);
        break;
    default:
        break;
    }
}

/* ---- checkpoints --------------------------------------------------------------------------------------- */

/* Returns the checkpoint of a row: the whole ones, then the incomplete ones. */
static const struct td_checkpoint *checkpoint_at(const struct td_page_place *place)
{
    const struct page *page = place->context;
    size_t number = place->row[0];
    return number < page->model->checkpoint_count ? &page->model->checkpoints[number]
                                                  : &page->model->partials[number - page->model->checkpoint_count];
}

/* Appends the link to a resource of the checkpoint. The default one needs no parameter. */
static void write_checkpoint_link(const struct td_page_place *place, const char *resource, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_checkpoint *checkpoint = checkpoint_at(place);
    bool is_default = checkpoint == page->model->checkpoints || td_model_is_default_checkpoint(page->model, checkpoint);
    td_buffer_puts(out, "/models/");
    td_uri_encode(out, td_text_of(page->model->id), true);
    td_buffer_puts(out, resource);
    if (!is_default) {
        td_buffer_puts(out, "?checkpoint=");
        td_uri_encode(out, td_text_of(checkpoint->id), false);
    }
    if (checkpoint->lacks != NULL)
        td_buffer_puts(out, is_default ? "?partial=1" : "&partial=1");
}

static const char *state_of(const struct td_page_place *place)
{
    const struct page *page = place->context;
    const struct td_checkpoint *checkpoint = checkpoint_at(place);
    if (checkpoint->is_rank_part)
        return "one rank's part";
    if (checkpoint->lacks != NULL)
        return "incomplete";
    return checkpoint == page->model->checkpoints ? "default" : "whole";
}

static void write_checkpoint(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct td_checkpoint *checkpoint = checkpoint_at(place);
    switch (slot) {
    case TD_SLOT_MODEL_CHECKPOINT:
        td_buffer_puts(out, checkpoint->id);
        break;
    case TD_SLOT_MODEL_CHECKPOINT_STATE:
        td_buffer_puts(out, state_of(place));
        break;
    case TD_SLOT_MODEL_CHECKPOINT_FORMAT:
        td_buffer_puts(out, checkpoint->format);
        break;
    case TD_SLOT_MODEL_CHECKPOINT_TENSORS:
        td_shown_number(out, checkpoint->tensor_count);
        break;
    case TD_SLOT_MODEL_CHECKPOINT_BYTES:
        td_buffer_u64(out, checkpoint->total_bytes);
        break;
    case TD_SLOT_MODEL_CHECKPOINT_SIZE:
        td_shown_bytes(out, checkpoint->total_bytes);
        break;
    case TD_SLOT_MODEL_VIEW_LINK:
        write_checkpoint_link(place, "/view/tensors", out);
        break;
    case TD_SLOT_MODEL_MANIFEST_LINK:
        write_checkpoint_link(place, "/tensors", out);
        break;
    case TD_SLOT_MODEL_MANIFEST_NAME:
        td_buffer_puts(out, checkpoint->lacks != NULL ? "manifest of the tensors that are there" : "manifest");
        break;
    case TD_SLOT_MODEL_SAFETENSORS_LINK:
        write_checkpoint_link(place, "/model.safetensors", out);
        break;
    default:
        break;
    }
}

/* ---- versions ------------------------------------------------------------------------------------------ */

/* Returns the version of a row, the newest first. */
static const struct td_version *version_at(const struct td_page_place *place)
{
    const struct page *page = place->context;
    return &page->family->versions[page->family->count - 1 - place->row[0]];
}

static void write_version(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_version *version =
        slot == TD_SLOT_MODEL_FAMILY || slot == TD_SLOT_MODEL_VERSIONS_CAPTION ? NULL : version_at(place);
    switch (slot) {
    case TD_SLOT_MODEL_FAMILY:
        td_buffer_puts(out, page->family->id);
        break;
    case TD_SLOT_MODEL_VERSIONS_CAPTION:
        td_shown_number(out, page->family->count);
        td_buffer_puts(out, page->family->count == 1 ? " version, the newest first" : " versions, the newest first");
        if (page->family->count > VERSION_ROWS)
            td_buffer_printf(out, "; %d are shown", VERSION_ROWS);
        break;
    case TD_SLOT_MODEL_VERSION:
        td_buffer_puts(out, version->name);
        break;
    case TD_SLOT_MODEL_VERSION_MODEL:
        td_buffer_puts(out, version->model->id);
        break;
    case TD_SLOT_MODEL_VERSION_SIZE:
        td_shown_bytes(out, version->model->file_bytes);
        break;
    case TD_SLOT_MODEL_VERSION_UPDATED:
        td_shown_time(out, version->model->updated_ns);
        break;
    default:
        break;
    }
}

/* ---- files and commands -------------------------------------------------------------------------------- */

static void write_file(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_entry *entry = file_at(page, place->row[0]);
    switch (slot) {
    case TD_SLOT_MODEL_FILE:
        td_buffer_puts(out, td_model_relative(page->model, entry));
        break;
    case TD_SLOT_MODEL_FILE_BYTES:
        td_buffer_u64(out, entry->file->source.id.size_bytes);
        break;
    case TD_SLOT_MODEL_FILE_SIZE:
        td_shown_bytes(out, entry->file->source.id.size_bytes);
        break;
    case TD_SLOT_MODEL_FILE_FORMAT:
        td_buffer_puts(out, entry->file->format == NULL ? "" : entry->file->format->name);
        break;
    case TD_SLOT_MODEL_SHA256:
        td_buffer_puts(out, td_file_sha256(entry->file));
        break;
    default:
        break;
    }
}

static void write_command(const struct td_page_place *place, enum td_model_slot slot, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_model_command *command = &page->commands.items[place->row[0]];
    if (slot == TD_SLOT_MODEL_COMMAND)
        td_buffer_puts(out, command->name);
    else if (slot == TD_SLOT_MODEL_COMMAND_LABEL)
        td_buffer_puts(out, command->label);
    else if (slot == TD_SLOT_MODEL_COPY_LABEL)
        td_buffer_printf(out, "Copy: %s", command->label);
    else
        td_buffer_puts(out, command->text);
}

/* Writes the slots that stand once on the page. */
static void write_single(const struct page *page, enum td_model_slot slot, struct td_buffer *out)
{
    const struct td_model *model = page->model;
    switch (slot) {
    case TD_SLOT_MODEL_TITLE:
    case TD_SLOT_MODEL_ID:
        td_buffer_puts(out, model->id);
        break;
    case TD_SLOT_MODEL_ERRORS_TITLE:
        td_shown_number(out, model->problems.count);
        td_buffer_puts(out, model->problems.count == 1 ? " problem" : " problems");
        break;
    case TD_SLOT_MODEL_ARRIVED_BYTES:
        td_buffer_u64(out, page->upstream.arrived_bytes);
        break;
    case TD_SLOT_MODEL_ARRIVED:
        td_shown_bytes(out, page->upstream.arrived_bytes);
        break;
    case TD_SLOT_MODEL_TOTAL_BYTES:
        td_buffer_u64(out, page->upstream.total_bytes);
        break;
    case TD_SLOT_MODEL_TOTAL:
        td_shown_bytes(out, page->upstream.total_bytes);
        break;
    case TD_SLOT_MODEL_BASE_NAME:
        td_buffer_puts(out, model->base);
        break;
    case TD_SLOT_MODEL_BASE_MODEL:
        td_buffer_puts(out, page->base->id);
        break;
    case TD_SLOT_MODEL_CARD_REASON:
        td_buffer_puts(out, td_card_view_reason(&page->card));
        break;
    case TD_SLOT_MODEL_CARD:
        td_buffer_append(out, page->card.card->html, page->card.card->html_len);
        break;
    case TD_SLOT_MODEL_BAR_LABEL:
        write_bar_label(page, out);
        break;
    case TD_SLOT_MODEL_TYPES_CAPTION:
        td_shown_number(out, page->whole->tensor_count);
        td_buffer_puts(out, page->whole->tensor_count == 1 ? " tensor" : " tensors");
        td_buffer_puts(out, "; tensors that share their bytes count once");
        break;
    case TD_SLOT_MODEL_FILE_COUNT:
        td_shown_number(out, model->entry_count);
        break;
    case TD_SLOT_MODEL_FILES_CAPTION:
        td_shown_number(out, model->entry_count);
        td_buffer_puts(out, model->entry_count == 1 ? " file, " : " files, ");
        td_shown_bytes(out, model->file_bytes);
        if (model->entry_count > FILE_ROWS)
            td_buffer_printf(out, "; the first %d are shown", FILE_ROWS);
        break;
    default:
        break;
    }
}

/* ---- the template -------------------------------------------------------------------------------------- */

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const enum td_model_slot slot = (enum td_model_slot)number;
    switch (slot) {
    case TD_SLOT_MODEL_TITLE:
    case TD_SLOT_MODEL_ID:
    case TD_SLOT_MODEL_ERRORS_TITLE:
    case TD_SLOT_MODEL_ARRIVED_BYTES:
    case TD_SLOT_MODEL_ARRIVED:
    case TD_SLOT_MODEL_TOTAL_BYTES:
    case TD_SLOT_MODEL_TOTAL:
    case TD_SLOT_MODEL_BASE_NAME:
    case TD_SLOT_MODEL_BASE_MODEL:
    case TD_SLOT_MODEL_CARD_REASON:
    case TD_SLOT_MODEL_CARD:
    case TD_SLOT_MODEL_BAR_LABEL:
    case TD_SLOT_MODEL_TYPES_CAPTION:
    case TD_SLOT_MODEL_FILE_COUNT:
    case TD_SLOT_MODEL_FILES_CAPTION:
        write_single(place->context, slot, out);
        break;
    case TD_SLOT_MODEL_PROBLEM_FILE:
    case TD_SLOT_MODEL_PROBLEM:
    case TD_SLOT_MODEL_ADVICE:
        write_problem(place, slot, out);
        break;
    case TD_SLOT_MODEL_FACT:
    case TD_SLOT_MODEL_FACT_LABEL:
    case TD_SLOT_MODEL_FACT_VALUE:
    case TD_SLOT_MODEL_FACT_SHOWN:
        write_fact(place, slot, out);
        break;
    case TD_SLOT_MODEL_TAG:
        write_tag(place, out);
        break;
    case TD_SLOT_MODEL_DTYPE:
    case TD_SLOT_MODEL_DTYPE_BYTES:
    case TD_SLOT_MODEL_DTYPE_SIZE:
    case TD_SLOT_MODEL_DTYPE_ELEMENTS:
    case TD_SLOT_MODEL_DTYPE_COUNT:
    case TD_SLOT_MODEL_DTYPE_TENSORS:
    case TD_SLOT_MODEL_DTYPE_SHARE:
    case TD_SLOT_MODEL_BAR_CLASS:
    case TD_SLOT_MODEL_BAR_X:
    case TD_SLOT_MODEL_BAR_WIDTH:
        write_type(place, slot, out);
        break;
    case TD_SLOT_MODEL_MODULE:
    case TD_SLOT_MODEL_MODULE_NAME:
    case TD_SLOT_MODEL_MODULE_BYTES:
    case TD_SLOT_MODEL_MODULE_ELEMENTS:
    case TD_SLOT_MODEL_MODULE_TEXT:
    case TD_SLOT_MODEL_MORE:
    case TD_SLOT_MODEL_MORE_SHOWN:
        write_module(place, slot, out);
        break;
    case TD_SLOT_MODEL_CHECKPOINT:
    case TD_SLOT_MODEL_CHECKPOINT_STATE:
    case TD_SLOT_MODEL_CHECKPOINT_FORMAT:
    case TD_SLOT_MODEL_CHECKPOINT_TENSORS:
    case TD_SLOT_MODEL_CHECKPOINT_BYTES:
    case TD_SLOT_MODEL_CHECKPOINT_SIZE:
    case TD_SLOT_MODEL_VIEW_LINK:
    case TD_SLOT_MODEL_MANIFEST_LINK:
    case TD_SLOT_MODEL_MANIFEST_NAME:
    case TD_SLOT_MODEL_SAFETENSORS_LINK:
        write_checkpoint(place, slot, out);
        break;
    case TD_SLOT_MODEL_FAMILY:
    case TD_SLOT_MODEL_VERSIONS_CAPTION:
    case TD_SLOT_MODEL_VERSION:
    case TD_SLOT_MODEL_VERSION_MODEL:
    case TD_SLOT_MODEL_VERSION_SIZE:
    case TD_SLOT_MODEL_VERSION_UPDATED:
        write_version(place, slot, out);
        break;
    case TD_SLOT_MODEL_FILE:
    case TD_SLOT_MODEL_FILE_BYTES:
    case TD_SLOT_MODEL_FILE_SIZE:
    case TD_SLOT_MODEL_FILE_FORMAT:
    case TD_SLOT_MODEL_SHA256:
        write_file(place, slot, out);
        break;
    case TD_SLOT_MODEL_COMMAND:
    case TD_SLOT_MODEL_COMMAND_LABEL:
    case TD_SLOT_MODEL_COMMAND_TEXT:
    case TD_SLOT_MODEL_COPY_LABEL:
        write_command(place, slot, out);
        break;
    }
}

static enum td_module_line_kind line_kind(const struct td_page_place *place)
{
    const struct page *page = place->context;
    return page->lines[place->row[0]].kind;
}

static size_t count_version_rows(const struct page *page)
{
    if (page->family == NULL)
        return 0;
    return page->family->count < VERSION_ROWS ? page->family->count : VERSION_ROWS;
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    const struct td_model *model = page->model;
    switch ((enum td_model_section)section) {
    case TD_SECTION_MODEL_ERRORS:
    case TD_SECTION_MODEL_ERRORS_END:
        return model->problems.count > 0;
    case TD_SECTION_MODEL_PROBLEMS:
        return model->problems.count;
    case TD_SECTION_MODEL_ARRIVING:
        return page->is_incoming;
    case TD_SECTION_MODEL_PROGRESS:
        return page->upstream.has_progress;
    case TD_SECTION_MODEL_IS_DELTA:
        return model->is_delta;
    case TD_SECTION_MODEL_BASE:
        return model->base != NULL;
    case TD_SECTION_MODEL_BASE_LINKED:
        return page->base != NULL;
    case TD_SECTION_MODEL_BASE_PLAIN:
        return page->base == NULL;
    case TD_SECTION_MODEL_BASE_NONE:
        return model->base == NULL;
    case TD_SECTION_MODEL_FACTS:
        return page->facts.count;
    case TD_SECTION_MODEL_TAGS:
        return page->facts.tag_count;
    case TD_SECTION_MODEL_TAGS_FIRST:
        return place->row[0] == 0;
    case TD_SECTION_MODEL_TAGS_LAST:
        return place->row[0] + 1 == page->facts.tag_count;
    case TD_SECTION_MODEL_READABLE: /* the page of tensors also shows the first incomplete checkpoint */
        return page->whole != NULL || td_partial_find(model, TD_TEXT("")) != NULL;
    case TD_SECTION_MODEL_SPLITTABLE:
        return page->whole != NULL;
    case TD_SECTION_MODEL_DTYPES:
    case TD_SECTION_MODEL_DTYPES_TABLE:
    case TD_SECTION_MODEL_DTYPES_END:
        return page->type_count > 0;
    case TD_SECTION_MODEL_BARS:
    case TD_SECTION_MODEL_TYPES:
        return page->type_count;
    case TD_SECTION_MODEL_CARD_FAULT:
        return td_card_view_reason(&page->card) != NULL;
    case TD_SECTION_MODEL_CARD_SHOWN:
    case TD_SECTION_MODEL_CARD_LINK:
        return td_card_view_has_html(&page->card);
    case TD_SECTION_MODEL_COMMANDS_LINK:
    case TD_SECTION_MODEL_COMMANDS_SOME:
    case TD_SECTION_MODEL_COMMANDS_END:
        return page->commands.count > 0;
    case TD_SECTION_MODEL_TOKEN_NOTE:
        return page->needs_token;
    case TD_SECTION_MODEL_COMMANDS:
        return page->commands.count;
    case TD_SECTION_MODEL_TREE:
    case TD_SECTION_MODEL_TREE_END:
        return page->line_count > 0;
    case TD_SECTION_MODEL_LINES:
        return page->line_count;
    case TD_SECTION_MODEL_LINE_OPEN:
        return line_kind(place) == TD_MODULE_OPEN;
    case TD_SECTION_MODEL_LINE_FIRST:
        return page->lines[place->row[0]].level == 0;
    case TD_SECTION_MODEL_LINE_ALONE:
        return line_kind(place) == TD_MODULE_ALONE;
    case TD_SECTION_MODEL_LINE_MORE:
        return line_kind(place) == TD_MODULE_MORE;
    case TD_SECTION_MODEL_LINE_CLOSE:
        return line_kind(place) == TD_MODULE_CLOSE;
    case TD_SECTION_MODEL_CHECKPOINTS_SOME:
    case TD_SECTION_MODEL_CHECKPOINTS_END:
        return model->checkpoint_count + model->partial_count > 0;
    case TD_SECTION_MODEL_CHECKPOINTS:
        return model->checkpoint_count + model->partial_count;
    case TD_SECTION_MODEL_FITS:
        return checkpoint_at(place)->lacks == NULL && checkpoint_at(place)->fits_safetensors;
    case TD_SECTION_MODEL_VERSIONS_SOME:
    case TD_SECTION_MODEL_VERSIONS_END:
        return page->family != NULL;
    case TD_SECTION_MODEL_VERSIONS:
        return count_version_rows(page);
    case TD_SECTION_MODEL_IS_CURRENT:
    case TD_SECTION_MODEL_IS_THIS:
        return version_at(place)->model == model;
    case TD_SECTION_MODEL_IS_OTHER:
        return version_at(place)->model != model;
    case TD_SECTION_MODEL_FILES:
        return file_rows(page);
    case TD_SECTION_MODEL_IS_HASHED:
    case TD_SECTION_MODEL_HASH_KNOWN:
        return page->hashed[place->row[0]];
    case TD_SECTION_MODEL_NOT_HASHED:
        return !page->hashed[place->row[0]];
    case TD_SECTION_MODEL_IS_REFUSED:
        return file_at(page, place->row[0])->file->error != NULL;
    case TD_SECTION_MODEL_FILES_MORE:
        return model->entry_count > FILE_ROWS;
    }
    return 0;
}

void td_html_model(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_model, .write = write_slot, .rows = count_rows, .destroy = destroy};
    struct td_error err = TD_ERROR_INIT;
    if (!td_may_wait(&err)) { /* a model may have many tensors */
        td_response_fail_error(call->response, &err);
        return;
    }
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    page->snapshot = td_snapshot_ref(call->snapshot);
    page->model = call->model;
    page->reserved.budget = td_shared_budget_of(&call->api->lists, td_call_client(call));
    page->whole = call->model->checkpoint_count > 0 ? &call->model->checkpoints[0] : NULL;
    page->is_from_upstream = td_incoming_call_state(call, &page->upstream);
    page->is_incoming = page->is_from_upstream && !page->upstream.is_kept;
    page->needs_token = call->caller.kind != TD_CALLER_OPEN;
    read_card(call, page);
    note_digests(page);
    find_family(page);
    bool ok = sum_tensors(page, &err) && td_model_commands_make(call, call->model, &page->commands, &err);
    if (ok) {
        const struct td_model_sums sums = {.elements = page->elements,
                                           .hashed_count = page->hashed_count,
                                           .upstream = page->is_from_upstream ? &page->upstream : NULL};
        td_model_facts_find(page->snapshot, page->model, &sums, &page->facts);
        td_page_answer(call->response, &class, page);
        td_command_vary(call->response);
        return;
    }
    td_response_fail_error(call->response, &err);
    destroy(page);
}
