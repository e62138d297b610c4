#include "http/cors.h"

#include "http/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct td_cors {
    bool is_any;
    size_t count;
    char origins[TD_CORS_ORIGINS][TD_ORIGIN_BYTES]; /* as browsers write them */
};

static const char any[] = "*";

const char td_cors_exposed[] =
    "Accept-Ranges, Content-Range, ETag, Link, Retry-After, Server-Timing, WWW-Authenticate, X-Error-Code, "
    "X-Error-Message, X-Repo-Commit, X-Request-Id, X-Row-Count, X-Row-Skip, X-Row-Start, X-Row-Total, X-Tensor-Dtype, "
    "X-Tensor-Shape, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin";

const char td_cors_methods[] = "GET, HEAD, POST";
const char td_cors_headers[] =
    "Authorization, Content-Type, Content-Encoding, Range, If-Range, If-Match, If-None-Match, If-Modified-Since, "
    "Connect-Protocol-Version, Connect-Timeout-Ms, Connect-Content-Encoding, Connect-Accept-Encoding, Grpc-Timeout, "
    "X-Grpc-Web, X-User-Agent, X-Request-Id, Traceparent, Tensord-Checks";
const char td_cors_max_age[] = "7200"; /* seconds, the most that Chromium keeps */

/* Adds the origin that the text names. */
static bool add_origin(struct td_cors *cors, struct td_text text, struct td_error *err)
{
    struct td_origin origin;
    if (!td_origin_read(text, &origin))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "\"%.*s\" is no origin: that is a scheme, a host and perhaps a port, such as "
                            "https://a.example or http://localhost:5173, without a path; a comma stands between two, "
                            "and * alone is every origin",
                            TD_SHOW(text, 100));
    if (cors->count == TD_CORS_ORIGINS)
        return td_error_set(err, TD_INVALID_ARGUMENT, "there are more than %d origins; * alone is every origin",
                            TD_CORS_ORIGINS);
    (void)td_origin_write(&origin, cors->origins[cors->count++]);
    return true;
}

bool td_cors_create(const char *list, struct td_cors **out, struct td_error *err)
{
    struct td_text rest = td_text_of(list);
    bool goes_on = true;
    struct td_cors *cors = calloc(1, sizeof *cors);
    if (cors == NULL)
        return td_error_no_memory(err);
    cors->is_any = strcmp(list, any) == 0;
    while (goes_on && !cors->is_any) {
        size_t len = rest.len;
        struct td_text text = td_text_take_until(&rest, ',');
        goes_on = text.len < len;
        if (!add_origin(cors, text, err)) {
            td_cors_destroy(cors);
            return false;
        }
    }
    *out = cors;
    return true;
}

void td_cors_destroy(struct td_cors *cors)
{
    free(cors);
}

bool td_cors_varies(const struct td_cors *cors)
{
    return cors != NULL && !cors->is_any;
}

const char *td_cors_allowed(const struct td_request *request)
{
    const struct td_cors *cors = request->cors;
    if (cors == NULL || cors->is_any)
        return cors == NULL ? NULL : any;
    const struct td_header *origin = td_request_single_header(request, "Origin");
    for (size_t i = 0; origin != NULL && i < cors->count; i++)
        if (td_text_equals(origin->value, cors->origins[i]))
            return cors->origins[i];
    return NULL;
}

void td_cors_write_lines(const struct td_cors *cors, char out[TD_CORS_LINES_BYTES])
{
    out[0] = '\0';
    if (td_cors_varies(cors))
        (void)snprintf(out, TD_CORS_LINES_BYTES, "Vary: Origin\r\n");
    else if (cors != NULL)
        (void)snprintf(out, TD_CORS_LINES_BYTES,
                       "Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: %s\r\n", any,
                       td_cors_exposed);
}
