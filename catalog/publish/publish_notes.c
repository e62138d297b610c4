#include "catalog/publish/publish_notes.h"

#include "catalog/publish/publish_tree.h"
#include "core/array.h"
#include "core/file_io.h"
#include "core/json/json_document.h"
#include "core/log.h"
#include "core/message/document.h"
#include "core/utf8.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOKEN_BYTES = 256,      /* of a token's name; longer ones are cut */
    NOTE_BYTES = 64 * 1024, /* of a note: a message takes up to six bytes for each of its own */
};

static const char notes_folder[] = "commits", squashed_folder[] = "squashed";

/* ---- one note -------------------------------------------------------------------------------------------- */

/* Adds a text, cut to `most` bytes. */
static void add_text(struct td_document *json, const char *key, const char *text, size_t most)
{
    char shown[4 * TD_COMMIT_MESSAGE_BYTES + 1];
    struct td_text cut = td_text_of(text);
    cut.len = td_text_shown(cut, most);
    if (!td_utf8_valid(cut.p, cut.len)) {
        td_utf8_escape(cut, shown, sizeof shown);
        cut = td_text_of(shown);
        cut.len = td_text_shown(cut, most);
    }
    td_document_add_text(json, key, cut);
}

/* Appends the note's JSON. */
static void format(const struct td_commit_note *note, struct td_buffer *text)
{
    struct td_document json;
    td_document_init(&json, text);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "commit", note->commit);
    td_document_add_string(&json, "parent", note->parent);
    add_text(&json, "message", note->message, TD_COMMIT_MESSAGE_BYTES);
    add_text(&json, "token", note->token, TOKEN_BYTES);
    td_document_add_u64(&json, "time", (uint64_t)note->time_s);
    td_document_add_u64(&json, "time_ns", note->time_ns);
    td_document_end(&json);
    td_buffer_putc(text, '\n');
}

/* Writes the note to a file in one of the repository's folders, which is made if it is missing. */
static bool write_note(const struct td_publish_stage *stage, const char *folder, const char *name,
                       const struct td_commit_note *note, struct td_error *err)
{
    const struct td_publish_repo *repo = stage->repo;
    struct td_buffer text;
    char path[NAME_MAX + 32];
    const char *last;
    td_buffer_init(&text);
    format(note, &text);
    bool ok =
        text.failed ? td_buffer_refuse(&text, err) : td_publish_stage_write(stage, "note", td_buffer_text(&text), err);
    td_buffer_fini(&text);
    if (!ok)
        return false;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int at = td_folder_open_parent(repo->fd, path, true, &last);
    ok = at >= 0 && td_publish_stage_place(stage, "note", at, last, err);
    td_folder_close(at);
    return ok || td_publish_fail(&repo->name, "write the note of a commit of", err);
}

bool td_publish_note_write(const struct td_publish_stage *stage, const struct td_commit_note *note,
                           struct td_error *err)
{
    return write_note(stage, notes_folder, note->commit, note, err);
}

/* Returns a copy of a member that is a text; NULL, or for another type and a damaged text. */
static const char *text_of(const struct td_json_document *document, const cJSON *root, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    return td_json_item_is_string(item) ? td_json_document_string(document, item) : NULL;
}

static bool number_of(const struct td_json_document *document, const cJSON *root, const char *key, uint64_t most,
                      uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    return cJSON_IsRaw(item) && td_json_document_u64(document, item, out) && *out <= most;
}

/* Reads the note in a text; texts of the note are in the arena. Errors: TD_FAILED_PRECONDITION for a damaged note,
 * TD_RESOURCE_EXHAUSTED. */
static bool parse(struct td_text text, struct td_arena *arena, struct td_commit_note *note, struct td_error *err)
{
    struct td_json_document document;
    uint64_t time_s = 0;
    uint64_t time_ns = 0;
    struct td_error why = TD_ERROR_INIT;
    td_json_document_read(&document, text, arena, &why);
    const cJSON *root = td_json_document_object(&document, "a note");
    const char *parent = text_of(&document, root, "parent");
    note->message = text_of(&document, root, "message");
    note->token = text_of(&document, root, "token");
    if (parent == NULL || note->message == NULL || note->token == NULL ||
        (parent[0] != '\0' && !td_publish_is_commit(td_text_of(parent))) ||
        !number_of(&document, root, "time", INT64_MAX, &time_s) ||
        !number_of(&document, root, "time_ns", 999999999, &time_ns) || !td_json_document_end(&document))
        return why.code == TD_RESOURCE_EXHAUSTED ? td_error_copy(err, &why)
                                                 : td_error_set(err, TD_FAILED_PRECONDITION, "the note is damaged");
    const char *commit = text_of(&document, root, "commit");
    (void)snprintf(note->commit, sizeof note->commit, "%s", commit == NULL ? "" : commit);
    (void)snprintf(note->parent, sizeof note->parent, "%s", parent);
    note->time_s = (int64_t)time_s;
    note->time_ns = (uint32_t)time_ns;
    return true;
}

