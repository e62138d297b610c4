/* Plan: an open upload is the unfinished file with its journal, its pieces (upload_pieces.h), and the hasher. Parts
 * collect bytes in a block of memory; write_block() writes the whole pieces of it that nobody has written yet. The part
 * whose piece was the last one ends the upload: it waits for the digest and gives the blob its place.
 *
 * Locks, in this order: the repository's (publish_disk.h), the table's (publish->lock), the upload's. No bytes are
 * written and nothing is hashed under a lock. An upload stays open for a while after its last part, so that a client
 * that sends one piece after the other does not have the first ones hashed again for each; the hasher's thread rests
 * until then. */
#include "catalog/publish/publish_upload.h"

#include "catalog/publish/upload_pieces.h"
#include "core/clock.h"
#include "core/digits.h"
#include "storage/fetch/fetch_hasher.h"
#include "storage/fetch/fetch_target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long a part waits for an upload that is being closed. */
#define LOCK_NS TD_NS_PER_S

enum { BLOB_PATH_BYTES = TD_SHA256_TEXT_BYTES + 8 };

enum { MOST_OPEN = 256 }; /* uploads; each has three descriptors */

enum stage {
    RECEIVING,
    VERIFYING, /* all pieces are here, and a part waits for the digest */
    COMPLETE,
    DROPPED /* the bytes were wrong, or could not be verified */
};

struct td_publish_upload {
    /* under the table's lock */
    struct td_publish_upload *next;
    size_t part_count;
    uint64_t used_ns; /* when the last part ended */

    /* does not change */
    uint64_t opened_ns;
    struct td_publish *publish;
    struct td_publish_name name;
    uint8_t sha256[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    uint64_t size_bytes;
    struct td_fetch_target target;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    enum stage stage;
    bool is_small; /* one piece at most: without a journal, since it arrives whole or not at all */
    struct td_upload_pieces pieces;
    struct td_fetch_hasher *hasher; /* NULL: not needed yet */
    bool is_hashing;                /* the hasher has a thread */
    struct td_error failure;        /* DROPPED for another reason than a wrong digest */
    bool has_sum;                   /* `sum` is that of the blob */
    uint8_t sum[TD_SHA256_BYTES];
};

struct td_publish_part {
    struct td_publish_upload *upload;
    uint64_t first, at, end;        /* the span, and the next byte of it */
    struct td_fetch_block *block;   /* NULL: none yet */
    struct td_fetch_hasher *hasher; /* of the upload; NULL: not needed yet, as far as this part knows */
};

/* ---- the state of a blob --------------------------------------------------------------------------------- */

void td_publish_blob_fini(struct td_publish_blob *blob)
{
    free(blob->missing);
    blob->missing = NULL;
    blob->missing_count = 0;
}

/* Adds the runs of missing pieces to the blob. */
static bool list_missing(const struct td_publish_upload *upload, struct td_publish_blob *blob, struct td_error *err)
{
    blob->missing = calloc(TD_PUBLISH_RANGES, sizeof *blob->missing);
    if (blob->missing == NULL)
        return td_error_no_memory(err);
    const struct td_upload_pieces *pieces = &upload->pieces;
    uint64_t stop;
    for (uint64_t piece = pieces->front; blob->missing_count < TD_PUBLISH_RANGES; piece = stop) {
        if (!td_upload_pieces_find_missing(pieces, &piece, &stop))
            break;
        blob->missing[blob->missing_count++] = (struct td_publish_range){
            .first = td_upload_pieces_start(pieces, piece), .last = td_upload_pieces_start(pieces, stop) - 1};
    }
    /* All pieces are here, but the part that had the last one was cut: the blob ends with the next part. */
    if (upload->stage == RECEIVING && pieces->front == pieces->count && pieces->count > 0)
        blob->missing[blob->missing_count++] = (struct td_publish_range){
            .first = td_upload_pieces_start(pieces, pieces->count - 1), .last = upload->size_bytes - 1};
    return true;
}

/* Describes the upload. */
static bool describe(struct td_publish_upload *upload, struct td_publish_blob *blob, struct td_error *err)
{
    memset(blob, 0, sizeof *blob);
    memcpy(blob->sha256, upload->sha256, sizeof blob->sha256);
    blob->size_bytes = upload->size_bytes;
    pthread_mutex_lock(&upload->lock);
    blob->is_complete = upload->stage == COMPLETE;
    bool ok = blob->is_complete || list_missing(upload, blob, err);
    pthread_mutex_unlock(&upload->lock);
    return ok;
}

static void describe_complete(const uint8_t sha256[TD_SHA256_BYTES], uint64_t size_bytes, struct td_publish_blob *blob)
{
    *blob = (struct td_publish_blob){.size_bytes = size_bytes, .is_complete = true};
    memcpy(blob->sha256, sha256, sizeof blob->sha256);
}

/* Sets the error for a blob that is not here, not even a part of it. */
static bool fail_absent(struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "nothing of a blob with this digest has arrived");
}

