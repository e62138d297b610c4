/* The store of kept models: what is in it, what is published, what leaves first, and what a kill leaves behind. */
#include "catalog/upstream/upstream_store.h"

#include "tests/unit/catalog/store_place.h"
#include "tests/unit/tree_fixture.h"

#include <errno.h>
#include <sys/wait.h>

enum { DIED = 7 };

static bool has_no_noreplace; /* renames that replace nothing fail as on NFS */
static bool dies_at_rename;   /* this process ends when it is about to publish a model */
static ino_t watched;         /* of a directory */
static bool is_synced, was_synced_at_rename;

int __wrap_fsync(int fd);
int __real_fsync(int fd);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);

int __wrap_fsync(int fd)
{
    struct stat st;
    if (watched != 0 && fstat(fd, &st) == 0 && st.st_ino == watched)
        is_synced = true;
    return __real_fsync(fd);
}

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (dies_at_rename)
        _exit(DIED);
    if (has_no_noreplace && flags != 0) {
        errno = EINVAL;
        return -1;
    }
    was_synced_at_rename = is_synced;
    return __real_renameat2(from_dir, from, to_dir, to, flags);
}

/* Begins a model, with no file yet. Returns how many others it evicted. */
static uint64_t begin_empty(struct td_upstream_store *store, const char *id, uint64_t bytes)
{
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    CHECK(td_upstream_store_begin(store, id, bytes, &folder, &began_s, &evicted, NULL), "%s", id);
    td_root_unref(folder);
    return evicted;
}

/* Checks that a model is refused with this code. Returns the error. Adds to *evicted how many others were evicted. */
static struct td_error begin_refused(struct td_upstream_store *store, const char *id, uint64_t bytes, enum td_code code,
                                     uint64_t *evicted)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_root *folder = NULL;
    int64_t began_s;
    CHECK(!td_upstream_store_begin(store, id, bytes, &folder, &began_s, evicted, &err), "%s", id);
    CHECK(err.code == code, "%s: code %d, %s", id, (int)err.code, err.message);
    return err;
}

/* shows: security.md upstream-many-models */
static void ids_are_those_of_models_and_lead_nowhere_else(void **state)
{
    static const char *const good[] = {"gpt2", "org/name", "Org-1/na_me.v2"};
    static const char *const bad[] = {
        "",     "/",        "a/",          "/a",    "a/b/c",       ".hidden",  "a/.b",
        "a/..", "..",       "a b",         "a/b\n", "datasets/x",  "datasets", "models--a--b",
        "a\\b", "\xc3\xa9", "a/models--b", "a//b",  "datasets--a", "a%2fb",
    };
    char longest[2 * 96 + 2];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_kept_id_is_valid(td_text_of(good[i])), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_kept_id_is_valid(td_text_of(bad[i])), "%s", bad[i]);
    memset(longest, 'a', sizeof longest);
    assert_true(td_kept_id_is_valid(td_text_n(longest, 96)));
    assert_false(td_kept_id_is_valid(td_text_n(longest, 97)));
    longest[96] = '/';
    assert_true(td_kept_id_is_valid(td_text_n(longest, 96 + 1 + 96)));
    assert_false(td_kept_id_is_valid(td_text_n(longest, 96 + 1 + 97)));
    assert_false(td_kept_id_is_valid(td_text_n("a\0b", 3)));
}

