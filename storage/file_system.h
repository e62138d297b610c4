/* Checks whether anybody can write to an open file unnoticed, and whether a file is at rest. Thread-safe. */
#ifndef TD_STORAGE_FILE_SYSTEM_H
#define TD_STORAGE_FILE_SYSTEM_H

#include "storage/served_root.h"

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

/* Whether a file is at rest: no process on this machine has it open for writing, and every later change gives the file
 * another identity. A read lease (fcntl, F_SETLEASE) shows the former without waiting, the change time shows the
 * latter. */
enum td_rest {
    TD_REST_YES,
    TD_REST_SOON,    /* after *wait_ns: a write before then could leave the same change time */
    TD_REST_WRITTEN, /* somebody has the file open or mapped for writing, or it changed or is gone */
    TD_REST_UNKNOWN, /* no lease: another user's file, a file system that other machines write to, or no lease_signal;
                        or a change time without fractions of a second or in the future; or the file does not open */
};

/* Returns TD_REST_YES when every change from `wall_ns` on (the wall clock, ns since 1970) gives a file of this change
 * time another one. Sets *wait_ns for TD_REST_SOON only. A change time without fractions of a second may come from a
 * file system that stores none, and one in the future from a clock that was set back: both are TD_REST_UNKNOWN. */
enum td_rest td_change_time_at_rest(int64_t ctime_ns, int64_t wall_ns, uint64_t *wait_ns);

/* Returns whether the file at `path` below the root, last seen as `id`, is at rest. Sets *wait_ns for TD_REST_SOON
 * only. Takes a lease and gives it back at once, so a writer waits for microseconds at most; the kernel then sends
 * lease_signal, which must be blocked in all threads. lease_signal 0: takes no lease and returns TD_REST_UNKNOWN.
 * Thread-safe. */
enum td_rest td_file_at_rest(const struct td_root *root, const char *path, const struct td_file_id *id,
                             int lease_signal, uint64_t *wait_ns);

#endif
