#include "api/oci/oci_handlers.h"
#include "api/oci/oci_image.h"
#include "api/oci/oci_make.h"
#include "api/oci/oci_rank.h"
#include "core/waiting.h"
#include "rank/file_answer.h"

/* Adds the path of the blob itself: older versions of Ollama take an answer without Location for a failure. */
static void add_location(const struct td_oci_call *oci)
{
    struct td_buffer path;
    td_buffer_init(&path);
    td_oci_write_path(oci, "blobs/", &path);
    td_buffer_append(&path, oci->path.reference.p, oci->path.reference.len);
    if (path.failed)
        (void)td_call_no_memory(oci->call);
    else if (path.len < TD_HEADER_VALUE_BYTES && oci->call->response->status == 200)
        td_response_add_header_text(oci->call->response, "Location", td_buffer_text(&path));
    td_buffer_fini(&path);
}

static const struct td_entry *find_in(const struct td_oci_call *oci, const struct td_repo *repo, struct td_text hex)
{
    for (size_t i = 0; i < repo->entry_count; i++) {
        const struct td_entry *entry = &oci->call->snapshot->entries[repo->first_entry + i];
        const char *sha256 = td_file_sha256(entry->file);
        if (sha256 != NULL && td_text_equals(hex, sha256))
            return entry;
    }
    return NULL;
}

/* Returns the file of the repository, or of another revision of its cache, that has this SHA-256; NULL when none is
 * known to have it. Looks at TD_OCI_MOST_FILES files. */
static const struct td_entry *find_file(const struct td_oci_call *oci, struct td_text hex)
{
    const struct td_entry *entry = NULL;
    size_t count = 0;
    for (size_t i = 0; entry == NULL && i <= oci->repo->other_count; i++) {
        count += oci->repo[i].entry_count;
        if (count > TD_OCI_MOST_FILES)
            break;
        entry = find_in(oci, &oci->repo[i], hex);
    }
    return entry;
}

/* Answers the bytes of a file, with its digest. */
static void answer_file(const struct td_oci_call *oci, const struct td_entry *entry)
{
    struct td_response *response = oci->call->response;
    struct td_error err = TD_ERROR_INIT;
    if (!td_file_answer(oci->call->api->catalog, oci->call->snapshot, entry, response, &err)) {
        td_response_fail_error(response, &err);
        return;
    }
    response->content_type = "application/octet-stream";
    td_oci_add_digest(oci, td_file_sha256(entry->file), true);
    add_location(oci);
}

/* Answers what does not exist on disk: a layer of the image, or a rank file. Returns false, with no answer, when none
 * is known to have the digest. */
static bool answer_virtual(struct td_oci_call *oci, struct td_text hex)
{
    if (!td_oci_rank_answer_file(oci, hex) && !td_oci_image_answer_layer(oci, hex))
        return false;
    if (oci->call->response->status == 200)
        oci->call->response->content_type = "application/octet-stream";
    add_location(oci);
    return true;
}

/* Answers a virtual file, a configuration, a file that was hashed meanwhile, or that nothing has the digest. */
static void answer_other(struct td_oci_call *oci, struct td_text hex)
{
    struct td_made_documents *made;
    const struct td_made_document *document;
    struct td_error err = TD_ERROR_INIT;
    if (answer_virtual(oci, hex))
        return;
    bool is_found = td_oci_find_document(oci, false, hex, &made, &document, &err);
    const struct td_entry *entry = is_found ? NULL : find_file(oci, hex);
    if (is_found) {
        td_oci_answer_document(oci, document, true);
        oci->call->response->content_type = "application/octet-stream";
        add_location(oci);
    } else if (entry != NULL) {
        answer_file(oci, entry);
    } else if (!answer_virtual(oci, hex)) {
        (void)td_oci_fail_error(oci, &err, "BLOB_UNKNOWN");
    }
    td_made_documents_unref(made);
}

void td_oci_answer_blob(struct td_oci_call *oci)
{
    struct td_text hex;
    if (!td_oci_read_digest(oci, &hex))
        return;
    const struct td_entry *entry = find_file(oci, hex);
    if (entry != NULL)
        answer_file(oci, entry);
    else if (td_may_wait(NULL))
        answer_other(oci, hex);
}
