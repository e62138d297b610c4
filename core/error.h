/* Errors: one type for all modules. The first failure wins: later ones are ignored, so a cleanup path cannot hide the
 * cause. A message says what is wrong, with the wrong value, and what would be right. Every function below accepts err
 * NULL (except td_error_init) and then only returns. */
#ifndef TD_CORE_ERROR_H
#define TD_CORE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

/* Canonical codes (names of google.rpc.Code); the facades map them to HTTP status codes. */
enum td_code {
    TD_OK = 0,
    TD_INVALID_ARGUMENT, /* the request or the file's bytes are wrong */
    TD_NOT_FOUND,
    TD_PERMISSION_DENIED,   /* outside the served root, or the host refuses */
    TD_FAILED_PRECONDITION, /* not a regular file, damaged bytes, more than a fixed limit ... */
    TD_CONFLICT,            /* the file is a placeholder (a Git LFS pointer); the operator has to fetch the real one */
    TD_RESOURCE_EXHAUSTED,  /* memory or a limit; often passes, try again */
    TD_UNAVAILABLE,         /* the file changed; try again */
    TD_IO,                  /* the host failed; `sys` holds errno */
    TD_INTERNAL,            /* a mistake in this program */
};

#define TD_ERROR_POS_NONE UINT64_MAX
#define TD_ERROR_MESSAGE_BYTES 480

struct td_error {
    enum td_code code;
    int sys;      /* errno, or 0 */
    uint64_t pos; /* byte position in the input, or TD_ERROR_POS_NONE */
    char message[TD_ERROR_MESSAGE_BYTES];
};

/* The initial value of every td_error: no failure. */
#define TD_ERROR_INIT            \
    {                            \
        .pos = TD_ERROR_POS_NONE \
    }

/* Sets *err to TD_ERROR_INIT, for an error that is used again or that is in uninitialised memory. */
void td_error_init(struct td_error *err);

/* Records a failure, unless *err holds one already. Always returns false, so that callers write `return
 * td_error_set(...)`. The message is escaped as td_utf8_escape does, because it may hold names of files and tensors;
 * one that is longer than TD_ERROR_MESSAGE_BYTES is cut and ends with "...". */
bool td_error_set(struct td_error *err, enum td_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Does the same and records the byte position of the fault. */
bool td_error_at(struct td_error *err, enum td_code code, uint64_t pos, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same, records an errno value and appends its text to the message. */
bool td_error_sys(struct td_error *err, enum td_code code, int sys, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds off to the position, if there is one: turns a position in a part of a file into one in the file. */
void td_error_shift(struct td_error *err, uint64_t off);

/* Replaces the path and its quotes in the message by "it", for a message that is shown beside the path. Does nothing if
 * the message does not hold the whole path. */
void td_error_name_it(struct td_error *err, const char *path);

enum { TD_ERROR_TEXT_BYTES = TD_ERROR_MESSAGE_BYTES + 40 };

/* Writes the message, and after it the position of the fault if it is known: "... (at byte 8)". Returns `out`. */
const char *td_error_text(const struct td_error *err, char out[TD_ERROR_TEXT_BYTES]);

/* Copies a failure from another error, unless *err holds one already. Always returns false. */
bool td_error_copy(struct td_error *err, const struct td_error *from);

/* Records TD_RESOURCE_EXHAUSTED, "out of memory", and ENOMEM. Always returns false. */
bool td_error_no_memory(struct td_error *err);

#endif
