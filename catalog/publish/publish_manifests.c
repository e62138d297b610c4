#include "catalog/publish/publish_manifests.h"

#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_refs.h"
#include "catalog/publish/publish_stage.h"
#include "core/array.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/log.h"
#include "core/message/document.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TAG_LINE_BYTES = TD_SHA256_TEXT_BYTES + TD_COMMIT_BYTES,
    MARK_BYTES = 16,
    FOLDER_NAME_BYTES = 96, /* "referrers/" and a digest */
};

/* ---- files ------------------------------------------------------------------------------------------------ */

/* Writes a file in a folder of the repository, durably; replaces an old one. `folder` may have one '/'. */
static bool write_file(struct td_publish_repo *repo, const char *folder, const char *name, struct td_text content,
                       struct td_error *err)
{
    struct td_publish_stage stage;
    char path[FOLDER_NAME_BYTES + TD_PUBLISH_TAG_BYTES];
    const char *unused;
    (void)snprintf(path, sizeof path, "%s/x", folder);
    bool ok = td_publish_stage_open(&stage, repo, err) && td_publish_stage_write(&stage, "file", content, err);
    if (ok) {
        int at = td_folder_open_parent(repo->fd, path, true, &unused);
        ok = at >= 0 && td_publish_stage_place(&stage, "file", at, name, err);
        td_folder_close(at);
        ok = ok || td_publish_fail(&repo->name, "write a manifest or a tag of", err);
    }
    td_publish_stage_close(&stage);
    return ok;
}

/* Opens a file in a folder of the repository for reading. Returns -1 with errno. */
static int open_file(const struct td_publish_repo *repo, const char *folder, const char *name)
{
    int at = repo->fd < 0 ? -1 : td_folder_open(repo->fd, folder);
    int fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    td_folder_close(at);
    return fd;
}

/* Removes a file in a folder of the repository, durably. Returns false, with errno, when it stays. */
static bool remove_file(const struct td_publish_repo *repo, const char *folder, const char *name)
{
    int at = td_folder_open(repo->fd, folder);
    bool ok = at >= 0 ? unlinkat(at, name, 0) == 0 && fsync(at) == 0 : errno == ENOENT;
    ok = ok || errno == ENOENT;
    td_folder_close(at);
    return ok;
}

/* Lists a folder of the repository. A folder that is missing has no items. */
static bool each_item(const struct td_publish_repo *repo, const char *folder,
                      bool (*visit)(void *context, int at, const char *name, struct td_error *err), void *context,
                      struct td_error *err)
{
    char shown[NAME_MAX + FOLDER_NAME_BYTES + 2];
    int fd = repo->fd < 0 ? -1 : td_folder_open(repo->fd, folder);
    if (fd < 0 && (repo->fd < 0 || errno == ENOENT))
        return true;
    (void)snprintf(shown, sizeof shown, "%s/%s", repo->name.folder, folder);
    return td_disk_list(fd, shown, visit, context, err);
}

static bool count_item(void *context, int at, const char *name, struct td_error *err)
{
    size_t *count = context;
    (void)at;
    (void)name;
    (void)err;
    ++*count;
    return true;
}

/* Checks that a folder has room for one more item, unless it has this one. */
static bool check_room(const struct td_publish_repo *repo, const char *folder, const char *name, size_t most,
                       struct td_error *err)
{
    size_t count = 0;
    int fd = open_file(repo, folder, name);
    if (fd >= 0) {
        (void)close(fd);
        return true;
    }
    if (!each_item(repo, folder, count_item, &count, err))
        return false;
    return count < most ||
           td_error_set(err, TD_FAILED_PRECONDITION, "the repository has %zu %s, the most that are kept; delete some",
                        count, folder);
}

/* ---- manifests -------------------------------------------------------------------------------------------- */

static void name_referrers(const char *subject, char out[FOLDER_NAME_BYTES])
{
    (void)snprintf(out, FOLDER_NAME_BYTES, "referrers/%s", subject);
}

/* Appends the file in referrers/ for a manifest. */
static void describe_referrer(const char *hex, const struct td_pushed_manifest *manifest, struct td_buffer *text)
{
    struct td_document json;
    char digest[TD_SHA256_TEXT_BYTES + 8];
    (void)snprintf(digest, sizeof digest, "sha256:%s", hex);
    td_buffer_printf(text, "%zu %" PRIu64 " %zu\n%s", strlen(manifest->artifact_type), manifest->annotations_at,
                     manifest->annotations.len, manifest->artifact_type);
    td_document_init(&json, text);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "mediaType", manifest->media_type);
    td_document_add_string(&json, "digest", digest);
    td_document_add_u64(&json, "size", manifest->size_bytes);
    if (manifest->artifact_type[0] != '\0')
        td_document_add_string(&json, "artifactType", manifest->artifact_type);
    td_document_end(&json);
}

