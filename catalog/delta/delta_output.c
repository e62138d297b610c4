#include "catalog/delta/delta_output.h"

#include "catalog/model/file_kind.h"
#include "core/array.h"
#include "core/file_io.h"
#include "core/json/json.h"
#include "parser/format/limits.h"
#include "storage/disk_tree.h"
#include "storage/file_source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    COPY_BYTES = 64 * 1024 * 1024, /* in one call of copy_file_range */
    BUFFER_BYTES = 1024 * 1024,    /* where the kernel cannot copy */
};

/* The writing of one file. */
struct writing {
    const struct td_delta_output *output;
    int directory;
    const char *shown; /* the directory */
    const char *path;  /* of the file, below it */
    int from, to;      /* -1: not open */
    struct td_file_id id;
    uint8_t *buffer; /* BUFFER_BYTES; NULL: not needed so far */
    bool is_cloned;  /* the new file has all bytes of the old one */
    bool is_later;   /* the tensor that is being changed was changed by a delta before, so its bytes are in `to` */
    uint64_t base;   /* of that tensor, in the file */
};

/* ---- the list of files --------------------------------------------------------------------------------- */

struct listing {
    struct td_delta_output *output;
    char **folders; /* those that are still to be listed; owned */
    size_t folder_count, folder_capacity;
    const char *folder; /* that is being listed; "": the directory itself */
};

static struct td_text file_path(const void *context, size_t i)
{
    const struct td_delta_file *files = context;
    return td_text_of(files[i].path);
}

/* Returns whether the file is part of the base's weights, or its index. */
static bool is_weights(const struct td_delta_version *base, const char *path)
{
    struct td_names names = {.count = base->file_count, .context = base->files, .get = file_path};
    bool found;
    (void)td_names_search(&names, td_text_of(path), &found);
    return found || strcmp(path, TD_SAFETENSORS_INDEX_NAME) == 0;
}

/* Returns whether the file has weights that do not become those of the new version. */
static bool has_other_weights(const char *path)
{
    enum td_file_kind kind = td_file_kind_of(path);
    return td_is_checkpoint_kind(kind) && kind != TD_FILE_MAYBE_TENSORS;
}

/* Opens the file once, to know that it can be copied, and to add its size. */
static bool measure(struct td_delta_output *output, const char *path, struct td_error *err)
{
    struct td_file_id id;
    int fd = -1;
    if (!td_delta_place_open(&output->chain->base.place, path, &fd, &id, err))
        return false;
    (void)close(fd);
    output->total_bytes += id.size_bytes;
    return true;
}

/* Takes a file into the list, or leaves it out. Takes over `path`. */
static bool note_file(struct td_delta_output *output, char *path, struct td_error *err)
{
    bool ok = true;
    if (is_weights(&output->chain->base, path)) {
        free(path);
        return true;
    }
    if (has_other_weights(path)) {
        output->left_out_count++;
        (void)snprintf(output->left_out, sizeof output->left_out, "%s", td_base_name(path));
        free(path);
        return true;
    }
    ok = measure(output, path, err) && TD_ARRAY_GROW(output->others, output->other_count, output->other_capacity, err);
    if (ok)
        output->others[output->other_count++] = path;
    else
        free(path);
    return ok;
}

static bool note_item(void *context, int at, const char *name, struct td_error *err)
{
    struct listing *listing = context;
    struct stat st;
    char *path = NULL;
    if (name[0] == '.')
        return true;
    if (asprintf(&path, "%s%s%s", listing->folder, listing->folder[0] == '\0' ? "" : "/", name) < 0)
        return td_error_no_memory(err);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
        return note_file(listing->output, path, err);
    if (!TD_ARRAY_GROW(listing->folders, listing->folder_count, listing->folder_capacity, err)) {
        free(path);
        return false;
    }
    listing->folders[listing->folder_count++] = path;
    return true;
}

static bool list_folder(struct listing *listing, const char *folder, struct td_error *err)
{
    const struct td_delta_place *place = &listing->output->chain->base.place;
    char path[PATH_MAX];
    int fd = -1;
    int len = snprintf(path, sizeof path, "%s%s%s", place->below,
                       place->below[0] == '\0' || folder[0] == '\0' ? "" : "/", folder);
    if (len < 0 || (size_t)len >= sizeof path)
        return td_error_set(err, TD_INVALID_ARGUMENT, "%.160s: the path of a folder in it is too long", place->shown);
    listing->folder = folder;
    return td_root_open_directory(place->root, path, &fd, err) &&
           td_disk_list(fd, place->shown, note_item, listing, err);
}

