#include "rank/tar_layer.h"

#include "core/checked.h"
#include "core/digits.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES = 512,
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
    END_BYTES = 2 * BLOCK_BYTES, /* of zeros, at the end of an archive */
    DIRECTORY_MODE = 0755,
    FILE_MODE = 0444,
};

/* The largest size that 11 octal digits hold. */
#define LARGEST_USTAR_BYTES UINT64_C(077777777777)

/* A block of the format; POSIX.1-2017, pax, table "ustar Header Block". */
struct header {
    char name[NAME_BYTES], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], typeflag, linkname[100];
    char magic[6], version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[PREFIX_BYTES], zeros[12];
};

static_assert(sizeof(struct header) == BLOCK_BYTES, "a header is a block");

static const char zeros[BLOCK_BYTES];

bool td_tar_path_check(const char *path, struct td_error *err)
{
    static const char mark[] = ".wh.";
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/' ? 1 : 0;
        if (strncmp(part, mark, sizeof mark - 1) == 0)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "\"%s\" cannot be a file of an image: in a layer, a name that begins with \".wh.\" "
                                "removes a file; rename it",
                                path);
    }
    return true;
}

/* ---- headers ------------------------------------------------------------------------------------------- */

/* Returns the bytes of zeros that follow a content. */
static size_t padding_bytes(uint64_t size_bytes)
{
    return (size_t)((BLOCK_BYTES - size_bytes % BLOCK_BYTES) % BLOCK_BYTES);
}

/* Splits a path at a '/' into the fields prefix and name, with as much as possible in the name. Sets *prefix_len to the
 * length of the prefix, which may be 0. Returns false when the path does not fit. A directory's path ends with a '/',
 * which belongs to its name. */
static bool split_path(struct td_text path, size_t *prefix_len)
{
    *prefix_len = 0;
    if (path.len <= NAME_BYTES)
        return true;
    for (size_t i = path.len - NAME_BYTES - 1; i <= PREFIX_BYTES && i + 1 < path.len; i++) {
        if (path.p[i] != '/' || i == 0)
            continue;
        *prefix_len = i;
        return true;
    }
    return false;
}

static bool is_ascii(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.p[i] >= 0x80)
            return false;
    return true;
}

/* Writes an octal number with leading zeros and a NUL, which fill the field. */
static void put_octal(char *field, size_t field_bytes, uint64_t value)
{
    field[field_bytes - 1] = '\0';
    for (size_t i = field_bytes - 1; i-- > 0; value /= 8)
        field[i] = (char)('0' + value % 8);
}

/* The sum of all bytes, those of the checksum itself taken for blanks. */
static void put_checksum(struct header *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    unsigned sum = 0;
    memset(header->checksum, ' ', sizeof header->checksum);
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        sum += bytes[i];
    put_octal(header->checksum, sizeof header->checksum - 1, sum);
}

/* Appends a block. A path that does not fit is cut, and a size that does not fit is written as 0: a pax header has both
 * in full. */
static void write_block(struct td_buffer *out, struct td_text path, char typeflag, unsigned mode, uint64_t size_bytes)
{
    struct header header;
    size_t prefix_len;
    memset(&header, 0, sizeof header);
    struct td_text name = path;
    if (!split_path(path, &prefix_len))
        name = td_text_n(path.p, NAME_BYTES);
    else if (prefix_len > 0)
        name = td_text_skip(path, prefix_len + 1);
    memcpy(header.prefix, path.p, prefix_len);
    memcpy(header.name, name.p, name.len);
    put_octal(header.mode, sizeof header.mode, mode);
    put_octal(header.uid, sizeof header.uid, 0);
    put_octal(header.gid, sizeof header.gid, 0);
    put_octal(header.size, sizeof header.size, size_bytes <= LARGEST_USTAR_BYTES ? size_bytes : 0);
    put_octal(header.mtime, sizeof header.mtime, 0);
    header.typeflag = typeflag;
    memcpy(header.magic, "ustar", sizeof header.magic);
    memcpy(header.version, "00", sizeof header.version);
    put_octal(header.devmajor, sizeof header.devmajor, 0);
    put_octal(header.devminor, sizeof header.devminor, 0);
    put_checksum(&header);
    td_buffer_append(out, &header, sizeof header);
}

