#include "api/oci/oci.h"

#include "api/call/access.h"
#include "api/call/hash_wait.h"
#include "api/oci/oci_document.h"
#include "api/oci/oci_image.h"
#include "api/oci/oci_make.h"
#include "api/oci/oci_ollama.h"
#include "api/oci/oci_publish.h"
#include "api/oci/oci_pushed.h"
#include "api/oci/oci_rank.h"
#include "api/oci/oci_target.h"
#include "catalog/names/oci_name.h"
#include "core/clock.h"
#include "core/message/document.h"
#include "core/waiting.h"
#include "rank/file_answer.h"

#include <string.h>

/* ---- errors -------------------------------------------------------------------------------------------- */

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
        {412, "UNSUPPORTED"}, {413, "SIZE_INVALID"}, {422, "UNSUPPORTED"},  {431, "UNSUPPORTED"},
        {501, "UNSUPPORTED"}, {503, "UNAVAILABLE"},  {507, "UNAVAILABLE"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "UNKNOWN";
}

/* Writes {"errors":[{"code","message","detail"}]}. For td_facade.write_error. */
static void write_error(struct td_failure *failure, struct td_buffer *out)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "errors");
    td_document_begin_object(&json, NULL);
    td_document_add_string(&json, "code", failure->code != NULL ? failure->code : code_of(failure->status));
    td_document_add_string(&json, "message", failure->message);
    td_document_begin_object(&json, "detail");
    td_document_end(&json);
    td_document_end(&json);
    td_document_end(&json);
    td_document_end(&json);
    td_buffer_putc(out, '\n');
}

/* ---- manifests ----------------------------------------------------------------------------------------- */

/* Answers a manifest by its digest. */
static void answer_digest(struct td_oci_call *oci)
{
    struct td_text hex;
    struct td_made_documents *made;
    const struct td_made_document *document;
    struct td_error err = TD_ERROR_INIT;
    if (!td_oci_read_digest(oci, &hex) || td_oci_pushed_answer_digest(oci, hex))
        return;
    if (oci->repo == NULL) {
        (void)td_oci_no_document(oci, &err);
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
        return;
    }
    if (td_oci_find_document(oci, true, hex, &made, &document, &err))
        td_oci_answer_document(oci, document, true);
    else
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
    td_made_documents_unref(made);
}

/* Returns whether the answer to this tag depends on the client: whether it may be a GGUF file. */
static bool may_be_gguf(const struct td_oci_target *target)
{
    return target->form == TD_OCI_GGUF || target->is_alias;
}

/* Sets *target to the GGUF file that llama.cpp, which takes shards, means by the tag "latest". Leaves other targets as
 * they are. Errors as td_oci_targets; TD_NOT_FOUND when the model has no GGUF file. */
static bool prefer_gguf(struct td_oci_call *oci, struct td_oci_target *target, struct td_error *err)
{
    struct td_oci_target_list targets;
    if (!target->is_alias)
        return true;
    if (!td_oci_targets(oci, &targets, err))
        return false;
    const struct td_oci_target *gguf = td_oci_default_gguf(&targets, true);
    if (gguf == NULL)
        return td_error_set(err, TD_NOT_FOUND, "the model has no GGUF file, which is what llama.cpp takes");
    *target = *gguf;
    return true;
}

static void answer_llama_cpp(struct td_oci_call *oci, const struct td_oci_target *target)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_oci_llama_cpp_write(oci, target, &text);
    td_oci_answer_text(oci, &text, "application/json");
    td_buffer_fini(&text);
}

/* Sets *target to the target of the tag for the client of this call. Sets *depends to whether other clients may get
 * another target. */
static bool find_target(struct td_oci_call *oci, struct td_oci_target *target, bool *depends, struct td_error *err)
{
    bool ok = td_oci_target_find(oci, oci->path.reference, target, err);
    *depends = ok && may_be_gguf(target);
    return ok && (!td_oci_is_llama_cpp(oci->call) || prefer_gguf(oci, target, err));
}

/* Answers the manifest of a tag that the server makes from the files. */
static void answer_made_tag(struct td_oci_call *oci)
{
    struct td_oci_target target;
    struct td_made_documents *made = NULL;
    struct td_error err = TD_ERROR_INIT;
    bool depends;
    bool ok = find_target(oci, &target, &depends, &err);
    if (ok && target.form == TD_OCI_GGUF && td_oci_is_llama_cpp(oci->call))
        answer_llama_cpp(oci, &target);
    else if (ok && td_oci_make(oci, &target, &made, &err))
        td_oci_answer_document(oci, &made->items[made->count - 1], false);
    else
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
    if (depends)
        td_response_add_header_text(oci->call->response, "Vary", TD_TEXT("User-Agent"));
    td_made_documents_unref(made);
}

