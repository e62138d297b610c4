#include "catalog/delta/delta_chain.h"

#include "catalog/model/version_name.h"
#include "core/digits.h"
#include "parser/safetensors.h"
#include "storage/disk_tree.h"
#include "storage/file_source.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char whole_name[] = "model.safetensors";
static const char manifest_name[] = "manifest.json"; /* of SkyRL's deltas */
static const char safetensors_end[] = ".safetensors";

/* ---- files --------------------------------------------------------------------------------------------- */

bool td_delta_place_fail(const struct td_delta_place *place, const char *path, const struct td_error *why,
                         struct td_error *err)
{
    char text[TD_ERROR_TEXT_BYTES];
    if (why->code == TD_CONFLICT) /* stopped */
        return td_error_copy(err, why);
    return td_error_set(err, why->code, "%.160s/%.96s: %s", place->shown, path, td_error_text(why, text));
}

bool td_delta_place_open(const struct td_delta_place *place, const char *path, int *fd, struct td_file_id *id,
                         struct td_error *err)
{
    char full[PATH_MAX];
    struct td_error why = TD_ERROR_INIT;
    int len = snprintf(full, sizeof full, "%s%s%s", place->below, place->below[0] == '\0' ? "" : "/", path);
    if (len < 0 || (size_t)len >= sizeof full)
        (void)td_error_set(&why, TD_INVALID_ARGUMENT, "the path is too long");
    else if (td_root_open_file(place->root, full, fd, id, &why))
        return true;
    td_error_name_it(&why, full);
    return td_delta_place_fail(place, path, &why, err);
}

bool td_delta_file_open(const struct td_delta_version *version, const struct td_delta_file *file, int *fd,
                        struct td_error *err)
{
    struct td_file_id id = {0};
    if (!td_delta_place_open(&version->place, file->path, fd, &id, err))
        return false;
    if (td_file_id_equal(&id, &file->id))
        return true;
    (void)close(*fd);
    return td_error_set(err, TD_UNAVAILABLE, "%.160s/%.96s changed while it was read", version->place.shown,
                        file->path);
}

/* Reads and parses the header of a file. */
static bool read_file(const struct td_delta_place *place, struct td_delta_file *file, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    struct td_error why = TD_ERROR_INIT;
    int fd = -1;
    if (!td_delta_place_open(place, file->path, &fd, &file->id, err))
        return false;
    struct td_input input = td_input_descriptor(&fd, file->id.size_bytes);
    bool ok = td_format_safetensors.parse(&input, &limits, &file->manifest, &why);
    (void)close(fd);
    struct td_names keys = td_metadata_keys(file->manifest.metadata, file->manifest.metadata_count);
    ok = ok && td_names_sort(&keys, file->manifest.metadata, sizeof *file->manifest.metadata, &why);
    return ok || td_delta_place_fail(place, file->path, &why, err);
}

/* Reads the headers of the files at these paths, which are borrowed. */
static bool read_files(struct td_delta_version *version, const char *const *paths, size_t count,
                       const struct td_cancel *cancel, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    version->files = calloc(count + 1, sizeof *version->files);
    if (version->files == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        if (cancel != NULL && td_cancel_is_asked(cancel))
            return td_error_set(err, TD_CONFLICT, "stopped");
        struct td_delta_file *file = &version->files[version->file_count++];
        file->path = paths[i];
        td_manifest_init(&file->manifest, limits.max_memory_bytes);
        if (!read_file(&version->place, file, err))
            return false;
    }
    return true;
}

/* ---- the index ----------------------------------------------------------------------------------------- */

/* Reads the text of the index, or of the manifest in its place. */
static bool load_index(struct td_delta_version *version, const char *name, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    struct td_error why = TD_ERROR_INIT;
    struct td_file_id id = {0};
    int fd = -1;
    if (!td_delta_place_open(&version->place, name, &fd, &id, err))
        return false;
    struct td_input input = td_input_descriptor(&fd, id.size_bytes);
    version->text = (char *)td_input_load(&input, 0, id.size_bytes, limits.max_header_bytes, &why);
    version->text_len = version->text == NULL ? 0 : (size_t)id.size_bytes;
    (void)close(fd);
    return version->text != NULL || td_delta_place_fail(&version->place, name, &why, err);
}

