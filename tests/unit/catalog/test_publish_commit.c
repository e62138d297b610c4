/* Commits of published repositories: which files a revision then has, what is refused, and what stays as it was. */
#include "catalog/publish/publish_commit.h"

#include "tests/kit/scanner.h"
#include "tests/unit/catalog/publish_place.h"

static ino_t link_inode(const struct publish_place *place, const char *commit, const char *path)
{
    char name[512];
    char whole[TREE_PATH_BYTES];
    struct stat st;
    (void)snprintf(name, sizeof name, REPO "/snapshots/%s/%s", commit, path);
    tree_at(&place->tree, name, whole);
    CHECK(lstat(whole, &st) == 0, "%s", name);
    return st.st_ino;
}

static int64_t link_time_s(const struct publish_place *place, const char *path)
{
    char name[512];
    char whole[TREE_PATH_BYTES];
    struct stat st;
    (void)snprintf(name, sizeof name, REPO "/snapshots/%s/%s", commit_at(place, "main"), path);
    tree_at(&place->tree, name, whole);
    CHECK(lstat(whole, &st) == 0, "%s", name);
    return st.st_mtim.tv_sec;
}

/* Sets the time of a link of main to the year 2001. */
static void age_link(const struct publish_place *place, const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char name[512];
    char whole[TREE_PATH_BYTES];
    (void)snprintf(name, sizeof name, REPO "/snapshots/%s/%s", commit_at(place, "main"), path);
    tree_at(&place->tree, name, whole);
    assert_int_equal(utimensat(AT_FDCWD, whole, times, AT_SYMLINK_NOFOLLOW), 0);
}

static bool is_there(const struct publish_place *place, const char *name)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(&place->tree, name, path);
    return lstat(path, &st) == 0;
}

/* ---- what a commit makes --------------------------------------------------------------------------------- */

