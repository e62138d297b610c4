#include "catalog/upstream/intake_queue.h"

#include "catalog/upstream/upstream_config.h"
#include "core/array.h"
#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- turns of clients ---------------------------------------------------------------------------------- */

static const uint64_t name_ns = TD_CLIENT_NAME_MS * UINT64_C(1000000);

/* Returns the index of the client's entry, or turns->count if it has no entry. */
static size_t find_client(const struct td_client_turns *turns, uint64_t client)
{
    size_t i = 0;
    while (i < turns->count && turns->clients[i].client != client)
        i++;
    return i;
}

/* Returns the client's entry. A client without one gets a new entry; in a full table it replaces the client that may
 * ask for most names. */
static struct td_client_turn *entry_of(struct td_client_turns *turns, uint64_t client)
{
    size_t found = find_client(turns, client);
    struct td_client_turn *entry = &turns->clients[0];
    if (found < turns->count)
        return &turns->clients[found];
    if (turns->count < TD_CLIENT_TURNS) {
        entry = &turns->clients[turns->count++];
    } else {
        for (size_t i = 1; i < turns->count; i++)
            if (turns->clients[i].spent_until_ns < entry->spent_until_ns)
                entry = &turns->clients[i];
    }
    *entry = (struct td_client_turn){.client = client};
    return entry;
}

bool td_client_turns_count(struct td_client_turns *turns, uint64_t client, uint64_t now_ns, uint64_t *wait_ns)
{
    struct td_client_turn *entry = entry_of(turns, client);
    uint64_t spent_ns = entry->spent_until_ns > now_ns ? entry->spent_until_ns - now_ns : 0;
    if (spent_ns > (TD_CLIENT_NAMES - 1) * name_ns) {
        *wait_ns = spent_ns - (TD_CLIENT_NAMES - 1) * name_ns;
        return false;
    }
    entry->spent_until_ns = now_ns + spent_ns + name_ns;
    return true;
}

void td_client_turns_take(struct td_client_turns *turns, uint64_t client)
{
    entry_of(turns, client)->turn = ++turns->turn;
}

uint64_t td_client_turns_latest(const struct td_client_turns *turns, uint64_t client)
{
    size_t found = find_client(turns, client);
    return found < turns->count ? turns->clients[found].turn : 0;
}

/* ---- intakes ------------------------------------------------------------------------------------------- */

static const uint64_t full_ns = 5 * TD_NS_PER_S;   /* suggested wait when the queue is full */
static const uint64_t grace_ns = 60 * TD_NS_PER_S; /* a failure is counted for longer than it is answered */

struct td_intake *td_intake_queue_find(const struct td_intake_queue *queue, struct td_text id)
{
    for (size_t i = 0; i < queue->count; i++)
        if (td_text_equals(id, queue->intakes[i]->id))
            return queue->intakes[i];
    return NULL;
}

static bool is_waiting(const struct td_intake *intake)
{
    return intake->phase == TD_INTAKE_QUEUED && intake->running == 0;
}

/* Returns whether the intake counts against TD_UPSTREAM_MODELS. */
static bool is_active(const struct td_intake *intake)
{
    return intake->running > 0 || (intake->phase > TD_INTAKE_QUEUED && intake->phase <= TD_INTAKE_PUBLISHING);
}

bool td_intake_is_answer(const struct td_intake *intake)
{
    return intake->running == 0 && intake->phase >= TD_INTAKE_PUBLISHED && !intake->is_again;
}

size_t td_intake_queue_active(const struct td_intake_queue *queue)
{
    size_t count = 0;
    for (size_t i = 0; i < queue->count; i++)
        count += is_active(queue->intakes[i]) ? 1 : 0;
    return count;
}

size_t td_intake_queue_waiting(const struct td_intake_queue *queue)
{
    size_t count = 0;
    for (size_t i = 0; i < queue->count; i++)
        count += queue->intakes[i]->phase == TD_INTAKE_QUEUED ? 1 : 0;
    return count;
}

