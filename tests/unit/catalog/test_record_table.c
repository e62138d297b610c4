/* Tables of records: indexes over parts of them, and links between equal ones. */
#include "catalog/digests/record_log.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

struct record {
    uint64_t key[2];
    uint64_t number;
    uint64_t sum;
    uint32_t link;
};

enum { BY_KEY, BY_SUM };

static struct td_record_table table_of_records(void)
{
    return (struct td_record_table){
        .record_bytes = sizeof(struct record),
        .index_count = 2,
        .parts = {
            [BY_KEY] = {.off = offsetof(struct record, key), .bytes = 16},
            [BY_SUM] = {.off = offsetof(struct record, sum), .bytes = 8, .link_off = offsetof(struct record, link)}}};
}

/* The records 0, 1, 2 ... have keys of their own, and one of ten sums. */
static struct record record_of(uint64_t i)
{
    return (struct record){.key = {i, i * i}, .number = i, .sum = i % 10};
}

static const struct record *find(const struct td_record_table *table, uint64_t i)
{
    const struct record wanted = record_of(i);
    return td_record_table_find(table, BY_KEY, wanted.key);
}

static bool add(struct td_record_table *table, uint64_t i)
{
    const struct record record = record_of(i);
    return td_record_table_add(table, &record);
}

/* Checks that the records with this sum are linked from the last one, `step` apart. */
static void check_links(const struct td_record_table *table, uint64_t sum, uint64_t last, uint64_t step, size_t count)
{
    const struct record *record = td_record_table_find(table, BY_SUM, &sum);
    for (size_t i = 0; i < count; i++, record = td_record_table_before(table, BY_SUM, record))
        CHECK(record != NULL && record->number == last - i * step, "record %zu of sum %d", i, (int)sum);
    assert_null(record);
}

static bool is_of_30(void *context, const void *record)
{
    ++*(size_t *)context;
    return ((const struct record *)record)->number % 30 == 7;
}

static void records_are_found(void **state)
{
    (void)state;
    enum { MANY = 3000 };
    struct td_record_table table = table_of_records();
    uint64_t none = 77;
    size_t asked = 0;
    assert_true(td_record_table_init(&table));
    assert_null(find(&table, 0));
    for (uint64_t i = 0; i < MANY; i++)
        assert_true(add(&table, i));
    assert_int_equal(table.count, MANY);
    for (uint64_t i = 0; i < MANY; i++)
        CHECK(find(&table, i) != NULL && find(&table, i)->number == i, "%d", (int)i);
    assert_null(find(&table, MANY));
    assert_null(td_record_table_find(&table, BY_SUM, &none));
    check_links(&table, 3, MANY - 7, 10, MANY / 10);
    td_record_table_sift(&table, is_of_30, &asked);
    assert_int_equal(asked, MANY);
    assert_int_equal(table.count, MANY / 30);
    for (uint64_t i = 0; i < MANY; i++)
        assert_int_equal(find(&table, i) != NULL, i % 30 == 7);
    check_links(&table, 7, MANY - 23, 30, MANY / 30);
    td_record_table_fini(&table);
}

/* Of records with one key the last one is found; the others stay linked by their sums. */
static void the_last_record_of_a_key_counts(void **state)
{
    (void)state;
    struct td_record_table table = table_of_records();
    struct record other = record_of(5);
    const uint64_t before = 5;
    other.sum = 100;
    assert_true(td_record_table_init(&table));
    assert_true(add(&table, 5) && td_record_table_add(&table, &other));
    assert_int_equal(find(&table, 5)->sum, 100);
    assert_non_null(td_record_table_find(&table, BY_SUM, &before));
    td_record_table_fini(&table);
}

/* Whatever allocation fails, what was added before is found. */
static void memory_is_short(void **state)
{
    (void)state;
    enum { MANY = 600 };
    size_t failures = 0;
    for (size_t k = 1; k < 40; k++) {
        struct td_record_table table = table_of_records();
        alloc_count_start();
        alloc_fail_at(k);
        if (td_record_table_init(&table)) {
            bool is_added[MANY];
            for (uint64_t i = 0; i < MANY; i++) {
                is_added[i] = add(&table, i);
                failures += is_added[i] ? 0 : 1;
            }
            for (uint64_t i = 0; i < MANY; i++)
                CHECK((find(&table, i) != NULL) == is_added[i], "%zu: %d", k, (int)i);
            td_record_table_fini(&table);
        } else {
            failures++;
        }
        alloc_fail_at(0);
        assert_int_equal(alloc_count_get().live_bytes, 0);
    }
    CHECK(failures > 2, "%zu", failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_found),
        cmocka_unit_test(the_last_record_of_a_key_counts),
        cmocka_unit_test(memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
