/* What the file system below a file promises. */
#ifndef TD_STORAGE_FILE_SYSTEM_H
#define TD_STORAGE_FILE_SYSTEM_H

#include <stdbool.h>

/* Returns whether every writer of the file is a process of this kernel: the file system is a local one. Only there do a
 * lease and a watch tell of all writes. Over a network file system or FUSE (virtiofs, 9p, sshfs) another machine, or the
 * host of this virtual machine, writes unnoticed, though the kernel may grant a lease there. An unknown file system
 * counts as one of those. */
bool td_sees_every_writer(int fd);

#endif
