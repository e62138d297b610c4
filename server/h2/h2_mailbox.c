#include "server/h2/h2_mailbox.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool td_h2_mailbox_init(struct td_h2_mailbox *mailbox, struct td_error *err)
{
    *mailbox = (struct td_h2_mailbox){.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (mailbox->wake_fd < 0)
        return td_error_sys(err, TD_RESOURCE_EXHAUSTED, errno, "cannot make an eventfd");
    (void)pthread_mutex_init(&mailbox->lock, NULL);
    return true;
}

void td_h2_mailbox_fini(struct td_h2_mailbox *mailbox)
{
    (void)close(mailbox->wake_fd);
    (void)pthread_mutex_destroy(&mailbox->lock);
}

void td_h2_mailbox_wake(const struct td_h2_mailbox *mailbox)
{
    const uint64_t one = 1;
    ssize_t written = write(mailbox->wake_fd, &one, sizeof one);
    (void)written; /* fails only when the loop is to wake already */
}

void td_h2_mailbox_post(struct td_h2_mailbox *mailbox, struct td_h2_mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&mailbox->lock);
    const bool was_empty = mailbox->first == NULL;
    *(was_empty ? &mailbox->first : &mailbox->last->next) = mail;
    mailbox->last = mail;
    if (was_empty)
        td_h2_mailbox_wake(mailbox);
    pthread_mutex_unlock(&mailbox->lock);
}

void td_h2_mailbox_receive(struct td_h2_mailbox *mailbox)
{
    uint64_t count;
    ssize_t n = read(mailbox->wake_fd, &count, sizeof count);
    (void)n; /* there may be no count */
    pthread_mutex_lock(&mailbox->lock);
    struct td_h2_mail *mail = mailbox->first;
    mailbox->first = mailbox->last = NULL;
    pthread_mutex_unlock(&mailbox->lock);
    for (struct td_h2_mail *next; mail != NULL; mail = next) {
        next = mail->next;
        mail->receive(mail);
    }
}
