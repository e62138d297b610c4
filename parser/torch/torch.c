/* The plan. The first bytes of a file say whether it is a zip archive or a legacy file (torch_legacy). parse_zip opens
 * the archive and offers its members as records. parse_records reads data.pkl (of TorchScript constants.pkl too): it
 * checks that every storage that the pickle refers to is a record of the right size, and walks the object graph
 * (torch_walk). td_torch_finish makes names unique.
 *
 * What is hard: the archive's directory, the pickle and the manifest share one limit. While something is held beside
 * the manifest, the limit of the manifest's arena is lowered by its size (td_arena_claim), and restored afterwards. */
#include "parser/torch/torch.h"

#include "core/checked.h"
#include "parser/pickle/pickle.h"
#include "parser/torch/torch_ids.h"
#include "parser/torch/torch_legacy.h"
#include "parser/torch/torch_walk.h"
#include "parser/zip/zip.h"
#include "parser/zip/zip_unpack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- records: data.pkl and its storages ---------------------------------------------------------------- */

enum { SMALL_RECORD_MAX = 1024 };

struct storages {
    const struct td_torch_records *records;
    const char *folder; /* "data/" */
};

static bool record_find(const struct td_torch_records *records, const char *name, struct td_torch_record *out)
{
    return records->find(records->context, td_text_of(name), out);
}

static bool find_storage(const void *context, const struct td_torch_storage *storage, uint64_t pos,
                         struct td_torch_place *out, struct td_error *err)
{
    const struct storages *storages = context;
    struct td_torch_record record;
    char name[320];
    int len = snprintf(name, sizeof name, "%s%.*s", storages->folder,
                       (int)(storage->key_len < 256 ? storage->key_len : 256), storage->key);
    if (storage->key_len > 255 ||
        !storages->records->find(storages->records->context, td_text_n(name, (size_t)len), &record))
        return td_error_at(err, TD_INVALID_ARGUMENT, pos, "storage \"%.96s\" is not in the file", name);
    *out = (struct td_torch_place){
        .begin = record.offset, .nbytes = record.nbytes, .reason = record.reason, .coding = record.coding};
    if (storage->dtype == NULL)
        return true;
    uint64_t elem_bytes = storage->dtype->block_bytes;
    if (storage->numel != record.nbytes / elem_bytes)
        return td_error_at(err, TD_INVALID_ARGUMENT, pos,
                           "storage \"%.96s\" should hold %" PRIu64 " elements of %s, but has %" PRIu64 " bytes", name,
                           storage->numel, storage->dtype->name, record.nbytes);
    return true;
}

/* Reads a small text record, such as byteorder, and terminates it. *len is 0 when there is no such record. */
static bool load_text(const struct td_torch_records *records, const char *name, char out[SMALL_RECORD_MAX + 1],
                      size_t *len, struct td_error *err)
{
    struct td_torch_record record;
    *len = 0;
    out[0] = '\0';
    if (!record_find(records, name, &record))
        return true;
    uint8_t *bytes = records->load(records->context, td_text_of(name), SMALL_RECORD_MAX, len, err);
    if (bytes == NULL)
        return false;
    memcpy(out, bytes, *len);
    out[*len] = '\0';
    free(bytes);
    return true;
}

static bool check_byteorder(const struct td_torch_records *records, bool *big_endian, struct td_error *err)
{
    char text[SMALL_RECORD_MAX + 1];
    size_t len;
    *big_endian = false;
    if (!load_text(records, "byteorder", text, &len, err))
        return false;
    *big_endian = strcmp(text, "big") == 0 && len == 3;
    return len == 0 || *big_endian || (strcmp(text, "little") == 0 && len == 6) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "its byteorder is \"%.32s\"; little or big expected", text);
}

static bool check_version(const struct td_torch_records *records, struct td_error *err)
{
    char text[SMALL_RECORD_MAX + 1];
    size_t len;
    if (!load_text(records, "version", text, &len, err))
        return false;
    size_t digits = strspn(text, "0123456789");
    size_t rest = strspn(text + digits, "\n");
    return len == 0 || (digits > 0 && digits + rest == len) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "its version is \"%.32s\"; a number expected", text);
}

