#include "api/oci/oci_call.h"

#include "api/call/incoming_call.h"
#include "api/call/publishing.h"
#include "catalog/names/oci_name.h"
#include "core/digits.h"
#include "core/waiting.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- paths --------------------------------------------------------------------------------------------- */

/* Finds "/blobs/uploads" at the end of the text or before a '/', and a name before it. */
static bool find_upload(struct td_text text, struct td_oci_path *path)
{
    const struct td_text word = TD_TEXT("/blobs/uploads");
    for (size_t i = 1; i + word.len <= text.len; i++) {
        struct td_text rest = td_text_skip(text, i);
        if (td_text_begins(rest, word) && (rest.len == word.len || rest.p[word.len] == '/')) {
            path->name = td_text_n(text.p, i);
            path->reference = td_text_skip(rest, rest.len == word.len ? word.len : word.len + 1);
            return true;
        }
    }
    return false;
}

/* Splits {name}/{word}/{reference}. */
static enum td_oci_endpoint split_name(struct td_text text, struct td_oci_path *path)
{
    struct td_text rest = text;
    struct td_text last = td_text_take_last(&rest, '/');
    struct td_text word = td_text_take_last(&rest, '/');
    enum td_oci_endpoint endpoint = TD_OCI_NONE;
    if (td_text_equals(word, "manifests"))
        endpoint = TD_OCI_MANIFEST;
    else if (td_text_equals(word, "blobs") && !td_text_equals(last, "uploads"))
        endpoint = TD_OCI_BLOB;
    else if (td_text_equals(word, "referrers"))
        endpoint = TD_OCI_REFERRERS;
    else if (td_text_equals(word, "tags") && td_text_equals(last, "list"))
        endpoint = TD_OCI_TAGS;
    path->name = rest;
    path->reference = last;
    if (endpoint != TD_OCI_NONE && rest.len > 0 && last.len > 0)
        return endpoint;
    return find_upload(text, path) ? TD_OCI_UPLOAD : TD_OCI_NONE;
}

bool td_oci_path_parse(struct td_oci_path *path, struct td_text text)
{
    const struct td_text root = TD_TEXT("/v2/");
    *path = (struct td_oci_path){.endpoint = TD_OCI_NONE};
    if (!td_text_begins(text, root))
        return false;
    text = td_text_skip(text, root.len);
    if (text.len == 0)
        path->endpoint = TD_OCI_ROOT;
    else if (td_text_equals(text, "_catalog"))
        path->endpoint = TD_OCI_CATALOG;
    else
        path->endpoint = split_name(text, path);
    return path->endpoint != TD_OCI_NONE;
}

void td_oci_path_split(const struct td_call *call, struct td_oci_path *path)
{
    struct td_oci_path raw;
    (void)td_oci_path_parse(&raw, call->uri->raw_path);
    if (!td_oci_path_parse(path, call->uri->path) || path->endpoint != raw.endpoint)
        *path = (struct td_oci_path){.endpoint = TD_OCI_NONE};
}

/* ---- references ---------------------------------------------------------------------------------------- */

static bool is_lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Returns whether the text is an algorithm: words of small letters and digits, with one of "+._-" between them. */
static bool is_algorithm(struct td_text text)
{
    bool is_word = false;
    for (size_t i = 0; i < text.len; i++) {
        bool was_word = is_word;
        is_word = is_lower_or_digit(text.p[i]);
        if (!is_word && (!was_word || memchr("+._-", text.p[i], 4) == NULL))
            return false;
    }
    return is_word;
}

enum td_oci_digest_kind td_oci_digest_read(struct td_text text, struct td_text *hex)
{
    struct td_text rest = text;
    struct td_text algorithm = td_text_take_until(&rest, ':');
    bool is_sha256 = td_text_equals(algorithm, "sha256");
    bool is_sha512 = td_text_equals(algorithm, "sha512");
    if (!is_algorithm(algorithm) || rest.len == 0)
        return TD_OCI_DIGEST_WRONG;
    for (size_t i = 0; i < rest.len; i++)
        if (!td_is_letter_or_digit(rest.p[i]) && memchr("=_-", rest.p[i], 3) == NULL)
            return TD_OCI_DIGEST_WRONG;
    if (is_sha256 || is_sha512) {
        if (rest.len != (is_sha256 ? 64U : 128U) || !td_hex_is_lower(rest))
            return TD_OCI_DIGEST_WRONG;
    }
    *hex = rest;
    return is_sha256 ? TD_OCI_DIGEST_SHA256 : TD_OCI_DIGEST_OTHER;
}

