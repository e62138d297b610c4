/* The configuration file: its values, its place among the sources, its faults, and what may change while the server
 * runs. JSON is that of RFC 8259. */
#include "server/config/config_file.h"

#include "server/config/config.h"
#include "tests/kit/tree.h"
#include "tests/unit/alloc_trials.h"

static const uint64_t second = UINT64_C(1000000000);

struct place {
    struct tree tree;
    char path[TREE_PATH_BYTES];
};

/* Opens a place without variables of the caller's environment. */
static void open_place(struct place *place)
{
    const struct td_option *option;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++) {
        char name[TD_VARIABLE_BYTES];
        td_config_variable(option->name, name);
        assert_int_equal(unsetenv(name), 0);
    }
    tree_open(&place->tree);
    tree_at(&place->tree, "conf.json", place->path);
}

static void close_place(struct place *place)
{
    tree_close(&place->tree);
}

FIXTURE(place, struct place, open_place, close_place)

/* Parses `--config PATH` and up to two more arguments. */
static bool parse_files(struct place *place, struct td_config *config, const char *one, const char *two,
                        struct td_error *err)
{
    static char flag[] = "--config";
    char words[2][256];
    char *argv[4] = {flag, place->path};
    int argc = 2;
    const char *const more[] = {one, two};
    for (size_t i = 0; i < 2 && more[i] != NULL; i++) {
        (void)snprintf(words[i], sizeof words[i], "%s", more[i]);
        argv[argc++] = words[i];
    }
    td_error_init(err);
    bool ok = td_config_parse(config, argc, argv, err);
    assert_int_equal(ok, err->code == TD_OK);
    if (!ok)
        check_error(err, 0, false, "configuration");
    return ok;
}

static void write_file(const struct place *place, const char *text)
{
    tree_text(&place->tree, "conf.json", text);
}

static void values_are_read(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err;
    write_file(place, "{\"directory\": \"/mod\\u00e8les\", \"listen\": \":81\", \"s3-listen\": \"\", \"workers\": 3,\n"
                      " \"max-memory\": 5000000000, \"header-timeout\": 1.25, \"settle\": \"0.5\", \"leases\": false,\n"
                      " \"max-files\": \"7\", \"files\": \"immutable\", \"rescan-from\": \"none\", \"min-rate\": 0,\n"
                      " \"state-dir\": \"/s\", \"access-log\": \"off\", \"log-level\": \"warn\",\n"
                      " \"rescan-interval\": 0.000000001}\n");
    CHECK(parse_files(place, &config, NULL, NULL, &err), "%s", err.message);
    assert_string_equal(config.directory, "/mod\xc3\xa8les");
    assert_string_equal(config.listen, ":81");
    assert_string_equal(config.s3_listen, "");
    assert_string_equal(config.files, "immutable");
    assert_string_equal(config.rescan_from, "none");
    assert_string_equal(config.state_dir, "/s");
    assert_string_equal(config.access_log, "off");
    assert_string_equal(config.log_level, "warn");
    assert_string_equal(config.file, place->path);
    assert_true(config.workers == 3 && config.max_memory == UINT64_C(5000000000) && config.max_files == 7);
    assert_true(config.header_timeout_ns == second * 5 / 4 && config.settle_ns == second / 2 && !config.leases);
    assert_true(config.min_rate == 0 && config.rescan_interval_ns == 1 && config.max_maps == 16384);
    td_config_fini(&config);
    write_file(place, "{\"leases\": \"on\", \"workers\": \"auto\"}");
    CHECK(parse_files(place, &config, "m", NULL, &err), "%s", err.message);
    assert_true(config.leases && config.workers == TD_CONFIG_AUTO);
    td_config_fini(&config);
}

