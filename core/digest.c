/* Uses OpenSSL's low-level functions. EVP runs the same code, but first fetches providers and reads OpenSSL's
 * configuration, which takes a millisecond for the few dozen bytes of a tag. The low-level functions are deprecated
 * since 3.0, so this asks for the interface of 1.1. */
#define OPENSSL_API_COMPAT 0x10101000L
#include "core/digest.h"

#include "core/digits.h"

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
