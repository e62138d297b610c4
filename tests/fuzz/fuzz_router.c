/* The input is a request to a server of a small tree. The answer must be one that HTTP allows. A request whose method
 * has "S3 " before it goes to the S3 port. */
#include "api/call/cross_site.h"
#include "api/hub/hub.h"
#include "api/native/native.h"
#include "api/oci/oci.h"
#include "api/rpc/grpc_services.h"
#include "api/rpc/rpc.h"
#include "api/rpc/rpc_form.h"
#include "api/s3/s3.h"
#include "core/digits.h"
#include "core/input.h"
#include "core/json/json.h"
#include "core/log.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/request_text.h"
#include "tests/kit/loopback.h"
#include "tests/kit/xml_check.h"

#include <inttypes.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static struct tree tree;
static bool names_tree; /* the input has the tree's path, so answers may repeat it */
static struct loopback loop;

/* Gives every file its digest, as the hasher would, and publishes it. */
static void hash_files(void)
{
    struct td_snapshot *snapshot = td_catalog_acquire(loop.catalog);
    for (size_t i = 0; i < snapshot->entry_count; i++) {
        struct td_file *file = snapshot->entries[i].file;
        char path[TREE_PATH_BYTES];
        static char bytes[65536];
        uint8_t sum[TD_SHA256_BYTES];
        tree_at(&tree, file->source.path, path);
        FILE *stream = fopen(path, "rb");
        FUZZ_CHECK(stream != NULL);
        size_t len = fread(bytes, 1, sizeof bytes, stream);
        FUZZ_CHECK(fclose(stream) == 0 && len < sizeof bytes);
        td_sha256(bytes, len, sum);
        (void)td_file_set_sha256(file, sum);
    }
    td_snapshot_unref(snapshot);
    loopback_rescan(&loop);
}

static void clean_up(void)
{
    loopback_close(&loop);
    tree_close(&tree);
}

static void set_up(void)
{
    static const struct tree_tensor tensors[] = {{"a", "U8", "[40]", 40},
                                                 {"b/c d", "F32", "[2,5]", 40},
                                                 {"\\u00e9", "BF16", "[]", 2},
                                                 {"none", "I64", "[0]", 0}};
    static const char npy[] = "\x93NUMPY\1\0\x36\0{'descr':'<f4','fortran_order':False,'shape':(2,)}   \n01234567";
    td_log_set_level(TD_LOG_ERROR);
    tree_open(&tree);
    (void)tree_tensors(&tree, "m/model.safetensors", tensors, 4, "{\"format\":\"pt\"}", 1);
    tree_simple(&tree, "m/other.safetensors", "x y");
    tree_text(&tree, "m/config.json", "{\"a\":1}");
    tree_text(&tree, "m/notes.txt", "0123456789");
    tree_simple(&tree, "m/tensors/n/x.safetensors", "t");
    tree_simple(&tree, "root.safetensors", "t");
    tree_simple(&tree, "org/x/x.safetensors", "t");
    tree_text(&tree, "bad/x.safetensors", "x");
    tree_text(&tree, "m/sub/deeper/x.txt", "");
    tree_write(&tree, "ns/npy/x.npy", npy, sizeof npy - 1);
    tree_text(&tree, "rows/data.csv", "a,b");
    tree_simple(&tree, "models--ns--hub/snapshots/" COMMIT "/x.safetensors", "t");
    tree_simple(&tree, "models--ns--hub/snapshots/c1/x.safetensors", "t");
    tree_text(&tree, "models--ns--hub/refs/main", COMMIT);
    tree_text(&tree, "models--ns--hub/refs/refs/pr/1", "c1");
    tree_text(&tree, "datasets/d/data/train-00000-of-00001.jsonl", "{\"a\":1}\n\n[2]\r\nno JSON\n\"last\"");
    tree_text(&tree, "datasets/d/data/test-00000-of-00001.jsonl", "1\n2\n3\n");
    tree_text(&tree, "datasets/ns/images/a.png", "one");
    tree_text(&tree, "datasets/ns/images/b.JPG", "three");
    tree_text(&tree, "datasets/none/a.jsonl", "");
    tree_text(&tree, "Org/G-GGUF/g-Q4_K_M.gguf", "no GGUF");
    tree_text(&tree, "Org/G-GGUF/g-Q8_0-00001-of-00002.gguf", "");
    tree_text(&tree, "Org/G-GGUF/mmproj-F16.gguf", "");
    loopback_open(&loop, &tree);
    hash_files();
    loopback_wait_indexed(loop.catalog);
    FUZZ_CHECK(atexit(clean_up) == 0);
}

