#include "rank/rank_store.h"

#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

#include <pthread.h>

enum { RANKS = 8, THREADS = 8 };

/* A model of two tensors, and a store of its own for its rank files. */
struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
    struct td_rank_store store;
    struct td_rank_set want;
};

static void open_place(struct place *place, const char *engine)
{
    static const struct tree_tensor tensors[] = {{"w", "F32", "[16,2]", 128}, {"b", "F32", "[2]", 8}};
    tree_open(&place->tree);
    (void)tree_tensors(&place->tree, "m/model.safetensors", tensors, COUNT_OF(tensors), NULL, 0);
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
    assert_true(td_rank_store_init(&place->store, place->loop.catalog));
    place->want = (struct td_rank_set){.snapshot = place->snapshot, .model = &place->snapshot->models[0]};
    place->want.checkpoint = &place->want.model->checkpoints[0];
    assert_true(td_rank_name_engine(td_text_of(engine), RANKS, &place->want.name));
}

/* Closes the place. Checks that no maker is left and that no memory is held. */
static void close_place(struct place *place)
{
    assert_true(place->store.makers == 0 && place->store.making == NULL);
    while (td_lru_drop_idle(&place->store.files))
        ;
    assert_true(place->store.files.count == 0 && td_budget_used(&place->store.live) == 0);
    td_rank_store_fini(&place->store);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

static void open_fsdp(struct place *place)
{
    open_place(place, "fsdp");
}

FIXTURE(fsdp, struct place, open_fsdp, close_place)

static struct td_rank_file *get(struct place *place, uint64_t rank)
{
    struct td_rank_file *file = NULL;
    char tag[TD_TAG_BYTES];
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_rank_store_get(&place->store, &place->want, rank, &file, tag, &err);
    CHECK(ok && file != NULL, "rank %u: %s", (unsigned)rank, err.message);
    return file;
}

static void fails(struct place *place, uint64_t rank, enum td_code code, const char *part)
{
    struct td_rank_file *file = NULL;
    char tag[TD_TAG_BYTES];
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_rank_store_get(&place->store, &place->want, rank, &file, tag, &err));
    assert_null(file);
    CHECK(err.code == code && strstr(err.message, part) != NULL, "%d %s", (int)err.code, err.message);
}

static void a_file_is_made_once_and_kept(void **state)
{
    struct place *place = *state;
    struct td_rank_file *first = get(place, 0);
    struct td_rank_file *again = get(place, 0);
    struct td_rank_file *other = get(place, 1);
    assert_true(first == again && first != other);
    assert_int_equal(td_budget_used(&place->store.live),
                     td_rank_file_memory_bytes(first) + td_rank_file_memory_bytes(other));
    td_rank_file_unref(first);
    td_rank_file_unref(again);
    td_rank_file_unref(other);
    assert_int_equal(place->store.files.count, 2);
}

