/* Models that were fetched without digests, and an upstream that has digests later. */
#include "catalog/upstream/late_digests.h"

#include "catalog/model/content_hash.h"
#include "catalog/upstream/upstream.h"
#include "catalog/upstream/wrong_copies.h"
#include "core/clock.h"
#include "tests/unit/catalog/store_place.h"

#include <pthread.h>

/* Of the content "{}": its SHA-256, and Git's name of it (printf '{}' | sha256sum, git hash-object). */
#define SHA256 "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
#define GIT_ID "9e26dfeeb6e641a33dae4961196235bdb965b21b"

/* The same with another first digit. */
#define WRONG_SHA256 "54136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
#define WRONG_GIT_ID "ae26dfeeb6e641a33dae4961196235bdb965b21b"

/* Pages of a tree, as the Hub has it: files in LFS, and in Git. A tensord without digests lists files as in Git, with
 * an oid that means nothing. */
#define FILE_OF(path, size, oid) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":" size ",\"oid\":\"" oid "\"}"
#define LFS_OF(path, size, sha256)                                                                \
    "{\"type\":\"file\",\"path\":\"" path "\",\"size\":" size ",\"oid\":\"" GIT_ID "\",\"lfs\":{" \
    "\"oid\":\"" sha256 "\",\"size\":" size ",\"pointerSize\":134}}"

/* The upstream, and what this thread has read to hash it. */
static const char *page; /* that it answers; NULL: it does not answer */
static bool has_git_ids;
static _Atomic int lists;
static void (*on_list)(void);
static _Atomic bool is_list_held; /* until the caller is told to stop */
static bool was_stopped;
static char via[TD_UPSTREAM_VIA_BYTES];
static pthread_t this_thread;
static int hashed_here;

bool __wrap_td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                            const struct td_content_hash_options *options, struct td_content_sums *sums,
                            struct td_error *err);
bool __real_td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                            const struct td_content_hash_options *options, struct td_content_sums *sums,
                            struct td_error *err);

bool __wrap_td_content_hash(const struct td_root *root, const char *path, const struct td_file_id *id,
                            const struct td_content_hash_options *options, struct td_content_sums *sums,
                            struct td_error *err)
{
    if (pthread_equal(pthread_self(), this_thread)) /* no other one touches the number */
        hashed_here++;
    return __real_td_content_hash(root, path, id, options, sums, err);
}

static bool list(void *context, const struct td_upstream_wish *wish, struct td_remote_model *model,
                 struct td_error *err)
{
    const struct timespec step = {.tv_nsec = 1000000};
    (void)context;
    td_remote_model_init(model);
    (void)snprintf(via, sizeof via, "%s", wish->via);
    lists++;
    if (on_list != NULL)
        on_list();
    while (is_list_held && !td_cancel_is_asked(wish->cancel))
        (void)nanosleep(&step, NULL);
    was_stopped = td_cancel_is_asked(wish->cancel);
    if (page == NULL)
        return td_error_set(err, TD_UNAVAILABLE, "no server answers");
    return td_remote_listing_add_page(&model->listing, td_text_of(page), has_git_ids, err) &&
           td_remote_listing_finish(&model->listing, err);
}

/* ---- the place ------------------------------------------------------------------------------------------- */

struct place {
    struct tree tree;
    struct td_upstream_store *store;
    struct td_late_digests late;
    _Atomic bool stop;
};

/* Fetches a model of two files for which there were no digests. */
static void keep_unverified(struct td_upstream_store *store, const char *id)
{
    keep_deep(store, id, 4, false);
}

static void place_open(struct place *place)
{
    memset(place, 0, sizeof *place);
    tree_open(&place->tree);
    place->store = open_store(&place->tree, 0);
    place->late.source.list = list;
    place->late.store = place->store;
    place->late.via = "via";
    place->late.stop = &place->stop;
    this_thread = pthread_self();
    page = NULL;
    on_list = NULL;
    has_git_ids = was_stopped = false;
    is_list_held = false;
    lists = hashed_here = 0;
    keep_unverified(place->store, "org/m");
}

static void place_close(struct place *place)
{
    td_upstream_store_close(place->store);
    tree_close(&place->tree);
}

/* Compares when the upstream answers this page. */
static void check(struct place *place, const char *answer)
{
    page = answer;
    td_late_digests_check(&place->late);
}

/* Returns whether the model is kept, and not verified. */
static bool is_unverified(struct place *place)
{
    struct td_kept_model kept;
    return td_upstream_store_find(place->store, TD_TEXT("org/m"), &kept) && !kept.is_verified &&
           exists(&place->tree, "org/m/d/config.json") && td_late_digests_wrong(&place->late) == 0;
}

