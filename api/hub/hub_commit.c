/* A commit of the Hub's interface: its body becomes blobs as it arrives, and a list of paths; then a commit. */
#include "api/hub/hub_commit_lines.h"
#include "api/hub/hub_empty.h"
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish_stream.h"
#include "core/digits.h"

#include <stdlib.h>
#include <string.h>

/* A file that the commit adds. */
struct added {
    struct td_commit_file file;
    size_t turn; /* its place among the files */
};

struct commit_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_publish *publish;
    struct td_publish_name name;
    struct td_hub_commit_reader reader;
    struct td_publish_stream *stream; /* the content of the file in the current line; NULL: none has come */
    struct td_arena arena;            /* of the commit, from the caller's share of api->commits */
    struct added *added;
    size_t added_count, added_capacity;
    const char **deletions;
    size_t deletion_count, deletion_capacity;
    const char *message, *parent; /* parent NULL: any */
    struct td_error err;          /* why it has failed */
};

static struct commit_sink *of(struct td_body_sink *sink)
{
    return (struct commit_sink *)(void *)sink;
}

static const char *keep(struct commit_sink *self, struct td_text text, struct td_error *err)
{
    const char *copy = td_arena_strndup(&self->arena, text);
    if (copy == NULL)
        (void)td_arena_refuse(&self->arena, "the commit", err);
    return copy;
}

/* ---- lines ----------------------------------------------------------------------------------------------- */

static bool begin_stream(struct commit_sink *self, struct td_error *err)
{
    return self->stream != NULL ||
           td_publish_stream_begin(self->publish, &self->name, TD_FETCH_SIZE_UNKNOWN, &self->stream, err);
}

static bool take_content(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct commit_sink *self = context;
    return begin_stream(self, err) && td_publish_stream_write(self->stream, bytes, len, err);
}

static bool add_file(struct commit_sink *self, const struct td_commit_file *file, struct td_error *err)
{
    if (!td_commit_check_path(file->path, false, err))
        return false;
    struct added *grown =
        td_arena_grow(&self->arena, self->added, self->added_count, &self->added_capacity, sizeof *grown);
    if (grown == NULL)
        return td_arena_refuse(&self->arena, "the commit", err);
    self->added = grown;
    grown += self->added_count;
    *grown = (struct added){.file = *file, .turn = self->added_count};
    grown->file.path = keep(self, td_text_of(file->path), err);
    self->added_count++;
    return grown->file.path != NULL;
}

/* Adds the file whose content has ended. */
static bool end_file(struct commit_sink *self, const char *path, struct td_error *err)
{
    struct td_publish_sum sum;
    if (!begin_stream(self, err))
        return false;
    struct td_publish_stream *stream = self->stream;
    self->stream = NULL;
    if (!td_publish_stream_end(stream, NULL, &sum, err))
        return false;
    struct td_commit_file file = {.path = path, .size_bytes = sum.size_bytes, .has_size = true};
    memcpy(file.sha256, sum.sha256, sizeof file.sha256);
    return add_file(self, &file, err);
}

static bool add_lfs_file(struct commit_sink *self, const struct td_hub_operation *operation, struct td_error *err)
{
    struct td_commit_file file = {
        .path = operation->path, .size_bytes = operation->size_bytes, .has_size = operation->has_size};
    memcpy(file.sha256, operation->sha256, sizeof file.sha256);
    return add_file(self, &file, err);
}

/* Adds a path to delete. That of a folder ends in '/'. */
static bool add_deletion(struct commit_sink *self, const char *path, bool is_folder, struct td_error *err)
{
    struct td_buffer text;
    const char **grown = td_arena_grow(&self->arena, (void *)self->deletions, self->deletion_count,
                                       &self->deletion_capacity, sizeof *grown);
    if (grown == NULL)
        return td_arena_refuse(&self->arena, "the commit", err);
    self->deletions = grown;
    size_t len = strlen(path);
    td_buffer_init(&text);
    td_buffer_append(&text, path, len);
    if (is_folder && (len == 0 || path[len - 1] != '/'))
        td_buffer_putc(&text, '/');
    const char *copy = text.failed ? NULL : keep(self, td_buffer_text(&text), err);
    bool ok = copy != NULL || (text.failed && td_buffer_refuse(&text, err));
    td_buffer_fini(&text);
    if (ok)
        grown[self->deletion_count++] = copy;
    return ok;
}

