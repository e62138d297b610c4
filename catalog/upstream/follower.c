#include "catalog/upstream/follower.h"

#include "catalog/remote/event_reader.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/json/json_document.h"
#include "core/log.h"
#include "core/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    SILENCE_S = 60,                /* a tensord sends a comment after 15 s */
    MOST_EVENTS = 20000,           /* of one stream in rate_ns; an upstream keeps 4,096 */
    MOST_BYTES = 16 * 1024 * 1024, /* of one stream in rate_ns */
    JSON_BYTES = 256 * 1024        /* of memory for the data of one event */
};

static const uint64_t rate_ns = 60 * TD_NS_PER_S;
static const uint64_t wait_ns = TD_NS_PER_S; /* after a stream has ended; doubles */
static const uint64_t wait_most_ns = 60 * TD_NS_PER_S;
static const uint64_t ask_again_ns = 600 * TD_NS_PER_S; /* an upstream without events */

struct td_follower {
    struct td_follower_config config;
    struct td_cancel cancel;
    struct td_event_reader reader;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic bool stop, is_open, has_begun;
    /* of the stream */
    uint64_t counted_since_ns;
    size_t events, bytes; /* since then */
    bool is_too_fast;
    struct td_error fault;
    bool has_logged; /* why there is no stream, since the last one */
};

static bool is_stopping(void *context)
{
    return atomic_load(&((struct td_follower *)context)->stop);
}

/* Returns the text of a member of the object, or an empty one. */
static const char *member_of(const struct td_json_document *document, const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    const char *text = item != NULL && td_json_item_is_string(item) ? td_json_document_string(document, item) : NULL;
    return text != NULL ? text : "";
}

/* Reports an event about a model. Events that are no JSON of that form are ignored. */
static void read_change(struct td_follower *follower, struct td_text data)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct td_json_document document;
    struct td_arena arena;
    td_arena_init(&arena, JSON_BYTES);
    td_json_document_read(&document, data, &arena, &ignored);
    const cJSON *root = document.root;
    if (root != NULL && cJSON_IsObject(root) && td_json_document_end(&document)) {
        const char *revision = member_of(&document, root, "revision");
        bool is_main = strcmp(revision, "main") == 0;
        if (strcmp(member_of(&document, root, "kind"), "model") == 0)
            follower->config.on_change(follower->config.context, td_text_of(member_of(&document, root, "id")),
                                       td_text_of(is_main ? "" : revision));
    }
    td_arena_fini(&arena);
}

static void on_event(void *context, const struct td_read_event *event)
{
    struct td_follower *follower = context;
    follower->events++;
    if (td_text_equals(event->type, "reset"))
        follower->config.on_reset(follower->config.context);
    else if (td_text_equals(event->type, "published") || td_text_equals(event->type, "replaced"))
        read_change(follower, event->data);
}

static void on_open(void *context)
{
    struct td_follower *follower = context;
    atomic_store(&follower->is_open, true);
    follower->has_logged = false;
    td_log(TD_LOG_INFO, "upstream: its events are followed");
    if (follower->reader.last_id.len == 0) /* changes before the first stream are not known */
        follower->config.on_reset(follower->config.context);
}

/* Counts what arrives. Returns false when it is too much. */
static bool count_bytes(struct td_follower *follower, size_t len)
{
    uint64_t now_ns = td_clock_ns();
    if (now_ns - follower->counted_since_ns >= rate_ns) {
        follower->counted_since_ns = now_ns;
        follower->events = follower->bytes = 0;
    }
    follower->bytes += len;
    follower->is_too_fast = follower->events > MOST_EVENTS || follower->bytes > MOST_BYTES;
    return !follower->is_too_fast;
}

static bool take_bytes(void *context, struct td_text bytes)
{
    struct td_follower *follower = context;
    return td_event_reader_take(&follower->reader, bytes, on_event, follower, &follower->fault) &&
           count_bytes(follower, bytes.len);
}

/* Logs, once until the next stream, why there is none. */
static void log_end(struct td_follower *follower, bool is_stream, unsigned status, const struct td_error *why)
{
    if (follower->has_logged || atomic_load(&follower->stop))
        return;
    follower->has_logged = true;
    if (follower->fault.code != TD_OK || follower->is_too_fast)
        td_log(TD_LOG_WARN, "upstream: its events are not followed for a while: %s",
               follower->is_too_fast ? "it sends too many" : follower->fault.message);
    else if (why->code != TD_OK)
        td_log(TD_LOG_INFO, "upstream: its events cannot be followed, and are tried again: %s", why->message);
    else if (!is_stream)
        td_log(TD_LOG_INFO, "upstream: it has no events (GET /events answers %u); fetched models stay as they are",
               status);
}

