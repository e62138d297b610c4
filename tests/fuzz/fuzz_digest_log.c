/* A log of digests, as in --state-dir. The first byte of the input has two bits. Bit 0: every record gets its right
 * checksum, which a fuzzer cannot guess. Bit 1: the file gets its right header. A second reader, written from
 * digest_log.h, says which digests must be known after a start, and no others may be. After a start that writes, the
 * next start knows the same digests and those that were added. */
#include "catalog/digests/digest_log.h"

#include "core/log.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { HEADER_BYTES = 16, RECORD_BYTES = 88, CRC_AT = 80, MAX_BYTES = 16384 };

static const uint8_t header[HEADER_BYTES] = {'t', 'd', 'i', 'g', 'e', 's', 't', 's', 1, 0, 0, 0, 4, 3, 2, 1};

/* On a file system in memory, if there is one. */
static char directory[64] = "/dev/shm/tensord-fuzz-XXXXXX";
static char file_path[96], lock_path[96];

static void remove_directory(void)
{
    (void)unlink(file_path);
    (void)unlink(lock_path);
    (void)rmdir(directory);
}

static void make_directory(void)
{
    if (file_path[0] != '\0')
        return;
    if (mkdtemp(directory) == NULL) {
        (void)snprintf(directory, sizeof directory, "/tmp/tensord-fuzz-XXXXXX");
        FUZZ_CHECK(mkdtemp(directory) != NULL);
    }
    (void)snprintf(file_path, sizeof file_path, "%s/digests", directory);
    (void)snprintf(lock_path, sizeof lock_path, "%s/lock", directory);
    FUZZ_CHECK(atexit(remove_directory) == 0);
    td_log_set_level(TD_LOG_ERROR);
}

static uint64_t load(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

static void repair(uint8_t *bytes, size_t len, uint8_t how)
{
    if ((how & 2) != 0 && len >= HEADER_BYTES)
        memcpy(bytes, header, HEADER_BYTES);
    for (size_t at = HEADER_BYTES; (how & 1) != 0 && len >= at + RECORD_BYTES; at += RECORD_BYTES) {
        uint32_t crc = (uint32_t)crc32(0, bytes + at, CRC_AT);
        for (size_t i = 0; i < 4; i++)
            bytes[at + CRC_AT + i] = (uint8_t)(crc >> 8 * i);
    }
}

/* Returns how many bytes of the file are good. */
static size_t good_bytes(const uint8_t *bytes, size_t len)
{
    if (len < HEADER_BYTES || memcmp(bytes, header, HEADER_BYTES) != 0)
        return 0;
    size_t at = HEADER_BYTES;
    for (; len - at >= RECORD_BYTES; at += RECORD_BYTES) {
        const uint8_t *record = bytes + at;
        if (load(record, 4) != RECORD_BYTES || load(record + 4, 4) != 1 || load(record + 84, 4) != 0 ||
            load(record + CRC_AT, 4) != crc32(0, record, CRC_AT))
            break;
    }
    return at;
}

static struct td_file_id id_at(const uint8_t *record)
{
    return (struct td_file_id){.device = load(record + 8, 8),
                               .inode = load(record + 16, 8),
                               .size_bytes = load(record + 24, 8),
                               .mtime_ns = (int64_t)load(record + 32, 8),
                               .ctime_ns = (int64_t)load(record + 40, 8)};
}

/* Checks that each identity of the good part is known by its last digest, and that no other is known. */
static void check(struct td_digest_log *log, const uint8_t *bytes, size_t good, size_t others)
{
    size_t count = 0;
    for (size_t at = HEADER_BYTES; at < good; at += RECORD_BYTES) {
        struct td_file_id id = id_at(bytes + at);
        bool is_last = true;
        for (size_t later = at + RECORD_BYTES; later < good && is_last; later += RECORD_BYTES)
            is_last = memcmp(bytes + at + 8, bytes + later + 8, 40) != 0;
        uint8_t sum[TD_SHA256_BYTES];
        FUZZ_CHECK(td_digest_log_find(log, &id, sum));
        FUZZ_CHECK(!is_last || memcmp(sum, bytes + at + 48, sizeof sum) == 0);
        count += is_last ? 1 : 0;
    }
    FUZZ_CHECK(td_digest_log_count(log) == count + others);
}

static struct td_digest_log *open_log(enum td_record_log_mode mode)
{
    struct td_digest_log *log = NULL;
    struct td_error err = TD_ERROR_INIT;
    FUZZ_CHECK(td_digest_log_open(directory, NULL, mode, &log, &err));
    return log;
}

static void write_file(const uint8_t *bytes, size_t len)
{
    int fd = open(file_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[MAX_BYTES];
    static const struct td_file_id added = {.device = 0x5a5a5a5a5a5a5a5a, .inode = 0xa5a5a5a5a5a5a5a5};
    uint8_t sum[TD_SHA256_BYTES] = {1, 2, 3};
    if (size < 1 || size - 1 > MAX_BYTES)
        return 0;
    make_directory();
    size_t len = size - 1;
    memcpy(bytes, data + 1, len);
    repair(bytes, len, data[0]);
    write_file(bytes, len);
    size_t good = good_bytes(bytes, len);
    struct td_digest_log *log = open_log(TD_RECORD_LOG_READ);
    check(log, bytes, good, 0);
    td_digest_log_close(log);
    log = open_log(TD_RECORD_LOG_WRITE);
    FUZZ_CHECK(td_digest_log_is_stored(log));
    check(log, bytes, good, 0);
    td_digest_log_add(log, &added, sum);
    td_digest_log_close(log);
    log = open_log(TD_RECORD_LOG_READ);
    check(log, bytes, good, 1);
    memset(sum, 0, sizeof sum);
    FUZZ_CHECK(td_digest_log_find(log, &added, sum) && sum[0] == 1 && sum[2] == 3 && sum[3] == 0);
    td_digest_log_close(log);
    return 0;
}
