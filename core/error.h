/* Errors: one shape for every module. The first failure wins; later ones are ignored, so a cleanup path
 * can never hide the cause. A message says what was wrong, with which value, and what would be right. */
#ifndef TD_CORE_ERROR_H
#define TD_CORE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

/* Canonical codes (google.rpc.Code names); api/ maps them to HTTP. */
enum td_code {
    TD_OK = 0,
    TD_INVALID_ARGUMENT, /* the caller's request or the file's bytes are wrong */
    TD_NOT_FOUND,
    TD_PERMISSION_DENIED,   /* outside the root, or the host refuses */
    TD_FAILED_PRECONDITION, /* not a regular file, not addressable ... */
    TD_CONFLICT,            /* the file is a placeholder (a Git LFS pointer); an operator has to fetch the real one */
    TD_RESOURCE_EXHAUSTED,  /* a limit of ours, or memory */
    TD_UNAVAILABLE,         /* the file changed, try again */
    TD_IO,                  /* the host failed; sys holds errno */
    TD_INTERNAL,
};

#define TD_ERROR_POS_NONE UINT64_MAX
#define TD_ERROR_MESSAGE_BYTES 480

struct td_error {
    enum td_code code;
    int sys;      /* errno, or 0 */
    uint64_t pos; /* byte position in the input, or TD_ERROR_POS_NONE */
    char message[TD_ERROR_MESSAGE_BYTES];
};

/* Every td_error starts with this value: no failure yet. */
#define TD_ERROR_INIT            \
    {                            \
        .pos = TD_ERROR_POS_NONE \
    }

/* Clears *err, for an error that is used again or lies in memory that was not initialised. */
void td_error_init(struct td_error *err);

/* Records a failure unless one is recorded already. Always returns false, so `return td_error_set(...)`
 * is the idiom. err may be NULL: the failure is then only returned. Control bytes are escaped, because
 * file names and tensor names end up in messages; the result is valid UTF-8. */
bool td_error_set(struct td_error *err, enum td_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same with the byte position of the fault. */
bool td_error_at(struct td_error *err, enum td_code code, uint64_t pos, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with an errno value; its text is appended to the message. */
bool td_error_sys(struct td_error *err, enum td_code code, int sys, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds off to the position, where there is one: an error of a part, told of the whole. */
void td_error_shift(struct td_error *err, uint64_t off);

/* Records another's failure with all of it, unless one is recorded already. Always returns false. */
bool td_error_copy(struct td_error *err, const struct td_error *from);

/* Out of memory, worded once. */
bool td_error_no_memory(struct td_error *err);

#endif
