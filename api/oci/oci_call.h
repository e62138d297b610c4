/* The state of a request that the parts of the OCI facade share, and its answers. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_CALL_H
#define TD_API_OCI_OCI_CALL_H

#include "api/call/call.h"
#include "api/oci/oci_path.h"
#include "catalog/names/repo.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/made_document.h"

/* A repository with more files is no artifact: its manifest would be longer than the 4 MiB that clients read. */
enum { TD_OCI_MOST_FILES = 10000, TD_OCI_MANIFEST_MAX = 4 * 1024 * 1024 };

/* An answer waits for digests for at most 25 s. Clients of registries do not ask again after a 503, so that a longer
 * wait saves whole pulls, and of those that are known none gives up before 30 s without a field (containerd from 2.3
 * on, and Docker with it; others wait without an end). */
#define TD_OCI_WAIT_NS UINT64_C(25000000000)

/* Why a digest is not known. */
enum td_oci_lack { TD_OCI_LACKS_NOTHING, TD_OCI_IS_HASHING, TD_OCI_HASHES_NOTHING };

/* A request with the state of its processing. For one thread. */
struct td_oci_call {
    const struct td_call *call;
    struct td_call *own;          /* what `call` points to, to change its snapshot */
    struct td_snapshot *incoming; /* a newer snapshot, with a reference, in which the call goes on; NULL: none */
    struct td_oci_path path;
    const struct td_repo *repo; /* of path.name; NULL before td_oci_find_repo */
    struct td_arena arena;      /* for the answer */
    struct td_reserved reserved;
    char files_tag[TD_TAG_BYTES]; /* of the files from tagged_entry on; empty: none were tagged */
    size_t tagged_entry;          /* a number of snapshot->entries */
    uint64_t until_ns;            /* digests are waited for until then (monotonic); 0: they are not */
    enum td_oci_lack lack;        /* of the digests that the last target lacked; then what an error tells */
    unsigned retry_s;             /* when hashing may have ended, where digests lack; else 0 */
};

/* Answers an error with a code of the specification. Returns false. */
bool td_oci_fail(const struct td_oci_call *oci, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a td_error; `unknown` is the code where nothing was found. Where digests lack, Retry-After tells
 * when hashing may have ended. Returns false. */
bool td_oci_fail_error(const struct td_oci_call *oci, const struct td_error *err, const char *unknown);

/* Sets oci->lack and the error for a server that hashes nothing, where so many digests are unknown of what the noun, in
 * the singular, says. The error tells what to change. Returns false. */
bool td_oci_refuse_for_good(struct td_oci_call *oci, size_t unknown, const char *noun, struct td_error *err);

/* Sets oci->repo to the repository that path.name means. A request for tags, a manifest or a blob of a model that is
 * not here has the upstream asked for it. Returns false after it answered: that there is none, or how far it is. */
bool td_oci_find_repo(struct td_oci_call *oci);

/* Reads path.reference, which must be a digest. Sets *hex, borrowed, empty where nothing here can have the digest.
 * Returns false after it answered 400, since the text is no digest. */
bool td_oci_read_digest(const struct td_oci_call *oci, struct td_text *hex);

/* Appends the path of something of the repository, by the name that the client used: /v2/{name}/ and `rest`, which
 * needs no escapes. Without a name it is /v2/ and `rest`. */
void td_oci_write_path(const struct td_oci_call *oci, const char *rest, struct td_buffer *out);

/* Answers a document, with its digest and media type. is_immutable: the client asked by the digest, so that it may keep
 * the answer. */
void td_oci_answer_document(const struct td_oci_call *oci, const struct td_made_document *document, bool is_immutable);

/* Adds what an answer to a request by digest has: entity tag, digest (the SHA-256 in hexadecimal), and how long it may
 * be kept. */
void td_oci_add_digest(const struct td_oci_call *oci, struct td_text sha256, bool is_immutable);

/* Answers 200 with a text in the buffer, which it empties, of this media type (static). */
void td_oci_answer_text(struct td_oci_call *oci, struct td_buffer *text, const char *media_type);

/* Returns what tells that waiting for a digest is no use any more (td_call_over). Borrows the call. */
struct td_cancel td_oci_over(struct td_oci_call *oci);

#endif
