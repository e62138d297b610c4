#include "server/cmd/pull_files.h"

#include "catalog/model/file_kind.h"
#include "core/digits.h"
#include "core/message/document.h"
#include "server/cmd/shared/command_line.h"
#include "server/host/terminal.h"
#include "storage/fetch/fetch_target.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *td_pull_file_name(const struct td_pull_file *file)
{
    return file->name != NULL ? file->name : file->path;
}

/* ---- an older list ------------------------------------------------------------------------------------- */

static int compare_path(const void *path, const void *file)
{
    return strcmp(path, ((const struct td_pull_file *)file)->path);
}

/* Returns the file of this path, or NULL. */
static struct td_pull_file *find_file(struct td_pull_files list, const char *path)
{
    return list.count == 0 ? NULL : bsearch(path, list.files, list.count, sizeof *list.files, compare_path);
}

/* Returns whether size and digests are equal. */
static bool is_equal(const struct td_fetch_expected *a, const struct td_fetch_expected *b)
{
    return a->size_bytes == b->size_bytes && a->has_sha256 == b->has_sha256 && a->has_git_sha1 == b->has_git_sha1 &&
           (!a->has_sha256 || memcmp(a->sha256, b->sha256, sizeof a->sha256) == 0) &&
           (!a->has_git_sha1 || memcmp(a->git_sha1, b->git_sha1, sizeof a->git_sha1) == 0);
}

bool td_pull_change_is_seen(struct td_pull_files files)
{
    for (size_t i = 0; i < files.count; i++)
        if (files.files[i].outcome.has_changed && !files.files[i].outcome.is_verified)
            return true;
    return false;
}

bool td_pull_change_is_any(struct td_pull_files before, struct td_pull_files after)
{
    if (before.count != after.count)
        return true;
    for (size_t i = 0; i < after.count; i++)
        if (strcmp(before.files[i].path, after.files[i].path) != 0 ||
            !is_equal(before.files[i].expected, after.files[i].expected))
            return true;
    return false;
}

/* Returns whether the complete file is the listed one, by its digest. */
static bool is_the_listed(const struct td_pull_file *done, const struct td_fetch_expected *listed)
{
    if (listed->has_sha256)
        return done->expected->size_bytes == listed->size_bytes &&
               memcmp(done->outcome.sums.sha256, listed->sha256, sizeof listed->sha256) == 0;
    return done->outcome.is_verified && is_equal(done->expected, listed);
}

/* Returns whether the fetched part of an unfinished file is used for the new list, by the rule of
 * td_fetch_journal_fits. */
static bool is_resumed(const struct td_fetch_expected *before, const struct td_fetch_expected *after)
{
    bool is_known_now = after->has_sha256 && !before->has_sha256 && after->size_bytes == before->size_bytes;
    return is_known_now || is_equal(before, after);
}

uint64_t td_pull_change_keep(struct td_pull_files before, struct td_pull_files after)
{
    uint64_t kept_bytes = 0;
    for (size_t i = 0; i < after.count; i++) {
        struct td_pull_file *file = &after.files[i];
        const struct td_pull_file *old = find_file(before, file->path);
        if (old == NULL)
            continue;
        file->older_bytes = old->older_bytes;
        if (old->is_done && is_the_listed(old, file->expected)) {
            file->outcome = old->outcome;
            file->is_done = file->outcome.is_verified = true;
            kept_bytes += file->expected->size_bytes;
        } else if (old->is_done || !is_resumed(old->expected, file->expected)) {
            file->older_bytes += old->outcome.fetched_bytes; /* else the part is resumed, and counts there */
        }
    }
    return kept_bytes;
}

/* Removes the directories of the path that are empty. */
static void remove_directories(const struct td_root *root, const char *path)
{
    char above[PATH_MAX];
    (void)snprintf(above, sizeof above, "%s", path);
    for (char *slash = strrchr(above, '/'); slash != NULL; slash = strrchr(above, '/')) {
        *slash = '\0';
        if (!td_root_remove(root, above, AT_REMOVEDIR))
            return;
    }
}

