/* The thread that finishes the last file of a phase takes the next step. What is hard:
 *   - A failed intake keeps its place until every thread that works for it has stopped (`running`). Its files then stay
 *     on disk to be resumed, or are removed when the disk is full.
 *   - Nobody can say which of several servers was wrong: the one that listed the files, or the one that sent the bytes.
 *     So after wrong bytes each server is asked alone, for the list and for the files. */
#include "catalog/upstream/fetching.h"

#include "catalog/model/content_hash.h"
#include "catalog/names/repo.h"
#include "catalog/scan/walk.h"
#include "catalog/upstream/arriving_file.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_hasher.h"
#include "storage/incoming.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t published_ns = 60 * TD_NS_PER_S; /* bound on the time until a scan finds a published model */
static const uint64_t failure_ns = 2 * TD_NS_PER_S;    /* how long the first failure is remembered; doubles with each */
static const uint64_t failure_most_ns = 60 * TD_NS_PER_S;
static const uint64_t undecided_ns = 5 * TD_NS_PER_S; /* until digests may be known that were not; doubles */
static const uint64_t undecided_most_ns = 300 * TD_NS_PER_S;
static const uint64_t patience_ns = 120 * TD_NS_PER_S; /* bound on a model's wait for busy upstreams */

/* ---- failing ---------------------------------------------------------------------------------------------- */

/* Returns whether the disk is full or the model can never fit; its partial files are then removed. */
static bool is_out_of_room(const struct td_error *why)
{
    return why->sys == ENOSPC || why->sys == EDQUOT || td_fetch_fault_never_fits(why);
}

enum td_upstream_failure td_fetching_own_failure(const struct td_error *why)
{
    bool is_refused = why->code == TD_RESOURCE_EXHAUSTED && why->sys == 0; /* by a limit on bytes or descriptors */
    return is_refused || is_out_of_room(why) ? TD_UPSTREAM_FAILED_SPACE : TD_UPSTREAM_FAILED_OTHER;
}

/* Returns the kind of a failure that the upstream may have caused. */
static enum td_upstream_failure failure_of(const struct td_error *why)
{
    switch (why->code) {
    case TD_FAILED_PRECONDITION:
    case TD_INVALID_ARGUMENT:
        return TD_UPSTREAM_FAILED_CONTENT;
    case TD_UNAVAILABLE:
        return TD_UPSTREAM_FAILED_UNREACHABLE;
    default:
        return td_fetching_own_failure(why);
    }
}

/* Remembers the entity tags of files whose readers may have wrong bytes: a file that sent bytes before it was verified,
 * or the file that did not match a digest that came late. Whatever the reason of this failure, the next fetch may bring
 * other bytes. The intake has failed, so its readers get no more bytes. `snapshot` (NULL: none) is the snapshot that it
 * had. */
static void remember_wrong_tags(struct td_fetching *f, const struct td_intake *intake,
                                const struct td_snapshot *snapshot)
{
    size_t wrong = atomic_load(&intake->wrong_file);
    for (size_t i = 0; snapshot != NULL && i < intake->model.listing.count; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        const struct td_intake_file *fetched = &intake->files[i];
        bool is_here = fetched->state == TD_INTAKE_FILE_IS_HERE;
        if (is_here ? i != wrong : !td_incoming_has_given(fetched->blob))
            continue;
        td_wrong_tags_add(&f->wrong_tags, td_file_tag(file));
        if (strcmp(td_file_tag(file), file->identity_tag) != 0)
            td_wrong_tags_add(&f->wrong_tags, file->identity_tag);
    }
}

/* Returns whether the upstream has another server that was not asked alone yet. */
static bool has_another_server(const struct td_fetching *f, const struct td_intake *intake)
{
    size_t count = f->config.source.server_count;
    return count > 1 && intake->rounds < count && !atomic_load(&f->stop);
}

static void log_failure(const struct td_intake *intake, const struct td_error *why)
{
    td_log(TD_LOG_WARN, "upstream: \"%s\" could not be fetched%s: %s", intake->id,
           intake->is_again ? ", and is asked of another server alone" : "", why->message);
}

