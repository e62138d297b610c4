#include "server/cmd/shared/crew.h"

static struct td_crew_member *member_at(void *members, size_t i, size_t member_bytes)
{
    return (struct td_crew_member *)(void *)((char *)members + i * member_bytes);
}

bool td_crew_run(void *members, size_t count, size_t member_bytes, void *(*work)(void *member), struct td_error *err)
{
    bool ok = true;
    for (size_t i = 1; i < count; i++) {
        struct td_crew_member *member = member_at(members, i, member_bytes);
        member->has_thread = pthread_create(&member->thread, NULL, work, member) == 0;
    }
    if (count > 0)
        (void)work(members);
    for (size_t i = 1; i < count; i++) {
        struct td_crew_member *member = member_at(members, i, member_bytes);
        if (member->has_thread)
            (void)pthread_join(member->thread, NULL);
        else
            (void)work(member);
    }
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < count; i++) {
            const struct td_crew_member *member = member_at(members, i, member_bytes);
            ok = ok && member->err.code == TD_OK;
            if (member->err.code != TD_CONFLICT || round == 1)
                (void)td_error_copy(err, &member->err);
        }
    return ok;
}
