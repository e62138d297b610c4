/* Plan: a table of intakes by model id, under one lock; TD_UPSTREAM_WORKERS threads take jobs from it: list a model's
 * files, or fetch one of them. No thread belongs to a model, so that a large model delays no small one. Three modules
 * share the work: intake_queue chooses the next job, fetching runs it, and this module has the workers and answers
 * requests. A thread that holds the upstream's lock may take the locks of the store, of incoming blobs and of the
 * catalog's snapshot, never the other way round.
 *
 * What is hard:
 *   - Readers of incoming blobs wait without the lock, and only set a flag of the blob. So while files wait to be
 *     fetched, one idle worker, the poller, checks for wanted files every poll_ns. When a worker takes a job, it wakes
 *     another worker to poll in its place.
 *   - A published model is served from its intake until a scan has found it: until then the catalog's snapshot lacks
 *     it, and requests for it come here. Then the intake is dropped, since it holds a descriptor for each file. */
#include "catalog/upstream/upstream.h"

#include "catalog/names/repo.h"
#include "catalog/upstream/fetching.h"
#include "catalog/upstream/follower.h"
#include "catalog/upstream/version_lists.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/waiting.h"
#include "storage/fetch/fetch_answer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ID_BYTES = 17 }; /* of this process in TD_UPSTREAM_VIA: 16 hexadecimal digits and a NUL */

static const uint64_t poll_ns = TD_NS_PER_S / 10;
static const uint64_t retry_most_ns = 30 * TD_NS_PER_S; /* so that a client that retries for a minute tries again */
static const uint64_t renewal_ns = TD_NS_PER_S; /* until a kept model is looked at again that cannot be compared now */
static const uint64_t own_client = 0;           /* of the comparisons */
static const uint64_t relay_wait_ns = 2 * TD_NS_PER_S; /* bound on the wait of another server, below its own clients' */

/* Result of checking the path of a request through other servers. */
enum way {
    WAY_IS_OPEN,
    WAY_HAS_BEEN_HERE,
    WAY_IS_TOO_LONG, /* or is malformed */
};

struct td_upstream {
    struct td_fetching f; /* with the lock and all that it guards */
    char id[ID_BYTES];
    uint64_t noted_ns;
    bool has_warned_of_loop, has_warned_of_way;
    bool ends_waits; /* no request waits for a list any more */
    bool has_poller; /* a waiting worker polls for wanted files and found models, which have no event */
    pthread_t workers[TD_UPSTREAM_WORKERS];
    size_t worker_count;
    struct td_follower *follower;      /* NULL: the source has no streams */
    struct td_version_lists *versions; /* NULL: the source has no versions */
};

/* Writes the value of TD_UPSTREAM_VIA to send: the request's value, and this server's id. */
static enum way make_via(const struct td_upstream *u, struct td_text via, char out[TD_UPSTREAM_VIA_BYTES])
{
    size_t servers = 0;
    bool is_good = true;
    struct td_text rest = via;
    while (rest.len > 0) {
        struct td_text one = td_text_take_until(&rest, ',');
        if (td_text_equals(one, u->id))
            return WAY_HAS_BEEN_HERE;
        is_good = is_good && one.len == ID_BYTES - 1 && ++servers < TD_UPSTREAM_VIA_MOST;
    }
    int n = snprintf(out, TD_UPSTREAM_VIA_BYTES, "%.*s%s%s", (int)via.len, via.p, via.len > 0 ? "," : "", u->id);
    return is_good && n > 0 && n < TD_UPSTREAM_VIA_BYTES ? WAY_IS_OPEN : WAY_IS_TOO_LONG;
}

/* ---- the threads ------------------------------------------------------------------------------------------ */

/* Returns whether the catalog's snapshot has all files of a published model. */
static bool is_found(const void *context, const struct td_intake *intake)
{
    struct td_kept_files_run run;
    return td_fetching_find_files(context, intake->id, &run) && run.count >= intake->model.listing.count;
}

