/* Signed URLs. A client that has one may send the GET or HEAD that the URL names, or the PUT or POST if it was signed
 * for that, and nothing else, until the URL expires.
 *
 *     /models/org/name/files/config.json?expires=1767225600&signature=ci.0123...cdef
 *
 * The last two parameters of the query are `expires`, in seconds since 1970, and `signature`: the name of the token
 * that signed, a dot, and 64 lower-case hexadecimal digits; or the digits alone, when the holder of the tokens file
 * signed. The digits are HMAC-SHA-256, by the token's key (td_token_url_key), of "GET\n", "PUT\n" or "POST\n" and all
 * bytes of path and query before "&signature=". So nothing in the URL can be changed, moved, added or taken out, and it
 * is good for no other method. A path is signed as it is spelled; td_signed_url_normalise spells it as clients send it.
 * Pure; any thread. */
#ifndef TD_HTTP_AUTH_SIGNED_URL_H
#define TD_HTTP_AUTH_SIGNED_URL_H

#include "core/buffer.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"
#include "http/auth/token_set.h"

#include <stdbool.h>
#include <stdint.h>

/* The most that a URL may be valid: 7 days, in seconds. */
#define TD_SIGNED_URL_MOST_S UINT64_C(604800)

/* The most bytes of a path and query to sign: those of the largest --max-header-bytes. */
enum { TD_SIGNED_URL_PATH_BYTES = 32768 };

/* The method that a URL is signed for. */
enum td_signed_method {
    TD_SIGNED_GET, /* and HEAD */
    TD_SIGNED_PUT, /* of one file or blob of a model or a dataset */
    TD_SIGNED_POST /* to one blob, to ask whether all of it is here; in answers of the server alone */
};

/* Sets *method to that of the word, "GET" or "PUT", for which people may have URLs signed. Returns false for any other
 * word. */
bool td_signed_method_read(struct td_text word, enum td_signed_method *method);

/* The parts of a target that concern its signature. All texts are borrowed from the target. */
struct td_signed_url {
    struct td_text bare;    /* path and query without `expires` and `signature` */
    struct td_text covered; /* the bytes that are signed, after the method */
    struct td_text name;    /* of the token that signed; empty: the holder of the tokens file */
    struct td_text digits;
    int64_t expires_s; /* since 1970 */
};

/* Returns whether the query of a request target has a parameter `signature`, so that the target is a signed URL or was
 * meant to be one. */
bool td_signed_url_is_meant(struct td_text target);

/* Takes a signed target apart. Returns false when it does not have the form of a signed URL. */
bool td_signed_url_parse(struct td_text target, struct td_signed_url *out);

/* Returns whether the digits are those by this key for the method; compares in constant time. The caller checks the
 * expiry. Errors: TD_RESOURCE_EXHAUSTED; err stays as it is when the digits are wrong. */
bool td_signed_url_verify(const struct td_signed_url *url, enum td_signed_method method,
                          const uint8_t key[TD_SHA256_BYTES], struct td_error *err);

/* Appends path and query as clients send them, so that the signature is that of what arrives: bytes that no URL may
 * hold are percent-encoded, letters, digits and "-._~" are not, and escapes are in upper case (RFC 3986 sections
 * 6.2.2.1 and 6.2.2.2). Errors: TD_INVALID_ARGUMENT for a text that is longer than TD_SIGNED_URL_PATH_BYTES, does not
 * begin with '/', or has a fragment, a segment "." or "..", a '%' without two hexadecimal digits, or a parameter
 * `expires` or `signature`. The caller checks out->failed. */
bool td_signed_url_normalise(struct td_text path_and_query, struct td_buffer *out, struct td_error *err);

/* Appends `expires` and `signature` to the path and query in `url`, which td_signed_url_normalise has written from
 * url->data[at] on. name: as in td_signed_url. The caller checks url->failed. */
void td_signed_url_append(struct td_buffer *url, size_t at, enum td_signed_method method, int64_t expires_s,
                          struct td_text name, const uint8_t key[TD_SHA256_BYTES]);

/* Appends the path and query, normalised and signed by the token, or by the holder of the tokens file (token NULL).
 * Valid for valid_s seconds from now_s (since 1970) on, at most TD_SIGNED_URL_MOST_S, but no longer than the token
 * lives; sets *expires_s to the end. Errors: TD_INVALID_ARGUMENT as td_signed_url_normalise, for valid_s, and for a
 * path to which no signed PUT may go; TD_PERMISSION_DENIED (the token has expired, or may not write to what a PUT would
 * change, whether that is there or not); TD_RESOURCE_EXHAUSTED. */
bool td_signed_url_write(const struct td_token_set *set, const struct td_token *token, enum td_signed_method method,
                         struct td_text path_and_query, int64_t now_s, uint64_t valid_s, struct td_buffer *out,
                         int64_t *expires_s, struct td_error *err);

/* Checks a request whose target td_signed_url_is_meant. Sets *token to the token whose rights it has, borrowed from the
 * set; NULL: all rights. Sets *bare to the target without `expires` and `signature`. Errors: TD_PERMISSION_DENIED, with
 * a reason for the client; TD_RESOURCE_EXHAUSTED. With an error, *token is the token that truly signed, or NULL. */
bool td_signed_url_check(const struct td_token_set *set, struct td_text method, struct td_text target, int64_t now_s,
                         const struct td_token **token, struct td_text *bare, struct td_error *err);

/* Returns the beginning of a request target up to the first secret in it, for logs: who reads them must not be able to
 * repeat the request. Secrets are signatures, of this kind or of AWS's, and tokens, which do not belong there but are
 * put there by mistake. They count wherever they stand, because URLs are mangled on the way: "&amp;signature=", or all
 * of it in another URL's query. */
struct td_text td_signed_url_without_secret(struct td_text target);

#endif
