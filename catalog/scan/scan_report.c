#include "catalog/scan/scan_report.h"

#include "catalog/dataset/dataset.h"
#include "core/digits.h"
#include "core/log.h"
#include "parser/format/names.h"
#include "storage/file_system.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The problems of one model, or a snapshot's own, sorted by path and message. */
struct sorted {
    const struct td_snapshot *snapshot;
    const struct td_model *model; /* NULL: the problems are the snapshot's own, or the model does not exist */
    const struct td_problems *problems;
    struct td_order *order;
};

static const struct td_problem *item_at(const struct sorted *list, size_t i)
{
    return &list->problems->items[list->order[i].index];
}

static int compare_problems(const struct td_problem *a, const struct td_problem *b)
{
    int order = strcmp(a->path, b->path);
    return order != 0 ? order : strcmp(a->message, b->message);
}

static int compare_items(const void *context, size_t a, size_t b)
{
    const struct td_problems *problems = context;
    return compare_problems(&problems->items[a], &problems->items[b]);
}

static bool sort_problems(struct sorted *list)
{
    size_t count = list->problems->count;
    list->order = calloc(count + 1, sizeof *list->order);
    if (list->order == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        list->order[i].index = i;
    return td_order_sort(list->order, count, compare_items, list->problems, NULL);
}

static void warn_of_problem(const struct td_model *model, const struct td_problem *problem)
{
    if (model == NULL)
        td_log(TD_LOG_WARN, "%s: %s", problem->path, problem->message);
    else
        td_log(TD_LOG_WARN, "model \"%s\": %s: %s", model->id, problem->path, problem->message);
}

static bool has_file(const struct sorted *list, const char *path)
{
    return list->model != NULL && td_model_find_file(list->snapshot, list->model, td_text_of(path)) != NULL;
}

/* Logs that a refusal has ended. A refused path need not be a file: it may be a directory or a symlink. */
static void log_end(const struct sorted *before, const struct sorted *now, const char *path)
{
    bool gone = has_file(before, path) && !has_file(now, path);
    const char *change = gone ? "was refused, and is gone" : "is no longer refused";
    if (before->model == NULL)
        td_log(TD_LOG_INFO, "%s: %s", path, change);
    else
        td_log(TD_LOG_INFO, "model \"%s\": %s: %s", before->model->id, path, change);
}

/* Returns whether the list has a problem of this path at its i-th item or just before. */
static bool is_near(const struct sorted *list, size_t i, const char *path)
{
    return (i < list->problems->count && strcmp(item_at(list, i)->path, path) == 0) ||
           (i > 0 && strcmp(item_at(list, i - 1)->path, path) == 0);
}

/* Walks both lists at once and logs the differences. Returns how many problems both have. */
static size_t log_changes(const struct sorted *before, const struct sorted *now)
{
    size_t same = 0;
    size_t i = 0;
    size_t k = 0;
    while (i < now->problems->count || k < before->problems->count) {
        int order = i == now->problems->count      ? 1
                    : k == before->problems->count ? -1
                                                   : compare_problems(item_at(now, i), item_at(before, k));
        if (order < 0)
            warn_of_problem(now->model, item_at(now, i));
        else if (order > 0 && !is_near(now, i, item_at(before, k)->path) &&
                 (k == 0 || strcmp(item_at(before, k - 1)->path, item_at(before, k)->path) != 0))
            log_end(before, now, item_at(before, k)->path);
        same += order == 0 ? 1 : 0;
        i += order <= 0 ? 1 : 0;
        k += order >= 0 ? 1 : 0;
    }
    return same;
}

/* Logs the changes between two lists. Returns how many problems both have. When memory is short, logs all again. */
static size_t log_differences(struct sorted before, struct sorted now)
{
    size_t same = 0;
    if (before.problems->count == 0 && now.problems->count == 0)
        return 0;
    if (sort_problems(&before) && sort_problems(&now))
        same = log_changes(&before, &now);
    else
        for (size_t i = 0; i < now.problems->count; i++)
            warn_of_problem(now.model, &now.problems->items[i]);
    free(before.order);
    free(now.order);
    return same;
}

/* Logs a warning for each refusal that `before` does not have in the same words, a line for each that has ended, and
 * the number of all others. */
static void report_refusals(const struct td_snapshot *before, const struct td_snapshot *now)
{
    static const struct td_problems none = {0};
    size_t same = 0;
    size_t before_count = before == NULL ? 0 : before->model_count;
    for (size_t i = 0, k = 0; i < now->model_count || k < before_count;) {
        int order = i == now->model_count ? 1
                    : k == before_count   ? -1
                                          : strcmp(now->models[i].id, before->models[k].id);
        const struct td_model *new_model = order <= 0 ? &now->models[i++] : NULL;
        const struct td_model *old_model = order >= 0 ? &before->models[k++] : NULL;
        same +=
            log_differences((struct sorted){before, old_model, old_model == NULL ? &none : &old_model->problems, NULL},
                            (struct sorted){now, new_model, new_model == NULL ? &none : &new_model->problems, NULL});
    }
    same += log_differences((struct sorted){before, NULL, before == NULL ? &none : &before->problems, NULL},
                            (struct sorted){now, NULL, &now->problems, NULL});
    if (same > 0)
        td_log(TD_LOG_INFO, "%zu file%s still refused, for the reason%s logged above", same,
               same == 1 ? " is" : "s are", td_plural(same));
}

/* ---- what is published --------------------------------------------------------------------------------- */

/* Returns whether the model has something to serve: a checkpoint or a rank's part was read, or nothing was refused. */
static bool is_usable(const struct td_model *model)
{
    return model->checkpoint_count > 0 || td_model_rank_part_count(model) > 0 ||
           model->problems.count == model->damaged_count;
}

void td_scan_report_count(const struct td_snapshot *snapshot, struct td_snapshot_counts *out)
{
    *out = (struct td_snapshot_counts){
        .files = snapshot->entry_count,
        .datasets = td_datasets_of(snapshot)->count,
        .problems = snapshot->problems.count,
        .unsettled = snapshot->unsettled.count,
        .hashed = snapshot->hashed_count,
    };
    for (size_t i = 0; i < snapshot->model_count; i++) {
        const struct td_model *model = &snapshot->models[i];
        if (model->is_other_revision)
            continue;
        out->models++;
        out->usable += is_usable(model) ? 1 : 0;
        out->refused += model->problems.count;
        for (size_t j = 0; j < model->checkpoint_count; j++)
            out->tensors += model->checkpoints[j].tensor_count;
    }
}

void td_scan_report_published(const struct td_snapshot *before, const struct td_snapshot *now,
                              const struct td_snapshot_counts *counts, uint64_t took_ns)
{
    td_log(TD_LOG_INFO, "indexed %zu model%s, %" PRIu64 " tensor%s in %zu file%s in %.2f s", counts->models,
           td_plural(counts->models), counts->tensors, td_plural(counts->tensors), counts->files,
           td_plural(counts->files), (double)took_ns / 1e9);
    report_refusals(before, now);
    if (counts->unsettled > 0)
        td_log(TD_LOG_INFO, "%zu file%s changed less than --settle ago; %s will be published once %s stable",
               counts->unsettled, td_plural(counts->unsettled), counts->unsettled == 1 ? "it" : "they",
               counts->unsettled == 1 ? "it is" : "they are");
}

/* ---- files that are sent the slow way ------------------------------------------------------------------ */

enum { SAMPLES = 16 };

/* Why a file is sent the slow way. */
enum reason { REASON_NONE, REASON_OWNER, REASON_FILE_SYSTEM, REASON_OTHER, REASON_COUNT };

static enum reason reason_of(int fd, int lease_signal)
{
    struct stat st;
    if (td_is_immutable(fd))
        return REASON_NONE;
    if (!td_sees_every_writer(fd))
        return REASON_FILE_SYSTEM;
    if (td_find_writers(fd, lease_signal) != TD_WRITERS_UNKNOWN)
        return REASON_NONE; /* a lease is granted now, or when the writer has finished */
    return fstat(fd, &st) == 0 && st.st_uid != geteuid() ? REASON_OWNER : REASON_OTHER;
}

bool td_scan_report_send_guard(const struct td_snapshot *snapshot, int lease_signal)
{
    static const char *const texts[REASON_COUNT] = {
        [REASON_OWNER] = "they belong to another user: run tensord as their owner, or with CAP_LEASE",
        [REASON_FILE_SYSTEM] = "their file system does not report all writers",
        [REASON_OTHER] = "the kernel grants no read lease on them",
    };
    size_t counts[REASON_COUNT] = {0};
    size_t seen = 0;
    for (size_t i = 0; lease_signal != 0 && i < snapshot->entry_count && seen < SAMPLES; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        struct td_error err = TD_ERROR_INIT;
        struct td_file_id id;
        int fd;
        if (file->format == NULL || !td_root_open_file(snapshot->root, file->source.path, &fd, &id, &err))
            continue;
        seen++;
        counts[reason_of(fd, lease_signal)]++;
        (void)close(fd);
    }
    if (seen == 0 || counts[REASON_NONE] > 0)
        return seen > 0;
    enum reason most = REASON_OWNER;
    for (enum reason reason = REASON_OWNER; reason < REASON_COUNT; reason++)
        if (counts[reason] > counts[most])
            most = reason;
    td_log(TD_LOG_WARN,
           "every answer is copied and checked, the slow way, because the files cannot be leased: %s; or, if files are "
           "only ever replaced by rename, use --files immutable",
           texts[most]);
    return true;
}

/* ---- files that are too large for clients -------------------------------------------------------------- */

/* huggingface_hub refuses larger files from a server without its chunk store (constants.py, MAX_HTTP_DOWNLOAD_SIZE). */
static const uint64_t hub_file_max_bytes = UINT64_C(50000000000);

void td_scan_report_large_files(const struct td_snapshot *before, const struct td_snapshot *now)
{
    enum { NAMED_MAX = 10 };
    size_t count = 0;
    for (size_t i = 0; i < now->entry_count; i++) {
        const struct td_entry *entry = &now->entries[i];
        if (entry->file->source.id.size_bytes <= hub_file_max_bytes)
            continue;
        const struct td_entry *known = before == NULL ? NULL : td_snapshot_find_entry(before, td_text_of(entry->path));
        if ((known == NULL || known->file != entry->file) && count++ < NAMED_MAX)
            td_log(TD_LOG_INFO, "%s: %" PRIu64 " bytes; huggingface_hub downloads files of up to 50,000,000,000",
                   entry->path, entry->file->source.id.size_bytes);
    }
    if (count > NAMED_MAX)
        td_log(TD_LOG_INFO, "and %zu more files of that size", count - NAMED_MAX);
}
