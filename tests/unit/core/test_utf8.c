#include "core/utf8.h"
#include "tests/unit/unit.h"

/* A naive decoder: take the length the lead byte claims, put the bits together, then ask whether the code
 * point deserves that length and is no surrogate. Returns the length or 0. */
static size_t naive_sequence(const uint8_t *p, size_t len, uint32_t *cp)
{
    size_t n;
    uint32_t value;
    if (len == 0)
        return 0;
    if (p[0] < 0x80) {
        n = 1;
        value = p[0];
    } else if ((p[0] & 0xE0) == 0xC0) {
        n = 2;
        value = p[0] & 0x1F;
    } else if ((p[0] & 0xF0) == 0xE0) {
        n = 3;
        value = p[0] & 0x0F;
    } else if ((p[0] & 0xF8) == 0xF0) {
        n = 4;
        value = p[0] & 0x07;
    } else {
        return 0;
    }
    if (len < n)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (p[i] & 0x3F);
    }
    size_t deserved = value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    if (n != deserved || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *cp = value;
    return n;
}

/* The Unicode Standard, table 3-7: well-formed UTF-8 byte sequences. */
static const struct {
    size_t len;
    uint8_t low[4], high[4];
} table_3_7[] = {
    {1, {0x00}, {0x7F}},
    {2, {0xC2, 0x80}, {0xDF, 0xBF}},
    {3, {0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}},
    {3, {0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}},
    {3, {0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}},
    {3, {0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}},
    {4, {0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}},
    {4, {0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}},
    {4, {0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}},
};

static size_t table_sequence(const uint8_t *p, size_t len)
{
    for (size_t row = 0; row < COUNT_OF(table_3_7); row++) {
        size_t i = 0;
        while (i < table_3_7[row].len && i < len && p[i] >= table_3_7[row].low[i] && p[i] <= table_3_7[row].high[i])
            i++;
        if (i == table_3_7[row].len)
            return i;
    }
    return 0;
}

static void every_sequence_of_one_to_three_bytes(void **state)
{
    (void)state;
    uint8_t p[3];
    for (uint32_t bytes = 0; bytes < 1U << 24; bytes++) {
        p[0] = (uint8_t)(bytes >> 16);
        p[1] = (uint8_t)(bytes >> 8);
        p[2] = (uint8_t)bytes;
        uint32_t cp;
        size_t wanted = naive_sequence(p, 3, &cp);
        if (td_utf8_sequence(p, 3) != wanted || table_sequence(p, 3) != wanted)
            fail_msg("%02x %02x %02x: %zu, %zu expected", p[0], p[1], p[2], td_utf8_sequence(p, 3), wanted);
        if (p[2] == 0 && td_utf8_sequence(p, 2) != naive_sequence(p, 2, &cp))
            fail_msg("%02x %02x", p[0], p[1]);
        if (p[2] == 0 && p[1] == 0 && td_utf8_sequence(p, 1) != naive_sequence(p, 1, &cp))
            fail_msg("%02x", p[0]);
    }
    assert_int_equal(td_utf8_sequence(p, 0), 0);
}

static void four_bytes_at_every_border(void **state)
{
    (void)state;
    static const uint8_t tail[] = {0x00, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0xBF, 0xC0, 0xFF};
    for (unsigned lead = 0xE0; lead <= 0xFF; lead++) {
        for (unsigned second = 0; second <= 0xFF; second++) {
            for (size_t i = 0; i < COUNT_OF(tail) * COUNT_OF(tail); i++) {
                uint8_t p[4] = {(uint8_t)lead, (uint8_t)second, tail[i / COUNT_OF(tail)], tail[i % COUNT_OF(tail)]};
                uint32_t cp;
                for (size_t len = 0; len <= 4; len++)
                    CHECK(td_utf8_sequence(p, len) == naive_sequence(p, len, &cp), "%02x %02x %02x %02x, %zu bytes",
                          p[0], p[1], p[2], p[3], len);
            }
        }
    }
}

