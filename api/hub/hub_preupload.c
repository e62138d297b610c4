/* Requests of the Hub's clients before they send files: how each file shall come, and where large ones go. */
#define OPENSSL_API_COMPAT 0x10101000L /* as core/digest.c says */
#include "api/call/access.h"
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_tree.h"
#include "catalog/publish/publish_upload.h"
#include "core/clock.h"
#include "core/digits.h"
#include "http/auth/signed_url.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of up to so many bytes come in the commit, so a client without a choice of protocols can send them. */
enum { REGULAR_BYTES = 8 * 1024 * 1024 };

/* Most bytes of files that one request has hashed as Git does; further files are sent again. */
#define GIT_HASH_BYTES (UINT64_C(256) * 1024 * 1024)

/* Signed URLs for uploads are good for a day: a client gets them for all files before it sends the first one. */
#define SIGNED_S UINT64_C(86400)

/* ---- preupload ------------------------------------------------------------------------------------------- */

/* A list of files, and the revision that they are for. */
struct asking {
    struct td_hub_write *write;
    struct td_hub_body *body;
    struct td_publish_repo repo;
    char commit[TD_COMMIT_BYTES]; /* empty: the repository has none */
    uint64_t hashed_bytes;
    struct td_json_builder json;
};

/* Writes Git's name for the content of the file, which has this size. Returns false when it cannot be read. */
static bool git_name(int fd, uint64_t size_bytes, char name[TD_COMMIT_BYTES])
{
    char block[16 * 1024];
    uint8_t sum[SHA_DIGEST_LENGTH];
    uint64_t left = size_bytes;
    SHA_CTX sha;
    int head = snprintf(block, sizeof block, "blob %" PRIu64, size_bytes);
    (void)SHA1_Init(&sha);
    (void)SHA1_Update(&sha, block, (size_t)head + 1);
    while (left > 0) {
        ssize_t got = read(fd, block, left < sizeof block ? (size_t)left : sizeof block);
        if (got <= 0)
            return false;
        (void)SHA1_Update(&sha, block, (size_t)got);
        left -= (uint64_t)got;
    }
    (void)SHA1_Final(sum, &sha);
    td_hex_write(sum, sizeof sum, name);
    return true;
}

/* Writes Git's name for the content of a blob, if it has this size. Returns false if not, and when too much has been
 * hashed for this request. */
