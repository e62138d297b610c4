/* Plan: the file is opened once, and everything is asked of the open descriptor: kind, owner, mode, content. token_text
 * reads the content. A change reads the file, writes the new one beside it, and renames it into place.
 *
 * What is hard: two writers. Both would read the old file, and one change would be lost. So a writer holds a lock
 * (flock) on the directory, which no rename replaces, from before it reads until after it renames. */
#include "http/auth/token_file.h"

#include "core/buffer.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "core/message/document.h"
#include "core/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PATH_SHOWN = 160,  /* bytes of a path that a message shows */
    SECRET_BYTES = 32, /* of a new token */
    LOCK_TRIES = 1000,
    LOCK_PAUSE_MS = 10 /* together 10 s */
};

/* ---- reading the file ----------------------------------------------------------------------------------- */

/* The first characters of every token's text. */
static const struct td_text token_prefix = {"td_", 3};

bool td_token_file_is_token(struct td_text text)
{
    if (text.len < TD_TOKEN_TEXT_BYTES - 1 || !td_text_begins(text, token_prefix))
        return false;
    for (size_t i = token_prefix.len; i < TD_TOKEN_TEXT_BYTES - 1; i++)
        if (isalnum((unsigned char)text.p[i]) == 0 && text.p[i] != '-' && text.p[i] != '_')
            return false;
    return true;
}

/* Refuses a token in place of a path, which no message may show. */
static bool check_path(const char *path, struct td_error *err)
{
    return !td_token_file_is_token(td_text_of(path)) ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "a token stands where the path of the tokens file belongs; give the path of the file that "
                        "tensord token new wrote, and revoke the token, since other users can see command lines");
}

/* Refuses a file that others may read or change, with the command that helps. */
static bool check_owner(const struct stat *st, const char *path, struct td_error *err)
{
    unsigned mode = (unsigned)st->st_mode & 07777U;
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return td_error_set(err, TD_PERMISSION_DENIED,
                            "the tokens file \"%.*s\" belongs to user %lu; it must belong to user %lu, as which this "
                            "program runs, or to root: chown %lu it",
                            TD_SHOW(td_text_of(path), PATH_SHOWN), (unsigned long)st->st_uid, (unsigned long)geteuid(),
                            (unsigned long)geteuid());
    if (mode != 0600 && mode != 0400 && mode != 0640 && mode != 0440)
        return td_error_set(err, TD_PERMISSION_DENIED,
                            "the tokens file \"%.*s\" has mode %04o; 0600, 0400, 0640 or 0440 are allowed, since "
                            "a program that reads it can sign for every token: chmod 0600 it",
                            TD_SHOW(td_text_of(path), PATH_SHOWN), mode);
    return true;
}

/* Frees a buffer that held secrets. */
static void erase(struct td_buffer *buffer)
{
    if (buffer->data != NULL)
        OPENSSL_cleanse(buffer->data, buffer->capacity);
    td_buffer_fini(buffer);
}

/* Makes room for `more` bytes, and leaves no copy of the content in freed memory. */
static bool reserve_content(struct td_buffer *buffer, size_t more, struct td_error *err)
{
    struct td_buffer larger;
    if (buffer->capacity - buffer->len > more) /* one byte may be for a NUL */
        return true;
    td_buffer_init(&larger);
    if (!td_buffer_reserve(&larger, buffer->len + buffer->capacity + more + 1)) {
        (void)td_buffer_refuse(&larger, err);
        td_buffer_fini(&larger);
        return false;
    }
    td_buffer_append(&larger, buffer->data, buffer->len);
    erase(buffer);
    *buffer = larger;
    return true;
}