/* The places of versions in the served directory, and what a Hub calls each. */
static void ids_of_versions_name_their_places(void **state)
{
    (void)state;
    static const struct {
        const char *id, *mark, *version, *kept; /* kept NULL: refused */
        const char *hub_id, *revision;          /* as the kept id is split */
    } rows[] = {
        {"org/name", "@", "step-5", "org/name@step-5", "org/name", "step-5"},
        {"gpt2", "@", "v1.0+cu12", "gpt2@v1.0+cu12", "gpt2", "v1.0+cu12"},
        {"org/run", "@@", "weight_v000012", "org/run@@weight_v000012", "org/run", "weight_v000012"},
        {"run", "/", "7", "run/7", "run/7", ""},
        {"org/run", "/", "7", NULL, NULL, NULL}, /* of three parts */
        {"org/name", "@", "", NULL, NULL, NULL},
        {"org/name", "@", "a/b", NULL, NULL, NULL},
        {"org/name", "@", "..", NULL, NULL, NULL},
        {"org/name", "@", "-x", NULL, NULL, NULL},
        {"org/name", "@", "a@b", NULL, NULL, NULL},
        {"org/name", "@", "step 5", NULL, NULL, NULL},
        {"org/name", "@", "a.tmp", NULL, NULL, NULL},        /* scans ignore it */
        {"org/name", "@", "a.incomplete", NULL, NULL, NULL}, /* this, too */
        {"datasets/x", "@", "step-5", NULL, NULL, NULL},
        {"a@b", "@", "step-5", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char kept[TD_UPSTREAM_ID_BYTES];
        struct td_text id;
        struct td_text revision;
        bool ok = td_kept_id_write(td_text_of(rows[i].id), rows[i].mark, td_text_of(rows[i].version), kept);
        CHECK(ok == (rows[i].kept != NULL), "%s %s", rows[i].id, rows[i].version);
        if (!ok)
            continue;
        assert_string_equal(kept, rows[i].kept);
        assert_true(td_kept_id_split(td_text_of(kept), &id, &revision));
        assert_true(td_text_equals(id, rows[i].hub_id) && td_text_equals(revision, rows[i].revision));
    }
    char longest[TD_KEPT_VERSION_BYTES + 2];
    char kept[TD_UPSTREAM_ID_BYTES];
    memset(longest, 'v', sizeof longest);
    assert_true(td_kept_id_write(TD_TEXT("n"), "@", td_text_n(longest, TD_KEPT_VERSION_BYTES), kept));
    assert_false(td_kept_id_write(TD_TEXT("n"), "@", td_text_n(longest, TD_KEPT_VERSION_BYTES + 1), kept));
}

static void a_model_appears_by_one_rename_without_what_does_not_belong_to_it(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    struct td_root *folder = NULL;
    int64_t began_s;
    uint64_t evicted = 0;
    struct td_upstream_store *store = open_store(tree, 0);
    assert_true(td_upstream_store_begin(store, "org/name", 2, &folder, &began_s, &evicted, NULL));
    put(folder->fd, "config.json", "{}");
    put(folder->fd, ".config.json.tensord-part", "left over");
    assert_int_equal(mkdirat(folder->fd, "old", 0755), 0);
    put(folder->fd, "old/model.bin", "of another version");
    td_root_unref(folder);
    assert_false(exists(tree, "org"));
    assert_false(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    publish(store, "org/name");
    assert_true(exists(tree, "org/name/config.json"));
    assert_false(exists(tree, "org/name/.config.json.tensord-part"));
    assert_false(exists(tree, "org/name/old"));
    assert_true(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    assert_int_equal(kept.bytes, 2);
    assert_true(kept.is_verified);
    assert_true(td_upstream_store_is_there(store, TD_TEXT("org/name")));
    td_upstream_store_close(store);
}

/* shows: security.md upstream-eviction */
static void what_the_operator_has_is_left_alone(void **state)
{
    struct tree *tree = *state;
    uint64_t evicted = 0;
    tree_text(tree, "org/mine/config.json", "mine");
    tree_text(tree, "later/x", "x");
    tree_remove(tree, "later");
    struct td_upstream_store *store = open_store(tree, 100);
    struct td_error err = begin_refused(store, "org/mine", 2, TD_CONFLICT, &evicted);
    begin(store, "later", 2);
    tree_text(tree, "later/config.json", "the operator was faster");
    td_error_init(&err);
    assert_false(td_upstream_store_publish(store, "later", true, is_config, NULL, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    keep(store, "swapped", 60);
    tree_remove(tree, "swapped");
    tree_text(tree, "swapped/config.json", "the operator's own");
    keep(store, "added", 10);
    tree_text(tree, "added/notes.txt", "the operator's own");
    keep_deep(store, "org/deep", 10);
    tree_text(tree, "org/deep/d/precious.bin", "the operator's own");
    keep_deep(store, "org/written", 10);
    tree_poke(tree, "org/written/d/config.json", 0, "[]", 2);
    keep_deep(store, "untouched", 10);
    assert_int_equal(begin_empty(store, "new", 95), 1); /* of others the record goes, and the directory stays */
    assert_false(exists(tree, "untouched"));
    assert_true(exists(tree, "org/deep/d/precious.bin") && exists(tree, "org/deep/config.json"));
    assert_true(exists(tree, "org/written/d/config.json") && exists(tree, "org/written/config.json"));
    assert_true(exists(tree, "swapped/config.json"));
    assert_true(exists(tree, "added/config.json") && exists(tree, "added/notes.txt"));
    assert_true(exists(tree, "later/config.json"));
    assert_true(exists(tree, "org/mine/config.json"));
    td_upstream_store_close(store);
}

static void a_model_that_was_being_compared_at_a_kill_goes_back(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    char name[128];
    struct td_upstream_store *store = open_store(tree, 100);
    keep_deep(store, "org/name", 10);
    td_upstream_store_close(store);
    name_in_store("check/%s", "org/name", name);
    tree_rename(tree, "org/name", name);
    tree_text(tree, ".tensord-upstream/check/unknown/x", "x"); /* without a record */
    store = open_store(tree, 100);
    assert_true(exists(tree, "org/name/d/config.json"));
    assert_true(td_upstream_store_find(store, TD_TEXT("org/name"), &kept));
    assert_true(exists(tree, ".tensord-upstream/check/unknown/x"));
    td_upstream_store_close(store);
}

static void a_record_of_an_older_version_makes_the_model_the_operators(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    struct stat st;
    char name[128];
    char text[256];
    char path[TREE_PATH_BYTES];
    tree_text(tree, "a/config.json", "{}");
    tree_at(tree, "a", path);
    assert_int_equal(stat(path, &st), 0);
    name_in_store("records/%s", "a", name);
    (void)snprintf(text, sizeof text,
                   "{\"id\":\"a\",\"bytes\":2,\"inode\":%llu,\"mtime\":%lld,\"began\":1,\"verified\":true}\n",
                   (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec);
    tree_text(tree, name, text);
    struct td_upstream_store *store = open_store(tree, 100);
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept));
    assert_false(exists(tree, name));
    assert_true(exists(tree, "a/config.json"));
    td_upstream_store_close(store);
}

static void the_least_recently_read_model_leaves_first(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "a", 30);
    keep(store, "b", 30);
    keep(store, "c", 30);
    td_upstream_store_close(store);
    set_read(tree, "a", 3000);
    set_read(tree, "b", 1000);
    set_read(tree, "c", 2000);
    store = open_store(tree, 100);
    assert_int_equal(td_upstream_store_bytes(store, &count), 90);
    assert_int_equal(count, 3);
    assert_true(td_upstream_store_find(store, TD_TEXT("b"), &kept));
    assert_int_equal(kept.read_ns, 1000 * 1000000000L);
    td_upstream_store_note_read(store, TD_TEXT("b"));
    assert_int_equal(begin_empty(store, "org/d", 50), 2); /* c, then a */
    assert_false(exists(tree, "c") || exists(tree, "a"));
    assert_true(exists(tree, "b/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 80);
    td_upstream_store_close(store); /* writes when b was read */
    store = open_store(tree, 100);
    assert_true(td_upstream_store_find(store, TD_TEXT("b"), &kept));
    assert_true(kept.read_ns > 3000 * 1000000000L);
    td_upstream_store_close(store);
}

static void a_model_without_room_is_refused_and_changes_nothing(void **state)
{
    struct tree *tree = *state;
    uint64_t evicted = 0;
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "kept", 40);
    struct td_error err = begin_refused(store, "huge", 101, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "it has 101 bytes, more than --cache-max-bytes 100", "too large");
    assert_true(exists(tree, "kept/config.json"));
    begin(store, "running", 60);
    err = begin_refused(store, "other", 50, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "it needs 50 bytes; of --cache-max-bytes 100, 60 are for models that are being fetched", "busy");
    assert_true(exists(tree, "kept/config.json"));
    err = begin_refused(store, "running", 60, TD_CONFLICT, &evicted);
    td_upstream_store_close(store);
    store = open_store(tree, 0);
    err = begin_refused(store, "sky", UINT64_MAX / 2, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "the disk has", "larger than the disk");
    begin(store, "grown", 2);
    td_upstream_store_pause(store, "grown"); /* what was left over is asked for its missing bytes, too */
    err = begin_refused(store, "grown", UINT64_MAX / 2, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "the disk has", "grown larger than the disk");
    td_upstream_store_close(store);
}

static void no_model_leaves_for_one_that_the_disk_cannot_take(void **state)
{
    const uint64_t max_bytes = UINT64_MAX / 2; /* far more than the disk has */
    struct tree *tree = *state;
    uint64_t evicted = 0;
    size_t count;
    struct td_upstream_store *store = open_store(tree, max_bytes);
    keep(store, "a", 40);
    keep(store, "b", 50);
    struct td_error err = begin_refused(store, "sky", max_bytes - 10, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "and 90 of models that could be evicted", "what both would free"); /* 80 are too many; so both */
    assert_int_equal(evicted, 0);
    assert_true(exists(tree, "a/config.json") && exists(tree, "b/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 90);
    err = begin_refused(store, "sky", max_bytes - 51, TD_RESOURCE_EXHAUSTED, &evicted);
    check_says(&err, "and 40 of models that could be evicted", "what the first would free");
    td_upstream_store_close(store);
}

static void what_was_fetched_before_a_kill_goes_on(void **state)
{
    struct tree *tree = *state;
    struct td_root *folder = NULL;
    char name[128];
    int64_t first_s;
    int64_t second_s;
    uint64_t evicted = 0;
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "A", 20); /* stands before the other one */
    assert_true(td_upstream_store_begin(store, "a", 50, &folder, &first_s, &evicted, NULL));
    put(folder->fd, "config.json", "{}");
    td_root_unref(folder);
    td_upstream_store_close(store); /* nothing is noted at the end, so this is what a kill leaves */
    tree_text(tree, ".tensord-upstream/incoming/unknown/files/x", "x");
    tree_text(tree, ".tensord-upstream/trash/1-1/x/y", "x");
    store = open_store(tree, 100);
    assert_false(exists(tree, ".tensord-upstream/incoming/unknown"));
    assert_false(exists(tree, ".tensord-upstream/trash/1-1"));
    assert_true(td_upstream_store_begin(store, "a", 50, &folder, &second_s, &evicted, NULL));
    assert_int_equal(second_s, first_s);
    assert_int_equal(faccessat(folder->fd, "config.json", R_OK, 0), 0);
    td_root_unref(folder);
    td_upstream_store_pause(store, "a");
    name_in_store("incoming/%s", "a", name);
    assert_true(exists(tree, name));
    assert_int_equal(begin_empty(store, "b", 80), 0); /* what was left over leaves before anything that was published */
    assert_false(exists(tree, name));
    assert_true(exists(tree, "A/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 100);
    td_upstream_store_discard(store, "b");
    assert_int_equal(td_upstream_store_bytes(store, &count), 20);
    td_upstream_store_close(store);
}

/* Publishes a model in another process, which dies when it is about to rename the directory into place. */
static void publish_and_die(const struct tree *tree, const char *id)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct td_upstream_store *store = open_store(tree, 100);
        dies_at_rename = true;
        keep(store, id, 50);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == DIED);
}

/* shows: security.md upstream-kills */
static void a_kill_between_record_and_rename_publishes_nothing(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    char record[128];
    char incoming[128];
    publish_and_die(tree, "a");
    name_in_store("records/%s", "a", record);
    name_in_store("incoming/%s/files/config.json", "a", incoming);
    assert_true(exists(tree, record) && exists(tree, incoming) && !exists(tree, "a"));
    struct td_upstream_store *store = open_store(tree, 100);
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept));
    assert_false(exists(tree, record));
    assert_true(exists(tree, incoming)); /* and can be resumed */
    (void)begin_empty(store, "a", 50);
    publish(store, "a");
    assert_true(exists(tree, "a/config.json"));
    td_upstream_store_close(store);
}

static void a_model_that_the_operator_has_removed_is_fetched_anew(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    char record[128];
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "a", 50);
    td_upstream_store_close(store);
    tree_remove(tree, "a"); /* while no server runs */
    store = open_store(tree, 100);
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept));
    keep(store, "a", 50);
    tree_remove(tree, "a"); /* while the server runs */
    assert_false(td_upstream_store_is_there(store, TD_TEXT("a")));
    name_in_store("records/%s", "a", record);
    assert_false(exists(tree, record));
    keep(store, "a", 50);
    assert_true(exists(tree, "a/config.json"));
    td_upstream_store_close(store);
}

