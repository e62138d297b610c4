#include "api/call/access.h"

#include "core/base64.h"
#include "core/clock.h"
#include "http/auth/signed_url.h"
#include "http/facade.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static const char field_name[] = "Authorization";

bool td_access_begin(struct td_call *call)
{
    call->caller = (struct td_caller){.tokens = td_api_tokens(call->api)};
    if (call->caller.tokens != NULL)
        return call->request->facade->admit(call);
    call->caller.kind = TD_CALLER_OPEN;
    return true;
}

void td_access_end(struct td_call *call)
{
    td_token_set_unref(call->caller.tokens);
    call->caller = (struct td_caller){.kind = TD_CALLER_NOBODY};
}

/* Writes a refusal of credentials, 401. Returns false. */
static bool refuse_credentials(struct td_refusal *refusal, bool is_invalid, const char *message)
{
    *refusal = (struct td_refusal){.status = 401, .is_invalid = is_invalid};
    (void)snprintf(refusal->message, sizeof refusal->message, "%s", message);
    return false;
}

void td_access_note_name(const struct td_call *call, const struct td_token *token)
{
    (void)snprintf(call->response->token, sizeof call->response->token, "%s", token->name);
}

int64_t td_access_now_s(const struct td_call *call)
{
    const struct td_request *request = call->request;
    uint64_t now_ns = td_clock_ns();
    bool had_body = request->sink != NULL && request->since_ns != 0 && request->since_ns < now_ns;
    return td_wall_now().seconds - (had_body ? (int64_t)((now_ns - request->since_ns) / TD_NS_PER_S) : 0);
}

uint64_t td_access_expiry_ns(const struct td_token *token)
{
    if (token == NULL || token->expires_s == 0)
        return UINT64_MAX;
    int64_t left_s = token->expires_s - td_wall_now().seconds;
    return td_clock_ns() + (left_s > 0 ? (uint64_t)left_s * (uint64_t)TD_NS_PER_S : 0);
}

bool td_access_take_token(struct td_call *call, const struct td_token *token, struct td_refusal *refusal)
{
    char expired[40];
    td_access_note_name(call, token);
    if (td_token_has_expired(token, td_access_now_s(call))) {
        (void)td_wall_rfc3339((struct td_wall){.seconds = token->expires_s}, expired, sizeof expired);
        *refusal = (struct td_refusal){.status = 401, .is_invalid = true};
        (void)snprintf(refusal->message, sizeof refusal->message,
                       "the token has expired on %s; ask the operator of this server for a new one", expired);
        return false;
    }
    if ((token->rights & TD_RIGHT_READ) == 0) {
        *refusal = (struct td_refusal){.status = 403};
        (void)snprintf(refusal->message, sizeof refusal->message, "the token lacks the right to read");
        return false;
    }
    call->caller.kind = TD_CALLER_TOKEN;
    call->caller.token = token;
    return true;
}

/* Returns whether the text is an access key, or has the form of a secret key. Does not reveal which secret keys exist.
 */
static bool is_s3_key(const struct td_token_set *set, struct td_text text)
{
    uint8_t bytes[TD_S3_SECRET_BYTES];
    size_t len = 0;
    return td_token_set_find_access_key(set, text) != NULL ||
           (text.len == TD_S3_SECRET_BYTES - 1 && td_base64url_read(text, bytes, &len));
}

/* Returns whether the request has the field Authorization once, and sets *scheme and *rest, which begins after the
 * blanks. Else writes a refusal; `how` says how to send a token. */
static bool take_field(const struct td_call *call, const char *how, struct td_text *scheme, struct td_text *rest,
                       struct td_refusal *refusal)
{
    size_t at = 0;
    const struct td_header *field = td_request_next_header(call->request, field_name, &at);
    if (field == NULL)
        return refuse_credentials(refusal, false, how);
    if (td_request_next_header(call->request, field_name, &at) != NULL)
        return refuse_credentials(refusal, true, "the request has two Authorization fields; send one");
    *rest = field->value;
    *scheme = td_text_take_until(rest, ' ');
    while (td_text_take_char(rest, ' '))
        ;
    return true;
}

