#include "storage/fault_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

static _Thread_local sigjmp_buf fault_escape;
static _Thread_local volatile sig_atomic_t fault_armed;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    if (fault_armed != 0) {
        const ucontext_t *interrupted = context;
        fault_armed = 0;
        /* siglongjmp restores no mask, and ThreadSanitizer blocks every signal around a handler. */
        (void)pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
        siglongjmp(fault_escape, 1);
    }
    /* Not a guarded copy: put the default back; the faulting instruction repeats and ends the process. */
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    (void)sigaction(number, &plain, NULL);
    if (info->si_code <= 0) /* sent by a process: no instruction would repeat it */
        (void)raise(number);
}

bool td_fault_guard_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* raise() in the handler takes effect there */
    (void)sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, NULL) == 0;
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
