/* Access of each kind of credentials to each kind of path, from this machine and from others. */
#include "api/call/access.h"

#include "core/clock.h"
#include "http/body_sink.h"
#include "tests/unit/api/served_place.h"

#include <inttypes.h>

#define NOW "td_now"
#define OLD "td_old"
#define WRITER "td_writer"

static struct td_token token_of(const char *name, const char *secret, unsigned rights, int64_t expires_s)
{
    struct td_token token = {.name = name, .rights = rights, .expires_s = expires_s};
    td_sha256(secret, strlen(secret), token.sha256);
    return token;
}

static void open_place(struct place *place)
{
    static const char *const none[] = {NULL};
    static const char *const some[] = {"org/*", "local/one", NULL};
    static const uint8_t key[TD_TOKEN_KEY_BYTES] = {1};
    struct td_error err = TD_ERROR_INIT;
    struct td_token tokens[] = {token_of("now", NOW, TD_RIGHT_READ, 0),
                                token_of("old", OLD, TD_RIGHT_READ, 1),
                                token_of("writer", WRITER, TD_RIGHT_WRITE, 0),
                                token_of("blind", "td_blind", TD_RIGHT_READ, 0),
                                token_of("editor", "td_editor", TD_RIGHT_READ | TD_RIGHT_WRITE, 0),
                                token_of("narrow", "td_narrow", TD_RIGHT_READ | TD_RIGHT_WRITE, 0)};
    tokens[3].models = none;
    tokens[5].models = some;
    tree_open(&place->tree);
    tree_simple(&place->tree, "m/model.safetensors", "w");
    loopback_open(&place->loop, &place->tree);
    td_api_set_tokens(&place->loop.api, td_token_set_create(key, tokens, COUNT_OF(tokens), &err));
}

FIXTURE(place, struct place, open_place, close_place)

/* Asks with these header lines, as from this machine or from another. */
static void ask(struct place *place, const char *target, const char *lines, bool is_local, struct td_response *response)
{
    struct loopback_request request;
    loopback_request_init(&request, "GET", target, lines);
    request.request.is_local = is_local;
    td_api_handle(&place->loop.api, &request.request, response);
}

static int status_of(struct place *place, const char *target, const char *lines, bool is_local)
{
    struct td_response response;
    ask(place, target, lines, is_local, &response);
    int status = response.status;
    td_response_fini(&response);
    return status;
}

/* shows: security.md token-refusals */
static void credentials_are_judged(void **state)
{
    static const struct {
        const char *lines;
        int status;
        const char *name; /* in the log */
    } cases[] = {
        {NULL, 401, ""},
        {"Authorization: Bearer " NOW, 200, "now"},
        {"authorization: bearer  " NOW, 200, "now"},
        {"Authorization: Bearer " OLD, 401, "old"},
        {"Authorization: Bearer " WRITER, 403, "writer"},
        {"Authorization: Bearer " NOW "x", 401, ""},
        {"Authorization: Bearer " NOW " x", 401, ""},
        {"Authorization: Bearer\t" NOW, 401, ""},
        {"Authorization: Bearer", 401, ""},
        {"Authorization: Bearer ", 401, ""},
        {"Authorization: " NOW, 401, ""},
        {"Authorization: Basic " NOW, 401, ""},
        {"Authorization: Bearer " NOW "\nAuthorization: Bearer " NOW, 401, ""},
        {"Authorization: Bearer " NOW ", Bearer " NOW, 401, ""},
        {"Proxy-Authorization: Bearer " NOW, 401, ""},
        {"Cookie: token=" NOW, 401, ""},
    };
    static const char *const targets[] = {"/models/m", "/api/models/m",       "/m/resolve/main/model.safetensors",
                                          "/models",   "/models/m/tensors/w", "/version"};
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t k = 0; k < COUNT_OF(targets); k++) {
            struct td_response response;
            ask(place, targets[k], cases[i].lines, true, &response);
            CHECK(response.status == cases[i].status, "%s %s: %d", targets[k], cases[i].lines, response.status);
            CHECK(strcmp(response.token, cases[i].name) == 0, "%s: %s", cases[i].lines, response.token);
            td_response_fini(&response);
        }
    assert_int_equal(status_of(place, "/models?token=" NOW, NULL, true), 401);
    assert_int_equal(status_of(place, "/models/none", "Authorization: Bearer " NOW, true), 404);
}

