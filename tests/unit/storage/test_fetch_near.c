
#include "storage/fetch/fetch_guard.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>

static struct in6_addr read_address(const char *text)
{
    struct in6_addr address;
    uint8_t ipv4[4];
    if (inet_pton(AF_INET, text, ipv4) == 1)
        td_fetch_map_ipv4(ipv4, &address);
    else
        assert_int_equal(inet_pton(AF_INET6, text, &address), 1);
    return address;
}

/* The networks of a host, as its interfaces state them. */
static const struct {
    const char *address;
    unsigned prefix_bits;
} interfaces[] = {
    {"127.0.0.1", 96 + 8}, {"203.0.113.70", 96 + 26}, {"198.51.100.9", 128},
    {"2001:db8:7::5", 64}, {"2001:db8:9::1", 128},    {"192.0.2.1", 0}, /* a mask of 0 bits */
};

static const struct {
    const char *address, *first;
    enum td_fetch_near near;
} cases[] = {
    {"203.0.113.70", "198.51.100.1", TD_FETCH_OWN},
    {"203.0.113.64", "198.51.100.1", TD_FETCH_CONNECTED},
    {"203.0.113.127", "198.51.100.1", TD_FETCH_CONNECTED},
    {"203.0.113.63", "198.51.100.1", TD_FETCH_FAR},
    {"203.0.113.128", "198.51.100.1", TD_FETCH_FAR},
    {"203.0.113.127", "203.0.113.64", TD_FETCH_FAR}, /* from within the network */
    {"203.0.113.70", "203.0.113.64", TD_FETCH_OWN},
    {"203.0.113.70", "203.0.113.70", TD_FETCH_FAR}, /* where the first request went */
    {"203.0.113.70", NULL, TD_FETCH_OWN},
    {"203.0.113.71", NULL, TD_FETCH_CONNECTED},
    {"198.51.100.9", "203.0.113.70", TD_FETCH_OWN},
    {"198.51.100.8", "203.0.113.70", TD_FETCH_FAR},
    {"192.0.2.1", "203.0.113.70", TD_FETCH_OWN},
    {"192.0.2.2", "203.0.113.70", TD_FETCH_FAR},
    {"127.0.0.9", "8.8.8.8", TD_FETCH_CONNECTED},
    {"2001:db8:7::5", "8.8.8.8", TD_FETCH_OWN},
    {"2001:db8:7:0:ffff::1", "8.8.8.8", TD_FETCH_CONNECTED},
    {"2001:db8:7:1::5", "8.8.8.8", TD_FETCH_FAR},
    {"2001:db8:7::6", "2001:db8:7::7", TD_FETCH_FAR},
    {"2001:db8:9::1", "2001:db8:7::7", TD_FETCH_OWN},
    {"2001:db8:9::2", "2001:db8:7::7", TD_FETCH_FAR},
    {"::ffff:203.0.113.70", "8.8.8.8", TD_FETCH_OWN},
};

/* shows: security.md pull-near-redirects */
static void own_and_connected(void **state)
{
    struct td_fetch_network networks[COUNT_OF(interfaces)];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(interfaces); i++)
        networks[i] = (struct td_fetch_network){.address = read_address(interfaces[i].address),
                                                .prefix_bits = interfaces[i].prefix_bits};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct in6_addr address = read_address(cases[i].address);
        struct in6_addr first;
        if (cases[i].first != NULL)
            first = read_address(cases[i].first);
        enum td_fetch_near near =
            td_fetch_near_of(&address, cases[i].first == NULL ? NULL : &first, networks, COUNT_OF(networks));
        CHECK(near == cases[i].near, "%s after %s: %d", cases[i].address, cases[i].first == NULL ? "-" : cases[i].first,
              (int)near);
    }
}

/* Every host has a loopback address; no host has one of RFC 6666. */
static void of_this_host(void **state)
{
    static const struct {
        const char *address;
        enum td_fetch_near near;
    } here[] = {
        {"127.0.0.1", TD_FETCH_OWN},      {"::ffff:127.0.0.1", TD_FETCH_OWN}, {"64:ff9b::127.0.0.1", TD_FETCH_OWN},
        {"2002:7f00:1::9", TD_FETCH_OWN}, {"127.8.8.8", TD_FETCH_CONNECTED},  {"100::1", TD_FETCH_FAR},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(here); i++) {
        struct in6_addr address = read_address(here[i].address);
        enum td_fetch_near near;
        struct in6_addr ipv4;
        bool has_ipv4 = td_fetch_ipv4_within(&address, &ipv4);
        assert_true(td_fetch_near_look(&address, has_ipv4 ? &ipv4 : NULL, NULL, &near));
        CHECK(near == here[i].near, "%s: %d", here[i].address, (int)near);
    }
}

static void ipv4_addresses_within(void **state)
{
    static const struct {
        const char *address, *within; /* NULL: none */
    } forms[] = {
        {"::ffff:192.0.2.1", "192.0.2.1"},
        {"::192.0.2.1", "192.0.2.1"},
        {"64:ff9b::192.0.2.1", "192.0.2.1"},
        {"2002:c000:201::5", "192.0.2.1"},
        {"64:ff9b:1::192.0.2.1", NULL},
        {"2001:db8::192.0.2.1", NULL},
        {"::1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct in6_addr address = read_address(forms[i].address);
        struct in6_addr within;
        bool has_within = td_fetch_ipv4_within(&address, &within);
        CHECK(has_within == (forms[i].within != NULL), "%s", forms[i].address);
        if (has_within) {
            struct in6_addr want = read_address(forms[i].within);
            assert_memory_equal(&within, &want, sizeof within);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_and_connected),
        cmocka_unit_test(of_this_host),
        cmocka_unit_test(ipv4_addresses_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