static void every_code_point_encodes_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        char out[4];
        uint32_t back = UINT32_MAX;
        size_t n = td_utf8_encode(cp, out);
        if (naive_sequence((const uint8_t *)out, n, &back) != n || back != cp)
            fail_msg("U+%04X", cp);
    }
}

static void whole_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"", true},
        {"model.layers.0", true},
        {"h\xc3\xa9llo \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80", true},
        {"\xef\xbb\xbf", true}, /* a byte order mark is a character */
        {"\xef\xbf\xbf", true}, /* so is a noncharacter */
        {"a\xff", false},
        {"\xc3", false},
        {"a\xc3", false},
        {"\xe6\x97", false},
        {"\xed\xa0\x80", false},     /* lone surrogate */
        {"\xc0\x80", false},         /* overlong NUL */
        {"\xc0\xaf", false},         /* overlong '/' */
        {"\xf4\x90\x80\x80", false}, /* past U+10FFFF */
        {"\xf8\x88\x80\x80\x80", false},
        {"\x80", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_utf8_valid(cases[i].text, strlen(cases[i].text)) == cases[i].valid, "case %zu", i);
    assert_true(td_utf8_valid("a\0b", 3));
}

/* shows: security.md log-terminal */
static void escape_shows_what_a_terminal_must_not_get(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *shown;
    } cases[] = {
        {"plain \"text\" \\", 14, "plain \"text\" \\"},
        {"a\0b", 3, "a\\x00b"},
        {"\n\r\t\x1b\x7f", 5, "\\x0a\\x0d\\x09\\x1b\\x7f"},
        {"\xc2\x80\xc2\x9f\xc2\xa0", 6, "\\xc2\\x80\\xc2\\x9f\xc2\xa0"}, /* C1 controls, but not U+00A0 */
        {"\xff\xc3(", 3, "\\xff\\xc3("},
        {"\xe6\x97", 2, "\\xe6\\x97"},
        {"\xe6\x97\xa5", 3, "\xe6\x97\xa5"},
        {"\xe2\x80\xae"
         "gpj.exe",
         10, "\\xe2\\x80\\xaegpj.exe"}, /* U+202E, right-to-left override */
        {"\xe2\x80\xa8\xe2\x80\xa9", 6, "\\xe2\\x80\\xa8\\xe2\\x80\\xa9"},
        {"\xe2\x80\xa7\xe2\x80\xaf", 6, "\xe2\x80\xa7\xe2\x80\xaf"}, /* their neighbours */
        {"\xd8\x9b\xd8\x9c\xd8\x9d", 6, "\xd8\x9b\\xd8\\x9c\xd8\x9d"},
        {"\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", 9, "\\xe2\\x81\\xa6\\xe2\\x81\\xa9\xe2\x81\xaa"},
        {"\xe2\x80\x8d\xe2\x80\x8e\xe2\x80\x8f\xe2\x80\x90", 12,
         "\xe2\x80\x8d\\xe2\\x80\\x8e\\xe2\\x80\\x8f\xe2\x80\x90"}, /* the joiner of emoji stays */
        {"\xd7\x90\xd8\xa7", 4, "\xd7\x90\xd8\xa7"},                /* letters that run from right to left stay */
    };
    char out[64];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        td_utf8_escape(td_text_n(cases[i].text, cases[i].len), out, sizeof out);
        assert_string_equal(out, cases[i].shown);
    }
}

