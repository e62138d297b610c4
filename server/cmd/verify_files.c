/* Walks the directory like a scan, groups the names of each file, hashes each file once, and compares the result with
 * the digest log of --state-dir and with the names of blobs in a Hugging Face cache. Files are sorted by identity, so
 * that hard links, and the links of several revisions to one blob, are next to each other. Problems are printed as soon
 * as they are known; JSON is one object, with the list of problems as its first member. */
#include "server/cmd/verify_files.h"

#include "catalog/digests/digest_log.h"
#include "catalog/model/content_hash.h"
#include "catalog/model/hub_cache.h"
#include "catalog/scan/scan.h"
#include "catalog/scan/walk.h"
#include "core/digits.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/shared/local_scan.h"
#include "server/cmd/verify_report.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tally {
    uint64_t files;        /* files read to their ends; a file with several names counts once */
    uint64_t recorded;     /* files compared with the log of digests */
    uint64_t blob_names;   /* names of blobs compared */
    uint64_t not_compared; /* files read without anything to compare with */
    uint64_t mismatches, unreadable;
};

struct verification {
    struct td_root *root;
    struct td_digest_log *log;
    struct td_walk walk;
    struct td_arena names;
    struct td_problems problems;
    /* Sorted by identity: the names of one file are neighbours. While files are verified, the first name of each that
     * could not be compared moves to the front, so that tally.not_compared of them stand there in the end. */
    const struct td_found **files;
    size_t file_count;
    struct td_verify_report report;
    struct tally tally;
    struct td_buffer path; /* scratch memory for one path */
    struct td_progress progress;
    _Atomic uint64_t total_bytes, hashed_bytes;
};

/* ---- printing ------------------------------------------------------------------------------------------ */

/* Returns the path by which the file can be opened; valid until the next call. */
static const char *full_path(struct verification *v, const char *physical)
{
    td_buffer_clear(&v->path);
    td_buffer_printf(&v->path, "%s/%s", v->root->path, physical);
    td_buffer_putc(&v->path, '\0');
    return v->path.failed ? physical : v->path.data;
}

static void print_mismatch(struct verification *v, const char *physical, const char *expected, const char *found)
{
    td_verify_problem_begin(&v->report, "recorded", "MISMATCH", "file", full_path(v, physical));
    if (v->report.as_json)
        td_verify_problem_add(&v->report, expected, found);
    else
        (void)printf("recorded as %s, but it hashes to %s", expected, found);
    td_verify_problem_end(&v->report);
    v->tally.mismatches++;
}

/* Reports a link to a blob with another digest than its name, with the path of the blob, which has to be deleted. */
static void print_blob_mismatch(struct verification *v, const char *physical, const char *name, const char *found)
{
    struct td_buffer blob;
    td_buffer_init(&blob);
    const char *snapshots = strstr(physical, "snapshots/");
    int folder_len = snapshots == NULL ? 0 : (int)(snapshots - physical);
    td_buffer_printf(&blob, "%s/%.*sblobs/%s", v->root->path, folder_len, physical, name);
    const char *path = td_buffer_terminate(&blob);
    path = path == NULL ? name : path;
    td_verify_problem_begin(&v->report, "blob_name", "MISMATCH", "file", full_path(v, physical));
    if (v->report.as_json) {
        td_document_add_string(&v->report.json, "blob", path);
        td_verify_problem_add(&v->report, name, found);
    } else {
        (void)printf("its blob %s hashes to %s", td_terminal_name(path, &v->report.shown), found);
    }
    td_verify_problem_end(&v->report);
    td_buffer_fini(&blob);
    v->tally.mismatches++;
}

static void print_unreadable(struct verification *v, const char *physical, const char *message)
{
    td_verify_print_unreadable(&v->report, "file", full_path(v, physical), message);
    v->tally.unreadable++;
}

static int path_compare(const void *a, const void *b)
{
    const struct td_found *x = *(const struct td_found *const *)a;
    const struct td_found *y = *(const struct td_found *const *)b;
    return strcmp(x->physical, y->physical);
}

