/* Plan of a push: the manifest is checked; its bytes become a blob; then, with the repository locked, everything that
 * it names is looked for again, and the manifest is marked as one. A tag is set before its revision is moved, and
 * counts from then on (catalog/publish/publish_manifests.h), so a crash leaves the tag at the old manifest or at the
 * new one.
 *
 * A repository needs `main` to be shown, so the first commit of one goes to `main`, too. */
#include "api/oci/oci_put.h"

#include "api/call/publish_sink.h"
#include "api/call/publishing.h"
#include "catalog/publish/publish.h"
#include "catalog/publish/publish_manifests.h"
#include "catalog/publish/publish_stream.h"
#include "core/digits.h"
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TAGS = 16 }; /* tags in one push by digest */

/* ---- the reference ------------------------------------------------------------------------------------- */

/* The tags that a push or a deletion names. */
struct reference {
    bool is_digest;
    uint8_t sha256[TD_SHA256_BYTES]; /* of a digest */
    char tags[MOST_TAGS][TD_PUBLISH_TAG_BYTES];
    size_t tag_count;
};

/* Adds a tag. Returns false after it answered 400 or 414. */
static bool add_tag(const struct td_oci_write *write, struct td_text text, struct reference *reference)
{
    char tag[TD_PUBLISH_TAG_BYTES];
    if (reference->tag_count == MOST_TAGS)
        return td_oci_fail(&write->oci, 414, "UNSUPPORTED", "a push can set at most %d tags", MOST_TAGS);
    (void)snprintf(tag, sizeof tag, "%.*s", text.len < sizeof tag ? (int)text.len : 0, text.p);
    if (!td_publish_tag_is_valid(tag))
        return td_oci_fail(
            &write->oci, 400, "MANIFEST_INVALID",
            "\"%.*s\" is no tag: at most 128 letters, digits and \"_.-\", the first one neither \".\" nor "
            "\"-\"",
            TD_SHOW(text, 160));
    memcpy(reference->tags[reference->tag_count++], tag, sizeof tag);
    return true;
}

/* Reads the parameters `tag`, which may be several. Tags need no escapes. Returns false after it answered. */
static bool read_tags(const struct td_oci_write *write, struct reference *reference)
{
    static const struct td_text key = TD_TEXT("tag=");
    struct td_text query = write->oci.call->request->target;
    (void)td_text_take_until(&query, '?');
    while (query.len > 0) {
        struct td_text parameter = td_text_take_until(&query, '&');
        if (td_text_begins(parameter, key) && !add_tag(write, td_text_skip(parameter, key.len), reference))
            return false;
    }
    return true;
}

/* Reads the path's reference, and the parameters `tag` of a push by digest. Returns false after it answered. */
static bool read_reference(const struct td_oci_write *write, struct reference *reference)
{
    struct td_text text = write->oci.path.reference;
    *reference = (struct reference){.is_digest = memchr(text.p, ':', text.len) != NULL};
    if (!reference->is_digest)
        return add_tag(write, text, reference);
    if (!td_pushed_digest_read(text, reference->sha256))
        return td_oci_fail(&write->oci, 400, "DIGEST_INVALID",
                           "\"%.*s\" is no digest that this registry takes: sha256: and 64 lower-case hexadecimal "
                           "digits",
                           TD_SHOW(text, 160));
    return read_tags(write, reference);
}

/* ---- the manifest -------------------------------------------------------------------------------------- */

static bool refuse_long(const struct td_oci_write *write)
{
    return td_oci_fail(&write->oci, 413, "MANIFEST_INVALID", "a manifest has at most %d bytes", TD_PUSHED_MANIFEST_MAX);
}

struct td_body_sink *td_oci_put_begin(struct td_oci_write *write)
{
    const struct td_call *call = write->oci.call;
    struct reference reference;
    uint64_t bytes = call->request->body_bytes;
    if (!read_reference(write, &reference) ||
        (bytes != TD_BODY_LENGTH_UNKNOWN && bytes > TD_PUSHED_MANIFEST_MAX && !refuse_long(write)))
        return NULL;
    return td_publish_sink_text(call, TD_PUSHED_MANIFEST_MAX);
}

