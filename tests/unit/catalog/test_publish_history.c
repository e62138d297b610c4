/* Random histories of a repository: commits, rollbacks, tags, deletions, collections and restarts, against a model in
 * memory. After each step the directory is read as scans read it. */
#include "catalog/publish/publish_collect.h"
#include "catalog/publish/publish_commit.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/mix64.h"
#include "tests/unit/catalog/publish_place.h"

enum { HISTORIES = 200, STEPS = 16, PATHS = 9, REVISIONS = 6, CONTENTS = 4, MOST_COMMITS = STEPS + 1, NO_COMMIT = -1 };

static const char *const paths[PATHS] = {"README.md", "a", "a.txt", "b", "d", "d/e/z", "d/x", "d/y", "m/n/o"};
static const char *const revisions[REVISIONS] = {"main", "dev", "rel", "rel/a", "rel/b", "v1"};
static const char *const deletable[] = {"a", "b", "d", "d/x", "d/", "d/e/", "m/", "m/n", "none"};

/* The content of each path, from 1; 0: no file. */
struct files {
    uint8_t of[PATHS];
};

struct model {
    struct {
        struct files files;
        char id[TD_COMMIT_BYTES];
        bool exists;
    } commits[MOST_COMMITS];
    int commit_count;
    int revisions[REVISIONS]; /* number of a commit */
    bool has_blob[CONTENTS + 1];
    bool is_visible;
    uint64_t seed;
};

int __wrap_fsync(int fd);

/* Thousands of real ones take long, and no power is cut here. */
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

static size_t below(struct model *model, size_t bound)
{
    return random_below(&model->seed, bound);
}

static const char *content_of(size_t number)
{
    static const char *const contents[CONTENTS + 1] = {"", "one", "two", "three", "four"};
    return contents[number];
}

/* Writes the files as publish_place.h reads them. */
static const char *show(const struct files *files)
{
    static char out[TEXT_BYTES];
    out[0] = '\0';
    for (size_t i = 0; i < PATHS; i++)
        if (files->of[i] != 0)
            (void)snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s=%s", out[0] == '\0' ? "" : " ", paths[i],
                           content_of(files->of[i]));
    return out;
}

/* ---- comparing ------------------------------------------------------------------------------------------- */

struct seen {
    const struct model *model;
    size_t refs, commits;
};

static bool see_ref(void *context, const char *name, const char *commit)
{
    struct seen *seen = context;
    for (size_t i = 0; i < REVISIONS; i++)
        if (strcmp(name, revisions[i]) == 0) {
            CHECK(seen->model->revisions[i] != NO_COMMIT, "%s is there", name);
            assert_string_equal(commit, seen->model->commits[seen->model->revisions[i]].id);
        }
    seen->refs++;
    return true;
}

static bool see_commit(void *context, const char *commit)
{
    struct seen *seen = context;
    (void)commit;
    seen->commits++;
    return true;
}

static void compare(struct publish_place *place, const struct model *model)
{
    struct seen seen = {.model = model};
    struct td_root *root = NULL;
    size_t refs = 0;
    size_t commits = 0;
    for (size_t i = 0; i < REVISIONS; i++) {
        int at = model->revisions[i];
        refs += at != NO_COMMIT ? 1 : 0;
        const char *wanted = at == NO_COMMIT ? "none" : show(&model->commits[at].files);
        assert_string_equal(files_at(place, revisions[i]), wanted);
    }
    for (int i = 0; i < model->commit_count; i++) {
        commits += model->commits[i].exists ? 1 : 0;
        const char *wanted = model->commits[i].exists ? show(&model->commits[i].files) : "none";
        assert_string_equal(files_of(place, model->commits[i].id), wanted);
    }
    assert_true(td_root_create(place->tree.path, &root, NULL));
    assert_true(td_hub_cache_refs(root, REPO, see_ref, &seen) && td_hub_cache_commits(root, REPO, see_commit, &seen));
    td_root_unref(root);
    assert_int_equal(seen.refs, refs);
    assert_int_equal(seen.commits, commits);
    for (size_t i = 1; i <= CONTENTS; i++)
        CHECK(place->repo.fd < 0 || has_blob(place, content_of(i)) == model->has_blob[i], "blob %zu", i);
    assert_int_equal(place->repo.is_new, !model->is_visible);
}

/* ---- commits --------------------------------------------------------------------------------------------- */

