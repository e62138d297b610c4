#include "catalog/remote/remote_listing.h"

#include "core/array.h"
#include "core/checked.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "storage/fetch/fetch_target.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The members of an item that are read. */
struct item {
    bool is_file, has_path, has_size, has_lfs, has_lfs_size;
    char path[TD_REMOTE_MAX_PATH_BYTES + 1];
    size_t path_len;
    uint64_t size_bytes, lfs_bytes;
    char oid[2 * TD_FETCH_SHA1_BYTES + 1];
    char sha256[TD_SHA256_TEXT_BYTES];
};

void td_remote_listing_init(struct td_remote_listing *listing)
{
    memset(listing, 0, sizeof *listing);
    td_arena_init(&listing->arena, TD_REMOTE_MAX_LISTING_BYTES);
}

void td_remote_listing_fini(struct td_remote_listing *listing)
{
    td_arena_fini(&listing->arena);
    free(listing->files);
    listing->files = NULL;
    listing->count = listing->capacity = 0;
}

/* ---- paths --------------------------------------------------------------------------------------------- */

static bool ends_with(struct td_text text, const char *end)
{
    size_t len = strlen(end);
    return text.len >= len && memcmp(text.p + text.len - len, end, len) == 0;
}

/* Returns whether the name belongs to a file or directory of tensord's own: an unfinished file, its journal, the
 * staging directory of a pull, or the folder of --upstream. */
static bool is_own_name(struct td_text name)
{
    static const char *const ends[] = {TD_FETCH_PART_END, TD_FETCH_JOURNAL_END, TD_FETCH_STAGING_END};
    if (name.p[0] != '.')
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return td_text_begins_ignore_case(name, ".tensord-");
}

static const char *refuse_name(struct td_text name)
{
    if (is_own_name(name))
        return "has a name that is kept for tensord's own files";
    if (td_text_equals_ignore_case(name, ".git")) /* its configuration says what git runs */
        return "has a part .git, which is Git's own";
    return NULL;
}

bool td_remote_path_check(struct td_text path, struct td_error *err)
{
    const char *fault = td_fetch_path_fault(path, refuse_name);
    return fault == NULL || td_error_set(err, TD_INVALID_ARGUMENT, "the server lists a file whose path %s: \"%.*s\"",
                                         fault, TD_SHOW(path, 100));
}

/* ---- items --------------------------------------------------------------------------------------------- */

/* Reads a string of at most capacity - 1 bytes. */
static bool read_string(struct td_json *json, const char *what, char *out, size_t capacity, size_t *len)
{
    return td_json_expect(json, TD_JSON_STRING, what) && td_json_string(json, out, capacity, len);
}

static bool read_number(struct td_json *json, const char *what, uint64_t *out)
{
    if (!td_json_expect(json, TD_JSON_NUMBER, what) || !td_json_u64(json, out))
        return false;
    return *out <= INT64_MAX || td_json_fail(json, "%s has to fit into 63 bits", what);
}

/* Reads the digits of a digest. */
static bool read_digest(struct td_json *json, const char *what, char *out, size_t capacity)
{
    size_t len;
    if (!read_string(json, what, out, capacity, &len))
        return false;
    if (len == capacity - 1 && td_hex_is_lower(td_text_n(out, len)))
        return true;
    return td_json_fail(json, "%s has to be %zu lower-case hexadecimal digits", what, capacity - 1);
}

/* Reads {"oid": SHA-256, "size": ...}; null counts as none. */
static bool read_lfs(struct td_json *json, struct item *item)
{
    enum td_json_token token = td_json_next(json);
    if (token == TD_JSON_NULL)
        return true;
    if (token != TD_JSON_OBJECT_BEGIN)
        return token != TD_JSON_ERROR && td_json_fail(json, "lfs has to be an object");
    item->has_lfs = true;
    while ((token = td_json_next(json)) == TD_JSON_KEY) {
        bool ok = true;
        if (td_json_equals(json, "oid"))
            ok = read_digest(json, "lfs.oid", item->sha256, sizeof item->sha256);
        else if (td_json_equals(json, "size"))
            ok = item->has_lfs_size = read_number(json, "lfs.size", &item->lfs_bytes);
        else
            ok = td_json_skip(json);
        if (!ok)
            return false;
    }
    if (token != TD_JSON_OBJECT_END)
        return false;
    return item->sha256[0] != '\0' || td_json_fail(json, "lfs has no oid");
}

static bool read_member(struct td_json *json, struct item *item)
{
    char type[32];
    size_t len;
    if (td_json_equals(json, "type")) {
        if (!read_string(json, "type", type, sizeof type, &len))
            return false;
        item->is_file = strcmp(type, "file") == 0;
        return true;
    }
    if (td_json_equals(json, "path"))
        return item->has_path = read_string(json, "path", item->path, sizeof item->path, &item->path_len);
    if (td_json_equals(json, "size"))
        return item->has_size = read_number(json, "size", &item->size_bytes);
    if (td_json_equals(json, "oid"))
        return read_digest(json, "oid", item->oid, sizeof item->oid);
    return td_json_equals(json, "lfs") ? read_lfs(json, item) : td_json_skip(json);
}

/* Returns whether the item is empty, but has a digest other than that of 0 bytes. An empty file must be refused here:
 * once its fetch begins it is complete for readers, before its digest could be checked. */
static bool is_empty_under_another_digest(const struct item *item, uint64_t size_bytes, bool git_oids)
{
    static const char sha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    static const char git_sha1[] = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
    if (size_bytes > 0)
        return false;
    if (item->has_lfs)
        return strcmp(item->sha256, sha256) != 0;
    return git_oids && item->oid[0] != '\0' && strcmp(item->oid, git_sha1) != 0;
}