static void a_first_commit_shows_the_repository(void **state)
{
    struct publish_place *place = *state;
    put_blob(place, "1");
    assert_false(is_there(place, REPO));
    commit_is(place, &(struct ask){.files = "b.txt=2 d/e/f=3 a=1 d/x=1", .parent = "", .message = "first"},
              TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a=1 b.txt=2 d/e/f=3 d/x=1");
    assert_string_equal(place->result.commit, commit_at(place, "main"));
    assert_string_equal(place->result.parent, "");
    assert_int_equal(place->result.file_count, 4);
    assert_int_equal(place->result.file_bytes, 4);
    assert_false(place->repo.is_new || is_there(place, NEW));
    assert_false(is_there(place, ".tensord-publish/incoming/" REPO));
    reopen(place);
    assert_string_equal(files_at(place, "main"), "a=1 b.txt=2 d/e/f=3 d/x=1");
}

static void the_same_files_are_the_same_commit_and_change_nothing(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1 b=2"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    ino_t inode = link_inode(place, first, "a");
    commit_is(place, &(struct ask){.files = "b=2 a=1", .parent = first}, TD_COMMIT_UNCHANGED);
    assert_string_equal(place->result.commit, first);
    assert_string_equal(place->result.parent, first);
    assert_int_equal(place->result.file_count, 2);
    assert_int_equal(link_inode(place, first, "a"), inode);
    commit_is(place, &(struct ask){.files = "a=1", .keep = true}, TD_COMMIT_UNCHANGED);
    commit_is(place, &(struct ask){.files = "a=2 b=2"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=1 b=2"}, TD_COMMIT_MOVED); /* back to a snapshot that is there */
    assert_string_equal(place->result.commit, first);
    assert_int_equal(link_inode(place, first, "b"), link_inode(place, first, "b"));
    assert_string_equal(files_at(place, "main"), "a=1 b=2");
}

/* The digits are those that a scan of a plain directory computes. */
static void a_commit_is_that_of_a_plain_directory_with_these_files(void **state)
{
    static const char *const paths[] = {"", "a-b", "a.txt", "a/b", "B", "\xc3\xa9"};
    struct publish_place *place = *state;
    struct tree plain;
    struct scanner scanner;
    tree_open(&plain);
    scanner_open(&scanner, &plain);
    tree_text(&plain, "m/a-b", "1");
    tree_text(&plain, "m/a.txt", "2");
    tree_text(&plain, "m/a/b", "3");
    tree_text(&plain, "m/B", "4");
    tree_text(&plain, "m/\xc3\xa9", "5");
    (void)scanner_scan(&scanner);
    for (size_t i = 1; i < COUNT_OF(paths); i++) {
        char path[64];
        char content[2] = {(char)('0' + i), '\0'};
        uint8_t sum[TD_SHA256_BYTES];
        (void)snprintf(path, sizeof path, "m/%s", paths[i]);
        td_sha256(content, 1, sum);
        assert_true(td_file_set_sha256(scanner_entry(&scanner, path)->file, sum));
    }
    (void)scanner_scan(&scanner);
    const struct td_repo *repo = td_repo_find(scanner.snapshot, false, TD_TEXT("m"));
    assert_non_null(repo);
    assert_string_not_equal(repo->commit, repo->identity_commit);
    commit_is(place, &(struct ask){.files = "a/b=3 B=4 \xc3\xa9=5 a-b=1 a.txt=2"}, TD_COMMIT_MOVED);
    assert_string_equal(place->result.commit, repo->commit);
    scanner_close(&scanner);
    tree_close(&plain);
}

/* A scan of the served directory finds the files, the refs and the commit. */
static void a_scan_shows_the_commit(void **state)
{
    struct publish_place *place = *state;
    struct scanner scanner;
    commit_is(place, &(struct ask){.files = "config.json={} d/notes.txt=x"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "y=y", .revision = "dev/one", .from = "main", .keep = true},
              TD_COMMIT_MOVED);
    scanner_open(&scanner, &place->tree);
    scanner.config.all_revisions = true;
    (void)scanner_scan(&scanner);
    const struct td_repo *repo = td_repo_find(scanner.snapshot, false, TD_TEXT("org/name"));
    assert_non_null(repo);
    assert_string_equal(repo->commit, commit_at(place, "main"));
    assert_int_equal(repo->entry_count, 2);
    assert_non_null(scanner_entry(&scanner, "org/name/d/notes.txt"));
    const struct td_repo *dev = td_repo_at(repo, TD_TEXT("dev/one"));
    assert_non_null(dev);
    assert_string_equal(dev->commit, place->result.commit);
    assert_int_equal(dev->entry_count, 3);
    scanner_close(&scanner);
}

static void keep_adds_to_what_is_there(void **state)
{
    struct publish_place *place = *state;
    commit_is(place, &(struct ask){.files = "a=1 d/x=2"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "b=3 a=4", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a=4 b=3 d/x=2");
    assert_int_equal(place->result.file_count, 3);
    assert_int_equal(place->result.file_bytes, 3);
    commit_is(place, &(struct ask){.files = "c=5"}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "c=5");
}

static void files_and_folders_are_deleted(void **state)
{
    struct publish_place *place = *state;
    commit_is(place, &(struct ask){.files = "a=1 a.txt=1 d/e/x=2 d/y=3 d.z=4 z=1"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "d/e/n=6", .deletes = "a d/ d/e/ z z", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a.txt=1 d.z=4 d/e/n=6");
    commit_fails(place, &(struct ask){.deletes = "a.txt d/e", .keep = true}, TD_NOT_FOUND, "\"d/e\"");
    commit_fails(place, &(struct ask){.deletes = "none/ other", .keep = true}, TD_NOT_FOUND, "\"none/\"");
    commit_fails(place, &(struct ask){.deletes = "/", .keep = true}, TD_NOT_FOUND, "\"/\"");
    assert_string_equal(files_at(place, "main"), "a.txt=1 d.z=4 d/e/n=6");
    commit_is(place, &(struct ask){.deletes = "none/ d/e d.z", .keep = true, .ignores_missing = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a.txt=1 d/e/n=6");
    commit_is(place, &(struct ask){.files = "a.txt/b=1", .deletes = "a.txt", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a.txt/b=1 d/e/n=6");
}

/* A revision without files has an empty snapshot; its repository stays. */
static void a_commit_without_files_keeps_the_repository(void **state)
{
    struct publish_place *place = *state;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.deletes = "a", .keep = true}, TD_COMMIT_MOVED);
    assert_int_equal(place->result.file_count, 0);
    assert_string_equal(files_at(place, "main"), "");
    commit_is(place, &(struct ask){.files = "a=2", .keep = true, .parent = commit_at(place, "main")}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a=2");
}

static void a_new_revision_begins_with_the_files_of_another(void **state)
{
    struct publish_place *place = *state;
    char main[TD_COMMIT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1 b=2"}, TD_COMMIT_MOVED);
    memcpy(main, place->result.commit, sizeof main);
    commit_is(place, &(struct ask){.revision = "dev", .from = "HEAD", .files = "b=3", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(place->result.parent, "");
    assert_string_equal(files_at(place, "dev"), "a=1 b=3");
    assert_int_equal(link_inode(place, main, "a"), link_inode(place, commit_at(place, "dev"), "a"));
    commit_is(place, &(struct ask){.revision = "refs/pr/1", .from = main, .deletes = "b", .keep = true},
              TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "refs/pr/1"), "a=1");
    commit_is(place, &(struct ask){.revision = "dev", .from = "gone", .keep = true}, TD_COMMIT_UNCHANGED);
    commit_is(place, &(struct ask){.revision = "tip", .files = "n=1", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "tip"), "n=1");
    commit_fails(place, &(struct ask){.revision = "new", .from = "gone", .keep = true}, TD_NOT_FOUND, "\"gone\"");
    assert_string_equal(files_at(place, "main"), "a=1 b=2");
}

static void unchanged_files_keep_their_links_and_times(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    commit_is(place, &(struct ask){.files = "a=1 b=2 d/c=3"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    age_link(place, "a");
    age_link(place, "b");
    age_link(place, "d/c");
    commit_is(place, &(struct ask){.files = "a=1 b=5 d/c=3"}, TD_COMMIT_MOVED);
    assert_int_equal(link_inode(place, first, "a"), link_inode(place, place->result.commit, "a"));
    assert_int_equal(link_inode(place, first, "d/c"), link_inode(place, place->result.commit, "d/c"));
    assert_int_equal(link_time_s(place, "a"), 1000000000);
    assert_true(link_time_s(place, "b") > 1000000000);
    commit_is(place, &(struct ask){.files = "b=2", .keep = true}, TD_COMMIT_MOVED); /* the first snapshot again */
    assert_string_equal(place->result.commit, first);
    assert_int_equal(link_time_s(place, "a"), 1000000000);
    assert_true(link_time_s(place, "b") > 1000000000);
    commit_is(place, &(struct ask){.files = "a=1", .keep = true, .renews_times = true}, TD_COMMIT_UNCHANGED);
    assert_true(link_time_s(place, "a") > 1000000000);
    assert_int_equal(link_time_s(place, "d/c"), 1000000000);
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

static void blobs_that_are_missing_are_named_and_nothing_changes(void **state)
{
    struct publish_place *place = *state;
    put_blob(place, "here");
    commit_is(place, &(struct ask){.files = "z=gone a=here m=also b=gone c=also", .lacks = true},
              TD_COMMIT_LACKS_BLOBS);
    assert_int_equal(place->result.missing_count, 2);
    assert_int_equal(place->result.missing[0], 0);
    assert_int_equal(place->result.missing[1], 2);
    assert_true(place->repo.is_new);
    assert_false(is_there(place, REPO));
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "b=gone", .keep = true, .lacks = true}, TD_COMMIT_LACKS_BLOBS);
    assert_string_equal(files_at(place, "main"), "a=1");
}

/* A link, a folder or another size is not the blob that a commit needs. */
static void blobs_are_regular_files_of_the_size(void **state)
{
    struct publish_place *place = *state;
    struct td_commit_file file = {.path = "a", .size_bytes = 3, .has_size = true};
    struct td_commit_order order = {.revision = "main", .files = &file, .file_count = 1};
    char name[512] = NEW "/blobs/";
    td_sha256("12", 2, file.sha256);
    hex_of("12", name + strlen(name));
    put_blob(place, "12");
    assert_false(td_publish_commit(&place->repo, &order, &place->result, &place->err));
    assert_int_equal(place->err.code, TD_INVALID_ARGUMENT);
    check_says(&place->err, "\"a\" has 3 bytes", "size");
    td_commit_result_fini(&place->result);
    tree_remove(&place->tree, name);
    tree_symlink(&place->tree, name, "/etc/hostname");
    assert_true(td_publish_commit(&place->repo, &order, &place->result, NULL));
    assert_int_equal(place->result.verdict, TD_COMMIT_LACKS_BLOBS);
    td_commit_result_fini(&place->result);
    tree_remove(&place->tree, name);
    tree_directory(&place->tree, name);
    assert_true(td_publish_commit(&place->repo, &order, &place->result, NULL));
    assert_int_equal(place->result.verdict, TD_COMMIT_LACKS_BLOBS);
}

static void a_wrong_parent_changes_nothing(void **state)
{
    struct publish_place *place = *state;
    char first[TD_COMMIT_BYTES];
    const char *nothing = "0000000000000000000000000000000000000000";
    commit_is(place, &(struct ask){.files = "a=1", .parent = nothing}, TD_COMMIT_WRONG_PARENT);
    assert_string_equal(place->result.parent, "");
    commit_is(place, &(struct ask){.files = "a=1", .parent = ""}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    commit_is(place, &(struct ask){.files = "a=2", .parent = ""}, TD_COMMIT_WRONG_PARENT);
    assert_string_equal(place->result.parent, first);
    commit_is(place, &(struct ask){.files = "a=2", .parent = first}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=3", .parent = first}, TD_COMMIT_WRONG_PARENT);
    assert_string_equal(files_at(place, "main"), "a=2");
}

static void paths_are_checked(void **state)
{
    static const char *const bad[] = {
        "",     "/a",   "a/",      "a//b", ".",     "..",      "a/../b",         "./a",   "a/.",  "a\nb",
        "\x7f", "\xff", ".hidden", "a/.b", "x.tmp", "d.tmp/x", "a/b.incomplete", "a\x01", "a\\b",
    };
    static const char *const good[] = {"a", "a/b", ".metadata", "d/.metadata", "a b", "\xc3\xa9", "..a"};
    char text[TD_COMMIT_PATH_BYTES + 2];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_commit_check_path(bad[i], false, &err), "%s", bad[i]);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i + 1 < COUNT_OF(good); i++)
        CHECK(td_commit_check_path(good[i], false, NULL), "%s", good[i]);
    assert_false(td_commit_check_path("..a", false, NULL));
    assert_true(td_commit_check_path("..a", true, NULL));
    assert_false(td_commit_check_path("..a\\b", true, NULL));
    assert_true(td_commit_check_path("d/.metadata.tmp", true, NULL));
    assert_false(td_commit_check_path("../a", true, NULL));
    memset(text, 'a', sizeof text);
    text[238] = '\0';
    assert_true(td_commit_check_path(text, false, NULL));
    text[238] = 'a';
    text[239] = '\0';
    assert_false(td_commit_check_path(text, false, NULL));
    for (size_t i = 0; i < 32; i++)
        memcpy(text + 2 * i, "a/", 2);
    text[63] = '\0';
    assert_true(td_commit_check_path(text, false, NULL));
    memcpy(text + 63, "/a", 3);
    assert_false(td_commit_check_path(text, false, NULL));
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 200 == 199 ? '/' : 'a';
    text[TD_COMMIT_PATH_BYTES] = '\0';
    assert_true(td_commit_check_path(text, false, NULL));
    text[TD_COMMIT_PATH_BYTES] = 'a';
    text[TD_COMMIT_PATH_BYTES + 1] = '\0';
    assert_false(td_commit_check_path(text, false, NULL));
}

static void lists_that_cannot_be_a_directory_are_refused(void **state)
{
    struct publish_place *place = *state;
    commit_fails(place, &(struct ask){.files = "a=1 b=1 a=1"}, TD_INVALID_ARGUMENT, "twice");
    commit_fails(place, &(struct ask){.files = "a=1 ../b=1"}, TD_INVALID_ARGUMENT, "\"../b\"");
    commit_fails(place, &(struct ask){.files = ".metadata.tmp=1"}, TD_INVALID_ARGUMENT, "hidden");
    commit_fails(place, &(struct ask){.files = "a/b=1 a-c=1 a.d=1 a=1"}, TD_CONFLICT, "\"a\" is a file");
    commit_fails(place, &(struct ask){.files = "d/a/b/c=1 d/a=1"}, TD_CONFLICT, "\"d/a\" is a file");
    assert_true(place->repo.is_new);
    commit_is(place, &(struct ask){.files = ".metadata.tmp=1 d/x=1", .allows_hidden = true}, TD_COMMIT_MOVED);
    commit_fails(place, &(struct ask){.files = "d/x/y=1", .keep = true}, TD_CONFLICT, "\"d/x\" is a file");
    commit_fails(place, &(struct ask){.files = "d=1", .keep = true}, TD_CONFLICT, "\"d\" is a file");
    commit_is(place, &(struct ask){.files = "d=1"}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "d=1");
}

static void a_repository_that_does_not_exist_has_no_commits(void **state)
{
    struct publish_place *place = *state;
    char commit[TD_COMMIT_BYTES];
    struct td_publish_name name;
    td_publish_repo_close(&place->repo);
    assert_true(td_publish_name("org/other", false, &name, NULL));
    assert_true(td_publish_repo_open(&place->disk, &name, false, &place->repo, NULL));
    commit_fails(place, &(struct ask){.files = NULL}, TD_NOT_FOUND, "no model");
    assert_false(td_publish_resolve(&place->repo, "main", commit));
    assert_false(td_publish_set_ref(&place->repo, "v1", "main", true, NULL));
    assert_false(td_publish_delete_ref(&place->repo, "v1", NULL));
}

/* Makes a list of `count` paths "d000001/f" or "f000001", all of one blob. */
static struct td_commit_file *many_files(size_t count, bool in_folders, char (**paths)[16])
{
    struct td_commit_file *files = calloc(count, sizeof *files);
    *paths = calloc(count, sizeof **paths);
    assert_true(files != NULL && *paths != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf((*paths)[i], sizeof **paths, in_folders ? "d%zu/f" : "f%zu", i);
        files[i].path = (*paths)[i];
        td_sha256("1", 1, files[i].sha256);
    }
    return files;
}

static void the_number_of_files_and_folders_is_bounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const size_t count = (size_t)TD_COMMIT_MAX_FILES + 1;
        char(*paths)[16];
        struct td_commit_file *files = many_files(count, false, &paths);
        const struct td_commit_order order = {.revision = "main", .files = files, .file_count = count - i};
        struct td_commit_list before = {.count = 0};
        struct td_commit_list list = {.count = 0};
        bool is_too_large;
        assert_int_equal(td_commit_list_make(&before, &order, &list, &is_too_large, NULL), i == 1);
        assert_int_equal(is_too_large, i == 0);
        td_commit_list_fini(&list);
        assert_true(td_commit_list_add(&before, "one more", files[0].sha256, NULL));
        const struct td_commit_order more = {.revision = "main", .files = files, .file_count = count - 1, .keep = true};
        assert_false(td_commit_list_make(&before, &more, &list, &is_too_large, NULL));
        assert_true(is_too_large);
        td_commit_list_fini(&list);
        td_commit_list_fini(&before);
        free(files);
        free(paths);
    }
    char(*paths)[16];
    struct td_commit_file *files = many_files(TD_COMMIT_MAX_FOLDERS, true, &paths);
    struct td_commit_file two = {.path = "d/e/f"}; /* two folders in place of one */
    struct td_commit_list before = {.count = 0};
    for (size_t i = 0; i < 2; i++) {
        struct td_commit_list list = {.count = 0};
        const struct td_commit_order order = {.revision = "main", .files = files, .file_count = TD_COMMIT_MAX_FOLDERS};
        bool is_too_large;
        assert_int_equal(td_commit_list_make(&before, &order, &list, &is_too_large, NULL), i == 0);
        assert_int_equal(is_too_large, i == 1);
        td_commit_list_fini(&list);
        files[0] = two;
    }
    free(files);
    free(paths);
}

/* ---- revisions ------------------------------------------------------------------------------------------- */

static bool add_name(void *context, const char *name, const char *commit)
{
    char *out = context;
    assert_int_equal(strlen(commit), TD_COMMIT_BYTES - 1);
    (void)snprintf(out + strlen(out), 512 - strlen(out), "%s ", name);
    return true;
}

static const char *revisions(const struct publish_place *place)
{
    static char out[512];
    out[0] = '\0';
    assert_true(td_publish_each_ref(&place->repo, add_name, out));
    return out;
}

static void names_of_revisions_are_checked(void **state)
{
    static const char *const good[] = {"main", "v1.0", "refs/pr/1", "weight_v000012", "a+b-c", "deadbeef"};
    static const char *const bad[] = {"",
                                      "/a",
                                      "a/",
                                      "a//b",
                                      ".a",
                                      "a/.b",
                                      "..",
                                      "a..b",
                                      "a.lock",
                                      "a.lock/b",
                                      "a b",
                                      "a\\b",
                                      "a:b",
                                      "\xc3\xa9",
                                      "HEAD",
                                      "a~1",
                                      "a\n",
                                      "0000000000000000000000000000000000000000",
                                      "ABCDEFABCDEFABCDEFABCDEFABCDEFABCDEFABCD"};
    char longest[202];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_commit_check_revision(good[i], NULL), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_commit_check_revision(bad[i], NULL), "%s", bad[i]);
    memset(longest, 'a', sizeof longest);
    longest[200] = '\0';
    assert_true(td_commit_check_revision(longest, NULL));
    longest[200] = 'a';
    longest[201] = '\0';
    assert_false(td_commit_check_revision(longest, NULL));
}

static void revisions_are_set_moved_and_deleted(void **state)
{
    struct publish_place *place = *state;
    struct td_publish_repo *repo = &place->repo;
    struct td_error err = TD_ERROR_INIT;
    char first[TD_COMMIT_BYTES];
    char commit[TD_COMMIT_BYTES];
    assert_false(td_publish_set_ref(repo, "v1", "main", false, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    assert_true(td_publish_set_ref(repo, "v1", "main", false, NULL));
    commit_is(place, &(struct ask){.files = "a=2"}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "v1"), "a=1");
    td_error_init(&err);
    assert_false(td_publish_set_ref(repo, "v1", "main", false, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    assert_true(td_publish_set_ref(repo, "v1", "HEAD", true, NULL));
    assert_string_equal(files_at(place, "v1"), "a=2");
    assert_true(td_publish_set_ref(repo, "main", first, true, NULL)); /* a rollback by the commit's id */
    assert_string_equal(files_at(place, "main"), "a=1");
    assert_true(td_publish_set_ref(repo, "rel/1/a", "main", false, NULL));
    assert_string_equal(revisions(place), "main rel/1/a v1 ");
    assert_true(td_publish_resolve(repo, "rel/1/a", commit));
    assert_string_equal(commit, first);
    td_error_init(&err);
    assert_false(td_publish_set_ref(repo, "rel/1", "main", false, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    commit_fails(place, &(struct ask){.files = "a=1", .revision = "v1/x"}, TD_CONFLICT, "\"v1\"");
    td_error_init(&err);
    assert_false(td_publish_delete_ref(repo, "rel/1", &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    assert_true(td_publish_delete_ref(repo, "rel/1/a", NULL));
    assert_true(td_publish_set_ref(repo, "rel", "main", false, NULL)); /* its folder went, too */
    td_error_init(&err);
    assert_false(td_publish_delete_ref(repo, "main", &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_false(td_publish_set_ref(repo, "v2", "0000000000000000000000000000000000000000", false, NULL));
    assert_false(td_publish_set_ref(repo, "../x", "main", false, NULL));
    assert_false(td_publish_resolve(repo, "../commits/x", commit));
    assert_string_equal(revisions(place), "main rel v1 ");
}

static bool count_ref(void *context, const char *name, const char *commit)
{
    size_t *count = context;
    (void)name;
    (void)commit;
    (*count)++;
    return true;
}

/* Scans read a bounded number of revisions, and of their folders; more are refused, so that none is hidden. */
static void revisions_that_no_scan_would_find_are_refused(void **state)
{
    struct publish_place *place = *state;
    struct td_root *root = NULL;
    char name[64];
    size_t made = 0;
    size_t found = 0;
    struct td_error err = TD_ERROR_INIT;
    commit_is(place, &(struct ask){.files = "a=1"}, TD_COMMIT_MOVED);
    for (; made < 40; made++) {
        (void)snprintf(name, sizeof name, "d%zu/e/x", made);
        if (!td_publish_set_ref(&place->repo, name, "main", false, &err))
            break;
    }
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_true(made >= 4);
    assert_true(td_root_create(place->tree.path, &root, NULL));
    assert_true(td_hub_cache_refs(root, REPO, count_ref, &found));
    td_root_unref(root);
    assert_int_equal(found, made + 1);
}

/* ---- notes ----------------------------------------------------------------------------------------------- */

static void commits_are_listed_with_their_notes_the_newest_first(void **state)
{
    struct publish_place *place = *state;
    struct td_arena arena;
    struct td_commit_note *notes;
    size_t count;
    char first[TD_COMMIT_BYTES];
    char note[256];
    char longest[TD_COMMIT_MESSAGE_BYTES + 2];
    memset(longest, 'm', sizeof longest);
    memcpy(longest + TD_COMMIT_MESSAGE_BYTES - 1, "\xc3\xa9", 3);
    commit_is(place, &(struct ask){.files = "a=1", .message = "first \"one\"\n"}, TD_COMMIT_MOVED);
    memcpy(first, place->result.commit, sizeof first);
    commit_is(place, &(struct ask){.files = "a=2", .message = longest}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=3", .message = "bad \xff"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=1", .message = "again"}, TD_COMMIT_MOVED);
    td_arena_init(&arena, 0);
    assert_true(td_publish_list_commits(&place->repo, &arena, &notes, &count, NULL));
    assert_int_equal(count, 3);
    assert_string_equal(notes[0].message, "bad \\xff");
    assert_string_equal(notes[0].token, "ci");
    assert_string_equal(notes[0].parent, notes[1].commit);
    assert_int_equal(strlen(notes[1].message), TD_COMMIT_MESSAGE_BYTES - 1); /* cut before the character */
    assert_string_equal(notes[2].message, "first \"one\"\n");                /* the first note stays */
    assert_string_equal(notes[2].commit, first);
    assert_string_equal(notes[2].parent, "");
    assert_true(notes[2].time_s > 1700000000);
    free(notes);
    (void)snprintf(note, sizeof note, REPO "/commits/%s", first);
    tree_text(&place->tree, note, "{\"parent\":\"x\"");
    assert_true(td_publish_list_commits(&place->repo, &arena, &notes, &count, NULL));
    assert_int_equal(count, 2); /* a damaged note is passed over */
    free(notes);
    td_arena_fini(&arena);
}

/* ---- damage ---------------------------------------------------------------------------------------------- */

/* Checks that a damaged snapshot of main is reported when files of it are to stay, and that a push of all files heals
 * it. */
static void check_damage(struct publish_place *place, const char *says)
{
    commit_fails(place, &(struct ask){.files = "n=9", .keep = true}, TD_FAILED_PRECONDITION, says);
    commit_fails(place, &(struct ask){.deletes = "a", .files = "b=1"}, TD_FAILED_PRECONDITION, says);
    commit_is(place, &(struct ask){.files = "a=1 d/x=2"}, TD_COMMIT_UNCHANGED);
    assert_string_equal(files_at(place, "main"), "a=1 d/x=2");
    commit_is(place, &(struct ask){.files = "n=9", .keep = true}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=1 d/x=2"}, TD_COMMIT_MOVED);
}

static void a_damaged_snapshot_is_reported_and_replaced(void **state)
{
    struct publish_place *place = *state;
    char snapshot[256];
    char name[512];
    char deep[512];
    commit_is(place, &(struct ask){.files = "a=1 d/x=2"}, TD_COMMIT_MOVED);
    (void)snprintf(snapshot, sizeof snapshot, REPO "/snapshots/%s", place->result.commit);
    (void)snprintf(name, sizeof name, "%s/d/x", snapshot);
    tree_remove(&place->tree, name);
    check_damage(place, "missing");
    tree_remove(&place->tree, name);
    tree_text(&place->tree, name, "a file");
    check_damage(place, "\"d/x\" is no link");
    tree_remove(&place->tree, name);
    tree_symlink(&place->tree, name, "/etc/passwd");
    check_damage(place, "\"d/x\" is no link");
    tree_remove(&place->tree, name);
    (void)snprintf(deep, sizeof deep, "../../blobs/%064d", 1); /* a level too few */
    tree_symlink(&place->tree, name, deep);
    check_damage(place, "\"d/x\" is no link");
    (void)snprintf(deep, sizeof deep, "%s/more/", snapshot);
    for (size_t i = 0; i < 40; i++)
        (void)snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "d/");
    tree_directory(&place->tree, deep);
    check_damage(place, "folders deep");
    tree_remove(&place->tree, snapshot);
    check_damage(place, "cannot be read");
    tree_remove(&place->tree, snapshot);
    tree_symlink(&place->tree, snapshot, "/tmp");
    commit_fails(place, &(struct ask){.files = "n=9", .keep = true}, TD_FAILED_PRECONDITION, "cannot be read");
}

static void a_blob_that_is_to_stay_and_is_missing_is_reported(void **state)
{
    struct publish_place *place = *state;
    char name[512] = REPO "/blobs/";
    commit_is(place, &(struct ask){.files = "a=1 b=2"}, TD_COMMIT_MOVED);
    hex_of("2", name + strlen(name));
    tree_remove(&place->tree, name);
    commit_fails(place, &(struct ask){.files = "c=3", .keep = true}, TD_FAILED_PRECONDITION, "\"b\"");
    commit_is(place, &(struct ask){.files = "b=3", .keep = true}, TD_COMMIT_MOVED);
    assert_string_equal(files_at(place, "main"), "a=1 b=3");
}

/* Files that a killed first commit wrote into new/ do not appear with the next. */
static void a_first_commit_that_was_killed_leaves_nothing(void **state)
{
    struct publish_place *place = *state;
    tree_text(&place->tree, NEW "/refs/dev", "0000000000000000000000000000000000000000");
    tree_text(&place->tree, NEW "/snapshots/0000000000000000000000000000000000000000/x", "x");
    tree_text(&place->tree, NEW "/commits/0000000000000000000000000000000000000000", "{}");
    tree_text(&place->tree, ".tensord-publish/incoming/" REPO "/tree/x", "x");
    commit_is(place, &(struct ask){.files = "a=1", .parent = ""}, TD_COMMIT_MOVED);
    assert_string_equal(revisions(place), "main ");
    assert_string_equal(files_of(place, "0000000000000000000000000000000000000000"), "none");
    assert_false(is_there(place, REPO "/commits/0000000000000000000000000000000000000000"));
    assert_false(is_there(place, ".tensord-publish/incoming/" REPO));
}

/* Returns the messages of a revision's history, the newest first. */
static const char *history_of(const struct publish_place *place, const char *revision)
{
    static char out[TEXT_BYTES];
    struct td_arena arena;
    struct td_commit_note note;
    char commit[TD_COMMIT_BYTES];
    out[0] = '\0';
    td_arena_init(&arena, 0);
    (void)td_publish_resolve(&place->repo, revision, commit);
    while (commit[0] != '\0' && td_publish_note_read_in(&place->repo, revision, commit, &arena, &note, NULL)) {
        (void)snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", out[0] == '\0' ? "" : " ", note.message);
        memcpy(commit, note.parent, sizeof commit);
    }
    td_arena_fini(&arena);
    return out;
}

static void a_squash_cuts_the_history_of_one_revision(void **state)
{
    struct publish_place *place = *state;
    commit_is(place, &(struct ask){.files = "a=1", .message = "one"}, TD_COMMIT_MOVED);
    commit_is(place, &(struct ask){.files = "a=2", .message = "two"}, TD_COMMIT_MOVED);
    assert_true(td_publish_set_ref(&place->repo, "rel/v1", "main", false, NULL));
    commit_is(place, &(struct ask){.files = "a=3", .revision = "dev", .from = "main", .message = "three"},
              TD_COMMIT_MOVED);
    assert_true(td_publish_squash(&place->repo, "main", "all", "ci", NULL));
    assert_string_equal(history_of(place, "main"), "all");
    assert_string_equal(history_of(place, "rel/v1"), "two one");
    assert_string_equal(history_of(place, "dev"), "three two one");
    commit_is(place, &(struct ask){.files = "a=4", .message = "four"}, TD_COMMIT_MOVED);
    assert_string_equal(history_of(place, "main"), "four all");
    assert_true(td_publish_set_ref(&place->repo, "copy", "main", false, NULL));
    commit_is(place, &(struct ask){.files = "a=5", .revision = "next", .from = "main", .message = "five"},
              TD_COMMIT_MOVED);
    assert_string_equal(history_of(place, "copy"), "four all");
    assert_string_equal(history_of(place, "next"), "five four all");
    assert_true(td_publish_squash(&place->repo, "rel/v1", "released", "ci", NULL));
    assert_string_equal(history_of(place, "rel/v1"), "released");
    assert_string_equal(history_of(place, "dev"), "three two one");
    assert_true(td_publish_delete_ref(&place->repo, "rel/v1", NULL));
    assert_true(td_publish_set_ref(&place->repo, "rel/v1", "dev", false, NULL)); /* another one of this name */
    assert_string_equal(history_of(place, "rel/v1"), "three two one");
    assert_true(td_publish_squash(&place->repo, "next", "alone", "ci", NULL)); /* no other revision has its commit */
    assert_string_equal(history_of(place, "next"), "alone");
    reopen(place);
    assert_string_equal(history_of(place, "main"), "four all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(publish, a_first_commit_shows_the_repository),
        TEST_IN(publish, the_same_files_are_the_same_commit_and_change_nothing),
        TEST_IN(publish, a_commit_is_that_of_a_plain_directory_with_these_files),
        TEST_IN(publish, a_scan_shows_the_commit),
        TEST_IN(publish, keep_adds_to_what_is_there),
        TEST_IN(publish, files_and_folders_are_deleted),
        TEST_IN(publish, a_commit_without_files_keeps_the_repository),
        TEST_IN(publish, a_new_revision_begins_with_the_files_of_another),
        TEST_IN(publish, unchanged_files_keep_their_links_and_times),
        TEST_IN(publish, blobs_that_are_missing_are_named_and_nothing_changes),
        TEST_IN(publish, blobs_are_regular_files_of_the_size),
        TEST_IN(publish, a_wrong_parent_changes_nothing),
        cmocka_unit_test(paths_are_checked),
        TEST_IN(publish, lists_that_cannot_be_a_directory_are_refused),
        TEST_IN(publish, a_repository_that_does_not_exist_has_no_commits),
        TEST_IN(publish, the_number_of_files_and_folders_is_bounded),
        cmocka_unit_test(names_of_revisions_are_checked),
        TEST_IN(publish, revisions_are_set_moved_and_deleted),
        TEST_IN(publish, revisions_that_no_scan_would_find_are_refused),
        TEST_IN(publish, commits_are_listed_with_their_notes_the_newest_first),
        TEST_IN(publish, a_damaged_snapshot_is_reported_and_replaced),
        TEST_IN(publish, a_blob_that_is_to_stay_and_is_missing_is_reported),
        TEST_IN(publish, a_first_commit_that_was_killed_leaves_nothing),
        TEST_IN(publish, a_squash_cuts_the_history_of_one_revision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
