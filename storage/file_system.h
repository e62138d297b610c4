/* What the file system below a file promises. */
#ifndef TD_STORAGE_FILE_SYSTEM_H
#define TD_STORAGE_FILE_SYSTEM_H

#include <stdbool.h>

/* Returns whether every writer of the file is a process of this kernel: the file system is a local one. Only there do a
 * lease and a watch tell of all writes. Over a network file system or FUSE (virtiofs, 9p, sshfs) another machine, or
 * the host of this virtual machine, writes unnoticed, though the kernel may grant a lease there. An unknown file system
 * counts as one of those. */
bool td_sees_every_writer(int fd);

enum td_writers {
    TD_WRITERS_NONE, /* at that moment */
    TD_WRITERS_SOME,
    TD_WRITERS_UNKNOWN, /* neither the file's owner nor CAP_LEASE, or a file system whose writers are not all seen */
};

/* Returns whether anybody has the file open for writing, or mapped so. The kernel grants a read lease only when nobody
 * has (fcntl(2)); this one is given back at once. Should a writer come in between, the kernel announces it by `signal`,
 * which must be blocked in all threads. fd must hold no lease. */
enum td_writers td_find_writers(int fd, int signal);

#endif