size_t td_intake_queue_files(const struct td_intake_queue *queue)
{
    size_t count = 0;
    for (size_t i = 0; i < queue->count; i++)
        count += queue->intakes[i]->file_count;
    return count;
}

/* Returns how many intakes of a client `counts` selects. */
static size_t count_of(const struct td_intake_queue *queue, uint64_t client, bool (*counts)(const struct td_intake *))
{
    size_t count = 0;
    for (size_t i = 0; i < queue->count; i++)
        count += queue->intakes[i]->client == client && counts(queue->intakes[i]) ? 1 : 0;
    return count;
}

static void remove_intake(struct td_intake_queue *queue, size_t at)
{
    td_intake_destroy(queue->intakes[at]);
    queue->intakes[at] = queue->intakes[--queue->count];
}

void td_intake_queue_fini(struct td_intake_queue *queue)
{
    while (queue->count > 0)
        remove_intake(queue, 0);
    free(queue->intakes);
}

void td_intake_queue_drop_old(struct td_intake_queue *queue)
{
    uint64_t now_ns = td_clock_ns();
    for (size_t i = 0; i < queue->count;) {
        const struct td_intake *intake = queue->intakes[i];
        uint64_t kept_ns = intake->phase == TD_INTAKE_FAILED ? grace_ns : 0;
        if (td_intake_is_answer(intake) && now_ns >= intake->until_ns + kept_ns)
            remove_intake(queue, i);
        else
            i++;
    }
}

bool td_intake_queue_drop_found(struct td_intake_queue *queue,
                                bool (*is_found)(const void *context, const struct td_intake *intake),
                                const void *context)
{
    bool has_more = false;
    for (size_t i = 0; i < queue->count;) {
        const struct td_intake *intake = queue->intakes[i];
        bool is_published = intake->phase == TD_INTAKE_PUBLISHED;
        if (is_published && intake->running == 0 && is_found(context, intake)) {
            remove_intake(queue, i);
            continue;
        }
        has_more = has_more || is_published;
        i++;
    }
    return has_more;
}

/* Makes room in the table: drops the answer that expires first. Returns false when the table has no answers. */
static bool drop_oldest_answer(struct td_intake_queue *queue)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < queue->count; i++)
        if (td_intake_is_answer(queue->intakes[i]) &&
            (first == SIZE_MAX || queue->intakes[i]->until_ns < queue->intakes[first]->until_ns))
            first = i;
    if (first != SIZE_MAX)
        remove_intake(queue, first);
    return first != SIZE_MAX;
}

/* Returns the index of the model to drop from a full queue for a client without a queued model: the latest model of the
 * client with the most queued. Returns SIZE_MAX if the client has a queued model, or no client has two. */
static size_t find_displaced(const struct td_intake_queue *queue, uint64_t client)
{
    size_t found = SIZE_MAX;
    size_t most = 1;
    if (count_of(queue, client, is_waiting) > 0)
        return SIZE_MAX;
    for (size_t i = 0; i < queue->count; i++) {
        const struct td_intake *intake = queue->intakes[i];
        if (!is_waiting(intake) || intake->rounds > 0) /* a model that is queued again has files on disk */
            continue;
        size_t count = count_of(queue, intake->client, is_waiting);
        bool is_later = found != SIZE_MAX && intake->order > queue->intakes[found]->order;
        if (count > most || (count == most && is_later)) {
            found = i;
            most = count;
        }
    }
    return found;
}

static bool refuse_to_queue(enum td_queue_refusal reason, uint64_t after_ns, enum td_queue_refusal *why,
                            uint64_t *wait_ns)
{
    *why = reason;
    *wait_ns = after_ns;
    return false;
}

