#include "server/h2/h2_server.h"

#include "core/clock.h"
#include "server/h2/h2_connection.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST_LOOPS = 4, CHECK_MS = 200 };

struct loop {
    struct td_h2_owner owner;
    struct td_h2_mailbox mailbox;
    pthread_t thread;
    _Atomic bool stop;
    bool has_mailbox, has_thread;
};

struct td_h2_server {
    struct td_serving *serving;
    struct loop loops[MOST_LOOPS];
    size_t loop_count;
    _Atomic size_t next_loop; /* for the next connection; counts on */
};

const char *td_h2_server_library(void)
{
    return nghttp2_version(0)->version_str;
}

/* Checks all connections, or ends them when the loop is to stop. */
static void check_all(struct loop *loop, bool stops)
{
    struct td_registry *registry = loop->owner.serving->registry;
    const struct td_h2_round round = {.limits = td_registry_deadlines(registry),
                                      .now_ns = td_clock_ns(),
                                      .is_draining = atomic_load(&registry->draining)};
    for (struct td_h2_connection *connection = loop->owner.first, *next; connection != NULL; connection = next) {
        next = td_h2_connection_next(connection);
        if (stops)
            td_h2_connection_end(connection);
        else
            td_h2_connection_check(connection, &round);
    }
}

static void *loop_main(void *argument)
{
    enum { EVENTS = 64 };
    struct loop *loop = argument;
    struct epoll_event events[EVENTS];
    uint64_t checked_ns = 0;
    for (;;) {
        const bool stops = atomic_load(&loop->stop);
        if (stops)
            td_h2_mailbox_receive(&loop->mailbox); /* a connection may have come that was not begun with */
        if (stops && loop->owner.first == NULL)
            return NULL;
        const int count = epoll_wait(loop->owner.epoll_fd, events, EVENTS, loop->owner.first != NULL ? CHECK_MS : -1);
        if (count < 0 && errno != EINTR)
            return NULL;
        td_h2_owner_handle(&loop->owner, events, count);
        const uint64_t now_ns = td_clock_ns();
        if (!stops && !atomic_load(&loop->stop) && now_ns - checked_ns < (uint64_t)CHECK_MS * 1000000)
            continue;
        checked_ns = now_ns;
        check_all(loop, atomic_load(&loop->stop));
    }
}

/* Starts a loop. What it has made by a failure is freed by stop_loop. */
static bool start_loop(struct loop *loop, struct td_serving *serving, struct td_error *err)
{
    struct epoll_event mail = {.events = EPOLLIN, .data.ptr = NULL};
    loop->owner =
        (struct td_h2_owner){.serving = serving, .mailbox = &loop->mailbox, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    if (loop->owner.epoll_fd < 0)
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, errno, "cannot make an epoll instance");
    loop->has_mailbox = td_h2_mailbox_init(&loop->mailbox, err);
    if (!loop->has_mailbox)
        return false;
    int sys = 0;
    if (epoll_ctl(loop->owner.epoll_fd, EPOLL_CTL_ADD, loop->mailbox.wake_fd, &mail) != 0)
        sys = errno;
    if (sys == 0)
        sys = pthread_create(&loop->thread, NULL, loop_main, loop);
    loop->has_thread = sys == 0;
    return sys == 0 || td_error_sys(err, TD_RESOURCE_EXHAUSTED, sys, "cannot start a thread for HTTP/2");
}

/* Ends the loop's connections and its thread. */
static void stop_loop(struct loop *loop)
{
    if (loop->has_thread) {
        atomic_store(&loop->stop, true);
        td_h2_mailbox_wake(&loop->mailbox);
        (void)pthread_join(loop->thread, NULL);
    }
    if (loop->has_mailbox)
        td_h2_mailbox_fini(&loop->mailbox);
    if (loop->owner.epoll_fd >= 0)
        (void)close(loop->owner.epoll_fd);
}

bool td_h2_server_create(struct td_serving *serving, struct td_h2_server **out, struct td_error *err)
{
    struct td_h2_server *server = calloc(1, sizeof *server);
    const uint64_t workers = serving->config->workers;
    const size_t count = workers < 1 ? 1 : workers < MOST_LOOPS ? (size_t)workers : MOST_LOOPS;
    if (server == NULL)
        return td_error_no_memory(err);
    server->serving = serving;
    while (server->loop_count < count)
        if (!start_loop(&server->loops[server->loop_count++], serving, err)) {
            td_h2_server_destroy(server);
            return false;
        }
    *out = server;
    return true;
}

void td_h2_server_destroy(struct td_h2_server *server)
{
    if (server == NULL)
        return;
    atomic_store(&server->serving->api->draining, true); /* so that no request waits for a change any more */
    td_serving_retry_waits(server->serving);
    for (size_t i = 0; i < server->loop_count; i++)
        stop_loop(&server->loops[i]);
    free(server);
}

bool td_h2_server_take(struct td_h2_server *server, struct td_connection *connection)
{
    struct loop *loop = &server->loops[atomic_fetch_add(&server->next_loop, 1) % server->loop_count];
    const int fd = connection->fd;
    struct td_h2_connection *taken = td_h2_connection_create(&loop->owner, connection);
    if (taken == NULL)
        (void)close(fd);
    else
        td_h2_mailbox_post(&loop->mailbox, td_h2_connection_mail(taken));
    return taken != NULL;
}