/* A manifest that is being pushed. */
struct push {
    const struct td_oci_write *write;
    const struct reference *reference;
    struct td_text text;
    uint8_t sha256[TD_SHA256_BYTES]; /* of the text */
    struct td_pushed_manifest manifest;
};

/* Checks the field Content-Type, without its parameters, against the manifest's type. Returns false after it answered
 * 400. */
static bool check_type(const struct push *push)
{
    const struct td_header *field = td_request_single_header(push->write->oci.call->request, "Content-Type");
    if (field == NULL)
        return true;
    struct td_text rest = field->value;
    struct td_text type = td_text_trim(td_text_take_until(&rest, ';'), " \t");
    return td_text_equals_ignore_case(type, push->manifest.media_type) ||
           td_oci_fail(&push->write->oci, 400, "MANIFEST_INVALID",
                       "Content-Type is %.*s, and the manifest's mediaType is %.200s", TD_SHOW(type, 200),
                       push->manifest.media_type);
}

/* Returns whether the repository has an item of a manifest: a blob of its size, or a manifest. */
static bool has_item(const struct td_publish_repo *repo, bool is_manifest, const struct td_pushed_item *item)
{
    char name[TD_SHA256_TEXT_BYTES + 8];
    struct stat st;
    if (item->is_elsewhere)
        return true;
    if (is_manifest && !td_publish_manifest_is_here(repo, item->sha256))
        return false;
    (void)snprintf(name, sizeof name, "blobs/");
    td_hex_write(item->sha256, TD_SHA256_BYTES, name + strlen(name));
    return repo->fd >= 0 && fstatat(repo->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == item->size_bytes;
}

/* Checks that the repository has everything that the manifest names. Returns false after it answered. */
static bool check_items(const struct push *push, const struct td_publish_repo *repo)
{
    const struct td_pushed_manifest *manifest = &push->manifest;
    char hex[TD_SHA256_TEXT_BYTES];
    for (size_t i = 0; i < manifest->item_count; i++) {
        const struct td_pushed_item *item = &manifest->items[i];
        if (has_item(repo, manifest->is_index, item))
            continue;
        td_hex_write(item->sha256, TD_SHA256_BYTES, hex);
        return td_oci_fail(&push->write->oci, 400, "MANIFEST_BLOB_UNKNOWN",
                           "the manifest names the %s sha256:%s of %" PRIu64
                           " bytes, which was not pushed to this repository; push it first",
                           manifest->is_index ? "manifest" : "blob", hex, item->size_bytes);
    }
    return true;
}

/* Opens the repository. Returns false after it answered. */
static bool open_repo(const struct td_oci_write *write, bool create, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_publish_repo_open(&write->oci.call->api->publish->disk, &write->name, create, repo, &err))
        return true;
    td_oci_write_fail(write, &err, "NAME_INVALID");
    return false;
}

/* Makes the manifest's text a blob of the repository, and checks first what it names. Returns false after it answered.
 */
static bool keep_text(const struct push *push)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish *publish = push->write->oci.call->api->publish;
    struct td_publish_repo repo;
    struct td_publish_stream *stream;
    struct td_publish_sum sum;
    if (!open_repo(push->write, false, &repo))
        return false;
    bool ok = check_items(push, &repo);
    td_publish_repo_close(&repo);
    if (!ok)
        return false;
    ok = td_publish_stream_begin(publish, &push->write->name, push->text.len, &stream, &err);
    if (ok && !td_publish_stream_write(stream, push->text.p, push->text.len, &err)) {
        td_publish_stream_abandon(stream);
        ok = false;
    }
    ok = ok && td_publish_stream_end(stream, push->sha256, &sum, &err);
    if (!ok)
        td_oci_write_fail(push->write, &err, "MANIFEST_INVALID");
    return ok;
}

/* ---- tags and commits ---------------------------------------------------------------------------------- */