/* Removes a file, with its partial file and its journal. */
static void remove_file(const struct td_root *root, const char *name)
{
    struct td_fetch_target target;
    if (td_fetch_target_open(&target, root, name, 0, NULL)) {
        (void)unlinkat(target.directory, target.name, 0);
        (void)unlinkat(target.directory, target.part_name, 0);
        (void)unlinkat(target.directory, target.journal_name, 0);
    }
    td_fetch_target_close(&target);
}

void td_pull_change_remove(const struct td_root *root, struct td_pull_files before, struct td_pull_files after)
{
    for (size_t i = 0; i < before.count; i++) {
        const struct td_pull_file *file = &before.files[i];
        if (find_file(after, file->path) != NULL)
            continue;
        if (file->is_done || file->outcome.fetched_bytes + file->outcome.resumed_bytes > 0)
            remove_file(root, td_pull_file_name(file));
        remove_directories(root, td_pull_file_name(file));
    }
}

/* ---- another model ------------------------------------------------------------------------------------- */

/* A number of files, and the name that comes first in the alphabet. */
struct some {
    size_t count;
    char name[NAME_MAX + 1];
};

static void count(struct some *some, const char *name)
{
    if (some->count == 0 || strcmp(name, some->name) < 0)
        (void)snprintf(some->name, sizeof some->name, "%s", name);
    some->count++;
}

