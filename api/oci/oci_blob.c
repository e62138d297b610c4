#include "api/oci/oci_handlers.h"
#include "api/oci/oci_image.h"
#include "api/oci/oci_make.h"
#include "api/oci/oci_media.h"
#include "api/oci/oci_rank.h"
#include "core/waiting.h"
#include "rank/file_answer.h"

/* Gives an answer, unless it is an error, the type of blobs and the path of the blob itself: older versions of Ollama
 * take an answer without Location for a failure. */
static void describe_blob(const struct td_oci_call *oci)
{
    struct td_response *response = oci->call->response;
    struct td_buffer path;
    if (response->status != 200)
        return;
    response->content_type = TD_OCI_BLOB_TYPE;
    td_buffer_init(&path);
    td_oci_write_path(oci, "blobs/", &path);
    td_buffer_append(&path, oci->path.reference.p, oci->path.reference.len);
    if (path.failed)
        (void)td_call_no_memory(oci->call);
    else if (path.len < TD_HEADER_VALUE_BYTES)
        td_response_add_header_text(response, "Location", td_buffer_text(&path));
    td_buffer_fini(&path);
}

/* ---- files --------------------------------------------------------------------------------------------- */

/* A search for the files of a repository and of its cache's other revisions that have one SHA-256. */
struct search {
    const struct td_oci_call *oci;
    struct td_text hex;
    size_t left;             /* files that may still be looked at */
    size_t revision, number; /* where to go on: a file of oci->repo[revision] */
};

/* Returns whether files of the revision can have been named by a manifest. A revision of more files is no artifact, but
 * GGUF files of `main` have manifests of their own. */
static bool is_searched(const struct search *search)
{
    return search->revision == 0 || search->oci->repo[search->revision].entry_count <= TD_OCI_MOST_FILES;
}

/* Returns the next file with the digest; NULL when there is none, or none is known to have it. */
static const struct td_entry *next_file(struct search *search)
{
    const struct td_repo *repo = search->oci->repo;
    const struct td_entry *entries = search->oci->call->snapshot->entries;
    for (; search->revision <= repo->other_count; search->revision++, search->number = 0) {
        const struct td_repo *revision = &repo[search->revision];
        while (is_searched(search) && search->number < revision->entry_count) {
            if (search->left-- == 0)
                return NULL;
            const struct td_entry *entry = &entries[revision->first_entry + search->number++];
            const char *sha256 = td_file_sha256(entry->file);
            if (sha256 != NULL && td_text_equals(search->hex, sha256))
                return entry;
        }
    }
    return NULL;
}

/* Answers the bytes of a file, with its digest. Returns false with an error of td_file_answer. */
static bool answer_file(const struct td_oci_call *oci, const struct td_entry *entry, struct td_error *err)
{
    if (!td_file_answer(oci->call->api->catalog, oci->call->snapshot, entry, oci->call->response, err))
        return false;
    td_oci_add_digest(oci, td_text_of(td_file_sha256(entry->file)), true);
    describe_blob(oci);
    return true;
}

/* Answers a file with this SHA-256, looking at `most` files at most; of equal files the first that has not changed
 * since its digest was taken. Returns false, with no answer, when none is known to have it. */
static bool answer_files(const struct td_oci_call *oci, struct td_text hex, size_t most)
{
    enum { MOST_COPIES = 16 };
    struct search search = {.oci = oci, .hex = hex, .left = most};
    const struct td_file *tried = NULL;
    struct td_error err = TD_ERROR_INIT;
    const struct td_entry *entry = next_file(&search);
    for (int i = 0; entry != NULL && i < MOST_COPIES; entry = next_file(&search)) {
        if (entry->file == tried) /* of another revision */
            continue;
        td_error_init(&err);
        if (answer_file(oci, entry, &err))
            return true;
        if (err.code != TD_UNAVAILABLE)
            break;
        tried = entry->file;
        i++;
    }
    if (err.code != TD_OK)
        td_response_fail_error(oci->call->response, &err);
    return err.code != TD_OK;
}

/* ---- what is no file ----------------------------------------------------------------------------------- */

/* Answers a layer of the image. A layer that was found without the image's documents has these made, since a client
 * asks for one layer after the other. Errors as td_oci_image_answer_layer. */
static bool answer_image(struct td_oci_call *oci, struct td_text hex, struct td_error *err)
{
    struct td_made_documents *kept = td_oci_make_image(oci, false);
    bool found = td_oci_image_answer_layer(oci, kept, hex, err);
    if (found && kept == NULL)
        kept = td_oci_make_image(oci, true);
    td_made_documents_unref(kept);
    return found;
}

/* Answers what does not exist on disk: a layer of the image, or a rank file; or that it cannot be answered for want of
 * memory. Returns false, with no answer, when none is known to have the digest. */
static bool answer_virtual(struct td_oci_call *oci, struct td_text hex)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_oci_rank_answer_file(oci, hex, &err) || (err.code == TD_OK && answer_image(oci, hex, &err))) {
        describe_blob(oci);
        return true;
    }
    if (err.code != TD_OK)
        td_response_fail_error(oci->call->response, &err);
    return err.code != TD_OK;
}

/* Answers a file of any revision, a virtual file, a configuration, a file that was hashed meanwhile, or that nothing
 * has the digest. */
static void answer_other(struct td_oci_call *oci, struct td_text hex)
{
    struct td_made_documents *made;
    const struct td_made_document *document;
    struct td_error err = TD_ERROR_INIT;
    if (answer_files(oci, hex, SIZE_MAX) || answer_virtual(oci, hex))
        return;
    if (td_oci_find_document(oci, false, hex, &made, &document, &err)) {
        td_oci_answer_document(oci, document, true);
        describe_blob(oci);
    } else if (!answer_files(oci, hex, SIZE_MAX) && !answer_virtual(oci, hex)) {
        (void)td_oci_fail_error(oci, &err, "BLOB_UNKNOWN");
    }
    td_made_documents_unref(made);
}

void td_oci_answer_blob(struct td_oci_call *oci)
{
    struct td_text hex;
    struct td_error err = TD_ERROR_INIT;
    if (!td_oci_read_digest(oci, &hex))
        return;
    if (hex.len == 0) {
        (void)td_oci_no_document(oci, &err);
        (void)td_oci_fail_error(oci, &err, "BLOB_UNKNOWN");
    } else if (!answer_files(oci, hex, TD_OCI_MOST_FILES) && td_may_wait(NULL)) {
        answer_other(oci, hex);
    }
}
