#include "rank/tensor_sums.h"

#include "core/checked.h"
#include "rank/tensor_source.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ---------------------------------------------------------------------------------------------- */

static void add_number(struct td_digest *digest, uint64_t number)
{
    td_digest_add_content(digest, &number, sizeof number);
}

static void add_numbers(struct td_digest *digest, const uint64_t *numbers, uint32_t count)
{
    add_number(digest, count);
    if (count > 0)
        td_digest_add_content(digest, numbers, count * sizeof *numbers);
}

static void add_file(struct td_digest *digest, const struct td_entry *part)
{
    const struct td_file_id *id = &part->file->source.id;
    add_number(digest, id->device);
    add_number(digest, id->inode);
    add_number(digest, id->size_bytes);
    add_number(digest, (uint64_t)id->mtime_ns);
    add_number(digest, (uint64_t)id->ctime_ns);
}

/* Adds how the bytes are gathered, swapped or decoded. How a packed tensor is decoded does not follow from the numbers
 * here alone but also from the program, so its version is added. */
static void add_access(struct td_digest *digest, const struct td_checkpoint *checkpoint, const struct td_tensor *tensor)
{
    td_digest_add_cstring(digest, TD_VERSION);
    td_digest_add_cstring(digest, tensor->dtype->name);
    add_numbers(digest, tensor->shape, tensor->rank);
    add_numbers(digest, tensor->strides, tensor->strides != NULL ? tensor->rank : 0);
    add_number(digest, tensor->big_endian ? 1 : 0);
    add_number(digest, tensor->coding != NULL ? UINT64_C(1) + tensor->coding->number : 0);
    add_number(digest, tensor->piece_count);
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        const struct td_piece *piece = &tensor->pieces[i];
        add_file(digest, checkpoint->parts[piece->part]);
        add_number(digest, piece->offset);
        add_numbers(digest, piece->starts, tensor->rank);
        add_numbers(digest, piece->sizes, tensor->rank);
    }
}

/* Computes the key of a tensor that can be served. */
static bool make_tensor_key(const struct td_checkpoint *checkpoint, struct td_tensor_ref ref,
                            struct td_virtual_key *key)
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "tensor");
    add_file(digest, checkpoint->parts[ref.part]);
    add_number(digest, ref.tensor->offset);
    add_number(digest, ref.tensor->nbytes);
    if (td_tensor_access(ref.tensor) != TD_ACCESS_DIRECT)
        add_access(digest, checkpoint, ref.tensor);
    return td_digest_finish_binary(digest, key->bytes);
}

/* Returns the number of the tensor if the layout is exactly its bytes; else checkpoint->tensor_count. */
static size_t whole_tensor(const struct td_checkpoint *checkpoint, const struct td_layout *layout)
{
    if (layout->block_count != 1 || layout->blocks[0].rounds != 1 || layout->blocks[0].run_count != 1)
        return checkpoint->tensor_count;
    const struct td_run *run = &layout->runs[layout->blocks[0].first_run];
    if (run->source == TD_RUN_ZEROS || run->count != 1 || run->off != 0)
        return checkpoint->tensor_count;
    const size_t number = run->source - TD_RANK_SOURCE_TENSOR;
    return td_checkpoint_tensor(checkpoint, number).tensor->nbytes == run->len ? number : checkpoint->tensor_count;
}

/* Adds the runs of the layout, with the key of the tensor that each is of. */
static bool add_runs(struct td_digest *digest, const struct td_checkpoint *checkpoint, const struct td_layout *layout)
{
    struct td_virtual_key tensor = {{0}};
    uint32_t source = TD_RUN_ZEROS; /* whose key `tensor` is */
    for (size_t i = 0; i < layout->block_count; i++) {
        const struct td_block *block = &layout->blocks[i];
        add_number(digest, block->rounds);
        add_number(digest, block->run_count);
        for (size_t k = 0; k < block->run_count; k++) {
            const struct td_run *run = &layout->runs[block->first_run + k];
            const uint64_t numbers[] = {
                run->source == TD_RUN_ZEROS, run->off, run->len, run->count, run->stride, run->step};
            add_numbers(digest, numbers, sizeof numbers / sizeof *numbers);
            if (run->source == TD_RUN_ZEROS)
                continue;
            if (run->source != source &&
                !make_tensor_key(checkpoint, td_checkpoint_tensor(checkpoint, run->source - TD_RANK_SOURCE_TENSOR),
                                 &tensor))
                return false;
            source = run->source;
            td_digest_add_content(digest, tensor.bytes, sizeof tensor.bytes);
        }
    }
    return true;
}

/* Computes the key of a result; layout NULL: of a constant. */
static bool make_result_key(const struct td_checkpoint *checkpoint, const struct td_plan_output *output,
                            const struct td_layout *layout, struct td_virtual_key *key)
{
    const size_t number = layout == NULL ? checkpoint->tensor_count : whole_tensor(checkpoint, layout);
    if (number < checkpoint->tensor_count)
        return make_tensor_key(checkpoint, td_checkpoint_tensor(checkpoint, number), key);
    struct td_digest *digest = td_digest_create();
    bool ok = true;
    td_digest_add_cstring(digest, layout == NULL ? "constant" : "result");
    if (layout == NULL)
        td_digest_add_content(digest, &output->constant, sizeof output->constant);
    else
        ok = add_runs(digest, checkpoint, layout);
    return td_digest_finish_binary(digest, key->bytes) && ok;
}

