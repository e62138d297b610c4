/* Shared by the tests of the sandbox: files of many formats, and whether two parses of one file left the same. */
#ifndef TD_TESTS_UNIT_CATALOG_CONTENT_CHECK_H
#define TD_TESTS_UNIT_CATALOG_CONTENT_CHECK_H

#include "catalog/model/file_content.h"
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

/* The inputs of fuzz targets, and the name that makes the catalog parse them as that format. */
static const struct {
    const char *corpus, *name;
} corpora[] = {{"safetensors", "x.safetensors"},
               {"gguf", "x.gguf"},
               {"torch", "x.pt"},
               {"pickle", "x.bin"},
               {"onnx", "x.onnx"},
               {"hdf5", "x.h5"},
               {"npy", "x.npy"},
               {"zip", "x.npz"},
               {"pt2", "x.pt2"},
               {"shard_index", "model.safetensors.index.json"},
               {"model_card", "README.md"},
               {"json", "config.json"},
               {"json", "tokenizer_config.json"}};

static void (*visit_file)(const char *path, const char *name);
static const char *visit_name;
static size_t visited;

static inline int visit_entry(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    if (kind == FTW_F) {
        visit_file(path, visit_name == NULL ? path + place->base : visit_name);
        visited++;
    }
    return 0;
}

/* Calls visit with each file of tests/data and each input of the corpora, and the name that it is parsed by. Returns
 * how many there were. */
static inline size_t each_fixture(void (*visit)(const char *path, const char *name))
{
    char path[512];
    visit_file = visit;
    visit_name = NULL;
    visited = 0;
    assert_int_equal(nftw(TD_TEST_ROOT "/data", visit_entry, 16, FTW_PHYS), 0);
    for (size_t i = 0; i < COUNT_OF(corpora); i++) {
        (void)snprintf(path, sizeof path, "%s/fuzz/corpus/%s", TD_TEST_ROOT, corpora[i].corpus);
        visit_name = corpora[i].name;
        assert_int_equal(nftw(path, visit_entry, 16, FTW_PHYS), 0);
    }
    return visited;
}

/* Returns the file at the path, not parsed yet, and opens it. */
static inline struct td_file *open_fixture(const char *path, const char *name, const struct td_limits *limits, int *fd)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(*fd >= 0 && fstat(*fd, &st) == 0, "%s", path);
    struct td_file_id id = td_file_id_of(&st);
    struct td_file *file = td_file_create(path, name, &id, NULL, limits);
    assert_non_null(file);
    return file;
}

static inline bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static inline bool same_numbers(const uint64_t *a, const uint64_t *b, size_t count)
{
    return count == 0 || (a == NULL || b == NULL ? a == b : memcmp(a, b, count * sizeof *a) == 0);
}

static inline void check_coding(const struct td_coding *a, const struct td_coding *b, const char *path)
{
    const struct td_coding_grid *x = &a->grid;
    const struct td_coding_grid *y = &b->grid;
    CHECK(a->kind == b->kind && a->number == b->number && same_text(a->text, b->text), "%s", path);
    CHECK(a->size_bytes == b->size_bytes && a->base == b->base && a->crc32 == b->crc32, "%s", path);
    CHECK(a->offset == b->offset && a->stored_bytes == b->stored_bytes, "%s", path);
    if (a->kind != TD_CODING_CHUNKS)
        return;
    CHECK(x->rank == y->rank && x->elem_bytes == y->elem_bytes && x->filter_count == y->filter_count, "%s", path);
    CHECK(same_numbers(x->shape, y->shape, x->rank), "%s", path);
    CHECK(same_numbers(x->chunk_shape, y->chunk_shape, x->rank), "%s", path);
    CHECK((x->fill == NULL) == (y->fill == NULL), "%s", path);
    CHECK(x->fill == NULL || memcmp(x->fill, y->fill, x->elem_bytes) == 0, "%s", path);
    for (uint32_t i = 0; i < x->filter_count; i++)
        CHECK(x->filters[i].kind == y->filters[i].kind && x->filters[i].elem_bytes == y->filters[i].elem_bytes, "%s",
              path);
    CHECK(x->chunk_count == y->chunk_count, "%s", path);
    for (size_t i = 0; i < x->chunk_count; i++)
        CHECK(x->chunks[i].number == y->chunks[i].number && x->chunks[i].offset == y->chunks[i].offset &&
                  x->chunks[i].bytes == y->chunks[i].bytes &&
                  x->chunks[i].skipped_filters == y->chunks[i].skipped_filters,
              "%s", path);
}

static inline void check_tensor(const struct td_tensor *a, const struct td_tensor *b, const char *path)
{
    CHECK(td_text_compare(td_tensor_name(a), td_tensor_name(b)) == 0, "%s", path);
    CHECK(a->dtype == b->dtype && a->rank == b->rank && a->nbytes == b->nbytes && a->offset == b->offset, "%s: %s",
          path, a->name);
    CHECK(same_numbers(a->shape, b->shape, a->rank) && same_numbers(a->strides, b->strides, a->rank), "%s: %s", path,
          a->name);
    CHECK(a->big_endian == b->big_endian && a->file == b->file && same_text(a->reason, b->reason), "%s: %s", path,
          a->name);
    CHECK(same_text(a->alias_of, b->alias_of) && (a->coding == NULL) == (b->coding == NULL), "%s: %s", path, a->name);
    CHECK(a->coding == NULL || a->coding->number == b->coding->number, "%s: %s", path, a->name);
}

