/* Pushed manifests and tags: what a tag names, what keeps a manifest, and a disk that fails. */
#include "catalog/publish/publish_manifests.h"

#include "catalog/publish/publish_collect.h"
#include "core/clock.h"
#include "tests/unit/catalog/publish_place.h"

enum { HOUR = 3600, DAY = 86400 };

static struct {
    size_t calls, nth; /* the call that fails, from 1; 0: no call does */
    bool has_unsynced; /* a rename that no sync has followed */
} disk;

int __wrap_fsync(int fd);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);

static bool fails(void)
{
    if (++disk.calls != disk.nth)
        return false;
    errno = EIO;
    return true;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    disk.has_unsynced = false;
    return fails() ? -1 : 0;
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    disk.has_unsynced = true;
    return fails() ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

static void arm(size_t nth)
{
    disk.calls = 0;
    disk.nth = nth;
}

/* A manifest that is here as a blob. */
struct pushed {
    char text[2048];
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_arena arena;
    struct td_pushed_manifest manifest;
};

static void write_item(char *out, size_t capacity, const char *content)
{
    char hex[TD_SHA256_TEXT_BYTES];
    hex_of(content, hex);
    (void)snprintf(out, capacity, "{\"mediaType\":\"t\",\"digest\":\"sha256:%s\",\"size\":%zu}", hex, strlen(content));
}

/* Makes a manifest with this configuration and subject (NULL: none), as its blobs. An index: `config` is a manifest
 * that it names. */
static void make(struct publish_place *place, struct pushed *pushed, const char *config, const char *subject,
                 bool is_index)
{
    char item[256];
    char of[256] = "null";
    struct td_error err = TD_ERROR_INIT;
    write_item(item, sizeof item, config);
    if (subject != NULL)
        write_item(of, sizeof of, subject);
    (void)snprintf(pushed->text, sizeof pushed->text,
                   is_index ? "{\"schemaVersion\":2,\"manifests\":[%s],\"subject\":%s}"
                            : "{\"schemaVersion\":2,\"config\":%s,\"layers\":[],\"subject\":%s}",
                   item, of);
    if (!is_index)
        put_blob(place, config);
    put_blob(place, pushed->text);
    td_sha256(pushed->text, strlen(pushed->text), pushed->sha256);
    td_arena_init(&pushed->arena, 0);
    CHECK(td_pushed_manifest_read(td_text_of(pushed->text), &pushed->arena, &pushed->manifest, &err), "%s",
          err.message);
}

static void put(struct publish_place *place, struct pushed *pushed, bool is_by_digest)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_manifest_put(&place->repo, pushed->sha256, &pushed->manifest, is_by_digest, &err), "%s",
          err.message);
}

static void unmake(struct pushed *pushed)
{
    td_arena_fini(&pushed->arena);
}

static void tag(struct publish_place *place, const char *name, const struct pushed *pushed, const char *commit)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_tag_put(&place->repo, name, pushed->sha256, commit, &err), "%s", err.message);
}

/* Returns whether the tag names the manifest. */
static bool names(const struct publish_place *place, const char *name, const struct pushed *pushed)
{
    uint8_t sha256[TD_SHA256_BYTES];
    return td_publish_tag_find(&place->repo, name, sha256) && memcmp(sha256, pushed->sha256, sizeof sha256) == 0;
}

static bool is_here(const struct publish_place *place, const struct pushed *pushed)
{
    return td_publish_manifest_is_here(&place->repo, pushed->sha256);
}

static size_t collect_later(struct publish_place *place, int64_t seconds)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_collected collected;
    const struct td_collect_rules rules = {.now_s = td_wall_now().seconds + seconds,
                                           .keep_commits_s = HOUR,
                                           .more = td_publish_collect_manifests,
                                           .upload_expires_s = DAY};
    CHECK(td_publish_collect(&place->repo, &rules, &collected, &err), "%s", err.message);
    if (collected.trash[0] != '\0')
        td_own_folder_remove(&place->disk.own, collected.trash);
    return (size_t)collected.blobs;
}

static bool count_referrer(void *context, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    size_t *count = context;
    (void)sha256;
    (void)err;
    ++*count;
    return true;
}

