/* Starts the parts of the service in order, waits for signals, drains, and stops the parts in reverse order. What is
 * hard:
 *   - Signals, also those of file leases, are blocked in every thread and taken by sigtimedwait on the main thread, so
 *     that no handler runs in the middle of other code. The fault guard's SIGBUS is the exception.
 *   - If a signal about a lease is lost, a writer could wait for long, so leases are also checked every second
 *     (server/net/lease_breaks).
 *   - SIGHUP reads the configuration file, the certificate and the tokens again, and reopens the access log. Parts get
 *     the settings that may change by functions that lock or store atomically (apply_live); they borrow the others from
 *     a copy that never changes (`used`).
 *   - Draining keeps its order: /readyz first, so that balancers send nothing more, then the listening sockets, then
 *     idle connections, then, after --drain-timeout, the others. */
#include "server/cmd/commands.h"

#include "catalog/model/version_name.h"
#include "catalog/upstream/remote_source.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/log.h"
#include "core/utf8.h"
#include "http/cors.h"
#include "rank/card.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/token_watch.h"
#include "server/config/config.h"
#include "server/h2/h2_server.h"
#include "server/host/notify.h"
#include "server/host/terminal.h"
#include "server/mhd/http_server.h"
#include "server/net/lease_breaks.h"
#include "server/net/ports.h"
#include "server/serving/tls.h"
#include "storage/fault_guard.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The parts of the service, in the order in which they start. They stop in the reverse order, except that fetches end
 * and the ports stop accepting first, and that the upstream ends with its store and its source, after the api and
 * before the catalog. */
struct service {
    int argc;
    char **argv;             /* after `serve` */
    struct td_config config; /* as it was asked for; SIGHUP changes it */
    struct td_config used;   /* at the start, with what was chosen or lowered to suit the machine; strings borrowed */
    sigset_t signals;
    int lease_signal;
    struct td_cors *cors; /* NULL without --cors-origin */
    struct td_ports ports;
    struct td_tls *tls; /* NULL: the ports are plain */
    struct td_token_watch tokens;
    struct td_access_log *log;
    uint64_t held_files;   /* most files of models that may outlive their folders; 0 without --keep-removed */
    size_t incoming_files; /* most files of models on their way; 0 without --upstream, as the next two */
    struct td_upstream_source source;
    struct td_upstream_store *store;
    struct td_parse_pool *parsers;
    char *version_texts;                           /* of --version-prefix, a NUL after each; NULL: none */
    const char *prefix_items[TD_VERSION_PREFIXES]; /* point into it */
    struct td_version_prefixes version_prefixes;   /* these */
    struct td_catalog *catalog;
    struct td_api api;
    bool api_made;
    struct td_upstream *upstream; /* NULL without --upstream */
    struct td_publish *publish;   /* NULL with --publish off, as the next one */
    struct td_publish_tidier *tidier;
    struct td_registry registry;
    bool registry_made;
    struct td_serving serving;
    struct td_http_server *server;
    struct td_h2_server *h2; /* NULL without --grpc-listen */
    struct td_lease_breaks breaks;
    struct td_notify notify;
    bool has_sent_ready;      /* READY=1 was sent to systemd */
    bool reloading;           /* systemd waits for the end of a scan that SIGHUP asked for */
    uint64_t reload_end_scan; /* which is this one, by td_catalog_status.scan_count */
};

/* Limits the free memory that malloc keeps. By default it has eight arenas for each core and keeps ever larger blocks
 * in each of them, so that the memory of one large plan would never return to the kernel. Here blocks of 1 MiB and more
 * come from the kernel and return to it at once; windows and usual answers are smaller. At most 512 KiB may stay free
 * at the end of each of at most 32 arenas. */
static void bound_free_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 512 * 1024);
    (void)mallopt(M_ARENA_MAX, 32);
}

/* Blocks the signals that wait_signal takes; every thread started later inherits the mask. Ignores SIGPIPE and SIGXFSZ,
 * so that a closed connection and a limit on the size of files are errors of the calls, and installs the handler of
 * SIGBUS. */
static bool block_signals(struct service *service, struct td_error *err)
{
    service->lease_signal = SIGRTMIN + 1;
    (void)sigemptyset(&service->signals);
    (void)sigaddset(&service->signals, SIGTERM);
    (void)sigaddset(&service->signals, SIGINT);
    (void)sigaddset(&service->signals, SIGHUP);
    (void)sigaddset(&service->signals, SIGIO); /* a lease signal whose queue was full */
    (void)sigaddset(&service->signals, service->lease_signal);
    int sys = pthread_sigmask(SIG_BLOCK, &service->signals, NULL);
    if (sys != 0)
        return td_error_sys(err, TD_INTERNAL, sys, "cannot block signals");
    struct sigaction ignore;
    memset(&ignore, 0, sizeof ignore);
    ignore.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    if (!td_fault_guard_install())
        return td_error_sys(err, TD_INTERNAL, errno, "cannot install the SIGBUS handler");
    return true;
}

