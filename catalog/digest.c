#include "catalog/digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct td_digest {
    EVP_MD_CTX *context;
    bool failed;
};

struct td_digest *td_digest_create(void)
{
    struct td_digest *digest = calloc(1, sizeof *digest);
    if (digest == NULL)
        return NULL;
    digest->context = EVP_MD_CTX_new();
    digest->failed = digest->context == NULL || EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1;
    return digest;
}

void td_digest_add(struct td_digest *digest, const void *bytes, size_t len)
{
    uint64_t prefix = len;
    if (digest == NULL || digest->failed)
        return;
    if (EVP_DigestUpdate(digest->context, &prefix, sizeof prefix) != 1 ||
        (len > 0 && EVP_DigestUpdate(digest->context, bytes, len) != 1))
        digest->failed = true;
}

void td_digest_add_cstring(struct td_digest *digest, const char *text)
{
    td_digest_add(digest, text, strlen(text));
}

bool td_digest_finish(struct td_digest *digest, char tag[TD_TAG_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE] = {0};
    unsigned int sum_len = 0;
    tag[0] = '\0';
    if (digest == NULL)
        return false;
    bool ok = !digest->failed && EVP_DigestFinal_ex(digest->context, sum, &sum_len) == 1;
    EVP_MD_CTX_free(digest->context);
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
