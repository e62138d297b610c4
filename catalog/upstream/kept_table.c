#include "catalog/upstream/kept_table.h"

#include "catalog/remote/remote_model.h"
#include "core/arena.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/checked.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/json/json_document.h"
#include "core/message/document.h"
#include "parser/format/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- notes --------------------------------------------------------------------------------------------- */

enum { NOTE_BYTES = 4096 };

/* The year 2242: files get this time, which must fit int64_t in ns since 1970. */
#define BEGAN_MOST_S (UINT64_C(1) << 33)

bool td_kept_id_is_valid(struct td_text id)
{
    struct td_text rest = id;
    struct td_text first = td_text_take_until(&rest, '/');
    return td_remote_id_check(id, NULL) && !td_text_equals(first, "datasets") &&
           !td_text_begins(first, TD_TEXT("datasets--")) && !td_text_begins(first, TD_TEXT("models--")) &&
           !td_text_begins(rest, TD_TEXT("models--"));
}

/* Returns whether the text can be that of a kept version. */
static bool is_version(struct td_text text)
{
    static const char *const ignored[] = {".tmp", ".incomplete"}; /* by scans */
    bool is = text.len > 0 && text.len <= TD_KEPT_VERSION_BYTES && text.p[0] != '.' && text.p[0] != '-';
    for (size_t i = 0; i < text.len; i++)
        is = is && (td_is_letter_or_digit(text.p[i]) || memchr("-_.+", text.p[i], 4) != NULL);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        struct td_text end = td_text_of(ignored[i]);
        is = is && (text.len < end.len || !td_text_equals(td_text_skip(text, text.len - end.len), ignored[i]));
    }
    return is;
}

bool td_kept_id_write(struct td_text id, const char *mark, struct td_text version, char out[TD_UPSTREAM_ID_BYTES])
{
    if (!td_kept_id_is_valid(id) || !is_version(version))
        return false;
    (void)snprintf(out, TD_UPSTREAM_ID_BYTES, "%.*s%s%.*s", (int)id.len, id.p, mark, (int)version.len, version.p);
    return strcmp(mark, TD_KEPT_MODEL) != 0 || td_kept_id_is_valid(td_text_of(out));
}

bool td_kept_id_split(struct td_text kept, struct td_text *id, struct td_text *revision)
{
    *id = kept;
    *revision = TD_TEXT("");
    if (td_kept_id_is_valid(kept))
        return true;
    *revision = kept;
    *id = td_text_take_until(revision, '@');
    (void)td_text_take_char(revision, '@');
    return td_kept_id_is_valid(*id) && is_version(*revision);
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
    struct td_document json;
    td_buffer_init(&text);
    td_document_init(&json, &text);
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "id", note->id);
    td_document_add_u64(&json, "bytes", note->bytes);
    td_document_add_u64(&json, "inode", note->inode);
    td_document_add_u64(&json, "mtime", (uint64_t)note->mtime_ns);
    td_document_add_string(&json, "tree", note->tree);
    td_document_add_u64(&json, "began", (uint64_t)note->began_s);
    td_document_add_bool(&json, "verified", note->is_verified);
    td_document_end(&json);
    td_buffer_putc(&text, '\n');
    bool ok = text.failed ? td_buffer_refuse(&text, err)
                          : td_durable_file_write(at, path, td_buffer_text(&text), 0644) ||
                                td_error_sys(err, TD_IO, errno, "cannot write \"%s/%s\"", TD_UPSTREAM_FOLDER, path);
    td_buffer_fini(&text);
    return ok;
}

/* Reads the text "tree" of a note. A text that is too long, or missing, as in notes of older versions, becomes
 * empty. */
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
    struct td_text model;
    struct td_text revision;
    bool ok =
        text != NULL && td_kept_id_split(td_text_of(text), &model, &revision) && cJSON_IsRaw(size) &&
        cJSON_IsRaw(inode) && cJSON_IsRaw(mtime) && cJSON_IsRaw(began) &&
        td_json_document_u64(&document, size, &note->bytes) && td_json_document_u64(&document, inode, &note->inode) &&
        td_json_document_u64(&document, mtime, &mtime_ns) && mtime_ns <= INT64_MAX &&
        td_json_document_u64(&document, began, &began_s) && began_s <= BEGAN_MOST_S && td_json_document_end(&document);
    if (ok) {
        (void)snprintf(note->id, sizeof note->id, "%s", text);
        note->began_s = (int64_t)began_s;
        note->mtime_ns = (int64_t)mtime_ns;
        note->is_verified = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "verified"));
    }
    td_arena_fini(&arena);
    return ok;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

