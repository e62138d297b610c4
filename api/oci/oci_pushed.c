#include "api/oci/oci_pushed.h"

#include "api/oci/oci_document.h"
#include "catalog/publish/publish_manifests.h"
#include "catalog/publish/publish_store.h"
#include "core/digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- manifests ----------------------------------------------------------------------------------------- */

/* A manifest that was read. */
struct pushed {
    struct td_budget *budget;
    char *bytes;
    size_t len;
    struct td_arena arena;
    struct td_pushed_manifest manifest;
};

/* Reads a manifest. Call fini_pushed in any case. */
static bool read_pushed(const struct td_oci_call *oci, const uint8_t sha256[TD_SHA256_BYTES], struct pushed *pushed,
                        struct td_error *err)
{
    *pushed = (struct pushed){.budget = oci->reserved.budget};
    td_arena_init_budget(&pushed->arena, TD_PUSHED_MANIFEST_ARENA_BYTES, pushed->budget);
    return td_publish_manifest_read(&oci->pushed, sha256, &pushed->bytes, &pushed->len, err) &&
           td_pushed_manifest_read(td_text_n(pushed->bytes, pushed->len), &pushed->arena, &pushed->manifest, err);
}

static void fini_pushed(struct pushed *pushed)
{
    td_arena_fini(&pushed->arena);
    free(pushed->bytes);
}

/* Answers the bytes of a manifest, which it takes over. */
static bool answer_bytes(const struct td_oci_call *oci, struct pushed *pushed, struct td_error *err)
{
    struct td_response *response = oci->call->response;
    struct td_blob *blob = NULL;
    char *type = strdup(pushed->manifest.media_type);
    char *bytes = pushed->bytes;
    pushed->bytes = NULL;
    if (type == NULL || !td_budget_take(pushed->budget, pushed->len)) {
        free(type);
        free(bytes);
        return td_budget_refuse(pushed->budget, pushed->len, err);
    }
    bool ok = td_blob_from_budget(bytes, pushed->len, pushed->budget, &blob, err) &&
              td_body_append(&response->body, blob, 0, pushed->len, err);
    td_blob_unref(blob);
    if (!ok) {
        free(type);
        return false;
    }
    free(response->owned_type);
    response->owned_type = type;
    td_response_describe_bytes(response, type);
    return true;
}

/* Answers a manifest that is here. */
static void answer_manifest(const struct td_oci_call *oci, const uint8_t sha256[TD_SHA256_BYTES], bool is_immutable)
{
    struct td_error err = TD_ERROR_INIT;
    struct pushed pushed;
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, hex);
    if (read_pushed(oci, sha256, &pushed, &err) && answer_bytes(oci, &pushed, &err))
        td_oci_add_digest(oci, td_text_of(hex), is_immutable);
    else
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
    fini_pushed(&pushed);
}

bool td_oci_pushed_answer_tag(struct td_oci_call *oci, struct td_text tag)
{
    char name[TD_PUBLISH_TAG_BYTES];
    uint8_t sha256[TD_SHA256_BYTES];
    if (tag.len >= sizeof name || !td_oci_look_at_pushed(oci))
        return false;
    (void)snprintf(name, sizeof name, "%.*s", (int)tag.len, tag.p);
    if (!td_publish_tag_find(&oci->pushed, name, sha256))
        return false;
    answer_manifest(oci, sha256, false);
    return true;
}

bool td_oci_pushed_answer_digest(struct td_oci_call *oci, struct td_text hex)
{
    uint8_t sha256[TD_SHA256_BYTES];
    if (!td_hex_read_bytes(hex, sha256, sizeof sha256) || !td_oci_look_at_pushed(oci) ||
        !td_publish_manifest_is_here(&oci->pushed, sha256))
        return false;
    answer_manifest(oci, sha256, true);
    return true;
}

/* ---- blobs --------------------------------------------------------------------------------------------- */