/* Puts another value in the place of a member's. An empty value cuts the text there. */
static void set_member(const char *text, const char *member, const char *value, char out[1024])
{
    const char *at = strstr(text, member);
    assert_non_null(at);
    at += strlen(member);
    const char *end = at + strcspn(at, ",}");
    (void)snprintf(out, 1024, "%.*s%s%s", (int)(at - text), text, value, value[0] == '\0' ? "" : end);
}

static void read_text(const struct tree *tree, const char *name, char out[1024])
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, name, path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(out, 1, 1023, file);
    (void)fclose(file);
    out[n] = '\0';
}

/* Returns the bytes of all models that a store finds when this note says so. */
static uint64_t bytes_of(const struct tree *tree, const char *name, const char *text, size_t *count)
{
    tree_text(tree, name, text);
    struct td_upstream_store *store = open_store(tree, 100);
    uint64_t bytes = td_upstream_store_bytes(store, count);
    td_upstream_store_close(store);
    return bytes;
}

/* A note with one wrong member each, else as the store has written it. */
static const struct damage {
    const char *member, *value;
} damages[] = {
    {"{\"id\":", ""},
    {"\"id\":", "7"},
    {"\"id\":", "\"a\\u0000\""},
    {"\"id\":", "\"b\""}, /* in the place of another model's */
    {"\"bytes\":", "-1"},
    {"\"bytes\":", "\"2\""},
    {"\"bytes\":", "18446744073709551616"},
    {"\"inode\":", "-1"},
    {"\"mtime\":", "18446744073709551615"},
    {"\"mtime\":", "null"},
    {"\"began\":", "18446744073709551615"},
    {"\"began\":", "1.5"},
    {"\"began\":", "9223372036854775807"}, /* a week later is no time any more */
    {"\"began\":", "9223372037"},          /* as ns since 1970 */
    {"\"verified\":", ""},
};

