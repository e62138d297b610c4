/* The store of indexes: what was saved comes back or nothing does. */
#include "catalog/dataset/row_store.h"

#include "core/log.h"
#include "parser/rows/text_rows.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char key[] = "0123456789abcdef0123456789abcdef-jsonl";
static const char name[] = "state/rows/0123456789abcdef0123456789abcdef-jsonl";

struct place {
    struct tree tree;
    char state[TREE_PATH_BYTES], rows[TREE_PATH_BYTES], file[TREE_PATH_BYTES];
};

static void place_open(struct place *place)
{
    tree_open(&place->tree);
    tree_at(&place->tree, "state", place->state);
    tree_at(&place->tree, "state/rows", place->rows);
    tree_at(&place->tree, name, place->file);
}

static void place_close(struct place *place)
{
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static struct td_row_store *open_store(const struct place *place)
{
    struct td_row_store *store = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_row_store_open(place->state, NULL, &store, &err), "%s", err.message);
    return store;
}

/* An index with all that one can hold, of made-up numbers. */
static struct td_row_index sample_index(void)
{
    struct td_row_index index = {.format = &td_row_format_jsonl,
                                 .layout = TD_ROWS_LINES,
                                 .row_count = 100,
                                 .data_bytes = 5000,
                                 .table_bytes = 7,
                                 .params = {1, 3, ',', 7, 5, 6},
                                 .word_count = 9};
    static const uint64_t words[] = {3, 500, 900, 1500, 2200, 3000, 4000, 90, 3900}; /* 7 steps, and row 90 */
    index.words = malloc(sizeof words);
    assert_non_null(index.words);
    memcpy(index.words, words, sizeof words);
    index.columns = strdup("[{\"name\":\"a\",\"type\":\"int64\"}]");
    index.reason = strdup("because");
    return index;
}

static void fill_sample(char sample[TD_TAG_BYTES])
{
    memset(sample, 'f', TD_TAG_BYTES - 1);
    sample[TD_TAG_BYTES - 1] = '\0';
}

