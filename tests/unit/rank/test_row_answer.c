/* Bodies of rows against an oracle that splits the files byte by byte: every form, short and long rows, few and many,
 * one file and many. */
#include "rank/row_answer.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/waiting.h"
#include "tests/kit/loopback.h"
#include "tests/kit/rows_oracle.h"
#include "tests/unit/unit.h"

enum { MOST_FILES = 1200 };

struct place {
    struct tree tree;
    struct loopback loop;
    struct td_budget budget;
    struct td_snapshot *snapshot;
    char *contents[MOST_FILES];
    size_t file_count;
    struct oracle_rows rows;
};

static void place_open(struct place *place)
{
    memset(place, 0, sizeof *place);
    tree_open(&place->tree);
}

/* Adds a file of the dataset d and the oracle's rows of it. Takes `bytes`, which malloc gave. */
static void add_file(struct place *place, char *bytes, size_t size)
{
    char name[64];
    (void)snprintf(name, sizeof name, "d/%05zu.jsonl", place->file_count);
    tree_write(&place->tree, name, bytes, size);
    oracle_rows_of_file(&place->rows, bytes, size);
    assert_true(place->file_count < MOST_FILES);
    place->contents[place->file_count++] = bytes;
}

static void add_text(struct place *place, const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    add_file(place, copy, strlen(text));
}

/* Serves the files and waits for the indexes. */
static void start(struct place *place)
{
    struct td_catalog_status status;
    uint64_t until_ns = td_clock_ns() + UINT64_C(60000000000);
    loopback_open(&place->loop, &place->tree);
    do {
        nap_ms(1);
        td_catalog_get_status(place->loop.catalog, &status);
        CHECK(td_clock_ns() < until_ns && status.indexer.failed_count == 0, "no indexes");
    } while (status.indexer.ready_count < place->file_count);
    td_budget_init(&place->budget, TD_ROWS_BUDGET_BYTES, "answers with rows");
    place->snapshot = td_catalog_acquire(place->loop.catalog);
}

static void place_close(struct place *place)
{
    assert_int_equal(td_budget_used(&place->budget), 0);
    td_snapshot_unref(place->snapshot);
    loopback_close(&place->loop);
    tree_close(&place->tree);
    for (size_t i = 0; i < place->file_count; i++)
        free(place->contents[i]);
    free(place->rows.items);
}

FIXTURE(place, struct place, place_open, place_close)

static struct td_split_view answer_of(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_split_view answer = {
        .catalog = place->loop.catalog, .snapshot = place->snapshot, .budget = &place->budget};
    answer.split = &td_dataset_find(place->snapshot, TD_TEXT("d"))->splits[0];
    answer.rows = td_split_rows_get(answer.split, &err);
    CHECK(answer.rows != NULL && answer.rows->row_count == place->rows.count, "%s", err.message);
    return answer;
}

static void check_body(const struct td_body *body, const struct oracle_bytes *wanted, const char *what)
{
    static const size_t pieces[] = {1, 7, 4096, 64, 100000, 3};
    struct td_body_cursor cursor = {0};
    struct td_error err = TD_ERROR_INIT;
    static char got[100000];
    CHECK(body->total_bytes == wanted->len, "%s: %llu bytes, wanted %zu", what, (unsigned long long)body->total_bytes,
          wanted->len);
    for (size_t at = 0, i = 0, n; at < wanted->len; i++, at += n) {
        n = pieces[i % COUNT_OF(pieces)];
        n = n < wanted->len - at ? n : wanted->len - at;
        CHECK(td_body_read(body, &cursor, got, n, &err), "%s: %s", what, err.message);
        CHECK(memcmp(got, wanted->p + at, n) == 0, "%s: wrong bytes from %zu on", what, at);
    }
}

static const char *const form_names[] = {"frame", "raw", "tar", "arrow", "json", "bare"};

