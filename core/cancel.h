/* Cancellation: long work asks now and then whether anybody still waits for its result. */
#ifndef TD_CORE_CANCEL_H
#define TD_CORE_CANCEL_H

#include <stdbool.h>
#include <stddef.h>

struct td_cancel {
    /* Returns whether the work should stop. Quick; called by any thread that works for the same request. */
    bool (*is_asked)(void *context);
    void *context;
};

/* Returns whether the work should stop. cancel NULL: returns false, the work cannot be cancelled. */
static inline bool td_cancel_is_asked(const struct td_cancel *cancel)
{
    return cancel != NULL && cancel->is_asked(cancel->context);
}

#endif