/* A commit that was drawn at random. */
struct draw {
    size_t revision;
    int from;   /* number of a revision; -1: none */
    int parent; /* number of a commit; -1: any; -2: it must not be there */
    bool keep, ignores_missing, has_blobs;
    struct files files;
    const char *deletions[3];
    size_t deletion_count;
};

static void draw_commit(struct model *model, struct draw *draw)
{
    *draw = (struct draw){.revision = below(model, 3) == 0 ? below(model, REVISIONS) : 0,
                          .from = below(model, 3) == 0 ? (int)below(model, REVISIONS) : -1,
                          .parent = (int)below(model, 4) == 0 ? (int)below(model, MOST_COMMITS) - 2 : -1,
                          .keep = below(model, 2) == 0,
                          .ignores_missing = below(model, 2) == 0,
                          .has_blobs = below(model, 5) != 0,
                          .deletion_count = below(model, 2) == 0 ? below(model, 4) : 0};
    if (draw->parent >= model->commit_count)
        draw->parent = model->revisions[draw->revision]; /* the right one, if it is there */
    for (size_t i = 0; i < PATHS; i++)
        if (below(model, strcmp(paths[i], "d") == 0 ? 20 : 3) == 0)
            draw->files.of[i] = (uint8_t)(1 + below(model, CONTENTS));
    for (size_t i = 0; i < draw->deletion_count; i++)
        draw->deletions[i] = deletable[below(model, COUNT_OF(deletable))];
}

static bool is_deleted_by(const char *path, const char *deletion)
{
    size_t len = strlen(deletion);
    return deletion[len - 1] == '/' ? strncmp(path, deletion, len) == 0 : strcmp(path, deletion) == 0;
}

/* Applies the deletions. Returns false when one of them deletes nothing. */
static bool apply_deletions(const struct draw *draw, const struct files *before, struct files *after)
{
    bool ok = true;
    for (size_t i = 0; i < draw->deletion_count; i++) {
        bool found = false;
        for (size_t k = 0; k < PATHS; k++)
            if (before->of[k] != 0 && is_deleted_by(paths[k], draw->deletions[i])) {
                found = true;
                after->of[k] = 0;
            }
        ok = ok && found;
    }
    return ok || draw->ignores_missing;
}

static bool has_conflict(const struct files *files)
{
    bool has_file = false;
    bool has_folder = false;
    for (size_t i = 0; i < PATHS; i++) {
        has_file = has_file || (files->of[i] != 0 && strcmp(paths[i], "d") == 0);
        has_folder = has_folder || (files->of[i] != 0 && strncmp(paths[i], "d/", 2) == 0);
    }
    return has_file && has_folder;
}

static size_t count_missing(const struct model *model, const struct draw *draw)
{
    size_t count = 0;
    for (uint8_t content = 1; content <= CONTENTS; content++)
        if (!model->has_blob[content] && !draw->has_blobs)
            count += memchr(draw->files.of, content, PATHS) != NULL ? 1 : 0;
    return count;
}

/* Returns whether the name of a revision and that of another would be a file and a folder. */
static bool is_in_the_way(const struct model *model, size_t revision)
{
    for (size_t i = 0; i < REVISIONS; i++) {
        size_t a = strlen(revisions[i]);
        size_t b = strlen(revisions[revision]);
        bool below_it = a < b && strncmp(revisions[i], revisions[revision], a) == 0 && revisions[revision][a] == '/';
        bool above_it = b < a && strncmp(revisions[i], revisions[revision], b) == 0 && revisions[i][b] == '/';
        if (model->revisions[i] != NO_COMMIT && (below_it || above_it))
            return true;
    }
    return false;
}

/* Notes the commit that was made: a new one, or one that the model has. */
static void take_commit(struct model *model, const struct publish_place *place, const struct draw *draw,
                        const struct files *files)
{
    int at = 0;
    while (at < model->commit_count && memcmp(&model->commits[at].files, files, sizeof *files) != 0)
        at++;
    if (at == model->commit_count) {
        assert_true(at < MOST_COMMITS);
        model->commits[model->commit_count++].files = *files;
        memcpy(model->commits[at].id, place->result.commit, TD_COMMIT_BYTES);
    }
    assert_string_equal(model->commits[at].id, place->result.commit);
    CHECK(place->result.verdict == (model->revisions[draw->revision] == at ? TD_COMMIT_UNCHANGED : TD_COMMIT_MOVED),
          "verdict %d", (int)place->result.verdict);
    model->commits[at].exists = true;
    model->revisions[draw->revision] = at;
    model->is_visible = true;
}

