#include "http/range.h"

#include "core/buffer.h"
#include "core/digits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Returns whether a is less than b; both are digits, of any length. */
static bool is_less(struct td_text a, struct td_text b)
{
    for (; a.len > 0 && *a.p == '0'; a.len--)
        a.p++;
    for (; b.len > 0 && *b.p == '0'; b.len--)
        b.p++;
    return a.len != b.len ? a.len < b.len : memcmp(a.p, b.p, a.len) < 0;
}

/* Reads one range-spec. Returns false when it is malformed, which makes the whole field malformed. Sets len to 0 when
 * it is well-formed but unsatisfiable. Numbers are clamped to 2^64-1: a longer number is just as far past the end. */
static bool read_range(struct td_text spec, uint64_t size, struct td_byte_range *range)
{
    uint64_t first;
    uint64_t last;
    struct td_text last_text = spec;
    struct td_text first_text = td_text_take_until(&last_text, '-');
    struct td_text first_rest = first_text;
    struct td_text last_rest = last_text;
    size_t first_digits = td_digits_take(&first_rest, &first, NULL);
    size_t last_digits = td_digits_take(&last_rest, &last, NULL);
    bool has_dash = first_text.len < spec.len;
    *range = (struct td_byte_range){.off = 0};
    if (!has_dash || first_rest.len > 0 || last_rest.len > 0 || first_digits + last_digits == 0)
        return false;
    if (first_digits == 0) { /* suffix-range */
        range->len = last < size ? last : size;
        range->off = size - range->len;
        return true;
    }
    if (last_digits == 0)
        last = UINT64_MAX;
    else if (is_less(last_text, first_text))
        return false; /* RFC 9110 section 14.1.1: invalid */
    if (first >= size)
        return true;
    range->off = first;
    range->len = (last < size ? last + 1 : size) - first;
    return true;
}

static int compare_off(const void *a, const void *b)
{
    uint64_t x = ((const struct td_byte_range *)a)->off;
    uint64_t y = ((const struct td_byte_range *)b)->off;
    return (x > y) - (x < y);
}

/* Returns whether more than two ranges overlap ones before them, which a server may refuse (RFC 9110 section 14.2). */
static bool is_overlapping(const struct td_byte_range *ranges, size_t count)
{
    struct td_byte_range sorted[TD_MAX_RANGES];
    if (count < 4)
        return false;
    memcpy(sorted, ranges, count * sizeof *ranges);
    qsort(sorted, count, sizeof *sorted, compare_off);
    size_t overlaps = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && sorted[i].off < end)
            overlaps++;
        if (sorted[i].off + sorted[i].len > end)
            end = sorted[i].off + sorted[i].len;
    }
    return overlaps > 2;
}

enum td_range_result td_range_parse(struct td_text value, uint64_t size, struct td_byte_range *ranges, size_t *count)
{
    static const char unit[] = "bytes=";
    size_t seen = 0;
    *count = 0;
    if (size == 0 || !td_text_begins_ignore_case(value, unit))
        return TD_RANGE_IGNORE;
    struct td_text rest = td_text_skip(value, strlen(unit));
    while (rest.len > 0) {
        struct td_byte_range range;
        struct td_text spec = td_text_trim(td_text_take_until(&rest, ','), " \t");
        if (spec.len == 0) /* empty list elements are ignored (RFC 9110 section 5.6.1) */
            continue;
        if (!read_range(spec, size, &range))
            return TD_RANGE_IGNORE;
        seen++;
        if (range.len > 0 && *count < TD_MAX_RANGES)
            ranges[(*count)++] = range;
    }
    if (seen == 0)
        return TD_RANGE_IGNORE;
    if (*count == 0 || seen > TD_MAX_RANGES || is_overlapping(ranges, *count))
        return TD_RANGE_UNSATISFIABLE;
    return TD_RANGE_PARTIAL;
}

/* Adds "Content-Range: bytes FIRST-LAST/SIZE". */
static void add_content_range(struct td_response *response, const struct td_byte_range *range, uint64_t size)
{
    char value[sizeof "bytes -/" + (size_t)3 * TD_NUMBER_BYTES] = "bytes ";
    size_t len = strlen("bytes ");
    len += td_number_write(range->off, value + len);
    value[len++] = '-';
    len += td_number_write(range->off + range->len - 1, value + len);
    value[len++] = '/';
    len += td_number_write(size, value + len);
    td_response_add_header_text(response, "Content-Range", td_text_n(value, len));
}

