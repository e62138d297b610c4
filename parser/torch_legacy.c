#include "parser/torch_legacy.h"

#include "core/checked.h"
#include "parser/names.h"
#include "parser/pickle.h"
#include "parser/torch_walk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PICKLES = 5, FIRST_READ_BYTES = 64 * 1024 };

enum part { PART_MAGIC, PART_PROTOCOL, PART_SYSTEM, PART_OBJECT, PART_KEYS };

/* A storage that the pickle refers to, and where it turned out to be. */
struct stored {
    const char *key;
    size_t key_len;
    const struct td_dtype *dtype;
    uint64_t numel, nbytes;
    uint64_t offset;
    bool placed;
};

struct legacy {
    const struct td_input *input;
    const struct td_limits *limits;
    uint8_t *bytes; /* the pickles, and perhaps some of what follows */
    size_t len;
    struct td_pickle pickles[PICKLES];
    size_t parsed;
    struct stored *stored; /* sorted by key, unique */
    size_t stored_count;
    struct td_error *err;
};

static bool refuse(const struct legacy *l, enum part part, td_pickle_ref at, const char *what)
{
    return td_error_at(l->err, TD_INVALID_ARGUMENT, td_pickle_position(&l->pickles[part], at), "%s", what);
}

/* ---- the pickles --------------------------------------------------------------------------------------- */

static void forget_pickles(struct legacy *l)
{
    while (l->parsed > 0)
        td_pickle_fini(&l->pickles[--l->parsed]);
    free(l->bytes);
    l->bytes = NULL;
}

/* torch.save's own number, 0x1950a86a20f9469cfc6c, tells these files from other pickles. */
static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

bool td_torch_is_legacy(const uint8_t *head, size_t len)
{
    enum { PROTO = 0x80, FRAME = 0x95, FRAME_BYTES = 9, LONG1 = 0x8a };
    size_t at =
        len > 2 && head[2] == FRAME ? 2 + FRAME_BYTES : 2; /* from protocol 4 on a frame comes first */
    return len >= at + 2 + sizeof magic && head[0] == PROTO && head[at] == LONG1 &&
           head[at + 1] == sizeof magic && memcmp(head + at + 2, magic, sizeof magic) == 0;
}

static bool check_magic(const struct legacy *l)
{
    const struct td_pickle *p = &l->pickles[PART_MAGIC];
    size_t len;
    const uint8_t *number = td_pickle_big_int(p, p->root, &len);
    return (number != NULL && len == sizeof magic && memcmp(number, magic, len) == 0) ||
           refuse(l, PART_MAGIC, p->root, "a pickle, but not of torch.save: its magic number is missing");
}

static bool parse_pickles(struct legacy *l, struct td_error *err)
{
    size_t start = 0;
    for (size_t i = 0; i < PICKLES; i++) {
        struct td_pickle_options options = {.max_memory_bytes = l->limits->max_memory_bytes,
                                            .allow_trailing = true};
        bool ok = td_pickle_parse(&l->pickles[i], l->bytes, l->len, start, &options, err);
        l->parsed = i + 1;
        if (!ok || (i == PART_MAGIC && !check_magic(l)))
            return false;
        start = l->pickles[i].end;
    }
    return true;
}

/* How long the pickles are nobody says, so ever more of the file is read until they are whole. */
static bool read_pickles(struct legacy *l)
{
    for (uint64_t wanted = FIRST_READ_BYTES;; wanted *= 4) {
        uint64_t most = l->input->size_bytes < l->limits->max_header_bytes ? l->input->size_bytes
                                                                           : l->limits->max_header_bytes;
        bool last = wanted >= most;
        struct td_error why;
        td_error_init(&why);
        l->len = (size_t)(last ? most : wanted);
        l->bytes = td_input_load(l->input, 0, l->len, l->len, l->err);
        if (l->bytes == NULL)
            return false;
        if (parse_pickles(l, last ? l->err : &why))
            return true;
        if (last || l->err->code != TD_OK)
            return false;
        forget_pickles(l);
    }
}

