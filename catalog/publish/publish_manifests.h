/* Manifests and tags that clients of OCI registries push to published repositories. A manifest is a blob, byte for byte
 * as it was pushed, with a mark that it is one:
 *
 *   manifests/HEX          the mark: "digest" for a manifest that was pushed by its digest, which stays until it is
 *                          deleted, "tag" for others, which stay as long as a tag or an index names them; the
 *                          modification time is when it was pushed, or a tag last left it
 *   tags/TAG               lines of a manifest's SHA-256 and a commit, or "-": the tag names the manifest while the
 *                          tag's revision is at this commit, or is not there
 *   referrers/SUBJECT/HEX  for each manifest with this subject, both by their SHA-256: "TYPE AT LEN", a line feed, the
 *                          artifact type, and the manifest's descriptor as JSON without the annotations. TYPE: bytes
 *                          of the artifact type; the annotations are the LEN bytes of the manifest from AT on
 *
 * The caller has opened the repository, so nobody else changes it. Repositories in new/ have manifests and tags as
 * others do. Each call may wait for the disk. */
#ifndef TD_CATALOG_PUBLISH_PUBLISH_MANIFESTS_H
#define TD_CATALOG_PUBLISH_PUBLISH_MANIFESTS_H

#include "catalog/names/repo.h"
#include "catalog/publish/publish_disk.h"
#include "catalog/publish/pushed_manifest.h"
#include "core/buffer.h"

enum {
    TD_PUBLISH_MANIFESTS_MOST = 10000,             /* manifests of a repository */
    TD_PUBLISH_MANIFESTS_BYTES = 64 * 1024 * 1024, /* of all of them: each collection reads them */
    TD_PUBLISH_TAGS_MOST = 10000,                  /* tags of a repository */
    TD_PUBLISH_TAG_BYTES = 129,                    /* of the longest tag, with a NUL (distribution-spec) */
    TD_PUBLISH_REFERRERS_MOST = 4096,              /* referrers that one call looks at */
};

/* Returns whether the text is a tag by the grammar of the OCI distribution specification. */
bool td_publish_tag_is_valid(const char *tag);

/* Returns the revision that a tag stands for: "main" for "latest", else the tag itself; NULL for a tag that no revision
 * can have. Static, or borrowed. */
const char *td_publish_tag_revision(const char *tag);

/* Marks a blob of the repository, which is complete, as a manifest. Errors: TD_FAILED_PRECONDITION for more than
 * TD_PUBLISH_MANIFESTS_MOST, or TD_PUBLISH_MANIFESTS_BYTES; as td_publish_fail. */
bool td_publish_manifest_put(struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                             const struct td_pushed_manifest *manifest, bool is_by_digest, struct td_error *err);

/* Returns whether the repository has this manifest. */
bool td_publish_manifest_is_here(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES]);

/* Returns whether the repository has any manifest. */
bool td_publish_has_manifests(const struct td_publish_repo *repo);

/* Returns whether the repository has, or may have, a manifest that was pushed by its digest. */
bool td_publish_has_manifests_by_digest(const struct td_publish_repo *repo);

/* Sets *bytes to the text of a manifest; the caller frees it. Errors: TD_NOT_FOUND; TD_FAILED_PRECONDITION for one that
 * was damaged; TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_manifest_read(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES], char **bytes,
                              size_t *len, struct td_error *err);

/* Writes the commit of the files that a manifest names to commit; empty for a manifest without files, and for one that
 * is not here or cannot be read. */
void td_publish_manifest_commit(const struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                                char commit[TD_COMMIT_BYTES]);

struct td_publish_tags {
    char (*items)[TD_PUBLISH_TAG_BYTES]; /* owned; in any order */
    size_t count, capacity;
};

/* Removes a manifest and the tags that name it, but not their revisions. Its blobs stay until they are collected. Sets
 * *tags to these tags; the caller frees the items in every case. Errors: TD_NOT_FOUND; as td_publish_fail. */
