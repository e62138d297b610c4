/* Files that are parsed in processes of their own, by this very program: main() becomes the parser's process. Some
 * files have taken their parsers over (tests/kit/hostile_parsers.c). What only a build without a sanitizer can show is
 * in tests/http/test_sandbox.py. */
#include "catalog/sandbox/parse_pool.h"

#include "catalog/sandbox/parse_worker.h"
#include "core/buffer.h"
#include "core/clock.h"
#include "core/log.h"
#include "parser/rows/row_formats.h"
#include "parser/rows/row_index_file.h"
#include "storage/file_source.h"
#include "tests/unit/catalog/content_check.h"
#include "tests/unit/tree_fixture.h"

#include <pthread.h>

static struct td_parse_pool *pool;

static void open_pool(uint64_t timeout_ns, size_t max_workers)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_parse_pool_config config = td_parse_pool_config_default();
    config.timeout_ns = timeout_ns;
    config.max_workers = max_workers;
    CHECK(td_parse_pool_create(&config, &pool, &err), "%s", err.message);
}

static uint64_t ends(enum td_parse_end end)
{
    struct td_parse_pool_status status;
    td_parse_pool_get_status(pool, &status);
    return status.ends[end];
}

/* ---- the same as in this process ------------------------------------------------------------------------ */

static void parse_both_ways(const char *path, const char *name)
{
    const struct td_limits limits = td_limits_default();
    struct td_error here = TD_ERROR_INIT;
    struct td_error there = TD_ERROR_INIT;
    int fd;
    struct td_file *file = open_fixture(path, name, &limits, &fd);
    struct td_input input = td_input_descriptor(&fd, file->source.id.size_bytes);
    struct td_file *other = td_file_create(path, name, &file->source.id, NULL, &limits);
    bool ok = td_file_parse(file, name, &input, &limits, &here);
    CHECK(td_parse_pool_file(pool, fd, other, name, &limits, NULL, &there) == ok, "%s: %s", path, there.message);
    check_same_error(&here, &there, path);
    check_same_content(file, other, ok, path);
    (void)close(fd);
    td_file_unref(file);
    td_file_unref(other);
}

/* shows: security.md content-sandbox-is-transparent */
static void every_fixture_is_parsed_the_same(void **state)
{
    struct td_parse_pool_status status;
    (void)state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    assert_true(each_fixture(parse_both_ways) > 500);
    td_parse_pool_get_status(pool, &status);
    assert_true(status.file_count > 250);
    for (int end = 0; end < TD_PARSE_ENDS; end++)
        CHECK(status.ends[end] == 0, "%s", td_parse_end_name((enum td_parse_end)end));
    td_parse_pool_destroy(pool);
}

static size_t rows_count;

/* Opens the file beside a data file that has the same name with another extension. Returns -1 when it does not
 * exist. */
static int open_table(const char *path, const char *extension, uint64_t *size_bytes)
{
    char table[512];
    struct stat st;
    const char *dot = strrchr(path, '.');
    *size_bytes = 0;
    if (extension == NULL || dot == NULL)
        return -1;
    (void)snprintf(table, sizeof table, "%.*s%s", (int)(dot - path), path, extension);
    int fd = open(table, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0)
        *size_bytes = (uint64_t)st.st_size;
    return fd;
}

/* Makes the index of a file in one format in both ways. */
static void index_both_ways(const char *path, const char *name, const struct td_row_format *format)
{
    const struct td_limits limits = td_limits_default();
    struct td_error here = TD_ERROR_INIT;
    struct td_error there = TD_ERROR_INIT;
    struct td_row_index a, b;
    struct td_row_files files = {0};
    struct td_buffer bytes_a, bytes_b;
    int fd;
    struct td_file *file = open_fixture(path, name, &limits, &fd);
    int table = open_table(path, format->table_extension, &files.table.size_bytes);
    files.data = td_input_descriptor(&fd, file->source.id.size_bytes);
    if (table >= 0)
        files.table = td_input_descriptor(&table, files.table.size_bytes);
    const struct td_row_build build = {.files = &files, .name = name, .limits = &limits};
    bool ok = td_row_index_build(format, &build, &a, &here);
    CHECK(td_parse_pool_rows(pool, fd, table, format, &build, &b, &there) == ok, "%s as %s: %s", path, format->name,
          there.message);
    check_same_error(&here, &there, path);
    if (ok) {
        td_buffer_init(&bytes_a);
        td_buffer_init(&bytes_b);
        td_row_index_write(&a, &bytes_a);
        td_row_index_write(&b, &bytes_b);
        CHECK(bytes_a.len == bytes_b.len && memcmp(bytes_a.data, bytes_b.data, bytes_a.len) == 0, "%s as %s", path,
              format->name);
        td_buffer_fini(&bytes_a);
        td_buffer_fini(&bytes_b);
        td_row_index_fini(&a);
        td_row_index_fini(&b);
        rows_count++;
    }
    if (table >= 0)
        (void)close(table);
    (void)close(fd);
    td_file_unref(file);
}

