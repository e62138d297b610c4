#include "catalog/remote/remote_model.h"

#include "core/clock.h"
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)

enum how { ANSWERS, IS_SILENT, IS_BUSY, HAS_NO_ROOM, HAS_NOT };

/* A Hub whose tree has so many pages with a file each. It answers one connection after the other. */
struct site {
    int listener;
    unsigned port;
    const char *prefix; /* of all paths */
    bool links_have_host, links_have_prefix;
    unsigned pages;
    enum how tree;
    _Atomic unsigned asked; /* requests */
    pthread_t thread;
};

static void send_answer(int fd, const char *status, const char *fields, const char *body)
{
    char text[1024];
    int len = snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
                       fields, strlen(body), body);
    (void)send(fd, text, (size_t)len, MSG_NOSIGNAL);
}

/* Waits until the client has closed its side. */
static void wait_for_end(int fd)
{
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
        continue;
}

static void send_page(const struct site *site, int fd, const char *path)
{
    char host[40] = "";
    char target[200];
    char link[300] = "";
    char body[200];
    const char *cursor = strstr(path, "cursor=");
    unsigned page = cursor == NULL ? 0 : (unsigned)strtoul(cursor + 7, NULL, 10);
    (void)snprintf(body, sizeof body, "[{\"type\":\"file\",\"path\":\"%05u\",\"size\":1}]", page);
    if (site->links_have_host)
        (void)snprintf(host, sizeof host, "http://127.0.0.1:%u", site->port);
    (void)snprintf(target, sizeof target, "%s%s/api/models/org/m/tree/x?cursor=%u", host,
                   site->links_have_prefix ? site->prefix : "", page + 1);
    if (page + 1 < site->pages)
        (void)snprintf(link, sizeof link, "Link: <%s>; rel=\"next\"\r\n", target);
    send_answer(fd, "200 OK", link, body);
}

static void answer(struct site *site, int fd)
{
    char request[4096] = "";
    size_t got = 0;
    ssize_t n = 1;
    while (n > 0 && strstr(request, "\r\n\r\n") == NULL && got + 1 < sizeof request) {
        n = recv(fd, request + got, sizeof request - 1 - got, 0);
        got += n > 0 ? (size_t)n : 0;
        request[got] = '\0';
    }
    atomic_fetch_add(&site->asked, 1);
    const char *path = request + strlen("GET ");
    size_t prefix = strlen(site->prefix);
    if (strncmp(path, site->prefix, prefix) != 0 || strncmp(path + prefix, "/api/models/org/m/", 18) != 0)
        send_answer(fd, "404 Not Found", "", "");
    else if (strncmp(path + prefix, "/api/models/org/m/revision/", 27) == 0)
        send_answer(fd, "200 OK", "", "{\"sha\":\"0123456789abcdef0123456789abcdef01234567\"}");
    else if (site->tree == IS_BUSY)
        send_answer(fd, "503 Service Unavailable", "", "");
    else if (site->tree == HAS_NO_ROOM)
        send_answer(fd, "507 Insufficient Storage", "", "");
    else if (site->tree == HAS_NOT)
        send_answer(fd, "404 Not Found", "", "");
    else if (site->tree == ANSWERS)
        send_page(site, fd, path);
    wait_for_end(fd);
    (void)close(fd);
}

static void *serve(void *argument)
{
    struct site *site = argument;
    int fd;
    while ((fd = accept(site->listener, NULL, NULL)) >= 0)
        answer(site, fd);
    return NULL;
}

static void site_open(struct site *site)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    site->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(site->listener >= 0 && bind(site->listener, (const struct sockaddr *)&address, len) == 0);
    assert_true(listen(site->listener, 8) == 0 && getsockname(site->listener, (struct sockaddr *)&address, &len) == 0);
    site->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&site->thread, NULL, serve, site), 0);
}

static void site_close(struct site *site)
{
    (void)shutdown(site->listener, SHUT_RDWR);
    assert_int_equal(pthread_join(site->thread, NULL), 0);
    (void)close(site->listener);
}