static bool check_head(const struct legacy *l, bool *big_endian)
{
    int64_t protocol;
    const struct td_pickle *p = &l->pickles[PART_PROTOCOL];
    const struct td_pickle *system = &l->pickles[PART_SYSTEM];
    if (!td_pickle_int(p, p->root, &protocol) || protocol != 1001)
        return refuse(l, PART_PROTOCOL, p->root, "its protocol version is not 1001, the only one there was");
    td_pickle_ref little = td_pickle_get(system, system->root, "little_endian");
    if (td_pickle_kind(system, little) != TD_PICKLE_BOOL)
        return refuse(l, PART_SYSTEM, system->root, "it does not say whether it is little-endian");
    *big_endian = !td_pickle_bool(system, little);
    return true;
}

/* ---- storages ------------------------------------------------------------------------------------------ */

static struct td_name stored_name(const void *context, size_t i)
{
    const struct stored *stored = context;
    return (struct td_name){.text = stored[i].key, .len = stored[i].key_len};
}

/* Every persistent id of the object, whether the walk will meet it or not: their sizes say where the next one is. */
static bool collect(struct legacy *l)
{
    const struct td_pickle *p = &l->pickles[PART_OBJECT];
    size_t count = 0;
    for (td_pickle_ref ref = 1; ref <= p->value_count; ref++)
        count += td_pickle_kind(p, ref) == TD_PICKLE_PERSISTENT ? 1 : 0;
    l->stored = calloc(count + 1, sizeof *l->stored);
    if (l->stored == NULL)
        return td_error_no_memory(l->err);
    for (td_pickle_ref ref = 1; ref <= p->value_count; ref++) {
        struct td_torch_storage storage;
        bool is_storage;
        if (td_pickle_kind(p, ref) != TD_PICKLE_PERSISTENT)
            continue;
        if (!td_torch_storage_read(p, ref, &is_storage, &storage, l->err))
            return false;
        if (!is_storage)
            continue;
        if (storage.dtype == NULL)
            return refuse(l, PART_OBJECT, ref,
                          "a storage is of a class that is not known, so its size is not either");
        l->stored[l->stored_count++] = (struct stored){.key = storage.key,
                                                       .key_len = storage.key_len,
                                                       .dtype = storage.dtype,
                                                       .numel = storage.numel,
                                                       .nbytes = storage.nbytes};
    }
    return true;
}

/* Sorts by key; what is said of one key must be the same everywhere. */
static bool merge(struct legacy *l)
{
    struct td_order *order;
    struct td_names names = {.count = l->stored_count, .context = l->stored, .get = stored_name};
    if (!td_names_order(&names, &order, l->err))
        return false;
    td_order_apply(order, names.count, l->stored, sizeof *l->stored);
    free(order);
    size_t kept = 0;
    for (size_t i = 0; i < l->stored_count; i++) {
        struct stored *before = kept > 0 ? &l->stored[kept - 1] : NULL;
        const struct stored *here = &l->stored[i];
        if (before == NULL || td_name_compare(before->key, before->key_len, here->key, here->key_len) != 0)
            l->stored[kept++] = *here;
        else if (before->nbytes != here->nbytes || before->dtype->block_bytes != here->dtype->block_bytes)
            return td_error_set(l->err, TD_INVALID_ARGUMENT, "storage \"%.*s\" is referred to with two sizes",
                                (int)(here->key_len < 96 ? here->key_len : 96), here->key);
    }
    l->stored_count = kept;
    return true;
}

static struct stored *find_stored(const struct legacy *l, const char *key, size_t len)
{
    struct td_names names = {.count = l->stored_count, .context = l->stored, .get = stored_name};
    bool found;
    size_t at = td_names_search(&names, key, len, &found);
    return found ? &l->stored[at] : NULL;
}