/* Counts the checkpoint files of the directory that do not belong to the pull; 0 if it cannot be read. */
static void find_staying(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                         struct some *out)
{
    int fd = openat(directory->root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *opened = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (opened == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    while ((entry = readdir(opened)) != NULL) // NOLINT(concurrency-mt-unsafe): no other thread reads this stream
        if (entry->d_name[0] != '.' && entry->d_type != DT_DIR &&
            td_is_checkpoint_kind(td_file_kind_of(entry->d_name)) &&
            !belonging->belongs(belonging->context, entry->d_name))
            count(out, entry->d_name);
    (void)closedir(opened);
}

/* Counts the files of the pull that are in the directory already with another size. */
static void find_replaced(const struct td_pull_directory *directory, struct td_pull_files files, struct some *out)
{
    struct stat st;
    for (size_t i = 0; i < files.count; i++) {
        const char *name = td_pull_file_name(&files.files[i]);
        if (fstatat(directory->root->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            (uint64_t)st.st_size != files.files[i].expected->size_bytes)
            count(out, name);
    }
}

void td_pull_others_describe(const struct td_pull_directory *directory, const struct td_pull_belonging *belonging,
                             struct td_pull_files files, const char *what, char *text, size_t capacity)
{
    struct some staying = {.count = 0};
    struct some replaced = {.count = 0};
    int len = 0;
    text[0] = '\0';
    if (directory->staging != NULL)
        return;
    find_staying(directory, belonging, &staying);
    find_replaced(directory, files, &replaced);
    if (staying.count > 0)
        len = snprintf(text, capacity,
                       "\"%.200s\" holds another model: %zu checkpoint file%s of it (such as \"%.100s\") stay%s beside "
                       "those of %s, and a program may load both; another -o DIR keeps them apart",
                       directory->final, staying.count, td_plural(staying.count), staying.name,
                       staying.count == 1 ? "s" : "", what);
    if (replaced.count > 0 && len >= 0 && (size_t)len < capacity)
        (void)snprintf(text + len, capacity - (size_t)len,
                       "%s%zu file%s of other sizes (such as \"%.100s\") in \"%.200s\" "
                       "%s replaced",
                       len > 0 ? "; " : "", replaced.count, td_plural(replaced.count), replaced.name, directory->final,
                       replaced.count == 1 ? "is" : "are");
}

/* ---- the report ---------------------------------------------------------------------------------------- */

struct sums {
    uint64_t bytes, fetched_bytes, resumed_bytes;
    size_t done, there, unverified;
    const char *first_unverified; /* its name; NULL: none */
};

static struct sums add_up(const struct td_pull_report *report)
{
    struct sums sums = {0};
    for (size_t i = 0; i < report->list.count; i++) {
        const struct td_pull_file *file = &report->list.files[i];
        sums.fetched_bytes += file->older_bytes + file->outcome.fetched_bytes;
        sums.resumed_bytes += file->outcome.resumed_bytes;
        if (!file->is_done)
            continue;
        sums.bytes += file->expected->size_bytes;
        sums.done++;
        sums.there += file->outcome.was_there ? 1 : 0;
        if (!file->outcome.is_verified && sums.unverified++ == 0)
            sums.first_unverified = td_pull_file_name(file);
    }
    return sums;
}

static void add_file(struct td_document *json, const struct td_pull_file *file)
{
    char sha256[TD_SHA256_TEXT_BYTES];
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "path", td_pull_file_name(file));
    td_document_add_u64(json, "bytes", file->expected->size_bytes);
    td_document_add_bool(json, "complete", file->is_done);
    if (file->is_done) {
        td_hex_write(file->outcome.sums.sha256, TD_SHA256_BYTES, sha256);
        td_document_add_string(json, "sha256", sha256);
    }
    td_document_add_bool(json, "verified", file->outcome.is_verified);
    td_document_add_bool(json, "present", file->outcome.was_there);
    td_document_add_u64(json, "fetched_bytes", file->older_bytes + file->outcome.fetched_bytes);
    td_document_add_u64(json, "resumed_bytes", file->outcome.resumed_bytes);
    td_document_end(json);
}

void td_pull_report_add(struct td_document *json, const void *context)
{
    const struct td_pull_report *report = context;
    const struct sums sums = add_up(report);
    bool has_failed = report->failure->code != TD_OK;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "model", report->model);
    td_document_add_string(json, "revision", report->revision);
    if (report->commit[0] != '\0')
        td_document_add_string(json, "commit", report->commit);
    td_document_add_string(json, "directory", report->directory);
    td_document_add_bool(json, "complete", !has_failed);
    td_document_add_bool(json, "verified", !has_failed && sums.unverified == 0);
    td_document_begin_array(json, "files");
    for (size_t i = 0; i < report->list.count; i++)
        add_file(json, &report->list.files[i]);
    td_document_end(json);
    td_document_add_u64(json, "bytes", sums.bytes);
    td_document_add_u64(json, "fetched_bytes", sums.fetched_bytes);
    td_document_add_u64(json, "resumed_bytes", sums.resumed_bytes);
    td_document_add_seconds(json, "seconds", report->seconds);
    if (has_failed)
        td_document_add_string(json, "error", report->failure->message);
    td_document_end(json);
}

void td_pull_report_line(const void *context)
{
    const struct td_pull_report *report = context;
    const struct sums sums = add_up(report);
    double rate = report->seconds > 0 ? (double)sums.fetched_bytes / report->seconds : 0;
    char resumed[64] = "";
    char note[256] = "";
    if (sums.resumed_bytes > 0)
        (void)snprintf(resumed, sizeof resumed, " %s are of an earlier run,",
                       td_terminal_size(sums.resumed_bytes).text);
    if (sums.unverified > 0)
        (void)snprintf(note, sizeof note, "; %zu file%s (%.100s%s) %s checked by length and entity tag alone",
                       sums.unverified, td_plural(sums.unverified), sums.first_unverified,
                       sums.unverified > 1 ? ", ..." : "", sums.unverified > 1 ? "were" : "was");
    td_terminal_line(stdout, "%s: %zu file%s, %s, in %s; %zu %s there already;%s fetched %s in %.1f s (%s/s)%s",
                     report->model, sums.done, td_plural(sums.done), td_terminal_size(sums.bytes).text,
                     report->directory, sums.there, sums.there == 1 ? "was" : "were", resumed,
                     td_terminal_size(sums.fetched_bytes).text, report->seconds, td_terminal_size((uint64_t)rate).text,
                     note);
}
