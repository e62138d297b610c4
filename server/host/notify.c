#include "server/host/notify.h"

#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/text.h"
#include "core/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the variable's value, or NULL. */
static const char *variable_value(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
}

/* Sets the address of the socket. Returns false for a name that is too long or not that of a UNIX socket. */
static bool read_address(struct td_notify *notify, const char *name)
{
    size_t len = strlen(name);
    char *path = notify->address.sun_path;
    if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof notify->address.sun_path)
        return false;
    notify->address.sun_family = AF_UNIX;
    memcpy(path, name, len);
    if (name[0] == '@')
        path[0] = '\0';
    notify->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/' ? 1 : 0));
    return true;
}

/* Returns the watchdog's time in ns; 0 if no watchdog is set, or it watches another process. */
static uint64_t read_watchdog(void)
{
    const char *usec = variable_value("WATCHDOG_USEC");
    const char *pid = variable_value("WATCHDOG_PID");
    uint64_t time_us, watched;
    if (usec == NULL || !td_number_read(td_text_of(usec), UINT64_MAX / 1000, &time_us))
        return 0;
    if (pid != NULL && (!td_number_read(td_text_of(pid), UINT64_MAX, &watched) || watched != (uint64_t)getpid()))
        return 0;
    return time_us * 1000;
}

void td_notify_init(struct td_notify *notify)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
    const char *name = variable_value(names[0]);
    memset(notify, 0, sizeof *notify);
    notify->fd = -1;
    notify->watchdog_ns = read_watchdog();
    if (name != NULL && name[0] != '\0') {
        if (read_address(notify, name))
            notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (notify->fd < 0)
            td_log(TD_LOG_WARN,
                   "nothing is sent to systemd: NOTIFY_SOCKET=\"%s\" names no UNIX socket that can be used", name);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unsetenv(names[i]); // NOLINT(concurrency-mt-unsafe): before any thread starts
}

void td_notify_fini(struct td_notify *notify)
{
    if (notify->fd >= 0)
        (void)close(notify->fd);
    notify->fd = -1;
}

bool td_notify_is_on(const struct td_notify *notify)
{
    return notify->fd >= 0;
}

static bool send_text(const struct td_notify *notify, const char *text)
{
    size_t len = strlen(text);
    return notify->fd >= 0 && sendto(notify->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL,
                                     (const struct sockaddr *)&notify->address, notify->address_len) == (ssize_t)len;
}

bool td_notify_ready(struct td_notify *notify)
{
    return send_text(notify, "READY=1");
}

bool td_notify_reloading(struct td_notify *notify)
{
    char text[64];
    (void)snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, td_clock_ns() / 1000);
    return send_text(notify, text);
}

void td_notify_stopping(struct td_notify *notify)
{
    (void)send_text(notify, "STOPPING=1");
}

void td_notify_status(struct td_notify *notify, const char *format, ...)
{
    char message[TD_NOTIFY_STATUS_BYTES];
    char text[TD_NOTIFY_STATUS_BYTES] = "STATUS=";
    va_list args;
    if (!td_notify_is_on(notify))
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t len = strlen(text);
    td_utf8_escape(td_text_of(message), text + len, sizeof text - len);
    if (strcmp(text, notify->status) != 0 && send_text(notify, text))
        memcpy(notify->status, text, sizeof text);
}

void td_notify_alive(struct td_notify *notify)
{
    if (notify->watchdog_ns == 0 || !td_notify_is_on(notify))
        return;
    uint64_t now_ns = td_clock_ns();
    if (now_ns >= notify->alive_ns && send_text(notify, "WATCHDOG=1"))
        notify->alive_ns = now_ns + notify->watchdog_ns / 3;
}
