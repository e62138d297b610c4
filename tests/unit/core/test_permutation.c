/* The permutation against an implementation that takes splitmix64 as its authors wrote it, as a generator with a state,
 * and halves numbers by division; against vectors that Python computed; and against what a random order would give. */
#include "core/permutation.h"

#include "core/json/json_document.h"
#include "tests/unit/unit.h"

#include <math.h>

/* ---- the oracle ---- */

/* Vigna's splitmix64.c. */
static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Returns the number at a position by the words of core/permutation.h. */
static uint64_t oracle_at(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t position)
{
    static const uint64_t golden = 0x9e3779b97f4a7c15;
    uint64_t state = splitmix64(&seed) + epoch, key_state, keys[8];
    key_state = splitmix64(&state);
    for (int i = 0; i < 8; i++)
        keys[i] = splitmix64(&key_state) - golden; /* the generator adds golden to it again, each time it mixes */
    unsigned bits = 16;
    while (bits < 64 && n > (uint64_t)1 << bits)
        bits += 2;
    uint64_t half = (uint64_t)1 << (bits / 2), x = position;
    do {
        uint64_t halves[2] = {x / half, x % half};
        for (int round = 0; round < 8; round++) {
            uint64_t mixed = halves[1] + keys[round];
            uint64_t top = splitmix64(&mixed) / ((uint64_t)1 << (64 - bits / 2));
            uint64_t next = halves[0] ^ top;
            halves[0] = halves[1];
            halves[1] = next;
        }
        x = halves[0] * half + halves[1];
    } while (x >= n);
    return x;
}

static void the_oracle_is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t published[] = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                         4593380528125082431U, 16408922859458223821U}; /* for 1234567 */
    uint64_t number = 1234567;
    for (size_t i = 0; i < COUNT_OF(published); i++)
        assert_int_equal(splitmix64(&number), published[i]);
}

static const uint64_t counts[] = {1,
                                  2,
                                  3,
                                  7,
                                  255,
                                  256,
                                  257,
                                  10000,
                                  65535,
                                  65536,
                                  65537,
                                  99991,
                                  262144,
                                  1000003,
                                  4294967296,
                                  4294967297U,
                                  (uint64_t)1 << 62,
                                  ((uint64_t)1 << 62) + 1,
                                  UINT64_MAX};

static const uint64_t seeds[][2] = {{0, 0}, {1, 0}, {0, 1}, {42, 7}, {UINT64_MAX, 3}, {5, UINT64_MAX}};

static void equals_the_oracle(void **state)
{
    (void)state;
    uint64_t random = 77;
    for (size_t c = 0; c < COUNT_OF(counts); c++)
        for (size_t s = 0; s < COUNT_OF(seeds); s++) {
            struct td_permutation permutation;
            td_permutation_init(&permutation, counts[c], seeds[s][0], seeds[s][1]);
            for (int i = 0; i < 50; i++) {
                uint64_t at = i == 0 ? 0 : i == 1 ? counts[c] - 1 : random_next(&random) % counts[c];
                uint64_t got = td_permutation_at(&permutation, at);
                uint64_t wanted = oracle_at(counts[c], seeds[s][0], seeds[s][1], at);
                CHECK(got == wanted, "n %llu, seed %llu, epoch %llu, position %llu: %llu, wanted %llu",
                      (unsigned long long)counts[c], (unsigned long long)seeds[s][0], (unsigned long long)seeds[s][1],
                      (unsigned long long)at, (unsigned long long)got, (unsigned long long)wanted);
            }
        }
}

/* ---- vectors ---- */

static uint64_t number_of(const struct td_json_document *document, const cJSON *item)
{
    uint64_t value = 0;
    assert_true(td_json_document_u64(document, item, &value));
    return value;
}

static void equals_the_vectors(void **state)
{
    (void)state;
    static char text[1 << 16];
    struct td_json_document document;
    struct td_arena arena;
    struct td_error err = TD_ERROR_INIT;
    size_t checked = 0;
    FILE *file = fopen(TD_TEST_DATA "/permutation.json", "rb");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text, file);
    assert_true(feof(file) && fclose(file) == 0);
    td_arena_init(&arena, 0);
    td_json_document_read(&document, td_text_n(text, len), &arena, &err);
    assert_true(cJSON_IsArray(document.root));
    for (const cJSON *vector = document.root->child; vector != NULL; vector = vector->next) {
        struct td_permutation permutation;
        uint64_t position = 0;
        td_permutation_init(&permutation, number_of(&document, cJSON_GetObjectItemCaseSensitive(vector, "rows")),
                            number_of(&document, cJSON_GetObjectItemCaseSensitive(vector, "seed")),
                            number_of(&document, cJSON_GetObjectItemCaseSensitive(vector, "epoch")));
        const cJSON *first = cJSON_GetObjectItemCaseSensitive(vector, "first");
        for (const cJSON *row = first->child; row != NULL; row = row->next, checked++)
            assert_int_equal(td_permutation_at(&permutation, position++), number_of(&document, row));
    }
    assert_true(td_json_document_end(&document) && checked > 300);
    td_arena_fini(&arena);
}

