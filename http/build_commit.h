/* The commit of which this program was built. */
#ifndef TD_HTTP_BUILD_COMMIT_H
#define TD_HTTP_BUILD_COMMIT_H

/* Returns the first 12 hexadecimal digits of the commit, with "-dirty" where the sources differed from it, the value of
 * the CMake variable TD_COMMIT, or "unknown". It needs no escape in JSON and in labels of metrics. */
const char *td_build_commit(void);

#endif