/* Clients of registries and browsers send a name and a password; the password is the token. RFC 7617 section 2. */
/* shows: security.md oci-tokens */
static void passwords_are_tokens(void **state)
{
    static const struct {
        const char *lines;
        int status;
        const char *name; /* in the log */
    } cases[] = {
        {NULL, 401, ""},
        {"Authorization: Basic dXNlcjp0ZF9ub3c=", 200, "now"}, /* printf user:td_now | base64 */
        {"Authorization: basic  dXNlcjp0ZF9ub3c", 200, "now"},
        {"Authorization: Basic OnRkX25vdw==", 200, "now"}, /* no name */
        {"Authorization: Bearer " NOW, 200, "now"},
        {"Authorization: Basic dXNlcjp0ZF9vbGQ=", 401, "old"},
        {"Authorization: Basic dXNlcjp0ZF93cml0ZXI=", 403, "writer"},
        {"Authorization: Basic dXNlcjp0ZF9ub3d4", 401, ""},     /* td_nowx */
        {"Authorization: Basic dXNlcjphOnRkX25vdw==", 401, ""}, /* user:a:td_now: the name ends at the first colon */
        {"Authorization: Basic dGRfbm93", 401, ""},             /* no colon */
        {"Authorization: Basic dXNlcjo=", 401, ""},             /* no password */
        {"Authorization: Basic !", 401, ""},
        {"Authorization: Basic", 401, ""},
        {"Authorization: Digest x", 401, ""},
        {"Authorization: Basic dXNlcjp0ZF9ub3c=\nAuthorization: Basic dXNlcjp0ZF9ub3c=", 401, ""},
    };
    static const char *const targets[] = {"/v2/",      "/v2/m/tags/list", "/v2/_catalog",
                                          "/models/m", "/api/models/m",   "/m/resolve/main/model.safetensors"};
    struct place *place = *state;
    char long_field[4096] = "Authorization: Basic ";
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t k = 0; k < COUNT_OF(targets); k++) {
            struct td_response response;
            ask(place, targets[k], cases[i].lines, true, &response);
            CHECK(response.status == cases[i].status, "%s %s: %d", targets[k], cases[i].lines, response.status);
            CHECK(strcmp(response.token, cases[i].name) == 0, "%s: %s", cases[i].lines, response.token);
            td_response_fini(&response);
        }
    memset(long_field + strlen(long_field), 'A', sizeof long_field - 100);
    assert_int_equal(status_of(place, "/v2/", long_field, true), 401);
}

/* The server asks before it reads a body: what the facade would refuse is not read. */
/* shows: security.md token-bodies */
static void bodies_are_read_for_good_credentials(void **state)
{
    static const struct {
        const char *target, *lines;
        bool admits;
    } cases[] = {
        {"/sign", NULL, false},
        {"/sign", "Authorization: Bearer " NOW, true},
        {"/sign", "Authorization: Bearer " OLD, false},
        {"/sign", "Authorization: Bearer " WRITER, false},
        {"/sign", "Authorization: Bearer " NOW "x", false},
        {"/sign?expires=9999999999&signature=00", NULL, false},
        {"/models/m/tensors:read", NULL, false},
        {"/models/m/tensors:read", "Authorization: Bearer " NOW, true},
        {"/models/none/tensors:read", "Authorization: Bearer " NOW, true},
        {"/api/models/m/paths-info/main", NULL, false},
        {"/api/models/m/paths-info/main", "Authorization: Bearer " NOW, true},
        {"/sign?%zz", "Authorization: Bearer " NOW, false},
    };
    struct place *place = *state;
    struct loopback_request request;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        loopback_request_init(&request, "POST", cases[i].target, cases[i].lines);
        CHECK(td_api_admits(&place->loop.api, &request.request) == cases[i].admits, "%zu", i);
    }
    td_api_set_tokens(&place->loop.api, NULL);
    loopback_request_init(&request, "POST", "/sign", NULL);
    assert_true(td_api_admits(&place->loop.api, &request.request)); /* a server without tokens */
}

static void some_paths_are_free(void **state)
{
    static const struct {
        const char *target, *lines;
        int local, remote, open; /* status from this machine, from another, and there with --metrics-open */
    } cases[] = {
        {"/healthz", NULL, 200, 200, 200},
        {"/healthz", "Authorization: Bearer x", 200, 200, 200},
        {"/readyz", NULL, 200, 200, 200},
        {"/%72eadyz", NULL, 200, 200, 200},
        {"/readyz/", NULL, 401, 401, 401},
        {"/metrics", NULL, 200, 401, 200},
        {"/metrics", "Authorization: Bearer x", 401, 401, 401},
        {"/metrics", "Authorization: Bearer " OLD, 401, 401, 401},
        {"/metrics", "Authorization: Bearer " NOW, 200, 200, 200},
        {"/metrics", "Authorization: Bearer td_blind", 200, 200, 200},
        {"/openapi.json", NULL, 200, 401, 200},
        {"/version", NULL, 401, 401, 401},
        {"/models", NULL, 401, 401, 401},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        atomic_store(&place->loop.api.metrics_open, false);
        CHECK(status_of(place, cases[i].target, cases[i].lines, true) == cases[i].local, "%zu", i);
        CHECK(status_of(place, cases[i].target, cases[i].lines, false) == cases[i].remote, "%zu", i);
        atomic_store(&place->loop.api.metrics_open, true);
        CHECK(status_of(place, cases[i].target, cases[i].lines, false) == cases[i].open, "%zu", i);
    }
}

