/* Messages whose fields of bytes are bytes of another body: of tensors' files, or of rows. What stands before and
 * between those bytes is written here; the bytes themselves stay extents of their files in protobuf's binary form, and
 * are made base64 while they are sent in JSON. */
#ifndef TD_API_RPC_RPC_MESSAGES_H
#define TD_API_RPC_RPC_MESSAGES_H

#include "core/budget.h"
#include "core/buffer.h"
#include "core/message/document.h"
#include "http/response.h"
#include "storage/body.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_messages_piece;

/* An answer that is being written. All members belong to the functions below. */
struct td_messages {
    unsigned form;     /* rpc_form.h */
    bool is_stream;    /* messages are in frames, and an end follows them; else there is one, without a frame */
    bool is_open;      /* of a stream: no end follows. Set by the caller, after td_messages_init */
    size_t frame;      /* where the message's frame begins in `heads` */
    uint64_t of_frame; /* bytes of the message that are not in `heads` */
    size_t head;       /* where the text before the next bytes begins in `heads` */
    struct td_budget *budget;
    struct td_document_kind kind;
    struct td_document document;
    struct td_buffer heads; /* the texts, back to back */
    struct td_messages_piece *pieces;
    size_t count, capacity;
    struct td_error err; /* the first error */
};

/* Begins an answer of messages of this type. The memory comes from the budget (borrowed). Call td_messages_fini in
 * every case. */
void td_messages_init(struct td_messages *messages, unsigned form, bool is_stream, const struct td_message *message,
                      struct td_budget *budget);
void td_messages_fini(struct td_messages *messages);

/* Begins a message, and returns its document, whose outermost object is open. td_messages_end ends both. */
struct td_document *td_messages_begin(struct td_messages *messages);
void td_messages_end(struct td_messages *messages);

/* Adds a field of the next `len` bytes of the source, or with key NULL an element of the innermost list. */
void td_messages_add_bytes(struct td_messages *messages, const char *key, uint64_t len);

/* Replaces the body of the response, the source, by the messages; `at` is the place of the source's first byte that
 * counts. Ends a stream. Errors (the body is then undefined): TD_RESOURCE_EXHAUSTED, or as td_budget_refuse;
 * TD_FAILED_PRECONDITION for a message of more than 2 GiB, which no client takes. */
bool td_messages_finish(struct td_messages *messages, const struct td_body_cursor *at, struct td_response *response,
                        struct td_error *err);

#endif
