/* Parses files in processes of their own, so that a mistake in a parser that a hostile file finds costs that file
 * alone: the process can read the file that it was given, send the outcome, and nothing else (confinement.h), and the
 * outcome is checked as if the file's author had written it (content_wire.h).
 *
 * A process does one file at a time, and is replaced after TD_PARSE_FILES_PER_WORKER files, when it ends, when it takes
 * too long or too much memory, and when its answer is wrong. The pool starts processes when all others are at work, by
 * posix_spawn of this program, never by a bare fork. Thread-safe. */
#ifndef TD_CATALOG_SANDBOX_PARSE_POOL_H
#define TD_CATALOG_SANDBOX_PARSE_POOL_H

#include "catalog/model/snapshot.h"
#include "catalog/sandbox/parse_message.h"
#include "core/clock.h"
#include "core/error.h"
#include "parser/card_text.h"
#include "parser/format/limits.h"
#include "parser/rows/index/row_format.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_PARSE_FILES_PER_WORKER = 1024,
    TD_PARSE_WORKERS_MAX = 32,
};

/* The defaults of the options: time for a file, and memory of a process. The memory is that of the largest file that
 * the parsers' own limits (parser/format/limits.h) allow, with room. */
#define TD_PARSE_TIMEOUT_NS (UINT64_C(30) * TD_NS_PER_S)
#define TD_PARSE_MEMORY_BYTES (UINT64_C(1) << 30)

/* The time for a card; at most the time for a file. */
#define TD_PARSE_CARD_NS (UINT64_C(5) * TD_NS_PER_S)

struct td_parse_pool_config {
    bool required;         /* all layers of the sandbox must hold */
    uint64_t timeout_ns;   /* for one file; for rows, for each TD_PARSE_PROGRESS_BYTES of a file */
    uint64_t memory_bytes; /* of a process */
    size_t max_workers;    /* files that are parsed at once, cards too, at most TD_PARSE_WORKERS_MAX */
    const char *program;   /* to start, borrowed; NULL: this one, by /proc/self/exe */
};

/* Returns the defaults: not required, one worker. */
struct td_parse_pool_config td_parse_pool_config_default(void);

/* Why a process was replaced. */
enum td_parse_end {
    TD_PARSE_USED_UP,   /* after TD_PARSE_FILES_PER_WORKER files */
    TD_PARSE_CRASHED,   /* by a signal, or it ended by itself */
    TD_PARSE_FORBIDDEN, /* it made a system call that it may not make */
    TD_PARSE_KILLED,    /* from outside */
    TD_PARSE_SLOW,      /* by the timeout */
    TD_PARSE_MEMORY,    /* it had no memory left */
    TD_PARSE_WRONG,     /* its answer was wrong */
    TD_PARSE_STOPPED,   /* the outcome was no longer needed */
    TD_PARSE_ENDS,
};

/* Returns the reason's name, for metrics: "used_up", "crashed" ... */
const char *td_parse_end_name(enum td_parse_end end);

/* Figures for logs and metrics. */
struct td_parse_pool_status {
    bool used;                       /* there is a pool */
    struct td_sandbox_layers layers; /* of its first process */
    size_t worker_count;             /* processes now */
    uint64_t file_count;             /* files given to them */
    uint64_t ends[TD_PARSE_ENDS];    /* processes that were replaced */
};

struct td_parse_pool;

/* Makes a pool and starts its first process. Errors: TD_UNAVAILABLE when it cannot be started;
 * TD_FAILED_PRECONDITION when a layer is required that does not hold, the message names it; TD_RESOURCE_EXHAUSTED. */
bool td_parse_pool_create(const struct td_parse_pool_config *config, struct td_parse_pool **out, struct td_error *err);

/* Ends all processes and frees the pool. No call may be under way. NULL: does nothing. */
void td_parse_pool_destroy(struct td_parse_pool *pool);

/* Copies the figures. pool NULL: all zero. */
void td_parse_pool_get_status(struct td_parse_pool *pool, struct td_parse_pool_status *status);

/* Files that wait in a queue at most. */
enum { TD_PARSE_QUEUE_MAX = 64 };

/* Files that one caller has parsed one after the other. They are sent ahead, so that the process reads the next file
 * while the caller deals with the last one, and both sleep less often. For one thread. */
struct td_parse_queue;

/* Returns an empty queue, or NULL when memory is short. The pool is borrowed. */
struct td_parse_queue *td_parse_queue_create(struct td_parse_pool *pool);
/* Frees the queue. Files in it are not parsed, or for nothing. NULL: does nothing. */
void td_parse_queue_destroy(struct td_parse_queue *queue);

/* Returns whether a file of this kind, or with facts of this kind, is parsed in a process, and not by the caller of
 * td_parse_pool_file. */
bool td_parse_pool_takes(enum td_file_kind kind, enum td_facts_kind facts_kind);

/* Appends the open file `fd`, which is borrowed until the file is taken, and sends it. There must be room, and the file
 * be no Git LFS pointer. Returns false when the name is too long. */
bool td_parse_queue_put(struct td_parse_queue *queue, int fd, uint64_t size_bytes, const char *name,
                        const struct td_limits *limits);

/* Removes the first file, and does what td_parse_pool_file does with it; `file` is that file. */
bool td_parse_queue_take(struct td_parse_queue *queue, struct td_file *file, const struct td_limits *limits,
                         const _Atomic bool *stop, struct td_error *err);

/* Does what td_file_parse does with the open file `fd`, in a process of the pool; in this one when pool is NULL.
 * Whether the file is a Git LFS pointer is found out here. `fd` is borrowed. *stop ends it early. Errors: those of
 * td_file_parse; TD_INVALID_ARGUMENT when the process crashed, was too slow, ran out of memory or gave a wrong answer,
 * so that the file is not tried again; TD_UNAVAILABLE when no process can be started, when it was killed from outside
 * twice, and for *stop. */
bool td_parse_pool_file(struct td_parse_pool *pool, int fd, struct td_file *file, const char *name,
                        const struct td_limits *limits, const _Atomic bool *stop, struct td_error *err);

/* Does what td_row_index_build does with the open files data_fd and table_fd (-1: none), of the sizes in build->files,
 * whose inputs it does not use; in this process when pool is NULL. The descriptors are borrowed. Errors: those of
 * td_row_index_build and of td_parse_pool_file. */
bool td_parse_pool_rows(struct td_parse_pool *pool, int data_fd, int table_fd, const struct td_row_format *format,
                        const struct td_row_build *build, struct td_row_index *out, struct td_error *err);

/* Does what td_card_text_read does with the beginning of a card, in a process of the pool; in this one when pool is
 * NULL. The card has at most TD_CARD_TEXT_BYTES and one byte that shows that more would follow. The sink is called in
 * this process, with events that the process of the pool has sent, so it trusts neither their order nor their texts,
 * and fails with TD_INTERNAL for those that cannot be right. Sets *is_cut when not all of the card was read. Errors:
 * TD_INVALID_ARGUMENT when the process crashed, was too slow, ran out of memory or gave a wrong answer, so that the
 * card is not tried again; those of the sink but TD_INTERNAL; TD_RESOURCE_EXHAUSTED; TD_IO; TD_UNAVAILABLE when no
 * process can be started, when it had no time to run, and when it was killed from outside twice. */
bool td_parse_pool_card(struct td_parse_pool *pool, struct td_text card, const struct td_card_sink *sink, bool *is_cut,
                        struct td_error *err);

#endif
