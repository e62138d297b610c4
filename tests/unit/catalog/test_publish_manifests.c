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

/* A list of referrers. */
struct listing {
    size_t count, most; /* `visit` takes no more */
    uint8_t previous[TD_SHA256_BYTES];
    struct td_buffer text;
    char type[64]; /* artifact type of the last one */
};

static bool list_one(void *context, const struct td_publish_referrer *referrer, struct td_error *err)
{
    struct listing *listing = context;
    (void)err;
    if (listing->count == listing->most)
        return false;
    assert_true(listing->count == 0 || memcmp(listing->previous, referrer->sha256, TD_SHA256_BYTES) < 0);
    memcpy(listing->previous, referrer->sha256, TD_SHA256_BYTES);
    listing->count++;
    td_buffer_clear(&listing->text);
    assert_true(td_publish_referrer_describe(referrer, &listing->text));
    (void)snprintf(listing->type, sizeof listing->type, "%.*s", TD_SHOW(referrer->artifact_type, 60));
    return true;
}

/* Lists the referrers of a subject after one (NULL: from the first on), at most so many. Returns whether there are
 * more, and sets last. */
static bool list_referrers(const struct publish_place *place, const char *subject, const uint8_t *after, size_t most,
                           struct listing *listing, uint8_t last[TD_SHA256_BYTES])
{
    uint8_t sha256[TD_SHA256_BYTES];
    bool has_more;
    struct td_error err = TD_ERROR_INIT;
    td_sha256(subject, strlen(subject), sha256);
    *listing = (struct listing){.most = most};
    td_buffer_init(&listing->text);
    assert_true(td_publish_list_referrers(&place->repo, sha256, after, list_one, listing, last, &has_more, &err));
    return has_more;
}

static size_t count_referrers(const struct publish_place *place, const char *subject)
{
    struct listing listing;
    uint8_t last[TD_SHA256_BYTES];
    assert_false(list_referrers(place, subject, NULL, SIZE_MAX, &listing, last));
    td_buffer_fini(&listing.text);
    return listing.count;
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
    struct td_publish_tags tags;
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
    assert_true(td_publish_manifest_remove(&place->repo, one.sha256, &tags, NULL));
    assert_int_equal(tags.count, 2);
    assert_true(strcmp(tags.items[0], tags.items[1]) != 0 && strspn(tags.items[0], "tu") == 1 &&
                strspn(tags.items[1], "tu") == 1);
    free(tags.items);
    assert_false(is_here(place, &one) || names(place, "t", &one) || names(place, "u", &one));
    assert_int_equal(count_referrers(place, "subject"), 0);
    struct td_error err = TD_ERROR_INIT;
    assert_false(td_publish_manifest_remove(&place->repo, one.sha256, &tags, &err));
    free(tags.items);
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_int_equal(collect_later(place, 10 * DAY), 2);
    unmake(&one);
}