/* Checks the bodies of all forms. */
static void check_list(struct place *place, const struct td_row_list *list)
{
    const struct td_split_view answer = answer_of(place);
    struct oracle_row *rows = calloc(list->count + 1, sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < list->count; i++)
        rows[i] = place->rows.items[list->numbers == NULL ? list->first + i : list->numbers[i]];
    for (int form = TD_ROWS_FRAME; form <= TD_ROWS_BARE; form++) {
        if (form == TD_ROWS_ARROW || form == TD_ROWS_JSON) /* not of this module */
            continue;
        char what[128];
        struct oracle_bytes wanted = {0};
        struct td_body body;
        struct td_error err = TD_ERROR_INIT;
        static const char zeros[1024];
        (void)snprintf(what, sizeof what, "%s of %zu rows from %llu on", form_names[form], list->count,
                       (unsigned long long)list->first);
        if (form == TD_ROWS_FRAME)
            oracle_frame(&wanted, rows, list->count);
        else if (form == TD_ROWS_RAW)
            oracle_lines(&wanted, rows, list->count);
        for (size_t i = 0; form >= TD_ROWS_TAR && i < list->count; i++)
            oracle_put(&wanted, rows[i].p, rows[i].len);
        if (form == TD_ROWS_TAR)
            oracle_put(&wanted, zeros, sizeof zeros);
        td_body_init(&body);
        CHECK(td_row_answer_append(&answer, list, (enum td_rows_form)form, &body, &err), "%s: %s", what, err.message);
        check_body(&body, &wanted, what);
        td_body_fini(&body);
        free(wanted.p);
        assert_int_equal(td_budget_used(&place->budget), 0);
    }
    free(rows);
}

static void check_run(struct place *place, uint64_t first, size_t count)
{
    const struct td_row_list list = {.first = first, .count = count};
    check_list(place, &list);
}

/* Checks `count` random rows, with repeats. */
static void check_random(struct place *place, size_t count, uint64_t *random)
{
    uint64_t *numbers = calloc(count + 1, sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_below(random, place->rows.count);
    const struct td_row_list list = {.count = count, .numbers = numbers};
    check_list(place, &list);
    free(numbers);
}

/* Returns a file of random rows: lengths around the limit of TD_ROW_REFERENCE_BYTES, blank lines, CRLF. */
static char *random_file(uint64_t *random, size_t row_count, bool is_plain, size_t *size)
{
    static const size_t lengths[] = {1, 2, 30, 100, 1000, 16382, 16383, 16384, 16385, 40000};
    struct oracle_bytes out = {0};
    if (!is_plain && random_below(random, 3) == 0)
        oracle_put(&out, "\xef\xbb\xbf", 3);
    for (size_t i = 0; i < row_count; i++) {
        size_t len = lengths[random_below(random, random_below(random, 4) == 0 ? COUNT_OF(lengths) : 4)];
        for (size_t k = 0; k < len; k++)
            oracle_put(&out, &"abcdefghijk{}\"\xc3\xa9"[random_below(random, 16)], 1);
        bool is_last = i + 1 == row_count && random_below(random, 2) == 0;
        if (!is_last)
            oracle_put(&out, is_plain || random_below(random, 3) > 0 ? "\n" : "\r\n",
                       is_plain ? 1 : 0); /* the rest follows */
        if (!is_last && !is_plain) {
            static const char *const ends[] = {"\n", "\r\n", "\n\n", "\n \t\r\n", "\r\r\n"};
            const char *end = ends[random_below(random, COUNT_OF(ends))];
            oracle_put(&out, end, strlen(end));
        }
    }
    *size = out.len;
    return out.p == NULL ? calloc(1, 1) : out.p;
}

static void random_datasets(void **state)
{
    (void)state;
    uint64_t random = 20;
    for (size_t round = 0; round < 8; round++) {
        static struct place place;
        place_open(&place);
        bool is_plain = round % 2 == 0; /* consecutive rows of plain files are runs */
        for (size_t i = 0, n = 1 + random_below(&random, 6); i < n; i++) {
            size_t size, rows = i == 0 ? 150 : random_below(&random, 100);
            char *bytes = random_file(&random, rows, is_plain, &size);
            add_file(&place, bytes, size);
        }
        start(&place);
        const struct td_split_view answer = answer_of(&place);
        assert_true(td_rows_are_runs(answer.split, TD_ROWS_RAW) == is_plain);
        assert_false(td_rows_are_runs(answer.split, TD_ROWS_FRAME));
        size_t all = place.rows.count;
        check_run(&place, 0, all);
        check_run(&place, 0, 0);
        check_run(&place, all, 0);
        for (size_t i = 0; i < all; i += 1 + i / 10)
            check_run(&place, i, 1);
        for (int i = 0; i < 20; i++) {
            size_t first = random_below(&random, all);
            check_run(&place, first, 1 + random_below(&random, all - first));
            check_random(&place, random_below(&random, 300), &random);
        }
        place_close(&place);
    }
}

static void edges_of_files(void **state)
{
    (void)state;
    static struct place place;
    static const char *const texts[] = {
        "",
        "\n",
        "\r\n \t\n",
        "a",
        "a\r",
        "a\r\n",
        "\xef\xbb\xbf",
        ("\xef\xbb\xbf"
         "a\n"),
        "\xef\xbb\xbf\n",
        "\xef\xbb",
        "\na\n",
        "a\n\n",
        "a\n b \n\tc",
        "\r\ra\r\r\n",
        "a\rb\nc\n",
        "\v\f\n",
        "\v\f!\n",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        place_open(&place);
        add_text(&place, texts[i]);
        add_text(&place, "between\n");
        add_text(&place, texts[i]);
        start(&place);
        check_run(&place, 0, place.rows.count);
        for (size_t k = 0; k < place.rows.count; k++)
            check_run(&place, k, 1);
        place_close(&place);
    }
}

/* More than TD_ROWS_COPY_BYTES of short rows, and more long ones than extents: one blob that is made while it is sent.
 */
static void many_rows(void **state)
{
    struct place *place = *state;
    uint64_t random = 4;
    for (int file = 0; file < 3; file++) {
        struct oracle_bytes out = {0};
        for (int i = 0; i < 300; i++) {
            size_t len = i % 100 == 7 ? 17000 : 200 + random_below(&random, 400);
            for (size_t k = 0; k < len; k++)
                oracle_put(&out, &"0123456789abcdef"[(k + (size_t)i) % 16], 1);
            oracle_put(&out, "\r\n", 2);
        }
        add_file(place, out.p, out.len);
    }
    start(place);
    size_t count = SANITIZED ? 15000 : TD_ROWS_MOST;
    check_random(place, count, &random);
    check_random(place, 600, &random);
    uint64_t *numbers = calloc(4000, sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < 4000; i++)
        numbers[i] = 7 + 100 * (i % 9); /* long ones */
    static const size_t counts[] = {1, 511, 512, 513, 514, 1100};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        const struct td_row_list list = {.count = counts[i], .numbers = numbers};
        check_list(place, &list);
    }
    free(numbers);
}

