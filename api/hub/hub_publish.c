#include "api/hub/hub_publish.h"
#include "api/call/access.h"

#include "api/call/publish_sink.h"
#include "api/hub/hub_writers.h"
#include "core/waiting.h"

#include <string.h>

/* The parts of a request's path. The segments of the id are [first, end); the rest follows the verb. */
struct place {
    const struct route *route;
    bool is_dataset;
    size_t first, end, rest;
};

/* Most bytes of a JSON body: the paths and samples of 256 files, or a README.md. */
enum { BODY_BYTES = 8 * 1024 * 1024 };

/* Takes a JSON body. */
static struct td_body_sink *begin_text(struct td_hub_write *write)
{
    return td_publish_sink_text(write->hub.call, BODY_BYTES);
}

/* Does the same where the body says the repository: asks whether the caller may publish anything. */
static struct td_body_sink *begin_of_any(struct td_hub_write *write)
{
    return td_access_may_publish_below(write->hub.call, TD_TEXT("")) ? begin_text(write) : NULL;
}

/* Answers without the body, which nobody needs. */
static struct td_body_sink *begin_card(struct td_hub_write *write)
{
    td_hub_validate_yaml(write);
    return NULL;
}

/* Takes a JSON body where the path says the repository, and so who may. */
static struct td_body_sink *begin_of_repo(struct td_hub_write *write)
{
    return td_hub_write_begin(write) ? begin_text(write) : NULL;
}

/* A path and a method. */
static const struct route {
    const char *word, *method;
    bool has_rest;                                             /* something follows the word */
    struct td_body_sink *(*begin)(struct td_hub_write *write); /* NULL: it has no body */
    void (*answer)(struct td_hub_write *write);
} of_repos[] =
    {
        {"preupload", "POST", true, begin_of_repo, td_hub_preupload},
        {"commit", "POST", true, td_hub_begin_commit, td_hub_end_commit},
        {"branch", "POST", true, begin_of_repo, td_hub_create_branch},
        {"branch", "DELETE", true, begin_of_repo, td_hub_delete_ref},
        {"tag", "POST", true, begin_of_repo, td_hub_create_tag},
        {"tag", "DELETE", true, begin_of_repo, td_hub_delete_ref},
        {"super-squash", "POST", true, begin_of_repo, td_hub_squash},
        {"xet-write-token", "GET", true, NULL, td_hub_give_xet_token},
        {"xet", "POST", true, td_hub_begin_xet, td_hub_end_xet},
        {"auth-check", "GET", true, NULL, td_hub_check_write},
        {"settings", "PUT", false, begin_of_repo, td_hub_set_settings},
        {"discussions", "POST", false, begin_of_repo, td_hub_refuse_discussion},
},
  of_server[] =
      {
          {"create", "POST", false, begin_of_any, td_hub_create_repo},
          {"delete", "DELETE", false, begin_of_any, td_hub_delete_repo},
          {"move", "POST", false, begin_of_any, td_hub_move_repo},
},
  validate_yaml = {"validate-yaml", "POST", false, begin_card, td_hub_validate_yaml},
  lfs_batch = {"batch", "POST", false, begin_of_repo, td_hub_lfs_batch};

static bool is_segment(const struct td_hub_path *path, size_t i, const char *word)
{
    return i < path->count && td_text_equals(path->segments[i], word);
}

/* Returns the route with this word at segment i, and something behind it, for the method, or NULL. */
static const struct route *find_route(const struct route *routes, size_t count, const struct td_hub_path *path,
                                      size_t i, struct td_text method)
{
    for (size_t r = 0; r < count; r++)
        if (is_segment(path, i, routes[r].word) && td_text_equals(method, routes[r].method) &&
            routes[r].has_rest == (i + 1 < path->count))
            return &routes[r];
    return NULL;
}