/* Returns the whole body, NUL-terminated. */
static char *flatten(const struct td_response *response)
{
    static const size_t pieces[] = {100, 1, 7, 4096};
    struct td_body_cursor cursor = {0};
    size_t len = (size_t)response->body.total_bytes;
    FUZZ_CHECK(len < 1000000);
    char *body = malloc(len + 1);
    FUZZ_CHECK(body != NULL);
    for (size_t at = 0, i = 0; at < len; i++) {
        size_t n = pieces[i % 4] < len - at ? pieces[i % 4] : len - at;
        FUZZ_CHECK(td_body_read(&response->body, &cursor, body + at, n, NULL));
        at += n;
    }
    FUZZ_CHECK(td_body_unchanged(&response->body));
    body[len] = '\0';
    return body;
}

/* Checks a header's value: no byte of the client may begin a header line of the server. */
static void check_header_value(const char *value)
{
    for (const char *p = value; *p != '\0'; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7F);
}

static const char *header_of(const struct td_response *response, const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < response->header_count; i++) {
        check_header_value(response->headers[i].value);
        if (strcmp(response->headers[i].name, name) != 0)
            continue;
        FUZZ_CHECK(found == NULL); /* each header once */
        found = response->headers[i].value;
    }
    return found;
}

static void check_s3_error(const struct td_response *response, const char *body)
{
    size_t len = (size_t)response->body.total_bytes;
    FUZZ_CHECK(xml_is_well_formed(body, len) && strstr(body, "<Error><Code>") != NULL);
    const char *id = header_of(response, "x-amz-request-id");
    FUZZ_CHECK(id != NULL && (strpbrk(id, "&<>") != NULL || strstr(body, id) != NULL));
    FUZZ_CHECK(strcmp(response->content_type, "application/xml") == 0);
    FUZZ_CHECK(response->etag[0] == '\0' && response->last_modified_s < 0);
    FUZZ_CHECK((header_of(response, "Allow") != NULL) == (response->status == 405));
}

/* Checks the Hub's form of an error, a string. Only the code says what does not exist. */
static void check_hub_error(const struct td_response *response, const char *body)
{
    const char *code = header_of(response, "X-Error-Code");
    const char *commit = header_of(response, "X-Repo-Commit");
    FUZZ_CHECK(strncmp(body, "{\"error\":\"", 10) == 0);
    FUZZ_CHECK(code == NULL || response->status == 404);
    FUZZ_CHECK(code == NULL || strcmp(code, "EntryNotFound") == 0 || strcmp(code, "RevisionNotFound") == 0 ||
               strcmp(code, "RepoNotFound") == 0);
    FUZZ_CHECK(code == NULL || header_of(response, "X-Error-Message") != NULL);
    FUZZ_CHECK(code == NULL || (strcmp(code, "EntryNotFound") == 0) == (commit != NULL));
}

/* Checks the form of an error of a registry. */
static void check_oci_error(const struct td_response *response, const char *body)
{
    const char *version = header_of(response, "Docker-Distribution-API-Version");
    FUZZ_CHECK(strncmp(body, "{\"errors\":[{\"code\":\"", 20) == 0 && strstr(body, "\"detail\":{}}]}") != NULL);
    FUZZ_CHECK(version != NULL && strcmp(version, "registry/2.0") == 0);
    FUZZ_CHECK(header_of(response, "Docker-Content-Digest") == NULL && header_of(response, "Location") == NULL);
}

