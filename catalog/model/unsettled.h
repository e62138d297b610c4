/* Unsettled files: files that scans have seen but not yet published, and since when. The list is carried from scan to
 * scan; a snapshot has the facts of its own scan. */
#ifndef TD_CATALOG_MODEL_UNSETTLED_H
#define TD_CATALOG_MODEL_UNSETTLED_H

#include "core/arena.h"
#include "core/error.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_unsettled {
    char *path;             /* as clients will know it; owned */
    struct td_file_id id;   /* as last seen */
    uint64_t first_seen_ns; /* monotonic time since which the identity is the same */
    bool half_changed;      /* its size changed without its mtime: a truncation that was seen half-way */
    bool has_arrived;       /* came by a rename, so that it is complete as long as its identity is the same */
};

struct td_unsettled_list {
    struct td_unsettled *items; /* sorted by path */
    size_t count, capacity;
};

/* The unsettled files at the time when a snapshot was made. All zero: no file was unsettled. */
struct td_unsettled_facts {
    const char **paths; /* as clients will know them, sorted; in the snapshot's arena; a view has none */
    size_t count;
    size_t pending_count; /* of those, files without a known writer, which time alone publishes */
    size_t racy_count;    /* of the latter, finished files whose change time the clock has yet to pass */
    uint64_t next_due_ns; /* monotonic time when the first of them settles; 0: none */
};

/* Counts a file that settles at due_ns; is_pending and is_racy as in the counts. */
void td_unsettled_facts_add(struct td_unsettled_facts *facts, bool is_pending, bool is_racy, uint64_t due_ns);

/* Copies the paths of the list's files, which were all counted, into the arena. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_unsettled_facts_set_paths(struct td_unsettled_facts *facts, const struct td_unsettled_list *list,
                                  struct td_arena *arena, struct td_error *err);

/* Returns whether both have the same paths. */
bool td_unsettled_facts_equal(const struct td_unsettled_facts *a, const struct td_unsettled_facts *b);

/* Frees the items and empties the list. */
void td_unsettled_list_fini(struct td_unsettled_list *list);

/* Returns the file at this path, or NULL. */
const struct td_unsettled *td_unsettled_find(const struct td_unsettled_list *list, const char *path);

/* Appends *file with a copy of `path`, which must sort after all others. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_unsettled_add(struct td_unsettled_list *list, const struct td_unsettled *file, const char *path,
                      struct td_error *err);

#endif
