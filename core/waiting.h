/* Threads that must not wait. A thread that serves many connections forbids itself to wait. Functions that would wait
 * for a disk, for other threads or for a long computation then fail. The thread drops what it has made so far, and
 * another thread, which may wait, does the work from the beginning. */
#ifndef TD_CORE_WAITING_H
#define TD_CORE_WAITING_H

#include "core/error.h"

/* Forbids the running thread to wait, until it calls td_waiting_allow. */
void td_waiting_forbid(void);

/* Allows the running thread to wait again, as every thread may at its start. Returns td_waiting_was_refused. */
bool td_waiting_allow(void);

/* Returns whether td_may_wait has returned false since td_waiting_forbid: the work must then be done again. Returns
 * false when waiting is not forbidden. */
bool td_waiting_was_refused(void);

/* Returns whether the running thread has forbidden itself to wait, for work that can be done in a way that does not. */
bool td_waiting_is_forbidden(void);

/* Returns whether the running thread may wait. If not, sets an error, records the refusal, and the caller fails without
 * having changed anything. */
bool td_may_wait(struct td_error *err);

#endif
