#include "core/json/json_build.h"

#include "core/json/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the allocator of cJSON ---- */

enum { POOL_BYTES = 4096, ALIGNMENT = 16 };

static _Thread_local struct td_json_pool *current;

static void *allocate_from_pool(size_t bytes)
{
    struct td_json_pool *pool = current;
    if (pool == NULL || bytes > POOL_BYTES - pool->used_bytes)
        return malloc(bytes);
    if (pool->block == NULL)
        pool->block = malloc(POOL_BYTES);
    if (pool->block == NULL)
        return NULL;
    char *given = pool->block + pool->used_bytes;
    pool->used_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* POOL_BYTES is a multiple */
    return given;
}

static void release_to_pool(void *memory)
{
    const struct td_json_pool *pool = current;
    uintptr_t at = (uintptr_t)memory;
    bool in_pool =
        pool != NULL && pool->block != NULL && at >= (uintptr_t)pool->block && at < (uintptr_t)pool->block + POOL_BYTES;
    if (!in_pool)
        free(memory);
}

static void install(void)
{
    cJSON_Hooks hooks = {.malloc_fn = allocate_from_pool, .free_fn = release_to_pool};
    cJSON_InitHooks(&hooks);
}

/* Makes cJSON allocate with malloc and free as this program links them, so that tests that count or fail allocations
 * see those of cJSON. Call before any other function of cJSON; later calls do nothing. Thread-safe. */
static void install_hooks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install);
}

/* Makes cJSON allocate from the pool (borrowed; NULL: from malloc) in this thread from now on. Memory of a pool may be
 * freed only while that pool is in use. */
static void use_pool(struct td_json_pool *pool)
{
    current = pool;
}

/* ---- the builder ---- */

/* A raw value from this length on is not copied into the tree. */
enum { LONG_BYTES = 4096 };

void td_json_builder_init(struct td_json_builder *builder, struct td_buffer *out)
{
    install_hooks();
    builder->out = out;
    td_buffer_init(&builder->scratch);
    builder->pool = (struct td_json_pool){0};
    builder->pending_bytes = 0;
    builder->depth = 0;
}

/* Returns the level that owns the tree: the innermost one that is printed, else the outermost. */
static size_t base_level(const struct td_json_builder *builder)
{
    size_t base = builder->depth;
    while (base > 0 && !builder->levels[base - 1].is_printed)
        base--;
    return base > 0 ? base - 1 : 0;
}

/* Frees the tree. */
static void drop_tree(struct td_json_builder *builder)
{
    size_t base = base_level(builder);
    use_pool(&builder->pool);
    if (base < builder->depth)
        cJSON_Delete(builder->levels[base].item);
    use_pool(NULL);
    builder->pool.used_bytes = 0;
    for (size_t i = base; i < builder->depth; i++)
        builder->levels[i].item = NULL;
    builder->pending_bytes = 0;
}

void td_json_builder_fini(struct td_json_builder *builder)
{
    drop_tree(builder);
    builder->depth = 0;
    free(builder->pool.block);
    builder->pool = (struct td_json_pool){0};
    td_buffer_fini(&builder->scratch);
}

/* Appends the tree's text to the buffer. */
static void print(struct td_json_builder *builder, cJSON *tree)
{
    struct td_buffer *out = builder->out;
    size_t room = builder->pending_bytes + 16; /* cJSON wants some bytes more than it writes */
    do {
        if (room > INT_MAX)
            out->failed = true;
        if (!td_buffer_reserve(out, room))
            return;
        room *= 2;
    } while (!cJSON_PrintPreallocated(tree, out->data + out->len, (int)(room / 2), false));
    out->len += strlen(out->data + out->len);
}

void td_json_flush(struct td_json_builder *builder)
{
    struct td_buffer *out = builder->out;
    size_t base = base_level(builder);
    size_t start = out->len;
    cJSON *tree = base < builder->depth ? builder->levels[base].item : NULL;
    if (tree == NULL || (builder->levels[base].is_printed && tree->child == NULL))
        return;
    print(builder, tree);
    if (!out->failed) {
        struct td_json_level *level = &builder->levels[base];
        out->len -= builder->depth - base; /* the closing brackets of what stays open are all at the end */
        if (level->is_printed && level->has_members) {
            out->data[start] = ',';
        } else if (level->is_printed) {
            memmove(out->data + start, out->data + start + 1, out->len - start - 1);
            out->len--;
        }
        for (size_t i = base; i < builder->depth; i++) {
            level = &builder->levels[i];
            level->has_members = level->has_members || level->item->child != NULL;
        }
    }
    drop_tree(builder); /* while is_printed still says which level owns it */
    for (size_t i = base; i < builder->depth; i++)
        builder->levels[i].is_printed = true;
}

/* Adds the item to the innermost level. Takes the item, which is NULL when memory was short. text_bytes: of its value.
 * The pool is in use. Returns false, and marks the buffer failed, when the item could not be added. */
