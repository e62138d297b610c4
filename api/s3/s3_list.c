/* Plan: read_listing() reads the query; fill_page() moves a cursor to the start of the page and writes keys and common
 * prefixes until the page is full; write_page() puts the document around them.
 *
 * What is hard: a common prefix can stand for a million keys, so the cursor seeks past it (skip_prefix) instead of
 * walking over them. A page starts after the last key or common prefix of the page before. Lengths of rank files may
 * have to be planned, so a page also ends after a time. */
#include "api/s3/s3_list.h"

#include "api/s3/s3_keys.h"
#include "core/clock.h"
#include "core/digits.h"
#include "http/page_token.h"
#include "http/xml.h"

#include <inttypes.h>
#include <string.h>

/* A page ends after this time once it has files that must be planned before their length is known: 2 s. */
#define PAGE_NS UINT64_C(2000000000)

/* No item begins after this many bytes of XML. */
enum { PAGE_BYTES = 1024 * 1024 };

/* The query of a listing; texts are borrowed from it. */
struct listing {
    bool is_v2, encode, has_owner;
    struct td_text prefix, delimiter, token, start_after; /* in version 1, start_after is the marker */
    size_t max_keys;
    struct td_buffer scope; /* the listing that tokens belong to */
    struct td_buffer after; /* the last key or common prefix of the page before */
};

struct page {
    const struct td_call *call;
    const struct listing *listing;
    struct td_arena arena;
    struct td_s3_keys keys;
    struct td_repo_stats stats; /* descriptions of the keys */
    struct td_buffer key, last; /* the current key, and the last one that was written */
    struct td_buffer contents, prefixes;
    size_t count;
    bool is_truncated;
    struct td_error err;
};

/* ---- the query ----------------------------------------------------------------------------------------- */

struct td_text td_s3_parameter(const struct td_call *call, const char *name)
{
    const struct td_text *value = td_uri_parameter(call->uri, name);
    return value == NULL ? TD_TEXT("") : *value;
}

bool td_s3_count(const struct td_call *call, const char *name, size_t least, size_t most, size_t *out)
{
    const struct td_text *value = td_uri_parameter(call->uri, name);
    uint64_t number = 0;
    *out = most;
    if (value == NULL)
        return true;
    if (!td_number_read(*value, INT32_MAX, &number) || number < least) {
        td_response_fail(call->response, 400, NULL, "%s must be a number from %zu to %d", name, least, INT32_MAX);
        return false;
    }
    *out = number < most ? (size_t)number : most;
    return true;
}

bool td_s3_read_encoding(const struct td_call *call, bool *is_encoded)
{
    const struct td_text *encoding = td_uri_parameter(call->uri, "encoding-type");
    *is_encoded = encoding != NULL;
    if (encoding == NULL || td_text_equals(*encoding, "url"))
        return true;
    td_response_fail(call->response, 400, NULL, "Invalid Encoding Method: only encoding-type=url is known");
    return false;
}

/* Reads the query. Returns false after answering an error. */
static bool read_listing(const struct td_call *call, const struct td_bucket *bucket, struct listing *listing)
{
    const struct td_text *type = td_uri_parameter(call->uri, "list-type");
    const struct td_text *token = td_uri_parameter(call->uri, "continuation-token");
    listing->is_v2 = type != NULL;
    listing->has_owner = listing->is_v2 && td_text_equals_ignore_case(td_s3_parameter(call, "fetch-owner"), "true");
    listing->prefix = td_s3_parameter(call, "prefix");
    listing->delimiter = td_s3_parameter(call, "delimiter");
    listing->start_after = td_s3_parameter(call, listing->is_v2 ? "start-after" : "marker");
    td_buffer_printf(&listing->scope, "%s/", bucket->name);
    td_buffer_append(&listing->scope, listing->prefix.p, listing->prefix.len);
    td_buffer_append(&listing->scope, "", 1);
    td_buffer_append(&listing->scope, listing->delimiter.p, listing->delimiter.len);
    if (type != NULL && !td_text_equals(*type, "2")) {
        td_response_fail(call->response, 400, NULL, "Invalid List Type: only list-type=2 is known");
        return false;
    }
    if (!td_s3_read_encoding(call, &listing->encode) ||
        !td_s3_count(call, "max-keys", 0, TD_S3_PAGE_ITEMS, &listing->max_keys))
        return false;
    if (listing->is_v2 && token != NULL) {
        listing->token = *token;
        return (!listing->scope.failed || td_call_no_memory(call)) &&
               td_call_read_page_token(call, token, td_buffer_text(&listing->scope),
                                       "The continuation token provided is incorrect: it is of another listing",
                                       &listing->after);
    }
    td_buffer_append(&listing->after, listing->start_after.p, listing->start_after.len);
    return !(listing->scope.failed || listing->after.failed) || td_call_no_memory(call);
}

