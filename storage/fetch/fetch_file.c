/* One thread drives all connections of a file by libcurl's multi interface; a second one hashes the bytes that have
 * arrived.
 *
 * A connection is given a span, asks a server for it, and checks the answer before it takes a byte (accept_answer).
 * However the request ends, the rest of the span is returned, and other connections take it. So truncation, a stall and
 * a dead server are one case: the bytes are asked for again, where the health of the servers allows it.
 *
 * What is hard: what makes bytes of several answers one file. With a known digest the digest decides, at the end.
 * Without one all answers must have the same strong entity tag; a file without a tag is taken in one answer alone. When
 * tags say that the file has changed, or the digest is wrong, the file starts over (a round). */
#include "storage/fetch/fetch_file.h"

#include "core/clock.h"
#include "core/digits.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_health.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAN_BYTES (UINT64_C(16) * 1024 * 1024) /* of one request among several connections */

enum {
    PROGRESS_BYTES = 64 * 1024, /* of one request that count as progress */
    MAX_ERROR_BODY = 64 * 1024, /* of an answer that is not the file; a longer one ends the connection */
    MAX_CHANGES = 2,            /* rounds for a file that changes while it is fetched */
    SLOW_S = 5,                 /* silence after which an idle connection takes over the span */
    POLL_MS = 200,
    SLOW_BYTES = 5 * 64 * 1024, /* a request with fewer bytes in SLOW_S is moved to another server */
};

struct fetch;

struct connection {
    struct fetch *fetch;
    size_t index; /* of the connection and of its span */
    CURL *easy;
    struct td_fetch_guard guard; /* of easy */
    size_t server;
    bool is_busy, is_accepted, is_cut; /* is_cut: the rest of the answer is not needed, so it is ended */
    uint64_t asked, asked_end;         /* the range of the request */
    uint64_t skip;                     /* bytes of the answer before the wanted ones */
    uint64_t got, other_bytes;         /* bytes taken of this answer; bytes of an error's body */
    uint64_t asked_ns, first_ns;       /* when the request began, and when the first wanted byte came */
    uint64_t active_ns;                /* when the latest bytes came */
    uint64_t mark_ns, came;            /* bytes of the body since mark_ns */
    struct td_fetch_answer answer;
    struct td_error fault; /* why the answer was not taken */
    char text[CURL_ERROR_SIZE];
};

struct fetch {
    struct td_fetch_session *session;
    const struct td_fetch_client *client;
    const struct td_fetch_job *job;
    struct td_fetch_outcome *outcome;
    struct td_error *err;
    struct td_fetch_part part;
    struct td_fetch_health health;
    struct connection *connections;
    size_t connection_count, running;
    char etags[TD_FETCH_MAX_SERVERS][TD_FETCH_ETAG_BYTES]; /* of the latest answer of each server */
    bool is_slow[TD_FETCH_MAX_SERVERS];                    /* its request was ended because it was slow */
    bool has_digest;
    bool is_untagged; /* neither digest nor tag: one answer must bring the whole file */
    bool is_broken;   /* the only answer of such a file has ended early */
    bool has_changed; /* a server has another version than before */
    bool has_failed;  /* for good; err says why */
    unsigned changes, mismatches;
};

enum round { ROUND_DONE, ROUND_AGAIN, ROUND_FAILED };

/* ---- answers ------------------------------------------------------------------------------------------- */

/* Writes "NAME from URL" for messages. */
static void write_what(const struct connection *c, char *out, size_t capacity)
{
    (void)snprintf(out, capacity, "%.120s from %.160s", c->fetch->job->shown,
                   td_fetch_client_url(c->fetch->client, c->server));
}

/* Refuses the answer, for a permanent reason. Returns false. */
static bool refuse_answer(struct connection *c, const char *why)
{
    char what[320];
    write_what(c, what, sizeof what);
    return td_error_set(&c->fault, TD_FAILED_PRECONDITION, "%s: %s", what, why);
}

