/* Work for the streams of one connection, on threads that may wait: requests are handled, bodies are read, and answers
 * that are streams are asked for more. At most TD_H2_RUNNERS threads work for a connection at once; requests that wait
 * for a change take none. */
#ifndef TD_SERVER_H2_H2_WORK_H
#define TD_SERVER_H2_H2_WORK_H

#include "server/h2/h2_stream.h"

enum { TD_H2_RUNNERS = 8 };

struct td_h2_crew;

/* A job that does the work of one stream after the other. */
struct td_h2_runner {
    struct td_h2_mail mail; /* first: on the way back mail is a runner */
    struct td_job job;
    struct td_h2_crew *crew;
    bool is_busy; /* of the loop */
};

struct td_h2_crew {
    struct td_serving *serving;
    struct td_h2_mailbox *mailbox;     /* of the connection's loop */
    void *connection;                  /* for on_idle */
    void (*on_idle)(void *connection); /* called by the loop's thread when the last runner has ended */
    pthread_mutex_t lock;
    struct td_h2_stream *first, *last; /* streams that wait for a runner; under the lock */
    struct td_h2_runner runners[TD_H2_RUNNERS];
};

/* The texts are borrowed, and the crew must not move. */
void td_h2_crew_init(struct td_h2_crew *crew, struct td_serving *serving, struct td_h2_mailbox *mailbox,
                     void *connection, void (*on_idle)(void *connection));

/* No runner may be busy. */
void td_h2_crew_fini(struct td_h2_crew *crew);

/* Returns whether a runner is busy. Called by the loop's thread, as are the functions below. */
bool td_h2_crew_is_busy(const struct td_h2_crew *crew);

/* Has the stream's task done. The stream is at work until it comes back by its mail. */
void td_h2_crew_add(struct td_h2_crew *crew, struct td_h2_stream *stream);

/* Takes the stream back if its work has not begun. Returns whether it did. */
bool td_h2_crew_withdraw(struct td_h2_crew *crew, struct td_h2_stream *stream);

/* Answers the request with an error, on the thread that has the stream. */
void td_h2_work_refuse(struct td_h2_stream *stream, int status, const char *message);

#endif