/* Returns the code or verdict that is expected: the code if it is not TD_OK. */
static enum td_code expect(const struct model *model, const struct draw *draw, struct files *after,
                           enum td_commit_verdict *verdict)
{
    int own = model->revisions[draw->revision];
    int before = own == NO_COMMIT && draw->from >= 0 ? model->revisions[draw->from] : own;
    static const struct files none = {.of = {0}};
    const struct files *files = before == NO_COMMIT ? &none : &model->commits[before].files;
    *verdict = TD_COMMIT_MOVED; /* or UNCHANGED */
    if (own == NO_COMMIT && draw->from >= 0 && before == NO_COMMIT)
        return TD_NOT_FOUND;
    if ((draw->parent == -2 && own != NO_COMMIT) || (draw->parent >= 0 && draw->parent != own)) {
        *verdict = TD_COMMIT_WRONG_PARENT;
        return TD_OK;
    }
    *after = *files;
    if (!apply_deletions(draw, files, after))
        return TD_NOT_FOUND;
    if (!draw->keep)
        *after = none;
    for (size_t i = 0; i < PATHS; i++)
        after->of[i] = draw->files.of[i] != 0 ? draw->files.of[i] : after->of[i];
    if (has_conflict(after))
        return TD_CONFLICT;
    if (count_missing(model, draw) > 0)
        *verdict = TD_COMMIT_LACKS_BLOBS;
    else if (own == NO_COMMIT && is_in_the_way(model, draw->revision))
        return TD_CONFLICT;
    return TD_OK;
}

static void step_commit(struct publish_place *place, struct model *model)
{
    struct draw draw;
    struct files after;
    enum td_commit_verdict verdict;
    char files[TEXT_BYTES];
    char deletes[256] = "";
    draw_commit(model, &draw);
    (void)snprintf(files, sizeof files, "%s", show(&draw.files));
    for (size_t i = 0; i < draw.deletion_count; i++)
        (void)snprintf(deletes + strlen(deletes), sizeof deletes - strlen(deletes), "%s ", draw.deletions[i]);
    enum td_code code = expect(model, &draw, &after, &verdict);
    size_t missing = count_missing(model, &draw);
    bool ok = commit_as(place, &(struct ask){.files = files,
                                             .deletes = deletes,
                                             .revision = revisions[draw.revision],
                                             .parent = draw.parent == -2   ? ""
                                                       : draw.parent == -1 ? NULL
                                                                           : model->commits[draw.parent].id,
                                             .from = draw.from < 0 ? NULL : revisions[draw.from],
                                             .keep = draw.keep,
                                             .ignores_missing = draw.ignores_missing,
                                             .lacks = !draw.has_blobs});
    for (size_t i = 0; i < PATHS; i++)
        model->has_blob[draw.files.of[i]] |= draw.has_blobs;
    CHECK(place->err.code == code && ok == (code == TD_OK), "code %d, not %d: %s", (int)place->err.code, (int)code,
          place->err.message);
    if (!ok)
        return;
    if (verdict == TD_COMMIT_MOVED) {
        take_commit(model, place, &draw, &after);
        return;
    }
    CHECK(place->result.verdict == verdict, "verdict %d, not %d", (int)place->result.verdict, (int)verdict);
    if (verdict == TD_COMMIT_LACKS_BLOBS)
        assert_int_equal(place->result.missing_count, missing);
}

/* ---- the other steps ------------------------------------------------------------------------------------- */

static void step_set_ref(struct publish_place *place, struct model *model)
{
    size_t revision = below(model, REVISIONS);
    bool moves = below(model, 2) == 0;
    bool by_commit = below(model, 2) == 0 && model->commit_count > 0;
    int target = by_commit ? (int)below(model, (size_t)model->commit_count) : (int)below(model, REVISIONS);
    const char *name = by_commit ? model->commits[target].id : revisions[target];
    if (!by_commit)
        target = model->revisions[target];
    else if (!model->commits[target].exists)
        target = NO_COMMIT;
    bool exists = model->revisions[revision] != NO_COMMIT;
    enum td_code code = target == NO_COMMIT                                                 ? TD_NOT_FOUND
                        : (exists && !moves) || (!exists && is_in_the_way(model, revision)) ? TD_CONFLICT
                                                                                            : TD_OK;
    struct td_error err = TD_ERROR_INIT;
    assert_int_equal(td_publish_set_ref(&place->repo, revisions[revision], name, moves, &err), code == TD_OK);
    CHECK(err.code == code, "code %d, not %d: %s", (int)err.code, (int)code, err.message);
    if (code == TD_OK)
        model->revisions[revision] = target;
}