/* Checks status, length and range. */
static bool check_range(struct connection *c)
{
    const struct td_fetch_answer *answer = &c->answer;
    uint64_t size_bytes = c->fetch->job->expected.size_bytes;
    char why[120];
    if (answer->is_coded || answer->is_wrong)
        return refuse_answer(c, "the answer's header contradicts itself, or its content is coded");
    uint64_t total = answer->status == 206 ? answer->total : answer->has_length ? answer->length : size_bytes;
    if (answer->status == 206 && !answer->has_range)
        return refuse_answer(c, "the answer of 206 does not say which bytes it has");
    if (total != size_bytes) {
        c->fetch->outcome->has_changed = true;
        (void)snprintf(why, sizeof why, "the file has %" PRIu64 " bytes there, and %" PRIu64 " in the list of files",
                       total, size_bytes);
        return refuse_answer(c, why);
    }
    if (answer->status == 200) { /* no ranges here: bytes before the span are skipped */
        c->skip = c->asked;
        return true;
    }
    if (answer->first != c->asked || answer->last >= c->asked_end ||
        (answer->has_length && answer->length != answer->last - answer->first + 1))
        return refuse_answer(c, "the answer has other bytes than were asked for");
    return true;
}

/* Checks that the answer is of the same version of the file as the others. */
static bool check_tag(struct connection *c)
{
    struct fetch *f = c->fetch;
    const char *tag = c->answer.etag;
    char expected[TD_SHA256_TEXT_BYTES + 2] = "";
    if (f->job->expected.has_sha256) {
        expected[0] = '"';
        td_hex_write(f->job->expected.sha256, TD_SHA256_BYTES, expected + 1);
        expected[TD_SHA256_TEXT_BYTES] = '"';
        expected[TD_SHA256_TEXT_BYTES + 1] = '\0';
    }
    /* with a digest another tag is no proof: a tensord's tag changes when the digest becomes known, a CDN has its own
     */
    bool is_other =
        f->has_digest ? expected[0] != '\0' && strcmp(f->etags[c->server], expected) == 0 && strcmp(tag, expected) != 0
                      : f->part.etag[0] != '\0' && strcmp(f->part.etag, tag) != 0;
    if (is_other) {
        f->has_changed = !f->has_digest;
        f->outcome->has_changed = true;
        return refuse_answer(c, "the file has changed there, or is another one than before");
    }
    memcpy(f->etags[c->server], tag, sizeof f->etags[c->server]);
    if (!f->has_digest && !f->part.has_begun) {
        memcpy(f->part.etag, tag, sizeof f->part.etag);
        f->is_untagged = tag[0] == '\0';
    }
    return true;
}

/* Decides whether the answer brings the wanted bytes. */
static bool accept_answer(struct connection *c)
{
    struct fetch *f = c->fetch;
    char what[320];
    if (c->answer.status != 200 && c->answer.status != 206) {
        write_what(c, what, sizeof what);
        return td_fetch_fault_of_answer(
            &c->answer, c->answer.status == 401 ? td_fetch_client_token_advice(f->client) : NULL, what, &c->fault);
    }
    if (!check_range(c) || !check_tag(c))
        return false;
    if (!f->part.has_begun && !td_fetch_part_begin(&f->part, f->err)) {
        f->has_failed = true;
        return false;
    }
    if (c->skip > 0 || c->answer.status == 200 || f->is_untagged)
        td_fetch_spans_extend(&f->part.spans, c->index);
    return true;
}

static size_t take_header(char *bytes, size_t size, size_t count, void *context)
{
    struct connection *c = context;
    (void)size;
    if (td_fetch_answer_take_line(&c->answer, td_text_n(bytes, count)))
        return count;
    (void)refuse_answer(c, "the header of the answer does not end");
    return 0;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    struct connection *c = context;
    struct fetch *f = c->fetch;
    size_t taken = count;
    (void)size;
    c->active_ns = td_clock_ns();
    c->came += count;
    if (!c->is_accepted && c->fault.code == TD_OK) {
        td_fetch_answer_take_reason(&c->answer, td_text_n(bytes, count));
        c->is_accepted = accept_answer(c);
    }
    if (f->has_failed)
        return 0;
    if (!c->is_accepted) { /* reads a short error body completely, so that the connection can be reused */
        c->other_bytes += count;
        return c->other_bytes > MAX_ERROR_BODY || c->answer.status < 300 ? 0 : count;
    }
    size_t passed = c->skip < count ? (size_t)c->skip : count;
    c->skip -= passed;
    bytes += passed;
    count -= passed;
    uint64_t needed = td_fetch_part_room(&f->part, c->index);
    size_t room = needed < count ? (size_t)needed : count;
    if (!td_fetch_part_take(&f->part, c->index, bytes, room, c->active_ns, f->err)) {
        f->has_failed = true;
        return 0;
    }
    if (c->got == 0)
        c->first_ns = c->active_ns;
    c->got += room;
    if (c->got >= PROGRESS_BYTES)
        td_fetch_health_progress(&f->health, c->server, c->active_ns);
    c->is_cut = room < count;
    return c->is_cut ? 0 : taken;
}

