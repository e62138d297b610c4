/* Plan: a file's tag is a hash over everything that it depends on, so it is known before anything is planned, and is
 * the key in the store. td_rank_maker_get() takes a stored file, or waits for a place and until no other maker makes
 * that file (enter_place), then plans, creates the file, and stores it.
 *
 * What is hard: (1) no deadlock: only a maker with a place makes a file, and a maker never waits while it makes one.
 * (2) Memory: the budget counts plans and files before they exist; when it is short, kept files that nobody uses are
 * dropped (drop_file). A failed plan may have freed as much memory as was available in the budget, so malloc then also
 * has to return memory to the system. (3) One change of the tag, not two: while the checkpoint has its former tag,
 * config.json counts with its former one as well. */
#include "rank/rank_store.h"

#include "core/clock.h"
#include "core/waiting.h"
#include "rank/tensor_source.h"
#include "slicing/rank_file.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void *file_ref(void *value)
{
    return td_rank_file_ref(value);
}

static void file_unref(void *value)
{
    td_rank_file_unref(value);
}

static bool file_idle(const void *value)
{
    return !td_rank_file_is_shared(value);
}

static const struct td_lru_class file_class = {.ref = file_ref, .unref = file_unref, .idle = file_idle};

/* Frees the least recently used file that only the store refers to. */
static bool drop_file(void *context)
{
    struct td_rank_store *store = context;
    return td_lru_drop_idle(&store->files);
}

bool td_rank_store_init(struct td_rank_store *store, struct td_catalog *catalog)
{
    *store = (struct td_rank_store){.catalog = catalog, .wait_ns = TD_RANK_WAIT_NS};
    td_budget_init(&store->live, TD_RANK_LIVE_BYTES, "rank files and slices");
    store->live.make_room = drop_file;
    store->live.context = store;
    if (!td_lru_init(&store->files, &file_class, TD_RANK_CACHE_BYTES))
        return false;
    if (pthread_mutex_init(&store->lock, NULL) == 0) {
        if (td_clock_condition_init(&store->changed))
            return true;
        (void)pthread_mutex_destroy(&store->lock);
    }
    td_lru_fini(&store->files);
    return false;
}

void td_rank_store_fini(struct td_rank_store *store)
{
    td_lru_fini(&store->files);
    (void)pthread_cond_destroy(&store->changed);
    (void)pthread_mutex_destroy(&store->lock);
}

/* Raised when a change makes other files of the same registered plan, as TD_ENGINE_REVISION is for engines. */
enum { PLAN_REVISION = 1 };

/* Computes a file's tag; `former`: the one before the files were hashed. */
static bool make_tag(const struct td_rank_set *set, uint64_t rank, bool former, char tag[TD_TAG_BYTES])
{
    const struct td_rank_name *name = &set->name;
    const struct td_checkpoint *checkpoint = set->checkpoint;
    const struct td_entry *config = name->by_config ? set->model->config : NULL;
    uint64_t numbers[] = {name->tp_size, rank, name->by_engine ? TD_ENGINE_REVISION : PLAN_REVISION};
    struct td_text engine = td_text_of(name->engine.len > 0 ? td_engine_label(name->engine) : "");
    struct td_digest *digest = td_digest_create();
    /* config.json is hashed long before the checkpoint: the tag shall change once, not twice */
    former = former || strcmp(checkpoint->tag, checkpoint->former_tag) == 0;
    td_digest_add_cstring(digest, "shard");
    td_digest_add_cstring(digest, former ? checkpoint->former_tag : checkpoint->tag);
    td_digest_add_cstring(digest, config == NULL ? ""
                                  : former       ? config->file->identity_tag
                                                 : td_file_tag(config->file));
    td_digest_add(digest, engine.p, engine.len);
    td_digest_add(digest, name->id.p, name->id.len);
    if (name->stands_for.len > 0)
        td_digest_add(digest, name->stands_for.p, name->stands_for.len);
    td_digest_add(digest, numbers, sizeof numbers);
    return td_digest_finish(digest, tag);
}

bool td_rank_store_tag(const struct td_rank_set *set, uint64_t rank, char tag[TD_TAG_BYTES], struct td_error *err)
{
    return make_tag(set, rank, false, tag) || td_error_no_memory(err);
}

bool td_rank_store_former_tag(const struct td_rank_set *set, uint64_t rank, char tag[TD_TAG_BYTES],
                              struct td_error *err)
{
    return make_tag(set, rank, true, tag) || td_error_no_memory(err);
}

/* ---- makers -------------------------------------------------------------------------------------------- */

/* A file that is being made. Its maker's stack owns it. */
struct td_rank_making {
    struct td_rank_making *next;
    const char *tag;
};

static bool is_being_made(const struct td_rank_store *store, const char *tag)
{
    for (const struct td_rank_making *making = store->making; making != NULL; making = making->next)
        if (strcmp(making->tag, tag) == 0)
            return true;
    return false;
}

