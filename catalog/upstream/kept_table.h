/* The table of kept models: one row for each model in the store (upstream_store.h), complete or not. The caller holds
 * the store's lock. A pointer to a row is valid until the next row is added or removed, so not after the lock is
 * released. Notes are small files in the store, one for each model, with the model's id and state. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_TABLE_H
#define TD_CATALOG_UPSTREAM_KEPT_TABLE_H

#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder of the store in the served directory. */
#define TD_UPSTREAM_FOLDER ".tensord-upstream"

/* The longest id, with a NUL: two parts of 96 bytes and a slash; "@@" and a version of 96 bytes. */
enum { TD_UPSTREAM_ID_BYTES = 292, TD_KEPT_VERSION_BYTES = 96 };

struct td_kept_note {
    char id[TD_UPSTREAM_ID_BYTES];
    uint64_t bytes;
    uint64_t inode; /* of a published model's directory, as mtime_ns is; 0: not published */
    int64_t mtime_ns;
    char tree[TD_TAG_BYTES]; /* by td_published_tree_tag; empty: not published */
    bool is_verified;
    int64_t began_s; /* when the first fetch of the model began, seconds since 1970 */
};

/* Returns whether the text can be the id of a kept model: "name" or "org/name" of letters, digits, "-", "_" and ".",
 * at most 96 bytes each; no part begins with a dot or "models--", and the first one is not "datasets" and does not
 * begin with "datasets--", which mean something else. */
bool td_kept_id_is_valid(struct td_text id);

/* Marks between a model's id and the version in the id of a kept version. */
#define TD_KEPT_REVISION "@"   /* the version is a revision at the upstream */
#define TD_KEPT_SUBFOLDER "@@" /* it is a subfolder there */
#define TD_KEPT_MODEL "/"      /* it is one, and a model "NAME/VERSION" of its own */

/* Writes the id under which a version of a model is kept, and which is its place below the served directory. Returns
 * false when `id` is no valid id, or the version cannot be that of a
 * kept one: letters, digits, "-", "_", "." and "+", at most TD_KEPT_VERSION_BYTES, without a dot or a "-" in front, and
 * not ending in ".tmp" or ".incomplete". */
bool td_kept_id_write(struct td_text id, const char *mark, struct td_text version, char out[TD_UPSTREAM_ID_BYTES]);

/* Splits the id of a kept model or version into what a Hub calls its id and its revision; *revision is empty for main.
 * Returns false for a text that is no id of a
 * kept model or version. */
bool td_kept_id_split(struct td_text kept, struct td_text *id, struct td_text *revision);

/* Writes the key of a model, a hash of the id: the name of its items in the store. Returns false when memory is
 * short. */
bool td_kept_key(const char *id, char key[TD_TAG_BYTES]);

/* Writes a note durably to a path below the descriptor `at`, by a rename. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_kept_note_write(int at, const char *path, const struct td_kept_note *note, struct td_error *err);

/* Reads a note that td_kept_note_write has written. Returns false for anything else. */
bool td_kept_note_read(int at, const char *path, struct td_kept_note *note);

enum td_kept_stage {
    TD_KEPT_PAUSED,     /* incomplete, and not being fetched: can be resumed */
    TD_KEPT_FETCHED,    /* incomplete, being fetched */
    TD_KEPT_PUBLISHING, /* complete, on its way into the served directory */
    TD_KEPT_PUBLISHED,  /* complete, in the served directory */
    TD_KEPT_REMOVING,   /* being removed from the disk, and then from the table */
};

struct td_kept_row {
    struct td_kept_note note;
    char key[TD_TAG_BYTES];
    enum td_kept_stage stage;
    int64_t read_ns;
    bool is_read; /* read_ns is newer than the record's time */
};

/* All zeros: empty. */
struct td_kept_table {
    struct td_kept_row *rows; /* sorted by id; owned */
    size_t count, capacity;
};

/* Frees the rows. */
void td_kept_table_fini(struct td_kept_table *table);

/* Returns the row of a model, or NULL. */
struct td_kept_row *td_kept_table_find(const struct td_kept_table *table, struct td_text id);

/* Adds a row, in the stage PAUSED, for a model that has no row. Returns NULL without memory. Errors:
 * TD_RESOURCE_EXHAUSTED. */
struct td_kept_row *td_kept_table_add(struct td_kept_table *table, const char *id, struct td_error *err);

/* Removes the row of a model, if there is one. */
void td_kept_table_remove(struct td_kept_table *table, struct td_text id);

/* Return the bytes of all models, and the bytes of all but those that are REMOVING. */
uint64_t td_kept_table_bytes(const struct td_kept_table *table);
uint64_t td_kept_table_staying_bytes(const struct td_kept_table *table);

/* Returns the number of rows in a stage. */
size_t td_kept_table_count(const struct td_kept_table *table, enum td_kept_stage stage);

/* Returns the row to evict first: an incomplete model that is not being fetched, else the published model that was read
 * longest ago. Returns NULL when none may be evicted. */
struct td_kept_row *td_kept_table_choose_victim(const struct td_kept_table *table);

/* Returns how many bytes are freed when the models that are REMOVING are gone, and after them, in the order of
 * eviction, as many models as it takes to free `bytes`. A result below `bytes` means that no more can be freed. */
uint64_t td_kept_table_gain(const struct td_kept_table *table, uint64_t bytes);

#endif