/* Appends the content. Reads on to the end, since a file may grow after its size was asked for. */
static bool read_content(int fd, const char *path, struct td_buffer *out, struct td_error *err)
{
    enum { STEP = 64 * 1024 };
    for (;;) {
        if (!reserve_content(out, STEP, err))
            return false;
        ssize_t n = read(fd, out->data + out->len, STEP);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_error_sys(err, TD_IO, errno, "cannot read the tokens file \"%.*s\"",
                                TD_SHOW(td_text_of(path), PATH_SHOWN));
        if (n == 0)
            return true;
        out->len += (size_t)n;
        if (out->len > TD_TOKEN_FILE_BYTES)
            return td_error_set(err, TD_FAILED_PRECONDITION,
                                "the tokens file \"%.*s\" has more than %d bytes, too many for %d tokens",
                                TD_SHOW(td_text_of(path), PATH_SHOWN), TD_TOKEN_FILE_BYTES, TD_TOKENS_MAX);
    }
}

/* Appends the content of the file if nobody else may read or change it, and sets *st. Does not wait for the writer of a
 * FIFO. A missing file is TD_IO with ENOENT. */
static bool read_file(const char *path, struct td_buffer *out, struct stat *st, struct td_error *err)
{
    if (!check_path(path, err))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return td_error_sys(err, TD_IO, errno, "cannot open the tokens file \"%.*s\"",
                            TD_SHOW(td_text_of(path), PATH_SHOWN));
    bool is_regular = fstat(fd, st) == 0 && S_ISREG(st->st_mode);
    bool ok = is_regular ? check_owner(st, path, err) && read_content(fd, path, out, err)
                         : td_error_set(err, TD_FAILED_PRECONDITION, "the tokens file \"%.*s\" is not a regular file",
                                        TD_SHOW(td_text_of(path), PATH_SHOWN));
    (void)close(fd);
    return ok;
}

/* Sets *err to the fault with the file's name and the line of the fault's position. A mistake in the file is not one of
 * the caller's arguments, so TD_INVALID_ARGUMENT becomes TD_FAILED_PRECONDITION. Returns false. */
static bool report_fault(const char *path, struct td_text text, const struct td_error *fault, struct td_error *err)
{
    enum td_code code = fault->code == TD_INVALID_ARGUMENT ? TD_FAILED_PRECONDITION : fault->code;
    size_t line;
    size_t column;
    if (fault->pos == TD_ERROR_POS_NONE)
        return td_error_set(err, code, "the tokens file \"%.*s\": %s", TD_SHOW(td_text_of(path), PATH_SHOWN),
                            fault->message);
    td_text_locate(text, fault->pos, &line, &column);
    return td_error_set(err, code, "the tokens file \"%.*s\", line %zu, column %zu: %s",
                        TD_SHOW(td_text_of(path), PATH_SHOWN), line, column, fault->message);
}

/* Reads the file; *st is that of the file. */
static bool read_set(const char *path, struct td_token_set **out, struct stat *st, struct td_error *err)
{
    struct td_buffer content;
    struct td_error fault = TD_ERROR_INIT;
    td_buffer_init(&content);
    bool ok = read_file(path, &content, st, err);
    if (ok) {
        ok = td_token_text_parse(td_buffer_text(&content), out, &fault);
        if (!ok)
            (void)report_fault(path, td_buffer_text(&content), &fault, err);
    }
    erase(&content);
    return ok;
}

bool td_token_file_read(const char *path, struct td_token_set **out, struct td_error *err)
{
    struct stat st;
    return read_set(path, out, &st, err);
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* A tokens file that is being changed. */
struct change {
    char path[PATH_MAX]; /* of the file itself, when the caller's path is a link */
    char directory[PATH_MAX];
    int lock_fd; /* of the directory, locked; -1: none */
    bool exists;
    struct stat st; /* of the file, if it exists */
    struct td_token_set *set;
};

static bool refuse_path(const char *path, int sys, struct td_error *err)
{
    return td_error_sys(err, TD_IO, sys, "cannot write the tokens file \"%.*s\"",
                        TD_SHOW(td_text_of(path), PATH_SHOWN));
}

/* Sets the path and directory of the file to which the caller's path leads. */
static bool resolve_path(struct change *change, const char *path, struct td_error *err)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof change->path)
        return refuse_path(path, ENAMETOOLONG, err);
    if (realpath(path, change->path) == NULL) {
        struct stat st;
        if (errno != ENOENT)
            return refuse_path(path, errno, err);
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
            return td_error_set(
                err, TD_FAILED_PRECONDITION,
                "the tokens file \"%.*s\" is a link to a file that does not exist, and would be replaced "
                "by a file: name the file itself, or remove the link",
                TD_SHOW(td_text_of(path), PATH_SHOWN));
        (void)snprintf(change->path, sizeof change->path, "%s", path);
    }
    (void)snprintf(copy, sizeof copy, "%s", change->path);
    (void)snprintf(change->directory, sizeof change->directory, "%s", dirname(copy));
    return true;
}

