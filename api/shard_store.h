/* The files of ranks: made when they are asked for, kept and shared. For every facade that serves them. Thread-safe. */
#ifndef TD_API_SHARD_STORE_H
#define TD_API_SHARD_STORE_H

#include "api/lru.h"
#include "api/shard_name.h"
#include "catalog/catalog.h"
#include "catalog/digest.h"
#include "slicing/plan_spec.h"
#include "slicing/shard_file.h"

enum { TD_SHARD_CACHE_BYTES = 256 * 1024 * 1024 };

struct td_shard_store {
    struct td_catalog *catalog;
    struct td_lru files; /* by tag */
};

/* Of what files are wanted, and which. All is borrowed. */
struct td_shard_want {
    struct td_snapshot *snapshot;
    const struct td_model *model;
    const struct td_checkpoint *checkpoint; /* of the model */
    struct td_shard_name name;
    struct td_text plan; /* of a registered plan: its text. Read when a file has to be made */
    const struct td_plan_spec
        *spec; /* what was read before from that text, or for that engine; NULL: nothing was */
};

/* catalog is borrowed and must outlive the store. False when no lock can be made. */
bool td_shard_store_init(struct td_shard_store *store, struct td_catalog *catalog);
void td_shard_store_fini(struct td_shard_store *store);

/* The validator of a rank's file: what it is made of and how. Nothing is planned. rank is below the name's tp_size.
 * Errors: TD_RESOURCE_EXHAUSTED. */
bool td_shard_store_tag(const struct td_shard_want *want, uint64_t rank, char tag[TD_TAG_BYTES],
                        struct td_error *err);

/* One rank's file (td_shard_file_unref), computed now or before, and its validator. Errors as td_plan_spec_parse,
 * td_plan_spec_apply, td_shard_file_create and td_model_config_text. */
bool td_shard_store_get(struct td_shard_store *store, const struct td_shard_want *want, uint64_t rank,
                        struct td_shard_file **out, char tag[TD_TAG_BYTES], struct td_error *err);

#endif