/* Answers the manifest of a tag: the one that was pushed under it, else one that the server makes. llama.cpp, which
 * takes another manifest, gets its own where the repository has files. */
static void answer_tag(struct td_oci_call *oci)
{
    if ((oci->repo == NULL || !td_oci_is_llama_cpp(oci->call)) && td_oci_pushed_answer_tag(oci, oci->path.reference))
        return;
    if (oci->repo != NULL)
        answer_made_tag(oci);
    else
        (void)td_oci_fail(oci, 404, "MANIFEST_UNKNOWN", "%.*s has no tag \"%.*s\"", TD_SHOW(oci->path.name, 120),
                          TD_SHOW(oci->path.reference, 100));
}

static void answer_manifest(struct td_oci_call *oci)
{
    struct td_text reference = oci->path.reference;
    if (memchr(reference.p, ':', reference.len) != NULL)
        answer_digest(oci);
    else
        answer_tag(oci);
}

/* ---- blobs --------------------------------------------------------------------------------------------- */

/* Sets the content type of blobs and adds the blob's own path as Location, unless the answer is an error. Older
 * versions of Ollama take an answer without Location for a failure. */
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

/* A search for the files of a repository and of its cache's other revisions that have one SHA-256. */
struct search {
    const struct td_oci_call *oci;
    struct td_text hex;
    size_t left;             /* files that may still be looked at */
    size_t revision, number; /* the next file to look at, of oci->repo[revision] */
};

/* Returns whether a manifest can name files of this revision. A revision with more files is not served as an artifact,
 * but GGUF files of `main` have manifests of their own. */
static bool is_searched(const struct search *search)
{
    return search->revision == 0 || search->oci->repo[search->revision].entry_count <= TD_OCI_MOST_FILES;
}

/* Returns the next file that is known to have the digest, or NULL. */
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

/* Answers a file with this SHA-256, looking at `most` files at most. Of equal files it answers the first that has not
 * changed since it was hashed. Returns false, with no answer, when no file is known to have the digest. */
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

/* Answers a layer of the image. If the layer was found without the image's documents, builds these too, because a
 * client then asks for the other layers. Errors as td_oci_image_answer_layer. */
static bool answer_image(struct td_oci_call *oci, struct td_text hex, struct td_error *err)
{
    struct td_made_documents *kept = td_oci_make_image(oci, false);
    bool found = td_oci_image_answer_layer(oci, kept, hex, err);
    if (found && kept == NULL)
        kept = td_oci_make_image(oci, true);
    td_made_documents_unref(kept);
    return found;
}

/* Answers a blob that does not exist on disk: a rank file or a layer of the image; or answers an error. Returns false,
 * with no answer, when no such blob is known to have the digest. */
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

/* Answers a file of any revision, a virtual file or a configuration. The search for a configuration may wait for
 * hashing, so it then looks for files again. Answers 404 when nothing has the digest. */
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

static void answer_blob(struct td_oci_call *oci)
{
    struct td_text hex;
    struct td_error err = TD_ERROR_INIT;
    if (!td_oci_read_digest(oci, &hex))
        return;
    if (hex.len > 0 && oci->repo != NULL && answer_files(oci, hex, TD_OCI_MOST_FILES))
        return;
    if (hex.len > 0 && !td_may_wait(NULL)) /* nothing has a digest without digits */
        return;
    if (hex.len > 0 && td_oci_pushed_answer_blob(oci, hex)) {
        describe_blob(oci);
    } else if (hex.len > 0 && oci->repo != NULL) {
        answer_other(oci, hex);
    } else {
        (void)td_oci_no_document(oci, &err);
        (void)td_oci_fail_error(oci, &err, "BLOB_UNKNOWN");
    }
}

/* ---- lists --------------------------------------------------------------------------------------------- */

enum { PAGE_MAX = 1000 }; /* most names in a page, also where the client asks for more or for no number */

/* A page of names that is being written. */
struct page {
    struct td_oci_call *oci;
    struct td_buffer text;
    struct td_document json;
    uint64_t most, count;
    const char *last; /* the last name in the page */
    bool has_more;    /* names follow that do not fit */
    struct td_error err;
};

