/* The kind of a file, by its name alone. */
#ifndef TD_CATALOG_MODEL_FILE_KIND_H
#define TD_CATALOG_MODEL_FILE_KIND_H

#include <stdbool.h>

enum td_file_kind {
    TD_FILE_PLAIN,         /* belongs to no checkpoint */
    TD_FILE_TENSORS,       /* a checkpoint file; reading a .bin may show that it is a plain one */
    TD_FILE_MAYBE_TENSORS, /* a name that checkpoint files share with any other files (.tar, .pkl, .model); reading the
                              file turns the kind into TENSORS or PLAIN */
    TD_FILE_SHARD_INDEX,   /* model.safetensors.index.json, pytorch_model.bin.index.json, their variants
                              (model.safetensors.index.fp16.json) and other stems; model.weights.json of Keras */
    TD_FILE_DCP_METADATA,  /* the .metadata of a distributed checkpoint */
    TD_FILE_DCP_PART,      /* a .distcp: its tensors have names only in the .metadata */
};

/* Returns the kind of the file, by the last component of its path. */
enum td_file_kind td_file_kind_of(const char *path);

/* Returns whether Keras gives this name to the map that it writes beside the shards of its weights. */
bool td_is_keras_map(const char *path);

/* Returns whether a file of this kind, which may not have been read yet, belongs to a checkpoint. */
bool td_is_checkpoint_kind(enum td_file_kind kind);

/* Returns the last component of the path, which is part of it. */
const char *td_base_name(const char *path);

/* Returns whether the name has the extension of an image, in upper or lower case: .jpg, .jpeg, .png, .webp, .gif, .bmp,
 * .tif, .tiff. */
bool td_is_image_file(const char *name);

#endif