/* ---- connections --------------------------------------------------------------------------------------- */

static bool set_request(struct connection *c)
{
    char range[48];
    struct fetch *f = c->fetch;
    const char *path = f->job->url_path;
    if (c->easy == NULL)
        c->easy = td_fetch_client_handle(f->client, c->server, path, &c->guard);
    td_fetch_guard_begin(&c->guard, f->has_digest);
    (void)snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, c->asked, c->asked_end - 1);
    return c->easy != NULL && td_fetch_client_aim(f->client, c->easy, c->server, path) &&
           curl_easy_setopt(c->easy, CURLOPT_RANGE, range) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_HEADERDATA, c) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->text) == CURLE_OK &&
           curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c) == CURLE_OK &&
           curl_multi_add_handle(td_fetch_session_multi(f->session), c->easy) == CURLM_OK;
}

/* Asks the server for the connection's span. */
static bool start_request(struct connection *c, size_t server)
{
    struct fetch *f = c->fetch;
    const struct td_fetch_span *span = &f->part.spans.open[c->index];
    c->server = server;
    c->is_accepted = c->is_cut = false;
    c->asked = span->at;
    /* without a digest, the first request asks for the whole file, since the answer may have no tag */
    c->asked_end = !f->has_digest && !f->part.has_begun ? f->job->expected.size_bytes : span->end;
    c->skip = c->got = c->other_bytes = c->came = 0;
    c->asked_ns = c->active_ns = c->mark_ns = td_clock_ns();
    c->text[0] = '\0';
    td_error_init(&c->fault);
    td_fetch_answer_init(&c->answer);
    if (!set_request(c))
        return td_error_no_memory(f->err);
    c->is_busy = true;
    f->running++;
    return true;
}

/* Chooses the server with the fewest connections among those that may be asked. Returns false when no server may be
 * asked. */
static bool choose_server(const struct fetch *f, size_t *server)
{
    uint64_t now = td_clock_ns();
    size_t fewest = SIZE_MAX;
    for (size_t i = 0; i < f->health.count; i++) {
        size_t busy = 0;
        for (size_t j = 0; j < f->connection_count; j++)
            busy += f->connections[j].is_busy && f->connections[j].server == i ? 1 : 0;
        if (td_fetch_health_may(&f->health, i, now) && busy < fewest) {
            fewest = busy;
            *server = i;
        }
    }
    return fewest != SIZE_MAX;
}

/* Starts requests on idle connections. Sets *has_idle to whether one of them found no bytes to fetch. */
static bool start_idle(struct fetch *f, bool *has_idle)
{
    /* without a digest the first answer has the tag; without a tag only one answer is used */
    size_t most = !f->has_digest && (!f->part.has_begun || f->is_untagged) ? 1 : f->connection_count;
    size_t server;
    *has_idle = false;
    for (size_t i = 0; i < f->connection_count && f->running < most; i++) {
        if (f->connections[i].is_busy || f->is_broken || !choose_server(f, &server))
            continue;
        *has_idle = !td_fetch_spans_give(&f->part.spans, i);
        if (*has_idle)
            return true;
        if (!start_request(&f->connections[i], server))
            return false;
    }
    return true;
}

/* Removes the connection from libcurl's multi handle, which ends its answer. */
static void stop_request(struct connection *c)
{
    if (!c->is_busy)
        return;
    (void)curl_multi_remove_handle(td_fetch_session_multi(c->fetch->session), c->easy);
    c->is_busy = false;
    c->fetch->running--;
}

static void report_failure(const struct fetch *f, const struct td_error *why, uint64_t wait_ns)
{
    struct td_error ignored = TD_ERROR_INIT;
    if (f->running == 0 && td_fetch_health_is_over(&f->health, td_clock_ns(), &ignored))
        return; /* the fetch ends with this message */
    td_fetch_session_report_failure(f->session, why, wait_ns);
}

/* Makes later spans so long that the time until an answer begins does not matter. */
static void learn_cost(struct connection *c, uint64_t now)
{
    struct fetch *f = c->fetch;
    if (f->job->span_bytes != 0 || c->got < PROGRESS_BYTES || now <= c->first_ns)
        return;
    double bytes = (double)c->got / (double)(now - c->first_ns) * (double)(c->first_ns - c->asked_ns);
    const double most = (double)TD_FETCH_MAX_SPAN_BYTES;
    td_fetch_spans_set_cost(&f->part.spans, (uint64_t)(bytes < most ? bytes : most));
}

