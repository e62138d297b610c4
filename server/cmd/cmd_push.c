/* `tensord push`: puts the files of a directory into a model on a server, as one commit. */
#include "server/cmd/commands.h"

#include "catalog/remote/remote_push.h"
#include "core/array.h"
#include "core/clock.h"
#include "server/cmd/command_line.h"
#include "server/cmd/copying.h"
#include "server/cmd/push_files.h"
#include "server/host/terminal.h"
#include "storage/fetch/fetch_url.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files are sent in parts of this size, by several connections. */
#define PART_BYTES (UINT64_C(32) * 1024 * 1024)

_Static_assert(PART_BYTES % TD_REMOTE_PIECE_BYTES == 0, "parts must end where pieces do");

/* Most times in a row that the server lacks as much as before, although everything was sent. */
enum { MAX_STUCK = 3 };

struct arguments {
    const char *directory, *url, *model, *revision, *message, *parent;
    bool keeps;
    struct td_copy_options copy;
};

/* A range of a file that one request sends. */
struct part {
    struct td_push_file *file;
    struct td_remote_span span;
};

struct push {
    const struct arguments *arguments;
    struct td_copying copying;
    struct td_fetch_session *session;
    struct td_push_files files;
    struct td_remote_commit_file *listed; /* the files of the commit */
    struct td_remote_commit_reply reply;
    struct part *parts;
    size_t part_count, part_capacity;
    _Atomic size_t next; /* the next part of the workers */
};

/* A thread that sends parts. */
struct worker {
    struct push *push;
    struct td_fetch_session *session;
    pthread_t thread;
    struct td_error err;
};

/* ---- arguments ----------------------------------------------------------------------------------------- */

/* Checks what is not an option. */
static bool check_arguments(const struct td_command_line *line, const struct arguments *arguments)
{
    struct td_text base;
    struct td_error err = TD_ERROR_INIT;
    if (arguments->model == NULL)
        return td_command_line_refuse(line, "give a directory, the URL of a server and a model", "");
    if (strstr(arguments->directory, "://") != NULL && strstr(arguments->url, "://") == NULL)
        return td_command_line_refuse(line, "the directory comes first, and then the URL, but the first argument is ",
                                      arguments->directory);
    if (strchr(arguments->url, ',') != NULL)
        return td_command_line_refuse(line, "push sends to one server, but there are several URLs: ", arguments->url);
    if (!td_fetch_url_check(arguments->url, &base, &err) ||
        !td_remote_push_id_check(td_text_of(arguments->model), &err)) {
        td_terminal_complain("%s", err.message);
        return false;
    }
    return true;
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    const struct td_command_option options[] = {
        {"--revision", .value = &out->revision},
        {"--message", .value = &out->message, .may_be_empty = true},
        {"--parent", .value = &out->parent, .may_be_empty = true},
        {"--keep", .flag = &out->keeps},
        {.name = NULL},
    };
    struct td_command_option shared[TD_COPY_ROWS];
    const struct td_command_line line = {
        .options = options, .shared = shared, .usage = "tensord push DIR URL MODEL [options]; see push --help"};
    const char *others[4] = {NULL};
    size_t count;
    *out = (struct arguments){.revision = "main"};
    td_copy_options_list(&out->copy, shared);
    if (!td_command_line_read(&line, argc, argv, others, 3, &count))
        return false;
    out->directory = others[0];
    out->url = others[1];
    out->model = others[2];
    if (count > 3)
        return td_command_line_refuse(&line, "only one directory is pushed at a time, but there is also ", others[3]);
    return check_arguments(&line, out) && td_copy_options_check(&line, &out->copy);
}

/* ---- parts --------------------------------------------------------------------------------------------- */

static bool add_part(struct push *push, struct td_push_file *file, uint64_t first, uint64_t end, struct td_error *err)
{
    if (!TD_ARRAY_GROW(push->parts, push->part_count, push->part_capacity, err))
        return false;
    push->parts[push->part_count++] = (struct part){.file = file, .span = {.first = first, .end = end}};
    return true;
}

