/* Cards of files that are served: made once for each identity of the file, and kept. */
#include "rank/card.h"

#include "core/waiting.h"
#include "tests/kit/loopback.h"
#include "tests/unit/tree_fixture.h"

#include <pthread.h>

#define BASE "/org/model/resolve/main/"
#define README "org/model/README.md"

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_snapshot *snapshot;
};

static void open_place(struct place *place)
{
    tree_open(&place->tree);
    tree_simple(&place->tree, "org/model/model.safetensors", "a");
    tree_text(&place->tree, README,
              "---\nlicense: mit\nlanguage: [en, de]\ntags: [a, mit]\nbase_model: org/base\ndatasets: [d]\n"
              "pipeline_tag: text-generation\nlibrary_name: transformers\n---\n# A\n[b](b.md)\n");
    loopback_open(&place->loop, &place->tree);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static void close_place(struct place *place)
{
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

static void rescan(struct place *place)
{
    td_snapshot_unref(place->snapshot);
    loopback_rescan(&place->loop);
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static bool get(struct place *place, const char *base, struct td_card **card, struct td_error *err)
{
    const struct td_entry *entry = td_snapshot_find_entry(place->snapshot, TD_TEXT(README));
    assert_non_null(entry);
    td_error_init(err);
    return td_card_get(&place->loop.api.cards, place->snapshot, entry, td_text_of(base), card, err);
}

static struct td_card *must_get(struct place *place, const char *base)
{
    struct td_card *card;
    struct td_error err;
    CHECK(get(place, base, &card, &err), "%s", err.message);
    return card;
}

static void a_card_has_html_and_facts(void **state)
{
    static const struct td_card_fact wanted[] = {{"pipeline_tag", "text-generation"},
                                                 {"library_name", "transformers"},
                                                 {"license", "mit"},
                                                 {"language", "en"},
                                                 {"language", "de"},
                                                 {"tags", "a"},
                                                 {"tags", "mit"},
                                                 {"base_model", "org/base"},
                                                 {"datasets", "d"}};
    struct place *place = *state;
    struct td_card *card = must_get(place, BASE);
    static const char html[] = "<h2 id=\"card-a\">A</h2>\n<p><a href=\"" BASE "b.md\">b</a></p>\n";
    CHECK(card->html_len == strlen(html) && memcmp(card->html, html, card->html_len) == 0, "%.*s", (int)card->html_len,
          card->html);
    assert_null(card->reason);
    assert_int_equal(card->fact_count, COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        assert_string_equal(card->facts[i].key, wanted[i].key);
        assert_string_equal(card->facts[i].value, wanted[i].value);
    }
    td_card_unref(card);
}

static void a_card_is_made_once(void **state)
{
    struct place *place = *state;
    struct td_card *first = must_get(place, BASE);
    struct td_card *second = must_get(place, BASE);
    struct td_card *elsewhere = must_get(place, "/datasets/x/resolve/main/");
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, elsewhere);
    rescan(place);
    struct td_card *after_scan = must_get(place, BASE);
    assert_ptr_equal(first, after_scan);
    td_card_unref(after_scan);
    td_card_unref(elsewhere);
    td_card_unref(second);
    tree_text(&place->tree, README, "# other\n");
    rescan(place);
    struct td_card *changed = must_get(place, BASE);
    static const char html[] = "<h2 id=\"card-other\">other</h2>\n";
    assert_int_equal(changed->html_len, strlen(html));
    assert_memory_equal(changed->html, html, changed->html_len);
    assert_int_equal(changed->fact_count, 0);
    assert_true(first->html_len > 0); /* the reference keeps it */
    td_card_unref(changed);
    td_card_unref(first);
}

/* A thread that may not wait gets a kept card, and is refused any other. */
static void a_thread_that_may_not_wait(void **state)
{
    struct place *place = *state;
    struct td_card *card;
    struct td_error err;
    td_waiting_forbid();
    assert_false(get(place, BASE, &card, &err));
    assert_true(td_waiting_allow());
    struct td_card *made = must_get(place, BASE);
    td_waiting_forbid();
    assert_true(get(place, BASE, &card, &err));
    assert_false(td_waiting_allow());
    assert_ptr_equal(card, made);
    td_card_unref(card);
    td_card_unref(made);
}

static void a_file_that_has_changed(void **state)
{
    struct place *place = *state;
    struct td_card *card;
    struct td_error err;
    tree_text(&place->tree, README, "# a new file of another size\n");
    assert_false(get(place, BASE, &card, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
}

static void a_pointer_is_no_card(void **state)
{
    struct place *place = *state;
    struct td_card *card;
    struct td_error err;
    tree_text(&place->tree, README,
              "version https://git-lfs.github.com/spec/v1\n"
              "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n");
    rescan(place);
    assert_false(get(place, BASE, &card, &err));
    assert_int_equal(err.code, TD_CONFLICT);
}

static void an_empty_card(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, README, "");
    rescan(place);
    struct td_card *card = must_get(place, BASE);
    assert_int_equal(card->html_len, 0);
    assert_non_null(card->html);
    td_card_unref(card);
}

static void *ask(void *context)
{
    for (int i = 0; i < 20; i++) {
        char base[64];
        (void)snprintf(base, sizeof base, "/m%d/resolve/main/", i % 5);
        struct td_card *card = must_get(context, base);
        assert_non_null(strstr(card->html, base));
        td_card_unref(card);
    }
    return NULL;
}

static void threads_share_the_store(void **state)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask, *state), 0);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(((struct place *)*state)->loop.api.cards.busy, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, a_card_has_html_and_facts),  TEST_IN(place, a_card_is_made_once),
        TEST_IN(place, a_thread_that_may_not_wait), TEST_IN(place, a_file_that_has_changed),
        TEST_IN(place, a_pointer_is_no_card),       TEST_IN(place, an_empty_card),
        TEST_IN(place, threads_share_the_store)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