/* Judges how a request has ended, and returns the rest of its span. */
static void finish_request(struct connection *c, CURLcode code)
{
    struct fetch *f = c->fetch;
    struct td_error why = TD_ERROR_INIT;
    uint64_t now = td_clock_ns();
    char what[320];
    stop_request(c);
    uint64_t left = td_fetch_part_end_span(&f->part, c->index, &why);
    if (!f->has_failed && why.code != TD_OK) {
        f->has_failed = true;
        (void)td_error_copy(f->err, &why);
    }
    if (f->has_failed)
        return;
    learn_cost(c, now);
    if (left == 0) {
        td_fetch_health_progress(&f->health, c->server, now);
        return;
    }
    if (c->got >= PROGRESS_BYTES && code == CURLE_OK && !f->is_untagged)
        return; /* a shorter range than was asked for, which is allowed */
    f->is_broken = f->is_untagged;
    write_what(c, what, sizeof what);
    if (c->fault.code == TD_OK && !c->is_accepted && c->answer.status != 0 && code == CURLE_OK)
        (void)accept_answer(c); /* an answer without a body */
    if (c->fault.code == TD_OK && code == CURLE_OK)
        (void)td_error_set(&c->fault, TD_UNAVAILABLE, "%s: the answer ended too early", what);
    if (c->fault.code == TD_OK && !td_fetch_guard_blame(&c->guard, what, &c->fault))
        (void)td_fetch_fault_of_code(c->easy, (int)code, c->text, what, &c->fault);
    if (c->fault.code == TD_UNAVAILABLE) {
        bool is_reported = f->health.servers[c->server].due_ns > now; /* by another connection in the same try */
        uint64_t wait_ns = td_fetch_health_failed(&f->health, c->server, &c->answer, now, &c->fault);
        if (!is_reported)
            report_failure(f, &c->fault, wait_ns);
    } else if (!f->health.servers[c->server].is_excluded) {
        td_fetch_health_exclude(&f->health, c->server, now, &c->fault);
        report_failure(f, &c->fault, 0);
    }
}

/* Ends a request that had too few bytes in SLOW_S seconds; `came` is the text for the message. */
static void end_slow_request(struct connection *c, const char *came)
{
    char what[320];
    write_what(c, what, sizeof what);
    (void)td_error_set(&c->fault, TD_UNAVAILABLE, "%s: %s for %d s", what, came, SLOW_S);
    finish_request(c, CURLE_OPERATION_TIMEDOUT);
}

/* Returns whether another server may be asked that was not found slow. */
static bool has_other(const struct fetch *f, size_t server, uint64_t now)
{
    for (size_t i = 0; i < f->health.count; i++)
        if (i != server && !f->is_slow[i] && td_fetch_health_may(&f->health, i, now))
            return true;
    return false;
}

/* Ends slow answers where another server can be asked for the rest. A server that was given up as slow does not count
 * as another server, so where all are slow the last one continues. Not without a digest, since servers then do not mix
 * well. */
static void leave_slow(struct fetch *f)
{
    uint64_t now = td_clock_ns();
    for (size_t i = 0; f->has_digest && i < f->connection_count; i++) {
        struct connection *c = &f->connections[i];
        if (!c->is_busy || !c->is_accepted || now - c->mark_ns < SLOW_S * TD_NS_PER_S)
            continue;
        bool is_slow = c->came < SLOW_BYTES;
        c->mark_ns = now;
        c->came = 0;
        if (!is_slow || !has_other(f, c->server, now))
            continue;
        f->is_slow[c->server] = true;
        end_slow_request(c, "less than 64 KiB/s came");
    }
}

/* Ends the request that has been silent for longest, if that is at least SLOW_S, so that an idle connection can take
 * over its span. */
static void take_over(struct fetch *f)
{
    uint64_t now = td_clock_ns();
    struct connection *slowest = NULL;
    for (size_t i = 0; i < f->connection_count; i++) {
        struct connection *c = &f->connections[i];
        if (c->is_busy && (slowest == NULL || c->active_ns < slowest->active_ns))
            slowest = c;
    }
    if (slowest == NULL || now - slowest->active_ns < SLOW_S * TD_NS_PER_S || f->health.count < 2)
        return;
    end_slow_request(slowest, "nothing came");
}