/* Lists the model by a site with these bounds; 0: the default. Returns the number of files, or -1 with the error. */
static int list(struct site *site, const struct td_remote_bounds *bounds, struct td_error *err)
{
    char url[100];
    const char *urls[] = {url};
    struct td_fetch_client *client;
    struct td_fetch_session *session;
    struct td_remote_model model;
    site_open(site);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u%s", site->port, site->prefix);
    const struct td_fetch_settings settings = {.urls = urls, .url_count = 1, .retry_for_ns = 3600 * 1000 * MS};
    assert_true(td_fetch_client_create(&settings, &client, NULL));
    assert_true(td_fetch_session_create(client, NULL, NULL, &session, NULL));
    td_remote_model_init(&model);
    assert_true(model.bounds.time_ns > 0 && model.bounds.bytes > 0 && model.bounds.items > 0);
    model.bounds.time_ns = bounds->time_ns != 0 ? bounds->time_ns : model.bounds.time_ns;
    model.bounds.bytes = bounds->bytes != 0 ? bounds->bytes : model.bounds.bytes;
    model.bounds.items = bounds->items != 0 ? bounds->items : model.bounds.items;
    bool ok = td_remote_model_list(session, "org/m", "main", NULL, &model, err);
    int count = ok ? (int)model.listing.count : -1;
    td_remote_model_fini(&model);
    td_fetch_session_destroy(session);
    td_fetch_client_destroy(client);
    site_close(site);
    return count;
}

/* Sends a request while no server may be asked: it fails, and an earlier answer in `answer` is cleared. */
static void check_no_answer(struct td_fetch_session *session)
{
    struct td_fetch_answer answer = {.status = 404};
    struct td_buffer body;
    size_t server = 0;
    td_buffer_init(&body);
    assert_false(td_fetch_session_get(session, "/", 100, false, &server, &answer, &body, NULL));
    assert_int_equal(answer.status, 0);
    td_buffer_fini(&body);
}

/* A server that has sent Retry-After, for another model, is not asked, and others are. When all have, nobody is
 * kept waiting. */
static void servers_that_are_to_be_left_alone_are_not_asked(void **state)
{
    (void)state;
    struct site sites[] = {{.prefix = "", .pages = 1}, {.prefix = "", .pages = 1}};
    char text[2][40];
    const char *urls[] = {text[0], text[1]};
    struct td_fetch_reputation reputations[] = {{.keeps_patience = true}, {.keeps_patience = true}};
    struct td_fetch_client *client;
    struct td_fetch_session *session;
    struct td_remote_model model;
    struct td_error err = TD_ERROR_INIT;
    for (size_t i = 0; i < 2; i++) {
        site_open(&sites[i]);
        (void)snprintf(text[i], sizeof text[i], "http://127.0.0.1:%u", sites[i].port);
    }
    const struct td_fetch_settings settings = {
        .urls = urls, .url_count = 2, .retry_for_ns = 20 * 1000 * MS, .reputations = reputations};
    assert_true(td_fetch_client_create(&settings, &client, NULL));
    assert_true(td_fetch_session_create(client, NULL, NULL, &session, NULL));
    td_fetch_reputation_wait(reputations, 0, 60, td_clock_ns());
    for (int knows_kind = 0; knows_kind < 2; knows_kind++) {
        struct td_remote_kinds kinds = {.known = {knows_kind == 1}};
        td_remote_model_init(&model);
        CHECK(td_remote_model_list(session, "org/m", "main", &kinds, &model, &err), "%s", err.message);
        assert_int_equal(model.server, 1);
        td_remote_model_fini(&model);
    }
    td_fetch_reputation_wait(reputations, 1, 50, td_clock_ns());
    unsigned asked = atomic_load(&sites[1].asked);
    td_remote_model_init(&model);
    assert_false(td_remote_model_list(session, "org/m", "main", NULL, &model, &err));
    CHECK(err.code == TD_UNAVAILABLE && strncmp(err.message, urls[1], strlen(urls[1])) == 0 &&
              strstr(err.message, " has sent Retry-After and may be asked again in 50 s") != NULL,
          "%s", err.message);
    assert_int_equal(atomic_load(&sites[0].asked), 0);
    assert_int_equal(atomic_load(&sites[1].asked), asked);
    td_remote_model_fini(&model);
    check_no_answer(session);
    td_fetch_session_destroy(session);
    td_fetch_client_destroy(client);
    site_close(&sites[0]);
    site_close(&sites[1]);
}