/* Reads the index, and the files that it names. */
static bool read_index(struct td_delta_version *version, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    return load_index(version, TD_SAFETENSORS_INDEX_NAME, err) &&
           (td_delta_index_parse(&version->index, td_text_n(version->text, version->text_len), &why) ||
            td_delta_place_fail(&version->place, TD_SAFETENSORS_INDEX_NAME, &why, err));
}

/* Reads the manifest of a delta that has no index. `lacks`: why the index cannot be read, which is the error if there
 * is no manifest either. */
static bool read_manifest(struct td_delta_version *delta, const struct td_error *lacks, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_buffer index;
    if (!load_index(delta, manifest_name, &why))
        return td_error_copy(err, why.code == TD_NOT_FOUND ? lacks : &why);
    td_buffer_init(&index);
    delta->has_manifest = true;
    bool ok = td_delta_manifest_read(td_text_n(delta->text, delta->text_len), &index, &delta->sums, &why) &&
              td_delta_index_parse(&delta->index, td_buffer_text(&index), &why);
    if (index.len > 0)
        why.pos = TD_ERROR_POS_NONE; /* it would be one in the text of the index */
    td_buffer_fini(&index);
    return ok || td_delta_place_fail(&delta->place, manifest_name, &why, err);
}

/* ---- the base ------------------------------------------------------------------------------------------ */

/* The files of safetensors in a directory without an index. */
struct found {
    struct td_arena *arena;
    const char **names;
    size_t count, capacity;
    bool has_whole;
};

static bool note_name(void *context, int at, const char *name, struct td_error *err)
{
    struct found *found = context;
    size_t len = strlen(name);
    (void)at;
    if (name[0] == '.' || len < sizeof safetensors_end ||
        strcmp(name + len + 1 - sizeof safetensors_end, safetensors_end) != 0)
        return true;
    found->has_whole = found->has_whole || strcmp(name, whole_name) == 0;
    const char **names = td_arena_grow(found->arena, found->names, found->count, &found->capacity, sizeof *names);
    char *copy = td_arena_strndup(found->arena, td_text_of(name));
    if (names == NULL || copy == NULL)
        return td_error_no_memory(err);
    found->names = names;
    found->names[found->count++] = copy;
    return true;
}

static struct td_text found_name(const void *context, size_t i)
{
    const char *const *names = context;
    return td_text_of(names[i]);
}

/* Finds the files of a base without an index: model.safetensors, else all files of safetensors in the directory. */
static bool find_files(struct td_delta_chain *chain, struct found *found, struct td_error *err)
{
    static const char *const whole[] = {whole_name};
    const struct td_delta_place *place = &chain->base.place;
    int fd = -1;
    *found = (struct found){.arena = &chain->arena};
    if (!td_root_open_directory(place->root, place->below, &fd, err) ||
        !td_disk_list(fd, place->shown, note_name, found, err))
        return false;
    if (found->count == 0)
        return td_error_set(err, TD_NOT_FOUND, "%.160s has neither a %s nor files of safetensors", place->shown,
                            TD_SAFETENSORS_INDEX_NAME);
    struct td_names names = {.count = found->count, .context = found->names, .get = found_name};
    if (!td_names_sort(&names, found->names, sizeof *found->names, err))
        return false;
    if (found->has_whole) {
        found->names[0] = whole[0];
        found->count = 1;
    }
    return true;
}

static struct td_text named(const void *context, size_t i)
{
    const struct td_delta_named *tensors = context;
    return td_tensor_name(tensors[i].tensor);
}

static struct td_names base_names(const struct td_delta_chain *chain)
{
    return (struct td_names){.count = chain->tensor_count, .context = chain->tensors, .get = named};
}