/* Checks the page of an error. */
static void check_error_page(const struct td_response *response, const char *body)
{
    char status[32];
    (void)snprintf(status, sizeof status, "data-status=\"%d\"", response->status);
    FUZZ_CHECK(strncmp(body, "<!DOCTYPE html>", 15) == 0 && strstr(body, status) != NULL);
    FUZZ_CHECK(header_of(response, "Content-Security-Policy") != NULL && response->etag[0] == '\0');
    FUZZ_CHECK(names_tree || strstr(body, tree.path) == NULL);
}

static void check_error(const struct td_response *response, const char *body)
{
    if (response->facade == &td_s3_facade) {
        check_s3_error(response, body);
        return;
    }
    if (response->is_for_browser) {
        check_error_page(response, body);
        return;
    }
    struct td_json json;
    size_t len = (size_t)response->body.total_bytes;
    td_json_init(&json, td_text_n(body, len), 0, NULL);
    FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
    if (response->facade == &td_hub_facade)
        check_hub_error(response, body);
    else if (response->facade == &td_oci_facade)
        check_oci_error(response, body);
    else
        FUZZ_CHECK(strncmp(body, "{\"error\":{\"code\":", 17) == 0 && atoi(body + 17) == response->status &&
                   header_of(response, "X-Error-Code") == NULL);
    FUZZ_CHECK(names_tree || strstr(body, tree.path) == NULL);
    FUZZ_CHECK(strcmp(response->content_type, "application/json") == 0);
    FUZZ_CHECK(response->etag[0] == '\0' && response->last_modified_s < 0);
    FUZZ_CHECK((header_of(response, "Allow") != NULL) == (response->status == 405));
}

/* Checks an answer of one range: the bytes of the whole that Content-Range names. */
static void check_single(const struct td_response *response, const char *body, const char *whole, uint64_t whole_len)
{
    uint64_t first, last, size;
    const char *range = header_of(response, "Content-Range");
    FUZZ_CHECK(range != NULL);
    FUZZ_CHECK(sscanf(range, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &first, &last, &size) == 3);
    FUZZ_CHECK(size == whole_len && first <= last && last < size);
    FUZZ_CHECK(response->body.total_bytes == last - first + 1);
    FUZZ_CHECK(memcmp(body, whole + first, (size_t)(last - first + 1)) == 0);
}

/* Checks an answer of several ranges: delimiter, Content-Range and bytes for each; RFC 9110 section 14.6. */
static void check_multipart(const struct td_response *response, const char *body, const char *whole, uint64_t whole_len)
{
    char delimiter[128];
    const char *boundary = strstr(response->content_type, "boundary=");
    FUZZ_CHECK(strncmp(response->content_type, "multipart/byteranges;", 21) == 0 && boundary != NULL);
    FUZZ_CHECK(header_of(response, "Content-Range") == NULL);
    int n = snprintf(delimiter, sizeof delimiter, "--%s", boundary + 9);
    FUZZ_CHECK(n > 2 && (size_t)n < sizeof delimiter);
    const char *at = body;
    const char *end = body + response->body.total_bytes;
    size_t parts = 0;
    for (;; parts++) {
        uint64_t first, last, size;
        FUZZ_CHECK(end - at > n && strncmp(at, delimiter, (size_t)n) == 0);
        at += n;
        if (strcmp(at, "--\r\n") == 0)
            break;
        const char *range = strstr(at, "\r\nContent-Range: bytes ");
        const char *data = strstr(at, "\r\n\r\n");
        FUZZ_CHECK(range != NULL && data != NULL && range < data);
        FUZZ_CHECK(sscanf(range + 23, "%" SCNu64 "-%" SCNu64 "/%" SCNu64, &first, &last, &size) == 3);
        FUZZ_CHECK(size == whole_len && first <= last && last < size);
        data += 4;
        FUZZ_CHECK((uint64_t)(end - data) >= last - first + 3);
        FUZZ_CHECK(memcmp(data, whole + first, (size_t)(last - first + 1)) == 0);
        at = data + (last - first + 1);
        FUZZ_CHECK(strncmp(at, "\r\n", 2) == 0);
        at += 2;
    }
    FUZZ_CHECK(parts >= 2 && at + 4 == end);
}