bool td_delta_output_list(struct td_delta_output *output, struct td_error *err)
{
    const struct td_delta_version *base = &output->chain->base;
    struct listing listing = {.output = output};
    for (size_t i = 0; i < base->file_count; i++)
        output->total_bytes += base->files[i].id.size_bytes;
    bool ok = list_folder(&listing, "", err);
    while (ok && listing.folder_count > 0) {
        char *folder = listing.folders[--listing.folder_count];
        ok = list_folder(&listing, folder, err);
        free(folder);
    }
    while (listing.folder_count > 0)
        free(listing.folders[--listing.folder_count]);
    free(listing.folders);
    return ok;
}

void td_delta_output_fini(struct td_delta_output *output)
{
    for (size_t i = 0; i < output->other_count; i++)
        free(output->others[i]);
    free(output->others);
    output->others = NULL;
    output->other_count = output->other_capacity = 0;
}

/* ---- one file ------------------------------------------------------------------------------------------ */

/* Notes that bytes are written. Returns false when the work is to stop. */
static bool advance(const struct writing *writing, uint64_t bytes, struct td_error *err)
{
    const struct td_delta_output *output = writing->output;
    if (output->advance != NULL)
        output->advance(output->context, bytes);
    return output->cancel == NULL || !td_cancel_is_asked(output->cancel) || td_error_set(err, TD_CONFLICT, "stopped");
}

static bool fail_write(const struct writing *writing, int sys, struct td_error *err)
{
    bool is_full = sys == ENOSPC || sys == EDQUOT || sys == EFBIG;
    return td_error_sys(err, is_full ? TD_RESOURCE_EXHAUSTED : TD_IO, sys, "cannot write %.160s/%.96s", writing->shown,
                        writing->path);
}

static bool fail_read(const struct writing *writing, int sys, struct td_error *err)
{
    const char *shown = writing->output->chain->base.place.shown;
    if (sys == 0)
        return td_error_set(err, TD_UNAVAILABLE, "%.160s/%.96s changed while it was read", shown, writing->path);
    return td_error_sys(err, TD_IO, sys, "cannot read %.160s/%.96s", shown, writing->path);
}

/* Makes the folders above the path. */
static bool make_folders(const struct writing *writing, struct td_error *err)
{
    char folder[PATH_MAX];
    for (const char *slash = strchr(writing->path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - writing->path), writing->path);
        if (mkdirat(writing->directory, folder, 0777) != 0 && errno != EEXIST)
            return fail_write(writing, errno, err);
    }
    return true;
}

