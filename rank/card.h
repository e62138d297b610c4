/* Cards: the README.md of a model or dataset as HTML for its page, and the facts of its front matter. A card is made
 * once for each identity of its file, in a parser's process (catalog/sandbox/parse_pool.h), and kept in a bounded
 * store. Thread-safe. */
#ifndef TD_RANK_CARD_H
#define TD_RANK_CARD_H

#include "catalog/catalog.h"
#include "http/lru.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TD_CARD_STORE_BYTES = 16 * 1024 * 1024,
    TD_CARDS_AT_ONCE = 2, /* cards that are made at once; the parsers have a process for each of them */
};

/* How long a request waits until its card can be made. */
#define TD_CARD_WAIT_NS (UINT64_C(10) * TD_NS_PER_S)

/* One value of the front matter. A key with several values has several facts, one after the other. */
struct td_card_fact {
    const char *key; /* static: "license", "base_model", "language", "tags", "datasets", "pipeline_tag" ... */
    const char *value;
};

/* A card. It never changes. */
struct td_card {
    _Atomic int refs;
    const char *html;           /* elements for a <section>, and a NUL; NULL: there is no HTML, for the reason below */
    size_t html_len;            /* without the NUL */
    const char *reason;         /* one line; NULL with html */
    struct td_card_fact *facts; /* also without html */
    size_t fact_count;
};

/* The cards that are kept. All members are private. */
struct td_card_store {
    struct td_catalog *catalog;
    struct td_lru cards;
    pthread_mutex_t lock;
    pthread_cond_t is_free;
    unsigned busy; /* cards that are being made; under the lock */
};

/* Starts an empty store of cards from the files of the catalog, which is borrowed. Returns false when no lock can be
 * made. */
bool td_card_store_init(struct td_card_store *store, struct td_catalog *catalog);

/* Drops the store's cards. No other thread may use the store any more. */
void td_card_store_fini(struct td_card_store *store);

/* Sets *out to the card of the entry, a README.md of the snapshot, with a reference for the caller. Relative links in
 * it lead below `base`: the percent-encoded path at which the files beside the entry are answered, with a '/' at its
 * end, "/org/name/resolve/main/". A card whose text cannot be shown has a reason in place of HTML, and is not tried
 * again. Errors: TD_CONFLICT for a Git LFS pointer; TD_UNAVAILABLE when the file has changed or is still being fetched,
 * and when other cards take too long; TD_RESOURCE_EXHAUSTED; TD_IO; as td_file_source_map; td_may_wait, for a card that
 * is not kept yet. */
bool td_card_get(struct td_card_store *store, const struct td_snapshot *snapshot, const struct td_entry *entry,
                 struct td_text base, struct td_card **out, struct td_error *err);

/* td_card_ref takes a reference for the caller and returns `card`. td_card_unref drops a reference; the last one frees
 * the card. td_card_unref(NULL) does nothing. Any thread. */
struct td_card *td_card_ref(struct td_card *card);
void td_card_unref(struct td_card *card);

#endif