/* Sets the number of workers to fit the machine, unless it is given. */
static void choose_workers(struct td_config *config)
{
    enum { PER_PROCESSOR = 2, FEWEST = 4, MOST = 256 };
    if (config->workers != TD_CONFIG_AUTO)
        return;
    cpu_set_t set;
    uint64_t processors = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
    uint64_t workers = processors * PER_PROCESSOR;
    config->workers = workers < FEWEST ? FEWEST : workers > MOST ? MOST : workers;
}

/* Raises the limit on open files as far as possible. Returns it. */
static uint64_t raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return UINT64_MAX;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

/* Returns how many files of incoming models may be open at once, if `left` descriptors are free: the descriptors that
 * mapped files do not need, but at least a sixteenth of all. */
static uint64_t share_of_incoming(const struct td_config *config, uint64_t left)
{
    enum { MOST = TD_UPSTREAM_MODELS * TD_UPSTREAM_MODEL_FILES, LEAST = 64, LEAST_PART = 16 };
    uint64_t share = left > config->max_maps ? left - config->max_maps : 0;
    uint64_t least = left / LEAST_PART > LEAST ? left / LEAST_PART : LEAST;
    if (share < least)
        share = least;
    return share < MOST ? share : MOST;
}

/* Raises the limit on open files, and sets how many files of incoming models may be open. Each mapped file, each
 * connection and each of these files takes a descriptor, so lowers config->max_maps if the limit is too small. */
static void fit_descriptors(struct service *service)
{
    enum {
        OTHER_DESCRIPTORS = 64,
        WORKER_DESCRIPTORS = 2,
        FETCH_DESCRIPTORS = 12, /* of a thread that fetches: connections, the file, its journal and its folder */
        FEWEST_MAPS = 16,
    };
    struct td_config *config = &service->used;
    bool fetches = config->upstream[0] != '\0';
    uint64_t have = raise_descriptors();
    uint64_t fixed = config->max_connections + config->workers * WORKER_DESCRIPTORS + OTHER_DESCRIPTORS +
                     (fetches ? TD_UPSTREAM_WORKERS * FETCH_DESCRIPTORS : 0);
    uint64_t left = have > fixed ? have - fixed : 0;
    uint64_t incoming = fetches ? share_of_incoming(config, left) : 0;
    service->incoming_files = (size_t)incoming;
    left = left > incoming ? left - incoming : 0;
    service->held_files = config->keep_removed_ns == 0 ? 0 : left / 2 < TD_REMOVED_FILES ? left / 2 : TD_REMOVED_FILES;
    left -= service->held_files;
    if (left >= config->max_maps)
        return;
    uint64_t maps = left < FEWEST_MAPS ? FEWEST_MAPS : left;
    td_log(TD_LOG_WARN,
           "the limit on open files is %llu: at most %llu files are kept mapped instead of --max-maps %llu",
           (unsigned long long)have, (unsigned long long)maps, (unsigned long long)config->max_maps);
    config->max_maps = maps;
}

/* Reads the list of --cors-origin, if it is given. */
static bool begin_cors(struct service *service, struct td_error *err)
{
    const char *origins = service->used.cors_origins;
    return origins[0] == '\0' || td_cors_create(origins, &service->cors, err);
}

/* Reads the certificate, if TLS is configured. */
static bool begin_tls(struct service *service, struct td_error *err)
{
    const struct td_config *config = &service->used;
    struct td_tls_files files = {.cert = config->tls_cert, .key = config->tls_key, .client_ca = config->tls_client_ca};
    return config->tls_cert[0] == '\0' || td_tls_create(&files, &service->tls, err);
}

/* Reads the certificate's files again if they have changed or `always` is set, and sets the metric of its expiry. */
static void keep_tls(struct service *service, bool always)
{
    if (service->tls == NULL)
        return;
    td_tls_look(service->tls, always);
    atomic_store(&service->api.metrics.certificate_expiry_s, td_tls_expiry_s(service->tls));
}

/* Returns the value of --rescan-from. The table of options has checked the word. */
static enum td_rescan_from rescan_from_of(const char *word)
{
    return strcmp(word, "local") == 0 ? TD_RESCAN_FROM_LOCAL
           : strcmp(word, "any") == 0 ? TD_RESCAN_FROM_ANY
                                      : TD_RESCAN_FROM_NONE;
}

/* Returns the value of --publish. The table of options has checked the word. */
static enum td_publish_who publish_who_of(const char *word)
{
    return strcmp(word, "local") == 0 ? TD_PUBLISH_LOCAL : strcmp(word, "any") == 0 ? TD_PUBLISH_ANY : TD_PUBLISH_OFF;
}

