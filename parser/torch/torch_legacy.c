/* A legacy file is five pickles, one after another, then the storages. The pickles are: torch.save's magic number, the
 * protocol version, facts about the system, the object itself, and the list of the storages' keys in the order in which
 * they follow. Each storage is its number of elements and then the elements. No pickle says how long it is, so the file
 * is read in ever larger pieces until all five are whole; and the place of a storage depends on the sizes of all before
 * it, so all storages must be known before the first tensor is listed. */
#include "parser/torch/torch_legacy.h"

#include "core/checked.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_ids.h"
#include "parser/torch/torch_walk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PICKLES = 5, FIRST_READ_BYTES = 64 * 1024 };

enum part { PART_MAGIC, PART_PROTOCOL, PART_SYSTEM, PART_OBJECT, PART_KEYS };

struct legacy {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_arena *budget; /* the manifest's arena: memory beside it counts too */
    uint8_t *bytes;          /* the pickles, and perhaps some bytes after them */
    size_t len;
    struct td_pickle pickles[PICKLES];
    size_t parsed;
    struct td_torch_ids ids;
    uint64_t *offsets; /* position of the storage in the file, by its place in ids; 0 until it is known */
    struct td_error *err;
};

static bool refuse_pickle(const struct legacy *l, enum part part, td_pickle_ref at, const char *what)
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

/* torch.save's magic number, 0x1950a86a20f9469cfc6c, distinguishes these files from other pickles. */
static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

bool td_torch_is_legacy(const uint8_t *head, size_t len)
{
    static const struct td_text decimal = TD_TEXT("L119547037146038801333356L\n."); /* protocols 0 and 1 */
    enum { PROTO = 0x80, FRAME = 0x95, FRAME_BYTES = 9, LONG1 = 0x8a };
    size_t at = len > 2 && head[2] == FRAME ? 2 + FRAME_BYTES : 2; /* protocols from 4 on begin with a frame */
    if (td_text_begins(td_text_n((const char *)head, len), decimal))
        return true;
    return len >= at + 2 + sizeof magic && head[0] == PROTO && head[at] == LONG1 && head[at + 1] == sizeof magic &&
           memcmp(head + at + 2, magic, sizeof magic) == 0;
}

static bool check_magic(const struct legacy *l)
{
    const struct td_pickle *p = &l->pickles[PART_MAGIC];
    size_t len;
    const uint8_t *number = td_pickle_big_int(p, p->root, &len);
    return (number != NULL && len == sizeof magic && memcmp(number, magic, len) == 0) ||
           refuse_pickle(l, PART_MAGIC, p->root, "a pickle, but not of torch.save: its magic number is missing");
}

/* Parses the five pickles. All are held at once, within one file's memory limit. */
static bool parse_pickles(struct legacy *l, struct td_error *err)
{
    size_t start = 0;
    for (size_t i = 0; i < PICKLES; i++) {
        struct td_pickle *pickle = &l->pickles[i];
        struct td_pickle_options options = {.max_memory_bytes = td_arena_left(l->budget), .allow_trailing = true};
        bool ok = td_pickle_parse(pickle, l->bytes, l->len, start, &options, err);
        l->parsed = i + 1;
        if (!ok || (i == PART_MAGIC && !check_magic(l)))
            return false;
        if (!td_arena_claim(l->budget, td_pickle_memory_bytes(pickle)))
            return td_error_no_memory(err);
        start = pickle->end;
    }
    return true;
}

