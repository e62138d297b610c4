/* Plan: a fixed table of lists, each with a thread of its own, which asks the upstream, publishes the answer in the
 * table, and asks again with a wait for a change. A thread ends when nobody asks for its list any more, or when the
 * upstream has no such list; its place in the table is then taken by the next id. Answers without a list are remembered
 * in a ring, so that names without versions take neither places nor requests. */
#include "catalog/upstream/version_lists.h"

#include "catalog/upstream/kept_table.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_S = 14 }; /* of a request for a change: below half of the time after which a connection counts as stalled */

static const uint64_t idle_ns = TD_VERSION_LIST_IDLE_S * TD_NS_PER_S;
static const uint64_t absent_ns = TD_VERSION_LIST_ABSENT_S * TD_NS_PER_S;
static const uint64_t gap_ns = TD_NS_PER_S / 4; /* between two requests for one list */
static const uint64_t retry_ns = TD_NS_PER_S;   /* after the first failure; doubles */
static const uint64_t retry_most_ns = 30 * TD_NS_PER_S;

/* An id without a list. */
struct remembered {
    char id[TD_UPSTREAM_ID_BYTES];
    char via[TD_UPSTREAM_VIA_BYTES]; /* that was sent */
    bool is_failure;                 /* else the upstream has no such list */
    uint64_t until_ns;
};

/* A list that is followed, or a free place in the table. */
struct list {
    struct td_version_lists *owner;
    char id[TD_UPSTREAM_ID_BYTES]; /* empty: the place is free */
    char via[TD_UPSTREAM_VIA_BYTES];
    struct td_remote_family *family; /* one reference; NULL: no answer yet */
    uint64_t used_ns;                /* when it was asked for last */
    pthread_t thread;
    bool has_thread; /* that has to be joined */
    bool has_ended;  /* the thread has, or is about to return */
};

struct td_version_lists {
    struct td_version_lists_config config;
    struct td_budget budget;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an answer has come, a thread has ended, or all is to end */
    struct list lists[TD_VERSION_LISTS];
    struct remembered remembered[TD_VERSION_LISTS_REMEMBERED];
    size_t next; /* place in the ring */
    bool ends_waits;
    _Atomic bool stop;
};

/* ---- the threads --------------------------------------------------------------------------------------- */

static bool is_stopping(void *context)
{
    return atomic_load(&((struct list *)context)->owner->stop);
}

/* Asks the upstream for the list, after a wait for a change if `versions` has a tag. Sets *family to a new family if it
 * has changed. */
static bool ask(struct list *list, struct td_remote_versions *versions, struct td_remote_family **family,
                struct td_error *err)
{
    struct td_version_lists *lists = list->owner;
    const struct td_cancel cancel = {.is_asked = is_stopping, .context = list};
    const struct td_upstream_wish wish = {.id = list->id, .via = list->via, .cancel = &cancel};
    const struct td_remote_versions_query query = {.id = list->id,
                                                   .waits = versions->tag[0] != '\0',
                                                   .tag = versions->tag,
                                                   .timeout_s = WAIT_S,
                                                   .all = true,
                                                   .budget = &lists->budget};
    const struct td_upstream_source *source = lists->config.source;
    struct td_remote_versions next;
    bool has_changed = false;
    td_remote_versions_init(&next);
    memcpy(next.tag, versions->tag, sizeof next.tag);
    next.server = versions->server;
    bool ok = source->versions(source->context, &wish, &query, &next, &has_changed, err) &&
              (!has_changed || td_remote_family_create(list->id, &next, &lists->budget, family, err));
    if (ok)
        memcpy(versions->tag, next.tag, sizeof next.tag);
    versions->server = next.server;
    td_remote_versions_fini(&next);
    return ok;
}

/* Remembers an answer without a list. Under the lock. */
static void remember(struct list *list, bool is_failure, uint64_t for_ns)
{
    struct td_version_lists *lists = list->owner;
    struct remembered *one = &lists->remembered[lists->next];
    lists->next = (lists->next + 1) % TD_VERSION_LISTS_REMEMBERED;
    memcpy(one->id, list->id, sizeof one->id);
    memcpy(one->via, list->via, sizeof one->via);
    one->is_failure = is_failure;
    one->until_ns = td_clock_ns() + for_ns;
}

