#include "parser/rows/webdataset.h"

#include "core/array.h"
#include "core/checked.h"
#include "parser/rows/tar_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

/* Returns the position after the last slash in path[0, len), or 0. */
static size_t component_at(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len;
}

/* Returns whether webdataset's tar_file_iterator skips the path: its skip_meta is __[^/]*__($|/). */
static bool is_metadata(struct td_text path)
{
    struct td_text rest = path, first = td_text_take_until(&rest, '/');
    if (first.len == path.len && first.len > 0 && first.p[first.len - 1] == '\n')
        first.len--; /* $ also matches before a line feed at the end */
    return first.len >= 4 && memcmp(first.p, "__", 2) == 0 && memcmp(first.p + first.len - 2, "__", 2) == 0;
}

/* The pattern is ^((?:.*<slash>|)[^.]+)[.]([^<slash>]*)$, in which "." matches no line feed. */
size_t td_webdataset_key(struct td_text path)
{
    if (path.len == 0 || is_metadata(path))
        return 0;
    const char *line_end = memchr(path.p, '\n', path.len);
    size_t last = component_at(path.p, path.len);
    size_t start = component_at(path.p, line_end == NULL ? path.len : (size_t)(line_end - path.p));
    const char *dot = memchr(path.p + start, '.', path.len - start);
    size_t len = dot == NULL ? 0 : (size_t)(dot - path.p);
    if (dot == NULL || len < last)
        return 0;
    if (len > start)
        return len;
    if (start == 0)
        return 0;
    size_t folder = component_at(path.p, start - 1);
    return memchr(path.p + folder, '.', start - folder) == NULL ? len : 0;
}

/* ---- the archive ---- */

/* A walk over the headers of an archive. */
struct walk {
    const struct td_row_build *build;
    const struct td_input *data;
    struct td_error *err;
    uint64_t at; /* of the next header */

    /* The values for the next member from headers of pax and GNU. */
    bool has_extension, has_path, has_size;
    uint64_t extension_at; /* of the first of them */
    uint64_t size;
    size_t path_len;
    char path[TD_TAR_PATH_BYTES];

    /* The sample that further files may belong to. */
    bool has_sample;
    uint64_t sample_at, sample_end;
    size_t key_len;
    char key[TD_TAR_PATH_BYTES];

    uint64_t *words; /* owned: {offset, bytes} of each sample */
    size_t word_count, word_capacity;
};

static bool end_sample(struct walk *walk)
{
    size_t most = walk->build->limits->max_memory_bytes;
    if (!walk->has_sample)
        return true;
    if (!td_array_reserve(&walk->words, &walk->word_capacity, walk->word_count + 2, sizeof *walk->words, NULL,
                          walk->err))
        return false;
    if (most > 0 && walk->word_capacity * sizeof *walk->words > most)
        return td_error_set(walk->err, TD_RESOURCE_EXHAUSTED, "its index would take more than %zu bytes of memory",
                            most);
    walk->words[walk->word_count++] = walk->sample_at;
    walk->words[walk->word_count++] = walk->sample_end - walk->sample_at;
    walk->has_sample = false;
    return true;
}

/* Skips the header and `size` bytes of data with their padding. */
static bool pass_member(struct walk *walk, uint64_t size)
{
    uint64_t left = walk->data->size_bytes - walk->at - TD_TAR_BLOCK_BYTES;
    uint64_t rest = size % TD_TAR_BLOCK_BYTES == 0 ? 0 : TD_TAR_BLOCK_BYTES - size % TD_TAR_BLOCK_BYTES;
    if (size > left || rest > left - size)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar member: its %" PRIu64 " bytes, padded to 512, pass the end of the file, %" PRIu64
                           " bytes after its header",
                           size, left);
    walk->at += TD_TAR_BLOCK_BYTES + size + rest;
    return true;
}

/* Takes the path that a header gives the next member. */
static bool take_path(struct walk *walk, struct td_text path)
{
    if (walk->has_path)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar header: a second one gives the member a path");
    if (path.len == 0 || path.len > sizeof walk->path)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar header: it gives the member a path of %zu bytes; 1 to %d are read", path.len,
                           TD_TAR_PATH_BYTES);
    walk->has_path = true;
    walk->path_len = path.len;
    memcpy(walk->path, path.p, path.len);
    return true;
}

/* Takes what the records of a pax header say, of the next member or of all that follow. */
static bool take_records(struct walk *walk, struct td_text text, bool is_global)
{
    struct td_tar_records records;
    if (!td_tar_records_read(text, walk->at + TD_TAR_BLOCK_BYTES, &records, walk->err))
        return false;
    if (records.is_sparse)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at, "tar member: it is sparse");
    if (is_global)
        return !(records.has_path || records.has_size) ||
               td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "pax header: a global one gives all members a path or a size");
    if (records.has_path && !take_path(walk, records.path))
        return false;
    if (!records.has_size)
        return true;
    if (walk->has_size)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar header: a second one gives the member a size");
    walk->has_size = true;
    walk->size = records.size;
    return true;
}