/* Many files of a row or two each, more than the catalog maps at once. */
static void many_files(void **state)
{
    struct place *place = *state;
    uint64_t random = 5;
    for (int i = 0; i < 1000; i++) {
        char text[64];
        text[0] = '\0';
        if (i % 3 != 1)
            (void)snprintf(text, sizeof text, "%d%s", i, i % 3 == 0 ? "" : "\nx\n");
        add_text(place, text);
    }
    start(place);
    assert_true(td_rows_are_runs(answer_of(place).split, TD_ROWS_RAW));
    check_run(place, 0, place->rows.count);
    check_run(place, 333, 400);
    check_random(place, 2000, &random);
}

/* Returns the budget that the frame of `count` times row `number` takes. */
static size_t taken(struct place *place, uint64_t number, size_t count)
{
    const struct td_split_view answer = answer_of(place);
    uint64_t *numbers = calloc(count, sizeof *numbers);
    struct td_body body;
    struct td_error err = TD_ERROR_INIT;
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = number;
    const struct td_row_list list = {.count = count, .numbers = numbers};
    td_body_init(&body);
    CHECK(td_row_answer_append(&answer, &list, TD_ROWS_FRAME, &body, &err), "%s", err.message);
    size_t bytes = td_budget_used(&place->budget);
    td_body_fini(&body);
    free(numbers);
    return bytes;
}

/* Rows of fewer than TD_ROW_REFERENCE_BYTES are copied, while the copies are no more than TD_ROWS_COPY_BYTES. */
static void what_is_copied(void **state)
{
    struct place *place = *state;
    for (size_t len = 16383; len <= 16384; len++) {
        char *bytes = malloc(len + 1);
        assert_non_null(bytes);
        memset(bytes, 'a', len);
        bytes[len] = '\n';
        add_file(place, bytes, len + 1);
    }
    start(place);
    assert_in_range(taken(place, 0, 1), 16383, 17000);
    assert_in_range(taken(place, 1, 1), 16, 200);
    assert_in_range(taken(place, 0, 255), (size_t)255 * 16383, (size_t)255 * 17000);
    assert_in_range(taken(place, 0, 257), (size_t)257 * 8, 1 << 20); /* more than 4 MiB together */
}

/* ---- errors ---- */