/* ---- tests ----------------------------------------------------------------------------------------------- */

static void equal_digests_make_the_copy_verified_also_after_a_start(void **state)
{
    struct place place;
    struct td_kept_model kept;
    struct td_kept_note note;
    (void)state;
    place_open(&place);
    assert_int_equal(td_upstream_store_count_unverified(place.store), 1);
    td_upstream_store_close(place.store);
    set_read(&place.tree, "org/m", 1000);
    place.late.store = place.store = open_store(&place.tree, 0);
    check(&place, "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("d/config.json", "2", SHA256) "]");
    assert_string_equal(via, "via");
    for (int i = 0; i < 2; i++) {
        assert_true(td_upstream_store_find(place.store, TD_TEXT("org/m"), &kept));
        assert_true(kept.is_verified);
        assert_int_equal(kept.read_ns, 1000 * 1000000000L); /* a record's time is when the model was read */
        assert_int_equal(td_upstream_store_count_unverified(place.store), 0);
        assert_false(td_upstream_store_take_unverified(place.store, 0, td_clock_ns(), &note));
        td_upstream_store_close(place.store);
        place.store = open_store(&place.tree, 0);
    }
    place_close(&place);
}

static void gits_names_are_digests(void **state)
{
    struct place place;
    struct td_kept_model kept;
    (void)state;
    place_open(&place);
    has_git_ids = true;
    check(&place, "[" FILE_OF("config.json", "2", GIT_ID) "," LFS_OF("d/config.json", "2", SHA256) "]");
    assert_true(td_upstream_store_find(place.store, TD_TEXT("org/m"), &kept));
    assert_true(kept.is_verified);
    place_close(&place);
}

/* shows: security.md upstream-late-digest */
static void a_copy_with_another_digest_leaves(void **state)
{
    static const char *const pages[] = {
        "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("d/config.json", "2", WRONG_SHA256) "]",
        "[" LFS_OF("config.json", "2", SHA256) "," FILE_OF("d/config.json", "2", WRONG_GIT_ID) "]",
        "[" FILE_OF("other", "2", GIT_ID) "," LFS_OF("d/config.json", "2", WRONG_SHA256) "]",
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct place place;
        struct td_kept_model kept;
        char record[128];
        size_t count;
        place_open(&place);
        has_git_ids = true;
        check(&place, pages[i]);
        assert_false(exists(&place.tree, "org/m"));
        assert_false(td_upstream_store_find(place.store, TD_TEXT("org/m"), &kept));
        assert_int_equal(td_upstream_store_bytes(place.store, &count), 0);
        name_in_store("records/%s", "org/m", record);
        assert_false(exists(&place.tree, record));
        assert_int_equal(td_late_digests_wrong(&place.late), 1);
        keep_unverified(place.store, "org/m"); /* it can be fetched anew */
        place_close(&place);
    }
}

static void what_cannot_be_compared_stays_and_is_compared_again(void **state)
{
    static const char *const pages[] = {
        NULL,                                                                                      /* no answer */
        "[]",                                                                                      /* no files */
        "[" FILE_OF("config.json", "2", "0000") "," FILE_OF("d/config.json", "2", "0000") "]",     /* no digests */
        "[" LFS_OF("config.json", "2", SHA256) "," FILE_OF("d/config.json", "2", "0000") "]",      /* not all */
        "[" LFS_OF("config.json", "2", SHA256) "]",                                                /* a file is gone */
        "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("d/config.json", "3", SHA256) "]",       /* another length */
        "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("D/config.json", "2", WRONG_SHA256) "]", /* another file */
    };
    struct place place;
    (void)state;
    place_open(&place);
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        check(&place, pages[i]);
        assert_int_equal(lists, (int)i + 1);
        CHECK(is_unverified(&place), "%s", pages[i]);
    }
    place_close(&place);
}

static void the_operators_directory_is_neither_compared_nor_removed(void **state)
{
    struct place place;
    (void)state;
    place_open(&place);
    tree_text(&place.tree, "org/m/d/notes", "the operator's");
    check(&place, "[" LFS_OF("config.json", "2", WRONG_SHA256) "]");
    assert_int_equal(lists, 0);
    assert_true(is_unverified(&place));
    place_close(&place);
}

static struct place *writing;

static void write_into_the_model(void)
{
    tree_poke(&writing->tree, "org/m/d/config.json", 0, "[]", 2);
}

