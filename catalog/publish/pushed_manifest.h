/* Manifests that clients of OCI registries push (image-spec, manifest.md and image-index.md; Docker's of schema 2), and
 * the files that their layers stand for. Touches no disk. Threads: one per manifest. */
#ifndef TD_CATALOG_PUBLISH_PUSHED_MANIFEST_H
#define TD_CATALOG_PUBLISH_PUSHED_MANIFEST_H

#include "catalog/publish/commit_list.h"

enum {
    TD_PUSHED_MANIFEST_MAX = 4 * 1024 * 1024, /* bytes of the longest manifest that is taken */
    /* Bound the tree of a manifest: of one that is kept, and, smaller, of one that is being pushed, so that what was
     * taken can be read again. */
    TD_PUSHED_MANIFEST_ARENA_BYTES = 96 * 1024 * 1024,
    TD_PUSHED_MANIFEST_TAKEN_BYTES = 92 * 1024 * 1024,
    TD_PUSHED_TYPE_MOST = 255, /* bytes of an artifact type: of a media type (RFC 6838) */
};

/* Something that a manifest names by its SHA-256. */
struct td_pushed_item {
    uint8_t sha256[TD_SHA256_BYTES];
    uint64_t size_bytes;
    bool is_elsewhere; /* a layer that images name and registries need not have */
};

/* All is in the arena, or static, or borrowed from the text. */
struct td_pushed_manifest {
    const char *media_type;       /* that of the text; else by its members that of OCI */
    bool is_index;                /* it names manifests, and else configuration and layers */
    const char *artifact_type;    /* else, of a manifest, the configuration's media type; "": none. At most
                                   * TD_PUSHED_TYPE_MOST bytes */
    const char *subject;          /* the digest of the manifest that it refers to; NULL: none */
    uint64_t size_bytes;          /* of the text */
    struct td_text annotations;   /* a JSON object of strings as it is spelled in the text; empty: none */
    uint64_t annotations_at;      /* where they begin in the text */
    struct td_pushed_item *items; /* the configuration, then the layers; of an index the manifests */
    size_t item_count;
    struct td_commit_file *files; /* what layers stand for */
    size_t file_count;
    char commit[TD_COMMIT_BYTES]; /* the commit of exactly these files; empty: there are none */
};

/* Reads a manifest. Which layers become files:
 *   - those with a path in the annotation org.cncf.model.filepath (modelpack/model-spec) or, without it,
 *     org.opencontainers.image.title, unless the layer is an archive: it has the annotation io.deis.oras.content.unpack
 *     "true", or a media type that ends in .tar, .tar+gzip, .tar+zstd, .tar.gzip or .tar.zstd, but for
 *     application/vnd.oci.image.layer.v1.tar, which clients give plain files by default;
 *   - layers of Ollama, named by their media types: model.gguf, mmproj.gguf, adapter.gguf, template, system, params,
 *     LICENSE, messages; the second of one kind is model-2.gguf, LICENSE-2 and so on.
 * Errors: TD_INVALID_ARGUMENT for a text that is no such manifest, or names something by another digest than a SHA-256,
 * for a path of td_commit_check_path, a path twice, and one that is a file and a folder; TD_FAILED_PRECONDITION for too
 * many files, and when the arena's limit is reached; TD_RESOURCE_EXHAUSTED. */
bool td_pushed_manifest_read(struct td_text text, struct td_arena *arena, struct td_pushed_manifest *manifest,
                             struct td_error *err);

/* Reads "sha256:" and 64 lower-case hexadecimal digits. */
bool td_pushed_digest_read(struct td_text text, uint8_t sha256[TD_SHA256_BYTES]);

#endif
