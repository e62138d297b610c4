/* Requests of the Hub's clients before they send files: how each file shall come, and small questions. */
#define OPENSSL_API_COMPAT 0x10101000L /* as core/digest.c says */
#include "api/call/access.h"
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish_folder.h"
#include "catalog/publish/publish_tree.h"
#include "core/digits.h"

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

/* ---- preupload ------------------------------------------------------------------------------------------- */

/* A list of files, and the revision that they are for. */
struct asking {
    struct td_hub_write *write;
    struct td_hub_body *body;
    struct td_publish_repo repo;
    char commit[TD_COMMIT_BYTES]; /* empty: the repository has none */
    uint64_t hashed_bytes;
    struct td_document json;
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
        td_document_add_string(&asking->json, "oid", hex);
    else if (git_name_of(asking, hex, size_bytes, name))
        td_document_add_string(&asking->json, "oid", name);
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
    td_document_begin_object(&asking->json, NULL);
    td_document_add_string(&asking->json, "path", path);
    td_document_add_string(&asking->json, "uploadMode", is_regular ? "regular" : "lfs");
    td_document_add_bool(&asking->json, "shouldIgnore", is_hidden);
    if (td_commit_check_path(path, false, NULL)) /* a path that no file of a commit has, such as "..", is not opened */
        add_oid(asking, path, size_bytes, is_regular);
    td_document_end(&asking->json);
    return true;
}

static bool answer_files(struct asking *asking)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(asking->body->root, "files");
    if (!cJSON_IsArray(files))
        return td_hub_fail(&asking->write->hub, 400, NULL, "\"files\" is an array");
    td_document_begin_object(&asking->json, NULL);
    td_document_begin_array(&asking->json, "files");
    for (const cJSON *file = files->child; file != NULL; file = file->next)
        if (!answer_file(asking, file))
            return false;
    td_document_end(&asking->json);
    td_document_end(&asking->json);
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
    td_document_init(&asking.json, &out);
    bool ok = td_hub_write_resolve(write, &asking.repo, revision, asking.commit) && answer_files(&asking);
    td_publish_repo_look_end(&asking.repo);
    if (ok)
        td_hub_write_answer(write, &out);
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
