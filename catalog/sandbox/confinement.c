/* The order matters: each step may need what a later step takes away. A step that the host refuses (an old kernel, a
 * container's own filter) is left out, and the others still hold. */
#include "catalog/sandbox/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

/* The socket, and the files of a job. */
enum { MAX_DESCRIPTORS = 8 };

static bool set_limit(int resource, rlim_t value)
{
    const struct rlimit both = {.rlim_cur = value, .rlim_max = value};
    return setrlimit((__rlimit_resource_t)resource, &both) == 0;
}

/* The server sets the limit on processor time for each file. */
static bool set_limits(uint64_t memory_bytes)
{
    int refused = 0;
    refused += !set_limit(RLIMIT_CORE, 0);
    refused += !set_limit(RLIMIT_NPROC, 0);
    refused += !set_limit(RLIMIT_FSIZE, 0);
    refused += !set_limit(RLIMIT_NOFILE, MAX_DESCRIPTORS);
    refused += HAS_SANITIZER || !set_limit(RLIMIT_DATA, memory_bytes);
    return refused == 0;
}

/* ---- Landlock ------------------------------------------------------------------------------------------ */

/* The rights of later versions of Landlock than the one that this is built with. */
#define RIGHTS_OF_1 ((UINT64_C(1) << 13) - 1)
#define RIGHT_REFER (UINT64_C(1) << 13)     /* version 2 */
#define RIGHT_TRUNCATE (UINT64_C(1) << 14)  /* 3 */
#define RIGHT_IOCTL_DEV (UINT64_C(1) << 15) /* 5 */
#define NET_RIGHTS UINT64_C(3)              /* 4: bind and connect TCP */
#define SCOPES UINT64_C(3)                  /* 6: abstract Unix sockets, signals */

/* struct landlock_ruleset_attr of version 6. */
struct ruleset {
    uint64_t handled_access_fs, handled_access_net, scoped;
};

/* Denies everything that this version of Landlock knows: one unknown bit would be an error, and no sandbox. */
static bool restrict_by_landlock(void)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return false;
    struct ruleset rules = {.handled_access_fs = RIGHTS_OF_1};
    rules.handled_access_fs |= version >= 2 ? RIGHT_REFER : 0;
    rules.handled_access_fs |= version >= 3 ? RIGHT_TRUNCATE : 0;
    rules.handled_access_fs |= version >= 5 ? RIGHT_IOCTL_DEV : 0;
    rules.handled_access_net = version >= 4 ? NET_RIGHTS : 0;
    rules.scoped = version >= 6 ? SCOPES : 0;
    size_t size = version >= 6   ? sizeof rules
                  : version >= 4 ? offsetof(struct ruleset, scoped)
                                 : offsetof(struct ruleset, handled_access_net);
    long fd = syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    if (fd < 0)
        return false;
    bool ok = syscall(SYS_landlock_restrict_self, (int)fd, 0) == 0;
    (void)close((int)fd);
    return ok;
}

/* ---- seccomp ------------------------------------------------------------------------------------------- */

/* The system calls that the parsers, the C library and the socket need. */
static const int allowed[] = {
    SCMP_SYS(pread64),      SCMP_SYS(recvmsg),   SCMP_SYS(writev),        SCMP_SYS(close),
    SCMP_SYS(munmap),       SCMP_SYS(mremap),    SCMP_SYS(brk),           SCMP_SYS(madvise),
    SCMP_SYS(futex),        SCMP_SYS(getrandom), SCMP_SYS(clock_gettime), SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(exit),      SCMP_SYS(exit_group),    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigaction), SCMP_SYS(getpid),    SCMP_SYS(gettid),        SCMP_SYS(sysinfo), /* of qsort */
};

/* Adds what is allowed with some arguments alone: private memory that is not for code, and abort(). Shared memory and
 * stacks that grow are not counted by RLIMIT_DATA. Texts for standard error, which is closed, fail. */
static bool add_conditions(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp no_code = {.arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0};
    const struct scmp_arg_cmp is_private = {
        .arg = 3, .op = SCMP_CMP_MASKED_EQ, .datum_a = MAP_TYPE | MAP_GROWSDOWN, .datum_b = MAP_PRIVATE};
    const struct scmp_arg_cmp own = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)getpid()};
    const struct scmp_arg_cmp of_abort = {.arg = 2, .op = SCMP_CMP_EQ, .datum_a = SIGABRT};
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2, no_code, is_private) == 0 &&
           seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, no_code) == 0 &&
           seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 2, own, of_abort) == 0 &&
           seccomp_rule_add(filter, SCMP_ACT_ERRNO(EBADF), SCMP_SYS(write), 0) == 0;
}

static bool filter_calls(void)
{
    if (HAS_SANITIZER)
        return false;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (filter == NULL)
        return false;
    bool ok = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) == 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        ok = ok && seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0) == 0;
    ok = ok && add_conditions(filter) && seccomp_load(filter) == 0;
    seccomp_release(filter);
    return ok;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Closes every descriptor but the socket. */
static void close_others(void)
{
    if (HAS_SANITIZER) {
        (void)close(STDOUT_FILENO);
        (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    } else {
        (void)close_range(1, ~0U, 0);
    }
}

void td_confine(uint64_t memory_bytes, struct td_sandbox_layers *layers)
{
    close_others();
    layers->rlimits = set_limits(memory_bytes);
    bool stays = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    layers->landlock = stays && restrict_by_landlock();
    layers->seccomp = stays && filter_calls();
}