/* Drops published models that the catalog shows. Returns whether some remain. Under the lock. */
static bool drop_found(struct td_upstream *u)
{
    struct td_catalog *catalog = u->f.config.catalog;
    struct td_snapshot *snapshot = catalog == NULL ? NULL : td_catalog_acquire(catalog);
    if (snapshot == NULL)
        return false;
    bool has_more = td_intake_queue_drop_found(&u->f.queue, is_found, snapshot);
    td_snapshot_unref(snapshot);
    return has_more;
}

/* Writes the times of reads about every minute. Called and returns under the lock. */
static void do_upkeep(struct td_upstream *u)
{
    uint64_t now_ns = td_clock_ns();
    if (now_ns - u->noted_ns < u->f.config.upkeep_ns)
        return;
    u->noted_ns = now_ns;
    td_intake_queue_drop_old(&u->f.queue);
    pthread_cond_signal(&u->f.work);
    pthread_mutex_unlock(&u->f.lock);
    td_upstream_store_write_reads(u->f.config.store);
    pthread_mutex_lock(&u->f.lock);
}

/* Begins to compare a kept model with the upstream, or decides when to look at it again. Under the lock. */
static void begin_renewal(struct td_upstream *u, struct td_renewal *renewal, uint64_t now_ns)
{
    const struct td_text id = td_text_of(renewal->id);
    struct td_intake *intake = td_intake_queue_find(&u->f.queue, id);
    struct td_kept_model kept;
    char via[TD_UPSTREAM_VIA_BYTES];
    enum td_queue_refusal why;
    uint64_t wait_ns = 0;
    bool is_busy = intake != NULL && !td_intake_is_answer(intake); /* it is being fetched, or compared */
    bool has_failed = intake != NULL && intake->phase == TD_INTAKE_FAILED && intake->until_ns > now_ns;
    if (is_busy || has_failed) {
        renewal->due_ns = is_busy ? now_ns + renewal_ns : intake->until_ns;
        return;
    }
    if (!td_upstream_store_find(u->f.config.store, id, &kept)) {
        td_renewals_end(&u->f.renewals, renewal->id);
        return;
    }
    (void)make_via(u, TD_TEXT(""), via);
    bool has_begun = td_intake_queue_begin(&u->f.queue, id, via, own_client, intake, &intake, &why, &wait_ns);
    if (has_begun)
        intake->renews = true;
    renewal->due_ns = now_ns + (wait_ns > renewal_ns ? wait_ns : renewal_ns);
}

/* Begins to compare the kept models that are due. Under the lock. */
static void begin_renewals(struct td_upstream *u)
{
    struct td_renewals *renewals = &u->f.renewals;
    while (td_renewals_has_room(renewals)) {
        char id[TD_UPSTREAM_ID_BYTES];
        renewals->wants_all = td_upstream_store_next(u->f.config.store, renewals->after, id);
        if (!renewals->wants_all)
            break;
        memcpy(renewals->after, id, sizeof id);
        td_renewals_add(renewals, td_text_of(id));
    }
    uint64_t now_ns = td_clock_ns();
    struct td_renewal *renewal;
    while ((renewal = td_renewals_due(renewals, now_ns)) != NULL)
        begin_renewal(u, renewal, now_ns);
}

/* Notes that the upstream has another model or version of this kept id, if this server has one. Under the lock. */
static void note_change(struct td_upstream *u, struct td_text id)
{
    struct td_kept_model kept;
    if (td_upstream_store_find(u->f.config.store, id, &kept) || td_intake_queue_find(&u->f.queue, id) != NULL)
        td_renewals_add(&u->f.renewals, id);
}

/* Notes that the upstream has another model of this id, or another revision of it: a ref in a Hugging Face cache, or a
 * subfolder that is a version. Called by the follower. */
static void on_change(void *context, struct td_text id, struct td_text revision)
{
    struct td_upstream *u = context;
    struct td_text above = id;
    struct td_text last = td_text_take_last(&above, '/');
    bool is_model = revision.len == 0;
    char kept[TD_UPSTREAM_ID_BYTES];
    pthread_mutex_lock(&u->f.lock);
    if (is_model)
        note_change(u, id);
    if (is_model ? td_kept_id_write(above, TD_KEPT_SUBFOLDER, last, kept)
                 : td_kept_id_write(id, TD_KEPT_REVISION, revision, kept))
        note_change(u, td_text_of(kept));
    pthread_cond_signal(&u->f.work);
    pthread_mutex_unlock(&u->f.lock);
}

