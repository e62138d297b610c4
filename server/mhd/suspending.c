#include "server/mhd/suspending.h"

#include <microhttpd.h>

static void suspend_connection(void *connection)
{
    MHD_suspend_connection(connection);
}

static void resume_connection(void *connection)
{
    MHD_resume_connection(connection);
}

const struct td_suspending td_mhd_suspending = {.suspend = suspend_connection, .resume = resume_connection};