static bool git_name_of(struct asking *asking, const char *hex, uint64_t size_bytes, char name[TD_COMMIT_BYTES])
{
    struct stat st;
    int blobs = td_folder_open(asking->repo.fd, "blobs");
    int fd = blobs < 0 ? -1 : openat(blobs, hex, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    td_folder_close(blobs);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size_bytes &&
              size_bytes <= GIT_HASH_BYTES - asking->hashed_bytes && git_name(fd, size_bytes, name);
    asking->hashed_bytes += ok ? size_bytes : 0;
    td_folder_close(fd);
    return ok;
}

/* Adds the name of what the revision has at this path, by which the client sees that the file has not changed. */
static void add_oid(struct asking *asking, const char *path, uint64_t size_bytes, bool is_regular)
{
    uint8_t sha256[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    char name[TD_COMMIT_BYTES];
    if (asking->commit[0] == '\0' || !td_publish_tree_find(&asking->repo, asking->commit, path, sha256))
        return;
    td_hex_write(sha256, sizeof sha256, hex);
    if (!is_regular)
        td_json_add_string(&asking->json, "oid", hex);
    else if (git_name_of(asking, hex, size_bytes, name))
        td_json_add_string(&asking->json, "oid", name);
}

/* Returns whether the file shall come in the commit. The datasets library removes its Parquet files once they are sent
 * as large files, which they are on the Hub whatever their size. */
static bool comes_in_commit(const struct asking *asking, const char *path, uint64_t size_bytes)
{
    return size_bytes == 0 ||
           (size_bytes <= REGULAR_BYTES && !(asking->write->hub.as_dataset && td_has_extension(path, ".parquet")));
}

static bool answer_file(struct asking *asking, const cJSON *file)
{
    struct td_json_document *document = &asking->body->document;
    uint64_t size_bytes = 0;
    const cJSON *size = cJSON_IsObject(file) ? cJSON_GetObjectItemCaseSensitive(file, "size") : NULL;
    if (size == NULL)
        return td_json_document_fail(document, file, "a file has \"path\" and \"size\"") ||
               td_hub_write_refuse(asking->write, asking->body);
    if (!td_json_document_u64(document, size, &size_bytes))
        return td_hub_write_refuse(asking->write, asking->body);
    const char *path = td_hub_write_string(asking->write, asking->body, file, "path", "");
    if (path == NULL)
        return false;
    bool is_regular = comes_in_commit(asking, path, size_bytes);
    bool is_hidden = td_commit_check_path(path, true, NULL) && !td_commit_check_path(path, false, NULL);
    td_json_begin_object(&asking->json, NULL);
    td_json_add_string(&asking->json, "path", path);
    td_json_add_string(&asking->json, "uploadMode", is_regular ? "regular" : "lfs");
    td_json_add_bool(&asking->json, "shouldIgnore", is_hidden);
    if (td_commit_check_path(path, false, NULL)) /* a path that no file of a commit has, such as "..", is not opened */
        add_oid(asking, path, size_bytes, is_regular);
    td_json_end(&asking->json);
    td_json_flush(&asking->json);
    return true;
}

static bool answer_files(struct asking *asking)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(asking->body->root, "files");
    if (!cJSON_IsArray(files))
        return td_hub_fail(&asking->write->hub, 400, NULL, "\"files\" is an array");
    td_json_begin_object(&asking->json, NULL);
    td_json_begin_array(&asking->json, "files");
    for (const cJSON *file = files->child; file != NULL; file = file->next)
        if (!answer_file(asking, file))
            return false;
    td_json_end(&asking->json);
    td_json_end(&asking->json);
    return true;
}

void td_hub_preupload(struct td_hub_write *write)
{
    struct td_hub_body body;
    struct td_buffer out;
    struct asking asking = {.write = write, .body = &body};
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *revision = td_hub_write_copy(write, write->hub.revision);
    if (revision == NULL || !td_hub_write_look(write, &asking.repo))
        return;
    td_buffer_init(&out);
    td_json_builder_init(&asking.json, &out);
    bool ok = td_hub_write_resolve(write, &asking.repo, revision, asking.commit) && answer_files(&asking);
    td_publish_repo_look_end(&asking.repo);
    td_json_builder_fini(&asking.json);
    if (ok)
        td_hub_write_answer(write, &out);
    td_buffer_fini(&out);
}

/* ---- Git LFS --------------------------------------------------------------------------------------------- */

/* Writes the URL to which the client sends the blob, without a token: the native one, signed where there are tokens.
 * Returns false after it answered. */
static bool write_href(struct td_hub_write *write, const char *hex, struct td_buffer *href)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer path;
    int64_t expires_s;
    const struct td_hub_call *hub = &write->hub;
    const struct td_caller *caller = &hub->call->caller;
    struct td_text host = td_request_host(hub->call->request);
    td_buffer_init(&path);
    td_buffer_puts(&path, hub->as_dataset ? "/datasets/" : "/models/");
    td_uri_encode(&path, hub->id, true);
    td_buffer_printf(&path, "/blobs/sha256:%s", hex);
    td_buffer_printf(href, "%s://%.*s", td_request_scheme(hub->call->request), (int)host.len, host.p);
    bool ok = !path.failed || td_buffer_refuse(&path, &err);
    if (ok && caller->tokens == NULL)
        td_buffer_append(href, path.data, path.len);
    else if (ok)
        ok = td_signed_url_write(caller->tokens, caller->token, TD_SIGNED_PUT, td_buffer_text(&path),
                                 td_wall_now().seconds, SIGNED_S, href, &expires_s, &err);
    td_buffer_fini(&path);
    ok = ok && (!href->failed || td_buffer_refuse(href, &err));
    return ok || td_hub_fail_error(&write->hub, &err);
}

/* Adds an error of one object, which ends the upload with its message. */
static void add_error(struct td_json_builder *json, unsigned code, const char *message)
{
    td_json_begin_object(json, "error");
    td_json_add_u64(json, "code", code);
    td_json_add_string(json, "message", message);
    td_json_end(json);
}

static bool add_action(struct td_hub_write *write, struct td_json_builder *json, const char *hex)
{
    struct td_buffer href;
    td_buffer_init(&href);
    bool ok = write_href(write, hex, &href);
    if (ok) {
        td_json_begin_object(json, "actions");
        td_json_begin_object(json, "upload");
        td_json_add_text(json, "href", td_buffer_text(&href));
        td_json_end(json);
        td_json_end(json);
    }
    td_buffer_fini(&href);
    return ok;
}