/* Adds a manifest to the referrers of its subject. */
static bool add_referrer(struct td_publish_repo *repo, const char *hex, const struct td_pushed_manifest *manifest,
                         const uint8_t subject[TD_SHA256_BYTES], struct td_error *err)
{
    char of[TD_SHA256_TEXT_BYTES];
    char folder[FOLDER_NAME_BYTES];
    struct td_buffer text;
    td_buffer_init(&text);
    describe_referrer(hex, manifest, &text);
    td_hex_write(subject, TD_SHA256_BYTES, of);
    name_referrers(of, folder);
    bool ok = text.failed ? td_buffer_refuse(&text, err) : write_file(repo, folder, hex, td_buffer_text(&text), err);
    td_buffer_fini(&text);
    return ok;
}

/* Manifests whose bytes are added. */
struct weighing {
    int blobs; /* the directory of their blobs */
    uint64_t bytes;
};

static bool weigh(void *context, int at, const char *name, struct td_error *err)
{
    struct weighing *weighing = context;
    struct stat st;
    (void)at;
    (void)err;
    if (fstatat(weighing->blobs, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        weighing->bytes += (uint64_t)st.st_size;
    return true;
}

/* Checks that the bytes of all manifests of the repository, with one more, stay within the bound, unless the manifest
 * is there already. */
static bool check_bytes(const struct td_publish_repo *repo, const char *name, struct td_error *err)
{
    struct weighing weighing = {.blobs = td_folder_open(repo->fd, "blobs")};
    int fd = open_file(repo, "manifests", name);
    bool is_here = fd >= 0;
    td_folder_close(fd);
    bool ok = is_here || (weigh(&weighing, -1, name, NULL) && each_item(repo, "manifests", weigh, &weighing, err));
    td_folder_close(weighing.blobs);
    return ok && (weighing.bytes <= TD_PUBLISH_MANIFESTS_BYTES ||
                  td_error_set(err, TD_FAILED_PRECONDITION,
                               "the manifests of the repository would have %" PRIu64 " bytes, and %d are the most; "
                               "delete some",
                               weighing.bytes, TD_PUBLISH_MANIFESTS_BYTES));
}

bool td_publish_manifest_put(struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                             const struct td_pushed_manifest *manifest, bool is_by_digest, struct td_error *err)
{
    char name[TD_SHA256_TEXT_BYTES];
    char mark[MARK_BYTES] = "";
    uint8_t of[TD_SHA256_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    if (!check_room(repo, "manifests", name, TD_PUBLISH_MANIFESTS_MOST, err) || !check_bytes(repo, name, err) ||
        !td_publish_blobs_sync(repo, err))
        return false;
    if (manifest->subject != NULL && td_pushed_digest_read(td_text_of(manifest->subject), of) &&
        !add_referrer(repo, name, manifest, of, err))
        return false;
    int fd = open_file(repo, "manifests", name);
    bool was_by_digest = fd >= 0 && td_read_at(fd, mark, sizeof mark - 1, 0) > 0 && mark[0] == 'd';
    td_folder_close(fd);
    return write_file(repo, "manifests", name, td_text_of(is_by_digest || was_by_digest ? "digest\n" : "tag\n"), err);
}

bool td_publish_manifest_is_here(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES])
{
    char name[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    int fd = open_file(repo, "manifests", name);
    td_folder_close(fd);
    return fd >= 0;
}

bool td_publish_has_manifests(const struct td_publish_repo *repo)
{
    size_t count = 0;
    return !each_item(repo, "manifests", count_item, &count, NULL) || count > 0;
}

static bool stop_at_digest(void *context, int at, const char *name, struct td_error *err)
{
    bool *has_any = context;
    char mark[MARK_BYTES] = "";
    (void)err;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *has_any = *has_any || fd < 0 || (td_read_at(fd, mark, sizeof mark - 1, 0) > 0 && mark[0] == 'd');
    td_folder_close(fd);
    return !*has_any;
}

bool td_publish_has_manifests_by_digest(const struct td_publish_repo *repo)
{
    bool has_any = false;
    return !each_item(repo, "manifests", stop_at_digest, &has_any, NULL) || has_any;
}

/* Reads a whole file of at most TD_PUSHED_MANIFEST_MAX bytes. */
static bool read_bytes(const struct td_publish_repo *repo, int fd, char **bytes, size_t *len, struct td_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return td_publish_fail(&repo->name, "read a manifest of", err);
    if (!S_ISREG(st.st_mode) || st.st_size > TD_PUSHED_MANIFEST_MAX)
        return td_error_set(err, TD_FAILED_PRECONDITION, "a manifest of \"%s\" is damaged", repo->name.path);
    *len = (size_t)st.st_size;
    *bytes = malloc(*len + 1);
    if (*bytes == NULL)
        return td_error_no_memory(err);
    ssize_t n = td_read_at(fd, *bytes, *len, 0);
    if (n == (ssize_t)*len)
        return true;
    bool is_short = n >= 0;
    if (!is_short)
        (void)td_publish_fail(&repo->name, "read a manifest of", err);
    free(*bytes);
    *bytes = NULL;
    return is_short && td_error_set(err, TD_FAILED_PRECONDITION, "a manifest of \"%s\" was cut", repo->name.path);
}

bool td_publish_manifest_read(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES], char **bytes,
                              size_t *len, struct td_error *err)
{
    char name[TD_SHA256_TEXT_BYTES];
    *bytes = NULL;
    *len = 0;
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    if (!td_publish_manifest_is_here(repo, sha256))
        return td_error_set(err, TD_NOT_FOUND, "no manifest sha256:%s was pushed", name);
    int fd = open_file(repo, "blobs", name);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP))
        return td_error_set(err, TD_FAILED_PRECONDITION, "the blob of the manifest sha256:%s is missing", name);
    if (fd < 0)
        return td_publish_fail(&repo->name, "read a manifest of", err);
    bool ok = read_bytes(repo, fd, bytes, len, err);
    (void)close(fd);
    return ok;
}

