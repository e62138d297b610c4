/* The messages between the server and its parser's process, over a socket that keeps their bounds. */
#ifndef TD_CATALOG_SANDBOX_PARSE_MESSAGE_H
#define TD_CATALOG_SANDBOX_PARSE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

/* The argument by which the program becomes a parser's process. It is no command for people. */
#define TD_PARSE_WORKER "__parse-worker"

/* The layers of the sandbox that hold in a process. */
struct td_sandbox_layers {
    bool rlimits, landlock, seccomp;
};

enum td_parse_job { TD_PARSE_FILE, TD_PARSE_ROWS, TD_PARSE_CARD };

/* A request of the server: one file, with one descriptor, or two if a file beside it has the positions of its rows. */
struct td_parse_request {
    uint32_t job;                     /* enum td_parse_job */
    uint32_t has_table;               /* 1: there is a second descriptor */
    uint64_t size_bytes, table_bytes; /* of the files */
    uint64_t max_header_bytes, max_memory_bytes;
    char format[16]; /* of rows */
    char name[256];  /* of the file, without its folder */
};

/* To the server: a type, then bytes. */
enum td_parse_frame {
    TD_FRAME_HELLO,    /* struct td_sandbox_layers, once, when the process is confined */
    TD_FRAME_PART,     /* a part of the outcome */
    TD_FRAME_PROGRESS, /* uint64_t: bytes of the file that the parser has read */
    TD_FRAME_END,      /* the last part of the outcome */
};

/* Between two messages of progress. */
#define TD_PARSE_PROGRESS_BYTES (UINT64_C(1) << 20)

#endif
