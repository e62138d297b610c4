#include "api/oci/oci_publish.h"

#include "api/call/access.h"
#include "api/oci/oci_put.h"
#include "api/oci/oci_upload.h"
#include "catalog/names/oci_name.h"
#include "core/waiting.h"

/* ---- calls --------------------------------------------------------------------------------------------- */

/* Sets the repository that the call writes to. The snapshot, if there is one yet, gives the spelling of its id. Returns
 * false after it answered: 400 for the name; as td_access_may_publish. */
static bool begin_write(struct td_call *call, const struct td_oci_path *path, struct td_oci_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    char id[TD_OCI_ID_BYTES];
    struct td_oci_call *oci = &write->oci;
    *write = (struct td_oci_write){.oci = {.call = call, .own = call, .path = *path, .pushed = {.fd = -1}}};
    if (call->snapshot == NULL)
        td_call_look_for_snapshot(call, &err);
    if (call->snapshot != NULL)
        oci->repo = td_oci_name_find(call->snapshot, path->name);
    td_error_init(&err);
    if (!td_oci_publish_id(oci, id))
        return td_oci_fail(oci, 400, "NAME_INVALID", "the name is too long");
    if (!td_access_may_publish(call, td_text_of(id)))
        return false;
    if (oci->repo == NULL && !td_oci_name_is_valid(path->name))
        return td_oci_fail(oci, 400, "NAME_INVALID",
                           "\"%.*s\" is no name: lower-case letters and digits, with one of \"._-\" between them, in "
                           "parts separated by \"/\"",
                           TD_SHOW(path->name, 200));
    return td_publish_name(id, false, &write->name, &err) || td_oci_fail(oci, 400, "NAME_INVALID", "%s", err.message);
}

/* A method at an endpoint, and its handlers. */
struct action {
    enum td_oci_endpoint endpoint;
    bool has_reference;
    const char *method;
    struct td_body_sink *(*begin)(struct td_oci_write *write); /* NULL: it takes no body */
    void (*answer)(struct td_oci_write *write);                /* NULL: `begin` has answered */
};

static const struct action actions[] = {
    {TD_OCI_UPLOAD, false, "POST", td_oci_upload_begin_post, td_oci_upload_end_post},
    {TD_OCI_UPLOAD, true, "PATCH", td_oci_upload_begin_patch, td_oci_upload_end_patch},
    {TD_OCI_UPLOAD, true, "PUT", td_oci_upload_begin_put, td_oci_upload_end_put},
    {TD_OCI_UPLOAD, true, "GET", NULL, td_oci_upload_look},
    {TD_OCI_UPLOAD, true, "HEAD", NULL, td_oci_upload_look},
    {TD_OCI_UPLOAD, true, "DELETE", NULL, td_oci_upload_cancel},
    {TD_OCI_MANIFEST, true, "PUT", td_oci_put_begin, td_oci_put_end},
    {TD_OCI_MANIFEST, true, "DELETE", NULL, td_oci_put_delete},
    {TD_OCI_BLOB, true, "DELETE", NULL, td_oci_upload_delete_blob},
};

static const struct action *find_action(const struct td_oci_path *path, struct td_text method)
{
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (actions[i].endpoint == path->endpoint && actions[i].has_reference == (path->reference.len > 0) &&
            td_text_equals(method, actions[i].method))
            return &actions[i];
    return NULL;
}

bool td_oci_takes_upload(const struct td_request *request)
{
    struct td_oci_path path;
    const struct action *action =
        td_oci_path_parse(&path, td_uri_raw_path(request->target)) ? find_action(&path, request->method) : NULL;
    return action != NULL && action->begin != NULL;
}

struct td_body_sink *td_oci_begin_upload(struct td_call *call)
{
    struct td_oci_path path;
    struct td_oci_write write;
    td_oci_path_split(call, &path);
    const struct action *action = find_action(&path, call->request->method);
    if (action == NULL) {
        td_response_fail(call->response, 404, NULL, "nothing can be pushed to this path");
        return NULL;
    }
    return begin_write(call, &path, &write) ? action->begin(&write) : NULL;
}

bool td_oci_publish(struct td_call *call)
{
    struct td_oci_path path;
    struct td_oci_write write;
    td_oci_path_split(call, &path);
    const struct action *action = find_action(&path, call->request->method);
    if (action == NULL)
        return false;
    call->is_post = true; /* for answers of 405 */
    if (td_may_wait(NULL) && begin_write(call, &path, &write)) {
        if (action->begin != NULL && call->request->sink == NULL)
            (void)td_oci_fail(&write.oci, 400, "UNSUPPORTED", "the request has no body");
        else
            action->answer(&write);
    }
    if (!td_waiting_was_refused())
        td_call_finish(call, td_text_equals(call->request->method, "HEAD"));
    return true;
}
