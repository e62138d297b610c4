/* Not by EVP: that fetches providers and reads OpenSSL's configuration, a millisecond for the few dozen bytes of a tag. The
 * functions beneath it run the same code; they are called deprecated since 3.0, and so their older interface is asked
 * for. */
#define OPENSSL_API_COMPAT 0x10101000L
#include "catalog/digest.h"

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

bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char sum[SHA256_DIGEST_LENGTH];
    tag[0] = '\0';
    if (digest == NULL)
        return false;
    bool ok = SHA256_Final(sum, &digest->context) == 1;
    free(digest);
    if (!ok)
        return false;
    for (size_t i = 0; i < (TD_TAG_BYTES - 1) / 2; i++) {
        tag[2 * i] = hex[sum[i] >> 4];
        tag[2 * i + 1] = hex[sum[i] & 15];
    }
    tag[TD_TAG_BYTES - 1] = '\0';
    return true;
}

bool td_digest_tag(const void *bytes, size_t len, char tag[TD_TAG_BYTES])
{
    struct td_digest *digest = td_digest_create();
    td_digest_add(digest, bytes, len);
    return td_digest_finish(digest, tag);
}

bool td_digest_file_id(const struct td_file_id *id, char tag[TD_TAG_BYTES])
{
    return td_digest_tag(id, sizeof *id, tag);
}
