/* Parsers that hostile files have taken over, for tests of the sandbox: a program that is linked with this file,
 * --wrap=td_format_parse and --wrap=md_parse parses as tensord does, but for files whose names, and cards whose texts,
 * begin with one of these words. The program that users get has none of it. */
#include "parser/formats.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <md4c.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool __real_td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                            const struct td_format **format, struct td_manifest *manifest, struct td_error *err);
bool __wrap_td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                            const struct td_format **format, struct td_manifest *manifest, struct td_error *err);
int __real_md_parse(const MD_CHAR *text, MD_SIZE size, const MD_PARSER *parser, void *context);
int __wrap_md_parse(const MD_CHAR *text, MD_SIZE size, const MD_PARSER *parser, void *context);

static void *volatile nowhere; /* NULL, but no compiler knows */
static volatile uint64_t sink;

static void crash(void)
{
    *(volatile int *)nowhere = 1;
}

static void spin(void)
{
    for (;;)
        sink++;
}

/* Allocates memory until allocation fails. */
static void eat(void)
{
    enum { STEP = 1 << 20 };
    char *bytes;
    while ((bytes = malloc(STEP)) != NULL)
        memset(bytes, 1, STEP);
}

static void open_socket(void)
{
    (void)socket(AF_INET, SOCK_STREAM, 0);
}

static void open_file(void)
{
    (void)open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static void look_at_file(void)
{
    struct stat st;
    (void)stat("/etc/passwd", &st);
}

static void execute(void)
{
    (void)execl("/bin/true", "true", (char *)NULL);
}

static void fork_process(void)
{
    (void)fork();
}

static void trace(void)
{
    (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void kill_parent(void)
{
    (void)kill(getppid(), SIGTERM);
}

static void map_code(void)
{
    (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Takes memory that the limit does not count. */
static void share(void)
{
    (void)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void make_code(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

/* Waits for ever, as for a disk that is gone. */
static void wait_for_ever(void)
{
    int word = 0;
    for (;;)
        (void)syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* Takes 1 s more than usual. */
static void hold(void)
{
    struct timespec begin, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - begin.tv_sec < 1 || (now.tv_sec - begin.tv_sec == 1 && now.tv_nsec < begin.tv_nsec));
}

static void leave(void)
{
    _exit(7);
}

static const struct {
    const char *word;
    void (*act)(void);
} acts[] = {
    {"crash-", crash},        {"abort-", abort},    {"spin-", spin},         {"eat-", eat},
    {"socket-", open_socket}, {"open-", open_file}, {"stat-", look_at_file}, {"exec-", execute},
    {"fork-", fork_process},  {"ptrace-", trace},   {"kill-", kill_parent},  {"mapcode-", map_code},
    {"makecode-", make_code}, {"hold-", hold},      {"leave-", leave},       {"share-", share},
    {"wait-", wait_for_ever},
};

/* Does what the word at the beginning of the text stands for. */
static void misbehave(struct td_text text)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (td_text_begins(text, td_text_of(acts[i].word)))
            acts[i].act();
}

bool __wrap_td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                            const struct td_format **format, struct td_manifest *manifest, struct td_error *err)
{
    misbehave(td_text_of(file_name));
    if (strncmp(file_name, "eat-", 4) == 0)
        return td_error_no_memory(err);
    bool ok = __real_td_format_parse(file_name, input, limits, format, manifest, err);
    if (ok && strncmp(file_name, "lie-", 4) == 0) /* words: quoted */
        manifest->tensors[0].offset = input->size_bytes;
    return ok;
}

int __wrap_md_parse(const MD_CHAR *text, MD_SIZE size, const MD_PARSER *parser, void *context)
{
    struct td_text card = td_text_n(text, size);
    misbehave(card);
    if (td_text_begins(card, TD_TEXT("eat-")))
        return -1;
    if (td_text_begins(card, TD_TEXT("lie-"))) /* words: quoted */
        return parser->enter_block(MD_BLOCK_TD, &(MD_BLOCK_TD_DETAIL){.align = MD_ALIGN_DEFAULT}, context);
    return __real_md_parse(text, size, parser, context);
}
