#include "catalog/upstream/remote_source.h"

#include "catalog/upstream/kept_table.h"
#include "catalog/upstream/upstream_config.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS = 4, /* for a long file; several files are fetched at once */
    LONG_BYTES = 256 * 1024 * 1024,
    SPAN_BYTES = 16 * 1024 * 1024,            /* of one request, so that a file arrives roughly in order */
    LIST_ITEMS = 4 * TD_UPSTREAM_MODEL_FILES, /* bound on a list's items, directories included */
};

/* How long the kind of a server is remembered. */
static const uint64_t kind_ns = 60 * TD_NS_PER_S;

struct source {
    pthread_mutex_t lock; /* of the next two */
    struct td_remote_kinds kinds;
    uint64_t kinds_until_ns;
    char *text; /* of the URLs, with NULs between them */
    const char *urls[TD_FETCH_MAX_SERVERS];
    size_t url_count;
    char *token_file, *ca; /* NULL: none */
    uint64_t list_retry_ns, file_retry_ns;
    struct td_fetch_reputation reputations[TD_FETCH_MAX_SERVERS]; /* of the servers */
};

/* A client for one model, and a session for one thread, which borrows the notes. */
struct visit {
    struct td_fetch_client *client;
    struct td_fetch_session *session;
    struct td_fetch_notes notes;
};

static void log_note(void *context, const char *text)
{
    (void)context;
    td_log(TD_LOG_INFO, "upstream: %s", text);
}

static const char token_advice[] = "give a token that may read it by --upstream-token-file";

/* Creates a client for one server, counted from 1, or for all (0). It sends `via` as TD_UPSTREAM_VIA; NULL: no such
 * field. */
static bool make_client(struct source *source, size_t alone, const char *via, uint64_t retry_ns,
                        struct td_fetch_client **out, struct td_error *err)
{
    char header[sizeof TD_UPSTREAM_VIA + 2 + TD_UPSTREAM_VIA_BYTES];
    char *token = NULL;
    (void)snprintf(header, sizeof header, "%s: %s", TD_UPSTREAM_VIA, via == NULL ? "" : via);
    if (source->token_file != NULL && !td_fetch_token_read(source->token_file, &token, err))
        return false;
    size_t first = alone > 0 ? alone - 1 : 0;
    const struct td_fetch_settings settings = {.urls = &source->urls[first],
                                               .url_count = alone > 0 ? 1 : source->url_count,
                                               .token = token,
                                               .token_advice = token_advice,
                                               .ca = source->ca,
                                               .header = via == NULL ? NULL : header,
                                               .reputations = &source->reputations[first],
                                               .retry_for_ns = retry_ns};
    bool ok = td_fetch_client_create(&settings, out, err);
    td_fetch_token_free(token);
    return ok;
}

/* Opens a client and a session. The session points into *visit, which must not move until visit_end. */
static bool visit_begin(struct source *source, const struct td_upstream_wish *wish, uint64_t retry_ns,
                        struct visit *visit, struct td_error *err)
{
    *visit = (struct visit){.notes = {.report = log_note}};
    return make_client(source, wish->alone, wish->via, retry_ns, &visit->client, err) &&
           td_fetch_session_create(visit->client, wish->cancel, &visit->notes, &visit->session, err);
}

static void visit_end(struct visit *visit)
{
    td_fetch_session_destroy(visit->session);
    td_fetch_client_destroy(visit->client);
}

/* Copies the id and the revision that the wish asks for, which are parts of wish->id. */
struct asked {
    char id[TD_UPSTREAM_ID_BYTES], revision[TD_KEPT_VERSION_BYTES + 1];
};

static struct asked asked_by(const struct td_upstream_wish *wish)
{
    struct asked asked;
    struct td_text id;
    struct td_text version;
    (void)td_kept_id_split(td_text_of(wish->id), &id, &version);
    (void)snprintf(asked.id, sizeof asked.id, "%.*s", (int)id.len, id.p);
    (void)snprintf(asked.revision, sizeof asked.revision, "%.*s", version.len > 0 ? (int)version.len : 4,
                   version.len > 0 ? version.p : "main");
    return asked;
}

/* Checks that a trusted server answers and accepts the token: a tensord with tokens requires one for this request; a
 * Hub requires none, and answers 404. Sets *kinds for the server that answered. */
static bool can_reach(const struct visit *visit, struct td_remote_kinds *kinds, struct td_error *err)
{
    unsigned status;
    size_t server = 0;
    if (!td_remote_find_kind(visit->session, kinds, &server, &status, err))
        return false;
    return (status != 401 && status != 403) ||
           td_error_set(err, TD_PERMISSION_DENIED, "the upstream %s answers %u: %s",
                        td_fetch_client_url(visit->client, server), status, token_advice);
}

/* Returns the earliest time (td_clock_ns) at which a server may be asked. */
static uint64_t due_ns(void *context)
{
    const struct source *source = context;
    uint64_t first_ns = UINT64_MAX;
    for (size_t i = 0; i < source->url_count; i++) {
        uint64_t one_ns = td_fetch_reputation_due_ns(source->reputations, i);
        first_ns = one_ns < first_ns ? one_ns : first_ns;
    }
    return first_ns;
}

