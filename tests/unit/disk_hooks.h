/* A disk that fails: write, fdatasync, fsync, renameat and openat64 by the linker's --wrap. Nothing is synchronised:
 * thousands of times it takes long. Single-threaded. */
#ifndef TD_TESTS_DISK_HOOKS_H
#define TD_TESTS_DISK_HOOKS_H

#include <stddef.h>
#include <sys/types.h>

/* The n-th call from now fails (1 = the next, 0 = none), and so do all after it. */
struct fault {
    int countdown, sys;
    unsigned calls;
};

extern struct fault write_fault, fdatasync_fault, fsync_fault, rename_fault;
extern struct fault read_only; /* opening for writing */
extern size_t write_at_most;   /* bytes in one call; 0: all */

/* Counts from zero. */
void arm(struct fault *fault, int countdown, int sys);

/* Nothing fails. */
void disarm(void);

#endif