/* Adds the parts of a range that the server lacks. One connection sends a range at once. */
static bool add_parts(struct push *push, struct td_push_file *file, struct td_remote_span span, struct td_error *err)
{
    if (push->arguments->copy.connections == 1 || span.first == span.end) /* an empty file is one part, too */
        return add_part(push, file, span.first, span.end, err);
    for (uint64_t at = span.first, end; at < span.end; at = end) {
        end = at - at % PART_BYTES + PART_BYTES;
        end = end < span.end ? end : span.end;
        if (!add_part(push, file, at, end, err))
            return false;
    }
    return true;
}

static bool refuse_lack(const struct push *push, const char *why, struct td_error *err)
{
    return td_error_set(err, TD_FAILED_PRECONDITION, "%.96s to %.200s: the server asks for %s", push->arguments->model,
                        push->arguments->url, why);
}

/* Adds the parts of one blob that the server lacks. Ranges are widened to whole pieces. */
static bool add_lack(struct push *push, const struct td_remote_lack *lack, struct td_error *err)
{
    const struct td_remote_lacks *lacks = &push->reply.lacks;
    struct td_push_file *file = td_push_files_of_digest(&push->files, lack->sha256);
    if (file == NULL || file->is_lacking)
        return refuse_lack(push, "a blob that no file has, or twice for one", err);
    uint64_t size_bytes = file->blob.size_bytes;
    uint64_t before = 0;
    file->is_lacking = true;
    atomic_store(&file->is_sent, false);
    if (lack->span_count == 0)
        return add_parts(push, file, (struct td_remote_span){0, size_bytes}, err);
    for (size_t i = 0; i < lack->span_count; i++) {
        struct td_remote_span span = lacks->spans[lack->span_first + i];
        if (span.first < before || span.end > size_bytes)
            return refuse_lack(push, "bytes that the file does not have, or not in their order", err);
        span.first -= span.first % TD_REMOTE_PIECE_BYTES;
        before = span.end + (TD_REMOTE_PIECE_BYTES - span.end % TD_REMOTE_PIECE_BYTES) % TD_REMOTE_PIECE_BYTES;
        span.end = before < size_bytes ? before : size_bytes;
        if (!add_parts(push, file, span, err))
            return false;
    }
    return true;
}

/* Makes the parts that the server lacks, by its reply. Sets *bytes to their sum. */
static bool make_parts(struct push *push, uint64_t *bytes, struct td_error *err)
{
    push->part_count = 0;
    *bytes = 0;
    for (size_t i = 0; i < push->files.count; i++)
        push->files.files[i].is_lacking = false;
    for (size_t i = 0; i < push->reply.lacks.count; i++)
        if (!td_copying_check(&push->copying, err) || !add_lack(push, &push->reply.lacks.items[i], err))
            return false;
    for (size_t i = 0; i < push->part_count; i++)
        *bytes += push->parts[i].span.end - push->parts[i].span.first;
    return true;
}

/* ---- sending ------------------------------------------------------------------------------------------- */

static bool send_part(struct worker *worker, const struct part *part, struct td_error *err)
{
    struct push *push = worker->push;
    struct td_push_file *file = part->file;
    struct td_error why = TD_ERROR_INIT;
    bool is_complete = false;
    int fd;
    if (!td_push_file_open(&push->files, file, &fd, err))
        return false;
    const struct td_remote_sending sending = {.id = push->arguments->model,
                                              .shown = file->path,
                                              .blob = file->blob,
                                              .fd = fd,
                                              .sent_bytes = &file->sent_bytes,
                                              .done_bytes = &push->copying.done_bytes};
    atomic_fetch_add(&push->copying.waiting, 1);
    bool ok = td_remote_blob_send(worker->session, &sending, part->span, &is_complete, &why);
    atomic_fetch_sub(&push->copying.waiting, 1);
    bool may_have_changed = why.code == TD_INVALID_ARGUMENT || why.code == TD_FAILED_PRECONDITION;
    if (may_have_changed) /* then that is the cause */
        (void)td_push_file_check(file, fd, err);
    (void)close(fd);
    if (ok && is_complete)
        atomic_store(&file->is_sent, true);
    return ok || td_error_copy(err, &why);
}

