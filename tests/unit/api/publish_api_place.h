/* Shared by the tests of publishing: an empty tree, a server over it that anybody may publish to, and a model "org/m"
 * with the file "a.txt". */
#ifndef TD_TESTS_UNIT_API_PUBLISH_API_PLACE_H
#define TD_TESTS_UNIT_API_PUBLISH_API_PLACE_H

#include "catalog/publish/publish.h"
#include "tests/unit/api/served_place.h"

enum { EXPIRES_S = 86400 };

struct publish_api_place {
    struct place served;
    struct td_publish *publish;
};

static inline void note_blob(void *context, const struct td_file_id *id, const uint8_t sha256[TD_SHA256_BYTES])
{
    const struct publish_api_place *place = context;
    td_catalog_note_digest(place->served.loop.catalog, id, sha256);
}

/* Sends a body, and checks the status. */
static inline void send_body(struct publish_api_place *place, const char *method, const char *target, const char *body,
                             int status)
{
    struct answer answer;
    loopback_send(&place->served.loop, td_main_port, method, target, NULL, td_text_of(body), &answer);
    CHECK(answer.response.status == status, "%s %s: %d, wanted %d: %s", method, target, answer.response.status, status,
          answer.body);
    answer_fini(&answer);
}

static inline void open_publish_api(struct publish_api_place *place)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_api *api = &place->served.loop.api;
    open_tree(&place->served);
    const struct td_publish_config config = {.root = place->served.tree.path,
                                             .upload_expires_s = EXPIRES_S,
                                             .keep_commits_s = EXPIRES_S,
                                             .on_blob = note_blob,
                                             .context = place};
    CHECK(td_publish_open(&config, &place->publish, &err), "%s", err.message);
    loopback_open(&place->served.loop, &place->served.tree);
    CHECK(td_publish_tidier_create(place->publish, &api->publish_tidier, &err), "%s", err.message);
    api->publish = place->publish;
    api->publish_who = TD_PUBLISH_ANY;
    api->takes_uploads = true;
    send_body(place, "PUT", "/models/org/m/files/a.txt", "one", 201);
}

static inline void close_publish_api(struct publish_api_place *place)
{
    td_publish_tidier_destroy(place->served.loop.api.publish_tidier);
    close_place(&place->served);
    td_publish_close(place->publish);
}

FIXTURE(publish_api, struct publish_api_place, open_publish_api, close_publish_api)

#endif
