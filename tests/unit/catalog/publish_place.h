/* Shared by the tests of commits: a served directory in a tree, one repository org/name, and commits in short texts:
 * "a=1 d/x=2" is a file "a" of the content "1", and a file "d/x" of the content "2". */
#ifndef TD_TESTS_UNIT_CATALOG_PUBLISH_PLACE_H
#define TD_TESTS_UNIT_CATALOG_PUBLISH_PLACE_H

#include "catalog/model/hub_cache.h"
#include "catalog/publish/publish_commit.h"
#include "catalog/publish/publish_disk.h"
#include "core/digits.h"
#include "storage/disk_tree.h"
#include "tests/unit/tree_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPO "models--org--name"
#define NEW ".tensord-publish/new/" REPO

enum { MOST_FILES = 64, TEXT_BYTES = 8192 };

struct publish_place {
    struct tree tree;
    struct td_publish_disk disk;
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct td_commit_result result; /* of the last commit */
    struct td_error err;
};

static inline void open_disk(struct publish_place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_disk_open(&place->disk, place->tree.path, &err), "%s", err.message);
    place->repo.fd = -1;
}

static inline void open_repo(struct publish_place *place, bool create)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_publish_repo_open(&place->disk, &place->name, create, &place->repo, &err), "%s", err.message);
}

static inline void publish_place_open(struct publish_place *place)
{
    tree_open(&place->tree);
    assert_true(td_publish_name("org/name", false, &place->name, NULL));
    open_disk(place);
    open_repo(place, true);
}

static inline void publish_place_close(struct publish_place *place)
{
    td_commit_result_fini(&place->result);
    td_publish_repo_close(&place->repo);
    td_publish_disk_close(&place->disk);
    tree_close(&place->tree);
}

FIXTURE(publish, struct publish_place, publish_place_open, publish_place_close)

/* Closes everything and opens it again, as a restart of the server. */
static inline void reopen(struct publish_place *place)
{
    td_publish_repo_close(&place->repo);
    td_publish_disk_close(&place->disk);
    open_disk(place);
    open_repo(place, true);
}

static inline void hex_of(const char *content, char hex[TD_SHA256_TEXT_BYTES])
{
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(content, strlen(content), sum);
    td_hex_write(sum, sizeof sum, hex);
}

