/* The source and the place of test_upstream.c. */
#ifndef TD_TESTS_UNIT_CATALOG_UPSTREAM_PLACE_H
#define TD_TESTS_UNIT_CATALOG_UPSTREAM_PLACE_H

#include "catalog/upstream/upstream.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/digits.h"
#include "storage/incoming.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WEIGHTS_BYTES = 3 * 1024 * 1024 + 5,
    NAMES = TD_UPSTREAM_MODELS + TD_UPSTREAM_QUEUE + 10,
    OTHERS = TD_UPSTREAM_BACKGROUND_FILES + 1
};

/* Behaviour of the source in the next fetch of the large file. */
enum behaviour {
    SENDS,          /* all bytes */
    SENDS_WRONG,    /* bytes of another digest, which it finds at the end */
    HAS_FULL_DISK,  /* fails as a full disk does */
    BREAKS_OFF,     /* fails at the end, of what has nothing to do with the bytes */
    DISCARDS,       /* starts over in the middle */
    IS_UNREACHABLE, /* fails at once */
    HAS_NO_MEMORY,  /* fails at once, too, as the next */
    HAS_NO_THREAD,
};

/* The source, under its lock but for `tree`. */
struct source {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_model, is_listing_held;
    int held_list; /* the list of this number is held, too; 0: none */
    enum behaviour behaviour;
    uint64_t sent_limit; /* bytes of the large file that may be sent */
    int lists, fetches;
    const char *pages[2]; /* NULL, or what the first list has in place of the usual files, and all that follow */
    bool was_cancelled;
    bool is_busy;            /* servers ask clients to wait */
    uint64_t patience_ns;    /* all of them, for so long */
    _Atomic uint64_t due_ns; /* until when */
    char via[TD_UPSTREAM_VIA_BYTES];
};

static inline uint8_t byte_at(uint64_t i)
{
    return tree_data_byte(i, 3);
}

static inline void hex_of_weights(char out[TD_SHA256_TEXT_BYTES])
{
    struct td_digest *digest = td_digest_create();
    for (uint64_t i = 0; i < WEIGHTS_BYTES; i++) {
        uint8_t byte = byte_at(i);
        td_digest_add_content(digest, &byte, 1);
    }
    assert_true(td_digest_finish_text(digest, out, TD_SHA256_TEXT_BYTES));
}

static char weights_hex[TD_SHA256_TEXT_BYTES];

/* Waits for `changed`, and looks now and then whether the fetch was cancelled. Under the lock. */
static inline void wait_a_little(struct source *source)
{
    const struct timespec until = td_clock_timespec(td_clock_ns() + 5000000);
    (void)pthread_cond_timedwait(&source->changed, &source->lock, &until);
}

/* Adds the further large files that the model org/many has. */
static inline bool add_others(const struct td_upstream_wish *wish, struct td_remote_model *model, struct td_error *err)
{
    bool ok = true;
    for (int i = 0; i < OTHERS && ok && strcmp(wish->id, "org/many") == 0; i++) {
        char page[256];
        (void)snprintf(page, sizeof page,
                       "[{\"type\":\"file\",\"path\":\"other-%d\",\"size\":200,\"lfs\":{\"oid\":\"%s\",\"size\":200,"
                       "\"pointerSize\":134}}]",
                       i, weights_hex);
        ok = td_remote_listing_add_page(&model->listing, td_text_of(page), true, err);
    }
    return ok;
}

/* Adds the usual files, or those that the test has set for this list. An empty page is no answer. */
static inline bool add_page(const char *set, struct td_remote_model *model, struct td_error *err)
{
    char page[1024];
    (void)snprintf(page, sizeof page,
                   "[{\"type\":\"file\",\"path\":\"config.json\",\"size\":2,\"oid\":"
                   "\"9e26dfeeb6e641a33dae4961196235bdb965b21b\"},"
                   "{\"type\":\"file\",\"path\":\"model.safetensors\",\"size\":%d,\"oid\":"
                   "\"0000000000000000000000000000000000000000\",\"lfs\":{\"oid\":\"%s\",\"size\":%d,"
                   "\"pointerSize\":134}}]",
                   WEIGHTS_BYTES, weights_hex, WEIGHTS_BYTES);
    if (set != NULL && set[0] == '\0')
        return td_error_set(err, TD_UNAVAILABLE, "no server answers");
    return td_remote_listing_add_page(&model->listing, td_text_of(set == NULL ? page : set), true, err);
}