/* Copies the remembered kinds of the servers. Returns whether they are fresh. */
static bool recall_kinds(struct source *source, struct td_remote_kinds *kinds)
{
    pthread_mutex_lock(&source->lock);
    bool is_fresh = td_clock_ns() < source->kinds_until_ns;
    *kinds = is_fresh ? source->kinds : (struct td_remote_kinds){.known = {false}};
    pthread_mutex_unlock(&source->lock);
    return is_fresh;
}

/* Remembers the kinds of servers after a listing. is_fresh: the listing used remembered kinds. After a failure of a
 * server (not is_good) the kinds are asked for again. */
static void keep_kinds(struct source *source, const struct td_remote_kinds *kinds, bool is_fresh, bool is_good)
{
    pthread_mutex_lock(&source->lock);
    if (!is_good)
        source->kinds_until_ns = 0;
    else if (!is_fresh)
        source->kinds_until_ns = td_clock_ns() + kind_ns;
    if (is_good)
        source->kinds = *kinds;
    pthread_mutex_unlock(&source->lock);
}

/* Lists a model from all servers. Uses the kinds of servers that were found within the last minute, and asks for them
 * otherwise. */
static bool list_by_all(struct source *source, const struct visit *visit, const struct asked *asked,
                        struct td_remote_model *model, bool *is_reached, struct td_error *err)
{
    struct td_remote_kinds kinds;
    bool is_fresh = recall_kinds(source, &kinds);
    *is_reached = is_fresh || can_reach(visit, &kinds, err);
    bool ok = *is_reached && td_remote_model_list(visit->session, asked->id, asked->revision, &kinds, model, err);
    keep_kinds(source, &kinds, is_fresh, ok || err->code == TD_NOT_FOUND || due_ns(source) > td_clock_ns());
    return ok;
}

/* Lists a model's files (td_upstream_source.list). A certificate that is not trusted, a token that a tensord refuses
 * and a missing token file become TD_UNAVAILABLE: their codes, like a Hub's 401, would mean to the caller that the
 * model does not exist. */
static bool list_model(void *context, const struct td_upstream_wish *wish, struct td_remote_model *model,
                       struct td_error *err)
{
    struct source *source = context;
    struct visit visit;
    struct td_error why = TD_ERROR_INIT;
    const struct asked asked = asked_by(wish);
    bool is_reached = false;
    bool ok = false;
    td_remote_model_init(model);
    model->bounds.items = LIST_ITEMS;
    if (visit_begin(source, wish, source->list_retry_ns, &visit, &why)) {
        if (wish->alone == 0) {
            ok = list_by_all(source, &visit, &asked, model, &is_reached, &why);
        } else {
            struct td_remote_kinds kinds = {.known = {false}};
            is_reached = can_reach(&visit, &kinds, &why);
            ok = is_reached && td_remote_model_list(visit.session, asked.id, asked.revision, &kinds, model, &why);
        }
    }
    visit_end(&visit);
    if (ok && model->is_newest && strcmp(asked.revision, "main") == 0)
        return td_error_set(err, TD_NOT_FOUND, "it is a folder of versions there, and no model itself");
    if (ok)
        return true;
    bool is_failure = !is_reached || (why.code == TD_PERMISSION_DENIED && model->is_tensord);
    if (is_failure && (why.code == TD_PERMISSION_DENIED || why.code == TD_NOT_FOUND))
        return td_error_set(err, TD_UNAVAILABLE, "%s", why.message);
    return td_error_copy(err, &why);
}

static bool fetch_listed_file(void *context, const struct td_upstream_wish *wish, const struct td_remote_model *model,
                              const struct td_remote_file *file, const struct td_root *folder,
                              const struct td_fetch_events *events, struct td_fetch_outcome *outcome,
                              struct td_error *err)
{
    struct source *source = context;
    struct visit visit;
    /* Several connections share the end of a file, where some bytes are sent twice: that costs too much for short
     * files. */
    bool is_long = file->expected.size_bytes >= LONG_BYTES;
    const struct td_fetch_job job = {.root = folder,
                                     .name = file->path,
                                     .shown = file->path,
                                     .expected = file->expected,
                                     .wants_git_sha1 = true, /* the list that is fetched at the end may have it */
                                     .connections = is_long ? CONNECTIONS : 1,
                                     .span_bytes = SPAN_BYTES,
                                     .events = *events};
    bool ok = visit_begin(source, wish, source->file_retry_ns, &visit, err) &&
              td_remote_model_fetch(visit.session, model, asked_by(wish).id, file->path, &job, outcome, err);
    visit_end(&visit);
    return ok;
}

/* As td_upstream_source.versions. A certificate that is not trusted, and a token that is refused, are failures and no
 * answers. */
