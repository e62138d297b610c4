/* A file holds the bytes of td_row_index_write, the sample, and a tag over all of this. A new one is written under
 * another name, synchronised, and renamed. */
#include "catalog/dataset/row_store.h"

#include "catalog/model/state_dir.h"
#include "core/file_io.h"
#include "core/log.h"
#include "parser/rows/row_index_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char folder_name[] = "rows";

enum { UNUSED_DAYS = 90, END_BYTES = 2 * TD_TAG_BYTES, MAX_NAME = 160 };

struct td_row_store {
    int dir_fd;
};

/* Removes indexes that were not used for UNUSED_DAYS. */
static void remove_old(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    time_t oldest = time(NULL) - (time_t)UNUSED_DAYS * 24 * 60 * 60;
    if (dir == NULL && fd >= 0)
        (void)close(fd);
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime < oldest)
            (void)unlinkat(dir_fd, entry->d_name, 0);
    }
    if (dir != NULL)
        (void)closedir(dir);
}

bool td_row_store_open(const char *state_dir, const char *root, struct td_row_store **out, struct td_error *err)
{
    int fd;
    if (!td_state_folder_open(state_dir, root, folder_name, &fd, err))
        return false;
    struct td_row_store *store = malloc(sizeof *store);
    if (store == NULL) {
        (void)close(fd);
        return td_error_no_memory(err);
    }
    store->dir_fd = fd;
    remove_old(fd);
    *out = store;
    return true;
}

void td_row_store_close(struct td_row_store *store)
{
    if (store == NULL)
        return;
    (void)close(store->dir_fd);
    free(store);
}

/* Reads the whole file into new memory. Returns NULL when it cannot be read. */
static char *read_file(int fd, size_t len)
{
    char *bytes = malloc(len);
    if (bytes != NULL && td_read_at(fd, bytes, len, 0) == (ssize_t)len)
        return bytes;
    free(bytes);
    return NULL;
}

/* Takes an index from the bytes of a file. */
static bool take_index(const char *bytes, size_t len, struct td_row_index *out, char sample[TD_TAG_BYTES])
{
    char tag[TD_TAG_BYTES];
    if (len < END_BYTES)
        return false;
    const char *end = bytes + len - END_BYTES;
    bool ok = td_digest_tag(bytes, len - TD_TAG_BYTES, tag) && memcmp(tag, end + TD_TAG_BYTES, TD_TAG_BYTES) == 0 &&
              end[TD_TAG_BYTES - 1] == '\0' && td_row_index_read(bytes, len - END_BYTES, out, NULL);
    if (ok)
        memcpy(sample, end, TD_TAG_BYTES);
    return ok;
}

bool td_row_store_load(struct td_row_store *store, const char *key, struct td_row_index *out, char sample[TD_TAG_BYTES])
{
    struct stat st;
    int fd = store == NULL ? -1 : openat(store->dir_fd, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && td_state_is_ours_alone(&st) && st.st_size > 0;
    char *bytes = ok ? read_file(fd, (size_t)st.st_size) : NULL;
    ok = bytes != NULL && take_index(bytes, (size_t)st.st_size, out, sample);
    if (ok)
        (void)futimens(fd, NULL); /* it was used */
    free(bytes);
    (void)close(fd);
    return ok;
}

void td_row_store_save(struct td_row_store *store, const char *key, const struct td_row_index *index,
                       const char *sample)
{
    char tag[TD_TAG_BYTES];
    struct td_buffer bytes;
    if (store == NULL || strlen(key) > MAX_NAME)
        return;
    td_buffer_init(&bytes);
    td_row_index_write(index, &bytes);
    td_buffer_append(&bytes, sample, TD_TAG_BYTES);
    struct td_text text = td_buffer_text(&bytes);
    bool ok = !bytes.failed && td_digest_tag(text.p, text.len, tag);
    if (ok)
        td_buffer_append(&bytes, tag, sizeof tag);
    errno = ENOMEM;
    if (!ok || bytes.failed || !td_durable_file_write(store->dir_fd, key, td_buffer_text(&bytes), 0600))
        td_log(TD_LOG_WARN, "--state-dir: cannot keep an index of rows: %s; it is made again after a restart",
               strerror(errno));
    td_buffer_fini(&bytes);
}
