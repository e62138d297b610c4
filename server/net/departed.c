#include "server/net/departed.h"

#include "core/clock.h"
#include "server/net/socket_facts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

bool td_departed_add(struct td_departed_list *list, struct td_departed *departed, struct td_blob *blob, int fd)
{
    departed->fd = -1;
    bool is_unacknowledged = td_socket_unacknowledged_bytes(fd) > 0;
    if (is_unacknowledged || departed->is_open)
        departed->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (departed->fd < 0 && is_unacknowledged)
        return false;
    departed->is_open = departed->is_open && departed->fd >= 0;
    departed->blob = blob;
    departed->known_ns = td_clock_ns();
    departed->next = list->first;
    list->first = departed;
    atomic_fetch_add(&list->count, 1);
    return true;
}

/* Closes the duplicate descriptor of the connection, which is no longer needed. */
static void let_go(struct td_departed *departed)
{
    if (departed->fd >= 0)
        (void)close(departed->fd);
    departed->fd = -1;
}

/* Sets known_ns if the client has acknowledged further bytes. */
static void note_progress(struct td_departed *departed, uint64_t now_ns)
{
    uint64_t bytes = td_socket_acknowledged_bytes(departed->fd);
    if (bytes != departed->acknowledged_bytes)
        departed->known_ns = now_ns;
    departed->acknowledged_bytes = bytes;
}

/* Returns whether the answer no longer needs its blob, since it is proved to be read or is too old. */
static bool is_over(struct td_departed *departed, struct td_delivery *delivery)
{
    enum td_delivery_state state;
    uint64_t now_ns = td_clock_ns();
    if (departed->is_open && td_socket_facts_of(departed->fd).is_closed) /* reset */
        return true;
    if (td_delivery_is_proved(delivery, departed->fd, &departed->ends, &departed->arrived_ns, &state))
        return true;
    bool is_acknowledged = departed->fd < 0 || td_socket_unacknowledged_bytes(departed->fd) == 0;
    if (is_acknowledged && !departed->is_open)
        let_go(departed);
    if (!is_acknowledged)
        note_progress(departed, now_ns);
    if (is_acknowledged && state != TD_DELIVERY_UNKNOWN)
        departed->known_ns = now_ns;
    if (now_ns - departed->known_ns < TD_DEPARTED_NS)
        return false;
    if (!is_acknowledged)
        td_socket_reset_at_close(departed->fd);
    return true;
}

/* Moves the answer at *at from the list to *taken. */
static void move_departed(struct td_departed_list *list, struct td_departed **at, struct td_departed **taken)
{
    struct td_departed *departed = *at;
    *at = departed->next;
    departed->next = *taken;
    *taken = departed;
    atomic_fetch_sub(&list->count, 1);
}

struct td_departed *td_departed_take_read(struct td_departed_list *list, struct td_delivery *delivery,
                                          const struct td_blob *blob)
{
    struct td_departed *taken = NULL;
    struct td_departed **at = &list->first;
    while (*at != NULL)
        if ((blob == NULL || (*at)->blob == blob) && is_over(*at, delivery))
            move_departed(list, at, &taken);
        else
            at = &(*at)->next;
    return taken;
}

struct td_departed *td_departed_take_unacknowledged(struct td_departed_list *list, const struct td_blob *blob)
{
    struct td_departed *taken = NULL;
    struct td_departed **at = &list->first;
    while (*at != NULL) {
        struct td_departed *departed = *at;
        if ((blob == NULL || departed->blob == blob) && departed->fd >= 0 &&
            td_socket_unacknowledged_bytes(departed->fd) > 0) {
            td_socket_reset_at_close(departed->fd);
            move_departed(list, at, &taken);
        } else {
            at = &departed->next;
        }
    }
    return taken;
}

size_t td_departed_count(const struct td_departed_list *list, const struct td_blob *blob)
{
    size_t count = 0;
    for (const struct td_departed *departed = list->first; departed != NULL; departed = departed->next)
        count += departed->blob == blob ? 1 : 0;
    return count;
}

void td_departed_free(struct td_departed *taken)
{
    while (taken != NULL) {
        struct td_departed *next = taken->next;
        let_go(taken);
        td_blob_unref(taken->blob);
        free(taken);
        taken = next;
    }
}