/* An option wins over a variable, that over the file, that over the default. */
static void precedence(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err;
    const struct td_option *settle = td_option_find(TD_TEXT("settle"));
    const struct td_option *directory = td_option_find(TD_TEXT("directory"));
    write_file(place, "{\"directory\": \"a\", \"settle\": 3}");
    assert_true(parse_files(place, &config, NULL, NULL, &err));
    assert_true(config.settle_ns == 3 * second && td_option_source(&config, settle) == TD_CONFIG_FILE);
    assert_string_equal(config.directory, "a");
    assert_true(config.max_files == 1000000);
    td_config_fini(&config);
    assert_int_equal(setenv("TENSORD_SETTLE", "4", 1), 0);
    assert_true(parse_files(place, &config, "b", NULL, &err));
    assert_true(config.settle_ns == 4 * second && td_option_source(&config, settle) == TD_CONFIG_ENVIRONMENT);
    assert_string_equal(config.directory, "b");
    assert_true(td_option_source(&config, directory) == TD_CONFIG_ARGUMENT);
    td_config_fini(&config);
    assert_true(parse_files(place, &config, "--settle=5", NULL, &err));
    assert_true(config.settle_ns == 5 * second && td_option_source(&config, settle) == TD_CONFIG_ARGUMENT);
    td_config_fini(&config);
    assert_false(parse_files(place, &config, "b", "c", &err)); /* two directories on the command line */
    check_says(&err, "only one directory", "two");
    assert_int_equal(unsetenv("TENSORD_SETTLE"), 0);
}

static void the_environment_names_the_file(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err = TD_ERROR_INIT;
    char none[] = "--config=";
    char directory[] = "m";
    char *argv[] = {directory, none};
    write_file(place, "{\"directory\": \"a\", \"settle\": 3}");
    assert_int_equal(setenv("TENSORD_CONFIG", place->path, 1), 0);
    assert_true(td_config_parse(&config, 0, NULL, &err));
    assert_true(config.settle_ns == 3 * second);
    td_config_fini(&config);
    assert_true(td_config_parse(&config, 2, argv, &err)); /* an empty option takes precedence: no file */
    assert_true(config.settle_ns == 2 * second);
    td_config_fini(&config);
    assert_int_equal(unsetenv("TENSORD_CONFIG"), 0);
}

/* Every message names the place, and the key, or what is right. */
/* shows: security.md host-bad-config */
static void faults_have_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *place, *says;
    } cases[] = {
        {"", "line 1, column 1", "a value expected"},
        {"[]", "line 1, column 1", "an object of settings expected"},
        {"{\"settle\": 1", "line 1, column 13", "ends too early"},
        {"{\"settle\": 1,}", "line 1, column 14", "a key"},
        {"{\n \"settle\": 1\n}\n x", "line 4, column 2", "the end"},
        {"{\"settle\" 1}", "line 1, column 11", "not JSON"},
        {"{\"settle\": 01}", "line 1, column ", "not JSON"},
        {"// no\n{}", "line 1, column 1", "not JSON"},
        {"{\"state-dir\": \"\xff\"}", "line 1, column 16", "UTF-8"},
        {"{\"state-dir\": \"\xc3\xa8\", \"setle\": 1}", "line 1, column 20", "\"setle\" (did you mean \"settle\"?)"},
        {"{\"max_files\": 1}", "line 1, column 2", "(did you mean \"max-files\"?)"},
        {"{\"--settle\": 1}", "line 1, column 2", "(did you mean \"settle\"?)"},
        {"{\"dir\": \"m\"}", "line 1, column 2", "(did you mean \"directory\"?)"},
        {"{\"colour\": 1}", "line 1, column 2", "unknown key \"colour\"; the keys are"},
        {"{\"config\": \"c\"}", "line 1, column 2", "unknown key \"config\""},
        {"{\"print-config\": true}", "line 1, column 2", "unknown key \"print-config\""},
        {"{\"\": 1}", "line 1, column 2", "unknown key \"\""},
        {"{\"settle\": 1,\n\"leases\": true,\n\"se\\u0074tle\": 2}", "line 3, column 1", "first in line 1, column 2"},
        {"{\"settle\": true}", "line 1, column 12", "2m, from 0s to 1h, not true"},
        {"{\"settle\": \"1w\"}", "line 1, column 12", "\"settle\" takes seconds, or a time such as 500ms, 5s"},
        {"{\"max-memory\": \"1W\"}", "line 1, column 16", "\"max-memory\" takes bytes, or a size such as 512K"},
        {"{\"settle\": 3601}", "line 1, column 12", "from 0s to 1h, not \"3601\""},
        {"{\"settle\": -1}", "line 1, column 12", "\"settle\" takes seconds"},
        {"{\"settle\": null}", "line 1, column 12", "not null"},
        {"{\"settle\": [1]}", "line 1, column 12", "not an array"},
        {"{\"settle\": {}}", "line 1, column 12", "not an object"},
        {"{\"settle\": 0.0000000000000000000000000000000000000001}", "line 1, column 12", "takes seconds"},
        {"{\"max-files\": 0}", "line 1, column 15", "\"max-files\" takes a whole number from 1 to 100000000"},
        {"{\"max-files\": 1e3}", "line 1, column 15", "not \"1e3\""},
        {"{\"max-files\": 10.0}", "line 1, column 15", "a whole number"},
        {"{\"workers\": \"many\"}", "line 1, column 13", "auto or a whole number from 0 to 1024"},
        {"{\"leases\": \"yes\"}", "line 1, column 12", "\"leases\" takes true or false, not \"yes\""},
        {"{\"leases\": 1}", "line 1, column 12", "\"leases\" takes true or false, not 1"},
        {"{\"listen\": 8080}", "line 1, column 12", "as a string, not 8080"},
        {"{\"listen\": \"8080\"}", "line 1, column 12", "\"listen\" takes ADDRESS:PORT"},
        {"{\"log-level\": \"all\"}", "line 1, column 15", "error, warn, info or debug"},
        {"{\"directory\": 1}", "line 1, column 15", "\"directory\" takes a string, not 1"},
        {"{\"access-log\": false}", "line 1, column 16", "\"access-log\" takes a string (FILE|-|off), not false"},
        {"{\"directory\": \"a\\u0000b\"}", "line 1, column 15", "NUL"},
    };
    struct place place;
    struct td_config config;
    struct td_error err;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        write_file(&place, cases[i].text);
        CHECK(!parse_files(&place, &config, "m", NULL, &err), "%s", cases[i].text);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        check_says(&err, "conf.json\", line ", cases[i].text);
        check_says(&err, cases[i].place, cases[i].text);
        check_says(&err, cases[i].says, cases[i].text);
    }
    tree_close(&place.tree);
}

