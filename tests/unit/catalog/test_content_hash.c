#include "catalog/model/content_hash.h"

#include "core/digits.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t read_bytes = 262144, span_bytes = 16777216; /* the sizes in content_hash.c */

/* ---- what happens between two reads -------------------------------------------------------------------- */

static struct {
    unsigned at, calls; /* the incident comes before the at-th read (1: the first) */
    void (*what)(void *context);
    void *context;
    int sys; /* errno of that read; 0: the read works */
} incident;

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off);
ssize_t __real_pread64(int fd, void *out, size_t len, off_t off);

ssize_t __wrap_pread64(int fd, void *out, size_t len, off_t off)
{
    if (++incident.calls == incident.at) {
        if (incident.what != NULL)
            incident.what(incident.context);
        if (incident.sys != 0) {
            errno = incident.sys;
            return -1;
        }
    }
    return __real_pread64(fd, out, len > 1000 && incident.calls % 3 == 0 ? len / 2 : len, off); /* also short */
}

/* ---- a file -------------------------------------------------------------------------------------------- */

struct place {
    struct tree tree;
    struct td_root *root;
    struct td_content_sums sums;
    struct td_content_hash_options options;
    struct td_error err;
};

static void place_open(struct place *place)
{
    memset(&incident, 0, sizeof incident);
    memset(place, 0, sizeof *place);
    tree_open(&place->tree);
    td_error_init(&place->err);
    CHECK(td_root_create(place->tree.path, &place->root, &place->err), "%s", place->err.message);
    place->options.git_sha1 = true;
}

