#include "api/shard_store.h"

#include "api/config_text.h"
#include "api/tensor_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *file_ref(void *value)
{
    return td_shard_file_ref(value);
}

static void file_unref(void *value)
{
    td_shard_file_unref(value);
}

static const struct td_lru_class file_class = {.ref = file_ref, .unref = file_unref};

bool td_shard_store_init(struct td_shard_store *store, struct td_catalog *catalog)
{
    store->catalog = catalog;
    return td_lru_init(&store->files, &file_class, TD_SHARD_CACHE_BYTES);
}

void td_shard_store_fini(struct td_shard_store *store)
{
    td_lru_fini(&store->files);
}

bool td_shard_store_tag(const struct td_shard_want *want, uint64_t rank, char tag[TD_TAG_BYTES],
                        struct td_error *err)
{
    const struct td_shard_name *name = &want->name;
    const struct td_entry *config = want->model->config;
    uint64_t numbers[] = {name->tp_size, rank, name->by_engine ? TD_ENGINE_REVISION : 0};
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "shard");
    td_digest_add_cstring(digest, want->checkpoint->tag);
    td_digest_add_cstring(digest, name->by_config && config != NULL ? td_file_tag(config->file) : "");
    td_digest_add(digest, name->engine.p, name->engine.len);
    td_digest_add(digest, name->id.p, name->id.len);
    td_digest_add(digest, numbers, sizeof numbers);
    return td_digest_finish(digest, tag) || td_error_no_memory(err);
}

/* A rank's file by this specification. */
static bool make_file(const struct td_shard_store *store, const struct td_shard_want *want,
                      const struct td_plan_spec *spec, uint64_t rank, struct td_shard_file **out,
                      struct td_error *err)
{
    char id[TD_TAG_BYTES] = "";
    char size_text[24];
    char rank_text[24];
    char *config = NULL;
    size_t config_len = 0;
    struct td_plan plan = {0};
    struct td_tensor_list tensors = td_checkpoint_tensors(want->checkpoint);
    const struct td_text *plan_id = &want->name.id;
    (void)snprintf(size_text, sizeof size_text, "%" PRIu64, spec->tp_size);
    (void)snprintf(rank_text, sizeof rank_text, "%" PRIu64, rank);
    memcpy(id, plan_id->p == NULL ? "" : plan_id->p, plan_id->len);
    const struct td_shard_metadata metadata[] = {
        {"format", "pt"},
        {"model", want->model->id},
        {"engine", plan_id->len > 0 ? "plan" : spec->engine},
        {"tp_size", size_text},
        {"tp_rank", rank_text},
        {"plan", id},
    };
    size_t metadata_count = sizeof metadata / sizeof *metadata - (plan_id->len > 0 ? 0 : 1);
    bool ok = (spec->engine == NULL || td_model_config_text(store->catalog, want->snapshot, want->model,
                                                            &config, &config_len, err)) &&
              td_plan_spec_apply(spec, config, config_len, &tensors, rank, &plan, err) &&
              td_shard_file_create(&plan, &tensors, metadata, metadata_count, true, out, err);
    td_plan_fini(&plan);
    free(config);
    return ok;
}

/* The same, the specification being read when there is none yet. */
static bool read_and_make(const struct td_shard_store *store, const struct td_shard_want *want, uint64_t rank,
                          struct td_shard_file **out, struct td_error *err)
{
    struct td_plan_spec spec = {0};
    const struct td_text *engine = &want->name.engine;
    if (want->spec != NULL)
        return make_file(store, want, want->spec, rank, out, err);
    bool ok =
        (engine->len > 0 ? td_plan_spec_init_engine(&spec, engine->p, engine->len, want->name.tp_size, err)
                         : td_plan_spec_parse(&spec, want->plan.p, want->plan.len, err)) &&
        make_file(store, want, &spec, rank, out, err);
    td_plan_spec_fini(&spec);
    return ok;
}

bool td_shard_store_get(struct td_shard_store *store, const struct td_shard_want *want, uint64_t rank,
                        struct td_shard_file **out, char tag[TD_TAG_BYTES], struct td_error *err)
{
    if (!td_shard_store_tag(want, rank, tag, err))
        return false;
    *out = td_lru_get(&store->files, tag);
    if (*out != NULL)
        return true;
    if (!read_and_make(store, want, rank, out, err))
        return false;
    (void)td_lru_put(&store->files, tag, *out, td_shard_file_memory_bytes(*out));
    return true;
}