/* Ends an intake with a failure of this kind. */
static void fail_as(struct td_fetching *f, struct td_intake *intake, enum td_upstream_failure kind,
                    const struct td_error *why)
{
    unsigned shift = intake->failures < 5 ? intake->failures : 5;
    uint64_t kept_ns = failure_ns << shift;
    bool is_first = intake->phase != TD_INTAKE_FAILED;
    bool is_wrong = kind == TD_UPSTREAM_FAILED_CONTENT;
    struct td_error shown = *why;
    if (atomic_load(&f->stop)) {
        td_error_init(&shown);
        (void)td_error_set(&shown, TD_UNAVAILABLE, "the server is stopping");
    }
    intake->is_disk_full = intake->is_disk_full || is_out_of_room(why);
    struct td_snapshot *snapshot = intake->snapshot == NULL ? NULL : td_snapshot_ref(intake->snapshot);
    td_intake_fail(intake, &shown, td_clock_ns() + (kept_ns < failure_most_ns ? kept_ns : failure_most_ns));
    remember_wrong_tags(f, intake, snapshot);
    td_snapshot_unref(snapshot);
    if (is_first && !atomic_load(&f->stop)) {
        intake->is_again = is_wrong && has_another_server(f, intake);
        f->status.failures[kind]++;
        log_failure(intake, why);
    }
    pthread_cond_broadcast(&f->changed);
}

void td_fetching_fail(struct td_fetching *f, struct td_intake *intake, const struct td_error *why)
{
    fail_as(f, intake, failure_of(why), why);
}

/* Ends an intake with a failure that no server of the upstream caused, so that no other server is asked. */
static void fail_here(struct td_fetching *f, struct td_intake *intake, const struct td_error *why)
{
    fail_as(f, intake, td_fetching_own_failure(why), why);
}

/* Queues an intake again, for the next server alone. */
static void ask_another_server(struct td_fetching *f, struct td_intake *intake)
{
    char via[TD_UPSTREAM_VIA_BYTES];
    size_t rounds = intake->rounds + 1;
    (void)snprintf(via, sizeof via, "%s", intake->via);
    td_intake_restart(intake, via);
    intake->rounds = rounds;
    /* the preferred server, which was asked first, comes last */
    intake->alone = rounds % f->config.source.server_count + 1;
}

void td_fetching_put_away(struct td_fetching *f, struct td_intake *intake)
{
    bool has_files = intake->folder != NULL;
    bool is_full = intake->is_disk_full;
    td_intake_clear(intake);
    if (has_files) {
        intake->running++; /* keeps its place */
        pthread_mutex_unlock(&f->lock);
        if (is_full)
            td_upstream_store_discard(f->config.store, intake->id);
        else
            td_upstream_store_pause(f->config.store, intake->id);
        pthread_mutex_lock(&f->lock);
        intake->running--;
    }
    if (intake->is_again && !atomic_load(&f->stop))
        ask_another_server(f, intake);
    intake->is_again = false;
    pthread_cond_broadcast(&f->changed);
}

/* ---- listing ---------------------------------------------------------------------------------------------- */

/* Remembers that the upstream has no such model. */
static void set_absent(struct td_fetching *f, struct td_intake *intake, const struct td_error *why)
{
    if (why->code != TD_OK)
        td_log(TD_LOG_INFO, "upstream: \"%s\" is not fetched: %s", intake->id, why->message);
    else
        td_log(TD_LOG_INFO, "upstream: \"%s\" is not fetched: it has no files", intake->id);
    intake->phase = TD_INTAKE_ABSENT;
    intake->failures = 0;
    intake->until_ns = td_clock_ns() + f->config.absent_ns;
    f->status.absent++;
    pthread_cond_broadcast(&f->changed);
}

/* Checks that descriptors suffice for a list: each file takes one until the model is published. Sets
 * intake->file_count. */
static bool check_descriptors(const struct td_fetching *f, struct td_intake *intake, struct td_error *err)
{
    size_t files = intake->model.listing.count;
    size_t others = td_intake_queue_files(&f->queue);
    if (files > TD_UPSTREAM_MODEL_FILES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" has %zu files; models of up to %d are fetched",
                            intake->id, files, TD_UPSTREAM_MODEL_FILES);
    if (files > f->config.max_files) {
        (void)td_error_set(
            err, TD_RESOURCE_EXHAUSTED,
            "\"%s\" has %zu files, and each takes a descriptor while it arrives; the limit on open files "
            "leaves %zu for that: raise it (ulimit -n)",
            intake->id, files, f->config.max_files);
        err->sys = EFBIG;
        return false;
    }
    if (files > f->config.max_files - others)
        return td_error_set(err, TD_UNAVAILABLE,
                            "\"%s\" has %zu files, and each takes a descriptor while it arrives; other models on their "
                            "way have %zu of %zu: raise the limit on open files (ulimit -n)",
                            intake->id, files, others, f->config.max_files);
    intake->file_count = files;
    return true;
}

