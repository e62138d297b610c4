#include "server/mhd/kept_response.h"

#include "server/mhd/answer_header.h"
#include "server/mhd/sender.h"

#include <stdlib.h>
#include <string.h>

bool td_kept_response_suits(const struct td_response *response)
{
    if (response->close || response->owned_type != NULL)
        return false;
    for (size_t i = 0; i < response->header_count; i++)
        if (strlen(response->headers[i].value) >= TD_KEPT_VALUE_BYTES)
            return false;
    return true;
}

/* Returns whether the kept response differs from this one only in bytes and in values of fields. */
static bool is_like(const struct td_kept_response *kept, const struct td_response *response, size_t len, bool by_sender)
{
    if (kept->mhd_response == NULL || kept->len != len || (kept->bytes == NULL) != by_sender ||
        kept->status != response->status || kept->content_type != response->content_type ||
        kept->cache_control != response->cache_control || kept->last_modified_s != response->last_modified_s ||
        kept->accept_ranges != response->accept_ranges || kept->header_count != response->header_count ||
        strcmp(kept->etag, response->etag) != 0)
        return false;
    for (size_t i = 0; i < kept->header_count; i++)
        if (kept->headers[i].name != response->headers[i].name)
            return false;
    return true;
}

/* Replaces the values that differ. Returns false without memory; the kept response is then incomplete. */
static bool replace_values(struct td_kept_response *kept, const struct td_response *response)
{
    for (size_t i = 0; i < kept->header_count; i++) {
        const char *name = kept->headers[i].name;
        char *value = kept->headers[i].value;
        const char *wanted = response->headers[i].value;
        if (strcmp(value, wanted) == 0)
            continue;
        if (MHD_del_response_header(kept->mhd_response, name, value) != MHD_YES ||
            MHD_add_response_header(kept->mhd_response, name, wanted) != MHD_YES)
            return false;
        size_t wanted_len = strlen(wanted);
        kept->header_bytes += wanted_len;
        kept->header_bytes -= strlen(value);
        memcpy(value, wanted, wanted_len + 1);
    }
    return true;
}

static void free_response(struct td_kept_response *kept)
{
    if (kept->mhd_response != NULL)
        MHD_destroy_response(kept->mhd_response);
    free(kept->bytes);
    memset(kept, 0, sizeof *kept);
}

/* Makes a new response with room for len bytes, or with td_sender_memory in their place. Returns false when memory is
 * short. */
static bool make_response(struct td_kept_response *kept, const struct td_response *response, size_t len, bool by_sender)
{
    void *bytes = by_sender ? td_sender_memory(len) : malloc(len);
    if (bytes == NULL)
        return false;
    kept->bytes = by_sender ? NULL : bytes;
    kept->mhd_response = MHD_create_response_from_buffer(len, bytes, MHD_RESPMEM_PERSISTENT);
    if (kept->mhd_response == NULL || !td_answer_header_add(kept->mhd_response, response))
        return false;
    kept->len = len;
    kept->header_bytes = td_answer_header_bytes(response, len);
    kept->status = response->status;
    kept->content_type = response->content_type;
    kept->cache_control = response->cache_control;
    memcpy(kept->etag, response->etag, sizeof kept->etag);
    kept->last_modified_s = response->last_modified_s;
    kept->accept_ranges = response->accept_ranges;
    kept->header_count = response->header_count;
    for (size_t i = 0; i < kept->header_count; i++) {
        kept->headers[i].name = response->headers[i].name;
        memcpy(kept->headers[i].value, response->headers[i].value, strlen(response->headers[i].value) + 1);
    }
    return true;
}

bool td_kept_response_prepare(struct td_kept_response *kept, const struct td_response *response, size_t len,
                              bool by_sender)
{
    if (is_like(kept, response, len, by_sender) && replace_values(kept, response))
        return true;
    free_response(kept);
    if (make_response(kept, response, len, by_sender))
        return true;
    free_response(kept);
    return false;
}

void td_kept_response_destroy(struct td_kept_response *kept)
{
    if (kept == NULL)
        return;
    free_response(kept);
    free(kept);
}