/* Maps the file of a blob, in the repository's folder or in the one that it has before its first commit. */
static bool map_file(const struct td_oci_call *oci, bool is_new, struct td_text hex, struct td_blob **out,
                     struct td_error *err)
{
    const struct td_root *root = oci->call->snapshot->root;
    struct td_mapping_cache *maps = td_catalog_maps(oci->call->api->catalog);
    char path[2 * NAME_MAX];
    int fd;
    (void)snprintf(path, sizeof path, "%s%s/blobs/%.*s", is_new ? TD_PUBLISH_FOLDER "/new/" : "",
                   oci->pushed.name.folder, (int)hex.len, hex.p);
    struct td_file_source source = {.path = path};
    if (!td_root_open_file(root, path, &fd, &source.id, err))
        return false;
    (void)close(fd);
    bool ok = td_file_source_map(maps, root, &source, out, err);
    td_file_source_forget(maps, &source);
    return ok;
}

bool td_oci_pushed_map_blob(const struct td_oci_call *oci, struct td_text hex, struct td_blob **out,
                            struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    bool ok = oci->pushed.is_new && map_file(oci, true, hex, out, &why);
    if (!ok && (!oci->pushed.is_new || why.code == TD_NOT_FOUND))
        return map_file(oci, false, hex, out, err); /* a first commit may have moved the repository just now */
    if (!ok)
        (void)td_error_copy(err, &why);
    return ok;
}

bool td_oci_pushed_answer_blob(struct td_oci_call *oci, struct td_text hex)
{
    struct td_response *response = oci->call->response;
    struct td_error err = TD_ERROR_INIT;
    struct td_blob *blob = NULL;
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
    if (!td_hex_read_bytes(hex, sha256, sizeof sha256) || !td_oci_look_at_pushed(oci))
        return false;
    /* clients that push ask so which blobs they need not send */
    bool asks = td_text_equals(oci->call->request->method, "HEAD");
    if (asks && !td_publish_keep_blob(&oci->pushed, sha256, &size_bytes))
        return false;
    bool ok = td_oci_pushed_map_blob(oci, hex, &blob, &err) &&
              td_body_append(&response->body, blob, 0, blob->len_bytes, &err);
    td_blob_unref(blob);
    if (!ok && err.code == TD_NOT_FOUND)
        return false;
    if (!ok) {
        td_response_fail_error(response, &err);
        return true;
    }
    td_response_describe_bytes(response, TD_OCI_BLOB_TYPE);
    td_oci_add_digest(oci, hex, true);
    return true;
}

/* ---- tags ---------------------------------------------------------------------------------------------- */

struct tagging {
    struct td_oci_call *oci;
    struct td_oci_target_list *list;
};

static bool add_tag(void *context, const char *tag, struct td_error *err)
{
    struct tagging *tagging = context;
    const char *copy = td_arena_strndup(&tagging->oci->arena, td_text_of(tag));
    const struct td_oci_target target = {
        .tag = copy, .form = TD_OCI_ARTIFACT, .revision = TD_TEXT("main"), .is_pushed = true};
    return (copy != NULL && td_oci_target_add(tagging->oci, tagging->list, &target)) || td_error_no_memory(err);
}

bool td_oci_pushed_has_tag(const struct td_oci_call *oci, const char *tag)
{
    uint8_t sha256[TD_SHA256_BYTES];
    return td_publish_tag_find(&oci->pushed, tag, sha256);
}

bool td_oci_pushed_add_tags(struct td_oci_call *oci, struct td_oci_target_list *list, struct td_error *err)
{
    struct tagging tagging = {.oci = oci, .list = list};
    if (!td_oci_look_at_pushed(oci))
        return true;
    if (!td_publish_each_tag_name(&oci->pushed, add_tag, &tagging, err))
        return false;
    td_oci_targets_sort(list);
    return true;
}

/* ---- referrers ----------------------------------------------------------------------------------------- */

enum { PAGE_BYTES = TD_OCI_MANIFEST_MAX, PAGE_MAX = 1000 };

/* The list of referrers that is being written. */
struct referrers {
    struct td_oci_call *oci;
    const struct td_text *artifact_type; /* of those that are wanted; NULL: all */
    struct td_buffer text;
    size_t written;
    bool has_more;                 /* there is another page */
    uint8_t last[TD_SHA256_BYTES]; /* the last one that was looked at */
};

/* Returns whether the type is the one that a query asks for. Media types have no blanks, so a blank there is a '+' that
 * the client has not escaped. */
static bool is_type(struct td_text asked, struct td_text type)
{
    bool same = asked.len == type.len;
    for (size_t i = 0; same && i < asked.len; i++)
        same = asked.p[i] == type.p[i] || (asked.p[i] == ' ' && type.p[i] == '+');
    return same;
}

