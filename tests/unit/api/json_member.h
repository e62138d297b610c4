/* Functions that return members of a JSON object, by cJSON. They fail the test when a member is missing. */
#ifndef TD_TESTS_UNIT_API_JSON_MEMBER_H
#define TD_TESTS_UNIT_API_JSON_MEMBER_H

#include "tests/unit/unit.h"

#include <cjson/cJSON.h>

static inline const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    CHECK(item != NULL, "no member %s", name);
    return item;
}

static inline const char *string_at(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    CHECK(cJSON_IsString(item), "%s is no string", name);
    return item->valuestring;
}

static inline double number_at(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    CHECK(cJSON_IsNumber(item), "%s is no number", name);
    return item->valuedouble;
}

/* Returns a number that a double holds exactly. */
static inline uint64_t whole_at(const cJSON *object, const char *name)
{
    return (uint64_t)number_at(object, name);
}

#endif
