/* Rank files: the safetensors file that each rank of an engine or plan gets. They do not exist on disk; the store
 * computes their headers and layouts on request, keeps them, and shares them, all within a limit of memory. Every
 * facade uses the store. Thread-safe. */
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
    TD_RANK_CACHE_BYTES = 256 * 1024 * 1024, /* above this, a new file evicts stored files that no request uses */
    /* Most memory of all plans, stored files and files that are being sent. The documented limit is 512 MiB; the
     * difference is for
       malloc's own overhead. */
    TD_RANK_LIVE_BYTES = 480 * 1024 * 1024,
    TD_RANK_TRIM_BYTES = 1024 * 1024, /* malloc gives memory back after a plan of at least this size */
    TD_RANK_MAKERS = 4,    /* most threads that plan at once, each within the limits of td_plan_match and of a plan */
    TD_RANK_BOX_PLACES = 2 /* more, for plans of boxes alone: they take milliseconds, those of rules may take seconds */
};

/* A request waits at most this long for its turn to plan, or for another request that plans the same file: 10 s. */
#define TD_RANK_WAIT_NS UINT64_C(10000000000)

struct td_rank_store {
    struct td_catalog *catalog;
    struct td_lru files; /* stored files, by tag */
    /* The budget of TD_RANK_LIVE_BYTES for plans, files, slices and descriptions. Their memory is counted before it is
     * allocated and until it is freed. When the budget is used up, stored files that no request uses are evicted. */
    struct td_budget live;
    uint64_t wait_ns;              /* TD_RANK_WAIT_NS */
    pthread_mutex_t lock;          /* guards the members that follow */
    pthread_cond_t changed;        /* a maker has finished a file, or has given up its place */
    unsigned makers;               /* number of makers that have a place; at most TD_RANK_MAKERS + TD_RANK_BOX_PLACES */
    struct td_rank_making *making; /* list of the files that are being made now */
};

/* Identifies a set of rank files: those of one checkpoint, for one engine or plan. All members are borrowed. */
struct td_rank_set {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint; /* a checkpoint of the model */
    struct td_rank_name name;
    struct td_text plan;             /* the text of a registered plan, parsed when a file has to be made */
    const struct td_plan_spec *spec; /* the specification, when the caller has parsed it already; else NULL */
};

/* Starts an empty store. The catalog is borrowed and must outlive the store; the store must outlive its files. Returns
 * false when no lock can be created. */
bool td_rank_store_init(struct td_rank_store *store, struct td_catalog *catalog);

/* Frees the stored files. No request may use the store any more. */
void td_rank_store_fini(struct td_rank_store *store);

/* Writes the validator of a rank's file: a hash over the tags of the checkpoint and config.json, the engine or plan,
 * the number of ranks and the rank. Does not plan the file. rank is below the name's tp_size. Errors:
 * TD_RESOURCE_EXHAUSTED. */
bool td_rank_store_tag(const struct td_rank_set *set, uint64_t rank, char tag[TD_TAG_BYTES], struct td_error *err);

/* Writes the validator that the file had before the model's files were hashed. Errors as td_rank_store_tag. */
bool td_rank_store_former_tag(const struct td_rank_set *set, uint64_t rank, char tag[TD_TAG_BYTES],
                              struct td_error *err);

/* Finds or makes the file of one rank. Sets *out, which the caller drops with td_rank_file_unref, and writes its
 * validator to tag. When several requests need the same file, one of them makes the file and the others wait, at most
 * TD_RANK_WAIT_NS. Errors as td_plan_spec_parse, td_plan_spec_match, td_plan_spec_rank, td_rank_file_create,
 * td_box_file_create and td_model_config_text; TD_RESOURCE_EXHAUSTED when files that are being sent take all memory of
 * the budget, or when the wait is too long. */
bool td_rank_store_get(struct td_rank_store *store, const struct td_rank_set *set, uint64_t rank,
                       struct td_rank_file **out, char tag[TD_TAG_BYTES], struct td_error *err);

/* Makes malloc return freed memory to the system. Call it after freeing a plan of planned_bytes: plans are many small
 * allocations, which malloc's arenas would otherwise retain, beyond the budget. */
void td_rank_store_trim(size_t planned_bytes);

/* Makes several files of one set, and matches the rules with the names of tensors only once for all of them. From the
 * first file that has to be made until td_rank_maker_fini, the maker has one of the places. During that time its thread
 * must not wait for another maker. For one thread; store and set are borrowed. All members but planning_ns are private.
 */
struct td_rank_maker {
    struct td_rank_store *store;
    const struct td_rank_set *set;
    bool has_place, has_basis;
    size_t planned_bytes;     /* of the largest plan so far; at least TD_RANK_TRIM_BYTES after a failure */
    uint64_t planning_ns;     /* the time that planning has taken so far, waiting for a place aside; public */
    struct td_plan_spec spec; /* the specification, when the set has none */
    struct td_plan_basis basis;
};

/* Starts a maker without a place. */
void td_rank_maker_init(struct td_rank_maker *maker, struct td_rank_store *store, const struct td_rank_set *set);

/* Frees the result of the matching and gives the place back. */
void td_rank_maker_fini(struct td_rank_maker *maker);

/* Does what td_rank_store_get does, with the same errors. */
bool td_rank_maker_get(struct td_rank_maker *maker, uint64_t rank, struct td_rank_file **out, char tag[TD_TAG_BYTES],
                       struct td_error *err);

/* Plans a rank's file, of a set that is not of boxes, also when the store has that file, and sets *out. Waits for a
 * place, at most TD_RANK_WAIT_NS. Call td_plan_fini in every case, before td_rank_maker_fini. Errors as
 * td_rank_store_get. */
bool td_rank_maker_plan(struct td_rank_maker *maker, uint64_t rank, struct td_plan *out, struct td_error *err);

/* The plans that clients registered: a td_lru of at most TD_PLAN_STORE_BYTES, whose keys are plan ids. */
enum { TD_PLAN_STORE_BYTES = 64 * 1024 * 1024 };

/* A registered plan: its text, and the members that td_rank_name needs. Shared and immutable. */
struct td_stored_plan {
    _Atomic int refs;
    uint64_t tp_size;                    /* number of ranks */
    bool by_engine, by_config, is_boxes; /* as in td_rank_name */
    struct td_text stands_for;           /* likewise; static text */
    char manifest[TD_TAG_BYTES];         /* the tag of the manifest that the plan is bound to; empty: it is not bound */
    size_t len;                          /* of the text */
    char text[];                         /* the plan as canonical JSON, without a NUL */
};

/* Drops a reference, which td_lru_get and the plan's creation give; the last one frees the plan. NULL: does nothing. */
void td_stored_plan_unref(struct td_stored_plan *plan);

/* Returns the tag of the manifest that the plan is bound to, valid as long as the plan; NULL if it is not bound. */
const char *td_stored_plan_manifest(const struct td_stored_plan *plan);

/* Fills in the set of the plan's rank files: its ranks, how they are named, and the text, which is borrowed. */
void td_stored_plan_describe(const struct td_stored_plan *plan, struct td_rank_set *set);

/* How a td_lru takes and drops references on struct td_stored_plan. */
extern const struct td_lru_class td_plan_store_class;

#endif
