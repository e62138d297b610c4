#include "catalog/remote/remote_model.h"

#include "core/arena.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/json/json_document.h"
#include "storage/fetch/fetch_answer.h"
#include "storage/fetch/fetch_url.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The bounds of a list. The Hub's description of a million files takes about 450 MB. */
#define LIST_S UINT64_C(600)
#define LIST_BYTES (UINT64_C(1) << 30)
enum {
    LIST_ITEMS = 2 * TD_REMOTE_MAX_FILES,
    MAX_ID_PART_BYTES = 96,             /* of an id, as the Hub has it */
    MAX_VERSION_BYTES = 64 * 1024,      /* of /version */
    MAX_ABOUT_BYTES = 16 * 1024 * 1024, /* of the description of a model */
    MAX_PAGES = 4096,                   /* of a tree */
    DOCUMENT_BYTES = 256 * 1024 * 1024, /* memory for reading a description */
};

/* The means to read an answer. */
struct asking {
    struct td_fetch_session *session;
    const char *id;
    const char *revision;
    size_t server;
    bool is_unreached; /* no server that was asked has answered within the time of retries */
    struct td_fetch_answer answer;
    struct td_buffer path, body;
    struct td_remote_kinds *kinds;
    struct td_remote_model *model;
    struct td_error *err;
};

void td_remote_model_init(struct td_remote_model *model)
{
    memset(model, 0, sizeof *model);
    model->bounds =
        (struct td_remote_bounds){.time_ns = LIST_S * TD_NS_PER_S, .bytes = LIST_BYTES, .items = LIST_ITEMS};
    td_remote_listing_init(&model->listing);
}

/* Empties the listing for the reply of another server. */
static void reset_listing(struct td_remote_model *model)
{
    const struct td_remote_bounds bounds = model->bounds;
    td_remote_model_fini(model);
    td_remote_model_init(model);
    model->bounds = bounds;
}

void td_remote_model_fini(struct td_remote_model *model)
{
    td_remote_listing_fini(&model->listing);
}

/* Returns whether the text can be one part of an id. */
static bool is_id_part(struct td_text part)
{
    if (part.len == 0 || part.len > MAX_ID_PART_BYTES || part.p[0] == '.')
        return false;
    for (size_t i = 0; i < part.len; i++)
        if (!isalnum((unsigned char)part.p[i]) && memchr("-._", part.p[i], 3) == NULL)
            return false;
    return true;
}

bool td_remote_id_check(struct td_text id, struct td_error *err)
{
    struct td_text rest = id;
    struct td_text first = td_text_take_until(&rest, '/');
    bool has_two = first.len < id.len;
    if (is_id_part(first) && (!has_two || is_id_part(rest)))
        return true;
    return td_error_set(err, TD_INVALID_ARGUMENT,
                        "a model is called org/name or name, of letters, digits and -._ (at most %d each, no dot in "
                        "front), but it is \"%.*s\"",
                        MAX_ID_PART_BYTES, TD_SHOW(id, 100));
}

/* Appends a revision as one component of a path: its slashes are percent-encoded. */
static void append_revision(struct td_buffer *out, const char *revision)
{
    struct td_text rest = td_text_of(revision);
    while (rest.len > 0) {
        td_fetch_url_append_path(out, td_text_take_until(&rest, '/'));
        td_buffer_puts(out, rest.len > 0 ? "%2F" : "");
    }
}

/* Sets the path to one of the Hub's API: "/api/models/ID/WORD/REVISION". */
static void set_api_path(struct asking *asking, const char *word)
{
    td_buffer_clear(&asking->path);
    td_buffer_puts(&asking->path, "/api/models/");
    td_fetch_url_append_path(&asking->path, td_text_of(asking->id));
    td_buffer_printf(&asking->path, "/%s/", word);
    append_revision(&asking->path, asking->revision);
}

/* Sets the error for an answer other than 200. A base URL with a path is a likely reason for 404. */
static bool refuse_answer(struct asking *asking, const char *what)
{
    const struct td_fetch_client *client = td_fetch_session_client(asking->session);
    struct td_text path = td_fetch_url_path(td_text_of(td_fetch_client_url(client, asking->server)));
    unsigned status = asking->answer.status;
    char text[TD_FETCH_ADVICE_BYTES];
    const char *advice = NULL;
    (void)snprintf(text, sizeof text, "the URL is the server's alone: perhaps without \"%.*s\"?", TD_SHOW(path, 80));
    if (status == 401)
        advice = td_fetch_client_token_advice(client);
    else if (status == 404 && path.len > 0)
        advice = text;
    else if (status == 404 && td_fetch_client_has_token(client))
        advice = "it is not there, or the token may not see it";
    return td_fetch_fault_of_answer(&asking->answer, advice, what, asking->err);
}