/* Makes the commit of the manifest's files in the repository, which it closes. Returns false after it answered. */
static bool commit_files(const struct push *push, const char *revision, struct td_publish_repo *repo)
{
    const struct td_oci_write *write = push->write;
    struct td_commit_result result = {.missing = NULL};
    struct td_commit_order order = {
        .revision = revision, .files = push->manifest.files, .file_count = push->manifest.file_count, .message = ""};
    bool ok = td_publishing_commit(write->oci.call, repo, &order, &result);
    if (ok && result.verdict == TD_COMMIT_LACKS_BLOBS)
        ok = td_oci_fail(&write->oci, 400, "MANIFEST_BLOB_UNKNOWN",
                         "a blob of the manifest was removed at the same time");
    td_commit_result_fini(&result);
    return ok;
}

/* Marks the manifest in the open repository. Returns false after it answered. */
static bool mark(const struct push *push, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    if (!check_items(push, repo))
        return false;
    if (td_publish_manifest_put(repo, push->sha256, &push->manifest, push->reference->is_digest, &err))
        return true;
    td_oci_write_fail(push->write, &err, "MANIFEST_INVALID");
    return false;
}

/* Sets a tag in the open repository. Returns false after it answered. */
static bool put_tag(const struct push *push, const char *tag, const char *commit, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_publish_tag_put(repo, tag, push->sha256, commit, &err))
        return true;
    td_oci_write_fail(push->write, &err, "MANIFEST_INVALID");
    return false;
}

/* Marks the manifest and sets one tag, or none (NULL), with its revision. Returns false after it answered. */
static bool publish_tag(const struct push *push, const char *tag)
{
    struct td_publish_repo repo;
    char commit[TD_COMMIT_BYTES];
    bool has_files = tag != NULL && push->manifest.file_count > 0;
    const char *revision = has_files ? td_publish_tag_revision(tag) : NULL;
    if (has_files && revision == NULL)
        return td_oci_fail(&push->write->oci, 400, "MANIFEST_INVALID",
                           "the files of the manifest become a revision of the model, and no revision can be named "
                           "\"%s\"",
                           tag);
    if (!open_repo(push->write, true, &repo))
        return false;
    bool ok = mark(push, &repo);
    if (ok && has_files && strcmp(revision, "main") != 0 && !td_publish_resolve(&repo, "main", commit)) {
        if (!commit_files(push, "main", &repo) || !open_repo(push->write, true, &repo))
            return false;
        ok = mark(push, &repo);
    }
    ok = ok && (tag == NULL || put_tag(push, tag, has_files ? push->manifest.commit : NULL, &repo));
    if (ok && has_files)
        return commit_files(push, revision, &repo);
    td_publish_repo_close(&repo);
    return ok;
}

/* ---- PUT ----------------------------------------------------------------------------------------------- */

static void log_push(const struct push *push)
{
    const struct td_call *call = push->write->oci.call;
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(push->sha256, TD_SHA256_BYTES, hex);
    td_log(TD_LOG_INFO, "publish: manifest=sha256:%s token=%s files=%zu reference=\"%.*s\" model=\"%s\"", hex,
           call->response->token[0] == '\0' ? "-" : call->response->token, push->manifest.file_count,
           TD_SHOW(push->write->oci.path.reference, 160), push->write->name.path);
}

/* Adds the tags that were set by a push by digest. */
static void add_tags(const struct push *push)
{
    struct td_buffer list;
    td_buffer_init(&list);
    for (size_t i = 0; i < push->reference->tag_count; i++) {
        const char *tag = push->reference->tags[i];
        if (list.len + strlen(tag) + 3 >= TD_HEADER_VALUE_BYTES) {
            td_response_add_header_text(push->write->oci.call->response, "OCI-Tag", td_buffer_text(&list));
            td_buffer_clear(&list);
        }
        td_buffer_printf(&list, "%s%s", list.len > 0 ? ", " : "", tag);
    }
    if (list.failed)
        (void)td_call_no_memory(push->write->oci.call);
    else if (list.len > 0)
        td_response_add_header_text(push->write->oci.call->response, "OCI-Tag", td_buffer_text(&list));
    td_buffer_fini(&list);
}

