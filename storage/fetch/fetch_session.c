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

/* A request: the path of a small answer, or a request with a body. */
struct asked {
    const char *path;
    const struct td_fetch_request *request; /* NULL: GET */
    size_t max_bytes;                       /* of the answer's body */
};

/* One request for a small answer. */
struct small {
    struct td_fetch_session *session;
    struct td_fetch_upload *upload; /* NULL: GET */
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

static int watch_transfer(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t sent)
{
    const struct small *small = context;
    (void)a, (void)b, (void)c;
    if (small->upload != NULL && td_fetch_upload_stalls(small->upload, sent < 0 ? 0 : (uint64_t)sent, td_clock_ns()))
        return 1;
    return td_cancel_is_asked(small->session->cancel) ? 1 : 0;
}

/* Returns how long a small answer may take. */
static long answer_ms(const struct td_fetch_session *session)
{
    uint64_t now = td_clock_ns();
    uint64_t left_ms = session->until_ns > now ? (session->until_ns - now) / 1000000 + 1 : 1;
    return left_ms < SMALL_ANSWER_MS ? (long)left_ms : SMALL_ANSWER_MS;
}

/* Prepares the handle for the method. */
static bool prepare_method(struct td_fetch_session *session, struct small *small, const struct asked *asked)
{
    if (asked->request != NULL)
        return td_fetch_upload_begin(small->upload, session->client, session->easy, asked->request);
    return td_fetch_upload_end(session->client, session->easy) &&
           curl_easy_setopt(session->easy, CURLOPT_TIMEOUT_MS, answer_ms(session)) == CURLE_OK;
}

static bool prepare_small(struct td_fetch_session *session, size_t server, const struct asked *asked,
                          struct small *small, char *text)
{
    if (session->easy == NULL)
        session->easy = td_fetch_client_handle(session->client, server, asked->path, &session->guard);
    CURL *easy = session->easy;
    td_fetch_guard_begin(&session->guard, false);
    return easy != NULL && td_fetch_client_aim(session->client, easy, server, asked->path) &&
           prepare_method(session, small, asked) &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERDATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, watch_transfer) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_XFERINFODATA, small) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text) == CURLE_OK;
}

/* Returns whether the answer is a refusal, and whole, though the request failed: it came before the end of the
 * request's body, after which the server closed the connection. */
static bool is_whole_refusal(const struct small *small)
{
    const struct td_fetch_answer *answer = small->answer;
    return small->upload != NULL && answer->status >= 400 &&
           (!answer->has_length || small->body->len == answer->length);
}

/* Sets the error for a request that ended without a whole answer. Returns true for one whose answer is enough. */
static bool judge_end(const struct small *small, const struct asked *asked, CURLcode code, const char *text,
                      const char *url, struct td_error *err)
{
    struct td_fetch_session *session = small->session;
    const struct td_error *fault = small->upload != NULL ? &small->upload->fault : NULL;
    if (code != CURLE_OK && td_fetch_guard_blame(&session->guard, url, err))
        return false;
    if (fault != NULL && fault->code != TD_OK)
        return td_error_set(err, fault->code, "%s: %s", url, fault->message);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return td_error_set(err, TD_CONFLICT, "stopped while %s was asked", url);
    if (small->has_endless_header)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: the header of the answer has more than %d bytes", url,
                            TD_FETCH_MAX_HEADER_BYTES);
    if (small->is_too_long)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s%.200s: the answer has more than %zu bytes", url,
                            asked->path, asked->max_bytes);
    if (small->body->failed)
        return td_buffer_refuse(small->body, err);
    return code == CURLE_OK || is_whole_refusal(small) ||
           td_fetch_fault_of_code(session->easy, (int)code, text, url, err);
}

/* Refuses a redirect of a request with a body. */
static bool refuse_redirect(CURL *easy, const struct td_fetch_answer *answer, const char *url, struct td_error *err)
{
    const char *target = NULL;
    (void)curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &target);
    return td_error_set(err, TD_FAILED_PRECONDITION,
                        "%s: the server answered %u, a redirect to \"%.200s\": give the URL of the server itself", url,
                        answer->status, target == NULL ? "" : target);
}

/* Asks one server once. */
static bool ask_server(struct td_fetch_session *session, size_t server, const struct asked *asked,
                       struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err)
{
    const char *url = td_fetch_client_url(session->client, server);
    char text[CURL_ERROR_SIZE] = "";
    struct td_fetch_upload upload;
    struct small small = {.session = session,
                          .upload = asked->request != NULL ? &upload : NULL,
                          .answer = answer,
                          .body = body,
                          .max_bytes = asked->max_bytes};
    td_fetch_answer_init(answer);
    td_buffer_clear(body);
    if (!prepare_small(session, server, asked, &small, text))
        return td_error_no_memory(err);
    CURLcode code = curl_easy_perform(session->easy);
    (void)curl_easy_setopt(session->easy, CURLOPT_ERRORBUFFER, NULL);
    if (!judge_end(&small, asked, code, text, url, err))
        return false;
    td_fetch_answer_take_reason(answer, td_buffer_text(body));
    if (td_fetch_fault_may_pass(answer))
        return td_fetch_fault_of_answer(answer, NULL, url, err);
    if (asked->request != NULL && answer->status / 100 == 3)
        return refuse_redirect(session->easy, answer, url, err);
    if (answer->status >= 400 && asked->request == NULL)
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

bool td_fetch_session_wait(const struct td_fetch_session *session, uint64_t until_ns)
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

/* Asks the servers in turn until one answers, as td_fetch_session_get. */
static bool ask_servers(struct td_fetch_session *session, const struct asked *asked, bool only, size_t *server,
                        struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err)
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
        if (!td_fetch_session_wait(session, due_ns < session->until_ns ? due_ns : session->until_ns))
            return td_error_set(err, TD_CONFLICT, "stopped while %s was to be asked again",
                                td_fetch_client_url(session->client, *server));
        if (ask_server(session, *server, asked, answer, body, &why))
            return true;
        if (why.code == TD_CONFLICT || why.code == TD_RESOURCE_EXHAUSTED)
            return td_error_copy(err, &why);
        if (td_clock_ns() >= session->until_ns)
            return td_error_set(err, TD_UNAVAILABLE, "%s", why.message);
        if (asked->request != NULL)
            td_fetch_health_begin_patience(&health, *server, td_clock_ns());
        note_failure(session, &health, *server, answer, &why);
    }
    return false;
}

bool td_fetch_session_get(struct td_fetch_session *session, const char *path, size_t max_bytes, bool only,
                          size_t *server, struct td_fetch_answer *answer, struct td_buffer *body, struct td_error *err)
{
    const struct asked asked = {.path = path, .max_bytes = max_bytes};
    return ask_servers(session, &asked, only, server, answer, body, err);
}

bool td_fetch_session_send(struct td_fetch_session *session, const struct td_fetch_request *request, size_t max_bytes,
                           bool retries, size_t server, struct td_fetch_answer *answer, struct td_buffer *body,
                           struct td_error *err)
{
    const struct asked asked = {.path = request->path, .request = request, .max_bytes = max_bytes};
    return retries ? ask_servers(session, &asked, true, &server, answer, body, err)
                   : ask_server(session, server, &asked, answer, body, err);
}