/* The part of a file to list. */
enum extent { ALL_TENSORS, ROOT_ALONE };

/* Checks every storage that the pickle refers to, as torch does, whether or not a tensor uses it. */
static bool check_storages(struct td_pickle *pickle, const struct td_torch_places *places, struct td_arena *budget,
                           struct td_error *err)
{
    struct td_torch_ids ids;
    bool ok = td_torch_ids_read(&ids, pickle, false, budget, err);
    for (size_t i = 0; ok && i < ids.count; i++) {
        struct td_torch_place place;
        const struct td_torch_storage *storage = &ids.storages[i];
        ok = places->find(places->context, storage, td_pickle_position(pickle, storage->ref), &place, err);
    }
    td_torch_ids_fini(&ids);
    return ok;
}

static bool list_tensors(struct td_pickle *pickle, const struct td_torch_places *places, const char *prefix,
                         enum extent extent, struct td_manifest *manifest, struct td_error *err)
{
    if (!td_arena_claim(&manifest->arena, td_pickle_memory_bytes(pickle)))
        return td_error_no_memory(err);
    const size_t arena_limit = manifest->arena.limit_bytes;
    if (!check_storages(pickle, places, &manifest->arena, err))
        return false;
    manifest->arena.limit_bytes = arena_limit; /* the list of storages is freed */
    return extent == ALL_TENSORS ? td_torch_walk(pickle, pickle->root, places, prefix, manifest, err)
                                 : td_torch_read_root(pickle, pickle->root, places, manifest, err);
}

struct part {
    const char *pickle, *folder, *prefix;
    enum extent extent;
};

/* Loads and parses one pickle and lists its tensors. The bytes and the parsed pickle count as the manifest's memory
 * while they are held. */
static bool parse_pickle(const struct td_torch_records *records, const struct part *part, bool big_endian,
                         const struct td_limits *limits, struct td_manifest *manifest, struct td_error *err)
{
    struct td_torch_record record = {0};
    struct td_pickle pickle;
    size_t len;
    const size_t arena_limit = manifest->arena.limit_bytes;
    uint64_t most = td_arena_left(&manifest->arena);
    if (most == 0 || most > limits->max_header_bytes)
        most = limits->max_header_bytes;
    uint8_t *bytes = records->load(records->context, td_text_of(part->pickle), most, &len, err);
    if (bytes == NULL)
        return false;
    (void)record_find(records, part->pickle, &record);
    struct storages storages = {.records = records, .folder = part->folder};
    struct td_torch_places places = {
        .context = &storages, .find = find_storage, .file_bytes = records->file_bytes, .big_endian = big_endian};
    bool ok = td_arena_claim(&manifest->arena, len) || td_error_no_memory(err);
    struct td_pickle_options options = {.base = record.coding == NULL ? record.offset : 0,
                                        .max_memory_bytes = td_arena_left(&manifest->arena)};
    if (ok && td_pickle_parse(&pickle, bytes, len, 0, &options, err)) {
        ok = list_tensors(&pickle, &places, part->prefix, part->extent, manifest, err);
        td_pickle_fini(&pickle);
    } else {
        ok = false;
    }
    free(bytes);
    manifest->arena.limit_bytes = arena_limit;
    return ok;
}

static bool parse_records(const struct td_torch_records *records, enum extent extent, const struct td_limits *limits,
                          struct td_manifest *manifest, struct td_error *err)
{
    static const struct part constants = {"constants.pkl", "constants/", "constants", ALL_TENSORS};
    const struct part data = {"data.pkl", "data/", "", extent};
    struct td_torch_record record;
    bool big_endian;
    if (!record_find(records, "data.pkl", &record))
        return td_error_set(err, TD_INVALID_ARGUMENT, "it holds no data.pkl, so it is not an archive of torch.save");
    bool is_script = record_find(records, "constants.pkl", &record);
    if (is_script && extent == ROOT_ALONE) /* torch.load would make a module of the archive */
        return true;
    if (!check_byteorder(records, &big_endian, err) || !check_version(records, err) ||
        !parse_pickle(records, &data, big_endian, limits, manifest, err))
        return false;
    /* TorchScript keeps constants in a second pickle, whose storages have numbers of their own. */
    if (is_script && !parse_pickle(records, &constants, big_endian, limits, manifest, err))
        return false;
    return td_torch_finish(manifest, err);
}

