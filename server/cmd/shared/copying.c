#include "server/cmd/shared/copying.h"

#include "core/clock.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most notes about each of several servers: a bad server fails for every file, while the others send it. */
enum { MAX_NOTES = 3 };

/* ---- signals and notes --------------------------------------------------------------------------------- */

bool td_copying_has_signal(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

static bool is_cancelled(void *context)
{
    const struct td_copying *copying = context;
    return atomic_load(&copying->has_failed) || td_copying_has_signal();
}

bool td_copying_check(const struct td_copying *copying, struct td_error *err)
{
    return !td_cancel_is_asked(&copying->cancel) || td_error_set(err, TD_CONFLICT, "stopped");
}

/* Returns the server that the text names, the longest URL of several; SIZE_MAX: none. */
static size_t named_server(const struct td_copying *copying, const char *text)
{
    size_t found = SIZE_MAX;
    size_t longest = 0;
    for (size_t i = 0; copying->client != NULL && i < td_fetch_client_count(copying->client); i++) {
        const char *url = td_fetch_client_url(copying->client, i);
        if (strlen(url) > longest && strstr(text, url) != NULL) {
            longest = strlen(url);
            found = i;
        }
    }
    return found;
}

void td_copying_note(struct td_copying *copying, const char *text)
{
    size_t server = named_server(copying, text);
    bool is_counted = server != SIZE_MAX && td_fetch_client_count(copying->client) > 1;
    unsigned count = is_counted ? atomic_fetch_add(&copying->noted[server], 1) : 0;
    if (copying->options->quiet || count >= MAX_NOTES)
        return;
    td_progress_pause(&copying->progress);
    td_terminal_complain("%s%s", text, count + 1 == MAX_NOTES ? "; further notes about this server are left out" : "");
    td_progress_resume(&copying->progress);
}

static void report_note(void *context, const char *text)
{
    td_copying_note(context, text);
}

/* ---- the client ---------------------------------------------------------------------------------------- */

void td_copying_begin(struct td_copying *copying, const struct td_copy_options *options)
{
    sigset_t signals;
    memset(copying, 0, sizeof *copying);
    copying->options = options;
    copying->cancel = (struct td_cancel){.is_asked = is_cancelled, .context = copying};
    copying->notes = (struct td_fetch_notes){.report = report_note, .context = copying};
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

/* Reads the token from --token-file or TENSORD_TOKEN. Sets *token to NULL if neither is given. Returns false after an
 * error. */
static bool read_token(const struct td_copy_options *options, char **token, struct td_error *err)
{
    const char *given = getenv("TENSORD_TOKEN");
    if (options->token_file != NULL)
        return td_fetch_token_read(options->token_file, token, err);
    if (given == NULL || given[0] == '\0')
        return true;
    return td_fetch_token_take(given, "TENSORD_TOKEN", token, err);
}

bool td_copying_connect(struct td_copying *copying, const char *const *urls, size_t url_count, struct td_error *err)
{
    const struct td_copy_options *options = copying->options;
    char *token = NULL;
    bool ok = read_token(options, &token, err);
    if (token == NULL)
        (void)snprintf(copying->token_advice, sizeof copying->token_advice,
                       "a token is needed: give it by --token-file FILE or TENSORD_TOKEN");
    else
        (void)snprintf(copying->token_advice, sizeof copying->token_advice,
                       "the token of %s%.80s is wrong, expired or revoked",
                       options->token_file != NULL ? "--token-file " : "TENSORD_TOKEN",
                       options->token_file != NULL ? options->token_file : "");
    const struct td_fetch_settings settings = {
        .urls = urls,
        .url_count = url_count,
        .token = token,
        .token_advice = copying->token_advice,
        .ca = options->ca,
        .cert = options->cert,
        .key = options->key,
        .retry_for_ns = options->retry_s * TD_NS_PER_S,
        .stall_s = (unsigned)options->stall_s,
        .reputations = copying->reputations,
    };
    ok = ok && td_fetch_client_create(&settings, &copying->client, err);
    td_fetch_token_free(token);
    return ok;
}

void td_copying_end(struct td_copying *copying)
{
    td_fetch_client_destroy(copying->client);
    copying->client = NULL;
}

/* ---- progress and failure ------------------------------------------------------------------------------ */

/* Describes the progress; the meter is the progress thread's alone. */
static void describe(const void *context, char *text, size_t capacity)
{
    struct td_copying *copying = (struct td_copying *)(uintptr_t)context;
    int len = snprintf(text, capacity, "%s", copying->doing);
    size_t used = len < 0 || (size_t)len >= capacity ? 0 : (size_t)len;
    uint64_t done = atomic_load(&copying->done_bytes);
    for (size_t i = 0; i < TD_FETCH_MAX_SERVERS; i++)
        done += atomic_load(&copying->server_bytes[i]);
    td_meter_write(&copying->meter, td_clock_ns(), done, atomic_load(&copying->total_bytes),
                   atomic_load(&copying->waiting) > 0, text + used, capacity - used);
    if (text[used] == '\0')
        text[0] = '\0';
}

void td_copying_show(struct td_copying *copying, const char *doing, const char *what)
{
    copying->doing = doing;
    copying->meter = (struct td_meter){.is_log = isatty(STDERR_FILENO) != 1};
    if (!copying->options->quiet)
        td_progress_start(&copying->progress, what, describe, copying);
}

void td_copying_show_end(struct td_copying *copying)
{
    td_progress_stop(&copying->progress);
}

int td_copying_finish(const struct td_copying *copying, const struct td_copying_report *report, bool has_failed)
{
    struct td_buffer text;
    struct td_document json;
    struct td_error err = TD_ERROR_INIT;
    if (!copying->options->json) {
        if (!has_failed && !copying->options->quiet)
            report->print_line(report->report);
        return has_failed ? TD_EXIT_FAILED : TD_EXIT_OK;
    }
    td_buffer_init(&text);
    td_document_init(&json, &text);
    report->add_json(&json, report->report);
    if (!td_output_json(&text, &err)) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_FAILED;
    }
    return has_failed ? TD_EXIT_FAILED : TD_EXIT_OK;
}

void td_copying_complain(const struct td_copying *copying, const struct td_error *err, const char *kept)
{
    bool is_stopped = err->code == TD_CONFLICT && td_copying_has_signal();
    bool has_given_up = err->code == TD_UNAVAILABLE;
    char end[64] = "";
    if (has_given_up && copying->options->retry_s > 0)
        (void)snprintf(end, sizeof end, "; gave up, since --retry-for is %" PRIu64 " s", copying->options->retry_s);
    const char *text = is_stopped ? "stopped by a signal" : err->message;
    bool is_kept = (is_stopped || has_given_up) && kept != NULL;
    td_terminal_complain("%s%s%s%s", text, end, is_kept ? "; " : "", is_kept ? kept : "");
}
