#include "storage/fetch/fetch_fault.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

static enum td_code code_of(CURLcode code, const char *text)
{
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return TD_PERMISSION_DENIED;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
        return TD_FAILED_PRECONDITION;
    case CURLE_OUT_OF_MEMORY:
        return TD_RESOURCE_EXHAUSTED;
    default: /* an alert is how a server refuses a certificate, or that there is none */
        return strstr(text, " alert ") != NULL ? TD_PERMISSION_DENIED : TD_UNAVAILABLE;
    }
}

/* Returns whether libcurl has given up a line of the header, which it bounds at 100 KB: until 8.6 with the code for no
 * memory, which here means that once the answer has begun. */
static bool is_endless_line(CURL *easy, CURLcode code)
{
    curl_off_t began_us = 0;
    return code == CURLE_OUT_OF_MEMORY &&
           curl_easy_getinfo(easy, CURLINFO_STARTTRANSFER_TIME_T, &began_us) == CURLE_OK && began_us > 0;
}

bool td_fetch_fault_of_code(void *easy, int code, const char *text, const char *what, struct td_error *err)
{
    CURLcode curl = (CURLcode)code;
    if (is_endless_line(easy, curl))
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: a line in the header of the answer is too long", what);
    const char *why = text[0] != '\0' ? text : curl_easy_strerror(curl);
    if (curl == CURLE_SSL_CONNECT_ERROR && strstr(text, "wrong version number") != NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "%s: this port does not speak TLS: use http://", what);
    return td_error_set(err, code_of(curl, text), "%s: %s", what, why);
}

bool td_fetch_fault_may_pass(const struct td_fetch_answer *answer)
{
    unsigned status = answer->status;
    if (status == 507)
        return answer->retry_after_s > 0;
    return status >= 500 || status == 408 || status == 425 || status == 429;
}

static enum td_code code_of_answer(const struct td_fetch_answer *answer)
{
    unsigned status = answer->status;
    if (td_fetch_fault_may_pass(answer))
        return TD_UNAVAILABLE;
    if (status == 401 || status == 403)
        return TD_PERMISSION_DENIED;
    if (status == 507)
        return TD_RESOURCE_EXHAUSTED;
    return status == 404 || status == 410 ? TD_NOT_FOUND : TD_FAILED_PRECONDITION;
}

bool td_fetch_fault_of_answer(const struct td_fetch_answer *answer, const char *advice, const char *what,
                              struct td_error *err)
{
    if (advice == NULL && answer->status == 401)
        advice = "a token is needed: none that may read it was given";
    struct td_error why = TD_ERROR_INIT;
    (void)td_error_set(&why, code_of_answer(answer), "%s: the server answered %u%s%s%s%s%s", what, answer->status,
                       advice != NULL ? " (" : "", advice != NULL ? advice : "", advice != NULL ? ")" : "",
                       answer->message[0] != '\0' ? ", " : "", answer->message);
    why.sys = why.code == TD_RESOURCE_EXHAUSTED ? EFBIG : 0;
    return td_error_copy(err, &why);
}

bool td_fetch_fault_never_fits(const struct td_error *why)
{
    return why->sys == EFBIG;
}
