#include "server/cmd/pull_model.h"

#include "catalog/model/file_kind.h"
#include "rank/rank_name.h"
#include "server/cmd/shared/crew.h"
#include "storage/fetch/fetch_target.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Smaller files are fetched in parallel, with one connection each, since the round trip takes longer than their
 * bytes. */
enum { SMALL_BYTES = 8 * 1024 * 1024, MAX_WORKERS = 16 };

/* Most new lists of files that the pull continues with. It fails when the model changes more often. */
enum { MAX_CHANGES = 3 };

/* A thread that fetches files, with its current file. */
struct worker {
    struct td_crew_member member; /* first */
    struct td_pull *pull;
    struct td_fetch_session *session;
    unsigned connections;
    bool takes_small;    /* small files, or the others */
    uint64_t file_bytes; /* on disk, of this file */
};

/* ---- progress ------------------------------------------------------------------------------------------ */

static void note_arrived(void *context, uint64_t off, uint64_t len, bool resumed)
{
    struct worker *worker = context;
    (void)off, (void)resumed;
    worker->file_bytes += len;
    atomic_fetch_add(&worker->pull->copying->done_bytes, len);
}

static void note_waiting(void *context, bool is_waiting)
{
    struct worker *worker = context;
    if (is_waiting)
        atomic_fetch_add(&worker->pull->copying->waiting, 1);
    else
        atomic_fetch_sub(&worker->pull->copying->waiting, 1);
}

static void note_discarded(void *context)
{
    struct worker *worker = context;
    atomic_fetch_sub(&worker->pull->copying->done_bytes, worker->file_bytes);
    worker->file_bytes = 0;
}

/* ---- which files --------------------------------------------------------------------------------------- */

enum { RANK_NAME_BYTES = 64 };

/* The name of a rank's weights in a virtual revision, unless the engine expects the name of a sharded state. */
static const char rank_weights[] = "model.safetensors";

/* Writes the file name of this rank's weights: the name of a sharded state if the engine expects it, else
 * rank-R.safetensors. */
static void write_rank_name(const struct td_pull_wanted *wanted, char out[RANK_NAME_BYTES])
{
    if (wanted->reads_states)
        (void)td_rank_name_write_state(wanted->rank, out, RANK_NAME_BYTES);
    else
        (void)snprintf(out, RANK_NAME_BYTES, "rank-%" PRIu64 ".safetensors", wanted->rank);
}

/* Renames a rank's weights that the server lists as model.safetensors, so that the files of several ranks can be in one
 * directory. */
static bool rename_rank(struct td_pull *pull, struct td_pull_file *file, struct td_error *err)
{
    char name[RANK_NAME_BYTES];
    const char *base = td_base_name(file->path);
    if (!pull->wanted->has_rank || strcmp(base, rank_weights) != 0)
        return true;
    write_rank_name(pull->wanted, name);
    if (asprintf(&file->name, "%.*s%s", (int)(base - file->path), file->path, name) < 0) {
        file->name = NULL;
        return td_error_no_memory(err);
    }
    return td_remote_listing_find(&pull->model.listing, file->name) == NULL ||
           td_error_set(err, TD_FAILED_PRECONDITION, "the model has a file \"%s\" of its own", file->name);
}

static bool choose_files(struct td_pull *pull, struct td_error *err)
{
    const struct td_remote_listing *listing = &pull->model.listing;
    uint64_t total = 0;
    pull->list.files = calloc(listing->count + 1, sizeof *pull->list.files);
    if (pull->list.files == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < listing->count; i++) {
        const struct td_remote_file *listed = &listing->files[i];
        struct td_pull_file *file = &pull->list.files[pull->list.count];
        if (!td_copying_check(pull->copying, err))
            return false;
        if (!td_copy_options_take(pull->copying->options, listed->path))
            continue;
        file->path = listed->path;
        file->expected = &listed->expected;
        pull->list.count++;
        total += listed->expected.size_bytes;
        if (!rename_rank(pull, file, err))
            return false;
    }
    atomic_store(&pull->copying->total_bytes, total);
    if (pull->list.count == 0)
        return td_error_set(err, TD_NOT_FOUND, "%s has no files%s", pull->wanted->model,
                            listing->count > 0 ? " that --include and --exclude let through" : "");
    return true;
}

