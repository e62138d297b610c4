#include "api/call/stream_share.h"

bool td_stream_share_take(struct td_stream_share *share, const struct td_call *call)
{
    struct td_event_streams *streams = &call->api->events;
    size_t count = 0;
    *share = (struct td_stream_share){.api = call->api, .client = td_call_client(call)};
    pthread_mutex_lock(&streams->lock);
    for (const struct td_stream_share *other = streams->first; other != NULL; other = other->next)
        count += other->client == share->client ? 1 : 0;
    bool fits = count < streams->most_of_client;
    if (fits) {
        share->next = streams->first;
        streams->first = share;
    }
    pthread_mutex_unlock(&streams->lock);
    return fits;
}

void td_stream_share_give(struct td_stream_share *share)
{
    struct td_event_streams *streams = &share->api->events;
    pthread_mutex_lock(&streams->lock);
    for (struct td_stream_share **at = &streams->first; *at != NULL; at = &(*at)->next)
        if (*at == share) {
            *at = share->next;
            break;
        }
    pthread_mutex_unlock(&streams->lock);
}
