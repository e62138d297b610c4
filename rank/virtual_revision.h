/* Virtual revisions, which do not exist on disk: their names and their commits. A commit id encodes its revision, so
 * the server keeps no table of them: clients turn a name into its commit first, and then ask by the commit alone. Pure.
 */
#ifndef TD_RANK_VIRTUAL_REVISION_H
#define TD_RANK_VIRTUAL_REVISION_H

#include "catalog/names/repo.h"
#include "core/text.h"

/* The name of TD_REVISION_SAFETENSORS. */
#define TD_SAFETENSORS_REVISION "safetensors"

/* The ways to see a repository. Commit ids hold these numbers, so a number must never change its meaning. */
enum td_revision_kind {
    TD_REVISION_FILES = 0, /* the files as they are on disk */
    /* "safetensors": a model without safetensors has model.safetensors in place of its checkpoint */
    TD_REVISION_SAFETENSORS = 1,
    /* "tp{n}-rank{r}-{engine}", with '-' for '@' in the engine, since registries do not allow '@' in tags: each model
     * has that rank's file in place of its checkpoint. But if the repository's own directory has a checkpoint, models
     * below it have no rank file if the engine reads config.json and they lack it */
    TD_REVISION_RANK = 2,
    /* not a revision: one model, with the files of all ranks, named as a sharded state, in place of all checkpoints */
    TD_REVISION_RANKS = 3,
};

/* A virtual revision. TD_REVISION_SAFETENSORS has the engine "none", tp_size 1 and rank 0. */
struct td_virtual_revision {
    enum td_revision_kind kind;
    unsigned engine; /* as td_engine_number */
    uint64_t tp_size, rank;
};

/* Decodes a name. Returns false when the text is not the name of a virtual revision. For a text that resembles such a
 * name, *err then says what would be right (TD_NOT_FOUND); otherwise *err stays unchanged. err may be NULL. */
bool td_virtual_revision_read_name(struct td_text name, struct td_virtual_revision *out, struct td_error *err);

/* Returns the form of the i-th kind's names, such as "tp{n}-rank{r}-{engine}"; NULL past the last. Static. */
const char *td_virtual_revision_names(size_t i);

/* Returns whether there can be such a revision: a kind, an engine, and parameters that fit the kind. */
bool td_virtual_revision_is_possible(const struct td_virtual_revision *revision);

/* Decodes a commit id. Returns false when it encodes no possible revision. The caller must encode the result again and
 * compare, because a forged id also decodes. */
bool td_virtual_revision_read_commit(struct td_text commit, struct td_virtual_revision *out);

/* Writes the commit id (40 hexadecimal digits and a NUL) of the virtual revision over the files of the commit `base`.
 * Returns false when memory is short. */
bool td_virtual_revision_write_commit(const struct td_virtual_revision *revision, const char *base,
                                      char commit[TD_COMMIT_BYTES]);

#endif
