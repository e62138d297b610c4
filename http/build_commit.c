#include "http/build_commit.h"

#include <td_commit.h> /* made by scripts/write_commit.cmake */

const char *td_build_commit(void)
{
    return TD_COMMIT;
}