/* A tag depends on the rank, the number of ranks and the engine. The store computes a tag without making the file. */
static void tags_tell_files_apart(void **state)
{
    struct place *place = *state;
    char tags[4][TD_TAG_BYTES];
    char made[TD_TAG_BYTES];
    struct td_rank_file *file;
    struct td_rank_set want = place->want;
    assert_true(td_rank_store_tag(&want, 0, tags[0], NULL));
    assert_true(td_rank_store_tag(&want, 1, tags[1], NULL));
    want.name.tp_size = RANKS / 2;
    assert_true(td_rank_store_tag(&want, 0, tags[2], NULL));
    assert_true(td_rank_name_engine(td_text_of("none"), RANKS, &want.name));
    assert_true(td_rank_store_tag(&want, 0, tags[3], NULL));
    for (size_t i = 0; i < COUNT_OF(tags); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(tags[i], tags[k]);
    assert_int_equal(place->store.files.count, 0);
    assert_true(td_rank_store_get(&place->store, &place->want, 0, &file, made, NULL));
    assert_string_equal(made, tags[0]);
    td_rank_file_unref(file);
}

/* Takes all of the budget but `bytes`. Returns the number of bytes taken. */
static size_t leave(struct place *place, size_t bytes)
{
    size_t taken = place->store.live.max_bytes - td_budget_used(&place->store.live) - bytes;
    assert_true(td_budget_take(&place->store.live, taken));
    return taken;
}

enum { ROOM_STEP = 64 };

/* Returns the least room in which the rank's file can be planned and made, to within ROOM_STEP bytes. */
static size_t least_room(struct place *place, uint64_t rank)
{
    for (size_t room = 0;; room += ROOM_STEP) {
        struct td_rank_file *file = NULL;
        char tag[TD_TAG_BYTES];
        size_t taken = leave(place, room);
        bool ok = td_rank_store_get(&place->store, &place->want, rank, &file, tag, NULL);
        td_rank_file_unref(file);
        td_budget_give(&place->store.live, taken);
        assert_true(room < 1000000);
        if (ok) {
            assert_true(td_lru_drop_idle(&place->store.files));
            return room;
        }
    }
}

/* shows: security.md client-rank-files */
static void files_that_are_held_bound_those_to_come(void **state)
{
    struct place *place = *state;
    size_t room = least_room(place, 2);
    struct td_rank_file *first = get(place, 0);
    struct td_rank_file *second = get(place, 1);
    size_t file_bytes = td_rank_file_memory_bytes(first);
    assert_true(file_bytes > 2 * ROOM_STEP && room > file_bytes); /* planning needs memory too */
    size_t taken = leave(place, room - file_bytes / 2);
    size_t used = td_budget_used(&place->store.live);
    fails(place, 2, TD_RESOURCE_EXHAUSTED, "try again");
    assert_int_equal(td_budget_used(&place->store.live), used);
    td_rank_file_unref(get(place, 0)); /* a cached file needs no room */
    td_rank_file_unref(first);
    struct td_rank_file *third = get(place, 2); /* the first file is dropped, because nobody holds it */
    assert_int_equal(place->store.files.count, 2);
    struct td_rank_file *kept = get(place, 1);
    assert_ptr_equal(kept, second);
    fails(place, 0, TD_RESOURCE_EXHAUSTED, "try again");
    td_rank_file_unref(kept);
    td_rank_file_unref(second);
    td_rank_file_unref(third);
    td_budget_give(&place->store.live, taken);
}

/* Memory taken for slices or descriptions makes cached files go first. */
static void what_is_taken_makes_room_first(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    td_rank_file_unref(get(place, 0));
    place->store.live.max_bytes = td_budget_used(&place->store.live);
    assert_true(td_budget_take(&place->store.live, place->store.live.max_bytes));
    assert_int_equal(place->store.files.count, 0);
    assert_false(td_budget_take(&place->store.live, 1));
    assert_false(td_budget_refuse(&place->store.live, 1, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    td_budget_give(&place->store.live, place->store.live.max_bytes);
}

/* An answer may hold only a file's header or its layout. The part counts until it is freed, and until then the file
 * stays in the cache. */
/* shows: security.md client-rank-files */
static void parts_of_files_count_until_they_are_freed(void **state)
{
    struct place *place = *state;
    struct td_rank_file *file = get(place, 0);
    struct td_blob *header = td_blob_ref(file->own);
    struct td_layout *layout = td_layout_ref(file->layout);
    size_t header_bytes = (size_t)header->len_bytes;
    size_t layout_bytes = td_layout_memory_bytes(layout);
    td_rank_file_unref(file);
    assert_false(td_lru_drop_idle(&place->store.files));
    td_blob_unref(header);
    assert_false(td_lru_drop_idle(&place->store.files));
    file = get(place, 0); /* the cached file */
    header = td_blob_ref(file->own);
    assert_int_equal(place->store.files.count, 1);
    td_rank_file_unref(file);
    td_lru_fini(&place->store.files); /* drops the file from the cache */
    assert_true(td_lru_init(&place->store.files, place->store.files.class, TD_RANK_CACHE_BYTES));
    assert_int_equal(td_budget_used(&place->store.live), header_bytes + layout_bytes);
    td_layout_unref(layout);
    assert_int_equal(td_budget_used(&place->store.live), header_bytes);
    td_blob_unref(header);
}

/* Each maker occupies a place until td_rank_maker_fini. A further maker waits in vain. */
/* shows: security.md client-rank-files */
static void makers_are_few(void **state)
{
    struct place *place = *state;
    struct td_rank_maker makers[TD_RANK_MAKERS];
    place->store.wait_ns = 20000000;
    for (size_t i = 0; i < COUNT_OF(makers); i++) {
        struct td_plan plan;
        td_rank_maker_init(&makers[i], &place->store, &place->want);
        assert_true(td_rank_maker_plan(&makers[i], i, &plan, NULL));
        assert_true(plan.tp_rank == i && plan.output_count == 2);
        td_plan_fini(&plan);
    }
    fails(place, 0, TD_RESOURCE_EXHAUSTED, "at once");
    struct td_rank_file *file = NULL;
    char tag[TD_TAG_BYTES];
    assert_true(td_rank_maker_get(&makers[0], 0, &file, tag, NULL)); /* this maker has its place */
    td_rank_file_unref(file);
    td_rank_file_unref(get(place, 0)); /* a cached file needs no place */
    fails(place, 1, TD_RESOURCE_EXHAUSTED, "at once");
    td_rank_maker_fini(&makers[0]);
    td_rank_file_unref(get(place, 1));
    for (size_t i = 1; i < COUNT_OF(makers); i++)
        td_rank_maker_fini(&makers[i]);
}

/* Plans of rules, which may take seconds, leave places to plans of boxes; the latter take none of theirs for long. */
static void boxes_have_places_of_their_own(void **state)
{
    struct place *place = *state;
    struct td_rank_maker makers[TD_RANK_MAKERS + TD_RANK_BOX_PLACES];
    char tag[TD_TAG_BYTES];
    place->store.wait_ns = 20000000;
    for (size_t i = 0; i < TD_RANK_MAKERS; i++) {
        struct td_plan plan;
        td_rank_maker_init(&makers[i], &place->store, &place->want);
        assert_true(td_rank_maker_plan(&makers[i], i, &plan, NULL));
        td_plan_fini(&plan);
    }
    struct td_rank_set rules = place->want;
    static const char *const plans[] = {"{\"boxes\":[{\"name\":\"b\"}]}", "{\"boxes\":[{\"name\":\"w\"}]}"};
    for (size_t i = 0; i < TD_RANK_BOX_PLACES; i++) {
        struct td_rank_set boxes = rules;
        struct td_rank_file *file = NULL;
        boxes.name = (struct td_rank_name){.id = td_text_of(i == 0 ? "p0" : "p1"), .tp_size = 1, .is_boxes = true};
        boxes.plan = td_text_of(plans[i]);
        struct td_rank_maker *maker = &makers[TD_RANK_MAKERS + i];
        td_rank_maker_init(maker, &place->store, &boxes);
        assert_true(td_rank_maker_get(maker, 0, &file, tag, NULL));
        td_rank_file_unref(file);
        maker->set = &rules; /* boxes ends here */
    }
    fails(place, 0, TD_RESOURCE_EXHAUSTED, "at once");
    td_rank_maker_fini(&makers[TD_RANK_MAKERS]); /* the place that becomes free is for boxes */
    fails(place, 0, TD_RESOURCE_EXHAUSTED, "at once");
    for (size_t i = 0; i < COUNT_OF(makers); i++)
        if (i != TD_RANK_MAKERS)
            td_rank_maker_fini(&makers[i]);
}

/* ---- threads ------------------------------------------------------------------------------------------- */

struct asker {
    struct place *place;
    uint64_t rank;
    bool ok;
    struct td_error err;
    struct td_rank_file *file;
};

static void *ask(void *arg)
{
    struct asker *asker = arg;
    char tag[TD_TAG_BYTES];
    td_error_init(&asker->err);
    asker->ok =
        td_rank_store_get(&asker->place->store, &asker->place->want, asker->rank, &asker->file, tag, &asker->err);
    return NULL;
}

/* Requests files from THREADS threads at once, for ranks 0 to `ranks` - 1 in turn. Ends the makers in `released`, if
 * any, while the threads wait. */
static void ask_all(struct place *place, struct asker askers[THREADS], uint64_t ranks, struct td_rank_maker *released)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){.place = place, .rank = i % ranks};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    if (released != NULL) {
        nap_ms(20);
        for (size_t i = 0; i < TD_RANK_MAKERS; i++)
            td_rank_maker_fini(&released[i]);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* All threads that request a rank at once get the same file, so only one thread made it. */
/* shows: security.md client-rank-files */
static void one_makes_it_for_all(void **state)
{
    struct place *place = *state;
    struct asker askers[THREADS];
    for (size_t round = 0; round < 50; round++) {
        ask_all(place, askers, 2, NULL);
        for (size_t i = 0; i < THREADS; i++) {
            CHECK(askers[i].ok, "%s", askers[i].err.message);
            assert_ptr_equal(askers[i].file, askers[i % 2].file);
        }
        for (size_t i = 0; i < THREADS; i++)
            td_rank_file_unref(askers[i].file);
        while (td_lru_drop_idle(&place->store.files))
            ;
    }
}

static void who_waits_is_woken(void **state)
{
    struct place *place = *state;
    struct td_rank_maker makers[TD_RANK_MAKERS];
    struct asker askers[THREADS];
    for (size_t i = 0; i < COUNT_OF(makers); i++) {
        struct td_plan plan;
        td_rank_maker_init(&makers[i], &place->store, &place->want);
        assert_true(td_rank_maker_plan(&makers[i], i, &plan, NULL));
        td_plan_fini(&plan);
    }
    ask_all(place, askers, RANKS, makers);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(askers[i].ok, "%s", askers[i].err.message);
        td_rank_file_unref(askers[i].file);
    }
}

/* vllm needs a config.json, which the model lacks. Every thread gets the error, and none waits for ever. */
static void an_error_is_everybodys(void **state)
{
    (void)state;
    struct place place;
    struct asker askers[THREADS];
    open_place(&place, "vllm");
    ask_all(&place, askers, 1, NULL);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(!askers[i].ok && askers[i].file == NULL && askers[i].err.code == TD_FAILED_PRECONDITION, "%s",
              askers[i].err.message);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(fsdp, a_file_is_made_once_and_kept),
        TEST_IN(fsdp, tags_tell_files_apart),
        TEST_IN(fsdp, files_that_are_held_bound_those_to_come),
        TEST_IN(fsdp, what_is_taken_makes_room_first),
        TEST_IN(fsdp, parts_of_files_count_until_they_are_freed),
        TEST_IN(fsdp, makers_are_few),
        TEST_IN(fsdp, boxes_have_places_of_their_own),
        TEST_IN(fsdp, one_makes_it_for_all),
        TEST_IN(fsdp, who_waits_is_woken),
        cmocka_unit_test(an_error_is_everybodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
