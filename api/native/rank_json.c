#include "api/native/rank_json.h"

#include "core/json.h"
#include "rank/tensor_source.h"
#include "slicing/runs.h"

#include <string.h>

static void write_number(struct td_buffer *out, const char *key, uint64_t value)
{
    td_buffer_puts(out, key);
    td_buffer_u64(out, value);
}

static void write_shape(struct td_buffer *out, const struct td_plan_output *output)
{
    td_buffer_puts(out, ",\"shape\":[");
    for (uint32_t i = 0; i < output->rank; i++)
        write_number(out, i > 0 ? "," : "", output->shape[i]);
    td_buffer_putc(out, ']');
}

/* Name, dtype, shape and nbytes, without the closing brace. */
static void write_output(struct td_buffer *out, const struct td_plan_output *output)
{
    td_buffer_puts(out, "{\"name\":");
    td_json_write_cstring(out, output->name);
    td_buffer_puts(out, ",\"dtype\":\"");
    td_buffer_puts(out, output->dtype->name);
    td_buffer_putc(out, '"');
    write_shape(out, output);
    write_number(out, ",\"nbytes\":", output->nbytes);
}

static void write_dropped(struct td_buffer *out, const struct td_plan *plan)
{
    td_buffer_puts(out, ",\"dropped\":[");
    for (size_t i = 0; i < plan->dropped_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_cstring(out, plan->dropped[i]);
    }
    td_buffer_putc(out, ']');
}

void td_rank_json_write_outputs(const struct td_plan *plan, struct td_buffer *out)
{
    td_buffer_puts(out, "\"outputs\":[");
    for (size_t i = 0; i < plan->output_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        write_output(out, &plan->outputs[i]);
        td_buffer_putc(out, '}');
    }
    td_buffer_putc(out, ']');
    write_dropped(out, plan);
}

/* Where a run begins: in a file, or, where a tensor does not lie in one row by row, in its bytes in logical order. */
static void write_place(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                        struct td_buffer *out)
{
    struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, run->source - TD_RANK_SOURCE_TENSOR);
    bool in_file = td_tensor_access(ref.tensor) == TD_ACCESS_DIRECT;
    td_buffer_puts(out, in_file ? "{\"file\":" : "{\"tensor\":");
    if (in_file)
        td_json_write_cstring(out, td_model_relative(call->model, checkpoint->parts[ref.part]));
    else
        td_json_write_string(out, td_tensor_name(ref.tensor));
    write_number(out, ",\"offset\":", run->off + (in_file ? ref.tensor->offset : 0));
    write_number(out, ",\"length\":", run->len);
}

/* A run of a block that recurs `rounds` times by itself; or, when the runs take turns, once in each, `step` further. */
static void write_run(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                      uint64_t rounds, bool turns, struct td_buffer *out)
{
    if (run->source == TD_RUN_ZEROS) {
        write_number(out, "{\"zeros\":", run->len * run->count * rounds);
        td_buffer_putc(out, '}');
        return;
    }
    bool nested = run->count > 1 && rounds > 1;
    uint64_t count = run->count > 1 ? run->count : rounds;
    write_place(call, checkpoint, run, out);
    if (count > 1) {
        write_number(out, ",\"count\":", count);
        write_number(out, ",\"stride\":", run->count > 1 ? run->stride : run->step);
    }
    if (nested) {
        write_number(out, ",\"count2\":", rounds);
        write_number(out, ",\"stride2\":", run->step);
    }
    if (turns)
        write_number(out, ",\"step\":", run->step);
    td_buffer_putc(out, '}');
}

static void write_block(const struct td_call *call, const struct td_checkpoint *checkpoint,
                        const struct td_layout *layout, const struct td_block *block, struct td_buffer *out)
{
    const struct td_run *runs = &layout->runs[block->first_run];
    bool turns = block->run_count > 1 && block->rounds > 1;
    if (turns) {
        write_number(out, "{\"repeat\":", block->rounds);
        td_buffer_puts(out, ",\"extents\":[");
    }
    for (size_t i = 0; i < block->run_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        write_run(call, checkpoint, &runs[i], turns ? 1 : block->rounds, turns, out);
    }
    if (turns)
        td_buffer_puts(out, "]}");
}

static bool write_extents(const struct td_call *call, const struct td_checkpoint *checkpoint,
                          const struct td_plan *plan, const struct td_plan_output *output, struct td_buffer *out,
                          struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_layout *layout = td_layout_create(out->budget, err);
    if (layout == NULL)
        return false;
    bool ok = td_layout_append_output(layout, TD_RANK_SOURCE_TENSOR, plan, output, &tensors, err);
    td_buffer_puts(out, ",\"extents\":[");
    for (size_t i = 0; ok && i < layout->block_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        write_block(call, checkpoint, layout, &layout->blocks[i], out);
    }
    td_buffer_puts(out, "]}");
    td_layout_unref(layout);
    return ok;
}

bool td_rank_json_write(const struct td_call *call, const struct td_checkpoint *checkpoint,
                        const struct td_rank_file *file, const struct td_plan *plan, const char *engine,
                        const char *tag, struct td_buffer *out, struct td_error *err)
{
    bool ok = true;
    td_buffer_puts(out, "{\"model\":");
    td_json_write_cstring(out, call->model->id);
    td_buffer_puts(out, ",\"checkpoint\":");
    td_json_write_cstring(out, checkpoint->id);
    td_buffer_puts(out, ",\"engine\":");
    td_json_write_cstring(out, engine);
    write_number(out, ",\"tp_size\":", plan->tp_size);
    write_number(out, ",\"tp_rank\":", plan->tp_rank);
    write_number(out, ",\"nbytes\":", file->nbytes);
    write_number(out, ",\"header_bytes\":", file->header->len_bytes);
    td_buffer_puts(out, ",\"etag\":\"");
    td_buffer_puts(out, tag);
    td_buffer_puts(out, "\",\"tensors\":[");
    for (size_t i = 0; ok && i < plan->output_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        write_output(out, &plan->outputs[i]);
        ok = write_extents(call, checkpoint, plan, &plan->outputs[i], out, err);
    }
    td_buffer_putc(out, ']');
    write_dropped(out, plan);
    td_buffer_puts(out, "}\n");
    return ok && (!out->failed || td_buffer_refuse(out, err));
}
