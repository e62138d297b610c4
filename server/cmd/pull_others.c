#include "server/cmd/pull_others.h"

#include "catalog/model/file_kind.h"
#include "core/digits.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A number of files, and the name that comes first in the alphabet. */
struct some {
    size_t count;
    char name[NAME_MAX + 1];
};

static void count(struct some *some, const char *name)
{
    if (some->count == 0 || strcmp(name, some->name) < 0)
        (void)snprintf(some->name, sizeof some->name, "%s", name);
    some->count++;
}

/* Counts the checkpoint files of the directory that do not belong to the pull; 0 if it cannot be read. */
static void find_staying(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                         struct some *out)
{
    int fd = openat(directory->root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (opened == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((entry = readdir(opened)) != NULL) // NOLINT(concurrency-mt-unsafe): no other thread reads this stream
        if (entry->d_name[0] != '.' && entry->d_type != DT_DIR &&
            td_is_checkpoint_kind(td_file_kind_of(entry->d_name)) &&
            !belonging->belongs(belonging->context, entry->d_name))
            count(out, entry->d_name);
    (void)closedir(opened);
}

/* Counts the files of the pull that are in the directory already with another size. */
static void find_replaced(const struct td_pull_directory *directory, struct td_pull_files files, struct some *out)
{
    struct stat st;
    for (size_t i = 0; i < files.count; i++) {
        const char *name = td_pull_file_name(&files.files[i]);
        if (fstatat(directory->root->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            (uint64_t)st.st_size != files.files[i].expected->size_bytes)
            count(out, name);
    }
}

void td_pull_others_describe(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_pull_files files, const char *what, char *text, size_t capacity)
{
    struct some staying = {.count = 0};
    struct some replaced = {.count = 0};
    int len = 0;
    text[0] = '\0';
    if (directory->staging != NULL)
        return;
    find_staying(directory, belonging, &staying);
    find_replaced(directory, files, &replaced);
    if (staying.count > 0)
        len = snprintf(text, capacity,
                       "\"%.200s\" holds another model: %zu checkpoint file%s of it (such as \"%.100s\") stay%s beside "
                       "those of %s, and a program may load both; another -o DIR keeps them apart",
                       directory->final, staying.count, td_plural(staying.count), staying.name,
                       staying.count == 1 ? "s" : "", what);
    if (replaced.count > 0 && len >= 0 && (size_t)len < capacity)
        (void)snprintf(text + len, capacity - (size_t)len,
                       "%s%zu file%s of other sizes (such as \"%.100s\") in \"%.200s\" "
                       "%s replaced",
                       len > 0 ? "; " : "", replaced.count, td_plural(replaced.count), replaced.name, directory->final,
                       replaced.count == 1 ? "is" : "are");
}