static void add_not_compared(struct verification *v)
{
    td_document_begin_array(&v->report.json, "not_compared_files");
    for (uint64_t i = 0; i < v->tally.not_compared; i++) {
        td_document_add_string(&v->report.json, NULL, full_path(v, v->files[i]->physical));
        td_verify_report_flush(&v->report);
    }
    td_document_end(&v->report.json);
}

static bool compared_nothing(const struct tally *tally)
{
    return tally->recorded + tally->blob_names == 0;
}

/* Prints the first files that could not be compared. Prints nothing if no file could be compared, since the summary
 * says so. */
static void print_not_compared(struct verification *v)
{
    uint64_t count = compared_nothing(&v->tally) ? 0 : v->tally.not_compared;
    for (uint64_t i = 0; i < count && td_verify_not_compared(i, count); i++)
        (void)printf("%s\n", td_terminal_name(full_path(v, v->files[i]->physical), &v->report.shown));
}

/* Ends the list of problems and the object. */
static void print_json_summary(struct verification *v)
{
    const struct tally *tally = &v->tally;
    td_document_end(&v->report.json);
    td_document_add_u64(&v->report.json, "files", tally->files);
    td_document_add_u64(&v->report.json, "bytes", atomic_load(&v->hashed_bytes));
    td_document_add_u64(&v->report.json, "recorded", tally->recorded);
    td_document_add_u64(&v->report.json, "blob_names", tally->blob_names);
    td_document_add_u64(&v->report.json, "not_compared", tally->not_compared);
    td_document_add_u64(&v->report.json, "mismatches", tally->mismatches);
    td_document_add_u64(&v->report.json, "unreadable", tally->unreadable);
    add_not_compared(v);
    td_document_end(&v->report.json);
    td_verify_report_flush(&v->report);
    (void)putchar('\n');
}

static void print_summary(struct verification *v)
{
    if (v->tally.not_compared > 0)
        qsort(v->files, (size_t)v->tally.not_compared, sizeof *v->files, path_compare);
    if (v->report.as_json) {
        print_json_summary(v);
        return;
    }
    print_not_compared(v);
    const struct tally *tally = &v->tally;
    (void)printf("%" PRIu64 " file%s, %s: %" PRIu64 " compared with recorded digests, %" PRIu64
                 " with names of blobs, %" PRIu64 " not compared; %" PRIu64 " mismatch%s, %" PRIu64 " unreadable\n",
                 tally->files, td_plural(tally->files), td_terminal_size(atomic_load(&v->hashed_bytes)).text,
                 tally->recorded, tally->blob_names, tally->not_compared, tally->mismatches,
                 tally->mismatches == 1 ? "" : "es", tally->unreadable);
}

/* Returns whether --state-dir was given and has no digest of any of the files. A wrong directory must not look like a
 * good result. */
static bool has_no_records(const struct verification *v, const char *state_dir)
{
    return state_dir != NULL && v->tally.files > 0 && v->tally.recorded == 0;
}

/* Writes the folder of a repository in a Hugging Face cache if the directory is its "blobs"; else returns false. */
static bool find_cache_of_blobs(const char *directory, char folder[PATH_MAX])
{
    char id[PATH_MAX];
    char *slash = realpath(directory, folder) == NULL ? NULL : strrchr(folder, '/');
    if (slash == NULL || strcmp(slash, "/blobs") != 0)
        return false;
    *slash = '\0';
    slash = strrchr(folder, '/');
    return slash != NULL && td_hub_cache_id(slash + 1, id, sizeof id);
}

/* Prints that there was nothing to compare with, and which directory to name instead. */
static void advise_what_to_name(const char *directory)
{
    char folder[PATH_MAX];
    if (find_cache_of_blobs(directory, folder))
        td_terminal_complain("nothing was compared: blobs of a Hugging Face cache are compared with their names "
                             "when snapshots link to them; verify %s instead",
                             folder);
    else
        td_terminal_complain("there was nothing to compare with: no --state-dir is given, and these are not "
                             "files of a Hugging Face cache");
}