/* Reads a header that describes the next member: pax's x, X (Solaris) and g, GNU's L (path) and K (target of a link).
 */
static bool take_extension(struct walk *walk, const struct td_tar_header *header)
{
    if (header->size > TD_TAR_EXTENSION_BYTES)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar header of type %c has %" PRIu64 " bytes; at most %d are read", header->type,
                           header->size, TD_TAR_EXTENSION_BYTES);
    if (!walk->has_extension && header->type != 'g') {
        walk->has_extension = true;
        walk->extension_at = walk->at;
    }
    uint8_t *bytes = NULL;
    bool ok = true;
    if (header->type != 'K') {
        bytes =
            td_input_load(walk->data, walk->at + TD_TAR_BLOCK_BYTES, header->size, TD_TAR_EXTENSION_BYTES, walk->err);
        struct td_text text = td_text_n((const char *)bytes, (size_t)header->size);
        if (bytes == NULL)
            ok = false;
        else if (header->type == 'L')
            ok = take_path(walk, td_text_n(text.p, strnlen(text.p, text.len)));
        else
            ok = take_records(walk, text, header->type == 'g');
    }
    free(bytes);
    return ok && pass_member(walk, header->size);
}

/* Adds a file to the current sample, or begins a new one when the key differs. */
static bool add_file(struct walk *walk, const char *path, size_t key_len, uint64_t begin)
{
    if (!walk->has_sample || walk->key_len != key_len || memcmp(walk->key, path, key_len) != 0) {
        if (!end_sample(walk))
            return false;
        walk->has_sample = true;
        walk->sample_at = begin;
        walk->key_len = key_len;
        memcpy(walk->key, path, key_len);
    }
    walk->sample_end = walk->at;
    return true;
}

static bool take_member(struct walk *walk, const struct td_tar_header *header)
{
    uint64_t begin = walk->has_extension ? walk->extension_at : walk->at;
    uint64_t size = walk->has_size ? walk->size : header->size;
    bool is_regular = (header->type == '\0' || header->type == '0' || header->type == '7') && !header->is_directory;
    bool has_no_data = header->is_directory || (header->type >= '1' && header->type <= '6');
    if (header->type == 'S')
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at, "tar member: it is sparse");
    if (has_no_data && size > 0)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                           "tar member: a directory, link, device or pipe has %" PRIu64 " bytes of data", size);
    if (!pass_member(walk, size))
        return false;
    const char *path = walk->has_path ? walk->path : header->path;
    size_t key_len =
        is_regular ? td_webdataset_key(td_text_n(path, walk->has_path ? walk->path_len : header->path_len)) : 0;
    walk->has_extension = walk->has_path = walk->has_size = false;
    return key_len == 0 || add_file(walk, path, key_len, begin);
}

/* Reads all headers. */
static bool read_archive(struct walk *walk)
{
    uint8_t block[TD_TAR_BLOCK_BYTES];
    struct td_tar_header header;
    uint64_t size = walk->data->size_bytes;
    if (size == 0)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, 0, "no tar archive: the file is empty");
    while (walk->at < size) {
        if (size - walk->at < sizeof block)
            return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->at,
                               "tar header: only %" PRIu64 " of 512 bytes are there", size - walk->at);
        if (!td_row_build_goes_on(walk->build, walk->at, walk->err) ||
            !td_input_read(walk->data, walk->at, block, sizeof block, walk->err))
            return false;
        if (td_tar_is_zero(block))
            break;
        if (!td_tar_header_read(block, walk->at, &header, walk->err))
            return false;
        bool is_extension = header.type != '\0' && strchr("xXgLK", header.type) != NULL;
        if (!(is_extension ? take_extension(walk, &header) : take_member(walk, &header)))
            return false;
    }
    if (walk->has_extension)
        return td_error_at(walk->err, TD_INVALID_ARGUMENT, walk->extension_at,
                           "tar header: the member that it describes is missing");
    return end_sample(walk);
}

static bool index_webdataset(const struct td_row_build *build, struct td_row_index *out, struct td_error *err)
{
    struct walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL)
        return td_error_no_memory(err);
    walk->build = build;
    walk->data = &build->files->data;
    walk->err = err;
    bool ok = read_archive(walk);
    if (ok) {
        uint64_t *fitting = realloc(walk->words, walk->word_count * sizeof *walk->words + 1);
        out->layout = TD_ROWS_PLACES;
        out->row_count = walk->word_count / 2;
        out->words = fitting != NULL ? fitting : walk->words;
        out->word_count = walk->word_count;
    } else {
        free(walk->words);
    }
    free(walk);
    return ok;
}

static const char *const extensions[] = {".tar", NULL};

const struct td_row_format td_row_format_webdataset = {
    .name = "webdataset", .extensions = extensions, .row_type = "application/x-tar", .build = index_webdataset};
