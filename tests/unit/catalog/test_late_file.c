/* Blobs of files that are open only while they are read. */
#include "catalog/model/late_file.h"

#include "tests/unit/catalog/scan_place.h"

#include <stdlib.h>

enum { FILES = 20 };

static void a_file_is_open_only_while_it_is_read(void **state)
{
    struct place *place = *state;
    struct td_mapping_cache maps;
    struct td_blob *blobs[FILES];
    char path[64];
    char text[4];
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "m/%zu.txt", i);
        tree_text(&place->tree, path, "abcdef");
    }
    tree_simple(&place->tree, "m/x.safetensors", "a");
    scanner_scan(&place->scanner);
    assert_true(td_mapping_cache_init(&maps, 2, 0, false, NULL));
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "m/%zu.txt", i);
        assert_true(td_late_file(&maps, place->scanner.root, file_at(place, path), &blobs[i], NULL));
        assert_int_equal(blobs[i]->len_bytes, 6);
        assert_true(td_blob_read(blobs[i], 2, text, 3, NULL));
        assert_memory_equal(text, "cde", 3);
        assert_false(td_blob_is_resident(blobs[i], 0, 1));
    }
    assert_int_equal(td_mapping_cache_count(&maps).mapped, 2); /* the cache's bound */
    for (size_t i = 0; i < FILES; i++)
        td_blob_unref(blobs[i]);
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof path, "m/%zu.txt", i);
        td_file_source_forget(&maps, &file_at(place, path)->source);
    }
    td_mapping_cache_fini(&maps);
}

static void a_changed_file_cannot_be_read_on(void **state)
{
    struct place *place = *state;
    struct td_mapping_cache maps;
    struct td_blob *blob;
    struct td_error err = TD_ERROR_INIT;
    char text[3];
    tree_text(&place->tree, "m/a.txt", "abcdef");
    tree_simple(&place->tree, "m/x.safetensors", "a");
    scanner_scan(&place->scanner);
    assert_true(td_mapping_cache_init(&maps, 2, 0, false, NULL));
    assert_true(td_late_file(&maps, place->scanner.root, file_at(place, "m/a.txt"), &blob, NULL));
    assert_true(td_blob_read(blob, 0, text, 3, NULL));
    tree_text(&place->tree, "m/a.txt", "abcdefghi");
    assert_false(td_blob_read(blob, 3, text, 3, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    td_blob_unref(blob);
    td_file_source_forget(&maps, &file_at(place, "m/a.txt")->source);
    td_mapping_cache_fini(&maps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_file_is_open_only_while_it_is_read),
        TEST_IN(place, a_changed_file_cannot_be_read_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
