/* Spans. A random schedule of connections is compared with an array of bytes. */
#include "storage/fetch/fetch_spans.h"

#include "storage/fetch/fetch_journal.h"
#include "tests/unit/unit.h"

enum { PIECE = TD_FETCH_PIECE_BYTES, UNIT = PIECE / 4, CONNECTIONS = 5 };

/* The model: how often each unit of the file has arrived. */
struct model {
    struct td_fetch_spans spans;
    uint8_t *arrived;
    size_t units;
    uint64_t random;
};

static uint64_t model_front(const struct model *m)
{
    size_t i = 0;
    while (i < m->units && m->arrived[i] > 0)
        i++;
    return (uint64_t)i * UNIT < m->spans.size_bytes ? (uint64_t)i * UNIT : m->spans.size_bytes;
}

static void check(const struct model *m)
{
    CHECK(td_fetch_spans_front(&m->spans) == model_front(m), "front %llu, not %llu",
          (unsigned long long)td_fetch_spans_front(&m->spans), (unsigned long long)model_front(m));
    for (size_t i = 0; i < td_fetch_piece_count(m->spans.size_bytes); i++) {
        bool whole = true;
        for (size_t k = 4 * i; k < 4 * i + 4 && k < m->units; k++)
            whole = whole && m->arrived[k] > 0;
        CHECK(td_fetch_spans_has(&m->spans, i) == whole, "piece %zu", i);
    }
    for (size_t a = 0; a < CONNECTIONS; a++)
        for (size_t b = a + 1; b < CONNECTIONS; b++) {
            const struct td_fetch_span *x = &m->spans.open[a];
            const struct td_fetch_span *y = &m->spans.open[b];
            CHECK(!x->is_open || !y->is_open || x->end <= y->at || y->end <= x->at, "two spans overlap");
        }
}

/* Lets some bytes of a span arrive, in whole units or to the end. */
static void arrive(struct model *m, size_t c)
{
    const struct td_fetch_span *span = &m->spans.open[c];
    uint64_t left = span->end - span->at;
    uint64_t len = (1 + random_next(&m->random) % 6) * UNIT;
    uint64_t first;
    uint64_t end;
    uint64_t at = span->at;
    len = len < left ? len : left;
    td_fetch_spans_arrived(&m->spans, c, len, &first, &end);
    for (uint64_t i = at / UNIT; i * UNIT < at + len; i++)
        CHECK(++m->arrived[i] == 1, "unit %llu arrived twice", (unsigned long long)i);
    for (uint64_t i = first; i < end; i++)
        assert_true(td_fetch_spans_has(&m->spans, i));
}

static void run(uint64_t seed, uint64_t size_bytes, uint64_t span_bytes)
{
    struct model m = {.random = seed * 2654435761U + 1};
    uint8_t bits[16];
    m.units = (size_t)((size_bytes + UNIT - 1) / UNIT);
    m.arrived = calloc(m.units + 1, 1);
    for (size_t i = 0; i < sizeof bits; i++)
        bits[i] = (uint8_t)(random_next(&m.random) & random_next(&m.random));
    for (size_t i = 0; i < m.units; i++)
        m.arrived[i] = bits[i / 4 / 8] >> (i / 4 % 8) & 1;
    assert_true(td_fetch_spans_init(&m.spans, size_bytes, bits, CONNECTIONS, span_bytes, NULL));
    for (size_t steps = 0; td_fetch_spans_front(&m.spans) < size_bytes; steps++) {
        size_t c = random_next(&m.random) % CONNECTIONS;
        struct td_fetch_span *span = &m.spans.open[c];
        CHECK(steps < 100000, "the file is never complete");
        if (!span->is_open)
            (void)td_fetch_spans_give(&m.spans, c);
        else if (random_next(&m.random) % 8 == 0)
            td_fetch_spans_extend(&m.spans, c);
        else if (span->at == span->end || random_next(&m.random) % 8 == 0)
            td_fetch_spans_return(&m.spans, c);
        else
            arrive(&m, c);
        check(&m);
    }
    td_fetch_spans_fini(&m.spans);
    free(m.arrived);
}

static void random_schedules(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        run(seed, (1 + seed) * PIECE + (seed % 3) * 1000, (1 + seed % 7) * PIECE);
        run(seed, 40 * PIECE, UINT64_MAX);
    }
    run(1, 0, PIECE);
    run(2, 1, 1);
}

static void spans_come_from_the_front(void **state)
{
    (void)state;
    struct td_fetch_spans spans;
    assert_true(td_fetch_spans_init(&spans, 10 * PIECE, NULL, 3, 4 * PIECE, NULL));
    assert_true(td_fetch_spans_give(&spans, 0) && td_fetch_spans_give(&spans, 1) && td_fetch_spans_give(&spans, 2));
    assert_true(spans.open[0].at == 0 && spans.open[0].end == 4 * PIECE);
    assert_true(spans.open[1].at == 4 * PIECE && spans.open[2].at == 8 * PIECE && spans.open[2].end == 10 * PIECE);
    td_fetch_spans_return(&spans, 0);
    td_fetch_spans_return(&spans, 2);
    assert_true(td_fetch_spans_give(&spans, 2)); /* the returned span, first */
    assert_int_equal(spans.open[2].at, 0);
    td_fetch_spans_fini(&spans);
}