/* Returns the value of --sendfile. The table of options has checked the word. */
static enum td_referring referring_of(const char *word)
{
    return strcmp(word, "on") == 0       ? TD_REFERRING_ALL
           : strcmp(word, "remote") == 0 ? TD_REFERRING_REMOTE
                                         : TD_REFERRING_NONE;
}

static struct td_registry_limits registry_limits(const struct service *service)
{
    const struct td_config *config = &service->config;
    return (struct td_registry_limits){.deadlines.header_timeout_ns = config->header_timeout_ns,
                                       .deadlines.body_timeout_ns = config->body_timeout_ns,
                                       .deadlines.idle_timeout_ns = config->idle_timeout_ns,
                                       .deadlines.send_timeout_ns = config->send_timeout_ns,
                                       .deadlines.min_rate = config->min_rate,
                                       .max_connections = (size_t)config->max_connections,
                                       .max_per_address = (size_t)config->max_connections_per_address,
                                       .referring = referring_of(config->sendfile)};
}

static void apply_log_level(const struct service *service)
{
    enum td_log_level level = TD_LOG_INFO;
    (void)td_log_parse_level(service->config.log_level, &level); /* the options' table has checked the word */
    td_log_set_level(level);
}

static void apply_log_form(const struct service *service)
{
    enum td_log_form form = TD_LOG_TEXT;
    (void)td_log_parse_form(service->config.log_format, &form);
    td_log_set_form(form);
}

/* Logs which layers of the sandbox hold. */
static void log_layers(const struct service *service)
{
    struct td_parse_pool_status status;
    td_parse_pool_get_status(service->parsers, &status);
    const struct td_sandbox_layers *layers = &status.layers;
    td_log(TD_LOG_INFO, "files are parsed in processes of their own; seccomp %s, landlock %s, rlimits %s",
           layers->seccomp ? "on" : "off", layers->landlock ? "on" : "off", layers->rlimits ? "on" : "off");
}

/* Starts the first parser process, as --sandbox says. */
static bool start_parsers(struct service *service, struct td_error *err)
{
    const struct td_config *config = &service->used;
    struct td_error why = TD_ERROR_INIT;
    struct td_parse_pool_config pool = {.required = strcmp(config->sandbox, "required") == 0,
                                        .timeout_ns = config->parse_timeout_ns,
                                        .memory_bytes = config->parse_memory,
                                        .max_workers = (size_t)config->index_threads + TD_CARDS_AT_ONCE + 1};
    if (strcmp(config->sandbox, "off") == 0)
        return true;
    if (td_parse_pool_create(&pool, &service->parsers, &why))
        return true;
    if (pool.required)
        return td_error_copy(err, &why);
    td_log(TD_LOG_WARN, "files are parsed in the server itself, without a sandbox: %s", why.message);
    return true;
}

/* Opens the client and the store of --upstream, and checks its options. */
static bool open_upstream(struct service *service, struct td_error *err)
{
    const struct td_config *config = &service->used;
    const struct td_remote_source_config remote = {.urls = config->upstream,
                                                   .token_file = config->upstream_token_file,
                                                   .ca = config->upstream_ca,
                                                   .list_retry_ns = TD_UPSTREAM_LIST_RETRY_S * TD_NS_PER_S,
                                                   .file_retry_ns = TD_UPSTREAM_FILE_RETRY_S * TD_NS_PER_S};
    if (config->upstream[0] == '\0')
        return true;
    return td_remote_source_create(&remote, &service->source, err) &&
           td_upstream_store_open(config->directory, config->cache_max_bytes, &service->store, err);
}

/* Notes the digest of a blob that was published, so that it is not hashed again. */
static void note_blob(void *context, const struct td_file_id *id, const uint8_t sha256[TD_SHA256_BYTES])
{
    const struct service *service = context;
    td_catalog_note_digest(service->catalog, id, sha256);
}

/* Opens what is published in DIR, if --publish lets somebody publish. */
static bool open_publish(struct service *service, struct td_error *err)
{
    const struct td_config *config = &service->used;
    const struct td_publish_config publish = {.root = config->directory,
                                              .max_bytes = config->publish_max_bytes,
                                              .upload_expires_s = config->upload_expires_ns / TD_NS_PER_S,
                                              .keep_commits_s = config->keep_commits_ns / TD_NS_PER_S,
                                              .on_blob = note_blob,
                                              .context = service};
    return publish_who_of(config->publish) == TD_PUBLISH_OFF || td_publish_open(&publish, &service->publish, err);
}

/* Logs who may publish, and the room for it. */
static void log_publish(const struct service *service)
{
    struct td_publish_status status;
    char bound[64] = "no bound (--publish-max-bytes)";
    td_publish_get_status(service->publish, &status);
    if (status.max_bytes > 0)
        (void)snprintf(bound, sizeof bound, "at most %" PRIu64 " bytes", status.max_bytes);
    td_log(TD_LOG_INFO, "publish: %s may publish to DIR; disk for it: %s; published: %" PRIu64 " bytes",
           service->api.publish_who == TD_PUBLISH_LOCAL ? "this machine alone"
           : service->used.tokens[0] != '\0'            ? "tokens with the right to write"
                                                        : "everybody who can connect",
           bound, status.used_bytes);
}

