/* Plans all ranks of a model and prints their plans, for tests/interop/test_plans.py to assemble the bytes and compare.
 *
 * plan_dump DIR TP ENGINE | plan_dump DIR TP @RULES.json: reads DIR/model.safetensors and, if it is there,
 * DIR/config.json. Standard output: {"tensors":[{"name","dtype","shape","offset"}],"ranks":[PLAN...]}, the tensors in
 * the order in which plans number them; PLAN is {"outputs":[...],"dropped":[...],"total_bytes":N} or
 * {"error":{"code":N,"message":"..."}}. */
#include "core/buffer.h"
#include "core/input.h"
#include "core/json/json.h"
#include "parser/safetensors.h"
#include "slicing/engine/engine.h"
#include "slicing/rule_json.h"
#include "tests/kit/plan_from_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct td_tensor *get_tensor(const void *context, size_t i)
{
    const struct td_manifest *manifest = context;
    return &manifest->tensors[i];
}

/* Returns the content of a whole file, or NULL. */
static char *load(const char *dir, const char *name, size_t *len)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s%s%s", dir, dir[0] == '\0' ? "" : "/", name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    char *bytes = NULL;
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = malloc((size_t)size + 1);
    *len = bytes != NULL ? fread(bytes, 1, (size_t)size, file) : 0;
    (void)fclose(file);
    return bytes;
}

static void put_shape(struct td_buffer *out, uint32_t rank, const uint64_t *shape)
{
    td_buffer_puts(out, "\"shape\":[");
    for (uint32_t d = 0; d < rank; d++)
        td_buffer_printf(out, "%s%" PRIu64, d > 0 ? "," : "", shape[d]);
    td_buffer_putc(out, ']');
}

static void put_error(struct td_buffer *out, const struct td_error *err)
{
    td_buffer_printf(out, "{\"error\":{\"code\":%d,\"message\":", (int)err->code);
    td_json_write_cstring(out, err->message);
    td_buffer_puts(out, "}}");
}

static void put_tensors(struct td_buffer *out, const struct td_manifest *manifest)
{
    td_buffer_puts(out, "{\"tensors\":[");
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct td_tensor *tensor = &manifest->tensors[i];
        td_buffer_puts(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        td_json_write_cstring(out, tensor->name);
        td_buffer_printf(out, ",\"dtype\":\"%s\",\"offset\":%" PRIu64 ",", tensor->dtype->name, tensor->offset);
        put_shape(out, tensor->rank, tensor->shape);
        td_buffer_putc(out, '}');
    }
    td_buffer_putc(out, ']');
}

static void put_output(struct td_buffer *out, const struct td_plan *plan, const struct td_plan_output *output)
{
    td_buffer_puts(out, "{\"name\":");
    td_json_write_cstring(out, output->name);
    td_buffer_printf(out, ",\"dtype\":\"%s\",\"nbytes\":%" PRIu64 ",\"axis\":%" PRIu32 ",\"cells\":%" PRIu64 ",",
                     output->dtype->name, output->nbytes, output->axis, output->cell_count);
    put_shape(out, output->rank, output->shape);
    if (output->is_constant)
        td_buffer_printf(out, ",\"constant\":%.9g", (double)output->constant);
    td_buffer_puts(out, ",\"pieces\":[");
    for (size_t i = 0; i < output->piece_count; i++) {
        const struct td_plan_piece *piece = &plan->pieces[output->first_piece + i];
        td_buffer_puts(out, i > 0 ? ",{" : "{");
        if (piece->tensor != TD_PIECE_ZEROS)
            td_buffer_printf(out, "\"tensor\":%" PRIu32 ",", piece->tensor);
        td_buffer_printf(out,
                         "\"start\":%" PRIu64 ",\"size\":%" PRIu64 ",\"count\":%" PRIu64 ",\"stride\":%" PRIu64 "}",
                         piece->start, piece->size, piece->count, piece->stride);
    }
    td_buffer_puts(out, "]}");
}

static void put_plan(struct td_buffer *out, const struct td_plan *plan)
{
    td_buffer_puts(out, "{\"outputs\":[");
    for (size_t i = 0; i < plan->output_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        put_output(out, plan, &plan->outputs[i]);
    }
    td_buffer_puts(out, "],\"dropped\":[");
    for (size_t i = 0; i < plan->dropped_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_cstring(out, plan->dropped[i]);
    }
    td_buffer_printf(out, "],\"total_bytes\":%" PRIu64 "}", plan->total_bytes);
}

/* Finds the rules of an engine, or reads those of a file. */
static bool find_rules(const char *dir, const char *engine, const struct td_tensor_list *tensors, uint64_t tp,
                       struct td_arena *arena, struct td_rule_list *rules, struct td_error *err)
{
    size_t len = 0;
    bool ok;
    char *text = engine[0] == '@' ? load("", engine + 1, &len) : load(dir, "config.json", &len);
    if (engine[0] == '@') {
        struct td_json_document document;
        td_json_document_read(&document, td_text_n(text != NULL ? text : "", len), arena, err);
        ok = td_json_document_end(&document) && td_rules_read(&document, document.root, arena, rules, err);
    } else {
        ok = td_engine_rules(engine, td_text_n(text, len), tensors, tp, arena, rules, err);
    }
    free(text);
    return ok;
}

static void put_rank(struct td_buffer *out, const char *dir, const char *engine, const struct td_tensor_list *tensors,
                     uint64_t tp, uint64_t rank)
{
    struct td_arena arena;
    struct td_rule_list rules;
    struct td_plan plan;
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&arena, 0);
    if (!find_rules(dir, engine, tensors, tp, &arena, &rules, &err) ||
        !plan_from_rules(&rules, tensors, tp, rank, &plan, &err)) {
        put_error(out, &err);
    } else {
        td_arena_fini(&arena); /* plans do not need their rules */
        put_plan(out, &plan);
        td_plan_fini(&plan);
    }
    td_arena_fini(&arena);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t len = 0;
    char *bytes = load(argv[1], "model.safetensors", &len);
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    td_buffer_init(&out);
    td_manifest_init(&manifest, 0);
    struct td_input input = td_input_memory(bytes, len);
    bool ok = bytes != NULL && td_format_safetensors.parse(&input, &limits, &manifest, &err);
    if (ok) {
        struct td_tensor_list tensors = {.count = manifest.tensor_count, .get = get_tensor, .context = &manifest};
        uint64_t tp = strtoull(argv[2], NULL, 10);
        put_tensors(&out, &manifest);
        td_buffer_puts(&out, ",\"ranks\":[");
        for (uint64_t rank = 0; rank < (tp == 0 ? 1 : tp); rank++) {
            if (rank > 0)
                td_buffer_putc(&out, ',');
            put_rank(&out, argv[1], argv[3], &tensors, tp, rank);
        }
        td_buffer_puts(&out, "]}\n");
        ok = !out.failed && fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    } else {
        (void)fprintf(stderr, "%s\n", err.message);
    }
    td_buffer_fini(&out);
    td_manifest_fini(&manifest);
    free(bytes);
    return ok ? 0 : 1;
}
