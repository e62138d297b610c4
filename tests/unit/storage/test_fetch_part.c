/* The unfinished file, with random connections that receive, end and take over. Bytes that the events report are in the
 * file, and each byte is reported once; a file that is closed at any moment is resumed; the digests are right. */
#include "storage/fetch/fetch_part.h"

#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <unistd.h>

enum { SIZE = 9 * 1024 * 1024 + 77, CONNECTIONS = 3, MS = 1000 * 1000 };

struct world {
    struct tree tree;
    struct td_root *root;
    uint8_t *content, *is_told, *back;
    struct td_fetch_expected expected;
    struct td_fetch_events events;
    struct td_fetch_part part;
    int fd;
    uint64_t told_bytes, resumed_bytes, random, now_ns;
};

static void began(void *context, int fd, uint64_t size_bytes)
{
    struct world *w = context;
    assert_int_equal(size_bytes, SIZE);
    w->fd = fd;
}

static void arrived(void *context, uint64_t off, uint64_t len, bool resumed)
{
    struct world *w = context;
    assert_true(len > 0 && off + len <= SIZE);
    assert_int_equal(pread(w->fd, w->back, len, (off_t)off), (ssize_t)len);
    assert_memory_equal(w->back, w->content + off, len);
    for (uint64_t i = off; i < off + len; i++)
        CHECK(w->is_told[i]++ == 0, "byte %llu is reported twice", (unsigned long long)i);
    w->told_bytes += len;
    w->resumed_bytes += resumed ? len : 0;
}

static void world_open(struct world *w, uint64_t seed)
{
    *w = (struct world){.random = seed * 2654435761U + 1};
    w->content = malloc(SIZE);
    w->back = malloc(SIZE);
    w->is_told = calloc(SIZE, 1);
    assert_true(w->content != NULL && w->back != NULL && w->is_told != NULL);
    for (size_t i = 0; i < SIZE; i++)
        w->content[i] = tree_data_byte(i, (unsigned)seed);
    tree_open(&w->tree);
    assert_true(td_root_create(w->tree.path, &w->root, NULL));
    w->expected = (struct td_fetch_expected){.size_bytes = SIZE, .has_sha256 = true};
    td_sha256(w->content, SIZE, w->expected.sha256);
    w->events = (struct td_fetch_events){.began = began, .arrived = arrived, .context = w};
}

static void world_close(struct world *w)
{
    td_root_unref(w->root);
    tree_close(&w->tree);
    free(w->content);
    free(w->back);
    free(w->is_told);
}

/* Opens the unfinished file. is_new: nothing of it is there. */
static void part_open(struct world *w, bool is_new)
{
    memset(w->is_told, 0, SIZE);
    w->told_bytes = w->resumed_bytes = 0;
    assert_true(td_fetch_part_open(&w->part, w->root, "f", &w->expected, &w->events, CONNECTIONS, NULL));
    assert_true(td_fetch_target_lock(&w->part.target, NULL, NULL, NULL, NULL));
    assert_true(td_fetch_part_prepare(&w->part, 4 * 1024 * 1024, NULL));
    assert_int_equal(w->part.has_begun, !is_new);
    if (is_new)
        assert_true(td_fetch_part_begin(&w->part, NULL));
}

/* Lets a connection do something. */
static void step(struct world *w)
{
    struct td_fetch_part *part = &w->part;
    size_t c = random_next(&w->random) % CONNECTIONS;
    const struct td_fetch_span *span = &part->spans.open[c];
    w->now_ns += random_next(&w->random) % (3 * MS);
    if (!span->is_open) {
        (void)td_fetch_spans_give(&part->spans, c);
        return;
    }
    uint64_t room = td_fetch_part_room(part, c);
    if (room == 0 || random_next(&w->random) % 64 == 0) {
        uint64_t end = span->end;
        uint64_t at = end - room;
        assert_int_equal(td_fetch_part_end_span(part, c, NULL), room); /* nothing of the block is lost */
        assert_true(room == 0 || w->is_told[at] == 0);
        return;
    }
    uint64_t len = 1 + random_next(&w->random) % 60000;
    uint64_t at = span->end - room;
    assert_true(td_fetch_part_take(part, c, (const char *)w->content + at, len < room ? len : room, w->now_ns, NULL));
}

