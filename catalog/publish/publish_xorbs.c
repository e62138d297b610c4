#include "catalog/publish/publish_xorbs.h"

#include "core/clock.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct td_publish_xorb_part {
    struct td_publish *publish;
    struct td_budget *share; /* of the client, which counts it; NULL: it is not counted */
    int fd;
    uint64_t number, taken, at;
};

/* An object; guarded by publish->lock. */
struct td_publish_xorb {
    struct td_publish_xorb *next;
    struct td_budget *share; /* of the client, which counts it */
    uint64_t number, bytes, table_at, expires_ns;
    size_t count;
    char name[]; /* NUL-terminated */
};

static void path_of(uint64_t number, char out[64])
{
    (void)snprintf(out, 64, "incoming/xorb-%" PRIu64, number);
}

static struct td_publish_xorb **bucket_of(struct td_publish *publish, const char *name)
{
    unsigned sum = 0;
    for (const char *c = name; *c != '\0'; c++)
        sum = sum * 31 + (unsigned char)*c;
    return &publish->xorbs[sum % TD_PUBLISH_XORB_BUCKETS];
}

/* Counts an object that begins, for this client. Errors: TD_UNAVAILABLE when there are too many. */
static bool count_in(struct td_publish_xorb_part *part, uint64_t client, struct td_error *err)
{
    struct td_budget *share = td_shared_budget_of(&part->publish->xorb_counts, client);
    bool ok = td_budget_take(share, 1);
    part->share = ok ? share : NULL;
    return ok || td_error_set(err, TD_UNAVAILABLE,
                              "%d objects of uploads are here, or half as many of this client; try again when others "
                              "have ended",
                              TD_PUBLISH_XORBS);
}

