/* Reads the header of an answer line by line, bounded and checked. After a redirect the fields are those of the last
 * answer. Also converts a failed request into a message for users, and says whether to retry. Pure, except that it
 * reads the clock to turn a date into a time to wait. */
#ifndef TD_STORAGE_FETCH_FETCH_ANSWER_H
#define TD_STORAGE_FETCH_FETCH_ANSWER_H

#include "core/error.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_FETCH_ETAG_BYTES = 256,  /* with a NUL; a longer tag is ignored */
    TD_FETCH_LINK_BYTES = 4096, /* with a NUL; a longer link is a fault */
    TD_FETCH_MESSAGE_BYTES = 400,
};

struct td_fetch_answer {
    size_t header_bytes;            /* of all answers, redirects too */
    bool is_redirected;             /* a redirect came before it: another server than the one asked may have answered */
    unsigned status;                /* of the last one; 0: none yet */
    char etag[TD_FETCH_ETAG_BYTES]; /* a strong tag with its quotes; empty: none, or a weak one */
    char version[TD_FETCH_ETAG_BYTES];    /* X-Tensord-Version, percent-encoded; empty: none, or a longer one */
    char next[TD_FETCH_LINK_BYTES];       /* the target of the Link with rel="next"; empty: none */
    char message[TD_FETCH_MESSAGE_BYTES]; /* the reason of an error: X-Error-Message, or from the body */
    bool has_range;                       /* Content-Range of one range of bytes with a total: the next members */
    uint64_t first, last, total;          /* bytes; the last one is inclusive */
    bool has_length;                      /* Content-Length */
    uint64_t length;
    uint64_t retry_after_s; /* 0: no Retry-After; at most 3,600 */
    bool is_coded;          /* Content-Encoding other than identity, or a multipart answer: not the bytes themselves */
    bool is_wrong;          /* a field that contradicts another one, or is too long */
};

/* Prepares for an answer. */
void td_fetch_answer_init(struct td_fetch_answer *answer);

/* Reads one line of the header, with or without its line end: a status line, which begins a new answer, or a field.
 * Returns false when the header has become longer than TD_FETCH_MAX_HEADER_BYTES: the caller must then end the
 * answer. */
bool td_fetch_answer_take_line(struct td_fetch_answer *answer, struct td_text line);

/* Reads the reason from the body of an answer of 400 or above, or from its beginning, when the header has none: the
 * member "message" of "error", or "error" itself, of a JSON object of at most 64 KiB. Control characters become spaces.
 */
void td_fetch_answer_take_reason(struct td_fetch_answer *answer, struct td_text body);

/* Sets the error for a failure of libcurl (`code` is a CURLcode, `text` its error buffer) on a handle (CURL *). `what`
 * names the request, with the server. TD_UNAVAILABLE: a retry may help; all other codes are final. Returns false. */
bool td_fetch_fault_of_code(void *easy, int code, const char *text, const char *what, struct td_error *err);

enum { TD_FETCH_ADVICE_BYTES = 140 }; /* with a NUL; so much fits beside two long names */

/* Returns whether a retry may help after this answer: 408, 425, 429, 500 and above; but 507, no room (RFC 4918 section
 * 11.5: "MUST NOT be repeated"), only with Retry-After. */
bool td_fetch_fault_may_pass(const struct td_fetch_answer *answer);

/* Sets the error for an answer whose status is not the wanted one. advice: what a person does about it; NULL: for 401
 * that a token is needed, for others none. The server's own message comes last, so that nothing else is cut with it.
 * TD_UNAVAILABLE for a failure after which a retry may help; TD_RESOURCE_EXHAUSTED with sys EFBIG for 507 without
 * Retry-After: the server never has room for what was asked for. Returns false. */
bool td_fetch_fault_of_answer(const struct td_fetch_answer *answer, const char *advice, const char *what,
                              struct td_error *err);

/* Returns whether the error says that something never fits, whatever else is evicted. The function that finds that out,
 * here or from a server's answer, sets sys to EFBIG. */
bool td_fetch_fault_never_fits(const struct td_error *why);

#endif