bool td_publish_manifest_remove(struct td_publish_repo *repo, const uint8_t sha256[TD_SHA256_BYTES],
                                struct td_publish_tags *tags, struct td_error *err);

/* A manifest with a subject, during a visit. */
struct td_publish_referrer {
    const struct td_publish_repo *repo;
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_text artifact_type; /* empty: none */
    size_t descriptor_bytes;
    struct td_text descriptor; /* without the annotations; a JSON object */
    uint64_t annotations_at;
    size_t annotation_bytes; /* 0: none */
};

/* Calls `visit` with the manifests whose subject is this one, in the order of their digests, from the first one after
 * the digest `after` (NULL: of all) on, until it returns false. Looks at TD_PUBLISH_REFERRERS_MOST at most, and reads
 * no manifest. Sets *has_more to whether there are others; then the next call begins after `last`, the one before that
 * for which `visit` returned false, or before that at which the call stopped. Errors: TD_RESOURCE_EXHAUSTED, TD_IO;
 * those of `visit`. */
bool td_publish_list_referrers(const struct td_publish_repo *repo, const uint8_t subject[TD_SHA256_BYTES],
                               const uint8_t *after,
                               bool (*visit)(void *context, const struct td_publish_referrer *referrer,
                                             struct td_error *err),
                               void *context, uint8_t last[TD_SHA256_BYTES], bool *has_more, struct td_error *err);

/* Appends the descriptor: media type, digest, size, artifact type and annotations, as JSON; reads the annotations from
 * the manifest. Returns false when they cannot be read, or memory is short; the buffer may have a part of it then. */
bool td_publish_referrer_describe(const struct td_publish_referrer *referrer, struct td_buffer *out);

/* Sets a tag to a manifest. commit: the one that the tag's revision is to be moved to after this call; NULL: it stays
 * where it is. Until the revision is moved, the tag names what it named before. Errors: TD_FAILED_PRECONDITION for more
 * than TD_PUBLISH_TAGS_MOST; as td_publish_fail. */
bool td_publish_tag_put(struct td_publish_repo *repo, const char *tag, const uint8_t sha256[TD_SHA256_BYTES],
                        const char *commit, struct td_error *err);

/* Sets sha256 to the manifest that a tag names. Returns false when it names none. */
bool td_publish_tag_find(const struct td_publish_repo *repo, const char *tag, uint8_t sha256[TD_SHA256_BYTES]);

/* Removes a tag, but not its revision. Returns false, with errno, when the disk fails. */
bool td_publish_tag_remove(struct td_publish_repo *repo, const char *tag);

/* Calls `visit` with each tag and the manifest that it names, in any order, until it returns false. Errors:
 * TD_RESOURCE_EXHAUSTED, TD_IO, and those of `visit`. */
bool td_publish_each_tag(const struct td_publish_repo *repo,
                         bool (*visit)(void *context, const char *tag, const uint8_t sha256[TD_SHA256_BYTES],
                                       struct td_error *err),
                         void *context, struct td_error *err);

/* Calls `visit` with each name that has been a tag, in any order, until it returns false; reads no tag, so some may
 * name nothing any more. Errors: as above. */
bool td_publish_each_tag_name(const struct td_publish_repo *repo,
                              bool (*visit)(void *context, const char *tag, struct td_error *err), void *context,
                              struct td_error *err);

/* Removes tags that name nothing any more, and manifests that no tag and no index names for keep_s seconds; then calls
 * `mark` with the SHA-256 of each manifest that stays and of all that it names. Lowers *next_s to when the next
 * manifest goes. now_s: since 1970. Errors: TD_FAILED_PRECONDITION when a manifest cannot be read, so that nothing is
 * known of what it names; TD_RESOURCE_EXHAUSTED, TD_IO. */
bool td_publish_collect_manifests(struct td_publish_repo *repo, int64_t now_s, uint64_t keep_s,
                                  void (*mark)(void *context, const uint8_t sha256[TD_SHA256_BYTES]), void *context,
                                  int64_t *next_s, struct td_error *err);

#endif
