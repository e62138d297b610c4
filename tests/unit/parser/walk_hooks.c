#include "tests/unit/parser/walk_hooks.h"

#include "parser/pickle/pickle.h"
#include "parser/torch/torch_metadata.h"
#include "tests/unit/unit.h"

static uint64_t looks, key_bytes;
static uint64_t looks_allowed = UINT64_MAX, key_bytes_allowed = UINT64_MAX;

void walk_count_start(uint64_t looks_max, uint64_t key_bytes_max)
{
    looks = 0;
    key_bytes = 0;
    looks_allowed = looks_max;
    key_bytes_allowed = key_bytes_max;
}

void walk_count_end(void)
{
    looks_allowed = UINT64_MAX;
    key_bytes_allowed = UINT64_MAX;
}

/* Checks the bounds. Lifts them before a failure, so that they do not fail later tests too. */
static void check_bounds(void)
{
    if (looks <= looks_allowed && key_bytes <= key_bytes_allowed)
        return;
    walk_count_end();
    fail_msg("the walk looked at values %llu times and wrote %llu bytes of keys", (unsigned long long)looks,
             (unsigned long long)key_bytes);
}

static void count_look(void)
{
    looks++;
    check_bounds();
}

enum td_pickle_kind __real_td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref);
enum td_pickle_kind __wrap_td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref);
td_pickle_ref __real_td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i);
td_pickle_ref __wrap_td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i);
const char *__real_td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);
const char *__wrap_td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len);
td_pickle_ref __real_td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
td_pickle_ref __wrap_td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
td_pickle_ref __real_td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
td_pickle_ref __wrap_td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i);
bool __real_td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes,
                               struct td_buffer *out);
bool __wrap_td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes,
                               struct td_buffer *out);

enum td_pickle_kind __wrap_td_pickle_kind(const struct td_pickle *pickle, td_pickle_ref ref)
{
    count_look();
    return __real_td_pickle_kind(pickle, ref);
}

td_pickle_ref __wrap_td_pickle_item(const struct td_pickle *pickle, td_pickle_ref ref, uint32_t i)
{
    count_look();
    return __real_td_pickle_item(pickle, ref, i);
}

const char *__wrap_td_pickle_text(const struct td_pickle *pickle, td_pickle_ref ref, size_t *len)
{
    count_look();
    return __real_td_pickle_text(pickle, ref, len);
}

td_pickle_ref __wrap_td_pickle_map_key(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i)
{
    count_look();
    return __real_td_pickle_map_key(pickle, map, i);
}

td_pickle_ref __wrap_td_pickle_map_value(const struct td_pickle *pickle, const struct td_pickle_map *map, uint32_t i)
{
    count_look();
    return __real_td_pickle_map_value(pickle, map, i);
}

bool __wrap_td_torch_write_key(const struct td_pickle *pickle, td_pickle_ref key, size_t max_bytes,
                               struct td_buffer *out)
{
    size_t before = out->len;
    bool shown = __real_td_torch_write_key(pickle, key, max_bytes, out);
    key_bytes += out->len - before;
    check_bounds();
    return shown;
}
