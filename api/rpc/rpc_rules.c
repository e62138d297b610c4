#include "api/rpc/rpc_rules.h"

#include "core/message/document.h"
#include "http/uri.h"
#include "rank/row_answer.h"

#include <inttypes.h>
#include <string.h>

/* The rule of a method. */
struct rule {
    const char *method;         /* without its package */
    enum td_route label, route; /* of the method, and of the request that it becomes */
    const char
        *path; /* {name} is a field, which must have a value; may end in a query, which other parameters follow */
    const char *query[9]; /* fields that are parameters of the query; NULL-terminated */
    const char *body[7];  /* fields that are members of the body; NULL-terminated; a rule with a body is a POST */
    bool is_post;
    enum td_rpc_answer answer;
    uint64_t page_size; /* when the request has none; 0: the most that a page holds */
};

enum { PAGE_SIZE_MOST = 10000, MANIFEST_PAGE_SIZE = 1000, ROWS_MOST = TD_ROWS_MOST };

static const struct rule rules[] = {
    {"ModelService/ListModels", TD_ROUTE_RPC_LIST_MODELS, TD_ROUTE_MODELS, "/models",
     .query = {"page_size", "page_token", "match"}},
    {"ModelService/GetModel", TD_ROUTE_RPC_GET_MODEL, TD_ROUTE_MODEL, "/models/{model}", .query = {"version"}},
    {"ModelService/ListVersions", TD_ROUTE_RPC_LIST_VERSIONS, TD_ROUTE_VERSIONS, "/models/{model}/versions",
     .query = {"page_size", "page_token"}},
    {"ModelService/GetManifest", TD_ROUTE_RPC_GET_MANIFEST, TD_ROUTE_MANIFEST, "/models/{model}/tensors",
     .query = {"version", "checkpoint", "partial", "match", "dtype", "page_size", "page_token", "digests"},
     .page_size = MANIFEST_PAGE_SIZE},
    {"ModelService/RegisterPlan", TD_ROUTE_RPC_REGISTER_PLAN, TD_ROUTE_PLANS, "/models/{model}/plans",
     .query = {"version", "checkpoint"}, .body = {"engine", "tp_size", "rules", "ranks", "boxes", "manifest"},
     .is_post = true},
    {"ModelService/GetPlan", TD_ROUTE_RPC_GET_PLAN, TD_ROUTE_PLAN, "/models/{model}/plans/{plan}",
     .query = {"version", "checkpoint"}},
    {"ModelService/WatchModel", TD_ROUTE_RPC_WATCH_MODEL, TD_ROUTE_MODEL, "/models/{model}", .query = {"version"},
     .answer = TD_RPC_WATCHED},
    {"ModelService/ReadTensors", TD_ROUTE_RPC_READ_TENSORS, TD_ROUTE_READ, "/models/{model}/tensors:read",
     .query = {"version", "checkpoint"}, .body = {"tensors", "manifest"}, .is_post = true, .answer = TD_RPC_TENSORS},
    {"DatasetService/BatchGetRows", TD_ROUTE_RPC_BATCH_GET_ROWS, TD_ROUTE_ROWS_BATCH,
     "/datasets/{dataset}/rows:batchGet?format=frame", .query = {"split", "fingerprint"}, .body = {"indices"},
     .is_post = true, .answer = TD_RPC_ROWS},
    {"DatasetService/StreamRows", TD_ROUTE_RPC_STREAM_ROWS, TD_ROUTE_ROWS, "/datasets/{dataset}/rows?format=frame",
     .query = {"split", "start", "count", "order", "seed", "epoch", "shard", "fingerprint"}, .answer = TD_RPC_ROWS},
    {"DatasetService/ListDatasets", TD_ROUTE_RPC_LIST_DATASETS, TD_ROUTE_DATASETS, "/datasets",
     .query = {"page_size", "page_token", "match"}},
    {"DatasetService/GetDataset", TD_ROUTE_RPC_GET_DATASET, TD_ROUTE_DATASET, "/datasets/{dataset}",
     .query = {"file_start"}},
    {"ServerService/GetVersion", TD_ROUTE_RPC_GET_VERSION, TD_ROUTE_VERSION, "/version", .query = {NULL}},
    {"ServerService/GetReadiness", TD_ROUTE_RPC_GET_READINESS, TD_ROUTE_READYZ, "/readyz", .query = {NULL}},
    {"ServerService/Rescan", TD_ROUTE_RPC_RESCAN, TD_ROUTE_RESCAN, "/rescan", .is_post = true},
};

/* GetRankFile, by an engine or by a plan. */
static const struct rule rank_rules[] = {
    {"ModelService/GetRankFile", TD_ROUTE_RPC_GET_RANK_FILE, TD_ROUTE_RANK_FILE,
     "/models/{model}/shards/{engine}/tp{tp_size}/rank-{tp_rank}.json", .query = {"version", "checkpoint", "digests"}},
    {"ModelService/GetRankFile", TD_ROUTE_RPC_GET_RANK_FILE, TD_ROUTE_PLAN,
     "/models/{model}/plans/{plan}/rank-{tp_rank}.json", .query = {"version", "checkpoint", "digests"}},
};

static const struct rule *find_rule(const struct td_method *method, const struct td_record *request)
{
    const char *name = strchr(method->path, '.');
    name = strchr(name + 1, '.') + 1; /* "tensord.v1." precedes it */
    if (strcmp(name, rank_rules[0].method) == 0)
        return &rank_rules[td_record_text(request, "plan").len > 0 ? 1 : 0];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(name, rules[i].method) == 0)
            return &rules[i];
    return NULL;
}