/* Pauses all listing and queues the intake again when all of the upstream's servers ask clients to wait. Returns false
 * when they do not, or the intake has waited for too long. */
static bool wait_for_upstream(struct td_fetching *f, struct td_intake *intake, const struct td_error *why)
{
    uint64_t now_ns = td_clock_ns();
    const struct td_upstream_source *source = &f->config.source;
    uint64_t until_ns = source->due_ns == NULL ? 0 : source->due_ns(source->context);
    if (why->code != TD_UNAVAILABLE || until_ns <= now_ns || now_ns - intake->started_ns > patience_ns)
        return false;
    if (until_ns > f->queue.paused_until_ns) {
        f->queue.paused_until_ns = until_ns;
        td_log(TD_LOG_WARN, "upstream: no model is asked for during the next %" PRIu64 " s: %s",
               (until_ns - now_ns + TD_NS_PER_S - 1) / TD_NS_PER_S, why->message);
    }
    td_intake_clear(intake);
    intake->phase = TD_INTAKE_QUEUED;
    pthread_cond_broadcast(&f->changed);
    return true;
}

/* Returns whether a scan finds a file with this path: scans ignore no component of it. */
static bool is_found_by_scans(const char *path)
{
    char name[TD_REMOTE_MAX_PATH_BYTES + 1];
    struct td_text rest = td_text_of(path);
    while (rest.len > 0) {
        struct td_text component = td_text_take_until(&rest, '/');
        (void)snprintf(name, sizeof name, "%.*s", (int)component.len, component.p);
        if (td_walk_ignores(name))
            return false;
    }
    return true;
}

/* Asks the upstream for the list. Leaves out files that no scan would find, so that the model has the same files and
 * commit while it arrives and when it is published. The caller frees *model in any case. Without the lock. */
static bool ask_for_list(struct td_fetching *f, struct td_intake *intake, const struct td_cancel *cancel,
                         struct td_remote_model *model, struct td_error *err)
{
    const struct td_upstream_wish wish = {
        .id = intake->id, .via = intake->via, .alone = intake->alone, .cancel = cancel};
    if (!f->config.source.list(f->config.source.context, &wish, model, err))
        return false;
    td_remote_listing_keep(&model->listing, is_found_by_scans);
    return true;
}

/* Begins the model in the store, which makes room on disk for the files of the list. Without the lock. */
static bool begin_in_store(struct td_fetching *f, struct td_intake *intake, uint64_t *evicted, struct td_error *err)
{
    uint64_t bytes = intake->model.listing.total_bytes;
    bool ok =
        td_upstream_store_begin(f->config.store, intake->id, bytes, &intake->folder, &intake->began_s, evicted, err);
    if (*evicted > 0 && f->config.catalog != NULL)
        td_catalog_request_scan(f->config.catalog);
    return ok;
}

/* Begins to fetch the files of a list that has arrived. Under the lock, which it releases while it makes room. */
static void begin_files(struct td_fetching *f, struct td_intake *intake)
{
    struct td_error err = TD_ERROR_INIT;
    uint64_t evicted = 0;
    if (!check_descriptors(f, intake, &err)) {
        fail_here(f, intake, &err);
        return;
    }
    pthread_mutex_unlock(&f->lock);
    bool ok = begin_in_store(f, intake, &evicted, &err);
    pthread_mutex_lock(&f->lock);
    f->status.evicted += evicted;
    if (!ok || atomic_load(&intake->is_cancelled) || !td_intake_begin_files(intake, &err)) {
        fail_here(f, intake, &err);
        return;
    }
    f->status.begun++;
    td_log(TD_LOG_INFO, "upstream: fetching \"%s\": %zu file%s, %" PRIu64 " bytes", intake->id,
           intake->model.listing.count, td_plural(intake->model.listing.count), intake->model.listing.total_bytes);
    pthread_cond_broadcast(&f->work);
    pthread_cond_broadcast(&f->changed);
}