/* Reads the first 64 KiB of the file, then four times as much and so on, until the pickles are whole. */
static bool read_pickles(struct legacy *l)
{
    const size_t limit = l->budget->limit_bytes;
    for (uint64_t wanted = FIRST_READ_BYTES;; wanted *= 4) {
        uint64_t most =
            l->input->size_bytes < l->limits->max_header_bytes ? l->input->size_bytes : l->limits->max_header_bytes;
        bool last = wanted >= most;
        struct td_error why = TD_ERROR_INIT;
        l->len = (size_t)(last ? most : wanted);
        l->budget->limit_bytes = limit;
        if (!td_arena_claim(l->budget, l->len))
            return td_error_no_memory(l->err);
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

static bool check_head(const struct legacy *l)
{
    int64_t protocol;
    const struct td_pickle *p = &l->pickles[PART_PROTOCOL];
    const struct td_pickle *system = &l->pickles[PART_SYSTEM];
    if (!td_pickle_int(p, p->root, &protocol) || protocol != 1001)
        return refuse_pickle(l, PART_PROTOCOL, p->root, "its protocol version is not 1001, the only one there was");
    td_pickle_ref little = td_pickle_get(system, system->root, "little_endian");
    if (td_pickle_kind(system, little) != TD_PICKLE_BOOL)
        return refuse_pickle(l, PART_SYSTEM, system->root, "it does not say whether it is little-endian");
    /* Its value does not matter: torch writes and reads storages little-endian on every host. */
    return true;
}

/* ---- storages ------------------------------------------------------------------------------------------ */

/* Collects every storage that the object refers to, whether or not the walk will meet it: the size of each says where
 * the next one begins. */
static bool collect_storages(struct legacy *l)
{
    if (!td_torch_ids_read(&l->ids, &l->pickles[PART_OBJECT], true, l->budget, l->err))
        return false;
    for (size_t i = 0; i < l->ids.count; i++)
        if (l->ids.storages[i].dtype == NULL)
            return refuse_pickle(l, PART_OBJECT, l->ids.storages[i].ref,
                                 "a storage has an unknown class, so its size is unknown");
    if (!td_arena_claim(l->budget, l->ids.count * sizeof *l->offsets))
        return td_error_no_memory(l->err);
    l->offsets = calloc(l->ids.count + 1, sizeof *l->offsets);
    return l->offsets != NULL || td_error_no_memory(l->err);
}

/* Finds one storage at *pos (its number of elements, then the elements), and moves *pos past it. */
static bool place_storage(const struct legacy *l, td_pickle_ref key_ref, uint64_t *pos)
{
    const struct td_pickle *keys = &l->pickles[PART_KEYS];
    size_t len;
    uint8_t count[8];
    const char *key = td_pickle_text(keys, key_ref, &len);
    bool is_string = td_pickle_kind(keys, key_ref) == TD_PICKLE_STRING;
    size_t i = is_string ? td_torch_ids_find(&l->ids, td_text_n(key, len)) : l->ids.count;
    if (i == l->ids.count)
        return refuse_pickle(l, PART_KEYS, key_ref, "the list of storages has a storage that no tensor refers to");
    const struct td_torch_storage *storage = &l->ids.storages[i];
    if (l->offsets[i] != 0)
        return refuse_pickle(l, PART_KEYS, key_ref, "the list of storages has a storage twice");
    if (!td_input_read(l->input, *pos, count, sizeof count, l->err))
        return false;
    if (td_load_le64(count) != storage->numel)
        return td_error_at(l->err, TD_INVALID_ARGUMENT, *pos,
                           "storage \"%.*s\" should have %" PRIu64 " elements, but says %" PRId64,
                           (int)(len < 96 ? len : 96), key, storage->numel, (int64_t)td_load_le64(count));
    l->offsets[i] = *pos + sizeof count;
    if (storage->nbytes > l->input->size_bytes - l->offsets[i])
        return td_error_at(l->err, TD_INVALID_ARGUMENT, l->offsets[i],
                           "storage \"%.*s\" needs %" PRIu64 " bytes, the file ends after %" PRIu64,
                           (int)(len < 96 ? len : 96), key, storage->nbytes, l->input->size_bytes - l->offsets[i]);
    *pos = l->offsets[i] + storage->nbytes;
    return true;
}

static bool place_all(struct legacy *l)
{
    const struct td_pickle *keys = &l->pickles[PART_KEYS];
    uint64_t pos = keys->end;
    if (td_pickle_kind(keys, keys->root) != TD_PICKLE_LIST)
        return refuse_pickle(l, PART_KEYS, keys->root, "the object is not followed by a list of storages");
    uint32_t count = td_pickle_count(keys, keys->root);
    for (uint32_t i = 0; i < count; i++)
        if (!place_storage(l, td_pickle_item(keys, keys->root, i), &pos))
            return false;
    if (count != l->ids.count)
        return refuse_pickle(l, PART_KEYS, keys->root, "the list of storages lacks a storage that a tensor refers to");
    return true; /* torch.load ignores bytes that follow, such as a second save */
}

static bool find_storage(const void *context, const struct td_torch_storage *storage, uint64_t pos,
                         struct td_torch_place *out, struct td_error *err)
{
    const struct legacy *l = context;
    size_t i = td_torch_ids_find(&l->ids, td_text_n(storage->key, storage->key_len));
    if (i == l->ids.count)
        return td_error_at(err, TD_INTERNAL, pos, "a storage was not met before");
    *out = (struct td_torch_place){.begin = l->offsets[i], .nbytes = l->ids.storages[i].nbytes};
    return true;
}

bool td_torch_parse_legacy(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                           struct td_error *err)
{
    struct td_error own;
    struct legacy l = {.input = input, .limits = limits, .budget = &manifest->arena, .err = err != NULL ? err : &own};
    struct td_torch_places places = {
        .context = &l, .find = find_storage, .file_bytes = input->size_bytes, .is_legacy = true};
    const size_t arena_limit = manifest->arena.limit_bytes;
    td_error_init(&own);
    bool ok = read_pickles(&l) && check_head(&l) && collect_storages(&l) && place_all(&l) &&
              td_torch_walk(&l.pickles[PART_OBJECT], l.pickles[PART_OBJECT].root, &places, "", manifest, l.err);
    forget_pickles(&l);
    td_torch_ids_fini(&l.ids);
    free(l.offsets);
    manifest->arena.limit_bytes = arena_limit;
    return ok && td_torch_finish(manifest, l.err);
}