/* Writes what has waited, and checks that nothing has waited for longer. */
static void flush(struct world *w)
{
    uint64_t due_ns;
    assert_true(td_fetch_part_flush(&w->part, w->now_ns, &due_ns, NULL));
    assert_true(due_ns > w->now_ns && (due_ns == UINT64_MAX || due_ns <= w->now_ns + TD_FETCH_BLOCK_NS));
    for (size_t i = 0; i < CONNECTIONS; i++) {
        const struct td_fetch_block *block = w->part.blocks[i];
        assert_true(block == NULL || block->len == 0 || w->now_ns - block->since_ns < TD_FETCH_BLOCK_NS);
    }
}

/* Returns the bytes of whole pieces that have been reported. */
static uint64_t told_pieces(const struct world *w)
{
    uint64_t bytes = 0;
    for (uint64_t at = 0; at < SIZE; at += TD_FETCH_PIECE_BYTES) {
        uint64_t len = SIZE - at < TD_FETCH_PIECE_BYTES ? SIZE - at : TD_FETCH_PIECE_BYTES;
        bytes += memchr(w->is_told + at, 0, len) == NULL ? len : 0;
    }
    return bytes;
}

static void random_connections(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct world w;
        struct td_fetch_sums sums;
        world_open(&w, seed);
        part_open(&w, true);
        for (size_t steps = 0; td_fetch_spans_front(&w.part.spans) < SIZE; steps++) {
            CHECK(steps < 100000, "the file is never complete");
            step(&w);
            if (random_next(&w.random) % 8 == 0)
                flush(&w);
            if (steps % 150 != 149)
                continue;
            uint64_t whole = told_pieces(&w); /* the process ends here */
            td_fetch_part_close(&w.part);
            part_open(&w, false);
            assert_int_equal(w.resumed_bytes, whole);
            assert_int_equal(w.part.resumed_bytes, whole);
        }
        assert_int_equal(w.told_bytes, SIZE);
        assert_int_equal(w.part.fetched_bytes + w.part.resumed_bytes, SIZE);
        assert_true(td_fetch_part_sums(&w.part, NULL, &sums, NULL));
        assert_true(td_fetch_sums_fit(&sums, &w.expected));
        td_fetch_part_close(&w.part);
        world_close(&w);
    }
}

/* Bytes that come slowly are in the file, and reported, TD_FETCH_BLOCK_NS after the first of them. */
static void slow_bytes_do_not_wait(void **state)
{
    (void)state;
    struct world w;
    uint64_t due_ns;
    world_open(&w, 1);
    part_open(&w, true);
    assert_true(td_fetch_part_flush(&w.part, 5, &due_ns, NULL) && due_ns == UINT64_MAX);
    assert_true(td_fetch_spans_give(&w.part.spans, 1));
    assert_true(td_fetch_part_take(&w.part, 1, (const char *)w.content, 10, 5, NULL));
    assert_true(td_fetch_part_take(&w.part, 1, (const char *)w.content + 10, 10, 7, NULL));
    assert_true(td_fetch_part_flush(&w.part, TD_FETCH_BLOCK_NS, &due_ns, NULL));
    assert_int_equal(due_ns, TD_FETCH_BLOCK_NS + 5);
    assert_int_equal(w.told_bytes, 0);
    assert_true(td_fetch_part_flush(&w.part, due_ns, &due_ns, NULL) && due_ns == UINT64_MAX);
    assert_int_equal(w.told_bytes, 20);
    td_fetch_part_close(&w.part);
    world_close(&w);
}

