#include "server/serving/tls.h"

#include "tests/unit/unit.h"

#include <gnutls/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A folder with the files of a certificate and its key. */
struct files {
    char folder[32], cert[64], key[64];
};

static void write_file(const char *path, const gnutls_datum_t *content)
{
    char fresh[80];
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(content->data, 1, content->size, file), content->size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(fresh, path), 0);
}

/* Writes a new pair that expires at this time. */
static void write_pair(const struct files *files, time_t expiry)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
    gnutls_datum_t text;
    assert_int_equal(gnutls_x509_privkey_init(&key), 0);
    assert_int_equal(
        gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
    assert_int_equal(gnutls_x509_crt_init(&cert), 0);
    assert_int_equal(gnutls_x509_crt_set_version(cert, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(cert, "\x01", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(cert, 1), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(cert, expiry), 0);
    assert_int_equal(gnutls_x509_crt_set_key(cert, key), 0);
    assert_int_equal(gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0), 0);
    assert_int_equal(gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(files->cert, &text);
    gnutls_free(text.data);
    assert_int_equal(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text), 0);
    write_file(files->key, &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_privkey_deinit(key);
}

static void make_files(struct files *files)
{
    (void)snprintf(files->folder, sizeof files->folder, "/tmp/tensord-tls-XXXXXX");
    assert_non_null(mkdtemp(files->folder));
    (void)snprintf(files->cert, sizeof files->cert, "%s/cert.pem", files->folder);
    (void)snprintf(files->key, sizeof files->key, "%s/key.pem", files->folder);
}

static void remove_files(const struct files *files)
{
    assert_int_equal(unlink(files->cert), 0);
    assert_int_equal(unlink(files->key), 0);
    assert_int_equal(rmdir(files->folder), 0);
}

FIXTURE(files, struct files, make_files, remove_files)

/* A thread that begins sessions while another reloads. */
static void *begin_sessions(void *argument)
{
    enum { SESSIONS = 500 };
    struct td_tls_stream stream = {.fd = -1};
    for (int i = 0; i < SESSIONS; i++) {
        gnutls_session_t session;
        assert_int_equal(gnutls_init(&session, GNUTLS_SERVER), 0);
        assert_int_equal(gnutls_priority_set_direct(session, TD_TLS_PRIORITIES, NULL), 0);
        struct td_tls_credentials *credentials = td_tls_begin(argument, session, "http/1.1", &stream);
        assert_non_null(credentials);
        td_tls_credentials_unref(credentials);
        gnutls_deinit(session);
    }
    return NULL;
}

/* shows: security.md tls-reload */
static void reloads_and_new_sessions_do_not_meet(void **state)
{
    enum { RELOADS = 50, FIRST_EXPIRY = 2000000000 };
    struct files *files = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_tls *tls = NULL;
    pthread_t thread;
    const struct td_tls_files paths = {.cert = files->cert, .key = files->key, .client_ca = ""};
    write_pair(files, FIRST_EXPIRY);
    assert_true(td_tls_create(&paths, &tls, &err));
    assert_int_equal(pthread_create(&thread, NULL, begin_sessions, tls), 0);
    for (int i = 1; i <= RELOADS; i++) {
        write_pair(files, FIRST_EXPIRY + i);
        td_tls_look(tls, true);
        assert_int_equal(td_tls_expiry_s(tls), FIRST_EXPIRY + i);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    td_tls_destroy(tls);
}

static void a_fault_keeps_the_old_credentials(void **state)
{
    enum { EXPIRY = 2000000000 };
    struct files *files = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_tls *tls = NULL;
    const gnutls_datum_t nothing = {.data = (unsigned char[]){'x'}, .size = 1};
    const struct td_tls_files paths = {.cert = files->cert, .key = files->key, .client_ca = ""};
    write_pair(files, EXPIRY);
    assert_true(td_tls_create(&paths, &tls, &err));
    write_file(files->cert, &nothing);
    td_tls_look(tls, true);
    assert_int_equal(td_tls_expiry_s(tls), EXPIRY);
    td_tls_destroy(tls);
    assert_false(td_tls_create(&paths, &tls, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
}

/* RFC 8446 section 5.2 (TLS 1.3: 5 bytes of header, 1 of type, 16 of tag) and RFC 5288 section 3 (TLS 1.2: 5 of header,
 * 8 of nonce, 16 of tag); records of at most 2^14 bytes. */
static void plain_bytes_are_a_fair_lower_bound(void **state)
{
    (void)state;
    static const uint64_t extras[] = {22, 29};
    static const uint64_t lengths[] = {0, 1, 200, 16384, 16385, 300000, 100000000};
    for (size_t i = 0; i < COUNT_OF(extras); i++) {
        for (size_t k = 0; k < COUNT_OF(lengths); k++) {
            uint64_t header = 200; /* in a record of its own */
            uint64_t records = 1 + (lengths[k] + 16383) / 16384;
            uint64_t plain = header + lengths[k];
            uint64_t counted = td_tls_plain_bytes(plain + records * extras[i]);
            CHECK(counted <= plain && counted + 100 + plain / 1000 >= plain, "%llu of %llu",
                  (unsigned long long)counted, (unsigned long long)plain);
        }
    }
    assert_int_equal(td_tls_plain_bytes(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(files, reloads_and_new_sessions_do_not_meet),
        TEST_IN(files, a_fault_keeps_the_old_credentials),
        cmocka_unit_test(plain_bytes_are_a_fair_lower_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
