#include "catalog/scan/seen_blobs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DEPTH = 64, WAY_BYTES = 256 }; /* of a way from 64 levels down */

static const char up[] = "../";
static const char blobs[] = "blobs";

struct td_seen_blob {
    char *name; /* owned; NULL: the place in the table is free */
    struct td_blobs_place place;
    struct stat st;
};

/* Writes "../../blobs". Returns its length. */
static size_t write_way(unsigned depth, char way[WAY_BYTES])
{
    size_t len = 0;
    for (unsigned i = 0; i <= depth; i++, len += sizeof up - 1)
        memcpy(way + len, up, sizeof up - 1);
    memcpy(way + len, blobs, sizeof blobs);
    return len + sizeof blobs - 1;
}

struct td_blobs_place td_blobs_place_of(int fd, unsigned depth)
{
    char way[WAY_BYTES];
    struct stat st;
    if (depth == 0 || depth > MOST_DEPTH)
        return (struct td_blobs_place){.inode = 0};
    (void)write_way(depth, way);
    if (fstatat(fd, way, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return (struct td_blobs_place){.inode = 0};
    return (struct td_blobs_place){.device = st.st_dev, .inode = st.st_ino};
}

bool td_blob_link_read(int fd, const char *link, unsigned depth, char name[TD_BLOB_NAME_BYTES])
{
    char way[WAY_BYTES];
    char target[PATH_MAX];
    size_t len = write_way(depth, way);
    ssize_t n = readlinkat(fd, link, target, sizeof target - 1);
    if (n < 0 || (size_t)n <= len + 1 || memcmp(target, way, len) != 0 || target[len] != '/')
        return false;
    target[n] = '\0';
    const char *last = target + len + 1;
    size_t last_len = (size_t)n - len - 1;
    if (last_len >= TD_BLOB_NAME_BYTES || strchr(last, '/') != NULL || strcmp(last, ".") == 0 ||
        strcmp(last, "..") == 0)
        return false;
    memcpy(name, last, last_len + 1);
    return true;
}

static size_t hash(const struct td_blobs_place *place, const char *name)
{
    uint64_t sum = UINT64_C(14695981039346656037) ^ place->inode; /* FNV-1a */
    for (; *name != '\0'; name++)
        sum = (sum ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return (size_t)(sum ^ sum >> 32);
}

/* Returns the item of the blob, or the free one that it would get. The table is not full. */
static struct td_seen_blob *find(const struct td_seen_blobs *seen, const struct td_blobs_place *place, const char *name)
{
    size_t at = hash(place, name) & (seen->capacity - 1);
    struct td_seen_blob *item = &seen->items[at];
    while (item->name != NULL && (item->place.inode != place->inode || item->place.device != place->device ||
                                  strcmp(item->name, name) != 0)) {
        at = (at + 1) & (seen->capacity - 1);
        item = &seen->items[at];
    }
    return item;
}

const struct stat *td_seen_blobs_find(const struct td_seen_blobs *seen, const struct td_blobs_place *place,
                                      const char *name)
{
    if (seen->count == 0)
        return NULL;
    const struct td_seen_blob *item = find(seen, place, name);
    return item->name == NULL ? NULL : &item->st;
}

/* Makes the table larger when it is three quarters full. Returns false without memory. */
static bool grow(struct td_seen_blobs *seen)
{
    enum { FIRST = 64 };
    if (seen->count + 1 <= seen->capacity / 4 * 3)
        return true;
    struct td_seen_blobs larger = {.count = seen->count, .capacity = seen->capacity == 0 ? FIRST : seen->capacity * 2};
    larger.items = calloc(larger.capacity, sizeof *larger.items);
    if (larger.items == NULL)
        return false;
    for (size_t i = 0; i < seen->capacity; i++)
        if (seen->items[i].name != NULL)
            *find(&larger, &seen->items[i].place, seen->items[i].name) = seen->items[i];
    free(seen->items);
    *seen = larger;
    return true;
}

void td_seen_blobs_add(struct td_seen_blobs *seen, const struct td_blobs_place *place, const char *name,
                       const struct stat *st)
{
    char *copy = strdup(name);
    if (copy == NULL || !grow(seen)) {
        free(copy);
        return;
    }
    *find(seen, place, name) = (struct td_seen_blob){.name = copy, .place = *place, .st = *st};
    seen->count++;
}

void td_seen_blobs_fini(struct td_seen_blobs *seen)
{
    for (size_t i = 0; i < seen->capacity; i++)
        free(seen->items[i].name);
    free(seen->items);
    *seen = (struct td_seen_blobs){.items = NULL};
}