bool td_torch_parse_records(const struct td_torch_records *records, const struct td_limits *limits,
                            struct td_manifest *manifest, struct td_error *err)
{
    return parse_records(records, ALL_TENSORS, limits, manifest, err);
}

/* ---- zip archives -------------------------------------------------------------------------------------- */

/* The coding of a deflated member, or the reason why it has none. */
struct packed {
    const struct td_coding *coding;
    const char *reason;
};

struct archive {
    const struct td_input *input;
    struct td_zip zip;
    struct packed *packed; /* of each member */
    const char *root;      /* with its slash */
    size_t root_len;
};

static const struct td_zip_entry *entry_of(const struct archive *archive, struct td_text name)
{
    char path[1024];
    if (archive->root_len + name.len > sizeof path)
        return NULL;
    memcpy(path, archive->root, archive->root_len);
    memcpy(path + archive->root_len, name.p, name.len);
    return td_zip_find(&archive->zip, td_text_n(path, archive->root_len + name.len));
}

static bool zip_record_find(const void *context, struct td_text name, struct td_torch_record *out)
{
    const struct archive *archive = context;
    const struct td_zip_entry *entry = entry_of(archive, name);
    if (entry == NULL)
        return false;
    const struct packed *packed = &archive->packed[entry - archive->zip.entries];
    *out = (struct td_torch_record){.offset = entry->deflated ? 0 : entry->offset,
                                    .nbytes = entry->size_bytes,
                                    .reason = packed->reason,
                                    .coding = packed->coding};
    return true;
}

/* Sets the codings of all members at once, because a storage is looked up more than once. */
static bool set_packed(struct archive *archive, struct td_arena *arena, struct td_manifest *manifest)
{
    archive->packed = td_arena_array(arena, archive->zip.count, sizeof *archive->packed);
    for (size_t i = 0; archive->packed != NULL && i < archive->zip.count; i++) {
        struct packed *packed = &archive->packed[i];
        *packed = (struct packed){0};
        if (archive->zip.entries[i].deflated &&
            !td_zip_set_coding(manifest, &archive->zip.entries[i], &packed->coding, &packed->reason))
            return false;
    }
    return archive->packed != NULL;
}

static uint8_t *zip_record_load(const void *context, struct td_text name, uint64_t limit_bytes, size_t *out_len,
                                struct td_error *err)
{
    const struct archive *archive = context;
    const struct td_zip_entry *entry = entry_of(archive, name);
    if (entry == NULL) {
        (void)td_error_set(err, TD_INTERNAL, "a record was not looked for before it was loaded");
        return NULL;
    }
    *out_len = (size_t)entry->size_bytes;
    return td_zip_load(archive->input, entry, limit_bytes, err);
}

static bool parse_zip(const struct td_input *input, enum extent extent, const struct td_limits *limits,
                      struct td_manifest *manifest, struct td_error *err)
{
    struct archive archive = {.input = input};
    struct td_arena arena;
    const size_t arena_limit = manifest->arena.limit_bytes;
    td_arena_init(&arena, td_arena_left(&manifest->arena));
    bool ok = td_zip_read_torch(&archive.zip, input, limits, &arena, err) && td_zip_check_case(&archive.zip, err) &&
              td_zip_check_root(&archive.zip, &archive.root_len, err);
    if (ok && (!set_packed(&archive, &arena, manifest) || !td_arena_claim(&manifest->arena, arena.used_bytes)))
        ok = td_error_no_memory(err);
    if (ok) {
        archive.root = archive.zip.count > 0 ? archive.zip.entries[0].name : "";
        struct td_torch_records records = {
            .context = &archive, .find = zip_record_find, .load = zip_record_load, .file_bytes = input->size_bytes};
        ok = parse_records(&records, extent, limits, manifest, err);
    }
    td_arena_fini(&arena);
    manifest->arena.limit_bytes = arena_limit;
    return ok;
}