/* A manifest that was read from its blob, with what it borrows. */
struct read_manifest {
    struct td_pushed_manifest manifest;
    struct td_arena arena;
    char *bytes;
};

/* Reads a manifest. Call fini_manifest in any case. Errors as td_publish_manifest_read and td_pushed_manifest_read. */
static bool read_manifest(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                          struct read_manifest *read, struct td_error *err)
{
    size_t len;
    td_arena_init(&read->arena, TD_PUSHED_MANIFEST_ARENA_BYTES);
    return td_publish_manifest_read(repo, sha256, &read->bytes, &len, err) &&
           td_pushed_manifest_read(td_text_n(read->bytes, len), &read->arena, &read->manifest, err);
}

static void fini_manifest(struct read_manifest *read)
{
    td_arena_fini(&read->arena);
    free(read->bytes);
}

void td_publish_manifest_commit(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                                char commit[TD_COMMIT_BYTES])
{
    struct read_manifest read;
    bool ok = read_manifest(repo, sha256, &read, NULL);
    (void)snprintf(commit, TD_COMMIT_BYTES, "%s", ok ? read.manifest.commit : "");
    fini_manifest(&read);
}

/* Forgets that a manifest refers to its subject. One that cannot be read stays in the list, and readers of the list
 * pass over it. */
static void forget_referrer(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES], const char *name)
{
    struct read_manifest read;
    uint8_t of[TD_SHA256_BYTES];
    char subject[TD_SHA256_TEXT_BYTES];
    char folder[FOLDER_NAME_BYTES];
    if (read_manifest(repo, sha256, &read, NULL) && read.manifest.subject != NULL &&
        td_pushed_digest_read(td_text_of(read.manifest.subject), of)) {
        td_hex_write(of, TD_SHA256_BYTES, subject);
        name_referrers(subject, folder);
        (void)remove_file(repo, folder, name);
        (void)unlinkat(repo->fd, folder, AT_REMOVEDIR);
    }
    fini_manifest(&read);
}

