/* The state of a request that the parts of the OCI facade share: its path by the OCI distribution specification, its
 * repository, and its answers. Private to api/oci/. */
#ifndef TD_API_OCI_OCI_CALL_H
#define TD_API_OCI_OCI_CALL_H

#include "api/call/call.h"
#include "catalog/names/repo.h"
#include "catalog/publish/publish_disk.h"
#include "core/arena.h"
#include "http/reservation.h"
#include "rank/made_document.h"

enum td_oci_endpoint {
    TD_OCI_NONE,      /* no path of the specification */
    TD_OCI_ROOT,      /* /v2/ */
    TD_OCI_CATALOG,   /* /v2/_catalog */
    TD_OCI_TAGS,      /* /v2/{name}/tags/list */
    TD_OCI_MANIFEST,  /* /v2/{name}/manifests/{tag or digest} */
    TD_OCI_BLOB,      /* /v2/{name}/blobs/{digest} */
    TD_OCI_REFERRERS, /* /v2/{name}/referrers/{digest} */
    TD_OCI_UPLOAD,    /* /v2/{name}/blobs/uploads/{session}, by which clients push; without a session to begin one */
};

/* The parts of a path, borrowed from it. */
struct td_oci_path {
    enum td_oci_endpoint endpoint;
    struct td_text name;      /* not empty if the endpoint has a name; may break the grammar of names */
    struct td_text reference; /* not empty if the endpoint has a reference; of TD_OCI_UPLOAD the session, or empty */
};

/* Splits a path, decoded or not. Returns false for a path that is not in the specification, and sets the endpoint
 * TD_OCI_NONE. */
bool td_oci_path_parse(struct td_oci_path *path, struct td_text text);

/* Splits the decoded path of a call. The raw path has already decided the route that is counted and where the call is
 * answered. If unescaping a '/' would change the endpoint, the endpoint becomes TD_OCI_NONE. */
void td_oci_path_split(const struct td_call *call, struct td_oci_path *path);

/* Kinds of text where the path has a digest. */
enum td_oci_digest_kind {
    TD_OCI_DIGEST_WRONG,  /* not by the grammar, or not of its algorithm's length */
    TD_OCI_DIGEST_OTHER,  /* of another algorithm than SHA-256: nothing here has it */
    TD_OCI_DIGEST_SHA256, /* "sha256:" and 64 lower-case hexadecimal digits */
};

/* Reads a digest (image-spec, descriptor.md). Sets *hex to the digits of a SHA-256, borrowed. */
enum td_oci_digest_kind td_oci_digest_read(struct td_text text, struct td_text *hex);

/* Returns whether the text is a tag by the grammar of the specification. */
bool td_oci_tag_is_valid(struct td_text text);

/* A repository with more files is not served as an artifact: its manifest would be longer than the 4 MiB that clients
 * read. */
enum { TD_OCI_MOST_FILES = 10000, TD_OCI_MANIFEST_MAX = 4 * 1024 * 1024 };

enum { TD_OCI_ID_BYTES = 512 /* of an id, with a NUL */ };

/* Why a digest is not known. */
enum td_oci_lack { TD_OCI_LACKS_NOTHING, TD_OCI_IS_HASHING, TD_OCI_HASHES_NOTHING };

/* A request with the state of its processing. For one thread. */
struct td_oci_call {
    const struct td_call *call;
    struct td_call *own;          /* the object `call` points to, to change its snapshot */
    struct td_snapshot *incoming; /* a newer snapshot that the call continues in, with a reference; or NULL */
    struct td_oci_path path;
    const struct td_repo *repo;    /* of path.name; NULL before td_oci_find_repo, and if it has no commit */
    struct td_publish_repo pushed; /* for reading; fd -1: not opened, or nothing was published by the name */
    struct td_arena arena;         /* for the answer */
    struct td_reserved reserved;
    char files_tag[TD_TAG_BYTES]; /* of the files from tagged_entry on; empty: not computed yet */
    size_t tagged_entry;          /* a number of snapshot->entries */
    uint64_t until_ns;            /* the end of the wait for digests (monotonic); 0: does not wait */
    enum td_oci_lack lack;        /* why digests of the last target are missing; an error says it */
    unsigned retry_s;             /* after which time hashing may be done; 0: no digest is missing */
};

/* Answers an error with a code of the specification. Returns false. */
bool td_oci_fail(const struct td_oci_call *oci, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a td_error. `unknown` is the code for TD_NOT_FOUND. If digests are missing, Retry-After says when
 * hashing may be done. Returns false. */
bool td_oci_fail_error(const struct td_oci_call *oci, const struct td_error *err, const char *unknown);

/* Sets oci->repo to the repository that path.name means; or opens oci->pushed when it has no commit yet. If the server
 * does not have the model, a request for its tags, a manifest or a blob asks the upstream for it. Returns false after
 * it answered that the repository does not exist, or how far the fetch is. */
bool td_oci_find_repo(struct td_oci_call *oci);

/* Writes the id by which the repository of path.name is published: that of the model that has this name, else the name
 * itself, without the default namespace. */
bool td_oci_publish_id(const struct td_oci_call *oci, char id[TD_OCI_ID_BYTES]);

/* Opens what was pushed by path.name for reading (oci->pushed), if the caller may see it. Returns whether something was
 * published by the name. May wait for the disk. */
bool td_oci_look_at_pushed(struct td_oci_call *oci);

/* Reads path.reference, which must be a digest. Sets *hex, borrowed, empty for another algorithm, whose digests nothing
 * here has. Returns false after it answered 400, because the text is not a digest. */
bool td_oci_read_digest(const struct td_oci_call *oci, struct td_text *hex);

/* Appends a path below the repository: /v2/{name}/ with the name that the client used, then `rest`, which needs no
 * escapes. Without a name it appends /v2/ and `rest`. */
void td_oci_write_path(const struct td_oci_call *oci, const char *rest, struct td_buffer *out);

/* Adds Location: the absolute URL of a path below the repository, which Ollama needs; without a valid Host the path. */
void td_oci_add_location(const struct td_oci_call *oci, const char *rest);

/* Answers a document, with its digest and media type. is_immutable: the client asked by digest, so it may cache the
 * answer forever. */
void td_oci_answer_document(const struct td_oci_call *oci, const struct td_made_document *document, bool is_immutable);

/* Adds the header fields of an answer to a request by digest: ETag, the digest (sha256 is in hexadecimal), and how long
 * a client may cache the answer. */
void td_oci_add_digest(const struct td_oci_call *oci, struct td_text sha256, bool is_immutable);

/* Answers 200 with a text in the buffer, which it empties, of this media type (static). */
void td_oci_answer_text(struct td_oci_call *oci, struct td_buffer *text, const char *media_type);

#endif
