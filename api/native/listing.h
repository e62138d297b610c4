/* Descriptions and lists: JSON whose length is bounded by its budget alone, because a model or a dataset may have any
 * number of files and a scan any number of errors, and lists that come in pages and that a request can wait for. */
#ifndef TD_API_NATIVE_LISTING_H
#define TD_API_NATIVE_LISTING_H

#include "api/call/call.h"
#include "core/digest.h"
#include "core/message/document.h"
#include "http/reservation.h"

#include <stdatomic.h>
#include <stdbool.h>

struct td_description {
    const struct td_call *call;
    struct td_buffer out;
    struct td_document json;
    struct td_reserved reserved;
    struct td_error err;
};

/* Starts the document, an object. Call td_description_finish in every case. */
void td_description_begin(struct td_description *description, const struct td_call *call);

/* Ends the object, and answers it, or the error in `err` when ok is false. */
void td_description_finish(struct td_description *description, bool ok);

/* Reserves room for one more row. The row's texts have text_bytes bytes together. Returns false, with the error in
 * `err`, when the budget is used up. */
bool td_description_room(struct td_description *description, size_t text_bytes);

/* Adds a string, or null for NULL, which the caller has reserved room for. */
void td_description_add_text_or_null(struct td_description *description, const char *key, const char *text);

/* Adds "updated": when the newest file of the model changed; null without files. */
void td_description_add_updated(struct td_description *description, const struct td_model *model);

/* Adds "errors": a list of {"file", "message"}. Returns as td_description_room. */
bool td_description_add_problems(struct td_description *description, const struct td_problems *problems);

enum { TD_PAGE_SIZE_MAX = 10000 }; /* rows of a page */

/* Writes the name of a listing, which its page tokens hold: the kind of list, the id of its model, and the values of
 * the parameters that filter it (NULL for a parameter that was not given). Returns false after it answered an error. */
bool td_listing_name(const struct td_call *call, struct td_buffer *out, const char *kind, const char *id,
                     const struct td_text *const *filters, size_t count);

/* Reads page_size, 1 to TD_PAGE_SIZE_MAX. Leaves *size as it is without the parameter. Returns false after it answered
 * 400. */
bool td_listing_page_size(const struct td_call *call, size_t *size);

/* Appends to *after the name that page_token says the last page ended with, and sets *first to false; sets *first to
 * true without the parameter. Returns false after it answered an error, as for the token of another listing. */
bool td_listing_page_token(const struct td_call *call, struct td_text listing, struct td_buffer *after, bool *first);

/* The lists whose states a snapshot keeps. */
enum { TD_LIST_MODELS, TD_LIST_DATASETS, TD_LISTS };

/* A list of rows in the order in which pages show them. Functions that are NULL do nothing. */
struct td_list {
    size_t number; /* TD_LIST_MODELS or TD_LIST_DATASETS, whose states the snapshot keeps; else TD_LISTS */
    /* Returns where the state of a list of another number is kept: NULL until the first caller sets it. Returns NULL
     * when it is kept nowhere. */
    _Atomic(char *) *(*state)(const struct td_call *call);
    const char *kind;  /* the name of its listing, and of the member with the rows */
    bool has_html;     /* browsers get a page of HTML at the same URL */
    bool has_problems; /* each page also has the snapshot's problems */
    const char *of;    /* the id of the model or family that the list belongs to; NULL: it is the whole server's, and
                          `match` filters it, a glob over the rows' names */
    /* Returns the rows, an array of *count structs of *row_bytes bytes each. */
    const void *(*rows)(const struct td_call *call, size_t *count, size_t *row_bytes);
    /* Returns the number of the first row whose name comes after this one. */
    size_t (*after)(const struct td_call *call, struct td_text name);
    /* Adds the members before the rows. Returns false as td_description_room. */
    bool (*begin)(struct td_description *description);
    /* Adds to the digest what `begin` shows. */
    void (*digest_begin)(struct td_digest *digest, const struct td_call *call);
    /* Returns the name of a row, a td_model or a td_dataset; NULL for one that no list shows. */
    const char *(*name)(const void *row);
    /* Adds to the digest everything that the list shows of a row. */
    void (*digest)(struct td_digest *digest, const void *row);
    /* Adds the members of a row. Returns false as td_description_room. */
    bool (*add)(struct td_description *description, const void *row);
};

/* Answers a page of the list, or waits until the list changes (wait, timeout). Its entity tag begins with a hash over
 * the whole list, so that a client may wait with the tag of any page. Servers with equal lists have equal hashes. */
void td_listing_answer(const struct td_call *call, const struct td_list *list);

#endif
