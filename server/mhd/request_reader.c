#include "server/mhd/request_reader.h"

#include "server/mhd/answering.h"

#include <string.h>

static enum MHD_Result collect_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                      const char *value, size_t value_len)
{
    struct td_exchange *exchange = cls;
    (void)kind;
    if (exchange->header_count == TD_MAX_HEADER_FIELDS) {
        exchange->too_many = true;
        return MHD_NO;
    }
    struct td_header *header = &exchange->headers[exchange->header_count++];
    header->name = td_text_n(name, name_len);
    header->value = td_text_trim(td_text_n(value == NULL ? "" : value, value == NULL ? 0 : value_len), " \t");
    return MHD_YES;
}

/* Returns whether a field of this name has the token in its list, in any case. */
static bool has_token(const struct td_exchange *exchange, const char *name, const char *token)
{
    for (size_t i = 0; i < exchange->header_count; i++) {
        struct td_text list = exchange->headers[i].value;
        while (td_text_equals_ignore_case(exchange->headers[i].name, name) && list.len > 0)
            if (td_text_equals_ignore_case(td_text_trim(td_text_take_until(&list, ','), " \t"), token))
                return true;
    }
    return false;
}

/* Prepares for the request's body. If no handler would read the body, or the client is not authorized, answers at once
 * and closes the connection, so that clients without a token cannot use memory. */
static enum MHD_Result expect_upload(struct td_session *session, const struct td_request *request)
{
    if (!td_api_takes_body(request) || !td_api_admits(session->serving->api, request))
        return td_answer_begin(session, true);
    session->exchange.has_upload = true;
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_BODY);
    return MHD_YES;
}

enum MHD_Result td_request_reader_judge(struct MHD_Connection *mhd, struct td_session *session, const char *method,
                                        const char *version)
{
    const struct td_serving *serving = session->serving;
    struct td_exchange *exchange = &session->exchange;
    exchange->stage = TD_STAGE_JUDGED;
    exchange->method = method;
    exchange->header_count = 0;
    exchange->too_many = false;
    atomic_fetch_add_explicit(&serving->api->metrics.in_flight, 1, memory_order_relaxed);
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, collect_header, exchange);
    struct td_request request = td_session_request(session);
    bool head = strcmp(method, "HEAD") == 0;
    exchange->is_http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    exchange->is_last = exchange->is_http_1_0 ? !has_token(exchange, "Connection", "keep-alive")
                                              : has_token(exchange, "Connection", "close");
    struct td_guard_limits limits = {.max_header_bytes = (size_t)serving->config->max_header_bytes,
                                     .max_body_bytes = serving->config->max_body_bytes};
    struct td_guard_verdict verdict = td_request_guard(&request, version, exchange->too_many, &limits);
    if (verdict.status != 0 && !td_api_refuses_body(&request)) {
        atomic_fetch_add(&serving->api->metrics.malformed, 1);
        return td_answer_refuse(session, head, verdict.status, verdict.message);
    }
    if (session->link.connection->over == TD_OVER_TOTAL && !td_api_is_probe(&request)) {
        atomic_fetch_add(&serving->api->metrics.refused_total, 1);
        return td_answer_refuse(session, head, 503, "all connections are in use (--max-connections); try again");
    }
    if (verdict.has_unread_body)
        return td_answer_begin(session, true);
    if (verdict.body_bytes > 0 || verdict.status != 0)
        return expect_upload(session, &request);
    td_deadline_enter(&session->link.connection->deadline, TD_PHASE_HANDLING);
    return MHD_YES;
}
