#include "storage/fetch/fetch_client.h"

#include "core/clock.h"
#include "storage/fetch/fetch_url.h"
#include "storage/incoming.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- reputations --------------------------------------------------------------------------------------- */

void td_fetch_reputation_failed(struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].bad_until_ns, now_ns + TD_FETCH_BAD_S * TD_NS_PER_S);
}

void td_fetch_reputation_did_well(struct td_fetch_reputation *reputations, size_t server)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].bad_until_ns, 0);
}

bool td_fetch_reputation_is_bad(const struct td_fetch_reputation *reputations, size_t server, uint64_t now_ns)
{
    return reputations != NULL && atomic_load(&reputations[server].bad_until_ns) > now_ns;
}

void td_fetch_reputation_wait(struct td_fetch_reputation *reputations, size_t server, uint64_t seconds, uint64_t now_ns)
{
    if (reputations == NULL || !reputations[server].keeps_patience)
        return;
    uint64_t due_ns = now_ns + (seconds < TD_FETCH_PATIENCE_S ? seconds : TD_FETCH_PATIENCE_S) * TD_NS_PER_S;
    uint64_t before_ns = atomic_load(&reputations[server].due_ns);
    while (before_ns < due_ns && !atomic_compare_exchange_weak(&reputations[server].due_ns, &before_ns, due_ns))
        continue;
}

uint64_t td_fetch_reputation_due_ns(const struct td_fetch_reputation *reputations, size_t server)
{
    return reputations == NULL ? 0 : atomic_load(&reputations[server].due_ns);
}

void td_fetch_reputation_set_kind(struct td_fetch_reputation *reputations, size_t server, bool is_tensord)
{
    if (reputations != NULL)
        atomic_store(&reputations[server].is_tensord, is_tensord);
}

bool td_fetch_reputation_is_tensord(const struct td_fetch_reputation *reputations, size_t server)
{
    return reputations != NULL && atomic_load(&reputations[server].is_tensord);
}

/* ---- clients ------------------------------------------------------------------------------------------- */

enum { RECEIVE_BYTES = 256 * 1024 }; /* larger ones than libcurl's own 16 KiB need fewer calls */

struct td_fetch_client {
    char *urls[TD_FETCH_MAX_SERVERS]; /* owned, as the files below */
    size_t count;
    char *ca, *cert, *key;
    bool has_token;
    const char *token_advice;
    struct td_fetch_reputation *reputations; /* borrowed */
    struct curl_slist *headers;
    uint64_t retry_for_ns;
    unsigned stall_s;
};

/* ---- tokens -------------------------------------------------------------------------------------------- */

/* Checks that the text can be a token (RFC 6750 section 2.1, and more): printable ASCII without spaces. */
static bool is_token(struct td_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] <= ' ' || text.p[i] >= 0x7F)
            return false;
    return text.len > 0 && text.len <= TD_FETCH_TOKEN_BYTES;
}

/* Reads at most `capacity` bytes of a file. Returns their number, or -1 with the error. */
static ssize_t read_file(const char *path, char *bytes, size_t capacity, struct td_error *err)
{
    size_t got = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        (void)td_error_sys(err, errno == ENOENT ? TD_NOT_FOUND : TD_IO, errno, "cannot open \"%s\"", path);
        return -1;
    }
    while (got < capacity && (n = read(fd, bytes + got, capacity - got)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        got += (size_t)n;
    }
    if (n < 0)
        (void)td_error_sys(err, TD_IO, errno, "cannot read \"%s\"", path);
    (void)close(fd);
    return n < 0 ? -1 : (ssize_t)got;
}