/* Lists the tensors that the index of the base names, and checks that each is in its file. */
static bool list_indexed(struct td_delta_chain *chain, struct td_error *err)
{
    const struct td_delta_version *base = &chain->base;
    const struct td_shard_index *map = &base->index.map;
    chain->tensors = calloc(map->entry_count + 1, sizeof *chain->tensors);
    if (chain->tensors == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < map->entry_count; i++) {
        struct td_text name = td_text_n(map->entries[i].tensor, map->entries[i].tensor_len);
        const struct td_delta_file *file = &base->files[map->entries[i].file];
        const struct td_tensor *tensor = td_manifest_find(&file->manifest, name);
        if (tensor == NULL)
            return td_error_set(err, TD_FAILED_PRECONDITION, "%.160s/%.96s lacks \"%.*s\", which the index says it has",
                                base->place.shown, file->path, TD_SHOW(name, 96));
        chain->tensors[chain->tensor_count++] = (struct td_delta_named){.tensor = tensor, .file = map->entries[i].file};
    }
    return true;
}

/* Lists the tensors of a base without an index, and checks that no two files have the same tensor. */
static bool list_found(struct td_delta_chain *chain, struct td_error *err)
{
    const struct td_delta_version *base = &chain->base;
    size_t count = 0;
    for (size_t i = 0; i < base->file_count; i++)
        count += base->files[i].manifest.tensor_count;
    chain->tensors = calloc(count + 1, sizeof *chain->tensors);
    if (chain->tensors == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < base->file_count; i++)
        for (size_t j = 0; j < base->files[i].manifest.tensor_count; j++)
            chain->tensors[chain->tensor_count++] =
                (struct td_delta_named){.tensor = &base->files[i].manifest.tensors[j], .file = (uint32_t)i};
    struct td_names names = base_names(chain);
    if (!td_names_sort(&names, chain->tensors, sizeof *chain->tensors, err))
        return false;
    size_t twice = td_names_duplicate(&names, NULL);
    return twice == names.count ||
           td_error_set(err, TD_FAILED_PRECONDITION, "%.160s: several files have \"%.*s\", and there is no index",
                        base->place.shown, TD_SHOW(named(chain->tensors, twice), 96));
}

static bool open_base(struct td_delta_chain *chain, const struct td_cancel *cancel, struct td_error *err)
{
    struct td_delta_version *base = &chain->base;
    struct td_error why = TD_ERROR_INIT;
    struct found found;
    if (read_index(base, &why)) {
        if (base->index.encoding != NULL)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "%.160s is a delta (for version \"%.64s\"); the first directory must have all tensors",
                                base->place.shown, base->index.base_version == NULL ? "" : base->index.base_version);
        return read_files(base, base->index.map.files, base->index.map.file_count, cancel, err) &&
               list_indexed(chain, err);
    }
    if (why.code != TD_NOT_FOUND)
        return td_error_copy(err, &why);
    return find_files(chain, &found, err) && read_files(base, found.names, found.count, cancel, err) &&
           list_found(chain, err);
}

/* ---- a delta ------------------------------------------------------------------------------------------- */

/* Returns false, with an error about the metadata of the index. */
static bool refuse_metadata(const struct td_delta_version *delta, const char *member, const char *value,
                            const char *known, struct td_error *err)
{
    if (value == NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%.160s/" TD_SAFETENSORS_INDEX_NAME ": metadata has no \"%s\"",
                            delta->place.shown, member);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "%.160s/" TD_SAFETENSORS_INDEX_NAME ": %s \"%.64s\" is unknown; known: %s", delta->place.shown,
                        member, value, known);
}