/* ---- kept models that may have changed ---------------------------------------------------------------------- */

enum comparison {
    IS_SAME,
    IS_OTHER,
    IS_UNKNOWN, /* equal as far as is known: digests are missing, or the catalog does not show the model yet */
};

static enum comparison compare_file(const struct td_remote_file *listed, const struct td_entry *entry)
{
    char sha256[TD_SHA256_TEXT_BYTES];
    if (entry == NULL || entry->file->source.id.size_bytes != listed->expected.size_bytes)
        return IS_OTHER;
    const char *known = td_file_sha256(entry->file);
    if (known == NULL || !listed->expected.has_sha256)
        return IS_UNKNOWN;
    td_hex_write(listed->expected.sha256, TD_SHA256_BYTES, sha256);
    return strcmp(known, sha256) == 0 ? IS_SAME : IS_OTHER;
}

bool td_fetching_find_files(const struct td_snapshot *snapshot, const char *id, struct td_kept_files_run *out)
{
    bool is_version = !td_kept_id_is_valid(td_text_of(id));
    const struct td_model *model = is_version ? td_snapshot_find_model(snapshot, td_text_of(id)) : NULL;
    const struct td_repo *repo = is_version ? NULL : td_repo_find(snapshot, false, td_text_of(id));
    if (model != NULL)
        *out = (struct td_kept_files_run){model->first_entry, model->entry_count, model->directory_len + 1};
    else if (repo != NULL && !repo->is_added)
        *out = (struct td_kept_files_run){repo->first_entry, repo->entry_count, repo->prefix_len};
    return model != NULL || (repo != NULL && !repo->is_added);
}

/* Compares a list of the upstream's with the model that the catalog shows. After a start, it shows none before its
 * first scan. */
static enum comparison compare_list(const struct td_fetching *f, const struct td_intake *intake)
{
    const struct td_remote_listing *listing = &intake->model.listing;
    struct td_snapshot *snapshot = f->config.catalog == NULL ? NULL : td_catalog_acquire(f->config.catalog);
    struct td_kept_files_run run = {0};
    bool is_shown = snapshot != NULL && td_fetching_find_files(snapshot, intake->id, &run);
    enum comparison result = !is_shown ? IS_UNKNOWN : run.count == listing->count ? IS_SAME : IS_OTHER;
    for (size_t i = 0; is_shown && i < listing->count && result != IS_OTHER; i++) {
        enum comparison one =
            compare_file(&listing->files[i], td_snapshot_find_in_run(snapshot, run.first, run.count, run.prefix_len,
                                                                     td_text_of(listing->files[i].path)));
        result = one == IS_SAME ? result : one;
    }
    td_snapshot_unref(snapshot);
    return result;
}

/* Ends an intake that renews: the kept model stays as it is, and no answer is remembered. */
static void end_comparison(struct td_fetching *f, struct td_intake *intake)
{
    intake->renews = false;
    intake->failures = 0;
    intake->phase = TD_INTAKE_ABSENT;
    intake->until_ns = td_clock_ns();
    pthread_cond_broadcast(&f->changed);
}

/* Decides whether the kept model is to be compared again later, since digests are not known, here or there: a server
 * that has just started hashes its files first. */
static bool looks_again(struct td_fetching *f, const struct td_intake *intake)
{
    struct td_renewal *renewal = td_renewals_find(&f->renewals, intake->id);
    if (renewal == NULL || ++renewal->tries >= TD_UPSTREAM_UNDECIDED)
        return false;
    uint64_t wait_ns = undecided_ns << (renewal->tries < 7 ? renewal->tries - 1 : 6);
    renewal->due_ns = td_clock_ns() + (wait_ns < undecided_most_ns ? wait_ns : undecided_most_ns);
    return true;
}

/* Removes the kept model if the list shows other files, so that the intake can fetch these. Returns false when there is
 * nothing to fetch, and the intake has ended. Under the lock, which it releases while it removes the model. */