bool td_oci_tag_is_valid(struct td_text text)
{
    enum { TAG_MAX = 128 };
    if (text.len == 0 || text.len > TAG_MAX || text.p[0] == '.' || text.p[0] == '-')
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!td_is_letter_or_digit(text.p[i]) && memchr("_.-", text.p[i], 3) == NULL)
            return false;
    return true;
}

/* ---- errors -------------------------------------------------------------------------------------------- */

bool td_oci_fail(const struct td_oci_call *oci, int status, const char *code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    td_response_fail_as(oci->call->response, status, code, "%s", text);
    return false;
}

bool td_oci_fail_error(const struct td_oci_call *oci, const struct td_error *err, const char *unknown)
{
    if (oci->lack == TD_OCI_HASHES_NOTHING)
        return td_oci_fail(oci, 501, "UNSUPPORTED", "%s", err->message);
    if (err->code == TD_NOT_FOUND)
        return td_oci_fail(oci, 404, unknown, "%s", err->message);
    td_response_fail_error(oci->call->response, err);
    if (oci->retry_s > 0 && !atomic_load(&oci->call->api->draining))
        td_response_set_retry_after(oci->call->response, oci->retry_s);
    return false;
}

/* ---- names and digests --------------------------------------------------------------------------------- */

/* Returns whether a request of this kind needs the model itself. */
static bool needs_model(const struct td_oci_call *oci)
{
    enum td_oci_endpoint endpoint = oci->path.endpoint;
    return endpoint == TD_OCI_TAGS || endpoint == TD_OCI_MANIFEST || endpoint == TD_OCI_BLOB;
}

/* Looks for the model in the upstream, by the id that the client spelled. Sets oci->repo when the model is here by now.
 * Returns false after it answered: manifests need all files, so that a model on its way has none. */
static bool find_incoming(struct td_oci_call *oci)
{
    struct td_text id = oci->path.name;
    if (td_text_begins(id, TD_TEXT(TD_REPO_DEFAULT_NAMESPACE "/")))
        id = td_text_skip(id, sizeof TD_REPO_DEFAULT_NAMESPACE);
    enum td_incoming_look look = td_incoming_call_look(oci->call, id, &oci->incoming);
    if (look == TD_INCOMING_AGAIN && td_incoming_call_is_of(oci->incoming)) {
        td_incoming_call_fail(oci->call, id,
                              "the registry has its tags, manifests and blobs when all are; ask again after the "
                              "seconds in Retry-After, and pull when this is 200");
        return false;
    }
    if (look == TD_INCOMING_AGAIN) {
        oci->own->snapshot = oci->incoming;
        oci->repo = td_oci_name_find(oci->incoming, id);
    }
    return look != TD_INCOMING_ANSWERED;
}

bool td_oci_publish_id(const struct td_oci_call *oci, char id[TD_OCI_ID_BYTES])
{
    static const struct td_text space = TD_TEXT(TD_REPO_DEFAULT_NAMESPACE "/");
    struct td_text name = oci->path.name;
    if (oci->repo != NULL)
        name = td_text_of(oci->repo->id);
    else if (td_text_begins(name, space))
        name = td_text_skip(name, space.len);
    if (name.len >= TD_OCI_ID_BYTES)
        return false;
    (void)snprintf(id, TD_OCI_ID_BYTES, "%.*s", (int)name.len, name.p);
    return true;
}

bool td_oci_look_at_pushed(struct td_oci_call *oci)
{
    struct td_publish *publish = oci->call->api->publish;
    struct td_publish_name name;
    char id[TD_OCI_ID_BYTES];
    if (oci->pushed.fd < 0 && publish != NULL && td_oci_publish_id(oci, id) &&
        td_publish_name(id, false, &name, NULL) && td_publishing_may_see(oci->call, td_text_of(id), false))
        (void)td_publish_repo_look(&publish->disk, &name, &oci->pushed, NULL);
    return oci->pushed.fd >= 0;
}