/* Sets call->caller to the token of this text. */
static bool take_text(struct td_call *call, struct td_text text, struct td_refusal *refusal)
{
    const struct td_token *token = td_token_set_find(call->caller.tokens, text);
    if (token == NULL && is_s3_key(call->caller.tokens, text))
        return refuse_credentials(
            refusal, true,
            "this looks like a key for clients of S3; the token is another line of what tensord token new "
            "printed, and begins with td_");
    if (token == NULL)
        return refuse_credentials(refusal, true,
                                  "the token is wrong or was revoked; ask the operator of this server for a new one");
    return td_access_take_token(call, token, refusal);
}

const char td_access_by_bearer[] =
    "this server needs a token: send it as Authorization: Bearer TOKEN, or as the password with any user name; ask the "
    "operator of this server for one";
const char td_access_by_password[] =
    "this server needs a token: the token is the password, with any user name, as in curl -u any:TOKEN URL, or in "
    "podman login and docker login; ask the operator of this server for one";

/* Takes the token of "user:token" in base64. */
static bool take_basic(struct td_call *call, struct td_text encoded, struct td_refusal *refusal)
{
    enum { MOST_BYTES = 1024 };
    char decoded[MOST_BYTES];
    size_t len = 0;
    bool ok = false;
    if (encoded.len > sizeof decoded || !td_base64_read(encoded, decoded, &len) || memchr(decoded, ':', len) == NULL) {
        (void)refuse_credentials(refusal, true,
                                 "the field Authorization has no user and password in base64 after Basic");
    } else {
        struct td_text password = td_text_n(decoded, len);
        (void)td_text_take_until(&password, ':');
        ok = password.len > 0
                 ? take_text(call, password, refusal)
                 : refuse_credentials(refusal, true, "the password is empty; it must be the token, with any user name");
    }
    OPENSSL_cleanse(decoded, sizeof decoded);
    return ok;
}

/* Sets call->caller from the credentials of the field Authorization, scheme Bearer (RFC 6750), or scheme Basic
 * (RFC 7617), whose password is the token, with any user name. Returns false with a refusal, and leaves call->caller
 * alone, when the request has no valid token or the token may not read. The refusal says that a token has expired,
 * because only its holder can know its text. It is the same for a wrong token and a revoked one. */
static bool take_credentials(struct td_call *call, const char *how, struct td_refusal *refusal)
{
    struct td_text scheme;
    struct td_text rest;
    if (!take_field(call, how, &scheme, &rest, refusal))
        return false;
    if (td_text_equals_ignore_case(scheme, "Basic"))
        return take_basic(call, rest, refusal);
    if (!td_text_equals_ignore_case(scheme, "Bearer"))
        return refuse_credentials(refusal, false,
                                  "this server takes tokens alone: send one as Authorization: Bearer TOKEN");
    if (rest.len == 0)
        return refuse_credentials(
            refusal, true,
            "the field Authorization has no token after Bearer: is the variable empty that it comes from?");
    return take_text(call, rest, refusal);
}

/* ---- signed URLs ---------------------------------------------------------------------------------------- */

/* Sets call->caller from the signature of the URL. */
static bool take_signature(struct td_call *call, struct td_refusal *refusal)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_token *token;
    const struct td_request *request = call->request;
    if (!td_signed_url_check(call->caller.tokens, request->method, request->target, td_access_now_s(call), &token,
                             &call->caller.bare, &err)) {
        if (token != NULL)
            td_access_note_name(call, token);
        *refusal = (struct td_refusal){.status = err.code == TD_RESOURCE_EXHAUSTED ? 503 : 403};
        (void)snprintf(refusal->message, sizeof refusal->message, "%.*s", TD_REFUSAL_BYTES - 1, err.message);
        return false;
    }
    if (token != NULL)
        return td_access_take_token(call, token, refusal);
    call->caller.kind = TD_CALLER_HOLDER;
    call->caller.token = NULL;
    call->response->token[0] = '\0'; /* of the field Authorization */
    return true;
}

/* Returns whether a client of S3 signed the request: it has mixed up the ports. */
static bool is_signed_for_s3(const struct td_call *call)
{
    const struct td_header *field = td_request_single_header(call->request, field_name);
    return td_uri_parameter(call->uri, "X-Amz-Signature") != NULL ||
           (field != NULL && td_text_begins(field->value, TD_TEXT("AWS")));
}

