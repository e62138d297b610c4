#include "rank/patch/patch_part.h"

#include "rank/tensor_source.h"
#include "storage/composed.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    const struct td_patch_tensor *x = *(struct td_patch_tensor *const *)a;
    const struct td_patch_tensor *y = *(struct td_patch_tensor *const *)b;
    return strcmp(x->name, y->name);
}

/* Copies a result of the plan, whose memory ends before the part. */
static bool copy_output(struct td_patch_part *part, const struct td_plan_output *output, uint64_t place)
{
    struct td_patch_tensor *tensor = &part->tensors[part->count];
    uint64_t *shape = td_arena_array(&part->arena, output->rank, sizeof *shape);
    const char *name = td_arena_strndup(&part->arena, td_text_of(output->name));
    if (shape == NULL || name == NULL)
        return false;
    if (output->rank > 0)
        memcpy(shape, output->shape, output->rank * sizeof *shape);
    *tensor = (struct td_patch_tensor){.name = name,
                                       .dtype = output->dtype,
                                       .shape = shape,
                                       .rank = output->rank,
                                       .place = place,
                                       .nbytes = output->nbytes};
    part->by_name[part->count++] = tensor;
    return true;
}

/* Copies the results of the plan. `place`: of the first one in the file. */
static bool copy_plan(struct td_patch_part *part, const struct td_plan *plan, uint64_t place, struct td_error *err)
{
    part->tensors = td_arena_array(&part->arena, plan->output_count, sizeof *part->tensors);
    part->by_name = td_arena_array(&part->arena, plan->output_count, sizeof(struct td_patch_tensor *));
    bool ok = part->tensors != NULL && part->by_name != NULL;
    for (size_t i = 0; ok && i < plan->output_count; i++) {
        ok = copy_output(part, &plan->outputs[i], place);
        place += plan->outputs[i].nbytes;
    }
    if (!ok)
        return td_arena_refuse(&part->arena, "the patch", err);
    part->total_bytes = plan->total_bytes;
    if (part->count > 0)
        qsort(part->by_name, part->count, sizeof *part->by_name, compare_names);
    return true;
}

bool td_patch_part_open(struct td_rank_store *ranks, const struct td_rank_set *set, uint64_t rank,
                        const struct td_cancel *cancel, struct td_patch_part *part, struct td_error *err)
{
    struct td_rank_maker maker;
    struct td_rank_file *file = NULL;
    struct td_plan plan = {0};
    char tag[TD_TAG_BYTES];
    *part = (struct td_patch_part){.count = 0};
    td_arena_init_budget(&part->arena, 0, &ranks->live);
    td_body_init(&part->body);
    td_rank_maker_init(&maker, ranks, set);
    bool ok = td_rank_maker_get(&maker, rank, &file, tag, err) && td_rank_maker_plan(&maker, rank, &plan, err) &&
              copy_plan(part, &plan, file->header_bytes, err);
    td_plan_fini(&plan);
    td_rank_maker_fini(&maker);
    ok = ok && td_rank_file_append(ranks->catalog, set->snapshot, set->checkpoint, file, cancel, &part->body, err);
    td_rank_file_unref(file);
    return ok;
}

void td_patch_part_close(struct td_patch_part *part)
{
    td_body_fini(&part->body);
    td_arena_fini(&part->arena);
    part->count = 0;
}

struct td_patch_tensor *td_patch_part_find(const struct td_patch_part *part, const char *name)
{
    const struct td_patch_tensor wanted = {.name = name};
    const struct td_patch_tensor *key = &wanted;
    struct td_patch_tensor **found =
        part->count == 0 ? NULL : bsearch(&key, part->by_name, part->count, sizeof *part->by_name, compare_names);
    return found == NULL ? NULL : *found;
}

bool td_patch_part_read(const struct td_patch_part *part, const struct td_patch_tensor *tensor, struct td_body *body,
                        struct td_error *err)
{
    return td_body_cut(&part->body, tensor->place, tensor->nbytes, body, err) && td_body_resolve(body, err);
}