/* Removes a manifest's mark, and its place in the list of its subject's referrers. */
static bool remove_mark(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    char name[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    forget_referrer(repo, sha256, name);
    return remove_file(repo, "manifests", name) || td_publish_fail(&repo->name, "delete a manifest of", err);
}

/* ---- tags ------------------------------------------------------------------------------------------------- */

bool td_publish_tag_is_valid(const char *tag)
{
    size_t len = strlen(tag);
    if (len == 0 || len >= TD_PUBLISH_TAG_BYTES || tag[0] == '.' || tag[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!td_is_letter_or_digit(tag[i]) && memchr("_.-", tag[i], 3) == NULL)
            return false;
    return true;
}

const char *td_publish_tag_revision(const char *tag)
{
    if (strcmp(tag, "latest") == 0)
        return "main";
    return td_commit_check_revision(tag, NULL) ? tag : NULL;
}

/* A line of the file of a tag: the manifest that the tag names while its revision is at a commit. */
struct tag_line {
    uint8_t sha256[TD_SHA256_BYTES];
    char commit[TD_COMMIT_BYTES]; /* empty: while the revision is not there */
};

/* Reads a line of a tag's file off the text. Returns false at the end, and for a damaged line. */
static bool read_line(struct td_text *text, struct tag_line *line)
{
    struct td_text rest = td_text_take_until(text, '\n');
    struct td_text hex = td_text_take_until(&rest, ' ');
    bool has_commit = rest.len == TD_COMMIT_BYTES - 1 && td_hex_is_lower(rest);
    if (!td_hex_read_bytes(hex, line->sha256, TD_SHA256_BYTES) || (!has_commit && !td_text_equals(rest, "-")))
        return false;
    (void)snprintf(line->commit, sizeof line->commit, "%.*s", has_commit ? (int)rest.len : 0, rest.p);
    return true;
}

/* Writes the commit of the tag's revision; empty when there is no such revision. */
static void find_commit(const struct td_publish_repo *repo, const char *tag, char commit[TD_COMMIT_BYTES])
{
    const char *revision = td_publish_tag_revision(tag);
    commit[0] = '\0';
    if (revision != NULL)
        (void)td_publish_resolve(repo, revision, commit);
}

/* A tag's file. */
struct tag_file {
    struct tag_line lines[2];
    size_t count;
    const struct tag_line *current; /* the line that counts; NULL: none does */
};

static void read_tag(const struct td_publish_repo *repo, const char *tag, struct tag_file *file)
{
    char text[2 * TAG_LINE_BYTES];
    char commit[TD_COMMIT_BYTES];
    int fd = open_file(repo, "tags", tag);
    ssize_t n = fd < 0 ? 0 : td_read_at(fd, text, sizeof text, 0);
    td_folder_close(fd);
    struct td_text rest = td_text_n(text, n > 0 ? (size_t)n : 0);
    *file = (struct tag_file){.count = 0};
    while (file->count < 2 && read_line(&rest, &file->lines[file->count]))
        file->count++;
    if (file->count > 0)
        find_commit(repo, tag, commit);
    for (size_t i = file->count; i-- > 0;)
        if (strcmp(file->lines[i].commit, commit) == 0)
            file->current = &file->lines[i];
}

/* Notes that a tag leaves a manifest now. */
static void note_left(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES])
{
    char name[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    int fd = open_file(repo, "manifests", name);
    if (fd < 0)
        return;
    (void)futimens(fd, NULL);
    (void)close(fd);
}

static void note_all_left(const struct td_publish_repo *repo, const struct tag_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        note_left(repo, file->lines[i].sha256);
}

static void add_line(const struct tag_line *line, struct td_buffer *text)
{
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(line->sha256, TD_SHA256_BYTES, hex);
    td_buffer_printf(text, "%s %s\n", hex, line->commit[0] == '\0' ? "-" : line->commit);
}

bool td_publish_tag_put(struct td_publish_repo *repo, const char *tag, const uint8_t sha256[TD_SHA256_BYTES],
                        const char *commit, struct td_error *err)
{
    struct tag_file before;
    struct tag_line line;
    struct td_buffer text;
    if (!check_room(repo, "tags", tag, TD_PUBLISH_TAGS_MOST, err))
        return false;
    read_tag(repo, tag, &before);
    memcpy(line.sha256, sha256, sizeof line.sha256);
    if (commit == NULL)
        find_commit(repo, tag, line.commit);
    else
        (void)snprintf(line.commit, sizeof line.commit, "%s", commit);
    td_buffer_init(&text);
    add_line(&line, &text);
    if (before.current != NULL && strcmp(before.current->commit, line.commit) != 0)
        add_line(before.current, &text);
    note_all_left(repo, &before);
    bool ok = text.failed ? td_buffer_refuse(&text, err) : write_file(repo, "tags", tag, td_buffer_text(&text), err);
    td_buffer_fini(&text);
    return ok;
}

bool td_publish_tag_find(const struct td_publish_repo *repo, const char *tag, uint8_t sha256[TD_SHA256_BYTES])
{
    struct tag_file file;
    if (!td_publish_tag_is_valid(tag))
        return false;
    read_tag(repo, tag, &file);
    if (file.current == NULL || !td_publish_manifest_is_here(repo, file.current->sha256))
        return false;
    memcpy(sha256, file.current->sha256, TD_SHA256_BYTES);
    return true;
}

bool td_publish_tag_remove(struct td_publish_repo *repo, const char *tag)
{
    struct tag_file file;
    read_tag(repo, tag, &file);
    note_all_left(repo, &file);
    return remove_file(repo, "tags", tag);
}

/* ---- lists ------------------------------------------------------------------------------------------------ */

struct tag_visit {
    const struct td_publish_repo *repo;
    bool (*visit)(void *context, const char *tag, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err);
    void *context;
};

static bool visit_tag(void *context, int at, const char *name, struct td_error *err)
{
    const struct tag_visit *visit = context;
    uint8_t sha256[TD_SHA256_BYTES];
    (void)at;
    return !td_publish_tag_find(visit->repo, name, sha256) || visit->visit(visit->context, name, sha256, err);
}

bool td_publish_each_tag(const struct td_publish_repo *repo,
                         bool (*visit)(void *context, const char *tag, const uint8_t sha256[TD_SHA256_BYTES],
                                       struct td_error *err),
                         void *context, struct td_error *err)
{
    struct tag_visit tags = {.repo = repo, .visit = visit, .context = context};
    return each_item(repo, "tags", visit_tag, &tags, err);
}

struct tag_name_visit {
    bool (*visit)(void *context, const char *tag, struct td_error *err);
    void *context;
};

static bool visit_tag_name(void *context, int at, const char *name, struct td_error *err)
{
    const struct tag_name_visit *names = context;
    (void)at;
    return !td_publish_tag_is_valid(name) || names->visit(names->context, name, err);
}

bool td_publish_each_tag_name(const struct td_publish_repo *repo,
                              bool (*visit)(void *context, const char *tag, struct td_error *err), void *context,
                              struct td_error *err)
{
    struct tag_name_visit names = {.visit = visit, .context = context};
    return each_item(repo, "tags", visit_tag_name, &names, err);
}

struct digest_visit {
    const struct td_publish_repo *repo;
    bool (*visit)(void *context, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err);
    void *context;
};

/* Visits an item whose name is the SHA-256 of a manifest that is here. */
static bool visit_digest(void *context, int at, const char *name, struct td_error *err)
{
    const struct digest_visit *visit = context;
    uint8_t sha256[TD_SHA256_BYTES];
    (void)at;
    return !td_hex_read_bytes(td_text_of(name), sha256, sizeof sha256) ||
           !td_publish_manifest_is_here(visit->repo, sha256) || visit->visit(visit->context, sha256, err);
}

/* Calls `visit` with each manifest whose subject is this one, in any order, until it returns false. */
static bool each_referrer(const struct td_publish_repo *repo, const uint8_t subject[TD_SHA256_BYTES],
                          bool (*visit)(void *context, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err),
                          void *context, struct td_error *err)
{
    struct digest_visit digests = {.repo = repo, .visit = visit, .context = context};
    char hex[TD_SHA256_TEXT_BYTES];
    char folder[FOLDER_NAME_BYTES];
    td_hex_write(subject, TD_SHA256_BYTES, hex);
    name_referrers(hex, folder);
    return each_item(repo, folder, visit_digest, &digests, err);
}

/* ---- pages of referrers ----------------------------------------------------------------------------------- */

enum {
    CHOSEN_CAPACITY = 2 * TD_PUBLISH_REFERRERS_MOST,
    REFERRER_BYTES = 4096, /* of the longest file in referrers/: numbers, and twice an artifact type, with escapes */
};

static const char annotations_key[] = ",\"annotations\":";

struct digest {
    uint8_t sha256[TD_SHA256_BYTES];
};

/* The first referrers after one, of all that a folder names. */
struct choosing {
    const uint8_t *after; /* NULL: from the first on */
    struct digest *items; /* CHOSEN_CAPACITY of them; the first TD_PUBLISH_REFERRERS_MOST + 1 in order count */
    size_t count;
};

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct digest));
}

