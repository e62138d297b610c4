#include "server/net/sent_sockets.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOCKETS = 65536 };
static _Atomic(const struct td_sent *) bodies[SOCKETS];
static _Atomic(const struct td_sent_shutdown *) shutdowns[SOCKETS];

static bool has_entry(int socket)
{
    return socket >= 0 && socket < SOCKETS;
}

bool td_sent_begin(int socket, const struct td_sent *body)
{
    if (!has_entry(socket))
        return false;
    atomic_store_explicit(&bodies[socket], body, memory_order_relaxed);
    return true;
}

void td_sent_end(int socket)
{
    if (has_entry(socket))
        atomic_store_explicit(&bodies[socket], NULL, memory_order_relaxed);
}

const struct td_sent *td_sent_of(int socket)
{
    return has_entry(socket) ? atomic_load_explicit(&bodies[socket], memory_order_relaxed) : NULL;
}

bool td_sent_watch(int socket, const struct td_sent_shutdown *shutdown)
{
    if (!has_entry(socket))
        return false;
    atomic_store(&shutdowns[socket], shutdown);
    return true;
}

void td_sent_unwatch(int socket)
{
    if (has_entry(socket))
        atomic_store(&shutdowns[socket], NULL);
}

int td_sent_shut_down(int socket, int how)
{
    const struct td_sent_shutdown *watch = has_entry(socket) ? atomic_load(&shutdowns[socket]) : NULL;
    if (watch == NULL || watch->before(watch->context))
        return (int)syscall(SYS_shutdown, socket, how);
    return how == SHUT_WR ? 0 : (int)syscall(SYS_shutdown, socket, SHUT_RD);
}
