/* Reads just enough of a header to choose a lane. A wrong result only costs speed: libmicrohttpd reads the header
 * again, and the request guard judges it. */
#include "server/net/lane.h"

#include "api/api.h"
#include "http/range.h"

/* Takes the next line, without its end. Returns false when the rest has no complete line. */
static bool take_line(struct td_text *rest, struct td_text *line)
{
    const char *end = rest->len == 0 ? NULL : memchr(rest->p, '\n', rest->len);
    if (end == NULL)
        return false;
    size_t len = (size_t)(end - rest->p);
    *line = td_text_n(rest->p, len > 0 && end[-1] == '\r' ? len - 1 : len);
    *rest = td_text_skip(*rest, len + 1);
    return true;
}

/* Returns the length of all ranges of a Range field; UINT64_MAX when it depends on the length of the representation, or
 * when the field has no range. */
static uint64_t length_of(struct td_text value)
{
    struct td_byte_range ranges[TD_MAX_RANGES];
    size_t count = 0;
    uint64_t sum = 0;
    while (value.len > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value = td_text_skip(value, 1);
    if (td_range_parse(value, UINT64_MAX / 2, ranges, &count) != TD_RANGE_PARTIAL)
        return UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        sum = ranges[i].len > UINT64_MAX - sum ? UINT64_MAX : sum + ranges[i].len;
    return sum;
}

enum td_lane td_lane_of(const struct td_facade *port, struct td_text bytes)
{
    struct td_text line;
    struct td_text range = TD_TEXT("");
    if (!take_line(&bytes, &line))
        return TD_LANE_OWN;
    struct td_text method = td_text_take_until(&line, ' ');
    struct td_text target = td_text_take_until(&line, ' ');
    while (take_line(&bytes, &line) && line.len > 0)
        if (td_text_begins_ignore_case(line, "Range:"))
            range = td_text_skip(line, strlen("Range:"));
    if (line.len > 0) /* the header is not complete */
        return TD_LANE_OWN;
    if (td_text_equals(method, "HEAD"))
        return TD_LANE_SHARED;
    if (!td_text_equals(method, "GET"))
        return TD_LANE_OWN;
    bool is_short = range.len > 0 ? length_of(range) <= TD_LANE_SHORT_BYTES : td_api_is_text(port, target);
    return is_short ? TD_LANE_SHARED : TD_LANE_OWN;
}
