#include "server/cmd/push_files.h"

#include "catalog/scan/scan.h"
#include "catalog/scan/walk.h"
#include "core/file_io.h"
#include "server/cmd/shared/crew.h"
#include "server/cmd/shared/local_scan.h"
#include "storage/fetch/fetch_path.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1024 * 1024, MAX_HASHERS = 16 };

/* ---- which files --------------------------------------------------------------------------------------- */

/* The walk of a directory. */
struct search {
    struct td_push_files *out;
    struct td_copying *copying;
    const char *directory;
    size_t prefix_len; /* of paths, before those in the model */
    struct td_walk walk;
    struct td_problems problems;
    struct td_error *err;
};

/* Refuses the folder of a cache, whose files are blobs without names. */
static bool check_cache_folder(const struct search *search)
{
    char id[NAME_MAX + 1];
    char real_path[PATH_MAX];
    char commit[NAME_MAX + 1];
    const char *slash = realpath(search->directory, real_path) == NULL ? NULL : strrchr(real_path, '/');
    if (slash == NULL || !td_hub_cache_id(slash + 1, id, sizeof id) ||
        !td_hub_cache_commit(search->out->root, ".", commit, sizeof commit))
        return true;
    return td_error_set(search->err, TD_FAILED_PRECONDITION,
                        "\"%.200s\" is the folder of %.60s in a Hugging Face cache: give its snapshot, "
                        "snapshots/%.60s in it",
                        search->directory, id, commit);
}

static bool walk(struct search *search)
{
    struct td_hub_place place;
    bool in_cache = false;
    const struct td_scan_config config = td_scan_config_default();
    const struct td_walk_limits limits = {.max_files = config.max_files, .max_directories = config.max_directories};
    _Atomic uint64_t found = 0;
    _Atomic bool never = false;
    struct td_push_files *out = search->out;
    if (!td_local_root(search->directory, &out->root, &in_cache, &place, search->err))
        return false;
    search->prefix_len = in_cache ? strlen(place.id) + 1 : 0;
    if (!in_cache && !check_cache_folder(search))
        return false;
    if (!td_walk_run(&search->walk, out->root, in_cache ? &place : NULL, &out->names, &search->problems, &limits,
                     &found, &never, search->err))
        return false;
    const struct td_problem *problem = search->problems.items;
    return search->problems.count == 0 ||
           td_error_set(search->err, TD_FAILED_PRECONDITION, "\"%.200s\": \"%.100s\" cannot be sent: %s",
                        search->directory, problem->path, problem->message);
}

/* Returns whether an item that cannot be sent is a link within the directory that cannot be followed. */
static bool is_broken(const struct td_root *root, const char *physical)
{
    struct stat st;
    struct td_error why = TD_ERROR_INIT;
    bool leads_outside = !td_root_stat(root, physical, &st, &why) && why.code == TD_PERMISSION_DENIED && why.sys == 0;
    return why.code != TD_OK && !leads_outside;
}

/* Adds the file, unless the patterns do not take it. */
static bool add_file(struct search *search, const struct td_found *found)
{
    struct td_push_files *out = search->out;
    struct td_push_file *file = &out->files[out->count];
    char note[PATH_MAX + 256];
    const char *path = found->path + search->prefix_len;
    if (!td_copy_options_take(search->copying->options, path))
        return true;
    if (found->error != NULL && is_broken(out->root, found->physical))
        return td_error_set(search->err, TD_FAILED_PRECONDITION, "\"%.200s\": \"%.300s\" cannot be sent: it %s",
                            search->directory, path, found->error);
    if (found->error != NULL) {
        int len = (int)strcspn(found->error, ";"); /* after it comes advice for one who serves the directory */
        (void)snprintf(note, sizeof note, "\"%s\" is left out: it %.*s", path, len, found->error);
        td_copying_note(search->copying, note);
        return true;
    }
    const char *fault = td_fetch_path_fault(td_text_of(path), NULL);
    if (fault != NULL)
        return td_error_set(search->err, TD_FAILED_PRECONDITION, "\"%.200s\": \"%.300s\" cannot be sent: its path %s",
                            search->directory, path, fault);
    *file = (struct td_push_file){.path = path, .id = found->id, .blob = {.size_bytes = found->id.size_bytes}};
    file->physical = td_arena_strndup(&out->names, td_text_of(found->physical)); /* the walk frees its own */
    out->count++;
    return file->physical != NULL || td_error_no_memory(search->err);
}