/* Adds a referrer to the page, if it is wanted. Returns false when the page is full. One that cannot be read is passed
 * over. */
static bool add_referrer(void *context, const struct td_publish_referrer *referrer, struct td_error *err)
{
    static const char end[] = "]}";
    struct referrers *referrers = context;
    struct td_buffer *text = &referrers->text;
    size_t bytes = referrer->descriptor_bytes + 1;
    if (referrers->artifact_type != NULL && !is_type(*referrers->artifact_type, referrer->artifact_type))
        return true;
    if (referrers->written == PAGE_MAX || (referrers->written > 0 && text->len + bytes + sizeof end > PAGE_BYTES))
        return false;
    if (!td_reserved_take(&referrers->oci->reserved, bytes, err))
        return false;
    size_t before = text->len;
    if (referrers->written > 0)
        td_buffer_putc(text, ',');
    if (td_publish_referrer_describe(referrer, text))
        referrers->written++;
    else
        text->len = before;
    return !text->failed || td_buffer_refuse(text, err);
}

/* Adds the link to the next page. */
static void add_next_link(const struct referrers *referrers)
{
    const struct td_oci_call *oci = referrers->oci;
    char hex[TD_SHA256_TEXT_BYTES];
    struct td_buffer link;
    td_hex_write(referrers->last, sizeof referrers->last, hex);
    td_buffer_init(&link);
    td_buffer_puts(&link, "<");
    td_oci_write_path(oci, "referrers/", &link);
    td_buffer_append(&link, oci->path.reference.p, oci->path.reference.len);
    td_buffer_printf(&link, "?last=%s", hex);
    if (referrers->artifact_type != NULL) {
        td_buffer_puts(&link, "&artifactType=");
        td_uri_encode(&link, *referrers->artifact_type, false);
    }
    td_buffer_puts(&link, ">; rel=\"next\"");
    if (link.failed)
        (void)td_call_no_memory(oci->call);
    else if (link.len < TD_HEADER_VALUE_BYTES)
        td_response_add_header_text(oci->call->response, "Link", td_buffer_text(&link));
    td_buffer_fini(&link);
}

/* Writes the referrers after the one that the parameter `last` names, as far as they fit. */
static bool write_page(struct referrers *referrers, const uint8_t subject[TD_SHA256_BYTES], struct td_error *err)
{
    const struct td_text *after = td_uri_parameter(referrers->oci->call->uri, "last");
    bool has_last = after != NULL && td_hex_read_bytes(*after, referrers->last, sizeof referrers->last);
    uint8_t from[TD_SHA256_BYTES];
    memcpy(from, referrers->last, sizeof from);
    return td_publish_list_referrers(&referrers->oci->pushed, subject, has_last ? from : NULL, add_referrer, referrers,
                                     referrers->last, &referrers->has_more, err);
}

void td_oci_pushed_answer_referrers(struct td_oci_call *oci, struct td_text hex)
{
    struct td_error err = TD_ERROR_INIT;
    uint8_t subject[TD_SHA256_BYTES];
    struct referrers referrers = {.oci = oci, .artifact_type = td_uri_parameter(oci->call->uri, "artifactType")};
    td_buffer_init(&referrers.text);
    td_buffer_puts(&referrers.text, "{\"schemaVersion\":2,\"mediaType\":\"" TD_OCI_INDEX_TYPE "\",\"manifests\":[");
    bool ok = !td_hex_read_bytes(hex, subject, sizeof subject) || !td_oci_look_at_pushed(oci) ||
              write_page(&referrers, subject, &err);
    td_buffer_puts(&referrers.text, "]}");
    if (ok)
        td_oci_answer_text(oci, &referrers.text, TD_OCI_INDEX_TYPE);
    else
        (void)td_oci_fail_error(oci, &err, "NAME_UNKNOWN");
    td_buffer_fini(&referrers.text);
    if (referrers.artifact_type != NULL && oci->call->response->status == 200)
        td_response_add_header_text(oci->call->response, "OCI-Filters-Applied", TD_TEXT("artifactType"));
    if (referrers.has_more && oci->call->response->status == 200)
        add_next_link(&referrers);
}
