#include "catalog/upstream/intake.h"

#include "catalog/model/file_content.h"
#include "catalog/scan/grouping.h"
#include "catalog/upstream/upstream_config.h"
#include "core/clock.h"
#include "parser/format/names.h"
#include "storage/incoming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model as a snapshot --------------------------------------------------------------------------- */

/* Sets the entity tag of a file for the time until its digest is known. The model's commit changes with its content. */
static bool make_tag(const struct td_intake *intake, size_t i, struct td_file *file)
{
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, "incoming");
    td_digest_add_cstring(digest, intake->id);
    td_digest_add_cstring(digest, intake->model.commit);
    td_digest_add_cstring(digest, intake->model.listing.files[i].path);
    td_digest_add(digest, &intake->files[i].blob->len_bytes, sizeof intake->files[i].blob->len_bytes);
    td_digest_add(digest, &intake->began_s, sizeof intake->began_s);
    return td_digest_finish(digest, file->identity_tag);
}

/* Adds the entry of file i to the snapshot. */
static bool add_entry(struct td_snapshot *snapshot, const struct td_intake *intake, size_t i, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    const struct td_intake_file *from = &intake->files[i];
    const char *below = intake->model.listing.files[i].path;
    struct td_file_id id = {.size_bytes = from->blob->len_bytes, .mtime_ns = intake->began_s * TD_NS_PER_S};
    size_t path_bytes = strlen(intake->id) + strlen(below) + 2;
    char *path = td_arena_array(&snapshot->arena, path_bytes, 1);
    if (path == NULL)
        return td_error_no_memory(err);
    (void)snprintf(path, path_bytes, "%s/%s", intake->id, below);
    struct td_file *file = td_file_create(path, path, &id, NULL, &limits);
    if (file == NULL)
        return td_error_no_memory(err);
    file->source.incoming = td_blob_ref(from->blob);
    snapshot->entries[snapshot->entry_count++] = (struct td_entry){.path = path, .file = file};
    if (!make_tag(intake, i, file))
        return td_error_no_memory(err);
    if (from->has_sha256)
        (void)td_file_set_sha256(file, from->sha256);
    return true;
}

/* Adds the models that a scan will form from the files, as far as their names show: a directory inside the model may be
 * a model too, and the model's own directory need not be one. */
static bool add_models(struct td_snapshot *snapshot, const char *id, struct td_error *err)
{
    struct td_text model;
    struct td_text version;
    struct td_grouping grouping = {.snapshot = snapshot, .names_only = true, .err = err};
    if (td_version_split_folder(td_text_of(td_base_name(id)), &model, &version, &grouping.is_of_subfolder))
        grouping.kept_version = version.p;
    bool ok = true;
    for (size_t i = 0; ok && i < snapshot->entry_count; i++) {
        const struct td_entry *entry = &snapshot->entries[i];
        /* a .metadata file is part of a checkpoint only beside its parts, which have their own kinds */
        if (td_is_checkpoint_kind(entry->file->kind) && entry->file->kind != TD_FILE_DCP_METADATA)
            ok = td_grouping_add(&grouping, entry->path, entry, NULL);
    }
    ok = ok && td_grouping_build(&grouping);
    td_grouping_fini(&grouping);
    return ok;
}

static bool build_snapshot(struct td_snapshot *snapshot, const struct td_intake *intake, struct td_error *err)
{
    const size_t count = intake->model.listing.count;
    snapshot->entries = calloc(count, sizeof *snapshot->entries);
    if (snapshot->entries == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++)
        if (!add_entry(snapshot, intake, i, err))
            return false;
    const char *id = td_arena_strndup(&snapshot->arena, td_text_of(intake->id));
    return id == NULL ? td_error_no_memory(err) : add_models(snapshot, id, err);
}

/* ---- the intake ---------------------------------------------------------------------------------------- */

/* The longest file without a SHA-256 that is fetched before the model is shown. */
enum { EARLY_BYTES = 32 * 1024 * 1024 };

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
        file->is_early = !expected->has_sha256 && expected->size_bytes <= EARLY_BYTES;
        intake->early_left += file->is_early ? 1 : 0;
        if (!td_incoming_create(expected->size_bytes, expected->has_sha256, stall_ns, &file->blob, err))
            return false;
    }
    intake->phase = TD_INTAKE_PREPARING;
    return intake->early_left > 0 || td_intake_show(intake, err);
}

bool td_intake_show(struct td_intake *intake, struct td_error *err)
{
    struct td_snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL)
        return td_error_no_memory(err);
    atomic_init(&snapshot->refs, 1);
    td_arena_init(&snapshot->arena, 0);
    if (!build_snapshot(snapshot, intake, err)) {
        td_snapshot_free(snapshot);
        return false;
    }
    intake->snapshot = snapshot;
    intake->phase = TD_INTAKE_ARRIVING;
    return true;
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
    (void)td_error_set(&shown, TD_UNAVAILABLE, "\"%s\" could not be fetched completely; try again", intake->id);
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
