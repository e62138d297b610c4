/* Tokens: who may ask for what. A set holds the tokens of one tokens file (token_file.h). It is immutable, so a change
 * of the file makes a new set. The texts of tokens stand nowhere: a set has their SHA-256. What S3 and signed URLs need
 * as a secret is derived from the master key of the set. Thread-safe. */
#ifndef TD_HTTP_AUTH_TOKEN_SET_H
#define TD_HTTP_AUTH_TOKEN_SET_H

#include "core/digest.h"
#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_TOKEN_NAME_MAX = 64,    /* bytes of a name */
    TD_TOKEN_MAX_BYTES = 1024, /* of a token's text; longer ones are no token */
    TD_TOKEN_KEY_BYTES = 32,   /* of the master key */
    TD_ACCESS_KEY_BYTES = 21,  /* of an access key, with its NUL */
    TD_S3_SECRET_BYTES = 44,   /* of a secret key, with its NUL */
};

/* The rights of a token: to see models, and to publish them. */
enum { TD_RIGHT_READ = 1, TD_RIGHT_WRITE = 2 };

struct td_token {
    const char *name;                     /* unique in its set; [A-Za-z0-9._-], 1 to TD_TOKEN_NAME_MAX bytes */
    uint8_t sha256[TD_SHA256_BYTES];      /* of the token's text; unique in its set */
    const char *const *models;            /* globs (core/glob.h) of ids, NULL-terminated; NULL: all ids */
    char models_tag[TD_TAG_BYTES];        /* a hash of the globs; td_token_set_create makes it; empty: models is NULL */
    unsigned int rights;                  /* TD_RIGHT_READ, TD_RIGHT_WRITE */
    int64_t expires_s;                    /* seconds since 1970; 0: never */
    int64_t created_s;                    /* seconds since 1970 */
    char access_key[TD_ACCESS_KEY_BYTES]; /* for S3: "TD" and 18 capitals and digits; td_token_set_create makes it */
};

struct td_token_set; /* reference-counted, immutable */

/* Returns a set of copies of these tokens, in this order, with one reference, or NULL. The caller has checked that the
 * names and digests are unique. Errors: TD_RESOURCE_EXHAUSTED. */
struct td_token_set *td_token_set_create(const uint8_t master_key[TD_TOKEN_KEY_BYTES], const struct td_token *tokens,
                                         size_t count, struct td_error *err);

/* td_token_set_ref takes a reference for the caller and returns `set`. td_token_set_unref drops a reference; the last
 * one erases and frees the set. td_token_set_unref(NULL) does nothing. */
struct td_token_set *td_token_set_ref(struct td_token_set *set);
void td_token_set_unref(struct td_token_set *set);

/* Return the number of tokens, and all of them in the order of the file. Borrowed. */
size_t td_token_set_count(const struct td_token_set *set);
const struct td_token *td_token_set_tokens(const struct td_token_set *set);

/* Returns the master key, TD_TOKEN_KEY_BYTES bytes, for the tokens file alone. Borrowed. */
const uint8_t *td_token_set_master_key(const struct td_token_set *set);

/* Returns the token with this text, borrowed, or NULL. Compares the SHA-256 with those of all tokens, each as a whole,
 * so the time reveals nothing about them. Expired tokens are found, too: the caller asks td_token_has_expired. */
const struct td_token *td_token_set_find(const struct td_token_set *set, struct td_text secret);

/* Return the token with this name or access key, borrowed, or NULL. Neither is a secret. */
const struct td_token *td_token_set_find_name(const struct td_token_set *set, struct td_text name);
const struct td_token *td_token_set_find_access_key(const struct td_token_set *set, struct td_text access_key);

/* Returns whether the text may be the name of a token. */
bool td_token_name_is_valid(struct td_text name);

/* Returns whether the token has expired at this time, in seconds since 1970. */
bool td_token_has_expired(const struct td_token *token, int64_t now_s);

/* Writes the token's secret key for S3: base64url, without padding, of
 * HMAC-SHA-256(master key, "tensord-s3-secret\n" NAME "\n" SHA256). SHA256 is the token's digest in hexadecimal. */
void td_token_s3_secret(const struct td_token_set *set, const struct td_token *token, char out[TD_S3_SECRET_BYTES]);

/* Writes the key by which the token signs URLs: HMAC-SHA-256(master key, "tensord-url\n" NAME "\n" SHA256). With token
 * NULL, the key of the holder of the tokens file, who has all rights: NAME and SHA256 are then empty. */
void td_token_url_key(const struct td_token_set *set, const struct td_token *token, uint8_t out[TD_SHA256_BYTES]);

/* Returns whether the token may see what has this id: a model, or a dataset as "datasets/ID". An id of one segment is
 * matched with the default namespace before it, too: "demo" is "local/demo". */
bool td_token_may_see(const struct td_token *token, struct td_text id);

/* Returns whether the token has the right to write, and may see what has this id, so that it may publish to it. */
bool td_token_may_write(const struct td_token *token, struct td_text id);

/* Returns whether the token has the right to write, and one of its patterns may match an id that begins so: as far as
 * the pattern has no special character, it agrees with the beginning. */
bool td_token_may_write_below(const struct td_token *token, struct td_text prefix);

#endif
