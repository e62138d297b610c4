#include "rank/card.h"

#include "catalog/sandbox/parse_pool.h"
#include "core/clock.h"
#include "core/waiting.h"
#include "rank/card_html.h"
#include "rank/file_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- references ---------------------------------------------------------------------------------------- */

struct td_card *td_card_ref(struct td_card *card)
{
    atomic_fetch_add_explicit(&card->refs, 1, memory_order_relaxed);
    return card;
}

void td_card_unref(struct td_card *card)
{
    if (card == NULL || atomic_fetch_sub_explicit(&card->refs, 1, memory_order_acq_rel) != 1)
        return;
    free((void *)(uintptr_t)card->html);
    free((void *)(uintptr_t)card->reason);
    free(card->facts);
    free(card);
}

static void *class_ref(void *value)
{
    return td_card_ref(value);
}

static void class_unref(void *value)
{
    td_card_unref(value);
}

static const struct td_lru_class card_class = {.ref = class_ref, .unref = class_unref};

/* ---- the store ----------------------------------------------------------------------------------------- */

bool td_card_store_init(struct td_card_store *store, struct td_catalog *catalog)
{
    *store = (struct td_card_store){.catalog = catalog};
    if (!td_lru_init(&store->cards, &card_class, TD_CARD_STORE_BYTES))
        return false;
    if (pthread_mutex_init(&store->lock, NULL) == 0) {
        if (td_clock_condition_init(&store->is_free))
            return true;
        (void)pthread_mutex_destroy(&store->lock);
    }
    td_lru_fini(&store->cards);
    return false;
}

void td_card_store_fini(struct td_card_store *store)
{
    td_lru_fini(&store->cards);
    (void)pthread_cond_destroy(&store->is_free);
    (void)pthread_mutex_destroy(&store->lock);
}

/* Waits until a card can be made. Errors: TD_UNAVAILABLE. */
static bool begin_making(struct td_card_store *store, struct td_error *err)
{
    const struct timespec until = td_clock_timespec(td_clock_ns() + TD_CARD_WAIT_NS);
    int waited = 0;
    pthread_mutex_lock(&store->lock);
    while (store->busy >= TD_CARDS_AT_ONCE && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&store->is_free, &store->lock, &until);
    bool may_begin = store->busy < TD_CARDS_AT_ONCE;
    store->busy += may_begin ? 1 : 0;
    pthread_mutex_unlock(&store->lock);
    return may_begin || td_error_set(err, TD_UNAVAILABLE, "other cards are being read and take long; try again");
}

static void end_making(struct td_card_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->busy--;
    pthread_cond_signal(&store->is_free);
    pthread_mutex_unlock(&store->lock);
}

/* ---- facts --------------------------------------------------------------------------------------------- */

/* Adds a fact and a copy of its value, for which there is room at *text. NULL: adds nothing. */
static void add_fact(struct td_card *card, const char *key, const char *value, char **text)
{
    if (value == NULL)
        return;
    size_t len = strlen(value) + 1;
    memcpy(*text, value, len);
    card->facts[card->fact_count++] = (struct td_card_fact){.key = key, .value = *text};
    *text += len;
}

/* Copies the facts of the file's front matter to the card, and adds the bytes that they take to *bytes. */
static bool copy_facts(const struct td_facts *facts, struct td_card *card, size_t *bytes, struct td_error *err)
{
    if (facts == NULL)
        return true;
    size_t count = facts->tag_count + 2;
    size_t len = (facts->tag_count + 2) * TD_FACTS_WORD_BYTES;
    card->facts = malloc(count * sizeof *card->facts + len);
    if (card->facts == NULL)
        return td_error_no_memory(err);
    char *text = (char *)(card->facts + count);
    add_fact(card, "pipeline_tag", facts->pipeline_tag, &text);
    add_fact(card, "library_name", facts->library_name, &text);
    for (size_t i = 0; i < facts->tag_count; i++)
        add_fact(card, td_fact_tag_key(&facts->tags[i]), facts->tags[i].value, &text);
    *bytes += count * sizeof *card->facts + len;
    return true;
}

