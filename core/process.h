/* Starts programs. */
#ifndef TD_CORE_PROCESS_H
#define TD_CORE_PROCESS_H

#include <spawn.h>
#include <sys/types.h>

/* Starts the program at a path, without blocked or ignored signals, in a process group of its own, which a terminal's
 * interrupt does not reach. arguments and environment end with NULL; actions change its descriptors. All are borrowed.
 * Sets *pid, whose process the caller waits for. Returns 0 or an errno value. */
int td_process_start(const char *program, char *const arguments[], char *const environment[],
                     const posix_spawn_file_actions_t *actions, pid_t *pid);

#endif