static void check_partial(const struct td_request *request, const struct td_response *response, const char *body)
{
    /* Accept chooses between a page and JSON, User-Agent between manifests; a list is cut into pages where the next
     * one's link can be made. */
    static const char *const names[] = {"Accept", "Host", "X-Forwarded-Proto", "User-Agent"};
    struct td_header kept[REQUEST_TEXT_HEADERS];
    struct td_request plain = *request;
    struct td_response all;
    plain.headers = kept;
    plain.header_count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct td_header *header;
        for (size_t at = 0; (header = td_request_next_header(request, names[i], &at)) != NULL;)
            kept[plain.header_count++] = *header;
    }
    const char *query = memchr(plain.target.p, '?', plain.target.len);
    if (plain.facade == &td_s3_facade && query != NULL) /* ?partNumber=1 is a range as well */
        plain.target.len = (size_t)(query - plain.target.p);
    td_api_handle(&loop.api, &plain, &all);
    FUZZ_CHECK(all.status == 200 && strcmp(all.etag, response->etag) == 0 && all.accept_ranges);
    char *whole = flatten(&all);
    if (header_of(response, "Content-Range") != NULL)
        check_single(response, body, whole, all.body.total_bytes);
    else
        check_multipart(response, body, whole, all.body.total_bytes);
    free(whole);
    td_response_fini(&all);
}

static void check_good(const struct td_response *response)
{
    FUZZ_CHECK(response->status == 304 || response->content_type != NULL);
    FUZZ_CHECK(response->status != 304 || response->body.total_bytes == 0);
    FUZZ_CHECK(header_of(response, "X-Error-Code") == NULL);
    const char *commit = header_of(response, "X-Repo-Commit");
    FUZZ_CHECK(commit == NULL || strspn(commit, "0123456789abcdef") == 40);
    bool is_page = response->content_type != NULL && strncmp(response->content_type, "text/html", 9) == 0;
    FUZZ_CHECK(response->route != TD_ROUTE_HUB_FILE ||
               ((commit != NULL || is_page) && response->etag[0] != '\0')); /* a page by a name has no commit */
    FUZZ_CHECK(response->route != TD_ROUTE_NONE && !response->changed);
    if (response->facade == &td_s3_facade) {
        size_t id_len = strlen(header_of(response, "x-amz-request-id"));
        FUZZ_CHECK(id_len > 0 && id_len < TD_REQUEST_ID_BYTES);
        FUZZ_CHECK(response->etag[0] == '\0' || strstr(response->etag, "-1\"") != NULL);
    }
    if (response->content_type != NULL)
        check_header_value(response->content_type);
    check_header_value(response->etag);
    size_t len = strlen(response->etag);
    FUZZ_CHECK(len == 0 ||
               (len > 2 && response->etag[0] == '"' && strchr(response->etag + 1, '"') == response->etag + len - 1));
    FUZZ_CHECK((header_of(response, "Content-Range") == NULL) || response->status == 206);
}

/* Checks that the digest of a registry's whole answer is that of its bytes, and its entity tag. */
static void check_digest(const struct td_response *response, const char *body)
{
    uint8_t sum[TD_SHA256_BYTES];
    char hex[2 * TD_SHA256_BYTES + 1];
    const char *digest = header_of(response, "Docker-Content-Digest");
    if (response->status != 200 || digest == NULL)
        return;
    td_sha256(body, (size_t)response->body.total_bytes, sum);
    td_hex_write(sum, sizeof sum, hex);
    FUZZ_CHECK(strncmp(digest, "sha256:", 7) == 0 && strcmp(digest + 7, hex) == 0);
    FUZZ_CHECK(strncmp(response->etag + 1, digest, strlen(digest)) == 0);
    FUZZ_CHECK((response->route == TD_ROUTE_OCI_BLOB) == (header_of(response, "Location") != NULL));
}

/* Checks that no answer names the tree's place on this machine, and that a whole answer of type JSON is JSON. */
static void check_json(const struct td_response *response, const char *body)
{
    struct td_json json;
    bool is_file =
        response->route == TD_ROUTE_FILE || response->route == TD_ROUTE_HUB_FILE || response->route == TD_ROUTE_ROW;
    FUZZ_CHECK(names_tree || strstr(body, tree.path) == NULL);
    if (response->status != 200 || is_file || strcmp(response->content_type, "application/json") != 0)
        return;
    td_json_init(&json, td_text_n(body, (size_t)response->body.total_bytes), 0, NULL);
    FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
}

