/* Puts files into a model on a tensord, by its API for publishing: blobs that are named by their digests, and commits
 * that list files (docs/publish.md). Every request may be sent again. */
#ifndef TD_CATALOG_REMOTE_REMOTE_PUSH_H
#define TD_CATALOG_REMOTE_REMOTE_PUSH_H

#include "core/digest.h"
#include "core/error.h"
#include "storage/fetch/fetch_session.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_REMOTE_PIECE_BYTES = 256 * 1024, /* ranges of a blob begin at its multiples, and end there or with the blob */
    TD_REMOTE_COMMIT_BYTES = 72,        /* the id of a commit, with a NUL */
};

struct td_remote_blob {
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
};

/* A range of a blob. */
struct td_remote_span {
    uint64_t first, end; /* end is exclusive */
};

/* Blobs that a server lacks, and of each the ranges. */
struct td_remote_lacks {
    struct td_remote_lack {
        uint8_t sha256[TD_SHA256_BYTES];
        size_t span_first, span_count; /* run of spans; none: the whole blob */
    } * items;
    size_t count, capacity;
    struct td_remote_span *spans;
    size_t span_count, span_capacity;
};

void td_remote_lacks_fini(struct td_remote_lacks *lacks);

/* A file of a commit. */
struct td_remote_commit_file {
    const char *path; /* UTF-8; borrowed */
    struct td_remote_blob blob;
};

/* A commit that is asked for. All is borrowed. */
struct td_remote_commit {
    size_t server;  /* of the session's client */
    const char *id; /* of the model; of a dataset with "datasets/" in front */
    const char *revision;
    const char *message; /* NULL: none */
    const char *parent;  /* the commit that the revision must be at, "": none yet; NULL: any */
    bool keeps;          /* files of the revision that are not listed stay */
    bool is_dry_run;     /* the commit is only checked */
    const struct td_remote_commit_file *files;
    size_t count;
};

struct td_remote_commit_reply {
    bool is_made;                        /* or a dry run says that it can be; else `lacks` says what the server needs */
    bool has_changed;                    /* the revision has moved, or would */
    char commit[TD_REMOTE_COMMIT_BYTES]; /* empty: not made */
    struct td_remote_lacks lacks;
};

/* Returns whether the id is one of a model, as td_remote_id_check, or "datasets/" and such an id. */
bool td_remote_push_id_check(struct td_text id, struct td_error *err);

/* Asks for the commit. Zeroes *reply first; the caller frees its `lacks`. Errors: TD_UNAVAILABLE when no answer came in
 * time; TD_FAILED_PRECONDITION when the server refuses, with its message and what to do about it; the same for another
 * parent (412) and for an answer that a tensord does not give; TD_PERMISSION_DENIED for 401, 403 and 405, and as
 * td_fetch_session_get; TD_NOT_FOUND; TD_RESOURCE_EXHAUSTED for 507 and without memory; TD_CONFLICT when cancelled. */
bool td_remote_commit_ask(struct td_fetch_session *session, const struct td_remote_commit *commit,
                          struct td_remote_commit_reply *reply, struct td_error *err);

/* A blob that is sent, or a part of it. All is borrowed. */
struct td_remote_sending {
    size_t server;     /* of the session's client */
    const char *id;    /* as of td_remote_commit */
    const char *shown; /* the file's name, for messages */
    struct td_remote_blob blob;
    int fd;                       /* of a file with these bytes */
    _Atomic uint64_t *sent_bytes; /* counts the bytes that are sent, also again; may be NULL */
    _Atomic uint64_t *done_bytes; /* counts the bytes that the server has, but falls when sent bytes turn out to be
                                     lost; may be NULL */
};

/* Sends the span of the blob, which begins and ends as TD_REMOTE_PIECE_BYTES says. After a failure asks the server what
 * it has, and sends the rest, for the client's retry_for_ns without progress. *is_complete: the server now has the
 * whole blob. Errors: as td_remote_commit_ask; TD_INVALID_ARGUMENT when the server has computed another digest (422):
 * the whole blob is lost there. */
bool td_remote_blob_send(struct td_fetch_session *session, const struct td_remote_sending *sending,
                         struct td_remote_span span, bool *is_complete, struct td_error *err);

/* ---- for the tests ------------------------------------------------------------------------------------- */

/* Appends what a commit lacks by the body of an answer of 409. Sets *has_lacks to whether it says so; otherwise it is
 * another conflict. Errors: TD_INVALID_ARGUMENT for a body that is wrong, TD_RESOURCE_EXHAUSTED. */
bool td_remote_lacks_read(struct td_text body, struct td_remote_lacks *lacks, bool *has_lacks, struct td_error *err);

#endif