/* Sets the error for a part of a blob whose repository is gone. */
static bool refuse_removed(struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "the model was removed while it arrived");
}

/* ---- open uploads ---------------------------------------------------------------------------------------- */

static bool is_upload_of(const struct td_publish_upload *upload, const char *folder, const char *hex)
{
    return strcmp(upload->hex, hex) == 0 && strcmp(upload->name.folder, folder) == 0;
}

/* Returns the open upload, or NULL. Under the table's lock. */
static struct td_publish_upload *find_upload(struct td_publish *publish, const char *folder, const char *hex)
{
    struct td_publish_upload *upload = publish->uploads;
    while (upload != NULL && !is_upload_of(upload, folder, hex))
        upload = upload->next;
    return upload;
}

bool td_publish_is_open(struct td_publish *publish, const char *folder, const char *hex)
{
    pthread_mutex_lock(&publish->lock);
    bool is_open = find_upload(publish, folder, hex) != NULL;
    pthread_mutex_unlock(&publish->lock);
    return is_open;
}

/* Frees an upload that is in no table. The unfinished file stays, unless it is small. */
static void free_upload(struct td_publish_upload *upload)
{
    td_fetch_hasher_stop(upload->hasher);
    if (upload->is_small && upload->target.part >= 0 && !upload->target.has_begun) /* then closing removes the file */
        td_publish_give_back(upload->publish, upload->size_bytes);
    td_fetch_target_close(&upload->target);
    (void)pthread_cond_destroy(&upload->changed);
    (void)pthread_mutex_destroy(&upload->lock);
    td_upload_pieces_fini(&upload->pieces);
    free(upload);
}

/* Removes the upload from the table. Under the table's lock. */
static void unlink_upload(struct td_publish_upload *upload)
{
    struct td_publish_upload **link = &upload->publish->uploads;
    while (*link != NULL && *link != upload)
        link = &(*link)->next;
    if (*link == NULL)
        return; /* a part that ended it did so already */
    *link = upload->next;
    upload->publish->status.upload_count--;
}

/* Reserves the place of one more open upload, which status.upload_count counts. If there are MOST_OPEN, closes the one
 * whose last part ended first. Errors: TD_RESOURCE_EXHAUSTED when all of them are in use. */
static bool reserve_place(struct td_publish *publish, struct td_error *err)
{
    struct td_publish_upload *oldest = NULL;
    pthread_mutex_lock(&publish->lock);
    bool is_full = publish->status.upload_count >= MOST_OPEN;
    for (struct td_publish_upload *upload = is_full ? publish->uploads : NULL; upload != NULL; upload = upload->next)
        if (upload->part_count == 0 && (oldest == NULL || upload->used_ns < oldest->used_ns))
            oldest = upload;
    if (oldest != NULL)
        unlink_upload(oldest);
    bool ok = !is_full || oldest != NULL;
    if (ok)
        publish->status.upload_count++;
    pthread_mutex_unlock(&publish->lock);
    if (oldest != NULL)
        free_upload(oldest);
    return ok || td_error_set(err, TD_RESOURCE_EXHAUSTED, "parts of %d blobs are arriving, try again", MOST_OPEN);
}

void td_publish_close_idle(struct td_publish *publish, const char *folder, uint64_t before_ns)
{
    struct td_publish_upload *closed = NULL;
    pthread_mutex_lock(&publish->lock);
    for (struct td_publish_upload *upload = publish->uploads, *next = NULL; upload != NULL; upload = next) {
        next = upload->next;
        if (upload->part_count > 0 || upload->used_ns >= before_ns ||
            (folder != NULL && strcmp(upload->name.folder, folder) != 0))
            continue;
        unlink_upload(upload);
        upload->next = closed;
        closed = upload;
    }
    pthread_mutex_unlock(&publish->lock);
    while (closed != NULL) {
        struct td_publish_upload *next = closed->next;
        free_upload(closed);
        closed = next;
    }
}

bool td_publish_has_uploads(struct td_publish *publish, const char *folder)
{
    pthread_mutex_lock(&publish->lock);
    const struct td_publish_upload *upload = publish->uploads;
    while (upload != NULL && strcmp(upload->name.folder, folder) != 0)
        upload = upload->next;
    pthread_mutex_unlock(&publish->lock);
    return upload != NULL;
}

