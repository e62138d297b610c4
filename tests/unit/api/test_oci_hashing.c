/* How long a request to a registry waits for the digest of a layer: until its time is over, but no longer than the
 * server goes on and somebody waits for the answer. The layer waits at a gate that this test never opens. */
#include "api/oci/oci_hashing.h"
#include "core/clock.h"
#include "tests/kit/kit.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <time.h>

enum { LAYER_BYTES = 2000000 };

static const uint64_t second_ns = 1000000000;

/* A blob whose bytes come when the hasher is told to end. */
struct gated {
    struct td_blob blob; /* first */
    const struct td_cancel *cancel;
};

static bool gated_read(struct td_blob *blob, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct gated *gated = (struct gated *)(void *)blob;
    (void)off;
    memset(out, 0, len);
    while (!td_cancel_is_asked(gated->cancel)) {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
    }
    return td_error_set(err, TD_UNAVAILABLE, "the hasher ends");
}

static bool gated_unchanged(struct td_blob *blob)
{
    (void)blob;
    return true;
}

static void gated_destroy(struct td_blob *blob)
{
    (void)blob; /* part of the place */
}

static const struct td_blob_class gated_class = {
    .destroy = gated_destroy, .read = gated_read, .unchanged = gated_unchanged};

struct place {
    struct tree tree;
    struct td_catalog *catalog;
    struct td_api api;
    struct td_request request;
    struct td_call call;
    struct td_oci_call oci;
    struct gated gated;
    struct td_oci_virtual layer;
};

static void open_place(struct place *place)
{
    memset(place, 0, sizeof *place);
    tree_open(&place->tree);
    struct td_catalog_config config = {
        .root = place->tree.path, .max_maps = 64, .hash_threads = 1, .scan = td_scan_config_default()};
    assert_true(td_catalog_create(&config, &place->catalog, NULL));
    assert_true(td_api_init(&place->api, place->catalog, NULL));
    place->gated = (struct gated){.blob = {.class = &gated_class, .len_bytes = LAYER_BYTES},
                                  .cancel = td_virtual_hasher_cancel(place->api.hasher)};
    atomic_init(&place->gated.blob.refs, 1);
    place->call = (struct td_call){.api = &place->api, .request = &place->request};
    place->oci.call = &place->call;
}

static void close_place(struct place *place)
{
    td_api_fini(&place->api);
    td_catalog_destroy(place->catalog);
    tree_close(&place->tree);
}

static bool begin(void *context, size_t i, struct td_error *err)
{
    struct place *place = context;
    struct td_virtual_file file = {.key = place->layer.key, .origin = {.kind = TD_REVISION_FILES}};
    assert_int_equal(i, 0);
    td_body_init(&file.body);
    assert_true(td_body_append(&file.body, &place->gated.blob, 0, LAYER_BYTES, NULL));
    return td_virtual_hasher_begin(place->api.hasher, &file, err);
}

/* Asks for the digest with so much time; returns the time that it took. The answer must be how far hashing is. */
static uint64_t ask(struct place *place, uint64_t time_ns)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t began_ns = td_clock_ns();
    place->oci.until_ns = began_ns + time_ns;
    assert_false(td_oci_know_virtual(&place->oci, &place->layer, 1, 1, begin, place, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_string_equal(err.message,
                        "0 of 1 layers (0.00 of 0.00 GB) have been put together and hashed so far; try again");
    assert_int_equal(place->oci.lack, TD_OCI_IS_HASHING);
    return td_clock_ns() - began_ns;
}

static void the_wait_is_over_in_time(void **state)
{
    (void)state;
    struct place place;
    open_place(&place);
    const uint64_t times_ns[] = {0, second_ns / 20, second_ns * 4 / 5}; /* less and more than one look */
    for (size_t i = 0; i < sizeof times_ns / sizeof *times_ns; i++) {
        uint64_t took_ns = ask(&place, times_ns[i]);
        assert_true(took_ns >= times_ns[i] && took_ns < times_ns[i] + 10 * second_ns);
    }
    close_place(&place);
}

static bool is_asked(void *context)
{
    (void)context;
    return true;
}

static void nobody_waits_for_a_client_that_has_left(void **state)
{
    (void)state;
    const struct td_cancel cancel = {.is_asked = is_asked};
    struct place place;
    open_place(&place);
    place.request.cancel = &cancel;
    assert_true(ask(&place, 60 * second_ns) < 20 * second_ns);
    close_place(&place);
}

static void *drain_soon(void *context)
{
    struct place *place = context;
    struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
    atomic_store(&place->api.draining, true);
    return NULL;
}

static void nobody_waits_while_the_server_drains(void **state)
{
    (void)state;
    pthread_t thread;
    struct place place;
    open_place(&place);
    assert_int_equal(pthread_create(&thread, NULL, drain_soon, &place), 0);
    assert_true(ask(&place, 60 * second_ns) < 20 * second_ns);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wait_is_over_in_time),
        cmocka_unit_test(nobody_waits_for_a_client_that_has_left),
        cmocka_unit_test(nobody_waits_while_the_server_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
