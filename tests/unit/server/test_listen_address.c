#include "server/config/listen_address.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>

/* NULL as the address: refused. */
static void addresses_and_ports(void **state)
{
    (void)state;
    static const struct {
        const char *listen, *address, *port;
    } rows[] = {
        {"127.0.0.1:8080", "127.0.0.1", "8080"},
        {"[::1]:0", "::1", "0"},
        {"::1:80", "::1", "80"},
        {":65535", "", "65535"},
        {"[]:1", "", "1"},
        {"some.host:080", "some.host", "080"},
        {"", NULL, NULL},
        {":", NULL, NULL},
        {"127.0.0.1", NULL, NULL},
        {"127.0.0.1:", NULL, NULL},
        {"[::1]", NULL, NULL},
        {":65536", NULL, NULL},
        {":-1", NULL, NULL},
        {":http", NULL, NULL},
        {":80 ", NULL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char address[TD_LISTEN_ADDRESS_BYTES];
        const char *port = NULL;
        bool ok = td_listen_address_split(rows[i].listen, address, sizeof address, &port);
        CHECK(ok == (rows[i].address != NULL), "%s", rows[i].listen);
        CHECK(td_listen_address_is_valid(rows[i].listen) == ok, "%s", rows[i].listen);
        CHECK(!ok || strcmp(address, rows[i].address) == 0, "%s: %s", rows[i].listen, address);
        CHECK(!ok || strcmp(port, rows[i].port) == 0, "%s: %s", rows[i].listen, port);
    }
}

static void an_address_has_to_fit(void **state)
{
    (void)state;
    char address[4];
    const char *port;
    assert_true(td_listen_address_split("abc:1", address, sizeof address, &port));
    assert_string_equal(address, "abc");
    assert_true(td_listen_address_split("[abc]:1", address, sizeof address, &port));
    assert_false(td_listen_address_split("abcd:1", address, sizeof address, &port));
}

/* RFC 1122 section 3.2.1.3 and RFC 4291 sections 2.5.3 and 2.5.5.2. */
static void loopback_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_loopback;
    } rows[] = {
        {"::1", true},         {"::ffff:127.0.0.1", true},  {"::ffff:127.255.0.9", true}, {"::", false},
        {"::2", false},        {"::ffff:128.0.0.1", false}, {"::ffff:0.0.0.0", false},    {"::127.0.0.1", false},
        {"2001:db8::1", false}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct in6_addr address;
        assert_int_equal(inet_pton(AF_INET6, rows[i].text, &address), 1);
        CHECK(td_address_is_loopback(&address) == rows[i].is_loopback, "%s", rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_and_ports),
        cmocka_unit_test(an_address_has_to_fit),
        cmocka_unit_test(loopback_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
