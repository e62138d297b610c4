#include "api/s3/s3_access.h"

#include "api/call/access.h"
#include "core/clock.h"
#include "http/auth/sigv4.h"

#include <openssl/crypto.h>

/* Finds the token with the key that signed the request, and verifies the signature. Verifies it for an expired token
 * too, so that the access log has the token's name. */
static bool find_token(const struct td_call *call, const struct td_token **token, struct td_sigv4_refusal *refusal)
{
    const struct td_token_set *set = call->caller.tokens;
    struct td_sigv4 signature;
    char secret_key[TD_S3_SECRET_BYTES];
    int64_t now_s = td_wall_now().seconds;
    if (!td_sigv4_parse(call->request, now_s, &signature, refusal))
        return false;
    *token = td_token_set_find_access_key(set, signature.access_key);
    if (*token == NULL)
        return td_sigv4_refuse_key(&signature, refusal);
    td_token_s3_secret(set, *token, secret_key);
    bool ok = td_sigv4_verify(&signature, call->request, td_text_of(secret_key), refusal);
    OPENSSL_cleanse(secret_key, sizeof secret_key);
    if (ok)
        td_access_note_name(call, *token);
    return td_token_has_expired(*token, now_s) ? td_sigv4_refuse_key(&signature, refusal) : ok;
}

bool td_s3_admit(struct td_call *call)
{
    const struct td_token *token = NULL;
    struct td_sigv4_refusal fault;
    struct td_refusal refusal;
    struct td_text method = call->request->method;
    if (!td_text_equals(method, "GET") && !td_text_equals(method, "HEAD"))
        return true;
    if (!find_token(call, &token, &fault)) {
        td_response_fail_as(call->response, td_sigv4_status(fault.fault), td_sigv4_code(fault.fault), "%s",
                            fault.message);
        return false;
    }
    if (td_access_take_token(call, token, &refusal))
        return true;
    td_response_fail(call->response, 403, NULL, "Access Denied: %s", refusal.message);
    return false;
}
