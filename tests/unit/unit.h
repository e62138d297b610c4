/* Every unit test includes this header: cmocka, the headers that cmocka needs before it, and a few helpers. */
#ifndef TD_TESTS_UNIT_UNIT_H
#define TD_TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/error.h"
#include "core/utf8.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Fails the test with a message that names the case, unless the condition holds. */
#define CHECK(condition, ...)                                           \
    do {                                                                \
        if (!(condition)) {                                             \
            print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            fail_msg(__VA_ARGS__);                                      \
        }                                                               \
    } while (0)

/* Defines what prepares a test that is named by TEST_IN(name, test), and what cleans up after it. *state of the test is
 * a new object of the type: zeros, then handed to open(). close() also gets it when the test has failed. */
#define FIXTURE(name, type, open, close)             \
    static inline int set_up_##name(void **state)    \
    {                                                \
        type *object = calloc(1, sizeof *object);    \
        assert_non_null(object);                     \
        open(object);                                \
        *state = object;                             \
        return 0;                                    \
    }                                                \
    static inline int tear_down_##name(void **state) \
    {                                                \
        close(*state);                               \
        free(*state);                                \
        return 0;                                    \
    }

#define TEST_IN(name, test) cmocka_unit_test_setup_teardown(test, set_up_##name, tear_down_##name)

/* 1 when allocations and memory accesses are instrumented: large tests then use a tenth of their data. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

/* Returns the CPU time of the process in seconds. Other work of the machine does not count. */
static inline double cpu_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void nap_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Returns the next number of xorshift64*, so that random tests are the same in every run. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static inline size_t random_below(uint64_t *state, size_t bound)
{
    return (size_t)((random_next(state) >> 11) % bound);
}

/* Checks that an error has a code, a message of one line of UTF-8, and a position within an input of `size` bytes (its
 * end included, where missing bytes would be). Without needs_position, the error may have none. */
static inline void check_error(const struct td_error *err, uint64_t size, bool needs_position, const char *what)
{
    size_t len = strlen(err->message);
    CHECK(err->code != TD_OK, "%s: no code", what);
    CHECK(len > 0 && len < TD_ERROR_MESSAGE_BYTES, "%s: no message", what);
    CHECK(td_utf8_valid(err->message, len), "%s: message is not UTF-8: %s", what, err->message);
    for (size_t i = 0; i < len; i++)
        CHECK((uint8_t)err->message[i] >= 0x20, "%s: message is not one line: %s", what, err->message);
    if (needs_position || err->pos != TD_ERROR_POS_NONE)
        CHECK(err->pos <= size, "%s: position %llu is outside the input: %s", what, (unsigned long long)err->pos,
              err->message);
}

static inline void check_says(const struct td_error *err, const char *says, const char *what)
{
    CHECK(strstr(err->message, says) != NULL, "%s: '%s' does not say '%s'", what, err->message, says);
}

#endif
