/* Documents that are stored under a key of everything they are built from. Sums are those of FIPS 180-4's examples. */
#include "rank/made_document.h"

#include "core/digits.h"
#include "tests/unit/alloc_trials.h"

#define ABC_SHA256 "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
/* of "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq" */
#define LONG_SHA256 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"

static bool add(struct td_made_documents *made, bool is_manifest, const char *text, struct td_error *err)
{
    struct td_buffer buffer;
    td_buffer_init(&buffer);
    td_buffer_puts(&buffer, text);
    bool ok = td_made_documents_add(made, "application/json", is_manifest, &buffer, err);
    assert_true(!ok || buffer.len == 0);
    td_buffer_fini(&buffer);
    return ok;
}

static void documents_are_found_by_their_sums(void **state)
{
    (void)state;
    struct td_made_documents *made = td_made_documents_create(NULL);
    assert_non_null(made);
    assert_true(add(made, false, "abc", NULL));
    assert_true(add(made, true, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", NULL));
    const struct td_made_document *config = td_made_documents_find(made, false, TD_TEXT(ABC_SHA256));
    const struct td_made_document *manifest = td_made_documents_find(made, true, TD_TEXT(LONG_SHA256));
    assert_ptr_equal(config, &made->items[0]);
    assert_ptr_equal(manifest, &made->items[1]);
    assert_string_equal(config->sha256, ABC_SHA256);
    assert_string_equal(config->media_type, "application/json");
    assert_int_equal(config->bytes->len_bytes, 3);
    assert_memory_equal(config->bytes->bytes, "abc", 3);
    assert_null(td_made_documents_find(made, true, TD_TEXT(ABC_SHA256))); /* it is no manifest */
    assert_null(td_made_documents_find(made, false, TD_TEXT(LONG_SHA256)));
    assert_null(td_made_documents_find(made, false, TD_TEXT("")));
    assert_true(td_made_documents_bytes(made) >= sizeof *made + 3 + 56);
    td_made_documents_unref(made);
    td_made_documents_unref(NULL);
}

static void there_is_room_for_an_image(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_made_documents *made = td_made_documents_create(NULL);
    for (int i = 0; i < 5; i++) /* an index, and for two architectures a manifest and a configuration */
        assert_true(add(made, true, "abc", NULL));
    assert_false(add(made, true, "abc", &err));
    assert_int_equal(err.code, TD_INTERNAL);
    assert_int_equal(made->count, 5);
    td_made_documents_unref(made);
}

/* A set lives as long as somebody has a reference on it. */
static void references_keep_a_set(void **state)
{
    (void)state;
    struct td_lru store;
    struct td_made_documents *made = td_made_documents_create(NULL);
    assert_true(add(made, true, "abc", NULL));
    assert_true(td_lru_init(&store, &td_made_documents_class, 100000));
    assert_true(td_lru_put(&store, "key", made, td_made_documents_bytes(made)));
    td_made_documents_unref(made);
    made = td_lru_get(&store, "key");
    td_lru_fini(&store);
    assert_non_null(td_made_documents_find(made, true, TD_TEXT(ABC_SHA256)));
    td_made_documents_unref(made);
}

/* Returns a set that names two virtual files: number i has the key i and the sum of the i-th of the texts above. */
static struct td_made_documents *make_with_files(void)
{
    static const char *const sums[] = {ABC_SHA256, LONG_SHA256};
    struct td_made_documents *made = td_made_documents_create(NULL);
    assert_true(td_made_documents_reserve_virtual(made, 2, NULL));
    for (size_t i = 0; i < 2; i++) {
        made->virtual_files[i].key.bytes[0] = (uint8_t)i;
        assert_true(td_hex_read_bytes(td_text_of(sums[i]), made->virtual_files[i].digest.sum, TD_SHA256_BYTES));
        made->virtual_files[i].digest.size_bytes = i + 1;
    }
    return made;
}

static void virtual_files_are_found_by_their_sums(void **state)
{
    (void)state;
    struct td_made_documents *made = make_with_files();
    assert_int_equal(td_made_documents_find_virtual(made, TD_TEXT(ABC_SHA256)), 0);
    assert_int_equal(td_made_documents_find_virtual(made, TD_TEXT(LONG_SHA256)), 1);
    assert_int_equal(td_made_documents_find_virtual(made, TD_TEXT("00" ABC_SHA256)), 2);
    assert_int_equal(td_made_documents_find_virtual(made, TD_TEXT("")), 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(td_made_documents_know(made, made->virtual_files[i].digest.sum));
    assert_false(td_made_documents_know(made, (const uint8_t[TD_SHA256_BYTES]){0}));
    assert_true(td_made_documents_bytes(made) >= sizeof *made + 2 * sizeof *made->virtual_files);
    td_made_documents_unref(made);
    made = td_made_documents_create(NULL);
    assert_true(td_made_documents_reserve_virtual(made, 0, NULL));
    assert_int_equal(td_made_documents_find_virtual(made, TD_TEXT(ABC_SHA256)), 0);
    td_made_documents_unref(made);
}

/* Digests that the table has dropped come back. Those that it has stay as they are. */
static void dropped_digests_are_noted_again(void **state)
{
    (void)state;
    struct td_virtual_digests *digests;
    struct td_virtual_digest known = {.size_bytes = 77};
    struct td_made_documents *made = make_with_files();
    assert_true(td_virtual_digests_create(&digests, NULL));
    td_virtual_digests_add(digests, &made->virtual_files[0].key, &known);
    td_made_documents_note_virtual(made, digests);
    assert_int_equal(td_virtual_digests_count(digests), 2);
    assert_true(td_virtual_digests_find(digests, &made->virtual_files[0].key, &known));
    assert_int_equal(known.size_bytes, 77);
    assert_true(td_virtual_digests_find(digests, &made->virtual_files[1].key, &known));
    assert_int_equal(known.size_bytes, 2);
    assert_memory_equal(known.sum, made->virtual_files[1].digest.sum, TD_SHA256_BYTES);
    td_virtual_digests_destroy(digests);
    td_made_documents_unref(made);
}

/* Builds a set of two documents and two files. Returns false when memory is short. */
static bool make_all(struct td_error *err)
{
    struct td_made_documents *made = td_made_documents_create(err);
    bool ok = made != NULL && add(made, false, "abc", err) && add(made, true, "abcd", err) &&
              td_made_documents_reserve_virtual(made, 2, err);
    td_made_documents_unref(made);
    return ok;
}

static void memory_may_be_short(void **state)
{
    (void)state;
    struct alloc_trials trials = {.may_do_without = true};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        bool ok = make_all(&err);
        alloc_tried(&trials, ok, &err);
        assert_true(trials.k < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_found_by_their_sums),
        cmocka_unit_test(there_is_room_for_an_image),
        cmocka_unit_test(references_keep_a_set),
        cmocka_unit_test(virtual_files_are_found_by_their_sums),
        cmocka_unit_test(dropped_digests_are_noted_again),
        cmocka_unit_test(memory_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