/* Sends parts until none is left, or a thread has failed. */
static void *send_parts(void *argument)
{
    struct worker *worker = argument;
    struct push *push = worker->push;
    size_t i;
    while (!atomic_load(&push->copying.has_failed) && (i = atomic_fetch_add(&push->next, 1)) < push->part_count) {
        const struct part *part = &push->parts[i];
        if (atomic_load(&part->file->is_sent)) /* by another client */
            atomic_fetch_add(&push->copying.done_bytes, part->span.end - part->span.first);
        else if (!send_part(worker, part, &worker->err))
            atomic_store(&push->copying.has_failed, true);
    }
    return NULL;
}

/* Sends all parts by several workers. The first worker is this thread; the others are optional, so one that cannot be
 * started is left out. */
static bool send_all(struct push *push, struct td_error *err)
{
    struct worker workers[TD_FETCH_MAX_CONNECTIONS];
    size_t wanted = (size_t)push->arguments->copy.connections;
    size_t count = 1;
    wanted = wanted < push->part_count ? wanted : push->part_count;
    atomic_store(&push->next, 0);
    workers[0] = (struct worker){.push = push, .session = push->session, .err = TD_ERROR_INIT};
    for (; count < wanted; count++) {
        struct worker *worker = &workers[count];
        *worker = (struct worker){.push = push, .err = TD_ERROR_INIT};
        if (td_fetch_session_create(push->copying.client, &push->copying.cancel, &push->copying.notes, &worker->session,
                                    NULL) &&
            pthread_create(&worker->thread, NULL, send_parts, worker) == 0)
            continue;
        td_fetch_session_destroy(worker->session);
        break;
    }
    (void)send_parts(&workers[0]);
    for (size_t i = 1; i < count; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        td_fetch_session_destroy(workers[i].session);
    }
    /* the error of a worker that was stopped because another one failed gives no cause */
    for (size_t i = 0; i < count; i++)
        if (workers[i].err.code != TD_CONFLICT)
            (void)td_error_copy(err, &workers[i].err);
    for (size_t i = 0; i < count; i++)
        (void)td_error_copy(err, &workers[i].err);
    return err->code == TD_OK && td_copying_check(&push->copying, err);
}

/* ---- the commit ---------------------------------------------------------------------------------------- */

static bool list_files(struct push *push, struct td_error *err)
{
    push->listed = calloc(push->files.count, sizeof *push->listed);
    if (push->listed == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < push->files.count; i++)
        push->listed[i] =
            (struct td_remote_commit_file){.path = push->files.files[i].path, .blob = push->files.files[i].blob};
    return true;
}

static bool ask_commit(struct push *push, struct td_error *err)
{
    const struct arguments *arguments = push->arguments;
    const struct td_remote_commit commit = {.id = arguments->model,
                                            .revision = arguments->revision,
                                            .message = arguments->message,
                                            .parent = arguments->parent,
                                            .keeps = arguments->keeps,
                                            .files = push->listed,
                                            .count = push->files.count};
    td_remote_lacks_fini(&push->reply.lacks);
    return td_remote_commit_ask(push->session, &commit, &push->reply, err);
}

/* Asks for the commit, sends what the server says it lacks, and asks again, until the commit is made. */
static bool commit_files(struct push *push, struct td_error *err)
{
    uint64_t least = UINT64_MAX;
    uint64_t bytes = 0;
    for (unsigned stuck = 0; ask_commit(push, err) && !push->reply.is_made;) {
        if (!make_parts(push, &bytes, err))
            return false;
        stuck = bytes < least ? 0 : stuck + 1;
        least = bytes < least ? bytes : least;
        if (stuck == MAX_STUCK)
            return refuse_lack(push, "the same bytes again, although they were sent several times", err);
        uint64_t total = atomic_load(&push->copying.total_bytes);
        atomic_store(&push->copying.done_bytes, total > bytes ? total - bytes : 0);
        td_copying_show(&push->copying, "", push->arguments->model);
        bool ok = send_all(push, err);
        td_copying_show_end(&push->copying);
        if (!ok)
            return false;
    }
    return push->reply.is_made;
}

static bool push_directory(struct push *push, struct td_error *err)
{
    const struct arguments *arguments = push->arguments;
    struct td_copying *copying = &push->copying;
    return td_copying_connect(copying, &arguments->url, 1, err) &&
           td_fetch_session_create(copying->client, &copying->cancel, &copying->notes, &push->session, err) &&
           td_push_files_find(&push->files, arguments->directory, copying, err) &&
           td_push_files_hash(&push->files, arguments->directory, copying, err) && list_files(push, err) &&
           commit_files(push, err);
}