/* shows: security.md upstream-kills */
static void damaged_notes_are_dropped(void **state)
{
    struct tree *tree = *state;
    char record[128];
    char incoming[128];
    char good[1024];
    char bad[1024];
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "a", 2);
    td_upstream_store_close(store);
    name_in_store("records/%s", "a", record);
    read_text(tree, record, good);
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        assert_int_equal(bytes_of(tree, record, good, &count), 2); /* what the damage takes away */
        assert_int_equal(count, 1);
        set_member(good, damages[i].member, damages[i].value, bad);
        CHECK(bytes_of(tree, record, bad, &count) == 0 && count == 0, "%s", bad);
        CHECK(!exists(tree, record), "%s", bad);
    }
    assert_true(exists(tree, "a/config.json"));
    tree_remove(tree, "a");
    store = open_store(tree, 100);
    begin(store, "a", 2);
    td_upstream_store_close(store);
    name_in_store("incoming/%s/model", "a", incoming);
    read_text(tree, incoming, good);
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        assert_int_equal(bytes_of(tree, incoming, good, &count), 2);
        set_member(good, damages[i].member, damages[i].value, bad);
        CHECK(bytes_of(tree, incoming, bad, &count) == 0, "%s", bad);
        CHECK(!exists(tree, incoming), "%s", bad);
    }
}

