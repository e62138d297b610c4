#include "catalog/publish/parts_row.h"

#include "storage/fetch/fetch_hasher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_ROWS = 32,      /* each has a thread that hashes */
    MOST_NUMBER = 10000, /* larger numbers get files of their own */
    ID_BYTES = 33
};

#define LEAST_PART_BYTES (UINT64_C(1) << 20) /* a copy of less takes no time */
#define MOST_ROW_BYTES (UINT64_C(1) << 43)   /* 8 TiB: a file of ext4 ends at 16 TiB */

/* The states of places. */
enum { IS_FREE, IS_CLAIMED, IS_SHORT, IS_FULL };

struct td_parts_row {
    struct td_parts_row *next;
    char id[ID_BYTES];
    int fd;
    uint64_t part_bytes; /* of each part but the last */
    size_t users;        /* claims, and a seal */
    bool is_sealed, is_dropped;
    unsigned highest; /* the highest number whose place is not free */
    unsigned front;   /* the parts 1 to `front` are full */
    uint8_t places[MOST_NUMBER + 1];
    struct td_fetch_hasher *hasher; /* NULL: nothing is hashed yet */
};

void td_parts_path(const char *id, const char *item, char path[TD_OWN_NAME_BYTES])
{
    (void)snprintf(path, TD_OWN_NAME_BYTES, TD_PARTS_FOLDER "/%s%s%s", id, item[0] == '\0' ? "" : "/", item);
}

static void free_row(struct td_parts_row *row)
{
    td_fetch_hasher_stop(row->hasher);
    (void)close(row->fd);
    free(row);
}

/* The functions below are called with parts_lock. */

