#include "storage/fetch/fetch_session.h"

#include "core/clock.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_health.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SMALL_ANSWER_MS = 120 * 1000,      /* a small answer that takes longer fails */
    CANCEL_STEP_NS = 100 * 1000 * 1000 /* interval between checks for cancellation */
};

struct td_fetch_session {
    const struct td_fetch_client *client;
    const struct td_cancel *cancel;
    const struct td_fetch_notes *notes;
    CURLM *multi;
    uint64_t until_ns;           /* when small answers end; UINT64_MAX: no bound */
    const bool *left_out;        /* servers that are not asked for small answers; NULL: none; borrowed */
    CURL *easy;                  /* of small answers; NULL: not made yet */
    struct td_fetch_guard guard; /* of easy */
};

/* One request for a small answer. */
struct small {
    struct td_fetch_session *session;
    struct td_fetch_answer *answer;
    struct td_buffer *body;
    size_t max_bytes;
    bool has_endless_header, is_too_long;
};

bool td_fetch_session_create(const struct td_fetch_client *client, const struct td_cancel *cancel,
                             const struct td_fetch_notes *notes, struct td_fetch_session **out, struct td_error *err)
{
    struct td_fetch_session *session = calloc(1, sizeof *session);
    CURLM *multi = curl_multi_init();
    if (session == NULL || multi == NULL) {
        free(session);
        (void)curl_multi_cleanup(multi);
        return td_error_no_memory(err);
    }
    *session = (struct td_fetch_session){
        .client = client, .cancel = cancel, .notes = notes, .multi = multi, .until_ns = UINT64_MAX};
    *out = session;
    return true;
}

void td_fetch_session_destroy(struct td_fetch_session *session)
{
    if (session == NULL)
        return;
    curl_easy_cleanup(session->easy);
    (void)curl_multi_cleanup(session->multi);
    free(session);
}

const struct td_fetch_client *td_fetch_session_client(const struct td_fetch_session *session)
{
    return session->client;
}

void *td_fetch_session_multi(const struct td_fetch_session *session)
{
    return session->multi;
}

const struct td_cancel *td_fetch_session_cancel(const struct td_fetch_session *session)
{
    return session->cancel;
}

void td_fetch_session_report(const struct td_fetch_session *session, const char *format, ...)
{
    char text[TD_ERROR_MESSAGE_BYTES + 64];
    va_list args;
    if (session->notes == NULL || session->notes->report == NULL)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    session->notes->report(session->notes->context, text);
}

void td_fetch_session_report_failure(const struct td_fetch_session *session, const struct td_error *why,
                                     uint64_t wait_ns)
{
    if (wait_ns == 0)
        td_fetch_session_report(session, "%s; this server is not asked for it again", why->message);
    else
        td_fetch_session_report(session, "%s; next try in %.1f s", why->message, (double)wait_ns / 1e9);
}

void td_fetch_session_end_at(struct td_fetch_session *session, uint64_t until_ns)
{
    session->until_ns = until_ns == 0 ? UINT64_MAX : until_ns;
}

void td_fetch_session_leave_out(struct td_fetch_session *session, const bool *left_out)
{
    session->left_out = left_out;
}

/* ---- small answers ------------------------------------------------------------------------------------- */

static size_t take_header(char *bytes, size_t size, size_t count, void *context)
{
    struct small *small = context;
    (void)size;
    small->has_endless_header = !td_fetch_answer_take_line(small->answer, td_text_n(bytes, count));
    return small->has_endless_header ? 0 : count;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct small *small = context;
    (void)size;
    if (count > small->max_bytes - small->body->len) {
        small->is_too_long = true;
        return 0;
    }
    td_buffer_append(small->body, bytes, count);
    return small->body->failed ? 0 : count;
}

static int ask_cancel(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct small *small = context;
    (void)a, (void)b, (void)c, (void)d;
    return td_cancel_is_asked(small->session->cancel) ? 1 : 0;
}

/* Returns how long a small answer may take. */
static long answer_ms(const struct td_fetch_session *session)
{
    uint64_t now = td_clock_ns();
    uint64_t left_ms = session->until_ns > now ? (session->until_ns - now) / 1000000 + 1 : 1;
    return left_ms < SMALL_ANSWER_MS ? (long)left_ms : SMALL_ANSWER_MS;
}

static bool prepare_small(struct td_fetch_session *session, size_t server, const char *path, struct small *small,
                          char *text)
{
    if (session->easy == NULL)
        session->easy = td_fetch_client_handle(session->client, server, path, &session->guard);
    CURL *easy = session->easy;
    td_fetch_guard_begin(&session->guard, false);
    return easy != NULL && td_fetch_client_aim(session->client, easy, server, path) &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, answer_ms(session)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, ask_cancel) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFODATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text) == CURLE_OK;
}