/* ---- the page ------------------------------------------------------------------------------------------ */

size_t td_s3_common_prefix(struct td_text key, struct td_text prefix, struct td_text delimiter)
{
    if (delimiter.len == 0 || !td_text_begins(key, prefix) || key.len == prefix.len)
        return 0;
    const char *at = memmem(key.p + prefix.len, key.len - prefix.len, delimiter.p, delimiter.len);
    return at == NULL ? 0 : (size_t)(at - key.p) + delimiter.len;
}

static size_t common_prefix(const struct listing *listing, const struct td_buffer *key)
{
    return td_s3_common_prefix(td_buffer_text(key), listing->prefix, listing->delimiter);
}

/* Moves to the first key after all keys that begin with text[0..len), which is not empty: no key has a byte 0xFF. */
static bool skip_prefix(struct page *page, const struct td_buffer *text, size_t len)
{
    struct td_buffer behind;
    td_buffer_init(&behind);
    td_buffer_append(&behind, text->data, len);
    td_buffer_putc(&behind, (char)0xFF);
    if (!behind.failed)
        td_s3_keys_seek(&page->keys, td_buffer_text(&behind));
    bool ok = !behind.failed;
    td_buffer_fini(&behind);
    return ok || td_error_no_memory(&page->err);
}

/* Moves to the first key of the page. */
static bool seek_start(struct page *page)
{
    const struct listing *listing = page->listing;
    const struct td_buffer *after = &listing->after;
    size_t common = common_prefix(listing, after);
    struct td_repo_item item;
    if (common > 0)
        return skip_prefix(page, after, common);
    td_s3_keys_seek(&page->keys, listing->prefix);
    if (after->len == 0 || td_text_compare(td_buffer_text(after), listing->prefix) < 0)
        return true;
    td_s3_keys_seek(&page->keys, td_buffer_text(after));
    if (td_s3_keys_get(&page->keys, &page->arena, &page->key, &item, &page->err) && page->key.len == after->len &&
        td_text_begins(td_buffer_text(&page->key), td_buffer_text(after)))
        td_s3_keys_next(&page->keys);
    return page->err.code == TD_OK;
}

void td_s3_element(struct td_buffer *out, const char *name, struct td_text text, bool is_encoded)
{
    struct td_buffer encoded;
    if (!is_encoded) {
        td_xml_element(out, name, text);
        return;
    }
    td_buffer_init(&encoded);
    td_uri_encode(&encoded, text, true);
    out->failed = out->failed || encoded.failed;
    td_xml_element(out, name, td_buffer_text(&encoded));
    td_buffer_fini(&encoded);
}

static void write_text(const struct page *page, struct td_buffer *out, const char *name, struct td_text text)
{
    td_s3_element(out, name, text, page->listing->encode);
}

void td_s3_date(struct td_buffer *out, const char *name, int64_t ns)
{
    char date[40];
    (void)td_wall_rfc3339(td_wall_of_ns(ns), date, sizeof date);
    td_buffer_printf(out, "<%s>%s</%s>", name, date, name);
}

static bool write_object(struct page *page, const struct td_repo_item *item)
{
    struct td_buffer *out = &page->contents;
    struct td_repo_stat stat;
    if (!td_repo_stats_get(&page->stats, item, &stat, &page->err))
        return false;
    td_buffer_puts(out, "<Contents>");
    write_text(page, out, "Key", td_buffer_text(&page->key));
    td_s3_date(out, "LastModified", stat.updated_ns);
    td_buffer_printf(out,
                     "<ETag>&quot;%s" TD_S3_ETAG_END "&quot;</ETag><Size>%" PRIu64
                     "</Size>%s<StorageClass>STANDARD</StorageClass></Contents>",
                     stat.tag, stat.size_bytes, page->listing->has_owner ? TD_S3_OWNER : "");
    return true;
}

static void write_prefix(struct page *page, size_t len)
{
    td_buffer_puts(&page->prefixes, "<CommonPrefixes>");
    write_text(page, &page->prefixes, "Prefix", td_text_n(page->key.data, len));
    td_buffer_puts(&page->prefixes, "</CommonPrefixes>");
}

/* Writes the current key, or the common prefix for all keys that have it. */
static bool write_item(struct page *page, const struct td_repo_item *item)
{
    size_t common = common_prefix(page->listing, &page->key);
    bool ok;
    if (common > 0) {
        write_prefix(page, common);
        ok = skip_prefix(page, &page->key, common);
    } else {
        ok = write_object(page, item);
        td_s3_keys_next(&page->keys);
    }
    td_buffer_clear(&page->last);
    td_buffer_append(&page->last, page->key.data, common > 0 ? common : page->key.len);
    page->count++;
    if (page->contents.failed || page->prefixes.failed || page->last.failed)
        return td_error_no_memory(&page->err);
    return ok;
}