static void answer_push(const struct push *push)
{
    const struct td_oci_write *write = push->write;
    struct td_response *response = write->oci.call->response;
    char hex[TD_SHA256_TEXT_BYTES];
    char path[TD_SHA256_TEXT_BYTES + 32];
    td_hex_write(push->sha256, TD_SHA256_BYTES, hex);
    (void)snprintf(path, sizeof path, "manifests/sha256:%s", hex);
    td_oci_write_done(write, 201);
    td_oci_add_location(&write->oci, path);
    td_response_add_header(response, "Docker-Content-Digest", "sha256:%s", hex);
    if (push->manifest.subject != NULL)
        td_response_add_header(response, "OCI-Subject", "%s", push->manifest.subject);
    if (push->reference->is_digest)
        add_tags(push);
}

/* Publishes a manifest that was read. */
static void publish(const struct push *push)
{
    const struct reference *reference = push->reference;
    if (reference->is_digest && memcmp(reference->sha256, push->sha256, sizeof push->sha256) != 0) {
        (void)td_oci_fail(&push->write->oci, 400, "DIGEST_INVALID", "the manifest has another digest than its path");
        return;
    }
    if (!check_type(push) || !keep_text(push))
        return;
    bool ok = reference->tag_count > 0 || publish_tag(push, NULL);
    for (size_t i = 0; ok && i < reference->tag_count; i++)
        ok = publish_tag(push, reference->tags[i]);
    if (!ok)
        return;
    log_push(push);
    answer_push(push);
}

void td_oci_put_end(struct td_oci_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->oci.call;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    struct reference reference;
    struct push push = {.write = write, .reference = &reference, .text = td_buffer_text(&sink->text)};
    struct td_arena arena;
    if (!read_reference(write, &reference))
        return;
    if (!call->request->is_whole) {
        if (sink->err.code == TD_FAILED_PRECONDITION)
            (void)refuse_long(write);
        else
            td_oci_write_fail(write, &sink->err, "MANIFEST_INVALID");
        return;
    }
    td_sha256(push.text.p, push.text.len, push.sha256);
    td_arena_init_budget(&arena, TD_PUSHED_MANIFEST_TAKEN_BYTES, sink->budget);
    if (td_pushed_manifest_read(push.text, &arena, &push.manifest, &err))
        publish(&push);
    else
        td_oci_write_fail(write, &err, "MANIFEST_INVALID");
    td_arena_fini(&arena);
}

/* ---- DELETE -------------------------------------------------------------------------------------------- */

/* The revisions of a repository after a deletion. */
struct rest {
    size_t refs; /* besides main */
    bool has_main;
    char main[TD_COMMIT_BYTES];
};

static bool count_ref(void *context, const char *name, const char *commit)
{
    struct rest *rest = context;
    if (strcmp(name, "main") != 0) {
        rest->refs++;
    } else {
        rest->has_main = true;
        (void)snprintf(rest->main, sizeof rest->main, "%s", commit);
    }
    return true;
}

static bool stop_at_tag(void *context, const char *tag, const uint8_t sha256[TD_SHA256_BYTES], struct td_error *err)
{
    bool *has_tags = context;
    (void)tag;
    (void)sha256;
    (void)err;
    *has_tags = true;
    return false;
}

/* Returns whether nothing but main would go with the open repository: no other revision, no tag, and no manifest that
 * was pushed by its digest. Sets *rest. */
static bool has_main_alone(const struct td_publish_repo *repo, struct rest *rest)
{
    bool has_tags = false;
    *rest = (struct rest){.refs = 0};
    return td_publish_each_ref(repo, count_ref, rest) && rest->refs == 0 &&
           td_publish_each_tag(repo, stop_at_tag, &has_tags, NULL) && !has_tags &&
           !td_publish_has_manifests_by_digest(repo);
}

/* Returns whether the repository may go: it has main alone, at the commit that is removed. */
static bool may_go(void *context, const struct td_publish_repo *repo)
{
    const struct rest *rest = context;
    struct rest now;
    return has_main_alone(repo, &now) && now.has_main && strcmp(now.main, rest->main) == 0;
}

/* Moves `main` of an open repository, which it closes, from its commit to one without files; leaves a `main` that was
 * pushed since. Returns false after it answered. */
