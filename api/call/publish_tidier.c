/* A queue of work with one thread, not an idle one: tidying holds the locks of repositories, for which requests wait
 * (work/work_queue.h). One job never ends, and runs again after a minute; each other one tidies one repository. */
#include "api/call/publish_tidier.h"

#include "core/clock.h"
#include "work/work_queue.h"

#include <stdlib.h>

enum level { SOON, LATER };
enum { NICE = 10, COMMITS_OF_A_TURN = 32 };
#define PAUSE_NS (UINT64_C(60) * TD_NS_PER_S)

struct tidy_job {
    struct td_work_job job; /* first: on the way back a job is one of these */
    bool is_of_one;         /* tidies the repository `name`; else everything */
    struct td_publish_name name;
};

struct td_publish_tidier {
    struct td_publish *publish;
    struct td_work_queue *queue;
    unsigned commits[TD_PUBLISH_LOCKS]; /* since the last turn, by the repository's lock; under the queue's lock */
};

static bool run(void *context, struct td_work_job *job, const struct td_work_thread *thread)
{
    struct td_publish_tidier *tidier = context;
    const struct tidy_job *tidy = (const struct tidy_job *)(const void *)job;
    (void)thread;
    if (tidy->is_of_one)
        td_publish_tidy_one(tidier->publish, &tidy->name);
    else
        td_publish_tidy(tidier->publish, &job->stop);
    return tidy->is_of_one;
}

static void free_job(struct td_work_job *job)
{
    free(job);
}

/* Adds a job; `name` NULL: for everything. Returns false without memory. */
static bool add_job(struct td_publish_tidier *tidier, const struct td_publish_name *name)
{
    struct tidy_job *tidy = calloc(1, sizeof *tidy);
    if (tidy == NULL)
        return false;
    td_work_job_init(&tidy->job, 0, 0);
    tidy->is_of_one = name != NULL;
    if (name != NULL)
        tidy->name = *name;
    td_work_queue_lock(tidier->queue);
    td_work_queue_add(tidier->queue, &tidy->job, SOON);
    td_work_queue_unlock(tidier->queue);
    return true;
}

bool td_publish_tidier_create(struct td_publish *publish, struct td_publish_tidier **out, struct td_error *err)
{
    static const struct td_work_pool pool = {
        .purpose = "tidy published models", .thread_count = 1, .levels = {SOON, LATER}, .level_count = 2, .nice = NICE};
    struct td_publish_tidier *tidier = calloc(1, sizeof *tidier);
    if (tidier == NULL)
        return td_error_no_memory(err);
    const struct td_work_config config = {
        .run = run, .free = free_job, .context = tidier, .retry_ns = PAUSE_NS, .retry_level = LATER};
    tidier->publish = publish;
    if (td_work_queue_create(&config, &tidier->queue, err) && td_work_queue_start(tidier->queue, &pool, err) &&
        (add_job(tidier, NULL) || td_error_no_memory(err))) {
        *out = tidier;
        return true;
    }
    td_publish_tidier_destroy(tidier);
    return false;
}

void td_publish_tidier_destroy(struct td_publish_tidier *tidier)
{
    if (tidier == NULL)
        return;
    td_work_queue_destroy(tidier->queue);
    free(tidier);
}

void td_publish_tidier_note(struct td_publish_tidier *tidier, const struct td_publish_name *name)
{
    unsigned *count = &tidier->commits[td_publish_name_slot(name)];
    td_work_queue_lock(tidier->queue);
    bool is_due = ++*count >= COMMITS_OF_A_TURN;
    if (is_due)
        *count = 0;
    td_work_queue_unlock(tidier->queue);
    if (is_due)
        (void)add_job(tidier, name); /* without memory, the next minute's turn does it */
}
