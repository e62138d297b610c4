#include "rank/rank_digest.h"

#include "rank/tensor_source.h"
#include "slicing/engine/engine.h"

#include <stdlib.h>

bool td_rank_digest_key_of_tag(const struct td_repo_item *item, const char *tag, struct td_virtual_key *key,
                               struct td_error *err)
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "rank file");
    td_digest_add_cstring(digest, tag);
    td_digest_add_cstring(digest, item->model->id);
    return td_digest_finish_binary(digest, key->bytes) || td_error_no_memory(err);
}

/* Computes the key of a tag: of the current one, or of the one before all files were hashed. */
static bool make_key(const struct td_repo_view *view, const struct td_repo_item *item, bool former,
                     struct td_virtual_key *key, struct td_error *err)
{
    const struct td_rank_set set = td_repo_view_rank_set(view, item->model);
    char tag[TD_TAG_BYTES];
    return (former ? td_rank_store_former_tag(&set, item->rank, tag, err)
                   : td_rank_store_tag(&set, item->rank, tag, err)) &&
           td_rank_digest_key_of_tag(item, tag, key, err);
}

bool td_rank_digest_key(const struct td_repo_view *view, const struct td_repo_item *item, struct td_virtual_key *key,
                        struct td_error *err)
{
    return make_key(view, item, false, key, err);
}

void td_rank_digest_origin(const struct td_repo_view *view, struct td_virtual_revision *out)
{
    *out = (struct td_virtual_revision){.kind = view->kind, .tp_size = view->name.tp_size, .rank = view->rank};
    (void)td_engine_number(view->name.engine, &out->engine); /* the view's engine exists */
}

bool td_rank_digest_find(struct td_virtual_hasher *hasher, const struct td_repo_view *view,
                         const struct td_repo_item *item, const struct td_virtual_key *key, bool *is_known,
                         struct td_virtual_digest *out, struct td_error *err)
{
    struct td_virtual_digests *digests = td_virtual_hasher_digests(hasher);
    struct td_virtual_key former;
    *is_known = td_virtual_digests_find(digests, key, out);
    if (*is_known)
        return true;
    if (!make_key(view, item, true, &former, err))
        return false;
    *is_known = td_virtual_digests_find(digests, &former, out);
    if (*is_known)
        td_virtual_digests_add(digests, key, out);
    return true;
}

/* The recipe of a rank file: its body, which opens the checkpoint's files when they are read. */
static bool give_body(void *context, struct td_body *body, struct td_error *err)
{
    struct td_body *made = context;
    (void)err;
    *body = *made;
    td_body_init(made);
    return true;
}

static void free_body(void *context)
{
    td_body_fini(context);
    free(context);
}

bool td_rank_digest_begin(struct td_virtual_hasher *hasher, struct td_rank_store *store,
                          const struct td_repo_view *view, const struct td_repo_item *item,
                          const struct td_virtual_key *key, uint64_t client, struct td_error *err)
{
    const struct td_rank_set set = td_repo_view_rank_set(view, item->model);
    struct td_virtual_file wanted = {.key = *key, .client = client, .snapshot = NULL}; /* the body holds the snapshot */
    struct td_rank_file *file = NULL;
    struct td_error why = TD_ERROR_INIT;
    char tag[TD_TAG_BYTES];
    if (td_virtual_hasher_has(hasher, key))
        return true;
    td_rank_digest_origin(view, &wanted.origin);
    wanted.owner = td_virtual_owner(item->model->id);
    struct td_body *body = malloc(sizeof *body);
    if (body == NULL)
        return td_error_no_memory(err);
    td_body_init(body);
    bool ok = td_rank_store_get(store, &set, item->rank, &file, tag, &why) &&
              td_rank_file_append(store->catalog, view->snapshot, set.checkpoint, file,
                                  td_virtual_hasher_cancel(hasher), body, &why);
    td_rank_file_unref(file);
    wanted.size_bytes = body->total_bytes;
    wanted.recipe = (struct td_virtual_recipe){.context = body, .open = give_body, .free = free_body};
    if (ok)
        return td_virtual_hasher_begin(hasher, &wanted, err);
    free_body(body);
    return td_repo_view_refuse(view, item->model, &why, err);
}