/* Records the answer. Returns false when the thread is to end. Under the lock. */
static bool take_answer(struct list *list, bool ok, struct td_remote_family *family, const struct td_error *why)
{
    bool is_absent = why->code == TD_NOT_FOUND || why->code == TD_PERMISSION_DENIED;
    if (atomic_load(&list->owner->stop))
        return false;
    if (family != NULL) {
        td_remote_family_unref(list->family);
        list->family = td_remote_family_ref(family);
    }
    if (ok)
        return td_clock_ns() < list->used_ns + idle_ns;
    if (list->family == NULL || is_absent)
        remember(list, !is_absent, is_absent ? absent_ns : 2 * retry_ns);
    if (is_absent) {
        td_remote_family_unref(list->family);
        list->family = NULL;
    }
    return list->family != NULL;
}

/* Waits for `ns`. Returns false when the thread is to end. Under the lock. */
static bool pause_for(struct list *list, uint64_t ns)
{
    const uint64_t until_ns = td_clock_ns() + ns;
    const struct timespec until = td_clock_timespec(until_ns);
    while (!atomic_load(&list->owner->stop) && td_clock_ns() < until_ns)
        (void)pthread_cond_timedwait(&list->owner->changed, &list->owner->lock, &until);
    return !atomic_load(&list->owner->stop);
}

/* Logs the first failure after an answer. */
static void log_failure(const struct list *list, unsigned failures, const struct td_error *why)
{
    if (failures == 1 && !atomic_load(&list->owner->stop))
        td_log(why->code == TD_NOT_FOUND ? TD_LOG_INFO : TD_LOG_WARN,
               "upstream: the list of versions of \"%s\" cannot be had%s: %s", list->id,
               list->family != NULL && why->code != TD_NOT_FOUND ? ", and stays as it was" : "", why->message);
}