bool td_intake_queue_begin(struct td_intake_queue *queue, struct td_text id, const char *via, uint64_t client,
                           struct td_intake *old, struct td_intake **out, enum td_queue_refusal *why, uint64_t *wait_ns)
{
    char name[TD_UPSTREAM_ID_BYTES];
    uint64_t after_ns;
    if (count_of(queue, client, is_waiting) >= TD_UPSTREAM_CLIENT_QUEUE)
        return refuse_to_queue(TD_QUEUE_CLIENT_HAS_MANY, full_ns, why, wait_ns);
    bool is_full = td_intake_queue_waiting(queue) >= TD_UPSTREAM_QUEUE;
    if ((is_full && find_displaced(queue, client) == SIZE_MAX) ||
        (!is_full && old == NULL && queue->count >= queue->max_names && !drop_oldest_answer(queue)))
        return refuse_to_queue(TD_QUEUE_IS_FULL, full_ns, why, wait_ns);
    if (!td_client_turns_count(&queue->turns, client, td_clock_ns(), &after_ns))
        return refuse_to_queue(TD_QUEUE_CLIENT_HAS_MANY, after_ns, why, wait_ns);
    if (is_full)
        remove_intake(queue, find_displaced(queue, client));
    if (old != NULL) {
        td_intake_clear(old);
        td_intake_restart(old, via);
    } else {
        (void)snprintf(name, sizeof name, "%.*s", (int)id.len, id.p);
        if (!TD_ARRAY_GROW(queue->intakes, queue->count, queue->capacity, NULL) ||
            (old = td_intake_create(name, via)) == NULL)
            return refuse_to_queue(TD_QUEUE_NO_MEMORY, full_ns, why, wait_ns);
        queue->intakes[queue->count++] = old;
    }
    old->client = client;
    old->order = ++queue->order;
    old->turn = queue->turns.turn;
    *out = old;
    return true;
}

/* Returns the turn that orders the intake: its client's latest turn, or the latest turn of any client when the intake
 * was queued, if that is later. So a client that is new, or has not asked for long, does not overtake clients that
 * wait. */
static uint64_t turn_of(const struct td_intake_queue *queue, const struct td_intake *intake)
{
    uint64_t latest = td_client_turns_latest(&queue->turns, intake->client);
    return latest > intake->turn ? latest : intake->turn;
}

/* Returns whether a is to be listed before b. */
static bool comes_before(const struct td_intake_queue *queue, const struct td_intake *a, const struct td_intake *b)
{
    uint64_t a_turn = turn_of(queue, a);
    uint64_t b_turn = turn_of(queue, b);
    return a_turn != b_turn ? a_turn < b_turn : a->order < b->order;
}

static bool choose_listing_job(struct td_intake_queue *queue, struct td_intake_job *job)
{
    struct td_intake *first = NULL;
    if (td_intake_queue_active(queue) >= TD_UPSTREAM_MODELS || td_clock_ns() < queue->paused_until_ns)
        return false;
    for (size_t i = 0; i < queue->count; i++) {
        struct td_intake *intake = queue->intakes[i];
        if (is_waiting(intake) && (first == NULL || comes_before(queue, intake, first)) &&
            count_of(queue, intake->client, is_active) < TD_UPSTREAM_CLIENT_MODELS)
            first = intake;
    }
    if (first == NULL)
        return false;
    td_client_turns_take(&queue->turns, first->client);
    *job = (struct td_intake_job){.intake = first, .file = SIZE_MAX};
    return true;
}

static bool choose_file_job(const struct td_intake_queue *queue, bool only_wanted, struct td_intake_job *job)
{
    for (size_t i = 0; i < queue->count; i++) {
        size_t file = td_intake_choose(queue->intakes[i], only_wanted);
        if (file == SIZE_MAX)
            continue;
        *job = (struct td_intake_job){.intake = queue->intakes[i], .file = file};
        return true;
    }
    return false;
}

bool td_intake_queue_choose(struct td_intake_queue *queue, struct td_intake_job *job)
{
    return choose_listing_job(queue, job) ||
           (queue->files_running < TD_UPSTREAM_FILES && choose_file_job(queue, true, job)) ||
           (queue->files_running < TD_UPSTREAM_BACKGROUND_FILES && choose_file_job(queue, false, job));
}

bool td_intake_queue_has_files(const struct td_intake_queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        if (td_intake_has_waiting(queue->intakes[i]))
            return true;
    return false;
}