/* Has requests that wait for a change look again: a list of versions has changed. Called by a thread of the lists. */
static void on_versions(void *context)
{
    const struct td_upstream *u = context;
    if (u->f.config.catalog != NULL)
        td_catalog_announce(u->f.config.catalog);
}

/* Notes that any kept model may be another one at the upstream. Called by the follower. */
static void on_reset(void *context)
{
    struct td_upstream *u = context;
    pthread_mutex_lock(&u->f.lock);
    td_renewals_add_all(&u->f.renewals);
    pthread_cond_signal(&u->f.work);
    pthread_mutex_unlock(&u->f.lock);
}

/* Runs one job, and cleans up its intake if that has failed or its model is absent. Called and returns under the
 * lock. */
static void run_job(struct td_upstream *u, const struct td_intake_job *job)
{
    struct td_intake *intake = job->intake;
    pthread_cond_signal(&u->f.work);
    intake->running++;
    if (job->file == SIZE_MAX)
        td_fetching_list(&u->f, intake);
    else
        td_fetching_file(&u->f, intake, job->file);
    intake->running--;
    if (intake->phase == TD_INTAKE_PUBLISHED)
        td_follower_begin(u->follower);
    if (intake->phase >= TD_INTAKE_FAILED && intake->running == 0)
        td_fetching_put_away(&u->f, intake);
    pthread_cond_broadcast(&u->f.work);
}

/* Waits until there may be a job. Under the lock. */
static void wait_for_work(struct td_upstream *u)
{
    uint64_t now_ns = td_clock_ns();
    bool is_polling = !u->has_poller && (drop_found(u) || td_intake_queue_has_files(&u->f.queue));
    uint64_t until_ns = now_ns + (is_polling ? poll_ns : u->f.config.upkeep_ns);
    uint64_t paused_until_ns = u->f.queue.paused_until_ns;
    if (paused_until_ns > now_ns && paused_until_ns < until_ns)
        until_ns = paused_until_ns;
    if (td_renewals_next_ns(&u->f.renewals) < until_ns)
        until_ns = td_renewals_next_ns(&u->f.renewals);
    const struct timespec until = td_clock_timespec(until_ns);
    if (atomic_load(&u->f.stop))
        return;
    if (is_polling)
        u->has_poller = true;
    (void)pthread_cond_timedwait(&u->f.work, &u->f.lock, &until);
    if (is_polling)
        u->has_poller = false;
}

static void *worker_main(void *argument)
{
    struct td_upstream *u = argument;
    struct td_intake_job job;
    pthread_mutex_lock(&u->f.lock);
    while (!atomic_load(&u->f.stop)) {
        begin_renewals(u);
        if (td_intake_queue_choose(&u->f.queue, &job)) {
            run_job(u, &job);
            continue;
        }
        do_upkeep(u);
        wait_for_work(u);
    }
    pthread_mutex_unlock(&u->f.lock);
    return NULL;
}

