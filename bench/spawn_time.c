/* Starts programs and says how long each took and what memory it had at its peak.
 *
 * Reads lines from standard input, each a command: a program's path and its arguments, separated by tabs. For each it
 * prints one line: nanoseconds from before the start to after the end, peak resident KiB, wait status. The program's
 * standard output goes to /dev/null.
 *
 * posix_spawn(3) of a small process shares memory with the child until it executes (CLONE_VM | CLONE_VFORK), so what a
 * large parent such as Python would pay for fork(2) is not charged to the program, nor is the parent's memory in its
 * peak. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { LINE_BYTES = 16 * 1024, MAX_ARGUMENTS = 32 };

extern char **environ;

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int split(char *line, char **arguments)
{
    int count = 0;
    char *rest = NULL;
    line[strcspn(line, "\n")] = '\0';
    for (char *word = strtok_r(line, "\t", &rest); word != NULL && count < MAX_ARGUMENTS;
         word = strtok_r(NULL, "\t", &rest))
        arguments[count++] = word;
    arguments[count] = NULL;
    return count;
}

static int run(char **arguments, const posix_spawn_file_actions_t *actions)
{
    pid_t child;
    int status;
    struct rusage usage;
    int64_t begin = now_ns();
    int code = posix_spawn(&child, arguments[0], actions, NULL, arguments, environ);
    if (code != 0) {
        (void)fprintf(stderr, "spawn_time: cannot start %s: %s\n", arguments[0], strerror(code));
        return 1;
    }
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            return 1;
    int64_t end = now_ns();
    (void)printf("%" PRId64 " %ld %d\n", end - begin, usage.ru_maxrss, status);
    return fflush(stdout) != 0;
}

int main(void)
{
    char line[LINE_BYTES];
    char *arguments[MAX_ARGUMENTS + 1];
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) != 0)
        return 1;
    while (fgets(line, sizeof line, stdin) != NULL)
        if (split(line, arguments) > 0 && run(arguments, &actions) != 0)
            return 1;
    (void)posix_spawn_file_actions_destroy(&actions);
    return 0;
}
