#include "catalog/sandbox/parse_worker.h"

#include "catalog/model/file_content.h"
#include "catalog/model/file_kind.h"
#include "catalog/sandbox/card_wire.h"
#include "catalog/sandbox/confinement.h"
#include "catalog/sandbox/content_wire.h"
#include "core/digits.h"
#include "parser/formats.h"
#include "parser/rows/row_formats.h"
#include "storage/file_source.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SOCKET = STDIN_FILENO, MAX_FILES = 2 };

/* One request and its open files; -1: none. */
struct job {
    struct td_parse_request request;
    int fds[MAX_FILES];
};

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Sends a message. Returns false when the server is gone. By writev, because server/mhd/sender.c has sendmsg. */
static bool send_frame(enum td_parse_frame type, const void *bytes, size_t len)
{
    uint32_t head = (uint32_t)type;
    const struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof head},
                                   {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len}};
    return writev(SOCKET, parts, 2) == (ssize_t)(sizeof head + len);
}

static bool send_part(void *context, const void *bytes, size_t len)
{
    (void)context;
    return send_frame(TD_FRAME_PART, bytes, len);
}

/* Takes the descriptors that came with a message. */
static void take_files(struct msghdr *message, struct job *job)
{
    size_t count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < MAX_FILES; i++, count++)
            memcpy(&job->fds[count], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
    }
}

/* Waits for the next request. Returns false at the end. */
static bool receive_request(struct job *job)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MAX_FILES * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = &job->request, .iov_len = sizeof job->request};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    job->fds[0] = job->fds[1] = -1;
    if (recvmsg(SOCKET, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof job->request)
        return false;
    take_files(&message, job);
    return job->fds[0] >= 0 && (job->request.has_table == 0 || job->fds[1] >= 0);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static struct td_limits limits_of(const struct td_parse_request *request)
{
    return (struct td_limits){.max_header_bytes = request->max_header_bytes,
                              .max_memory_bytes = (size_t)request->max_memory_bytes};
}

/* Parses a file of a checkpoint, or one that describes a model, and writes its content. The td_file is no file of a
 * snapshot: it has what td_file_parse uses. */
static void parse_file(const struct job *job, struct td_wire_writer *out)
{
    const struct td_limits limits = limits_of(&job->request);
    const char *name = job->request.name;
    struct td_input input = td_input_descriptor(&job->fds[0], job->request.size_bytes);
    struct td_error err = TD_ERROR_INIT;
    struct td_file file = {.kind = td_file_kind_of(name),
                           .format = td_format_for_name(name),
                           .facts_kind = td_facts_kind_of(name),
                           .source.id.size_bytes = job->request.size_bytes};
    td_manifest_init(&file.manifest, limits.max_memory_bytes);
    (void)td_file_parse(&file, name, &input, &limits, &err);
    td_content_write(&file, &err, out);
    td_file_forget_content(&file);
}

/* An input that reports the progress of an index to the server. */
struct reported_input {
    struct td_input inner;
    const _Atomic uint64_t *done_bytes;
    uint64_t reported_bytes;
};

static bool read_and_report(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct reported_input *input = (struct reported_input *)(uintptr_t)context;
    uint64_t done_bytes = atomic_load(input->done_bytes);
    if (done_bytes >= input->reported_bytes + TD_PARSE_PROGRESS_BYTES) {
        input->reported_bytes = done_bytes;
        (void)send_frame(TD_FRAME_PROGRESS, &done_bytes, sizeof done_bytes);
    }
    return td_input_read(&input->inner, off, out, len, err);
}

/* Makes the index of a file of a dataset, and writes it. */
static void index_rows(const struct job *job, struct td_wire_writer *out)
{
    const struct td_parse_request *request = &job->request;
    const struct td_limits limits = limits_of(request);
    _Atomic uint64_t done_bytes = 0;
    struct reported_input data = {.inner = td_input_descriptor(&job->fds[0], request->size_bytes),
                                  .done_bytes = &done_bytes};
    struct td_row_files files = {
        .data = {.size_bytes = request->size_bytes, .read = read_and_report, .context = &data}};
    if (request->has_table != 0)
        files.table = td_input_descriptor(&job->fds[1], request->table_bytes);
    const struct td_row_build build = {
        .files = &files, .name = request->name, .limits = &limits, .done_bytes = &done_bytes};
    const struct td_row_format *format = td_row_format_named(td_text_of(request->format));
    struct td_row_index index = {0};
    struct td_error err = TD_ERROR_INIT;
    bool ok = format == NULL ? td_error_set(&err, TD_INTERNAL, "the format of rows is unknown")
                             : td_row_index_build(format, &build, &index, &err);
    td_error_write(&err, out);
    if (ok)
        td_rows_write(&index, out);
    td_row_index_fini(&index);
}

/* Reads a card, and writes its events. */
static void read_card(const struct job *job, struct td_wire_writer *out)
{
    struct td_input input = td_input_descriptor(&job->fds[0], job->request.size_bytes);
    td_card_write(&input, out);
}

/* Does the job and sends its outcome. Returns false when the server is gone. */
static bool do_job(struct job *job, struct td_wire_writer *out)
{
    job->request.name[sizeof job->request.name - 1] = '\0';
    job->request.format[sizeof job->request.format - 1] = '\0';
    td_wire_writer_init(out, send_part, NULL);
    if (job->request.job == TD_PARSE_ROWS)
        index_rows(job, out);
    else if (job->request.job == TD_PARSE_CARD)
        read_card(job, out);
    else
        parse_file(job, out);
    for (size_t i = 0; i < MAX_FILES; i++)
        if (job->fds[i] >= 0)
            (void)close(job->fds[i]);
    return !out->failed && send_frame(TD_FRAME_END, out->part, out->len);
}

/* ---- the process --------------------------------------------------------------------------------------- */

/* Returns whether descriptor 0 is a socket that keeps the bounds of messages. */
static bool has_socket(void)
{
    int type = 0;
    socklen_t len = sizeof type;
    return getsockopt(SOCKET, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET;
}

int td_parse_worker_run(int count, char **arguments)
{
    enum { MAP_BYTES = 1024 * 1024 };
    struct td_sandbox_layers layers;
    struct td_wire_writer out;
    struct job job;
    uint64_t memory_bytes;
    if (count != 1 || !td_number_read(td_text_of(arguments[0]), UINT64_MAX, &memory_bytes) || !has_socket()) {
        (void)fputs("tensord " TD_PARSE_WORKER " is started by tensord alone\n", stderr);
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)mallopt(M_MMAP_THRESHOLD, MAP_BYTES); /* what one file took is there for the next one, whole */
    (void)mallopt(M_ARENA_MAX, 1);
    td_confine(memory_bytes, &layers);
    bool goes_on = send_frame(TD_FRAME_HELLO, &layers, sizeof layers);
    while (goes_on && receive_request(&job))
        goes_on = do_job(&job, &out);
    _exit(0);
}
