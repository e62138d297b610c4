/* The parser's process: the same program, started by parse_pool.h. It gets one open file after the other, parses it,
 * and sends what it found. It has no path, no network and no descriptor but its socket and the file (confinement.h). */
#ifndef TD_CATALOG_SANDBOX_PARSE_WORKER_H
#define TD_CATALOG_SANDBOX_PARSE_WORKER_H

/* Runs the process that was started with the argument TD_PARSE_WORKER until the server closes the socket, which is
 * descriptor 0. arguments[0] is the limit on memory in bytes. Returns the exit code: 0, or 2 when it was not started by
 * the server. */
int td_parse_worker_run(int count, char **arguments);

#endif
