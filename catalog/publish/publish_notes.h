/* Notes on the commits of published repositories: files commits/COMMIT with message, token, time and parent. The
 * modification time of a note is when a revision last left the commit. The caller has opened the repository, so nobody
 * else changes it. Each call may wait for the disk. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_NOTES_H
#define TD_CATALOG_PUBLISH_PUBLISH_NOTES_H

#include "catalog/names/repo.h"
#include "catalog/publish/publish_stage.h"
#include "core/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The content of commits/COMMIT. Texts are in the arena, or borrowed when a note is written. */
struct td_commit_note {
    char commit[TD_COMMIT_BYTES];
    char parent[TD_COMMIT_BYTES]; /* empty: none */
    const char *message, *token;  /* "": none */
    int64_t time_s;               /* since 1970 */
    uint32_t time_ns;             /* within the second */
};

/* Sets *notes to the notes of all commits of the repository that have a snapshot, the newest first, and *count. The
 * caller frees the array; texts live in the arena. Notes that are damaged are passed over with a line in the log.
 * Errors: TD_FAILED_PRECONDITION for more than TD_NOTES_MOST commits, TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_list_commits(const struct td_publish_repo *repo, struct td_arena *arena, struct td_commit_note **notes,
                             size_t *count, struct td_error *err);

enum { TD_NOTES_MOST = 100000 /* items of commits/ and of snapshots/ that are read */ };

/* Reads the note of a commit; its texts are in the arena. Errors: TD_NOT_FOUND without a note, TD_FAILED_PRECONDITION
 * for a damaged one, TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_note_read(const struct td_publish_repo *repo, const char *commit, struct td_arena *arena,
                          struct td_commit_note *note, struct td_error *err);

/* Reads the note of a commit in the history of a revision: that with which a squash ended this history, else the
 * commit's own. revision: "main" and so on; a text that names no revision has no squash. Errors as
 * td_publish_note_read. */
bool td_publish_note_read_in(const struct td_publish_repo *repo, const char *revision, const char *commit,
                             struct td_arena *arena, struct td_commit_note *note, struct td_error *err);

/* Ends the history of a revision at the note's commit, durably, with this note; histories of other revisions still have
 * the commit's own. Errors as td_publish_note_write. */
bool td_publish_squash_write(const struct td_publish_stage *stage, const char *revision,
                             const struct td_commit_note *note, struct td_error *err);

/* Removes the squash of a revision, if it has one. */
void td_publish_squash_remove(const struct td_publish_repo *repo, const char *revision);

/* Gives a new revision the squash of the one that it begins from, if that has one. */
void td_publish_squash_copy(const struct td_publish_repo *repo, const char *from, const char *revision);

/* Writes a note, durably; replaces one that is damaged. Cuts the message to TD_COMMIT_MESSAGE_BYTES between characters,
 * and bytes that are not UTF-8 are shown as \xNN. Errors as td_publish_fail; TD_RESOURCE_EXHAUSTED. */
bool td_publish_note_write(const struct td_publish_stage *stage, const struct td_commit_note *note,
                           struct td_error *err);

/* Removes a note. */
void td_publish_note_remove(const struct td_publish_repo *repo, const char *commit);

/* Notes that a revision leaves the commit now. Call it before the revision moves, so that a crash between the two
 * cannot make the commit look older. */
void td_publish_note_left(const struct td_publish_repo *repo, const char *commit);

/* Returns when a revision last left the commit, in nanoseconds since 1970: the time of its note; of its snapshot
 * when it has no note; INT64_MAX when neither can be read. */
int64_t td_publish_note_left_ns(const struct td_publish_repo *repo, const char *commit);

#endif