static bool is_same(const struct td_row_index *a, const struct td_row_index *b)
{
    return a->format == b->format && a->layout == b->layout && a->row_count == b->row_count &&
           a->data_bytes == b->data_bytes && a->table_bytes == b->table_bytes &&
           memcmp(a->params, b->params, sizeof a->params) == 0 && a->word_count == b->word_count &&
           memcmp(a->words, b->words, a->word_count * sizeof *a->words) == 0 && strcmp(a->columns, b->columns) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

/* Saves the sample's index and returns it. */
static struct td_row_index save_one(struct td_row_store *store)
{
    char sample[TD_TAG_BYTES];
    struct td_row_index index = sample_index();
    fill_sample(sample);
    td_row_store_save(store, key, &index, sample);
    return index;
}

static size_t count_files(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' ? 1 : 0;
    assert_int_equal(closedir(dir), 0);
    return count;
}

static void saved_is_loaded(void **state)
{
    struct place *place = *state;
    char wanted[TD_TAG_BYTES], sample[TD_TAG_BYTES];
    struct td_row_store *store = open_store(place);
    struct td_row_index loaded = {0};
    assert_false(td_row_store_load(store, key, &loaded, sample));
    struct td_row_index index = save_one(store);
    fill_sample(wanted);
    for (int i = 0; i < 2; i++) {
        assert_true(td_row_store_load(store, key, &loaded, sample));
        assert_true(is_same(&index, &loaded));
        assert_string_equal(sample, wanted);
        td_row_index_fini(&loaded);
        td_row_store_close(store);
        store = open_store(place); /* a restart */
    }
    struct stat st;
    assert_true(stat(place->file, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_true(stat(place->rows, &st) == 0 && (st.st_mode & 0777) == 0700);
    index.params[5] = 77; /* saved again: the new one */
    td_row_store_save(store, key, &index, wanted);
    assert_true(td_row_store_load(store, key, &loaded, sample) && loaded.params[5] == 77);
    td_row_index_fini(&loaded);
    assert_int_equal(count_files(place->rows), 1);
    td_row_index_fini(&index);
    td_row_store_close(store);
}

static void no_store(void **state)
{
    (void)state;
    char sample[TD_TAG_BYTES];
    struct td_row_index index = sample_index(), loaded = {0};
    fill_sample(sample);
    td_row_store_save(NULL, key, &index, sample);
    assert_false(td_row_store_load(NULL, key, &loaded, sample));
    td_row_store_close(NULL);
    td_row_index_fini(&index);
}

/* shows: security.md rows-stored-index */
static void damaged_files_give_nothing(void **state)
{
    struct place *place = *state;
    char sample[TD_TAG_BYTES];
    struct td_row_store *store = open_store(place);
    struct td_row_index index = save_one(store), loaded = {0};
    static char bytes[4096];
    int fd = open(place->file, O_RDONLY);
    ssize_t len = read(fd, bytes, sizeof bytes);
    assert_true(len > 100 && len < (ssize_t)sizeof bytes && close(fd) == 0);
    for (size_t i = 0; i < (size_t)len; i++) { /* every truncation, and a byte more */
        tree_write(&place->tree, name, bytes, i);
        CHECK(!td_row_store_load(store, key, &loaded, sample), "cut to %zu bytes", i);
    }
    bytes[len] = 'x';
    tree_write(&place->tree, name, bytes, (size_t)len + 1);
    assert_false(td_row_store_load(store, key, &loaded, sample));
    for (size_t i = 0; i < (size_t)len; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
            tree_write(&place->tree, name, bytes, (size_t)len);
            bool ok = td_row_store_load(store, key, &loaded, sample);
            CHECK(!ok || is_same(&index, &loaded), "byte %zu, bit %d", i, bit);
            if (ok)
                td_row_index_fini(&loaded);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
        }
    tree_write(&place->tree, name, bytes, (size_t)len);
    assert_true(td_row_store_load(store, key, &loaded, sample)); /* it was the bytes */
    td_row_index_fini(&loaded);
    td_row_index_fini(&index);
    td_row_store_close(store);
}

/* shows: security.md rows-stored-index */
static void what_is_no_file_of_ours(void **state)
{
    struct place *place = *state;
    char sample[TD_TAG_BYTES];
    struct td_row_store *store = open_store(place);
    struct td_row_index index = save_one(store), loaded = {0};
    fill_sample(sample);
    assert_int_equal(chmod(place->file, 0620), 0); /* the group may write */
    assert_false(td_row_store_load(store, key, &loaded, sample));
    assert_int_equal(chmod(place->file, 0644), 0);
    assert_true(td_row_store_load(store, key, &loaded, sample));
    td_row_index_fini(&loaded);
    tree_rename(&place->tree, name, "moved");
    tree_symlink(&place->tree, name, "../../moved");
    assert_false(td_row_store_load(store, key, &loaded, sample));
    assert_int_equal(unlink(place->file), 0);
    tree_fifo(&place->tree, name);
    assert_false(td_row_store_load(store, key, &loaded, sample)); /* and does not wait for a writer */
    assert_int_equal(unlink(place->file), 0);
    assert_int_equal(mkdir(place->file, 0700), 0);
    assert_false(td_row_store_load(store, key, &loaded, sample));
    td_row_store_save(store, key, &index, sample); /* cannot be put there: logged, nothing more */
    assert_int_equal(rmdir(place->file), 0);
    assert_int_equal(count_files(place->rows), 0);
    td_row_index_fini(&index);
    td_row_store_close(store);
}

static void expect_refusal(const char *state_dir, const char *root, enum td_code code, const char *says)
{
    struct td_row_store *store = NULL;
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_row_store_open(state_dir, root, &store, &err));
    assert_int_equal(err.code, code);
    check_says(&err, says, state_dir);
}

/* shows: security.md rows-stored-index */
static void directories_of_others(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, "state/rows");
    assert_int_equal(chmod(place->rows, 0770), 0);
    expect_refusal(place->state, NULL, TD_PERMISSION_DENIED, "others can write to the folder \"rows\"");
    assert_int_equal(chmod(place->rows, 0700), 0);
    td_row_store_close(open_store(place));
    tree_remove(&place->tree, "state/rows");
    tree_directory(&place->tree, "elsewhere");
    tree_symlink(&place->tree, "state/rows", "../elsewhere");
    expect_refusal(place->state, NULL, TD_IO, "cannot open the folder \"rows\"");
    assert_int_equal(unlink(place->rows), 0);
    tree_text(&place->tree, "state/rows", "a file");
    expect_refusal(place->state, NULL, TD_IO, "cannot open the folder \"rows\"");
    assert_int_equal(unlink(place->rows), 0);
    expect_refusal(place->state, place->tree.path, TD_FAILED_PRECONDITION, "is in the served directory");
    if (geteuid() == 0) {
        tree_directory(&place->tree, "state/rows");
        assert_int_equal(chown(place->rows, 12345, 12345), 0);
        expect_refusal(place->state, NULL, TD_PERMISSION_DENIED, "others can write");
    }
}

static const int64_t day_ns = INT64_C(24) * 60 * 60 * 1000000000;

static void old_ones_are_removed(void **state)
{
    struct place *place = *state;
    char sample[TD_TAG_BYTES];
    struct td_row_store *store = open_store(place);
    struct td_row_index index = save_one(store), loaded = {0};
    fill_sample(sample);
    td_row_store_save(store, "old", &index, sample);
    td_row_store_save(store, "used", &index, sample);
    td_row_store_save(store, "young", &index, sample);
    tree_text(&place->tree, "state/rows/half.new", "what a crash left");
    tree_directory(&place->tree, "state/rows/folder");
    tree_set_age(&place->tree, "state/rows/old", 91 * day_ns);
    tree_set_age(&place->tree, "state/rows/used", 91 * day_ns);
    tree_set_age(&place->tree, "state/rows/half.new", 91 * day_ns);
    tree_set_age(&place->tree, "state/rows/folder", 91 * day_ns);
    tree_set_age(&place->tree, "state/rows/young", 89 * day_ns);
    assert_true(td_row_store_load(store, "used", &loaded, sample));
    td_row_index_fini(&loaded);
    td_row_store_close(store);
    store = open_store(place);
    assert_false(td_row_store_load(store, "old", &loaded, sample));
    assert_int_equal(count_files(place->rows), 4); /* the first one, used, young, folder */
    assert_true(td_row_store_load(store, "young", &loaded, sample));
    td_row_index_fini(&loaded);
    td_row_index_fini(&index);
    td_row_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, saved_is_loaded),
        cmocka_unit_test(no_store),
        TEST_IN(place, damaged_files_give_nothing),
        TEST_IN(place, what_is_no_file_of_ours),
        TEST_IN(place, directories_of_others),
        TEST_IN(place, old_ones_are_removed),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
