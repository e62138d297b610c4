#include "slicing/rank_file.h"

#include "core/buffer.h"
#include "core/checked.h"
#include "core/json/json.h"
#include "slicing/plan/plan_match.h"
#include "slicing/runs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, ALIGNMENT = 8, MAX_HEADER_BYTES = 100000000 }; /* safetensors tensor.rs */

/* The header is written by hand, because its bytes are the file, and its length and padding are counted in offsets. */

static void write_metadata(struct td_buffer *out, const struct td_rank_metadata *metadata, size_t count)
{
    td_buffer_puts(out, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_cstring(out, metadata[i].key);
        td_buffer_putc(out, ':');
        td_json_write_cstring(out, metadata[i].value);
    }
    td_buffer_putc(out, '}');
}

static void write_tensor(struct td_buffer *out, const struct td_plan_output *output, uint64_t begin)
{
    td_json_write_cstring(out, output->name);
    td_buffer_puts(out, ":{\"dtype\":");
    td_json_write_cstring(out, output->dtype->name);
    td_buffer_puts(out, ",\"shape\":[");
    for (uint32_t i = 0; i < output->rank; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_buffer_u64(out, output->shape[i]);
    }
    td_buffer_puts(out, "],\"data_offsets\":[");
    td_buffer_u64(out, begin);
    td_buffer_putc(out, ',');
    td_buffer_u64(out, begin + output->nbytes);
    td_buffer_puts(out, "]}");
}

/* Checks that safetensors allows the result's type and name. */
static bool check_output(const struct td_plan_output *output, struct td_error *err)
{
    char rule[TD_DROP_RULE_BYTES];
    if (!td_dtype_is_safetensors(output->dtype)) {
        td_plan_write_drop_rule(output->name, rule);
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "tensor \"%.120s\": safetensors has no dtype for the type %s; format=raw and the model's "
                            "own files have it, a plan with the rule %s leaves it out",
                            output->name, output->dtype->name, rule);
    }
    if (strcmp(output->name, "__metadata__") == 0)
        return td_error_set(err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": safetensors keeps this name for itself",
                            output->name);
    return true;
}

/* Writes 8 bytes of room for the length, then the JSON, padded to a multiple of 8. */
static bool write_header(const struct td_plan *plan, const struct td_rank_metadata *metadata, size_t metadata_count,
                         struct td_buffer *out, struct td_error *err)
{
    uint64_t at = 0;
    static const char room[LENGTH_BYTES + 1] = "        ";
    td_buffer_puts(out, room);
    td_buffer_putc(out, '{');
    if (metadata_count > 0)
        write_metadata(out, metadata, metadata_count);
    for (size_t i = 0; i < plan->output_count; i++) {
        const struct td_plan_output *output = &plan->outputs[i];
        uint64_t end;
        if (!check_output(output, err))
            return false;
        if (!td_add_u64(at, output->nbytes, &end))
            return td_error_set(err, TD_INVALID_ARGUMENT, "the file would have more than 2^64-1 bytes");
        if (i > 0 || metadata_count > 0)
            td_buffer_putc(out, ',');
        write_tensor(out, output, at);
        if (out->len > LENGTH_BYTES + MAX_HEADER_BYTES)
            break;
        at = end;
    }
    td_buffer_putc(out, '}');
    while (out->len % ALIGNMENT != 0 && !out->failed)
        td_buffer_putc(out, ' ');
    if (out->failed)
        return td_buffer_refuse(out, err);
    if (out->len > LENGTH_BYTES + MAX_HEADER_BYTES)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "the file's header would have more than %d bytes, which safetensors refuses",
                            (int)MAX_HEADER_BYTES);
    return true;
}

/* Appends the values of the constants, little-endian, in the order of the file. */
static bool write_constants(const struct td_plan *plan, struct td_buffer *out, struct td_error *err)
{
    for (size_t i = 0; i < plan->output_count; i++) {
        uint32_t bits;
        if (!plan->outputs[i].is_constant)
            continue;
        memcpy(&bits, &plan->outputs[i].constant, sizeof bits);
        for (size_t k = 0; k < sizeof bits; k++)
            td_buffer_putc(out, (char)(bits >> 8 * k & 0xff));
    }
    return !out->failed || td_buffer_refuse(out, err);
}