/* Prints the result of the push. Returns the exit code. */
static int report_result(const struct push *push, uint64_t begin_ns, const struct td_error *err)
{
    const struct td_push_report report = {
        .model = push->arguments->model,
        .revision = push->arguments->revision,
        .commit = push->reply.is_made ? push->reply.commit : "",
        .has_changed = push->reply.is_made && push->reply.has_changed,
        .list = &push->files,
        .seconds = (double)(td_clock_ns() - begin_ns) / 1e9,
        .failure = err,
    };
    struct td_error print_err = TD_ERROR_INIT;
    if (err->code != TD_OK)
        td_copying_complain(
            &push->copying, err,
            push->part_count == 0 ? NULL : "the server keeps what has arrived, and the same command sends the rest");
    if (push->arguments->copy.json && !td_push_report_json(&report, &print_err)) {
        td_terminal_complain("%s", print_err.message);
        return TD_EXIT_FAILED;
    }
    if (err->code == TD_OK && !push->arguments->copy.json && !push->arguments->copy.quiet)
        td_push_report_line(&report);
    return err->code == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

void td_cmd_push_help(FILE *out)
{
    (void)fputs(
        "tensord push puts the files of a directory into a model on a server, all at once, as a new commit.\n\n"
        "usage:\n"
        "  tensord push DIR URL MODEL [options]\n\n"
        "  DIR                the files are those that a server of DIR would list: none that are hidden or end in\n"
        "                     .tmp or .incomplete, and no symlinks that lead out of DIR\n"
        "  URL                a tensord that runs with --publish, such as http://weights:8080\n"
        "  MODEL              the id of the model, such as org/name; datasets/org/name is a dataset\n"
        "\n"
        "options, defaults in parentheses; TIME is seconds, or a number with ms, s, m, h or d, such as 5m:\n"
        "  --revision NAME    branch or tag that the commit goes to; it is made when it is not there (main)\n"
        "  --message TEXT     description of the commit (none)\n"
        "  --parent COMMIT    fail unless the revision is at this commit; \"\": unless it is not there (not set)\n"
        "  --keep             files of the revision that DIR does not have stay; without it the revision then has\n"
        "                     the pushed files and no others\n"
        "  --include GLOB     only files whose path matches; * stands for any text, / too; may be given several times\n"
        "                     (all files)\n"
        "  --exclude GLOB     no files whose path matches; may be given several times (not set)\n"
        "  --connections N    connections at once, 1 to 64 (8)\n"
        "  --retry-for TIME   time to try again without any progress before giving up; 0 = not at all (60s)\n"
        "  --stall TIME       time after which a connection with less than 1 KiB/s has failed (30s)\n"
        "  --token-file FILE  file with the token to send, which needs the right to write (the variable\n"
        "                     TENSORD_TOKEN)\n"
        "  --cacert FILE      authorities in PEM to trust for https:// (those of the system)\n"
        "  --cert FILE        certificate of the client in PEM, with --key (not set)\n"
        "  --key FILE         private key of the certificate, in PEM (not set)\n"
        "  --json             one JSON object at the end, on standard output, instead of a line\n"
        "  --quiet            no progress and no notes\n"
        "\n"
        "Files that the server has are not sent again, under any name. An interrupted push sends only the rest when\n"
        "the same command is run again. Readers see all of the new files or none of them.\n"
        "\n"
        "exit codes: 0 the commit is made, or was there; 1 it failed, or was stopped by a signal; 2 wrong usage.\n",
        out);
}

int td_cmd_push(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    struct push push = {.arguments = &arguments};
    if (!read_arguments(argc, argv, &arguments))
        return TD_EXIT_USAGE;
    uint64_t begin_ns = td_clock_ns();
    td_copying_begin(&push.copying, &arguments.copy);
    (void)push_directory(&push, &err);
    int status = report_result(&push, begin_ns, &err);
    td_remote_lacks_fini(&push.reply.lacks);
    free(push.parts);
    free(push.listed);
    td_push_files_fini(&push.files);
    td_fetch_session_destroy(push.session);
    td_copying_end(&push.copying);
    return status;
}