static bool make_id(struct td_upstream *u, struct td_error *err)
{
    uint8_t bytes[ID_BYTES / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_sys(err, TD_INTERNAL, errno, "cannot get random bytes from the system");
    td_hex_write(bytes, sizeof bytes, u->id);
    return true;
}

static bool init_locks(struct td_upstream *u, struct td_error *err)
{
    if (pthread_mutex_init(&u->f.lock, NULL) != 0)
        return td_error_no_memory(err);
    bool has_work = td_clock_condition_init(&u->f.work);
    if (has_work && td_clock_condition_init(&u->f.changed))
        return true;
    if (has_work)
        (void)pthread_cond_destroy(&u->f.work);
    (void)pthread_mutex_destroy(&u->f.lock);
    return td_error_no_memory(err);
}

/* Prepares for lists of versions, if the source has some. */
static bool create_versions(struct td_upstream *u, struct td_error *err)
{
    const struct td_version_lists_config config = {
        .source = &u->f.config.source, .on_change = on_versions, .context = u};
    return config.source->versions == NULL || td_version_lists_create(&config, &u->versions, err);
}

/* Creates the follower if the source has streams, and lets it begin if there are models that may have changed. */
static bool create_follower(struct td_upstream *u, struct td_error *err)
{
    const struct td_follower_config config = {
        .source = &u->f.config.source, .on_change = on_change, .on_reset = on_reset, .context = u};
    size_t kept = 0;
    if (u->f.config.source.follow == NULL)
        return true;
    if (!td_follower_create(&config, &u->follower, err))
        return false;
    (void)td_upstream_store_bytes(u->f.config.store, &kept);
    if (kept > 0)
        td_follower_begin(u->follower);
    return true;
}

bool td_upstream_create(const struct td_upstream_config *config, struct td_upstream **out, struct td_error *err)
{
    struct td_upstream *u = calloc(1, sizeof *u);
    if (u == NULL)
        return td_error_no_memory(err);
    u->f.config = *config;
    u->f.queue.max_names = config->max_names;
    u->noted_ns = td_clock_ns();
    if (!make_id(u, err) || !init_locks(u, err)) {
        free(u);
        return false;
    }
    if (!create_versions(u, err) || !create_follower(u, err)) {
        td_upstream_destroy(u);
        return false;
    }
    for (; u->worker_count < TD_UPSTREAM_WORKERS; u->worker_count++) {
        int sys = pthread_create(&u->workers[u->worker_count], NULL, worker_main, u);
        if (sys == 0)
            continue;
        td_upstream_destroy(u);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start a thread that fetches");
    }
    *out = u;
    return true;
}

void td_upstream_stop(struct td_upstream *u)
{
    struct td_error why = TD_ERROR_INIT;
    (void)td_error_set(&why, TD_UNAVAILABLE, "the server is stopping");
    td_follower_stop(u->follower);
    td_version_lists_stop(u->versions);
    pthread_mutex_lock(&u->f.lock);
    atomic_store(&u->f.stop, true);
    for (size_t i = 0; i < u->f.queue.count; i++)
        if (u->f.queue.intakes[i]->phase < TD_INTAKE_PUBLISHED)
            td_fetching_fail(&u->f, u->f.queue.intakes[i], &why);
    pthread_cond_broadcast(&u->f.work);
    pthread_cond_broadcast(&u->f.changed);
    pthread_mutex_unlock(&u->f.lock);
}

void td_upstream_end_waits(struct td_upstream *u)
{
    pthread_mutex_lock(&u->f.lock);
    u->ends_waits = true;
    pthread_cond_broadcast(&u->f.changed);
    pthread_mutex_unlock(&u->f.lock);
    td_version_lists_end_waits(u->versions);
}

void td_upstream_destroy(struct td_upstream *u)
{
    if (u == NULL)
        return;
    td_upstream_stop(u);
    for (size_t i = 0; i < u->worker_count; i++)
        (void)pthread_join(u->workers[i], NULL);
    td_follower_destroy(u->follower); /* which the workers call, and which takes the lock below */
    td_version_lists_destroy(u->versions);
    td_intake_queue_fini(&u->f.queue);
    (void)pthread_cond_destroy(&u->f.work);
    (void)pthread_cond_destroy(&u->f.changed);
    (void)pthread_mutex_destroy(&u->f.lock);
    free(u);
}

/* ---- asking ----------------------------------------------------------------------------------------------- */

/* Warns, once, of a request that came back to this server; a client cannot forge that, since it does not know this
 * server's id. Warns separately, once, of a path that is too long, which any client can forge. Under the lock. */
static void warn_of_way(struct td_upstream *u, struct td_text id, enum way way)
{
    bool *has_warned = way == WAY_HAS_BEEN_HERE ? &u->has_warned_of_loop : &u->has_warned_of_way;
    if (!*has_warned && way == WAY_HAS_BEEN_HERE)
        td_log(TD_LOG_WARN,
               "upstream: the request for \"%.*s\" came back to this server: does --upstream name this server, or one "
               "whose --upstream does?",
               (int)id.len, id.p);
    else if (!*has_warned)
        td_log(TD_LOG_WARN,
               "upstream: the request for \"%.*s\" says that it has passed %d other servers, or not by which it came; "
               "it is not passed on",
               (int)id.len, id.p, TD_UPSTREAM_VIA_MOST);
    *has_warned = true;
}

/* Sets an answer without a model. Returns true. */
__attribute__((format(printf, 4, 5))) static bool refuse_request(struct td_upstream_reply *reply,
                                                                 enum td_upstream_answer answer, uint64_t wait_ns,
                                                                 const char *format, ...)
{
    va_list args;
    reply->answer = answer;
    reply->retry_after_s = wait_ns < TD_NS_PER_S ? 1 : (unsigned)((wait_ns + TD_NS_PER_S - 1) / TD_NS_PER_S);
    va_start(args, format);
    (void)vsnprintf(reply->why, sizeof reply->why, format, args);
    va_end(args);
    return true;
}

/* Answers that there is no room, and when to ask again, unless the model never fits. Returns true. */
static bool refuse_room(const struct td_intake *intake, uint64_t wait_ns, struct td_upstream_reply *reply)
{
    bool never_fits = td_fetch_fault_never_fits(&intake->error);
    (void)refuse_request(
        reply, TD_UPSTREAM_HAS_NO_ROOM, wait_ns,
        "there is no room for \"%s\" from the upstream%s; the server's log has the numbers", intake->id,
        never_fits ? ", whatever else is removed: it is too large for this server, or its upstream" : "");
    if (never_fits)
        reply->retry_after_s = 0;
    return true;
}

/* Answers from a failure. Only the log has the reason, since it may name other models and servers. Returns true. */
static bool answer_failure(const struct td_intake *intake, struct td_upstream_reply *reply)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t left_ns = intake->until_ns > now_ns ? intake->until_ns - now_ns : 0;
    uint64_t wait_ns = left_ns < retry_most_ns ? left_ns : retry_most_ns;
    if (intake->error.code == TD_CONFLICT)
        return refuse_request(
            reply, TD_UPSTREAM_IS_TAKEN, 0,
            "\"%s\" cannot be fetched from the upstream: something else has this name, or a part of it, in "
            "the served directory; the server's log says more",
            intake->id);
    if (td_fetching_own_failure(&intake->error) == TD_UPSTREAM_FAILED_SPACE)
        return refuse_room(intake, wait_ns, reply);
    return refuse_request(reply, TD_UPSTREAM_LATER, wait_ns,
                          "\"%s\" cannot be fetched from the upstream at present; the server's log has the reason",
                          intake->id);
}