static bool fill_page(struct page *page)
{
    struct td_repo_item item;
    uint64_t until_ns = td_clock_ns() + PAGE_NS;
    if (page->listing->max_keys == 0)
        return true;
    if (!seek_start(page))
        return false;
    while (td_s3_keys_get(&page->keys, &page->arena, &page->key, &item, &page->err) &&
           td_text_begins(td_buffer_text(&page->key), page->listing->prefix)) {
        bool is_long = page->contents.len + page->prefixes.len > PAGE_BYTES;
        bool is_late = item.model != NULL && td_clock_ns() > until_ns;
        page->is_truncated = page->count == page->listing->max_keys || (page->count > 0 && (is_long || is_late));
        if (page->is_truncated)
            return true;
        if (!write_item(page, &item))
            return false;
    }
    return page->err.code == TD_OK;
}

/* ---- the document -------------------------------------------------------------------------------------- */

static void write_where(const struct page *page, struct td_buffer *out)
{
    const struct listing *listing = page->listing;
    struct td_text last = {.p = page->last.data, .len = page->last.len};
    if (listing->is_v2) {
        td_buffer_printf(out, "<KeyCount>%zu</KeyCount>", page->count);
        if (td_uri_parameter(page->call->uri, "continuation-token") != NULL)
            td_xml_element(out, "ContinuationToken", listing->token);
        if (listing->start_after.len > 0)
            write_text(page, out, "StartAfter", listing->start_after);
        if (page->is_truncated) {
            td_buffer_puts(out, "<NextContinuationToken>");
            td_page_token_write(out, td_buffer_text(&listing->scope), last);
            td_buffer_puts(out, "</NextContinuationToken>");
        }
        return;
    }
    write_text(page, out, "Marker", listing->start_after);
    if (page->is_truncated && listing->delimiter.len > 0)
        write_text(page, out, "NextMarker", last);
}

static void write_page(const struct page *page, const struct td_bucket *bucket, struct td_buffer *out)
{
    const struct listing *listing = page->listing;
    td_xml_begin(out);
    td_buffer_puts(out, "<ListBucketResult xmlns=\"" TD_S3_XMLNS "\">");
    td_xml_element(out, "Name", td_text_of(bucket->name));
    write_text(page, out, "Prefix", listing->prefix);
    write_where(page, out);
    td_buffer_printf(out, "<MaxKeys>%zu</MaxKeys>", listing->max_keys);
    if (listing->delimiter.len > 0)
        write_text(page, out, "Delimiter", listing->delimiter);
    if (listing->encode)
        td_buffer_puts(out, "<EncodingType>url</EncodingType>");
    td_buffer_printf(out, "<IsTruncated>%s</IsTruncated>", page->is_truncated ? "true" : "false");
    td_buffer_append(out, page->contents.data, page->contents.len);
    td_buffer_append(out, page->prefixes.data, page->prefixes.len);
    td_buffer_puts(out, "</ListBucketResult>\n");
}

static void answer_listing(const struct td_call *call, const struct td_bucket *bucket, const struct listing *listing)
{
    struct page page = {.call = call, .listing = listing};
    struct td_buffer xml;
    td_error_init(&page.err);
    td_arena_init(&page.arena, 0);
    td_repo_stats_init(&page.stats, &call->api->ranks, &page.keys.rank_files.view);
    td_buffer_init(&page.key);
    td_buffer_init(&page.last);
    td_buffer_init(&page.contents);
    td_buffer_init(&page.prefixes);
    td_buffer_init(&xml);
    if (td_s3_keys_open(&page.keys, call->snapshot, bucket, listing->prefix, &page.arena, &page.err) &&
        fill_page(&page)) {
        write_page(&page, bucket, &xml);
        td_response_set_text(call->response, TD_XML_TYPE, "no-cache", &xml);
    } else {
        td_response_fail_error(call->response, &page.err);
    }
    td_buffer_fini(&xml);
    td_buffer_fini(&page.prefixes);
    td_buffer_fini(&page.contents);
    td_buffer_fini(&page.last);
    td_buffer_fini(&page.key);
    td_repo_stats_fini(&page.stats);
    td_arena_fini(&page.arena);
}

void td_s3_list(const struct td_call *call, const struct td_bucket *bucket)
{
    struct listing listing = {0};
    td_buffer_init(&listing.scope);
    td_buffer_init(&listing.after);
    if (read_listing(call, bucket, &listing))
        answer_listing(call, bucket, &listing);
    td_buffer_fini(&listing.after);
    td_buffer_fini(&listing.scope);
}