static bool read_formats(struct td_delta_version *delta, struct td_error *err)
{
    const struct td_delta_index *index = &delta->index;
    if (index->encoding == NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION,
                            "%.160s is no delta: the metadata of its index has no \"delta_encoding\"",
                            delta->place.shown);
    if (strcmp(index->encoding, "xor") == 0)
        delta->encoding = TD_DELTA_XOR;
    else if (strcmp(index->encoding, "overwrite") == 0)
        delta->encoding = TD_DELTA_OVERWRITE;
    else
        return refuse_metadata(delta, "delta_encoding", index->encoding, "xor, overwrite", err);
    if (index->compression == NULL || strcmp(index->compression, "zstd") != 0)
        return refuse_metadata(delta, "compression_format", index->compression, "zstd", err);
    if (index->checksum == NULL || !td_delta_sum_find(td_text_of(index->checksum), &delta->sum_kind))
        return refuse_metadata(delta, "checksum_format", index->checksum, "xxh3-128, adler32", err);
    if (index->version == NULL)
        return refuse_metadata(delta, "version", NULL, NULL, err);
    return index->base_version != NULL || refuse_metadata(delta, "base_version", NULL, NULL, err);
}

/* Checks that each file has no other tensors than the index says. That the index's tensors are there is checked with
 * the changes. */
static bool check_shards(const struct td_delta_version *delta, struct td_error *err)
{
    const struct td_shard_index *map = &delta->index.map;
    size_t *counts = calloc(delta->file_count + 1, sizeof *counts);
    size_t i = 0;
    if (counts == NULL)
        return td_error_no_memory(err);
    for (size_t j = 0; j < map->entry_count; j++)
        counts[map->entries[j].file]++;
    while (i < delta->file_count && delta->files[i].manifest.tensor_count <= counts[i])
        i++;
    free(counts);
    return i == delta->file_count ||
           td_error_set(err, TD_FAILED_PRECONDITION, "%.160s/%.96s has tensors that the index does not name",
                        delta->place.shown, delta->files[i].path);
}

static bool open_delta(struct td_delta_version *delta, const struct td_cancel *cancel, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    if (!read_index(delta, &why) && (why.code != TD_NOT_FOUND || !read_manifest(delta, &why, err)))
        return why.code == TD_NOT_FOUND ? false : td_error_copy(err, &why);
    return read_formats(delta, err) &&
           read_files(delta, delta->index.map.files, delta->index.map.file_count, cancel, err) &&
           check_shards(delta, err);
}

/* ---- the order of the versions ------------------------------------------------------------------------- */

/* Returns whether both name the same version: they are equal, or decimal numbers that are. */
static bool is_same_version(const char *a, const char *b)
{
    struct td_text numbers[] = {td_text_of(a), td_text_of(b)};
    uint64_t values[2];
    if (strcmp(a, b) == 0)
        return true;
    for (size_t i = 0; i < 2; i++)
        if (!td_number_read(numbers[i], UINT64_MAX, &values[i]))
            return false;
    return values[0] == values[1];
}

/* Checks that the first delta is for the base. */
static bool check_base_version(struct td_delta_chain *chain, const char *given, struct td_error *err)
{
    const struct td_delta_version *base = &chain->base;
    const struct td_delta_version *delta = &chain->deltas[0];
    const char *wanted = delta->index.base_version;
    const char *version = given != NULL ? given : base->index.version;
    char number[32];
    uint64_t value;
    if (version == NULL) {
        if (!td_version_name_parse(td_text_of(base->place.name), NULL, &value))
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "the version of %.160s is unknown: its index has no \"version\", and its name no "
                                "number; say it by --base-version (%.96s is for version \"%.64s\")",
                                base->place.shown, delta->place.shown, wanted);
        (void)snprintf(number, sizeof number, "%" PRIu64, value);
        version = strcmp(wanted, base->place.name) == 0 ? base->place.name : number;
    }
    (void)snprintf(chain->base_version, sizeof chain->base_version, "%s", version);
    return is_same_version(version, wanted) ||
           td_error_set(err, TD_FAILED_PRECONDITION, "%.160s is for version \"%.64s\", but %.160s is version \"%.64s\"",
                        delta->place.shown, wanted, base->place.shown, version);
}

static bool check_order(struct td_delta_chain *chain, const char *base_version, struct td_error *err)
{
    if (!check_base_version(chain, base_version, err))
        return false;
    for (size_t i = 1; i < chain->delta_count; i++) {
        const struct td_delta_version *before = &chain->deltas[i - 1];
        const struct td_delta_version *delta = &chain->deltas[i];
        if (!is_same_version(before->index.version, delta->index.base_version))
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "%.160s is for version \"%.64s\", but %.160s before it makes version \"%.64s\"",
                                delta->place.shown, delta->index.base_version, before->place.shown,
                                before->index.version);
    }
    chain->version = chain->deltas[chain->delta_count - 1].index.version;
    return true;
}