/* Keeps the message, a summary and a description, as Git would have it, and the parent. */
static bool take_header(struct commit_sink *self, const struct td_hub_operation *operation, struct td_error *err)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, operation->summary);
    if (operation->description[0] != '\0')
        td_buffer_printf(&text, "\n\n%s", operation->description);
    self->message = text.failed ? NULL : keep(self, td_buffer_text(&text), err);
    bool ok = self->message != NULL || (text.failed && td_buffer_refuse(&text, err));
    td_buffer_fini(&text);
    if (ok && operation->parent != NULL)
        self->parent = keep(self, td_text_of(operation->parent), err);
    return ok && (operation->parent == NULL || self->parent != NULL);
}

static bool take_operation(void *context, const struct td_hub_operation *operation, struct td_error *err)
{
    struct commit_sink *self = context;
    switch (operation->line) {
    case TD_HUB_LINE_HEADER:
        return take_header(self, operation, err);
    case TD_HUB_LINE_FILE:
        return end_file(self, operation->path, err);
    case TD_HUB_LINE_LFS_FILE:
        return add_lfs_file(self, operation, err);
    case TD_HUB_LINE_DELETED_FILE:
        return add_deletion(self, operation->path, false, err);
    default:
        return add_deletion(self, operation->path, true, err);
    }
}

static const struct td_hub_line_visitor visitor = {.content = take_content, .operation = take_operation};

/* ---- the sink -------------------------------------------------------------------------------------------- */

static bool write_sink(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct commit_sink *self = of(sink);
    return td_hub_commit_reader_add(&self->reader, bytes, len, &self->err);
}

static void release_sink(struct td_body_sink *sink)
{
    struct commit_sink *self = of(sink);
    td_publish_stream_abandon(self->stream);
    td_hub_commit_reader_fini(&self->reader);
    td_arena_fini(&self->arena);
    free(self);
}

static const struct td_body_sink_ops ops = {.write = write_sink, .release = release_sink};

/* Checks, with the repository open, that the revision can be committed to. */
static bool check_revision(struct td_hub_write *write, const struct td_publish_repo *repo, const char *revision)
{
    char commit[TD_COMMIT_BYTES];
    struct td_error err = TD_ERROR_INIT;
    if (!td_commit_check_revision(revision, &err))
        return td_hub_fail_error(&write->hub, &err);
    return td_hub_write_resolve(write, repo, revision, commit);
}

/* Checks what can be known before the body. Returns false after it answered. */
static bool check_early(struct td_hub_write *write)
{
    struct td_publish_repo repo;
    if (!td_hub_write_begin(write))
        return false;
    if (td_hub_flag(&write->hub, "create_pr"))
        return td_hub_fail(&write->hub, 400, NULL,
                           "this server has no pull requests; commit to a branch (create_branch, --revision)");
    const char *revision = td_hub_write_copy(write, write->hub.revision);
    if (revision == NULL || !td_hub_write_open(write, &repo))
        return false;
    bool ok = check_revision(write, &repo, revision);
    td_publish_repo_close(&repo);
    return ok;
}

struct td_body_sink *td_hub_begin_commit(struct td_hub_write *write)
{
    struct td_api *api = write->hub.call->api;
    if (!check_early(write))
        return NULL;
    struct commit_sink *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)td_call_no_memory(write->hub.call);
        return NULL;
    }
    self->sink.ops = &ops;
    self->sink.is_document = true;
    self->publish = api->publish;
    self->name = write->name;
    self->message = "";
    td_error_init(&self->err);
    td_arena_init_budget(&self->arena, 0, td_shared_budget_of(&api->commits, td_call_client(write->hub.call)));
    td_hub_commit_reader_init(&self->reader, &visitor, self);
    return &self->sink;
}

/* ---- the commit ------------------------------------------------------------------------------------------ */

static int by_path(const void *a, const void *b)
{
    const struct added *x = a;
    const struct added *y = b;
    int order = strcmp(x->file.path, y->file.path);
    return order != 0 ? order : (x->turn > y->turn) - (x->turn < y->turn);
}

/* Lists the files; of several with one path the last one counts, as on the Hub. Returns NULL when memory is short. */
static const struct td_commit_file *list_files(struct commit_sink *self, size_t *count)
{
    struct td_commit_file *files = td_arena_array(&self->arena, self->added_count, sizeof *files);
    *count = 0;
    if (files == NULL)
        return NULL;
    if (self->added_count > 0)
        qsort(self->added, self->added_count, sizeof *self->added, by_path);
    for (size_t i = 0; i < self->added_count; i++)
        if (i + 1 == self->added_count || strcmp(self->added[i].file.path, self->added[i + 1].file.path) != 0)
            files[(*count)++] = self->added[i].file;
    return files;
}

