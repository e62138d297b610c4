/* The upstream with a source that the test controls: one fetch for all, bytes before the end, failures, and what the
 * upstream remembers. */
#include "tests/unit/catalog/upstream_place.h"

#include "catalog/names/repo.h"
#include "core/waiting.h"

#include <glob.h>

static pthread_cond_t *_Atomic of_source; /* waits for it are not counted */
static _Atomic int timeouts;

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until);
int __real_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until);

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until)
{
    int sys = __real_pthread_cond_timedwait(condition, lock, until);
    if (sys == ETIMEDOUT && condition != of_source)
        timeouts++;
    return sys;
}

static void bytes_come_before_the_fetch_has_ended(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    struct td_upstream_progress progress;
    struct td_kept_model kept;
    struct stat st;
    char path[TREE_PATH_BYTES];
    allow(place, 1000, SENDS);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    const struct td_model *model = td_snapshot_find_model(snapshot, TD_TEXT("org/m"));
    const struct td_repo *repo = td_repo_find(snapshot, false, TD_TEXT("org/m"));
    assert_true(model != NULL && repo != NULL);
    assert_int_equal(model->entry_count, 2);
    assert_int_equal(model->file_bytes, WEIGHTS_BYTES + 2);
    for (size_t i = 0; i < snapshot->entry_count; i++) /* so neither tags nor the commit will change */
        assert_non_null(td_file_sha256(snapshot->entries[i].file));
    assert_string_equal(td_file_tag(td_snapshot_find_entry(snapshot, TD_TEXT("org/m/model.safetensors"))->file),
                        weights_hex);
    check_bytes(weights_of(snapshot), 0, 1000);
    assert_true(td_upstream_get_progress(place->upstream, TD_TEXT("org/m"), &progress));
    assert_true(progress.is_listed);
    assert_int_equal(progress.arrived_bytes, 1002);
    assert_int_equal(progress.total_bytes, WEIGHTS_BYTES + 2);
    tree_at(&place->tree, "org", path);
    assert_int_not_equal(stat(path, &st), 0); /* nothing is published */
    allow(place, WEIGHTS_BYTES, SENDS);
    check_bytes(weights_of(snapshot), 0, WEIGHTS_BYTES);
    await_published(place, 1);
    tree_at(&place->tree, "org/m/model.safetensors", path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, WEIGHTS_BYTES);
    assert_true(td_upstream_find(place->upstream, TD_TEXT("org/m"), &kept));
    assert_true(kept.is_verified);
    check_bytes(weights_of(snapshot), 5, WEIGHTS_BYTES - 5); /* the snapshot can still be read */
    td_snapshot_unref(snapshot);
}

struct asker {
    struct place *place;
    pthread_t thread;
    struct td_upstream_reply reply;
};

static void *run_asker(void *argument)
{
    struct asker *asker = argument;
    asker->reply = ask_by(asker->place, "org/m", "");
    return NULL;
}

static void many_ask_and_one_is_fetched(void **state)
{
    enum { ASKERS = 32 };
    struct place *place = *state;
    struct asker askers[ASKERS];
    place->source.is_listing_held = true;
    for (size_t i = 0; i < ASKERS; i++) {
        askers[i].place = place;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, run_asker, &askers[i]), 0);
    }
    allow(place, WEIGHTS_BYTES, SENDS);
    for (size_t i = 0; i < ASKERS; i++) {
        (void)pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].reply.answer, TD_UPSTREAM_SENDS);
        check_bytes(weights_of(askers[i].reply.snapshot), WEIGHTS_BYTES - 10, 10);
        td_snapshot_unref(askers[i].reply.snapshot);
    }
    await_published(place, 1);
    assert_int_equal(place->source.lists, 1);
    assert_int_equal(place->source.fetches, 1);
}