/* Gives the api what is published, and starts to tidy it. */
static bool start_publish(struct service *service, struct td_error *err)
{
    struct td_api *api = &service->api;
    api->publish_who = publish_who_of(service->used.publish);
    if (service->publish == NULL)
        return true;
    if (!td_publish_tidier_create(service->publish, &service->tidier, err))
        return false;
    api->publish = service->publish;
    api->publish_tidier = service->tidier;
    api->takes_uploads = true;
    log_publish(service);
    return true;
}

/* Logs the upstream, the limit of the cache, and the number of models in it. */
static void log_upstream(const struct service *service)
{
    const struct td_config *used = &service->used;
    char bound[64] = "no bound (--cache-max-bytes)";
    size_t count;
    uint64_t bytes = td_upstream_store_bytes(service->store, &count);
    if (used->cache_max_bytes > 0)
        (void)snprintf(bound, sizeof bound, "at most %" PRIu64 " bytes", used->cache_max_bytes);
    td_log(TD_LOG_INFO,
           "upstream: models that DIR lacks are fetched from %s; disk for them: %s; kept: %zu fetched model%s, %zu "
           "incomplete (%" PRIu64 " bytes)",
           used->upstream, bound, count, td_plural(count), td_upstream_store_count_paused(service->store), bytes);
    if (used->cache_max_bytes > 0 && bytes > used->cache_max_bytes)
        td_log(TD_LOG_WARN,
               "upstream: the models that were fetched take %" PRIu64 " bytes, more than --cache-max-bytes (%" PRIu64
               "): the least recently read are evicted before the next one is fetched",
               bytes, used->cache_max_bytes);
}

/* Starts to fetch models, if there is an upstream. */
static bool start_upstream(struct service *service, struct td_error *err)
{
    const struct td_upstream_config config = {.source = service->source,
                                              .store = service->store,
                                              .catalog = service->catalog,
                                              .wait_ns = TD_UPSTREAM_WAIT_S * TD_NS_PER_S,
                                              .absent_ns = TD_UPSTREAM_ABSENT_S * TD_NS_PER_S,
                                              .late_list_ns = TD_UPSTREAM_LATE_LIST_S * TD_NS_PER_S,
                                              .upkeep_ns = TD_UPSTREAM_UPKEEP_S * TD_NS_PER_S,
                                              .max_names = TD_UPSTREAM_NAMES,
                                              .max_files = service->incoming_files};
    if (service->store == NULL)
        return true;
    if (!td_upstream_create(&config, &service->upstream, err))
        return false;
    service->api.upstream = service->upstream;
    log_upstream(service);
    return true;
}

/* Refuses a URL, a missing path and a regular file as DIR, with advice. */
static bool check_directory(const char *path, struct td_error *err)
{
    struct stat st;
    if (!td_local_path_check(path, "serve", err))
        return false;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
        return td_error_set(
            err, TD_FAILED_PRECONDITION,
            "\"%.200s\" is not a directory: serve the one that holds this file, and all in it is served; "
            "tensord inspect FILE prints the file's tensors without a server",
            path);
    return true; /* the catalog opens it, and reports other faults */
}

/* Returns whether the text can begin a folder's name. */
static bool is_version_prefix(struct td_text text)
{
    bool is = text.len > 0 && text.len <= TD_VERSION_PREFIX_BYTES && td_utf8_valid(text.p, text.len);
    for (size_t i = 0; i < text.len; i++)
        is = is && (unsigned char)text.p[i] >= ' ' && text.p[i] != 0x7F && text.p[i] != '/';
    return is;
}

/* Splits the list of --version-prefix into service->version_prefixes. Errors: TD_INVALID_ARGUMENT for too many, and for
 * one that cannot begin a folder's name; TD_RESOURCE_EXHAUSTED. */
static bool split_version_prefixes(struct service *service, struct td_error *err)
{
    struct td_version_prefixes *prefixes = &service->version_prefixes;
    const char *list = service->used.version_prefixes;
    prefixes->items = service->prefix_items;
    service->version_texts = strdup(list);
    if (service->version_texts == NULL)
        return td_error_no_memory(err);
    for (char *at = list[0] == '\0' ? NULL : service->version_texts, *end; at != NULL; at = end) {
        end = strchr(at, ',');
        if (end != NULL)
            *end++ = '\0';
        if (!is_version_prefix(td_text_of(at)))
            return td_error_set(
                err, TD_INVALID_ARGUMENT,
                "--version-prefix takes the beginning of a folder's name, 1 to %d bytes without '/' and "
                "control characters; a comma stands between two, not \"%.100s\"",
                TD_VERSION_PREFIX_BYTES, at);
        if (prefixes->count == TD_VERSION_PREFIXES)
            return td_error_set(err, TD_INVALID_ARGUMENT, "--version-prefix takes at most %d prefixes",
                                TD_VERSION_PREFIXES);
        service->prefix_items[prefixes->count++] = at;
    }
    return true;
}