static size_t count_of(const struct td_response *response, const char *name)
{
    const char *value = header_of(response, name);
    FUZZ_CHECK(value != NULL && strspn(value, "0123456789") == strlen(value) && *value != '\0');
    return (size_t)strtoull(value, NULL, 10);
}

/* Checks a whole answer with rows: the counts fit each other, and in a frame the table fits the rows. */
static void check_rows(const struct td_response *response, const char *body)
{
    const uint8_t *bytes = (const uint8_t *)body;
    size_t len = (size_t)response->body.total_bytes;
    bool is_batch = response->route == TD_ROUTE_ROWS_BATCH;
    if (response->status != 200 || (response->route != TD_ROUTE_ROWS && response->route != TD_ROUTE_ROW && !is_batch))
        return;
    size_t count = count_of(response, "X-Row-Count"), total = count_of(response, "X-Row-Total");
    FUZZ_CHECK(is_batch || count + count_of(response, "X-Row-Start") <= total);
    FUZZ_CHECK(is_batch == (response->etag[0] == '\0') && is_batch != response->accept_ranges);
    FUZZ_CHECK(strcmp(header_of(response, "X-Content-Type-Options"), "nosniff") == 0);
    if (response->route == TD_ROUTE_ROW || strcmp(response->content_type, "application/octet-stream") != 0 || len < 8 ||
        td_load_le64(bytes) != count || len < 8 * (count + 2))
        return; /* images as `raw` have that type, too */
    for (size_t i = 0; i < count; i++)
        FUZZ_CHECK(td_load_le64(bytes + 8 + 8 * i) <= td_load_le64(bytes + 16 + 8 * i));
    FUZZ_CHECK(td_load_le64(bytes + 8) == 0 && td_load_le64(bytes + 8 + 8 * count) == len - 8 * (count + 2));
}

/* Returns the length of the frame at the beginning of the body, which has these flags. */
static size_t frame_len(const uint8_t *bytes, size_t len, uint8_t flags)
{
    FUZZ_CHECK(len >= 5 && bytes[0] == flags);
    size_t message = (size_t)bytes[1] << 24 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 8 | bytes[4];
    FUZZ_CHECK(message <= len - 5);
    return message + 5;
}

/* Checks the frames of an answer: messages, and the end that its protocol has. */
static void check_frames(const struct td_response *response, const uint8_t *bytes, bool is_error)
{
    const bool is_grpc = (response->form & TD_RPC_GRPC) != 0;
    const uint8_t end = (response->form & TD_RPC_WEB) != 0 ? 0x80 : 0x02;
    size_t len = (size_t)response->body.total_bytes, at = 0, count = 0;
    bool has_ended = false;
    for (; at < len; count++) {
        FUZZ_CHECK(!has_ended && (bytes[at] == 0 || (bytes[at] == end && !is_grpc)));
        has_ended = bytes[at] == end;
        at += frame_len(bytes + at, len - at, bytes[at]);
    }
    FUZZ_CHECK(at == len && has_ended == !is_grpc && (!is_error || count == (is_grpc ? 0 : 1)));
    FUZZ_CHECK(response->trailers.count == (!is_grpc ? 0 : is_error ? 3 : 1));
}