static bool make_way(struct td_fetching *f, struct td_intake *intake, bool is_listed)
{
    enum comparison comparison = is_listed ? compare_list(f, intake) : IS_SAME;
    if (comparison != IS_UNKNOWN || !looks_again(f, intake))
        td_renewals_end(&f->renewals, intake->id);
    bool is_removed = false;
    if (comparison == IS_OTHER) {
        pthread_mutex_unlock(&f->lock);
        is_removed = td_upstream_store_drop(f->config.store, intake->id);
        td_catalog_request_scan(f->config.catalog);
        pthread_mutex_lock(&f->lock);
        td_log(TD_LOG_INFO, "upstream: \"%s\" is another one there now%s", intake->id,
               is_removed ? "" : "; this server's copy was changed here, and stays");
    }
    if (!is_removed) {
        end_comparison(f, intake);
        return false;
    }
    intake->renews = false;
    f->status.renewed++;
    return true;
}

void td_fetching_list(struct td_fetching *f, struct td_intake *intake)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel cancel = td_intake_cancel(intake);
    intake->phase = TD_INTAKE_LISTING;
    pthread_mutex_unlock(&f->lock);
    bool is_listed = ask_for_list(f, intake, &cancel, &intake->model, &err);
    pthread_mutex_lock(&f->lock);
    bool is_absent =
        is_listed ? intake->model.listing.count == 0 : err.code == TD_NOT_FOUND || err.code == TD_PERMISSION_DENIED;
    bool is_cancelled = atomic_load(&intake->is_cancelled);
    if (!is_cancelled && intake->renews && (is_absent || is_listed) && !make_way(f, intake, !is_absent))
        return;
    if (!is_cancelled && is_absent)
        set_absent(f, intake, &err);
    else if (!is_cancelled && is_listed)
        begin_files(f, intake);
    else if (is_cancelled || !wait_for_upstream(f, intake, &err))
        td_fetching_fail(f, intake, &err);
}

/* ---- files ------------------------------------------------------------------------------------------------ */

/* Fails the readers of a Git LFS pointer: its bytes are correct, but the readers want the file that it points to. */
static void refuse_pointer(const struct td_intake *intake, size_t i)
{
    struct td_error why = TD_ERROR_INIT;
    (void)td_error_set(&why, TD_CONFLICT,
                       "\"%s/%s\" is a Git LFS pointer, not the file itself: the upstream has no more of it; run "
                       "\"git lfs pull\" there",
                       intake->id, intake->model.listing.files[i].path);
    td_incoming_fail(intake->files[i].blob, &why);
}

/* Records that a file is complete, and lets its readers finish. */
static void finish_file(struct td_intake *intake, const struct td_arriving_file *arriving,
                        const struct td_fetch_outcome *outcome)
{
    const size_t i = arriving->index;
    struct td_intake_file *file = &intake->files[i];
    file->state = TD_INTAKE_FILE_IS_HERE;
    file->is_verified = outcome->is_verified;
    file->sums = outcome->sums;
    if (!file->has_sha256) {
        file->has_sha256 = true;
        memcpy(file->sha256, outcome->sums.sha256, sizeof file->sha256);
        if (intake->snapshot != NULL)
            (void)td_file_set_sha256(intake->snapshot->entries[i].file, file->sha256);
    }
    if (arriving->is_lfs_pointer)
        refuse_pointer(intake, i);
    else
        td_incoming_finish(file->blob);
    intake->here_count++;
    intake->early_left -= file->is_early ? 1 : 0;
}

/* ---- digests that come late --------------------------------------------------------------------------------- */

/* Sets the error for a file that does not match its digest in the list. Returns false. */
static bool refuse_file(const struct td_remote_file *listed, const struct td_fetch_sums *sums, struct td_error *err)
{
    char theirs[TD_SHA256_TEXT_BYTES];
    char ours[TD_SHA256_TEXT_BYTES];
    bool is_sha256 = listed->expected.has_sha256;
    size_t len = is_sha256 ? TD_SHA256_BYTES : TD_FETCH_SHA1_BYTES;
    td_hex_write(is_sha256 ? listed->expected.sha256 : listed->expected.git_sha1, len, theirs);
    td_hex_write(is_sha256 ? sums->sha256 : sums->git_sha1, len, ours);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "the upstream had no digest of \"%.300s\" at first; now it lists the %s %s, and the bytes that "
                        "it sent have %s",
                        listed->path, is_sha256 ? "SHA-256" : "Git object id", theirs, ours);
}