/* ---- the set ------------------------------------------------------------------------------------------- */

void td_tensor_sums_init(struct td_tensor_sums *sums, const struct td_tensor_sums_source *source,
                         struct td_budget *budget)
{
    *sums = (struct td_tensor_sums){.source = *source, .budget = budget};
}

void td_tensor_sums_fini(struct td_tensor_sums *sums)
{
    free(sums->items);
    td_budget_give(sums->budget, sums->capacity * sizeof *sums->items);
    sums->items = NULL;
    sums->count = sums->capacity = 0;
}

/* Makes room for one more. */
static bool make_room(struct td_tensor_sums *sums, struct td_error *err)
{
    enum { FIRST = 16 };
    if (sums->count == TD_TENSOR_SUMS_MAX)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "digests of more than %d tensors are not given at once; page_size and match make a "
                            "manifest shorter",
                            TD_TENSOR_SUMS_MAX);
    if (sums->count < sums->capacity)
        return true;
    const size_t capacity = sums->capacity == 0 ? FIRST : 2 * sums->capacity;
    const size_t bytes = capacity * sizeof *sums->items;
    if (!td_budget_take(sums->budget, bytes))
        return td_budget_refuse(sums->budget, bytes, err);
    struct td_tensor_sum *items = realloc(sums->items, bytes);
    td_budget_give(sums->budget, items == NULL ? bytes : sums->capacity * sizeof *sums->items);
    if (items == NULL)
        return td_error_no_memory(err);
    sums->items = items;
    sums->capacity = capacity;
    return true;
}

bool td_tensor_sums_add(struct td_tensor_sums *sums, size_t number, struct td_error *err)
{
    const struct td_tensor_ref ref = td_checkpoint_tensor(sums->source.checkpoint, number);
    if (!make_room(sums, err))
        return false;
    struct td_tensor_sum *item = &sums->items[sums->count];
    *item = (struct td_tensor_sum){
        .place = number, .nbytes = ref.tensor->nbytes, .has_bytes = td_tensor_access(ref.tensor) != TD_ACCESS_NONE};
    if (item->has_bytes && !make_tensor_key(sums->source.checkpoint, ref, &item->key))
        return td_error_no_memory(err);
    sums->count++;
    return true;
}

bool td_tensor_sums_add_result(struct td_tensor_sums *sums, const struct td_plan_output *output,
                               const struct td_layout *layout, struct td_error *err)
{
    if (!make_room(sums, err))
        return false;
    struct td_tensor_sum *item = &sums->items[sums->count];
    const uint64_t at =
        sums->count == 0 ? sums->source.file->header_bytes : (item - 1)->place + (item - 1)->nbytes; /* in the file */
    *item = (struct td_tensor_sum){.place = at, .nbytes = output->nbytes, .has_bytes = true};
    if (!make_result_key(sums->source.checkpoint, output, layout, &item->key))
        return td_error_no_memory(err);
    sums->count++;
    return true;
}

bool td_tensor_sums_last_equal(const struct td_tensor_sums *a, const struct td_tensor_sums *b)
{
    const struct td_tensor_sum *x = &a->items[a->count - 1];
    const struct td_tensor_sum *y = &b->items[b->count - 1];
    return x->has_bytes && y->has_bytes && memcmp(x->key.bytes, y->key.bytes, sizeof x->key.bytes) == 0;
}

void td_tensor_sums_drop_last(struct td_tensor_sums *sums)
{
    sums->count--;
}

bool td_tensor_sums_find(struct td_tensor_sums *sums, struct td_virtual_digests *digests)
{
    bool all = true;
    for (size_t i = 0; i < sums->count; i++) {
        struct td_tensor_sum *item = &sums->items[i];
        struct td_virtual_digest known;
        if (!item->has_bytes || item->is_known)
            continue;
        item->is_known = td_virtual_digests_find(digests, &item->key, &known);
        if (item->is_known)
            memcpy(item->sum, known.sum, sizeof item->sum);
        all = all && item->is_known;
    }
    return all;
}

bool td_tensor_sums_key(const struct td_tensor_sums *sums, struct td_virtual_key *key, struct td_error *err)
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "tensors");
    for (size_t i = 0; i < sums->count; i++)
        if (sums->items[i].has_bytes)
            td_digest_add_content(digest, sums->items[i].key.bytes, sizeof sums->items[i].key.bytes);
    return td_digest_finish_binary(digest, key->bytes) || td_error_no_memory(err);
}

/* ---- hashing ------------------------------------------------------------------------------------------- */