/* Checks before the first byte is fetched that no file's name is taken in a directory that existed before. */
static bool check_places(const struct td_pull *pull, struct td_error *err)
{
    for (size_t i = 0; i < pull->list.count; i++)
        if (!td_copying_check(pull->copying, err) ||
            !td_fetch_target_check(pull->directory.root, td_pull_file_name(&pull->list.files[i]), err))
            return false;
    return true;
}

/* ---- fetching ------------------------------------------------------------------------------------------ */

static bool fetch_one(struct worker *worker, struct td_pull_file *file, struct td_error *err)
{
    struct td_pull *pull = worker->pull;
    const struct td_fetch_job job = {
        .root = pull->directory.root,
        .name = td_pull_file_name(file),
        .shown = td_pull_file_name(file),
        .expected = *file->expected,
        .connections = worker->connections,
        .events = {.arrived = note_arrived, .waits = note_waiting, .discarded = note_discarded, .context = worker},
    };
    worker->file_bytes = 0;
    bool ok = td_remote_model_fetch(worker->session, &pull->model, pull->wanted->model, file->path, &job,
                                    &file->outcome, err);
    if (ok && file->outcome.was_there)
        atomic_fetch_add(&pull->copying->done_bytes, file->expected->size_bytes);
    file->is_done = ok;
    return ok;
}

/* Fetches files until this worker has no more, or a fetch has failed. */
static void *fetch_files(void *argument)
{
    struct worker *worker = argument;
    struct td_pull *pull = worker->pull;
    size_t i;
    while (!atomic_load(&pull->copying->has_failed) && (i = atomic_fetch_add(&pull->next, 1)) < pull->list.count) {
        bool is_small = pull->list.files[i].expected->size_bytes < SMALL_BYTES;
        if (!pull->list.files[i].is_done && is_small == worker->takes_small &&
            !fetch_one(worker, &pull->list.files[i], &worker->member.err))
            atomic_store(&pull->copying->has_failed, true);
    }
    return NULL;
}

/* Returns how many files are small. */
static size_t count_small(const struct td_pull *pull)
{
    size_t count = 0;
    for (size_t i = 0; i < pull->list.count; i++)
        count += pull->list.files[i].expected->size_bytes < SMALL_BYTES ? 1 : 0;
    return count;
}

/* Fetches the small files by several workers, as many as sessions can be made for. */
static bool fetch_small(struct td_pull *pull, struct td_error *err)
{
    struct worker workers[MAX_WORKERS];
    size_t wanted = count_small(pull);
    size_t count = 0;
    wanted = wanted < MAX_WORKERS ? wanted : MAX_WORKERS;
    wanted = wanted < pull->copying->options->connections ? wanted : (size_t)pull->copying->options->connections;
    atomic_store(&pull->next, 0);
    while (count < wanted) {
        struct worker *worker = &workers[count];
        *worker =
            (struct worker){.member = {.err = TD_ERROR_INIT}, .pull = pull, .connections = 1, .takes_small = true};
        if (!td_fetch_session_create(pull->copying->client, &pull->copying->cancel, &pull->copying->notes,
                                     &worker->session, NULL))
            break;
        count++;
    }
    bool ok = td_crew_run(workers, count, sizeof *workers, fetch_files, err);
    for (size_t i = 0; i < count; i++)
        td_fetch_session_destroy(workers[i].session);
    return ok && (count > 0 || wanted == 0 || td_error_no_memory(err));
}

/* Fetches the large files one after the other, each by all connections. */
static bool fetch_large(struct td_pull *pull, struct td_error *err)
{
    struct worker worker = {.member = {.err = TD_ERROR_INIT},
                            .pull = pull,
                            .session = pull->session,
                            .connections = (unsigned)pull->copying->options->connections};
    atomic_store(&pull->next, 0);
    (void)fetch_files(&worker);
    (void)td_error_copy(err, &worker.member.err);
    return err->code == TD_OK;
}