static bool list_versions(void *context, const struct td_upstream_wish *wish,
                          const struct td_remote_versions_query *query, struct td_remote_versions *versions,
                          bool *has_changed, struct td_error *err)
{
    struct source *source = context;
    struct visit visit;
    struct td_error why = TD_ERROR_INIT;
    struct td_remote_kinds kinds;
    bool is_fresh = recall_kinds(source, &kinds);
    bool is_reached =
        visit_begin(source, wish, source->list_retry_ns, &visit, &why) && (is_fresh || can_reach(&visit, &kinds, &why));
    size_t server = 0;
    while (is_reached && server + 1 < source->url_count && !kinds.known[server])
        server++;
    bool is_tensord = is_reached && kinds.is_tensord[server];
    bool ok = is_tensord && td_remote_versions_get(visit.session, query, versions, has_changed, &why);
    keep_kinds(source, &kinds, is_fresh, is_reached && (ok || !is_tensord || why.code == TD_NOT_FOUND));
    visit_end(&visit);
    if (ok)
        return true;
    if (is_reached && !is_tensord)
        return td_error_set(err, TD_NOT_FOUND, "the upstream is no tensord");
    return why.code == TD_PERMISSION_DENIED || (!is_reached && why.code == TD_NOT_FOUND)
               ? td_error_set(err, TD_UNAVAILABLE, "%s", why.message)
               : td_error_copy(err, &why);
}

/* As td_upstream_source.follow. */
static bool follow_server(void *context, size_t server, const struct td_fetch_stream *stream, unsigned *status,
                          bool *is_stream, struct td_error *err)
{
    struct td_fetch_client *client = NULL;
    bool ok = make_client(context, server + 1, NULL, 0, &client, err) &&
              td_fetch_stream_read(client, 0, stream, status, is_stream, err);
    td_fetch_client_destroy(client);
    return ok;
}

/* Splits the list of URLs in source->text in place. */
static bool split_urls(struct source *source, struct td_error *err)
{
    char *at = source->text;
    while (at != NULL) {
        char *comma = strchr(at, ',');
        if (comma != NULL)
            *comma = '\0';
        if (source->url_count >= TD_FETCH_MAX_SERVERS)
            return td_error_set(err, TD_INVALID_ARGUMENT, "--upstream takes at most %d URLs", TD_FETCH_MAX_SERVERS);
        source->urls[source->url_count++] = at;
        at = comma == NULL ? NULL : comma + 1;
    }
    return true;
}

static bool copy_text(const char *text, char **out, struct td_error *err)
{
    *out = text == NULL || text[0] == '\0' ? NULL : strdup(text);
    return text == NULL || text[0] == '\0' || *out != NULL || td_error_no_memory(err);
}

/* Sets the error for a mistake in an option's value. Returns false. */
static bool refuse_option(const char *option, const struct td_error *why, struct td_error *err)
{
    return td_error_set(err, why->code, "%s: %s", option, why->message);
}

/* Finds mistakes in the options: reads the token and the authorities, and frees them. */
static bool try_options(struct source *source, struct td_error *err)
{
    struct td_fetch_client *trial = NULL;
    struct td_error why = TD_ERROR_INIT;
    char *token = NULL;
    if (source->token_file != NULL && !td_fetch_token_read(source->token_file, &token, &why))
        return refuse_option("--upstream-token-file", &why, err);
    td_fetch_token_free(token);
    bool ok = make_client(source, 0, NULL, 0, &trial, &why);
    td_fetch_client_destroy(trial);
    return ok || refuse_option(why.code == TD_INVALID_ARGUMENT ? "--upstream" : "--upstream-ca", &why, err);
}

bool td_remote_source_create(const struct td_remote_source_config *config, struct td_upstream_source *out,
                             struct td_error *err)
{
    struct source *source = calloc(1, sizeof *source);
    struct td_upstream_source made = {.list = list_model,
                                      .fetch = fetch_listed_file,
                                      .versions = list_versions,
                                      .follow = follow_server,
                                      .due_ns = due_ns,
                                      .context = source};
    if (source == NULL)
        return td_error_no_memory(err);
    if (pthread_mutex_init(&source->lock, NULL) != 0) {
        free(source);
        return td_error_no_memory(err);
    }
    for (size_t i = 0; i < TD_FETCH_MAX_SERVERS; i++)
        source->reputations[i].keeps_patience = true;
    source->list_retry_ns = config->list_retry_ns;
    source->file_retry_ns = config->file_retry_ns;
    bool ok = copy_text(config->urls, &source->text, err) && copy_text(config->token_file, &source->token_file, err) &&
              copy_text(config->ca, &source->ca, err) && split_urls(source, err) && try_options(source, err);
    made.server_count = source->url_count;
    if (ok)
        *out = made;
    else
        td_remote_source_destroy(&made);
    return ok;
}

void td_remote_source_destroy(struct td_upstream_source *made)
{
    struct source *source = made->context;
    if (source == NULL)
        return;
    (void)pthread_mutex_destroy(&source->lock);
    free(source->text);
    free(source->token_file);
    free(source->ca);
    free(source);
    made->context = NULL;
}