/* Handles the requests that have ended. */
static void collect_ended(struct fetch *f)
{
    CURLM *multi = td_fetch_session_multi(f->session);
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        struct connection *c = NULL;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE ||
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c) != CURLE_OK || c == NULL)
            continue;
        finish_request(c, code);
    }
}

/* Returns how long to wait for the connections, in ms: until a server may be asked again or a block is to be written
 * (block_due), and at most POLL_MS. */
static int wait_ms(const struct fetch *f, uint64_t now, uint64_t block_due)
{
    uint64_t due = td_fetch_health_due_ns(&f->health);
    if (f->running == f->connection_count || due <= now || due > block_due)
        due = block_due;
    if (due - now > UINT64_C(1000000) * POLL_MS)
        return POLL_MS;
    return (int)((due - now) / 1000000) + 1;
}

/* Has libcurl move bytes, writes the bytes that have been in memory for long enough, and waits for more. */
static bool move_bytes(struct fetch *f)
{
    CURLM *multi = td_fetch_session_multi(f->session);
    uint64_t due;
    int running;
    if (curl_multi_perform(multi, &running) != CURLM_OK)
        return td_error_no_memory(f->err);
    uint64_t now = td_clock_ns();
    if (f->has_failed || !td_fetch_part_flush(&f->part, now, &due, f->err))
        return false;
    if (running == 0 && f->running > 0) /* all requests have ended */
        return true;
    return curl_multi_poll(multi, NULL, 0, wait_ms(f, now, due), NULL) == CURLM_OK || td_error_no_memory(f->err);
}

/* Fetches all missing bytes. Returns ROUND_DONE when the file is complete. */
static enum round transfer_all(struct fetch *f)
{
    uint64_t size_bytes = f->job->expected.size_bytes;
    bool has_idle;
    while (td_fetch_spans_front(&f->part.spans) < size_bytes) {
        if (td_cancel_is_asked(td_fetch_session_cancel(f->session))) {
            (void)td_error_set(f->err, TD_CONFLICT, "stopped");
            return ROUND_FAILED;
        }
        if (!start_idle(f, &has_idle))
            return ROUND_FAILED;
        if (f->running == 0) {
            struct td_error why = TD_ERROR_INIT;
            bool is_over = td_fetch_health_is_over(&f->health, td_clock_ns(), &why);
            if ((f->is_broken || (is_over && f->has_changed)) && f->changes++ < MAX_CHANGES)
                return ROUND_AGAIN;
            if (is_over || f->is_broken) {
                (void)td_error_copy(f->err, is_over ? &why : &f->health.last);
                return ROUND_FAILED;
            }
        }
        if (!move_bytes(f))
            return ROUND_FAILED;
        collect_ended(f);
        if (!f->has_failed)
            leave_slow(f);
        if (f->has_failed)
            return ROUND_FAILED;
        if (has_idle)
            take_over(f);
    }
    return ROUND_DONE;
}

/* ---- digests ------------------------------------------------------------------------------------------- */

static bool refuse_sums(struct fetch *f, const struct td_fetch_sums *sums)
{
    const struct td_fetch_expected *expected = &f->job->expected;
    char is[TD_SHA256_TEXT_BYTES];
    char should[TD_SHA256_TEXT_BYTES];
    size_t len = expected->has_sha256 ? TD_SHA256_BYTES : TD_FETCH_SHA1_BYTES;
    td_hex_write(expected->has_sha256 ? sums->sha256 : sums->git_sha1, len, is);
    td_hex_write(expected->has_sha256 ? expected->sha256 : expected->git_sha1, len, should);
    return td_error_set(f->err, TD_FAILED_PRECONDITION,
                        "%.120s: the content has the digest %s, but the list of files says %s; what was fetched is "
                        "removed",
                        f->job->shown, is, should);
}

/* Decides how to continue after a wrong digest: of several servers each one is tried alone; resumed bytes may have been
 * damaged on the local disk. */
static enum round judge_mismatch(struct fetch *f, const struct td_fetch_sums *sums, bool was_resumed)
{
    size_t tries = f->health.count > 1 ? f->health.count : was_resumed ? 1 : 0;
    size_t server = f->mismatches++;
    if (server >= tries) {
        td_fetch_target_discard(&f->part.target);
        (void)refuse_sums(f, sums);
        return ROUND_FAILED;
    }
    td_fetch_session_report(f->session,
                            "%s: the content has not the expected digest; it is fetched again from %s alone",
                            f->job->shown, td_fetch_client_url(f->client, server));
    return ROUND_AGAIN;
}