/* Waits until the file exists (*out), or until this maker has a place and no other maker makes the file. In the second
 * case lists the file as its own in *mine. With tag NULL it waits for a place alone. Only a maker with a place makes
 * files, so a maker never waits for another one's place. */
static bool enter_place(struct td_rank_maker *maker, const char *tag, struct td_rank_making *mine,
                        struct td_rank_file **out, struct td_error *err)
{
    struct td_rank_store *store = maker->store;
    unsigned places = TD_RANK_MAKERS + (maker->set->name.is_boxes ? TD_RANK_BOX_PLACES : 0);
    if (!td_may_wait(err))
        return false;
    struct timespec until = td_clock_timespec(td_clock_ns() + store->wait_ns);
    bool in_time = true;
    pthread_mutex_lock(&store->lock);
    while (in_time && (tag == NULL || (*out = td_lru_get(&store->files, tag)) == NULL) &&
           ((!maker->has_place && store->makers >= places) || (tag != NULL && is_being_made(store, tag))))
        in_time = pthread_cond_timedwait(&store->changed, &store->lock, &until) != ETIMEDOUT;
    if (in_time && (tag == NULL || *out == NULL)) {
        store->makers += maker->has_place ? 0 : 1;
        maker->has_place = true;
        if (tag != NULL) {
            *mine = (struct td_rank_making){.next = store->making, .tag = tag};
            store->making = mine;
        }
    }
    pthread_mutex_unlock(&store->lock);
    return in_time ||
           td_error_set(err, TD_RESOURCE_EXHAUSTED, "too many rank files are being planned at once; try again later");
}