/* Returns whether so many bytes more would pass --publish-max-bytes. */
static bool is_too_much(struct td_publish *publish, uint64_t more)
{
    struct td_publish_status status;
    td_publish_get_status(publish, &status);
    return status.max_bytes > 0 &&
           (status.used_bytes > status.max_bytes || more > status.max_bytes - status.used_bytes);
}

/* Adds what the client has to do for a blob. */
static bool add_object(struct td_hub_write *write, struct td_json_builder *json, const char *oid, uint64_t size_bytes)
{
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    struct td_publish *publish = write->hub.call->api->publish;
    bool ok = true;
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "oid", oid);
    td_json_add_u64(json, "size", size_bytes);
    td_json_add_bool(json, "authenticated", true); /* no token is needed at href */
    bool is_good = td_hex_read_bytes(td_text_of(oid), sha256, sizeof sha256);
    bool is_here = is_good && td_publish_find_blob(publish, &write->name, sha256, &blob, &err);
    bool is_complete = is_here && blob.is_complete;
    if (!is_good)
        add_error(json, 422, "an oid is 64 lower-case hexadecimal digits");
    else if (!is_here && err.code != TD_NOT_FOUND)
        add_error(json, 500, err.message);
    else if (is_here && blob.size_bytes != size_bytes)
        add_error(json, 422, "an object with this oid and another size is here");
    else if (!is_here && is_too_much(publish, size_bytes))
        add_error(json, 507, "there is no room for it (--publish-max-bytes)");
    else if (!is_complete)
        ok = add_action(write, json, oid);
    if (is_here)
        td_publish_blob_fini(&blob);
    td_json_end(json);
    td_json_flush(json);
    return ok;
}

static bool answer_objects(struct td_hub_write *write, struct td_hub_body *body, struct td_json_builder *json)
{
    const cJSON *objects = cJSON_GetObjectItemCaseSensitive(body->root, "objects");
    if (!cJSON_IsArray(objects))
        return td_hub_fail(&write->hub, 400, NULL, "\"objects\" is an array");
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "transfer", "basic");
    td_json_add_string(json, "hash_algo", "sha256");
    td_json_begin_array(json, "objects");
    for (const cJSON *object = objects->child; object != NULL; object = object->next) {
        const cJSON *size = cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, "size") : NULL;
        uint64_t size_bytes;
        if (size == NULL)
            return td_hub_fail(&write->hub, 400, NULL, "an object has \"oid\" and \"size\"");
        if (!td_json_document_u64(&body->document, size, &size_bytes))
            return td_hub_write_refuse(write, body);
        const char *oid = td_hub_write_string(write, body, object, "oid", "");
        if (oid == NULL || !add_object(write, json, oid, size_bytes))
            return false;
    }
    td_json_end(json);
    td_json_end(json);
    return true;
}

void td_hub_lfs_batch(struct td_hub_write *write)
{
    struct td_hub_body body;
    struct td_publish_repo repo;
    struct td_json_builder json;
    struct td_buffer out;
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *operation = td_hub_write_string(write, &body, body.root, "operation", "");
    if (operation == NULL)
        return;
    if (strcmp(operation, "upload") != 0) {
        (void)td_hub_fail(&write->hub, 422, NULL, "only uploads go through this; files are read at /{id}/resolve");
        return;
    }
    if (!td_hub_write_look(write, &repo))
        return;
    td_publish_repo_look_end(&repo);
    td_buffer_init(&out);
    td_json_builder_init(&json, &out);
    bool ok = answer_objects(write, &body, &json);
    td_json_builder_fini(&json);
    if (ok)
        td_hub_write_answer(write, &out);
    if (ok && write->hub.call->response->status == 200)
        write->hub.call->response->content_type = "application/vnd.git-lfs+json";
    td_buffer_fini(&out);
}

/* ---- small answers --------------------------------------------------------------------------------------- */

/* The metadata of a README.md is for readers; no card is refused. Clients send no token with it. */
void td_hub_validate_yaml(struct td_hub_write *write)
{
    const struct td_call *call = write->hub.call;
    if (call->caller.kind == TD_CALLER_NOBODY || td_access_may_publish_below(call, TD_TEXT("")))
        td_hub_write_answer_text(write, "{\"errors\":[],\"warnings\":[]}");
}

void td_hub_check_write(struct td_hub_write *write)
{
    if (!td_text_equals(write->hub.revision, "write"))
        (void)td_hub_fail(&write->hub, 404, NULL, "nothing at this path; there are auth-check and auth-check/write");
    else if (td_hub_write_begin(write))
        td_hub_write_answer_text(write, "{}");
}
