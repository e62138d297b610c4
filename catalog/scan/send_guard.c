#include "catalog/scan/send_guard.h"

#include "core/log.h"
#include "storage/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLES = 16 };

/* Why a file is sent the slow way. */
enum reason { REASON_NONE, REASON_OWNER, REASON_FILE_SYSTEM, REASON_OTHER, REASON_COUNT };

static enum reason reason_of(int fd, int lease_signal)
{
    struct stat st;
    if (td_is_immutable(fd))
        return REASON_NONE;
    if (!td_sees_every_writer(fd))
        return REASON_FILE_SYSTEM;
    if (td_find_writers(fd, lease_signal) != TD_WRITERS_UNKNOWN)
        return REASON_NONE; /* a lease is granted now, or when the writer has finished */
    return fstat(fd, &st) == 0 && st.st_uid != geteuid() ? REASON_OWNER : REASON_OTHER;
}

bool td_send_guard_report(const struct td_snapshot *snapshot, int lease_signal)
{
    static const char *const texts[REASON_COUNT] = {
        [REASON_OWNER] = "they belong to another user: run tensord as their owner, or with CAP_LEASE",
        [REASON_FILE_SYSTEM] = "their file system does not report all writers",
        [REASON_OTHER] = "the kernel grants no read lease on them",
    };
    size_t counts[REASON_COUNT] = {0};
    size_t seen = 0;
    for (size_t i = 0; lease_signal != 0 && i < snapshot->entry_count && seen < SAMPLES; i++) {
        const struct td_file *file = snapshot->entries[i].file;
        struct td_error err = TD_ERROR_INIT;
        struct td_file_id id;
        int fd;
        if (file->format == NULL || !td_root_open_file(snapshot->root, file->source.path, &fd, &id, &err))
            continue;
        seen++;
        counts[reason_of(fd, lease_signal)]++;
        (void)close(fd);
    }
    if (seen == 0 || counts[REASON_NONE] > 0)
        return seen > 0;
    enum reason most = REASON_OWNER;
    for (enum reason reason = REASON_OWNER; reason < REASON_COUNT; reason++)
        if (counts[reason] > counts[most])
            most = reason;
    td_log(TD_LOG_WARN,
           "every answer is copied and checked, the slow way, because the files cannot be leased: %s; or, if files are "
           "only ever replaced by rename, use --files immutable",
           texts[most]);
    return true;
}
