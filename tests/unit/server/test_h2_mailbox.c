/* Mail that several threads hand to one. */
#include "server/h2/h2_mailbox.h"

#include "tests/unit/unit.h"

#include <poll.h>
#include <pthread.h>

enum { THREADS = 4, EACH = 2000 };

struct letter {
    struct td_h2_mail mail; /* first: on the way back mail is a letter */
    int thread, number;
};

static struct td_h2_mailbox mailbox;
static struct letter letters[THREADS][EACH];
static int received[THREADS]; /* letters of each thread; used by the receiving thread alone */

static void receive(struct td_h2_mail *mail)
{
    const struct letter *letter = (struct letter *)(void *)mail;
    assert_int_equal(letter->number, received[letter->thread]);
    received[letter->thread]++;
}

static void *post(void *argument)
{
    struct letter *mine = argument;
    for (int i = 0; i < EACH; i++)
        td_h2_mailbox_post(&mailbox, &mine[i].mail);
    return NULL;
}

static void all_mail_is_received_in_the_order_of_each_thread(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    pthread_t threads[THREADS];
    assert_true(td_h2_mailbox_init(&mailbox, &err));
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < EACH; i++)
            letters[t][i] = (struct letter){.mail.receive = receive, .thread = t, .number = i};
        assert_int_equal(pthread_create(&threads[t], NULL, post, letters[t]), 0);
    }
    for (int sum = 0; sum < THREADS * EACH;) {
        struct pollfd wake = {.fd = mailbox.wake_fd, .events = POLLIN};
        assert_int_equal(poll(&wake, 1, 20000), 1); /* no wake is lost */
        td_h2_mailbox_receive(&mailbox);
        sum = 0;
        for (int t = 0; t < THREADS; t++)
            sum += received[t];
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    td_h2_mailbox_fini(&mailbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_mail_is_received_in_the_order_of_each_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
