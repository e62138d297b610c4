/* The reference on an unread answer's blob goes from thread to thread by exchanging one pointer: the connection's own
 * thread drops it when the next request begins, the thread that breaks leases when it finds the client's queue empty.
 * After both sides of a connection have shut down, the kernel no longer shows what the client has read. So this side
 * looks before it shuts down (look_before_shutdown), and waits until the answer is read (struct td_departed). */
#include "server/net/read_proof.h"

#include "core/clock.h"
#include "server/net/tcp_socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- departed answers ---------------------------------------------------------------------------------- */

/* Adds the answer of a connection that is about to be closed. The caller has set ends, is_open and arrived_ns. Takes
 * over *departed and the reference on the blob. Returns false, with nothing added, when bytes are unacknowledged and
 * the process has no free descriptor to watch the connection. */
static bool add_departed(struct td_read_proofs *proofs, struct td_departed *departed, struct td_blob *blob, int fd)
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
    departed->next = proofs->departed;
    proofs->departed = departed;
    atomic_fetch_add(&proofs->departed_count, 1);
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
    uint64_t bytes = td_socket_facts_of(departed->fd).acknowledged_bytes;
    if (bytes != departed->acknowledged_bytes)
        departed->known_ns = now_ns;
    departed->acknowledged_bytes = bytes;
}