/* Gets the answer at asking->path. Returns false for a status other than 200. */
static bool get_answer(struct asking *asking, size_t max_bytes)
{
    const char *path = td_buffer_terminate(&asking->path);
    char what[400];
    if (path == NULL)
        return td_buffer_refuse(&asking->path, asking->err);
    if (!td_fetch_session_get(asking->session, path, max_bytes, true, &asking->server, &asking->answer, &asking->body,
                              asking->err))
        return false;
    if (asking->answer.status == 200)
        return true;
    (void)snprintf(what, sizeof what, "%.160s, revision %.40s",
                   td_fetch_client_url(td_fetch_session_client(asking->session), asking->server), asking->revision);
    return refuse_answer(asking, what);
}

/* Copies a string member of a small JSON object. Returns false when the object has no such member, or it does not
 * fit. */
static bool copy_member(struct td_text text, const char *key, char *out, size_t capacity)
{
    struct td_arena arena;
    struct td_json_document document;
    struct td_error ignored = TD_ERROR_INIT;
    bool found = false;
    td_arena_init(&arena, DOCUMENT_BYTES);
    td_json_document_read(&document, text, &arena, &ignored);
    const cJSON *item = cJSON_IsObject(document.root) ? cJSON_GetObjectItemCaseSensitive(document.root, key) : NULL;
    if (item != NULL && cJSON_IsString(item) && strlen(item->valuestring) < capacity &&
        td_json_document_end(&document)) {
        (void)snprintf(out, capacity, "%s", item->valuestring);
        found = true;
    }
    td_arena_fini(&arena);
    return found;
}

bool td_remote_find_kind(struct td_fetch_session *session, struct td_remote_kinds *kinds, size_t *server,
                         unsigned *status, struct td_error *err)
{
    char name[16] = "";
    struct td_fetch_answer answer;
    struct td_buffer body;
    struct td_error why = TD_ERROR_INIT;
    td_buffer_init(&body);
    bool answered = td_fetch_session_get(session, "/version", MAX_VERSION_BYTES, false, server, &answer, &body, &why);
    bool is_tensord = answered && answer.status == 200 &&
                      copy_member(td_buffer_text(&body), "name", name, sizeof name) && strcmp(name, "tensord") == 0;
    td_buffer_fini(&body);
    if (!answered && why.code != TD_FAILED_PRECONDITION) /* a Hub answers with a long page */
        return td_error_copy(err, &why);
    *status = answered ? answer.status : 0;
    kinds->known[*server] = true;
    kinds->is_tensord[*server] = is_tensord;
    td_fetch_reputation_set_kind(td_fetch_client_reputations(td_fetch_session_client(session)), *server, is_tensord);
    return true;
}

/* Finds the first server that answers, from asking->server on, and whether it is a tensord. */
static bool find_kind(struct asking *asking)
{
    struct td_remote_kinds *kinds = asking->kinds;
    unsigned status;
    asking->is_unreached = !kinds->known[asking->server] &&
                           !td_remote_find_kind(asking->session, kinds, &asking->server, &status, asking->err);
    if (!asking->is_unreached)
        asking->model->is_tensord = kinds->is_tensord[asking->server];
    return !asking->is_unreached;
}

/* Asks for the commit of the revision. */
static bool find_commit(struct asking *asking)
{
    char *commit = asking->model->commit;
    set_api_path(asking, "revision");
    if (!get_answer(asking, MAX_ABOUT_BYTES))
        return false;
    if (!copy_member(td_buffer_text(&asking->body), "sha", commit, sizeof asking->model->commit) || commit[0] == '\0' ||
        !td_hex_is_lower(td_text_of(commit)))
        return td_error_set(asking->err, TD_INVALID_ARGUMENT,
                            "%s does not describe %s: there is no \"sha\" of hexadecimal digits in the answer",
                            td_fetch_client_url(td_fetch_session_client(asking->session), asking->server), asking->id);
    asking->model->is_newest = asking->answer.version[0] != '\0';
    return true;
}

/* Sets the path of the next page from the link of the answer, which must lead to the same server. The base URL may have
 * a path in front, and the link may include it or not. */
static bool follow_link(struct asking *asking)
{
    const char *base = td_fetch_client_url(td_fetch_session_client(asking->session), asking->server);
    const char *next = asking->answer.next;
    const struct td_text prefix = td_fetch_url_path(td_text_of(base));
    size_t host_len = strlen(base) - prefix.len;
    if (strncmp(next, base, host_len) == 0 && next[host_len] == '/')
        next += host_len;
    if (prefix.len > 0 && strncmp(next, prefix.p, prefix.len) == 0 && next[prefix.len] == '/')
        next += prefix.len;
    bool is_path = next[0] == '/' && next[1] != '/';
    for (const char *c = next; is_path && *c != '\0'; c++)
        is_path = *c > ' ' && *c < 0x7F;
    if (!is_path)
        return td_error_set(asking->err, TD_INVALID_ARGUMENT,
                            "%s links to the next page of the list of files elsewhere: \"%.200s\"", base, next);
    td_buffer_clear(&asking->path);
    td_buffer_puts(&asking->path, next);
    return true;
}