/* Passes an accepted connection to the server of its protocol. A function of td_taker's kind. */
static bool take_connection(void *context, struct td_connection *connection, enum td_lane lane,
                            const struct sockaddr *address, unsigned int address_len)
{
    struct service *service = context;
    struct td_taker http = td_http_server_taker(service->server);
    return lane == TD_LANE_HTTP2 ? td_h2_server_take(service->h2, connection)
                                 : http.take(http.context, connection, lane, address, address_len);
}

/* Starts all parts. The steps that fail by a mistake of the user come first, before the catalog's first scan logs
 * "ready". */
static bool start_parts(struct service *service, struct td_error *err)
{
    struct td_config *config = &service->used;
    if (!block_signals(service, err))
        return false;
    *config = service->config;
    choose_workers(config);
    fit_descriptors(service);
    if (!check_directory(config->directory, err) || !split_version_prefixes(service, err) ||
        !begin_cors(service, err) || !begin_tls(service, err) ||
        !td_token_watch_init(&service->tokens, config->tokens, err) ||
        !td_ports_bind(&service->ports, config, service->cors, err) || !td_ports_judge(&service->ports, config, err) ||
        !td_access_log_create(config->access_log, &service->api.metrics.access_log_dropped, &service->log, err))
        return false;
    if (!open_upstream(service, err) || !open_publish(service, err) || !start_parsers(service, err))
        return false;
    struct td_catalog_config catalog = {.root = config->directory,
                                        .interval_ns = config->rescan_interval_ns,
                                        .max_maps = (size_t)config->max_maps,
                                        .max_memory_bytes = config->max_memory,
                                        .decode_bytes = (size_t)config->decode_memory,
                                        .watches = config->watch,
                                        .files_are_immutable = strcmp(config->files, "immutable") == 0,
                                        .lease_signal = config->leases ? service->lease_signal : 0,
                                        .state_dir = config->state_dir[0] == '\0' ? NULL : config->state_dir,
                                        .hash_threads = (size_t)config->hash_threads,
                                        .index_threads = (size_t)config->index_threads,
                                        .keep_removed_ns = config->keep_removed_ns,
                                        .keep_removed_files = (size_t)service->held_files,
                                        .keep_removed_models = (size_t)config->keep_removed_models,
                                        .require_models = (size_t)config->require_models,
                                        .own_folder = service->store != NULL     ? TD_UPSTREAM_FOLDER
                                                      : service->publish != NULL ? TD_PUBLISH_FOLDER
                                                                                 : NULL,
                                        .scan = td_scan_config_default()};
    catalog.scan.settle_ns = config->settle_ns;
    catalog.scan.max_files = (size_t)config->max_files;
    catalog.scan.parsers = service->parsers;
    catalog.scan.limits.max_memory_bytes = (size_t)(config->parse_memory / 2);
    catalog.scan.version_prefixes = &service->version_prefixes;
    catalog.scan.keeps_versions = service->store != NULL;
    if (!td_catalog_create(&catalog, &service->catalog, err))
        return false;
    service->api_made = td_api_init(&service->api, service->catalog, err);
    if (!service->api_made ||
        !td_api_keep_state(&service->api, catalog.state_dir, config->patch_max_bytes, config->directory, err) ||
        !start_upstream(service, err) || !start_publish(service, err))
        return false;
    service->api.s3_listen = td_ports_address(&service->ports, TD_PORT_S3);
    service->api.cors = service->cors;
    service->api.events.most_of_client = (size_t)(config->max_waiters + 3) / 4;
    keep_tls(service, false);
    atomic_store(&service->api.rescan_from, rescan_from_of(config->rescan_from));
    atomic_store(&service->api.metrics_open, config->metrics_open);
    td_token_watch_begin(&service->tokens, &service->api);
    struct td_registry_limits limits = registry_limits(service);
    service->registry_made = td_registry_init(&service->registry, &limits, &service->api.metrics, err);
    service->breaks =
        (struct td_lease_breaks){.registry = &service->registry, .maps = td_catalog_maps(service->catalog)};
    service->serving = (struct td_serving){.config = config,
                                           .api = &service->api,
                                           .registry = &service->registry,
                                           .log = service->log,
                                           .tls = service->tls};
    return service->registry_made && td_serving_begin(&service->serving, err) &&
           td_http_server_create(&service->serving, &service->server, err) &&
           (config->grpc_listen[0] == '\0' || td_h2_server_create(&service->serving, &service->h2, err)) &&
           td_ports_accept(&service->ports, (struct td_taker){.take = take_connection, .context = service},
                           &service->registry, &service->api.metrics, err);
}

