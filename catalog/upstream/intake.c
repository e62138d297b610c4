#include "catalog/upstream/intake.h"

#include "catalog/upstream/incoming_model.h"
#include "catalog/upstream/upstream_config.h"
#include "core/clock.h"
#include "storage/incoming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t stall_ns = TD_UPSTREAM_STALL_S * TD_NS_PER_S;

struct td_intake *td_intake_create(const char *id, const char *via)
{
    struct td_intake *intake = calloc(1, sizeof *intake);
    if (intake == NULL)
        return NULL;
    (void)snprintf(intake->id, sizeof intake->id, "%s", id);
    td_remote_model_init(&intake->model);
    td_intake_restart(intake, via);
    return intake;
}

void td_intake_clear(struct td_intake *intake)
{
    for (size_t i = 0; intake->files != NULL && i < intake->model.listing.count; i++)
        td_blob_unref(intake->files[i].blob);
    free(intake->files);
    intake->files = NULL;
    intake->here_count = intake->early_left = intake->next = intake->file_count = 0;
    td_remote_model_fini(&intake->model);
    td_remote_model_init(&intake->model);
    td_snapshot_unref(intake->snapshot);
    intake->snapshot = NULL;
    td_root_unref(intake->folder);
    intake->folder = NULL;
}

void td_intake_destroy(struct td_intake *intake)
{
    if (intake == NULL)
        return;
    td_intake_clear(intake);
    td_remote_model_fini(&intake->model);
    free(intake);
}

void td_intake_restart(struct td_intake *intake, const char *via)
{
    (void)snprintf(intake->via, sizeof intake->via, "%s", via);
    intake->phase = TD_INTAKE_QUEUED;
    intake->alone = 0;
    intake->rounds = 0;
    intake->is_again = false;
    intake->started_ns = td_clock_ns();
    intake->resumed_bytes = 0;
    intake->is_disk_full = false;
    atomic_store(&intake->wrong_file, SIZE_MAX);
    atomic_store(&intake->is_cancelled, false);
    td_error_init(&intake->error);
}

static bool is_cancelled(void *context)
{
    return atomic_load(&((struct td_intake *)context)->is_cancelled);
}

struct td_cancel td_intake_cancel(struct td_intake *intake)
{
    return (struct td_cancel){.is_asked = is_cancelled, .context = intake};
}

bool td_intake_begin_files(struct td_intake *intake, struct td_error *err)
{
    const struct td_remote_listing *listing = &intake->model.listing;
    intake->files = calloc(listing->count, sizeof *intake->files);
    if (intake->files == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < listing->count; i++) {
        const struct td_fetch_expected *expected = &listing->files[i].expected;
        struct td_intake_file *file = &intake->files[i];
        file->has_sha256 = expected->has_sha256;
        memcpy(file->sha256, expected->sha256, sizeof file->sha256);
        file->is_early = !expected->has_sha256 && expected->size_bytes <= TD_INTAKE_EARLY_BYTES;
        intake->early_left += file->is_early ? 1 : 0;
        if (!td_incoming_create(expected->size_bytes, expected->has_sha256, stall_ns, &file->blob, err))
            return false;
    }
    intake->phase = TD_INTAKE_PREPARING;
    return intake->early_left > 0 || td_intake_show(intake, err);
}

bool td_intake_show(struct td_intake *intake, struct td_error *err)
{
    const struct td_remote_listing *listing = &intake->model.listing;
    struct td_incoming_file *files = calloc(listing->count, sizeof *files);
    if (files == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < listing->count; i++) {
        const struct td_intake_file *file = &intake->files[i];
        files[i] = (struct td_incoming_file){
            .path = listing->files[i].path, .has_sha256 = file->has_sha256, .blob = file->blob};
        memcpy(files[i].sha256, file->sha256, sizeof files[i].sha256);
    }
    const struct td_incoming_model model = {.id = intake->id,
                                            .version = intake->model.commit,
                                            .time_s = intake->began_s,
                                            .files = files,
                                            .file_count = listing->count};
    bool ok = td_incoming_model_snapshot(&model, &intake->snapshot, err);
    free(files);
    if (ok)
        intake->phase = TD_INTAKE_ARRIVING;
    return ok;
}

bool td_intake_has_waiting(const struct td_intake *intake)
{
    bool fetches = intake->phase == TD_INTAKE_PREPARING || intake->phase == TD_INTAKE_ARRIVING;
    return fetches && intake->next < intake->model.listing.count;
}

size_t td_intake_choose(struct td_intake *intake, bool only_wanted)
{
    bool is_early = intake->phase == TD_INTAKE_PREPARING;
    size_t first = SIZE_MAX;
    if (!td_intake_has_waiting(intake)) /* also while a thread writes the listing */
        return SIZE_MAX;
    size_t count = intake->model.listing.count;
    while (intake->next < count && intake->files[intake->next].state != TD_INTAKE_FILE_WAITS)
        intake->next++;
    for (size_t i = intake->next; i < count; i++) {
        struct td_intake_file *file = &intake->files[i];
        if (file->state != TD_INTAKE_FILE_WAITS || (is_early && !file->is_early))
            continue;
        if (is_early || td_incoming_take_wanted(file->blob))
            return i;
        first = first == SIZE_MAX ? i : first;
    }
    return only_wanted ? SIZE_MAX : first;
}

void td_intake_fail(struct td_intake *intake, const struct td_error *why, uint64_t until_ns)
{
    if (intake->phase == TD_INTAKE_FAILED)
        return;
    intake->phase = TD_INTAKE_FAILED;
    intake->error = *why;
    intake->until_ns = until_ns;
    intake->failures++;
    atomic_store(&intake->is_cancelled, true);
    struct td_error shown = TD_ERROR_INIT;
    (void)td_error_set(&shown, TD_UNAVAILABLE, "\"%s\" could not be fetched to its end; try again", intake->id);
    for (size_t i = 0; intake->files != NULL && i < intake->model.listing.count; i++)
        if (intake->files[i].blob != NULL)
            td_incoming_fail(intake->files[i].blob, &shown);
    td_snapshot_unref(intake->snapshot);
    intake->snapshot = NULL;
}

uint64_t td_intake_arrived(const struct td_intake *intake)
{
    uint64_t sum = 0;
    for (size_t i = 0; intake->files != NULL && i < intake->model.listing.count; i++)
        sum += td_incoming_arrived(intake->files[i].blob);
    return sum;
}

bool td_intake_is_verified(const struct td_intake *intake)
{
    for (size_t i = 0; i < intake->model.listing.count; i++)
        if (!intake->files[i].is_verified)
            return false;
    return true;
}
