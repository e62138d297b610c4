/* The credit of a connection of HTTP/2. Frames are laid out as in RFC 9113 section 4.1. */
#include "server/h2/h2_frames.h"

#include "tests/unit/unit.h"

#include <string.h>

enum {
    DATA = 0,
    HEADERS = 1,
    RST_STREAM = 3,
    SETTINGS = 4,
    PING = 6,
    WINDOW_UPDATE = 8,
    CONTINUATION = 9,
    END_STREAM = 1,
    END_HEADERS = 4
};
enum { MOST_PAYLOAD = 64 };

static const uint64_t start_ns = UINT64_C(5000000000);

static void begin(struct td_h2_frames *frames)
{
    static const uint8_t preface[TD_H2_PREFACE_BYTES];
    td_h2_frames_init(frames, start_ns);
    assert_int_equal(frames->unfinished_ns, start_ns);
    assert_true(td_h2_frames_take(frames, preface, sizeof preface, start_ns));
    assert_int_equal(frames->unfinished_ns, 0);
}

/* Sends `count` frames with `len` bytes of payload each. Returns how many were taken. */
static int send_frames(struct td_h2_frames *frames, uint8_t type, uint8_t flags, uint8_t len, int count,
                       uint64_t now_ns)
{
    const uint8_t bytes[TD_H2_HEAD_BYTES + MOST_PAYLOAD] = {0, 0, len, type, flags, 0, 0, 0, 1};
    for (int i = 0; i < count; i++)
        if (!td_h2_frames_take(frames, bytes, (size_t)TD_H2_HEAD_BYTES + len, now_ns))
            return i;
    return count;
}

static void frames_that_bring_nothing_use_the_credit_up(void **state)
{
    (void)state;
    static const struct {
        uint8_t type, flags, len;
        int cost;
    } rows[] = {{SETTINGS, 0, 0, 4}, {PING, 0, 8, 1},  {WINDOW_UPDATE, 0, 4, 1},
                {DATA, 0, 0, 1},     {DATA, 0, 31, 1}, {CONTINUATION, END_HEADERS, 10, 1},
                {0xfa, 0, 1, 1}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct td_h2_frames frames;
        begin(&frames);
        int taken = send_frames(&frames, rows[i].type, rows[i].flags, rows[i].len, TD_H2_CREDIT_MOST * 2, start_ns);
        CHECK(taken == TD_H2_CREDIT_MOST / rows[i].cost, "row %zu: %d", i, taken);
    }
}

static void requests_and_bodies_cost_nothing(void **state)
{
    (void)state;
    struct td_h2_frames frames;
    enum { MANY = TD_H2_CREDIT_MOST * 4 };
    begin(&frames);
    assert_int_equal(send_frames(&frames, DATA, 0, 32, MANY, start_ns), MANY);
    assert_int_equal(send_frames(&frames, DATA, END_STREAM, 5, MANY, start_ns), MANY);
    assert_int_equal(send_frames(&frames, HEADERS, END_HEADERS, 20, MANY, start_ns), MANY);
    assert_int_equal(frames.credit, TD_H2_CREDIT_MOST);
}

static void time_and_answers_add_credit(void **state)
{
    (void)state;
    struct td_h2_frames frames;
    begin(&frames);
    assert_int_equal(send_frames(&frames, PING, 0, 8, TD_H2_CREDIT_MOST, start_ns), TD_H2_CREDIT_MOST);
    td_h2_frames_earn(&frames);
    assert_int_equal(send_frames(&frames, WINDOW_UPDATE, 0, 4, 100, start_ns), TD_H2_CREDIT_PER_SENT);
    const uint64_t later_ns = start_ns + UINT64_C(500000000); /* half a second; one frame was taken into debt */
    assert_int_equal(send_frames(&frames, PING, 0, 8, TD_H2_CREDIT_MOST, later_ns), TD_H2_CREDIT_PER_S / 2 - 1);
    const uint64_t much_later_ns = start_ns + UINT64_C(3600000000000);
    assert_int_equal(send_frames(&frames, PING, 0, 8, TD_H2_CREDIT_MOST * 2, much_later_ns), TD_H2_CREDIT_MOST);
}

/* As CVE-2023-44487 does. A stream that is begun adds to the other credit alone. */
static void resets_use_a_credit_of_their_own_up(void **state)
{
    (void)state;
    struct td_h2_frames frames;
    enum { AT_ONCE = 500, PER_S = 50 }; /* as docs/limits.md says */
    const uint64_t later_ns = start_ns + UINT64_C(1000000000);
    int taken = 0;
    begin(&frames);
    while (taken <= AT_ONCE && send_frames(&frames, HEADERS, END_HEADERS, 20, 1, start_ns) == 1 &&
           send_frames(&frames, RST_STREAM, 0, 4, 1, start_ns) == 1)
        taken++;
    assert_int_equal(taken, AT_ONCE);
    td_h2_frames_earn(&frames);
    assert_int_equal(send_frames(&frames, RST_STREAM, 0, 4, AT_ONCE, later_ns),
                     PER_S - 1); /* one was taken into debt */
}

static void unfinished_frames_are_noticed_wherever_they_are_cut(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0, 0, 2, HEADERS,      0,           0, 0, 0, 1, 'a', 'b',
                             0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 1, 'c'};
    for (size_t cut = 1; cut < sizeof bytes; cut++) {
        struct td_h2_frames frames;
        begin(&frames);
        assert_true(td_h2_frames_take(&frames, bytes, cut, start_ns + 1));
        CHECK(frames.unfinished_ns == start_ns + 1, "cut after %zu bytes", cut);
        CHECK(frames.in_block == (cut >= TD_H2_HEAD_BYTES), "cut after %zu bytes", cut);
        assert_true(td_h2_frames_take(&frames, bytes + cut, sizeof bytes - cut, start_ns + 2));
        CHECK(frames.unfinished_ns == 0 && !frames.in_block, "cut after %zu bytes", cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_that_bring_nothing_use_the_credit_up),
        cmocka_unit_test(requests_and_bodies_cost_nothing),
        cmocka_unit_test(time_and_answers_add_credit),
        cmocka_unit_test(resets_use_a_credit_of_their_own_up),
        cmocka_unit_test(unfinished_frames_are_noticed_wherever_they_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
