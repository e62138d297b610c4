/* Cyclic redundancy checks that S3 clients send and no library of this program computes. Pure; any thread. */
#ifndef TD_CORE_CRC_H
#define TD_CORE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC of bytes[0..len) appended to bytes whose CRC is `crc`, 0 for none. CRC-32C: RFC 3720 appendix B.4.
 * CRC-64/NVME: NVM Express NVM Command Set Specification, section 5.2.1.3.4. */
uint32_t td_crc32c(uint32_t crc, const void *bytes, size_t len);
uint64_t td_crc64nvme(uint64_t crc, const void *bytes, size_t len);

#endif