/* Appends a record of a pax header, "LENGTH KEY=VALUE\n"; the length counts its own digits. */
static void write_pax_record(struct td_buffer *out, const char *key, struct td_text value)
{
    size_t rest = strlen(key) + value.len + 3; /* the blank, '=' and the line's end */
    size_t len = rest;
    for (size_t before = 0; before != len;) {
        before = len;
        len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
    }
    td_buffer_printf(out, "%zu %s=", len, key);
    td_buffer_append(out, value.p, value.len);
    td_buffer_putc(out, '\n');
}

/* Appends a pax extended header for the next entry, if that needs one. */
static void write_pax(struct td_buffer *out, struct td_text path, uint64_t size_bytes)
{
    struct td_buffer records;
    size_t prefix_len;
    char number[24];
    td_buffer_init(&records);
    if (!split_path(path, &prefix_len) || !is_ascii(path))
        write_pax_record(&records, "path", path);
    if (size_bytes > LARGEST_USTAR_BYTES) {
        (void)snprintf(number, sizeof number, "%" PRIu64, size_bytes);
        write_pax_record(&records, "size", td_text_of(number));
    }
    if (records.len > 0) {
        write_block(out, TD_TEXT("PaxHeader"), 'x', FILE_MODE, records.len);
        td_buffer_append(out, records.data, records.len);
        td_buffer_append(out, zeros, padding_bytes(records.len));
    }
    out->failed = out->failed || records.failed;
    td_buffer_fini(&records);
}

/* Returns the length of what both paths begin with, up to and with the last '/' in it. */
static size_t shared_directories(const char *path, const char *before)
{
    size_t shared = 0;
    for (size_t i = 0; before != NULL && path[i] != '\0' && path[i] == before[i]; i++)
        if (path[i] == '/')
            shared = i + 1;
    return shared;
}

void td_tar_write_header(struct td_buffer *out, const struct td_tar_file *file, const char *before)
{
    struct td_text path = td_text_of(file->path);
    for (size_t i = shared_directories(file->path, before); i < path.len; i++) {
        struct td_text directory = td_text_n(path.p, i + 1);
        if (path.p[i] != '/')
            continue;
        write_pax(out, directory, 0);
        write_block(out, directory, '5', DIRECTORY_MODE, 0);
    }
    write_pax(out, path, file->size_bytes);
    write_block(out, path, '0', FILE_MODE, file->size_bytes);
}

/* ---- layers -------------------------------------------------------------------------------------------- */

/* Calls `each` for the headers of each file. Errors: TD_RESOURCE_EXHAUSTED; as `each`. */
static bool each_header(const struct td_tar_file *files, size_t count,
                        bool (*each)(void *context, size_t i, struct td_text header, struct td_error *err),
                        void *context, struct td_error *err)
{
    struct td_buffer header;
    bool ok = true;
    td_buffer_init(&header);
    for (size_t i = 0; ok && i < count; i++) {
        td_buffer_clear(&header);
        td_tar_write_header(&header, &files[i], i == 0 ? NULL : files[i - 1].path);
        ok = header.failed ? td_buffer_refuse(&header, err) : each(context, i, td_buffer_text(&header), err);
    }
    td_buffer_fini(&header);
    return ok;
}

/* Adds the bytes of a file in a layer to *total. Returns false past 2^63-1. */
static bool add_size(uint64_t header_bytes, uint64_t size_bytes, uint64_t *total)
{
    return td_add_u64(*total, header_bytes, total) && td_add_u64(*total, size_bytes, total) &&
           td_add_u64(*total, padding_bytes(size_bytes), total) && *total <= INT64_MAX - END_BYTES;
}

struct keying {
    const struct td_tar_file *files;
    struct td_digest *digest;
    uint64_t total_bytes;
};