/* A file is tried as every format, so that most are wrong. */
static void index_as_every_format(const char *path, const char *name)
{
    if (strstr(path, "/rows") == NULL)
        return;
    for (size_t i = 0; td_row_format_at(i) != NULL; i++)
        index_both_ways(path, name, td_row_format_at(i));
}

/* shows: security.md content-sandbox-is-transparent */
static void every_index_of_rows_is_the_same(void **state)
{
    (void)state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    (void)each_fixture(index_as_every_format);
    assert_true(rows_count > 60);
    td_parse_pool_destroy(pool);
}

/* A long file makes progress, which is reported while the index is built. */
static void progress_is_reported(void **state)
{
    enum { BYTES = 5 << 20 };
    const struct td_limits limits = td_limits_default();
    const struct td_row_format *format = td_row_format_named(TD_TEXT("jsonl"));
    _Atomic uint64_t done_bytes = 0;
    struct td_error err = TD_ERROR_INIT;
    struct td_row_index index;
    struct tree tree;
    char path[TREE_PATH_BYTES];
    int fd;
    (void)state;
    assert_non_null(format);
    char *text = malloc(BYTES);
    memset(text, '\n', BYTES);
    for (size_t i = 0; i + 3 < BYTES; i += 3)
        memcpy(text + i, "{}", 2);
    tree_open(&tree);
    tree_write(&tree, "x.jsonl", text, BYTES);
    tree_at(&tree, "x.jsonl", path);
    struct td_file *file = open_fixture(path, "x.jsonl", &limits, &fd);
    struct td_row_files files = {.data = td_input_descriptor(&fd, BYTES)};
    const struct td_row_build build = {
        .files = &files, .name = "x.jsonl", .limits = &limits, .done_bytes = &done_bytes};
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    CHECK(td_parse_pool_rows(pool, fd, -1, format, &build, &index, &err), "%s", err.message);
    assert_int_equal(index.row_count, BYTES / 3);
    assert_true(atomic_load(&done_bytes) >= 3 << 20 && atomic_load(&done_bytes) <= BYTES);
    td_row_index_fini(&index);
    td_parse_pool_destroy(pool);
    (void)close(fd);
    td_file_unref(file);
    tree_close(&tree);
    free(text);
}

/* ---- parsers that were taken over ------------------------------------------------------------------------ */

static const struct tree_tensor tensor = {.name = "w", .dtype = "F32", .shape = "[2,2]", .nbytes = 16};

/* Parses a new file of this name. Returns whether that succeeds. */
static bool parse_new(const struct tree *tree, const char *name, const _Atomic bool *stop, struct td_error *err)
{
    const struct td_limits limits = td_limits_default();
    char path[TREE_PATH_BYTES];
    int fd;
    (void)tree_tensors(tree, name, &tensor, 1, NULL, 0);
    tree_at(tree, name, path);
    struct td_file *file = open_fixture(path, name, &limits, &fd);
    bool ok = td_parse_pool_file(pool, fd, file, name, &limits, stop, err);
    assert_true(!ok || file->manifest.tensor_count == 1);
    (void)close(fd);
    td_file_unref(file);
    return ok;
}

static const struct {
    const char *name;
    enum td_parse_end end;
    const char *message;
} taken[] = {
    {"abort-.safetensors", TD_PARSE_CRASHED, "the parser crashed (signal 6, Aborted)"},
    {"leave-.safetensors", TD_PARSE_CRASHED, "the parser ended by itself (exit code 7)"},
    {"lie-.safetensors", TD_PARSE_WRONG, "the parser's process gave an answer that cannot be right"},
    {"spin-.safetensors", TD_PARSE_SLOW, "the parser needed more than 0.3 s and was stopped (--parse-timeout)"},
};