/* A server that is too small says nothing of the others: only where none may have the model later, it is too large. */
static void one_server_is_too_small_for_the_model(void **state)
{
    (void)state;
    static const struct {
        enum how tree[2];
        enum td_code code;
        int sys;
    } cases[] = {
        {{HAS_NO_ROOM, HAS_NO_ROOM}, TD_RESOURCE_EXHAUSTED, EFBIG},
        {{HAS_NOT, HAS_NO_ROOM}, TD_RESOURCE_EXHAUSTED, EFBIG},
        {{HAS_NO_ROOM, IS_BUSY}, TD_UNAVAILABLE, 0},
        {{IS_BUSY, HAS_NO_ROOM}, TD_UNAVAILABLE, 0},
        {{HAS_NO_ROOM, ANSWERS}, TD_OK, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct site sites[] = {{.prefix = "", .pages = 1, .tree = cases[i].tree[0]},
                               {.prefix = "", .pages = 1, .tree = cases[i].tree[1]}};
        char text[2][40];
        const char *urls[] = {text[0], text[1]};
        struct td_fetch_client *client;
        struct td_fetch_session *session;
        struct td_remote_kinds kinds = {.known = {true, true}};
        struct td_remote_model model;
        struct td_error err = TD_ERROR_INIT;
        for (size_t n = 0; n < 2; n++) {
            site_open(&sites[n]);
            (void)snprintf(text[n], sizeof text[n], "http://127.0.0.1:%u", sites[n].port);
        }
        const struct td_fetch_settings settings = {.urls = urls, .url_count = 2};
        assert_true(td_fetch_client_create(&settings, &client, NULL));
        assert_true(td_fetch_session_create(client, NULL, NULL, &session, NULL));
        td_remote_model_init(&model);
        (void)td_remote_model_list(session, "org/m", "main", &kinds, &model, &err);
        CHECK(err.code == cases[i].code && err.sys == cases[i].sys, "%zu: %d, %s", i, err.sys, err.message);
        td_remote_model_fini(&model);
        td_fetch_session_destroy(session);
        td_fetch_client_destroy(client);
        site_close(&sites[0]);
        site_close(&sites[1]);
    }
}

/* A server below a path of another one links to its pages with that path or without it, and with its host or not. */
static void pages_below_a_path(void **state)
{
    (void)state;
    const struct td_remote_bounds bounds = {0};
    for (unsigned i = 0; i < 4; i++) {
        struct site site = {
            .prefix = "/a/b", .links_have_host = (i & 1) != 0, .links_have_prefix = (i & 2) != 0, .pages = 3};
        struct td_error err = TD_ERROR_INIT;
        CHECK(list(&site, &bounds, &err) == 3, "%u: %s", i, err.message);
    }
}

/* shows: security.md pull-endless-answers */
static void what_a_list_costs_is_bounded(void **state)
{
    (void)state;
    static const struct {
        struct td_remote_bounds bounds;
        enum how tree;
        enum td_code code;
        const char *says;
    } cases[] = {
        {{.items = 40}, ANSWERS, TD_FAILED_PRECONDITION, "names more than 40 files and directories"},
        {{.bytes = 2000}, ANSWERS, TD_FAILED_PRECONDITION, "has more than 2000 bytes"},
        {{.time_ns = 200 * MS}, ANSWERS, TD_UNAVAILABLE, "takes longer than 0.2 s"},
        {{.time_ns = 200 * MS}, IS_SILENT, TD_UNAVAILABLE, "takes longer than 0.2 s"},
        {{.time_ns = 700 * MS}, IS_BUSY, TD_UNAVAILABLE, "takes longer than 0.7 s"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct site site = {.prefix = "", .pages = 1000000, .tree = cases[i].tree};
        struct td_error err = TD_ERROR_INIT;
        uint64_t begin_ns = td_clock_ns();
        CHECK(list(&site, &cases[i].bounds, &err) == -1, "%zu", i);
        CHECK(err.code == cases[i].code && strstr(err.message, cases[i].says) != NULL, "%zu: %s", i, err.message);
        CHECK(td_clock_ns() - begin_ns < 20 * 1000 * MS, "%zu", i);
    }
}

static void what_is_within_the_bounds_is_listed(void **state)
{
    (void)state;
    struct site site = {.prefix = "", .pages = 40};
    const struct td_remote_bounds bounds = {.items = 40, .bytes = UINT64_C(40) * 41};
    struct td_error err = TD_ERROR_INIT;
    CHECK(list(&site, &bounds, &err) == 40, "%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_below_a_path),
        cmocka_unit_test(servers_that_are_to_be_left_alone_are_not_asked),
        cmocka_unit_test(one_server_is_too_small_for_the_model),
        cmocka_unit_test(what_a_list_costs_is_bounded),
        cmocka_unit_test(what_is_within_the_bounds_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