bool td_hub_is_lfs(const struct td_hub_path *path)
{
    static const char *const words[] = {"info", "lfs", "objects", "batch"};
    const struct td_text git = TD_TEXT(".git");
    size_t id_end = path->count < 4 ? 0 : path->count - 4;
    if (id_end == 0 || id_end > (is_segment(path, 0, "datasets") ? 3 : 2) || path->is_folder)
        return false;
    for (size_t i = 0; i < 4; i++)
        if (!is_segment(path, id_end + i, words[i]))
            return false;
    struct td_text last = path->segments[id_end - 1];
    return last.len > git.len && td_text_equals(td_text_skip(last, last.len - git.len), git.p);
}

/* Finds the place of a split path. Returns false for a path that is not of publishing. */
static bool find_place(struct td_text method, const struct td_hub_path *path, struct place *place)
{
    *place = (struct place){.first = 2, .rest = path->count};
    if (td_hub_is_lfs(path)) {
        place->is_dataset = is_segment(path, 0, "datasets") && path->count > 5;
        place->first = place->is_dataset ? 1 : 0;
        place->end = path->count - 4;
        place->route = td_text_equals(method, "POST") ? &lfs_batch : NULL;
        return place->route != NULL;
    }
    if (!is_segment(path, 0, "api"))
        return false;
    if (is_segment(path, 1, "repos"))
        place->route = find_route(of_server, sizeof of_server / sizeof *of_server, path, 2, method);
    else if (is_segment(path, 1, "validate-yaml"))
        place->route = find_route(&validate_yaml, 1, path, 1, method);
    place->is_dataset = is_segment(path, 1, "datasets");
    if (place->is_dataset || is_segment(path, 1, "models"))
        for (size_t at = 4; at >= 3 && place->route == NULL; at--) {
            place->route = find_route(of_repos, sizeof of_repos / sizeof *of_repos, path, at, method);
            place->end = at;
            place->rest = at + 1;
        }
    return place->route != NULL;
}

bool td_hub_publish_takes(struct td_text method, const struct td_hub_path *path)
{
    struct place place;
    return find_place(method, path, &place) && place.route->begin != NULL;
}

bool td_hub_publish_is_free(const struct td_call *call)
{
    return call->api->publish != NULL && !td_request_has_header(call->request, "Authorization") &&
           td_text_equals(call->request->method, "POST") && td_text_equals(call->uri->raw_path, "/api/validate-yaml");
}

/* Starts to handle a call of this place: decodes its path. Returns false after it answered 400. Call end_write in every
 * case. */
static bool begin_write(struct td_hub_write *write, struct td_call *call, const struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_hub_call *hub = &write->hub;
    *hub = (struct td_hub_call){.call = call, .own = call, .as_dataset = place->is_dataset};
    td_arena_init(&hub->arena, 0);
    if (!td_hub_path_parse(&hub->path, call->uri->raw_path, &err))
        return td_hub_fail_error(hub, &err);
    hub->id = td_hub_path_join(&hub->path, place->first, place->end);
    hub->revision = td_hub_path_join(&hub->path, place->rest, hub->path.count);
    if (place->route == &lfs_batch)
        hub->id.len -= strlen(".git");
    return true;
}

static void end_write(struct td_hub_write *write)
{
    td_hub_path_fini(&write->hub.path);
    td_arena_fini(&write->hub.arena);
}

/* Finds the place of the call. */
static bool place_of_call(const struct td_call *call, struct place *place)
{
    struct td_hub_path path;
    td_hub_path_split(&path, call->uri->raw_path);
    return find_place(call->request->method, &path, place);
}

struct td_body_sink *td_hub_publish_begin(struct td_call *call)
{
    struct place place;
    struct td_hub_write write;
    struct td_body_sink *sink = NULL;
    call->response->route = TD_ROUTE_HUB_API;
    if (!place_of_call(call, &place))
        return NULL;
    if (begin_write(&write, call, &place))
        sink = place.route->begin(&write);
    end_write(&write);
    return sink;
}

bool td_hub_publish(struct td_call *call)
{
    struct place place;
    struct td_hub_write write;
    if (!place_of_call(call, &place))
        return false;
    call->response->route = TD_ROUTE_HUB_API;
    call->is_post = true;
    if (!td_may_wait(NULL))
        return true;
    if (begin_write(&write, call, &place))
        place.route->answer(&write);
    end_write(&write);
    td_call_finish(call, false);
    return true;
}