uint64_t td_publish_oldest_upload_ns(struct td_publish *publish)
{
    uint64_t oldest_ns = 0;
    pthread_mutex_lock(&publish->lock);
    for (const struct td_publish_upload *upload = publish->uploads; upload != NULL; upload = upload->next)
        if (oldest_ns == 0 || upload->opened_ns < oldest_ns)
            oldest_ns = upload->opened_ns;
    pthread_mutex_unlock(&publish->lock);
    return oldest_ns;
}

/* Drops the upload, unless a part verifies its blob: that part finds out by itself. Returns whether the caller frees
 * it. Under the table's lock. */
static bool drop_upload(struct td_publish_upload *upload)
{
    pthread_mutex_lock(&upload->lock);
    bool is_dropped = upload->stage == RECEIVING;
    if (is_dropped) {
        upload->stage = DROPPED;
        upload->is_small = false; /* the removal returns its bytes */
        (void)refuse_removed(&upload->failure);
        (void)pthread_cond_broadcast(&upload->changed);
    }
    pthread_mutex_unlock(&upload->lock);
    if (is_dropped)
        unlink_upload(upload);
    return is_dropped && upload->part_count == 0;
}

void td_publish_drop_uploads(struct td_publish *publish, const char *folder)
{
    struct td_publish_upload *unused = NULL;
    pthread_mutex_lock(&publish->lock);
    for (struct td_publish_upload *upload = publish->uploads, *next = NULL; upload != NULL; upload = next) {
        next = upload->next;
        if (strcmp(upload->name.folder, folder) != 0 || !drop_upload(upload))
            continue;
        upload->next = unused;
        unused = upload;
    }
    pthread_mutex_unlock(&publish->lock);
    while (unused != NULL) {
        struct td_publish_upload *next = unused->next;
        free_upload(unused);
        unused = next;
    }
}

static bool is_late(void *context)
{
    const uint64_t *until_ns = context;
    return td_clock_ns() >= *until_ns;
}

/* Returns the bytes of an unfinished file that cannot be resumed to the bound. */
static void give_back_remains(const struct td_publish_upload *upload)
{
    struct stat st;
    if (fstat(upload->target.part, &st) == 0)
        td_publish_give_back(upload->publish, (uint64_t)st.st_size);
}

/* Resumes the unfinished file, or begins it: takes its bytes from the bound and reserves its room on the disk. */
static bool begin_file(struct td_publish_upload *upload, struct td_error *err)
{
    struct td_fetch_journal journal = {.size_bytes = upload->size_bytes, .has_sha256 = true};
    struct td_fetch_journal found;
    uint8_t *bits;
    struct td_error why = TD_ERROR_INIT;
    uint64_t until_ns = td_clock_ns() + LOCK_NS; /* not for ever: the repository's lock is held */
    const struct td_cancel patience = {.is_asked = is_late, .context = &until_ns};
    memcpy(journal.sha256, upload->sha256, sizeof journal.sha256);
    if (!td_fetch_target_lock(&upload->target, &patience, NULL, NULL, &why))
        return why.code == TD_CONFLICT
                   ? td_error_set(err, TD_UNAVAILABLE, "the blob sha256:%s is being written; try again", upload->hex)
                   : td_error_copy(err, &why);
    if (td_fetch_target_resume(&upload->target, &journal, &found, &bits))
        return td_upload_pieces_init(&upload->pieces, upload->size_bytes, bits, err);
    give_back_remains(upload);
    if (!td_fetch_target_check_room(&upload->target, err) || !td_publish_take(upload->publish, upload->size_bytes, err))
        return false;
    upload->is_small = upload->size_bytes <= TD_FETCH_PIECE_BYTES;
    if (td_upload_pieces_init(&upload->pieces, upload->size_bytes, NULL, err) &&
        td_fetch_target_begin(&upload->target, upload->is_small ? NULL : &journal, err))
        return true;
    upload->is_small = false;
    td_fetch_target_discard(&upload->target);
    td_publish_give_back(upload->publish, upload->size_bytes);
    return false;
}