static bool empty_main(const struct td_oci_write *write, const struct rest *rest, struct td_publish_repo *repo)
{
    struct td_commit_result result = {.missing = NULL};
    struct td_commit_order order = {.revision = "main", .parent = rest->main, .message = ""};
    bool ok = td_publishing_commit(write->oci.call, repo, &order, &result);
    td_commit_result_fini(&result);
    return ok;
}

/* Removes `main` from an open repository, which it closes: with the whole repository when nothing else is in it, else
 * by a commit without files, since a repository is shown by its `main`. Returns false after it answered. */
static bool remove_main(const struct td_oci_write *write, struct rest *rest, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    struct rest now;
    bool is_removed = false;
    if (!has_main_alone(repo, &now))
        return empty_main(write, rest, repo);
    td_publish_repo_close(repo);
    if (!td_publishing_remove_if(write->oci.call, &write->name, may_go, rest, &is_removed, &err)) {
        td_oci_write_fail(write, &err, "UNSUPPORTED");
        return false;
    }
    if (is_removed)
        return true;
    return open_repo(write, false, repo) && empty_main(write, rest, repo); /* something was pushed at the same time */
}

/* Returns whether no manifest has one of the tags of `main`. */
static bool main_has_no_tag(const struct td_publish_repo *repo)
{
    uint8_t sha256[TD_SHA256_BYTES];
    return !td_publish_tag_find(repo, "main", sha256) && !td_publish_tag_find(repo, "latest", sha256);
}

/* Ends a deletion of revisions that were at a commit, and has all faces show it; closes the open repository. `main`
 * goes too if it is at that commit, and was asked for (asks_main) or is the last revision and was never pushed by a tag
 * of its own. Returns false after it answered. */
static bool end_deletion(const struct td_oci_write *write, bool asks_main, const char *commit,
                         struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    struct rest rest = {.refs = 0};
    if (!td_publish_each_ref(repo, count_ref, &rest)) {
        (void)td_error_set(&err, TD_IO, "cannot read the revisions");
        td_publish_repo_close(repo);
        td_oci_write_fail(write, &err, "UNSUPPORTED");
        return false;
    }
    if (rest.has_main && strcmp(rest.main, commit) == 0 && (asks_main || (rest.refs == 0 && main_has_no_tag(repo))))
        return remove_main(write, &rest, repo);
    td_publish_repo_close(repo);
    return td_publishing_show(write->oci.call, "the tag was deleted");
}

/* Deletes a revision of an open repository, which is closed if it fails. Returns false after it answered. */
static bool delete_revision(const struct td_oci_write *write, const char *revision, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_publish_delete_ref(repo, revision, &err))
        return true;
    td_publish_repo_close(repo);
    td_oci_write_fail(write, &err, "UNSUPPORTED");
    return false;
}

/* Deletes a tag of an open repository, which it closes. The tag's revision goes as well if the tag's manifest made its
 * commit, or no manifest was pushed by the tag; a revision that others made, beside which an image has the tag, stays.
 * Returns false after it answered. */
static bool delete_tag(const struct td_oci_write *write, const char *tag, struct td_publish_repo *repo)
{
    struct td_error err = TD_ERROR_INIT;
    char commit[TD_COMMIT_BYTES];
    char made[TD_COMMIT_BYTES];
    uint8_t sha256[TD_SHA256_BYTES];
    const char *revision = td_publish_tag_revision(tag);
    bool is_pushed = td_publish_tag_find(repo, tag, sha256);
    bool has_revision = revision != NULL && td_publish_resolve(repo, revision, commit);
    bool ok = is_pushed || has_revision;
    if (!ok)
        (void)td_oci_fail(&write->oci, 404, "MANIFEST_UNKNOWN", "no tag \"%s\" was pushed", tag);
    if (is_pushed)
        td_publish_manifest_commit(repo, sha256, made);
    if (ok && !td_publish_tag_remove(repo, tag)) {
        ok = td_publish_fail(&write->name, "delete a tag of", &err);
        td_oci_write_fail(write, &err, "UNSUPPORTED");
    }
    if (ok && has_revision && (!is_pushed || strcmp(made, commit) == 0)) {
        bool is_main = strcmp(revision, "main") == 0;
        return (is_main || delete_revision(write, revision, repo)) && end_deletion(write, is_main, commit, repo);
    }
    td_publish_repo_close(repo);
    return ok;
}