static bool add_file(void *context, size_t i, struct td_text header, struct td_error *err)
{
    struct keying *keying = context;
    td_digest_add(keying->digest, header.p, header.len);
    td_digest_add_cstring(keying->digest, keying->files[i].sha256);
    return add_size(header.len, keying->files[i].size_bytes, &keying->total_bytes) ||
           td_error_set(err, TD_FAILED_PRECONDITION, "the files of a layer have more than 2^63-1 bytes");
}

bool td_tar_layer_key(const char *owner, const struct td_tar_file *files, size_t count, struct td_virtual_key *key,
                      uint64_t *size_bytes, struct td_error *err)
{
    struct keying keying = {.files = files, .digest = td_digest_create()};
    td_digest_add_cstring(keying.digest, "tar layer of");
    td_digest_add_cstring(keying.digest, owner);
    bool ok = each_header(files, count, add_file, &keying, err);
    bool is_made = td_digest_finish_binary(keying.digest, key->bytes);
    *size_bytes = keying.total_bytes + END_BYTES;
    return ok && (is_made || td_error_no_memory(err));
}

/* Returns a bound on the bytes of an entry with a path of this length: its block, and a pax header with its records if
 * it needs one. */
static uint64_t entry_bound(size_t path_len, bool needs_pax)
{
    enum { OF_RECORDS = 64 }; /* keys, lengths, and a size */
    size_t records = path_len + OF_RECORDS;
    return needs_pax || path_len > NAME_BYTES ? (size_t)2 * BLOCK_BYTES + records + padding_bytes(records)
                                              : BLOCK_BYTES;
}

uint64_t td_tar_header_bound(const struct td_tar_file *files, size_t count)
{
    uint64_t bound = 0;
    for (size_t k = 0; k < count; k++) {
        const char *path = files[k].path;
        bool needs_pax = !is_ascii(td_text_of(path));
        size_t i = shared_directories(path, k == 0 ? NULL : files[k - 1].path);
        for (; path[i] != '\0'; i++)
            bound += path[i] == '/' ? entry_bound(i + 1, needs_pax) : 0;
        bound += entry_bound(i, needs_pax || files[k].size_bytes > LARGEST_USTAR_BYTES);
    }
    return bound;
}

struct appending {
    const struct td_tar_file *files;
    const struct td_tar_opener *opener;
    struct td_blob *zeros;
    struct td_body *body;
};

static bool append_file(void *context, size_t i, struct td_text header, struct td_error *err)
{
    const struct appending *appending = context;
    const struct td_tar_file *file = &appending->files[i];
    struct td_blob *blob = NULL;
    char *copy = malloc(header.len);
    if (copy == NULL)
        return td_error_no_memory(err);
    memcpy(copy, header.p, header.len);
    if (!td_body_append_heap(appending->body, copy, header.len, err) ||
        !appending->opener->open(appending->opener->context, i, &blob, err))
        return false;
    bool ok = blob->len_bytes == file->size_bytes ||
              td_error_set(err, TD_UNAVAILABLE, "\"%s\" has changed on disk; try again", file->path);
    ok = ok && td_body_append(appending->body, blob, 0, file->size_bytes, err) &&
         td_body_append(appending->body, appending->zeros, 0, padding_bytes(file->size_bytes), err);
    td_blob_unref(blob);
    return ok;
}

bool td_tar_layer_append(const struct td_tar_file *files, size_t count, const struct td_tar_opener *opener,
                         struct td_body *body, struct td_error *err)
{
    struct appending appending = {.files = files, .opener = opener, .body = body};
    char *copy = calloc(1, END_BYTES);
    if (copy == NULL)
        return td_error_no_memory(err);
    if (!td_blob_from_heap(copy, END_BYTES, &appending.zeros, err))
        return false;
    bool ok = each_header(files, count, append_file, &appending, err) &&
              td_body_append(body, appending.zeros, 0, END_BYTES, err);
    td_blob_unref(appending.zeros);
    return ok;
}