/* Computes the Git object id of a complete file by reading it again. Returns false when the file cannot be read, or the
 * fetch is cancelled. */
static bool compute_git_sha1(const struct td_intake *intake, const char *path, struct td_fetch_sums *sums)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct td_content_sums content;
    struct td_file_id id;
    int fd = -1;
    if (!td_root_open_file(intake->folder, path, &fd, &id, &ignored))
        return false;
    (void)close(fd);
    const struct td_content_hash_options options = {.git_sha1 = true, .stop = &intake->is_cancelled};
    sums->has_git_sha1 = td_content_hash(intake->folder, path, &id, &options, &content, &ignored);
    if (sums->has_git_sha1)
        memcpy(sums->git_sha1, content.git_sha1, sizeof sums->git_sha1);
    return sums->has_git_sha1;
}

/* Compares a file that came without a digest with the digest in a newer list. A file stays unverified when this list
 * lacks it, or has it with another length or without a digest, or the file cannot be read to compute its Git object id.
 * Errors: TD_FAILED_PRECONDITION when the digests differ. */
static bool verify_file(struct td_intake *intake, size_t i, const struct td_remote_listing *listing,
                        struct td_error *err)
{
    const struct td_remote_file *before = &intake->model.listing.files[i];
    const struct td_remote_file *listed = td_remote_listing_find(listing, before->path);
    struct td_fetch_sums *sums = &intake->files[i].sums;
    if (listed == NULL || listed->expected.size_bytes != before->expected.size_bytes ||
        !(listed->expected.has_sha256 || listed->expected.has_git_sha1))
        return true;
    if (listed->expected.has_git_sha1 && !sums->has_git_sha1 && !compute_git_sha1(intake, listed->path, sums))
        return true;
    intake->files[i].is_verified = td_fetch_sums_fit(sums, &listed->expected);
    if (intake->files[i].is_verified)
        return true;
    atomic_store(&intake->wrong_file, i);
    return refuse_file(listed, sums, err);
}

/* The last request for a list: the intake, and when the request ends (td_clock_ns). */
struct late_list {
    struct td_intake *intake;
    uint64_t until_ns;
};

static bool is_late_list_over(void *context)
{
    const struct late_list *late = context;
    return atomic_load(&late->intake->is_cancelled) || td_clock_ns() >= late->until_ns;
}

/* Asks the upstream once more for its list, if files came without a digest: an upstream that hashes its files itself,
 * as a tensord does, may have their digests by now. If the upstream does not answer in time, they stay unverified.
 * Called without the lock: no other thread changes an intake once all its files are complete. Errors:
 * TD_FAILED_PRECONDITION when a file has another digest; TD_CONFLICT when cancelled. */
static bool verify_late(struct td_fetching *f, struct td_intake *intake, struct td_error *err)
{
    struct td_remote_model model;
    struct td_error ignored = TD_ERROR_INIT;
    if (td_intake_is_verified(intake))
        return true;
    struct late_list late = {.intake = intake, .until_ns = td_clock_ns() + f->config.late_list_ns};
    const struct td_cancel cancel = {.is_asked = is_late_list_over, .context = &late};
    bool is_listed = ask_for_list(f, intake, &cancel, &model, &ignored);
    bool ok = true;
    for (size_t i = 0; is_listed && ok && i < intake->model.listing.count; i++)
        ok = intake->files[i].is_verified || verify_file(intake, i, &model.listing, err);
    td_remote_model_fini(&model);
    if (ok && atomic_load(&intake->is_cancelled))
        return td_error_set(err, TD_CONFLICT, "the fetch of \"%s\" is cancelled", intake->id);
    return ok;
}

/* ---- the end ------------------------------------------------------------------------------------------------ */

static bool is_listed_file(void *context, const char *path)
{
    return td_remote_listing_find(context, path) != NULL;
}