/* Appends a field of the path. Returns false after it answered 400 for a text without a value. */
static bool write_path_field(const struct td_record *request, struct td_text name, struct td_response *response,
                             struct td_buffer *out)
{
    char key[32];
    size_t len = name.len < sizeof key ? name.len : sizeof key - 1;
    memcpy(key, name.p, len);
    key[len] = '\0';
    const struct td_value *value = td_record_get(request, key);
    const struct td_text text = td_record_text(request, key);
    bool is_rank = strncmp(key, "tp_", 3) == 0;
    if (is_rank) {
        td_buffer_u64(out, value == NULL ? 0 : value->number);
        return true;
    }
    if (text.len == 0) {
        td_response_fail(response, 400, NULL, "the field \"%s\" must have a value", key);
        return false;
    }
    bool is_id = strcmp(key, "model") == 0 || strcmp(key, "dataset") == 0;
    if (!is_id && memchr(text.p, '/', text.len) != NULL) {
        td_response_fail(response, 400, NULL, "the field \"%s\" must not contain \"/\"", key);
        return false;
    }
    td_uri_encode(out, text, is_id);
    return true;
}

static bool write_path(const struct rule *rule, const struct td_record *request, struct td_response *response,
                       struct td_buffer *out)
{
    struct td_text rest = td_text_of(rule->path);
    while (rest.len > 0) {
        struct td_text plain = td_text_take_until(&rest, '{');
        td_buffer_append(out, plain.p, plain.len);
        if (rest.len > 0 && !write_path_field(request, td_text_take_until(&rest, '}'), response, out))
            return false;
    }
    return true;
}

/* Appends page_size, cut to the most. Returns false after it answered 400 for a negative one. */
static bool write_page_size(const struct rule *rule, const struct td_record *request, struct td_response *response,
                            const char *separator, struct td_buffer *out)
{
    const int32_t asked = (int32_t)td_record_number(request, "page_size");
    if (asked < 0) {
        td_response_fail(response, 400, NULL, "page_size must not be negative");
        return false;
    }
    uint64_t size = asked > 0 ? (uint64_t)asked : rule->page_size;
    if (size > 0)
        td_buffer_printf(out, "%spage_size=%" PRIu64, separator, size < PAGE_SIZE_MOST ? size : PAGE_SIZE_MOST);
    return true;
}

static bool write_query(const struct rule *rule, const struct td_record *request, struct td_response *response,
                        struct td_buffer *out)
{
    const char *separator = strchr(rule->path, '?') == NULL ? "?" : "&";
    for (size_t i = 0; rule->query[i] != NULL; i++) {
        const char *name = rule->query[i];
        const struct td_value *value = td_record_get(request, name);
        size_t len = out->len;
        if (strcmp(name, "page_size") == 0) {
            if (!write_page_size(rule, request, response, separator, out))
                return false;
        } else if (strcmp(name, "count") == 0) { /* 0 is a number of rows; absent are all */
            const uint64_t rows = value == NULL ? UINT64_MAX : value->number;
            td_buffer_printf(out, "%scount=%" PRIu64, separator, rows < ROWS_MOST ? rows : ROWS_MOST);
        } else if (value != NULL && value->field->type == TD_FIELD_STRING && value->text.len > 0) {
            td_buffer_printf(out, "%s%s=", separator, name);
            td_uri_encode(out, value->text, false);
        } else if (value != NULL && value->field->type != TD_FIELD_STRING && value->number != 0) {
            td_buffer_printf(out, "%s%s=%" PRIu64, separator, name, value->number);
        }
        separator = out->len > len ? "&" : separator;
    }
    return true;
}

static void write_body(const struct rule *rule, const struct td_record *request, struct td_buffer *out)
{
    struct td_document json;
    uint64_t fields = 0;
    for (size_t i = 0; rule->body[i] != NULL; i++)
        for (size_t k = 0; k < request->message->field_count; k++)
            if (strcmp(request->message->fields[k].name, rule->body[i]) == 0)
                fields |= UINT64_C(1) << request->message->fields[k].number;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_record_add(request, fields, &json);
    td_document_end(&json);
}

bool td_rpc_translate(const struct td_method *method, const struct td_record *request, struct td_response *response,
                      struct td_rpc_native *out)
{
    struct td_error err = TD_ERROR_INIT;
    *out = (struct td_rpc_native){.route = TD_ROUTE_NONE};
    td_buffer_init(&out->target);
    td_buffer_init(&out->body);
    const struct rule *rule = find_rule(method, request);
    if (rule == NULL) {
        td_response_fail_as(response, 501, "UNIMPLEMENTED", "this server does not serve the method %s", method->path);
        return false;
    }
    out->label = rule->label;
    out->route = rule->route;
    out->answer = rule->answer;
    out->is_post = rule->is_post;
    if (!write_path(rule, request, response, &out->target) || !write_query(rule, request, response, &out->target))
        return false;
    if (rule->body[0] != NULL)
        write_body(rule, request, &out->body);
    if (!out->target.failed && !out->body.failed)
        return true;
    (void)td_error_no_memory(&err);
    td_response_fail_error(response, &err);
    return false;
}

void td_rpc_native_fini(struct td_rpc_native *native)
{
    td_buffer_fini(&native->target);
    td_buffer_fini(&native->body);
}