static void step_delete_ref(struct publish_place *place, struct model *model)
{
    size_t revision = below(model, REVISIONS);
    enum td_code code = revision == 0                             ? TD_FAILED_PRECONDITION
                        : model->revisions[revision] == NO_COMMIT ? TD_NOT_FOUND
                                                                  : TD_OK;
    struct td_error err = TD_ERROR_INIT;
    assert_int_equal(td_publish_delete_ref(&place->repo, revisions[revision], &err), code == TD_OK);
    assert_int_equal(err.code, code);
    if (code == TD_OK)
        model->revisions[revision] = NO_COMMIT;
}

/* Collects what the model says is not used, as if it were all old. */
static void step_collect(struct publish_place *place, struct model *model)
{
    struct td_collected collected;
    const struct td_collect_rules rules = {
        .now_s = td_wall_now().seconds + 1000, .keep_commits_s = 500, .upload_expires_s = 500};
    bool any_revision = false;
    assert_true(td_publish_collect(&place->repo, &rules, &collected, NULL));
    if (collected.trash[0] != '\0')
        td_own_folder_remove(&place->disk.own, collected.trash);
    for (size_t i = 0; i < REVISIONS; i++)
        any_revision = any_revision || model->revisions[i] != NO_COMMIT;
    for (int i = 0; any_revision && i < model->commit_count; i++) {
        model->commits[i].exists = false;
        for (size_t k = 0; k < REVISIONS; k++)
            model->commits[i].exists = model->commits[i].exists || model->revisions[k] == i;
    }
    for (uint8_t content = 1; content <= CONTENTS; content++) {
        bool is_used = false;
        for (int i = 0; i < model->commit_count; i++)
            is_used =
                is_used || (model->commits[i].exists && memchr(model->commits[i].files.of, content, PATHS) != NULL);
        model->has_blob[content] = model->has_blob[content] && is_used;
    }
    if (place->repo.fd < 0) {
        assert_false(model->is_visible);
        reopen(place);
    }
}

/* Collects when nothing is old. */
static void step_collect_nothing(struct publish_place *place)
{
    struct td_collected collected;
    const struct td_collect_rules rules = {
        .now_s = td_wall_now().seconds, .keep_commits_s = 500, .upload_expires_s = 500};
    assert_true(td_publish_collect(&place->repo, &rules, &collected, NULL));
    assert_int_equal(collected.commits + collected.blobs, 0);
}

static void step(struct publish_place *place, struct model *model)
{
    size_t kind = below(model, 12);
    if (kind < 7)
        step_commit(place, model);
    else if (kind == 7)
        step_set_ref(place, model);
    else if (kind == 8)
        step_delete_ref(place, model);
    else if (kind == 9)
        step_collect(place, model);
    else if (kind == 10)
        step_collect_nothing(place);
    else
        reopen(place);
}

static void histories_are_those_of_a_model(void **state)
{
    const char *given = getenv("TD_TEST_SEED");
    uint64_t first = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    size_t moved = 0;
    (void)state;
    td_log_set_level(TD_LOG_ERROR); /* a collection without revisions warns */
    print_message("seed %llu; TD_TEST_SEED sets it\n", (unsigned long long)first);
    for (uint64_t i = 0; i < HISTORIES; i++) {
        struct publish_place place = {.err = TD_ERROR_INIT};
        struct model model = {.seed = td_mix64(first + i) | 1};
        for (size_t k = 0; k < REVISIONS; k++)
            model.revisions[k] = NO_COMMIT;
        publish_place_open(&place);
        for (size_t k = 0; k < STEPS; k++) {
            step(&place, &model);
            compare(&place, &model);
        }
        moved += (size_t)model.commit_count;
        publish_place_close(&place);
    }
    print_message("%zu commits\n", moved);
    assert_true(moved > HISTORIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_are_those_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
