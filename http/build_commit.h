/* The Git commit that this program was built from. */
#ifndef TD_HTTP_BUILD_COMMIT_H
#define TD_HTTP_BUILD_COMMIT_H

/* Returns the value of the CMake variable TD_COMMIT if it was set; else the first 12 hexadecimal digits of the commit,
 * with "-dirty" if the sources differed from it; or "unknown". The text needs no escapes in JSON and in metric
 * labels. */
const char *td_build_commit(void);

#endif
