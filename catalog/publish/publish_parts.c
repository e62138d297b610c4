/* A part is written under a name of its own and takes its number by a rename, so a folder holds whole parts alone. The
 * note about a part is in the same file, behind its bytes, so that one rename brings both. An upload goes by a rename
 * of its folder: parts that are still arriving then find no folder for their rename. */
#include "catalog/publish/publish_parts.h"

#include "catalog/publish/parts_row.h"
#include "catalog/publish/publish_folder.h"
#include "core/array.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/log.h"
#include "storage/disk_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char parts_folder[] = TD_PARTS_FOLDER, about_name[] = "about", done_name[] = "done";

enum { ABOUT_BYTES = 8192, NUMBER_DIGITS = 5, TIME_DIGITS = 16 };

/* ---- uploads ------------------------------------------------------------------------------------------- */

/* Returns the time in ns since 1970. */
static int64_t wall_ns(void)
{
    struct td_wall now = td_wall_now();
    return now.seconds * TD_NS_PER_S + now.nanoseconds;
}

/* Fills the text with random hexadecimal digits. */
static bool write_random(char text[TD_PARTS_ID_BYTES], struct td_error *err)
{
    uint8_t bytes[(TD_PARTS_ID_BYTES - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_sys(err, TD_IO, errno, "the system gives no random numbers");
    td_hex_write(bytes, sizeof bytes, text);
    return true;
}

/* Writes an upload's id: the digits of its time, and as many random ones. */
static bool write_id(int64_t started_ns, char id[TD_PARTS_ID_BYTES], struct td_error *err)
{
    char time[TIME_DIGITS + 1];
    if (!write_random(id, err))
        return false;
    (void)snprintf(time, sizeof time, "%016" PRIx64, (uint64_t)started_ns);
    memcpy(id, time, TIME_DIGITS);
    return true;
}

static bool is_id(struct td_text id)
{
    return id.len == TD_PARTS_ID_BYTES - 1 && td_hex_is_lower(id);
}

static bool fail_absent(struct td_error *err)
{
    return td_error_set(err, TD_NOT_FOUND, "there is no such upload: it was completed, aborted or has expired");
}

/* Reports a failure of the system, which errno names, to which the folder of the upload may be the reason. */
static bool fail_io(const struct td_parts_upload *upload, const char *what, struct td_error *err)
{
    struct td_publish_name name;
    if (errno == ENOENT)
        return fail_absent(err);
    if (!td_publish_name(upload->repo_id, upload->is_dataset, &name, err))
        return false;
    return td_publish_fail(&name, what, err);
}

/* Counts folders of uploads, until there are TD_PARTS_MOST_UPLOADS. */
static bool count_upload(void *context, const char *name, struct td_error *err)
{
    size_t *count = context;
    (void)name;
    (void)err;
    return ++*count < TD_PARTS_MOST_UPLOADS;
}

/* An upload that is done. */
struct ended {
    char id[TD_PARTS_ID_BYTES];
    int64_t ended_ns; /* since 1970 */
};

/* All uploads: the number of those that are not done, and those that are. */
struct counting {
    const struct td_publish *publish;
    size_t under_way;
    struct ended *ended;
    size_t count, capacity;
};

static bool count_both(void *context, const char *name, struct td_error *err)
{
    struct counting *counting = context;
    char path[TD_OWN_NAME_BYTES];
    struct stat st;
    td_parts_path(name, done_name, path);
    if (!is_id(td_text_of(name)))
        return true;
    if (fstatat(counting->publish->disk.own.fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        counting->under_way++;
        return true;
    }
    if (!TD_ARRAY_GROW(counting->ended, counting->count, counting->capacity, err))
        return false;
    struct ended *ended = &counting->ended[counting->count++];
    (void)snprintf(ended->id, sizeof ended->id, "%s", name);
    ended->ended_ns = (int64_t)st.st_mtim.tv_sec * TD_NS_PER_S + st.st_mtim.tv_nsec;
    return true;
}

static int compare_ended(const void *a, const void *b)
{
    int64_t x = ((const struct ended *)a)->ended_ns, y = ((const struct ended *)b)->ended_ns;
    return x < y ? -1 : x > y;
}

/* Removes the oldest of the uploads that are done, until half of the most are left, if there are more than the most. */
static void remove_oldest(struct td_publish *publish, struct counting *counting)
{
    if (counting->count <= TD_PARTS_MOST_DONE)
        return;
    qsort(counting->ended, counting->count, sizeof *counting->ended, compare_ended);
    for (size_t i = 0; i + TD_PARTS_MOST_DONE / 2 < counting->count; i++)
        (void)td_parts_remove(publish, counting->ended[i].id, NULL);
}

/* Reads a small file into text, with a NUL. Returns false when it cannot. */
static bool read_text(const struct td_publish *publish, const char *id, const char *item, char text[ABOUT_BYTES])
{
    char path[TD_OWN_NAME_BYTES];
    td_parts_path(id, item, path);
    int fd = openat(publish->disk.own.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t len = fd < 0 ? -1 : td_read_at(fd, text, ABOUT_BYTES - 1, 0);
    if (fd >= 0)
        (void)close(fd);
    if (len < 0)
        return false;
    text[len] = '\0';
    return true;
}

/* Takes a line, and copies it. Returns false when it is too long. */
static bool take_line(struct td_text *rest, char *out, size_t capacity)
{
    struct td_text line = td_text_take_until(rest, '\n');
    return line.len < capacity && snprintf(out, capacity, "%.*s", (int)line.len, line.p) >= 0;
}

static bool read_about(const char *text, struct td_parts_upload *upload)
{
    struct td_text rest = td_text_of(text);
    uint64_t started;
    bool ok = td_text_equals(td_text_take_until(&rest, '\n'), "1") &&
              td_number_read(td_text_take_until(&rest, '\n'), INT64_MAX, &started);
    upload->is_dataset = td_text_equals(td_text_take_until(&rest, '\n'), "1");
    ok = ok && take_line(&rest, upload->repo_id, sizeof upload->repo_id) &&
         take_line(&rest, upload->path, sizeof upload->path) && take_line(&rest, upload->label, sizeof upload->label) &&
         take_line(&rest, upload->owner, sizeof upload->owner) && upload->path[0] != '\0';
    upload->started_ns = ok ? (int64_t)started : 0;
    return ok;
}

/* Reads "HEX SIZE". */
static bool read_done(const char *text, struct td_publish_sum *sum)
{
    struct td_text rest = td_text_of(text);
    return td_hex_read_bytes(td_text_take_until(&rest, ' '), sum->sha256, sizeof sum->sha256) &&
           td_number_read(td_text_take_until(&rest, '\n'), UINT64_MAX, &sum->size_bytes);
}

bool td_parts_find(struct td_publish *publish, struct td_text id, struct td_parts_upload *upload, struct td_error *err)
{
    char text[ABOUT_BYTES];
    if (!is_id(id))
        return fail_absent(err);
    (void)snprintf(upload->id, sizeof upload->id, "%.*s", (int)id.len, id.p);
    if (!read_text(publish, upload->id, about_name, text) || !read_about(text, upload))
        return fail_absent(err);
    upload->is_done = read_text(publish, upload->id, done_name, text) && read_done(text, &upload->sum);
    return true;
}

/* A call of td_parts_each. */
struct each {
    struct td_publish *publish;
    bool (*visit)(void *context, const struct td_parts_upload *upload, struct td_error *err);
    void *context;
};

static bool visit_upload(void *context, const char *name, struct td_error *err)
{
    const struct each *each = context;
    struct td_parts_upload upload = {.is_done = false};
    if (!td_parts_find(each->publish, td_text_of(name), &upload, NULL) || upload.is_done)
        return true; /* no upload, or one that is going */
    return each->visit(each->context, &upload, err);
}

bool td_parts_each(struct td_publish *publish,
                   bool (*visit)(void *context, const struct td_parts_upload *upload, struct td_error *err),
                   void *context, struct td_error *err)
{
    struct each each = {.publish = publish, .visit = visit, .context = context};
    return td_own_folder_each(&publish->disk.own, parts_folder, visit_upload, &each, err);
}

/* Reads the note behind the part's bytes. Returns false for a file that is no part. */
static bool read_note(int fd, unsigned number, struct td_part_info *info)
{
    char note[TD_PART_NOTE_BYTES];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < TD_PART_NOTE_BYTES)
        return false;
    *info = (struct td_part_info){.number = number,
                                  .size_bytes = (uint64_t)st.st_size - TD_PART_NOTE_BYTES,
                                  .written_ns = (int64_t)st.st_mtim.tv_sec * TD_NS_PER_S + st.st_mtim.tv_nsec};
    if (td_read_at(fd, note, sizeof note, info->size_bytes) != (ssize_t)sizeof note)
        return false;
    struct td_text rest = td_text_n(note, sizeof note);
    struct td_text version = td_text_take_until(&rest, '\n');
    info->is_in_row = td_text_equals(version, "2");
    bool ok = (info->is_in_row || td_text_equals(version, "1")) && take_line(&rest, info->tag, sizeof info->tag) &&
              take_line(&rest, info->label, sizeof info->label) && info->tag[0] != '\0';
    if (ok && info->is_in_row)
        return info->size_bytes == 0 && td_number_read(td_text_take_until(&rest, ' '), INT64_MAX, &info->off) &&
               td_number_read(td_text_take_until(&rest, '\n'), INT64_MAX, &info->size_bytes);
    if (ok && !td_number_read(td_text_take_until(&rest, '\n'), INT64_MAX, &info->held_bytes))
        info->held_bytes = 0; /* a note without it */
    return ok;
}

/* Reads the note of a file in a folder. Returns false when it is no part, or not there. */
static bool read_note_at(int at, const char *name, unsigned number, struct td_part_info *info)
{
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && read_note(fd, number, info);
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* ---- the beginning of uploads -------------------------------------------------------------------------- */

/* The uploads of a token that are not done. */
struct owned {
    const char *owner;
    size_t count;
};

static bool count_owned(void *context, const struct td_parts_upload *upload, struct td_error *err)
{
    struct owned *owned = context;
    owned->count += strcmp(upload->owner, owned->owner) == 0 ? 1 : 0;
    return owned->count < TD_PARTS_MOST_OF_ONE ||
           td_error_set(
               err, TD_FAILED_PRECONDITION,
               "the token \"%s\" has %d multipart uploads, the most of one token; complete or abort some of them",
               owned->owner, TD_PARTS_MOST_OF_ONE);
}

/* Makes room for one more upload, when there are as many as may be: removes the oldest of those that are done. */
static bool make_room(struct td_publish *publish, struct td_error *err)
{
    struct counting counting = {.publish = publish};
    bool ok = td_own_folder_each(&publish->disk.own, parts_folder, count_both, &counting, err);
    if (ok)
        remove_oldest(publish, &counting);
    free(counting.ended);
    return ok &&
           (counting.under_way < TD_PARTS_MOST_UPLOADS ||
            td_error_set(err, TD_FAILED_PRECONDITION, "there are %d multipart uploads; complete or abort some of them",
                         TD_PARTS_MOST_UPLOADS));
}

/* Checks that there is room for one more upload, and for one more of this token. */
static bool check_count(struct td_publish *publish, const char *owner, struct td_error *err)
{
    struct owned owned = {.owner = owner};
    size_t count = 0;
    bool is_listed = td_own_folder_each(&publish->disk.own, parts_folder, count_upload, &count, err);
    if (!is_listed && (count < TD_PARTS_MOST_UPLOADS || !make_room(publish, err)))
        return false;
    bool may_be_too_many = owner[0] != '\0' && count >= TD_PARTS_MOST_OF_ONE; /* otherwise no upload has to be read */
    return !may_be_too_many || td_parts_each(publish, count_owned, &owned, err);
}

bool td_parts_begin(struct td_publish *publish, struct td_parts_upload *upload, struct td_error *err)
{
    struct td_own_folder *own = &publish->disk.own;
    char path[TD_OWN_NAME_BYTES];
    struct td_publish_name name;
    struct td_buffer about;
    upload->started_ns = wall_ns();
    upload->is_done = false;
    if (!td_publish_name(upload->repo_id, upload->is_dataset, &name, err) ||
        !td_publish_check_name(&publish->disk, &name, err) || !td_own_folder_check(own, err) ||
        !check_count(publish, upload->owner, err) || !write_id(upload->started_ns, upload->id, err))
        return false;
    td_buffer_init(&about);
    td_buffer_printf(&about, "1\n%" PRId64 "\n%d\n%s\n%s\n%s\n%s\n", upload->started_ns, upload->is_dataset ? 1 : 0,
                     upload->repo_id, upload->path, upload->label, upload->owner);
    td_parts_path(upload->id, "", path);
    bool ok = !about.failed || td_buffer_refuse(&about, err);
    if (ok && !td_own_folder_make(own, path))
        ok = fail_io(upload, "begin an upload to", err);
    td_parts_path(upload->id, about_name, path);
    if (ok && !td_durable_file_write(own->fd, path, td_buffer_text(&about), 0666))
        ok = fail_io(upload, "begin an upload to", err);
    td_buffer_fini(&about);
    if (ok)
        return true;
    td_parts_path(upload->id, "", path);
    td_own_folder_remove(own, path);
    return false;
}

/* ---- the bytes of uploads ------------------------------------------------------------------------------ */

/* Returns the number that the name of a part says; 0 for other names. */
static unsigned part_number(const char *name)
{
    uint64_t number;
    struct td_text text = td_text_of(name);
    return text.len == NUMBER_DIGITS && td_number_read(text, TD_PARTS_MOST_NUMBER, &number) ? (unsigned)number : 0;
}

/* Returns the bytes that a part takes, without its note. */
static uint64_t bytes_of(const struct td_part_info *info)
{
    return info->size_bytes + info->held_bytes;
}

/* Adds the bytes of a part. */
static bool count_part(void *context, int at, const char *name, struct td_error *err)
{
    uint64_t *bytes = context;
    struct td_part_info info;
    (void)err;
    if (part_number(name) > 0 && read_note_at(at, name, part_number(name), &info))
        *bytes += bytes_of(&info);
    return true;
}

static uint64_t count_parts(const struct td_publish *publish, const char *path)
{
    uint64_t bytes = 0;
    (void)td_disk_list(td_folder_open(publish->disk.own.fd, path), path, count_part, &bytes, NULL);
    return bytes;
}

/* A call of remove_parts. */
struct removing {
    struct td_publish *publish;
    uint64_t bytes; /* of the parts that it has removed */
};

static bool remove_part(void *context, int at, const char *name, struct td_error *err)
{
    struct removing *removing = context;
    uint64_t bytes = 0;
    if (part_number(name) == 0)
        return true;
    pthread_mutex_lock(&removing->publish->parts_lock); /* no other part takes the name in between */
    (void)count_part(&bytes, at, name, err);
    if (unlinkat(at, name, 0) == 0)
        removing->bytes += bytes;
    pthread_mutex_unlock(&removing->publish->parts_lock);
    return true;
}

/* Removes the parts in a folder, and gives their bytes back: of each part once, also when two requests remove it. */
static void remove_parts(struct td_publish *publish, const char *path)
{
    struct removing removing = {.publish = publish};
    (void)td_disk_list(td_folder_open(publish->disk.own.fd, path), path, remove_part, &removing, NULL);
    td_publish_give_back(publish, removing.bytes);
}

bool td_parts_remove(struct td_publish *publish, const char *id, struct td_error *err)
{
    struct td_own_folder *own = &publish->disk.own;
    char path[TD_OWN_NAME_BYTES], trash[TD_OWN_NAME_BYTES];
    td_parts_path(id, "", path);
    if (!td_own_folder_trash(own, own->fd, path, trash))
        return errno == ENOENT ? fail_absent(err) : td_error_sys(err, TD_IO, errno, "cannot remove the upload");
    td_parts_row_drop(publish, id);
    remove_parts(publish, trash);
    td_own_folder_remove(own, trash);
    return true;
}

/* Writes "HEX SIZE" to a file of an upload, durably. Returns false with errno. */
static bool write_sum(const struct td_publish *publish, const char *id, const char *item,
                      const struct td_publish_sum *sum)
{
    char path[TD_OWN_NAME_BYTES], hex[TD_SHA256_TEXT_BYTES], text[TD_SHA256_TEXT_BYTES + TD_NUMBER_BYTES + 2];
    td_hex_write(sum->sha256, sizeof sum->sha256, hex);
    (void)snprintf(text, sizeof text, "%s %" PRIu64 "\n", hex, sum->size_bytes);
    td_parts_path(id, item, path);
    return td_durable_file_write(publish->disk.own.fd, path, td_text_of(text), 0666);
}

bool td_parts_finish(struct td_publish *publish, const char *id, const struct td_publish_sum *sum, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    if (!write_sum(publish, id, done_name, sum))
        return errno == ENOENT ? fail_absent(err) : td_error_sys(err, TD_IO, errno, "cannot end the upload");
    td_parts_row_drop(publish, id);
    td_parts_path(id, "", path);
    remove_parts(publish, path);
    td_parts_path(id, TD_PARTS_ROW_NAME, path);
    (void)unlinkat(publish->disk.own.fd, path, 0); /* not there when it has become the blob */
    return true;
}

/* Removes a file of a part that was being written when an earlier process ended. */
static bool remove_cut_part(void *context, int at, const char *name, struct td_error *err)
{
    (void)context;
    (void)err;
    if (name[0] == '.')
        (void)unlinkat(at, name, 0);
    return true;
}

static bool count_folder(void *context, const char *name, struct td_error *err)
{
    struct td_publish *publish = context;
    char path[TD_OWN_NAME_BYTES];
    (void)err;
    if (!is_id(td_text_of(name)))
        return true;
    td_parts_path(name, "", path);
    (void)td_disk_list(td_folder_open(publish->disk.own.fd, path), path, remove_cut_part, NULL, NULL);
    publish->status.used_bytes += count_parts(publish, path);
    return true;
}

bool td_parts_count(struct td_publish *publish, struct td_error *err)
{
    return td_own_folder_each(&publish->disk.own, parts_folder, count_folder, publish, err);
}

struct expiring {
    struct td_publish *publish;
    int64_t before_s;
    size_t count;
};

static bool expire_folder(void *context, const char *name, struct td_error *err)
{
    struct expiring *expiring = context;
    char path[TD_OWN_NAME_BYTES];
    struct stat st;
    (void)err;
    td_parts_path(name, "", path);
    if (!is_id(td_text_of(name)) || fstatat(expiring->publish->disk.own.fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        (int64_t)st.st_mtim.tv_sec >= expiring->before_s)
        return true;
    expiring->count += td_parts_remove(expiring->publish, name, NULL) ? 1 : 0;
    return true;
}

void td_parts_expire(struct td_publish *publish, int64_t before_s)
{
    struct expiring expiring = {.publish = publish, .before_s = before_s};
    (void)td_own_folder_each(&publish->disk.own, parts_folder, expire_folder, &expiring, NULL);
    if (expiring.count > 0)
        td_log(TD_LOG_INFO, "publish: removed %zu multipart uploads that have ended or expired", expiring.count);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

struct td_part_writer {
    struct td_publish *publish;
    struct td_parts_upload upload;
    unsigned number;
    int fd;                       /* of the file that will have the number */
    char path[TD_OWN_NAME_BYTES]; /* of it while it is written */
    struct td_parts_row *row;     /* that has the bytes; NULL: the file has them */
    int row_fd;
    uint64_t off, held_bytes; /* as in td_part_info */
    uint64_t size_bytes, at, taken;
};

/* Returns the bytes in the row that a part with the number of this one leaves behind when it is replaced. */
static uint64_t held_after(const struct td_part_info *replaced)
{
    return replaced->held_bytes + (replaced->is_in_row ? replaced->size_bytes : 0);
}

/* Reads the note of the part that has the writer's number. Returns false when there is none. */
static bool read_replaced(const struct td_part_writer *writer, struct td_part_info *info)
{
    char item[16], path[TD_OWN_NAME_BYTES];
    (void)snprintf(item, sizeof item, "%05u", writer->number);
    td_parts_path(writer->upload.id, item, path);
    return read_note_at(writer->publish->disk.own.fd, path, writer->number, info);
}

/* Finds a place for the bytes in the row, else in the file, and reserves them on the disk. */
static bool reserve(struct td_part_writer *writer, struct td_error *err)
{
    off_t bytes = TD_PART_NOTE_BYTES;
    writer->row = td_parts_row_claim(writer->publish, writer->upload.id, writer->number, writer->size_bytes,
                                     &writer->off, &writer->row_fd);
    if (writer->row == NULL && errno != 0)
        return fail_io(&writer->upload, "reserve the space on disk for a part of", err);
    if (writer->row == NULL)
        bytes += (off_t)writer->size_bytes;
    return fallocate(writer->fd, 0, 0, bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS ||
           fail_io(&writer->upload, "reserve the space on disk for a part of", err);
}

bool td_part_begin(struct td_publish *publish, const struct td_parts_upload *upload, unsigned number,
                   uint64_t size_bytes, struct td_part_writer **out, struct td_error *err)
{
    char item[64];
    struct td_part_info replaced;
    if (size_bytes > INT64_MAX - TD_PART_NOTE_BYTES)
        return td_error_set(err, TD_INVALID_ARGUMENT, "no file has %" PRIu64 " bytes", size_bytes);
    struct td_part_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return td_error_no_memory(err);
    *writer = (struct td_part_writer){
        .publish = publish, .upload = *upload, .number = number, .fd = -1, .size_bytes = size_bytes};
    (void)snprintf(item, sizeof item, ".%05u-%" PRIu64, number,
                   atomic_fetch_add_explicit(&publish->stream_number, 1, memory_order_relaxed));
    td_parts_path(upload->id, item, writer->path);
    if (td_own_folder_check_room(&publish->disk.own, size_bytes, err) && td_publish_take(publish, size_bytes, err)) {
        writer->taken = size_bytes;
        writer->held_bytes = read_replaced(writer, &replaced) ? held_after(&replaced) : 0;
        writer->fd =
            openat(publish->disk.own.fd, writer->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (writer->fd >= 0 ? reserve(writer, err) : fail_io(upload, "begin a part of", err)) {
            *out = writer;
            return true;
        }
    }
    td_part_abandon(writer);
    return false;
}

bool td_part_write(struct td_part_writer *writer, const void *bytes, size_t len, struct td_error *err)
{
    if (len > writer->size_bytes - writer->at)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the body has more than the %" PRIu64 " bytes that it announced",
                            writer->size_bytes);
    if (writer->row != NULL ? !td_write_at(writer->row_fd, bytes, len, writer->off + writer->at)
                            : !td_write_all(writer->fd, bytes, len))
        return fail_io(&writer->upload, "write a part of", err);
    writer->at += len;
    td_publish_note_bytes(writer->publish, len);
    return true;
}

/* Writes the note behind the bytes of the file, and makes it durable. */
static bool write_note(const struct td_part_writer *writer, const struct td_part_info *info, struct td_error *err)
{
    char note[TD_PART_NOTE_BYTES] = "";
    int len = snprintf(note, sizeof note, "%c\n%s\n%s\n", writer->row != NULL ? '2' : '1', info->tag, info->label);
    if (writer->row != NULL)
        (void)snprintf(note + len, sizeof note - (size_t)len, "%" PRIu64 " %" PRIu64 "\n", writer->off,
                       writer->size_bytes);
    else
        (void)snprintf(note + len, sizeof note - (size_t)len, "%" PRIu64 "\n", writer->held_bytes);
    uint64_t off = writer->row != NULL ? 0 : writer->size_bytes;
    return (td_write_at(writer->fd, note, sizeof note, off) && fdatasync(writer->fd) == 0) ||
           fail_io(&writer->upload, "write a part of", err);
}

/* Makes the part durable, with its note. */
static bool finish_file(struct td_part_writer *writer, const char *label, struct td_part_info *info,
                        struct td_error *err)
{
    if (writer->at != writer->size_bytes)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the body ended %" PRIu64 " bytes before its announced end",
                            writer->size_bytes - writer->at);
    if (!write_random(info->tag, err))
        return false;
    (void)snprintf(info->label, sizeof info->label, "%s", label);
    if (writer->row != NULL && fdatasync(writer->row_fd) != 0)
        return fail_io(&writer->upload, "write a part of", err);
    return write_note(writer, info, err) && (read_note(writer->fd, writer->number, info) ||
                                             td_error_set(err, TD_IO, "a part that was just written cannot be read"));
}

/* Removes the part that was placed, unless another one has its number by now: that one gives its bytes back. */
static bool remove_own(const struct td_part_writer *writer, const char *path)
{
    struct td_publish *publish = writer->publish;
    struct stat named, own;
    pthread_mutex_lock(&publish->parts_lock);
    bool ok = fstatat(publish->disk.own.fd, path, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(writer->fd, &own) == 0 &&
              named.st_ino == own.st_ino && unlinkat(publish->disk.own.fd, path, 0) == 0;
    pthread_mutex_unlock(&publish->parts_lock);
    return ok;
}

/* Gives the file its number, durably. Afterwards writer->taken are the bytes that nobody needs: of the part that had
 * the number, and after an error its own, too. */
static bool place_file(struct td_part_writer *writer, struct td_part_info *info, struct td_error *err)
{
    struct td_publish *publish = writer->publish;
    struct td_part_info replaced;
    char item[16], path[TD_OWN_NAME_BYTES], folder[TD_OWN_NAME_BYTES];
    uint64_t old_bytes = 0, replaced_bytes = 0;
    (void)snprintf(item, sizeof item, "%05u", writer->number);
    td_parts_path(writer->upload.id, item, path);
    td_parts_path(writer->upload.id, "", folder);
    bool ok = true;
    pthread_mutex_lock(&publish->parts_lock);
    if (read_replaced(writer, &replaced)) {
        uint64_t held_bytes = held_after(&replaced);
        if (writer->row == NULL && held_bytes != writer->held_bytes) { /* it took its number since this one began */
            writer->held_bytes = held_bytes;
            ok = write_note(writer, info, err);
        }
        replaced_bytes = bytes_of(&replaced);
        old_bytes = replaced_bytes - (writer->row == NULL ? held_bytes : 0);
    }
    bool is_placed = ok && renameat(publish->disk.own.fd, writer->path, publish->disk.own.fd, path) == 0;
    int sys = errno;
    pthread_mutex_unlock(&publish->parts_lock);
    errno = sys;
    if (!is_placed)
        return ok ? fail_io(&writer->upload, "place a part of", err) : false;
    if (td_folder_sync(publish->disk.own.fd, folder)) {
        writer->taken = old_bytes;
        return true;
    }
    (void)fail_io(&writer->upload, "place a part of", err);
    writer->taken = remove_own(writer, path) ? writer->taken + replaced_bytes : old_bytes;
    return false;
}

bool td_part_end(struct td_part_writer *writer, const char *label, struct td_part_info *info, struct td_error *err)
{
    bool ok = finish_file(writer, label, info, err) && place_file(writer, info, err);
    if (ok && writer->row != NULL) {
        td_parts_row_leave(writer->publish, writer->row, writer->number, writer->size_bytes, true);
        writer->row = NULL;
    }
    td_part_abandon(writer);
    return ok;
}

void td_part_abandon(struct td_part_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->row != NULL)
        td_parts_row_leave(writer->publish, writer->row, writer->number, writer->size_bytes, false);
    if (writer->fd >= 0) {
        (void)unlinkat(writer->publish->disk.own.fd, writer->path, 0); /* not there any more if it has its number */
        (void)close(writer->fd);
    }
    td_publish_give_back(writer->publish, writer->taken);
    free(writer);
}

/* The numbers that parts of an upload have: bit N for number N. */
struct numbers {
    uint8_t bits[TD_PARTS_MOST_NUMBER / 8 + 1];
};

static bool note_number(void *context, int at, const char *name, struct td_error *err)
{
    struct numbers *numbers = context;
    unsigned number = part_number(name);
    (void)at;
    (void)err;
    numbers->bits[number / 8] |= (uint8_t)(1u << number % 8); /* bit 0 counts for nothing */
    return true;
}

bool td_parts_list(struct td_publish *publish, const char *id, unsigned after, size_t most, struct td_part_info *parts,
                   size_t *count, bool *has_more, struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    td_parts_path(id, "", path);
    *count = 0;
    *has_more = false;
    struct numbers *numbers = calloc(1, sizeof *numbers);
    if (numbers == NULL)
        return td_error_no_memory(err);
    int fd = td_folder_open(publish->disk.own.fd, path);
    bool ok = fd >= 0 || errno != ENOENT ? td_disk_list(fd, path, note_number, numbers, err) : fail_absent(err);
    for (size_t number = (size_t)after + 1; ok && !*has_more && number <= TD_PARTS_MOST_NUMBER; number++) {
        struct td_part_info info;
        if ((numbers->bits[number / 8] >> number % 8 & 1) == 0)
            continue;
        int part = td_parts_open(publish, id, (unsigned)number, &info);
        if (part < 0)
            continue; /* it was removed since */
        (void)close(part);
        *has_more = *count == most;
        if (!*has_more)
            parts[(*count)++] = info;
    }
    free(numbers);
    return ok;
}

/* Opens the blob that the row of an upload has become. */
static int open_placed(struct td_publish *publish, const char *id)
{
    char text[ABOUT_BYTES], hex[TD_SHA256_TEXT_BYTES];
    struct td_parts_upload upload;
    struct td_publish_name name;
    struct td_publish_repo repo;
    struct td_publish_sum sum;
    if (!read_text(publish, id, about_name, text) || !read_about(text, &upload) ||
        !read_text(publish, id, TD_PARTS_PLACED_NAME, text) || !read_done(text, &sum) ||
        !td_publish_name(upload.repo_id, upload.is_dataset, &name, NULL))
        return -1;
    td_hex_write(sum.sha256, sizeof sum.sha256, hex);
    bool ok = td_publish_repo_look(&publish->disk, &name, &repo, NULL) && repo.fd >= 0;
    int blobs = ok ? td_folder_open(repo.fd, "blobs") : -1;
    int fd = blobs < 0 ? -1 : openat(blobs, hex, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    td_folder_close(blobs);
    td_publish_repo_look_end(&repo);
    return fd;
}

int td_parts_open(struct td_publish *publish, const char *id, unsigned number, struct td_part_info *info)
{
    char item[16], path[TD_OWN_NAME_BYTES];
    (void)snprintf(item, sizeof item, "%05u", number);
    td_parts_path(id, item, path);
    int fd = openat(publish->disk.own.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && read_note(fd, number, info);
    if (fd >= 0 && (!ok || info->is_in_row)) {
        (void)close(fd);
        fd = -1;
    }
    if (!ok || !info->is_in_row)
        return fd;
    td_parts_path(id, TD_PARTS_ROW_NAME, path);
    fd = openat(publish->disk.own.fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 ? fd : open_placed(publish, id);
}

/* ---- joining ------------------------------------------------------------------------------------------- */

struct td_parts_row *td_parts_begin_join(struct td_publish *publish, const char *id, unsigned count)
{
    return td_parts_row_seal(publish, id, count);
}

void td_parts_unjoin(struct td_publish *publish, struct td_parts_row *row)
{
    td_parts_row_open(publish, row, false);
}

/* Notes, durably, which blob the row becomes, so that its parts can still be read. */
static bool note_placed(struct td_publish *publish, const struct td_parts_upload *upload,
                        const struct td_publish_sum *sum, struct td_error *err)
{
    return write_sum(publish, upload->id, TD_PARTS_PLACED_NAME, sum) || fail_io(upload, "complete an upload to", err);
}

bool td_parts_join(struct td_publish *publish, const struct td_parts_upload *upload, struct td_parts_row *row,
                   const struct td_publish_name *name, uint64_t size_bytes, struct td_publish_sum *sum,
                   struct td_error *err)
{
    char path[TD_OWN_NAME_BYTES];
    bool was_here = false;
    td_parts_path(upload->id, TD_PARTS_ROW_NAME, path);
    sum->size_bytes = size_bytes;
    bool ok = td_parts_row_sum(row, size_bytes, sum->sha256, err) && note_placed(publish, upload, sum, err) &&
              td_publish_place_blob(publish, name, path, sum->sha256, &was_here, err);
    td_parts_row_open(publish, row, true);
    if (ok && !was_here)
        td_publish_take_anyway(publish, size_bytes);
    return ok;
}