/* Sorts the digests, and drops those that are too many. */
static void cut_chosen(struct choosing *choosing)
{
    if (choosing->count > 0)
        qsort(choosing->items, choosing->count, sizeof *choosing->items, compare_digests);
    if (choosing->count > TD_PUBLISH_REFERRERS_MOST + 1)
        choosing->count = TD_PUBLISH_REFERRERS_MOST + 1;
}

static bool choose(void *context, int at, const char *name, struct td_error *err)
{
    struct choosing *choosing = context;
    struct digest *item = &choosing->items[choosing->count];
    (void)at;
    (void)err;
    if (!td_hex_read_bytes(td_text_of(name), item->sha256, sizeof item->sha256) ||
        (choosing->after != NULL && memcmp(item->sha256, choosing->after, sizeof item->sha256) <= 0))
        return true;
    if (++choosing->count == CHOSEN_CAPACITY)
        cut_chosen(choosing);
    return true;
}

static bool take_number(struct td_text *rest, char end, size_t most, size_t *out)
{
    uint64_t value;
    bool ok = td_number_read(td_text_take_until(rest, end), most, &value);
    *out = ok ? (size_t)value : 0;
    return ok;
}

/* Reads the text of a file in referrers/. Returns false for one that add_referrer has not written. */
static bool read_referrer(struct td_text text, struct td_publish_referrer *referrer)
{
    size_t type_bytes, at;
    if (!take_number(&text, ' ', TD_PUSHED_TYPE_MOST, &type_bytes) ||
        !take_number(&text, ' ', TD_PUSHED_MANIFEST_MAX, &at) ||
        !take_number(&text, '\n', TD_PUSHED_MANIFEST_MAX, &referrer->annotation_bytes) || text.len < type_bytes + 2)
        return false;
    referrer->artifact_type = td_text_n(text.p, type_bytes);
    referrer->descriptor = td_text_skip(text, type_bytes);
    referrer->annotations_at = at;
    referrer->descriptor_bytes =
        referrer->descriptor.len +
        (referrer->annotation_bytes == 0 ? 0 : referrer->annotation_bytes + sizeof annotations_key - 1);
    return true;
}