/* ---- properties ---- */

static void is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 10, 255, 257, 4096, 65535, 65536, 65537, 100003};
    static uint8_t seen[100003];
    for (size_t c = 0; c < COUNT_OF(sizes); c++)
        for (size_t s = 0; s < COUNT_OF(seeds); s++) {
            struct td_permutation permutation;
            memset(seen, 0, sizeof seen);
            td_permutation_init(&permutation, sizes[c], seeds[s][0], seeds[s][1]);
            for (uint64_t i = 0; i < sizes[c]; i++) {
                uint64_t x = td_permutation_at(&permutation, i);
                CHECK(x < sizes[c] && !seen[x], "n %llu: %llu twice, or too large", (unsigned long long)sizes[c],
                      (unsigned long long)x);
                seen[x] = 1;
            }
        }
}

enum { N = 20000, CELLS = 20 };

/* Chi-square of CELLS x CELLS cells: where a number comes from, and where it goes. For a random permutation its mean is
 * (CELLS - 1)^2 = 361 and its deviation 27; 6 deviations are allowed. */
static double spread(uint64_t seed, uint64_t epoch)
{
    static unsigned cells[CELLS][CELLS];
    struct td_permutation permutation;
    memset(cells, 0, sizeof cells);
    td_permutation_init(&permutation, N, seed, epoch);
    for (uint64_t i = 0; i < N; i++)
        cells[i * CELLS / N][td_permutation_at(&permutation, i) * CELLS / N]++;
    double expected = (double)N / (CELLS * CELLS), sum = 0;
    for (size_t a = 0; a < CELLS; a++)
        for (size_t b = 0; b < CELLS; b++)
            sum += (cells[a][b] - expected) * (cells[a][b] - expected) / expected;
    return sum;
}

/* Returns how many positions have the same number in both orders: 1 on average, by chance almost never above 8. b NULL:
 * the order of the numbers themselves, so that fixed points count. */
static unsigned meetings(const struct td_permutation *a, const struct td_permutation *b)
{
    unsigned count = 0;
    for (uint64_t i = 0; i < N; i++)
        count += td_permutation_at(a, i) == (b == NULL ? i : td_permutation_at(b, i)) ? 1 : 0;
    return count;
}

static void looks_random(void **state)
{
    (void)state;
    struct td_permutation before = {0};
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t seed = i < 20 ? i : 3, epoch = i < 20 ? 0 : i;
        double sum = spread(seed, epoch);
        CHECK(sum > 361 - 6 * 27 && sum < 361 + 6 * 27, "seed %u, epoch %u: chi-square %f", (unsigned)seed,
              (unsigned)epoch, sum);
        struct td_permutation permutation;
        uint64_t ascents = 0;
        td_permutation_init(&permutation, N, seed, epoch);
        for (uint64_t k = 1; k < N; k++)
            ascents += td_permutation_at(&permutation, k) > td_permutation_at(&permutation, k - 1) ? 1 : 0;
        double off = fabs((double)ascents - (N - 1) / 2.0); /* deviation sqrt((N + 1) / 12) = 41 */
        CHECK(off < 6 * 41, "seed %u, epoch %u: %u ascents", (unsigned)seed, (unsigned)epoch, (unsigned)ascents);
        CHECK(meetings(&permutation, NULL) <= 12, "seed %u: fixed points", (unsigned)seed);
        CHECK(i == 0 || meetings(&permutation, &before) <= 12, "seed %u, epoch %u is like the one before",
              (unsigned)seed, (unsigned)epoch);
        before = permutation;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oracle_is_splitmix64),
        cmocka_unit_test(equals_the_oracle),
        cmocka_unit_test(equals_the_vectors),
        cmocka_unit_test(is_a_bijection),
        cmocka_unit_test(looks_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
