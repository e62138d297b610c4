/* Plan: the files of the order are sorted and merged with the sorted list before. Deletions mark runs of the list
 * before: each adds 1 where its run begins and subtracts 1 where the run ends, so that a sum over the list says which
 * files are in any run, however many runs overlap. */
#include "catalog/publish/commit_list.h"

#include "catalog/scan/walk.h"
#include "core/array.h"
#include "core/digits.h"
#include "storage/fetch/fetch_target.h"

#include <stdlib.h>
#include <string.h>

/* ---- paths ----------------------------------------------------------------------------------------------- */

static const char *refuse_hidden(struct td_text part)
{
    char name[TD_FETCH_NAME_BYTES + 1];
    memcpy(name, part.p, part.len);
    name[part.len] = '\0';
    return td_walk_ignores(name) ? "would not be listed: a part is hidden, or ends in .tmp or .incomplete" : NULL;
}

bool td_commit_check_path(const char *path, bool allows_hidden, struct td_error *err)
{
    const char *fault = td_fetch_path_fault(td_text_of(path), allows_hidden ? NULL : refuse_hidden);
    return fault == NULL ||
           td_error_set(err, TD_INVALID_ARGUMENT, "the path \"%.*s\" %s", TD_SHOW(td_text_of(path), 200), fault);
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

void td_commit_list_fini(struct td_commit_list *list)
{
    td_arena_fini(&list->paths);
    free(list->entries);
    free(list->deleted);
    *list = (struct td_commit_list){.count = 0};
}

/* Appends an entry with a path that is borrowed. Returns NULL when memory is short. */
static struct td_commit_entry *append(struct td_commit_list *list, const char *path,
                                      const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    if (!TD_ARRAY_GROW(list->entries, list->count, list->capacity, err))
        return NULL;
    struct td_commit_entry *entry = &list->entries[list->count++];
    *entry = (struct td_commit_entry){.path = path, .number = SIZE_MAX};
    memcpy(entry->sha256, sha256, TD_SHA256_BYTES);
    return entry;
}

static bool refuse_size(const char *what, size_t most, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "a revision can have %zu %s, and this one would have more", most,
                        what);
}

bool td_commit_list_add(struct td_commit_list *list, const char *path, const uint8_t sha256[TD_SHA256_BYTES],
                        struct td_error *err)
{
    if (list->count >= TD_COMMIT_MAX_FILES)
        return refuse_size("files", TD_COMMIT_MAX_FILES, err);
    const char *copy = td_arena_strndup(&list->paths, td_text_of(path));
    return copy == NULL ? td_error_no_memory(err) : append(list, copy, sha256, err) != NULL;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct td_commit_entry *)a)->path, ((const struct td_commit_entry *)b)->path);
}

void td_commit_list_sort(struct td_commit_list *list)
{
    if (list->count > 0)
        qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
}

/* Returns the number of the first entry that is not before the path, or, if `after`, that does not begin with it. */
static size_t search(const struct td_commit_list *list, struct td_text path, bool after)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const char *at = list->entries[mid].path;
        int order = strncmp(at, path.p, path.len);
        if (order < 0 || (after && order == 0))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns whether the list has a file at this path. */
static bool has_file(const struct td_commit_list *list, struct td_text path)
{
    size_t at = search(list, path, false); /* the path itself is the first that begins with it */
    return at < list->count && td_text_equals(path, list->entries[at].path);
}

/* ---- making one ------------------------------------------------------------------------------------------ */

/* Adds one deletion to the marks, a difference for each entry of the list and one for its end. Returns false when there
 * is nothing to delete. */
static bool mark_deletion(const struct td_commit_list *before, const char *path, int32_t *marks)
{
    const struct td_text text = td_text_of(path);
    bool is_folder = text.len > 1 && text.p[text.len - 1] == '/';
    size_t first = search(before, text, false);
    size_t end = is_folder ? search(before, text, true) : first + 1;
    if (first == before->count || first == end || (!is_folder && strcmp(before->entries[first].path, path) != 0))
        return false;
    marks[first]++;
    marks[end]--;
    return true;
}

/* Sets list->deleted to which files of the list before are to go. `marks` are zeros. */
static bool mark_deletions(const struct td_commit_list *before, const struct td_commit_order *order, int32_t *marks,
                           struct td_commit_list *list, struct td_error *err)
{
    int32_t inside = 0;
    for (size_t i = 0; i < order->deletion_count; i++)
        if (!mark_deletion(before, order->deletions[i], marks) && !order->ignores_missing)
            return td_error_set(err, TD_NOT_FOUND, "cannot delete \"%.*s\": it is not there",
                                TD_SHOW(td_text_of(order->deletions[i]), 200));
    for (size_t i = 0; i < before->count; i++) {
        inside += marks[i];
        list->deleted[i] = inside > 0;
    }
    return true;
}

static bool find_deleted(const struct td_commit_list *before, const struct td_commit_order *order,
                         struct td_commit_list *list, struct td_error *err)
{
    int32_t *marks = calloc(before->count + 1, sizeof *marks);
    list->deleted = calloc(before->count + 1, 1);
    if (marks == NULL || list->deleted == NULL) {
        free(marks);
        return td_error_no_memory(err);
    }
    bool ok = mark_deletions(before, order, marks, list, err);
    free(marks);
    return ok;
}

