/* A hasher over a temporary tree, and a disk that waits or fails as tests say: pread64 is replaced through the linker's
 * --wrap. Files of a test have different sizes, by which the disk distinguishes them. All threads have ordinary
 * priority. */
#ifndef TD_TESTS_UNIT_CATALOG_HASHER_PLACE_H
#define TD_TESTS_UNIT_CATALOG_HASHER_PLACE_H

#include "catalog/digests/digest_log.h"
#include "catalog/digests/hasher.h"
#include "core/clock.h"
#include "tests/kit/scanner.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LARGE = 1024 * 1024 + 1 }; /* hashed in the second pass */

extern const uint64_t second; /* in nanoseconds */

/* Says how reads go, and records by their sizes which files are begun. */
struct disk {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool closed;        /* reads wait */
    uint64_t held_from; /* while it is closed, only reads from this offset on wait */
    size_t most_held;   /* and at most as many */
    size_t waiting;     /* number of waiting reads */
    unsigned nap_ms;
    uint64_t bad_size; /* a file of this size cannot be read */
    uint64_t begun[64];
    size_t begun_count;
};

extern struct disk disk;

void disk_close(void);

/* Has only reads from this offset on wait, and at most so many at a time. */
void disk_hold(uint64_t from, size_t most);

void disk_open(void);
void disk_make_good(void);

/* Returns the number of reads that wait. */
size_t disk_waiting(void);

/* Returns how often a file of this size was begun. */
size_t times_begun(uint64_t size);

struct place {
    struct tree tree;
    char root[TREE_PATH_BYTES], state[TREE_PATH_BYTES];
    struct scanner scanner;
    struct td_hasher_config config;
    struct td_hasher *hasher;
    _Atomic unsigned known_calls;
};

/* Opens a place, with a disk that is open. Its config has no state directory and one thread; tests change this before
 * start. */
void place_open(struct place *place);

void start(struct place *place);
void stop(struct place *place);

/* Stops the hasher, and removes the place. */
void finish(struct place *place);

FIXTURE(hasher, struct place, place_open, finish)

/* Scans, and gives the hasher the snapshot. */
void scan(struct place *place);

struct td_hasher_status status_of(const struct place *place);
struct td_file *file_of(const struct place *place, const char *path);
bool is_known(const struct place *place, const char *path);

/* Waits for the file's digest as clients of the Hub do: not when it cannot be known in time. */
bool wait_for_file(const struct place *place, const char *path, uint64_t ns);

/* Makes a sparse file of zeros. */
void sparse(const struct place *place, const char *name, uint64_t size);

/* Waits until the condition holds; fails after 60 s, which are never needed. */
#define WAIT_FOR(condition)                                                 \
    do {                                                                    \
        uint64_t give_up_ns = td_clock_ns() + 60 * second;                  \
        while (!(condition)) {                                              \
            CHECK(td_clock_ns() < give_up_ns, "%s never came", #condition); \
            nap_ms(2);                                                      \
        }                                                                   \
    } while (0)

#endif