static void remove_file(struct td_publish *publish, uint64_t number)
{
    char path[64];
    path_of(number, path);
    (void)unlinkat(publish->disk.own.fd, path, 0);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static bool fail_sys(const char *what, struct td_error *err)
{
    bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return td_error_sys(err, is_full ? TD_RESOURCE_EXHAUSTED : TD_IO, errno, "cannot %s an object of an upload", what);
}

bool td_publish_xorb_begin(struct td_publish *publish, uint64_t client, uint64_t most_bytes,
                           struct td_publish_xorb_part **out, struct td_error *err)
{
    char path[64];
    td_publish_xorbs_expire(publish, false);
    struct td_publish_xorb_part *part = calloc(1, sizeof *part);
    if (part == NULL)
        return td_error_no_memory(err);
    *part = (struct td_publish_xorb_part){.publish = publish, .fd = -1};
    bool ok = count_in(part, client, err) && td_own_folder_check_room(&publish->disk.own, most_bytes, err) &&
              td_publish_take(publish, most_bytes, err);
    part->taken = ok ? most_bytes : 0;
    ok = ok && td_own_folder_check(&publish->disk.own, err);
    if (ok) {
        part->number = atomic_fetch_add_explicit(&publish->stream_number, 1, memory_order_relaxed);
        path_of(part->number, path);
        part->fd = openat(publish->disk.own.fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        ok = part->fd >= 0 || fail_sys("begin", err);
    }
    if (!ok) {
        td_publish_xorb_abandon(part);
        return false;
    }
    *out = part;
    return true;
}

bool td_publish_xorb_write(struct td_publish_xorb_part *part, const void *bytes, size_t len, struct td_error *err)
{
    if (len > part->taken - part->at)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the object is longer than the request said");
    if (!td_write_all(part->fd, bytes, len))
        return fail_sys("write", err);
    part->at += len;
    td_publish_note_bytes(part->publish, len);
    return true;
}

/* Returns the object of this name, or NULL. The lock is held. */
static struct td_publish_xorb *find(struct td_publish *publish, const char *name)
{
    struct td_publish_xorb *xorb = *bucket_of(publish, name);
    while (xorb != NULL && strcmp(xorb->name, name) != 0)
        xorb = xorb->next;
    return xorb;
}

/* Renews the objects whose names begin so. The lock is held. */
static void renew(struct td_publish *publish, const char *begin, size_t len)
{
    uint64_t expires_ns = td_clock_ns() + publish->config.upload_expires_s * TD_NS_PER_S;
    for (size_t i = 0; i < TD_PUBLISH_XORB_BUCKETS; i++)
        for (struct td_publish_xorb *xorb = publish->xorbs[i]; xorb != NULL; xorb = xorb->next)
            if (strncmp(xorb->name, begin, len) == 0)
                xorb->expires_ns = expires_ns;
}

/* Adds the object, and renews those of the same upload. Returns false when there is one of this name. */
static bool add(struct td_publish *publish, struct td_publish_xorb *xorb)
{
    pthread_mutex_lock(&publish->lock);
    bool is_new = find(publish, xorb->name) == NULL;
    if (is_new) {
        struct td_publish_xorb **bucket = bucket_of(publish, xorb->name);
        xorb->next = *bucket;
        *bucket = xorb;
    }
    const char *end = strrchr(xorb->name, '/');
    if (end != NULL)
        renew(publish, xorb->name, (size_t)(end - xorb->name) + 1);
    pthread_mutex_unlock(&publish->lock);
    return is_new;
}

bool td_publish_xorb_end(struct td_publish_xorb_part *part, const char *name, const uint32_t *table, size_t count,
                         struct td_error *err)
{
    size_t len = strlen(name) + 1;
    struct td_publish_xorb *xorb = calloc(1, sizeof *xorb + len);
    uint64_t table_at = part->at;
    if (xorb == NULL) {
        td_publish_xorb_abandon(part);
        return td_error_no_memory(err);
    }
    bool ok = td_publish_xorb_write(part, table, count * sizeof *table, err);
    if (ok) {
        memcpy(xorb->name, name, len);
        xorb->share = part->share;
        xorb->number = part->number;
        xorb->bytes = part->taken;
        xorb->table_at = table_at;
        xorb->count = count;
        xorb->expires_ns = td_clock_ns() + part->publish->config.upload_expires_s * TD_NS_PER_S;
    }
    if (ok && add(part->publish, xorb)) {
        (void)close(part->fd);
        free(part);
        return true;
    }
    free(xorb);
    td_publish_xorb_abandon(part);
    return ok;
}

void td_publish_xorb_abandon(struct td_publish_xorb_part *part)
{
    if (part == NULL)
        return;
    if (part->fd >= 0) {
        (void)close(part->fd);
        remove_file(part->publish, part->number);
    }
    td_publish_give_back(part->publish, part->taken);
    if (part->share != NULL)
        td_budget_give(part->share, 1);
    free(part);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

int td_publish_xorb_open(struct td_publish *publish, const char *name, uint64_t *table_at, size_t *count)
{
    char path[64];
    pthread_mutex_lock(&publish->lock);
    struct td_publish_xorb *xorb = find(publish, name);
    bool is_here = xorb != NULL;
    if (is_here) {
        path_of(xorb->number, path);
        xorb->expires_ns = td_clock_ns() + publish->config.upload_expires_s * TD_NS_PER_S;
        *table_at = xorb->table_at;
        *count = xorb->count;
    }
    pthread_mutex_unlock(&publish->lock);
    return is_here ? openat(publish->disk.own.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
}

void td_publish_xorbs_renew(struct td_publish *publish, const char *begin)
{
    pthread_mutex_lock(&publish->lock);
    renew(publish, begin, strlen(begin));
    pthread_mutex_unlock(&publish->lock);
}

void td_publish_xorbs_expire(struct td_publish *publish, bool all)
{
    struct td_publish_xorb *over = NULL;
    uint64_t now_ns = td_clock_ns();
    pthread_mutex_lock(&publish->lock);
    for (size_t i = 0; i < TD_PUBLISH_XORB_BUCKETS; i++) {
        struct td_publish_xorb **at = &publish->xorbs[i];
        while (*at != NULL) {
            struct td_publish_xorb *xorb = *at;
            if (!all && xorb->expires_ns > now_ns) {
                at = &xorb->next;
                continue;
            }
            *at = xorb->next;
            xorb->next = over;
            over = xorb;
        }
    }
    pthread_mutex_unlock(&publish->lock);
    while (over != NULL) {
        struct td_publish_xorb *next = over->next;
        remove_file(publish, over->number);
        td_publish_give_back(publish, over->bytes);
        td_budget_give(over->share, 1);
        free(over);
        over = next;
    }
}
