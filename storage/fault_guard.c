#include "storage/fault_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static _Thread_local sigjmp_buf fault_escape;
static _Thread_local volatile sig_atomic_t fault_armed;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    if (fault_armed != 0) {
        const ucontext_t *interrupted = context;
        fault_armed = 0;
        /* siglongjmp does not restore the mask, and ThreadSanitizer blocks all signals around a handler. */
        (void)pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
        siglongjmp(fault_escape, 1);
    }
    /* Not a guarded copy: restore the default; the faulting instruction is repeated and ends the process. */
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)sigaction(number, &plain, NULL);
    if (info->si_code <= 0) /* sent by a process: no instruction repeats it */
        (void)raise(number);
}

bool td_fault_guard_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* SA_NODEFER: raise() takes effect in the handler */
    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, NULL) == 0;
}

/* With a constant length, each copy is one load and one store. The function is not inlined: its caller's sigsetjmp may
 * return twice, and the variables here must not live in registers that the jump loses. */
#define GATHER(len)                                      \
    for (size_t i = 0; i < count; i++, from += stride) { \
        memcpy(out, from, len);                          \
        out += (len);                                    \
    }

__attribute__((noinline)) static void gather(uint8_t *out, const uint8_t *from, size_t len, size_t count, size_t stride)
{
    switch (len) {
    case 1:
        GATHER(1)
        break;
    case 2:
        GATHER(2)
        break;
    case 4:
        GATHER(4)
        break;
    case 8:
        GATHER(8)
        break;
    default:
        GATHER(len)
    }
}

bool td_fault_guard_gather(void *out, const void *from, size_t len, size_t count, size_t stride)
{
    if (sigsetjmp(fault_escape, 0) != 0)
        return false;
    fault_armed = 1;
    atomic_signal_fence(memory_order_seq_cst);
    gather(out, from, len, count, stride);
    atomic_signal_fence(memory_order_seq_cst);
    fault_armed = 0;
    return true;
}

bool td_fault_guard_copy(void *out, const void *from, size_t len)
{
    if (sigsetjmp(fault_escape, 0) != 0)
        return false;
    fault_armed = 1;
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(out, from, len);
    atomic_signal_fence(memory_order_seq_cst);
    fault_armed = 0;
    return true;
}

__attribute__((noinline)) static void touch(const volatile uint8_t *from, size_t len, size_t page)
{
    for (size_t at = 0; at < len; at += page)
        (void)from[at];
    (void)from[len - 1];
}

bool td_fault_guard_touch(const void *from, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (len == 0)
        return true;
    if (sigsetjmp(fault_escape, 0) != 0)
        return false;
    fault_armed = 1;
    atomic_signal_fence(memory_order_seq_cst);
    touch(from, len, page);
    atomic_signal_fence(memory_order_seq_cst);
    fault_armed = 0;
    return true;
}
