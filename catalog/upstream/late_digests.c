#include "catalog/upstream/late_digests.h"

#include "catalog/model/content_hash.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/log.h"
#include "storage/disk_tree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum outcome {
    EQUAL,   /* all files have the upstream's digests */
    UNKNOWN, /* there is a file that cannot be compared: no digest, here or there, or another length there by now */
    WRONG,   /* a file has another digest than the upstream's */
};

/* A model, file by file. */
struct comparison {
    const struct td_late_digests *late;
    const struct td_kept_note *note;
    const struct td_remote_listing *listing;
    struct td_root *folder;       /* of the model */
    struct td_snapshot *snapshot; /* that may know digests; one reference; NULL: none */
    bool hashes;                  /* nobody else computes the digests of files here */
    size_t prefix_len;            /* of paths, up to the model's own */
    enum outcome outcome;
};

static bool is_stopping(void *context)
{
    return atomic_load((const _Atomic bool *)context);
}

/* ---- one file -------------------------------------------------------------------------------------------- */

/* Copies the SHA-256 of a file here, in hexadecimal, if the catalog knows it. */
static bool recall(const struct comparison *c, const char *path, const struct td_file_id *id,
                   char out[TD_SHA256_TEXT_BYTES])
{
    char name[PATH_MAX];
    (void)snprintf(name, sizeof name, "%s/%s", c->note->id, path);
    const struct td_entry *entry = c->snapshot == NULL ? NULL : td_snapshot_find_entry(c->snapshot, td_text_of(name));
    const char *known = entry == NULL ? NULL : td_file_sha256(entry->file);
    bool ok = known != NULL && td_file_id_equal(&entry->file->source.id, id);
    if (ok)
        (void)snprintf(out, TD_SHA256_TEXT_BYTES, "%s", known);
    return ok;
}

/* Writes the digest of a file here, of the kind that the upstream has, in hexadecimal. Leaves a SHA-256 that is not
 * known yet to the threads that hash all files, if there are any. Returns false when the digest is not known. */
static bool digest_of(const struct comparison *c, const struct td_remote_file *file, const struct td_file_id *id,
                      char out[TD_SHA256_TEXT_BYTES])
{
    struct td_content_sums sums;
    struct td_error ignored = TD_ERROR_INIT;
    bool git_sha1 = !file->expected.has_sha256;
    const struct td_content_hash_options options = {.git_sha1 = git_sha1, .stop = c->late->stop};
    if (!git_sha1 && recall(c, file->path, id, out))
        return true;
    if ((!git_sha1 && !c->hashes) || !td_content_hash(c->folder, file->path, id, &options, &sums, &ignored))
        return false;
    if (c->late->catalog != NULL)
        td_catalog_note_digest(c->late->catalog, id, sums.sha256);
    if (git_sha1)
        td_hex_write(sums.git_sha1, sizeof sums.git_sha1, out);
    else
        td_hex_write(sums.sha256, sizeof sums.sha256, out);
    return true;
}

static void say_wrong(const struct comparison *c, const struct td_remote_file *file, const char *theirs,
                      const char *ours)
{
    td_log(
        TD_LOG_ERROR,
        "upstream: \"%s\" was fetched without digests, and is not what the upstream has: the %s of \"%s\" is %s there, "
        "and %s here; unless you have changed it, it is removed, and fetched anew when somebody asks",
        c->note->id, file->expected.has_sha256 ? "SHA-256" : "Git object id", file->path, theirs, ours);
}

/* Compares one file of the model. Returns false when the rest need not be compared. */
static bool compare_file(struct comparison *c, const char *path, const struct td_file_id *id)
{
    char theirs[TD_SHA256_TEXT_BYTES];
    char ours[TD_SHA256_TEXT_BYTES] = "";
    const struct td_remote_file *file = td_remote_listing_find(c->listing, path);
    bool is_known = file != NULL && file->expected.size_bytes == id->size_bytes &&
                    (file->expected.has_sha256 || file->expected.has_git_sha1) && digest_of(c, file, id, ours);
    if (!is_known) {
        c->outcome = UNKNOWN;
        return !is_stopping((void *)(uintptr_t)c->late->stop);
    }
    if (file->expected.has_sha256)
        td_hex_write(file->expected.sha256, sizeof file->expected.sha256, theirs);
    else
        td_hex_write(file->expected.git_sha1, sizeof file->expected.git_sha1, theirs);
    if (strcmp(ours, theirs) == 0)
        return true;
    c->outcome = WRONG;
    say_wrong(c, file, theirs, ours);
    return false;
}