/* A tensor or result whose digest is not known. */
struct member {
    struct td_virtual_key key;
    uint64_t place, nbytes; /* as in td_tensor_sum */
};

/* The context of a recipe. The hasher holds the snapshot. */
struct members {
    struct td_tensor_sums_source source; /* without its file, which `whole` holds */
    bool of_file;
    struct td_body whole; /* of the rank file; else empty */
    const struct td_cancel *cancel;
    struct td_budget *budget;
    size_t count, next; /* next: the number of members that were begun */
    struct member items[];
};

static size_t bytes_of_members(size_t count)
{
    return sizeof(struct members) + count * sizeof(struct member); /* at most TD_TENSOR_SUMS_MAX */
}

static bool next_member(void *context, struct td_virtual_key *key)
{
    struct members *members = context;
    if (members->next == members->count)
        return false;
    *key = members->items[members->next++].key;
    return true;
}

static bool open_member(void *context, struct td_body *body, struct td_error *err)
{
    const struct members *members = context;
    const struct member *member = &members->items[members->next - 1];
    const struct td_tensor_sums_source *source = &members->source;
    struct td_blob *blob = NULL;
    uint64_t base = 0;
    if (members->of_file)
        return td_body_cut(&members->whole, member->place, member->nbytes, body, err);
    const struct td_tensor_ref ref = td_checkpoint_tensor(source->checkpoint, (size_t)member->place);
    bool ok = td_tensor_open(source->catalog, source->snapshot, source->checkpoint, ref, members->cancel, &blob, &base,
                             err) &&
              td_body_append(body, blob, base, member->nbytes, err);
    td_blob_unref(blob);
    return ok;
}

static void free_members(void *context)
{
    struct members *members = context;
    struct td_budget *budget = members->budget;
    const size_t bytes = bytes_of_members(members->count);
    td_body_fini(&members->whole);
    free(members);
    td_budget_give(budget, bytes);
}

static int compare_places(const void *a, const void *b, void *context)
{
    const struct td_checkpoint *checkpoint = context;
    return td_tensor_compare_places(td_checkpoint_tensor(checkpoint, (size_t)((const struct member *)a)->place),
                                    td_checkpoint_tensor(checkpoint, (size_t)((const struct member *)b)->place));
}

/* Makes the list of the set's tensors whose digests are not known. Sets *bytes to the sum of their sizes. */
static struct members *list_unknown(const struct td_tensor_sums *sums, const struct td_virtual_hasher *hasher,
                                    struct td_budget *budget, uint64_t *bytes, struct td_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < sums->count; i++)
        count += sums->items[i].has_bytes && !sums->items[i].is_known ? 1 : 0;
    if (!td_budget_take(budget, bytes_of_members(count))) {
        (void)td_budget_refuse(budget, bytes_of_members(count), err);
        return NULL;
    }
    struct members *members = malloc(bytes_of_members(count));
    if (members == NULL) {
        td_budget_give(budget, bytes_of_members(count));
        (void)td_error_no_memory(err);
        return NULL;
    }
    *members = (struct members){.source = sums->source,
                                .of_file = sums->source.file != NULL,
                                .cancel = td_virtual_hasher_cancel(hasher),
                                .budget = budget,
                                .count = count};
    members->source.file = NULL; /* `whole` has a reference */
    td_body_init(&members->whole);
    *bytes = 0;
    for (size_t i = 0, to = 0; i < sums->count; i++) {
        const struct td_tensor_sum *item = &sums->items[i];
        if (!item->has_bytes || item->is_known)
            continue;
        members->items[to++] = (struct member){.key = item->key, .place = item->place, .nbytes = item->nbytes};
        if (!td_add_u64(*bytes, item->nbytes, bytes)) /* names may share bytes */
            *bytes = UINT64_MAX;
    }
    if (!members->of_file)
        qsort_r(members->items, count, sizeof *members->items, compare_places,
                (void *)(uintptr_t)sums->source.checkpoint);
    return members;
}

bool td_tensor_sums_begin(const struct td_tensor_sums *sums, const struct td_virtual_key *key,
                          struct td_virtual_hasher *hasher, struct td_budget *budget, uint64_t client,
                          struct td_error *err)
{
    const struct td_tensor_sums_source *source = &sums->source;
    struct td_virtual_file wanted = {.key = *key,
                                     .origin = {.kind = TD_REVISION_FILES},
                                     .owner = td_virtual_owner(source->model->id),
                                     .client = client,
                                     .snapshot = source->snapshot};
    if (td_virtual_hasher_has(hasher, key))
        return true;
    struct members *members = list_unknown(sums, hasher, budget, &wanted.size_bytes, err);
    if (members == NULL)
        return false;
    if (members->of_file && !td_rank_file_append(source->catalog, source->snapshot, source->checkpoint, source->file,
                                                 members->cancel, &members->whole, err)) {
        free_members(members);
        return false;
    }
    wanted.recipe =
        (struct td_virtual_recipe){.context = members, .open = open_member, .next = next_member, .free = free_members};
    return td_virtual_hasher_begin(hasher, &wanted, err);
}