/* Checks an answer to a call of tensord.v1: messages or an error, in the form of the call. */
static void check_rpc(const struct td_response *response, const char *body)
{
    const bool is_error = response->status >= 400, is_grpc = (response->form & (TD_RPC_WEB | TD_RPC_GRPC)) != 0;
    const bool is_refused = !is_grpc && (response->status == 405 || response->status == 415);
    const bool has_frames = (response->form & TD_RPC_FRAMES) != 0 && !is_refused;
    size_t len = (size_t)response->body.total_bytes;
    FUZZ_CHECK(header_of(response, "Content-Range") == NULL && !response->accept_ranges);
    FUZZ_CHECK(!is_error || (response->etag[0] == '\0' && (names_tree || strstr(body, tree.path) == NULL)));
    if (response->status != 304)
        FUZZ_CHECK(strcmp(response->content_type,
                          is_error && !has_frames ? "application/json" : td_rpc_type(response->form)) == 0);
    if (response->stream != NULL) {
        FUZZ_CHECK(!is_error && len == 0);
    } else if (has_frames) {
        check_frames(response, (const uint8_t *)body, is_error);
    } else if (is_error || (response->status == 200 && (response->form & TD_RPC_JSON) != 0)) {
        struct td_json json;
        td_json_init(&json, td_text_n(body, len), 0, NULL);
        FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END);
        FUZZ_CHECK(!is_error || (strncmp(body, "{\"code\":\"", 9) == 0 && response->sent_status >= 400));
    }
}

/* Takes the rest of the input, after an empty line, as the body of a POST. */
static void take_body(struct td_request *request, const uint8_t *data, size_t size)
{
    static const char blank[] = "\n\n";
    const char *text = (const char *)data;
    const char *at = size == 0 ? NULL : memmem(text, size, blank, 2);
    if (at != NULL && td_text_equals(request->method, "POST"))
        request->body = td_text_n(at + 2, size - (size_t)(at + 2 - text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    struct request_text text;
    struct td_response response;
    if (!ready)
        set_up();
    ready = true;
    if (size > 8192)
        return 0;
    bool is_s3 = size >= 3 && memcmp(data, "S3 ", 3) == 0;
    request_text_read(&text, data + (is_s3 ? 3 : 0), size - (is_s3 ? 3 : 0));
    text.request.facade = td_api_facade(is_s3 ? &td_s3_facade : &td_native_facade, text.request.target);
    take_body(&text.request, data, size);
    names_tree = size > 0 && memmem(data, size, "tensord-test-", strlen("tensord-test-")) != NULL;
    td_api_handle(&loop.api, &text.request, &response);
    char *body = flatten(&response);
    bool head = td_text_equals(text.request.method, "HEAD");
    bool get = td_text_equals(text.request.method, "GET");
    if (text.request.facade == &td_rpc_facade || text.request.facade == &td_grpc_services_facade) {
        check_rpc(&response, body);
        free(body);
        td_response_fini(&response);
        return 0;
    }
    switch (response.status) {
    case 206:
        FUZZ_CHECK(get);
        check_partial(&text.request, &response, body);
        check_good(&response);
        break;
    case 200:
    case 304:
        FUZZ_CHECK(get || head || response.route == TD_ROUTE_HUB_API || /* POST to paths-info */
                   (response.route == TD_ROUTE_ROWS_BATCH && response.etag[0] == '\0'));
        check_good(&response);
        if (is_s3 && response.body.total_bytes > 0 && strcmp(response.content_type, "application/xml") == 0)
            FUZZ_CHECK(xml_is_well_formed(body, (size_t)response.body.total_bytes));
        check_json(&response, body);
        check_digest(&response, body);
        check_rows(&response, body);
        break;
    case 416:
        FUZZ_CHECK((is_s3 && strstr(body, "InvalidPartNumber") != NULL) ||
                   (get && strncmp(header_of(&response, "Content-Range"), "bytes */", 8) == 0));
        check_error(&response, body);
        break;
    case 405:
        FUZZ_CHECK(strcmp(header_of(&response, "Allow"), "POST") == 0 ? !td_text_equals(text.request.method, "POST")
                                                                      : !get && !head);
        check_error(&response, body);
        break;
    case 412:
        FUZZ_CHECK(get || head || response.route == TD_ROUTE_ROWS_BATCH);
        check_error(&response, body);
        break;
    default:
        FUZZ_CHECK(response.status == 400 || response.status == 404 || response.status == (is_s3 ? 501 : 422) ||
                   (response.status == 403 && response.route == TD_ROUTE_HUB_API) || /* auth-check/write */
                   (response.status == 403 && td_cross_site_is(&text.request)) ||
                   (response.status == 501 && response.route == TD_ROUTE_OCI_MANIFEST)); /* nothing is hashed here */
        check_error(&response, body);
    }
    free(body);
    td_response_fini(&response);
    return 0;
}
