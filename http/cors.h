/* The origins whose pages may read answers (--cors-origin), and the fields by which browsers learn that: the Fetch
 * standard, https://fetch.spec.whatwg.org, section "CORS protocol". Answers never allow credentials: scripts send
 * tokens themselves, in the field Authorization. */
#ifndef TD_HTTP_CORS_H
#define TD_HTTP_CORS_H

#include "core/error.h"
#include "http/request.h"

#include <stdbool.h>
#include <stddef.h>

/* The most origins in a list. */
enum { TD_CORS_ORIGINS = 64 };

struct td_cors;

/* Makes a set of the list: origins with commas between them, or "*" alone, which is every origin. Errors:
 * TD_INVALID_ARGUMENT for another text, and for more than TD_CORS_ORIGINS; TD_RESOURCE_EXHAUSTED. */
bool td_cors_create(const char *list, struct td_cors **out, struct td_error *err);

/* Frees the set. NULL is allowed. */
void td_cors_destroy(struct td_cors *cors);

/* Returns whether answers depend on the field Origin, so that every answer needs "Vary: Origin". cors NULL: no. */
bool td_cors_varies(const struct td_cors *cors);

/* Returns the value of Access-Control-Allow-Origin in the answer to the request, which lives as long as the set; NULL:
 * the answer must not have that field. Asks request->cors, where NULL allows nothing. */
const char *td_cors_allowed(const struct td_request *request);

/* The value of Access-Control-Expose-Headers, which every answer with Access-Control-Allow-Origin has: the fields that
 * scripts may read beside those that the standard always lets them read. */
extern const char td_cors_exposed[];

/* The values of Access-Control-Allow-Methods, -Headers and Access-Control-Max-Age in answers to preflights. */
extern const char td_cors_methods[], td_cors_headers[], td_cors_max_age[];

enum { TD_CORS_LINES_BYTES = 512 };

/* Writes the lines, each with its CRLF, that a header needs whose request was not read, so that its Origin is not
 * known. cors NULL: none. */
void td_cors_write_lines(const struct td_cors *cors, char out[TD_CORS_LINES_BYTES]);

#endif