enum { BODY_BYTES = 4096 };

/* Copies the beginning of the answer's body, and a NUL. */
static void read_body(const struct td_response *response, char body[BODY_BYTES])
{
    struct td_error err = TD_ERROR_INIT;
    struct td_body_cursor cursor = {0};
    size_t len = response->body.total_bytes < BODY_BYTES - 1 ? (size_t)response->body.total_bytes : BODY_BYTES - 1;
    CHECK(td_body_read(&response->body, &cursor, body, len, &err), "%s", err.message);
    body[len] = '\0';
}

/* Returns whether /readyz has numbers of models. */
static bool has_numbers(struct place *place, const char *lines, bool is_local)
{
    struct td_response response;
    char body[BODY_BYTES];
    ask(place, "/readyz", lines, is_local, &response);
    read_body(&response, body);
    td_response_fini(&response);
    return strstr(body, "\"models\":1") != NULL;
}

static void readiness_has_numbers_for_few(void **state)
{
    struct place *place = *state;
    assert_true(has_numbers(place, NULL, true));
    assert_false(has_numbers(place, NULL, false));
    assert_true(has_numbers(place, "Authorization: Bearer " NOW, false));
    assert_false(has_numbers(place, "Authorization: Bearer td_blind", true));
    assert_false(has_numbers(place, "Authorization: Bearer x", true));
    assert_false(has_numbers(place, "Authorization: Bearer " OLD, true));
    td_api_set_tokens(&place->loop.api, NULL);
    assert_true(has_numbers(place, NULL, false));
}

/* A request keeps the tokens that it began with; the next one has the new ones. */
static void tokens_are_replaced(void **state)
{
    static const uint8_t key[TD_TOKEN_KEY_BYTES] = {2};
    struct td_error err = TD_ERROR_INIT;
    struct td_token token = token_of("next", "td_next", TD_RIGHT_READ, 0);
    struct place *place = *state;
    struct td_token_set *held = td_api_tokens(&place->loop.api);
    td_api_set_tokens(&place->loop.api, td_token_set_create(key, &token, 1, &err));
    assert_non_null(td_token_set_find(held, TD_TEXT(NOW)));
    td_token_set_unref(held);
    assert_int_equal(status_of(place, "/models", "Authorization: Bearer " NOW, true), 401);
    assert_int_equal(status_of(place, "/models", "Authorization: Bearer td_next", true), 200);
    td_api_set_tokens(&place->loop.api, NULL);
    assert_int_equal(status_of(place, "/models", NULL, true), 200);
}

/* Publishing: each sender, and each kind of server. */
struct publisher {
    enum td_publish_who who;
    bool is_local, is_signed; /* is_signed: by the holder of the tokens file */
    const char *line;         /* of the header; NULL: none */
    const char *token;        /* the name in the set; NULL: the server has no tokens; empty: no token */
    const char *id;
    int status; /* 0: may publish */
};

/* Returns the status that td_access_may_publish answers, or 0. */
static int publish_status(struct place *place, const struct publisher *sender, char body[BODY_BYTES])
{
    struct loopback_request request;
    struct td_response response;
    struct td_token_set *set = td_api_tokens(&place->loop.api);
    loopback_request_init(&request, "PUT", "/models/m/files/a", sender->line);
    request.request.is_local = sender->is_local;
    place->loop.api.publish_who = sender->who;
    td_response_init_for(&response, &request.request);
    struct td_call call = {.api = &place->loop.api, .request = &request.request, .response = &response};
    call.caller = (struct td_caller){.kind = TD_CALLER_OPEN};
    if (sender->token != NULL)
        call.caller = (struct td_caller){.kind = TD_CALLER_NOBODY, .tokens = set};
    if (sender->token != NULL && sender->token[0] != '\0') {
        call.caller.kind = TD_CALLER_TOKEN;
        call.caller.token = td_token_set_find_name(set, td_text_of(sender->token));
    }
    if (sender->is_signed)
        call.caller.kind = TD_CALLER_HOLDER;
    bool may = td_access_may_publish(&call, td_text_of(sender->id));
    int status = may ? 0 : response.status;
    read_body(&response, body);
    td_response_fini(&response);
    td_token_set_unref(set);
    return status;
}