/* Opens a file in a folder of the repository for reading. Returns -1 with errno. */
static int open_in(const struct td_publish_repo *repo, const char *folder, const char *name)
{
    int at = td_folder_open(repo->fd, folder);
    int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    td_folder_close(at);
    return fd;
}

static int open_note(const struct td_publish_repo *repo, const char *commit)
{
    return open_in(repo, notes_folder, commit);
}

/* Reads the note in a file, which it closes. */
static bool read_note(const struct td_publish_repo *repo, int fd, struct td_arena *arena, struct td_commit_note *note,
                      struct td_error *err)
{
    char *bytes = malloc(NOTE_BYTES);
    ssize_t n = bytes == NULL ? 0 : td_read_at(fd, bytes, NOTE_BYTES, 0);
    bool ok = bytes == NULL ? td_error_no_memory(err)
              : n < 0       ? td_publish_fail(&repo->name, "read the note of a commit of", err)
                            : parse(td_text_n(bytes, (size_t)n), arena, note, err);
    (void)close(fd);
    free(bytes);
    return ok;
}

bool td_publish_note_read(const struct td_publish_repo *repo, const char *commit, struct td_arena *arena,
                          struct td_commit_note *note, struct td_error *err)
{
    *note = (struct td_commit_note){.message = "", .token = ""};
    int fd = open_note(repo, commit);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return td_error_set(err, TD_NOT_FOUND, "commit %s has no note", commit);
    if (fd < 0)
        return td_publish_fail(&repo->name, "read the note of a commit of", err);
    bool ok = read_note(repo, fd, arena, note, err);
    (void)snprintf(note->commit, sizeof note->commit, "%s", commit);
    return ok;
}

void td_publish_note_remove(const struct td_publish_repo *repo, const char *commit)
{
    int at = td_folder_open(repo->fd, "commits");
    if (at < 0)
        return;
    (void)unlinkat(at, commit, 0);
    (void)close(at);
}

/* ---- squashes -------------------------------------------------------------------------------------------- */

/* Writes the name of a revision's file in squashed/: with '%' for '/'. Returns false for a text that names none. */
static bool name_squash(const char *revision, char name[NAME_MAX + 1])
{
    size_t len = strlen(revision);
    if (len == 0 || len > NAME_MAX || revision[0] == '.' || strchr(revision, '%') != NULL)
        return false;
    for (size_t i = 0; i <= len; i++)
        name[i] = (char)(revision[i] == '/' ? '%' : revision[i]);
    return true;
}

bool td_publish_note_read_in(const struct td_publish_repo *repo, const char *revision, const char *commit,
                             struct td_arena *arena, struct td_commit_note *note, struct td_error *err)
{
    char name[NAME_MAX + 1];
    int fd = name_squash(revision, name) ? open_in(repo, squashed_folder, name) : -1;
    *note = (struct td_commit_note){.message = "", .token = ""};
    if (fd >= 0 && read_note(repo, fd, arena, note, NULL) && strcmp(note->commit, commit) == 0)
        return true;
    return td_publish_note_read(repo, commit, arena, note, err);
}

bool td_publish_squash_write(const struct td_publish_stage *stage, const char *revision,
                             const struct td_commit_note *note, struct td_error *err)
{
    char name[NAME_MAX + 1];
    return (name_squash(revision, name) ||
            td_error_set(err, TD_INVALID_ARGUMENT, "\"%.200s\" names no revision", revision)) &&
           write_note(stage, squashed_folder, name, note, err);
}