static bool cut_single(struct td_response *response, const struct td_byte_range *range, uint64_t size,
                       struct td_error *err)
{
    struct td_body part;
    td_body_init(&part);
    if (!td_body_cut(&response->body, range->off, range->len, &part, err)) {
        td_body_fini(&part);
        return false;
    }
    td_body_fini(&response->body);
    response->body = part;
    response->status = 206;
    add_content_range(response, range, size);
    return true;
}

/* Makes a random boundary: nobody can know it beforehand and put it into a weight file. */
static bool make_boundary(char out[33], struct td_error *err)
{
    uint8_t bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return td_error_set(err, TD_INTERNAL, "no random bytes from the kernel");
    td_hex_write(bytes, sizeof bytes, out);
    return true;
}

static bool append_text(struct td_body *body, struct td_buffer *text, struct td_error *err)
{
    size_t len;
    char *data = td_buffer_release(text, &len);
    if (data == NULL)
        return td_error_no_memory(err);
    return td_body_append_heap(body, data, len, err);
}

/* Builds the body and the type of a multipart answer (RFC 9110 section 14.6). */
static bool build_multipart(const struct td_response *response, const struct td_byte_range *ranges, size_t count,
                            struct td_body *multipart, char **type, struct td_error *err)
{
    uint64_t size = response->body.total_bytes;
    char boundary[33];
    struct td_buffer text;
    td_buffer_init(&text);
    bool ok = make_boundary(boundary, err);
    for (size_t i = 0; ok && i < count; i++) {
        td_buffer_printf(&text, "%s--%s\r\n", i == 0 ? "" : "\r\n", boundary);
        if (response->content_type != NULL)
            td_buffer_printf(&text, "Content-Type: %s\r\n", response->content_type);
        td_buffer_printf(&text, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n\r\n", ranges[i].off,
                         ranges[i].off + ranges[i].len - 1, size);
        ok = append_text(multipart, &text, err) &&
             td_body_cut(&response->body, ranges[i].off, ranges[i].len, multipart, err);
    }
    if (ok) {
        td_buffer_printf(&text, "\r\n--%s--\r\n", boundary);
        ok = append_text(multipart, &text, err);
    }
    if (ok) {
        td_buffer_printf(&text, "multipart/byteranges; boundary=%s", boundary);
        *type = td_buffer_terminate(&text);
        ok = *type != NULL || td_error_no_memory(err);
    }
    if (!ok)
        td_buffer_fini(&text);
    return ok;
}

static bool cut_multipart(struct td_response *response, const struct td_byte_range *ranges, size_t count,
                          struct td_error *err)
{
    struct td_body multipart;
    char *type = NULL;
    td_body_init(&multipart);
    if (!build_multipart(response, ranges, count, &multipart, &type, err)) {
        td_body_fini(&multipart);
        return false;
    }
    td_body_fini(&response->body);
    response->body = multipart;
    free(response->owned_type);
    response->owned_type = type;
    response->content_type = type;
    response->status = 206;
    return true;
}

void td_range_apply(const struct td_request *request, struct td_response *response)
{
    const struct td_header *header = td_request_single_header(request, "Range");
    if (header == NULL || response->status != 200 || !response->accept_ranges)
        return;
    struct td_byte_range ranges[TD_MAX_RANGES];
    size_t count;
    uint64_t size = response->body.total_bytes;
    struct td_error err = TD_ERROR_INIT;
    bool is_refused = size == 0 && response->refuses_empty_ranges;
    /* As if there were one byte: shows whether the set is well-formed. */
    enum td_range_result result = td_range_parse(header->value, is_refused ? 1 : size, ranges, &count);
    if (is_refused && result != TD_RANGE_IGNORE)
        result = TD_RANGE_UNSATISFIABLE;
    switch (result) {
    case TD_RANGE_IGNORE:
        return;
    case TD_RANGE_UNSATISFIABLE:
        td_response_fail(response, 416, NULL,
                         "no range of \"%.*s\" can be sent: the length is %" PRIu64
                         " bytes, and at most %d ranges are allowed, and at most two of them may overlap others",
                         TD_SHOW(header->value, 100), size, (int)TD_MAX_RANGES);
        response->accept_ranges = true;
        td_response_add_header(response, "Content-Range", "bytes */%" PRIu64, size);
        return;
    case TD_RANGE_PARTIAL:
        if (count == 1 ? !cut_single(response, &ranges[0], size, &err) : !cut_multipart(response, ranges, count, &err))
            td_response_fail_error(response, &err);
        return;
    }
}
