/* Layers of container images that do not exist on disk: uncompressed tar archives of files, written while they are
 * sent. The format is ustar (POSIX.1-2017, pax, "ustar Interchange Format"), with a pax extended header for a path that
 * does not fit or is not ASCII, and for a size of 8 GiB or more. Each file follows entries for the directories on its
 * path, because not every runtime creates directories that all users may enter. All other fields are constant: owner 0,
 * mode 0444 (directories 0755), time 0. So equal files give equal layers. All functions but td_tar_layer_append are
 * pure. */
#ifndef TD_RANK_TAR_LAYER_H
#define TD_RANK_TAR_LAYER_H

#include "core/buffer.h"
#include "rank/virtual_digests.h"
#include "storage/body.h"

/* A file of a layer; all borrowed. */
struct td_tar_file {
    const char *path; /* in the image, without a '/' at its beginning */
    uint64_t size_bytes;
    const char *sha256; /* of its content, in hexadecimal */
};

/* Opens the i-th file: sets *blob to its content (one reference for the caller). */
struct td_tar_opener {
    void *context;
    bool (*open)(void *context, size_t i, struct td_blob **blob, struct td_error *err);
};

/* Returns false, with TD_FAILED_PRECONDITION, for a path that means something else in a layer than a file: one with a
 * part that begins with ".wh." removes a file of the layers below. */
bool td_tar_path_check(const char *path, struct td_error *err);

/* Appends the entries of a file: those of the directories on its path that are not on the path before (NULL: none),
 * and its own header. The content, and zeros up to a multiple of 512 bytes, must follow. */
void td_tar_write_header(struct td_buffer *out, const struct td_tar_file *file, const char *before);

/* Returns a bound on the bytes of all headers of these files, also of directories: computed from the paths' lengths,
 * without making one. */
uint64_t td_tar_header_bound(const struct td_tar_file *files, size_t count);

/* Computes the content key of the layer of these files, without reading a file, and sets *size_bytes to the layer's
 * size. `owner` is part of the key, so a client that may see one owner's files does not learn from the time of hashing
 * which files another owner has. Errors: TD_RESOURCE_EXHAUSTED; TD_FAILED_PRECONDITION when the size is more than
 * 2^63-1 bytes. */
bool td_tar_layer_key(const char *owner, const struct td_tar_file *files, size_t count, struct td_virtual_key *key,
                      uint64_t *size_bytes, struct td_error *err);

/* Appends the layer to a body: headers and padding from memory, contents from the files. Each blob must have its file's
 * size. Errors: as the opener; TD_UNAVAILABLE for another size; TD_RESOURCE_EXHAUSTED. */
bool td_tar_layer_append(const struct td_tar_file *files, size_t count, const struct td_tar_opener *opener,
                         struct td_body *body, struct td_error *err);

#endif