/* Visits a referrer, unless its manifest is not here. */
static bool visit_referrer(const struct td_publish_repo *repo, const char *folder, const struct digest *item,
                           bool (*visit)(void *context, const struct td_publish_referrer *referrer,
                                         struct td_error *err),
                           void *context, struct td_error *err)
{
    struct td_publish_referrer referrer = {.repo = repo};
    char hex[TD_SHA256_TEXT_BYTES];
    char text[REFERRER_BYTES];
    td_hex_write(item->sha256, sizeof item->sha256, hex);
    memcpy(referrer.sha256, item->sha256, sizeof referrer.sha256);
    int fd = open_file(repo, folder, hex);
    ssize_t n = fd < 0 ? -1 : td_read_at(fd, text, sizeof text, 0);
    td_folder_close(fd);
    return n <= 0 || !read_referrer(td_text_n(text, (size_t)n), &referrer) ||
           !td_publish_manifest_is_here(repo, item->sha256) || visit(context, &referrer, err);
}

bool td_publish_list_referrers(const struct td_publish_repo *repo, const uint8_t subject[TD_SHA256_BYTES],
                               const uint8_t *after,
                               bool (*visit)(void *context, const struct td_publish_referrer *referrer,
                                             struct td_error *err),
                               void *context, uint8_t last[TD_SHA256_BYTES], bool *has_more, struct td_error *err)
{
    struct choosing choosing = {.after = after, .items = calloc(CHOSEN_CAPACITY, sizeof *choosing.items)};
    struct td_error why = TD_ERROR_INIT;
    char hex[TD_SHA256_TEXT_BYTES];
    char folder[FOLDER_NAME_BYTES];
    td_hex_write(subject, TD_SHA256_BYTES, hex);
    name_referrers(hex, folder);
    *has_more = false;
    if (choosing.items == NULL)
        return td_error_no_memory(err);
    bool ok = each_item(repo, folder, choose, &choosing, &why);
    cut_chosen(&choosing);
    for (size_t i = 0; ok && i < choosing.count && !*has_more; i++) {
        *has_more =
            i == TD_PUBLISH_REFERRERS_MOST || !visit_referrer(repo, folder, &choosing.items[i], visit, context, &why);
        ok = why.code == TD_OK;
        if (!*has_more)
            memcpy(last, choosing.items[i].sha256, TD_SHA256_BYTES);
    }
    free(choosing.items);
    return ok || td_error_copy(err, &why);
}