static void stop_parts(struct service *service)
{
    if (service->upstream != NULL) /* answers that wait for bytes end */
        td_upstream_stop(service->upstream);
    td_ports_close(&service->ports);
    td_h2_server_destroy(service->h2);
    td_serving_close(&service->serving);
    td_http_server_destroy(service->server);
    td_serving_fini(&service->serving);
    if (service->registry_made)
        td_registry_fini(&service->registry);
    if (service->api_made)
        td_api_fini(&service->api);
    td_publish_tidier_destroy(service->tidier);
    td_publish_close(service->publish);
    td_upstream_destroy(service->upstream);
    td_upstream_store_close(service->store);
    td_remote_source_destroy(&service->source);
    td_catalog_destroy(service->catalog);
    free(service->version_texts);
    td_parse_pool_destroy(service->parsers);
    td_token_watch_fini(&service->tokens);
    td_access_log_destroy(service->log);
    td_tls_destroy(service->tls);
    td_cors_destroy(service->cors);
}

/* Returns the next signal, -1 when none came in time, or 0 after it has handled a signal about a lease. */
static int wait_signal(struct service *service, long timeout_ns)
{
    enum { BREAKING_STEP_NS = 10000000 };
    td_notify_alive(&service->notify);
    if (service->breaks.pending && timeout_ns > BREAKING_STEP_NS)
        timeout_ns = BREAKING_STEP_NS;
    struct timespec timeout = {.tv_sec = timeout_ns / TD_NS_PER_S, .tv_nsec = timeout_ns % TD_NS_PER_S};
    int number = sigtimedwait(&service->signals, NULL, &timeout);
    if (number < 0 && service->breaks.pending)
        td_lease_breaks_run(&service->breaks);
    if (number == service->lease_signal || number == SIGIO) {
        td_lease_breaks_run(&service->breaks);
        td_catalog_request_scan(service->catalog);
        return 0;
    }
    return number;
}

static bool is_end(int number)
{
    return number == SIGTERM || number == SIGINT;
}

/* Reports the state to systemd: READY=1 as soon as /readyz is 200, and again when the scan after a SIGHUP has ended. */
static void notify_state(struct service *service)
{
    struct td_notify *notify = &service->notify;
    struct td_catalog_status status;
    if (!td_notify_is_on(notify))
        return;
    td_catalog_get_status(service->catalog, &status);
    if (status.ready)
        td_notify_status(notify, "ready: %zu model%s, %zu dataset%s, %zu file%s", status.counts.models,
                         td_plural(status.counts.models), status.counts.datasets, td_plural(status.counts.datasets),
                         status.counts.files, td_plural(status.counts.files));
    else if (status.message[0] != '\0')
        td_notify_status(notify, "not ready: %s", status.message);
    else
        td_notify_status(notify, "scanning: %llu file%s found, %llu of %llu read",
                         (unsigned long long)status.files_found, td_plural(status.files_found),
                         (unsigned long long)status.files_read, (unsigned long long)status.files_to_read);
    bool is_reloaded = service->reloading && status.scan_count >= service->reload_end_scan;
    if (((status.ready && !service->has_sent_ready) || is_reloaded) && td_notify_ready(notify)) {
        service->has_sent_ready = true;
        service->reloading = false;
    }
}

/* Gives the parts the settings that may change while they run. The options' table marks these as is_live; the times of
 * draining are read when it begins. */
static void apply_live(struct service *service)
{
    const struct td_config *config = &service->config;
    struct td_registry_limits limits = registry_limits(service);
    struct td_catalog_tuning tuning = {.interval_ns = config->rescan_interval_ns,
                                       .settle_ns = config->settle_ns,
                                       .max_files = (size_t)config->max_files,
                                       .require_models = (size_t)config->require_models};
    apply_log_level(service);
    td_registry_set_limits(&service->registry, &limits);
    atomic_store(&service->api.rescan_from, rescan_from_of(config->rescan_from));
    atomic_store(&service->api.metrics_open, config->metrics_open);
    td_catalog_tune(service->catalog, &tuning);
}

/* Reads the configuration file again, if there is one, and applies what may change. A file with a fault changes
 * nothing. */
static void reload_config(struct service *service)
{
    struct td_config fresh;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer changed;
    struct td_buffer kept;
    if (service->config.file[0] == '\0')
        return;
    if (!td_config_parse(&fresh, service->argc, service->argv, &err)) {
        td_log(TD_LOG_ERROR, "SIGHUP: the configuration stays as it was: %s", err.message);
        return;
    }
    td_buffer_init(&changed);
    td_buffer_init(&kept);
    bool is_changed = td_config_update(&service->config, &fresh, &changed, &kept);
    td_config_fini(&fresh);
    if (is_changed)
        apply_live(service);
    struct td_text names = is_changed ? td_buffer_text(&changed) : TD_TEXT("nothing");
    td_log(TD_LOG_INFO, "SIGHUP: read the configuration \"%s\" again; changed: %.*s", service->config.file,
           (int)names.len, names.p);
    if (kept.len > 0)
        td_log(TD_LOG_WARN, "SIGHUP: restart the server for the new values of: %.*s", (int)kept.len, kept.data);
    td_buffer_fini(&changed);
    td_buffer_fini(&kept);
}