/* The Git object id, which costs as much as the SHA-256, is computed when it is expected, or when it is wanted and no
 * digest is expected. */
static void the_git_name_is_computed_on_demand(void **state)
{
    (void)state;
    static const struct {
        bool has_sha256, has_git_sha1, is_wanted, is_computed;
    } cases[] = {
        {false, false, false, false}, {false, false, true, true}, {true, false, true, false},
        {true, false, false, false},  {false, true, false, true}, {false, true, true, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct world w;
        struct td_fetch_sums sums;
        world_open(&w, 1);
        w.expected.has_sha256 = cases[i].has_sha256;
        w.expected.has_git_sha1 = cases[i].has_git_sha1;
        assert_true(td_fetch_part_open(&w.part, w.root, "f", &w.expected, &w.events, 1, NULL));
        w.part.wants_git_sha1 = cases[i].is_wanted;
        assert_true(td_fetch_target_lock(&w.part.target, NULL, NULL, NULL, NULL));
        assert_true(td_fetch_part_prepare(&w.part, SIZE, NULL) && td_fetch_part_begin(&w.part, NULL));
        while (td_fetch_spans_give(&w.part.spans, 0)) {
            uint64_t room = td_fetch_part_room(&w.part, 0);
            const char *bytes = (const char *)w.content + w.part.spans.open[0].end - room;
            assert_true(td_fetch_part_take(&w.part, 0, bytes, room, 0, NULL));
            (void)td_fetch_part_end_span(&w.part, 0, NULL);
        }
        assert_true(td_fetch_part_sums(&w.part, NULL, &sums, NULL));
        CHECK(sums.has_git_sha1 == cases[i].is_computed, "case %zu", i);
        assert_memory_equal(sums.sha256, w.expected.sha256, sizeof sums.sha256);
        td_fetch_part_close(&w.part);
        world_close(&w);
    }
}

static bool is_asked(void *context)
{
    (void)context;
    return true;
}

/* Looks for the finished file with this expectation. */
static bool look(struct world *w, const struct td_cancel *cancel, bool *is_there, struct td_error *err)
{
    struct td_fetch_sums sums;
    struct td_fetch_part *part = &w->part;
    assert_true(td_fetch_part_open(part, w->root, "f", &w->expected, &w->events, 1, NULL));
    assert_true(td_fetch_target_lock(&part->target, NULL, NULL, NULL, NULL));
    bool ok = td_fetch_part_look(part, cancel, is_there, &sums, err);
    td_fetch_part_close(part);
    return ok;
}

/* A finished file is there by its digest; a caller that cancels the hashing gets an error, and not the answer that the
 * file is missing. */
static void a_finished_file_is_looked_at(void **state)
{
    (void)state;
    static const struct td_cancel cancel = {.is_asked = is_asked};
    struct world w;
    struct td_error err = TD_ERROR_INIT;
    char path[TREE_PATH_BYTES];
    bool is_there = true;
    world_open(&w, 1);
    assert_true(look(&w, &cancel, &is_there, &err) && !is_there);
    tree_write(&w.tree, "f", w.content, SIZE);
    assert_true(look(&w, NULL, &is_there, &err) && is_there);
    w.content[SIZE / 2]++;
    tree_write(&w.tree, "f", w.content, SIZE);
    assert_true(look(&w, NULL, &is_there, &err) && !is_there);
    tree_at(&w.tree, "f", path);
    w.expected.size_bytes = UINT64_C(1) << 40; /* zeros for hours */
    assert_int_equal(truncate(path, (off_t)w.expected.size_bytes), 0);
    assert_int_equal(err.code, TD_OK);
    assert_false(look(&w, &cancel, &is_there, &err));
    assert_true(!is_there && err.code == TD_CONFLICT);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_connections),
        cmocka_unit_test(slow_bytes_do_not_wait),
        cmocka_unit_test(the_git_name_is_computed_on_demand),
        cmocka_unit_test(a_finished_file_is_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