static inline bool list(void *context, const struct td_upstream_wish *wish, struct td_remote_model *model,
                        struct td_error *err)
{
    struct source *source = context;
    td_remote_model_init(model);
    pthread_mutex_lock(&source->lock);
    const char *set = source->pages[source->lists > 0 ? 1 : 0];
    const int number = ++source->lists;
    (void)snprintf(source->via, sizeof source->via, "%s", wish->via);
    while ((source->is_listing_held || source->held_list == number) && !td_cancel_is_asked(wish->cancel))
        wait_a_little(source);
    bool has_model = source->has_model;
    bool is_busy = source->is_busy;
    if (is_busy)
        atomic_store(&source->due_ns, td_clock_ns() + source->patience_ns);
    pthread_mutex_unlock(&source->lock);
    if (td_cancel_is_asked(wish->cancel))
        return td_error_set(err, TD_CONFLICT, "cancelled");
    if (is_busy)
        return td_error_set(err, TD_UNAVAILABLE, "busy");
    if (!has_model)
        return td_error_set(err, TD_NOT_FOUND, "no such model");
    return add_others(wish, model, err) && add_page(set, model, err) && td_remote_listing_finish(&model->listing, err);
}

/* Writes [off, end) of the large file. */
static inline void write_bytes(int fd, uint64_t off, uint64_t end)
{
    uint8_t *bytes = malloc((size_t)(end - off));
    for (uint64_t i = off; i < end; i++)
        bytes[i - off] = byte_at(i);
    ssize_t n = pwrite(fd, bytes, (size_t)(end - off), (off_t)off);
    free(bytes);
    if (n != (ssize_t)(end - off))
        abort();
}

/* Sends the large file as far as the test allows. Returns false when cancelled. */
static inline bool send_weights(struct source *source, const struct td_upstream_wish *wish, int fd,
                                const struct td_fetch_events *events)
{
    uint64_t sent = 0;
    events->began(events->context, fd, WEIGHTS_BYTES);
    while (sent < WEIGHTS_BYTES) {
        pthread_mutex_lock(&source->lock);
        while (source->sent_limit <= sent && !td_cancel_is_asked(wish->cancel))
            wait_a_little(source);
        uint64_t end = source->sent_limit < WEIGHTS_BYTES ? source->sent_limit : WEIGHTS_BYTES;
        pthread_mutex_unlock(&source->lock);
        if (td_cancel_is_asked(wish->cancel))
            return false;
        write_bytes(fd, sent, end);
        events->arrived(events->context, sent, end - sent, false);
        sent = end;
    }
    return true;
}

static inline bool fetch_weights(struct source *source, const struct td_upstream_wish *wish, int directory,
                                 const struct td_fetch_events *events, struct td_error *err)
{
    pthread_mutex_lock(&source->lock);
    enum behaviour behaviour = source->behaviour;
    pthread_mutex_unlock(&source->lock);
    if (behaviour == IS_UNREACHABLE)
        return td_error_set(err, TD_UNAVAILABLE, "no server answers");
    if (behaviour == HAS_NO_MEMORY)
        return td_error_no_memory(err);
    if (behaviour == HAS_NO_THREAD)
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, EAGAIN, "cannot start a thread");
    if (behaviour == HAS_FULL_DISK)
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, ENOSPC, "cannot write");
    int fd = openat(directory, ".part", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = send_weights(source, wish, fd, events);
    if (ok && behaviour == DISCARDS)
        events->discarded(events->context);
    if (td_cancel_is_asked(wish->cancel)) {
        pthread_mutex_lock(&source->lock);
        source->was_cancelled = true;
        pthread_mutex_unlock(&source->lock);
        ok = td_error_set(err, TD_CONFLICT, "cancelled");
    } else if (behaviour == SENDS_WRONG) {
        ok = td_error_set(err, TD_FAILED_PRECONDITION, "its digest is another");
    } else if (behaviour == BREAKS_OFF) {
        ok = td_error_set(err, TD_UNAVAILABLE, "the server has gone");
    }
    (void)close(fd);
    return ok && renameat(directory, ".part", directory, "model.safetensors") == 0;
}

static inline bool fetch(void *context, const struct td_upstream_wish *wish, const struct td_remote_model *model,
                         const struct td_remote_file *file, const struct td_root *folder,
                         const struct td_fetch_events *events, struct td_fetch_outcome *outcome, struct td_error *err)
{
    struct source *source = context;
    struct stat st;
    int directory = folder->fd;
    (void)model;
    *outcome = (struct td_fetch_outcome){.is_verified = file->expected.has_sha256 || file->expected.has_git_sha1};
    if (file->expected.size_bytes == 2) {
        int fd = openat(directory, file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        bool ok = fd >= 0 && write(fd, "{}", 2) == 2;
        (void)close(fd);
        td_sha256("{}", 2, outcome->sums.sha256);
        outcome->sums.has_git_sha1 = td_hex_read_bytes(TD_TEXT("9e26dfeeb6e641a33dae4961196235bdb965b21b"),
                                                       outcome->sums.git_sha1, sizeof outcome->sums.git_sha1);
        return ok;
    }
    pthread_mutex_lock(&source->lock);
    source->fetches++;
    pthread_mutex_unlock(&source->lock);
    (void)td_hex_read_bytes(td_text_of(weights_hex), outcome->sums.sha256, sizeof outcome->sums.sha256);
    outcome->was_there = fstatat(directory, file->path, &st, 0) == 0;
    return outcome->was_there || fetch_weights(source, wish, directory, events, err);
}

static inline uint64_t due_ns(void *context)
{
    return atomic_load(&((struct source *)context)->due_ns);
}

/* ---- the place ---------------------------------------------------------------------------------------------- */

struct place {
    struct tree tree;
    struct source source;
    struct td_upstream_store *store;
    struct td_upstream *upstream;
    uint64_t wait_ns, absent_ns, late_list_ns, upkeep_ns;
    size_t max_files;
    uint64_t client; /* who asks */
};

static inline void place_start(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_upstream_store_open(place->tree.path, 0, &place->store, &err), "%s", err.message);
    const struct td_upstream_config config = {
        .source = {.list = list, .fetch = fetch, .due_ns = due_ns, .context = &place->source},
        .store = place->store,
        .wait_ns = place->wait_ns,
        .absent_ns = place->absent_ns,
        .late_list_ns = place->late_list_ns,
        .upkeep_ns = place->upkeep_ns,
        .max_names = NAMES,
        .max_files = place->max_files};
    CHECK(td_upstream_create(&config, &place->upstream, &err), "%s", err.message);
}