/* As parse_new(), but tries again while the machine is too busy to give the parser a tenth of the time. */
static bool parse_given_time(const struct tree *tree, const char *name, struct td_error *err)
{
    for (int tries = 0;; tries++) {
        *err = (struct td_error)TD_ERROR_INIT;
        bool ok = parse_new(tree, name, NULL, err);
        if (ok || err->code != TD_UNAVAILABLE || tries == 200)
            return ok;
    }
}

/* shows: security.md content-parser-attacks */
static void a_parser_that_was_taken_over_costs_its_file(void **state)
{
    struct tree *tree = *state;
    struct td_error err;
    open_pool(300000000, 1);
    for (size_t i = 0; i < COUNT_OF(taken); i++) {
        uint64_t before = ends(taken[i].end);
        assert_false(parse_given_time(tree, taken[i].name, &err));
        assert_string_equal(err.message, taken[i].message);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT); /* so that the file is not tried again */
        uint64_t count = ends(taken[i].end) - before;
        assert_true(count == 1 || (count > 1 && taken[i].end == TD_PARSE_SLOW));
        CHECK(parse_given_time(tree, "good.safetensors", &err), "%s", err.message);
    }
    td_parse_pool_destroy(pool);
}

/* A limit of the parser is not the process's memory: the file is refused with the parser's own words. */
static void a_limit_of_the_parser_is_told_as_it_is(void **state)
{
    const struct td_limits limits = td_limits_default();
    static const uint8_t length[8] = {0, 0, 0, 16}; /* 2^28 bytes of header */
    struct td_error err = TD_ERROR_INIT;
    struct tree *tree = *state;
    char path[TREE_PATH_BYTES];
    int fd;
    tree_write(tree, "long.safetensors", length, sizeof length);
    tree_truncate(tree, "long.safetensors", UINT64_C(1) << 30);
    tree_at(tree, "long.safetensors", path);
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    struct td_file *file = open_fixture(path, "long.safetensors", &limits, &fd);
    assert_false(td_parse_pool_file(pool, fd, file, "long.safetensors", &limits, NULL, &err));
    assert_string_equal(err.message, "header length 268435456 is larger than the limit of 100000000 bytes");
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    assert_int_equal(err.pos, 0);
    assert_int_equal(ends(TD_PARSE_MEMORY), 0);
    td_parse_pool_destroy(pool);
    (void)close(fd);
    td_file_unref(file);
}

/* In a queue, the file that took over its parser is distinguished from the files before and after it. */
/* shows: security.md content-parser-attacks */
static void a_queue_continues_after_it(void **state)
{
    static const char *const names[] = {"a.safetensors", "b.safetensors",      "abort-.safetensors",
                                        "c.safetensors", "leave-.safetensors", "lie-.safetensors",
                                        "d.safetensors", "e.safetensors"};
    const struct td_limits limits = td_limits_default();
    struct td_file *files[COUNT_OF(names)];
    int fds[COUNT_OF(names)];
    char path[TREE_PATH_BYTES];
    struct tree *tree = *state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    struct td_parse_queue *queue = td_parse_queue_create(pool);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        (void)tree_tensors(tree, names[i], &tensor, 1, NULL, 0);
        tree_at(tree, names[i], path);
        files[i] = open_fixture(path, names[i], &limits, &fds[i]);
        assert_true(td_parse_queue_put(queue, fds[i], files[i]->source.id.size_bytes, names[i], &limits));
    }
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct td_error err = TD_ERROR_INIT;
        bool is_good = strlen(names[i]) == strlen("a.safetensors");
        CHECK(td_parse_queue_take(queue, files[i], &limits, NULL, &err) == is_good, "%s: %s", names[i], err.message);
        (void)close(fds[i]);
        td_file_unref(files[i]);
    }
    td_parse_queue_destroy(queue);
    assert_int_equal(ends(TD_PARSE_CRASHED), 2);
    assert_int_equal(ends(TD_PARSE_WRONG), 1);
    td_parse_pool_destroy(pool);
}