bool td_publish_referrer_describe(const struct td_publish_referrer *referrer, struct td_buffer *out)
{
    size_t len = referrer->annotation_bytes;
    char hex[TD_SHA256_TEXT_BYTES];
    td_buffer_append(out, referrer->descriptor.p, referrer->descriptor.len);
    if (len == 0 || out->failed)
        return !out->failed;
    out->len--; /* the annotations are JSON as they were pushed */
    td_buffer_puts(out, annotations_key);
    td_hex_write(referrer->sha256, sizeof referrer->sha256, hex);
    int fd = td_buffer_reserve(out, len + 1) ? open_file(referrer->repo, "blobs", hex) : -1;
    bool ok = fd >= 0 && td_read_at(fd, out->data + out->len, len, referrer->annotations_at) == (ssize_t)len;
    td_folder_close(fd);
    out->len += ok ? len : 0;
    td_buffer_putc(out, '}');
    return ok && !out->failed;
}

/* Finds the tags that name a manifest. */
struct untagging {
    const uint8_t *sha256;
    struct td_publish_tags *tags;
};

static bool add_untagged(void *context, const char *tag, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    const struct untagging *untagging = context;
    struct td_publish_tags *tags = untagging->tags;
    if (memcmp(sha256, untagging->sha256, TD_SHA256_BYTES) != 0)
        return true;
    if (!TD_ARRAY_GROW(tags->items, tags->count, tags->capacity, err))
        return false;
    (void)snprintf(tags->items[tags->count++], TD_PUBLISH_TAG_BYTES, "%s", tag);
    return true;
}

/* Removes the tags, durably together: a manifest may have thousands. */
static bool remove_tags(const struct td_publish_repo *repo, const struct td_publish_tags *tags, struct td_error *err)
{
    int at = td_folder_open(repo->fd, "tags");
    bool ok = at >= 0;
    for (size_t i = 0; ok && i < tags->count; i++) {
        struct tag_file file;
        read_tag(repo, tags->items[i], &file);
        note_all_left(repo, &file);
        ok = unlinkat(at, tags->items[i], 0) == 0 || errno == ENOENT;
    }
    ok = ok && fsync(at) == 0;
    ok = ok || td_publish_fail(&repo->name, "delete a tag of", err);
    td_folder_close(at);
    return ok;
}

bool td_publish_manifest_remove(struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                                struct td_publish_tags *tags, struct td_error *err)
{
    struct untagging untagging = {.sha256 = sha256, .tags = tags};
    *tags = (struct td_publish_tags){.items = NULL};
    if (!td_publish_manifest_is_here(repo, sha256))
        return td_error_set(err, TD_NOT_FOUND, "no such manifest was pushed");
    return td_publish_each_tag(repo, add_untagged, &untagging, err) &&
           (tags->count == 0 || remove_tags(repo, tags, err)) && remove_mark(repo, sha256, err);
}

/* ---- collecting ------------------------------------------------------------------------------------------- */

struct kept {
    uint8_t sha256[TD_SHA256_BYTES];
    int64_t changed_s;
    bool is_by_digest, is_named, was_read;
};

struct collecting {
    struct td_publish_repo *repo;
    void (*mark)(void *context, const uint8_t sha256[TD_SHA256_BYTES]);
    void *context;
    int64_t now_s;
    uint64_t keep_s;
    int64_t *next_s;
    struct kept *items; /* sorted by their digests */
    size_t count, capacity;
};

static int compare_kept(const void *a, const void *b)
{
    return memcmp(((const struct kept *)a)->sha256, ((const struct kept *)b)->sha256, TD_SHA256_BYTES);
}

static struct kept *find_kept(const struct collecting *c, const uint8_t sha256[TD_SHA256_BYTES])
{
    struct kept key = {.changed_s = 0};
    memcpy(key.sha256, sha256, sizeof key.sha256);
    return c->count == 0 ? NULL : bsearch(&key, c->items, c->count, sizeof key, compare_kept);
}

