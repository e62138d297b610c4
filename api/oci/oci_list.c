#include "api/early_call.h"
#include "api/oci/oci_handlers.h"
#include "api/oci/oci_media.h"
#include "api/oci/oci_target.h"
#include "catalog/names/oci_name.h"
#include "core/json_build.h"

#include <string.h>

enum { PAGE_MAX = 1000 }; /* most names in a page, also where the client asks for more or for no number */

/* A page of names while it is written. */
struct page {
    struct td_oci_call *oci;
    struct td_buffer text;
    struct td_json_builder json;
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

static void begin(struct page *page, struct td_oci_call *oci)
{
    *page = (struct page){.oci = oci, .err = TD_ERROR_INIT};
    td_buffer_init(&page->text);
    td_json_builder_init(&page->json, &page->text);
    td_json_begin_object(&page->json, NULL);
}

/* Adds a name, or notes that it does not fit. Returns false when no more should be added. */
static bool add(struct page *page, const char *name)
{
    if (page->count == page->most) {
        page->has_more = true;
        return false;
    }
    if (!td_reserved_json_room(&page->oci->reserved, &page->json, strlen(name), &page->err))
        return false;
    td_json_add_string(&page->json, NULL, name);
    page->last = name;
    page->count++;
    return true;
}

/* Adds the link to the next page, relative as the specification has it. */
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
static void end(struct page *page)
{
    td_json_end(&page->json);
    td_json_end(&page->json);
    if (page->err.code != TD_OK)
        td_response_fail_error(page->oci->call->response, &page->err);
    else
        td_oci_answer_text(page->oci, &page->text, "application/json");
    if (page->has_more && page->last != NULL && page->oci->call->response->status == 200)
        add_link(page);
}

static void fini(struct page *page)
{
    td_json_builder_fini(&page->json);
    td_buffer_fini(&page->text);
}

void td_oci_answer_catalog(struct td_oci_call *oci)
{
    const struct td_snapshot *snapshot = oci->call->snapshot;
    struct page page;
    struct td_text last;
    begin(&page, oci);
    if (read_parameters(&page, &last) && td_early_call_may_list(oci->call)) {
        size_t i = last.len == 0 ? 0 : td_oci_names_after(snapshot, last);
        td_json_begin_array(&page.json, "repositories");
        while (i < snapshot->oci_name_count && add(&page, snapshot->oci_names[i].name))
            i++;
        end(&page);
    }
    fini(&page);
}

/* Adds the tags behind `last` to the page, but those of targets that cannot be made of so many files; if all are such,
 * the page fails. */
static void add_tags(struct page *page, const struct td_oci_target *targets, size_t count, struct td_text last)
{
    const struct td_repo *repo = page->oci->repo;
    const char *before = "";
    struct td_error err = TD_ERROR_INIT;
    bool any_fits = false;
    for (size_t i = 0; i < count; i++) {
        const char *tag = targets[i].tag;
        const struct td_repo *revision = td_repo_at(repo, targets[i].revision);
        if (!td_oci_target_fits(&targets[i], (revision == NULL ? repo : revision)->entry_count, &err))
            continue;
        any_fits = true;
        bool is_new = strcmp(tag, before) != 0 && td_text_compare(td_text_of(tag), last) > 0;
        if (is_new && !add(page, tag))
            break;
        before = tag;
    }
    if (!any_fits && page->err.code == TD_OK)
        (void)td_error_copy(&page->err, &err);
}

void td_oci_answer_tags(struct td_oci_call *oci)
{
    struct td_oci_target *targets;
    struct page page;
    struct td_text last;
    size_t count;
    struct td_error err = TD_ERROR_INIT;
    begin(&page, oci);
    if (!td_oci_targets(oci, &targets, &count, &err)) {
        (void)td_oci_fail_error(oci, &err, "NAME_UNKNOWN");
    } else if (read_parameters(&page, &last)) {
        td_json_add_text(&page.json, "name", oci->path.name);
        td_json_begin_array(&page.json, "tags");
        add_tags(&page, targets, count, last);
        end(&page);
    }
    fini(&page);
}

void td_oci_answer_referrers(struct td_oci_call *oci)
{
    struct td_text hex;
    struct td_buffer text;
    if (!td_oci_read_digest(oci, &hex))
        return;
    td_buffer_init(&text);
    td_buffer_puts(&text, "{\"schemaVersion\":2,\"mediaType\":\"" TD_OCI_INDEX_TYPE "\",\"manifests\":[]}");
    td_oci_answer_text(oci, &text, TD_OCI_INDEX_TYPE);
    td_buffer_fini(&text);
    if (td_uri_parameter(oci->call->uri, "artifactType") != NULL && oci->call->response->status == 200)
        td_response_add_header_text(oci->call->response, "OCI-Filters-Applied", TD_TEXT("artifactType"));
}
