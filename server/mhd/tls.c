#include "server/mhd/tls.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/socket_send.h"
#include "server/host/file_change.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct td_tls {
    struct td_tls_files files;
    pthread_mutex_t lock; /* of `newest` */
    struct td_tls_credentials *newest;
    struct td_file_change change; /* used by one thread, as is the next one */
    bool is_waiting;              /* the files could not be read; reading is retried until it succeeds */
};

static void warn_of_expiry(const struct td_tls *tls, int64_t expiry_s)
{
    enum { DAY_S = 86400 };
    char when[40];
    int64_t left_s = expiry_s - td_wall_now().seconds;
    if (left_s > (int64_t)TD_TLS_WARN_DAYS * DAY_S)
        return;
    (void)td_wall_rfc3339((struct td_wall){.seconds = expiry_s}, when, sizeof when);
    if (left_s <= 0)
        td_log(TD_LOG_ERROR,
               "the certificate \"%s\" has expired at %s, clients refuse it from now on: replace it, tensord reads it "
               "again by itself",
               tls->files.cert, when);
    else
        td_log(TD_LOG_WARN, "the certificate \"%s\" expires at %s: replace it, tensord reads it again by itself",
               tls->files.cert, when);
}

/* Logs the names and the expiry of the new connections' certificate. after: the text after the file's path. */
static void log_certificate(const struct td_tls *tls, const char *after)
{
    char when[40];
    (void)td_wall_rfc3339((struct td_wall){.seconds = td_tls_expiry_s(tls)}, when, sizeof when);
    td_log(TD_LOG_INFO, "read the certificate \"%s\"%s: it is for %s, until %s", tls->files.cert, after,
           td_tls_credentials_names(tls->newest), when);
}

/* Reads the files. On success new connections get their content. */
static bool load_credentials(struct td_tls *tls, struct td_error *err)
{
    struct td_tls_credentials *fresh = NULL;
    if (!td_tls_credentials_load(&tls->files, &fresh, err))
        return false;
    warn_of_expiry(tls, td_tls_credentials_expiry_s(fresh));
    pthread_mutex_lock(&tls->lock);
    struct td_tls_credentials *old = tls->newest;
    tls->newest = fresh;
    pthread_mutex_unlock(&tls->lock);
    td_tls_credentials_unref(old);
    return true;
}

bool td_tls_create(const struct td_tls_files *files, struct td_tls **out, struct td_error *err)
{
    struct td_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return td_error_no_memory(err);
    tls->files = *files;
    tls->change = (struct td_file_change){.paths = {files->cert, files->key, files->client_ca}};
    td_file_change_note(&tls->change);
    (void)pthread_mutex_init(&tls->lock, NULL);
    if (!load_credentials(tls, err)) {
        td_tls_destroy(tls);
        return false;
    }
    log_certificate(tls, "");
    *out = tls;
    return true;
}

void td_tls_destroy(struct td_tls *tls)
{
    if (tls == NULL)
        return;
    td_tls_credentials_unref(tls->newest);
    (void)pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* Reads the files again. After a fault the old credentials stay. A fault that may pass, such as a lack of descriptors
 * or memory, is logged once. */
static void load_again(struct td_tls *tls)
{
    struct td_error err = TD_ERROR_INIT;
    if (load_credentials(tls, &err)) {
        tls->is_waiting = false;
        log_certificate(tls, " again");
        return;
    }
    bool may_pass = err.code == TD_IO || err.code == TD_RESOURCE_EXHAUSTED;
    if (!tls->is_waiting || !may_pass)
        td_log(TD_LOG_ERROR, "new connections get the old certificate, since the new one has a fault: %s", err.message);
    tls->is_waiting = may_pass;
    if (may_pass)
        td_file_change_forget(&tls->change);
}

void td_tls_reload(struct td_tls *tls)
{
    td_file_change_note(&tls->change);
    load_again(tls);
}

void td_tls_watch(struct td_tls *tls)
{
    if (td_file_change_look(&tls->change))
        load_again(tls);
}

int64_t td_tls_expiry_s(const struct td_tls *tls)
{
    return td_tls_credentials_expiry_s(tls->newest);
}

/* Sends records for GnuTLS. While more of the answer follows, the kernel may join them into full packets. GnuTLS calls
 * it on the connection's thread. */
static ssize_t send_records(gnutls_transport_ptr_t transport, const giovec_t *parts, int count)
{
    const struct td_tls_stream *stream = transport;
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    return td_socket_send_message(stream->fd, &message, MSG_NOSIGNAL | (stream->more_follows ? MSG_MORE : 0));
}

struct td_tls_credentials *td_tls_begin(struct td_tls *tls, gnutls_session_t session, struct td_tls_stream *stream)
{
    pthread_mutex_lock(&tls->lock);
    struct td_tls_credentials *credentials = td_tls_credentials_ref(tls->newest);
    pthread_mutex_unlock(&tls->lock);
    if (!td_tls_credentials_give(credentials, session)) {
        td_tls_credentials_unref(credentials);
        return NULL;
    }
    gnutls_transport_set_ptr2(session, (gnutls_transport_ptr_t)(intptr_t)stream->fd, stream);
    gnutls_transport_set_vec_push_function(session, send_records);
    return credentials;
}

uint64_t td_tls_plain_bytes(uint64_t bytes)
{
    /* Of a record: the header of 5 bytes, and at most 24 more (TLS 1.2 with GCM; RFC 5288 section 3). The first and the
     * last record may be short. */
    enum { RECORD_BYTES = 16384, EXTRA_BYTES = 29, SHORT_RECORDS = 3 };
    uint64_t extra_bytes = (bytes / RECORD_BYTES + SHORT_RECORDS) * EXTRA_BYTES;
    return bytes > extra_bytes ? bytes - extra_bytes : 0;
}