/* Opens the upload of a blob that is not here, in an open repository. Returns NULL after a failure. */
static struct td_publish_upload *open_upload(struct td_publish *publish, const struct td_publish_repo *repo,
                                             const uint8_t sha256[TD_SHA256_BYTES], uint64_t size_bytes,
                                             struct td_error *err)
{
    struct td_root *root;
    char path[BLOB_PATH_BYTES];
    struct td_publish_upload *upload = calloc(1, sizeof *upload);
    if (upload == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    upload->opened_ns = td_clock_ns();
    upload->publish = publish;
    upload->name = repo->name;
    memcpy(upload->sha256, sha256, sizeof upload->sha256);
    td_hex_write(sha256, TD_SHA256_BYTES, upload->hex);
    upload->size_bytes = size_bytes;
    td_error_init(&upload->failure);
    upload->target.directory = upload->target.part = upload->target.journal = -1;
    (void)pthread_mutex_init(&upload->lock, NULL); /* cannot fail without attributes (glibc) */
    (void)pthread_cond_init(&upload->changed, NULL);
    (void)snprintf(path, sizeof path, "blobs/%s", upload->hex);
    bool ok = td_publish_repo_root(repo, &root, err);
    if (ok) {
        ok = td_fetch_target_open(&upload->target, root, path, size_bytes, err) && begin_file(upload, err);
        td_root_unref(root);
    }
    if (ok)
        return upload;
    free_upload(upload);
    return NULL;
}

/* Sets *size_bytes to the size of the unfinished file of a blob without an open upload. Returns false when there is no
 * such file with a journal. */
static bool find_unfinished(const struct td_publish_repo *repo, const char *hex, uint64_t *size_bytes)
{
    char path[BLOB_PATH_BYTES + sizeof TD_FETCH_JOURNAL_END];
    struct stat part;
    struct stat journal;
    (void)snprintf(path, sizeof path, "blobs/.%s" TD_FETCH_PART_END, hex);
    if (repo->fd < 0 || fstatat(repo->fd, path, &part, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(part.st_mode))
        return false;
    (void)snprintf(path, sizeof path, "blobs/.%s" TD_FETCH_JOURNAL_END, hex);
    *size_bytes = (uint64_t)part.st_size;
    return fstatat(repo->fd, path, &journal, AT_SYMLINK_NOFOLLOW) == 0 &&
           (uint64_t)journal.st_size == td_fetch_journal_bytes(*size_bytes);
}

/* Returns the open upload of the blob, which the caller leaves by leave_upload; NULL without one. */
static struct td_publish_upload *use_open_upload(struct td_publish *publish, const char *folder, const char *hex)
{
    pthread_mutex_lock(&publish->lock);
    struct td_publish_upload *upload = find_upload(publish, folder, hex);
    if (upload != NULL)
        upload->part_count++;
    pthread_mutex_unlock(&publish->lock);
    return upload;
}

/* Uses the upload of the blob: one that is open, one that is resumed, or a new one; size_bytes NULL: of any size, but
 * only one that exists. The repository is open. Errors: TD_NOT_FOUND for the latter. */
static bool use_upload(struct td_publish *publish, const struct td_publish_repo *repo,
                       const uint8_t sha256[TD_SHA256_BYTES], const uint64_t *size_bytes,
                       struct td_publish_upload **out, struct td_error *err)
{
    char hex[TD_SHA256_TEXT_BYTES];
    uint64_t found_bytes = 0;
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    *out = use_open_upload(publish, repo->name.folder, hex);
    if (*out != NULL)
        return true;
    bool is_found = find_unfinished(repo, hex, &found_bytes);
    if (!is_found && size_bytes == NULL)
        return fail_absent(err);
    if (!reserve_place(publish, err))
        return false;
    *out = open_upload(publish, repo, sha256, is_found ? found_bytes : *size_bytes, err);
    pthread_mutex_lock(&publish->lock);
    if (*out != NULL) {
        (*out)->part_count = 1;
        (*out)->next = publish->uploads;
        publish->uploads = *out;
    } else {
        publish->status.upload_count--;
    }
    pthread_mutex_unlock(&publish->lock);
    return *out != NULL;
}

static bool has_ended(struct td_publish_upload *upload)
{
    pthread_mutex_lock(&upload->lock);
    bool has = upload->stage == COMPLETE || upload->stage == DROPPED;
    pthread_mutex_unlock(&upload->lock);
    return has;
}

static bool has_idle_thread(struct td_publish_upload *upload)
{
    pthread_mutex_lock(&upload->lock);
    bool has = upload->stage == RECEIVING && upload->is_hashing;
    pthread_mutex_unlock(&upload->lock);
    return has;
}

/* Stops the hasher's thread. The next part starts it again. */
static void rest_hasher(struct td_publish_upload *upload)
{
    pthread_mutex_lock(&upload->lock);
    if (upload->stage == RECEIVING && upload->is_hashing) {
        td_fetch_hasher_rest(upload->hasher);
        upload->is_hashing = false;
    }
    pthread_mutex_unlock(&upload->lock);
}

/* Ends the use of an upload. The last one of an upload that has ended frees it. */
static void leave_upload(struct td_publish_upload *upload)
{
    struct td_publish *publish = upload->publish;
    pthread_mutex_lock(&publish->lock);
    while (upload->part_count == 1 && has_idle_thread(upload)) { /* once, unless others come and leave until then */
        pthread_mutex_unlock(&publish->lock);
        rest_hasher(upload);
        pthread_mutex_lock(&publish->lock);
    }
    bool is_freed = --upload->part_count == 0 && has_ended(upload);
    upload->used_ns = td_clock_ns();
    if (is_freed)
        unlink_upload(upload);
    pthread_mutex_unlock(&publish->lock);
    if (is_freed)
        free_upload(upload);
}

/* Has the unfinished file stay as if bytes of it had arrived now. */
static void renew_file(struct td_publish_upload *upload)
{
    pthread_mutex_lock(&upload->lock);
    if (upload->stage == RECEIVING) /* later it may be a file that is served */
        (void)futimens(upload->target.part, NULL);
    pthread_mutex_unlock(&upload->lock);
}

/* Does what td_publish_find_blob does for an unfinished blob that is not open. */
static bool resume_blob(struct td_publish *publish, const struct td_publish_name *name,
                        const uint8_t sha256[TD_SHA256_BYTES], uint64_t *here_bytes, struct td_publish_upload **upload,
                        struct td_error *err)
{
    struct td_publish_repo repo;
    if (!td_publish_repo_open(&publish->disk, name, false, &repo, err))
        return false;
    bool ok = td_publish_keep_blob(&repo, sha256, here_bytes) || use_upload(publish, &repo, sha256, NULL, upload, err);
    td_publish_repo_close(&repo);
    return ok;
}

bool td_publish_find_blob(struct td_publish *publish, const struct td_publish_name *name,
                          const uint8_t sha256[TD_SHA256_BYTES], struct td_publish_blob *blob, struct td_error *err)
{
    struct td_publish_repo repo;
    struct td_publish_upload *upload = NULL;
    char hex[TD_SHA256_TEXT_BYTES];
    uint64_t here_bytes = 0;
    uint64_t part_bytes;
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    if (!td_publish_repo_look(&publish->disk, name, &repo, err))
        return false;
    bool ok = td_publish_keep_blob(&repo, sha256, &here_bytes) ||
              (upload = use_open_upload(publish, name->folder, hex)) != NULL;
    bool is_unfinished = !ok && find_unfinished(&repo, hex, &part_bytes);
    td_publish_repo_look_end(&repo);
    if (!ok)
        ok = is_unfinished ? resume_blob(publish, name, sha256, &here_bytes, &upload, err) : fail_absent(err);
    if (!ok)
        return false;
    if (upload == NULL) {
        describe_complete(sha256, here_bytes, blob);
        return true;
    }
    renew_file(upload);
    ok = describe(upload, blob, err);
    leave_upload(upload);
    return ok;
}

bool td_publish_has_blob(struct td_publish *publish, const struct td_publish_name *name,
                         const uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_publish_blob blob;
    if (!td_publish_find_blob(publish, name, sha256, &blob, NULL))
        return false;
    bool is_complete = blob.is_complete;
    td_publish_blob_fini(&blob);
    return is_complete;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Starts the hasher if it does not run. Under the lock. */
static bool start_hasher(struct td_publish_upload *upload, struct td_error *err)
{
    bool ok = upload->hasher != NULL
                  ? td_fetch_hasher_wake(upload->hasher, err)
                  : td_fetch_hasher_start(upload->target.part, upload->size_bytes, false, &upload->hasher, err);
    if (ok)
        td_fetch_hasher_advance(upload->hasher, td_upload_pieces_start(&upload->pieces, upload->pieces.front));
    upload->is_hashing = upload->is_hashing || ok;
    return ok;
}

/* Prepares the hashing of a block whose pieces [piece, stop) will be written: a blob that is in one block, and
 * in which nobody else wrote a piece, is hashed at once; others need the hasher. Under the lock. */
static bool prepare_hash(struct td_publish_part *part, uint64_t piece, uint64_t stop, struct td_error *err)
{
    struct td_publish_upload *upload = part->upload;
    upload->has_sum = piece == 0 && stop == upload->pieces.count && upload->hasher == NULL;
    if (upload->has_sum)
        td_sha256(part->block->bytes, part->block->len, upload->sum);
    bool ok = upload->has_sum || start_hasher(upload, err);
    part->hasher = upload->hasher;
    return ok;
}

/* Ends a claimed run of pieces, and wakes those who wait for it. Under the lock. */
static void end_claim(struct td_publish_upload *upload, uint64_t piece, uint64_t stop, bool is_written)
{
    td_upload_pieces_end_run(&upload->pieces, piece, stop, is_written);
    (void)pthread_cond_broadcast(&upload->changed);
}

/* Marks a run that was written, or could not be. Sets *front to the bytes before the first missing one. */
static bool end_run(struct td_publish_upload *upload, uint64_t piece, uint64_t stop, bool is_written, uint64_t *front,
                    struct td_error *err)
{
    pthread_mutex_lock(&upload->lock);
    end_claim(upload, piece, stop, is_written);
    *front = td_upload_pieces_start(&upload->pieces, upload->pieces.front);
    /* Under the lock, since a byte of the journal has the bits of eight pieces. */
    bool ok = is_written && td_fetch_target_note(&upload->target, upload->pieces.bits, piece, stop, err);
    pthread_mutex_unlock(&upload->lock);
    if (is_written)
        td_publish_note_bytes(upload->publish, td_upload_pieces_start(&upload->pieces, stop) -
                                                   td_upload_pieces_start(&upload->pieces, piece));
    return ok;
}

/* Sets the error for a blob whose other bytes were wrong. */
static bool refuse_dropped(const struct td_publish_upload *upload, struct td_error *err)
{
    if (upload->failure.code != TD_OK)
        return td_error_copy(err, &upload->failure);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "the bytes that arrived for the blob sha256:%s have another digest, so all of them were "
                        "dropped; send them again",
                        upload->hex);
}

/* Writes the whole pieces of the block that nobody has written, and empties the block. */
static bool write_block(struct td_publish_part *part, struct td_error *err)
{
    struct td_publish_upload *upload = part->upload;
    struct td_fetch_block *block = part->block;
    uint64_t piece = block->off / TD_FETCH_PIECE_BYTES;
    uint64_t end = block->off + block->len == upload->size_bytes ? upload->pieces.count
                                                                 : (block->off + block->len) / TD_FETCH_PIECE_BYTES;
    uint64_t front = 0;
    bool ok = true;
    for (uint64_t stop = piece; ok; piece = stop) {
        pthread_mutex_lock(&upload->lock);
        if (upload->stage == DROPPED)
            ok = refuse_dropped(upload, err);
        bool any = ok && upload->stage == RECEIVING && td_upload_pieces_claim_run(&upload->pieces, &piece, end, &stop);
        ok = ok && (!any || prepare_hash(part, piece, stop, err));
        if (any && !ok)
            end_claim(upload, piece, stop, false);
        pthread_mutex_unlock(&upload->lock);
        if (!any || !ok)
            break;
        uint64_t from = td_upload_pieces_start(&upload->pieces, piece);
        size_t len = (size_t)(td_upload_pieces_start(&upload->pieces, stop) - from);
        ok = td_fetch_target_write(&upload->target, from, block->bytes + (from - block->off), len, err);
        ok = end_run(upload, piece, stop, ok, &front, err) && ok;
        if (ok && part->hasher != NULL && len == block->len && td_fetch_hasher_give(part->hasher, block))
            part->block = NULL;
        if (ok && part->hasher != NULL)
            td_fetch_hasher_advance(part->hasher, front);
        if (part->block == NULL)
            break;
    }
    if (part->block != NULL)
        part->block->len = 0;
    return ok;
}

/* Makes an empty block for the next bytes. */
static bool need_block(struct td_publish_part *part, struct td_error *err)
{
    if (part->block == NULL && part->hasher != NULL)
        part->block = td_fetch_hasher_block(part->hasher);
    else if (part->block == NULL && (part->block = malloc(sizeof *part->block)) != NULL)
        part->block->len = 0;
    if (part->block == NULL)
        return td_error_no_memory(err);
    if (part->block->len == 0)
        part->block->off = part->at;
    return true;
}

static bool check_span(const struct td_publish_span *span, struct td_error *err)
{
    if (span->end > span->size_bytes || span->first > span->end || (span->first == span->end && span->size_bytes > 0))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the range [%" PRIu64 ", %" PRIu64 ") is empty, or not within %" PRIu64 " bytes",
                            span->first, span->end, span->size_bytes);
    if (span->first % TD_FETCH_PIECE_BYTES == 0 &&
        (span->end == span->size_bytes || span->end % TD_FETCH_PIECE_BYTES == 0))
        return true;
    return td_error_set(err, TD_INVALID_ARGUMENT,
                        "a range begins at a multiple of %d bytes, and ends at one or with the blob",
                        TD_FETCH_PIECE_BYTES);
}

static bool check_size(const struct td_publish_upload *upload, uint64_t size_bytes, struct td_error *err)
{
    return upload->size_bytes == size_bytes ||
           td_error_set(err, TD_CONFLICT,
                        "an upload of the blob sha256:%s with %" PRIu64 " bytes has begun, and this one has %" PRIu64,
                        upload->hex, upload->size_bytes, size_bytes);
}

bool td_publish_part_begin(struct td_publish *publish, const struct td_publish_name *name,
                           const uint8_t sha256[TD_SHA256_BYTES], const struct td_publish_span *span,
                           struct td_publish_part **out, struct td_error *err)
{
    struct td_publish_repo repo;
    struct td_publish_upload *upload = NULL;
    uint64_t here_bytes;
    *out = NULL;
    if (!check_span(span, err) || !td_publish_check_name(&publish->disk, name, err) ||
        !td_publish_repo_open(&publish->disk, name, true, &repo, err))
        return false;
    bool is_complete = td_publish_keep_blob(&repo, sha256, &here_bytes);
    bool ok = is_complete || use_upload(publish, &repo, sha256, &span->size_bytes, &upload, err);
    td_publish_repo_close(&repo);
    if (!ok || is_complete)
        return ok;
    struct td_publish_part *part = check_size(upload, span->size_bytes, err) ? calloc(1, sizeof *part) : NULL;
    if (part == NULL) {
        leave_upload(upload);
        return td_error_no_memory(err);
    }
    *part = (struct td_publish_part){.upload = upload, .first = span->first, .at = span->first, .end = span->end};
    *out = part;
    return true;
}

bool td_publish_part_write(struct td_publish_part *part, const void *bytes, size_t len, struct td_error *err)
{
    const char *from = bytes;
    if (len > part->end - part->at)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the body has more bytes than its range");
    while (len > 0) {
        if (!need_block(part, err))
            return false;
        size_t n = td_fetch_block_add(part->block, from, len);
        part->at += n;
        from += n;
        len -= n;
        bool is_full = part->block->len == TD_FETCH_BLOCK_BYTES;
        if ((is_full || part->at == part->end) && !write_block(part, err))
            return false;
    }
    return true;
}

static void free_part(struct td_publish_part *part)
{
    free(part->block);
    leave_upload(part->upload);
    free(part);
}

void td_publish_part_abandon(struct td_publish_part *part)
{
    struct td_error ignored = TD_ERROR_INIT;
    if (part->block != NULL && part->block->len >= TD_FETCH_PIECE_BYTES)
        (void)write_block(part, &ignored);
    free_part(part);
}

/* ---- the end --------------------------------------------------------------------------------------------- */

/* Waits for the digest, and keeps it. Errors: TD_IO, TD_RESOURCE_EXHAUSTED. */
static bool find_digest(struct td_publish_upload *upload, uint8_t sum[TD_SHA256_BYTES], struct td_error *err)
{
    struct td_fetch_sums sums;
    pthread_mutex_lock(&upload->lock);
    bool has_sum = upload->has_sum;
    bool ok = has_sum || start_hasher(upload, err);
    struct td_fetch_hasher *hasher = upload->hasher;
    memcpy(sum, upload->sum, TD_SHA256_BYTES);
    pthread_mutex_unlock(&upload->lock);
    if (has_sum || !ok)
        return ok;
    if (!td_fetch_hasher_wait(hasher, NULL, &sums, err))
        return false;
    memcpy(sum, sums.sha256, TD_SHA256_BYTES);
    pthread_mutex_lock(&upload->lock); /* the hasher returns it once, and the blob may have to wait for its place */
    upload->has_sum = true;
    memcpy(upload->sum, sum, TD_SHA256_BYTES);
    pthread_mutex_unlock(&upload->lock);
    return true;
}

/* Returns whether the repository still is the one that the upload began in: it may have been removed since. */
static bool is_same_repo(const struct td_publish_upload *upload, const struct td_publish_repo *repo)
{
    struct stat begun;
    struct stat now;
    return repo->fd >= 0 && fstat(upload->target.directory, &begun) == 0 &&
           fstatat(repo->fd, "blobs", &now, AT_SYMLINK_NOFOLLOW) == 0 && begun.st_dev == now.st_dev &&
           begun.st_ino == now.st_ino;
}

/* The result for an upload whose pieces are all here. */
enum verdict {
    PLACED,   /* the blob is in its place */
    WAS_HERE, /* it was there already, by another way */
    REFUSED,  /* the bytes are wrong, or the repository was removed */
    FAILED    /* the pieces stay: the next part tries again */
};

/* Gives the blob its place. Nobody else writes to the file any more. */
static enum verdict place_blob(struct td_publish_upload *upload, struct td_error *err)
{
    struct td_publish_repo repo;
    enum verdict verdict = FAILED;
    uint64_t here_bytes;
    if (!td_fetch_target_sync(&upload->target, err) || /* before the lock is taken: others sync at the same time */
        !td_publish_repo_open(&upload->publish->disk, &upload->name, false, &repo, err))
        return FAILED;
    if (!is_same_repo(upload, &repo)) {
        (void)refuse_removed(err);
        verdict = REFUSED;
    } else if (td_publish_keep_blob(&repo, upload->sha256, &here_bytes)) {
        verdict = WAS_HERE;
    } else if (td_fetch_target_place(&upload->target, err)) {
        verdict = PLACED;
    }
    td_publish_repo_close(&repo);
    if (verdict == PLACED)
        td_publish_note_blob(upload->publish, upload->target.directory, upload->hex, upload->sha256);
    return verdict;
}

/* Verifies the complete file and gives it its place. *err stays without an error when the digest is wrong. */
static enum verdict judge(struct td_publish_upload *upload, struct td_error *err)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (!find_digest(upload, sum, err))
        return FAILED;
    if (memcmp(sum, upload->sha256, sizeof sum) == 0)
        return place_blob(upload, err);
    td_publish_note_refused(upload->publish);
    return REFUSED;
}

