/* Checks of the kit itself. A failure means that the environment of the test is broken, and ends the process. */
#ifndef TD_TESTS_KIT_KIT_H
#define TD_TESTS_KIT_KIT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIT_CHECK(condition)                                                                                          \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            (void)fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
            abort();                                                                                                  \
        }                                                                                                             \
    } while (0)

#endif