/* Waits for other writers, at most 10 s. */
static bool lock(struct change *change, struct td_error *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
    change->lock_fd = open(change->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (change->lock_fd < 0)
        return refuse_path(change->path, errno, err);
    for (int i = 0; flock(change->lock_fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return refuse_path(change->path, errno, err);
        if (i == LOCK_TRIES)
            return td_error_set(err, TD_UNAVAILABLE,
                                "another program holds the lock on the directory of \"%.*s\"; try again when it ends",
                                TD_SHOW(td_text_of(change->path), PATH_SHOWN));
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static bool random_bytes(uint8_t *bytes, size_t len, struct td_error *err)
{
    /* up to 256 bytes come whole, or not at all */
    return getrandom(bytes, len, 0) == (ssize_t)len || td_error_sys(err, TD_IO, errno, "cannot get random bytes");
}

/* Makes a set without tokens, with a new master key. */
static bool create_set(struct change *change, struct td_error *err)
{
    uint8_t key[TD_TOKEN_KEY_BYTES];
    if (random_bytes(key, sizeof key, err))
        change->set = td_token_set_create(key, NULL, 0, err);
    OPENSSL_cleanse(key, sizeof key);
    return change->set != NULL;
}

/* Locks and reads the file. With `create`, a missing file is one without tokens. The caller calls change_end in any
 * case. */
static bool change_begin(struct change *change, const char *path, bool create, struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    *change = (struct change){.lock_fd = -1};
    if (!resolve_path(change, path, err) || !lock(change, err))
        return false;
    change->exists = read_set(change->path, &change->set, &change->st, &why);
    if (change->exists)
        return true;
    return create && why.sys == ENOENT ? create_set(change, err) : td_error_copy(err, &why);
}

static void change_end(struct change *change)
{
    td_token_set_unref(change->set);
    if (change->lock_fd >= 0)
        (void)close(change->lock_fd);
}

static void add_time(struct td_document *json, const char *key, int64_t seconds)
{
    char text[40];
    (void)td_wall_rfc3339((struct td_wall){.seconds = seconds}, text, sizeof text);
    td_document_add_string(json, key, text);
}

void td_token_add_members(struct td_document *json, const struct td_token *token)
{
    if (token->models == NULL) {
        td_document_add_null(json, "models");
    } else {
        td_document_begin_array(json, "models");
        for (size_t i = 0; token->models[i] != NULL; i++)
            td_document_add_string(json, NULL, token->models[i]);
        td_document_end(json);
    }
    td_document_begin_array(json, "rights");
    if ((token->rights & TD_RIGHT_READ) != 0)
        td_document_add_string(json, NULL, "read");
    if ((token->rights & TD_RIGHT_WRITE) != 0)
        td_document_add_string(json, NULL, "write");
    td_document_end(json);
    if (token->expires_s == 0)
        td_document_add_null(json, "expires");
    else
        add_time(json, "expires", token->expires_s);
}

static void add_token(struct td_document *json, const struct td_token *token)
{
    char digest[TD_SHA256_TEXT_BYTES];
    td_hex_write(token->sha256, TD_SHA256_BYTES, digest);
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "name", token->name);
    td_document_add_string(json, "sha256", digest);
    td_token_add_members(json, token);
    if (token->created_s != 0)
        add_time(json, "created", token->created_s);
    td_document_end(json);
}

/* Appends the text of a file. Each token stands on a line of its own. */
static bool write_text(const struct td_token_set *set, const struct td_token *tokens, size_t count,
                       struct td_buffer *out, struct td_error *err)
{
    char key[TD_BASE64URL_CHARS(TD_TOKEN_KEY_BYTES)];
    struct td_document json;
    td_base64url_write(td_token_set_master_key(set), TD_TOKEN_KEY_BYTES, key);
    td_buffer_printf(out, "{\"version\": 1,\n \"master_key\": \"%.*s\",\n \"tokens\": [", (int)sizeof key, key);
    for (size_t i = 0; i < count; i++) {
        td_buffer_puts(out, i == 0 ? "\n  " : ",\n  ");
        td_document_init(&json, out);
        add_token(&json, &tokens[i]);
    }
    td_buffer_puts(out, "]}\n");
    OPENSSL_cleanse(key, sizeof key);
    return !out->failed || td_buffer_refuse(out, err);
}

/* Gives the new file the owner and the mode of the old one. Only root can give files away. */
static bool keep_owner(int fd, const struct change *change)
{
    struct stat st;
    if (!change->exists)
        return true; /* 0600, by mkostemp */
    bool is_same = fstat(fd, &st) == 0 && st.st_uid == change->st.st_uid && st.st_gid == change->st.st_gid;
    return (is_same || fchown(fd, change->st.st_uid, change->st.st_gid) == 0) &&
           fchmod(fd, change->st.st_mode & 07777) == 0;
}

/* Writes the text to a new file beside the old one, and renames it into place. */
static bool replace_file(const struct change *change, struct td_text text, struct td_error *err)
{
    static const char end[] = ".XXXXXX";
    char temporary[PATH_MAX + sizeof end];
    (void)snprintf(temporary, sizeof temporary, "%s%s", change->path, end);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return refuse_path(change->path, errno, err);
    bool ok = td_write_all(fd, text.p, text.len) && keep_owner(fd, change) && fsync(fd) == 0 &&
              rename(temporary, change->path) == 0;
    int sys = errno;
    (void)close(fd);
    if (ok)
        return fsync(change->lock_fd) == 0 || refuse_path(change->path, errno, err);
    (void)unlink(temporary);
    return refuse_path(change->path, sys, err);
}

/* Checks that the text is one that can be read again: else the server would keep its old tokens, and no later change
 * would be possible. */
static bool check_text(struct td_text text, struct td_error *err)
{
    struct td_token_set *set = NULL;
    struct td_error why = TD_ERROR_INIT;
    if (!td_token_text_parse(text, &set, &why))
        return td_error_set(err, why.code, "the changed tokens file could not be read again, so it stays as it was: %s",
                            why.message);
    td_token_set_unref(set);
    return true;
}

/* Writes a file with these tokens. */
static bool change_write(const struct change *change, const struct td_token *tokens, size_t count, struct td_error *err)
{
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = write_text(change->set, tokens, count, &text, err);
    if (ok && text.len > TD_TOKEN_FILE_BYTES)
        ok = td_error_set(err, TD_FAILED_PRECONDITION, "the tokens file would have more than %d bytes",
                          TD_TOKEN_FILE_BYTES);
    ok = ok && check_text(td_buffer_text(&text), err) && replace_file(change, td_buffer_text(&text), err);
    erase(&text);
    return ok;
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static bool check_new(const struct change *change, const struct td_new_token *token, struct td_error *err)
{
    struct td_text name = td_text_of(token->name);
    size_t count = 0;
    size_t bytes = 0;
    if (!td_token_name_is_valid(name))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "a token's name has 1 to %d letters, digits, \".\", \"_\" and \"-\", not \"%.*s\"",
                            TD_TOKEN_NAME_MAX, TD_SHOW(name, 80));
    for (; token->models != NULL && token->models[count] != NULL; count++) {
        struct td_text glob = td_text_of(token->models[count]);
        if (glob.len == 0 || glob.len > TD_TOKEN_GLOB_BYTES || !td_utf8_valid(glob.p, glob.len))
            return td_error_set(err, TD_INVALID_ARGUMENT, "a glob of models has 1 to %d bytes of UTF-8, not \"%.*s\"",
                                TD_TOKEN_GLOB_BYTES, TD_SHOW(glob, 80));
        bytes += glob.len;
    }
    if (count > TD_TOKEN_MODELS_MAX)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a token has at most %d globs of models", TD_TOKEN_MODELS_MAX);
    if (bytes > TD_TOKEN_MODELS_BYTES)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the globs of models of a token have at most %d bytes together",
                            TD_TOKEN_MODELS_BYTES);
    if (td_token_set_find_name(change->set, name) != NULL)
        return td_error_set(err, TD_CONFLICT, "there is a token \"%s\" already; revoke it first, or take another name",
                            token->name);
    return td_token_set_count(change->set) < TD_TOKENS_MAX ||
           td_error_set(err, TD_FAILED_PRECONDITION, "the file has %d tokens, the most that it may have",
                        TD_TOKENS_MAX);
}

/* Makes a token's text and its digest. */
static bool make_text(char text[TD_TOKEN_TEXT_BYTES], uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    uint8_t bytes[SECRET_BYTES];
    if (!random_bytes(bytes, sizeof bytes, err))
        return false;
    memcpy(text, token_prefix.p, token_prefix.len);
    td_base64url_write(bytes, sizeof bytes, text + token_prefix.len);
    text[TD_TOKEN_TEXT_BYTES - 1] = '\0';
    td_sha256(text, TD_TOKEN_TEXT_BYTES - 1, sha256);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return true;
}

/* Returns a copy of the set's tokens with room for one more, or NULL. The caller frees the copy. */
static struct td_token *copy_tokens(const struct td_token_set *set, struct td_error *err)
{
    size_t count = td_token_set_count(set);
    struct td_token *tokens = calloc(count + 1, sizeof *tokens);
    if (tokens == NULL)
        (void)td_error_no_memory(err);
    else if (count > 0)
        memcpy(tokens, td_token_set_tokens(set), count * sizeof *tokens);
    return tokens;
}

static bool add_to(const struct change *change, const struct td_new_token *token, char text[TD_TOKEN_TEXT_BYTES],
                   struct td_token_set **out, struct td_error *err)
{
    size_t count = td_token_set_count(change->set);
    struct td_token *tokens = copy_tokens(change->set, err);
    if (tokens == NULL)
        return false;
    tokens[count] = (struct td_token){.name = token->name,
                                      .models = token->models,
                                      .rights = TD_RIGHT_READ | (token->may_write ? TD_RIGHT_WRITE : 0),
                                      .expires_s = token->expires_s,
                                      .created_s = td_wall_now().seconds};
    bool ok = make_text(text, tokens[count].sha256, err);
    if (ok)
        *out = td_token_set_create(td_token_set_master_key(change->set), tokens, count + 1, err);
    ok = ok && *out != NULL && change_write(change, tokens, count + 1, err);
    free(tokens);
    return ok;
}

bool td_token_file_add(const char *path, const struct td_new_token *token, char text[TD_TOKEN_TEXT_BYTES],
                       struct td_token_set **out, struct td_error *err)
{
    struct change change;
    *out = NULL;
    bool ok = change_begin(&change, path, true, err) && check_new(&change, token, err) &&
              add_to(&change, token, text, out, err);
    change_end(&change);
    if (ok)
        return true;
    td_token_set_unref(*out);
    *out = NULL;
    return false;
}

static bool remove_from(const struct change *change, const char *name, struct td_error *err)
{
    const struct td_token *found = td_token_set_find_name(change->set, td_text_of(name));
    size_t count = td_token_set_count(change->set);
    if (found == NULL)
        return td_error_set(err, TD_NOT_FOUND, "there is no token \"%.*s\"; tensord token list shows all",
                            TD_SHOW(td_text_of(name), 80));
    struct td_token *tokens = copy_tokens(change->set, err);
    if (tokens == NULL)
        return false;
    size_t at = (size_t)(found - td_token_set_tokens(change->set));
    memmove(tokens + at, tokens + at + 1, (count - at - 1) * sizeof *tokens);
    bool ok = change_write(change, tokens, count - 1, err);
    free(tokens);
    return ok;
}

bool td_token_file_remove(const char *path, const char *name, struct td_error *err)
{
    struct change change;
    bool ok = change_begin(&change, path, false, err) && remove_from(&change, name, err);
    change_end(&change);
    return ok;
}
