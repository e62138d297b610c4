#include "core/waiting.h"

static _Thread_local struct {
    bool is_forbidden, was_refused;
} waiting;

void td_waiting_forbid(void)
{
    waiting.is_forbidden = true;
    waiting.was_refused = false;
}

bool td_waiting_allow(void)
{
    bool was_refused = waiting.was_refused;
    waiting.is_forbidden = waiting.was_refused = false;
    return was_refused;
}

bool td_waiting_was_refused(void)
{
    return waiting.was_refused;
}

bool td_waiting_is_forbidden(void)
{
    return waiting.is_forbidden;
}

bool td_may_wait(struct td_error *err)
{
    if (!waiting.is_forbidden)
        return true;
    waiting.was_refused = true;
    return td_error_set(err, TD_INTERNAL, "this thread may not wait");
}
