#include "server/config/config.h"

#include "tests/unit/unit.h"

#include <ctype.h>

static const uint64_t second = UINT64_C(1000000000);

enum { OPTIONS_MAX = 64, NAME_BYTES = 40 };

/* Lists the names of all options, without dashes, as td_config_help writes them. Returns their number. */
static size_t option_names(char names[OPTIONS_MAX][NAME_BYTES])
{
    char text[8192];
    size_t count = 0;
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    td_config_help(out);
    assert_int_equal(fclose(out), 0);
    /* An empty line ends the options; the units of times and sizes follow. */
    for (const char *line = text; *line != '\n'; line = strchr(line, '\n') + 1)
        assert_true(count < OPTIONS_MAX && sscanf(line, "  --%39[a-z0-9-] ", names[count++]) == 1);
    assert_true(count > 0);
    return count;
}

/* Removes variables of the caller's environment that would change the tests. */
static void forget_environment(void)
{
    char names[OPTIONS_MAX][NAME_BYTES];
    for (size_t i = option_names(names); i-- > 0;) {
        char variable[64];
        (void)snprintf(variable, sizeof variable, "TENSORD_%s", names[i]);
        for (char *c = variable; *c != '\0'; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        assert_int_equal(unsetenv(variable), 0);
    }
}

/* Parses a command line of words separated by blanks. "''" is an empty word. */
static bool parse_line(struct td_config *config, const char *line, struct td_error *err)
{
    static char words[1280];
    char *argv[128];
    int argc = 0;
    char *save = NULL;
    assert_true(strlen(line) < sizeof words);
    memcpy(words, line, strlen(line) + 1);
    for (char *word = strtok_r(words, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    td_error_init(err);
    bool ok = td_config_parse(config, argc, argv, err);
    assert_int_equal(ok, err->code == TD_OK);
    if (!ok) {
        assert_int_equal(err->code, TD_INVALID_ARGUMENT);
        check_error(err, 0, false, line);
    }
    return ok;
}

static void defaults_are_as_documented(void **state)
{
    (void)state;
    struct td_config config;
    struct td_error err;
    forget_environment();
    assert_true(parse_line(&config, "models", &err));
    assert_string_equal(config.directory, "models");
    assert_string_equal(config.listen, "127.0.0.1:8080");
    assert_string_equal(config.access_log, "-");
    assert_string_equal(config.log_level, "info");
    assert_string_equal(config.log_format, "text");
    assert_string_equal(config.s3_listen, "");
    assert_string_equal(config.rescan_from, "local");
    assert_string_equal(config.state_dir, "");
    assert_string_equal(config.files, "mutable");
    assert_string_equal(config.tls_cert, "");
    assert_string_equal(config.tls_key, "");
    assert_string_equal(config.tls_client_ca, "");
    assert_string_equal(config.grpc_listen, "");
    assert_string_equal(config.plain_listen, "");
    assert_true(config.workers == TD_CONFIG_AUTO && !config.require_tls);
    assert_true(config.patch_max_bytes == UINT64_C(17179869184));
    assert_true(config.decode_memory == 268435456 && config.hash_threads == 1 && config.index_threads == 2);
    assert_string_equal(config.sandbox, "best-effort");
    assert_true(config.upstream[0] == '\0' && config.upstream_token_file[0] == '\0' && config.upstream_ca[0] == '\0');
    assert_true(config.cache_max_bytes == 0 && config.version_prefixes[0] == '\0' && config.cors_origins[0] == '\0');
    assert_string_equal(config.publish, "off");
    assert_true(config.publish_max_bytes == 0 && config.upload_expires_ns == 86400 * second);
    assert_true(config.keep_commits_ns == 3600 * second);
    assert_true(config.keep_removed_ns == 0 && config.keep_removed_models == 4);
    assert_true(config.parse_timeout_ns == 30000000000 && config.parse_memory == 1073741824);
    assert_true(config.max_connections == 1024 && config.max_connections_per_address == 256);
    assert_true(config.max_waiters == 1000);
    assert_true(config.max_header_bytes == 8192 && config.min_rate == 1024);
    assert_true(config.max_body_bytes == 8388608 && config.body_timeout_ns == 30 * second);
    assert_true(config.header_timeout_ns == 10 * second && config.idle_timeout_ns == 60 * second);
    assert_true(config.send_timeout_ns == 60 * second && config.drain_delay_ns == 0);
    assert_true(config.drain_timeout_ns == 25 * second && config.rescan_interval_ns == 10 * second);
    assert_true(config.settle_ns == 2 * second && config.watch && config.leases && config.require_models == 0);
    assert_true(config.max_files == 1000000 && config.max_maps == 16384 && config.max_memory == UINT64_C(4) << 30);
}

static void every_option_is_read(void **state)
{
    (void)state;
    struct td_config config;
    struct td_error err;
    forget_environment();
    static const char line[] =
        "--listen 0.0.0.0:0 --max-connections 10 --max-connections-per-address=3 --max-header-bytes 1024 "
        "--max-body-bytes 2K --body-timeout 2500ms --header-timeout 1.5 --idle-timeout 7s --send-timeout=8 "
        "--min-rate 0 --drain-delay 0.25 --drain-timeout 0 m --rescan-interval 0 --settle .05 --leases off "
        "--max-files 9 --max-maps 16 --max-memory 5GB --require-models 3 --access-log off --log-level debug "
        "--log-format json --s3-listen [::1]:81 --rescan-from any --decode-memory 600000000 --state-dir=s "
        "--hash-threads 2 --index-threads 3 --files immutable --workers 5 --max-waiters 6 --watch off --config= "
        "--print-config=sources "
        "--tls-cert c.pem --tls-key=k.pem --tls-client-ca a.pem --plain-listen 127.0.0.1:82 --require-tls on "
        "--grpc-listen :83 "
        "--tokens t --require-auth --metrics-open on --sendfile remote "
        "--publish off --publish-max-bytes 2T --upload-expires 90 --keep-commits=0 "
        "--version-prefix a --version-prefix=b,c --cors-origin http://a --cors-origin=https://b:1,http://c "
        "--keep-removed 0 --keep-removed-models=7 "
        "--upstream http://a,http://b --upstream-token-file=f --upstream-ca u.pem --cache-max-bytes 77 "
        "--patch-max-bytes 33M "
        "--sandbox required --parse-timeout 7.5 --parse-memory 200000000";
    char names[OPTIONS_MAX][NAME_BYTES];
    for (size_t i = option_names(names); i-- > 0;) {
        char spaced[NAME_BYTES + 4];
        char equal[NAME_BYTES + 4];
        (void)snprintf(spaced, sizeof spaced, "--%s ", names[i]);
        (void)snprintf(equal, sizeof equal, "--%s=", names[i]);
        CHECK(strstr(line, spaced) != NULL || strstr(line, equal) != NULL, "--%s is not tested", names[i]);
    }
    assert_true(parse_line(&config, line, &err));
    assert_string_equal(config.directory, "m");
    assert_string_equal(config.version_prefixes, "a,b,c");
    assert_string_equal(config.cors_origins, "http://a,https://b:1,http://c");
    assert_string_equal(config.listen, "0.0.0.0:0");
    assert_true(config.max_connections == 10 && config.max_connections_per_address == 3 && config.max_waiters == 6);
    assert_true(config.max_header_bytes == 1024 && config.header_timeout_ns == second * 3 / 2);
    assert_true(config.max_body_bytes == 2048 && config.body_timeout_ns == second * 5 / 2);
    assert_true(config.idle_timeout_ns == 7 * second && config.send_timeout_ns == 8 * second);
    assert_true(config.min_rate == 0 && config.drain_delay_ns == second / 4 && config.drain_timeout_ns == 0);
    assert_true(config.rescan_interval_ns == 0 && config.settle_ns == second / 20 && !config.leases && !config.watch);
    assert_true(config.max_files == 9 && config.max_maps == 16 && config.max_memory == UINT64_C(5000000000) &&
                config.require_models == 3);
    assert_string_equal(config.access_log, "off");
    assert_string_equal(config.log_level, "debug");
    assert_string_equal(config.log_format, "json");
    assert_string_equal(config.s3_listen, "[::1]:81");
    assert_string_equal(config.rescan_from, "any");
    assert_string_equal(config.sendfile, "remote");
    assert_string_equal(config.upstream, "http://a,http://b");
    assert_string_equal(config.upstream_token_file, "f");
    assert_string_equal(config.upstream_ca, "u.pem");
    assert_true(config.cache_max_bytes == 77 && config.patch_max_bytes == 34603008);
    assert_string_equal(config.publish, "off");
    assert_true(config.publish_max_bytes == UINT64_C(2) << 40 && config.upload_expires_ns == 90 * second);
    assert_true(config.keep_commits_ns == 0);
    assert_true(config.keep_removed_ns == 0 && config.keep_removed_models == 7);
    assert_string_equal(config.state_dir, "s");
    assert_string_equal(config.files, "immutable");
    assert_string_equal(config.tokens, "t");
    assert_true(config.require_auth && config.metrics_open);
    assert_true(config.workers == 5 && config.print == TD_CONFIG_PRINT_SOURCES);
    assert_string_equal(config.tls_cert, "c.pem");
    assert_string_equal(config.tls_key, "k.pem");
    assert_string_equal(config.tls_client_ca, "a.pem");
    assert_string_equal(config.grpc_listen, ":83");
    assert_string_equal(config.plain_listen, "127.0.0.1:82");
    assert_true(config.require_tls);
    assert_string_equal(config.file, "");
    assert_true(config.decode_memory == 600000000 && config.hash_threads == 2 && config.index_threads == 3);
    assert_string_equal(config.sandbox, "required");
    assert_true(config.parse_timeout_ns == 7500000000 && config.parse_memory == 200000000);
    td_config_fini(&config);
}

static void flags_win_over_the_environment(void **state)
{
    (void)state;
    struct td_config config;
    struct td_error err;
    forget_environment();
    assert_int_equal(setenv("TENSORD_LISTEN", "127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("TENSORD_MAX_CONNECTIONS_PER_ADDRESS", "5", 1), 0);
    assert_int_equal(setenv("TENSORD_SETTLE", "0.5", 1), 0);
    assert_int_equal(setenv("TENSORD_MIN_RATE", "", 1), 0); /* an empty variable counts as unset */
    assert_true(parse_line(&config, "m --settle 3", &err));
    assert_string_equal(config.listen, "127.0.0.1:1");
    assert_true(config.max_connections_per_address == 5 && config.settle_ns == 3 * second && config.min_rate == 1024);
    assert_int_equal(setenv("TENSORD_MAX_CONNECTIONS_PER_ADDRESS", "none", 1), 0);
    assert_false(parse_line(&config, "m", &err));
    assert_non_null(strstr(err.message, "TENSORD_MAX_CONNECTIONS_PER_ADDRESS")); /* names the variable */
    forget_environment();
}

/* A switch that is off by default may stand alone. */
static void switches_stand_alone(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool on;
    } cases[] = {{"m", false},
                 {"m --require-auth", true},
                 {"--require-auth m", true},
                 {"--require-auth --settle 1 m", true},
                 {"m --require-auth on", true},
                 {"m --require-auth off", false},
                 {"m --require-auth=off", false},
                 {"m --require-auth --require-auth off", false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_config config;
        struct td_error err;
        forget_environment();
        CHECK(parse_line(&config, cases[i].line, &err), "%s: %s", cases[i].line, err.message);
        CHECK(config.require_auth == cases[i].on, "%s", cases[i].line);
        CHECK(strcmp(config.directory, "m") == 0, "%s: %s", cases[i].line, config.directory);
    }
}

static void the_last_of_two_counts(void **state)
{
    (void)state;
    struct td_config config;
    struct td_error err;
    forget_environment();
    assert_true(parse_line(&config, "--settle 1 m --settle=2 --settle 3", &err));
    assert_true(config.settle_ns == 3 * second);
}

static void directories_with_strange_names(void **state)
{
    (void)state;
    struct td_config config;
    struct td_error err;
    forget_environment();
    assert_true(parse_line(&config, "-- --models", &err));
    assert_string_equal(config.directory, "--models");
    assert_true(parse_line(&config, "--settle 1 -- -x", &err));
    assert_string_equal(config.directory, "-x");
    assert_true(parse_line(&config, "-", &err));
    assert_string_equal(config.directory, "-");
}

/* Every error message contains `names`, the wrong word or the expected value. */
static void mistakes_are_explained(void **state)
{
    (void)state;
    static const struct {
        const char *line, *names;
    } cases[] = {
        {"", "DIR"},
        {"--settle 1", "DIR"},
        {"a b", "\"b\""},
        {"-- a b", "\"b\""},
        {"a --no-such-thing", "--no-such-thing"},
        {"a --setle 1", "--setle"},
        {"a --settle=1 --x=2", "--x=2"},
        {"a -p", "\"-p\""},
        {"a --", NULL} /* valid */,
        {"a --settle", "--settle TIME"},
        {"a --listen", "ADDR:PORT"},
        {"a --settle x", "--settle"},
        {"a --require-auth no", "--require-auth takes on or off, not \"no\""},
        {"a --require-auth False", "\"False\""},
        {"--require-tls 1 a", "\"1\""},
        {"a --settle ''", "--settle"},
        {"a --settle=", "--settle"},
        {"a --settle -1", "-1"},
        {"a --settle 1w", "1w"},
        {"a --settle 1,5", "1,5"},
        {"a --settle 1e3", "1e3"},
        {"a --settle 0x1", "0x1"},
        {"a --settle .", "\".\""},
        {"a --settle 1.5.5", "1.5.5"},
        {"a --settle nan", "nan"},
        {"a --settle inf", "inf"},
        {"a --settle 3600.1", "from 0s to 1h"},
        {"a --settle 2h", "from 0s to 1h"},
        {"a --settle 99999999999999999999", "from 0s to 1h"},
        {"a --header-timeout 0", "from 100ms to"},
        {"a --header-timeout 99ms", "from 100ms to"},
        {"a --idle-timeout 0", "--idle-timeout"},
        {"a --send-timeout 0.5", "--send-timeout"},
        {"a --max-connections 0", "1 to"},
        {"a --max-connections 60001", "60000"},
        {"a --max-connections -1", "-1"},
        {"a --max-connections +1", "+1"},
        {"a --max-connections 1.0", "1.0"},
        {"a --max-connections 1k", "1k"},
        {"a --max-connections ''", "--max-connections"},
        {"a --max-connections 99999999999999999999999", "60000"},
        {"a --max-connections 18446744073709551617", "60000"},
        {"a --max-header-bytes 511", "512"},
        {"a --max-header-bytes 32769", "from 512 to 32K"},
        {"a --max-memory 4X", "from 1M to 1T, not \"4X\""},
        {"a --max-maps 1", "16"},
        {"a --workers auto", NULL},
        {"a --workers 0", NULL},
        {"a --workers 1025", "auto or a whole number from 0 to 1024"},
        {"a --workers Auto", "auto or a whole number from 0 to 1024"},
        {"a --max-files 0", "--max-files"},
        {"a --leases yes", "on or off"},
        {"a --leases ''", "on or off"},
        {"a --leases ON", "on or off"},
        {"a --files x", "--files takes mutable or immutable, not \"x\""},
        {"a --log-level Info", "--log-level takes error, warn, info or debug, not \"Info\""},
        {"a --rescan-from ''", "--rescan-from takes local, any or none, not \"\""},
        {"a --listen x", "--listen takes ADDRESS:PORT, such as 127.0.0.1:8080"},
        {"a --listen ''", "ADDRESS:PORT"},
        {"a --s3-listen :65536", "--s3-listen takes ADDRESS:PORT, such as 127.0.0.1:8081"},
        {"a --s3-listen ''", NULL},
        {"a --grpc-listen 8083", "--grpc-listen takes ADDRESS:PORT, such as 127.0.0.1:8083"},
        {"a --tls-cert c", "--tls-cert is given without --tls-key"},
        {"a --tls-key k", "--tls-key is given without --tls-cert"},
        {"a --tls-cert c --tls-key k", NULL},
        {"a --tls-client-ca c", "--tls-client-ca needs TLS"},
        {"a --upstream-ca c", "--upstream-ca has no effect without --upstream"},
        {"a --upstream-token-file t", "--upstream-token-file has no effect without --upstream"},
        {"a --cache-max-bytes 5", "--cache-max-bytes has no effect without --upstream"},
        {"a --cache-max-bytes 5M", "--cache-max-bytes has no effect without --upstream"},
        {"a --upstream http://a,b:81", "--upstream: the URL must begin with http:// or https://, but it is \"b:81\""},
        {"a --upstream http://h:1,", "--upstream: an empty URL follows the last comma"},
        {"a --upstream me:secret@b", "--upstream: the URL must begin with http:// or https://, but it is \"...@...\""},
        {"a --upstream https://a,http://b", NULL},
        {"a --publish on", "--publish takes off, local or any, not \"on\""},
        {"a --publish any", NULL},
        {"a --publish local --publish-max-bytes 1.5G", "--publish-max-bytes takes bytes, or a size"},
        {"a --publish local --upload-expires 0", "from 1s to 365d"},
        {"a --publish local --keep-commits 366d", "from 0s to 365d"},
        {"a --keep-removed 86401s", "from 0s to 1d"},
        {"a --keep-removed 5 --upstream http://a", "not possible together with --upstream"},
        {"a --publish local --upstream http://a", "--publish local is not possible together with --upstream"},
        {"a --publish any --upstream http://a", "--publish any is not possible together with --upstream"},
        {"a --publish off --upstream http://a", NULL},
        {"a --plain-listen :1", "--plain-listen is for a server with TLS"},
        {"a --tls-cert c --tls-key k --plain-listen x", "--plain-listen takes ADDRESS:PORT, such as 127.0.0.1:8082"},
        {"a --directory b", "unknown option \"--directory\""},
        {"a --config", "--config FILE"},
        {"a --print-config=", "=sources"},
        {"a --print-config=json", "=sources or nothing, not \"json\""},
        {"a --print-config b", "\"b\""},
        {"a --print-confg", "(did you mean --print-config?)"},
    };
    struct td_config config;
    struct td_error err;
    forget_environment();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bool ok = parse_line(&config, cases[i].line, &err);
        CHECK(ok == (cases[i].names == NULL), "\"%s\"", cases[i].line);
        CHECK(ok || strstr(err.message, cases[i].names) != NULL, "\"%s\": %s", cases[i].line, err.message);
    }
}

static void borders_of_numbers(void **state)
{
    (void)state;
    static const char *const good[] = {"--max-connections 1",
                                       "--max-connections 60000",
                                       "--max-connections 00060",
                                       "--max-header-bytes 512",
                                       "--max-header-bytes 32768",
                                       "--header-timeout 0.1",
                                       "--header-timeout 3600",
                                       "--idle-timeout 1",
                                       "--settle 0",
                                       "--settle 3600",
                                       "--settle 0.000000001",
                                       "--settle 1.",
                                       "--min-rate 1G",
                                       "--leases on"};
    struct td_config config;
    struct td_error err;
    char line[128];
    forget_environment();
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        (void)snprintf(line, sizeof line, "m %s", good[i]);
        CHECK(parse_line(&config, line, &err), "%s: %s", line, err.message);
    }
    assert_true(parse_line(&config, "m --settle 0.123456789", &err));
    assert_true(config.settle_ns == 123456789);
    assert_true(parse_line(&config, "m --drain-timeout 86400", &err));
    assert_true(config.drain_timeout_ns == 86400 * second);
}

/* Names and values as Kubernetes documents them for a Service with the name "tensord" or "tensord-s3" ("Discovering
 * services", environment variables), and Docker for links. */
static void variables_are_judged(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        enum td_variable judged;
        const char *near;
    } rows[] = {
        {"TENSORD_LISTEN=127.0.0.1:1", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_MAX_CONNECTIONS=1", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_MAX_CONNECTIONS_PER_ADDRESS=1", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_LISTENN=127.0.0.1:1", TD_VARIABLE_MISSPELLED, "TENSORD_LISTEN"},
        {"TENSORD_SETTLES=1", TD_VARIABLE_MISSPELLED, "TENSORD_SETTLE"},
        {"TENSORD_CONFIG=/c", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_DIRECTORY=/d", TD_VARIABLE_UNKNOWN, NULL}, /* a key of the file alone */
        {"TENSORD_STATEDIR=/s", TD_VARIABLE_MISSPELLED, "TENSORD_STATE_DIR"},
        {"TENSORD_STATE-DIR=/s", TD_VARIABLE_MISSPELLED, "TENSORD_STATE_DIR"},
        {"TENSORD_state_dir=/s", TD_VARIABLE_MISSPELLED, "TENSORD_STATE_DIR"},
        {"TENSORD_REQUIRE_MODEL=1", TD_VARIABLE_MISSPELLED, "TENSORD_REQUIRE_MODELS"},
        {"TENSORD_LISTENN=", TD_VARIABLE_KNOWN, NULL}, /* an empty variable counts as unset */
        {"TENSORD_LISTENN", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_TOKEN=td_x", TD_VARIABLE_KNOWN, NULL}, /* of the Python client */
        {"TENSORD_TOKE=x", TD_VARIABLE_MISSPELLED, "TENSORD_TOKENS"},
        {"TENSORD_=x", TD_VARIABLE_UNKNOWN, NULL},
        {"TENSORD_COLOUR=red", TD_VARIABLE_UNKNOWN, NULL},
        {"TENSORD_PORT=8080", TD_VARIABLE_UNKNOWN, NULL}, /* a port, not a link of Docker or Kubernetes */
        {"TENSORD_A_NAME_THAT_IS_LONGER_THAN_THE_ONE_OF_ANY_OPTION_THAT_THERE_IS=1", TD_VARIABLE_UNKNOWN, NULL},
        {"TENSOR_LISTENN=x", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD=x", TD_VARIABLE_KNOWN, NULL},
        {"=TENSORD_X=x", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_SERVICE_HOST=10.0.0.11", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_SERVICE_PORT=8080", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_SERVICE_PORT_HTTP=8080", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT=tcp://10.0.0.11:8080", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT_8080_TCP=tcp://10.0.0.11:8080", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT_8080_TCP_PROTO=tcp", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT_8080_TCP_PORT=8080", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT_8080_TCP_ADDR=10.0.0.11", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT_53_UDP_ADDR=10.0.0.11", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_S3_SERVICE_HOST=10.0.0.12", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_S3_SERVICE_PORT_S3=8081", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_S3_PORT=tcp://10.0.0.12:8081", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_S3_PORT_8081_TCP_ADDR=10.0.0.12", TD_VARIABLE_KNOWN, NULL},
        {"TENSORD_PORT__TCP=1", TD_VARIABLE_UNKNOWN, NULL},
        {"TENSORD_X=1_SERVICE_PORT_2", TD_VARIABLE_UNKNOWN, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char near[TD_VARIABLE_BYTES] = "";
        enum td_variable judged = td_config_judge_variable(rows[i].variable, near);
        CHECK(judged == rows[i].judged, "%s: %d", rows[i].variable, (int)judged);
        CHECK(rows[i].near == NULL || strcmp(near, rows[i].near) == 0, "%s: %s", rows[i].variable, near);
    }
}

/* --help has one line for each option. */
static void help_lists_all(void **state)
{
    (void)state;
    static const char *const options[] = {"--listen",
                                          "--max-connections",
                                          "--max-connections-per-address",
                                          "--max-header-bytes",
                                          "--header-timeout",
                                          "--idle-timeout",
                                          "--max-body-bytes",
                                          "--body-timeout",
                                          "--send-timeout",
                                          "--min-rate",
                                          "--drain-delay",
                                          "--drain-timeout",
                                          "--rescan-interval",
                                          "--settle",
                                          "--leases",
                                          "--max-files",
                                          "--max-maps",
                                          "--access-log",
                                          "--log-level",
                                          "--max-memory",
                                          "--state-dir",
                                          "--hash-threads",
                                          "--s3-listen",
                                          "--require-models",
                                          "--rescan-from",
                                          "--decode-memory",
                                          "--files",
                                          "--workers",
                                          "--index-threads",
                                          "--log-format",
                                          "--max-waiters",
                                          "--watch",
                                          "--tls-cert",
                                          "--tls-key",
                                          "--tls-client-ca",
                                          "--plain-listen",
                                          "--grpc-listen",
                                          "--require-tls",
                                          "--config",
                                          "--print-config[=sources]",
                                          "--tokens",
                                          "--require-auth",
                                          "--metrics-open",
                                          "--sandbox",
                                          "--parse-timeout",
                                          "--parse-memory",
                                          "--upstream",
                                          "--upstream-ca",
                                          "--upstream-token-file",
                                          "--cache-max-bytes",
                                          "--sendfile",
                                          "--publish-max-bytes",
                                          "--publish",
                                          "--upload-expires",
                                          "--keep-commits",
                                          "--version-prefix",
                                          "--keep-removed",
                                          "--keep-removed-models",
                                          "--cors-origin",
                                          "--patch-max-bytes"};
    char text[8192];
    FILE *out = fmemopen(text, sizeof text, "w");
    assert_non_null(out);
    td_config_help(out);
    assert_int_equal(fclose(out), 0);
    size_t lines = 0;
    for (const char *p = text; *p != '\0'; p++)
        lines += *p == '\n';
    assert_int_equal(lines, COUNT_OF(options) + 3); /* an empty one, and the units of times and sizes */
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        char wanted[64];
        (void)snprintf(wanted, sizeof wanted, "  %s ", options[i]);
        CHECK(strstr(text, wanted) != NULL, "%s", options[i]);
    }
    assert_non_null(strstr(text, "(127.0.0.1:8080)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_as_documented), cmocka_unit_test(every_option_is_read),
        cmocka_unit_test(switches_stand_alone),       cmocka_unit_test(flags_win_over_the_environment),
        cmocka_unit_test(the_last_of_two_counts),     cmocka_unit_test(directories_with_strange_names),
        cmocka_unit_test(mistakes_are_explained),     cmocka_unit_test(borders_of_numbers),
        cmocka_unit_test(variables_are_judged),       cmocka_unit_test(help_lists_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