/* Makes the blob of the file's own bytes: the header, which begins with its length in little-endian order, and the
 * constants. */
static bool make_own(struct td_rank_file *file, const struct td_plan *plan, const struct td_rank_metadata *metadata,
                     size_t metadata_count, bool header_wanted, struct td_error *err)
{
    struct td_buffer text;
    size_t len;
    td_buffer_init_budget(&text, file->budget);
    bool ok = !header_wanted || write_header(plan, metadata, metadata_count, &text, err);
    file->header_bytes = text.len;
    if (!ok || !write_constants(plan, &text, err) || text.len == 0) {
        ok = ok && !text.failed;
        td_buffer_fini(&text);
        return ok;
    }
    char *bytes = td_buffer_release(&text, &len);
    for (size_t i = 0; header_wanted && i < LENGTH_BYTES; i++)
        bytes[i] = (char)((file->header_bytes - LENGTH_BYTES) >> 8 * i & 0xff);
    return td_blob_from_budget(bytes, len, file->budget, &file->own, err);
}

static bool append_own(struct td_layout *layout, uint64_t off, uint64_t len, struct td_error *err)
{
    const struct td_run run = {.source = TD_RANK_SOURCE_OWN, .off = off, .len = len, .count = 1};
    return td_layout_append(layout, 1, &run, 1, err);
}

/* Makes the layout: the header, then the results in order. */
static bool make_layout(struct td_rank_file *file, const struct td_plan *plan, const struct td_tensor_list *tensors,
                        struct td_error *err)
{
    uint64_t constant_at = file->header_bytes;
    file->layout = td_layout_create(file->budget, err);
    if (file->layout == NULL || !append_own(file->layout, 0, file->header_bytes, err))
        return false;
    for (size_t i = 0; i < plan->output_count; i++) {
        const struct td_plan_output *output = &plan->outputs[i];
        if (!(output->is_constant
                  ? append_own(file->layout, constant_at, output->nbytes, err)
                  : td_layout_append_output(file->layout, TD_RANK_SOURCE_TENSOR, plan, output, tensors, err)))
            return false;
        constant_at += output->is_constant ? output->nbytes : 0;
    }
    td_layout_fit(file->layout);
    file->nbytes = file->layout->total_bytes;
    return true;
}

/* Checks that the file has at most 2^63-1 bytes: clients cannot count further, and 2^64-1 means "unknown" to
 * libmicrohttpd. */
static bool check_length(const struct td_rank_file *file, struct td_error *err)
{
    return file->nbytes <= INT64_MAX ||
           td_error_set(err, TD_FAILED_PRECONDITION, "a virtual file would have more than 2^63-1 bytes");
}

/* Makes a file that has neither a header nor a layout yet. */
static struct td_rank_file *begin_file(struct td_budget *budget, struct td_error *err)
{
    if (!td_budget_take(budget, sizeof(struct td_rank_file))) {
        (void)td_budget_refuse(budget, sizeof(struct td_rank_file), err);
        return NULL;
    }
    struct td_rank_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        td_budget_give(budget, sizeof *file);
        (void)td_error_no_memory(err);
        return NULL;
    }
    file->budget = budget;
    atomic_init(&file->refs, 1);
    return file;
}

/* Makes a raw file of a layout, and takes over the caller's reference to the layout, also after a failure. */
static bool file_from_layout(struct td_layout *layout, struct td_budget *budget, struct td_rank_file **out,
                             struct td_error *err)
{
    struct td_rank_file *file = begin_file(budget, err);
    if (file == NULL) {
        td_layout_unref(layout);
        return false;
    }
    td_layout_fit(layout);
    file->layout = layout;
    file->nbytes = layout->total_bytes;
    if (!check_length(file, err)) {
        td_rank_file_unref(file);
        return false;
    }
    *out = file;
    return true;
}