static void stopping_ends_it_soon(void **state)
{
    _Atomic bool stop = true;
    struct td_error err = TD_ERROR_INIT;
    struct tree *tree = *state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    uint64_t begin_ns = td_clock_ns();
    assert_false(parse_new(tree, "spin-.safetensors", &stop, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    assert_true(td_clock_ns() - begin_ns < UINT64_C(10000000000));
    assert_int_equal(ends(TD_PARSE_STOPPED), 1);
    td_parse_pool_destroy(pool);
}

/* ---- cards ----------------------------------------------------------------------------------------------- */

/* Notes each event in a line. */
static bool note_event(void *context, const struct td_card_event *event, struct td_error *err)
{
    struct td_buffer *notes = context;
    td_buffer_printf(notes, "%d %d %u %.*s|%.*s\n", (int)event->kind, (int)event->node, event->number,
                     TD_SHOW(event->text, 100), TD_SHOW(event->title, 100));
    return !notes->failed || td_error_no_memory(err);
}

/* Reads a card in a process, and checks that its events are those that this process reads. */
static void read_card_both_ways(const char *card, size_t len, bool wanted_cut)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer here, there;
    bool is_cut_here, is_cut_there;
    td_buffer_init(&here);
    td_buffer_init(&there);
    const struct td_card_sink of_here = {.take = note_event, .context = &here};
    const struct td_card_sink of_there = {.take = note_event, .context = &there};
    CHECK(td_parse_pool_card(NULL, td_text_n(card, len), &of_here, &is_cut_here, &err), "%s", err.message);
    CHECK(td_parse_pool_card(pool, td_text_n(card, len), &of_there, &is_cut_there, &err), "%s", err.message);
    CHECK(here.len == there.len && (here.len == 0 || memcmp(here.data, there.data, here.len) == 0), "%.200s: %.*s",
          card, (int)there.len, there.data);
    assert_true(is_cut_here == wanted_cut && is_cut_there == wanted_cut);
    td_buffer_fini(&here);
    td_buffer_fini(&there);
}

/* shows: security.md content-sandbox-is-transparent */
static void cards_are_read_the_same(void **state)
{
    static const char *const cards[] = {"", "# a *b*\n", "---\nlicense: mit\n---\n- [x] a [b](c \"d\")\n\n![e](f)\n",
                                        "\xFF# a\n", "|a|b|\n|---|:-:|\n|c|d|\n"};
    struct td_buffer card;
    (void)state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    for (size_t i = 0; i < COUNT_OF(cards); i++)
        read_card_both_ways(cards[i], strlen(cards[i]), false);
    read_card_both_ways("a\0b", 3, false);
    td_buffer_init(&card);
    while (card.len < TD_CARD_TEXT_BYTES)
        td_buffer_puts(&card, "0123456789abcde\n");
    read_card_both_ways(card.data, TD_CARD_TEXT_BYTES, false);
    td_buffer_putc(&card, 'x');
    read_card_both_ways(card.data, card.len, true);
    td_buffer_fini(&card);
    td_parse_pool_destroy(pool);
}

/* Reads a card; tries again while the machine is too busy to give the parser a tenth of the time. */
static bool read_given_time(const char *card, struct td_error *err)
{
    for (int tries = 0;; tries++) {
        struct td_buffer notes;
        bool is_cut;
        td_buffer_init(&notes);
        *err = (struct td_error)TD_ERROR_INIT;
        const struct td_card_sink sink = {.take = note_event, .context = &notes};
        bool ok = td_parse_pool_card(pool, td_text_of(card), &sink, &is_cut, err);
        td_buffer_fini(&notes);
        if (ok || err->code != TD_UNAVAILABLE || tries == 200)
            return ok;
    }
}

/* shows: security.md content-card */
static void a_card_that_took_over_its_parser_costs_itself(void **state)
{
    static const struct {
        const char *card;
        enum td_parse_end end;
        const char *message;
    } cases[] = {{"abort-", TD_PARSE_CRASHED, "the parser crashed (signal 6, Aborted)"},
                 {"leave-", TD_PARSE_CRASHED, "the parser ended by itself (exit code 7)"},
                 {"spin-", TD_PARSE_SLOW, "the parser needed more than 0.3 s and was stopped"}};
    struct td_error err;
    (void)state;
    open_pool(300000000, 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t before = ends(cases[i].end);
        assert_false(read_given_time(cases[i].card, &err));
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_true(ends(cases[i].end) > before);
        CHECK(read_given_time("# good\n", &err), "%s", err.message);
    }
    td_parse_pool_destroy(pool);
}

/* The sink refuses what cannot be: the process that sent it is replaced. */
static bool refuse_event(void *context, const struct td_card_event *event, struct td_error *err)
{
    (void)context;
    (void)event;
    return td_error_set(err, TD_INTERNAL, "no such event can be");
}

/* shows: security.md content-parser-lies */
static void a_wrong_card_replaces_the_process(void **state)
{
    const struct td_card_sink sink = {.take = refuse_event};
    struct td_error err = TD_ERROR_INIT;
    bool is_cut;
    (void)state;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    assert_false(td_parse_pool_card(pool, TD_TEXT("# a\n"), &sink, &is_cut, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    assert_string_equal(err.message, "no such event can be");
    assert_int_equal(ends(TD_PARSE_WRONG), 1);
    CHECK(read_given_time("# good\n", &err), "%s", err.message);
    td_parse_pool_destroy(pool);
}

/* ---- processes ------------------------------------------------------------------------------------------- */

static void a_process_is_replaced_when_it_is_used_up(void **state)
{
    struct tree *tree = *state;
    struct td_parse_pool_status status;
    open_pool(TD_PARSE_TIMEOUT_NS, 1);
    for (int i = 0; i <= TD_PARSE_FILES_PER_WORKER; i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(parse_new(tree, "x.safetensors", NULL, &err), "%s", err.message);
    }
    td_parse_pool_get_status(pool, &status);
    assert_int_equal(status.ends[TD_PARSE_USED_UP], 1);
    assert_int_equal(status.file_count, TD_PARSE_FILES_PER_WORKER + 1);
    assert_int_equal(status.worker_count, 1);
    td_parse_pool_destroy(pool);
}

static void a_program_that_is_not_ours_is_an_error(void **state)
{
    static const struct {
        const char *program, *message;
    } cases[] = {{"/nonexistent", "cannot start the parser's process: No such file or directory"},
                 {"/bin/true", "the parser's process ended when it started"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_parse_pool_config config = td_parse_pool_config_default();
        struct td_error err = TD_ERROR_INIT;
        config.program = cases[i].program;
        assert_false(td_parse_pool_create(&config, &pool, &err));
        assert_int_equal(err.code, TD_UNAVAILABLE);
        assert_string_equal(err.message, cases[i].message);
    }
}

/* Parses files in a thread of its own. */
static void *parse_many(void *context)
{
    for (int i = 0; i < 50; i++) {
        struct td_error err = TD_ERROR_INIT;
        bool is_good = i % 10 != 9;
        char name[64];
        (void)snprintf(name, sizeof name, "%s%p-%d.safetensors", is_good ? "x" : "leave-", context, i);
        CHECK(parse_new(context, name, NULL, &err) == is_good, "%s: %s", name, err.message);
    }
    return NULL;
}

static void several_threads_share_the_processes(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct tree trees[THREADS];
    struct td_parse_pool_status status;
    (void)state;
    open_pool(TD_PARSE_TIMEOUT_NS, 2);
    for (int i = 0; i < THREADS; i++) {
        tree_open(&trees[i]);
        assert_int_equal(pthread_create(&threads[i], NULL, parse_many, &trees[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        tree_close(&trees[i]);
    }
    td_parse_pool_get_status(pool, &status);
    assert_int_equal(status.ends[TD_PARSE_CRASHED], 5 * THREADS);
    assert_true(status.worker_count <= 3);
    td_parse_pool_destroy(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_is_parsed_the_same),
        cmocka_unit_test(every_index_of_rows_is_the_same),
        cmocka_unit_test(progress_is_reported),
        TEST_IN(tree, a_parser_that_was_taken_over_costs_its_file),
        TEST_IN(tree, a_limit_of_the_parser_is_told_as_it_is),
        TEST_IN(tree, a_queue_continues_after_it),
        TEST_IN(tree, stopping_ends_it_soon),
        cmocka_unit_test(cards_are_read_the_same),
        cmocka_unit_test(a_card_that_took_over_its_parser_costs_itself),
        cmocka_unit_test(a_wrong_card_replaces_the_process),
        TEST_IN(tree, a_process_is_replaced_when_it_is_used_up),
        cmocka_unit_test(a_program_that_is_not_ours_is_an_error),
        cmocka_unit_test(several_threads_share_the_processes),
    };
    if (argc > 1 && strcmp(argv[1], TD_PARSE_WORKER) == 0)
        return td_parse_worker_run(argc - 2, argv + 2);
    td_log_set_level(TD_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
