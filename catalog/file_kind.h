/* What a file is by its name alone. */
#ifndef TD_CATALOG_FILE_KIND_H
#define TD_CATALOG_FILE_KIND_H

enum td_file_kind {
    TD_FILE_PLAIN,        /* has to do with no checkpoint */
    TD_FILE_TENSORS,      /* a checkpoint file; a .bin may turn out to be a plain one when it is read */
    TD_FILE_SHARD_INDEX,  /* model.safetensors.index.json, pytorch_model.bin.index.json, their variants
                             (model.safetensors.index.fp16.json) and other stems */
    TD_FILE_DCP_METADATA, /* the .metadata of a distributed checkpoint */
    TD_FILE_DCP_PART,     /* a .distcp: tensors that only its .metadata names */
};

/* By the last component of path. */
enum td_file_kind td_file_kind_of(const char *path);

/* The last component of path. */
const char *td_base_name(const char *path);

#endif
