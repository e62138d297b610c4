#include "http/reservation.h"

#include "core/checked.h"

/* This much of each call is not counted, so that small answers come when there is no room for large ones. */
enum { UNCOUNTED_BYTES = 64 * 1024 };

bool td_reserved_take(struct td_reserved *reserved, size_t bytes, struct td_error *err)
{
    size_t all;
    if (!td_add_size(reserved->bytes, bytes, &all))
        return td_error_no_memory(err);
    if (all > UNCOUNTED_BYTES) {
        if (!td_budget_take(reserved->budget, all - reserved->counted_bytes))
            return td_budget_refuse(reserved->budget, all, err);
        reserved->counted_bytes = all;
    }
    reserved->bytes = all;
    return true;
}

/* Reserves `bytes` in all for the JSON. */
static bool reserve_json(struct td_reserved *reserved, size_t bytes, struct td_error *err)
{
    if (bytes <= reserved->json_bytes)
        return true;
    if (!td_reserved_take(reserved, bytes - reserved->json_bytes, err))
        return false;
    reserved->json_bytes = bytes;
    return true;
}

bool td_reserved_json_room(struct td_reserved *reserved, struct td_document *builder, size_t text_bytes,
                           struct td_error *err)
{
    enum { OBJECT_BYTES = 512, MOST_ESCAPED = 6 }; /* \u001f */
    struct td_buffer *json = builder->out;
    size_t need;
    size_t grown;
    if (!td_mul_size(text_bytes, MOST_ESCAPED, &need) || !td_add_size(need, OBJECT_BYTES, &need) ||
        !td_add_size(need, json->len, &need) || !td_add_size(need, need / 2, &grown))
        return td_error_no_memory(err);
    if (need <= reserved->json_bytes)
        return true;
    /* half as much again, as the buffer itself would grow; reserved before it is allocated */
    return reserve_json(reserved, grown, err) &&
           (td_buffer_reserve(json, grown - json->len) || td_error_no_memory(err));
}

bool td_reserved_answer_json(struct td_reserved *reserved, struct td_buffer *json, struct td_response *response,
                             struct td_error *err)
{
    size_t len = json->len;
    if (json->failed)
        return td_error_no_memory(err);
    if (!reserve_json(reserved, len, err)) /* also counts bytes that were written without asking for room */
        return false;
    if (len > UNCOUNTED_BYTES) {
        reserved->counted_bytes -= len; /* now the answer's */
        td_response_set_json_from(response, json, reserved->budget);
    } else {
        td_response_set_json(response, json);
    }
    return true;
}

void td_reserved_release(struct td_reserved *reserved)
{
    td_budget_give(reserved->budget, reserved->counted_bytes);
    reserved->bytes = reserved->counted_bytes = reserved->json_bytes = 0;
}
