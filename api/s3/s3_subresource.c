#include "api/s3/s3_subresource.h"

#include <stddef.h>

/* S3 recognises a subresource by its parameter's presence, whatever the value, and ignores unknown parameters. Source:
 * Amazon S3 API Reference, the request lines of all operations (one operation on objects has no request line of its
 * own: ListParts goes by uploadId). */
static const struct td_s3_subresource subresources[] = {
    {"abac", NULL},
    {"accelerate", NULL},
    {"acl", NULL},
    {"analytics", NULL},
    {"annotation", NULL},
    {"attributes", NULL},
    {"cors", NULL},
    {"delete", NULL},
    {"encryption", NULL},
    {"intelligent-tiering", NULL},
    {"inventory", NULL},
    {"legal-hold", NULL},
    {"lifecycle", NULL},
    {"location", "LocationConstraint"},
    {"logging", NULL},
    {"metadataAnnotationTable", NULL},
    {"metadataConfiguration", NULL},
    {"metadataInventoryTable", NULL},
    {"metadataJournalTable", NULL},
    {"metadataTable", NULL},
    {"metrics", NULL},
    {"notification", NULL},
    {"object-lock", NULL},
    {"ownershipControls", NULL},
    {"policy", NULL},
    {"policyStatus", NULL},
    {"publicAccessBlock", NULL},
    {"renameObject", NULL},
    {"replication", NULL},
    {"requestPayment", NULL},
    {"restore", NULL},
    {"retention", NULL},
    {"select", NULL},
    {"session", NULL},
    {"tagging", NULL},
    {"torrent", NULL},
    {"uploadId", NULL},
    {"uploads", NULL},
    {"versioning", "VersioningConfiguration"},
    {"versions", NULL},
    {"website", NULL},
};

static const struct td_s3_subresource *find_subresource(struct td_text name)
{
    for (size_t i = 0; i < sizeof subresources / sizeof *subresources; i++)
        if (td_text_equals(name, subresources[i].name))
            return &subresources[i];
    return NULL;
}

/* Returns whether a NULL-terminated list has the name. list may be NULL. */
static bool has_name(const char *const *list, struct td_text name)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        if (td_text_equals(name, list[i]))
            return true;
    return false;
}

const struct td_s3_subresource *td_s3_asked_subresource(const struct td_call *call, const char *const *served)
{
    const struct td_s3_subresource *asked = NULL;
    for (size_t i = 0; i < call->uri->parameter_count; i++) {
        struct td_text name = call->uri->parameters[i].name;
        const struct td_s3_subresource *other = has_name(served, name) ? NULL : find_subresource(name);
        if (other != NULL && (asked == NULL || other->document == NULL))
            asked = other;
    }
    return asked;
}

void td_s3_fail_subresource(const struct td_call *call, const struct td_s3_subresource *asked)
{
    td_response_fail(call->response, 501, NULL,
                     "\"%s\" is not served here; buckets, their keys, location and versioning, and objects are",
                     asked->name);
}