/* ---- making a card ------------------------------------------------------------------------------------- */

static bool append_text(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct td_buffer *text = context;
    td_buffer_append(text, bytes, len);
    return !text->failed || td_error_no_memory(err);
}

/* Reads the beginning of the file, and one byte more than is used where it continues. */
static bool read_text(struct td_card_store *store, const struct td_snapshot *snapshot, const struct td_entry *entry,
                      struct td_buffer *text, struct td_error *err)
{
    struct td_blob *blob;
    if (entry->file->source.incoming != NULL)
        return td_error_set(err, TD_UNAVAILABLE, "the card is still being fetched");
    if (entry->file->is_lfs_pointer)
        return td_lfs_pointer_refuse(entry, err);
    if (!td_file_source_map(td_catalog_maps(store->catalog), snapshot->root, &entry->file->source, &blob, err))
        return false;
    uint64_t len = blob->len_bytes <= TD_CARD_TEXT_BYTES ? blob->len_bytes : TD_CARD_TEXT_BYTES + 1;
    bool ok = td_blob_copy_to(blob, 0, len, append_text, text, err);
    td_blob_unref(blob);
    return ok;
}

/* Makes the card's HTML of its text, or its reason. */
static bool make_html(struct td_card_store *store, struct td_text text, struct td_text base, struct td_card *card,
                      struct td_error *err)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_card_html html;
    struct td_buffer out;
    bool is_cut = false;
    td_buffer_init(&out);
    td_card_html_begin(&html, base, &out);
    const struct td_card_sink sink = {.take = td_card_html_take, .context = &html};
    bool ok = td_parse_pool_card(td_catalog_parsers(store->catalog), text, &sink, &is_cut, &why);
    ok = td_card_html_end(&html, is_cut, &why) && ok;
    if (ok && td_buffer_terminate(&out) != NULL)
        card->html = td_buffer_release(&out, &card->html_len);
    else if (!ok && why.code == TD_INVALID_ARGUMENT)
        card->reason = strdup(why.message);
    td_buffer_fini(&out);
    if (ok && card->html == NULL) /* an empty card */
        card->html = strdup("");
    if (card->html == NULL && card->reason == NULL)
        return ok || why.code == TD_INVALID_ARGUMENT ? td_error_no_memory(err) : td_error_copy(err, &why);
    return true;
}

/* Makes the card and keeps it. */
static bool make_card(struct td_card_store *store, const struct td_snapshot *snapshot, const struct td_entry *entry,
                      struct td_text base, const char *key, struct td_card **out, struct td_error *err)
{
    struct td_buffer text;
    struct td_card *card = calloc(1, sizeof *card);
    size_t bytes = sizeof *card;
    if (card == NULL)
        return td_error_no_memory(err);
    atomic_init(&card->refs, 1);
    td_buffer_init(&text);
    bool ok = read_text(store, snapshot, entry, &text, err) &&
              make_html(store, td_buffer_text(&text), base, card, err) &&
              copy_facts(entry->file->facts, card, &bytes, err);
    td_buffer_fini(&text);
    if (!ok) {
        td_card_unref(card);
        return false;
    }
    (void)td_lru_put(&store->cards, key, card, bytes + card->html_len);
    *out = card;
    return true;
}

bool td_card_get(struct td_card_store *store, const struct td_snapshot *snapshot, const struct td_entry *entry,
                 struct td_text base, struct td_card **out, struct td_error *err)
{
    struct td_buffer key;
    td_buffer_init(&key);
    td_buffer_printf(&key, "%s ", entry->file->identity_tag);
    td_buffer_append(&key, base.p, base.len);
    if (td_buffer_terminate(&key) == NULL)
        return td_error_no_memory(err);
    *out = td_lru_get(&store->cards, key.data);
    bool ok = *out != NULL;
    if (!ok && td_may_wait(err) && begin_making(store, err)) {
        *out = td_lru_get(&store->cards, key.data); /* another request may have made it */
        ok = *out != NULL || make_card(store, snapshot, entry, base, key.data, out, err);
        end_making(store);
    }
    td_buffer_fini(&key);
    return ok;
}