static bool fetch_all(struct td_pull *pull, struct td_error *err)
{
    td_copying_show(pull->copying, "", pull->wanted->model);
    bool ok = fetch_small(pull, err) && fetch_large(pull, err);
    td_copying_show_end(pull->copying);
    return ok;
}

/* Lists the files of the model. Errors name the model. */
static bool list_files(struct td_pull *pull, struct td_error *err)
{
    const struct td_pull_wanted *wanted = pull->wanted;
    struct td_error why = TD_ERROR_INIT;
    return td_remote_model_list(pull->session, wanted->model, wanted->revision, NULL, &pull->model, &why) ||
           td_error_set(err, why.code, "%.96s: %s", wanted->model, why.message);
}

/* Returns whether the pull fetches a file of this name in the directory of the path. */
static bool fetches_beside(const struct td_pull *pull, const char *path, const char *name)
{
    char beside[PATH_MAX];
    (void)snprintf(beside, sizeof beside, "%.*s%s", (int)(td_base_name(path) - path), path, name);
    return td_remote_listing_find(&pull->model.listing, beside) != NULL &&
           td_copy_options_take(pull->copying->options, beside);
}

/* Returns whether the path names the weights of a rank, in a directory that also gets this rank's weights. */
static bool is_of_a_rank(const struct td_pull *pull, const char *path)
{
    const struct td_pull_wanted *wanted = pull->wanted;
    struct td_text base = td_text_of(td_base_name(path));
    char mine[RANK_NAME_BYTES];
    uint64_t rank;
    bool as_json = false;
    if (!wanted->has_rank ||
        !(wanted->reads_states ? td_rank_name_read_state(base, &rank) : td_rank_name_read_file(base, &rank, &as_json)))
        return false;
    write_rank_name(wanted, mine);
    return !as_json && (fetches_beside(pull, path, rank_weights) || fetches_beside(pull, path, mine));
}

/* Returns whether a file of the staging directory belongs to this pull, or to a pull of another rank. */
static bool belongs_to_pull(void *context, const char *path)
{
    const struct td_pull *pull = context;
    if (is_of_a_rank(pull, path))
        return true;
    return td_remote_listing_find(&pull->model.listing, path) != NULL &&
           td_copy_options_take(pull->copying->options, path);
}

/* Opens the directory, and warns if it holds another model. Ranks of one engine and size may share a directory, since
 * their files have different names. */
static bool open_directory(struct td_pull *pull, struct td_error *err)
{
    const struct td_pull_wanted *wanted = pull->wanted;
    char content[512];
    char others[1024];
    const char *rank = wanted->has_rank ? strstr(wanted->revision, "-rank") : NULL;
    if (rank == NULL)
        (void)snprintf(content, sizeof content, "%s at %s", wanted->model, wanted->revision);
    else
        (void)snprintf(content, sizeof content, "%s at %.*s-rank*%s", wanted->model, (int)(rank - wanted->revision),
                       wanted->revision, strchr(rank + 1, '-'));
    const struct td_pull_belonging belonging = {.belongs = belongs_to_pull, .context = pull};
    if (!td_pull_directory_open(wanted->directory, content, &belonging, &pull->directory, err))
        return false;
    td_pull_others_describe(&pull->directory, &belonging, pull->list, content, others, sizeof others);
    if (others[0] != '\0')
        td_copying_note(pull->copying, others);
    return true;
}

/* ---- a model that changes ------------------------------------------------------------------------------ */

static void free_files(struct td_pull_files list)
{
    for (size_t i = 0; i < list.count; i++)
        free(list.files[i].name);
    free(list.files);
}

/* Returns whether the model may have changed while its files were fetched. `why` is the error that ended the fetching,
 * or no error. */
static bool may_have_changed(const struct td_pull *pull, const struct td_error *why)
{
    if (why->code == TD_OK || why->code == TD_UNAVAILABLE)
        return td_pull_change_is_seen(pull->list);
    return why->code == TD_FAILED_PRECONDITION || why->code == TD_NOT_FOUND;
}