static void *list_main(void *argument)
{
    struct list *list = argument;
    struct td_version_lists *lists = list->owner;
    struct td_remote_versions versions; /* the tag and the server of the last answer */
    unsigned failures = 0;
    td_remote_versions_init(&versions);
    for (bool goes_on = true; goes_on;) {
        struct td_error why = TD_ERROR_INIT;
        struct td_remote_family *family = NULL;
        bool ok = ask(list, &versions, &family, &why);
        failures = ok ? 0 : failures + 1;
        log_failure(list, failures, &why);
        pthread_mutex_lock(&lists->lock);
        goes_on = take_answer(list, ok, family, &why);
        bool has_news = family != NULL || !goes_on;
        pthread_cond_broadcast(&lists->changed);
        pthread_mutex_unlock(&lists->lock);
        td_remote_family_unref(family);
        if (has_news && !atomic_load(&lists->stop))
            lists->config.on_change(lists->config.context);
        uint64_t wait_ns = ok ? gap_ns : retry_ns << (failures < 5 ? failures - 1 : 5);
        pthread_mutex_lock(&lists->lock);
        goes_on = goes_on && pause_for(list, wait_ns < retry_most_ns ? wait_ns : retry_most_ns);
        if (!goes_on) {
            list->has_ended = true;
            pthread_cond_broadcast(&lists->changed);
        }
        pthread_mutex_unlock(&lists->lock);
    }
    td_remote_versions_fini(&versions);
    return NULL;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

/* Frees the place of a list whose thread has ended. Under the lock, which that thread does not take any more. */
static void clear_list(struct list *list)
{
    if (list->has_thread)
        (void)pthread_join(list->thread, NULL);
    td_remote_family_unref(list->family);
    *list = (struct list){.owner = list->owner};
}

/* Returns the list with this id, or NULL. Frees places of threads that have ended. Under the lock, as all below. */
static struct list *find_list(struct td_version_lists *lists, struct td_text id)
{
    struct list *found = NULL;
    for (size_t i = 0; i < TD_VERSION_LISTS; i++) {
        struct list *list = &lists->lists[i];
        if (list->has_ended)
            clear_list(list);
        if (list->id[0] != '\0' && td_text_equals(id, list->id))
            found = list;
    }
    return found;
}

/* Returns the newest remembered answer that counts, or NULL. "No such list" does not count for a request that has
 * passed fewer servers: the upstream may have refused the longer way. */
static const struct remembered *find_remembered(const struct td_version_lists *lists,
                                                const struct td_version_list_wish *wish)
{
    const struct remembered *found = NULL;
    for (size_t i = 0; i < TD_VERSION_LISTS_REMEMBERED; i++) {
        const struct remembered *one = &lists->remembered[i];
        bool counts = one->is_failure || strlen(wish->via) >= strlen(one->via);
        if (counts && td_text_equals(wish->id, one->id) && td_clock_ns() < one->until_ns &&
            (found == NULL || one->until_ns > found->until_ns))
            found = one;
    }
    return found;
}

/* Begins to follow a list. Returns NULL when no place is free or no thread can be started. */
static struct list *begin_list(struct td_version_lists *lists, const struct td_version_list_wish *wish)
{
    struct list *list = NULL;
    for (size_t i = 0; i < TD_VERSION_LISTS && list == NULL; i++)
        list = lists->lists[i].id[0] == '\0' ? &lists->lists[i] : NULL;
    if (list == NULL || atomic_load(&lists->stop))
        return NULL;
    (void)snprintf(list->id, sizeof list->id, "%.*s", (int)wish->id.len, wish->id.p);
    (void)snprintf(list->via, sizeof list->via, "%s", wish->via);
    list->used_ns = td_clock_ns();
    list->has_thread = pthread_create(&list->thread, NULL, list_main, list) == 0;
    if (list->has_thread)
        return list;
    clear_list(list);
    return NULL;
}

enum td_version_list_look td_version_lists_ask(struct td_version_lists *lists, const struct td_version_list_wish *wish,
                                               struct td_remote_family **out)
{
    const uint64_t until_ns = td_clock_ns() + wish->wait_ns;
    const struct timespec until = td_clock_timespec(until_ns);
    enum td_version_list_look look = TD_VERSION_LIST_LATER;
    pthread_mutex_lock(&lists->lock);
    for (;;) {
        struct list *list = find_list(lists, wish->id);
        const struct remembered *remembered = list == NULL ? find_remembered(lists, wish) : NULL;
        if (list != NULL)
            list->used_ns = td_clock_ns();
        if (list != NULL && list->family != NULL) {
            *out = td_remote_family_ref(list->family);
            look = TD_VERSION_LIST_FOUND;
            break;
        }
        if (remembered != NULL) {
            look = remembered->is_failure ? TD_VERSION_LIST_LATER : TD_VERSION_LIST_ABSENT;
            break;
        }
        if (list == NULL && !wish->may_ask) {
            look = TD_VERSION_LIST_NEW;
            break;
        }
        if (!td_may_wait(NULL) || (list == NULL && begin_list(lists, wish) == NULL) || lists->ends_waits ||
            atomic_load(&lists->stop) || td_clock_ns() >= until_ns)
            break;
        (void)pthread_cond_timedwait(&lists->changed, &lists->lock, &until);
    }
    pthread_mutex_unlock(&lists->lock);
    return look;
}

bool td_version_lists_create(const struct td_version_lists_config *config, struct td_version_lists **out,
                             struct td_error *err)
{
    struct td_version_lists *lists = calloc(1, sizeof *lists);
    if (lists == NULL)
        return td_error_no_memory(err);
    lists->config = *config;
    td_budget_init(&lists->budget, TD_VERSION_LISTS_BYTES, "the upstream's lists of versions");
    for (size_t i = 0; i < TD_VERSION_LISTS; i++)
        lists->lists[i].owner = lists;
    if (pthread_mutex_init(&lists->lock, NULL) != 0 || !td_clock_condition_init(&lists->changed)) {
        free(lists);
        return td_error_no_memory(err);
    }
    *out = lists;
    return true;
}

void td_version_lists_end_waits(struct td_version_lists *lists)
{
    if (lists == NULL)
        return;
    pthread_mutex_lock(&lists->lock);
    lists->ends_waits = true;
    pthread_cond_broadcast(&lists->changed);
    pthread_mutex_unlock(&lists->lock);
}

void td_version_lists_stop(struct td_version_lists *lists)
{
    if (lists == NULL)
        return;
    pthread_mutex_lock(&lists->lock);
    atomic_store(&lists->stop, true);
    pthread_cond_broadcast(&lists->changed);
    pthread_mutex_unlock(&lists->lock);
}

void td_version_lists_destroy(struct td_version_lists *lists)
{
    if (lists == NULL)
        return;
    td_version_lists_stop(lists);
    for (size_t i = 0; i < TD_VERSION_LISTS; i++)
        clear_list(&lists->lists[i]);
    (void)pthread_cond_destroy(&lists->changed);
    (void)pthread_mutex_destroy(&lists->lock);
    free(lists);
}