/* Fetches the file once. */
static enum round run_round(struct fetch *f)
{
    struct td_fetch_sums sums;
    uint64_t span_bytes = f->job->span_bytes != 0 ? f->job->span_bytes : SPAN_BYTES;
    if (f->connection_count == 1 && f->job->span_bytes == 0)
        span_bytes = UINT64_MAX;
    if (!td_fetch_part_prepare(&f->part, span_bytes, f->err))
        return ROUND_FAILED;
    bool was_resumed = f->part.resumed_bytes > 0;
    if (f->job->events.waits != NULL)
        f->job->events.waits(f->job->events.context, true);
    enum round result = transfer_all(f);
    if (f->job->events.waits != NULL)
        f->job->events.waits(f->job->events.context, false);
    for (size_t i = 0; i < f->connection_count; i++)
        stop_request(&f->connections[i]);
    if (result != ROUND_DONE)
        return result;
    if (!f->part.has_begun && !td_fetch_part_begin(&f->part, f->err)) /* an empty file */
        return ROUND_FAILED;
    if (!td_fetch_part_sums(&f->part, td_fetch_session_cancel(f->session), &sums, f->err))
        return ROUND_FAILED;
    if (!td_fetch_sums_fit(&sums, &f->job->expected))
        return judge_mismatch(f, &sums, was_resumed);
    f->outcome->sums = sums;
    return td_fetch_target_finish(&f->part.target, f->err) ? ROUND_DONE : ROUND_FAILED;
}

/* Runs rounds until the file is complete or the fetch fails. */
static bool run_rounds(struct fetch *f)
{
    for (;;) {
        td_fetch_health_init(&f->health, f->client, td_clock_ns());
        for (size_t i = 0; f->mismatches > 0 && i < f->health.count; i++)
            if (i != f->mismatches - 1)
                td_fetch_health_leave_out(&f->health, i);
        enum round result = run_round(f);
        if (result == ROUND_FAILED)
            return false;
        if (result == ROUND_DONE)
            return true;
        f->is_untagged = f->is_broken = f->has_changed = false;
        memset(f->etags, 0, sizeof f->etags);
        if (!td_fetch_part_forget(&f->part, td_fetch_session_cancel(f->session), f->err))
            return false;
    }
}

static void note_waiting(void *context)
{
    const struct fetch *f = context;
    td_fetch_session_report(f->session, "another process fetches %s; waiting for it", f->job->shown);
}

static bool create_connections(struct fetch *f)
{
    f->connections = calloc(f->connection_count, sizeof *f->connections);
    if (f->connections == NULL)
        return td_error_no_memory(f->err);
    for (size_t i = 0; i < f->connection_count; i++) {
        f->connections[i].fetch = f;
        f->connections[i].index = i;
    }
    return true;
}

static void free_fetch(struct fetch *f)
{
    for (size_t i = 0; f->connections != NULL && i < f->connection_count; i++) {
        stop_request(&f->connections[i]);
        curl_easy_cleanup(f->connections[i].easy);
    }
    free(f->connections);
    td_fetch_part_close(&f->part);
}

bool td_fetch_file(struct td_fetch_session *session, const struct td_fetch_job *job, struct td_fetch_outcome *outcome,
                   struct td_error *err)
{
    const struct td_fetch_expected *expected = &job->expected;
    struct fetch f = {
        .session = session,
        .client = td_fetch_session_client(session),
        .job = job,
        .outcome = outcome,
        .err = err,
        .connection_count = job->connections,
        .has_digest = expected->has_sha256 || expected->has_git_sha1,
    };
    const struct td_cancel *cancel = td_fetch_session_cancel(session);
    struct td_fetch_sums sums;
    bool is_there = false;
    memset(outcome, 0, sizeof *outcome);
    bool ok = td_fetch_part_open(&f.part, job->root, job->name, expected, &job->events, job->connections, err) &&
              td_fetch_target_lock(&f.part.target, cancel, note_waiting, &f, err) &&
              td_fetch_part_look(&f.part, cancel, &is_there, &sums, err);
    f.part.wants_git_sha1 = job->wants_git_sha1;
    if (is_there) {
        outcome->was_there = true;
        outcome->sums = sums;
        td_fetch_target_discard(&f.part.target);
    } else {
        ok = ok && create_connections(&f) && run_rounds(&f);
    }
    outcome->is_verified = ok && f.has_digest;
    outcome->fetched_bytes = f.part.fetched_bytes;
    outcome->resumed_bytes = f.part.resumed_bytes;
    free_fetch(&f);
    return ok;
}
