#include "catalog/publish/publish_stage.h"

#include "catalog/publish/publish_folder.h"
#include "core/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char before_name[] = "before";

enum { BEFORE_BYTES = 64 * 1024 /* more than any file that is replaced has */ };

/* Writes the name of the repository's folder: its lock keeps others out. */
static void name_stage(const struct td_publish_repo *repo, char out[TD_OWN_NAME_BYTES])
{
    (void)snprintf(out, TD_OWN_NAME_BYTES, "incoming/%s", repo->name.folder);
}

bool td_publish_stage_open(struct td_publish_stage *stage, struct td_publish_repo *repo, struct td_error *err)
{
    const struct td_own_folder *own = &repo->disk->own;
    char name[TD_OWN_NAME_BYTES];
    *stage = (struct td_publish_stage){.repo = repo, .fd = -1};
    name_stage(repo, name);
    bool ok = mkdirat(own->fd, name, 0755) == 0;
    if (!ok && errno == EEXIST) { /* a change that failed could not remove it */
        td_own_folder_remove(own, name);
        ok = mkdirat(own->fd, name, 0755) == 0;
    }
    stage->fd = ok ? td_folder_open(own->fd, name) : -1;
    return stage->fd >= 0 || td_publish_fail(&repo->name, "prepare a change of", err);
}

void td_publish_stage_close(struct td_publish_stage *stage)
{
    char name[TD_OWN_NAME_BYTES];
    if (stage->fd < 0)
        return;
    (void)close(stage->fd);
    stage->fd = -1;
    name_stage(stage->repo, name);
    if (unlinkat(stage->repo->disk->own.fd, name, AT_REMOVEDIR) != 0)
        td_own_folder_remove(&stage->repo->disk->own, name);
}

bool td_publish_stage_write(const struct td_publish_stage *stage, const char *name, struct td_text content,
                            struct td_error *err)
{
    int fd = openat(stage->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && td_write_all(fd, content.p, content.len) && fsync(fd) == 0;
    td_folder_close(fd);
    return ok || td_publish_fail(&stage->repo->name, "write a file of", err);
}

/* Keeps a copy of the file that is to be replaced as "before" in the stage, and sets *exists. Returns false, with
 * errno, when it cannot be kept. */
static bool keep_before(const struct td_publish_stage *stage, int at, const char *name, bool *exists,
                        struct td_error *err)
{
    (void)unlinkat(stage->fd, before_name, 0); /* of the file that was placed before this one */
    *exists = linkat(at, name, stage->fd, before_name, 0) == 0;
    if (*exists || errno == ENOENT)
        return true;
    char *content = malloc(BEFORE_BYTES); /* hard links may not be possible here */
    int fd = content == NULL ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : td_read_at(fd, content, BEFORE_BYTES, 0);
    td_folder_close(fd);
    *exists = n >= 0;
    bool ok = *exists ? td_publish_stage_write(stage, before_name, td_text_n(content, (size_t)n), err)
                      : content != NULL && errno == ENOENT;
    free(content);
    return ok;
}

bool td_publish_stage_place(const struct td_publish_stage *stage, const char *file, int at, const char *name,
                            struct td_error *err)
{
    bool existed;
    if (!keep_before(stage, at, name, &existed, err) || renameat2(stage->fd, file, at, name, 0) != 0)
        return false;
    if (fsync(at) == 0)
        return true;
    int sys = errno;
    if (existed)
        (void)renameat(stage->fd, before_name, at, name);
    else
        (void)unlinkat(at, name, 0);
    errno = sys;
    return false;
}