/* Asks one server once. */
static bool ask_server(struct td_fetch_session *session, size_t server, const char *path, size_t max_bytes,
                       struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err)
{
    const char *url = td_fetch_client_url(session->client, server);
    char text[CURL_ERROR_SIZE] = "";
    struct small small = {.session = session, .answer = answer, .body = body, .max_bytes = max_bytes};
    td_fetch_answer_init(answer);
    td_buffer_clear(body);
    if (!prepare_small(session, server, path, &small, text))
        return td_error_no_memory(err);
    CURLcode code = curl_easy_perform(session->easy);
    (void)curl_easy_setopt(session->easy, CURLOPT_ERRORBUFFER, NULL);
    if (code != CURLE_OK && td_fetch_guard_blame(&session->guard, url, err))
        return false;
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return td_error_set(err, TD_CONFLICT, "stopped while %s was asked", url);
    if (small.has_endless_header)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: the header of the answer has more than %d bytes", url,
                            TD_FETCH_MAX_HEADER_BYTES);
    if (small.is_too_long)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s%.200s: the answer has more than %zu bytes", url, path,
                            max_bytes);
    if (body->failed)
        return td_buffer_refuse(body, err);
    if (code != CURLE_OK)
        return td_fetch_fault_of_code(session->easy, (int)code, text, url, err);
    td_fetch_answer_take_reason(answer, td_buffer_text(body));
    if (td_fetch_fault_may_pass(answer))
        return td_fetch_fault_of_answer(answer, NULL, url, err);
    if (answer->status >= 400)
        td_buffer_clear(body);
    return true;
}

/* Chooses the server that may be asked first, from `first` on: one that may be asked now, else the next one. */
static size_t choose_first(const struct td_fetch_health *health, size_t first)
{
    size_t best = first;
    uint64_t now = td_clock_ns();
    for (size_t i = 0; i < health->count; i++)
        if (td_fetch_health_may(health, (first + i) % health->count, now))
            return (first + i) % health->count;
    for (size_t i = 1; i < health->count; i++) {
        size_t one = (first + i) % health->count;
        const struct td_fetch_server_health *a = &health->servers[best];
        const struct td_fetch_server_health *b = &health->servers[one];
        if (!b->is_excluded && (a->is_excluded || b->due_ns < a->due_ns))
            best = one;
    }
    return best;
}

/* Waits until the time has come. Returns false when cancelled. */
static bool wait_until(const struct td_fetch_session *session, uint64_t until_ns)
{
    for (uint64_t now = td_clock_ns(); now < until_ns; now = td_clock_ns()) {
        uint64_t left = until_ns - now < CANCEL_STEP_NS ? until_ns - now : CANCEL_STEP_NS;
        const struct timespec pause = td_clock_timespec(left);
        if (td_cancel_is_asked(session->cancel))
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return !td_cancel_is_asked(session->cancel);
}

/* Records the failure, and reports when the server is asked again. */
static void note_failure(const struct td_fetch_session *session, struct td_fetch_health *health, size_t server,
                         const struct td_fetch_answer *answer, const struct td_error *why)
{
    if (why->code != TD_UNAVAILABLE) {
        td_fetch_health_exclude(health, server, td_clock_ns(), why);
        return;
    }
    uint64_t wait_ns = td_fetch_health_failed(health, server, answer, td_clock_ns(), why);
    struct td_error ignored = TD_ERROR_INIT;
    if (!td_fetch_health_is_over(health, td_clock_ns(), &ignored))
        td_fetch_session_report_failure(session, why, wait_ns);
}

bool td_fetch_session_get(struct td_fetch_session *session, const char *path, size_t max_bytes, bool only,
                          size_t *server, struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err)
{
    struct td_fetch_health health;
    const size_t first = *server;
    td_fetch_answer_init(answer);
    td_fetch_health_init(&health, session->client, td_clock_ns());
    for (size_t i = 0; i < health.count; i++)
        if (i != first && (only || (session->left_out != NULL && session->left_out[i])))
            td_fetch_health_leave_out(&health, i);
    while (!td_fetch_health_is_over(&health, td_clock_ns(), err)) {
        struct td_error why = TD_ERROR_INIT;
        *server = choose_first(&health, first);
        uint64_t due_ns = health.servers[*server].due_ns;
        if (!wait_until(session, due_ns < session->until_ns ? due_ns : session->until_ns))
            return td_error_set(err, TD_CONFLICT, "stopped while %s was to be asked again",
                                td_fetch_client_url(session->client, *server));
        if (ask_server(session, *server, path, max_bytes, answer, body, &why))
            return true;
        if (why.code == TD_CONFLICT || why.code == TD_RESOURCE_EXHAUSTED)
            return td_error_copy(err, &why);
        if (td_clock_ns() >= session->until_ns)
            return td_error_set(err, TD_UNAVAILABLE, "%s", why.message);
        note_failure(session, &health, *server, answer, &why);
    }
    return false;
}