/* Answers from an intake, if it has an answer. Returns whether it has one. Under the lock. */
static bool answer_from(struct td_upstream *u, const struct td_intake *intake, struct td_upstream_reply *reply)
{
    if (intake->is_again)
        return false;
    if (intake->phase == TD_INTAKE_FAILED)
        return answer_failure(intake, reply);
    if (intake->phase == TD_INTAKE_ABSENT) {
        reply->answer = TD_UPSTREAM_HAS_NOT;
        return true;
    }
    if (intake->snapshot == NULL)
        return false;
    reply->answer = TD_UPSTREAM_SENDS;
    reply->snapshot = td_snapshot_ref(intake->snapshot);
    u->f.status.early_requests++;
    return true;
}

/* Returns whether the upstream should be asked again although it reported no such model: that answer was for a request
 * that had passed more servers than this one, and the upstream may have refused it for that. So a client cannot hide a
 * model from others by a forged field. */
static bool is_doubtful(const struct td_intake *intake, const char *via)
{
    return intake->phase == TD_INTAKE_ABSENT && strlen(via) < strlen(intake->via);
}

/* Begins a fetch. Returns false after it has set a refusal in *reply. Under the lock. */
static bool begin_fetch(struct td_upstream *u, struct td_text id, const char *via, uint64_t client,
                        struct td_intake **intake, struct td_upstream_reply *reply)
{
    enum td_queue_refusal why;
    uint64_t wait_ns;
    if (td_intake_queue_begin(&u->f.queue, id, via, client, *intake, intake, &why, &wait_ns)) {
        (*intake)->renews = false;
        pthread_cond_broadcast(&u->f.work);
        return true;
    }
    if (why == TD_QUEUE_CLIENT_HAS_MANY)
        return !refuse_request(
            reply, TD_UPSTREAM_IS_TOO_MUCH, wait_ns,
            "this client has asked for too many models that are not on this server: %d may wait, and %d new "
            "names may be asked for at once, then one every %d ms",
            TD_UPSTREAM_CLIENT_QUEUE, TD_CLIENT_NAMES, TD_CLIENT_NAME_MS);
    if (why == TD_QUEUE_NO_MEMORY)
        return !refuse_request(reply, TD_UPSTREAM_LATER, wait_ns, "out of memory");
    return !refuse_request(reply, TD_UPSTREAM_LATER, wait_ns,
                           "%d models wait to be fetched from the upstream already; try again", TD_UPSTREAM_QUEUE);
}