static void leave_place(struct td_rank_store *store, const struct td_rank_making *mine)
{
    pthread_mutex_lock(&store->lock);
    struct td_rank_making **link = &store->making;
    while (*link != mine)
        link = &(*link)->next;
    *link = mine->next;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

void td_rank_store_trim(size_t planned_bytes)
{
    if (planned_bytes >= TD_RANK_TRIM_BYTES)
        (void)malloc_trim(0);
}

void td_rank_maker_init(struct td_rank_maker *maker, struct td_rank_store *store, const struct td_rank_set *set)
{
    *maker = (struct td_rank_maker){.store = store, .set = set};
}

void td_rank_maker_fini(struct td_rank_maker *maker)
{
    struct td_rank_store *store = maker->store;
    size_t matched_bytes = maker->basis.match.arena.used_bytes;
    td_plan_basis_fini(&maker->basis);
    td_plan_spec_fini(&maker->spec);
    if (!maker->has_place)
        return;
    td_rank_store_trim(matched_bytes + maker->planned_bytes);
    pthread_mutex_lock(&store->lock);
    store->makers--;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

static const struct td_plan_spec *spec_of(const struct td_rank_maker *maker)
{
    return maker->set->spec != NULL ? maker->set->spec : &maker->spec;
}

/* Reads the specification, and config.json when the engine needs it, and matches the names; once for each maker. */
static bool prepare_maker(struct td_rank_maker *maker, struct td_error *err)
{
    const struct td_rank_set *set = maker->set;
    const struct td_text *engine = &set->name.engine;
    struct td_tensor_list tensors = td_checkpoint_tensors(set->checkpoint);
    char *config = NULL;
    size_t config_len = 0;
    if (maker->has_basis)
        return true;
    td_plan_spec_fini(&maker->spec); /* from an attempt that failed */
    td_plan_basis_fini(&maker->basis);
    if (set->spec == NULL && !(engine->len > 0 ? td_plan_spec_init_engine(&maker->spec, *engine, set->name.tp_size, err)
                                               : td_plan_spec_parse(&maker->spec, set->plan, &maker->store->live, err)))
        return false;
    maker->has_basis =
        (!set->name.by_config || td_model_config_text(td_catalog_maps(maker->store->catalog), set->snapshot, set->model,
                                                      &config, &config_len, err)) &&
        td_plan_spec_match(spec_of(maker), td_text_n(config, config_len), &tensors, &maker->store->live, &maker->basis,
                           err);
    free(config);
    return maker->has_basis;
}

/* Counts a failed plan as a large one: it is unknown how much memory it took and freed before it failed. */
static void note_failure(struct td_rank_maker *maker)
{
    if (maker->planned_bytes < TD_RANK_TRIM_BYTES)
        maker->planned_bytes = TD_RANK_TRIM_BYTES;
}

/* Plans a rank's file; the maker has a place. */
static bool plan_rank(struct td_rank_maker *maker, uint64_t rank, struct td_plan *out, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(maker->set->checkpoint);
    *out = (struct td_plan){0};
    if (!prepare_maker(maker, err) || !td_plan_spec_rank(spec_of(maker), &maker->basis, &tensors, rank, out, err)) {
        note_failure(maker);
        return false;
    }
    if (out->arena.used_bytes > maker->planned_bytes)
        maker->planned_bytes = out->arena.used_bytes;
    return true;
}

bool td_rank_maker_plan(struct td_rank_maker *maker, uint64_t rank, struct td_plan *out, struct td_error *err)
{
    *out = (struct td_plan){0};
    if (!enter_place(maker, NULL, NULL, NULL, err))
        return false;
    uint64_t since_ns = td_clock_ns();
    bool ok = plan_rank(maker, rank, out, err);
    maker->planning_ns += td_clock_ns() - since_ns;
    return ok;
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* Creates a rank's file from its plan, within the budget. */
static bool create_file(struct td_rank_maker *maker, const struct td_plan *plan, struct td_rank_file **out,
                        struct td_error *err)
{
    char id[TD_TAG_BYTES] = "";
    const struct td_rank_set *set = maker->set;
    struct td_tensor_list tensors = td_checkpoint_tensors(set->checkpoint);
    const struct td_text *plan_id = &set->name.id;
    memcpy(id, plan_id->p == NULL ? "" : plan_id->p, plan_id->len);
    const struct td_rank_label label = {
        .model = set->model->id, .engine = td_engine_label(set->name.engine), .plan_id = id};
    return td_rank_file_create_labelled(plan, &tensors, &label, &maker->store->live, out, err);
}

static bool make_rank_file(struct td_rank_maker *maker, uint64_t rank, struct td_rank_file **out, struct td_error *err)
{
    struct td_plan plan;
    bool ok = plan_rank(maker, rank, &plan, err) && create_file(maker, &plan, out, err);
    td_plan_fini(&plan);
    return ok;
}

/* Makes the file of a plan of boxes, which needs no plan of its own. */
static bool make_box_file(struct td_rank_maker *maker, struct td_rank_file **out, struct td_error *err)
{
    struct td_tensor_list tensors = td_checkpoint_tensors(maker->set->checkpoint);
    if (!prepare_maker(maker, err))
        return false;
    const struct td_plan_items *boxes = spec_of(maker)->boxes;
    maker->planned_bytes = spec_of(maker)->arena.used_bytes;
    return td_box_file_create(boxes->items, boxes->count, &tensors, &maker->store->live, out, err);
}

static bool make_file(struct td_rank_maker *maker, uint64_t rank, const char *tag, struct td_rank_file **out,
                      struct td_error *err)
{
    bool ok = maker->set->name.is_boxes ? make_box_file(maker, out, err) : make_rank_file(maker, rank, out, err);
    if (!ok)
        note_failure(maker);
    if (ok)
        (void)td_lru_put(&maker->store->files, tag, *out, td_rank_file_memory_bytes(*out));
    return ok;
}

bool td_rank_maker_get(struct td_rank_maker *maker, uint64_t rank, struct td_rank_file **out, char tag[TD_TAG_BYTES],
                       struct td_error *err)
{
    struct td_rank_making mine;
    *out = NULL;
    if (!td_rank_store_tag(maker->set, rank, tag, err))
        return false;
    *out = td_lru_get(&maker->store->files, tag);
    if (*out == NULL && !enter_place(maker, tag, &mine, out, err))
        return false;
    if (*out != NULL)
        return true;
    uint64_t since_ns = td_clock_ns();
    bool ok = make_file(maker, rank, tag, out, err);
    maker->planning_ns += td_clock_ns() - since_ns;
    leave_place(maker->store, &mine);
    return ok;
}

bool td_rank_store_get(struct td_rank_store *store, const struct td_rank_set *set, uint64_t rank,
                       struct td_rank_file **out, char tag[TD_TAG_BYTES], struct td_error *err)
{
    struct td_rank_maker maker;
    td_rank_maker_init(&maker, store, set);
    bool ok = td_rank_maker_get(&maker, rank, out, tag, err);
    td_rank_maker_fini(&maker);
    return ok;
}

/* ---- registered plans ---------------------------------------------------------------------------------- */

void td_stored_plan_unref(struct td_stored_plan *plan)
{
    if (plan != NULL && atomic_fetch_sub(&plan->refs, 1) == 1)
        free(plan);
}

const char *td_stored_plan_manifest(const struct td_stored_plan *plan)
{
    return plan->manifest[0] != '\0' ? plan->manifest : NULL;
}

void td_stored_plan_describe(const struct td_stored_plan *plan, struct td_rank_set *set)
{
    set->name.tp_size = plan->tp_size;
    set->name.by_engine = plan->by_engine;
    set->name.by_config = plan->by_config;
    set->name.stands_for = plan->stands_for;
    set->name.is_boxes = plan->is_boxes;
    set->plan = td_text_n(plan->text, plan->len);
}

static void *ref_plan(void *value)
{
    struct td_stored_plan *plan = value;
    atomic_fetch_add(&plan->refs, 1);
    return plan;
}

static void unref_plan(void *value)
{
    td_stored_plan_unref(value);
}

const struct td_lru_class td_plan_store_class = {.ref = ref_plan, .unref = unref_plan};
