/* Answers while no scan has succeeded yet: why, and that nothing is published. The tests wrap fdopendir, which only a
 * scan calls, to get a directory that cannot be listed. */
#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>

static _Atomic bool disk_fails;

DIR *__wrap_fdopendir(int fd);
DIR *__real_fdopendir(int fd);

DIR *__wrap_fdopendir(int fd)
{
    if (!atomic_load(&disk_fails))
        return __real_fdopendir(fd);
    errno = EIO;
    return NULL;
}

static void check(struct loopback *loop, const char *target, bool by_s3, int status, const char *said)
{
    struct answer answer;
    if (by_s3)
        loopback_ask_s3(loop, "GET", target, NULL, &answer);
    else
        loopback_get(loop, target, &answer);
    CHECK(answer.response.status == status && strstr(answer.body, said) != NULL, "%s: %d %s", target,
          answer.response.status, answer.body);
    answer_fini(&answer);
}

static void a_failed_first_scan_is_told(void **state)
{
    (void)state;
    struct tree tree;
    struct loopback loop;
    char reason[512];
    tree_open(&tree);
    tree_simple(&tree, "m/x.safetensors", "a");
    atomic_store(&disk_fails, true);
    loopback_open(&loop, &tree); /* waits for the end of the first scan */
    (void)snprintf(reason, sizeof reason, "cannot list \\\"%s\\\": Input/output error", tree.path);
    check(&loop, "/readyz", false, 503, "\"state\":\"failed\"");
    check(&loop, "/readyz", false, 503, reason);
    static const char *const targets[] = {"/models", "/models/m", "/api/models"};
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        check(&loop, targets[i], false, 503, "the first scan failed");
        check(&loop, targets[i], false, 503, "Input/output error");
    }
    check(&loop, "/", true, 503, "the first scan failed");
    loopback_rescan(&loop); /* fails again, so nothing is published */
    check(&loop, "/readyz", false, 503, "\"state\":\"failed\"");
    atomic_store(&disk_fails, false);
    loopback_rescan(&loop);
    check(&loop, "/readyz", false, 200, "\"state\":\"ready\"");
    check(&loop, "/models", false, 200, "\"m\"");
    atomic_store(&disk_fails, true); /* after a first success a failure changes nothing */
    loopback_rescan(&loop);
    check(&loop, "/readyz", false, 200, "\"state\":\"ready\"");
    check(&loop, "/models", false, 200, "\"m\"");
    atomic_store(&disk_fails, false);
    loopback_close(&loop);
    tree_close(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_first_scan_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