void td_kept_table_fini(struct td_kept_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}

static struct td_text row_id(const void *context, size_t i)
{
    return td_text_of(((const struct td_kept_row *)context)[i].note.id);
}

static size_t search_row(const struct td_kept_table *table, struct td_text id, bool *found)
{
    const struct td_names names = {.count = table->count, .context = table->rows, .get = row_id};
    return td_names_search(&names, id, found);
}

struct td_kept_row *td_kept_table_find(const struct td_kept_table *table, struct td_text id)
{
    bool found;
    size_t at = search_row(table, id, &found);
    return found ? &table->rows[at] : NULL;
}

struct td_kept_row *td_kept_table_add(struct td_kept_table *table, const char *id, struct td_error *err)
{
    struct td_kept_row row = {.stage = TD_KEPT_PAUSED};
    bool found;
    if (!td_kept_key(id, row.key)) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!TD_ARRAY_GROW(table->rows, table->count, table->capacity, err))
        return NULL;
    (void)snprintf(row.note.id, sizeof row.note.id, "%s", id);
    size_t at = search_row(table, td_text_of(id), &found);
    memmove(&table->rows[at + 1], &table->rows[at], (table->count - at) * sizeof row);
    table->rows[at] = row;
    table->count++;
    return &table->rows[at];
}

void td_kept_table_remove(struct td_kept_table *table, struct td_text id)
{
    bool found;
    size_t at = search_row(table, id, &found);
    if (!found)
        return;
    table->count--;
    memmove(&table->rows[at], &table->rows[at + 1], (table->count - at) * sizeof *table->rows);
}

static uint64_t sum_bytes(const struct td_kept_table *table, bool with_removing)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < table->count; i++)
        if ((with_removing || table->rows[i].stage != TD_KEPT_REMOVING) &&
            !td_add_u64(sum, table->rows[i].note.bytes, &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t td_kept_table_bytes(const struct td_kept_table *table)
{
    return sum_bytes(table, true);
}

uint64_t td_kept_table_staying_bytes(const struct td_kept_table *table)
{
    return sum_bytes(table, false);
}

size_t td_kept_table_count(const struct td_kept_table *table, enum td_kept_stage stage)
{
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += table->rows[i].stage == stage ? 1 : 0;
    return count;
}

/* Returns whether a is evicted before b. Both may be evicted, and are in the same table. */
static bool is_evicted_before(const struct td_kept_row *a, const struct td_kept_row *b)
{
    if (a->stage != b->stage)
        return a->stage == TD_KEPT_PAUSED;
    return a->read_ns != b->read_ns ? a->read_ns < b->read_ns : a < b;
}

/* Returns the row to evict after `last` (NULL: the first row to evict), or NULL. */
static struct td_kept_row *victim_after(const struct td_kept_table *table, const struct td_kept_row *last)
{
    struct td_kept_row *victim = NULL;
    for (size_t i = 0; i < table->count; i++) {
        struct td_kept_row *row = &table->rows[i];
        if (row->stage != TD_KEPT_PAUSED && row->stage != TD_KEPT_PUBLISHED)
            continue;
        if ((last == NULL || is_evicted_before(last, row)) && (victim == NULL || is_evicted_before(row, victim)))
            victim = row;
    }
    return victim;
}

struct td_kept_row *td_kept_table_choose_victim(const struct td_kept_table *table)
{
    return victim_after(table, NULL);
}

uint64_t td_kept_table_gain(const struct td_kept_table *table, uint64_t bytes)
{
    uint64_t gain = td_kept_table_bytes(table) - td_kept_table_staying_bytes(table);
    const struct td_kept_row *victim = NULL;
    while (gain < bytes && (victim = victim_after(table, victim)) != NULL)
        if (!td_add_u64(gain, victim->note.bytes, &gain))
            return UINT64_MAX;
    return gain;
}
