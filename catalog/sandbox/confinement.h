/* Takes from a process everything that a parser does not need: the parser's process calls this before it reads the
 * first byte of a file. */
#ifndef TD_CATALOG_SANDBOX_CONFINEMENT_H
#define TD_CATALOG_SANDBOX_CONFINEMENT_H

#include "catalog/sandbox/parse_message.h"

/* Confines the calling process, which has one thread, for good. Closes all descriptors but number 0. Then, as far as
 * the host allows, three layers. rlimits: memory_bytes of memory of its own, no processes, no files that grow, no core,
 * a few descriptors. landlock: no file and no port can be opened. seccomp: system calls that a parser does not need end
 * the process, and so does memory for code. The process gets no new privileges, and other processes of its user cannot
 * look into it. Sets in *layers what holds. In a build with AddressSanitizer or ThreadSanitizer, which need more than
 * that, rlimits and seccomp do not hold, and standard error stays open for their reports. */
void td_confine(uint64_t memory_bytes, struct td_sandbox_layers *layers);

#endif