bool td_torch_parse_item(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                         struct td_error *err)
{
    return parse_zip(input, ROOT_ALONE, limits, manifest, err);
}

struct td_limits td_torch_inner_limits(const struct td_limits *limits, uint64_t bytes, uint64_t times)
{
    struct td_limits inner = *limits;
    if (bytes < inner.max_header_bytes / times)
        inner.max_header_bytes = bytes * times;
    return inner;
}

/* Returns whether the name is FOLDER/data.pkl. */
static bool is_data_pickle(struct td_text name)
{
    static const struct td_text data = TD_TEXT("data.pkl");
    struct td_text folder = td_text_take_until(&name, '/');
    return folder.len > 0 && td_text_compare(name, data) == 0;
}

/* Returns whether the first local header of an archive is that of FOLDER/data.pkl. */
static bool begins_with_data_pickle(const struct td_input *input)
{
    enum { NAME_LEN_AT = 26, NAME_AT = 30, NAME_MAX_BYTES = 1024 };
    uint8_t head[NAME_AT];
    char name[NAME_MAX_BYTES];
    if (input->size_bytes < sizeof head || !td_input_read(input, 0, head, sizeof head, NULL))
        return false;
    size_t len = td_load_le16(head + NAME_LEN_AT);
    return len <= sizeof name && len <= input->size_bytes - sizeof head &&
           td_input_read(input, sizeof head, name, len, NULL) && is_data_pickle(td_text_n(name, len));
}

bool td_torch_is_archive(const struct td_input *input, const struct td_limits *limits)
{
    struct td_zip zip;
    struct td_arena arena;
    struct td_error why = TD_ERROR_INIT;
    bool found = false;
    td_arena_init(&arena, limits->max_memory_bytes);
    bool is_read = td_zip_read(&zip, input, limits, &arena, &why);
    for (size_t i = 0; is_read && i < zip.count && !found; i++)
        found = is_data_pickle(td_text_of(zip.entries[i].name));
    td_arena_fini(&arena);
    return is_read ? found : begins_with_data_pickle(input);
}

/* ---- the format ---------------------------------------------------------------------------------------- */

/* Returns whether the file is a tar archive, as torch.save wrote before 0.4: "ustar" is at byte 257 of a member's
 * header.
 */
static bool is_tar(const struct td_input *input)
{
    char magic[5];
    return input->size_bytes > 512 && td_input_read(input, 257, magic, sizeof magic, NULL) &&
           memcmp(magic, "ustar", sizeof magic) == 0;
}

static bool parse_torch(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                        struct td_error *err)
{
    uint8_t head[TD_TORCH_LEGACY_HEAD_BYTES] = {0};
    size_t len = input->size_bytes < sizeof head ? (size_t)input->size_bytes : sizeof head;
    if (!td_input_read(input, 0, head, len, err))
        return false;
    if (memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PK\5\6", 4) == 0)
        return parse_zip(input, ALL_TENSORS, limits, manifest, err);
    if (head[0] == 0x80 || td_torch_is_legacy(head, len))
        return td_torch_parse_legacy(input, limits, manifest, err);
    if (is_tar(input))
        return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                           "a tar archive of a PyTorch older than 0.4; load it and save it again");
    return td_error_at(err, TD_INVALID_ARGUMENT, 0,
                       "neither a zip archive nor a pickle, so torch.save did not write it");
}

static const char *const extensions[] = {".pt",       ".pth", ".ckpt", ".bin",  ".pth.tar", ".pt.tar",
                                         ".ckpt.tar", ".th",  ".ptl",  ".pyth", NULL};

const struct td_format td_format_torch = {.name = "pytorch", .extensions = extensions, .parse = parse_torch};