/* Checks the pages so far against the bounds. */
static bool check_bounds(const struct asking *asking, uint64_t bytes)
{
    const struct td_remote_bounds *bounds = &asking->model->bounds;
    const char *url = td_fetch_client_url(td_fetch_session_client(asking->session), asking->server);
    if (bytes > bounds->bytes)
        return td_error_set(asking->err, TD_FAILED_PRECONDITION,
                            "the list of files of %s has more than %" PRIu64 " bytes", url, bounds->bytes);
    return asking->model->listing.item_count <= bounds->items ||
           td_error_set(asking->err, TD_FAILED_PRECONDITION,
                        "the list of files of %s names more than %zu files and directories", url, bounds->items);
}

/* Reads all pages of the tree. */
static bool read_tree(struct asking *asking)
{
    struct td_remote_listing *listing = &asking->model->listing;
    uint64_t bytes = 0;
    set_api_path(asking, "tree");
    td_buffer_puts(&asking->path, "?recursive=true");
    for (size_t pages = 0; pages < MAX_PAGES; pages++) {
        struct td_error why = TD_ERROR_INIT;
        size_t items = listing->item_count;
        if (!get_answer(asking, TD_REMOTE_MAX_PAGE_BYTES))
            return false;
        bytes += asking->body.len;
        if (!td_remote_listing_add_page(listing, td_buffer_text(&asking->body), !asking->model->is_tensord, &why))
            return td_error_set(asking->err, why.code, "the list of files of %s: %s",
                                td_fetch_client_url(td_fetch_session_client(asking->session), asking->server),
                                why.message);
        if (!check_bounds(asking, bytes))
            return false;
        if (asking->answer.next[0] == '\0')
            return td_remote_listing_finish(listing, asking->err);
        if (listing->item_count == items)
            return td_error_set(asking->err, TD_INVALID_ARGUMENT,
                                "the list of files has an empty page that links to further pages");
        if (!follow_link(asking))
            return false;
    }
    return td_error_set(asking->err, TD_FAILED_PRECONDITION, "the list of files has more than %d pages", MAX_PAGES);
}

/* Lists the files by one server. */
static bool list_from(struct asking *asking)
{
    struct td_remote_model *model = asking->model;
    bool is_only = td_fetch_client_count(td_fetch_session_client(asking->session)) == 1;
    if (!find_kind(asking) || !find_commit(asking))
        return false;
    model->server = asking->server;
    bool by_commit = is_only && !model->is_tensord;
    if (by_commit)
        asking->revision = model->commit;
    (void)snprintf(model->revision, sizeof model->revision, "%s", asking->revision);
    return read_tree(asking);
}

/* Lists the files by one server, within the time of the bounds. */
static bool list_in_time(struct asking *asking)
{
    struct td_error why = TD_ERROR_INIT;
    struct td_error *err = asking->err;
    const struct td_remote_bounds *bounds = &asking->model->bounds;
    uint64_t until_ns = td_clock_ns() + bounds->time_ns;
    asking->err = &why;
    td_fetch_session_end_at(asking->session, until_ns);
    bool ok = list_from(asking);
    td_fetch_session_end_at(asking->session, 0);
    asking->err = err;
    if (ok || why.code == TD_CONFLICT || td_clock_ns() < until_ns)
        return ok || td_error_copy(err, &why);
    asking->is_unreached = false; /* the next server has its own time */
    asking->answer.status = 0;
    return td_error_set(err, TD_UNAVAILABLE, "the list of files takes longer than %.1f s (%s)",
                        (double)bounds->time_ns / (double)TD_NS_PER_S, why.message);
}

/* Returns whether the server has answered that it has no such model, or does not show it. */
static bool is_refused(const struct asking *asking)
{
    unsigned status = asking->answer.status;
    return !asking->is_unreached && (status == 401 || status == 403 || status == 404 || status == 410);
}

/* Lists the files from the first server that is not left out, or from the next one that answers. */
static bool list_once(struct asking *asking)
{
    td_buffer_init(&asking->path);
    td_buffer_init(&asking->body);
    reset_listing(asking->model);
    bool ok = list_in_time(asking);
    td_buffer_fini(&asking->path);
    td_buffer_fini(&asking->body);
    return ok;
}

/* The replies of the servers so far. */
struct replies {
    bool left_out[TD_FETCH_MAX_SERVERS]; /* servers that have failed, or refused */
    struct td_error refusal, failure;    /* the first ones; TD_OK: none */
    size_t refuser;                      /* the server of the refusal */
    unsigned status;                     /* of the refusal */
};