static void what_the_operator_writes_during_a_comparison_stays(void **state)
{
    struct place place;
    (void)state;
    place_open(&place);
    writing = &place;
    on_list = write_into_the_model;
    check(&place, "[" LFS_OF("config.json", "2", WRONG_SHA256) "," LFS_OF("d/config.json", "2", SHA256) "]");
    assert_int_equal(td_late_digests_wrong(&place.late), 1);
    assert_true(exists(&place.tree, "org/m/config.json") && exists(&place.tree, "org/m/d/config.json"));
    place_close(&place);
}

static struct td_late_digests *nested;

static void check_again(void)
{
    td_late_digests_check(nested);
}

static void one_model_is_compared_at_a_time(void **state)
{
    struct place place;
    (void)state;
    place_open(&place);
    keep_unverified(place.store, "other");
    nested = &place.late;
    on_list = check_again;
    check(&place, NULL);
    assert_int_equal(lists, 1);
    on_list = NULL;
    check(&place, NULL);
    assert_int_equal(lists, 2);
    place_close(&place);
}

static void the_time_between_comparisons_doubles_up_to_a_day(void **state)
{
    static const uint64_t first_ns = UINT64_C(1000000000000);
    static const uint64_t day_ns = UINT64_C(86400000000000);
    struct place place;
    struct td_kept_note note;
    (void)state;
    uint64_t before_ns = td_clock_ns();
    place_open(&place);
    uint64_t at_ns = td_clock_ns() + first_ns;
    assert_false(td_upstream_store_take_unverified(place.store, first_ns, before_ns + first_ns - 1, &note));
    assert_true(td_upstream_store_take_unverified(place.store, first_ns, at_ns, &note));
    assert_string_equal(note.id, "org/m");
    for (uint64_t wait_ns = 2 * first_ns; wait_ns < 4 * day_ns; wait_ns *= 2) {
        uint64_t bounded_ns = wait_ns < day_ns ? wait_ns : day_ns;
        assert_false(td_upstream_store_take_unverified(place.store, first_ns, at_ns + bounded_ns - 1, &note));
        assert_true(td_upstream_store_take_unverified(place.store, first_ns, at_ns + bounded_ns, &note));
        at_ns += bounded_ns;
    }
    td_upstream_store_close(place.store);
    place.store = open_store(&place.tree, 0); /* a start begins anew */
    assert_true(td_upstream_store_take_unverified(place.store, first_ns, td_clock_ns() + first_ns, &note));
    place_close(&place);
}

/* Checks that the next unverified copy of org/m is first compared after this time. Leaves it there, taken. */
static void check_first_wait(struct place *place, uint64_t first_ns, uint64_t wait_ns, struct td_kept_note *note)
{
    uint64_t before_ns = td_clock_ns();
    keep_unverified(place->store, "org/m");
    assert_false(td_upstream_store_take_unverified(place->store, first_ns, before_ns + wait_ns - 1, note));
    assert_true(td_upstream_store_take_unverified(place->store, first_ns, td_clock_ns() + wait_ns, note));
    assert_string_equal(note->id, "org/m");
}

/* shows: security.md upstream-late-digest */
static void copies_that_are_wrong_again_and_again_are_compared_ever_more_rarely(void **state)
{
    static const uint64_t first_ns = UINT64_C(1000000000000);
    static const uint64_t day_ns = UINT64_C(86400000000000);
    struct place place;
    struct td_kept_note note;
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    place_open(&place);
    assert_true(td_upstream_store_take_unverified(place.store, first_ns, td_clock_ns() + first_ns, &note));
    for (uint64_t wait_ns = 2 * first_ns; wait_ns < 4 * day_ns; wait_ns *= 2) {
        assert_true(td_upstream_store_evict_wrong(place.store, &note));
        check_first_wait(&place, first_ns, wait_ns < day_ns ? wait_ns : day_ns, &note);
    }
    assert_true(td_upstream_store_set_verified(place.store, &note, &err)); /* the upstream is right after all */
    assert_true(td_upstream_store_evict_wrong(place.store, &note));
    td_upstream_store_close(place.store);
    place.store = open_store(&place.tree, 0); /* a start remembers none */
    check_first_wait(&place, first_ns, first_ns, &note);
    place_close(&place);
}

