#include "catalog/upstream/kept_note.h"

#include "catalog/remote/remote_model.h"
#include "core/arena.h"
#include "core/buffer.h"
#include "core/durable_file.h"
#include "core/json_build.h"
#include "core/json_document.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NOTE_BYTES = 4096 };

#define BEGAN_MOST_S (UINT64_C(1) << 33) /* the year 2242: files get this time, which is told in ns since 1970, too */

bool td_kept_id_is_valid(struct td_text id)
{
    struct td_text rest = id;
    struct td_text first = td_text_take_until(&rest, '/');
    return id.len < TD_UPSTREAM_ID_BYTES && td_remote_id_check(id, NULL) && !td_text_equals(first, "datasets") &&
           !td_text_begins(first, TD_TEXT("datasets--")) && !td_text_begins(first, TD_TEXT("models--")) &&
           !td_text_begins(rest, TD_TEXT("models--"));
}

bool td_kept_key(const char *id, char key[TD_TAG_BYTES])
{
    return td_digest_tag(id, strlen(id), key);
}

/* Reads a note of at most NOTE_BYTES. Returns its length, or -1. */
static ssize_t read_bytes(int at, const char *path, char *out)
{
    int fd = openat(at, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, NOTE_BYTES);
    (void)close(fd);
    return n;
}

bool td_kept_note_write(int at, const char *path, const struct td_kept_note *note, struct td_error *err)
{
    struct td_buffer text;
    struct td_json_builder json;
    td_buffer_init(&text);
    td_json_builder_init(&json, &text);
    td_json_begin_object(&json, NULL);
    td_json_add_string(&json, "id", note->id);
    td_json_add_u64(&json, "bytes", note->bytes);
    td_json_add_u64(&json, "inode", note->inode);
    td_json_add_u64(&json, "mtime", (uint64_t)note->mtime_ns);
    td_json_add_string(&json, "tree", note->tree);
    td_json_add_u64(&json, "began", (uint64_t)note->began_s);
    td_json_add_bool(&json, "verified", note->is_verified);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(&text, '\n');
    bool ok = text.failed ? td_buffer_refuse(&text, err)
                          : td_durable_file_write(at, path, td_buffer_text(&text), 0644) ||
                                td_error_sys(err, TD_IO, errno, "cannot write \"%s/%s\"", TD_UPSTREAM_FOLDER, path);
    td_buffer_fini(&text);
    return ok;
}

/* Reads the text "tree" of a note; one that is missing, as in notes of older versions, or too long is empty. */
static void read_tree(struct td_json_document *document, const cJSON *root, struct td_kept_note *note)
{
    const cJSON *tree = cJSON_GetObjectItemCaseSensitive(root, "tree");
    const char *text = td_json_item_is_string(tree) ? td_json_document_string(document, tree) : NULL;
    bool fits = text != NULL && strlen(text) < sizeof note->tree;
    (void)snprintf(note->tree, sizeof note->tree, "%s", fits ? text : "");
}

bool td_kept_note_read(int at, const char *path, struct td_kept_note *note)
{
    char bytes[NOTE_BYTES];
    struct td_arena arena;
    struct td_json_document document;
    struct td_error err = TD_ERROR_INIT;
    uint64_t began_s = 0;
    uint64_t mtime_ns = 0;
    ssize_t n = read_bytes(at, path, bytes);
    if (n <= 0)
        return false;
    td_arena_init(&arena, 0);
    td_json_document_read(&document, td_text_n(bytes, (size_t)n), &arena, &err);
    const cJSON *root = td_json_document_object(&document, "a note");
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(root, "id");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(root, "bytes");
    const cJSON *inode = cJSON_GetObjectItemCaseSensitive(root, "inode");
    const cJSON *mtime = cJSON_GetObjectItemCaseSensitive(root, "mtime");
    const cJSON *began = cJSON_GetObjectItemCaseSensitive(root, "began");
    read_tree(&document, root, note);
    const char *text = td_json_item_is_string(id) ? td_json_document_string(&document, id) : "";
    bool ok = text != NULL && td_kept_id_is_valid(td_text_of(text)) && cJSON_IsRaw(size) && cJSON_IsRaw(inode) &&
              cJSON_IsRaw(mtime) && cJSON_IsRaw(began) && td_json_document_u64(&document, size, &note->bytes) &&
              td_json_document_u64(&document, inode, &note->inode) &&
              td_json_document_u64(&document, mtime, &mtime_ns) && mtime_ns <= INT64_MAX &&
              td_json_document_u64(&document, began, &began_s) && began_s <= BEGAN_MOST_S &&
              td_json_document_end(&document);
    if (ok) {
        (void)snprintf(note->id, sizeof note->id, "%s", text);
        note->began_s = (int64_t)began_s;
        note->mtime_ns = (int64_t)mtime_ns;
        note->is_verified = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "verified"));
    }
    td_arena_fini(&arena);
    return ok;
}