/* One storage: its number of elements, then they. */
static bool place_stored(const struct legacy *l, td_pickle_ref key_ref, uint64_t *pos)
{
    const struct td_pickle *keys = &l->pickles[PART_KEYS];
    size_t len;
    uint8_t count[8];
    const char *key = td_pickle_text(keys, key_ref, &len);
    struct stored *stored =
        td_pickle_kind(keys, key_ref) == TD_PICKLE_STRING ? find_stored(l, key, len) : NULL;
    if (stored == NULL)
        return refuse(l, PART_KEYS, key_ref, "the list of storages has one that no tensor refers to");
    if (stored->placed)
        return refuse(l, PART_KEYS, key_ref, "the list of storages has one of them twice");
    if (!td_input_read(l->input, *pos, count, sizeof count, l->err))
        return false;
    if (td_load_le64(count) != stored->numel)
        return td_error_at(l->err, TD_INVALID_ARGUMENT, *pos,
                           "storage \"%.*s\" should have %" PRIu64 " elements, but says %" PRId64,
                           (int)(len < 96 ? len : 96), key, stored->numel, (int64_t)td_load_le64(count));
    stored->offset = *pos + sizeof count;
    stored->placed = true;
    if (stored->nbytes > l->input->size_bytes - stored->offset)
        return td_error_at(l->err, TD_INVALID_ARGUMENT, stored->offset,
                           "storage \"%.*s\" needs %" PRIu64 " bytes, the file ends after %" PRIu64,
                           (int)(len < 96 ? len : 96), key, stored->nbytes,
                           l->input->size_bytes - stored->offset);
    *pos = stored->offset + stored->nbytes;
    return true;
}

static bool place_all(struct legacy *l)
{
    const struct td_pickle *keys = &l->pickles[PART_KEYS];
    uint64_t pos = keys->end;
    if (td_pickle_kind(keys, keys->root) != TD_PICKLE_LIST)
        return refuse(l, PART_KEYS, keys->root, "what follows the object is no list of storages");
    uint32_t count = td_pickle_count(keys, keys->root);
    for (uint32_t i = 0; i < count; i++)
        if (!place_stored(l, td_pickle_item(keys, keys->root, i), &pos))
            return false;
    if (count != l->stored_count)
        return refuse(l, PART_KEYS, keys->root, "the list of storages lacks one that a tensor refers to");
    return pos == l->input->size_bytes ||
           td_error_at(l->err, TD_INVALID_ARGUMENT, pos,
                       "%" PRIu64 " bytes follow the last storage, where the file should end",
                       l->input->size_bytes - pos);
}

static bool find_storage(const void *context, const struct td_torch_storage *storage, uint64_t pos,
                         struct td_torch_place *out, struct td_error *err)
{
    const struct stored *stored = find_stored(context, storage->key, storage->key_len);
    if (stored == NULL)
        return td_error_at(err, TD_INTERNAL, pos, "a storage was not met before");
    *out = (struct td_torch_place){.begin = stored->offset, .nbytes = stored->nbytes};
    return true;
}

bool td_torch_parse_legacy(const struct td_input *input, const struct td_limits *limits,
                           struct td_manifest *manifest, struct td_error *err)
{
    struct td_error own;
    struct legacy l = {.input = input, .limits = limits, .err = err != NULL ? err : &own};
    struct td_torch_places places = {.context = &l, .find = find_storage, .has_modules = true};
    td_error_init(&own);
    bool ok =
        read_pickles(&l) && check_head(&l, &places.big_endian) && collect(&l) && merge(&l) && place_all(&l) &&
        td_torch_walk(&l.pickles[PART_OBJECT], l.pickles[PART_OBJECT].root, &places, "", manifest, l.err) &&
        td_torch_finish(manifest, l.err);
    forget_pickles(&l);
    free(l.stored);
    return ok;
}