/* ---- the changes --------------------------------------------------------------------------------------- */

/* Returns the checksum of a tensor, of a shard's metadata; an empty text: there is none, or it has another form. */
static struct td_text find_sum(const struct td_delta_version *delta, const struct td_delta_file *shard,
                               struct td_text name)
{
    const struct td_manifest *manifest = &shard->manifest;
    struct td_names keys = td_metadata_keys(manifest->metadata, manifest->metadata_count);
    bool found;
    size_t place = td_names_search(&keys, name, &found);
    struct td_text value = found ? td_text_of(manifest->metadata[place].value) : td_text_n(NULL, 0);
    if (delta->has_manifest) {
        value = td_delta_sums_find(&delta->sums, name);
        return td_delta_sum_is_text(delta->sum_kind, value) ? value : td_text_n(NULL, 0);
    }
    if (value.len < 2) /* a string of JSON, with its quotes */
        return td_text_n(NULL, 0);
    value = td_text_n(value.p + 1, value.len - 2);
    return td_delta_sum_is_text(delta->sum_kind, value) ? value : td_text_n(NULL, 0);
}

/* Checks the change of a tensor by itself. fd: the shard. */
static bool check_change(const struct td_delta_version *delta, const struct td_delta_change *change, int fd,
                         struct td_error *err)
{
    const struct td_tensor *stored = change->stored;
    struct td_input input = td_input_descriptor(&fd, change->shard->id.size_bytes);
    const struct td_delta_patch patch = {.input = &input,
                                         .off = stored->offset,
                                         .len = stored->nbytes,
                                         .encoding = delta->encoding,
                                         .sum_kind = delta->sum_kind,
                                         .sum = change->sum};
    if (strcmp(stored->dtype->name, "U8") != 0 || stored->rank != 1)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the change of a tensor must be U8 with one dimension");
    if (change->sum.len == 0)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s has no checksum of it (%s)",
                            delta->has_manifest ? manifest_name : "__metadata__", delta->index.checksum);
    return td_delta_patch_check(&patch, change->tensor->nbytes, err);
}

/* Sets *err to an error about a tensor of the delta. Returns false. */
static bool fail_change(const struct td_delta_version *delta, const struct td_delta_file *shard, struct td_text name,
                        const struct td_error *why, struct td_error *err)
{
    return td_error_set(err, why->code, "%.160s/%.96s: \"%.*s\": %s", delta->place.shown, shard->path,
                        TD_SHOW(name, 96), why->message);
}

/* Adds the change of one tensor. fd: the shard. */
static bool add_change(struct td_delta_chain *chain, size_t number, const struct td_shard_entry *entry, int fd,
                       struct td_error *err)
{
    const struct td_delta_version *delta = &chain->deltas[number];
    const struct td_delta_file *shard = &delta->files[entry->file];
    struct td_text name = td_text_n(entry->tensor, entry->tensor_len);
    struct td_delta_change *change = &chain->changes[chain->change_count];
    struct td_error why = TD_ERROR_INIT;
    *change = (struct td_delta_change){.delta = (uint32_t)number, .shard = shard};
    struct td_names names = base_names(chain);
    bool found;
    size_t place = td_names_search(&names, name, &found);
    if (found) {
        change->tensor = chain->tensors[place].tensor;
        change->file = chain->tensors[place].file;
    }
    change->stored = td_manifest_find(&shard->manifest, name);
    if (change->tensor == NULL)
        (void)td_error_set(&why, TD_FAILED_PRECONDITION, "the base %.120s has no such tensor", chain->base.place.shown);
    else if (change->stored == NULL)
        (void)td_error_set(&why, TD_FAILED_PRECONDITION, "the index says that it is in this file, but it is not");
    else {
        change->sum = find_sum(delta, shard, name);
        (void)check_change(delta, change, fd, &why);
    }
    if (why.code != TD_OK)
        return fail_change(delta, shard, name, &why, err);
    chain->change_count++;
    return true;
}