static inline void check_manifest(const struct td_manifest *a, const struct td_manifest *b, const char *path)
{
    CHECK(a->tensor_count == b->tensor_count && a->metadata_count == b->metadata_count, "%s", path);
    CHECK(a->file_count == b->file_count && a->coding_count == b->coding_count, "%s", path);
    CHECK(a->total_bytes == b->total_bytes && a->bare == b->bare && a->shares_bytes == b->shares_bytes, "%s", path);
    CHECK(a->split_number == b->split_number && a->split_count == b->split_count, "%s", path);
    for (size_t i = 0; i < a->tensor_count; i++)
        check_tensor(&a->tensors[i], &b->tensors[i], path);
    for (size_t i = 0; i < a->metadata_count; i++)
        CHECK(same_text(a->metadata[i].key, b->metadata[i].key) &&
                  same_text(a->metadata[i].value, b->metadata[i].value),
              "%s", path);
    for (size_t i = 0; i < a->file_count; i++)
        CHECK(same_text(a->files[i], b->files[i]), "%s", path);
    const struct td_coding *x = a->codings;
    for (const struct td_coding *y = b->codings; y != NULL; x = x->next, y = y->next)
        check_coding(x, y, path);
}

static inline void check_index(const struct td_shard_index *a, const struct td_shard_index *b, const char *path)
{
    CHECK(a->file_count == b->file_count && a->entry_count == b->entry_count && a->by_group == b->by_group, "%s", path);
    CHECK(a->is_delta == b->is_delta && same_text(a->base_version, b->base_version), "%s", path);
    for (size_t i = 0; i < a->file_count; i++)
        CHECK(same_text(a->files[i], b->files[i]), "%s", path);
    for (size_t i = 0; i < a->entry_count; i++)
        CHECK(same_text(a->entries[i].tensor, b->entries[i].tensor) &&
                  a->entries[i].tensor_len == b->entries[i].tensor_len && a->entries[i].file == b->entries[i].file,
              "%s", path);
}

static inline void check_dcp(const struct td_dcp *a, const struct td_dcp *b, const char *path)
{
    CHECK(a->file_count == b->file_count && a->tensor_count == b->tensor_count, "%s", path);
    for (size_t i = 0; i < a->file_count; i++)
        CHECK(same_text(a->files[i], b->files[i]), "%s", path);
    for (size_t i = 0; i < a->tensor_count; i++) {
        const struct td_dcp_tensor *x = &a->tensors[i];
        const struct td_dcp_tensor *y = &b->tensors[i];
        CHECK(same_text(x->name, y->name) && x->name_len == y->name_len && x->dtype == y->dtype && x->rank == y->rank &&
                  same_numbers(x->shape, y->shape, x->rank) && x->piece_count == y->piece_count,
              "%s: %s", path, x->name);
        for (uint32_t k = 0; k < x->piece_count; k++) {
            const struct td_dcp_piece *p = &x->pieces[k];
            const struct td_dcp_piece *q = &y->pieces[k];
            CHECK(p->file == q->file && p->item_offset == q->item_offset && p->item_bytes == q->item_bytes &&
                      same_numbers(p->starts, q->starts, x->rank) && same_numbers(p->sizes, q->sizes, x->rank) &&
                      same_text(p->reason, q->reason),
                  "%s: %s", path, x->name);
        }
    }
}

static inline void check_facts(const struct td_facts *a, const struct td_facts *b, const char *path)
{
    CHECK((a == NULL) == (b == NULL), "%s", path);
    if (a == NULL || b == NULL)
        return;
    CHECK(a->json_len == b->json_len && same_text(a->json, b->json), "%s", path);
    CHECK(same_text(a->pipeline_tag, b->pipeline_tag) && same_text(a->library_name, b->library_name), "%s", path);
    CHECK(same_text(a->architecture, b->architecture) && same_text(a->model_type, b->model_type), "%s", path);
    CHECK(a->has_chat_template == b->has_chat_template && a->tag_count == b->tag_count, "%s", path);
    for (size_t i = 0; i < a->tag_count; i++)
        CHECK(same_text(a->tags[i].value, b->tags[i].value) && a->tags[i].key == b->tags[i].key &&
                  a->tags[i].repeats == b->tags[i].repeats,
              "%s", path);
}

static inline void check_same_error(const struct td_error *a, const struct td_error *b, const char *path)
{
    CHECK(a->code == b->code && a->pos == b->pos && a->sys == b->sys, "%s: %s / %s", path, a->message, b->message);
    CHECK(strcmp(a->message, b->message) == 0, "%s: %s / %s", path, a->message, b->message);
}

/* Checks that b has everything that a parse left in a. */
static inline void check_same_content(const struct td_file *a, const struct td_file *b, bool ok, const char *path)
{
    CHECK(a->kind == b->kind && a->is_lfs_pointer == b->is_lfs_pointer, "%s", path);
    check_facts(a->facts, b->facts, path);
    if (!ok)
        return; /* nobody looks at the rest */
    CHECK(a->format == b->format && a->count_count == b->count_count, "%s", path);
    for (size_t i = 0; i < a->count_count; i++)
        CHECK(a->counts[i].dtype == b->counts[i].dtype && a->counts[i].elems == b->counts[i].elems, "%s", path);
    if (a->format != NULL)
        check_manifest(&a->manifest, &b->manifest, path);
    check_index(&a->index, &b->index, path);
    check_dcp(&a->dcp, &b->dcp, path);
}

#endif