/* At any capacity the output fits, is terminated, is valid UTF-8, and begins like the whole. */
static void escape_into_every_capacity(void **state)
{
    (void)state;
    static const char text[] = "a\n\xc3\xa9\xff\xe6\x97\xa5\xc2\x80\xf0\x9f\x98\x80z";
    char whole[64];
    td_utf8_escape(TD_TEXT(text), whole, sizeof whole);
    for (size_t capacity = 0; capacity < sizeof whole; capacity++) {
        char *out = malloc(capacity + 1);
        assert_non_null(out);
        memset(out, '#', capacity + 1);
        td_utf8_escape(TD_TEXT(text), out, capacity);
        assert_int_equal(out[capacity], '#');
        if (capacity > 0) {
            size_t len = strlen(out);
            assert_true(len < capacity && td_utf8_valid(out, len));
            assert_memory_equal(out, whole, len);
            assert_true(len == strlen(whole) || len + 8 >= capacity);
        }
        free(out);
    }
}

/* Texts that people see as one character each (Unicode Standard Annex 29, table 1a, and its tests of emoji). */
static const char *const clusters[] = {
    "a",
    "\xc3\xa4",                                                                 /* a with diaeresis, in one piece */
    "a\xcc\x88",                                                                /* the same in two */
    "q\xcc\x81\xcc\xa3",                                                        /* two marks */
    "\xe4\xb8\xad",                                                             /* a Chinese character */
    "\xe2\x9d\xa4\xef\xb8\x8f",                                                 /* a heart as an emoji */
    "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd",                                         /* a thumb with the colour of a skin */
    "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", /* three people, joined */
    "x\xe2\x83\x9d",                                                            /* a letter in a circle */
};

static void texts_are_cut_between_what_people_see(void **state)
{
    (void)state;
    char text[1024];
    bool is_border[sizeof text] = {true};
    size_t len = 0;
    for (size_t i = 0; i < 60; i++) {
        const char *cluster = clusters[i * i * 7 % 31 % COUNT_OF(clusters)];
        memcpy(text + len, cluster, strlen(cluster));
        len += strlen(cluster);
        is_border[len] = true;
    }
    const struct td_text whole = td_text_n(text, len);
    for (size_t most = 1; most < len; most++) {
        size_t begin = most;
        size_t end = len - most;
        while (!is_border[begin])
            begin--;
        while (!is_border[end])
            end++;
        if (begin > 0)
            assert_int_equal(td_utf8_cut(whole, most), begin);
        if (end < len)
            assert_int_equal(td_utf8_cut_end(whole, most), end);
    }
    assert_int_equal(td_utf8_cut(whole, len), len);
    assert_int_equal(td_utf8_cut_end(whole, len + 1), 0);
}

/* A letter with 1,000 marks is cut between two of them; what is not UTF-8 is cut at the limit. */
static void texts_without_a_good_place_are_cut_at_the_limit(void **state)
{
    (void)state;
    char marks[2001] = "a";
    char rubbish[2001];
    for (size_t i = 1; i < sizeof marks; i += 2)
        memcpy(marks + i, "\xcc\x81", 2);
    memset(rubbish, 0x81, sizeof rubbish);
    for (size_t most = 100; most < 110; most++) {
        const struct td_text text = td_text_n(marks, sizeof marks);
        assert_int_equal(td_utf8_cut(text, most), most - 1 + most % 2);
        assert_int_equal(td_utf8_cut_end(text, most), sizeof marks - most + most % 2);
        assert_int_equal(td_utf8_cut(td_text_n(rubbish, sizeof rubbish), most), most);
        assert_in_range(td_utf8_cut_end(td_text_n(rubbish, sizeof rubbish), most), sizeof rubbish - most,
                        sizeof rubbish - most + 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_of_one_to_three_bytes),
        cmocka_unit_test(four_bytes_at_every_border),
        cmocka_unit_test(every_code_point_encodes_and_comes_back),
        cmocka_unit_test(whole_strings),
        cmocka_unit_test(escape_shows_what_a_terminal_must_not_get),
        cmocka_unit_test(escape_into_every_capacity),
        cmocka_unit_test(texts_are_cut_between_what_people_see),
        cmocka_unit_test(texts_without_a_good_place_are_cut_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