/* Adds the changes by one delta. Keeps one shard open at a time. */
static bool add_changes(struct td_delta_chain *chain, size_t number, const struct td_cancel *cancel,
                        struct td_error *err)
{
    const struct td_delta_version *delta = &chain->deltas[number];
    const struct td_shard_index *map = &delta->index.map;
    bool ok = true;
    int fd = -1;
    for (size_t i = 0; ok && i < map->entry_count; i++) {
        const struct td_shard_entry *entry = &map->entries[i];
        if (fd < 0 || entry->file != entry[-1].file) {
            if (fd >= 0)
                (void)close(fd);
            fd = -1;
            ok = !(cancel != NULL && td_cancel_is_asked(cancel)) || td_error_set(err, TD_CONFLICT, "stopped");
            ok = ok && td_delta_file_open(delta, &delta->files[entry->file], &fd, err);
        }
        ok = ok && add_change(chain, number, entry, fd, err);
    }
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static int compare_changes(const void *left, const void *right)
{
    const struct td_delta_change *a = left;
    const struct td_delta_change *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->tensor->offset != b->tensor->offset)
        return a->tensor->offset < b->tensor->offset ? -1 : 1;
    if (a->tensor != b->tensor) /* tensors without bytes */
        return strcmp(a->tensor->name, b->tensor->name);
    return a->delta < b->delta ? -1 : 1;
}

/* Makes the list of all changes. */
static bool collect_changes(struct td_delta_chain *chain, const struct td_cancel *cancel, struct td_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < chain->delta_count; i++)
        most += chain->deltas[i].index.map.entry_count;
    chain->changes = calloc(most + 1, sizeof *chain->changes);
    if (chain->changes == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < chain->delta_count; i++)
        if (!add_changes(chain, i, cancel, err))
            return false;
    qsort(chain->changes, chain->change_count, sizeof *chain->changes, compare_changes);
    for (size_t i = 0; i < chain->change_count; i++) {
        if (i > 0 && chain->changes[i].tensor == chain->changes[i - 1].tensor)
            continue;
        chain->changed_count++;
        chain->changed_bytes += chain->changes[i].tensor->nbytes;
    }
    for (size_t i = 0; i < chain->tensor_count; i++)
        chain->total_bytes += chain->tensors[i].tensor->nbytes;
    return true;
}

/* ---- the chain ----------------------------------------------------------------------------------------- */

bool td_delta_chain_open(struct td_delta_chain *chain, const struct td_delta_place *base, const char *base_version,
                         const struct td_delta_place *deltas, size_t delta_count, const struct td_cancel *cancel,
                         struct td_error *err)
{
    memset(chain, 0, sizeof *chain);
    td_arena_init(&chain->arena, 0);
    chain->base.place = *base;
    chain->deltas = calloc(delta_count + 1, sizeof *chain->deltas);
    if (chain->deltas == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < delta_count; i++) {
        chain->deltas[i].place = deltas[i];
        chain->delta_count++;
        if (!open_delta(&chain->deltas[i], cancel, err))
            return false;
    }
    return open_base(chain, cancel, err) && check_order(chain, base_version, err) &&
           collect_changes(chain, cancel, err);
}

static void free_version(struct td_delta_version *version)
{
    for (size_t i = 0; i < version->file_count; i++)
        td_manifest_fini(&version->files[i].manifest);
    free(version->files);
    td_delta_index_fini(&version->index);
    td_delta_sums_fini(&version->sums);
    free(version->text);
}

void td_delta_chain_fini(struct td_delta_chain *chain)
{
    free_version(&chain->base);
    for (size_t i = 0; i < chain->delta_count; i++)
        free_version(&chain->deltas[i]);
    free(chain->deltas);
    free(chain->tensors);
    free(chain->changes);
    td_arena_fini(&chain->arena);
    memset(chain, 0, sizeof *chain);
}
