/* The parts of lines that people copy from pages into a terminal or a program. All append plain text. */
#ifndef TD_API_HTML_COMMAND_WORDS_H
#define TD_API_HTML_COMMAND_WORDS_H

#include "api/call/call.h"
#include "core/buffer.h"

/* Appends a text as one word of a shell: in quotes where it needs them, and with escapes ($'\x0a', as Bash and Zsh read
 * them) for bytes that do not print. */
void td_command_word(struct td_buffer *out, struct td_text text);

/* Appends a text as a string of Python, in ASCII. Bytes that are not UTF-8 become U+FFFD. */
void td_command_string(struct td_buffer *out, struct td_text text);

/* Append the origin that the client addresses, "http://host:port", and that of the port for clients of S3. Return
 * false, with nothing appended, when the request has no host, or the server no such port. */
bool td_command_origin(struct td_buffer *out, const struct td_call *call);
bool td_command_s3_origin(struct td_buffer *out, const struct td_call *call);

/* Adds the field "Vary: X-Forwarded-Proto" to an answer with an origin: a proxy may report the scheme in that field.
 */
void td_command_vary(struct td_response *response);

/* Return whether huggingface_hub (its validate_repo_id) and `tensord pull` take the id of a repository, and whether the
 * S3 client of Python takes the name of a bucket. */
bool td_command_takes_hub_id(struct td_text id);
bool td_command_takes_bucket(struct td_text name);

#endif