/* shows: security.md host-config-file */
static void only_bounded_regular_files(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err;
    char *text = malloc(TD_CONFIG_FILE_BYTES + 1);
    assert_non_null(text);
    memset(text, ' ', TD_CONFIG_FILE_BYTES + 1);
    memcpy(text, "{}", 2);
    assert_false(parse_files(place, &config, "m", NULL, &err));
    assert_int_equal(err.code, TD_IO);
    check_says(&err, "conf.json", "missing");
    tree_write(&place->tree, "conf.json", text, TD_CONFIG_FILE_BYTES);
    CHECK(parse_files(place, &config, "m", NULL, &err), "%s", err.message);
    td_config_fini(&config);
    tree_write(&place->tree, "conf.json", text, TD_CONFIG_FILE_BYTES + 1);
    assert_false(parse_files(place, &config, "m", NULL, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    check_says(&err, "1048576", "too long");
    tree_rename(&place->tree, "conf.json", "..data");
    tree_text(&place->tree, "..data", "{\"settle\": 9}");
    tree_symlink(&place->tree, "conf.json", "..data"); /* as Kubernetes mounts a ConfigMap */
    CHECK(parse_files(place, &config, "m", NULL, &err), "%s", err.message);
    assert_true(config.settle_ns == 9 * second);
    td_config_fini(&config);
    tree_remove(&place->tree, "conf.json");
    tree_fifo(&place->tree, "conf.json"); /* without a writer: opening it would wait */
    assert_false(parse_files(place, &config, "m", NULL, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    tree_remove(&place->tree, "conf.json");
    tree_directory(&place->tree, "conf.json");
    assert_false(parse_files(place, &config, "m", NULL, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    free(text);
}

static const char whole[] = "{\"directory\": \"a\\u00e8\", \"settle\": 3.5, \"leases\": false, \"workers\": \"auto\"}";

static void every_prefix_is_refused(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        tree_write(&place->tree, "conf.json", whole, len);
        CHECK(!parse_files(place, &config, "m", NULL, &err), "%zu bytes", len);
    }
}

static void every_allocation_may_fail(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_error err;
    struct alloc_trials trials = {0};
    write_file(place, whole);
    while (alloc_try(&trials)) {
        bool ok = parse_files(place, &config, NULL, NULL, &err);
        alloc_tried(&trials, ok, &err);
        if (ok)
            td_config_fini(&config);
    }
    assert_true(trials.k > 1);
}

/* --print-config writes each option as a value that the file may hold, and that means the same. */
static void written_values_are_read_again(void **state)
{
    static const char *const texts[] = {
        "{\"directory\": \"a \\\" \\\\ \\u0001 \\ud83d\\ude00\", \"settle\": 0.000000001, \"idle-timeout\": 1.5}",
        "{\"directory\": \"m\", \"settle\": 3600, \"max-memory\": 999999999999, \"workers\": 7, \"leases\": false}"};
    struct place *place = *state;
    struct td_config config;
    struct td_config again;
    struct td_error err;
    const struct td_option *option;
    struct td_buffer json;
    td_buffer_init(&json);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        write_file(place, texts[i]);
        assert_true(parse_files(place, &config, NULL, NULL, &err));
        td_buffer_clear(&json);
        for (size_t j = 0; (option = td_option_at(j)) != NULL; j++) {
            if (option->place == TD_OPTION_NOT_IN_FILE)
                continue;
            td_buffer_printf(&json, "%c\"%s\":", json.len == 0 ? '{' : ',', option->name);
            assert_true(td_option_write_json(&config, option, &json));
        }
        td_buffer_putc(&json, '}');
        tree_write(&place->tree, "conf.json", json.data, json.len);
        CHECK(parse_files(place, &again, NULL, NULL, &err), "%s", err.message);
        for (size_t j = 0; (option = td_option_at(j)) != NULL; j++)
            CHECK(td_option_is_same(&config, &again, option), "%s", option->name);
        td_config_fini(&again);
        td_config_fini(&config);
    }
    td_buffer_fini(&json);
}

static void what_may_change_is_taken_over(void **state)
{
    struct place *place = *state;
    struct td_config config;
    struct td_config fresh;
    struct td_error err;
    struct td_buffer changed;
    struct td_buffer kept;
    td_buffer_init(&changed);
    td_buffer_init(&kept);
    write_file(place, "{\"directory\": \"m\", \"log-level\": \"info\", \"state-dir\": \"s\"}");
    assert_true(parse_files(place, &config, "--min-rate=5", NULL, &err));
    write_file(place,
               "{\"directory\": \"n\", \"log-level\": \"debug\", \"settle\": 9, \"workers\": 2, \"min-rate\": 8}");
    assert_true(parse_files(place, &fresh, "--min-rate=5", NULL, &err));
    assert_true(td_config_update(&config, &fresh, &changed, &kept));
    assert_string_equal(td_buffer_terminate(&changed), "settle, log-level");
    assert_string_equal(td_buffer_terminate(&kept), "directory, workers, state-dir");
    td_buffer_clear(&changed);
    td_buffer_clear(&kept);
    assert_false(td_config_update(&config, &fresh, &changed, &kept)); /* the rest still differs */
    assert_int_equal(changed.len, 0);
    assert_string_equal(td_buffer_terminate(&kept), "directory, workers, state-dir");
    td_config_fini(&fresh);
    assert_string_equal(config.directory, "m");
    assert_string_equal(config.state_dir, "s");
    assert_string_equal(config.log_level, "debug"); /* not of the configuration that was freed */
    assert_true(config.settle_ns == 9 * second && config.workers == TD_CONFIG_AUTO && config.min_rate == 5);
    td_buffer_fini(&changed);
    td_buffer_fini(&kept);
    td_config_fini(&config);
}

/* Parts of the server borrow texts from the configuration that they started with. */
static void texts_never_change(void **state)
{
    (void)state;
    const struct td_option *option;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++)
        CHECK(!option->is_live || (option->kind != TD_OPTION_TEXT && option->kind != TD_OPTION_LIST &&
                                   option->kind != TD_OPTION_ADDRESS),
              "%s", option->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(place, values_are_read),
        TEST_IN(place, precedence),
        TEST_IN(place, the_environment_names_the_file),
        cmocka_unit_test(faults_have_a_place),
        TEST_IN(place, only_bounded_regular_files),
        TEST_IN(place, every_prefix_is_refused),
        TEST_IN(place, every_allocation_may_fail),
        TEST_IN(place, written_values_are_read_again),
        TEST_IN(place, what_may_change_is_taken_over),
        cmocka_unit_test(texts_never_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