static void notes_that_lead_elsewhere_or_are_old_are_dropped(void **state)
{
    struct tree *tree = *state;
    char name[128];
    char good[1024];
    char text[1024];
    char now[32];
    size_t count;
    struct td_upstream_store *store = open_store(tree, 100);
    begin(store, "a", 2);
    td_upstream_store_close(store);
    name_in_store("incoming/%s/model", "a", name);
    read_text(tree, name, good);
    (void)snprintf(now, sizeof now, "%lld", (long long)time(NULL) - 6 * 86400);
    set_member(good, "\"began\":", now, text);
    assert_int_equal(bytes_of(tree, name, text, &count), 2);
    (void)snprintf(now, sizeof now, "%lld", (long long)time(NULL) - 8 * 86400);
    set_member(good, "\"began\":", now, text);
    assert_int_equal(bytes_of(tree, name, text, &count), 0);
    set_member(good, "\"id\":", "\"../x\"", text);
    name_in_store("incoming/%s/model", "../x", name); /* the right name for that id */
    assert_int_equal(bytes_of(tree, name, text, &count), 0);
}

static void a_file_system_that_cannot_publish_is_said_at_the_start(void **state)
{
    struct tree *tree = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_upstream_store *store = NULL;
    has_no_noreplace = true;
    assert_false(td_upstream_store_open(tree->path, 0, &store, &err));
    check_says(&err, "RENAME_NOREPLACE", "open");
    has_no_noreplace = false;
    store = open_store(tree, 0);
    assert_false(exists(tree, ".tensord-upstream/trial"));
    assert_false(exists(tree, ".tensord-upstream/trash/trial"));
    td_upstream_store_close(store);
}