/* With any budget the answer is made, or nothing of the budget stays taken. */
/* shows: security.md rows-slow-readers */
static void budgets(void **state)
{
    struct place *place = *state;
    uint64_t random = 6, numbers[700];
    size_t size;
    char *bytes = random_file(&random, 700, false, &size);
    add_file(place, bytes, size);
    start(place);
    const struct td_split_view answer = answer_of(place);
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        numbers[i] = place->rows.count - 1 - i;
    const struct td_row_list lists[] = {{.count = 700}, {.count = 700, .numbers = numbers}, {.first = 3, .count = 1}};
    for (size_t l = 0; l < COUNT_OF(lists); l++)
        for (int form = TD_ROWS_FRAME; form <= TD_ROWS_TAR; form++) {
            bool ok = false;
            for (size_t max = 0; !ok; max += 1 + max / 3) {
                struct td_body body;
                struct td_error err = TD_ERROR_INIT;
                place->budget.max_bytes = max;
                td_body_init(&body);
                ok = td_row_answer_append(&answer, &lists[l], (enum td_rows_form)form, &body, &err);
                assert_true(ok || err.code == TD_FAILED_PRECONDITION || err.code == TD_RESOURCE_EXHAUSTED);
                assert_true(ok || (body.total_bytes == 0 && td_budget_used(&place->budget) == 0));
                assert_true(td_budget_used(&place->budget) <= max);
                td_body_fini(&body);
                assert_int_equal(td_budget_used(&place->budget), 0);
            }
        }
}

/* A worker may not wait: up to 64 rows of files that are mapped are found at once, more are left to another thread. */
static void what_a_worker_may_answer(void **state)
{
    struct place *place = *state;
    add_text(place, "a\nb\nc\n");
    start(place);
    const struct td_split_view answer = answer_of(place);
    uint64_t numbers[65] = {0};
    struct td_body body;
    td_body_init(&body);
    for (int pass = 0; pass < 2; pass++)
        for (size_t count = 64; count <= 65; count++) {
            const struct td_row_list list = {.count = count, .numbers = numbers};
            struct td_error err = TD_ERROR_INIT;
            td_waiting_forbid();
            bool ok = td_row_answer_append(&answer, &list, TD_ROWS_FRAME, &body, &err);
            bool waits = td_waiting_allow();
            CHECK(ok == (pass == 1 && count == 64) && waits == !ok, "pass %d, %zu rows: %s", pass, count, err.message);
            td_body_fini(&body);
            if (pass == 0 && count == 65) { /* map the file */
                td_error_init(&err);
                assert_true(td_row_answer_append(&answer, &list, TD_ROWS_FRAME, &body, &err));
                td_body_fini(&body);
            }
        }
}

/* Rows of a file that changed since the scan are not answered; the next scan brings the new ones. */
static void a_file_that_changed(void **state)
{
    struct place *place = *state;
    add_text(place, "aaa\nbbb\nccc\n");
    add_text(place, "ddd\neee\n");
    start(place);
    const struct td_split_view answer = answer_of(place);
    for (int pass = 0; pass < 3; pass++) {
        const uint64_t numbers[] = {4, 0};
        const struct td_row_list lists[] = {{.count = 5}, {.count = 2, .numbers = numbers}};
        if (pass == 1)
            tree_poke(&place->tree, "d/00001.jsonl", 0, "x\nyy", 4);
        if (pass == 2)
            tree_truncate(&place->tree, "d/00001.jsonl", 2);
        for (size_t l = 0; l < COUNT_OF(lists); l++)
            for (int form = TD_ROWS_FRAME; form <= TD_ROWS_TAR; form++) {
                struct td_body body;
                struct td_error err = TD_ERROR_INIT;
                td_body_init(&body);
                bool ok = td_row_answer_append(&answer, &lists[l], (enum td_rows_form)form, &body, &err);
                CHECK(ok == (pass == 0) && (ok || err.code == TD_UNAVAILABLE), "pass %d: %s", pass, err.message);
                td_body_fini(&body);
                assert_int_equal(td_budget_used(&place->budget), 0);
            }
    }
}

static const struct tree *changing; /* whose file changes when its rows have been found; NULL: none */

bool __wrap_td_row_index_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                              size_t count, struct td_row *rows, struct td_error *err);
bool __real_td_row_index_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                              size_t count, struct td_row *rows, struct td_error *err);

bool __wrap_td_row_index_find(const struct td_row_index *index, const struct td_row_files *files, uint64_t first,
                              size_t count, struct td_row *rows, struct td_error *err)
{
    bool ok = __real_td_row_index_find(index, files, first, count, rows, err);
    if (changing != NULL)
        tree_poke(changing, "d/00000.jsonl", 0, "x", 1);
    return ok;
}

/* shows: security.md rows-file-changes */
static void a_file_that_changes_meanwhile(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {1, 0, 1};
    const struct td_row_list lists[] = {{.count = 2}, {.count = 3, .numbers = numbers}};
    for (size_t l = 0; l < COUNT_OF(lists); l++)
        for (int form = TD_ROWS_FRAME; form <= TD_ROWS_RAW; form++) {
            static struct place place;
            struct td_body body;
            struct td_error err = TD_ERROR_INIT;
            place_open(&place);
            add_text(&place, "aaa\nbbb\n");
            start(&place);
            const struct td_split_view answer = answer_of(&place);
            td_body_init(&body);
            changing = &place.tree;
            assert_false(td_row_answer_append(&answer, &lists[l], (enum td_rows_form)form, &body, &err));
            changing = NULL;
            assert_int_equal(err.code, TD_UNAVAILABLE);
            check_says(&err, "d/00000.jsonl\" changed while its rows were read; try again", form_names[form]);
            place_close(&place);
        }
}