/* Returns whether the answer no longer needs its blob, since it is proved to be read or is too old. */
static bool is_over(struct td_read_proofs *proofs, struct td_departed *departed)
{
    enum td_delivery_state state;
    uint64_t now_ns = td_clock_ns();
    if (departed->is_open && td_socket_facts_of(departed->fd).is_closed) /* reset */
        return true;
    if (td_delivery_is_proved(&proofs->delivery, departed->fd, &departed->ends, &departed->arrived_ns, &state))
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

/* Makes the closing of the connection a reset if the answer has unacknowledged bytes; returns whether it has. For
 * take_departed, which hands over the list's state, too. */
static bool reset_unacknowledged(struct td_read_proofs *proofs, struct td_departed *departed)
{
    (void)proofs;
    if (departed->fd < 0 || td_socket_unacknowledged_bytes(departed->fd) == 0)
        return false;
    td_socket_reset_at_close(departed->fd);
    return true;
}

/* Removes the answers from this blob (NULL: from any) for which `is_due` returns true, and returns them. */
static struct td_departed *take_departed(struct td_read_proofs *proofs, const struct td_blob *blob,
                                         bool (*is_due)(struct td_read_proofs *proofs, struct td_departed *departed))
{
    struct td_departed *taken = NULL;
    struct td_departed **at = &proofs->departed;
    while (*at != NULL) {
        struct td_departed *departed = *at;
        if ((blob != NULL && departed->blob != blob) || !is_due(proofs, departed)) {
            at = &departed->next;
            continue;
        }
        *at = departed->next;
        departed->next = taken;
        taken = departed;
        atomic_fetch_sub(&proofs->departed_count, 1);
    }
    return taken;
}

struct td_departed *td_read_proofs_take_read(struct td_read_proofs *proofs, const struct td_blob *blob)
{
    return take_departed(proofs, blob, is_over);
}

struct td_departed *td_read_proofs_take_unacknowledged(struct td_read_proofs *proofs, const struct td_blob *blob)
{
    return take_departed(proofs, blob, reset_unacknowledged);
}

size_t td_read_proofs_count(const struct td_read_proofs *proofs, const struct td_blob *blob)
{
    size_t count = 0;
    for (const struct td_departed *departed = proofs->departed; departed != NULL; departed = departed->next)
        count += blob == NULL || departed->blob == blob ? 1 : 0;
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

bool td_read_proofs_init(struct td_read_proofs *proofs, enum td_referring referring, struct td_error *err)
{
    *proofs = (struct td_read_proofs){.referring = referring};
    return td_delivery_init(&proofs->delivery, err);
}

void td_read_proofs_fini(struct td_read_proofs *proofs)
{
    /* The leases end with the process, so clients must not get the ends of their answers afterwards. */
    td_departed_free(td_read_proofs_take_unacknowledged(proofs, NULL));
    td_departed_free(proofs->departed);
    td_delivery_fini(&proofs->delivery);
}

/* ---- the proof of a connection ------------------------------------------------------------------------- */

void td_read_proof_init(struct td_read_proof *proof, struct td_read_proofs *shared)
{
    *proof = (struct td_read_proof){.shared = shared};
}

void td_read_proof_fini(struct td_read_proof *proof)
{
    free(proof->departed);
}

/* Returns whether the client has reset the connection; false after this side has shut down, since the kernel then does
 * not show it. */
static bool was_reset(struct td_read_proof *proof, int fd)
{
    return !atomic_load(&proof->is_shut_down) && td_socket_facts_of(fd).is_closed;
}

/* Returns whether there is proof that the client has read the connection's last answer by reference. */
static bool was_read(struct td_read_proof *proof, int fd)
{
    enum td_delivery_state state;
    uint64_t arrived_ns = atomic_load(&proof->arrived_ns);
    if (proof->departed == NULL) /* the ends are not known */
        return false;
    bool is_proved = was_reset(proof, fd) ||
                     td_delivery_is_proved(&proof->shared->delivery, fd, &proof->departed->ends, &arrived_ns, &state);
    atomic_store(&proof->arrived_ns, arrived_ns);
    return is_proved;
}

/* Looks for proof before this side shuts down. After that, the kernel does not distinguish a client that has closed its
 * socket from one that only sends no more and may have unread bytes. Returns whether this side may shut down: not while
 * the client may have unread bytes, so that the kernel continues to show them (struct td_departed). */
static bool look_before_shutdown(void *context, int fd)
{
    struct td_read_proof *proof = context;
    struct td_blob *blob = atomic_load(&proof->unread);
    if (atomic_load(&proof->is_shut_down))
        return true;
    if (blob != NULL && was_read(proof, fd)) {
        if (atomic_compare_exchange_strong(&proof->unread, &blob, NULL))
            td_blob_unref(blob);
    } else if (blob != NULL && proof->departed != NULL && proof->departed->ends.is_found &&
               !atomic_load(&proof->is_reset_at_close)) {
        return false;
    }
    atomic_store(&proof->is_shut_down, true);
    return true;
}

/* Reads the two ends of the connection and registers look_before_shutdown, once. Returns whether the ends are known. */
static bool know_ends(struct td_read_proof *proof, int fd)
{
    if (proof->departed != NULL)
        return true;
    struct td_departed *departed = calloc(1, sizeof *departed);
    proof->end = (struct td_sent_shutdown){.before = look_before_shutdown, .context = proof};
    if (departed == NULL || !td_delivery_ends(&proof->shared->delivery, fd, &departed->ends) ||
        !td_sent_watch(fd, &proof->end)) {
        free(departed);
        return false;
    }
    proof->departed = departed; /* other threads use it only while `unread` is set */
    return true;
}

bool td_read_proof_may_refer(struct td_read_proof *proof, int fd, const struct td_blob *blob)
{
    const struct td_read_proofs *shared = proof->shared;
    const struct td_blob *unread = atomic_load_explicit(&proof->unread, memory_order_relaxed);
    if (shared->referring == TD_REFERRING_NONE)
        return false;
    if (td_blob_is_fixed(blob))
        return true;
    if ((unread != NULL && unread != blob) || !shared->delivery.can_look ||
        atomic_load_explicit(&shared->departed_count, memory_order_relaxed) >= TD_DEPARTED || !know_ends(proof, fd))
        return false;
    const struct td_ends *ends = &proof->departed->ends;
    bool is_allowed = !ends->is_local || (ends->is_found && shared->referring == TD_REFERRING_ALL);
    return is_allowed && !td_socket_client_has_ended(fd);
}

void td_read_proof_expect(struct td_read_proof *proof, uint64_t received_bytes)
{
    proof->received_bytes = received_bytes;
}

/* Holds back the end of the answer, so that the client cannot send its next request before end_hold. */
static void begin_hold(struct td_read_proof *proof, int fd)
{
    int on = 1;
    proof->is_held = true;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

/* Releases the end of the answer. After an incomplete answer, the next request proves no more than before. In the first
 * answers of a connection libmicrohttpd itself has released the end earlier, so the check may mistake a quick client
 * for one that pipelines. */
static void end_hold(struct td_read_proof *proof, int fd, bool is_complete)
{
    int off = 0;
    if (is_complete)
        td_read_proof_look(proof, fd);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

void td_read_proof_begin(struct td_read_proof *proof, int fd, struct td_blob *blob, bool holds_end)
{
    if (!td_blob_is_fixed(blob))
        proof->referenced = td_blob_ref(blob);
    if (holds_end)
        begin_hold(proof, fd);
    else
        proof->proves_nothing = true; /* until td_read_proof_look finds that it does not */
}

void td_read_proof_hold(struct td_read_proof *proof, int fd)
{
    if (proof->proves_nothing && atomic_load_explicit(&proof->unread, memory_order_relaxed) != NULL)
        begin_hold(proof, fd);
}

void td_read_proof_look(struct td_read_proof *proof, int fd)
{
    struct td_socket_facts facts = td_socket_facts_of(fd);
    proof->proves_nothing = !facts.is_established || facts.received_bytes != proof->received_bytes;
}

bool td_read_proof_end(struct td_read_proof *proof, int fd, bool is_complete, struct td_blob **dropped)
{
    struct td_blob *blob = proof->referenced;
    bool is_referred = blob != NULL; /* false also if the file can never change */
    if (proof->is_held)
        end_hold(proof, fd, is_complete);
    proof->is_held = false;
    proof->referenced = NULL;
    if (is_complete && is_referred) {
        atomic_store(&proof->arrived_ns, 0);
        blob = atomic_exchange(&proof->unread, blob); /* of the same file: td_read_proof_may_refer */
    }
    *dropped = blob;
    return is_referred;
}

void td_read_proof_confirm(struct td_read_proof *proof)
{
    if (!proof->proves_nothing && atomic_load_explicit(&proof->unread, memory_order_relaxed) != NULL)
        td_blob_unref(atomic_exchange(&proof->unread, NULL));
}

bool td_read_proof_has_unread(const struct td_read_proof *proof, const struct td_blob *blob)
{
    return atomic_load(&proof->unread) == blob;
}

bool td_read_proof_settle(struct td_read_proof *proof, int fd, struct td_blob *blob)
{
    struct td_blob *expected = blob;
    return was_read(proof, fd) && atomic_compare_exchange_strong(&proof->unread, &expected, NULL);
}

void td_read_proof_reset(struct td_read_proof *proof, int fd)
{
    td_socket_reset_at_close(fd);
    atomic_store(&proof->is_reset_at_close, true);
}

void td_read_proof_close(struct td_read_proof *proof, int fd)
{
    td_sent_unwatch(fd);
    (void)look_before_shutdown(proof, fd); /* unless libmicrohttpd called it, by server/mhd/sender */
}

struct td_blob *td_read_proof_depart(struct td_read_proof *proof, int fd)
{
    struct td_blob *blob = atomic_exchange(&proof->unread, NULL);
    if (blob == NULL)
        return NULL;
    /* The reset discards the bytes that are not acknowledged when the descriptor is closed. */
    bool is_lost = atomic_load(&proof->is_reset_at_close) && td_socket_unacknowledged_bytes(fd) > 0;
    if (is_lost || proof->departed == NULL)
        return blob;
    proof->departed->arrived_ns = atomic_load(&proof->arrived_ns);
    proof->departed->is_open = !atomic_load(&proof->is_shut_down);
    if (!add_departed(proof->shared, proof->departed, blob, fd)) {
        td_read_proof_reset(proof, fd);
        return blob;
    }
    proof->departed = NULL;
    return NULL;
}