static bool add_kept(void *context, int at, const char *name, struct td_error *err)
{
    struct collecting *c = context;
    struct stat st;
    char mark[MARK_BYTES] = "";
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_hex_read_bytes(td_text_of(name), sha256, sizeof sha256))
        return true;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    bool is_by_digest = ok && td_read_at(fd, mark, sizeof mark - 1, 0) > 0 && mark[0] == 'd';
    td_folder_close(fd);
    if (!ok)
        return true;
    if (!TD_ARRAY_GROW(c->items, c->count, c->capacity, err))
        return false;
    struct kept *kept = &c->items[c->count++];
    *kept = (struct kept){.changed_s = st.st_mtim.tv_sec, .is_by_digest = is_by_digest};
    memcpy(kept->sha256, sha256, sizeof kept->sha256);
    return true;
}

/* Notes what a tag names; removes a tag that names nothing. */
static bool look_at_tag(void *context, int at, const char *name, struct td_error *err)
{
    struct collecting *c = context;
    struct tag_file file;
    (void)at;
    (void)err;
    if (!td_publish_tag_is_valid(name))
        return true;
    read_tag(c->repo, name, &file);
    struct kept *kept = file.current == NULL ? NULL : find_kept(c, file.current->sha256);
    if (kept != NULL) {
        kept->is_named = true;
        return true;
    }
    for (size_t i = 0; i < file.count; i++) {
        kept = find_kept(c, file.lines[i].sha256);
        if (kept != NULL)
            kept->changed_s = c->now_s;
    }
    (void)td_publish_tag_remove(c->repo, name);
    return true;
}

static bool stays(const struct collecting *c, const struct kept *kept)
{
    return kept->is_by_digest || kept->is_named || kept->changed_s > c->now_s ||
           (uint64_t)(c->now_s - kept->changed_s) <= c->keep_s;
}

/* Marks what a manifest names, and notes the manifests that an index names. Sets *found when one of these stays by it,
 * and was not read yet. */
static bool read_kept(const struct collecting *c, const struct kept *kept, bool *found, struct td_error *err)
{
    struct read_manifest read;
    bool ok = read_manifest(c->repo, kept->sha256, &read, err);
    for (size_t i = 0; ok && i < read.manifest.item_count; i++) {
        const struct td_pushed_item *item = &read.manifest.items[i];
        struct kept *child = read.manifest.is_index ? find_kept(c, item->sha256) : NULL;
        c->mark(c->context, item->sha256);
        if (child != NULL && !child->is_named) {
            child->is_named = true;
            *found = *found || !child->was_read;
        }
    }
    fini_manifest(&read);
    if (!ok && err != NULL && err->code == TD_INVALID_ARGUMENT)
        err->code = TD_FAILED_PRECONDITION;
    return ok;
}

/* Reads all manifests that stay, until no index names another one. */
static bool read_all(struct collecting *c, struct td_error *err)
{
    bool found = true;
    while (found) {
        found = false;
        for (size_t i = 0; i < c->count; i++) {
            struct kept *kept = &c->items[i];
            if (kept->was_read || !stays(c, kept))
                continue;
            kept->was_read = true;
            if (!kept->is_by_digest && !kept->is_named)
                td_publish_quiet_lower(c->next_s, kept->changed_s, c->keep_s);
            c->mark(c->context, kept->sha256);
            if (!read_kept(c, kept, &found, err))
                return false;
        }
    }
    return true;
}

/* Has a referrer of a manifest that goes follow it, as a manifest that lost its tag. */
static bool loosen(void *context, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    struct collecting *c = context;
    char name[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, name);
    return write_file(c->repo, "manifests", name, TD_TEXT("tag\n"), err);
}

bool td_publish_collect_manifests(struct td_publish_repo *repo, int64_t now_s, uint64_t keep_s,
                                  void (*mark)(void *context, const uint8_t sha256[TD_SHA256_BYTES]), void *context,
                                  int64_t *next_s, struct td_error *err)
{
    struct collecting c = {
        .repo = repo, .mark = mark, .context = context, .now_s = now_s, .keep_s = keep_s, .next_s = next_s};
    bool ok = each_item(repo, "manifests", add_kept, &c, err);
    if (ok && c.count > 0)
        qsort(c.items, c.count, sizeof *c.items, compare_kept);
    ok = ok && each_item(repo, "tags", look_at_tag, &c, err) && read_all(&c, err);
    for (size_t i = 0; ok && i < c.count; i++)
        if (!c.items[i].was_read)
            ok = each_referrer(repo, c.items[i].sha256, loosen, &c, err) && remove_mark(repo, c.items[i].sha256, err);
    free(c.items);
    return ok;
}