/* Records the failure of the server that was asked. "Too large" counts only if no server fails for another reason,
 * which may pass. */
static void record_failure(struct replies *replies, const struct asking *asking)
{
    replies->left_out[asking->server] = true;
    if (!is_refused(asking)) {
        if (td_fetch_fault_never_fits(&replies->failure))
            td_error_init(&replies->failure);
        (void)td_error_copy(&replies->failure, asking->err);
    } else if (replies->refusal.code == TD_OK) {
        replies->refuser = asking->server;
        replies->status = asking->answer.status;
        (void)td_error_copy(&replies->refusal, asking->err);
    }
}

/* Sets the error for a model that no server has listed. The model is reported as missing only when all servers have
 * refused it: a server that could not be asked may have it. */
static bool report_failure(const struct replies *replies, const struct asking *asking, struct td_error *err)
{
    const struct td_error *failure = &replies->failure;
    if (failure->code == TD_OK || replies->refusal.code == TD_OK)
        return td_error_copy(err, failure->code == TD_OK ? &replies->refusal : failure);
    enum td_code code = failure->code == TD_PERMISSION_DENIED ? TD_UNAVAILABLE : failure->code;
    const char *url = td_fetch_client_url(td_fetch_session_client(asking->session), replies->refuser);
    if (replies->status == 404)
        (void)td_error_set(err, code, "%.160s has no model \"%s\" at \"%.40s\", and another server fails: %s", url,
                           asking->id, asking->revision, failure->message);
    else
        (void)td_error_set(err, code, "%.160s answers %u for the model \"%s\", and another server fails: %s", url,
                           replies->status, asking->id, failure->message);
    err->sys = failure->sys;
    return false;
}

/* Asks the servers in turn. */
static bool list_by_any(const struct asking *task, struct td_error *err)
{
    struct replies replies = {.refusal = TD_ERROR_INIT, .failure = TD_ERROR_INIT};
    size_t count = td_fetch_client_count(td_fetch_session_client(task->session));
    td_fetch_session_leave_out(task->session, replies.left_out);
    for (size_t i = 0; i < count;) {
        struct td_error why = TD_ERROR_INIT;
        struct asking asking = *task;
        asking.server = i;
        asking.err = &why;
        if (list_once(&asking))
            return true;
        if (why.code == TD_CONFLICT || (why.code == TD_RESOURCE_EXHAUSTED && !td_fetch_fault_never_fits(&why)))
            return td_error_copy(err, &why);
        record_failure(&replies, &asking);
        if (asking.is_unreached)
            break;
        while (i < count && replies.left_out[i])
            i++;
        if (i < count)
            td_fetch_session_report(task->session, "%s; asking the next server", why.message);
    }
    return report_failure(&replies, task, err);
}

bool td_remote_model_list(struct td_fetch_session *session, const char *id, const char *revision,
                          struct td_remote_kinds *kinds, struct td_remote_model *model, struct td_error *err)
{
    bool ok = td_remote_id_check(td_text_of(id), err);
    if (ok && (revision[0] == '\0' || strlen(revision) >= TD_REMOTE_REVISION_BYTES))
        ok = td_error_set(err, TD_INVALID_ARGUMENT, "a revision has 1 to %d bytes", TD_REMOTE_REVISION_BYTES - 1);
    if (!ok)
        return false;
    struct td_remote_kinds own = {.known = {false}};
    const struct asking task = {
        .session = session, .id = id, .revision = revision, .kinds = kinds != NULL ? kinds : &own, .model = model};
    ok = list_by_any(&task, err);
    td_fetch_session_leave_out(session, NULL);
    return ok;
}

/* Appends the path of a file below a server's base URL: "/org/name/resolve/REVISION/FILE", percent-encoded. */
static void append_file_path(struct td_buffer *out, const struct td_remote_model *model, const char *id,
                             const char *file)
{
    td_buffer_putc(out, '/');
    td_fetch_url_append_path(out, td_text_of(id));
    td_buffer_puts(out, "/resolve/");
    append_revision(out, model->revision);
    td_buffer_putc(out, '/');
    td_fetch_url_append_path(out, td_text_of(file));
}

bool td_remote_model_fetch(struct td_fetch_session *session, const struct td_remote_model *model, const char *id,
                           const char *path, const struct td_fetch_job *job, struct td_fetch_outcome *outcome,
                           struct td_error *err)
{
    struct td_buffer url;
    struct td_fetch_job own = *job;
    td_buffer_init(&url);
    append_file_path(&url, model, id, path);
    own.url_path = td_buffer_terminate(&url);
    bool ok = own.url_path != NULL ? td_fetch_file(session, &own, outcome, err) : td_buffer_refuse(&url, err);
    td_buffer_fini(&url);
    return ok;
}
