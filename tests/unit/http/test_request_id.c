#include "http/request_id.h"

#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdlib.h>

/* Writes the id of a request with these values of X-Request-Id; NULL: it has not so many. */
static void choose(const char *first, const char *second, char id[TD_REQUEST_ID_BYTES])
{
    struct td_header headers[3] = {{TD_TEXT("Host"), TD_TEXT("h")}};
    struct td_request request = {.headers = headers, .header_count = 1};
    if (first != NULL)
        headers[request.header_count++] = (struct td_header){TD_TEXT("x-request-id"), td_text_of(first)};
    if (second != NULL)
        headers[request.header_count++] = (struct td_header){TD_TEXT("X-Request-ID"), td_text_of(second)};
    td_request_id_choose(&request, id);
}

static bool is_ours(const char *id)
{
    return strlen(id) == 16 && strspn(id, "0123456789ABCDEF") == 16;
}

static void ids_of_clients_are_taken_over(void **state)
{
    (void)state;
    char longest[129], visible[95];
    size_t n = 0;
    for (int c = '!'; c <= '~'; c++)
        if (c != '"' && c != '\'' && c != '\\')
            visible[n++] = (char)c;
    visible[n] = '\0';
    assert_int_equal(n, 91);
    memset(longest, 'x', 128);
    longest[128] = '\0';
    const char *const ids[] = {
        "a", "0", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "Root=1-67891233-abcdef012345678912345678", visible, longest};
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        char id[TD_REQUEST_ID_BYTES];
        choose(ids[i], NULL, id);
        assert_string_equal(id, ids[i]);
    }
}

static void others_are_replaced(void **state)
{
    (void)state;
    char too_long[130];
    memset(too_long, 'x', 129);
    too_long[129] = '\0';
    const char *const ids[] = {"", "a b", "a\"b", "a'b", "a\\b", "a\tb", "a\x7f", "\xc3\xa9", "a\r", too_long};
    char id[TD_REQUEST_ID_BYTES];
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        choose(ids[i], NULL, id);
        CHECK(is_ours(id), "%zu: %s", i, id);
    }
    choose(NULL, NULL, id);
    assert_true(is_ours(id));
    choose("a", "a", id); /* two lines are no valid field */
    assert_true(is_ours(id));
}

enum { THREADS = 4, IDS = 2000 };

static void *make_many(void *argument)
{
    char(*ids)[TD_REQUEST_ID_BYTES] = argument;
    for (int i = 0; i < IDS; i++)
        choose(NULL, NULL, ids[i]);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void no_id_is_made_twice(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    char(*ids)[TD_REQUEST_ID_BYTES] = calloc((size_t)THREADS * IDS, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, ids + i * IDS), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    qsort(ids, (size_t)THREADS * IDS, sizeof *ids, compare);
    for (size_t i = 1; i < (size_t)THREADS * IDS; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_clients_are_taken_over),
        cmocka_unit_test(others_are_replaced),
        cmocka_unit_test(no_id_is_made_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