/* shows: security.md publish-rights */
static void few_may_publish(void **state)
{
    static const struct publisher cases[] = {
        {TD_PUBLISH_OFF, true, false, NULL, NULL, "m", 405},
        {TD_PUBLISH_OFF, true, true, NULL, "", "m", 405},
        {TD_PUBLISH_OFF, true, false, NULL, "editor", "m", 405},
        {TD_PUBLISH_LOCAL, true, false, NULL, NULL, "m", 0},
        {TD_PUBLISH_LOCAL, false, false, NULL, NULL, "m", 403},
        {TD_PUBLISH_LOCAL, true, false, "X-Forwarded-For: 10.0.0.1", NULL, "m", 403},
        {TD_PUBLISH_LOCAL, true, false, "Origin: http://other", NULL, "m", 403},
        {TD_PUBLISH_LOCAL, false, false, NULL, "editor", "m", 403},
        {TD_PUBLISH_LOCAL, true, false, NULL, "editor", "m", 0},
        {TD_PUBLISH_LOCAL, true, false, NULL, "now", "m", 403},
        {TD_PUBLISH_ANY, false, false, NULL, NULL, "m", 0},
        {TD_PUBLISH_ANY, false, false, "X-Forwarded-For: 10.0.0.1", NULL, "m", 0},
        {TD_PUBLISH_ANY, false, false, "Origin: http://other", NULL, "m", 403},
        {TD_PUBLISH_ANY, false, false, "Origin: http://other", "editor", "m", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "", "m", 401},
        {TD_PUBLISH_ANY, false, true, NULL, "", "m", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "now", "m", 403},
        {TD_PUBLISH_ANY, false, false, NULL, "editor", "m", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "editor", "datasets/org/rows", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "narrow", "org/x", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "narrow", "local/one", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "narrow", "one", 0},
        {TD_PUBLISH_ANY, false, false, NULL, "narrow", "m", 403},
        {TD_PUBLISH_ANY, false, false, NULL, "narrow", "datasets/org/x", 403},
    };
    struct place *place = *state;
    char message[BODY_BYTES], absent[BODY_BYTES];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int status = publish_status(place, &cases[i], message);
        CHECK(status == cases[i].status, "case %zu: %d: %s", i, status, message);
    }
    /* the same words for a model that is there and for one that is not, without the right and without the pattern */
    static const char *const names[] = {"now", "narrow"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct publisher sender = {TD_PUBLISH_ANY, false, false, NULL, names[i], "m", 403};
        assert_int_equal(publish_status(place, &sender, message), 403);
        sender.id = "n";
        assert_int_equal(publish_status(place, &sender, absent), 403);
        size_t at = (size_t)(strstr(absent, "\"n") - absent) + 1;
        absent[at] = 'm';
        assert_string_equal(message, absent);
    }
}

/* Credentials are judged again after the body of an upload, which may take longer than they last: a signed URL, a token
 * that expires, the 15 minutes that a signature of AWS is good for. */
static void an_upload_is_judged_by_its_beginning(void **state)
{
    struct place *place = *state;
    struct td_body_sink sink = {.ops = NULL};
    struct loopback_request request;
    loopback_request_init(&request, "PUT", "/models/m/files/x", NULL);
    const struct td_call call = {.api = &place->loop.api, .request = &request.request};
    uint64_t ago_ns = td_clock_ns() / 2;
    int64_t ago_s = (int64_t)(ago_ns / TD_NS_PER_S);
    int64_t now_s = td_wall_now().seconds;
    request.request.since_ns = td_clock_ns() - ago_ns;
    CHECK(td_access_now_s(&call) >= now_s, "a request without a body is judged now");
    request.request.sink = &sink;
    int64_t judged_s = td_access_now_s(&call);
    int64_t late_s = td_wall_now().seconds - now_s + 1; /* the test may be held up in between */
    CHECK(judged_s <= now_s - ago_s + late_s && judged_s >= now_s - ago_s - late_s, "%" PRId64, now_s - judged_s);
    request.request.since_ns = 0;
    CHECK(td_access_now_s(&call) >= now_s, "not known when it came");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, credentials_are_judged),
        TEST_IN(place, passwords_are_tokens),
        TEST_IN(place, bodies_are_read_for_good_credentials),
        TEST_IN(place, some_paths_are_free),
        TEST_IN(place, readiness_has_numbers_for_few),
        TEST_IN(place, tokens_are_replaced),
        TEST_IN(place, few_may_publish),
        TEST_IN(place, an_upload_is_judged_by_its_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