static inline bool has_blob(const struct publish_place *place, const char *content)
{
    char name[128] = "blobs/";
    struct stat st;
    hex_of(content, name + strlen(name));
    return fstatat(place->repo.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Writes a blob, unless it is there; by a rename, since a killed process may be writing. */
static inline void put_blob(const struct publish_place *place, const char *content)
{
    char name[128] = "blobs/";
    if (has_blob(place, content))
        return;
    hex_of(content, name + strlen(name));
    int fd = openat(place->repo.fd, "blobs/.put", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    (void)close(fd);
    assert_int_equal(renameat(place->repo.fd, "blobs/.put", place->repo.fd, name), 0);
}

/* A commit in short texts; words are separated by blanks. */
struct ask {
    const char *files, *deletes; /* NULL: none */
    const char *revision;        /* NULL: main */
    const char *parent, *from, *message;
    bool keep, allows_hidden, ignores_missing, renews_times;
    bool lacks; /* writes no blobs */
};

struct words {
    char text[TEXT_BYTES];
    const char *items[MOST_FILES];
    size_t count;
};

static inline void split_words(struct words *words, const char *text)
{
    char *rest = NULL;
    assert_true(text == NULL || strlen(text) < sizeof words->text);
    (void)snprintf(words->text, sizeof words->text, "%s", text == NULL ? "" : text);
    words->count = 0;
    for (char *word = strtok_r(words->text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        assert_true(words->count < MOST_FILES);
        words->items[words->count++] = word;
    }
}

/* Returns the files of the order, for messages. */
static const char *shown_files(const struct ask *ask)
{
    return ask->files == NULL ? "no files" : ask->files;
}

/* Makes the commit. The result and the error are in the place. */
static inline bool commit_as(struct publish_place *place, const struct ask *ask)
{
    struct words files;
    struct words deletes;
    struct td_commit_file list[MOST_FILES];
    split_words(&files, ask->files);
    split_words(&deletes, ask->deletes);
    for (size_t i = 0; i < files.count; i++) {
        char *content = strchr(files.items[i], '=');
        assert_non_null(content);
        *content++ = '\0';
        if (!ask->lacks)
            put_blob(place, content);
        list[i] = (struct td_commit_file){.path = files.items[i], .size_bytes = strlen(content), .has_size = true};
        td_sha256(content, strlen(content), list[i].sha256);
    }
    const struct td_commit_order order = {.revision = ask->revision == NULL ? "main" : ask->revision,
                                          .parent = ask->parent,
                                          .from = ask->from,
                                          .keep = ask->keep,
                                          .allows_hidden = ask->allows_hidden,
                                          .ignores_missing = ask->ignores_missing,
                                          .renews_times = ask->renews_times,
                                          .files = list,
                                          .file_count = files.count,
                                          .deletions = deletes.items,
                                          .deletion_count = deletes.count,
                                          .message = ask->message == NULL ? "" : ask->message,
                                          .token = "ci"};
    td_error_init(&place->err);
    td_commit_result_fini(&place->result);
    return td_publish_commit(&place->repo, &order, &place->result, &place->err);
}

static inline void commit_is(struct publish_place *place, const struct ask *ask, enum td_commit_verdict verdict)
{
    CHECK(commit_as(place, ask), "%s: %s", shown_files(ask), place->err.message);
    CHECK(place->result.verdict == verdict, "%s: verdict %d", shown_files(ask), (int)place->result.verdict);
}

static inline void commit_fails(struct publish_place *place, const struct ask *ask, enum td_code code, const char *says)
{
    CHECK(!commit_as(place, ask), "%s: succeeds", shown_files(ask));
    CHECK(place->err.code == code, "%s: code %d, %s", shown_files(ask), (int)place->err.code, place->err.message);
    check_says(&place->err, says, ask->files == NULL ? "" : ask->files);
}

/* ---- reading by hand ----------------------------------------------------------------------------------- */

struct reading {
    size_t top_len;
    char *lines[MOST_FILES];
    size_t count;
};

static inline bool read_link(void *context, const FTSENT *item)
{
    struct reading *reading = context;
    char content[256] = "?";
    char line[TREE_PATH_BYTES + 300];
    if (item->fts_info == FTS_D || item->fts_info == FTS_DP)
        return true;
    int fd = S_ISLNK(item->fts_statp->st_mode) ? open(item->fts_path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        ssize_t n = read(fd, content, sizeof content - 1);
        assert_true(n >= 0);
        content[n] = '\0';
        (void)close(fd);
    }
    (void)snprintf(line, sizeof line, "%s\t%s", item->fts_path + reading->top_len, content);
    assert_true(reading->count < MOST_FILES);
    reading->lines[reading->count++] = strdup(line);
    return true;
}

static inline int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the files of a directory of links, "a=1 d/x=2", in a static buffer; "none" without the directory. */
static inline const char *files_below(const char *directory)
{
    static char out[TEXT_BYTES];
    struct reading reading = {.top_len = strlen(directory) + 1};
    size_t used = 0;
    if (!td_disk_tree_visit(directory, read_link, &reading))
        return "none";
    qsort(reading.lines, reading.count, sizeof *reading.lines, compare_lines);
    out[0] = '\0';
    for (size_t i = 0; i < reading.count; i++) {
        *strchr(reading.lines[i], '\t') = '='; /* which sorts after characters of longer paths */
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i > 0 ? " " : "", reading.lines[i]);
        free(reading.lines[i]);
    }
    return out;
}

/* Returns the files of a commit, as a scan would find them. */
static inline const char *files_of(const struct publish_place *place, const char *commit)
{
    char path[TREE_PATH_BYTES];
    char name[256];
    (void)snprintf(name, sizeof name, REPO "/snapshots/%s", commit);
    tree_at(&place->tree, name, path);
    return files_below(path);
}

/* Returns the commit that a visible revision names; "" without it. */
static inline const char *commit_at(const struct publish_place *place, const char *revision)
{
    static char out[TD_COMMIT_BYTES + 1];
    char path[TREE_PATH_BYTES];
    char name[256];
    (void)snprintf(name, sizeof name, REPO "/refs/%s", revision);
    tree_at(&place->tree, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, sizeof out - 1);
    if (fd >= 0)
        (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

/* Returns the files that a visible revision has; "none" without it. */
static inline const char *files_at(const struct publish_place *place, const char *revision)
{
    char commit[TD_COMMIT_BYTES + 1];
    (void)snprintf(commit, sizeof commit, "%s", commit_at(place, revision));
    return commit[0] == '\0' ? "none" : files_of(place, commit);
}

#endif
