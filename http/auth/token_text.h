/* The text of a tokens file: JSON that holds the master key and, for each token, its SHA-256 and what it allows.
 *
 *     {"version": 1,
 *      "master_key": "<32 random bytes in base64url>",
 *      "tokens": [{"name": "ci", "sha256": "<64 hexadecimal digits>", "models": ["org/name"], "rights": ["read"],
 *                  "expires": "2027-01-31T00:00:00Z", "created": "2027-01-01T00:00:00Z"}]}
 *
 * `models` null or left out: all; `rights` left out: read; `expires` null or left out: never. Thread-safe. */
#ifndef TD_HTTP_AUTH_TOKEN_TEXT_H
#define TD_HTTP_AUTH_TOKEN_TEXT_H

#include "core/error.h"
#include "core/text.h"
#include "http/auth/token_set.h"

#include <stdbool.h>

enum {
    TD_TOKENS_MAX = 10000,             /* tokens in a file */
    TD_TOKEN_MODELS_MAX = 1000,        /* globs of a token */
    TD_TOKEN_GLOB_BYTES = 1024,        /* of a glob */
    TD_TOKEN_MODELS_BYTES = 64 * 1024, /* of all globs of a token: bounds the time of a match */
};

/* Reads the text and sets *out to a set with one reference. Errors, each with what would be right: TD_INVALID_ARGUMENT
 * with the position in the text, TD_FAILED_PRECONDITION, TD_RESOURCE_EXHAUSTED. */
bool td_token_text_parse(struct td_text text, struct td_token_set **out, struct td_error *err);

#endif
