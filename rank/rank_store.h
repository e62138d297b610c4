/* The files of ranks: made when they are asked for, kept and shared, all within a bound on memory. For every facade
 * that serves them. Thread-safe. */
#ifndef TD_RANK_RANK_STORE_H
#define TD_RANK_RANK_STORE_H

#include "catalog/catalog.h"
#include "core/budget.h"
#include "core/digest.h"
#include "http/lru.h"
#include "rank/rank_name.h"
#include "slicing/plan_spec.h"
#include "slicing/rank_file.h"

enum {
    TD_RANK_CACHE_BYTES = 256 * 1024 * 1024, /* above that, files that nobody has go when one is made */
    /* Counted: what is being made, what is kept and what answers hold that are being sent. 512 MiB are documented: the
     * rest is for what malloc takes beside */
    TD_RANK_LIVE_BYTES = 480 * 1024 * 1024,
    TD_RANK_TRIM_BYTES = 1024 * 1024, /* planning in so much leaves much freed memory behind */
    TD_RANK_MAKERS = 4                /* make files at once, each within what td_plan_match and a plan may take */
};

/* So long a request waits for its turn to make a file, or for another one that is making the same. */
#define TD_RANK_WAIT_NS UINT64_C(10000000000)

struct td_rank_store {
    struct td_catalog *catalog;
    struct td_lru files; /* by tag */
    /* TD_RANK_LIVE_BYTES: of plans, files, slices and descriptions, each from before its memory is there until it is
     * freed. Files that are only kept make room */
    struct td_budget live;
    uint64_t wait_ns;       /* TD_RANK_WAIT_NS */
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed; /* a maker is done with a file, or has gone */
    unsigned makers;
    struct td_rank_making *making; /* what is being made now */
};

/* Of what files are wanted, and which. All is borrowed. */
struct td_rank_set {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint; /* of the model */
    struct td_rank_name name;
    struct td_text plan;             /* of a registered plan: its text. Read when a file has to be made */
    const struct td_plan_spec *spec; /* what was read before from that text, or for that engine; NULL: nothing was */
};

/* catalog is borrowed and must outlive the store; the store must outlive its files. False when no lock can be made. */
bool td_rank_store_init(struct td_rank_store *store, struct td_catalog *catalog);
void td_rank_store_fini(struct td_rank_store *store);

/* The validator of a rank's file: what it is made of and how. Nothing is planned. rank is below the name's tp_size.
 * Errors: TD_RESOURCE_EXHAUSTED. */
bool td_rank_store_tag(const struct td_rank_set *want, uint64_t rank, char tag[TD_TAG_BYTES], struct td_error *err);

/* What that was before the files were hashed. */
bool td_rank_store_former_tag(const struct td_rank_set *want, uint64_t rank, char tag[TD_TAG_BYTES],
                              struct td_error *err);

/* One rank's file (td_rank_file_unref), computed now or before, and its validator. Of several requests for the same
 * file one makes it, the others wait. Errors as td_plan_spec_parse, td_plan_spec_match, td_plan_spec_rank,
 * td_rank_file_create and td_model_config_text; TD_RESOURCE_EXHAUSTED when the files that are being sent take all
 * memory there is for them, and when the wait is too long. */
bool td_rank_store_get(struct td_rank_store *store, const struct td_rank_set *want, uint64_t rank,
                       struct td_rank_file **out, char tag[TD_TAG_BYTES], struct td_error *err);

/* Makes malloc give freed memory back to the system. Call it when a plan of that many bytes was freed: plans are many
 * small pieces, which malloc's arenas would otherwise keep, beyond the budget. */
void td_rank_store_trim(size_t planned_bytes);

/* Makes several files of one want, or describes them: names are matched once. From the first that is not there already
 * it is one of the TD_RANK_MAKERS until its end. One thread's; the rest is borrowed. */
struct td_rank_maker {
    struct td_rank_store *store;
    const struct td_rank_set *want;
    bool has_place, has_basis;
    size_t planned_bytes;     /* that the largest of its plans took; TD_RANK_TRIM_BYTES or more when one failed */
    struct td_plan_spec spec; /* of its own, where the want has none */
    struct td_plan_basis basis;
};

void td_rank_maker_init(struct td_rank_maker *maker, struct td_rank_store *store, const struct td_rank_set *want);
void td_rank_maker_fini(struct td_rank_maker *maker);

/* As td_rank_store_get. */
bool td_rank_maker_get(struct td_rank_maker *maker, uint64_t rank, struct td_rank_file **out, char tag[TD_TAG_BYTES],
                       struct td_error *err);

/* What a rank's file is made of, planned anew: td_plan_fini in every case, before the maker's end. Errors likewise. */
bool td_rank_maker_plan(struct td_rank_maker *maker, uint64_t rank, struct td_plan *out, struct td_error *err);

#endif