/* Lengthens a parent that the client cut: its first 7 digits or more are enough. The commit that the description of an
 * empty repository has becomes "". */
static const char *whole_parent(const struct td_publish_repo *repo, const char *revision, const char *parent,
                                char commit[TD_COMMIT_BYTES])
{
    if (parent != NULL && !td_hub_write_has_main(repo) && td_hub_empty_commit(commit) && strcmp(parent, commit) == 0)
        return "";
    bool is_cut = parent != NULL && strlen(parent) >= 7 && strlen(parent) < TD_COMMIT_BYTES - 1 && !repo->is_new &&
                  td_publish_resolve(repo, revision, commit) && strncmp(parent, commit, strlen(parent)) == 0;
    return is_cut ? commit : parent;
}

static void answer_commit(struct td_hub_write *write, const struct td_commit_result *result)
{
    struct td_buffer url, json;
    struct td_document builder;
    td_buffer_init(&url);
    td_buffer_init(&json);
    td_hub_write_url(write, &url);
    td_buffer_printf(&url, "/commit/%s", result->commit);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_bool(&builder, "success", true);
    td_document_add_string(&builder, "commitOid", result->commit);
    td_document_add_text(&builder, "commitUrl", td_buffer_text(&url));
    td_document_add_string(&builder, "hookOutput", "");
    td_document_end(&builder);
    json.failed = json.failed || url.failed;
    td_buffer_fini(&url);
    td_hub_write_answer(write, &json);
}

/* Answers 422: the first file that is not here. */
static void answer_missing(struct td_hub_write *write, const struct td_commit_order *order,
                           const struct td_commit_result *result)
{
    char hex[TD_SHA256_TEXT_BYTES];
    const struct td_commit_file *file = &order->files[result->missing[0]];
    td_hex_write(file->sha256, sizeof file->sha256, hex);
    (void)td_hub_fail(&write->hub, 422, NULL,
                      "the content of %zu files was not uploaded; the first is \"%.200s\", with the SHA-256 %s",
                      result->missing_count, file->path, hex);
}

static void answer_result(struct td_hub_write *write, const struct td_commit_order *order,
                          const struct td_commit_result *result)
{
    if (result->verdict == TD_COMMIT_LACKS_BLOBS)
        answer_missing(write, order, result);
    else if (result->verdict == TD_COMMIT_WRONG_PARENT)
        (void)td_hub_fail(&write->hub, 412, NULL,
                          "\"%.100s\" is at commit %s, not at the parent \"%.50s\": somebody has committed since",
                          order->revision, result->parent[0] == '\0' ? "none" : result->parent, order->parent);
    else
        answer_commit(write, result);
}

/* Makes the commit in the open repository, which it closes. */
static void commit(struct td_hub_write *write, struct commit_sink *self, struct td_publish_repo *repo,
                   const char *revision)
{
    char parent[TD_COMMIT_BYTES];
    struct td_commit_result result = {.missing = NULL};
    struct td_commit_order order = {.revision = revision,
                                    .parent = whole_parent(repo, revision, self->parent, parent),
                                    .keep = true,
                                    .deletions = self->deletions,
                                    .deletion_count = self->deletion_count,
                                    .message = self->message};
    order.files = list_files(self, &order.file_count);
    if (order.files == NULL) {
        td_publish_repo_close(repo);
        (void)td_call_no_memory(write->hub.call);
        return;
    }
    if (td_publishing_commit(write->hub.call, repo, &order, &result))
        answer_result(write, &order, &result);
    else if (write->hub.call->response->status == 404) /* a path to delete */
        td_response_add_header(write->hub.call->response, "X-Error-Code", "EntryNotFound");
    td_commit_result_fini(&result);
}

void td_hub_end_commit(struct td_hub_write *write)
{
    struct td_publish_repo repo;
    const struct td_call *call = write->hub.call;
    if (!td_hub_write_begin(write)) /* the token may have been revoked */
        return;
    struct commit_sink *self = of(call->request->sink);
    if (!call->request->is_whole || !td_hub_commit_reader_end(&self->reader, &self->err)) {
        td_publishing_fail(call, &self->err, 413);
        return;
    }
    const char *revision = td_hub_write_copy(write, write->hub.revision);
    if (revision == NULL || !td_hub_write_open(write, &repo))
        return;
    if (check_revision(write, &repo, revision))
        commit(write, self, &repo, revision);
    else
        td_publish_repo_close(&repo);
}