bool td_rank_file_create(const struct td_plan *plan, const struct td_tensor_list *tensors,
                         const struct td_rank_metadata *metadata, size_t metadata_count, bool header_wanted,
                         struct td_budget *budget, struct td_rank_file **out, struct td_error *err)
{
    struct td_rank_file *file = begin_file(budget, err);
    if (file == NULL)
        return false;
    if (!make_own(file, plan, metadata, metadata_count, header_wanted, err) || !make_layout(file, plan, tensors, err) ||
        !check_length(file, err)) {
        td_rank_file_unref(file);
        return false;
    }
    *out = file;
    return true;
}

bool td_rank_file_create_labelled(const struct td_plan *plan, const struct td_tensor_list *tensors,
                                  const struct td_rank_label *label, struct td_budget *budget,
                                  struct td_rank_file **out, struct td_error *err)
{
    char size[24];
    char rank[24];
    bool by_plan = label->plan_id[0] != '\0';
    (void)snprintf(size, sizeof size, "%" PRIu64, plan->tp_size);
    (void)snprintf(rank, sizeof rank, "%" PRIu64, plan->tp_rank);
    const struct td_rank_metadata metadata[] = {
        {"format", "pt"},  {"model", label->model}, {"engine", by_plan ? "plan" : label->engine},
        {"tp_size", size}, {"tp_rank", rank},       {"plan", label->plan_id},
    };
    size_t count = sizeof metadata / sizeof *metadata - (by_plan ? 0 : 1);
    return td_rank_file_create(plan, tensors, metadata, count, true, budget, out, err);
}

struct td_rank_file *td_rank_file_ref(struct td_rank_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void td_rank_file_unref(struct td_rank_file *file)
{
    if (file == NULL || atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct td_budget *budget = file->budget;
    td_layout_unref(file->layout);
    td_blob_unref(file->own);
    free(file);
    td_budget_give(budget, sizeof *file);
}

bool td_rank_file_is_shared(const struct td_rank_file *file)
{
    return atomic_load_explicit(&file->refs, memory_order_acquire) > 1 ||
           (file->own != NULL && td_blob_is_shared(file->own)) || td_layout_is_shared(file->layout);
}

size_t td_rank_file_memory_bytes(const struct td_rank_file *file)
{
    size_t own = file->own == NULL ? 0 : (size_t)file->own->len_bytes;
    return sizeof *file + own + td_layout_memory_bytes(file->layout);
}

/* ---- box files ----------------------------------------------------------------------------------------- */

static bool append_box(struct td_layout *layout, const struct td_plan_item *box, const struct td_tensor_list *tensors,
                       struct td_error *err)
{
    uint32_t number;
    struct td_selection selection;
    const struct td_tensor *tensor = td_plan_items_find(tensors, box->name, &number);
    if (tensor == NULL)
        return td_error_set(err, TD_NOT_FOUND, "the checkpoint has no such tensor");
    if (tensor->reason != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s", tensor->reason);
    td_selection_all(tensor->rank, tensor->shape, &selection);
    return (box->slice == NULL ||
            td_slice_parse(td_text_of(box->slice), tensor->rank, tensor->shape, &selection, err)) &&
           td_layout_append_selection(layout, TD_RANK_SOURCE_TENSOR + number, tensor, &selection, err);
}

static bool append_boxes(struct td_layout *layout, const struct td_plan_item *boxes, size_t count,
                         const struct td_tensor_list *tensors, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    for (size_t i = 0; i < count; i++)
        if (!append_box(layout, &boxes[i], tensors, &why))
            return td_error_set(err, why.code, "box %zu, tensor \"%.160s\": %s", i, boxes[i].name, why.message);
    return true;
}

bool td_box_file_create(const struct td_plan_item *boxes, size_t count, const struct td_tensor_list *tensors,
                        struct td_budget *budget, struct td_rank_file **out, struct td_error *err)
{
    struct td_layout *layout = td_layout_create(budget, err);
    if (layout == NULL)
        return false;
    if (append_boxes(layout, boxes, count, tensors, err))
        return file_from_layout(layout, budget, out, err);
    td_layout_unref(layout);
    return false;
}