static bool add_file(struct td_remote_listing *listing, const struct item *item, bool git_oids, struct td_error *err)
{
    struct td_remote_file file = {.expected = {.size_bytes = item->has_lfs_size ? item->lfs_bytes : item->size_bytes}};
    if (listing->count >= TD_REMOTE_MAX_FILES)
        return td_error_set(err, TD_FAILED_PRECONDITION, "the server lists more than %d files", TD_REMOTE_MAX_FILES);
    if (file.expected.size_bytes > TD_REMOTE_MAX_FILE_BYTES)
        return td_error_set(
            err, TD_INVALID_ARGUMENT, "the server lists \"%.*s\" with %" PRIu64 " bytes; a file may have %" PRIu64,
            TD_SHOW(td_text_n(item->path, item->path_len), 100), file.expected.size_bytes, TD_REMOTE_MAX_FILE_BYTES);
    if (is_empty_under_another_digest(item, file.expected.size_bytes, git_oids))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the server lists \"%.*s\" with 0 bytes and a digest that is not that of 0 bytes",
                            TD_SHOW(td_text_n(item->path, item->path_len), 100));
    if (!td_add_u64(listing->total_bytes, file.expected.size_bytes, &listing->total_bytes) ||
        listing->total_bytes > INT64_MAX)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the sizes that the server lists add up to 2^63 bytes or more");
    if (!TD_ARRAY_GROW(listing->files, listing->count, listing->capacity, err))
        return false;
    file.path = td_arena_strndup(&listing->arena, td_text_n(item->path, item->path_len));
    if (file.path == NULL)
        return td_arena_refuse(&listing->arena, "the list of files", err);
    file.expected.has_sha256 = item->has_lfs;
    file.expected.has_git_sha1 = !item->has_lfs && git_oids && item->oid[0] != '\0';
    if (file.expected.has_sha256) /* read_digest has checked the digits, and those below */
        (void)td_hex_read_bytes(td_text_of(item->sha256), file.expected.sha256, TD_SHA256_BYTES);
    if (file.expected.has_git_sha1)
        (void)td_hex_read_bytes(td_text_of(item->oid), file.expected.git_sha1, TD_FETCH_SHA1_BYTES);
    listing->files[listing->count++] = file;
    return true;
}

/* Reads one item, whose object has begun. */
static bool read_item(struct td_remote_listing *listing, struct td_json *json, bool git_oids, struct td_error *err)
{
    struct item item = {0};
    enum td_json_token token;
    while ((token = td_json_next(json)) == TD_JSON_KEY)
        if (!read_member(json, &item))
            return false;
    if (token != TD_JSON_OBJECT_END)
        return false;
    listing->item_count++;
    if (!item.is_file)
        return true;
    if (!item.has_path || (!item.has_size && !item.has_lfs_size))
        return td_json_fail(json, "a file has no path or no size");
    return td_remote_path_check(td_text_n(item.path, item.path_len), err) && add_file(listing, &item, git_oids, err);
}

bool td_remote_listing_add_page(struct td_remote_listing *listing, struct td_text page, bool git_oids,
                                struct td_error *err)
{
    struct td_json json;
    enum td_json_token token;
    td_json_init(&json, page, 0, err);
    if (!td_json_expect(&json, TD_JSON_ARRAY_BEGIN, "a list of files"))
        return false;
    while ((token = td_json_next(&json)) == TD_JSON_OBJECT_BEGIN)
        if (!read_item(listing, &json, git_oids, err))
            return false;
    if (token != TD_JSON_ARRAY_END)
        return token != TD_JSON_ERROR && td_json_fail(&json, "a list of files holds objects alone");
    return td_json_expect(&json, TD_JSON_END, "the end of the list");
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct td_remote_file *)a)->path, ((const struct td_remote_file *)b)->path);
}

const struct td_remote_file *td_remote_listing_find(const struct td_remote_listing *listing, const char *path)
{
    const struct td_remote_file key = {.path = path};
    return listing->count == 0 ? NULL : bsearch(&key, listing->files, listing->count, sizeof key, compare_files);
}

/* Returns whether a directory of the path is a file of the listing. */
static bool is_below_a_file(const struct td_remote_listing *listing, const char *path)
{
    char directory[TD_REMOTE_MAX_PATH_BYTES + 1];
    for (size_t i = 0; path[i] != '\0'; i++) {
        directory[i] = path[i] == '/' ? '\0' : path[i];
        if (path[i] == '/' && td_remote_listing_find(listing, directory) != NULL)
            return true;
        directory[i] = path[i];
    }
    return false;
}

bool td_remote_listing_finish(struct td_remote_listing *listing, struct td_error *err)
{
    if (listing->count > 0)
        qsort(listing->files, listing->count, sizeof *listing->files, compare_files);
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        if (i > 0 && strcmp(listing->files[i - 1].path, path) == 0)
            return td_error_set(err, TD_INVALID_ARGUMENT, "the server lists two files with the path \"%.200s\"", path);
        if (is_below_a_file(listing, path))
            return td_error_set(err, TD_INVALID_ARGUMENT, "the server lists a directory of \"%.200s\" as a file, too",
                                path);
    }
    return true;
}

void td_remote_listing_keep(struct td_remote_listing *listing, bool (*keeps)(const char *path))
{
    size_t count = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (!keeps(listing->files[i].path))
            continue;
        bytes += listing->files[i].expected.size_bytes;
        listing->files[count++] = listing->files[i];
    }
    listing->count = count;
    listing->total_bytes = bytes; /* at most the sum before */
}
