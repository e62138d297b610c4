/* Uses OpenSSL's low-level functions. EVP runs the same code, but first fetches providers and reads OpenSSL's
 * configuration, which takes a millisecond for the few dozen bytes of a tag. The low-level functions are deprecated
 * since 3.0, so this asks for the interface of 1.1. */
#define OPENSSL_API_COMPAT 0x10101000L
#include "core/digest.h"

#include "core/digits.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

struct td_digest {
    SHA256_CTX context;
};

struct td_digest *td_digest_create(void)
{
    struct td_digest *digest = malloc(sizeof *digest);
    if (digest != NULL)
        (void)SHA256_Init(&digest->context); /* cannot fail */
    return digest;
}

void td_digest_add(struct td_digest *digest, const void *bytes, size_t len)
{
    uint64_t prefix = len;
    if (digest == NULL)
        return;
    (void)SHA256_Update(&digest->context, &prefix, sizeof prefix);
    if (len > 0)
        (void)SHA256_Update(&digest->context, bytes, len);
}

void td_digest_add_cstring(struct td_digest *digest, const char *text)
{
    td_digest_add(digest, text, strlen(text));
}

void td_digest_add_content(struct td_digest *digest, const void *bytes, size_t len)
{
    if (digest != NULL && len > 0)
        (void)SHA256_Update(&digest->context, bytes, len);
}

bool td_digest_finish_binary(struct td_digest *digest, uint8_t sum[TD_SHA256_BYTES])
{
    if (digest == NULL)
        return false;
    bool ok = SHA256_Final(sum, &digest->context) == 1;
    free(digest);
    return ok;
}

bool td_digest_finish_text(struct td_digest *digest, char *text, size_t text_bytes)
{
    uint8_t sum[TD_SHA256_BYTES];
    text[0] = '\0';
    if (!td_digest_finish_binary(digest, sum))
        return false;
    td_hex_write(sum, (text_bytes - 1) / 2, text);
    return true;
}

bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES])
{
    return td_digest_finish_text(digest, tag, TD_TAG_BYTES);
}

bool td_digest_tag(const void *bytes, size_t len, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_digest_add(digest, bytes, len);
    return td_digest_finish(digest, tag);
}

void td_sha256(const void *bytes, size_t len, uint8_t sum[TD_SHA256_BYTES])
{
    SHA256_CTX context;
    (void)SHA256_Init(&context);
    if (len > 0)
        (void)SHA256_Update(&context, bytes, len);
    (void)SHA256_Final(sum, &context);
    OPENSSL_cleanse(&context, sizeof context);
}

/* Writes the SHA-256 of the key's block, each byte changed by `mask`, and the message after it. */
static void hash_behind_key(const uint8_t block[SHA256_CBLOCK], uint8_t mask, const void *message, size_t len,
                            uint8_t sum[TD_SHA256_BYTES])
{
    SHA256_CTX context;
    uint8_t masked[SHA256_CBLOCK];
    for (size_t i = 0; i < sizeof masked; i++)
        masked[i] = block[i] ^ mask;
    (void)SHA256_Init(&context);
    (void)SHA256_Update(&context, masked, sizeof masked);
    if (len > 0)
        (void)SHA256_Update(&context, message, len);
    (void)SHA256_Final(sum, &context);
    OPENSSL_cleanse(masked, sizeof masked);
    OPENSSL_cleanse(&context, sizeof context);
}

void td_hmac_sha256(const void *key, size_t key_len, const void *message, size_t len, uint8_t sum[TD_SHA256_BYTES])
{
    uint8_t block[SHA256_CBLOCK] = {0};
    uint8_t inner[TD_SHA256_BYTES];
    if (key_len > sizeof block)
        td_sha256(key, key_len, block);
    else if (key_len > 0)
        memcpy(block, key, key_len);
    hash_behind_key(block, 0x36, message, len, inner);
    hash_behind_key(block, 0x5C, inner, sizeof inner, sum);
    OPENSSL_cleanse(block, sizeof block);
}