/* Reopens the access log's file, since a program that rotates logs may have renamed it. */
static void reopen_log(struct service *service)
{
    struct td_error err = TD_ERROR_INIT;
    bool reopened;
    if (!td_access_log_reopen(service->log, &reopened, &err))
        td_log(TD_LOG_ERROR, "SIGHUP: the access log continues in the open file: %s", err.message);
    else if (reopened)
        td_log(TD_LOG_INFO, "SIGHUP: opened the access log \"%s\" again", service->used.access_log);
}

/* Reads the tokens again if they have changed, or in any case with `always`. A stream of events whose token is gone
 * then ends. */
static void look_at_tokens(struct service *service, bool always)
{
    if (td_token_watch_look(&service->tokens, &service->api, always))
        td_serving_retry_waits(&service->serving);
}

/* Reopens the access log, reads the configuration, the certificate and the tokens again, and scans. If READY=1 was sent
 * to systemd, reports the reload to it, too. */
static void reload(struct service *service)
{
    struct td_catalog_status status;
    reopen_log(service);
    reload_config(service);
    keep_tls(service, true);
    look_at_tokens(service, true);
    td_log(TD_LOG_INFO, "SIGHUP: scanning again");
    td_catalog_get_status(service->catalog, &status);
    td_catalog_request_publish(service->catalog);
    if (!service->has_sent_ready || !td_notify_reloading(&service->notify))
        return;
    service->reloading = true;
    service->reload_end_scan = status.scan_count + (status.scanning ? 2 : 1);
}

/* Returns how long the main loop may wait for a signal. */
static long loop_step_ns(const struct service *service)
{
    enum { MOST_NS = TD_NS_PER_S, STATUS_NS = 50000000 };
    const struct td_notify *notify = &service->notify;
    long step_ns = MOST_NS;
    if (td_notify_is_on(notify) && (!service->has_sent_ready || service->reloading))
        step_ns = STATUS_NS;
    if (notify->watchdog_ns > 0 && notify->watchdog_ns / 4 < (uint64_t)step_ns)
        step_ns = (long)(notify->watchdog_ns / 4);
    return step_ns;
}

/* Runs until SIGTERM or SIGINT. */
static void serve(struct service *service)
{
    for (;;) {
        notify_state(service);
        int number = wait_signal(service, loop_step_ns(service));
        keep_tls(service, false);
        look_at_tokens(service, false);
        if (number < 0 && !service->breaks.pending) /* a signal may be lost: a writer then waits no longer than 1 s */
            td_lease_breaks_run(&service->breaks);
        if (is_end(number))
            return;
        if (number == SIGHUP)
            reload(service);
    }
}

/* Returns whether connections are open, or answers of closed connections may be unread. Unread answers need the leases
 * of their files, which end with this process. */
static bool is_busy(struct service *service)
{
    return td_registry_count(&service->registry) > 0 || td_registry_count_unread(&service->registry) > 0;
}

/* Logs the connections that the end of draining cuts. */
static void log_cut(struct service *service, const char *why)
{
    size_t open = td_registry_count(&service->registry);
    size_t unread = td_registry_count_unread(&service->registry);
    td_log(TD_LOG_WARN, "%s: cutting %zu connection%s; %zu answer%s may not have been read", why, open, td_plural(open),
           unread, td_plural(unread));
}

/* Makes /readyz fail and ends all waits for a change and for an upstream's lists, waits for --drain-delay, closes the
 * listening sockets and idle connections, and waits until the others have ended and all answers are read, for at most
 * --drain-timeout. A second signal ends the wait. */
static void drain(struct service *service)
{
    enum { STEP_NS = 20000000 };
    atomic_store(&service->api.draining, true);
    td_serving_retry_waits(&service->serving);
    if (service->upstream != NULL)
        td_upstream_end_waits(service->upstream);
    uint64_t now_ns = td_clock_ns();
    uint64_t accept_until_ns = now_ns + service->config.drain_delay_ns;
    size_t open = td_registry_count(&service->registry);
    td_log(TD_LOG_INFO, "draining: %zu connection%s open; /readyz answers 503 from now on", open, td_plural(open));
    td_notify_stopping(&service->notify);
    td_notify_status(&service->notify, "draining: %zu connection%s open at its start", open, td_plural(open));
    while (td_clock_ns() < accept_until_ns)
        if (is_end(wait_signal(service, STEP_NS)))
            return;
    td_ports_stop(&service->ports);
    atomic_store(&service->registry.draining, true);
    uint64_t until_ns = td_clock_ns() + service->config.drain_timeout_ns;
    while (is_busy(service)) {
        if (td_clock_ns() >= until_ns) {
            log_cut(service, "--drain-timeout is over");
            return;
        }
        if (is_end(wait_signal(service, STEP_NS))) {
            log_cut(service, "second signal");
            return;
        }
    }
}

