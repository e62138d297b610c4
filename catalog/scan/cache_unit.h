/* Cache units: each commit of a Hugging Face cache is shown whole or not at all.
 *
 * A unit is a commit that the walk found, with all its files and folders. It is shown as it is on disk if it is
 * unchanged since the snapshot before, or if all of it has settled: its files, its links and the lists of names in its
 * folders. Else it is held, and the snapshot keeps what was shown in its place: the earlier state of the same commit;
 * for the commit that a cache shows as its main one, else the earlier main one; else nothing. A commit that was not
 * shown before is also held while a client of the Hub downloads a blob of its cache. What cannot be read has settled as
 * well: it is a problem of a commit that is shown. While a cache has no main commit to show, none of its commits is
 * shown. A commit that the walk knew without walking it (td_walk_limits.is_known) is held as well, so that the snapshot
 * keeps its state.
 *
 * The scan makes the units from a walk, in the order of their files. It then takes one after the other, reads the files
 * of those that are not held, and may hold one after all: when a file changed while it was read. At the end
 * td_units_list has the commits that the snapshot shows. Not thread-safe. */
#ifndef TD_CATALOG_SCAN_CACHE_UNIT_H
#define TD_CATALOG_SCAN_CACHE_UNIT_H

#include "catalog/scan/settling.h"

/* The state of a commit that the snapshot before showed. */
struct td_unit_state {
    const struct td_cache_folder *folder; /* the snapshot's; NULL: nothing */
    size_t first, count;                  /* run of its entries */
};

struct td_unit {
    const struct td_cache_folder *folder; /* the walk's */
    size_t first, count;                  /* run of the walk's files */
    size_t folder_first, folder_count;    /* run of the walk's folders */
    bool is_published;                    /* by this program: all of it has settled (struct td_published) */
    struct td_unit_state before;          /* the same commit in the snapshot before */
    bool is_held;                         /* `kept` is shown, not the files on disk */
    bool is_hidden; /* nothing is shown: it is shown as the main one already, or there is no main one */
    struct td_unit_state kept;
};

struct td_units {
    struct td_unit *items; /* in the order of their files, the main commit of a cache before its others */
    size_t count;
    const struct td_entry **before; /* for each file of the walk that is in a unit, its entry in the snapshot before;
                                       else NULL */
    bool *finished;                 /* for each file of the walk: known to be finished (td_settling_is_finished) */
    const struct td_settling *settling;
    const struct td_walk *walk;
    const struct td_snapshot *previous;
    struct td_error *err;
};

/* Sets *units, from the sorted lists of the walk. Borrows the other arguments until td_units_fini. `previous` may be
 * NULL. Errors: TD_RESOURCE_EXHAUSTED. */
bool td_units_create(struct td_units *units, const struct td_settling *settling, const struct td_walk *walk,
                     const struct td_snapshot *previous, struct td_error *err);

/* Returns whether `previous` shows the commit of the folder with the directory that folder->seen names, and has no
 * problem below its path, so that its files need not be found again. */
bool td_units_know(const struct td_snapshot *previous, const struct td_cache_folder *folder);

/* Holds a unit whose turn it is, because a file of it changed while it was read. */
void td_units_hold(struct td_units *units, struct td_unit *unit);

/* Returns the unit of the commit that is kept in place of a unit which is held, or NULL if it is not on disk any
 * more. */
const struct td_unit *td_units_of_kept(const struct td_units *units, const struct td_unit *unit);

/* Returns the unit that the file number i of the walk is in, or NULL. */
const struct td_unit *td_units_of_file(const struct td_units *units, size_t i);

/* Returns whether file number i of the walk is known to be finished. */
bool td_units_is_finished(const struct td_units *units, size_t i);

/* Returns what td_settling_is_settled needs of file number i of the walk, which is in the unit. */
struct td_young td_units_young(const struct td_units *units, const struct td_unit *unit, size_t i);

/* Returns whether file number i of the walk, in the unit, is unchanged or has settled. Fills in *seen as
 * td_settling_is_settled does, unless it is unchanged or finished. Remembers files that are finished. */
bool td_units_file_is_settled(struct td_units *units, const struct td_unit *unit, size_t i, struct td_seen *seen);

/* Returns whether folder number i of the walk, in the unit, has settled, and nothing is being downloaded for a commit
 * that was not shown before. Fills in *seen as td_settling_is_settled does. */
bool td_units_folder_is_settled(const struct td_units *units, const struct td_unit *unit, size_t i,
                                struct td_seen *seen);

/* Sets *out to the list of *count commits that the snapshot shows, in the arena, in the order of their files. A ref
 * whose commit is held names the commit that it named before, if that is shown, and is left out otherwise. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_units_list(const struct td_units *units, struct td_arena *arena, struct td_cache_folder **out, size_t *count);

void td_units_fini(struct td_units *units);

#endif