/* Reads one stream to its end. Returns how long to wait before the next try; *pause_ns is the wait before, and is
 * updated. */
static uint64_t follow_once(struct td_follower *follower, size_t server, uint64_t *pause_ns)
{
    const struct td_upstream_source *source = follower->config.source;
    const char *last_id = td_buffer_terminate(&follower->reader.last_id);
    struct td_error why = TD_ERROR_INIT;
    const struct td_fetch_stream stream = {.path = "/events",
                                           .type = "text/event-stream",
                                           .last_id = last_id,
                                           .silence_s = SILENCE_S,
                                           .cancel = &follower->cancel,
                                           .context = follower,
                                           .on_open = on_open,
                                           .take = take_bytes};
    unsigned status = 0;
    bool is_stream = false;
    td_event_reader_begin_again(&follower->reader);
    td_error_init(&follower->fault);
    follower->is_too_fast = false;
    uint64_t began_ns = td_clock_ns();
    (void)source->follow(source->context, server, &stream, &status, &is_stream, &why);
    atomic_store(&follower->is_open, false);
    log_end(follower, is_stream, status, &why);
    if (!is_stream && why.code == TD_OK && status < 500)
        return ask_again_ns;
    bool is_bad = follower->fault.code != TD_OK || follower->is_too_fast;
    if (is_stream && !is_bad && td_clock_ns() - began_ns >= wait_most_ns)
        *pause_ns = 0;
    *pause_ns = is_bad ? wait_most_ns : *pause_ns == 0 ? wait_ns : 2 * *pause_ns;
    *pause_ns = *pause_ns < wait_most_ns ? *pause_ns : wait_most_ns;
    return *pause_ns;
}

/* Waits, at first until there is something to follow. Returns false when the thread is to end. */
static bool pause_until(struct td_follower *follower, uint64_t until_ns)
{
    const struct timespec until = td_clock_timespec(until_ns);
    pthread_mutex_lock(&follower->lock);
    while (!atomic_load(&follower->stop) && !atomic_load(&follower->has_begun))
        (void)pthread_cond_wait(&follower->wake, &follower->lock);
    while (!atomic_load(&follower->stop) && td_clock_ns() < until_ns)
        (void)pthread_cond_timedwait(&follower->wake, &follower->lock, &until);
    pthread_mutex_unlock(&follower->lock);
    return !atomic_load(&follower->stop);
}

static void *follower_main(void *argument)
{
    struct td_follower *follower = argument;
    uint64_t pause_ns = 0;
    uint64_t next_ns = 0;
    size_t count = follower->config.source->server_count;
    for (size_t server = 0; pause_until(follower, next_ns); server = (server + 1) % count)
        next_ns = td_clock_ns() + follow_once(follower, server, &pause_ns);
    return NULL;
}

bool td_follower_create(const struct td_follower_config *config, struct td_follower **out, struct td_error *err)
{
    struct td_follower *follower = calloc(1, sizeof *follower);
    if (follower == NULL)
        return td_error_no_memory(err);
    follower->config = *config;
    follower->cancel = (struct td_cancel){.is_asked = is_stopping, .context = follower};
    td_event_reader_init(&follower->reader);
    if (pthread_mutex_init(&follower->lock, NULL) != 0 || !td_clock_condition_init(&follower->wake)) {
        free(follower);
        return td_error_no_memory(err);
    }
    int sys = pthread_create(&follower->thread, NULL, follower_main, follower);
    if (sys != 0) {
        (void)pthread_cond_destroy(&follower->wake);
        (void)pthread_mutex_destroy(&follower->lock);
        free(follower);
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start the thread that follows the upstream");
    }
    *out = follower;
    return true;
}

void td_follower_begin(struct td_follower *follower)
{
    if (follower == NULL || atomic_load(&follower->has_begun))
        return;
    pthread_mutex_lock(&follower->lock);
    atomic_store(&follower->has_begun, true);
    pthread_cond_signal(&follower->wake);
    pthread_mutex_unlock(&follower->lock);
}

bool td_follower_is_open(const struct td_follower *follower)
{
    return follower != NULL && atomic_load(&follower->is_open);
}

void td_follower_stop(struct td_follower *follower)
{
    if (follower == NULL)
        return;
    pthread_mutex_lock(&follower->lock);
    atomic_store(&follower->stop, true);
    pthread_cond_signal(&follower->wake);
    pthread_mutex_unlock(&follower->lock);
}

void td_follower_destroy(struct td_follower *follower)
{
    if (follower == NULL)
        return;
    td_follower_stop(follower);
    (void)pthread_join(follower->thread, NULL);
    td_event_reader_fini(&follower->reader);
    (void)pthread_cond_destroy(&follower->wake);
    (void)pthread_mutex_destroy(&follower->lock);
    free(follower);
}
