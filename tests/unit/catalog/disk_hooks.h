/* A disk that fails: replaces write, fdatasync, fsync, renameat and openat64 through the linker's --wrap. The sync
 * calls do nothing else, because thousands of real ones take long. Single-threaded. */
#ifndef TD_TESTS_UNIT_CATALOG_DISK_HOOKS_H
#define TD_TESTS_UNIT_CATALOG_DISK_HOOKS_H

#include <stddef.h>
#include <sys/types.h>

/* A fault of a call: the n-th call from now (1: the next; 0: none) and all later ones fail. */
struct fault {
    int countdown, sys;
    unsigned calls;
};

extern struct fault write_fault, fdatasync_fault, fsync_fault, rename_fault;
extern struct fault read_only; /* calls that open a file for writing */
extern size_t write_at_most;   /* bytes that one call writes; 0: all */

/* Sets the fault and begins to count. */
void arm(struct fault *fault, int countdown, int sys);

/* Ends all faults. */
void disarm(void);

#endif