static void add_file(int at, const char *name, const char *text)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* Of a subject with more referrers than one call looks at; one of them has lost its manifest, and one is damaged. */
static void referrers_are_listed_in_order_and_in_pages(void **state)
{
    struct publish_place *place = *state;
    enum { COUNT = TD_PUBLISH_REFERRERS_MOST + 1500 };
    struct pushed one;
    struct listing listing;
    char folder[96] = "referrers/";
    char hex[TD_SHA256_TEXT_BYTES];
    char expected[512];
    uint8_t last[TD_SHA256_BYTES];
    uint8_t sha256[TD_SHA256_BYTES];
    make(place, &one, "1", "subject", false);
    one.manifest.artifact_type = "application/x+json";
    one.manifest.annotations_at = (uint64_t)(strstr(one.text, "{\"mediaType\"") - one.text); /* any part of it */
    one.manifest.annotations.len = 17;
    put(place, &one, true);
    assert_false(list_referrers(place, "subject", NULL, 10, &listing, last));
    td_hex_write(one.sha256, TD_SHA256_BYTES, hex);
    (void)snprintf(expected, sizeof expected,
                   "{\"mediaType\":\"%s\",\"digest\":\"sha256:%s\",\"size\":%zu,\"artifactType\":"
                   "\"application/x+json\",\"annotations\":{\"mediaType\":\"t\",}",
                   one.manifest.media_type, hex, strlen(one.text));
    assert_true(listing.count == 1 && td_text_equals(td_buffer_text(&listing.text), expected));
    assert_string_equal(listing.type, "application/x+json");
    td_buffer_fini(&listing.text);

    hex_of("subject", folder + strlen(folder));
    int at = openat(place->repo.fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int marks = openat(place->repo.fd, "manifests", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(at >= 0 && marks >= 0);
    for (size_t i = 1; i < COUNT + 2; i++) {
        td_sha256(&i, sizeof i, sha256);
        td_hex_write(sha256, sizeof sha256, hex);
        add_file(at, hex, i == 5 ? "999999 0 0\nt{}" : "1 0 0\nt{}");
        if (i != 6)
            add_file(marks, hex, "digest\n");
    }
    assert_true(list_referrers(place, "subject", NULL, 1000, &listing, last));
    assert_true(listing.count == 1000 && memcmp(listing.previous, last, sizeof last) == 0);
    td_buffer_fini(&listing.text);
    size_t seen = listing.count;
    uint8_t from[TD_SHA256_BYTES];
    memcpy(from, last, sizeof from);
    assert_true(list_referrers(place, "subject", from, SIZE_MAX, &listing, last));
    assert_true(listing.count >= TD_PUBLISH_REFERRERS_MOST - 2 && listing.count <= TD_PUBLISH_REFERRERS_MOST);
    td_buffer_fini(&listing.text);
    seen += listing.count;
    memcpy(from, last, sizeof from);
    assert_false(list_referrers(place, "subject", from, SIZE_MAX, &listing, last));
    td_buffer_fini(&listing.text);
    assert_int_equal(seen + listing.count, COUNT);
    assert_true(close(at) == 0 && close(marks) == 0);
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

/* All manifests of a repository together are bounded, since each collection reads them. */
static void the_bytes_of_all_manifests_are_bounded(void **state)
{
    enum { EACH = 4 * 1024 * 1024, MOST = TD_PUBLISH_MANIFESTS_BYTES / EACH };
    struct publish_place *place = *state;
    const struct td_pushed_manifest manifest = {.subject = NULL};
    struct td_publish_tags tags;
    uint8_t sha256[TD_SHA256_BYTES] = {0};
    struct td_error err = TD_ERROR_INIT;
    for (unsigned i = 0; i <= MOST; i++) {
        char path[128] = "blobs/";
        sha256[0] = (uint8_t)i;
        td_hex_write(sha256, sizeof sha256, path + strlen(path));
        int fd = openat(place->repo.fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0 && ftruncate(fd, EACH) == 0);
        (void)close(fd);
        bool ok = td_publish_manifest_put(&place->repo, sha256, &manifest, true, &err);
        CHECK(ok == (i < MOST), "%u: %s", i, err.message);
    }
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    sha256[0] = 1;
    assert_true(td_publish_manifest_put(&place->repo, sha256, &manifest, true, NULL)); /* it is there already */
    assert_true(td_publish_manifest_remove(&place->repo, sha256, &tags, NULL));
    free(tags.items);
    sha256[0] = MOST;
    assert_true(td_publish_manifest_put(&place->repo, sha256, &manifest, true, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(publish, manifests_are_read_as_they_were_pushed),
        TEST_IN(publish, a_tag_names_a_manifest_while_its_revision_is_at_its_commit),
        TEST_IN(publish, what_keeps_manifests_and_their_blobs),
        TEST_IN(publish, manifests_by_digest_stay_until_they_are_deleted),
        TEST_IN(publish, referrers_are_listed_in_order_and_in_pages),
        TEST_IN(publish, a_damaged_manifest_keeps_all_blobs),
        TEST_IN(publish, a_disk_that_fails),
        TEST_IN(publish, the_bytes_of_all_manifests_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
