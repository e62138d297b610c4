/* Reads and changes the tokens file. http/auth/token_text.h describes its text. A program that reads the file can sign
 * for every token, so its mode must be 0600, 0400, 0640 or 0440, and its owner the user of this process or root. A
 * token's text is "td_" and 32 random bytes in base64url. Thread-safe. */
#ifndef TD_HTTP_AUTH_TOKEN_FILE_H
#define TD_HTTP_AUTH_TOKEN_FILE_H

#include "core/base64.h"
#include "core/error.h"
#include "core/message/document.h"
#include "core/text.h"
#include "http/auth/token_set.h"
#include "http/auth/token_text.h"

#include <stdbool.h>

enum {
    TD_TOKEN_FILE_BYTES = 16 * 1024 * 1024,               /* of a tokens file */
    TD_TOKEN_TEXT_BYTES = 3 + TD_BASE64URL_CHARS(32) + 1, /* of a new token, with its NUL */
};

/* Reads a tokens file and sets *out to a set with one reference. Errors, each with the place and what would be right:
 * TD_IO (cannot be opened or read), TD_PERMISSION_DENIED (mode or owner), TD_FAILED_PRECONDITION (no regular file, too
 * large, wrong content), TD_INVALID_ARGUMENT (the path is a token), TD_RESOURCE_EXHAUSTED. */
bool td_token_file_read(const char *path, struct td_token_set **out, struct td_error *err);

/* Returns whether the text looks like a token that td_token_file_add made, so that no message and no log may show it.
 */
bool td_token_file_is_token(struct td_text text);

/* A token to add. All is borrowed. */
struct td_new_token {
    const char *name;
    const char *const *models; /* NULL-terminated; NULL: all */
    int64_t expires_s;         /* seconds since 1970; 0: never */
    bool may_write;            /* it has the right to write beside that to read */
};

/* Adds a token to the file; creates a missing file with mode 0600. Writes the token's text, which is stored nowhere, to
 * `text`, and sets *out to the new set with one reference. The file is replaced as a whole and keeps its mode and
 * owner; writers on one machine wait for each other, for at most 10 s. Errors, with the file unchanged: those of
 * td_token_file_read, TD_INVALID_ARGUMENT (a name or glob that no token may have), TD_CONFLICT (the name is taken),
 * TD_FAILED_PRECONDITION (the file has TD_TOKENS_MAX tokens), TD_IO. */
bool td_token_file_add(const char *path, const struct td_new_token *token, char text[TD_TOKEN_TEXT_BYTES],
                       struct td_token_set **out, struct td_error *err);

/* Adds what a token allows, as the file has it: the members "models", "rights" and "expires". */
void td_token_add_members(struct td_document *json, const struct td_token *token);

/* Removes the token with this name from the file, as td_token_file_add adds one. Errors: TD_NOT_FOUND (there is no such
 * token), and those of td_token_file_add. */
bool td_token_file_remove(const char *path, const char *name, struct td_error *err);

#endif