/* The operator changes it after it was taken: it has not left, so it is not the one that made the next one wait. */
static void a_wrong_copy_that_stays_is_not_remembered(void **state)
{
    static const uint64_t first_ns = UINT64_C(1000000000000);
    struct place place;
    struct td_kept_note note;
    (void)state;
    place_open(&place);
    assert_true(td_upstream_store_take_unverified(place.store, first_ns, td_clock_ns() + first_ns, &note));
    tree_text(&place.tree, "org/m/mine.txt", "x");
    assert_false(td_upstream_store_evict_wrong(place.store, &note));
    assert_true(exists(&place.tree, "org/m/mine.txt"));
    tree_remove(&place.tree, "org/m");
    check_first_wait(&place, first_ns, first_ns, &note);
    place_close(&place);
}

static void a_verified_copy_ends_the_memory_of_wrong_ones(void **state)
{
    static const uint64_t first_ns = UINT64_C(1000000000000);
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct place place;
        struct td_kept_note note;
        struct td_error err = TD_ERROR_INIT;
        uint64_t evicted = 0;
        struct td_root *folder = NULL;
        int64_t began_s;
        place_open(&place);
        td_upstream_store_close(place.store);
        place.store = open_store(&place.tree, 100);
        assert_true(td_upstream_store_take_unverified(place.store, first_ns, td_clock_ns() + first_ns, &note));
        assert_true(td_upstream_store_evict_wrong(place.store, &note));
        keep_deep(place.store, "org/m", 4, i == 0); /* verified at once, or later */
        if (i == 1) {
            assert_true(td_upstream_store_take_unverified(place.store, 1, td_clock_ns() + 4 * first_ns, &note));
            assert_true(td_upstream_store_set_verified(place.store, &note, &err));
        }
        CHECK(td_upstream_store_begin(place.store, "large", 100, &folder, &began_s, &evicted, &err), "%s", err.message);
        td_root_unref(folder);
        td_upstream_store_discard(place.store, "large");
        assert_int_equal(evicted, 1); /* makes room, which is no fault of its */
        check_first_wait(&place, first_ns, first_ns, &note);
        place_close(&place);
    }
}

static void a_copy_in_the_place_of_a_wrong_one_has_its_time(void **state)
{
    static const char wrong[] = "[" LFS_OF("config.json", "2", WRONG_SHA256) "]";
    struct place place;
    (void)state;
    place_open(&place);
    place.late.first_ns = 1;
    check(&place, wrong);
    assert_false(exists(&place.tree, "org/m"));
    keep_unverified(place.store, "org/m");
    keep_unverified(place.store, "other");
    place.late.first_ns = UINT64_C(3600000000000);
    check(&place, wrong); /* of the two, the one that has waited for 2 ns by now */
    assert_false(exists(&place.tree, "org/m"));
    check(&place, wrong);
    assert_true(exists(&place.tree, "other"));
    assert_int_equal(lists, 2);
    place_close(&place);
}

static void the_oldest_wrong_copies_are_forgotten(void **state)
{
    static struct td_wrong_copies copies;
    char id[TD_UPSTREAM_ID_BYTES];
    (void)state;
    memset(&copies, 0, sizeof copies);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, ""), 0);
    td_wrong_copies_forget(&copies, "m0");
    for (int i = 0; i < TD_WRONG_COPIES; i++) {
        (void)snprintf(id, sizeof id, "m%d", i);
        td_wrong_copies_note(&copies, id, 100 + (uint64_t)i);
    }
    td_wrong_copies_note(&copies, "m0", 1000); /* is the latest one now */
    td_wrong_copies_note(&copies, "new", 1);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "m0"), 1000);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "m1"), 0);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "m2"), 102);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "new"), 1);
    td_wrong_copies_forget(&copies, "m2");
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "m2"), 0);
    assert_int_equal(td_wrong_copies_wait_ns(&copies, "m3"), 103);
    assert_int_equal(copies.count, TD_WRONG_COPIES - 1);
}

static void wait_for_scans(struct td_catalog *catalog, uint64_t count)
{
    const struct timespec step = {.tv_nsec = 1000000};
    struct td_catalog_status status;
    for (td_catalog_get_status(catalog, &status); status.scan_count < count; td_catalog_get_status(catalog, &status))
        (void)nanosleep(&step, NULL);
}

/* Opens a catalog over the tree that scans on request, and waits for its first scan. */
static struct td_catalog *open_catalog(const struct place *place, size_t hash_threads)
{
    struct td_catalog_config config = {
        .root = place->tree.path, .max_maps = 10, .hash_threads = hash_threads, .scan = td_scan_config_default()};
    struct td_catalog *catalog = NULL;
    struct td_error err = TD_ERROR_INIT;
    config.scan.settle_ns = 0;
    CHECK(td_catalog_create(&config, &catalog, &err), "%s", err.message);
    wait_for_scans(catalog, 1);
    return catalog;
}