/* Logs environment variables that resemble options but have no effect. */
static void check_environment(void)
{
    char near[TD_VARIABLE_BYTES];
    for (char *const *variable = environ; *variable != NULL; variable++) {
        enum td_variable judged = td_config_judge_variable(*variable, near);
        int len = (int)strcspn(*variable, "=");
        if (judged == TD_VARIABLE_MISSPELLED)
            td_log(TD_LOG_WARN, "%.*s is not an option of tensord and is ignored (did you mean %s?)", len, *variable,
                   near);
        else if (judged == TD_VARIABLE_UNKNOWN)
            td_log(TD_LOG_INFO, "%.*s is not an option of tensord and is ignored; tensord serve --help lists them", len,
                   *variable);
    }
}

void td_cmd_serve_help(FILE *out)
{
    (void)fputs(
        "tensord serve answers HTTP requests for every model and dataset below a directory.\n"
        "\n"
        "usage:\n"
        "  tensord serve DIR [options]\n"
        "  tensord serve --config FILE [DIR] [options]\n"
        "\n"
        "options, defaults in parentheses; in the environment, --max-files is TENSORD_MAX_FILES, in FILE it is\n"
        "the key \"max-files\"; FILE also has the key \"directory\", for DIR:\n",
        out);
    td_config_help(out);
    (void)fputs(
        "\n"
        "An option takes precedence over the environment, the environment over FILE, FILE over the default.\n"
        "\n"
        "SIGHUP reads FILE, the certificate and the tokens again, opens the access log again and scans DIR; the\n"
        "log names the keys whose new values need a restart.\n"
        "\n"
        "exit codes: 0 ended by SIGTERM or SIGINT, 1 could not start, 2 wrong usage or configuration.\n",
        out);
}

/* Prints the configuration. Returns the exit code. */
static int print_config(const struct td_config *config)
{
    struct td_error err = TD_ERROR_INIT;
    if (td_config_print(config, stdout, &err))
        return TD_EXIT_OK;
    td_terminal_complain("%s", err.message);
    return TD_EXIT_FAILED;
}

/* Serves as configured, until a signal ends it. Returns the exit code. */
static int run_service(struct service *service)
{
    struct td_error err = TD_ERROR_INIT;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        td_log(TD_LOG_WARN, "the kernel does not let this process give up new privileges (no_new_privs)");
    td_notify_init(&service->notify);
    bound_free_memory();
    bool ok = start_parts(service, &err);
    if (ok) {
        const struct td_port *ports = service->ports.all;
        td_log(TD_LOG_INFO, "tensord %s serves \"%s\", listening on %s", TD_VERSION, service->used.directory,
               ports[TD_PORT_MAIN].url);
        if (ports[TD_PORT_S3].acceptor != NULL)
            td_log(TD_LOG_INFO, "listening for S3 clients on %s", ports[TD_PORT_S3].url);
        if (ports[TD_PORT_GRPC].acceptor != NULL)
            td_log(TD_LOG_INFO, "listening for gRPC clients on %s", ports[TD_PORT_GRPC].url);
        if (ports[TD_PORT_PLAIN].acceptor != NULL)
            td_log(TD_LOG_INFO, "listening without TLS on %s", ports[TD_PORT_PLAIN].url);
        if (service->parsers != NULL)
            log_layers(service);
        serve(service);
        drain(service);
        td_registry_cut_all(&service->registry);
    }
    stop_parts(service);
    td_notify_fini(&service->notify);
    if (ok)
        td_log(TD_LOG_INFO, "stopped");
    else if (td_log_get_form() == TD_LOG_JSON)
        td_log(TD_LOG_ERROR, "%s", err.message);
    else
        td_terminal_complain("%s", err.message); /* after the threads have ended, so that it is the last line */
    return ok ? TD_EXIT_OK : TD_EXIT_FAILED;
}

int td_cmd_serve(int argc, char **argv)
{
    struct service service;
    struct td_error err = TD_ERROR_INIT;
    memset(&service, 0, sizeof service);
    service.argc = argc;
    service.argv = argv;
    if (!td_config_parse(&service.config, argc, argv, &err)) {
        td_terminal_complain("%s", err.message);
        return TD_EXIT_USAGE;
    }
    apply_log_level(&service);
    apply_log_form(&service);
    check_environment();
    int code = service.config.print == TD_CONFIG_PRINT_NOTHING ? run_service(&service) : print_config(&service.config);
    td_config_fini(&service.config);
    return code;
}