/* Records that a model was published. */
static void record_published(struct td_fetching *f, struct td_intake *intake)
{
    uint64_t took_ns = td_clock_ns() - intake->started_ns;
    intake->phase = TD_INTAKE_PUBLISHED;
    intake->failures = 0;
    intake->until_ns = td_clock_ns() + published_ns;
    f->status.published++;
    td_log(TD_LOG_INFO,
           "upstream: published \"%s\": %" PRIu64 " bytes in %" PRIu64 ".%03" PRIu64 " s, %" PRIu64
           " of them resumed%s",
           intake->id, intake->model.listing.total_bytes, took_ns / TD_NS_PER_S, took_ns % TD_NS_PER_S / 1000000,
           intake->resumed_bytes,
           td_intake_is_verified(intake) ? "" : "; it is unverified: the upstream has no digests for some files");
    pthread_cond_broadcast(&f->changed);
}

/* Publishes a model when all its files are complete. */
static void publish_model(struct td_fetching *f, struct td_intake *intake)
{
    struct td_error err = TD_ERROR_INIT;
    intake->phase = TD_INTAKE_PUBLISHING;
    /* wakes requests that waited for the model: the next request to the upstream may take long */
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    bool is_right = verify_late(f, intake, &err);
    bool ok = is_right && td_upstream_store_publish(f->config.store, intake->id, td_intake_is_verified(intake),
                                                    is_listed_file, &intake->model.listing, &err);
    if (ok && f->config.catalog != NULL)
        td_catalog_request_scan(f->config.catalog);
    pthread_mutex_lock(&f->lock);
    if (!is_right)
        td_fetching_fail(f, intake, &err);
    else if (!ok)
        fail_here(f, intake, &err);
    else
        record_published(f, intake);
}

/* Takes the next step of an intake after one of its files has arrived or failed. */
static void take_step(struct td_fetching *f, const struct td_arriving_file *arriving, bool is_here,
                      const struct td_fetch_outcome *outcome, struct td_error *err)
{
    struct td_intake *intake = arriving->intake;
    size_t wrong = atomic_load(&intake->wrong_file);
    if (!is_here && err->code == TD_CONFLICT && wrong != SIZE_MAX) { /* perhaps another file than this one */
        td_error_init(err);
        (void)td_error_set(err, TD_FAILED_PRECONDITION, "the upstream sent wrong bytes for \"%s\"",
                           intake->model.listing.files[wrong].path);
    }
    if (is_here)
        finish_file(intake, arriving, outcome);
    bool shows = intake->phase == TD_INTAKE_PREPARING && intake->early_left == 0;
    if (!is_here || (shows && !td_intake_show(intake, err)))
        td_fetching_fail(f, intake, err);
    else if (intake->phase == TD_INTAKE_ARRIVING && intake->here_count == intake->model.listing.count)
        publish_model(f, intake);
}

void td_fetching_file(struct td_fetching *f, struct td_intake *intake, size_t i)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_fetch_outcome outcome = {.was_there = false};
    struct td_arriving_file arriving = {.config = &f->config,
                                        .intake = intake,
                                        .index = i,
                                        .fetched_bytes = &f->fetched_bytes,
                                        .blob = td_blob_ref(intake->files[i].blob)};
    intake->files[i].state = TD_INTAKE_FILE_RUNS;
    f->queue.files_running++;
    pthread_mutex_unlock(&f->lock);
    bool is_here = td_arriving_file_fetch(&arriving, &outcome, &err);
    pthread_mutex_lock(&f->lock);
    f->queue.files_running--;
    intake->resumed_bytes += arriving.resumed_bytes;
    if (intake->phase != TD_INTAKE_FAILED)
        take_step(f, &arriving, is_here, &outcome, &err);
    td_blob_unref(arriving.blob);
    pthread_cond_broadcast(&f->changed);
}

/* ---- wrong tags ---------------------------------------------------------------------------------------- */

void td_wrong_tags_add(struct td_wrong_tags *tags, const char *tag)
{
    (void)snprintf(tags->tags[tags->next], sizeof tags->tags[0], "%s", tag);
    tags->next = (tags->next + 1) % TD_WRONG_TAGS;
}

bool td_wrong_tags_has(const struct td_wrong_tags *tags, struct td_text etag)
{
    for (size_t i = 0; i < TD_WRONG_TAGS; i++) {
        size_t len = strlen(tags->tags[i]);
        if (len > 0 && etag.len > len && memcmp(etag.p + 1, tags->tags[i], len) == 0)
            return true;
    }
    return false;
}
