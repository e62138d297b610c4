/* The mailbox of a loop (h2_server.h): other threads hand objects to the loop's thread. */
#ifndef TD_SERVER_H2_H2_MAILBOX_H
#define TD_SERVER_H2_H2_MAILBOX_H

#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>

/* Part of an object that is handed over. The thread that hands it over does not use the object after that. */
struct td_h2_mail {
    void (*receive)(struct td_h2_mail *mail); /* called by the loop's thread */
    struct td_h2_mail *next;                  /* of the mailbox */
};

struct td_h2_mailbox {
    pthread_mutex_t lock;
    struct td_h2_mail *first, *last; /* under the lock */
    int wake_fd;                     /* eventfd: can be read while there may be mail */
};

/* Errors: TD_RESOURCE_EXHAUSTED. After a failure there is nothing to finish. */
bool td_h2_mailbox_init(struct td_h2_mailbox *mailbox, struct td_error *err);
void td_h2_mailbox_fini(struct td_h2_mailbox *mailbox);

/* Hands the mail over and wakes the loop. Any thread. */
void td_h2_mailbox_post(struct td_h2_mailbox *mailbox, struct td_h2_mail *mail);

/* Wakes the loop without mail. Any thread. */
void td_h2_mailbox_wake(const struct td_h2_mailbox *mailbox);

/* Receives all mail. Called by the loop's thread. */
void td_h2_mailbox_receive(struct td_h2_mailbox *mailbox);

#endif