static void place_close(struct place *place)
{
    td_root_unref(place->root);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

static uint8_t *pattern(size_t len)
{
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = tree_data_byte(i, 0);
    return bytes;
}

static void write_pattern(const struct place *place, const char *name, size_t len)
{
    uint8_t *bytes = pattern(len);
    tree_write(&place->tree, name, bytes, len);
    free(bytes);
}

static struct td_file_id id_of(const struct place *place, const char *name)
{
    struct stat st;
    CHECK(td_root_stat(place->root, name, &st, NULL), "%s", name);
    return td_file_id_of(&st);
}

static bool hash(struct place *place, const char *name)
{
    struct td_file_id id = id_of(place, name);
    td_error_init(&place->err);
    return td_content_hash(place->root, name, &id, &place->options, &place->sums, &place->err);
}

static void expect(struct place *place, const char *name, const char *sha256, const char *git_sha1)
{
    char text[TD_SHA256_TEXT_BYTES];
    CHECK(hash(place, name), "%s: %s", name, place->err.message);
    td_hex_write(place->sums.sha256, TD_SHA256_BYTES, text);
    assert_string_equal(text, sha256);
    td_hex_write(place->sums.git_sha1, TD_GIT_SHA1_BYTES, text);
    assert_string_equal(text, git_sha1);
}

/* Expected sums are FIPS 180-4's examples, the others by git hash-object. */
static void known_contents(void **state)
{
    struct place *place = *state;
    tree_write(&place->tree, "empty", "", 0);
    expect(place, "empty", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
           "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    tree_text(&place->tree, "abc", "abc");
    expect(place, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
           "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
    char *a = malloc(1000000);
    memset(a, 'a', 1000000);
    tree_write(&place->tree, "in/million", a, 1000000);
    free(a);
    expect(place, "in/million", "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
           "de1fbf0c2f34f67f01f355f31ed0cf7319643c5e");
}

/* Sizes around the borders of blocks, reads and spans; the sums by sha256sum and git hash-object. */
static void sizes_around_borders(void **state)
{
    static const struct {
        size_t len;
        const char *sha256, *git_sha1;
    } cases[] = {
        {1, "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
         "6b2aaa7640726588bcd3d57e1de4b1315b7f315e"},
        {55, "16fa57a0a3423a715d594516339f36189d6b5f93754a9714fef202616a9fabfe",
         "85d0b4bec46d8753b64211fcf473bf152ec196ee"},
        {56, "c37b44e5f1b18554b36966f4f8e08bfbf3164c4b6c10374d12d89850892073c5",
         "7d7782d5284aa58163c2e47e9c15570ce406ab81"},
        {63, "bbba992d2c85af960fb2987a1fd05e0aa82a3db3c740dd8982a9e273b75e36a3",
         "10c16fbf700d3eb5a058ba5051ad7bff16daf2d6"},
        {64, "66bd4633ed6f71c4ecfa4763bf7ba1c8ec7612de9aa6c0578a7b675207c71e0b",
         "3f12a4005375342199fd7cef9d6cfc899dbf3dd3"},
        {65, "9f7dc47107b750a1f3d35db5d9547f24ef40da5b731b9540d4f43710a154f6c9",
         "fdd72ea3c495f8e5261d6b3c0dc38d11360569cc"},
        {4095, "29bf66388e69f4c1a905944be72c8f1308bda405e67092e50a0fbc8094759b11",
         "271c7fa5378933962ad03b3ac9385bc66d76b998"},
        {4096, "67d5f26ea5bfe64fff39092f52a9afadb7bef89cab989d17a5d86fd3e5e1365a",
         "1ce82b45b61609d3c8e33e602f75f62f91b810fb"},
        {262143, "01f283e0fa5475c0d2b0901c8d97c562918a079a0a3612a1825bc97bd799901d",
         "473ecfac9153542c91b58dd710e1d2d26dbca1a1"},
        {262144, "3589a97d39977b41aac1272e0df28a1e2778e242faf15ba79128f820b513156d",
         "6b1fb38bdbe99125a6646b951dbd480d34a813fd"},
        {262145, "9b1f357d518bdc309e72798eb0473756da9cd01be3fa4541db00a6cab8f6bfed",
         "57f837ed543bfd16d3aab29af3f213d361bb502f"},
        {1000003, "a19b3f314cdeec92391eca559a8db3da5e6c86926822b578c145d867d079a142",
         "1bfedb464d29491fe07a8ea420702f9e52d97461"},
        {16777215, "9b671caf9b540787ea9c744dddeaef4cda6ca84d322960403311cc8b2ba5e5d2",
         "d3b03a0c8483e96125cbc3d87597ea4294c953ba"},
        {16777216, "12dbb55a800041fb8c4eb4d28618cb2230dce578616019c749299759544bf01d",
         "4178d36ef21024374ad61aec80ac9b3f146699b2"},
        {16777217, "b0a70dafc07350e922d9ef48b93beecdf1bb0a7e86841cc6623d7490df7e4a82",
         "35126d3b1df22ce69c08170a11905616c5d47f7b"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_pattern(place, "f", cases[i].len);
        expect(place, "f", cases[i].sha256, cases[i].git_sha1);
    }
}

static void bytes_are_counted(void **state)
{
    struct place *place = *state;
    _Atomic uint64_t count = 5;
    place->options.hashed_bytes = &count;
    write_pattern(place, "f", 3 * read_bytes + 7);
    assert_true(hash(place, "f"));
    assert_int_equal(count, 5 + 3 * read_bytes + 7);
}

/* ---- files that change --------------------------------------------------------------------------------- */

static void other_files_are_refused(void **state)
{
    struct place *place = *state;
    write_pattern(place, "f", 1000);
    write_pattern(place, "g", 1000);
    struct td_file_id id = id_of(place, "f");
    struct td_content_hash_options options = {0};
    td_error_init(&place->err);
    assert_false(td_content_hash(place->root, "g", &id, &options, &place->sums, &place->err));
    assert_int_equal(place->err.code, TD_UNAVAILABLE);
    check_says(&place->err, "\"g\" changed since it was looked at", "another inode");
    assert_int_equal(incident.calls, 0); /* the file was not read */
    td_error_init(&place->err);
    assert_false(td_content_hash(place->root, "none", &id, &options, &place->sums, &place->err));
    assert_int_equal(place->err.code, TD_NOT_FOUND);
    tree_symlink(&place->tree, "out", "/etc/passwd");
    td_error_init(&place->err);
    assert_false(td_content_hash(place->root, "out", &id, &options, &place->sums, &place->err));
    assert_int_equal(place->err.code, TD_PERMISSION_DENIED);
}

static void poke(void *context)
{
    tree_poke(context, "f", 10, "!", 1);
}

static void shrink(void *context)
{
    tree_truncate(context, "f", 2 * read_bytes);
}

static void grow(void *context)
{
    tree_truncate(context, "f", 9 * read_bytes);
}

static void touch(void *context)
{
    tree_set_age(context, "f", 1000);
}

static void replace(void *context)
{
    tree_text(context, "new", "another");
    tree_rename(context, "new", "f");
}

/* shows: security.md digest-file-changes */
static void a_file_that_changes_meanwhile_has_no_sum(void **state)
{
    (void)state;
    static void (*const incidents[])(void *) = {poke, shrink, grow, touch};
    struct place place;
    for (size_t i = 0; i < COUNT_OF(incidents); i++) {
        for (unsigned at = 1; at <= 5; at++) {
            place_open(&place);
            write_pattern(&place, "f", 4 * read_bytes);
            incident.at = at;
            incident.what = incidents[i];
            incident.context = &place.tree;
            CHECK(!hash(&place, "f"), "%zu before read %u", i, at);
            CHECK(place.err.code == TD_UNAVAILABLE, "%s", place.err.message);
            place_close(&place);
        }
    }
    place_open(&place); /* the inode that was opened keeps its bytes, but its ctime shows that it lost its name */
    write_pattern(&place, "f", 4 * read_bytes);
    incident.at = 2;
    incident.what = replace;
    incident.context = &place.tree;
    assert_false(hash(&place, "f"));
    assert_int_equal(place.err.code, TD_UNAVAILABLE);
    place_close(&place);
}

static void a_disk_that_fails(void **state)
{
    struct place *place = *state;
    write_pattern(place, "f", 4 * read_bytes);
    incident.at = 3;
    incident.sys = EIO;
    assert_false(hash(place, "f"));
    assert_true(place->err.code == TD_IO && place->err.sys == EIO);
    check_says(&place->err, "cannot read", "EIO");
    incident.calls = 0;
    incident.sys = EINTR; /* the read is tried again */
    assert_true(hash(place, "f"));
}

static void set_stop(void *context)
{
    *(_Atomic bool *)context = true;
}

static void it_can_be_stopped(void **state)
{
    struct place *place = *state;
    _Atomic bool stop = false;
    _Atomic uint64_t count = 0;
    place->options.stop = &stop;
    place->options.hashed_bytes = &count;
    write_pattern(place, "f", 40 * read_bytes);
    incident.at = 5;
    incident.what = set_stop;
    incident.context = &stop;
    assert_false(hash(place, "f"));
    assert_int_equal(place->err.code, TD_UNAVAILABLE);
    assert_true(count <= 5 * read_bytes); /* no read after the stop */
}

/* ---- the page cache ------------------------------------------------------------------------------------ */

/* Returns how many of the file's pages are in memory. */
static size_t resident_pages(const char *path, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t count = 0;
    unsigned char *pages = calloc(len / page + 1, 1);
    int fd = open(path, O_RDONLY);
    void *at = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED && mincore(at, len, pages) == 0);
    for (size_t i = 0; i < (len + page - 1) / page; i++)
        count += pages[i] & 1;
    assert_int_equal(munmap(at, len), 0);
    (void)close(fd);
    free(pages);
    return count;
}

/* Drops the file from the page cache and returns whether its pages left, which they do only if a disk is behind
 * them. */
static bool drop(const char *path, size_t len)
{
    int fd = open(path, O_RDONLY);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    (void)close(fd);
    return resident_pages(path, len) == 0;
}

/* Pages that were in the cache stay there; pages that only hashing read leave it. */
static void the_page_cache_is_left_as_it_was(void **state)
{
    struct place *place = *state;
    char path[TREE_PATH_BYTES];
    const size_t len = span_bytes + 5 * read_bytes;
    const size_t pages = (len + (size_t)sysconf(_SC_PAGESIZE) - 1) / (size_t)sysconf(_SC_PAGESIZE);
    write_pattern(place, "f", len);
    tree_at(&place->tree, "f", path);
    int fd = open(path, O_RDONLY);
    assert_int_equal(fsync(fd), 0); /* dirty pages could not leave */
    (void)close(fd);
    size_t before = resident_pages(path, len);
    CHECK(before > pages * 3 / 4, "%zu of %zu pages", before, pages); /* a busy kernel may take some at any time */
    assert_true(hash(place, "f"));
    size_t after = resident_pages(path, len);
    CHECK(after > pages * 3 / 4, "%zu of %zu pages stayed", after, pages);
    if (drop(path, len)) {
        assert_true(hash(place, "f"));
        size_t left = resident_pages(path, len);
        CHECK(left < pages / 4, "%zu of %zu pages stayed", left, pages);
    }
}

/* ---- names of blobs ------------------------------------------------------------------------------------ */

static void names_of_blobs(void **state)
{
    static const char sha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    static const char git_sha1[] = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
    static const struct {
        const char *link, *target;
        enum td_blob_name kind;
        bool fits;
    } cases[] = {
        {"models--a--b/snapshots/c/x", "../../blobs/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
         TD_BLOB_NAME_SHA256, true},
        {"models--a--b/snapshots/c/d/x",
         "../../../blobs/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ac", TD_BLOB_NAME_SHA256, false},
        {"models--a--b/snapshots/c/y", "../../blobs/f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", TD_BLOB_NAME_GIT_SHA1,
         true},
        {"models--a--b/snapshots/c/z", "../../blobs/f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7e", TD_BLOB_NAME_GIT_SHA1,
         false},
        {"models--a--b/snapshots/c/v", "../../blobs/F2BA8F84AB5C1BCE84A7B441CB1959CFC7093B7F", TD_BLOB_NAME_NONE, true},
        {"models--a--b/snapshots/c/w", "../../blobs/f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7", TD_BLOB_NAME_NONE, true},
        {"models--a--b/snapshots/c/t", "../../blobs/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad0",
         TD_BLOB_NAME_NONE, true},
        {"models--a--b/snapshots/c/u", "../../blobs/abc", TD_BLOB_NAME_NONE, true},
        {"elsewhere/x", "../models--a--b/blobs/f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7e", TD_BLOB_NAME_NONE, true},
    };
    struct place *place = *state;
    char name[TD_SHA256_TEXT_BYTES];
    tree_text(&place->tree, "models--a--b/snapshots/c/plain", "abc");
    assert_true(td_cache_blob_name_of(place->root, "models--a--b/snapshots/c/plain", name) == TD_BLOB_NAME_NONE);
    assert_true(td_cache_blob_name_of(place->root, "models--a--b/snapshots/c/none", name) == TD_BLOB_NAME_NONE);
    expect(place, "models--a--b/snapshots/c/plain", sha256, git_sha1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tree_symlink(&place->tree, cases[i].link, cases[i].target);
        enum td_blob_name kind = td_cache_blob_name_of(place->root, cases[i].link, name);
        CHECK(kind == cases[i].kind, "%s: %d", cases[i].target, kind);
        CHECK(td_cache_blob_name_fits(kind, name, &place->sums) == cases[i].fits, "%s", cases[i].target);
    }
}

static void identities_have_tags(void **state)
{
    (void)state;
    struct td_file_id ids[] = {{1, 2, 3, 4, 5}, {2, 2, 3, 4, 5}, {1, 3, 3, 4, 5},
                               {1, 2, 4, 4, 5}, {1, 2, 3, 5, 5}, {1, 2, 3, 4, 6}};
    char tags[COUNT_OF(ids)][TD_TAG_BYTES], again[TD_TAG_BYTES];
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        assert_true(td_file_identity_tag(&ids[i], tags[i]));
        assert_int_equal(strlen(tags[i]), TD_TAG_BYTES - 1);
        assert_int_equal(strspn(tags[i], "0123456789abcdef"), TD_TAG_BYTES - 1);
        struct td_file_id copy = ids[i];
        assert_true(td_file_identity_tag(&copy, again));
        assert_string_equal(tags[i], again);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(tags[k], tags[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, known_contents),
        TEST_IN(place, sizes_around_borders),
        TEST_IN(place, bytes_are_counted),
        TEST_IN(place, other_files_are_refused),
        cmocka_unit_test(a_file_that_changes_meanwhile_has_no_sum),
        TEST_IN(place, a_disk_that_fails),
        TEST_IN(place, it_can_be_stopped),
        TEST_IN(place, the_page_cache_is_left_as_it_was),
        TEST_IN(place, names_of_blobs),
        cmocka_unit_test(identities_have_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