static bool add_item(struct td_json_builder *builder, const char *key, cJSON *item, size_t text_bytes)
{
    if (item == NULL || builder->depth == 0) {
        builder->out->failed = true;
        cJSON_Delete(item);
        return false;
    }
    struct td_json_level *level = &builder->levels[builder->depth - 1];
    if (level->item == NULL)
        level->item = level->is_array ? cJSON_CreateArray() : cJSON_CreateObject();
    if (level->item == NULL ||
        !(key == NULL ? cJSON_AddItemToArray(level->item, item) : cJSON_AddItemToObjectCS(level->item, key, item))) {
        builder->out->failed = true;
        cJSON_Delete(item);
        return false;
    }
    builder->pending_bytes += text_bytes + (key == NULL ? 1 : strlen(key) + 4);
    return true;
}

static void begin_level(struct td_json_builder *builder, const char *key, bool is_array)
{
    struct td_json_level level = {.is_array = is_array};
    if (builder->depth == TD_JSON_BUILD_DEPTH) {
        builder->out->failed = true;
        return;
    }
    if (!builder->out->failed) {
        use_pool(&builder->pool);
        level.item = is_array ? cJSON_CreateArray() : cJSON_CreateObject();
        if (builder->depth > 0 && !add_item(builder, key, level.item, 2))
            level.item = NULL;
        use_pool(NULL);
        builder->out->failed = builder->out->failed || level.item == NULL;
    }
    builder->levels[builder->depth++] = level;
}

void td_json_begin_object(struct td_json_builder *builder, const char *key)
{
    begin_level(builder, key, false);
}

void td_json_begin_array(struct td_json_builder *builder, const char *key)
{
    begin_level(builder, key, true);
}

void td_json_end(struct td_json_builder *builder)
{
    struct td_buffer *out = builder->out;
    if (builder->depth == 0)
        return;
    struct td_json_level *level = &builder->levels[builder->depth - 1];
    if (builder->depth == 1 || level->is_printed) {
        td_json_flush(builder);
        td_buffer_putc(out, level->is_array ? ']' : '}');
        drop_tree(builder);
    }
    builder->depth--;
}

/* Adds the scratch buffer's contents as a value. */
static void add_scratch(struct td_json_builder *builder, const char *key)
{
    const char *text = td_buffer_terminate(&builder->scratch);
    use_pool(&builder->pool);
    (void)add_item(builder, key, text == NULL ? NULL : cJSON_CreateRaw(text), builder->scratch.len);
    use_pool(NULL);
}

/* Returns the emptied scratch buffer, or NULL when nothing more is to be added. */
static struct td_buffer *scratch_of(struct td_json_builder *builder)
{
    td_buffer_clear(&builder->scratch);
    return builder->out->failed ? NULL : &builder->scratch;
}

void td_json_add_text(struct td_json_builder *builder, const char *key, struct td_text text)
{
    struct td_buffer *scratch = scratch_of(builder);
    if (scratch == NULL)
        return;
    td_json_write_string(scratch, text);
    add_scratch(builder, key);
}

void td_json_add_string(struct td_json_builder *builder, const char *key, const char *text)
{
    td_json_add_text(builder, key, td_text_of(text));
}

void td_json_add_u64(struct td_json_builder *builder, const char *key, uint64_t value)
{
    struct td_buffer *scratch = scratch_of(builder);
    if (scratch == NULL)
        return;
    td_buffer_u64(scratch, value);
    add_scratch(builder, key);
}

void td_json_add_seconds(struct td_json_builder *builder, const char *key, double seconds)
{
    struct td_buffer *scratch = scratch_of(builder);
    if (scratch == NULL)
        return;
    td_buffer_printf(scratch, "%.3f", seconds);
    add_scratch(builder, key);
}

void td_json_add_bool(struct td_json_builder *builder, const char *key, bool value)
{
    td_json_add_raw(builder, key, value ? TD_TEXT("true") : TD_TEXT("false"));
}

void td_json_add_null(struct td_json_builder *builder, const char *key)
{
    td_json_add_raw(builder, key, TD_TEXT("null"));
}

/* Appends a value, or with key NULL an element or members, to the buffer itself. */
static void append_raw(struct td_json_builder *builder, const char *key, struct td_text json)
{
    struct td_buffer *out = builder->out;
    struct td_json_level *level = &builder->levels[builder->depth - 1];
    td_json_flush(builder);
    if (level->has_members)
        td_buffer_putc(out, ',');
    if (key != NULL) {
        td_json_write_cstring(out, key);
        td_buffer_putc(out, ':');
    }
    td_buffer_append(out, json.p, json.len);
    level->has_members = true;
}

void td_json_add_raw(struct td_json_builder *builder, const char *key, struct td_text json)
{
    struct td_buffer *scratch = scratch_of(builder);
    if (scratch == NULL)
        return;
    if (json.len >= LONG_BYTES && builder->depth > 0) {
        append_raw(builder, key, json);
        return;
    }
    td_buffer_append(scratch, json.p, json.len);
    add_scratch(builder, key);
}

void td_json_add_members(struct td_json_builder *builder, struct td_text members)
{
    if (builder->depth == 0)
        builder->out->failed = true;
    else if (!builder->out->failed)
        append_raw(builder, NULL, members);
}