static bool choose_files(struct search *search)
{
    struct td_push_files *out = search->out;
    out->files = calloc(search->walk.count + 1, sizeof *out->files);
    if (out->files == NULL)
        return td_error_no_memory(search->err);
    for (size_t i = 0; i < search->walk.count; i++)
        if (!td_copying_check(search->copying, search->err) ||
            (!td_walk_passes_over(&search->walk, i) && !add_file(search, &search->walk.found[i])))
            return false;
    return out->count > 0 || td_error_set(search->err, TD_NOT_FOUND, "\"%.200s\" has no files%s", search->directory,
                                          search->walk.count > 0 ? " that can be sent and that --include and "
                                                                   "--exclude let through"
                                                                 : "");
}

bool td_push_files_find(struct td_push_files *out, const char *directory, struct td_copying *copying,
                        struct td_error *err)
{
    struct search search = {.out = out, .copying = copying, .directory = directory, .err = err};
    *out = (struct td_push_files){0};
    td_arena_init(&out->names, 0);
    bool ok = walk(&search) && choose_files(&search);
    td_walk_fini(&search.walk);
    free(search.problems.items);
    return ok;
}

void td_push_files_fini(struct td_push_files *files)
{
    td_root_unref(files->root);
    free(files->files);
    free(files->by_digest);
    td_arena_fini(&files->names);
    *files = (struct td_push_files){0};
}

/* ---- content ------------------------------------------------------------------------------------------- */

static bool refuse_changed(const struct td_push_file *file, struct td_error *err)
{
    return td_error_set(
        err, TD_FAILED_PRECONDITION,
        "\"%.300s\" has changed since it was read: run the same command again when nothing writes to it", file->path);
}

bool td_push_file_check(const struct td_push_file *file, int fd, struct td_error *err)
{
    return td_file_id_is(fd, &file->id) || refuse_changed(file, err);
}

bool td_push_file_open(const struct td_push_files *files, const struct td_push_file *file, int *fd,
                       struct td_error *err)
{
    struct td_file_id id;
    if (!td_root_open_file(files->root, file->physical, fd, &id, err))
        return false;
    if (td_file_id_equal(&id, &file->id))
        return true;
    (void)close(*fd);
    return refuse_changed(file, err);
}

/* The work of the threads that hash. */
struct hashing {
    struct td_push_files *files;
    struct td_copying *copying;
    _Atomic size_t next;
};

struct hasher {
    struct td_crew_member member; /* first */
    struct hashing *work;
};

/* Reads the open file to its end and sets its digest. */
static bool hash_content(struct hashing *work, struct td_push_file *file, int fd, char *buffer, struct td_error *err)
{
    struct td_digest *digest = td_digest_create();
    uint64_t done = 0;
    ssize_t n = 1;
    while (done < file->blob.size_bytes && n > 0 && !td_cancel_is_asked(&work->copying->cancel)) {
        uint64_t left = file->blob.size_bytes - done;
        n = td_read_at(fd, buffer, left < READ_BYTES ? (size_t)left : READ_BYTES, done);
        if (n <= 0)
            break;
        td_digest_add_content(digest, buffer, (size_t)n);
        done += (uint64_t)n;
        atomic_fetch_add(&work->copying->done_bytes, (uint64_t)n);
    }
    int sys = errno;
    file->is_hashed = td_digest_finish_binary(digest, file->blob.sha256) && done == file->blob.size_bytes;
    if (n < 0)
        return td_error_sys(err, TD_IO, sys, "cannot read \"%.300s\"", file->path);
    if (!td_copying_check(work->copying, err))
        return false;
    if (done < file->blob.size_bytes || !td_file_id_is(fd, &file->id))
        return refuse_changed(file, err);
    return file->is_hashed || td_error_no_memory(err);
}

