#include "http/repr_digest.h"

#include "core/base64.h"

#include <string.h>

/* Reads ":BASE64:" of 32 bytes. */
static bool read_value(struct td_text value, uint8_t sha256[TD_SHA256_BYTES])
{
    uint8_t bytes[TD_BASE64_LEN(TD_SHA256_BYTES)];
    size_t len = 0;
    if (value.len != TD_BASE64_LEN(TD_SHA256_BYTES) + 2 || value.p[0] != ':' || value.p[value.len - 1] != ':' ||
        !td_base64_read(td_text_n(value.p + 1, value.len - 2), bytes, &len) || len != TD_SHA256_BYTES)
        return false;
    memcpy(sha256, bytes, TD_SHA256_BYTES);
    return true;
}

bool td_repr_digest_read(const struct td_request *request, struct td_repr_digest *out, struct td_response *response)
{
    size_t at = 0;
    const struct td_header *header;
    *out = (struct td_repr_digest){.has_sha256 = false};
    while ((header = td_request_next_header(request, "Repr-Digest", &at)) != NULL) {
        struct td_text rest = header->value;
        while (rest.len > 0) {
            struct td_text value = td_text_trim(td_text_take_until(&rest, ','), " \t");
            struct td_text key = td_text_take_until(&value, '=');
            if (!td_text_equals(key, "sha-256"))
                continue;
            out->has_sha256 = read_value(value, out->sha256);
            if (!out->has_sha256) {
                td_response_fail(response, 400, NULL, "Repr-Digest must have the form sha-256=:BASE64:");
                return false;
            }
        }
    }
    return true;
}