bool td_access_admit(struct td_call *call, const char *how, struct td_refusal *refusal)
{
    bool is_signed = td_signed_url_is_meant(call->request->target);
    bool has_field = td_request_has_header(call->request, field_name);
    bool is_admitted = ((is_signed && !has_field) || take_credentials(call, how, refusal)) &&
                       (!is_signed || take_signature(call, refusal));
    if (!is_admitted && is_signed_for_s3(call))
        (void)snprintf(refusal->message, sizeof refusal->message,
                       "this is not the port for clients of S3, which is that of --s3-listen; this one takes tokens");
    return is_admitted;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

void td_access_add_challenge(const struct td_call *call, const struct td_refusal *refusal)
{
    if (refusal->status != 401 || call->response->status != 401)
        return;
    if (refusal->is_invalid)
        td_response_add_header(call->response, "WWW-Authenticate",
                               "Bearer realm=\"tensord\", error=\"invalid_token\", error_description=\"%s\"",
                               refusal->message);
    else
        td_response_add_header(call->response, "WWW-Authenticate", "Bearer realm=\"tensord\"");
    if (td_request_accepts(call->request, "text/html"))
        td_access_add_basic_challenge(call, refusal);
}

void td_access_add_basic_challenge(const struct td_call *call, const struct td_refusal *refusal)
{
    if (refusal->status == 401 && call->response->status == 401)
        td_response_add_header_text(call->response, "WWW-Authenticate", TD_TEXT("Basic realm=\"tensord\""));
}

bool td_access_is_free(const struct td_call *call)
{
    return !td_request_has_header(call->request, field_name) &&
           (call->request->is_local || atomic_load(&call->api->metrics_open));
}

/* ---- publishing ---------------------------------------------------------------------------------------- */

/* Returns whether the request has a field that a proxy adds to requests that it passes on, or a browser to requests of
 * scripts and forms of other pages. */
static bool is_passed_on(const struct td_request *request)
{
    static const char *const names[] = {"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP",
                                        "Via",       "Origin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (td_request_has_header(request, names[i]))
            return true;
    return false;
}

bool td_access_is_of_this_machine(const struct td_call *call)
{
    return call->request->is_local && !is_passed_on(call->request);
}

/* Returns whether the place that the request comes from may publish. Else answers. Without a token nothing shows that a
 * person wanted what a page in a browser sends; pages of other sites were refused before (api/call/cross_site.h). */
static bool check_place(const struct td_call *call)
{
    bool is_local_only = call->api->publish_who == TD_PUBLISH_LOCAL;
    if (is_local_only ? td_access_is_of_this_machine(call)
                      : call->caller.kind != TD_CALLER_OPEN || !td_request_has_header(call->request, "Origin"))
        return true;
    td_response_fail(call->response, 403, NULL, "%s",
                     is_local_only ? "publishing is for this machine alone, not through a proxy nor from a page in a "
                                     "browser (--publish any allows it)"
                                   : "a page in a browser may not publish without a token (--tokens)");
    return false;
}

/* Returns whether the sender may publish, if its token may write there. Else answers. */
static bool judge_publisher(const struct td_call *call, struct td_text id,
                            bool (*may_write)(const struct td_token *token, struct td_text id))
{
    const struct td_caller *caller = &call->caller;
    if (call->api->publish_who == TD_PUBLISH_OFF) {
        td_call_refuse_method(call);
        return false;
    }
    if (!check_place(call))
        return false;
    if (caller->kind == TD_CALLER_OPEN || caller->kind == TD_CALLER_HOLDER)
        return true;
    if (caller->kind == TD_CALLER_NOBODY) {
        td_response_fail(call->response, 401, NULL, "publishing needs a token with the right to write");
        return false;
    }
    if (may_write(caller->token, id))
        return true;
    td_response_fail(call->response, 403, NULL,
                     "the token may not publish %s%.*s%s: it needs the right to write, and a pattern that matches "
                     "(tensord token new NAME --write --models GLOB)",
                     id.len > 0 ? "to \"" : "anything", TD_SHOW(id, 400), id.len > 0 ? "\"" : "");
    return false;
}

bool td_access_may_publish(const struct td_call *call, struct td_text id)
{
    return judge_publisher(call, id, td_token_may_write);
}

bool td_access_may_publish_below(const struct td_call *call, struct td_text prefix)
{
    return judge_publisher(call, prefix, td_token_may_write_below);
}

bool td_access_sees_numbers(const struct td_call *call)
{
    const struct td_caller *caller = &call->caller;
    return caller->kind == TD_CALLER_OPEN || caller->kind == TD_CALLER_HOLDER ||
           (caller->kind == TD_CALLER_TOKEN && caller->token->models == NULL) ||
           (caller->kind == TD_CALLER_NOBODY && td_access_is_free(call));
}
