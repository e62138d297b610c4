#include "api/native/rank_json.h"

#include "core/json.h"
#include "rank/tensor_source.h"
#include "slicing/runs.h"

/* Adds name, dtype, shape and nbytes. */
static void add_output(struct td_json_builder *json, const struct td_plan_output *output)
{
    td_json_add_string(json, "name", output->name);
    td_json_add_string(json, "dtype", output->dtype->name);
    td_json_begin_array(json, "shape");
    for (uint32_t i = 0; i < output->rank; i++)
        td_json_add_u64(json, NULL, output->shape[i]);
    td_json_end(json);
    td_json_add_u64(json, "nbytes", output->nbytes);
}

static void add_dropped(struct td_json_builder *json, const struct td_plan *plan)
{
    td_json_begin_array(json, "dropped");
    for (size_t i = 0; i < plan->dropped_count; i++) {
        td_json_add_string(json, NULL, plan->dropped[i]);
        td_json_flush(json);
    }
    td_json_end(json);
}

void td_rank_json_add_outputs(const struct td_plan *plan, struct td_json_builder *json)
{
    td_json_begin_array(json, "outputs");
    for (size_t i = 0; i < plan->output_count; i++) {
        td_json_begin_object(json, NULL);
        add_output(json, &plan->outputs[i]);
        td_json_end(json);
        td_json_flush(json);
    }
    td_json_end(json);
    add_dropped(json, plan);
}

/* Adds where a run begins: in a file, or, when the tensor's bytes are not one run of a file, in those bytes in
 * row-major order. */
static void add_place(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                      struct td_json_builder *json)
{
    struct td_tensor_ref ref = td_checkpoint_tensor(checkpoint, run->source - TD_RANK_SOURCE_TENSOR);
    bool in_file = td_tensor_access(ref.tensor) == TD_ACCESS_DIRECT;
    if (in_file)
        td_json_add_string(json, "file", td_model_relative(call->model, checkpoint->parts[ref.part]));
    else
        td_json_add_text(json, "tensor", td_tensor_name(ref.tensor));
    td_json_add_u64(json, "offset", run->off + (in_file ? ref.tensor->offset : 0));
    td_json_add_u64(json, "length", run->len);
}

/* Adds a run of a block. The run recurs `rounds` times by itself, or, when the runs of the block take turns, once in
 * each round, `step` bytes further. */
static void add_run(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_run *run,
                    uint64_t rounds, bool turns, struct td_json_builder *json)
{
    bool nested = run->count > 1 && rounds > 1;
    uint64_t count = run->count > 1 ? run->count : rounds;
    td_json_begin_object(json, NULL);
    if (run->source == TD_RUN_ZEROS) {
        td_json_add_u64(json, "zeros", run->len * run->count * rounds);
        td_json_end(json);
        return;
    }
    add_place(call, checkpoint, run, json);
    if (count > 1) {
        td_json_add_u64(json, "count", count);
        td_json_add_u64(json, "stride", run->count > 1 ? run->stride : run->step);
    }
    if (nested) {
        td_json_add_u64(json, "count2", rounds);
        td_json_add_u64(json, "stride2", run->step);
    }
    if (turns)
        td_json_add_u64(json, "step", run->step);
    td_json_end(json);
}

static void add_block(const struct td_call *call, const struct td_checkpoint *checkpoint,
                      const struct td_layout *layout, const struct td_block *block, struct td_json_builder *json)
{
    const struct td_run *runs = &layout->runs[block->first_run];
    bool turns = block->run_count > 1 && block->rounds > 1;
    if (turns) {
        td_json_begin_object(json, NULL);
        td_json_add_u64(json, "repeat", block->rounds);
        td_json_begin_array(json, "extents");
    }
    for (size_t i = 0; i < block->run_count; i++) {
        add_run(call, checkpoint, &runs[i], turns ? 1 : block->rounds, turns, json);
        td_json_flush(json);
    }
    if (turns) {
        td_json_end(json);
        td_json_end(json);
    }
}

/* Adds the only extent of a constant: its value, since no file holds its bytes. */
static void add_constant(const struct td_plan_output *output, struct td_json_builder *json)
{
    struct td_buffer value;
    td_buffer_init(&value);
    td_json_write_real(&value, (double)output->constant, true);
    const char *text = td_buffer_terminate(&value);
    td_json_begin_array(json, "extents");
    td_json_begin_object(json, NULL);
    if (text != NULL)
        td_json_add_raw(json, "constant", td_text_of(text));
    td_json_end(json);
    td_json_end(json);
    json->out->failed = json->out->failed || text == NULL;
    td_buffer_fini(&value);
}

static bool add_extents(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct td_plan *plan,
                        const struct td_plan_output *output, struct td_json_builder *json, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    if (output->is_constant) {
        add_constant(output, json);
        return true;
    }
    struct td_layout *layout = td_layout_create(json->out->budget, err);
    if (layout == NULL)
        return false;
    bool ok = td_layout_append_output(layout, TD_RANK_SOURCE_TENSOR, plan, output, &tensors, err);
    td_json_begin_array(json, "extents");
    for (size_t i = 0; ok && i < layout->block_count; i++)
        add_block(call, checkpoint, layout, &layout->blocks[i], json);
    td_json_end(json);
    td_layout_unref(layout);
    return ok;
}

bool td_rank_json_write(const struct td_call *call, const struct td_checkpoint *checkpoint,
                        const struct td_rank_file *file, const struct td_plan *plan, struct td_text engine,
                        const char *tag, struct td_buffer *out, struct td_error *err)
{
    struct td_json_builder json;
    bool ok = true;
    td_json_builder_init(&json, out);
    td_json_begin_object(&json, NULL);
    td_json_add_string(&json, "model", call->model->id);
    td_json_add_string(&json, "checkpoint", checkpoint->id);
    td_json_add_text(&json, "engine", engine);
    td_json_add_u64(&json, "tp_size", plan->tp_size);
    td_json_add_u64(&json, "tp_rank", plan->tp_rank);
    td_json_add_u64(&json, "nbytes", file->nbytes);
    td_json_add_u64(&json, "header_bytes", file->header_bytes);
    td_json_add_string(&json, "etag", tag);
    td_json_begin_array(&json, "tensors");
    for (size_t i = 0; ok && i < plan->output_count; i++) {
        td_json_begin_object(&json, NULL);
        add_output(&json, &plan->outputs[i]);
        ok = add_extents(call, checkpoint, plan, &plan->outputs[i], &json, err);
        td_json_end(&json);
        td_json_flush(&json);
    }
    td_json_end(&json);
    add_dropped(&json, plan);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(out, '\n');
    return ok && (!out->failed || td_buffer_refuse(out, err));
}