/* Gives the whole file to one connection after the other, and checks that no span is more than half of an equal share
 * of what is left, but for the smallest ones of 8 pieces. */
static void spans_shrink_towards_the_end(void **state)
{
    (void)state;
    struct td_fetch_spans spans;
    uint64_t left = 400;
    size_t count = 0;
    assert_true(td_fetch_spans_init(&spans, 400 * PIECE, NULL, 4, 40 * PIECE, NULL));
    for (; left > 0; count++) {
        uint64_t most = left / 8 > 40 ? 40 : left / 8 < 8 ? 8 : left / 8;
        assert_true(td_fetch_spans_give(&spans, 0));
        assert_int_equal(spans.open[0].end - spans.open[0].at, (left < most ? left : most) * PIECE);
        left -= (spans.open[0].end - spans.open[0].at) / PIECE;
        spans.open[0].is_open = false;
    }
    assert_true(count > 400 / 40);
    td_fetch_spans_fini(&spans);
    assert_true(td_fetch_spans_init(&spans, 400 * PIECE, NULL, 1, UINT64_MAX, NULL));
    assert_true(td_fetch_spans_give(&spans, 0) && spans.open[0].end == 400 * PIECE); /* one connection: one request */
    td_fetch_spans_fini(&spans);
}

/* A request whose answer takes as long to begin as 3 MiB take to come: spans are 4 to 32 times as long. */
static void spans_grow_with_the_cost_of_a_request(void **state)
{
    (void)state;
    const uint64_t MiB = 1024 * 1024;
    struct td_fetch_spans spans;
    assert_true(td_fetch_spans_init(&spans, 4096 * MiB, NULL, 4, 16 * MiB, NULL));
    td_fetch_spans_set_cost(&spans, 3 * MiB + 1);
    assert_true(td_fetch_spans_give(&spans, 0) && spans.open[0].end == 96 * MiB);
    td_fetch_spans_set_cost(&spans, UINT64_C(1) << 62); /* no overflow */
    assert_true(td_fetch_spans_give(&spans, 1) && spans.open[1].end - spans.open[1].at == 256 * MiB);
    td_fetch_spans_set_cost(&spans, 1000); /* the cost can fall again */
    assert_true(td_fetch_spans_give(&spans, 2) && spans.open[2].end - spans.open[2].at == 16 * MiB);
    td_fetch_spans_fini(&spans);
    assert_true(td_fetch_spans_init(&spans, 64 * MiB, NULL, 4, 16 * MiB, NULL));
    td_fetch_spans_set_cost(&spans, 3 * MiB);
    assert_true(td_fetch_spans_give(&spans, 0) && spans.open[0].end == 12 * MiB);
    td_fetch_spans_fini(&spans);
    assert_true(td_fetch_spans_init(&spans, 11 * MiB, NULL, 2, UINT64_MAX, NULL));
    td_fetch_spans_set_cost(&spans, 3 * MiB);
    assert_true(td_fetch_spans_give(&spans, 0) && !td_fetch_spans_give(&spans, 1)); /* another request costs more */
    td_fetch_spans_set_cost(&spans, 0);
    assert_true(td_fetch_spans_give(&spans, 1));
    td_fetch_spans_fini(&spans);
}

static void half_of_the_longest_is_taken(void **state)
{
    (void)state;
    struct td_fetch_spans spans;
    assert_true(td_fetch_spans_init(&spans, 20 * PIECE, NULL, 2, UINT64_MAX, NULL));
    assert_true(td_fetch_spans_give(&spans, 0));
    td_fetch_spans_extend(&spans, 0);
    assert_true(spans.open[0].end == 20 * PIECE && td_fetch_spans_give(&spans, 1));
    assert_true(spans.open[0].end == 10 * PIECE && spans.open[1].at == 10 * PIECE && spans.open[1].end == 20 * PIECE);
    td_fetch_spans_fini(&spans);
    assert_true(td_fetch_spans_init(&spans, 7 * PIECE, NULL, 2, UINT64_MAX, NULL));
    assert_true(td_fetch_spans_give(&spans, 0) && !td_fetch_spans_give(&spans, 1)); /* too little is left */
    td_fetch_spans_fini(&spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules),
        cmocka_unit_test(spans_come_from_the_front),
        cmocka_unit_test(spans_shrink_towards_the_end),
        cmocka_unit_test(spans_grow_with_the_cost_of_a_request),
        cmocka_unit_test(half_of_the_longest_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