static void a_second_process_is_kept_out(void **state)
{
    struct tree *tree = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_upstream_store *second = NULL;
    struct td_upstream_store *store = open_store(tree, 0);
    assert_false(td_upstream_store_open(tree->path, 0, &second, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "another tensord", "second");
    td_upstream_store_close(store);
    td_upstream_store_close(open_store(tree, 0));
}

/* Begins a model, and checks that the store says that it is not the one at its path any more. */
static void check_gone(struct td_upstream_store *store, const char *id)
{
    uint64_t evicted = 0;
    struct td_error err = begin_refused(store, id, 2, TD_FAILED_PRECONDITION, &evicted);
    check_says(&err, "was removed or replaced while the server runs; restart the server", id);
}

/* shows: security.md upstream-store-removed */
static void a_store_that_is_removed_or_replaced_is_not_used(void **state)
{
    static const char *const gone[] = {".tensord-upstream", ".tensord-upstream/lock"};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(gone); i++) {
        struct tree tree;
        struct td_error err = TD_ERROR_INIT;
        char stray[128];
        char text[1024];
        tree_open(&tree);
        struct td_upstream_store *store = open_store(&tree, 100);
        keep(store, "kept", 60);
        begin(store, "org/name", 2);
        tree_remove(&tree, gone[i]);
        check_gone(store, "other");
        struct td_upstream_store *second = open_store(&tree, 0); /* nothing keeps it out */
        if (i == 0)
            begin(second, "org/name", 2);
        name_in_store("incoming/%s/files/part", "org/name", stray);
        tree_text(&tree, stray, "of the second");
        check_gone(store, "other");
        assert_false(td_upstream_store_publish(store, "org/name", true, is_config, NULL, &err));
        check_says(&err, "was removed or replaced while the server runs", gone[i]);
        assert_false(exists(&tree, "org/name"));
        read_text(&tree, stray, text);
        assert_string_equal(text, "of the second");
        assert_true(exists(&tree, "kept/config.json")); /* nothing has made room */
        td_upstream_store_close(store);
        if (i == 0)
            publish(second, "org/name");
        td_upstream_store_close(second);
        tree_close(&tree);
    }
}

/* Moves the store away, and has another server begin the same model. */
static struct td_upstream_store *take_the_place(const struct tree *tree)
{
    char from[TREE_PATH_BYTES + 32];
    char to[TREE_PATH_BYTES + 32];
    char stray[128];
    (void)snprintf(from, sizeof from, "%s/.tensord-upstream", tree->path);
    (void)snprintf(to, sizeof to, "%s/.old", tree->path);
    assert_int_equal(rename(from, to), 0);
    struct td_upstream_store *second = open_store(tree, 0);
    begin(second, "org/name", 2);
    name_in_store("incoming/%s/files/part", "org/name", stray);
    tree_text(tree, stray, "of the second");
    return second;
}

struct swap {
    const struct tree *tree;
    struct td_upstream_store *second; /* NULL: not yet */
};

/* Says as is_config which files belong, after another server has taken the place. */
static bool swap_and_say(void *context, const char *path)
{
    struct swap *swap = context;
    if (swap->second == NULL)
        swap->second = take_the_place(swap->tree);
    return is_config(NULL, path);
}