/* Prints advice about the result as a whole. */
static void print_advice(const struct verification *v, const struct td_verify_files *wanted)
{
    const struct tally *tally = &v->tally;
    if (v->report.as_json)
        return;
    if (tally->mismatches > 0)
        td_terminal_complain("a mismatch is bit rot or tampering: restore the file from its source; in a Hugging Face "
                             "cache, delete the blob (deleting a link to it is not enough) and download it again");
    if (has_no_records(v, wanted->state_dir))
        td_terminal_complain("no digest of these files is recorded in %s%s: is it the --state-dir of a server on "
                             "this directory?",
                             wanted->state_dir, wanted->state_dir_given ? "" : " (TENSORD_STATE_DIR)");
    else if (tally->files + tally->unreadable == 0)
        td_terminal_complain("there is no file in %s to compare", wanted->directory);
    else if (compared_nothing(tally))
        advise_what_to_name(wanted->directory);
}

/* ---- verifying ----------------------------------------------------------------------------------------- */

static int id_compare(const struct td_file_id *a, const struct td_file_id *b)
{
    const uint64_t x[] = {a->device, a->inode, a->size_bytes, (uint64_t)a->mtime_ns, (uint64_t)a->ctime_ns};
    const uint64_t y[] = {b->device, b->inode, b->size_bytes, (uint64_t)b->mtime_ns, (uint64_t)b->ctime_ns};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static int found_compare(const void *a, const void *b)
{
    const struct td_found *x = *(const struct td_found *const *)a;
    const struct td_found *y = *(const struct td_found *const *)b;
    int order = id_compare(&x->id, &y->id);
    return order != 0 ? order : strcmp(x->physical, y->physical);
}

static void compare_with_record(struct verification *v, const struct td_found *found,
                                const struct td_content_sums *sums)
{
    uint8_t recorded[TD_SHA256_BYTES];
    char expected[TD_SHA256_TEXT_BYTES];
    char is[TD_SHA256_TEXT_BYTES];
    if (!td_digest_log_find(v->log, &found->id, recorded))
        return;
    v->tally.recorded++;
    if (memcmp(recorded, sums->sha256, TD_SHA256_BYTES) == 0)
        return;
    td_hex_write(recorded, TD_SHA256_BYTES, expected);
    td_hex_write(sums->sha256, TD_SHA256_BYTES, is);
    print_mismatch(v, found->physical, expected, is);
}

/* Compares the digests with the name of each blob that the file's names link to; blobs with different names can be one
 * file. */
static void compare_with_names(struct verification *v, const struct td_found *const *names, size_t count,
                               const struct td_content_sums *sums)
{
    char last[TD_SHA256_TEXT_BYTES] = "";
    char name[TD_SHA256_TEXT_BYTES];
    char is[TD_SHA256_TEXT_BYTES];
    for (size_t i = 0; i < count; i++) {
        enum td_blob_name kind = td_cache_blob_name_of(v->root, names[i]->physical, name);
        if (kind == TD_BLOB_NAME_NONE || strcmp(name, last) == 0)
            continue;
        memcpy(last, name, sizeof last);
        v->tally.blob_names++;
        if (td_cache_blob_name_fits(kind, name, sums))
            continue;
        if (kind == TD_BLOB_NAME_SHA256)
            td_hex_write(sums->sha256, TD_SHA256_BYTES, is);
        else
            td_hex_write(sums->git_sha1, TD_GIT_SHA1_BYTES, is);
        print_blob_mismatch(v, names[i]->physical, name, is);
    }
}

/* Hashes a file once and compares the result, by all its names. */
static void verify_file(struct verification *v, const struct td_found *const *names, size_t count)
{
    const struct td_content_hash_options options = {.git_sha1 = true, .hashed_bytes = &v->hashed_bytes};
    struct td_content_sums sums;
    struct td_error err = TD_ERROR_INIT;
    if (!td_content_hash(v->root, names[0]->physical, &names[0]->id, &options, &sums, &err)) {
        td_error_name_it(&err, names[0]->physical);
        print_unreadable(v, names[0]->physical, err.message);
        return;
    }
    uint64_t before = v->tally.recorded + v->tally.blob_names;
    v->tally.files++;
    compare_with_record(v, names[0], &sums);
    compare_with_names(v, names, count, &sums);
    if (v->tally.recorded + v->tally.blob_names == before)
        v->files[v->tally.not_compared++] = names[0]; /* a place of these names or of earlier ones */
}

/* Reports files that the walk could not read, and sorts the others by identity. */
static bool sort_files(struct verification *v, struct td_error *err)
{
    v->files = calloc(v->walk.count + 1, sizeof *v->files);
    if (v->files == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < v->problems.count; i++)
        print_unreadable(v, v->problems.items[i].path, v->problems.items[i].message);
    for (size_t i = 0; i < v->walk.count; i++) {
        const struct td_found *found = &v->walk.found[i];
        if (found->error != NULL)
            print_unreadable(v, found->physical, found->error);
        else
            v->files[v->file_count++] = found;
    }
    if (v->file_count > 0)
        qsort(v->files, v->file_count, sizeof *v->files, found_compare);
    uint64_t bytes = 0;
    for (size_t i = 0; i < v->file_count; i++)
        if (i == 0 || id_compare(&v->files[i - 1]->id, &v->files[i]->id) != 0)
            bytes += v->files[i]->id.size_bytes;
    atomic_store(&v->total_bytes, bytes);
    return true;
}

static void describe(const void *context, char *text, size_t capacity)
{
    const struct verification *v = context;
    (void)snprintf(text, capacity, "verifying, %s of %s hashed", td_terminal_size(atomic_load(&v->hashed_bytes)).text,
                   td_terminal_size(atomic_load(&v->total_bytes)).text);
}

static void verify_files(struct verification *v, const char *directory)
{
    td_progress_start(&v->progress, directory, describe, v);
    for (size_t first = 0, end; first < v->file_count; first = end) {
        end = first + 1;
        while (end < v->file_count && id_compare(&v->files[first]->id, &v->files[end]->id) == 0)
            end++;
        verify_file(v, v->files + first, end - first);
    }
    td_progress_stop(&v->progress);
}

/* Finds the files that a server on the directory would list, with all revisions of a cache. */
static bool find_files(struct verification *v, const char *directory, struct td_error *err)
{
    struct td_hub_place place;
    bool in_cache = false;
    const struct td_scan_config config = td_scan_config_default();
    const struct td_walk_limits limits = {
        .max_files = SIZE_MAX, .max_directories = config.max_directories, .all_revisions = true};
    _Atomic uint64_t found = 0;
    _Atomic bool never = false;
    return td_local_root(directory, &v->root, &in_cache, &place, err) &&
           td_walk_run(&v->walk, v->root, in_cache ? &place : NULL, &v->names, &v->problems, &limits, &found, &never,
                       err);
}

static bool verify_directory(const struct td_verify_files *wanted, struct verification *v, struct td_error *err)
{
    if (!td_local_path_check(wanted->directory, "verify", err) ||
        !td_digest_log_open(wanted->state_dir, NULL, TD_RECORD_LOG_READ, &v->log, err) ||
        !find_files(v, wanted->directory, err))
        return false;
    if (v->report.as_json)
        td_verify_report_begin(&v->report);
    if (!sort_files(v, err))
        return false;
    verify_files(v, wanted->directory);
    print_summary(v);
    if (v->report.has_failed)
        return td_error_no_memory(err);
    if (!td_output_flush(err))
        return false;
    print_advice(v, wanted);
    return true;
}

/* ---- the command --------------------------------------------------------------------------------------- */

int td_verify_files(const struct td_verify_files *wanted)
{
    struct verification v = {0};
    struct td_error err = TD_ERROR_INIT;
    td_arena_init(&v.names, 0);
    td_buffer_init(&v.path);
    td_verify_report_init(&v.report, wanted->json, &v.progress);
    bool ok = verify_directory(wanted, &v, &err);
    if (!ok)
        td_terminal_complain("%s", err.message); /* the message names the directory */
    free(v.files);
    free(v.problems.items);
    td_walk_fini(&v.walk);
    td_arena_fini(&v.names);
    td_buffer_fini(&v.path);
    td_verify_report_fini(&v.report);
    td_digest_log_close(v.log);
    td_root_unref(v.root);
    if (!ok || v.tally.mismatches + v.tally.unreadable > 0)
        return TD_EXIT_FAILED;
    if (compared_nothing(&v.tally))
        return TD_EXIT_NOTHING;
    return has_no_records(&v, wanted->state_dir) ? TD_EXIT_FAILED : TD_EXIT_OK;
}