/* Ends the upload, for all of its parts. After a failure that may pass, it receives again. The stage is VERIFYING. */
static bool end_upload(struct td_publish_upload *upload, struct td_error *err)
{
    struct td_publish *publish = upload->publish;
    struct td_error why = TD_ERROR_INIT;
    enum verdict verdict = judge(upload, &why);
    if (verdict == REFUSED || verdict == WAS_HERE) {
        td_fetch_target_discard(&upload->target);
        td_publish_give_back(publish, upload->size_bytes);
    }
    if (verdict != FAILED) {
        pthread_mutex_lock(&publish->lock);
        unlink_upload(upload); /* the next part of this blob starts over */
        pthread_mutex_unlock(&publish->lock);
    }
    pthread_mutex_lock(&upload->lock);
    upload->stage = verdict == FAILED ? RECEIVING : verdict == REFUSED ? DROPPED : COMPLETE;
    if (verdict == REFUSED)
        upload->failure = why;
    (void)pthread_cond_broadcast(&upload->changed);
    pthread_mutex_unlock(&upload->lock);
    return why.code == TD_OK || td_error_copy(err, &why);
}

/* Waits while another part writes a piece of this part, which has the same bytes, or verifies the blob. Returns the
 * stage: RECEIVING when pieces are missing, VERIFYING when the caller is the one to end the upload. */