/* Whenever another server takes the place: what is removed is this store's own. */
/* shows: security.md upstream-store-removed */
static void a_store_that_is_replaced_at_work_removes_its_own(void **state)
{
    (void)state;
    for (int publishes = 0; publishes < 2; publishes++) {
        struct tree tree;
        struct swap swap = {.tree = &tree};
        struct td_error err = TD_ERROR_INIT;
        char stray[128];
        char path[TREE_PATH_BYTES];
        char text[1024];
        tree_open(&tree);
        struct td_upstream_store *store = open_store(&tree, 0);
        begin(store, "org/name", 2);
        name_in_store("incoming/%s/files/part", "org/name", stray);
        tree_text(&tree, stray, "of the first");
        if (publishes == 1) {
            CHECK(td_upstream_store_publish(store, "org/name", true, swap_and_say, &swap, &err), "%s", err.message);
            assert_false(exists(&tree, "org/name/part"));
        } else {
            swap.second = take_the_place(&tree);
            td_upstream_store_discard(store, "org/name");
        }
        read_text(&tree, stray, text);
        assert_string_equal(text, "of the second");
        tree_at(&tree, ".old/trash", path);
        assert_int_equal(rmdir(path), 0); /* it is empty */
        tree_at(&tree, ".old/incoming", path);
        assert_int_equal(rmdir(path), 0);
        td_upstream_store_close(store);
        td_upstream_store_close(swap.second);
        tree_close(&tree);
    }
}

static void a_served_directory_that_is_replaced_is_not_used(void **state)
{
    struct tree *tree = *state;
    char old[TREE_PATH_BYTES + 8];
    struct td_upstream_store *store = open_store(tree, 0);
    (void)snprintf(old, sizeof old, "%s-old", tree->path);
    assert_int_equal(rename(tree->path, old), 0);
    check_gone(store, "m");
    assert_int_equal(mkdir(tree->path, 0755), 0);
    check_gone(store, "m");
    assert_int_equal(rmdir(tree->path), 0);
    assert_int_equal(rename(old, tree->path), 0);
    keep(store, "m", 2);
    td_upstream_store_close(store);
}

static void folders_of_the_store_that_are_removed_are_made_anew(void **state)
{
    static const char *const folders[] = {"incoming", "records", "check", "trash"};
    struct tree *tree = *state;
    struct td_upstream_store *store = open_store(tree, 10);
    begin(store, "org/name", 2);
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        char name[128];
        (void)snprintf(name, sizeof name, ".tensord-upstream/%s", folders[i]);
        if (i > 0)
            tree_remove(tree, name);
    }
    publish(store, "org/name");
    tree_remove(tree, ".tensord-upstream/incoming");
    keep(store, "new", 10); /* the other one leaves by check/ and trash/ */
    assert_true(exists(tree, "new/config.json") && !exists(tree, "org/name"));
    td_upstream_store_close(store);
}

/* Returns the inode of something in the tree. */
static ino_t inode_of(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    struct stat st;
    tree_at(tree, name, path);
    assert_int_equal(lstat(path, &st), 0);
    return st.st_ino;
}

static void the_name_of_a_record_is_on_disk_before_the_model_is_in_its_place(void **state)
{
    struct tree *tree = *state;
    struct td_upstream_store *store = open_store(tree, 0);
    begin(store, "org/name", 2);
    watched = inode_of(tree, ".tensord-upstream/records");
    is_synced = was_synced_at_rename = false;
    publish(store, "org/name");
    assert_true(was_synced_at_rename);
    watched = 0;
    td_upstream_store_close(store);
}

/* Checks the error of a place that cannot be had, which names the path. */
static void check_conflict(const struct tree *tree, const struct td_error *err, const char *name, const char *says)
{
    char path[TREE_PATH_BYTES + 16];
    assert_int_equal(err->code, TD_CONFLICT);
    (void)snprintf(path, sizeof path, "\"%s/%s\"", tree->path, name);
    check_says(err, path, says);
    check_says(err, says, name);
}

