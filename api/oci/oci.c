#include "api/oci/oci.h"

#include "api/oci/oci_error.h"
#include "api/oci/oci_handlers.h"
#include "api/signed_call.h"
#include "core/clock.h"

/* Answers /v2/: that the server speaks the protocol. */
static void answer_root(struct td_oci_call *oci)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{}");
    td_oci_answer_text(oci, &text, "application/json");
    td_buffer_fini(&text);
}

/* Clients POST to the paths of uploads; another method is answered like a blob that is not there. */
static void answer_upload(struct td_oci_call *oci)
{
    (void)td_oci_fail(oci, 404, "BLOB_UPLOAD_UNKNOWN", "this server only reads: there are no uploads");
}

/* The handler and the route of each endpoint. */
static const struct {
    void (*answer)(struct td_oci_call *oci);
    enum td_route route;
} endpoints[] = {
    [TD_OCI_ROOT] = {answer_root, TD_ROUTE_OCI_API},
    [TD_OCI_CATALOG] = {td_oci_answer_catalog, TD_ROUTE_OCI_API},
    [TD_OCI_TAGS] = {td_oci_answer_tags, TD_ROUTE_OCI_API},
    [TD_OCI_MANIFEST] = {td_oci_answer_manifest, TD_ROUTE_OCI_MANIFEST},
    [TD_OCI_BLOB] = {td_oci_answer_blob, TD_ROUTE_OCI_BLOB},
    [TD_OCI_REFERRERS] = {td_oci_answer_referrers, TD_ROUTE_OCI_API},
    [TD_OCI_UPLOAD] = {answer_upload, TD_ROUTE_OCI_API},
};

static void handle(const struct td_call *call)
{
    struct td_call own = *call;
    struct td_oci_call oci = {.call = &own,
                              .own = &own,
                              .until_ns = td_clock_ns() + TD_OCI_WAIT_NS,
                              .reserved = {.budget = td_shared_budget_of(&call->api->lists, call->request->client)}};
    td_arena_init(&oci.arena, 0); /* no limit: lists are in proportion to the repository */
    if (!td_oci_path_parse(&oci.path, call->uri->path))
        (void)td_oci_fail(&oci, 404, "NAME_INVALID", "nothing at this path of /v2/; no tag and no digest has a '/'");
    else if (oci.path.name.len == 0 || td_oci_find_repo(&oci))
        endpoints[oci.path.endpoint].answer(&oci);
    td_snapshot_unref(oci.incoming);
    td_arena_fini(&oci.arena);
    td_reserved_release(&oci.reserved);
}

/* Tells clients that the answer comes from a registry, whatever it says. */
static void add_version(const struct td_call *call)
{
    td_response_add_header_text(call->response, "Docker-Distribution-API-Version", TD_TEXT("registry/2.0"));
}

static void answer(struct td_call *call)
{
    struct td_oci_path path;
    (void)td_oci_path_parse(&path, call->uri->raw_path);
    call->response->route = endpoints[path.endpoint].route;
    if (td_call_take_snapshot(call))
        td_call_serve(call, handle);
    add_version(call);
}

static bool owns(struct td_text raw_path)
{
    struct td_oci_path path;
    return td_oci_path_parse(&path, raw_path);
}

static bool is_text(struct td_text raw_path)
{
    struct td_oci_path path;
    return !td_oci_path_parse(&path, raw_path) || path.endpoint != TD_OCI_BLOB;
}

static bool admit(struct td_call *call)
{
    struct td_refusal refusal;
    if (td_signed_call_admit(call, td_access_take_password, &refusal))
        return true;
    td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
    td_access_add_basic_challenge(call, &refusal);
    add_version(call);
    return false;
}

static const char *const write_methods[] = {"PUT", "POST", "PATCH", "DELETE", NULL};

const struct td_facade td_oci_facade = {
    .owns = owns,
    .is_text = is_text,
    .admit = admit,
    .answer = answer,
    .write_error = td_oci_write_error,
    .error_type = "application/json",
    .query = TD_URI_REPEATS,
    .etag_end = "",
    .write_methods = write_methods,
};
