/* Threads that work side by side on the same task, such as the files of a pull. */
#ifndef TD_SERVER_CMD_SHARED_CREW_H
#define TD_SERVER_CMD_SHARED_CREW_H

#include "core/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* The beginning of the struct that a thread works with. */
struct td_crew_member {
    struct td_error err; /* of the thread; TD_ERROR_INIT at first */
    pthread_t thread;    /* private, as all below */
    bool has_thread;
};

/* Calls `work` with each member at the same time, and returns when all calls have ended. members has `count` structs of
 * member_bytes, and each struct begins with a td_crew_member. The first member works on this thread, and after it each
 * one whose thread cannot be started. Returns whether no member has an error; else sets *err to one of them.
 * TD_CONFLICT, with which a member stops because another one has failed, comes after all others. */
bool td_crew_run(void *members, size_t count, size_t member_bytes, void *(*work)(void *member), struct td_error *err);

#endif