/* Answers that the list has not arrived in time. Returns true. */
static bool answer_late(const struct td_upstream *u, const struct td_intake *intake, struct td_upstream_reply *reply)
{
    uint64_t now_ns = td_clock_ns();
    uint64_t paused_ns = u->f.queue.paused_until_ns > now_ns ? u->f.queue.paused_until_ns - now_ns : 0;
    return refuse_request(reply, TD_UPSTREAM_LATER, paused_ns,
                          "the list of files of \"%s\" is being fetched from the upstream%s; try again", intake->id,
                          paused_ns > 0 ? ", which has asked clients to wait" : "");
}

/* Returns whether the store has the model as published. A model whose intake is gone may have been published in
 * between, whether a scan has found it yet or not. Under the lock. */
static bool is_kept(struct td_upstream *u, struct td_text id)
{
    struct td_kept_model kept;
    return td_upstream_store_find(u->f.config.store, id, &kept);
}

/* Waits for an answer and sets it. is_known: the model had an intake a moment ago. Under the lock. */
static void wait_for_answer(struct td_upstream *u, const struct td_upstream_asker *asker, struct td_text id,
                            bool is_known, struct td_upstream_reply *reply)
{
    char sent[TD_UPSTREAM_VIA_BYTES];
    uint64_t most_ns = u->f.config.wait_ns;
    uint64_t wait_ns = asker->via.len > 0 && relay_wait_ns < most_ns ? relay_wait_ns : most_ns;
    const uint64_t until_ns = td_clock_ns() + wait_ns;
    const struct timespec until = td_clock_timespec(until_ns);
    enum way way = make_via(u, asker->via, sent);
    bool may_send = way == WAY_IS_OPEN;
    bool has_begun = false;
    for (;;) {
        struct td_intake *intake = td_intake_queue_find(&u->f.queue, id);
        bool is_over = intake == NULL;
        if (intake != NULL && td_intake_is_answer(intake) && !has_begun)
            is_over = td_clock_ns() >= intake->until_ns || (may_send && is_doubtful(intake, sent));
        if (atomic_load(&u->f.stop)) {
            (void)refuse_request(reply, TD_UPSTREAM_LATER, 0, "the server is stopping");
            return;
        }
        if (intake == NULL && (is_known || has_begun) && is_kept(u, id)) {
            reply->answer = TD_UPSTREAM_SENT;
            return;
        }
        if (!is_over && answer_from(u, intake, reply))
            return;
        if (!may_send) { /* this server would wait for its own answer */
            warn_of_way(u, id, way);
            return;
        }
        if (!td_may_wait(NULL) || (is_over && !begin_fetch(u, id, sent, asker->client, &intake, reply)))
            return;
        has_begun = has_begun || is_over;
        bool is_in_vain = intake->phase == TD_INTAKE_QUEUED && u->f.queue.paused_until_ns > until_ns;
        if ((is_in_vain || u->ends_waits || td_clock_ns() >= until_ns) && answer_late(u, intake, reply))
            return;
        (void)pthread_cond_timedwait(&u->f.changed, &u->f.lock, &until);
    }
}