static enum stage await_others(const struct td_publish_part *part)
{
    struct td_publish_upload *upload = part->upload;
    pthread_mutex_lock(&upload->lock);
    while (upload->stage == VERIFYING ||
           (upload->stage == RECEIVING && td_upload_pieces_are_written(&upload->pieces, part->first, part->end)))
        (void)pthread_cond_wait(&upload->changed, &upload->lock);
    enum stage stage = upload->stage;
    if (stage == RECEIVING && upload->pieces.front == upload->pieces.count)
        stage = upload->stage = VERIFYING;
    pthread_mutex_unlock(&upload->lock);
    return stage;
}

bool td_publish_part_end(struct td_publish_part *part, enum td_publish_end *end, struct td_publish_blob *blob,
                         struct td_error *err)
{
    struct td_publish_upload *upload = part->upload;
    if (part->at < part->end) {
        (void)td_error_set(err, TD_INVALID_ARGUMENT, "the body ended %" PRIu64 " bytes before the end of its range",
                           part->end - part->at);
        td_publish_part_abandon(part);
        return false;
    }
    enum stage stage = await_others(part);
    bool ok = stage != VERIFYING || end_upload(upload, err);
    pthread_mutex_lock(&upload->lock);
    stage = upload->stage;
    ok = ok && (stage != DROPPED || upload->failure.code == TD_OK || td_error_copy(err, &upload->failure));
    pthread_mutex_unlock(&upload->lock);
    *end = stage == COMPLETE ? TD_PUBLISH_COMPLETE : stage == DROPPED ? TD_PUBLISH_WRONG : TD_PUBLISH_INCOMPLETE;
    ok = ok && describe(upload, blob, err);
    free_part(part);
    return ok;
}