static bool hash_file(struct hashing *work, struct td_push_file *file, char *buffer, struct td_error *err)
{
    int fd;
    if (!td_push_file_open(work->files, file, &fd, err))
        return false;
    bool ok = hash_content(work, file, fd, buffer, err);
    (void)close(fd);
    return ok;
}

/* Hashes files until none is left, or a thread has failed. */
static void *hash_files(void *argument)
{
    struct hasher *hasher = argument;
    struct hashing *work = hasher->work;
    char *buffer = malloc(READ_BYTES);
    size_t i;
    bool ok = buffer != NULL || td_error_no_memory(&hasher->member.err);
    while (ok && !atomic_load(&work->copying->has_failed) &&
           (i = atomic_fetch_add(&work->next, 1)) < work->files->count)
        ok = hash_file(work, &work->files->files[i], buffer, &hasher->member.err);
    if (!ok)
        atomic_store(&work->copying->has_failed, true);
    free(buffer);
    return NULL;
}

/* Returns the number of threads: as many as there are processors, connections and files at most. */
static size_t count_hashers(const struct td_push_files *files)
{
    cpu_set_t set;
    size_t processors = sched_getaffinity(0, sizeof set, &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;
    size_t most = processors < MAX_HASHERS ? processors : MAX_HASHERS;
    return files->count < most ? files->count : most;
}

static int compare_digest(const void *a, const void *b)
{
    const struct td_push_file *const *one = a;
    const struct td_push_file *const *other = b;
    return memcmp((*one)->blob.sha256, (*other)->blob.sha256, TD_SHA256_BYTES);
}

/* Makes the list of digests, each with the first of its files. */
static bool sort_digests(struct td_push_files *files, struct td_error *err)
{
    files->by_digest = calloc(files->count, sizeof(struct td_push_file *));
    if (files->by_digest == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < files->count; i++)
        files->by_digest[i] = &files->files[i];
    qsort(files->by_digest, files->count, sizeof *files->by_digest, compare_digest);
    for (size_t i = 0; i < files->count; i++)
        if (i == 0 || compare_digest(&files->by_digest[files->digest_count - 1], &files->by_digest[i]) != 0)
            files->by_digest[files->digest_count++] = files->by_digest[i];
    return true;
}

bool td_push_files_hash(struct td_push_files *files, const char *directory, struct td_copying *copying,
                        struct td_error *err)
{
    struct hashing work = {.files = files, .copying = copying};
    struct hasher hashers[MAX_HASHERS];
    size_t count = count_hashers(files);
    uint64_t total = 0;
    for (size_t i = 0; i < files->count; i++)
        total += files->files[i].blob.size_bytes;
    atomic_store(&copying->done_bytes, 0);
    atomic_store(&copying->total_bytes, total);
    td_copying_show(copying, "hashing ", directory);
    for (size_t i = 0; i < count; i++)
        hashers[i] = (struct hasher){.member = {.err = TD_ERROR_INIT}, .work = &work};
    bool ok = td_crew_run(hashers, count, sizeof *hashers, hash_files, err);
    td_copying_show_end(copying);
    if (!ok || !td_copying_check(copying, err) || !sort_digests(files, err))
        return false;
    for (size_t i = 0; i < files->digest_count; i++)
        files->digest_bytes += files->by_digest[i]->blob.size_bytes;
    atomic_store(&copying->done_bytes, 0);
    return true;
}

struct td_push_file *td_push_files_of_digest(const struct td_push_files *files, const uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_push_file key;
    const struct td_push_file *wanted = &key;
    memcpy(key.blob.sha256, sha256, TD_SHA256_BYTES);
    struct td_push_file **found =
        bsearch(&wanted, files->by_digest, files->digest_count, sizeof *files->by_digest, compare_digest);
    return found == NULL ? NULL : *found;
}
