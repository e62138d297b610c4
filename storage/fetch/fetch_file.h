/* Fetches one file from a client's servers into a directory: several connections with ranges, failover to another
 * server in the middle, resumption after a kill, digests while the bytes arrive, and a rename at the end. A file never
 * has its name before it is complete and verified.
 *
 * The servers are not trusted: a wrong length, range or entity tag, a body that is too long or too short, and a stall
 * are detected, and the bytes are requested again, from another server if there is one. A server whose file differs
 * from the listing is not asked for this file again. */
#ifndef TD_STORAGE_FETCH_FETCH_FILE_H
#define TD_STORAGE_FETCH_FETCH_FILE_H

#include "core/error.h"
#include "storage/fetch/fetch_part.h"
#include "storage/fetch/fetch_session.h"
#include "storage/served_root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_fetch_job {
    const char *url_path;       /* below each server's base URL; begins with '/', percent-encoded */
    const struct td_root *root; /* the directory; borrowed */
    const char *name;           /* relative path of the file in it; missing directories are made */
    const char *shown;          /* the file's name in messages */
    struct td_fetch_expected expected;
    bool wants_git_sha1;  /* computes the Git object id of a file of up to TD_FETCH_GIT_BYTES without a digest */
    unsigned connections; /* 1 to TD_FETCH_MAX_CONNECTIONS, over all servers */
    uint64_t span_bytes;  /* the most that one request asks for; 0: the best for speed. Small ones keep the
                             beginning of the file ahead */
    struct td_fetch_events events;
};

struct td_fetch_outcome {
    bool was_there;            /* a file with the expected digest had the name already; nothing was fetched */
    bool is_verified;          /* a digest was expected, and the content matches it, also when was_there */
    bool has_changed;          /* a server had another version than the listing, or than before */
    uint64_t fetched_bytes;    /* received, including bytes that were fetched again */
    uint64_t resumed_bytes;    /* that an earlier process fetched */
    struct td_fetch_sums sums; /* of the content, also of a file that was there */
};

/* Fetches the file. Blocks. After an error the bytes on disk stay, to be resumed, unless they were wrong. Errors:
 * TD_CONFLICT when cancelled; TD_NOT_FOUND when all servers say so; TD_PERMISSION_DENIED for a refused token or an
 * untrusted certificate; TD_FAILED_PRECONDITION when the content has another digest, or no server has the file that was
 * expected; TD_RESOURCE_EXHAUSTED when the disk is full (sys is ENOSPC, EDQUOT or EFBIG), memory is short, or the last
 * server has no room for it (EFBIG); TD_UNAVAILABLE when no server made progress for retry_for_ns; TD_IO. The message
 * names `shown` and the server. */
bool td_fetch_file(struct td_fetch_session *session, const struct td_fetch_job *job, struct td_fetch_outcome *outcome,
                   struct td_error *err);

#endif
