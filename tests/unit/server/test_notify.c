/* The test plays systemd's side of sd_notify(3): it binds the socket and reads the datagrams. */
#include "server/host/notify.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Binds a datagram socket by the name as $NOTIFY_SOCKET has it. */
static int bind_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    memcpy(address.sun_path, name, len);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '@' ? 0 : 1));
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0, "%s: %s", name, strerror(errno));
    return fd;
}

/* Receives a datagram that was sent. Returns the empty text when no datagram has come. */
static const char *receive(int fd)
{
    static char text[2048];
    ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void check_environment_is_clear(void)
{
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
}

/* Checks all messages over a socket of this name. */
static void talk_over(const char *name)
{
    struct td_notify notify;
    int fd = bind_socket(name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    td_notify_init(&notify);
    check_environment_is_clear();
    assert_true(td_notify_is_on(&notify));
    assert_true(td_notify_ready(&notify));
    assert_string_equal(receive(fd), "READY=1");
    uint64_t before_us = td_clock_ns() / 1000, at_us;
    assert_true(td_notify_reloading(&notify));
    assert_int_equal(sscanf(receive(fd), "RELOADING=1\nMONOTONIC_USEC=%" SCNu64, &at_us), 1);
    assert_in_range(at_us, before_us, td_clock_ns() / 1000);
    td_notify_stopping(&notify);
    assert_string_equal(receive(fd), "STOPPING=1");
    td_notify_alive(&notify); /* there is no watchdog */
    assert_string_equal(receive(fd), "");
    td_notify_fini(&notify);
    assert_false(td_notify_is_on(&notify));
    assert_false(td_notify_ready(&notify));
    (void)close(fd);
}

static void each_kind_of_socket_is_told(void **state)
{
    (void)state;
    char directory[] = "/tmp/test_notify_XXXXXX", path[64], abstract[64];
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/socket", directory);
    (void)snprintf(abstract, sizeof abstract, "@%s", directory);
    talk_over(path);
    talk_over(abstract);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

/* shows: security.md log-systemd */
static void a_status_is_sent_when_it_changes(void **state)
{
    (void)state;
    struct td_notify notify;
    char name[64];
    (void)snprintf(name, sizeof name, "@test_notify-%d", (int)getpid());
    int fd = bind_socket(name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    td_notify_init(&notify);
    td_notify_status(&notify, "%d models", 3);
    assert_string_equal(receive(fd), "STATUS=3 models");
    td_notify_status(&notify, "%d models", 3);
    assert_string_equal(receive(fd), "");
    td_notify_status(&notify, "cannot open \"%s\"", "a\nREADY=1\n\xff");
    assert_string_equal(receive(fd), "STATUS=cannot open \"a\\x0aREADY=1\\x0a\\xff\"");
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    td_notify_status(&notify, "%s", text);
    assert_in_range(strlen(receive(fd)), TD_NOTIFY_STATUS_BYTES / 2, TD_NOTIFY_STATUS_BYTES);
    td_notify_fini(&notify);
    (void)close(fd);
}

/* A status, or readiness, that did not fit into the socket does not count as sent. */
static void nothing_waits_for_a_full_socket(void **state)
{
    (void)state;
    struct td_notify notify;
    char name[64];
    int sent = 0;
    (void)snprintf(name, sizeof name, "@test_notify-full-%d", (int)getpid());
    int fd = bind_socket(name);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    td_notify_init(&notify);
    while (td_notify_ready(&notify) && sent < 100000)
        sent++;
    assert_in_range(sent, 1, 99999);
    td_notify_status(&notify, "late");
    while (receive(fd)[0] != '\0')
        sent--;
    assert_int_equal(sent, 0);
    td_notify_status(&notify, "late");
    assert_string_equal(receive(fd), "STATUS=late");
    (void)close(fd);
    assert_false(td_notify_ready(&notify)); /* systemd has gone */
    td_notify_fini(&notify);
}

static void set_watchdog(const char *usec, const char *pid)
{
    assert_int_equal(usec == NULL ? unsetenv("WATCHDOG_USEC") : setenv("WATCHDOG_USEC", usec, 1), 0);
    assert_int_equal(pid == NULL ? unsetenv("WATCHDOG_PID") : setenv("WATCHDOG_PID", pid, 1), 0);
}

static void the_watchdog_hears_from_the_loop(void **state)
{
    (void)state;
    struct td_notify notify;
    char name[64], own[32];
    (void)snprintf(name, sizeof name, "@test_notify-dog-%d", (int)getpid());
    (void)snprintf(own, sizeof own, "%d", (int)getpid());
    int fd = bind_socket(name);
    const struct {
        const char *usec, *pid;
        uint64_t wanted_ns;
    } cases[] = {
        {"30000000", own, UINT64_C(30000000000)},
        {"30000000", NULL, UINT64_C(30000000000)},
        {"30000000", "1", 0}, /* another process is watched */
        {"30000000", "x", 0},
        {NULL, own, 0},
        {"", own, 0},
        {"-1", own, 0},
        {"0", own, 0},
        {"18446744073709551615", own, 0},
        {"60000", own, 60000000},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
        set_watchdog(cases[i].usec, cases[i].pid);
        td_notify_init(&notify);
        check_environment_is_clear();
        CHECK(notify.watchdog_ns == cases[i].wanted_ns, "%zu: %" PRIu64, i, notify.watchdog_ns);
        td_notify_alive(&notify);
        assert_string_equal(receive(fd), cases[i].wanted_ns > 0 ? "WATCHDOG=1" : "");
        if (cases[i].wanted_ns > UINT64_C(1000000000)) {
            td_notify_alive(&notify); /* too early */
            assert_string_equal(receive(fd), "");
        }
        if (i + 1 < COUNT_OF(cases))
            td_notify_fini(&notify);
    }
    nap_ms(20);
    td_notify_alive(&notify);
    assert_string_equal(receive(fd), "WATCHDOG=1");
    td_notify_fini(&notify);
    (void)close(fd);
}

static void other_names_are_refused(void **state)
{
    (void)state;
    char too_long[200] = "/";
    memset(too_long + 1, 'x', sizeof too_long - 2);
    const char *const names[] = {NULL, "", "/", "@", "relative", "vsock:2:1234", too_long};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_notify notify;
        if (names[i] != NULL)
            assert_int_equal(setenv("NOTIFY_SOCKET", names[i], 1), 0);
        td_notify_init(&notify);
        CHECK(!td_notify_is_on(&notify), "%zu", i);
        check_environment_is_clear();
        assert_false(td_notify_ready(&notify));
        td_notify_status(&notify, "nobody hears");
        td_notify_alive(&notify);
        td_notify_fini(&notify);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_socket_is_told),     cmocka_unit_test(a_status_is_sent_when_it_changes),
        cmocka_unit_test(nothing_waits_for_a_full_socket), cmocka_unit_test(the_watchdog_hears_from_the_loop),
        cmocka_unit_test(other_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
