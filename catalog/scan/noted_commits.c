#include "catalog/scan/noted_commits.h"

#include "core/clock.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTED_COMMITS = 512 };
static const uint64_t noted_max_ns = 60 * TD_NS_PER_S;

struct td_noted_commit {
    char folder[NAME_MAX + 1];
    char commit[TD_COMMIT_BYTES];
    uint64_t noted_ns; /* 0: none was noted here */
};

bool td_noted_commits_init(struct td_noted_commits *noted)
{
    *noted = (struct td_noted_commits){.items = NULL};
    return pthread_mutex_init(&noted->lock, NULL) == 0;
}

void td_noted_commits_fini(struct td_noted_commits *noted)
{
    free(noted->items);
    (void)pthread_mutex_destroy(&noted->lock);
}

void td_noted_commits_add(struct td_noted_commits *noted, const char *folder, const char *commit)
{
    pthread_mutex_lock(&noted->lock);
    if (noted->items == NULL)
        noted->items = calloc(NOTED_COMMITS, sizeof *noted->items);
    if (noted->items != NULL) {
        struct td_noted_commit *item = &noted->items[noted->count++ % NOTED_COMMITS];
        (void)snprintf(item->folder, sizeof item->folder, "%s", folder);
        (void)snprintf(item->commit, sizeof item->commit, "%s", commit);
        item->noted_ns = td_clock_ns();
    }
    pthread_mutex_unlock(&noted->lock);
}

static int published_compare(const void *a, const void *b)
{
    return strcmp(((const struct td_published *)a)->commit, ((const struct td_published *)b)->commit);
}

/* Returns whether the commit was noted in the last minute. */
static bool is_recent(const struct td_noted_commit *item, uint64_t now_ns)
{
    return item->noted_ns != 0 && now_ns - item->noted_ns <= noted_max_ns;
}

/* Copies the recent commits to one block of memory: the list, then the texts. Under the lock. */
static size_t copy_recent(const struct td_noted_commits *noted, uint64_t now_ns, struct td_published **out)
{
    size_t count = 0;
    size_t copied = 0;
    for (size_t i = 0; noted->items != NULL && i < NOTED_COMMITS; i++)
        count += is_recent(&noted->items[i], now_ns) ? 1 : 0;
    *out = count == 0 ? NULL : malloc(count * (sizeof **out + sizeof *noted->items));
    if (*out == NULL)
        return 0;
    struct td_noted_commit *copies = (struct td_noted_commit *)(void *)(*out + count);
    for (size_t i = 0; i < NOTED_COMMITS; i++) {
        if (!is_recent(&noted->items[i], now_ns))
            continue;
        copies[copied] = noted->items[i];
        (*out)[copied] = (struct td_published){.folder = copies[copied].folder, .commit = copies[copied].commit};
        copied++;
    }
    return count;
}

size_t td_noted_commits_list(struct td_noted_commits *noted, struct td_published **out)
{
    pthread_mutex_lock(&noted->lock);
    size_t count = copy_recent(noted, td_clock_ns(), out);
    pthread_mutex_unlock(&noted->lock);
    if (count > 0)
        qsort(*out, count, sizeof **out, published_compare);
    return count;
}
