/* Notes: small files in the store of kept models (upstream_store.h), one for each model, that say which model it is
 * and how far it has come. */
#ifndef TD_CATALOG_UPSTREAM_KEPT_NOTE_H
#define TD_CATALOG_UPSTREAM_KEPT_NOTE_H

#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stdint.h>

/* The folder of the store in the served directory. */
#define TD_UPSTREAM_FOLDER ".tensord-upstream"

/* The longest id, two parts of 96 bytes and a slash, with a NUL. */
enum { TD_UPSTREAM_ID_BYTES = 194 };

struct td_kept_note {
    char id[TD_UPSTREAM_ID_BYTES];
    uint64_t bytes;
    uint64_t inode; /* of a published model's directory, as the next; 0: not published */
    int64_t mtime_ns;
    char tree[TD_TAG_BYTES]; /* by td_published_tree_tag; empty: not published */
    bool is_verified;
    int64_t began_s; /* of an incomplete one */
};

/* Returns whether the text can be the id of a kept model: "name" or "org/name" of letters, digits, "-", "_" and ".",
 * at most 96 bytes each; no part begins with a dot or "models--", and the first one is not "datasets" and does not
 * begin with "datasets--", which mean something else. */
bool td_kept_id_is_valid(struct td_text id);

/* Writes the name of a model's files in the store, a hash of the id. Returns false when memory is short. */
bool td_kept_key(const char *id, char key[TD_TAG_BYTES]);

/* Writes a note durably to a path below the descriptor `at`, by a rename. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
bool td_kept_note_write(int at, const char *path, const struct td_kept_note *note, struct td_error *err);

/* Reads what td_kept_note_write has written. Returns false for anything else. */
bool td_kept_note_read(int at, const char *path, struct td_kept_note *note);

#endif