/* Reads the parameters n and last. Returns false after it answered an error. */
static bool read_parameters(struct page *page, struct td_text *last)
{
    const struct td_call *call = page->oci->call;
    const struct td_text *after = td_uri_parameter(call->uri, "last");
    page->most = PAGE_MAX;
    *last = after == NULL ? TD_TEXT("") : *after;
    if (!td_call_read_number(call, "n", UINT32_MAX, &page->most))
        return false;
    page->most = page->most > PAGE_MAX ? PAGE_MAX : page->most;
    return true;
}

static void begin_page(struct page *page, struct td_oci_call *oci)
{
    *page = (struct page){.oci = oci, .err = TD_ERROR_INIT};
    td_buffer_init(&page->text);
    td_document_init(&page->json, &page->text);
    td_document_begin_object(&page->json, NULL);
}

/* Adds a name, or sets has_more if it does not fit. Returns false when the caller should add no more. */
static bool add_name(struct page *page, const char *name)
{
    if (page->count == page->most) {
        page->has_more = true;
        return false;
    }
    if (!td_reserved_json_room(&page->oci->reserved, &page->json, strlen(name), &page->err))
        return false;
    td_document_add_string(&page->json, NULL, name);
    page->last = name;
    page->count++;
    return true;
}

/* Adds the link to the next page, relative as in the specification. */
static void add_link(const struct page *page)
{
    struct td_buffer link;
    td_buffer_init(&link);
    td_buffer_putc(&link, '<');
    td_oci_write_path(page->oci, page->oci->path.endpoint == TD_OCI_CATALOG ? "_catalog?n=" : "tags/list?n=", &link);
    td_buffer_u64(&link, page->most);
    td_buffer_puts(&link, "&last=");
    td_uri_encode(&link, td_text_of(page->last), true);
    td_buffer_puts(&link, ">; rel=\"next\"");
    if (link.failed)
        (void)td_call_no_memory(page->oci->call);
    else if (link.len < TD_HEADER_VALUE_BYTES)
        td_response_add_header_text(page->oci->call->response, "Link", td_buffer_text(&link));
    td_buffer_fini(&link);
}

/* Answers the page, or the error. */
static void end_page(struct page *page)
{
    td_document_end(&page->json);
    td_document_end(&page->json);
    if (page->err.code != TD_OK)
        td_response_fail_error(page->oci->call->response, &page->err);
    else
        td_oci_answer_text(page->oci, &page->text, "application/json");
    if (page->has_more && page->last != NULL && page->oci->call->response->status == 200)
        add_link(page);
}

static void fini_page(struct page *page)
{
    td_buffer_fini(&page->text);
}

static void answer_catalog(struct td_oci_call *oci)
{
    const struct td_snapshot *snapshot = oci->call->snapshot;
    struct page page;
    struct td_text last;
    begin_page(&page, oci);
    if (read_parameters(&page, &last) && td_call_may_list(oci->call)) {
        size_t i = last.len == 0 ? 0 : td_oci_names_after(snapshot, last);
        td_document_begin_array(&page.json, "repositories");
        const struct td_oci_names *names = td_oci_names_of(snapshot);
        while (i < names->count && add_name(&page, names->items[i].name))
            i++;
        end_page(&page);
    }
    fini_page(&page);
}

/* Returns whether the target, which may have been pushed, is there still and can have its files. */
static bool is_tag(const struct td_oci_call *oci, const struct td_oci_target *target, struct td_error *err)
{
    if (target->is_pushed)
        return td_oci_pushed_has_tag(oci, target->tag);
    const struct td_repo *revision = td_repo_at(oci->repo, target->revision);
    return td_oci_target_fits(target, (revision == NULL ? oci->repo : revision)->entry_count, err);
}

/* Adds the tags after `last` to the page. Leaves out tags of targets that cannot have so many files. Fails the page if
 * that leaves out all. */
static void add_tags(struct page *page, const struct td_oci_target_list *targets, struct td_text last)
{
    const char *before = "";
    struct td_error err = TD_ERROR_INIT;
    bool any_fits = false;
    for (size_t i = 0; i < targets->count; i++) {
        const struct td_oci_target *target = &targets->items[i];
        bool is_new = strcmp(target->tag, before) != 0 && td_text_compare(td_text_of(target->tag), last) > 0;
        if (target->is_pushed && !is_new) {
            any_fits = true; /* it is not read */
            continue;
        }
        if (!is_tag(page->oci, target, &err))
            continue;
        any_fits = true;
        if (is_new && !add_name(page, target->tag))
            break;
        before = target->tag;
    }
    if (!any_fits && err.code != TD_OK && page->err.code == TD_OK)
        (void)td_error_copy(&page->err, &err);
}

