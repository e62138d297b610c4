/* Manifests as JSON, rendered window by window: a generated blob whose length is known but whose text is never
 * held whole. One pass lays the text out (where every few hundred tensors begin); sending renders those pieces
 * again as they are needed. Layouts of whole manifests are kept, so the pass is made once per checkpoint. */
#ifndef TD_API_NATIVE_MANIFEST_H
#define TD_API_NATIVE_MANIFEST_H

#include "catalog/snapshot.h"
#include "core/buffer.h"
#include "http/request.h"
#include "storage/blob.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct td_manifest_index;

/* Layouts of whole manifests by checkpoint tag; the least recently used is dropped. */
enum { TD_MANIFEST_CACHE_SLOTS = 64 };

struct td_manifest_cache {
    pthread_mutex_t lock;
    struct td_manifest_index *slots[TD_MANIFEST_CACHE_SLOTS]; /* most recent first */
};

bool td_manifest_cache_init(struct td_manifest_cache *cache);
void td_manifest_cache_fini(struct td_manifest_cache *cache);

struct td_manifest_query {
    const struct td_text *match;  /* glob over names, or NULL */
    const struct td_dtype *dtype; /* only these, or NULL */
    size_t page_size;             /* tensors; 0 = all */
    struct td_text after;         /* continue after this name; len 0 with page_first = from the start */
    bool page_first;
    struct td_text listing; /* names the listing in page tokens */
};

/* A generated blob over the manifest (one reference for the caller). cache may be NULL. The blob holds a
 * reference on the snapshot; it must be read by one thread at a time. */
bool td_manifest_view_create(struct td_manifest_cache *cache, struct td_snapshot *snapshot,
                             const struct td_model *model, const struct td_checkpoint *checkpoint,
                             const struct td_manifest_query *query, struct td_blob **out, struct td_error *err);

/* A tensor's path in the interface: /models/{id}/tensors/{name}[?checkpoint=]. */
void td_manifest_write_href(struct td_buffer *out, const struct td_model *model, const struct td_checkpoint *checkpoint,
                            const struct td_tensor *tensor);

/* A shape as JSON: [2,3]; and strides, which are there. */
void td_manifest_write_shape(struct td_buffer *out, const struct td_tensor *tensor);
void td_manifest_write_strides(struct td_buffer *out, const struct td_tensor *tensor);

#endif
