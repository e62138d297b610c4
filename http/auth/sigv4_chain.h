/* Signatures of the chunks of a body: each covers the one before (AWS Signature Version 4). Sources: Amazon S3
 * API Reference, "Signature calculations for the Authorization header: transferring payload in multiple chunks" and
 * "... including trailing headers". Pure; allocates nothing. Threads: one at a time per chain. */
#ifndef TD_HTTP_AUTH_SIGV4_CHAIN_H
#define TD_HTTP_AUTH_SIGV4_CHAIN_H

#include "http/auth/sigv4.h"

struct td_sigv4_chain {
    uint8_t key[TD_SHA256_BYTES]; /* derived from the secret key; secret itself */
    char time[17];
    char scope[TD_SIGV4_SCOPE_BYTES + 1];
    char previous[2 * TD_SHA256_BYTES + 1];
};

/* Begins the chain with a request's signature, which has been verified with this secret key. */
void td_sigv4_chain_begin(struct td_sigv4_chain *chain, const struct td_sigv4 *signature, struct td_text secret_key);

/* Returns whether the text is the signature of the next chunk, whose bytes have this SHA-256; compares in constant
 * time. The next signature then continues from it. */
bool td_sigv4_chain_take_chunk(struct td_sigv4_chain *chain, const uint8_t sha256[TD_SHA256_BYTES],
                               struct td_text signature);

/* Does the same for the trailer, whose lines "name:value\n" have this SHA-256. */
bool td_sigv4_chain_take_trailer(struct td_sigv4_chain *chain, const uint8_t sha256[TD_SHA256_BYTES],
                                 struct td_text signature);

/* Overwrites the key. */
void td_sigv4_chain_end(struct td_sigv4_chain *chain);

#endif