void td_upstream_ask(struct td_upstream *u, const struct td_upstream_asker *asker, struct td_text id,
                     struct td_upstream_reply *reply)
{
    struct td_text model;
    struct td_text revision;
    *reply = (struct td_upstream_reply){.answer = TD_UPSTREAM_HAS_NOT};
    if (!td_kept_id_split(id, &model, &revision))
        return;
    pthread_mutex_lock(&u->f.lock);
    const struct td_intake *intake = td_intake_queue_find(&u->f.queue, id);
    bool is_known = intake != NULL && !(td_intake_is_answer(intake) && td_clock_ns() >= intake->until_ns);
    pthread_mutex_unlock(&u->f.lock);
    struct td_kept_model kept;
    if (!is_known && td_upstream_store_find(u->f.config.store, id, &kept)) {
        if (!td_may_wait(NULL)) /* for the disk */
            return;
        if (td_upstream_store_is_there(u->f.config.store, id)) {
            reply->answer = TD_UPSTREAM_SENT;
            return;
        }
    }
    pthread_mutex_lock(&u->f.lock);
    wait_for_answer(u, asker, id, is_known, reply);
    pthread_mutex_unlock(&u->f.lock);
}

/* Counts a list of versions that the client is the first to ask for as one new name. Returns false after it set a
 * refusal. */
static bool count_name(struct td_upstream *u, const struct td_upstream_asker *asker, struct td_upstream_reply *reply)
{
    uint64_t wait_ns = 0;
    pthread_mutex_lock(&u->f.lock);
    bool may_ask = td_client_turns_count(&u->f.queue.turns, asker->client, td_clock_ns(), &wait_ns);
    pthread_mutex_unlock(&u->f.lock);
    return may_ask || !refuse_request(reply, TD_UPSTREAM_IS_TOO_MUCH, wait_ns,
                                      "this client has asked for too many models that are not on this server: %d new "
                                      "names may be asked for at once, then one every %d ms",
                                      TD_CLIENT_NAMES, TD_CLIENT_NAME_MS);
}

enum td_upstream_answer td_upstream_find_family(struct td_upstream *u, const struct td_upstream_asker *asker,
                                                struct td_text id, struct td_remote_family **out,
                                                struct td_upstream_reply *reply)
{
    char via[TD_UPSTREAM_VIA_BYTES];
    struct td_version_list_wish wish = {.id = id, .via = via};
    *reply = (struct td_upstream_reply){.answer = TD_UPSTREAM_HAS_NOT};
    if (u->versions == NULL || !td_kept_id_is_valid(id) || make_via(u, asker->via, via) != WAY_IS_OPEN)
        return reply->answer;
    enum td_version_list_look look = td_version_lists_ask(u->versions, &wish, out);
    if (look == TD_VERSION_LIST_NEW && !td_may_wait(NULL))
        return reply->answer;
    if (look == TD_VERSION_LIST_NEW && !count_name(u, asker, reply))
        return reply->answer;
    if (look == TD_VERSION_LIST_NEW) {
        wish.may_ask = true;
        wish.wait_ns = asker->via.len > 0 && relay_wait_ns < u->f.config.wait_ns ? relay_wait_ns : u->f.config.wait_ns;
        look = td_version_lists_ask(u->versions, &wish, out);
    }
    if (look == TD_VERSION_LIST_FOUND)
        reply->answer = TD_UPSTREAM_SENT;
    else if (look == TD_VERSION_LIST_LATER)
        (void)refuse_request(reply, TD_UPSTREAM_LATER, 0,
                             "the list of versions of \"%.*s\" cannot be had from the upstream at present; the "
                             "server's log has the reason",
                             (int)id.len, id.p);
    return reply->answer;
}

/* Estimates how long the rest of the model takes at the rate so far. Assumes 64 MiB/s in the first second, while
 * connections are set up. Under the lock. */
