#include "http/auth/sigv4_chain.h"

#include "core/digits.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { SIGNATURE_CHARS = 2 * TD_SHA256_BYTES };

void td_sigv4_chain_begin(struct td_sigv4_chain *chain, const struct td_sigv4 *signature, struct td_text secret_key)
{
    td_sigv4_signing_key(signature, secret_key, chain->key);
    memcpy(chain->time, signature->time, sizeof chain->time);
    (void)snprintf(chain->scope, sizeof chain->scope, "%.*s", (int)signature->scope.len, signature->scope.p);
    (void)snprintf(chain->previous, sizeof chain->previous, "%.*s", (int)signature->signature.len,
                   signature->signature.p);
}

/* Checks the signature of the string to sign, in which `empty` comes before the digest: the line of an empty digest, or
 * nothing. */
static bool take_signature(struct td_sigv4_chain *chain, const char *algorithm, const char *empty,
                           const uint8_t sha256[TD_SHA256_BYTES], struct td_text signature)
{
    char string[64 + sizeof chain->time + sizeof chain->scope + 3 * ((size_t)SIGNATURE_CHARS + 1)];
    char digest[SIGNATURE_CHARS + 1], right[SIGNATURE_CHARS + 1];
    uint8_t sum[TD_SHA256_BYTES];
    td_hex_write(sha256, TD_SHA256_BYTES, digest);
    int len = snprintf(string, sizeof string, "%s\n%s\n%s\n%s\n%s%s", algorithm, chain->time, chain->scope,
                       chain->previous, empty, digest);
    td_hmac_sha256(chain->key, sizeof chain->key, string, (size_t)len, sum);
    td_hex_write(sum, sizeof sum, right);
    if (signature.len != SIGNATURE_CHARS || CRYPTO_memcmp(right, signature.p, SIGNATURE_CHARS) != 0)
        return false;
    memcpy(chain->previous, right, sizeof right);
    return true;
}

bool td_sigv4_chain_take_chunk(struct td_sigv4_chain *chain, const uint8_t sha256[TD_SHA256_BYTES],
                               struct td_text signature)
{
    return take_signature(chain, "AWS4-HMAC-SHA256-PAYLOAD", EMPTY_SHA256 "\n", sha256, signature);
}

bool td_sigv4_chain_take_trailer(struct td_sigv4_chain *chain, const uint8_t sha256[TD_SHA256_BYTES],
                                 struct td_text signature)
{
    return take_signature(chain, "AWS4-HMAC-SHA256-TRAILER", "", sha256, signature);
}

void td_sigv4_chain_end(struct td_sigv4_chain *chain)
{
    OPENSSL_cleanse(chain, sizeof *chain);
}
