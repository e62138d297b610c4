/* Tensors in memory, as a list and as the sources of a composed blob. */
#ifndef TD_TESTS_UNIT_SLICING_TENSOR_LIBRARY_H
#define TD_TESTS_UNIT_SLICING_TENSOR_LIBRARY_H

#include "slicing/plan/plan.h"
#include "storage/composed.h"
#include "tests/unit/unit.h"

enum { LIBRARY_TENSORS = 8, LIBRARY_BASE = 5 };

struct tensor_library {
    struct td_tensor tensors[LIBRARY_TENSORS];
    struct td_blob *blobs[LIBRARY_TENSORS]; /* LIBRARY_BASE bytes of padding, then the tensor's bytes */
    size_t count;
    struct td_blob *header; /* source 0, borrowed; tensors begin at 1 */
    int closed;
};

static inline const struct td_tensor *library_get(const void *context, size_t i)
{
    const struct tensor_library *library = context;
    assert_true(i < library->count);
    return &library->tensors[i];
}

static inline struct td_tensor_list library_list(const struct tensor_library *library)
{
    return (struct td_tensor_list){library->count, library_get, library};
}

static inline bool library_open(void *context, uint32_t source, struct td_blob **blob, uint64_t *base,
                                struct td_error *err)
{
    struct tensor_library *library = context;
    (void)err;
    assert_true(source <= library->count);
    *blob = td_blob_ref(source == 0 ? library->header : library->blobs[source - 1]);
    *base = source == 0 ? 0 : LIBRARY_BASE;
    return true;
}

static inline void library_close(void *context)
{
    ((struct tensor_library *)context)->closed++;
}

/* Adds a tensor; borrows the shape. Returns the tensor's bytes, for the caller to fill. */
static inline uint8_t *library_add(struct tensor_library *library, const char *name, const char *dtype, uint32_t rank,
                                   const uint64_t *shape)
{
    assert_true(library->count < LIBRARY_TENSORS);
    struct td_tensor *tensor = &library->tensors[library->count];
    uint64_t elems = 1;
    for (uint32_t i = 0; i < rank; i++)
        elems *= shape[i];
    *tensor = (struct td_tensor){.name = name, .name_len = (uint32_t)strlen(name), .rank = rank, .shape = shape};
    tensor->dtype = td_dtype_find(td_text_of(dtype));
    assert_non_null(tensor->dtype);
    assert_true(td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes));
    size_t len = LIBRARY_BASE + (size_t)tensor->nbytes;
    char *bytes = malloc(len);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(i * 37 + (i >> 8) * 11 + library->count * 101);
    assert_true(td_blob_from_heap(bytes, len, &library->blobs[library->count++], NULL));
    return (uint8_t *)bytes + LIBRARY_BASE;
}

static inline void library_free(struct tensor_library *library)
{
    for (size_t i = 0; i < library->count; i++) {
        assert_int_equal(atomic_load(&library->blobs[i]->refs), 1);
        td_blob_unref(library->blobs[i]);
    }
    library->count = 0;
}

/* Returns all bytes of a layout over the library, which the caller frees with free(). Reads them through the blob and
 * through a resolved body, and checks that both are equal. */
static inline uint8_t *library_read(struct tensor_library *library, struct td_layout *layout)
{
    struct td_blob *blob;
    struct td_body body;
    struct td_body_cursor cursor = {0};
    const struct td_source_opener opener = {library, library_open, library_close};
    size_t len = (size_t)layout->total_bytes;
    uint8_t *bytes = malloc(len + 1);
    uint8_t *again = malloc(len + 1);
    assert_true(bytes != NULL && again != NULL);
    assert_true(td_blob_composed(layout, &opener, &blob, NULL));
    assert_true(td_blob_read(blob, 0, bytes, len, NULL));
    td_body_init(&body);
    assert_true(td_body_append(&body, blob, 0, len, NULL));
    td_blob_unref(blob);
    assert_true(td_body_resolve(&body, NULL));
    assert_true(td_body_read(&body, &cursor, again, len, NULL));
    assert_memory_equal(bytes, again, len);
    td_body_fini(&body);
    free(again);
    return bytes;
}

#endif
