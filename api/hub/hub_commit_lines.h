/* Reads the body of a commit as the Hub's clients send it: a JSON object in each line (NDJSON),
 *
 *   {"key": "header", "value": {"summary": "...", "description": "...", "parentCommit": "..."}}
 *   {"key": "file", "value": {"content": "BASE64", "path": "config.json", "encoding": "base64"}}
 *   {"key": "lfsFile", "value": {"path": "model.safetensors", "algo": "sha256", "oid": "...", "size": 1}}
 *   {"key": "deletedFile", "value": {"path": "old.bin"}}
 *   {"key": "deletedFolder", "value": {"path": "checkpoint-1/"}}
 *
 * The header comes first. The body arrives in pieces of any length. The content of a file is decoded as it arrives and
 * passed on, so a line's memory does not depend on it; what else is in the line is limited to TD_HUB_LINE_BYTES. Takes
 * time linear in the body, and touches no disk. Other members are ignored, as the Hub does; other keys are refused,
 * because the commit would lack what they ask for. Threads: one per reader. */
#ifndef TD_API_HUB_HUB_COMMIT_LINES_H
#define TD_API_HUB_HUB_COMMIT_LINES_H

#include "core/buffer.h"
#include "core/digest.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_HUB_LINE_BYTES = 64 * 1024, /* of a line without the content of its file */
    TD_HUB_GROUP_BYTES = 4096      /* of base64 that are decoded at once; a multiple of 4 */
};

enum td_hub_line {
    TD_HUB_LINE_HEADER,
    TD_HUB_LINE_FILE, /* its content was passed on before; without a call for content it is empty */
    TD_HUB_LINE_LFS_FILE,
    TD_HUB_LINE_DELETED_FILE,
    TD_HUB_LINE_DELETED_FOLDER,
};

/* The content of a line. Texts are UTF-8 without NUL; they and the struct are valid during the call. */
struct td_hub_operation {
    enum td_hub_line line;
    const char *summary, *description; /* of the header; "": none */
    const char *parent;                /* of the header: the commit that the revision must be at; NULL: any */
    const char *path;                  /* of the other lines; not checked */
    uint8_t sha256[TD_SHA256_BYTES];   /* of an LFS file */
    uint64_t size_bytes;               /* of an LFS file */
    bool has_size;                     /* the line says the size */
};

struct td_hub_line_visitor {
    /* Takes the next bytes, at least one, of the content of the file in the current line. Returns false with an error,
     * which ends the body. */
    bool (*content)(void *context, const void *bytes, size_t len, struct td_error *err);
    /* Takes a line, at its end. Returns false as `content`. */
    bool (*operation)(void *context, const struct td_hub_operation *operation, struct td_error *err);
};

struct td_hub_commit_reader {
    const struct td_hub_line_visitor *visitor;
    void *context;
    size_t line_number; /* of the current line, from 1 */
    bool has_header;
    bool has_failed;

    /* The current line. */
    struct td_buffer kept;        /* the line; a content stands there as "" */
    size_t string_at, string_end; /* the latest string in `kept`, without its quotes */
    size_t depth;                 /* of open objects and arrays */
    uint8_t state;                /* private: where in the text the line is */
    bool is_after_colon;          /* of the latest member */
    bool in_value, is_content;    /* the latest members of the levels 1 and 2 are "value" and "content" */
    bool has_content;             /* the content was or is being passed on */
    bool is_padded;               /* the base64 has ended */
    size_t group_len;             /* characters in `group` */
    char group[TD_HUB_GROUP_BYTES];
};

/* Starts reading. The visitor and its context are borrowed. Call td_hub_commit_reader_fini at the end. */
void td_hub_commit_reader_init(struct td_hub_commit_reader *reader, const struct td_hub_line_visitor *visitor,
                               void *context);
void td_hub_commit_reader_fini(struct td_hub_commit_reader *reader);

/* Takes the next bytes of the body. Errors, after which the reader takes nothing more: TD_INVALID_ARGUMENT with the
 * number of the line, TD_RESOURCE_EXHAUSTED, those of the visitor. */
bool td_hub_commit_reader_add(struct td_hub_commit_reader *reader, const void *bytes, size_t len, struct td_error *err);

/* Ends the body: takes the last line if it has no line feed. Errors: as above; a body without a header. */
bool td_hub_commit_reader_end(struct td_hub_commit_reader *reader, struct td_error *err);

#endif