/* shows: security.md upstream-links */
static void a_place_that_is_in_the_way_is_found_before_anything_is_fetched(void **state)
{
    struct tree *tree = *state;
    char incoming[128];
    uint64_t evicted = 0;
    size_t count;
    tree_directory(tree, "elsewhere");
    tree_symlink(tree, "org", "elsewhere");
    tree_text(tree, "file", "the operator's");
    tree_text(tree, "x/model/notes", "the operator's");
    struct td_upstream_store *store = open_store(tree, 10);
    keep(store, "kept", 10);
    struct td_error err = begin_refused(store, "org/name", 2, TD_CONFLICT, &evicted);
    check_conflict(tree, &err, "org", "is a symbolic link");
    err = begin_refused(store, "file/name", 2, TD_CONFLICT, &evicted);
    check_conflict(tree, &err, "file", "is not a directory");
    err = begin_refused(store, "x/model", 2, TD_CONFLICT, &evicted);
    check_conflict(tree, &err, "x/model", "is in the way: it is not a model that was fetched");
    assert_int_equal(evicted, 0); /* nothing made room for what cannot be kept */
    assert_true(exists(tree, "kept/config.json"));
    assert_int_equal(td_upstream_store_bytes(store, &count), 10);
    name_in_store("incoming/%s", "org/name", incoming);
    assert_false(exists(tree, incoming));
    td_upstream_store_close(store);
}

/* shows: security.md upstream-links */
static void a_place_that_has_become_a_link_is_not_entered(void **state)
{
    struct tree *tree = *state;
    struct td_error err = TD_ERROR_INIT;
    tree_directory(tree, "elsewhere");
    struct td_upstream_store *store = open_store(tree, 0);
    begin(store, "org/name", 2);
    tree_symlink(tree, "org", "elsewhere");
    assert_false(td_upstream_store_publish(store, "org/name", true, is_config, NULL, &err));
    check_conflict(tree, &err, "org", "is a symbolic link");
    assert_false(exists(tree, "elsewhere/name"));
    td_upstream_store_close(store);
}

static void a_model_that_cannot_be_removed_goes_back_to_its_place(void **state)
{
    struct tree *tree = *state;
    struct td_kept_model kept;
    char check[128];
    struct td_upstream_store *store = open_store(tree, 100);
    keep(store, "a", 60);
    tree_remove(tree, ".tensord-upstream/trash");
    tree_text(tree, ".tensord-upstream/trash", "in the way"); /* nothing can be moved there */
    assert_int_equal(begin_empty(store, "b", 60), 0);
    assert_true(exists(tree, "a/config.json"));
    name_in_store("check/%s", "a", check);
    assert_false(exists(tree, check));
    assert_false(td_upstream_store_find(store, TD_TEXT("a"), &kept)); /* the operator's from now on, as the log says */
    td_upstream_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_models_and_lead_nowhere_else),
        cmocka_unit_test(ids_of_versions_name_their_places),
        TEST_IN(tree, a_model_appears_by_one_rename_without_what_does_not_belong_to_it),
        TEST_IN(tree, what_the_operator_has_is_left_alone),
        TEST_IN(tree, a_model_that_was_being_compared_at_a_kill_goes_back),
        TEST_IN(tree, a_record_of_an_older_version_makes_the_model_the_operators),
        TEST_IN(tree, the_least_recently_read_model_leaves_first),
        TEST_IN(tree, a_model_without_room_is_refused_and_changes_nothing),
        TEST_IN(tree, no_model_leaves_for_one_that_the_disk_cannot_take),
        TEST_IN(tree, what_was_fetched_before_a_kill_goes_on),
        TEST_IN(tree, a_kill_between_record_and_rename_publishes_nothing),
        TEST_IN(tree, a_model_that_the_operator_has_removed_is_fetched_anew),
        TEST_IN(tree, damaged_notes_are_dropped),
        TEST_IN(tree, notes_that_lead_elsewhere_or_are_old_are_dropped),
        TEST_IN(tree, a_file_system_that_cannot_publish_is_said_at_the_start),
        TEST_IN(tree, a_second_process_is_kept_out),
        cmocka_unit_test(a_store_that_is_removed_or_replaced_is_not_used),
        cmocka_unit_test(a_store_that_is_replaced_at_work_removes_its_own),
        TEST_IN(tree, a_served_directory_that_is_replaced_is_not_used),
        TEST_IN(tree, folders_of_the_store_that_are_removed_are_made_anew),
        TEST_IN(tree, the_name_of_a_record_is_on_disk_before_the_model_is_in_its_place),
        TEST_IN(tree, a_place_that_is_in_the_way_is_found_before_anything_is_fetched),
        TEST_IN(tree, a_place_that_has_become_a_link_is_not_entered),
        TEST_IN(tree, a_model_that_cannot_be_removed_goes_back_to_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
