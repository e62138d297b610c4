#include "api/oci/oci.h"

#include "api/call/early_call.h"
#include "api/call/signed_call.h"
#include "api/oci/oci_handlers.h"
#include "core/clock.h"
#include "core/json/json_build.h"

/* Returns the code for a status that came without one. UNAVAILABLE and UNKNOWN are those of the registries that clients
 * know; the specification has codes for its own errors alone. */
static const char *code_of(int status)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {
        {400, "UNSUPPORTED"}, {401, "UNAUTHORIZED"}, {403, "DENIED"},       {404, "NAME_UNKNOWN"},
        {405, "UNSUPPORTED"}, {409, "BLOB_UNKNOWN"}, {416, "SIZE_INVALID"}, {429, "TOOMANYREQUESTS"},
        {412, "UNSUPPORTED"}, {422, "UNSUPPORTED"},  {431, "UNSUPPORTED"},  {501, "UNSUPPORTED"},
        {503, "UNAVAILABLE"}, {507, "UNAVAILABLE"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "UNKNOWN";
}

/* Writes {"errors":[{"code","message","detail"}]}. For td_facade.write_error. */
static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_json_builder json;
    td_json_builder_init(&json, out);
    td_json_begin_object(&json, NULL);
    td_json_begin_array(&json, "errors");
    td_json_begin_object(&json, NULL);
    td_json_add_string(&json, "code", failure->code != NULL ? failure->code : code_of(failure->status));
    td_json_add_string(&json, "message", failure->message);
    td_json_begin_object(&json, "detail");
    td_json_end(&json);
    td_json_end(&json);
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(out, '\n');
}

/* Answers /v2/: that the server speaks the protocol. */
static void answer_root(struct td_oci_call *oci)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{}");
    td_oci_answer_text(oci, &text, "application/json");
    td_buffer_fini(&text);
}

static void answer_nothing(struct td_oci_call *oci)
{
    (void)td_oci_fail(oci, 404, "UNSUPPORTED",
                      "the registry has nothing at this path; there are /v2/, /v2/_catalog, and below /v2/{name}/ "
                      "tags/list, manifests/{tag or digest}, blobs/{digest} and referrers/{digest}");
}

/* Answers 404 on the paths of uploads, which clients use to push. */
static void answer_upload(struct td_oci_call *oci)
{
    (void)td_oci_fail(oci, 404, "BLOB_UPLOAD_UNKNOWN", "this server only reads: there are no uploads");
}

/* The handler and the route of each endpoint. */
static const struct {
    void (*answer)(struct td_oci_call *oci);
    enum td_route route;
} endpoints[] = {
    [TD_OCI_NONE] = {answer_nothing, TD_ROUTE_OCI_API},
    [TD_OCI_ROOT] = {answer_root, TD_ROUTE_OCI_API},
    [TD_OCI_CATALOG] = {td_oci_answer_catalog, TD_ROUTE_OCI_API},
    [TD_OCI_TAGS] = {td_oci_answer_tags, TD_ROUTE_OCI_API},
    [TD_OCI_MANIFEST] = {td_oci_answer_manifest, TD_ROUTE_OCI_MANIFEST},
    [TD_OCI_BLOB] = {td_oci_answer_blob, TD_ROUTE_OCI_BLOB},
    [TD_OCI_REFERRERS] = {td_oci_answer_referrers, TD_ROUTE_OCI_API},
    [TD_OCI_UPLOAD] = {answer_upload, TD_ROUTE_OCI_API},
};

/* Splits the decoded path of a call. The raw path has already decided the route that is counted and where the call is
 * answered. If unescaping a '/' would change the endpoint, the endpoint becomes TD_OCI_NONE. */
static void split_path(const struct td_call *call, struct td_oci_path *path)
{
    struct td_oci_path raw;
    (void)td_oci_path_parse(&raw, call->uri->raw_path);
    if (!td_oci_path_parse(path, call->uri->path) || path->endpoint != raw.endpoint)
        *path = (struct td_oci_path){.endpoint = TD_OCI_NONE};
}

static void handle_oci(const struct td_call *call)
{
    struct td_call own = *call;
    struct td_oci_call oci = {.call = &own,
                              .own = &own,
                              .until_ns = td_clock_ns() + TD_OCI_WAIT_NS,
                              .reserved = {.budget = td_shared_budget_of(&call->api->lists, call->request->client)}};
    td_arena_init(&oci.arena, 0); /* no limit: lists are in proportion to the repository */
    split_path(call, &oci.path);
    if (oci.path.name.len == 0 || td_oci_find_repo(&oci))
        endpoints[oci.path.endpoint].answer(&oci);
    td_snapshot_unref(oci.incoming);
    td_arena_fini(&oci.arena);
    td_reserved_release(&oci.reserved);
}

static void answer_oci(struct td_call *call)
{
    struct td_oci_path path;
    (void)td_oci_path_parse(&path, call->uri->raw_path);
    call->response->route = endpoints[path.endpoint].route;
    if (td_call_take_snapshot(call))
        td_call_serve(call, handle_oci);
    td_early_call_mend(call);
}

static bool owns_oci_path(struct td_text raw_path)
{
    const struct td_text root = TD_TEXT("/v2");
    return td_text_begins(raw_path, root) && (raw_path.len == root.len || raw_path.p[root.len] == '/');
}

static bool is_text(struct td_text raw_path)
{
    struct td_oci_path path;
    return !td_oci_path_parse(&path, raw_path) || path.endpoint != TD_OCI_BLOB;
}

static bool admit_oci(struct td_call *call)
{
    struct td_refusal refusal;
    if (td_signed_call_admit(call, td_access_take_password, &refusal))
        return true;
    td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
    td_access_add_basic_challenge(call, &refusal);
    return false;
}

static const char *const write_methods[] = {"PUT", "POST", "PATCH", "DELETE", NULL};

const struct td_facade td_oci_facade = {
    .owns = owns_oci_path,
    .is_text = is_text,
    .admit = admit_oci,
    .answer = answer_oci,
    .write_error = write_error,
    .error_type = "application/json",
    .field_name = "Docker-Distribution-API-Version", /* marks every answer, errors too, as a registry's */
    .field_value = "registry/2.0",
    .query = TD_URI_REPEATS,
    .etag_end = "",
    .write_methods = write_methods,
};