static void a_model_that_is_not_there_is_remembered(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    struct td_upstream_status status;
    place->source.has_model = false;
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask(place, "org/none", &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 1);
    assert_int_equal(ask(place, "../etc", &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(ask(place, "a/b/c", &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 1); /* such names are never asked for */
    td_upstream_get_status(place->upstream, &status);
    assert_int_equal(status.absent, 1);
    place_stop(place);
    place->absent_ns = 1;
    place_start(place);
    assert_int_equal(ask(place, "org/none", &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(ask(place, "org/none", &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 3);
}

/* shows: security.md upstream-many-models */
static void names_of_absent_models_do_not_grow_without_end(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    char id[32];
    place->source.has_model = false;
    for (int i = 0; i < NAMES + 3; i++) {
        (void)snprintf(id, sizeof id, "none-%d", i);
        place->client = (uint64_t)i;
        assert_int_equal(ask(place, id, &snapshot), TD_UPSTREAM_HAS_NOT);
    }
    assert_int_equal(place->source.lists, NAMES + 3);
    assert_int_equal(ask(place, id, &snapshot), TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, NAMES + 3);
}

/* shows: security.md upstream-wrong-digest */
static void wrong_bytes_are_never_published(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    struct td_error err = TD_ERROR_INIT;
    uint8_t byte;
    char path[TREE_PATH_BYTES];
    char etag[TD_SHA256_TEXT_BYTES + 2];
    (void)snprintf(etag, sizeof etag, "\"%s\"", weights_hex);
    allow(place, WEIGHTS_BYTES / 2, SENDS_WRONG);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    assert_true(td_blob_read(weights_of(snapshot), 0, &byte, 1, &err));
    assert_false(td_upstream_was_wrong(place->upstream, td_text_of(etag)));
    allow(place, WEIGHTS_BYTES, SENDS_WRONG);
    assert_false(td_blob_read(weights_of(snapshot), WEIGHTS_BYTES - 1, &byte, 1, &err));
    check_says(&err, "could not be fetched", "reader");
    assert_true(td_upstream_was_wrong(place->upstream, td_text_of(etag))); /* no client resumes with this tag */
    assert_false(td_upstream_was_wrong(place->upstream, TD_TEXT("\"another\"")));
    assert_false(td_upstream_was_wrong(place->upstream, TD_TEXT("")));
    td_snapshot_unref(snapshot);
    await_failed(place, TD_UPSTREAM_FAILED_CONTENT, 1);
    ask_in_vain(place, "org/m", TD_UPSTREAM_LATER, "the server's log has the reason");
    assert_int_equal(place->source.fetches, 1); /* for a while nothing is tried again */
    tree_at(&place->tree, "org", path);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Nobody knows whether the bytes that a reader has would have been right. */
static void tags_are_noted_whatever_a_fetch_fails_of(void **state)
{
    (void)state;
    for (int has_read = 0; has_read < 2; has_read++) {
        struct place place;
        struct td_snapshot *snapshot = NULL;
        uint8_t byte;
        char etag[TD_SHA256_TEXT_BYTES + 2];
        place_open(&place);
        (void)snprintf(etag, sizeof etag, "\"%s\"", weights_hex);
        allow(&place, WEIGHTS_BYTES / 2, BREAKS_OFF);
        assert_int_equal(ask(&place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
        assert_true(!has_read || td_blob_read(weights_of(snapshot), 0, &byte, 1, NULL));
        allow(&place, WEIGHTS_BYTES, BREAKS_OFF);
        await_failed(&place, TD_UPSTREAM_FAILED_UNREACHABLE, 1);
        CHECK(td_upstream_was_wrong(place.upstream, td_text_of(etag)) == (has_read == 1), "has read %d", has_read);
        td_snapshot_unref(snapshot);
        place_close(&place);
    }
}

/* Pages of lists: a file in Git, one in LFS, and one without a digest. */
#define GIT_FILE(path, size, oid) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":" size ",\"oid\":\"" oid "\"}"
#define LFS_FILE(path, size, sha256)                                                                  \
    "{\"type\":\"file\",\"path\":\"" path "\",\"size\":" size ",\"oid\":\"" CONFIG_OID "\",\"lfs\":{" \
    "\"oid\":\"" sha256 "\",\"size\":" size ",\"pointerSize\":134}}"
#define BARE_FILE(path, size) "{\"type\":\"file\",\"path\":\"" path "\",\"size\":" size "}"

/* Of "{}" (git hash-object, sha256sum), and the same with another first digit. */
#define CONFIG_OID "9e26dfeeb6e641a33dae4961196235bdb965b21b"
#define CONFIG_SHA256 "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
#define WRONG_OID "ae26dfeeb6e641a33dae4961196235bdb965b21b"
#define WRONG_SHA256 "54136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"

#define NO_DIGESTS "[" BARE_FILE("config.json", "2") "]"

static void no_digests_at_first(struct place *place, const char *then)
{
    place_open(place);
    place->source.pages[0] = NO_DIGESTS;
    place->source.pages[1] = then;
}

/* Fetches a model. Its first list has no digests. */
static void fetch_without_digests(struct place *place)
{
    struct td_snapshot *snapshot = NULL;
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    td_snapshot_unref(snapshot);
    await_published(place, 1);
}

static void release_list(struct place *place)
{
    pthread_mutex_lock(&place->source.lock);
    place->source.held_list = 0;
    pthread_mutex_unlock(&place->source.lock);
}

static void digests_that_are_there_with_the_last_byte_verify_the_copy(void **state)
{
    static const char *const pages[] = {
        "[" LFS_FILE("config.json", "2", CONFIG_SHA256) "]", "[" GIT_FILE("config.json", "2", CONFIG_OID) "]",
        "[" BARE_FILE("a", "7") "," LFS_FILE("config.json", "2", CONFIG_SHA256) "]", /* and a new file */
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct place place;
        struct td_kept_model kept;
        struct td_upstream_status status;
        no_digests_at_first(&place, pages[i]);
        fetch_without_digests(&place);
        assert_int_equal(place.source.lists, 2);
        assert_int_equal(strlen(place.source.via), 16); /* this server, so that a circle of servers notices */
        for (int starts = 0; starts < 2; starts++) {
            assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
            CHECK(kept.is_verified, "%s", pages[i]);
            td_upstream_get_status(place.upstream, &status);
            assert_int_equal(status.unverified, 0);
            place_stop(&place);
            place_start(&place);
        }
        place_close(&place);
    }
}

/* shows: security.md upstream-late-digest */
static void a_copy_without_digests_is_kept_unverified_and_never_compared(void **state)
{
    static const char *const pages[] = {
        NO_DIGESTS,
        "",                                                   /* no answer */
        "[]",                                                 /* no files */
        "[" LFS_FILE("config.json", "3", WRONG_SHA256) "]",   /* another length */
        "[" LFS_FILE("d/config.json", "2", WRONG_SHA256) "]", /* another file */
        "[" GIT_FILE("config.json", "2", "0000") "]",         /* no digest */
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct place place;
        struct td_kept_model kept;
        struct td_upstream_status status;
        char path[TREE_PATH_BYTES];
        no_digests_at_first(&place, pages[i]);
        place_stop(&place);
        place.upkeep_ns = 1000000;
        place_start(&place);
        fetch_without_digests(&place);
        place.source.pages[1] = "[" LFS_FILE("config.json", "2", WRONG_SHA256) "]"; /* is not asked for */
        for (int starts = 0; starts < 2; starts++) {
            nap_ms(20);
            td_upstream_get_status(place.upstream, &status);
            assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
            CHECK(!kept.is_verified && status.unverified == 1, "%s", pages[i]);
            tree_at(&place.tree, "org/m/config.json", path);
            assert_int_equal(access(path, F_OK), 0);
            place_stop(&place);
            assert_int_equal(place.source.lists, 2);
            place_start(&place);
        }
        place_close(&place);
    }
}

static void one_file_without_a_digest_leaves_the_copy_unverified(void **state)
{
    struct place place;
    struct td_kept_model kept;
    (void)state;
    no_digests_at_first(&place, "[" LFS_FILE("config.json", "2", CONFIG_SHA256) "," BARE_FILE("other.json", "2") "]");
    place.source.pages[0] = "[" BARE_FILE("config.json", "2") "," BARE_FILE("other.json", "2") "]";
    fetch_without_digests(&place);
    assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
    assert_false(kept.is_verified);
    place_close(&place);
}

/* shows: security.md upstream-late-digest */
static void bytes_with_another_digest_than_the_last_list_has_are_not_published(void **state)
{
    static const char *const pages[] = {
        "[" LFS_FILE("config.json", "2", WRONG_SHA256) "]",
        "[" GIT_FILE("config.json", "2", WRONG_OID) "]",
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pages); i++) {
        struct place place;
        struct td_kept_model kept;
        struct td_snapshot *snapshot = NULL;
        char path[TREE_PATH_BYTES];
        no_digests_at_first(&place, pages[i]);
        place.source.held_list = 2;
        assert_int_equal(ask(&place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
        td_snapshot_unref(snapshot);
        release_list(&place);
        await_failed(&place, TD_UPSTREAM_FAILED_CONTENT, 1);
        ask_in_vain(&place, "org/m", TD_UPSTREAM_LATER, "the server's log has the reason");
        assert_true(td_upstream_was_wrong(place.upstream, TD_TEXT("\"" CONFIG_SHA256 "\""))); /* the tag they had */
        assert_false(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
        tree_at(&place.tree, "org", path);
        assert_int_not_equal(access(path, F_OK), 0);
        place_close(&place);
    }
}

/* Waits until the upstream is asked for its list a second time. */
static void await_last_list(struct place *place)
{
    bool is_asking = false;
    while (!is_asking) {
        pthread_mutex_lock(&place->source.lock);
        is_asking = place->source.lists == 2;
        wait_a_little(&place->source);
        pthread_mutex_unlock(&place->source.lock);
    }
}

/* shows: security.md upstream-late-digest */
static void an_upstream_that_holds_the_last_list_does_not_hold_up_publishing(void **state)
{
    struct place place;
    struct td_kept_model kept;
    (void)state;
    no_digests_at_first(&place, "[" LFS_FILE("config.json", "2", CONFIG_SHA256) "]");
    place_stop(&place);
    place.late_list_ns = 50000000;
    place_start(&place);
    place.source.held_list = 2; /* is never released */
    fetch_without_digests(&place);
    assert_int_equal(place.source.lists, 2);
    assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
    assert_false(kept.is_verified);
    place_close(&place);
}

/* The digests are those of the bytes that were sent, computed as they arrived. */
static void files_are_not_read_again_for_late_digests(void **state)
{
    struct place place;
    struct td_kept_model kept;
    struct td_snapshot *snapshot = NULL;
    char pattern[TREE_PATH_BYTES];
    glob_t found;
    (void)state;
    no_digests_at_first(&place, "[" GIT_FILE("config.json", "2", CONFIG_OID) "]");
    place.source.held_list = 2;
    assert_int_equal(ask(&place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    td_snapshot_unref(snapshot);
    await_last_list(&place);
    tree_at(&place.tree, ".tensord-upstream/incoming/*/files/config.json", pattern);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    FILE *file = fopen(found.gl_pathv[0], "r+");
    assert_non_null(file);
    assert_int_equal(fputs("[]", file), 1);
    assert_int_equal(fclose(file), 0);
    globfree(&found);
    release_list(&place);
    await_published(&place, 1);
    assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
    assert_true(kept.is_verified);
    place_close(&place);
}

#define WEIGHTS_OID "1c28c629bff5265044e2a512d6bee776683b692f" /* of the large file (git hash-object) */

/* Writes the list of a model whose one file is the large file, with this Git object id; NULL: without a digest. */
static void write_page(char out[256], const char *oid)
{
    (void)snprintf(out, 256, "[{\"type\":\"file\",\"path\":\"model.safetensors\",\"size\":%d%s%s%s}]", WEIGHTS_BYTES,
                   oid == NULL ? "" : ",\"oid\":\"", oid == NULL ? "" : oid, oid == NULL ? "" : "\"");
}

/* The source computes no Git object id of the large file while it arrives, as for files over TD_FETCH_GIT_BYTES. */
static void a_file_is_read_for_a_late_git_id_that_was_not_computed(void **state)
{
    (void)state;
    for (int is_right = 0; is_right < 2; is_right++) {
        struct place place;
        struct td_kept_model kept;
        struct td_snapshot *snapshot = NULL;
        char pages[2][256];
        char path[TREE_PATH_BYTES];
        write_page(pages[0], NULL);
        write_page(pages[1], is_right == 1 ? WEIGHTS_OID : WRONG_OID);
        place_open(&place);
        place.source.pages[0] = pages[0];
        place.source.pages[1] = pages[1];
        allow(&place, WEIGHTS_BYTES, SENDS);
        place.source.held_list = 2; /* else the fetch may fail before ask returns */
        assert_int_equal(ask(&place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
        td_snapshot_unref(snapshot);
        release_list(&place);
        if (is_right == 1)
            await_published(&place, 1);
        else
            await_failed(&place, TD_UPSTREAM_FAILED_CONTENT, 1);
        assert_int_equal(place.source.lists, 2);
        bool is_kept = td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept);
        CHECK(is_kept == (is_right == 1) && (!is_kept || kept.is_verified), "is right %d", is_right);
        tree_at(&place.tree, "org/m/model.safetensors", path);
        assert_int_equal(access(path, F_OK) == 0, is_right);
        place_close(&place);
    }
}

static void a_stop_ends_the_last_ask_for_digests_and_the_next_start_goes_on(void **state)
{
    struct place place;
    struct td_kept_model kept;
    struct td_snapshot *snapshot = NULL;
    char path[TREE_PATH_BYTES];
    (void)state;
    uint64_t began_ns = td_clock_ns();
    no_digests_at_first(&place, "[" LFS_FILE("config.json", "2", CONFIG_SHA256) "]");
    place.source.held_list = 2;
    assert_int_equal(ask(&place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    td_snapshot_unref(snapshot);
    assert_true(td_clock_ns() - began_ns < place.wait_ns / 2); /* the model shows before the upstream has answered */
    await_last_list(&place);
    place_stop(&place); /* ends although the upstream does not answer */
    tree_at(&place.tree, "org", path);
    assert_int_not_equal(access(path, F_OK), 0);
    place_start(&place);
    fetch_without_digests(&place);
    assert_true(td_upstream_find(place.upstream, TD_TEXT("org/m"), &kept));
    assert_true(kept.is_verified);
    assert_int_equal(place.source.lists, 3); /* which had all digests */
    place_close(&place);
}

static void a_fetch_that_begins_anew_ends_its_readers(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    uint8_t byte;
    allow(place, 1000, DISCARDS);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    allow(place, WEIGHTS_BYTES, DISCARDS);
    assert_false(td_blob_read(weights_of(snapshot), WEIGHTS_BYTES - 1, &byte, 1, NULL));
    td_snapshot_unref(snapshot);
    await_failed(place, TD_UPSTREAM_FAILED_CONTENT, 1);
    assert_true(place->source.was_cancelled);
}

/* shows: security.md upstream-full-disk */
static void a_full_disk_is_an_answer_and_gives_its_room_back(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    size_t count;
    allow(place, WEIGHTS_BYTES, HAS_FULL_DISK);
    (void)ask(place, "org/m", &snapshot); /* may be early */
    td_snapshot_unref(snapshot);
    await_failed(place, TD_UPSTREAM_FAILED_SPACE, 1);
    assert_true(ask_in_vain(place, "org/m", TD_UPSTREAM_HAS_NO_ROOM, "there is no room") >= 1);
    struct td_upstream_status status;
    do
        td_upstream_get_status(place->upstream, &status);
    while (status.fetching > 0 || td_upstream_store_bytes(place->store, &count) > 0);
}

static void short_memory_is_no_full_disk(void **state)
{
    static const enum behaviour behaviours[] = {HAS_NO_MEMORY, HAS_NO_THREAD};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(behaviours); i++) {
        struct place place;
        struct td_snapshot *snapshot = NULL;
        place_open(&place);
        allow(&place, WEIGHTS_BYTES, behaviours[i]);
        (void)ask(&place, "org/m", &snapshot); /* may be early */
        td_snapshot_unref(snapshot);
        await_failed(&place, TD_UPSTREAM_FAILED_OTHER, 1);
        assert_true(ask_in_vain(&place, "org/m", TD_UPSTREAM_LATER, "the server's log has the reason") >= 1);
        place_close(&place);
    }
}

/* The other model, too, has two files. */
static void descriptors_that_others_have_are_no_failure_of_the_upstream(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    place_stop(place);
    place->max_files = 3;
    place_start(place);
    allow(place, 1000, SENDS);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    ask_in_vain(place, "org/other", TD_UPSTREAM_LATER, "the server's log has the reason");
    await_failed(place, TD_UPSTREAM_FAILED_OTHER, 1);
    td_snapshot_unref(snapshot);
}

static void models_of_too_many_files_are_refused_before_anything_is_removed(void **state)
{
    struct place *place = *state;
    size_t count;
    place_stop(place);
    place->max_files = 1;
    place_start(place);
    assert_int_equal(ask_in_vain(place, "org/m", TD_UPSTREAM_HAS_NO_ROOM, "too large for this server"), 0);
    assert_int_equal(td_upstream_store_bytes(place->store, &count), 0);
}

static void a_stop_ends_readers_and_the_next_start_goes_on(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    uint8_t byte;
    allow(place, 1000, SENDS);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    check_bytes(weights_of(snapshot), 0, 1000);
    td_upstream_stop(place->upstream);
    assert_false(td_blob_read(weights_of(snapshot), 1000, &byte, 1, NULL));
    ask_in_vain(place, "org/m", TD_UPSTREAM_LATER, "stopping");
    td_snapshot_unref(snapshot);
    place_stop(place);
    place_start(place);
    allow(place, WEIGHTS_BYTES, SENDS);
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    check_bytes(weights_of(snapshot), 0, WEIGHTS_BYTES);
    td_snapshot_unref(snapshot);
    await_published(place, 1);
    place_stop(place);
    place_start(place); /* a published model is not asked for again: the caller's snapshot is old */
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENT);
    assert_int_equal(place->source.lists, 2);
}

static void a_list_that_takes_long_is_an_error_after_a_while(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    place_stop(place);
    place->wait_ns = 50000000;
    place->source.is_listing_held = true;
    place_start(place);
    ask_in_vain(place, "org/m", TD_UPSTREAM_LATER, "the list of files");
    td_waiting_forbid(); /* a thread that may not wait is refused where it would wait */
    (void)ask(place, "org/m", &snapshot);
    assert_true(td_waiting_allow());
    allow(place, WEIGHTS_BYTES, SENDS);
    await_published(place, 1);
    td_waiting_forbid(); /* what is known is answered by any thread */
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    assert_false(td_waiting_allow());
    td_snapshot_unref(snapshot);
}

/* Nothing is listed until the first server may be asked again, and then the models that wait come. */
static void all_servers_ask_for_patience_and_the_queue_pauses(void **state)
{
    struct place *place = *state;
    struct td_upstream_status status;
    place->source.is_busy = true;
    place->source.patience_ns = 40 * TD_NS_PER_S;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ask_in_vain(place, "org/m", TD_UPSTREAM_LATER, "which has asked clients to wait"), 40);
    assert_int_equal(place->source.lists, 1);
    td_upstream_get_status(place->upstream, &status);
    assert_int_equal(status.failures[TD_UPSTREAM_FAILED_UNREACHABLE], 0);
}

/* One server asks for patience, and another one has failed. */
static void one_server_asks_for_patience_and_nothing_pauses(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    place->source.is_busy = true;
    ask_in_vain(place, "org/m", TD_UPSTREAM_LATER, "the server's log has the reason");
    await_failed(place, TD_UPSTREAM_FAILED_UNREACHABLE, 1);
    pthread_mutex_lock(&place->source.lock);
    place->source.is_busy = false;
    pthread_mutex_unlock(&place->source.lock);
    allow(place, WEIGHTS_BYTES, SENDS);
    assert_int_equal(ask(place, "org/other", &snapshot), TD_UPSTREAM_SENDS);
    td_snapshot_unref(snapshot);
}

/* The pause ends by itself, and waiting requests get the model. */
static void models_come_when_the_pause_is_over(void **state)
{
    struct place *place = *state;
    allow(place, WEIGHTS_BYTES, SENDS);
    place->source.is_busy = true;
    place->source.patience_ns = TD_NS_PER_S / 2;
    struct asker asker = {.place = place};
    assert_int_equal(pthread_create(&asker.thread, NULL, run_asker, &asker), 0);
    pthread_mutex_lock(&place->source.lock);
    while (place->source.lists == 0)
        wait_a_little(&place->source);
    place->source.is_busy = false;
    pthread_mutex_unlock(&place->source.lock);
    (void)pthread_join(asker.thread, NULL);
    assert_int_equal(asker.reply.answer, TD_UPSTREAM_SENDS);
    assert_true(td_clock_ns() >= atomic_load(&place->source.due_ns));
    assert_int_equal(place->source.lists, 2);
    td_snapshot_unref(asker.reply.snapshot);
}

/* On a server that drains no request waits for a list; the fetch continues for requests that come again. */
static void waits_for_lists_end_before_the_fetch(void **state)
{
    struct place *place = *state;
    struct asker asker = {.place = place};
    place->source.is_listing_held = true;
    assert_int_equal(pthread_create(&asker.thread, NULL, run_asker, &asker), 0);
    pthread_mutex_lock(&place->source.lock);
    while (place->source.lists == 0)
        wait_a_little(&place->source);
    pthread_mutex_unlock(&place->source.lock);
    uint64_t began_ns = td_clock_ns();
    td_upstream_end_waits(place->upstream);
    assert_int_equal(pthread_join(asker.thread, NULL), 0);
    assert_true(asker.reply.answer == TD_UPSTREAM_LATER && td_clock_ns() - began_ns < place->wait_ns / 2);
    allow(place, WEIGHTS_BYTES, SENDS);
    await_published(place, 1);
}

/* shows: security.md upstream-circles */
static void requests_that_come_round_fetch_nothing(void **state)
{
    struct place *place = *state;
    char own[TD_UPSTREAM_VIA_BYTES];
    char many[TD_UPSTREAM_VIA_BYTES] = "";
    place->source.has_model = false;
    const char *other = "00112233445566ff";
    assert_int_equal(ask_by(place, "a", other).answer, TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 1);
    assert_int_equal(strncmp(place->source.via, "00112233445566ff,", 17), 0); /* ours is behind it */
    (void)snprintf(own, sizeof own, "%s", place->source.via);
    assert_int_equal(strlen(own), 33);
    assert_int_equal(ask_by(place, "b", own).answer, TD_UPSTREAM_HAS_NOT);
    for (int i = 0; i < TD_UPSTREAM_VIA_MOST; i++)
        (void)snprintf(many + strlen(many), sizeof many - strlen(many), "%s%015dx", i == 0 ? "" : ",", i);
    assert_int_equal(ask_by(place, "c", many).answer, TD_UPSTREAM_HAS_NOT);
    assert_int_equal(ask_by(place, "d", "x\r\nHost: y").answer, TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 1);
}

/* shows: security.md upstream-made-up-path */
static void a_made_up_way_makes_no_model_absent_for_others(void **state)
{
    struct place *place = *state;
    struct td_snapshot *snapshot = NULL;
    allow(place, WEIGHTS_BYTES, SENDS);
    place->source.has_model = false; /* as an upstream says that refuses a long way */
    const char *way = "00112233445566ff,00112233445566aa";
    assert_int_equal(ask_by(place, "org/m", way).answer, TD_UPSTREAM_HAS_NOT);
    assert_int_equal(ask_by(place, "org/m", way).answer, TD_UPSTREAM_HAS_NOT);
    assert_int_equal(place->source.lists, 1);
    place->source.has_model = true;
    assert_int_equal(ask(place, "org/m", &snapshot), TD_UPSTREAM_SENDS);
    td_snapshot_unref(snapshot);
}

/* shows: security.md upstream-many-models */
static void too_many_models_at_once_are_refused(void **state)
{
    enum { MOST = TD_UPSTREAM_MODELS + TD_UPSTREAM_QUEUE };
    struct place *place = *state;
    struct td_upstream_status status;
    char id[32];
    place_stop(place);
    place->wait_ns = 1;
    place->source.is_listing_held = true;
    place->source.has_model = false;
    place_start(place);
    for (int i = 0; i < MOST; i++) {
        (void)snprintf(id, sizeof id, "m%d", i);
        place->client = (uint64_t)i % 8;
        do /* the first ones leave the queue when a thread takes them */
            td_upstream_get_status(place->upstream, &status);
        while (i >= TD_UPSTREAM_MODELS && status.fetching < TD_UPSTREAM_MODELS);
        ask_in_vain(place, id, TD_UPSTREAM_LATER, "the list of files");
    }
    td_upstream_get_status(place->upstream, &status);
    assert_int_equal(status.fetching, TD_UPSTREAM_MODELS);
    assert_int_equal(status.waiting, TD_UPSTREAM_QUEUE);
    place->client = 1; /* has some waiting */
    assert_true(ask_in_vain(place, "one-more", TD_UPSTREAM_LATER, "wait to be fetched") > 1);
    place->client = 99; /* has none, and takes the place of one */
    ask_in_vain(place, "one-more", TD_UPSTREAM_LATER, "the list of files");
    td_upstream_get_status(place->upstream, &status);
    assert_int_equal(status.waiting, TD_UPSTREAM_QUEUE);
}

/* shows: security.md upstream-name-taken */
static void what_the_operator_has_is_not_fetched(void **state)
{
    struct place *place = *state;
    tree_directory(&place->tree, "org/m");
    ask_in_vain(place, "org/m", TD_UPSTREAM_IS_TAKEN, "something else has this name");
    assert_int_equal(place->source.fetches, 0);
}

/* However many threads are idle, they look once in a tenth of a second in all. */
static void one_idle_thread_looks_for_what_is_wanted(void **state)
{
    enum { LOOKS = 8 };
    struct place place;
    struct td_snapshot *snapshot = NULL;
    (void)state;
    place_open(&place);
    of_source = &place.source.changed;
    allow(&place, 0, SENDS);
    assert_int_equal(ask(&place, "org/many", &snapshot), TD_UPSTREAM_SENDS); /* of whose files some wait */
    uint64_t began_ns = td_clock_ns();
    timeouts = 0;
    while (timeouts < LOOKS && td_clock_ns() - began_ns < 20 * TD_NS_PER_S)
        nap_ms(2);
    assert_true(timeouts >= LOOKS);
    uint64_t took_ns = td_clock_ns() - began_ns;
    CHECK(took_ns >= UINT64_C(100000000) * (LOOKS - 2), "%d looks in %llu ns", LOOKS, (unsigned long long)took_ns);
    td_snapshot_unref(snapshot);
    place_close(&place);
    of_source = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, bytes_come_before_the_fetch_has_ended),
        TEST_IN(place, many_ask_and_one_is_fetched),
        TEST_IN(place, a_model_that_is_not_there_is_remembered),
        TEST_IN(place, names_of_absent_models_do_not_grow_without_end),
        TEST_IN(place, wrong_bytes_are_never_published),
        cmocka_unit_test(tags_are_noted_whatever_a_fetch_fails_of),
        cmocka_unit_test(digests_that_are_there_with_the_last_byte_verify_the_copy),
        cmocka_unit_test(a_copy_without_digests_is_kept_unverified_and_never_compared),
        cmocka_unit_test(one_file_without_a_digest_leaves_the_copy_unverified),
        cmocka_unit_test(bytes_with_another_digest_than_the_last_list_has_are_not_published),
        cmocka_unit_test(an_upstream_that_holds_the_last_list_does_not_hold_up_publishing),
        cmocka_unit_test(files_are_not_read_again_for_late_digests),
        cmocka_unit_test(a_file_is_read_for_a_late_git_id_that_was_not_computed),
        cmocka_unit_test(a_stop_ends_the_last_ask_for_digests_and_the_next_start_goes_on),
        TEST_IN(place, a_fetch_that_begins_anew_ends_its_readers),
        TEST_IN(place, a_full_disk_is_an_answer_and_gives_its_room_back),
        cmocka_unit_test(short_memory_is_no_full_disk),
        TEST_IN(place, descriptors_that_others_have_are_no_failure_of_the_upstream),
        TEST_IN(place, models_of_too_many_files_are_refused_before_anything_is_removed),
        TEST_IN(place, a_stop_ends_readers_and_the_next_start_goes_on),
        TEST_IN(place, a_list_that_takes_long_is_an_error_after_a_while),
        TEST_IN(place, all_servers_ask_for_patience_and_the_queue_pauses),
        TEST_IN(place, one_server_asks_for_patience_and_nothing_pauses),
        TEST_IN(place, models_come_when_the_pause_is_over),
        TEST_IN(place, waits_for_lists_end_before_the_fetch),
        TEST_IN(place, requests_that_come_round_fetch_nothing),
        TEST_IN(place, a_made_up_way_makes_no_model_absent_for_others),
        TEST_IN(place, too_many_models_at_once_are_refused),
        TEST_IN(place, what_the_operator_has_is_not_fetched),
        cmocka_unit_test(one_idle_thread_looks_for_what_is_wanted),
    };
    hex_of_weights(weights_hex);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
