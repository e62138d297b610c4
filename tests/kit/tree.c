#include "tests/kit/tree.h"

#include "core/buffer.h"
#include "tests/kit/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const int64_t settled_age_ns = INT64_C(60000000000);

static int remove_item(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_all(const char *path)
{
    KIT_CHECK(nftw(path, remove_item, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

void tree_open(struct tree *tree)
{
    const char *base = getenv("TMPDIR");
    int n = snprintf(tree->path, sizeof tree->path, "%s/tensord-test-XXXXXX", base == NULL ? "/tmp" : base);
    KIT_CHECK(n > 0 && (size_t)n < sizeof tree->path);
    KIT_CHECK(mkdtemp(tree->path) != NULL);
    /* The path must have no symlinks, so that the server takes absolute links in a tree for links inside it. */
    char *real = realpath(tree->path, NULL);
    KIT_CHECK(real != NULL && strlen(real) < sizeof tree->path);
    memcpy(tree->path, real, strlen(real) + 1);
    free(real);
}

void tree_close(struct tree *tree)
{
    remove_all(tree->path);
}

void tree_at(const struct tree *tree, const char *name, char out[TREE_PATH_BYTES])
{
    int n = snprintf(out, TREE_PATH_BYTES, *name == '\0' ? "%s" : "%s/%s", tree->path, name);
    KIT_CHECK(n > 0 && n < TREE_PATH_BYTES);
}

static void make_parents(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        KIT_CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

static void new_path(const struct tree *tree, const char *name, char out[TREE_PATH_BYTES])
{
    tree_at(tree, name, out);
    make_parents(out);
}

void tree_directory(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    new_path(tree, name, path);
    KIT_CHECK(mkdir(path, 0755) == 0 || errno == EEXIST);
}

static void write_all(int fd, const void *bytes, size_t len, uint64_t off)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)(off + done));
        KIT_CHECK(n > 0);
        done += (size_t)n;
    }
}

void tree_write(const struct tree *tree, const char *name, const void *bytes, size_t len)
{
    char path[TREE_PATH_BYTES];
    new_path(tree, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    KIT_CHECK(fd >= 0);
    write_all(fd, bytes, len, 0);
    KIT_CHECK(close(fd) == 0);
    tree_set_age(tree, name, settled_age_ns);
}

void tree_text(const struct tree *tree, const char *name, const char *text)
{
    tree_write(tree, name, text, strlen(text));
}

void tree_copy(const struct tree *tree, const char *from, const char *name)
{
    char bytes[65536];
    FILE *file = fopen(from, "rb");
    KIT_CHECK(file != NULL);
    size_t len = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    KIT_CHECK(len > 0 && len < sizeof bytes);
    tree_write(tree, name, bytes, len);
}

void tree_poke(const struct tree *tree, const char *name, uint64_t off, const void *bytes, size_t len)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, name, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    KIT_CHECK(fd >= 0);
    write_all(fd, bytes, len, off);
    KIT_CHECK(close(fd) == 0);
}

void tree_truncate(const struct tree *tree, const char *name, uint64_t size)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, name, path);
    KIT_CHECK(truncate(path, (off_t)size) == 0);
}

void tree_symlink(const struct tree *tree, const char *name, const char *target)
{
    char path[TREE_PATH_BYTES];
    new_path(tree, name, path);
    KIT_CHECK(symlink(target, path) == 0);
}

void tree_fifo(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    new_path(tree, name, path);
    KIT_CHECK(mkfifo(path, 0644) == 0);
}

void tree_rename(const struct tree *tree, const char *from, const char *to)
{
    char old[TREE_PATH_BYTES];
    char new[TREE_PATH_BYTES];
    tree_at(tree, from, old);
    new_path(tree, to, new);
    KIT_CHECK(rename(old, new) == 0);
}

void tree_remove(const struct tree *tree, const char *name)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, name, path);
    remove_all(path);
}

void tree_set_age(const struct tree *tree, const char *name, int64_t age_ns)
{
    char path[TREE_PATH_BYTES];
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
    tree_at(tree, name, path);
    KIT_CHECK(clock_gettime(CLOCK_REALTIME, &times[1]) == 0);
    int64_t ns = (int64_t)times[1].tv_sec * 1000000000 + times[1].tv_nsec - age_ns;
    times[1].tv_sec = (time_t)(ns / 1000000000);
    times[1].tv_nsec = (long)(ns % 1000000000);
    KIT_CHECK(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0);
}

/* ---- safetensors --------------------------------------------------------------------------------------- */

uint64_t tree_tensors(const struct tree *tree, const char *name, const struct tree_tensor *tensors, size_t count,
                      const char *metadata, unsigned salt)
{
    struct td_buffer file;
    uint64_t data = 0;
    char prefix[8] = {0};
    td_buffer_init(&file);
    td_buffer_append(&file, prefix, sizeof prefix);
    td_buffer_putc(&file, '{');
    if (metadata != NULL)
        td_buffer_printf(&file, "\"__metadata__\":%s%s", metadata, count > 0 ? "," : "");
    for (size_t i = 0; i < count; i++) {
        td_buffer_printf(&file, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                         i > 0 ? "," : "", tensors[i].name, tensors[i].dtype, tensors[i].shape,
                         (unsigned long long)data, (unsigned long long)(data + tensors[i].nbytes));
        data += tensors[i].nbytes;
    }
    td_buffer_putc(&file, '}');
    size_t begin = file.len;
    for (uint64_t i = 0; i < data; i++)
        td_buffer_putc(&file, (char)tree_data_byte(i, salt));
    KIT_CHECK(!file.failed);
    for (size_t i = 0; i < sizeof prefix; i++)
        file.data[i] = (char)((uint64_t)(begin - sizeof prefix) >> 8 * i);
    tree_write(tree, name, file.data, file.len);
    td_buffer_fini(&file);
    return begin;
}

/* Takes the next word, up to a blank, off *text. Returns false at the end. */
static bool next_word(const char **text, char *out, size_t capacity)
{
    *text += strspn(*text, " ");
    size_t len = strcspn(*text, " ");
    KIT_CHECK(len < capacity);
    memcpy(out, *text, len);
    out[len] = '\0';
    *text += len;
    return len > 0;
}

void tree_simple(const struct tree *tree, const char *name, const char *tensor_names)
{
    enum { MOST = 64, WORD = 64 };
    char words[MOST][WORD];
    struct tree_tensor tensors[MOST];
    size_t count = 0;
    while (count < MOST && next_word(&tensor_names, words[count], WORD)) {
        tensors[count] = (struct tree_tensor){words[count], "F32", "[2]", 8};
        count++;
    }
    (void)tree_tensors(tree, name, tensors, count, NULL, 0);
}

void tree_index(const struct tree *tree, const char *name, const char *pairs)
{
    char tensor[256];
    char file[256];
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
    for (bool first = true; next_word(&pairs, tensor, sizeof tensor); first = false) {
        KIT_CHECK(next_word(&pairs, file, sizeof file));
        td_buffer_printf(&text, "%s\"%s\":\"%s\"", first ? "" : ",", tensor, file);
    }
    td_buffer_puts(&text, "}}");
    KIT_CHECK(!text.failed);
    tree_write(tree, name, text.data, text.len);
    td_buffer_fini(&text);
}