static void answer_tags(struct td_oci_call *oci)
{
    struct td_oci_target_list targets = {.items = NULL};
    struct page page;
    struct td_text last;
    struct td_error err = TD_ERROR_INIT;
    begin_page(&page, oci);
    if ((oci->repo != NULL && !td_oci_targets(oci, &targets, &err)) || !td_oci_pushed_add_tags(oci, &targets, &err)) {
        (void)td_oci_fail_error(oci, &err, "NAME_UNKNOWN");
    } else if (read_parameters(&page, &last)) {
        td_document_add_text(&page.json, "name", oci->path.name);
        td_document_begin_array(&page.json, "tags");
        add_tags(&page, &targets, last);
        end_page(&page);
    }
    fini_page(&page);
}

static void answer_constant(struct td_oci_call *oci, const char *constant, const char *media_type)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_puts(&text, constant);
    td_oci_answer_text(oci, &text, media_type);
    td_buffer_fini(&text);
}

static void answer_referrers(struct td_oci_call *oci)
{
    struct td_text hex;
    if (td_oci_read_digest(oci, &hex))
        td_oci_pushed_answer_referrers(oci, hex);
}

/* ---- the facade ---------------------------------------------------------------------------------------- */

/* Answers /v2/: that the server speaks the protocol. */
static void answer_root(struct td_oci_call *oci)
{
    answer_constant(oci, "{}", "application/json");
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
    (void)td_oci_fail(oci, 404, "BLOB_UPLOAD_UNKNOWN", "%s",
                      oci->call->api->publish == NULL ? "this server only reads: there are no uploads"
                                                      : "uploads begin with POST, and have paths of their own");
}

/* The handler and the route of each endpoint. */
static const struct {
    void (*answer)(struct td_oci_call *oci);
    enum td_route route;
} endpoints[] = {
    [TD_OCI_NONE] = {answer_nothing, TD_ROUTE_OCI_API},
    [TD_OCI_ROOT] = {answer_root, TD_ROUTE_OCI_API},
    [TD_OCI_CATALOG] = {answer_catalog, TD_ROUTE_OCI_API},
    [TD_OCI_TAGS] = {answer_tags, TD_ROUTE_OCI_API},
    [TD_OCI_MANIFEST] = {answer_manifest, TD_ROUTE_OCI_MANIFEST},
    [TD_OCI_BLOB] = {answer_blob, TD_ROUTE_OCI_BLOB},
    [TD_OCI_REFERRERS] = {answer_referrers, TD_ROUTE_OCI_API},
    [TD_OCI_UPLOAD] = {answer_upload, TD_ROUTE_OCI_UPLOAD},
};

static void handle_oci(const struct td_call *call)
{
    struct td_call own = *call;
    struct td_oci_call oci = {.call = &own,
                              .own = &own,
                              .pushed = {.fd = -1},
                              .until_ns = td_clock_ns() + TD_HASH_WAIT_NS,
                              .reserved = {.budget = td_shared_budget_of(&call->api->lists, call->request->client)}};
    td_arena_init(&oci.arena, 0); /* no limit: lists are in proportion to the repository */
    td_oci_path_split(call, &oci.path);
    if (oci.path.name.len == 0 || td_oci_find_repo(&oci))
        endpoints[oci.path.endpoint].answer(&oci);
    td_snapshot_unref(oci.incoming);
    td_publish_repo_look_end(&oci.pushed);
    td_arena_fini(&oci.arena);
    td_reserved_release(&oci.reserved);
}

static void answer_oci(struct td_call *call)
{
    struct td_oci_path path;
    (void)td_oci_path_parse(&path, call->uri->raw_path);
    call->response->route = endpoints[path.endpoint].route;
    if (call->api->publish != NULL && td_oci_publish(call))
        return;
    if (td_call_take_snapshot(call))
        td_call_serve(call, handle_oci);
    td_call_mend_early(call);
}

static struct td_body_sink *begin_upload(struct td_call *call)
{
    struct td_oci_path path;
    (void)td_oci_path_parse(&path, call->uri->raw_path);
    call->response->route = endpoints[path.endpoint].route;
    return td_oci_begin_upload(call);
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
    if (td_access_admit(call, td_access_by_password, &refusal))
        return true;
    td_response_fail(call->response, refusal.status, NULL, "%s", refusal.message);
    td_access_add_basic_challenge(call, &refusal);
    return false;
}

static const char *const write_methods[] = {"PUT", "POST", "PATCH", "DELETE", NULL};

const struct td_facade td_oci_facade = {
    .owns = owns_oci_path,
    .is_text = is_text,
    .takes_upload = td_oci_takes_upload,
    .begin_upload = begin_upload,
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