static void what_the_catalog_hashes_is_not_hashed_here(void **state)
{
    static const char both[] = "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("d/config.json", "2", SHA256) "]";
    struct place place;
    struct td_kept_model kept;
    (void)state;
    place_open(&place);
    place.late.catalog = open_catalog(&place, 1);
    struct td_snapshot *snapshot = td_catalog_acquire(place.late.catalog);
    const struct td_digest_wait how = {.until_ns = td_clock_ns() + UINT64_C(60000000000), .takes_any = true};
    for (size_t i = 0; i < snapshot->entry_count; i++)
        assert_true(td_catalog_wait_digest(place.late.catalog, snapshot, snapshot->entries[i].file, &how));
    assert_int_equal(snapshot->entry_count, 2);
    td_snapshot_unref(snapshot);
    check(&place, both);
    assert_int_equal(hashed_here, 0);
    wait_for_scans(place.late.catalog, 2); /* the hashing threads ask for one at their end */
    assert_true(td_upstream_store_find(place.store, TD_TEXT("org/m"), &kept));
    assert_true(kept.is_verified);
    keep_unverified(place.store, "new"); /* no scan has found it yet, and then the catalog hashes it */
    check(&place, both);
    assert_int_equal(hashed_here, 0);
    assert_true(td_upstream_store_find(place.store, TD_TEXT("new"), &kept));
    assert_false(kept.is_verified);
    td_catalog_destroy(place.late.catalog);
    place.late.catalog = open_catalog(&place, 0); /* that hashes nothing */
    check(&place, both);
    assert_int_equal(hashed_here, 2);
    assert_true(td_upstream_store_find(place.store, TD_TEXT("new"), &kept));
    assert_true(kept.is_verified);
    td_catalog_destroy(place.late.catalog);
    place_close(&place);
}

/* shows: security.md upstream-late-digest */
static void idle_threads_of_the_upstream_compare(void **state)
{
    const struct timespec step = {.tv_nsec = 1000000};
    struct place place;
    struct td_upstream *upstream = NULL;
    struct td_upstream_status status;
    struct td_error err = TD_ERROR_INIT;
    (void)state;
    place_open(&place);
    const struct td_upstream_config config = {
        .source = {.list = list}, .store = place.store, .upkeep_ns = 1000000, .max_names = 10};
    page = "[" LFS_OF("config.json", "2", SHA256) "," LFS_OF("d/config.json", "2", SHA256) "]";
    CHECK(td_upstream_create(&config, &upstream, &err), "%s", err.message);
    do {
        (void)nanosleep(&step, NULL);
        td_upstream_get_status(upstream, &status);
        assert_int_equal(status.kept_count, 1);
    } while (status.unverified > 0);
    assert_int_equal(status.wrong, 0);
    td_upstream_destroy(upstream);
    assert_int_equal(strlen(via), 16); /* of this server, so that a circle of servers notices */
    keep_unverified(place.store, "org/held");
    lists = 0;
    is_list_held = true;
    CHECK(td_upstream_create(&config, &upstream, &err), "%s", err.message);
    while (lists == 0)
        (void)nanosleep(&step, NULL);
    td_upstream_destroy(upstream); /* ends although the upstream does not answer */
    assert_true(was_stopped);
    place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_digests_make_the_copy_verified_also_after_a_start),
        cmocka_unit_test(gits_names_are_digests),
        cmocka_unit_test(a_copy_with_another_digest_leaves),
        cmocka_unit_test(what_cannot_be_compared_stays_and_is_compared_again),
        cmocka_unit_test(the_operators_directory_is_neither_compared_nor_removed),
        cmocka_unit_test(what_the_operator_writes_during_a_comparison_stays),
        cmocka_unit_test(one_model_is_compared_at_a_time),
        cmocka_unit_test(the_time_between_comparisons_doubles_up_to_a_day),
        cmocka_unit_test(copies_that_are_wrong_again_and_again_are_compared_ever_more_rarely),
        cmocka_unit_test(a_wrong_copy_that_stays_is_not_remembered),
        cmocka_unit_test(a_verified_copy_ends_the_memory_of_wrong_ones),
        cmocka_unit_test(a_copy_in_the_place_of_a_wrong_one_has_its_time),
        cmocka_unit_test(the_oldest_wrong_copies_are_forgotten),
        cmocka_unit_test(what_the_catalog_hashes_is_not_hashed_here),
        cmocka_unit_test(idle_threads_of_the_upstream_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
