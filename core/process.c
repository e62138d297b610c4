#include "core/process.h"

#include <signal.h>

int td_process_start(const char *program, char *const arguments[], char *const environment[],
                     const posix_spawn_file_actions_t *actions, pid_t *pid)
{
    posix_spawnattr_t attributes;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int sys = posix_spawnattr_init(&attributes);
    if (sys != 0)
        return sys;
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    sys = posix_spawn(pid, program, actions, &attributes, arguments, environment);
    (void)posix_spawnattr_destroy(&attributes);
    return sys;
}