static size_t count_referrers(const struct publish_place *place, const char *subject)
{
    uint8_t sha256[TD_SHA256_BYTES];
    size_t count = 0;
    td_sha256(subject, strlen(subject), sha256);
    assert_true(td_publish_each_referrer(&place->repo, sha256, count_referrer, &count, NULL));
    return count;
}

static void manifests_are_read_as_they_were_pushed(void **state)
{
    struct publish_place *place = *state;
    struct pushed one;
    char *bytes;
    size_t len;
    make(place, &one, "config", NULL, false);
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_publish_manifest_read(&place->repo, one.sha256, &bytes, &len, &err)); /* a blob like any other */
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_false(td_publish_has_manifests(&place->repo));
    put(place, &one, false);
    reopen(place);
    assert_true(td_publish_has_manifests(&place->repo));
    assert_true(td_publish_manifest_read(&place->repo, one.sha256, &bytes, &len, NULL));
    assert_int_equal(len, strlen(one.text));
    assert_memory_equal(bytes, one.text, len);
    free(bytes);
    unmake(&one);
}

static void a_tag_names_a_manifest_while_its_revision_is_at_its_commit(void **state)
{
    struct publish_place *place = *state;
    struct pushed one;
    struct pushed two;
    char first[TD_COMMIT_BYTES];
    make(place, &one, "1", NULL, false);
    make(place, &two, "2", NULL, false);
    put(place, &one, false);
    put(place, &two, false);
    tag(place, "latest", &one, NULL); /* in new/: there is no revision */
    assert_true(names(place, "latest", &one));
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    assert_false(names(place, "latest", &one)); /* main was made since */
    tag(place, "latest", &one, first);
    assert_true(names(place, "latest", &one));
    commit_is(place, &(struct ask){.files = "a=2"}, TD_COMMIT_MOVED);
    assert_false(names(place, "latest", &one));
    tag(place, "latest", &two, NULL);
    assert_true(names(place, "latest", &two));
    /* the same commit with another manifest counts at once; another commit, once the revision is moved */
    tag(place, "latest", &one, place->result.commit);
    assert_true(names(place, "latest", &one));
    tag(place, "latest", &two, first);
    assert_true(names(place, "latest", &one));
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    assert_true(names(place, "latest", &two));
    reopen(place);
    assert_true(names(place, "latest", &two));
    assert_true(td_publish_tag_remove(&place->repo, "latest"));
    assert_false(names(place, "latest", &two) || td_publish_tag_remove(&place->repo, "latest") == false);
    /* names that no revision can have */
    tag(place, "0123456789012345678901234567890123456789", &one, NULL);
    tag(place, "a..b", &one, NULL);
    tag(place, "v1.new", &two, NULL);
    tag(place, "v1", &one, NULL);
    assert_true(names(place, "0123456789012345678901234567890123456789", &one) && names(place, "a..b", &one));
    assert_true(names(place, "v1.new", &two) && names(place, "v1", &one));
    assert_false(td_publish_tag_find(&place->repo, "../blobs", one.sha256));
    unmake(&one);
    unmake(&two);
}

static void what_keeps_manifests_and_their_blobs(void **state)
{
    struct publish_place *place = *state;
    struct pushed tagged;
    struct pushed left;
    struct pushed child;
    struct pushed index;
    struct pushed signature;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    make(place, &tagged, "tagged", NULL, false);
    make(place, &left, "left", NULL, false);
    make(place, &child, "child", NULL, false);
    make(place, &index, child.text, NULL, true);
    make(place, &signature, "signature", left.text, false);
    put(place, &tagged, false);
    put(place, &left, false);
    put(place, &child, false);
    put(place, &index, false);
    put(place, &signature, true);
    tag(place, "t", &left, NULL);
    tag(place, "t", &tagged, NULL);
    tag(place, "i", &index, NULL);
    assert_int_equal(count_referrers(place, left.text), 1);

    (void)collect_later(place, HOUR - 60);
    assert_true(is_here(place, &left));
    assert_int_equal(collect_later(place, 10 * DAY), 2); /* the manifest that the tag left, and its configuration */
    assert_false(is_here(place, &left) || has_blob(place, "left"));
    assert_true(is_here(place, &tagged) && is_here(place, &child) && is_here(place, &index));
    assert_true(has_blob(place, "tagged") && has_blob(place, "child") && has_blob(place, tagged.text));
    assert_true(is_here(place, &signature)); /* goes when it was not referred to for as long */
    assert_int_equal(collect_later(place, 20 * DAY), 2);
    assert_false(is_here(place, &signature) || has_blob(place, "signature"));
    assert_int_equal(count_referrers(place, left.text), 0);

    assert_true(td_publish_tag_remove(&place->repo, "i"));
    assert_int_equal(collect_later(place, 10 * DAY), 3); /* the index, its manifest, and that one's configuration */
    assert_true(names(place, "t", &tagged));
    unmake(&tagged);
    unmake(&left);
    unmake(&child);
    unmake(&index);
    unmake(&signature);
}