/* Removes a manifest with the tags that name it, but not their revisions. Sets *tags to these tags, whose items the
 * caller frees, and commit to the one that the manifest made. Returns false after it answered. */
static bool remove_manifest(const struct td_oci_write *write, const uint8_t sha256[TD_SHA256_BYTES],
                            struct td_publish_tags *tags, char commit[TD_COMMIT_BYTES])
{
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_repo repo;
    if (!open_repo(write, false, &repo))
        return false;
    td_publish_manifest_commit(&repo, sha256, commit);
    bool ok = td_publish_manifest_remove(&repo, sha256, tags, &err);
    td_publish_repo_close(&repo);
    if (!ok && err.code == TD_NOT_FOUND)
        (void)td_oci_fail(&write->oci, 404, "MANIFEST_UNKNOWN",
                          "no such manifest was pushed; one that the server makes goes with its tag, or its model");
    else if (!ok)
        td_oci_write_fail(write, &err, "UNSUPPORTED");
    return ok;
}

enum { REVISIONS_AT_A_TIME = 64 }; /* that are deleted while the repository is locked */

/* Deletes the revisions of the next tags, but for `main`, as far as they are at the commit that the manifest made and
 * the tags were not pushed again. Returns false after it answered. */
static bool delete_some_revisions(const struct td_oci_write *write, const struct td_publish_tags *tags,
                                  const char *made, size_t *next)
{
    struct td_publish_repo repo;
    if (!open_repo(write, false, &repo))
        return false;
    for (size_t n = 0; n < REVISIONS_AT_A_TIME && *next < tags->count; n++, ++*next) {
        char commit[TD_COMMIT_BYTES];
        uint8_t other[TD_SHA256_BYTES];
        const char *tag = tags->items[*next];
        const char *revision = td_publish_tag_revision(tag);
        if (revision != NULL && strcmp(revision, "main") != 0 && td_publish_resolve(&repo, revision, commit) &&
            strcmp(commit, made) == 0 && !td_publish_tag_find(&repo, tag, other) &&
            !delete_revision(write, revision, &repo))
            return false;
    }
    td_publish_repo_close(&repo);
    return true;
}

/* Deletes a manifest, with the tags that name it, and with their revisions as far as these are at the commit that the
 * manifest made: one that was moved since is another writer's. Returns false after it answered. */
static bool delete_manifest(const struct td_oci_write *write, const uint8_t sha256[TD_SHA256_BYTES])
{
    struct td_publish_repo repo;
    struct td_publish_tags tags = {.items = NULL};
    char made[TD_COMMIT_BYTES];
    bool asks_main = false;
    bool ok = remove_manifest(write, sha256, &tags, made);
    bool has_revisions = ok && made[0] != '\0' && tags.count > 0;
    for (size_t i = 0; i < tags.count; i++)
        asks_main = asks_main || strcmp(tags.items[i], "main") == 0 || strcmp(tags.items[i], "latest") == 0;
    for (size_t next = 0; ok && has_revisions && next < tags.count;)
        ok = delete_some_revisions(write, &tags, made, &next);
    free(tags.items);
    if (!ok || !has_revisions)
        return ok;
    return open_repo(write, false, &repo) && end_deletion(write, asks_main && main_has_no_tag(&repo), made, &repo);
}

void td_oci_put_delete(struct td_oci_write *write)
{
    struct reference reference;
    struct td_publish_repo repo;
    if (!read_reference(write, &reference))
        return;
    bool ok = reference.is_digest ? delete_manifest(write, reference.sha256)
                                  : open_repo(write, false, &repo) && delete_tag(write, reference.tags[0], &repo);
    if (!ok)
        return;
    td_log(TD_LOG_INFO, "publish: deleted token=%s reference=\"%.*s\" model=\"%s\"",
           write->oci.call->response->token[0] == '\0' ? "-" : write->oci.call->response->token,
           TD_SHOW(write->oci.path.reference, 160), write->name.path);
    td_oci_write_done(write, 202);
}
