/* Readers and writers of a catalog at once. */
#include "core/log.h"
#include "storage/fault_guard.h"
#include "tests/unit/catalog/catalog_place.h"

#include <pthread.h>
#include <unistd.h>

enum { MODELS = 6, TENSOR_BYTES = 64 };

struct traffic {
    struct place *place;
    _Atomic bool stop;
    _Atomic uint64_t reads, refused;
    _Atomic uint64_t faults;
    const char *_Atomic fault; /* the last fault */
};

static void fault(struct traffic *traffic, const char *what)
{
    atomic_fetch_add(&traffic->faults, 1);
    atomic_store(&traffic->fault, what);
}

/* Writes the salt of the model into all bytes of its file, so that bytes of another file are recognised. */
static void write_model(const struct tree *tree, const char *name, unsigned model, bool two)
{
    struct tree_tensor tensors[] = {{"first", "U8", "[64]", TENSOR_BYTES}, {"second", "U8", "[64]", TENSOR_BYTES}};
    (void)tree_tensors(tree, name, tensors, two ? 2 : 1, NULL, model);
}

static void check_tensor(struct traffic *traffic, const struct td_snapshot *snapshot, const struct td_checkpoint *c,
                         size_t i, unsigned model)
{
    struct td_tensor_ref ref = td_checkpoint_tensor(c, i);
    struct td_file *file = c->parts[ref.part]->file;
    struct td_blob *blob = NULL;
    struct td_error err = TD_ERROR_INIT;
    uint8_t out[TENSOR_BYTES];
    if (!td_file_source_map(td_catalog_maps(traffic->place->catalog), snapshot->root, &file->source, &blob, &err)) {
        if (err.code != TD_UNAVAILABLE)
            fault(traffic, "a mapping failed");
        atomic_fetch_add(&traffic->refused, 1);
        return;
    }
    bool read = ref.tensor->offset + TENSOR_BYTES <= blob->len_bytes &&
                td_blob_read(blob, ref.tensor->offset, out, sizeof out, &err);
    if (!td_blob_unchanged(blob)) {
        atomic_fetch_add(&traffic->refused, 1);
    } else {
        for (size_t k = 0; read && k < sizeof out; k++)
            if (out[k] != tree_data_byte(i * TENSOR_BYTES + k, model))
                read = false;
        if (!read)
            fault(traffic, "wrong bytes");
        atomic_fetch_add(&traffic->reads, 1);
    }
    td_blob_unref(blob);
}

static void check_snapshot(struct traffic *traffic, const struct td_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        if (td_snapshot_find_model(snapshot, td_text_of(model->id)) != model)
            fault(traffic, "a model is not found");
        for (size_t k = 0; k < model->checkpoint_count; k++) {
            const struct td_checkpoint *c = &model->checkpoints[k];
            for (size_t t = 0; t < c->tensor_count; t++)
                check_tensor(traffic, snapshot, c, t, (unsigned)(model->id[1] - '0'));
        }
    }
}

static void *read_often(void *argument)
{
    struct traffic *traffic = argument;
    uint64_t generation = 0;
    while (!atomic_load(&traffic->stop)) {
        struct td_snapshot *snapshot = td_catalog_acquire(traffic->place->catalog);
        if (snapshot == NULL)
            continue;
        if (snapshot->generation < generation)
            fault(traffic, "a snapshot from the past");
        generation = snapshot->generation;
        check_snapshot(traffic, snapshot);
        td_snapshot_unref(snapshot);
    }
    return NULL;
}

/* One writer per model: publishes by rename, unlinks, links. */
static void *write_often(void *argument)
{
    struct traffic *traffic = argument;
    const struct tree *tree = &traffic->place->tree;
    static _Atomic unsigned next;
    unsigned model = atomic_fetch_add(&next, 1) % MODELS;
    uint64_t seed = model + 1;
    char temporary[64];
    char name[64];
    (void)snprintf(temporary, sizeof temporary, "root/m%u/.upload", model);
    (void)snprintf(name, sizeof name, "root/m%u/a.safetensors", model);
    while (!atomic_load(&traffic->stop)) {
        write_model(tree, temporary, model, random_below(&seed, 2) == 0);
        tree_rename(tree, temporary, name);
        td_catalog_request_scan(traffic->place->catalog);
        if (random_below(&seed, 4) == 0)
            tree_remove(tree, name);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000 + (long)random_below(&seed, 20000000)}, NULL);
    }
    return NULL;
}

static void readers_and_writers_at_once(void **state)
{
    (void)state;
    enum { READERS = 3 };
    struct place place;
    struct traffic traffic = {.place = &place};
    pthread_t readers[READERS];
    pthread_t writers[MODELS];
    assert_true(td_fault_guard_install());
    prepare(&place);
    place.config.max_maps = 4;
    place.config.interval_ns = 20000000;
    place.config.hash_threads = 2;
    start(&place);
    for (size_t i = 0; i < MODELS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_often, &traffic), 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_often, &traffic), 0);
    struct td_catalog_tuning tuning = {.interval_ns = 20000000, .max_files = 1000};
    for (size_t i = 0; i < 40; i++) { /* 4 s */
        nap_ms(100);
        tuning.require_models = i % 2;
        td_catalog_tune(place.catalog, &tuning);
    }
    atomic_store(&traffic.stop, true);
    for (size_t i = 0; i < MODELS; i++)
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    struct td_catalog_status status = status_of(&place);
    print_message("%llu reads, %llu refused, %llu scans, generation %llu\n", (unsigned long long)traffic.reads,
                  (unsigned long long)traffic.refused, (unsigned long long)status.scan_count,
                  (unsigned long long)status.generation);
    CHECK(traffic.faults == 0, "%s", traffic.fault);
    assert_true(traffic.reads > 20 && status.generation > 5);
    scan_and_wait(&place);
    assert_true(status_of(&place).maps.mapped <= 4);
    finish(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_and_writers_at_once),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