void td_publish_squash_remove(const struct td_publish_repo *repo, const char *revision)
{
    char name[NAME_MAX + 1];
    int at = name_squash(revision, name) ? td_folder_open(repo->fd, squashed_folder) : -1;
    if (at < 0)
        return;
    (void)unlinkat(at, name, 0);
    (void)close(at);
}

void td_publish_squash_copy(const struct td_publish_repo *repo, const char *from, const char *revision)
{
    char old_name[NAME_MAX + 1];
    char name[NAME_MAX + 1];
    td_publish_squash_remove(repo, revision);
    if (!name_squash(from, old_name) || !name_squash(revision, name))
        return;
    int at = td_folder_open(repo->fd, squashed_folder);
    if (at < 0)
        return;
    if (linkat(at, old_name, at, name, 0) != 0 && errno != ENOENT) /* hard links may not be possible here */
        td_log(TD_LOG_WARN, "publish: the revision \"%s\" of \"%s\" has the history from before the squash of \"%s\"",
               revision, repo->name.path, from);
    (void)close(at);
}

/* ---- when a commit was left ------------------------------------------------------------------------------ */

void td_publish_note_left(const struct td_publish_repo *repo, const char *commit)
{
    int fd = open_note(repo, commit);
    if (fd < 0)
        fd = td_publish_tree_open(repo, commit);
    if (fd < 0)
        return;
    (void)futimens(fd, NULL);
    (void)close(fd);
}

int64_t td_publish_note_left_ns(const struct td_publish_repo *repo, const char *commit)
{
    struct stat st;
    int fd = open_note(repo, commit);
    if (fd < 0 && errno == ENOENT)
        fd = td_publish_tree_open(repo, commit);
    if (fd < 0)
        return INT64_MAX;
    bool ok = fstat(fd, &st) == 0;
    (void)close(fd);
    return ok ? td_file_id_of(&st).mtime_ns : INT64_MAX;
}

/* ---- all notes ------------------------------------------------------------------------------------------- */

struct listing {
    const struct td_publish_repo *repo;
    struct td_arena *arena;
    struct td_commit_note *notes;
    size_t count, capacity;
    size_t seen; /* items of snapshots/ */
};

static bool add_note(void *context, int at, const char *commit, struct td_error *err)
{
    struct listing *listing = context;
    struct td_error why = TD_ERROR_INIT;
    (void)at;
    if (listing->seen++ >= TD_NOTES_MOST)
        return td_error_set(err, TD_FAILED_PRECONDITION, "\"%s\" has too many commits", listing->repo->name.path);
    if (!td_publish_is_commit(td_text_of(commit)))
        return true;
    if (!TD_ARRAY_GROW(listing->notes, listing->count, listing->capacity, err))
        return false;
    if (td_publish_note_read(listing->repo, commit, listing->arena, &listing->notes[listing->count], &why)) {
        listing->count++;
        return true;
    }
    if (why.code != TD_NOT_FOUND && why.code != TD_FAILED_PRECONDITION)
        return td_error_copy(err, &why);
    td_log(TD_LOG_WARN, "publish: the note of commit %s of \"%s\" is missing or damaged", commit,
           listing->repo->name.path);
    return true;
}

/* The newest first; of one time, by id. */
static int compare_notes(const void *a, const void *b)
{
    const struct td_commit_note *x = a;
    const struct td_commit_note *y = b;
    if (x->time_s != y->time_s)
        return x->time_s > y->time_s ? -1 : 1;
    if (x->time_ns != y->time_ns)
        return x->time_ns > y->time_ns ? -1 : 1;
    return strcmp(x->commit, y->commit);
}

bool td_publish_list_commits(const struct td_publish_repo *repo, struct td_arena *arena, struct td_commit_note **notes,
                             size_t *count, struct td_error *err)
{
    struct listing listing = {.repo = repo, .arena = arena};
    *notes = NULL;
    *count = 0;
    if (repo->fd < 0 || repo->is_new)
        return true;
    int fd = td_folder_open(repo->fd, "snapshots");
    if (fd < 0)
        return errno == ENOENT || td_publish_fail(&repo->name, "list the commits of", err);
    if (!td_disk_list(fd, repo->name.folder, add_note, &listing, err)) {
        free(listing.notes);
        return false;
    }
    if (listing.count > 0)
        qsort(listing.notes, listing.count, sizeof *listing.notes, compare_notes);
    *notes = listing.notes;
    *count = listing.count;
    return true;
}
