/* Made revisions, which do not exist on disk: their names and their commits. A commit encodes its revision, so the
 * server keeps no table of them: clients turn a name into its commit first and ask by that alone. Pure. */
#ifndef TD_RANK_VIRTUAL_REVISION_H
#define TD_RANK_VIRTUAL_REVISION_H

#include "catalog/repo.h"
#include "http/request.h"

/* The name of TD_REVISION_SAFETENSORS. */
#define TD_SAFETENSORS_REVISION "safetensors"

/* What a repository can be seen as. Commits hold the numbers of those that are revisions. */
enum td_revision_kind {
    TD_REVISION_FILES = 0, /* the files */
    /* "safetensors": a model without safetensors has model.safetensors in place of its checkpoint */
    TD_REVISION_SAFETENSORS = 1,
    /* "tp{n}-rank{r}-{engine}": each model has that rank's file in place of its checkpoint */
    TD_REVISION_RANK = 2,
    /* one model, with the files of all ranks in place of all checkpoints, by the names of a sharded state */
    TD_REVISION_RANKS = 3,
};

/* One of TD_REVISION_SAFETENSORS is what "none" makes for the only rank of one. */
struct td_virtual_revision {
    enum td_revision_kind kind;
    unsigned engine; /* td_engine_name's number */
    uint64_t tp_size, rank;
};

/* False: no such name; of one that is nearly it, err says what would be right (TD_NOT_FOUND, or TD_OK as it was). */
bool td_virtual_revision_read_name(struct td_text name, struct td_virtual_revision *out, struct td_error *err);

/* What the names of the i-th kind are like: "tp{n}-rank{r}-{engine}"; NULL past the last. */
const char *td_virtual_revision_names(size_t i);

/* What the commit says that it is, if that is one that can be made: whether it is its commit, only writing it again can
 * tell. */
bool td_virtual_revision_read_commit(struct td_text commit, struct td_virtual_revision *out);

/* The commit of the revision that is made of the files that have `base` for theirs. False: memory is short. */
bool td_virtual_revision_write_commit(const struct td_virtual_revision *revision, const char *base,
                                      char commit[TD_COMMIT_BYTES]);

#endif