bool td_oci_find_repo(struct td_oci_call *oci)
{
    struct td_text name = oci->path.name;
    oci->repo = td_oci_name_find(oci->call->snapshot, name);
    if (oci->repo == NULL && oci->call->api->publish != NULL) {
        if (!td_may_wait(NULL))
            return false;
        if (td_oci_look_at_pushed(oci) || oci->path.endpoint == TD_OCI_REFERRERS)
            return true;
    }
    if (oci->repo == NULL && needs_model(oci) && !find_incoming(oci))
        return false;
    if (oci->repo == NULL && needs_model(oci) && oci->call->api->upstream != NULL)
        return td_oci_fail(oci, 404, "NAME_UNKNOWN",
                           "no repository \"%.*s\", neither here nor at the upstream; a model whose id has capital "
                           "letters has to be fetched by its id once, as by GET /models/Org/Name",
                           TD_SHOW(name, TD_OCI_NAME_MAX));
    if (oci->repo == NULL)
        return td_oci_fail(oci, 404, "NAME_UNKNOWN", "no repository \"%.*s\"; GET /v2/_catalog lists what there is",
                           TD_SHOW(name, TD_OCI_NAME_MAX));
    if (!td_call_may_describe(oci->call, td_text_of(oci->repo->folder)))
        return false;
    td_incoming_call_note_read(oci->call, td_text_of(oci->repo->id));
    td_response_note_subject(oci->call->response, td_text_of(oci->repo->id));
    return true;
}

bool td_oci_read_digest(const struct td_oci_call *oci, struct td_text *hex)
{
    struct td_text text = oci->path.reference;
    enum td_oci_digest_kind kind = td_oci_digest_read(text, hex);
    if (kind == TD_OCI_DIGEST_WRONG)
        return td_oci_fail(oci, 400, "DIGEST_INVALID",
                           "\"%.*s\" is no digest: sha256: and 64 lower-case hexadecimal digits are",
                           TD_SHOW(text, 160));
    if (kind == TD_OCI_DIGEST_OTHER)
        *hex = TD_TEXT("");
    return true;
}

void td_oci_write_path(const struct td_oci_call *oci, const char *rest, struct td_buffer *out)
{
    td_buffer_puts(out, "/v2/");
    if (oci->path.name.len > 0) {
        td_uri_encode(out, oci->path.name, true);
        td_buffer_putc(out, '/');
    }
    td_buffer_puts(out, rest);
}

/* ---- answers ------------------------------------------------------------------------------------------- */

void td_oci_add_location(const struct td_oci_call *oci, const char *rest)
{
    const struct td_call *call = oci->call;
    struct td_text host = td_request_host(call->request);
    struct td_buffer url;
    td_buffer_init(&url);
    if (host.len > 0)
        td_buffer_printf(&url, "%s://%.*s", td_request_scheme(call->request), (int)host.len, host.p);
    size_t origin_len = url.len;
    td_oci_write_path(oci, rest, &url);
    struct td_text text = td_buffer_text(&url);
    if (url.failed)
        (void)td_call_no_memory(call);
    else
        td_response_add_header_text(call->response, "Location",
                                    text.len < TD_HEADER_VALUE_BYTES ? text : td_text_skip(text, origin_len));
    td_buffer_fini(&url);
}

void td_oci_add_digest(const struct td_oci_call *oci, struct td_text sha256, bool is_immutable)
{
    struct td_response *response = oci->call->response;
    char digest[TD_ETAG_BYTES];
    (void)snprintf(digest, sizeof digest, "sha256:%.*s", TD_SHOW(sha256, TD_SHA256_TEXT_BYTES));
    td_response_set_etag(response, digest);
    response->former_etag[0] = '\0';
    td_response_add_header(response, "Docker-Content-Digest", "%s", digest);
    if (is_immutable)
        td_call_make_immutable(oci->call);
}

void td_oci_answer_document(const struct td_oci_call *oci, const struct td_made_document *document, bool is_immutable)
{
    struct td_response *response = oci->call->response;
    struct td_error err = TD_ERROR_INIT;
    if (!td_body_append(&response->body, document->bytes, 0, document->bytes->len_bytes, &err)) {
        td_response_fail_error(response, &err);
        return;
    }
    td_response_describe(response, document->media_type);
    td_oci_add_digest(oci, td_text_of(document->sha256), is_immutable);
}

void td_oci_answer_text(struct td_oci_call *oci, struct td_buffer *text, const char *media_type)
{
    struct td_response *response = oci->call->response;
    struct td_error err = TD_ERROR_INIT;
    if (!td_reserved_answer_json(&oci->reserved, text, response, &err))
        td_response_fail_error(response, &err);
    else if (response->status == 200)
        response->content_type = media_type;
}
