#include "core/small_thread.h"

#include <stddef.h>

int td_small_thread_start(void *(*run)(void *argument), void *argument, pthread_t *out)
{
    pthread_t thread;
    pthread_attr_t attributes;
    int sys = pthread_attr_init(&attributes);
    if (sys != 0)
        return sys;
    (void)pthread_attr_setstacksize(&attributes, TD_SMALL_STACK_BYTES);
    if (out == NULL)
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sys = pthread_create(out != NULL ? out : &thread, &attributes, run, argument);
    (void)pthread_attr_destroy(&attributes);
    return sys;
}