static struct td_parts_row **find_row(struct td_publish *publish, const char *id)
{
    struct td_parts_row **at = &publish->rows;
    while (*at != NULL && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

/* Takes a row off the list, and frees it, now or when nobody uses it. */
static void forget(struct td_publish *publish, struct td_parts_row **at)
{
    struct td_parts_row *row = *at;
    *at = row->next;
    publish->row_count--;
    row->is_dropped = true;
    if (row->users == 0)
        free_row(row);
}

/* Makes room for one more row: forgets the oldest one that is not in use. Returns false when all are. */
static bool make_room(struct td_publish *publish)
{
    if (publish->row_count < MOST_ROWS)
        return true;
    struct td_parts_row **oldest = NULL;
    for (struct td_parts_row **at = &publish->rows; *at != NULL; at = &(*at)->next)
        if ((*at)->users == 0)
            oldest = at; /* new ones come first */
    if (oldest != NULL)
        forget(publish, oldest);
    return oldest != NULL;
}

/* Begins the row of an upload. Returns NULL when it cannot have one, or had one. */
static struct td_parts_row *begin_row(struct td_publish *publish, const char *id, uint64_t part_bytes)
{
    int own = publish->disk.own.fd;
    char path[TD_OWN_NAME_BYTES];
    td_parts_path(id, TD_PARTS_PLACED_NAME, path);
    if (part_bytes < LEAST_PART_BYTES || faccessat(own, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || !make_room(publish))
        return NULL;
    td_parts_path(id, TD_PARTS_ROW_NAME, path);
    struct td_parts_row *row = calloc(1, sizeof *row);
    if (row == NULL)
        return NULL;
    row->fd = openat(own, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (row->fd < 0) { /* the file is of an earlier process, or of a row that was forgotten */
        free(row);
        return NULL;
    }
    (void)snprintf(row->id, sizeof row->id, "%s", id);
    row->part_bytes = part_bytes;
    row->next = publish->rows;
    publish->rows = row;
    publish->row_count++;
    return row;
}

static void set_place(struct td_parts_row *row, unsigned number, uint8_t state)
{
    row->places[number] = state;
    if (state != IS_FREE && number > row->highest)
        row->highest = number;
    while (row->highest > 0 && row->places[row->highest] == IS_FREE)
        row->highest--;
}

/* Lets the parts be hashed up to the first one that is missing or short. */
static void move_front(struct td_parts_row *row)
{
    unsigned before = row->front;
    while (row->front < MOST_NUMBER && row->places[row->front + 1] == IS_FULL)
        row->front++;
    if (row->front == before)
        return;
    if (row->hasher != NULL || td_fetch_hasher_start(row->fd, TD_FETCH_SIZE_UNKNOWN, false, &row->hasher, NULL))
        td_fetch_hasher_advance(row->hasher, row->front * row->part_bytes);
}

static void end_use(struct td_parts_row *row)
{
    if (--row->users == 0 && row->is_dropped)
        free_row(row);
}

/* ---- claims -------------------------------------------------------------------------------------------- */

struct td_parts_row *td_parts_row_claim(struct td_publish *publish, const char *id, unsigned number,
                                        uint64_t size_bytes, uint64_t *off, int *fd)
{
    pthread_mutex_lock(&publish->parts_lock);
    struct td_parts_row *row = *find_row(publish, id);
    if (row == NULL)
        row = begin_row(publish, id, size_bytes);
    bool fits = row != NULL && !row->is_sealed && number <= MOST_NUMBER && row->places[number] == IS_FREE &&
                size_bytes > 0 && size_bytes <= row->part_bytes && number <= MOST_ROW_BYTES / row->part_bytes;
    if (fits) {
        set_place(row, number, IS_CLAIMED);
        row->users++;
    }
    pthread_mutex_unlock(&publish->parts_lock);
    errno = 0;
    if (!fits)
        return NULL;
    *off = (number - 1) * row->part_bytes;
    *fd = row->fd;
    if (fallocate(row->fd, 0, (off_t)*off, (off_t)size_bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return row;
    int sys = errno;
    td_parts_row_leave(publish, row, number, size_bytes, false);
    errno = sys == ENOSPC || sys == EDQUOT ? sys : 0;
    return NULL;
}

void td_parts_row_leave(struct td_publish *publish, struct td_parts_row *row, unsigned number, uint64_t size_bytes,
                        bool is_complete)
{
    uint64_t off = (number - 1) * row->part_bytes;
    if (!is_complete) /* gives the space back; where that cannot be, it comes back with the upload's end */
        (void)fallocate(row->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)size_bytes);
    pthread_mutex_lock(&publish->parts_lock);
    set_place(row, number, !is_complete ? IS_FREE : size_bytes == row->part_bytes ? IS_FULL : IS_SHORT);
    move_front(row);
    end_use(row);
    pthread_mutex_unlock(&publish->parts_lock);
}

/* ---- completion ---------------------------------------------------------------------------------------- */

struct td_parts_row *td_parts_row_seal(struct td_publish *publish, const char *id, unsigned count)
{
    pthread_mutex_lock(&publish->parts_lock);
    struct td_parts_row *row = *find_row(publish, id);
    bool ok = row != NULL && row->users == 0 && row->highest == count && count > 0 && row->front + 1 >= count;
    if (ok) {
        row->is_sealed = true;
        row->users = 1;
    }
    pthread_mutex_unlock(&publish->parts_lock);
    return ok ? row : NULL;
}

void td_parts_row_open(struct td_publish *publish, struct td_parts_row *row, bool is_over)
{
    pthread_mutex_lock(&publish->parts_lock);
    row->is_sealed = false;
    if (is_over && !row->is_dropped)
        forget(publish, find_row(publish, row->id));
    end_use(row);
    pthread_mutex_unlock(&publish->parts_lock);
}

bool td_parts_row_sum(struct td_parts_row *row, uint64_t size_bytes, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_fetch_sums sums;
    /* a part that was given up may have made the file longer */
    if (ftruncate(row->fd, (off_t)size_bytes) != 0 || fdatasync(row->fd) != 0)
        return td_error_sys(err, TD_IO, errno, "cannot end the file of an upload");
    if (row->hasher == NULL && !td_fetch_hasher_start(row->fd, TD_FETCH_SIZE_UNKNOWN, false, &row->hasher, err))
        return false;
    td_fetch_hasher_advance(row->hasher, size_bytes);
    td_fetch_hasher_set_size(row->hasher, size_bytes);
    if (!td_fetch_hasher_wait(row->hasher, NULL, &sums, err))
        return false;
    memcpy(sum, sums.sha256, TD_SHA256_BYTES);
    return true;
}

void td_parts_row_drop(struct td_publish *publish, const char *id)
{
    pthread_mutex_lock(&publish->parts_lock);
    while (publish->rows != NULL && id == NULL)
        forget(publish, &publish->rows);
    struct td_parts_row **at = id == NULL ? &publish->rows : find_row(publish, id);
    if (*at != NULL)
        forget(publish, at);
    pthread_mutex_unlock(&publish->parts_lock);
}