/* Checks and sorts the files of the order. */
static bool take_files(const struct td_commit_order *order, struct td_commit_list *files, bool *is_too_large,
                       struct td_error *err)
{
    *is_too_large = order->file_count > TD_COMMIT_MAX_FILES;
    if (*is_too_large)
        return refuse_size("files", TD_COMMIT_MAX_FILES, err);
    for (size_t i = 0; i < order->file_count; i++) {
        const struct td_commit_file *file = &order->files[i];
        struct td_commit_entry *entry = td_commit_check_path(file->path, order->allows_hidden, err)
                                            ? append(files, file->path, file->sha256, err)
                                            : NULL;
        if (entry == NULL)
            return false;
        entry->number = i;
    }
    td_commit_list_sort(files);
    for (size_t i = 1; i < files->count; i++)
        if (strcmp(files->entries[i].path, files->entries[i - 1].path) == 0)
            return td_error_set(err, TD_INVALID_ARGUMENT, "the path \"%.*s\" is given twice",
                                TD_SHOW(td_text_of(files->entries[i].path), 200));
    return true;
}

/* Appends the files of the order, and those before that stay, by path. */
static bool merge(const struct td_commit_list *before, const struct td_commit_list *files,
                  const struct td_commit_order *order, struct td_commit_list *list, struct td_error *err)
{
    size_t i = 0;
    size_t k = 0;
    while (i < before->count || k < files->count) {
        const struct td_commit_entry *old = i < before->count ? &before->entries[i] : NULL;
        const struct td_commit_entry *new = k < files->count ? &files->entries[k] : NULL;
        int side = new == NULL ? -1 : old == NULL ? 1 : strcmp(old->path, new->path);
        bool stays = side < 0 && order->keep && !list->deleted[i];
        bool is_same = side == 0 && memcmp(old->sha256, new->sha256, TD_SHA256_BYTES) == 0;
        i += side <= 0 ? 1 : 0;
        k += side >= 0 ? 1 : 0;
        if (side < 0 && !stays)
            continue;
        struct td_commit_entry *entry =
            stays ? append(list, old->path, old->sha256, err) : append(list, new->path, new->sha256, err);
        if (entry == NULL)
            return false;
        entry->number = stays ? SIZE_MAX : new->number;
        entry->has_link = stays || (is_same && !order->renews_times);
    }
    return true;
}

/* Returns the length of the beginning that two paths share. */
static size_t shared_len(const char *a, const char *b)
{
    size_t len = 0;
    while (a[len] != '\0' && a[len] == b[len])
        len++;
    return len;
}

/* Checks that no folder of the sorted list has the path of a file, and that there are not too many. The files of a
 * folder stand together, so each folder is looked up once. */
static bool check_folders(const struct td_commit_list *list, bool *is_too_large, struct td_error *err)
{
    size_t folders = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *path = list->entries[i].path;
        size_t shared = i == 0 ? 0 : shared_len(list->entries[i - 1].path, path);
        for (const char *slash = strchr(path + shared, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
            const struct td_text folder = td_text_n(path, (size_t)(slash - path));
            if (has_file(list, folder))
                return td_error_set(err, TD_CONFLICT, "\"%.*s\" is a file, and a folder for \"%.*s\"",
                                    TD_SHOW(folder, 180), TD_SHOW(td_text_of(path), 180));
            folders++;
        }
        *is_too_large = folders > TD_COMMIT_MAX_FOLDERS;
        if (*is_too_large)
            return refuse_size("folders", TD_COMMIT_MAX_FOLDERS, err);
    }
    return true;
}

bool td_commit_list_make(const struct td_commit_list *before, const struct td_commit_order *order,
                         struct td_commit_list *list, bool *is_too_large, struct td_error *err)
{
    struct td_commit_list files = {.count = 0};
    *is_too_large = false;
    bool ok = take_files(order, &files, is_too_large, err) && find_deleted(before, order, list, err) &&
              merge(before, &files, order, list, err);
    td_commit_list_fini(&files);
    if (!ok)
        return false;
    *is_too_large = list->count > TD_COMMIT_MAX_FILES;
    if (*is_too_large)
        return refuse_size("files", TD_COMMIT_MAX_FILES, err);
    *is_too_large = order->max_files > 0 && list->count > before->count &&
                    (order->other_files >= order->max_files || list->count > order->max_files - order->other_files);
    if (*is_too_large)
        return td_error_set(
            err, TD_FAILED_PRECONDITION,
            "the server lists at most %zu files (--max-files): it has %zu others, and the revision would "
            "have %zu",
            order->max_files, order->other_files, list->count);
    return check_folders(list, is_too_large, err);
}

/* ---- comparing ------------------------------------------------------------------------------------------- */

bool td_commit_list_id(const struct td_commit_list *list, char commit[TD_COMMIT_BYTES], struct td_error *err)
{
    struct td_digest *digest = td_digest_create();
    for (size_t i = 0; i < list->count; i++) {
        char sha256[TD_SHA256_TEXT_BYTES];
        td_hex_write(list->entries[i].sha256, TD_SHA256_BYTES, sha256);
        td_repo_commit_add(digest, list->entries[i].path, sha256);
    }
    return td_digest_finish_text(digest, commit, TD_COMMIT_BYTES) || td_error_no_memory(err);
}

bool td_commit_list_equal(const struct td_commit_list *a, const struct td_commit_list *b)
{
    bool ok = a->count == b->count;
    for (size_t i = 0; ok && i < a->count; i++)
        ok = strcmp(a->entries[i].path, b->entries[i].path) == 0 &&
             memcmp(a->entries[i].sha256, b->entries[i].sha256, TD_SHA256_BYTES) == 0;
    return ok;
}