static inline void place_open(struct place *place)
{
    memset(place, 0, sizeof *place);
    place->wait_ns = UINT64_C(20000000000);
    place->absent_ns = UINT64_C(20000000000);
    place->late_list_ns = UINT64_C(60000000000);
    place->upkeep_ns = UINT64_C(60000000000);
    place->max_files = 100;
    tree_open(&place->tree);
    assert_int_equal(pthread_mutex_init(&place->source.lock, NULL), 0);
    assert_true(td_clock_condition_init(&place->source.changed));
    place->source.has_model = true;
    place_start(place);
}

static inline void place_stop(struct place *place)
{
    td_upstream_destroy(place->upstream);
    td_upstream_store_close(place->store);
}

static inline void place_close(struct place *place)
{
    place_stop(place);
    (void)pthread_cond_destroy(&place->source.changed);
    (void)pthread_mutex_destroy(&place->source.lock);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, place_open, place_close)

/* Changes the source. */
static inline void allow(struct place *place, uint64_t sent_limit, enum behaviour behaviour)
{
    pthread_mutex_lock(&place->source.lock);
    place->source.sent_limit = sent_limit;
    place->source.behaviour = behaviour;
    place->source.is_listing_held = false;
    pthread_cond_broadcast(&place->source.changed);
    pthread_mutex_unlock(&place->source.lock);
}

/* Asks for a request that has come by other servers. */
static inline struct td_upstream_reply ask_by(struct place *place, const char *id, const char *via)
{
    const struct td_upstream_asker asker = {.client = place->client, .via = td_text_of(via)};
    struct td_upstream_reply reply;
    td_upstream_ask(place->upstream, &asker, td_text_of(id), &reply);
    return reply;
}

static inline enum td_upstream_answer ask(struct place *place, const char *id, struct td_snapshot **snapshot)
{
    struct td_upstream_reply reply = ask_by(place, id, "");
    *snapshot = reply.snapshot;
    return reply.answer;
}

/* Asks; the upstream must refuse. Returns the time to wait. */
static inline unsigned ask_in_vain(struct place *place, const char *id, enum td_upstream_answer answer,
                                   const char *says)
{
    struct td_upstream_reply reply = ask_by(place, id, "");
    CHECK(reply.answer == answer, "%s: %d, %s", id, (int)reply.answer, reply.why);
    assert_null(reply.snapshot);
    CHECK(strstr(reply.why, says) != NULL, "%s", reply.why);
    return reply.retry_after_s;
}

/* Waits until a number of the status is reached. */
static inline void await(struct place *place, const uint64_t *number, const struct td_upstream_status *status,
                         uint64_t least)
{
    for (;;) {
        td_upstream_get_status(place->upstream, (struct td_upstream_status *)(uintptr_t)status);
        if (*number >= least)
            return;
        nap_ms(2);
    }
}

static inline void await_published(struct place *place, uint64_t count)
{
    struct td_upstream_status status;
    await(place, &status.published, &status, count);
}

static inline void await_failed(struct place *place, enum td_upstream_failure why, uint64_t count)
{
    struct td_upstream_status status;
    await(place, &status.failures[why], &status, count);
}

static inline struct td_blob *weights_of(const struct td_snapshot *snapshot)
{
    const struct td_entry *entry = td_snapshot_find_entry(snapshot, TD_TEXT("org/m/model.safetensors"));
    assert_non_null(entry);
    return entry->file->source.incoming;
}

static inline void check_bytes(struct td_blob *blob, uint64_t off, size_t len)
{
    uint8_t *bytes = malloc(len);
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_blob_read(blob, off, bytes, len, &err), "%s", err.message);
    for (size_t i = 0; i < len; i++)
        CHECK(bytes[i] == byte_at(off + i), "byte %zu", i);
    free(bytes);
}

#endif
