/* Identifies the sender of a request by its credentials, for all facades, before anything is looked up. */
#ifndef TD_API_CALL_ACCESS_H
#define TD_API_CALL_ACCESS_H

#include "api/call/call.h"
#include "http/auth/token_set.h"

#include <stdbool.h>

enum { TD_REFUSAL_BYTES = 320 };

/* The reason why a request's credentials do not suffice. */
struct td_refusal {
    int status;                     /* 401; 403 for a signature or a right; 503 when memory is short */
    bool is_invalid;                /* credentials were sent and are not valid */
    char message[TD_REFUSAL_BYTES]; /* ASCII without quotes, for people */
};

/* Sets call->caller from the server's tokens. If the server has tokens, the facade's `admit` decides. Returns false
 * after it answered a refusal. Does not wait; a signature takes memory while it is verified. */
bool td_access_begin(struct td_call *call);

/* Drops what td_access_begin took. */
void td_access_end(struct td_call *call);

/* Returns the time, in seconds since 1970, at which the credentials of the request must not have expired: now, but
 * after a body that went to a sink the time when the request began, so that an upload that was admitted can end. */
int64_t td_access_now_s(const struct td_call *call);

/* Returns when the token expires (td_clock_ns). Returns UINT64_MAX for a token that never does, and for NULL. */
uint64_t td_access_expiry_ns(const struct td_token *token);

/* Sets call->caller to this token of call->caller.tokens. Returns false with a refusal, 401 or 403, and leaves
 * call->caller alone, when the token has expired or may not read. For credentials that have been verified. */
bool td_access_take_token(struct td_call *call, const struct td_token *token, struct td_refusal *refusal);

/* Writes the token's name into the access log's line. For tokens that the sender has proved to hold. */
void td_access_note_name(const struct td_call *call, const struct td_token *token);

/* The advice of a refusal to a client without credentials: how clients of a facade send a token. */
extern const char td_access_by_bearer[], td_access_by_password[];

/* Judges the credentials of a request on the main port, and sets call->caller. For td_facade.admit. The credentials are
 * a token or a signature. A token is in the header field Authorization: "Bearer TOKEN" (RFC 6750), or as the password
 * of "Basic", with any user name (RFC 7617). A signature is in the URL. If the request has the field, a bad token in it
 * is refused, also beside a good signature. A good signature gives the call the rights of its signer, and sets
 * call->caller.bare to the target that handlers see. how: one of the two texts of advice above. Returns false with a
 * refusal: 401, 403, or 503 when memory is short. */
bool td_access_admit(struct td_call *call, const char *how, struct td_refusal *refusal);

/* Adds WWW-Authenticate to the answer, an error that the facade has written: the scheme Bearer, and to a request that
 * accepts HTML the scheme Basic as well, so that a browser asks a person for the token.
 * td_access_add_basic_challenge asks for the scheme Basic alone, for clients that know no other one. */
void td_access_add_challenge(const struct td_call *call, const struct td_refusal *refusal);
void td_access_add_basic_challenge(const struct td_call *call, const struct td_refusal *refusal);

/* Returns whether the request has no field Authorization, and may have metrics and the contract, which show no model,
 * without it. Does not look for a signature in the URL. */
bool td_access_is_free(const struct td_call *call);

/* Returns whether the connection comes from this machine, and nothing in the request shows that a proxy or a page in a
 * browser passed it on. */
bool td_access_is_of_this_machine(const struct td_call *call);

/* Returns whether the sender may publish to the repository with this id: that of a model, or "datasets/ID". Else
 * answers by the facade's write_error, and returns false:
 *   405  nobody may (TD_PUBLISH_OFF); as td_call_refuse_method
 *   403  the request is not of this machine (TD_PUBLISH_LOCAL), or comes without a token from a page in a browser
 *   401  the server has tokens, and the request has none
 *   403  the token lacks the right to write, or its patterns do not match the id, whether there is such a model or not
 * A call with a signed URL has the rights of its signer. Looks nothing up, so that every facade can ask before it reads
 * a body, and again before it changes anything. Does not wait. */
bool td_access_may_publish(const struct td_call *call, struct td_text id);

/* Returns whether the sender's token has a pattern that matches any id below the prefix, such as "org/", so that the
 * sender may publish there. If not, answers as td_access_may_publish does. */
bool td_access_may_publish_below(const struct td_call *call, struct td_text prefix);

/* Returns whether the sender may see numbers that count all models. */
bool td_access_sees_numbers(const struct td_call *call);

#endif
