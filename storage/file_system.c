#include "storage/file_system.h"

#include "core/clock.h"
#include "core/digits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Returns whether the file's file system is one of these. */
static bool is_on(int fd, const uint32_t *kinds, size_t count)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)fs.f_type == kinds[i])
            return true;
    return false;
}

bool td_is_immutable(int fd)
{
    static const uint32_t read_only[] = {
        SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC, CRAMFS_MAGIC, 0x7275, /* romfs */
    };
    struct statx now;
    memset(&now, 0, sizeof now);
    if (statx(fd, "", AT_EMPTY_PATH, 0, &now) == 0 &&
        (now.stx_attributes & now.stx_attributes_mask & STATX_ATTR_VERITY) != 0)
        return true;
    return is_on(fd, read_only, sizeof read_only / sizeof *read_only);
}

bool td_sees_every_writer(int fd)
{
    static const uint32_t local[] = {
        EXT4_SUPER_MAGIC, /* ext2 and ext3 too */
        XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC,     F2FS_SUPER_MAGIC, TMPFS_MAGIC,
        RAMFS_MAGIC,      OVERLAYFS_SUPER_MAGIC, 0xca451a4e, /* bcachefs */
        0x2fc12fc1,                                          /* ZFS */
    };
    return is_on(fd, local, sizeof local / sizeof *local);
}

uint64_t td_lease_break_ns(void)
{
    enum { DEFAULT_S = 45 };
    char line[32] = "";
    uint64_t seconds;
    FILE *file = fopen("/proc/sys/fs/lease-break-time", "re");
    if (file != NULL) {
        if (fgets(line, sizeof line, file) == NULL)
            line[0] = '\0';
        (void)fclose(file);
    }
    if (!td_number_read(td_text_n(line, strcspn(line, "\n")), UINT16_MAX, &seconds))
        seconds = DEFAULT_S;
    return seconds * TD_NS_PER_S;
}

enum td_writers td_find_writers(int fd, int signal)
{
    if (!td_sees_every_writer(fd) || fcntl(fd, F_SETOWN, getpid()) != 0 || fcntl(fd, F_SETSIG, signal) != 0)
        return TD_WRITERS_UNKNOWN;
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN ? TD_WRITERS_SOME : TD_WRITERS_UNKNOWN;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return TD_WRITERS_NONE;
}

/* ---- at rest ------------------------------------------------------------------------------------------- */

/* The longest tick of the clock that file systems stamp with, with a margin: CONFIG_HZ is 100 or more. */
static const int64_t clock_tick_ns = 40000000;

static enum td_rest look_for_writers(int fd, int lease_signal)
{
    switch (td_find_writers(fd, lease_signal)) {
    case TD_WRITERS_NONE:
        return TD_REST_YES;
    case TD_WRITERS_SOME:
        return TD_REST_WRITTEN;
    case TD_WRITERS_UNKNOWN:
        break;
    }
    return TD_REST_UNKNOWN;
}

enum td_rest td_change_time_at_rest(int64_t ctime_ns, int64_t wall_ns, uint64_t *wait_ns)
{
    int64_t age_ns;
    if (ctime_ns % TD_NS_PER_S == 0 || __builtin_sub_overflow(wall_ns, ctime_ns, &age_ns) || age_ns < -clock_tick_ns)
        return TD_REST_UNKNOWN;
    if (age_ns >= clock_tick_ns)
        return TD_REST_YES;
    *wait_ns = (uint64_t)(clock_tick_ns - age_ns);
    return TD_REST_SOON;
}

enum td_rest td_file_at_rest(const struct td_root *root, const char *path, const struct td_file_id *id,
                             int lease_signal, uint64_t *wait_ns)
{
    struct td_error ignored = TD_ERROR_INIT;
    struct td_file_id now;
    int fd;
    if (lease_signal == 0)
        return TD_REST_UNKNOWN;
    if (!td_root_open_file(root, path, &fd, &now, &ignored))
        return ignored.code == TD_NOT_FOUND ? TD_REST_WRITTEN : TD_REST_UNKNOWN;
    struct td_wall wall = td_wall_now(); /* read before fstat finds the file unchanged */
    enum td_rest rest = look_for_writers(fd, lease_signal);
    bool same = td_file_id_is(fd, id);
    (void)close(fd);
    if (!same)
        return TD_REST_WRITTEN;
    if (rest != TD_REST_YES)
        return rest;
    return td_change_time_at_rest(id->ctime_ns, wall.seconds * TD_NS_PER_S + wall.nanoseconds, wait_ns);
}