bool td_fetch_token_read(const char *path, char **token, struct td_error *err)
{
    char bytes[TD_FETCH_TOKEN_BYTES + 3];
    ssize_t n = read_file(path, bytes, sizeof bytes, err);
    if (n < 0)
        return false;
    struct td_text text = td_text_trim(td_text_n(bytes, (size_t)n), " \t\r\n");
    bool ok = (size_t)n < sizeof bytes && is_token(text);
    *token = ok ? td_text_copy(text) : NULL;
    explicit_bzero(bytes, sizeof bytes);
    if (!ok)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "\"%s\" must hold one token of at most %d bytes, and nothing else (of `tensord token "
                            "new` the line \"token:\" without that word)",
                            path, TD_FETCH_TOKEN_BYTES);
    return *token != NULL || td_error_no_memory(err);
}

bool td_fetch_token_take(const char *text, const char *source, char **token, struct td_error *err)
{
    struct td_text given = td_text_of(text);
    if (given.len > 0 && given.p[given.len - 1] == '\n')
        given.len -= given.len > 1 && given.p[given.len - 2] == '\r' ? 2 : 1;
    if (!is_token(given))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "%s: the token must be printable ASCII without spaces, of at most %d bytes", source,
                            TD_FETCH_TOKEN_BYTES);
    *token = td_text_copy(given);
    return *token != NULL || td_error_no_memory(err);
}

void td_fetch_token_free(char *token)
{
    if (token != NULL)
        explicit_bzero(token, strlen(token));
    free(token);
}

/* ---- the client ---------------------------------------------------------------------------------------- */

/* Copies the path of a file of TLS, which must be readable. NULL stays NULL. */
static bool copy_file_name(const char *path, char **copy, struct td_error *err)
{
    if (path == NULL)
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return td_error_sys(err, errno == ENOENT ? TD_NOT_FOUND : TD_IO, errno, "cannot open \"%s\"", path);
    (void)close(fd);
    *copy = strdup(path);
    return *copy != NULL || td_error_no_memory(err);
}

static bool add_header(struct td_fetch_client *client, const char *text, struct td_error *err)
{
    struct curl_slist *longer = curl_slist_append(client->headers, text);
    if (longer == NULL)
        return td_error_no_memory(err);
    client->headers = longer;
    return true;
}

/* Puts the token into the field of each request. libcurl keeps that field to the host, port and scheme of the URL. */
static bool add_token(struct td_fetch_client *client, const char *token, struct td_error *err)
{
    char field[TD_FETCH_TOKEN_BYTES + 32];
    if (!is_token(td_text_of(token)))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the token must be printable ASCII without spaces, of at most %d bytes",
                            TD_FETCH_TOKEN_BYTES);
    (void)snprintf(field, sizeof field, "Authorization: Bearer %s", token);
    bool ok = add_header(client, field, err);
    client->has_token = ok;
    explicit_bzero(field, sizeof field);
    return ok;
}

static bool fill_client(struct td_fetch_client *client, const struct td_fetch_settings *settings, struct td_error *err)
{
    struct td_text base;
    if (settings->url_count == 0 || settings->url_count > TD_FETCH_MAX_SERVERS)
        return td_error_set(err, TD_INVALID_ARGUMENT, "give 1 to %d URLs, not %zu", TD_FETCH_MAX_SERVERS,
                            settings->url_count);
    for (; client->count < settings->url_count; client->count++) {
        if (!td_fetch_url_check(settings->urls[client->count], &base, err))
            return false;
        client->urls[client->count] = td_text_copy(base);
        if (client->urls[client->count] == NULL)
            return td_error_no_memory(err);
    }
    client->retry_for_ns = settings->retry_for_ns;
    client->token_advice = settings->token_advice;
    client->reputations = settings->reputations;
    client->stall_s = settings->stall_s == 0 ? TD_FETCH_STALL_S : settings->stall_s;
    return copy_file_name(settings->ca, &client->ca, err) && copy_file_name(settings->cert, &client->cert, err) &&
           copy_file_name(settings->key, &client->key, err) &&
           (settings->token == NULL || add_token(client, settings->token, err)) &&
           add_header(client, TD_INCOMING_CHECKS ": sha256", err) &&
           (settings->header == NULL || add_header(client, settings->header, err));
}