static bool visit(void *context, const FTSENT *item)
{
    struct comparison *c = context;
    const struct td_file_id id = td_file_id_of(item->fts_statp);
    return item->fts_info != FTS_F || compare_file(c, item->fts_path + c->prefix_len, &id);
}

/* ---- one model ------------------------------------------------------------------------------------------- */

static void take_catalog(struct comparison *c)
{
    struct td_catalog_status status;
    c->hashes = true;
    if (c->late->catalog == NULL)
        return;
    td_catalog_get_status(c->late->catalog, &status);
    c->hashes = !status.hasher.enabled;
    c->snapshot = td_catalog_acquire(c->late->catalog);
}

/* Compares all files of a model. Returns WRONG, after the first wrong one, also when others are unknown. */
static enum outcome compare(const struct td_late_digests *late, const struct td_kept_note *note,
                            const struct td_remote_listing *listing, struct td_root *folder)
{
    struct comparison c = {
        .late = late, .note = note, .listing = listing, .folder = folder, .prefix_len = strlen(folder->path) + 1};
    take_catalog(&c);
    bool is_done = td_disk_tree_visit(folder->path, visit, &c);
    td_snapshot_unref(c.snapshot);
    return is_done || c.outcome == WRONG ? c.outcome : UNKNOWN;
}

/* Asks the upstream which digests it has by now, and compares. */
static enum outcome ask(const struct td_late_digests *late, const struct td_kept_note *note, struct td_root *folder)
{
    const struct td_cancel cancel = {.is_asked = is_stopping, .context = (void *)(uintptr_t)late->stop};
    const struct td_upstream_wish wish = {.id = note->id, .via = late->via, .cancel = &cancel};
    struct td_remote_model model;
    struct td_error ignored = TD_ERROR_INIT; /* an upstream that does not answer is asked again later */
    bool ok = late->source.list(late->source.context, &wish, &model, &ignored);
    enum outcome outcome = ok ? compare(late, note, &model.listing, folder) : UNKNOWN;
    td_remote_model_fini(&model);
    return outcome;
}

static void set_verified(struct td_late_digests *late, const struct td_kept_note *note)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_upstream_store_set_verified(late->store, note, &err))
        td_log(TD_LOG_INFO,
               "upstream: \"%s\" is verified: the upstream has digests of all its files by now, which match", note->id);
    else if (err.code != TD_NOT_FOUND) /* else the model has left meanwhile */
        td_log(TD_LOG_WARN, "upstream: \"%s\" stays unverified, although its digests match: %s", note->id, err.message);
}

static void check(struct td_late_digests *late, const struct td_kept_note *note)
{
    struct td_root *folder = NULL;
    if (!td_upstream_store_open_untouched(late->store, note, &folder))
        return; /* it is the operator's */
    enum outcome outcome = ask(late, note, folder);
    td_root_unref(folder);
    if (outcome == EQUAL)
        set_verified(late, note);
    if (outcome != WRONG)
        return;
    atomic_fetch_add(&late->wrong_count, 1);
    if (td_upstream_store_evict_wrong(late->store, note) && late->catalog != NULL)
        td_catalog_request_scan(late->catalog);
}

void td_late_digests_check(struct td_late_digests *late)
{
    struct td_kept_note note;
    if (atomic_exchange(&late->is_running, true))
        return;
    if (td_upstream_store_take_unverified(late->store, late->first_ns, td_clock_ns(), &note))
        check(late, &note);
    atomic_store(&late->is_running, false);
}

uint64_t td_late_digests_wrong(const struct td_late_digests *late)
{
    return atomic_load(&late->wrong_count);
}
