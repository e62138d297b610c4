#include "catalog/publish/publish_quiet.h"

#include "core/mix64.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct td_publish_quiet_repo {
    struct td_publish_quiet_repo *next;
    int64_t until_s;
    char folder[]; /* NUL-terminated */
};

void td_publish_quiet_init(struct td_publish_quiet *quiet)
{
    memset(quiet->buckets, 0, sizeof quiet->buckets);
    (void)pthread_mutex_init(&quiet->lock, NULL); /* cannot fail without attributes (glibc) */
}

void td_publish_quiet_fini(struct td_publish_quiet *quiet)
{
    for (size_t i = 0; i < TD_PUBLISH_QUIET_BUCKETS; i++)
        while (quiet->buckets[i] != NULL) {
            struct td_publish_quiet_repo *repo = quiet->buckets[i];
            quiet->buckets[i] = repo->next;
            free(repo);
        }
    (void)pthread_mutex_destroy(&quiet->lock);
}

/* Returns the link to the folder's item, or to the end of its bucket. The lock is held. */
static struct td_publish_quiet_repo **find(struct td_publish_quiet *quiet, const char *folder)
{
    uint64_t hash = 0;
    for (const char *c = folder; *c != '\0'; c++)
        hash = td_mix64(hash ^ (unsigned char)*c) + 1;
    struct td_publish_quiet_repo **at = &quiet->buckets[hash % TD_PUBLISH_QUIET_BUCKETS];
    while (*at != NULL && strcmp((*at)->folder, folder) != 0)
        at = &(*at)->next;
    return at;
}

void td_publish_quiet_set(struct td_publish_quiet *quiet, const char *folder, int64_t now_s, int64_t until_s)
{
    size_t len = strlen(folder) + 1;
    pthread_mutex_lock(&quiet->lock);
    struct td_publish_quiet_repo **at = find(quiet, folder);
    if (*at == NULL && (*at = calloc(1, sizeof **at + len)) != NULL)
        memcpy((*at)->folder, folder, len);
    if (*at != NULL)
        (*at)->until_s = until_s - now_s < TD_PUBLISH_QUIET_S ? until_s : now_s + TD_PUBLISH_QUIET_S;
    pthread_mutex_unlock(&quiet->lock);
}

void td_publish_quiet_end(struct td_publish_quiet *quiet, const char *folder)
{
    pthread_mutex_lock(&quiet->lock);
    struct td_publish_quiet_repo **at = find(quiet, folder);
    struct td_publish_quiet_repo *repo = *at;
    if (repo != NULL)
        *at = repo->next;
    pthread_mutex_unlock(&quiet->lock);
    free(repo);
}

bool td_publish_quiet_is(struct td_publish_quiet *quiet, const char *folder, int64_t now_s)
{
    pthread_mutex_lock(&quiet->lock);
    const struct td_publish_quiet_repo *repo = *find(quiet, folder);
    /* not longer than it can be: the clock may have been set back */
    bool is = repo != NULL && now_s < repo->until_s && repo->until_s - now_s <= TD_PUBLISH_QUIET_S;
    pthread_mutex_unlock(&quiet->lock);
    return is;
}

void td_publish_quiet_lower(int64_t *until_s, int64_t then_s, uint64_t seconds)
{
    int64_t next = seconds < INT32_MAX ? then_s + (int64_t)seconds + 1 : INT64_MAX;
    *until_s = next < *until_s ? next : *until_s;
}