static uint64_t expect_left_ns(const struct td_intake *intake)
{
    const double first_rate = 64.0 * 1024 * 1024; /* bytes/s */
    if (intake->files == NULL)
        return UINT64_MAX;
    uint64_t arrived_bytes = td_intake_arrived(intake), total_bytes = intake->model.listing.total_bytes;
    double left_bytes = arrived_bytes < total_bytes ? (double)(total_bytes - arrived_bytes) : 0;
    double fetched_bytes = arrived_bytes > intake->resumed_bytes ? (double)(arrived_bytes - intake->resumed_bytes) : 0;
    double took_s = (double)(td_clock_ns() - intake->started_ns) / 1e9;
    double rate = took_s < 1 ? first_rate : fetched_bytes / took_s;
    double left_s = left_bytes <= 0 ? 0 : rate <= 0 ? 1e9 : left_bytes / rate;
    return left_s < 1e9 ? (uint64_t)(left_s * 1e9) : UINT64_MAX;
}

/* Returns whether the intake fetches a model that is not here yet. Under the lock, like progress_of. */
static bool is_on_its_way(const struct td_intake *intake)
{
    return intake->phase < TD_INTAKE_PUBLISHED && !intake->renews;
}

static struct td_upstream_progress progress_of(const struct td_intake *intake)
{
    return (struct td_upstream_progress){.arrived_bytes = td_intake_arrived(intake),
                                         .total_bytes = intake->files == NULL ? 0 : intake->model.listing.total_bytes,
                                         .left_ns = expect_left_ns(intake),
                                         .is_listed = intake->files != NULL};
}

bool td_upstream_get_progress(struct td_upstream *u, struct td_text id, struct td_upstream_progress *out)
{
    pthread_mutex_lock(&u->f.lock);
    const struct td_intake *intake = td_intake_queue_find(&u->f.queue, id);
    bool found = intake != NULL && is_on_its_way(intake);
    if (found)
        *out = progress_of(intake);
    pthread_mutex_unlock(&u->f.lock);
    return found;
}

size_t td_upstream_get_arrivals(struct td_upstream *u, struct td_upstream_arrival *out, size_t capacity)
{
    size_t count = 0;
    pthread_mutex_lock(&u->f.lock);
    for (size_t i = 0; i < u->f.queue.count && count < capacity; i++) {
        const struct td_intake *intake = u->f.queue.intakes[i];
        if (!is_on_its_way(intake) || intake->phase == TD_INTAKE_QUEUED)
            continue;
        memcpy(out[count].id, intake->id, sizeof out[count].id);
        out[count++].progress = progress_of(intake);
    }
    pthread_mutex_unlock(&u->f.lock);
    return count;
}

bool td_upstream_was_wrong(struct td_upstream *u, struct td_text etag)
{
    pthread_mutex_lock(&u->f.lock);
    bool was_wrong = td_wrong_tags_has(&u->f.wrong_tags, etag);
    pthread_mutex_unlock(&u->f.lock);
    return was_wrong;
}

bool td_upstream_find(struct td_upstream *u, struct td_text id, struct td_kept_model *out)
{
    return td_upstream_store_find(u->f.config.store, id, out);
}

void td_upstream_note_read(struct td_upstream *u, struct td_text id)
{
    td_upstream_store_note_read(u->f.config.store, id);
}

void td_upstream_get_status(struct td_upstream *u, struct td_upstream_status *status)
{
    pthread_mutex_lock(&u->f.lock);
    *status = u->f.status;
    status->fetching = td_intake_queue_active(&u->f.queue);
    status->waiting = td_intake_queue_waiting(&u->f.queue);
    status->is_following = td_follower_is_open(u->follower);
    pthread_mutex_unlock(&u->f.lock);
    status->fetched_bytes = atomic_load_explicit(&u->f.fetched_bytes, memory_order_relaxed);
    status->kept_bytes = td_upstream_store_bytes(u->f.config.store, &status->kept_count);
    status->unverified = td_upstream_store_count_unverified(u->f.config.store);
}
