#include "rank/made_document.h"

#include "core/digits.h"

#include <stdlib.h>
#include <string.h>

static void *class_ref(void *value)
{
    struct td_made_documents *made = value;
    atomic_fetch_add_explicit(&made->refs, 1, memory_order_relaxed);
    return made;
}

static void class_unref(void *value)
{
    td_made_documents_unref(value);
}

const struct td_lru_class td_made_documents_class = {.ref = class_ref, .unref = class_unref};

struct td_made_documents *td_made_documents_create(struct td_error *err)
{
    struct td_made_documents *made = calloc(1, sizeof *made);
    if (made == NULL)
        (void)td_error_no_memory(err);
    else
        atomic_init(&made->refs, 1);
    return made;
}

void td_made_documents_unref(struct td_made_documents *made)
{
    if (made == NULL || atomic_fetch_sub_explicit(&made->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < made->count; i++)
        td_blob_unref(made->items[i].bytes);
    free(made->virtual_files);
    free(made);
}

bool td_made_documents_add(struct td_made_documents *made, const char *media_type, bool is_manifest,
                           struct td_buffer *text, struct td_error *err)
{
    uint8_t sum[TD_SHA256_BYTES];
    struct td_made_document *item = &made->items[made->count];
    size_t len;
    if (made->count == TD_MADE_MOST)
        return td_error_set(err, TD_INTERNAL, "more than %d documents were made together", TD_MADE_MOST);
    char *data = td_buffer_release(text, &len);
    if (data == NULL)
        return td_error_no_memory(err);
    td_sha256(data, len, sum);
    if (!td_blob_from_heap(data, len, &item->bytes, err))
        return false;
    td_hex_write(sum, sizeof sum, item->sha256);
    item->media_type = media_type;
    item->is_manifest = is_manifest;
    made->count++;
    return true;
}

const struct td_made_document *td_made_documents_find(const struct td_made_documents *made, bool is_manifest,
                                                      struct td_text sha256)
{
    for (size_t i = 0; i < made->count; i++)
        if (made->items[i].is_manifest == is_manifest && td_text_equals(sha256, made->items[i].sha256))
            return &made->items[i];
    return NULL;
}

bool td_made_documents_reserve_virtual(struct td_made_documents *made, size_t count, struct td_error *err)
{
    made->virtual_files = count == 0 ? NULL : calloc(count, sizeof *made->virtual_files);
    if (count > 0 && made->virtual_files == NULL)
        return td_error_no_memory(err);
    made->virtual_count = count;
    return true;
}

/* Returns the number of the virtual file with this SHA-256, or virtual_count. */
static size_t find_virtual(const struct td_made_documents *made, const uint8_t sum[TD_SHA256_BYTES])
{
    size_t i = 0;
    while (i < made->virtual_count && memcmp(made->virtual_files[i].digest.sum, sum, TD_SHA256_BYTES) != 0)
        i++;
    return i;
}

size_t td_made_documents_find_virtual(const struct td_made_documents *made, struct td_text sha256)
{
    uint8_t sum[TD_SHA256_BYTES];
    return td_hex_read_bytes(sha256, sum, sizeof sum) ? find_virtual(made, sum) : made->virtual_count;
}

bool td_made_documents_know(const struct td_made_documents *made, const uint8_t sum[TD_SHA256_BYTES])
{
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(sum, TD_SHA256_BYTES, hex);
    for (size_t i = 0; i < made->count; i++)
        if (strcmp(made->items[i].sha256, hex) == 0)
            return true;
    return find_virtual(made, sum) < made->virtual_count;
}

void td_made_documents_note_virtual(const struct td_made_documents *made, struct td_virtual_digests *digests)
{
    struct td_virtual_digest known;
    for (size_t i = 0; i < made->virtual_count; i++) {
        const struct td_made_virtual *file = &made->virtual_files[i];
        if (!td_virtual_digests_find(digests, &file->key, &known))
            td_virtual_digests_add(digests, &file->key, &file->digest);
    }
}

size_t td_made_documents_bytes(const struct td_made_documents *made)
{
    size_t bytes =
        sizeof *made +
        made->virtual_count * sizeof *made->virtual_files; /* the sum of sizes in memory, so it does not overflow */
    for (size_t i = 0; i < made->count; i++)
        bytes += (size_t)made->items[i].bytes->len_bytes;
    return bytes;
}
