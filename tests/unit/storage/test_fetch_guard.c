#include "storage/fetch/fetch_guard.h"

#include "tests/unit/unit.h"

#include <arpa/inet.h>

/* The ranges are those of IANA's registries of special-purpose addresses (RFC 6890), and of metadata services. */
static const struct {
    const char *address;
    enum td_fetch_reach reach;
} cases[] = {
    {"169.254.169.254", TD_FETCH_LINK_LOCAL},
    {"169.254.0.0", TD_FETCH_LINK_LOCAL},
    {"169.253.255.255", TD_FETCH_PUBLIC},
    {"169.255.0.0", TD_FETCH_PUBLIC},
    {"0.0.0.0", TD_FETCH_PRIVATE},
    {"10.0.0.0", TD_FETCH_PRIVATE},
    {"10.255.255.255", TD_FETCH_PRIVATE},
    {"11.0.0.0", TD_FETCH_PUBLIC},
    {"9.255.255.255", TD_FETCH_PUBLIC},
    {"127.0.0.1", TD_FETCH_PRIVATE},
    {"127.255.255.255", TD_FETCH_PRIVATE},
    {"128.0.0.0", TD_FETCH_PUBLIC},
    {"172.15.255.255", TD_FETCH_PUBLIC},
    {"172.16.0.0", TD_FETCH_PRIVATE},
    {"172.31.255.255", TD_FETCH_PRIVATE},
    {"172.32.0.0", TD_FETCH_PUBLIC},
    {"192.168.255.255", TD_FETCH_PRIVATE},
    {"192.169.0.0", TD_FETCH_PUBLIC},
    {"100.63.255.255", TD_FETCH_PUBLIC},
    {"100.64.0.0", TD_FETCH_PRIVATE},
    {"100.100.100.199", TD_FETCH_PRIVATE},
    {"100.100.100.200", TD_FETCH_METADATA},
    {"100.100.100.201", TD_FETCH_PRIVATE},
    {"168.63.129.15", TD_FETCH_PUBLIC},
    {"168.63.129.16", TD_FETCH_METADATA},
    {"168.63.129.17", TD_FETCH_PUBLIC},
    {"::ffff:168.63.129.16", TD_FETCH_METADATA},
    {"100.128.0.0", TD_FETCH_PUBLIC},
    {"192.0.0.192", TD_FETCH_PRIVATE},
    {"198.19.255.255", TD_FETCH_PRIVATE},
    {"203.0.113.1", TD_FETCH_PUBLIC},
    {"223.255.255.255", TD_FETCH_PUBLIC},
    {"224.0.0.1", TD_FETCH_PRIVATE},
    {"255.255.255.255", TD_FETCH_PRIVATE},
    {"::", TD_FETCH_PRIVATE},
    {"::1", TD_FETCH_PRIVATE},
    {"::8.8.8.8", TD_FETCH_PUBLIC},
    {"::169.254.169.254", TD_FETCH_LINK_LOCAL},
    {"::ffff:169.254.169.254", TD_FETCH_LINK_LOCAL},
    {"::ffff:127.0.0.1", TD_FETCH_PRIVATE},
    {"::ffff:8.8.8.8", TD_FETCH_PUBLIC},
    {"64:ff9b::169.254.169.254", TD_FETCH_LINK_LOCAL},
    {"64:ff9b::8.8.8.8", TD_FETCH_PUBLIC},
    {"64:ff9b:1::8.8.8.8", TD_FETCH_PRIVATE},
    {"2002:a9fe:a9fe::1", TD_FETCH_LINK_LOCAL},
    {"2002:7f00:1::1", TD_FETCH_PRIVATE},
    {"2002:808:808::1", TD_FETCH_PUBLIC},
    {"fe80::1", TD_FETCH_LINK_LOCAL},
    {"febf:ffff::1", TD_FETCH_LINK_LOCAL},
    {"fec0::1", TD_FETCH_PRIVATE},
    {"fc00::1", TD_FETCH_PRIVATE},
    {"fd00:ec2::253", TD_FETCH_PRIVATE},
    {"fd00:ec2::254", TD_FETCH_METADATA},
    {"fbff::1", TD_FETCH_PUBLIC},
    {"ff02::1", TD_FETCH_PRIVATE},
    {"2001:db8::1", TD_FETCH_PUBLIC},
    {"2a00:1450::1", TD_FETCH_PUBLIC},
};

/* shows: security.md pull-near-redirects */
static void addresses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t bytes[16];
        bool is_ipv4 = strchr(cases[i].address, ':') == NULL;
        assert_int_equal(inet_pton(is_ipv4 ? AF_INET : AF_INET6, cases[i].address, bytes), 1);
        enum td_fetch_reach reach = is_ipv4 ? td_fetch_reach_of_ipv4(bytes) : td_fetch_reach_of_ipv6(bytes);
        CHECK(reach == cases[i].reach, "%s: %d", cases[i].address, (int)reach);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