static void manifests_by_digest_stay_until_they_are_deleted(void **state)
{
    struct publish_place *place = *state;
    struct pushed one;
    make(place, &one, "1", "subject", false);
    put(place, &one, true);
    put(place, &one, false); /* again by a tag, which goes */
    tag(place, "t", &one, NULL);
    assert_true(td_publish_tag_remove(&place->repo, "t"));
    (void)collect_later(place, 10 * DAY);
    assert_true(is_here(place, &one) && has_blob(place, "1"));
    tag(place, "t", &one, NULL);
    tag(place, "u", &one, NULL);
    assert_int_equal(count_referrers(place, "subject"), 1);
    assert_true(td_publish_manifest_remove(&place->repo, one.sha256, NULL));
    assert_false(is_here(place, &one) || names(place, "t", &one) || names(place, "u", &one));
    assert_int_equal(count_referrers(place, "subject"), 0);
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_publish_manifest_remove(&place->repo, one.sha256, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_int_equal(collect_later(place, 10 * DAY), 2);
    unmake(&one);
}

/* When a manifest cannot be read, nothing is known of what it names, so every blob stays. */
static void a_damaged_manifest_keeps_all_blobs(void **state)
{
    struct publish_place *place = *state;
    struct pushed one;
    char name[128] = "blobs/";
    make(place, &one, "1", NULL, false);
    put(place, &one, true);
    put_blob(place, "of nobody");
    hex_of(one.text, name + strlen(name));
    assert_int_equal(unlinkat(place->repo.fd, name, 0), 0);
    assert_int_equal(collect_later(place, 10 * DAY), 0);
    put_blob(place, one.text);
    assert_int_equal(collect_later(place, 10 * DAY), 1);
    unmake(&one);
}

/* A failure of any call leaves the tag at the old manifest or at the new one, and can be repeated. */
static void a_disk_that_fails(void **state)
{
    struct publish_place *place = *state;
    struct pushed one;
    struct pushed two;
    make(place, &one, "1", NULL, false);
    make(place, &two, "2", "1", false);
    put(place, &one, false);
    tag(place, "t", &one, NULL);
    size_t failed = 0;
    for (size_t nth = 1; nth < 64; nth++) {
        struct td_error err = TD_ERROR_INIT;
        arm(nth);
        bool ok = td_publish_manifest_put(&place->repo, two.sha256, &two.manifest, false, &err) &&
                  td_publish_tag_put(&place->repo, "t", two.sha256, NULL, &err);
        bool has_failed = disk.calls >= disk.nth;
        arm(0);
        CHECK(ok != has_failed, "%zu: %s", nth, err.message);
        CHECK(!ok || !disk.has_unsynced, "%zu: a rename may be lost", nth);
        failed += ok ? 0 : 1;
        reopen(place);
        CHECK(names(place, "t", &one) || names(place, "t", &two), "%zu", nth);
        CHECK(!ok || names(place, "t", &two), "%zu", nth);
        tag(place, "t", &one, NULL);
    }
    CHECK(failed >= 6, "%zu calls failed", failed);
    unmake(&one);
    unmake(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(publish, manifests_are_read_as_they_were_pushed),
        TEST_IN(publish, a_tag_names_a_manifest_while_its_revision_is_at_its_commit),
        TEST_IN(publish, what_keeps_manifests_and_their_blobs),
        TEST_IN(publish, manifests_by_digest_stay_until_they_are_deleted),
        TEST_IN(publish, a_damaged_manifest_keeps_all_blobs),
        TEST_IN(publish, a_disk_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