static bool create(struct writing *writing, struct td_error *err)
{
    if (!make_folders(writing, err))
        return false;
    writing->to = openat(writing->directory, writing->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return writing->to >= 0 || fail_write(writing, errno, err);
}

static bool copy_by_buffer(struct writing *writing, uint64_t off, uint64_t len, struct td_error *err)
{
    if (writing->buffer == NULL)
        writing->buffer = malloc(BUFFER_BYTES);
    if (writing->buffer == NULL)
        return td_error_no_memory(err);
    while (len > 0) {
        size_t n = len < BUFFER_BYTES ? (size_t)len : BUFFER_BYTES;
        ssize_t got = td_read_at(writing->from, writing->buffer, n, off);
        if (got < 0 || (size_t)got < n)
            return fail_read(writing, got < 0 ? errno : 0, err);
        if (!td_write_at(writing->to, writing->buffer, n, off))
            return fail_write(writing, errno, err);
        off += n;
        len -= n;
        if (!advance(writing, n, err))
            return false;
    }
    return true;
}

/* Copies bytes of the old file to the same place of the new one. */
static bool copy(struct writing *writing, uint64_t off, uint64_t len, struct td_error *err)
{
    while (len > 0 && !writing->is_cloned) {
        off64_t from = (off64_t)off;
        off64_t to = (off64_t)off;
        ssize_t n =
            copy_file_range(writing->from, &from, writing->to, &to, len < COPY_BYTES ? (size_t)len : COPY_BYTES, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
            return fail_write(writing, errno, err);
        if (n <= 0) /* some file systems answer 0 in place of an error */
            return copy_by_buffer(writing, off, len, err);
        off += (uint64_t)n;
        len -= (uint64_t)n;
        if (!advance(writing, (uint64_t)n, err))
            return false;
    }
    return advance(writing, len, err);
}

/* Opens the old file and makes the new one, a clone of it if the file system can. */
static bool begin_file(struct writing *writing, struct td_error *err)
{
    if (!td_delta_place_open(&writing->output->chain->base.place, writing->path, &writing->from, &writing->id, err)) {
        writing->from = -1;
        return false;
    }
    if (!create(writing, err))
        return false;
    writing->is_cloned = ioctl(writing->to, FICLONE, writing->from) == 0;
    return true;
}

/* Makes the new file durable, and checks that the old one is still the one that was opened. */
static bool end_file(const struct writing *writing, struct td_error *err)
{
    if (fsync(writing->to) != 0)
        return fail_write(writing, errno, err);
    return writing->from < 0 || td_file_id_is(writing->from, &writing->id) || fail_read(writing, 0, err);
}

static void close_file(struct writing *writing)
{
    if (writing->from >= 0)
        (void)close(writing->from);
    if (writing->to >= 0)
        (void)close(writing->to);
    writing->from = writing->to = -1;
}

static bool copy_file(struct writing *writing, struct td_error *err)
{
    bool ok = begin_file(writing, err) && copy(writing, 0, writing->id.size_bytes, err) && end_file(writing, err);
    close_file(writing);
    return ok;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

static bool read_tensor(void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct writing *writing = context;
    ssize_t n = td_read_at(writing->is_later ? writing->to : writing->from, out, len, writing->base + off);
    return (n >= 0 && (size_t)n == len) || fail_read(writing, n < 0 ? errno : 0, err);
}

static bool write_tensor(void *context, uint64_t off, const void *bytes, size_t len, struct td_error *err)
{
    const struct writing *writing = context;
    if (!td_write_at(writing->to, bytes, len, writing->base + off))
        return fail_write(writing, errno, err);
    return advance(writing, writing->is_later ? 0 : len, err);
}

/* Applies one delta to the tensor. */
static bool change_tensor(struct writing *writing, const struct td_delta_change *change, struct td_error *err)
{
    const struct td_delta_version *delta = &writing->output->chain->deltas[change->delta];
    const struct td_delta_tensor tensor = {
        .nbytes = change->tensor->nbytes, .read = read_tensor, .write = write_tensor, .context = writing};
    struct td_error why = TD_ERROR_INIT;
    int fd = -1;
    if (!td_delta_file_open(delta, change->shard, &fd, err))
        return false;
    struct td_input input = td_input_descriptor(&fd, change->shard->id.size_bytes);
    const struct td_delta_patch patch = {.input = &input,
                                         .off = change->stored->offset,
                                         .len = change->stored->nbytes,
                                         .encoding = delta->encoding,
                                         .sum_kind = delta->sum_kind,
                                         .sum = change->sum};
    writing->base = change->tensor->offset;
    bool ok = td_delta_patch_apply(&patch, &tensor, &why);
    (void)close(fd);
    if (ok || why.code != TD_INVALID_ARGUMENT)
        return ok || td_error_copy(err, &why);
    return td_error_set(err, why.code, "%.160s/%.96s: \"%.96s\": %s", delta->place.shown, change->shard->path,
                        change->tensor->name, why.message);
}

/* Writes the bytes of the file up to its end: those of the tensors that change, and all others between them as they
 * are. Sets *next to the first change of the next file. */
static bool write_tensors(struct writing *writing, uint32_t file, size_t *next, struct td_error *err)
{
    const struct td_delta_chain *chain = writing->output->chain;
    const struct td_tensor *before = NULL;
    uint64_t done = 0;
    for (; *next < chain->change_count && chain->changes[*next].file == file; (*next)++) {
        const struct td_delta_change *change = &chain->changes[*next];
        writing->is_later = before != NULL && change->tensor == before;
        if (!writing->is_later && !copy(writing, done, change->tensor->offset - done, err))
            return false;
        if (!change_tensor(writing, change, err))
            return false;
        before = change->tensor;
        done = change->tensor->offset + change->tensor->nbytes;
    }
    return copy(writing, done, writing->id.size_bytes - done, err);
}

/* ---- checksums in the headers of the base --------------------------------------------------------------- */

/* Full versions of ModelExpress have checksums, too: in the metadata of each file, by the names of the tensors. Those
 * of the old bytes would be wrong in the new file. They are replaced by spaces, so that nothing moves. */

/* Overwrites the values of the metadata whose keys name a changed tensor. json: the reader at the first key. */
static void blank_values(struct td_json *json, char *header, const struct td_manifest *manifest, const bool *changes,
                         struct td_buffer *name)
{
    while (td_json_next(json) == TD_JSON_KEY) {
        size_t len;
        td_buffer_clear(name);
        if (!td_buffer_reserve(name, json->value_len + 1) ||
            !td_json_string(json, name->data, json->value_len + 1, &len) || td_json_next(json) != TD_JSON_STRING)
            return;
        const struct td_tensor *tensor = td_manifest_find(manifest, td_text_n(name->data, len));
        if (tensor != NULL && changes[tensor - manifest->tensors])
            memset(header + json->value, ' ', json->value_len);
    }
}

/* Rewrites the header of the new file in place. first: the first change of this file. */
static bool blank_header(const struct writing *writing, const struct td_delta_file *file, size_t first, size_t end,
                         struct td_error *err)
{
    const struct td_manifest *manifest = &file->manifest;
    const struct td_limits limits = td_limits_default();
    struct td_input input = td_input_descriptor(&writing->to, writing->id.size_bytes);
    uint8_t number[8];
    struct td_json json;
    struct td_buffer name;
    bool *changes = calloc(manifest->tensor_count + 1, sizeof *changes);
    char *header = NULL;
    if (changes == NULL)
        return td_error_no_memory(err);
    td_buffer_init(&name);
    bool ok = td_input_read(&input, 0, number, sizeof number, err);
    if (ok) {
        header = (char *)td_input_load(&input, sizeof number, td_load_le64(number), limits.max_header_bytes, err);
        ok = header != NULL;
    }
    if (ok) {
        size_t len = (size_t)td_load_le64(number);
        for (size_t i = first; i < end; i++)
            changes[writing->output->chain->changes[i].tensor - manifest->tensors] = true;
        td_json_init(&json, td_text_n(header, len), 0, NULL);
        if (td_json_next(&json) == TD_JSON_OBJECT_BEGIN && td_json_seek(&json, "__metadata__") &&
            td_json_next(&json) == TD_JSON_OBJECT_BEGIN)
            blank_values(&json, header, manifest, changes, &name);
        ok = !name.failed || td_error_no_memory(err);
        ok = ok && (td_write_at(writing->to, header, len, sizeof number) || fail_write(writing, errno, err));
    }
    td_buffer_fini(&name);
    free(header);
    free(changes);
    return ok;
}

/* Returns whether the metadata of the file has the name of a tensor that changes. */
static bool names_changes(const struct td_delta_chain *chain, const struct td_delta_file *file, size_t first,
                          size_t end)
{
    struct td_names keys = td_metadata_keys(file->manifest.metadata, file->manifest.metadata_count);
    bool found = false;
    for (size_t i = first; i < end && !found; i++)
        (void)td_names_search(&keys, td_tensor_name(chain->changes[i].tensor), &found);
    return found;
}

/* ---- the directory ------------------------------------------------------------------------------------- */

static bool write_weights(struct writing *writing, uint32_t number, size_t *next, struct td_error *err)
{
    const struct td_delta_chain *chain = writing->output->chain;
    const struct td_delta_file *file = &chain->base.files[number];
    size_t first = *next;
    bool ok = begin_file(writing, err);
    if (ok && !td_file_id_equal(&writing->id, &file->id))
        ok = fail_read(writing, 0, err);
    ok = ok && write_tensors(writing, number, next, err);
    if (ok && names_changes(chain, file, first, *next))
        ok = blank_header(writing, file, first, *next, err);
    ok = ok && end_file(writing, err);
    close_file(writing);
    return ok;
}

/* Makes the text of an index for a base without one. */
static void make_index(const struct td_delta_chain *chain, struct td_buffer *out)
{
    td_buffer_printf(out, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{",
                     (unsigned long long)chain->total_bytes);
    for (size_t i = 0; i < chain->tensor_count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_json_write_string(out, td_tensor_name(chain->tensors[i].tensor));
        td_buffer_putc(out, ':');
        td_json_write_cstring(out, chain->base.files[chain->tensors[i].file].path);
    }
    td_buffer_puts(out, "}}");
}

static bool write_index(struct writing *writing, struct td_error *err)
{
    const struct td_delta_chain *chain = writing->output->chain;
    struct td_buffer old;
    struct td_buffer text;
    td_buffer_init(&old);
    td_buffer_init(&text);
    if (chain->base.text == NULL)
        make_index(chain, &old);
    struct td_text from =
        chain->base.text == NULL ? td_buffer_text(&old) : td_text_n(chain->base.text, chain->base.text_len);
    td_delta_index_rewrite(from, chain->version, &text);
    bool ok = (!old.failed || td_buffer_refuse(&old, err)) && (!text.failed || td_buffer_refuse(&text, err)) &&
              create(writing, err);
    ok = ok && (td_write_all(writing->to, text.data, text.len) || fail_write(writing, errno, err));
    ok = ok && end_file(writing, err);
    close_file(writing);
    td_buffer_fini(&old);
    td_buffer_fini(&text);
    return ok;
}

bool td_delta_output_write(const struct td_delta_output *output, int directory, const char *shown, struct td_error *err)
{
    const struct td_delta_version *base = &output->chain->base;
    struct writing writing = {.output = output, .directory = directory, .shown = shown, .from = -1, .to = -1};
    size_t next = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < base->file_count; i++) {
        writing.path = base->files[i].path;
        ok = write_weights(&writing, (uint32_t)i, &next, err);
    }
    for (size_t i = 0; ok && i < output->other_count; i++) {
        writing.path = output->others[i];
        ok = copy_file(&writing, err);
    }
    writing.path = TD_SAFETENSORS_INDEX_NAME;
    ok = ok && write_index(&writing, err);
    free(writing.buffer);
    return ok;
}
