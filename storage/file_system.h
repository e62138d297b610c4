/* Checks whether anybody can write to an open file unnoticed, and whether anybody has the file open for writing.
 * Thread-safe. */
#ifndef TD_STORAGE_FILE_SYSTEM_H
#define TD_STORAGE_FILE_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the file is on a local file system, where every writer is a process of this kernel. Only there do
 * leases and watches report all writes. On a network file system or FUSE (virtiofs, 9p, sshfs), another machine or the
 * host of this virtual machine writes unnoticed, even if the kernel grants a lease. Returns false for an unknown file
 * system. */
bool td_sees_every_writer(int fd);

/* Returns whether nobody can ever change the contents of the open file: the file has fs-verity, which cannot be
 * removed, or its file system is read-only by kind (squashfs, EROFS, ISO 9660, cramfs, romfs). A change of the image
 * behind such a file system is not seen. The immutable attribute (chattr +i), a read-only mount and a mode without
 * write permission do not count: each can be undone at any moment, even while the file is open. */
bool td_is_immutable(int fd);

/* Returns for how long the kernel lets a writer wait for a lease (fs.lease-break-time). */
uint64_t td_lease_break_ns(void);

enum td_writers {
    TD_WRITERS_NONE, /* at that moment */
    TD_WRITERS_SOME,
    TD_WRITERS_UNKNOWN, /* this process has no right to a lease, or td_sees_every_writer returns false */
};

/* Returns whether anybody has the file open or mapped for writing: the kernel grants a read lease only when nobody has
 * (fcntl(2)). Gives the lease back at once. The kernel sends `signal`, which must be blocked in all threads, if a
 * writer comes in between. fd must hold no lease. */
enum td_writers td_find_writers(int fd, int signal);

#endif