static bool is_unchanged(const struct td_body *body)
{
    bool all = true;
    for (size_t i = 0; i < body->extent_count; i++)
        all = all && td_blob_unchanged(body->extents[i].blob);
    return all;
}

/* A body that reads from a file, as long rows and the composed form do, knows when the file changes. */
static void a_file_that_changes_later(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2000};
    static const uint64_t numbers[2000];
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        static struct place place;
        char *bytes = malloc(40001), some[20000];
        assert_non_null(bytes);
        memset(bytes, 'a', 40000);
        bytes[40000] = '\n';
        place_open(&place);
        add_file(&place, bytes, 40001);
        start(&place);
        const struct td_split_view answer = answer_of(&place);
        const struct td_row_list list = {.count = counts[i], .numbers = numbers};
        struct td_body body;
        struct td_body_cursor cursor = {0};
        struct td_error err = TD_ERROR_INIT;
        td_body_init(&body);
        assert_true(td_row_answer_append(&answer, &list, TD_ROWS_FRAME, &body, &err));
        assert_true(td_body_read(&body, &cursor, some, sizeof some, &err));
        assert_true(is_unchanged(&body));
        tree_poke(&place.tree, "d/00000.jsonl", 5, "X", 1);
        assert_false(is_unchanged(&body));
        td_body_fini(&body);
        place_close(&place);
    }
}

/* Counts its calls, and asks to stop from the one numbered `stop_at` on. */
struct asking {
    size_t count, stop_at;
};

static bool is_asked(void *context)
{
    struct asking *asking = context;
    return ++asking->count >= asking->stop_at;
}

static bool append_asking(struct place *place, const struct td_row_list *list, struct asking *asking,
                          struct td_error *err)
{
    const struct td_cancel cancel = {.is_asked = is_asked, .context = asking};
    struct td_split_view answer = answer_of(place);
    struct td_body body;
    answer.cancel = &cancel;
    td_body_init(&body);
    bool ok = td_row_answer_append(&answer, list, TD_ROWS_FRAME, &body, err);
    td_body_fini(&body);
    return ok;
}

/* Asking costs a system call, so it is not done for every row; but a search for many rows, and for a row of many MiB,
 * ends soon. */
static void cancelled_requests(void **state)
{
    struct place *place = *state;
    enum { COUNT = 2000, LONG_BYTES = 8 << 20 };
    uint64_t numbers[COUNT];
    struct oracle_bytes out = {0};
    struct td_error err = TD_ERROR_INIT;
    oracle_put(&out, "a\nb\n", 4);
    for (int i = 0; i < LONG_BYTES; i++)
        oracle_put(&out, "x", 1);
    add_file(place, out.p, out.len);
    start(place);
    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = i % 2; /* none is repeated at once */
    const struct td_row_list many = {.count = COUNT, .numbers = numbers}, one = {.first = 2, .count = 1};
    struct asking asking = {.stop_at = SIZE_MAX};
    assert_true(append_asking(place, &many, &asking, &err));
    CHECK(asking.count > 20 && asking.count <= 40, "asked %zu times for %d rows", asking.count, COUNT);
    asking = (struct asking){.stop_at = 20};
    assert_false(append_asking(place, &many, &asking, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    asking = (struct asking){.stop_at = SIZE_MAX};
    assert_true(append_asking(place, &one, &asking, &err));
    CHECK(asking.count > 4 && asking.count <= 20, "asked %zu times for a row of 8 MiB", asking.count);
    asking = (struct asking){.stop_at = 5};
    assert_false(append_asking(place, &one, &asking, &err));
    assert_int_equal(asking.count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_datasets),
        cmocka_unit_test(edges_of_files),
        TEST_IN(place, many_rows),
        TEST_IN(place, many_files),
        TEST_IN(place, what_is_copied),
        TEST_IN(place, budgets),
        TEST_IN(place, what_a_worker_may_answer),
        TEST_IN(place, cancelled_requests),
        TEST_IN(place, a_file_that_changed),
        cmocka_unit_test(a_file_that_changes_meanwhile),
        cmocka_unit_test(a_file_that_changes_later),
    };
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
