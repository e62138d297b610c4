/* POST /sign: a signed URL with the rights of the token that asks. */
#include "api/native/answer_now.h"
#include "api/native/routes.h"
#include "core/clock.h"
#include "core/json_build.h"
#include "core/json_document.h"
#include "http/auth/signed_url.h"
#include "http/origin.h"

#include <inttypes.h>
#include <string.h>

/* The most bytes of a body, which suffice for the longest path with all characters escaped; and the memory that reading
 * one may take: in any case, and for each of its bytes. */
enum { BODY_BYTES = 8 * TD_SIGNED_URL_PATH_BYTES, BODY_FREE_BYTES = 16 * 1024, BODY_PER_BYTE = 100 };

/* A request for a signature. */
struct wish {
    struct td_text path; /* in the arena */
    uint64_t valid_s;
};

static bool read_path(const struct td_json_document *document, const cJSON *item, struct wish *wish)
{
    if (!td_json_item_is_string(item))
        return td_json_document_fail(document, item, "\"path\" must be a string, such as \"/models/org/name\"");
    const char *path = td_json_document_string(document, item);
    if (path == NULL)
        return false;
    wish->path = td_text_of(path);
    return true;
}

static bool read_expires_in(const struct td_json_document *document, const cJSON *item, struct wish *wish)
{
    bool is_number = cJSON_IsRaw(item);
    if (is_number && !td_json_document_u64(document, item, &wish->valid_s))
        return false;
    if (is_number && wish->valid_s > 0 && wish->valid_s <= TD_SIGNED_URL_MOST_S)
        return true;
    return td_json_document_fail(document, item, "\"expires_in\" must be a number of seconds from 1 to %" PRIu64,
                                 TD_SIGNED_URL_MOST_S);
}

/* Reads {"path": "/...", "expires_in": 3600}, each once. */
static bool read_wish(struct td_text body, struct td_arena *arena, struct wish *wish, struct td_error *err)
{
    struct td_json_document document;
    bool has_path = false, has_expires_in = false;
    td_json_document_read(&document, body, arena, err);
    const cJSON *root = td_json_document_object(&document, "an object with \"path\" and \"expires_in\"");
    if (root == NULL)
        return false;
    for (const cJSON *item = root->child; item != NULL; item = item->next) {
        bool is_path = strcmp(item->string, "path") == 0;
        bool *has = is_path ? &has_path : &has_expires_in;
        if (!is_path && strcmp(item->string, "expires_in") != 0)
            return td_json_document_unknown_key(&document, item, "known are \"path\" and \"expires_in\"");
        if (*has)
            return td_json_document_fail_key(&document, item, "\"%s\" is given twice", item->string);
        if (!(is_path ? read_path(&document, item, wish) : read_expires_in(&document, item, wish)))
            return false;
        *has = true;
    }
    if (!has_path || !has_expires_in)
        return td_json_document_fail_end(&document, root, "\"%s\" is missing", has_path ? "expires_in" : "path");
    return td_json_document_end(&document);
}

/* Answers {"path", "url", "expires"}; without "url" when the client's Host cannot be told. */
static void answer(const struct td_call *call, struct td_text path, int64_t expires_s)
{
    struct td_buffer json, url;
    struct td_json_builder builder;
    char expires[40];
    struct td_text host = td_origin_host(call->request);
    (void)td_wall_rfc3339((struct td_wall){.seconds = expires_s}, expires, sizeof expires);
    td_buffer_init(&json);
    td_buffer_init(&url);
    td_buffer_printf(&url, "%s://%.*s", td_origin_scheme(call->request), (int)host.len, host.p);
    td_buffer_append(&url, path.p, path.len);
    td_json_builder_init(&builder, &json);
    td_json_begin_object(&builder, NULL);
    td_json_add_text(&builder, "path", path);
    if (host.len > 0)
        td_json_add_text(&builder, "url", td_buffer_text(&url));
    td_json_add_string(&builder, "expires", expires);
    td_json_end(&builder);
    td_json_builder_fini(&builder);
    json.failed = json.failed || url.failed;
    td_buffer_putc(&json, '\n');
    td_buffer_fini(&url);
    td_native_answer_now(call, "application/json", &json);
    td_buffer_fini(&json);
}

/* Signs without looking whether there is something at the path, so that the answer does not tell. */
void td_handle_sign(const struct td_call *call)
{
    static const char *const no_parameters[] = {NULL};
    struct td_error err = TD_ERROR_INIT;
    struct td_arena arena;
    struct td_buffer path;
    struct wish wish = {.valid_s = 0};
    int64_t expires_s = 0;
    if (!td_call_check_parameters(call, no_parameters))
        return;
    if (call->caller.token == NULL) {
        td_response_fail(call->response, 404, NULL, "there is nothing to sign with: this server has no --tokens");
        return;
    }
    if (call->request->body.len > BODY_BYTES) {
        td_response_fail(call->response, 413, NULL, "the body to sign by has at most %d bytes", BODY_BYTES);
        return;
    }
    td_arena_init(&arena, BODY_FREE_BYTES + BODY_PER_BYTE * call->request->body.len);
    td_buffer_init(&path);
    if (!read_wish(call->request->body, &arena, &wish, &err))
        td_call_fail_json(call, &err);
    else if (!td_signed_url_write(call->caller.tokens, call->caller.token, wish.path, td_wall_now().seconds,
                                  wish.valid_s, &path, &expires_s, &err))
        td_response_fail_error(call->response, &err);
    else
        answer(call, td_buffer_text(&path), expires_s);
    td_buffer_fini(&path);
    td_arena_fini(&arena);
}