bool td_fetch_client_create(const struct td_fetch_settings *settings, struct td_fetch_client **out,
                            struct td_error *err)
{
    struct td_fetch_client *client;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return td_error_no_memory(err);
    client = calloc(1, sizeof *client);
    if (client == NULL) {
        curl_global_cleanup();
        return td_error_no_memory(err);
    }
    if (!fill_client(client, settings, err)) {
        td_fetch_client_destroy(client);
        return false;
    }
    *out = client;
    return true;
}

void td_fetch_client_destroy(struct td_fetch_client *client)
{
    if (client == NULL)
        return;
    for (size_t i = 0; i < client->count; i++)
        free(client->urls[i]);
    for (struct curl_slist *one = client->headers; one != NULL; one = one->next)
        explicit_bzero(one->data, strlen(one->data)); /* one holds the token */
    curl_slist_free_all(client->headers);
    free(client->ca);
    free(client->cert);
    free(client->key);
    free(client);
    curl_global_cleanup();
}

size_t td_fetch_client_count(const struct td_fetch_client *client)
{
    return client->count;
}

const char *td_fetch_client_url(const struct td_fetch_client *client, size_t server)
{
    return client->urls[server];
}

bool td_fetch_client_has_token(const struct td_fetch_client *client)
{
    return client->has_token;
}

const char *td_fetch_client_token_advice(const struct td_fetch_client *client)
{
    return client->token_advice;
}

struct td_fetch_reputation *td_fetch_client_reputations(const struct td_fetch_client *client)
{
    return client->reputations;
}

uint64_t td_fetch_client_retry_for_ns(const struct td_fetch_client *client)
{
    return client->retry_for_ns;
}

unsigned td_fetch_client_stall_s(const struct td_fetch_client *client)
{
    return client->stall_s;
}

void *td_fetch_client_fields(const struct td_fetch_client *client)
{
    return client->headers;
}

/* ---- handles ------------------------------------------------------------------------------------------- */

/* Sets the options for TLS. The name and the dates of a certificate are checked by default. */
static bool set_tls(const struct td_fetch_client *client, CURL *easy)
{
    return curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
           (client->ca == NULL || curl_easy_setopt(easy, CURLOPT_CAINFO, client->ca) == CURLE_OK) &&
           (client->cert == NULL || curl_easy_setopt(easy, CURLOPT_SSLCERT, client->cert) == CURLE_OK) &&
           (client->key == NULL || curl_easy_setopt(easy, CURLOPT_SSLKEY, client->key) == CURLE_OK);
}

void *td_fetch_client_handle(const struct td_fetch_client *client, size_t server, const char *path,
                             struct td_fetch_guard *guard)
{
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return NULL;
    bool ok = curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_MAXREDIRS, (long)TD_FETCH_MAX_REDIRECTS) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK && /* does not wait for a hanging resolver */
              curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)TD_FETCH_CONNECT_S) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, (long)TD_FETCH_STALL_BYTES) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)client->stall_s) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_USERAGENT, "tensord/" TD_VERSION) == CURLE_OK &&
              curl_easy_setopt(easy, CURLOPT_HTTPHEADER, client->headers) == CURLE_OK && set_tls(client, easy) &&
              td_fetch_guard_watch(guard, easy) && td_fetch_client_aim(client, easy, server, path);
    if (ok)
        return easy;
    curl_easy_cleanup(easy);
    return NULL;
}

bool td_fetch_client_aim(const struct td_fetch_client *client, void *handle, size_t server, const char *path)
{
    struct td_buffer url;
    const char *base = client->urls[server];
    td_buffer_init(&url);
    td_buffer_puts(&url, base);
    td_buffer_puts(&url, path);
    const char *text = td_buffer_terminate(&url);
    bool ok = text != NULL && curl_easy_setopt(handle, CURLOPT_URL, text) == CURLE_OK &&
              curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR,
                               td_fetch_url_has_tls(td_text_of(base)) ? "https" : "http,https") == CURLE_OK;
    td_buffer_fini(&url);
    return ok;
}
