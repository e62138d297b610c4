/* Tests of the limits on the memory of request bodies: for all together, and half of it for one address. */
#include "server/net/uploads.h"

#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>

enum { LONGEST = 8 << 20, BODIES = 24 };

static struct in6_addr address_of(const char *text)
{
    struct in6_addr address;
    assert_int_equal(inet_pton(AF_INET6, text, &address), 1);
    return address;
}

/* An address may have four of the longest bodies; the next one is too much, from its first unit on, and what other
 * addresses send fits until all have eight. */
static void an_address_has_half(void **state)
{
    (void)state;
    struct td_uploads uploads;
    struct td_error err = TD_ERROR_INIT;
    struct td_upload bodies[BODIES] = {0};
    struct in6_addr one = address_of("::ffff:192.0.2.1"), two = address_of("::ffff:192.0.2.2");
    assert_true(td_uploads_init(&uploads, LONGEST, 16, &err));
    for (int i = 0; i < 4; i++)
        for (int part = 0; part < 64; part++)
            assert_int_equal(td_uploads_add(&uploads, &one, &bodies[i], LONGEST / 64), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_add(&uploads, &one, &bodies[4], 60 << 10), TD_UPLOAD_FITS); /* less than a unit */
    assert_int_equal(td_uploads_add(&uploads, &one, &bodies[4], LONGEST - (60 << 10)), TD_UPLOAD_NO_SHARE);
    td_uploads_remove(&uploads, &one, &bodies[4]);
    for (int i = 4; i < 8; i++)
        assert_int_equal(td_uploads_add(&uploads, &two, &bodies[i], LONGEST), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_add(&uploads, &one, &bodies[8], 1), TD_UPLOAD_NO_MEMORY);
    for (int i = 0; i < BODIES; i++)
        td_uploads_remove(&uploads, i < 4 || i > 7 ? &one : &two, &bodies[i]);
    assert_true(atomic_load(&uploads.bytes) == 0 && uploads.units.used == 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(td_uploads_add(&uploads, &one, &bodies[i], LONGEST), TD_UPLOAD_FITS);
    for (int i = 0; i < 4; i++)
        td_uploads_remove(&uploads, &one, &bodies[i]);
    td_uploads_fini(&uploads);
}

/* A refused body is subtracted whole, both from its address and from the sum: an address that continues to send does
 * not use the half of the others. */
/* shows: security.md client-bodies */
static void what_is_refused_does_not_count(void **state)
{
    (void)state;
    struct td_uploads uploads;
    struct td_error err = TD_ERROR_INIT;
    struct td_upload bodies[BODIES] = {0};
    struct in6_addr one = address_of("::ffff:192.0.2.1"), two = address_of("::ffff:192.0.2.2");
    assert_true(td_uploads_init(&uploads, LONGEST, 16, &err));
    for (int i = 0; i < 4; i++)
        assert_int_equal(td_uploads_add(&uploads, &one, &bodies[i], LONGEST), TD_UPLOAD_FITS);
    for (int i = 8; i < BODIES; i++) {
        assert_int_equal(td_uploads_add(&uploads, &one, &bodies[i], 1 << 10), TD_UPLOAD_FITS);
        assert_int_equal(td_uploads_add(&uploads, &one, &bodies[i], LONGEST - (1 << 10)), TD_UPLOAD_NO_SHARE);
        assert_true(bodies[i].bytes == 0 && bodies[i].units == 0);
    }
    assert_true(atomic_load(&uploads.bytes) == 4 * LONGEST);
    for (int i = 4; i < 8; i++)
        assert_int_equal(td_uploads_add(&uploads, &two, &bodies[i], LONGEST), TD_UPLOAD_FITS);
    for (int i = 8; i < BODIES; i++)
        assert_int_equal(td_uploads_add(&uploads, &two, &bodies[i], 1 << 10), TD_UPLOAD_NO_MEMORY);
    assert_true(atomic_load(&uploads.bytes) == 8 * LONGEST);
    td_uploads_remove(&uploads, &two, &bodies[7]);
    assert_int_equal(td_uploads_add(&uploads, &two, &bodies[8], LONGEST), TD_UPLOAD_FITS);
    for (int i = 0; i < 9; i++)
        td_uploads_remove(&uploads, i < 4 ? &one : &two, &bodies[i]);
    assert_true(atomic_load(&uploads.bytes) == 0 && uploads.units.used == 0);
    td_uploads_fini(&uploads);
}

/* A body that came without a length and passes the longest one is subtracted whole. */
static void a_body_may_be_too_long(void **state)
{
    (void)state;
    struct td_uploads uploads;
    struct td_error err = TD_ERROR_INIT;
    struct td_upload body = {0}, other = {0};
    struct in6_addr one = address_of("::1");
    assert_true(td_uploads_init(&uploads, LONGEST, 16, &err));
    assert_int_equal(td_uploads_add(&uploads, &one, &other, 100), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_add(&uploads, &one, &body, LONGEST - 1), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_add(&uploads, &one, &body, 1), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_add(&uploads, &one, &body, 1), TD_UPLOAD_TOO_LONG);
    assert_true(body.bytes == 0 && body.units == 0 && atomic_load(&uploads.bytes) == 100);
    assert_int_equal(td_uploads_add(&uploads, &one, &body, UINT64_MAX), TD_UPLOAD_TOO_LONG);
    td_uploads_remove(&uploads, &one, &other);
    assert_true(uploads.units.used == 0);
    td_uploads_fini(&uploads);
}

/* When memory is short, a body is not counted for its address. It still counts in the sum of all bodies, and is
 * subtracted whole. */
static void without_memory_all_are_counted(void **state)
{
    (void)state;
    struct td_uploads uploads;
    struct td_error err = TD_ERROR_INIT;
    struct td_upload bodies[9] = {0};
    struct in6_addr one = address_of("::1");
    assert_true(td_uploads_init(&uploads, LONGEST, 16, &err));
    for (int i = 0; i < 9; i++) {
        alloc_fail_at(1);
        enum td_upload_verdict verdict = td_uploads_add(&uploads, &one, &bodies[i], LONGEST);
        alloc_fail_at(0);
        assert_int_equal(verdict, i < 8 ? TD_UPLOAD_FITS : TD_UPLOAD_NO_MEMORY);
        assert_int_equal(bodies[i].units, 0);
    }
    for (int i = 0; i < 9; i++)
        td_uploads_remove(&uploads, &one, &bodies[i]);
    assert_true(atomic_load(&uploads.bytes) == 0);
    td_uploads_fini(&uploads);
}

/* Uploads to sinks: half of all connections, and half of these for one address; at least one each. */
static void sinks_have_half_of_the_connections(void **state)
{
    (void)state;
    struct td_uploads uploads;
    struct td_error err = TD_ERROR_INIT;
    struct in6_addr one = address_of("::ffff:192.0.2.1"), two = address_of("::ffff:192.0.2.2");
    struct in6_addr three = address_of("::3");
    assert_true(td_uploads_init(&uploads, LONGEST, 16, &err));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(td_uploads_enter(&uploads, &one), TD_UPLOAD_FITS);
        assert_int_equal(td_uploads_enter(&uploads, &two), TD_UPLOAD_FITS);
    }
    assert_int_equal(td_uploads_enter(&uploads, &one), TD_UPLOAD_NO_SHARE);
    assert_int_equal(td_uploads_enter(&uploads, &three), TD_UPLOAD_NO_MEMORY);
    td_uploads_leave(&uploads, &one);
    assert_int_equal(td_uploads_enter(&uploads, &three), TD_UPLOAD_FITS);
    td_uploads_leave(&uploads, &three);
    for (int i = 0; i < 4; i++)
        td_uploads_leave(&uploads, i < 3 ? &one : &two);
    for (int i = 0; i < 3; i++)
        td_uploads_leave(&uploads, &two);
    assert_true(uploads.sinks == 0 && uploads.sinks_of.used == 0);
    td_uploads_fini(&uploads);
    assert_true(td_uploads_init(&uploads, LONGEST, 1, &err));
    assert_int_equal(td_uploads_enter(&uploads, &one), TD_UPLOAD_FITS);
    assert_int_equal(td_uploads_enter(&uploads, &two), TD_UPLOAD_NO_MEMORY);
    td_uploads_leave(&uploads, &one);
    td_uploads_fini(&uploads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_half),
        cmocka_unit_test(what_is_refused_does_not_count),
        cmocka_unit_test(a_body_may_be_too_long),
        cmocka_unit_test(without_memory_all_are_counted),
        cmocka_unit_test(sinks_have_half_of_the_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
