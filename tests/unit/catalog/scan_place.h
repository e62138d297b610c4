/* Shared by the tests of scans and of their results: a tree and a scanner over it. */
#ifndef TD_TESTS_UNIT_CATALOG_SCAN_PLACE_H
#define TD_TESTS_UNIT_CATALOG_SCAN_PLACE_H

#include "tests/kit/scanner.h"
#include "tests/unit/unit.h"
#include <signal.h>

enum { SECOND = 1000000000 }; /* ns */

struct place {
    struct tree tree;
    struct scanner scanner;
    struct td_error err;
};

static inline void open_place(struct place *place)
{
    td_error_init(&place->err);
    tree_open(&place->tree);
    scanner_open(&place->scanner, &place->tree);
}

/* Does the same; the scanner also shows the other commits of a cache. */
static inline void open_place_of_revisions(struct place *place)
{
    open_place(place);
    place->scanner.config.all_revisions = true;
}

static inline void close_place(struct place *place)
{
    scanner_close(&place->scanner);
    tree_close(&place->tree);
}

FIXTURE(revisions, struct place, open_place_of_revisions, close_place)

FIXTURE(place, struct place, open_place, close_place)

/* Returns the file at a path of the last snapshot, or NULL. */
static inline struct td_file *file_at(const struct place *place, const char *path)
{
    const struct td_entry *entry = scanner_entry(&place->scanner, path);
    return entry == NULL ? NULL : entry->file;
}

/* Lets scans take leases, as the server does. */
static inline void take_leases(struct place *place)
{
    sigset_t blocked;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGRTMIN + 1); /* the kernel sends it when a lease is released */
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, NULL), 0);
    place->scanner.config.lease_signal = SIGRTMIN + 1;
}

#endif