/* Reads the list again. If the list or the commit has changed, chooses files by the new list, keeps those that are
 * complete, and returns true. The commit counts since files without digests can change while the list stays equal.
 * Otherwise keeps the files of the old list and returns false; if the list could not be read, *unread has the error. */
static bool choose_again(struct td_pull *pull, struct td_error *unread)
{
    struct td_remote_model other = pull->model; /* first the old one; at the end the one to free */
    struct td_pull_files before = pull->list;
    td_remote_model_init(&pull->model);
    pull->list = (struct td_pull_files){0};
    atomic_store(&pull->copying->has_failed, false);
    bool is_read = list_files(pull, unread) && choose_files(pull, unread);
    struct td_pull_files after = pull->list;
    bool has_changed =
        is_read && (strcmp(pull->model.commit, other.commit) != 0 || td_pull_change_is_any(before, after));
    if (has_changed) {
        atomic_store(&pull->copying->done_bytes, td_pull_change_keep(before, after));
        if (td_pull_directory_claim(&pull->directory)) { /* otherwise files that other pulls may need stay */
            td_pull_change_remove(pull->directory.root, before, after);
            td_pull_directory_share(&pull->directory);
        }
        free_files(before);
    } else {
        struct td_remote_model read = pull->model;
        free_files(after);
        pull->model = other;
        pull->list = before;
        other = read;
    }
    td_remote_model_fini(&other);
    return has_changed;
}

/* Sets the error for a pull that ends because the model changed too often. `why` may be no error. */
static bool give_up_changing(const struct td_pull *pull, const struct td_error *why, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "%.96s has changed %d times while it was pulled: run the same command again for the new "
                        "version%s%s",
                        pull->wanted->model, MAX_CHANGES + 1, why->code == TD_OK ? "" : "; ", why->message);
}

/* Fetches all files. When the model changes during the pull, continues with the new version. Fails when the model may
 * have changed and the list cannot be read again, since the directory could then have files of two versions. */
static bool fetch_newest(struct td_pull *pull, struct td_error *err)
{
    for (unsigned changes = 0;; changes++) {
        struct td_error why = TD_ERROR_INIT;
        struct td_error unread = TD_ERROR_INIT;
        bool ok = fetch_all(pull, &why);
        if (!may_have_changed(pull, &why))
            return ok || td_error_copy(err, &why);
        if (td_pull_change_is_seen(pull->list))
            td_copying_note(pull->copying, "files are not as they are listed: the list is read again");
        bool is_new = choose_again(pull, &unread);
        if (!td_copying_check(pull->copying, err))
            return false;
        if (!is_new && !ok && unread.code != TD_OK)
            td_copying_note(pull->copying, unread.message);
        if (!is_new)
            return (ok && unread.code == TD_OK) || td_error_copy(err, ok ? &unread : &why);
        if (changes == MAX_CHANGES)
            return give_up_changing(pull, &why, err);
        td_copying_note(pull->copying, "the list of files has changed on the server; continuing with the new one");
        if (!check_places(pull, err))
            return false;
    }
}

bool td_pull_model(struct td_pull *pull, struct td_error *err)
{
    const struct td_copying *copying = pull->copying;
    return td_fetch_session_create(copying->client, &copying->cancel, &copying->notes, &pull->session, err) &&
           list_files(pull, err) && choose_files(pull, err) && open_directory(pull, err) && check_places(pull, err) &&
           fetch_newest(pull, err) && td_pull_directory_publish(&pull->directory, err);
}

void td_pull_init(struct td_pull *pull, const struct td_pull_wanted *wanted, struct td_copying *copying)
{
    memset(pull, 0, sizeof *pull);
    pull->wanted = wanted;
    pull->copying = copying;
    pull->directory.lock = -1;
    td_remote_model_init(&pull->model);
}

void td_pull_fini(struct td_pull *pull)
{
    free_files(pull->list);
    td_pull_directory_close(&pull->directory);
    td_fetch_session_destroy(pull->session);
    td_remote_model_fini(&pull->model);
}
