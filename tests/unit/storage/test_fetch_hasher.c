#include "storage/fetch/fetch_hasher.h"

#include "tests/unit/tree_fixture.h"

#include <fcntl.h>
#include <unistd.h>

enum { SIZE = 3 * 1024 * 1024 + 5 };

static uint8_t *content(void)
{
    uint8_t *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = tree_data_byte(i, 3);
    return bytes;
}

static int open_new(const struct tree *tree)
{
    char path[TREE_PATH_BYTES];
    tree_at(tree, "f", path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static void write_at(int fd, const uint8_t *bytes, size_t from, size_t end)
{
    assert_int_equal(pwrite(fd, bytes + from, end - from, (off_t)from), (ssize_t)(end - from));
}

/* Bytes arrive from the end to the beginning, and then in order. */
static void digests_of_a_file_that_arrives(void **state)
{
    struct tree *tree = *state;
    struct td_fetch_hasher *hasher;
    struct td_fetch_sums sums;
    uint8_t want[TD_SHA256_BYTES];
    uint8_t *bytes = content();
    int fd = open_new(tree);
    assert_true(td_fetch_hasher_start(fd, SIZE, false, &hasher, NULL));
    write_at(fd, bytes, SIZE / 2, SIZE);
    for (size_t at = 0; at < SIZE / 2;) {
        size_t next = at + 100000 < SIZE / 2 ? at + 100000 : SIZE / 2;
        write_at(fd, bytes, at, next);
        td_fetch_hasher_advance(hasher, next);
        at = next;
    }
    td_fetch_hasher_advance(hasher, SIZE);
    assert_true(td_fetch_hasher_wait(hasher, NULL, &sums, NULL));
    td_sha256(bytes, SIZE, want);
    assert_memory_equal(sums.sha256, want, sizeof want);
    td_fetch_hasher_stop(hasher);
    (void)close(fd);
    free(bytes);
}

/* Fills a block with a part of the content. */
static struct td_fetch_block *block_of(struct td_fetch_hasher *hasher, const uint8_t *bytes, size_t from, size_t len)
{
    struct td_fetch_block *block = td_fetch_hasher_block(hasher);
    assert_non_null(block);
    assert_int_equal(block->len, 0);
    block->off = from;
    block->len = len;
    memcpy(block->bytes, bytes + from, len);
    return block;
}

/* The file has other bytes than the blocks, so the digest shows that blocks are hashed from memory, in order with the
 * bytes that are read from the file, also when more blocks come than may wait. A block that does not begin at the front
 * is refused. */
static void blocks_are_hashed_from_memory(void **state)
{
    enum { FROM_FILE = 1024 * 1024 + 7, BLOCK = 10000, BLOCKS_END = FROM_FILE + 100 * BLOCK };
    struct tree *tree = *state;
    struct td_fetch_hasher *hasher;
    struct td_fetch_sums sums;
    uint8_t want[TD_SHA256_BYTES];
    uint8_t *bytes = content();
    uint8_t *other = calloc(1, SIZE);
    int fd = open_new(tree);
    assert_non_null(other);
    write_at(fd, other, 0, SIZE);
    write_at(fd, bytes, 0, FROM_FILE);
    write_at(fd, bytes, BLOCKS_END, SIZE);
    assert_true(td_fetch_hasher_start(fd, SIZE, false, &hasher, NULL));
    struct td_fetch_block *early = block_of(hasher, other, FROM_FILE, BLOCK);
    assert_false(td_fetch_hasher_give(hasher, early));
    free(early);
    td_fetch_hasher_advance(hasher, FROM_FILE);
    for (size_t at = FROM_FILE; at < BLOCKS_END; at += BLOCK)
        assert_true(td_fetch_hasher_give(hasher, block_of(hasher, bytes, at, BLOCK)));
    td_fetch_hasher_advance(hasher, SIZE);
    assert_true(td_fetch_hasher_wait(hasher, NULL, &sums, NULL));
    td_sha256(bytes, SIZE, want);
    assert_memory_equal(sums.sha256, want, sizeof want);
    td_fetch_hasher_stop(hasher);
    (void)close(fd);
    free(other);
    free(bytes);
}

/* Blocks that wait are bounded in number, and freed with the hasher. The file is cut, so the thread has ended, and
 * nobody waits for it. */
static void blocks_that_wait_are_few(void **state)
{
    enum { FRONT = 2 * 1024 * 1024 };
    struct tree *tree = *state;
    struct td_fetch_hasher *hasher;
    struct td_fetch_sums sums;
    uint8_t *bytes = content();
    int fd = open_new(tree);
    assert_true(td_fetch_hasher_start(fd, SIZE, false, &hasher, NULL));
    td_fetch_hasher_advance(hasher, FRONT);
    assert_false(td_fetch_hasher_wait(hasher, NULL, &sums, NULL));
    for (size_t i = 0; i < TD_FETCH_HELD_BLOCKS; i++)
        assert_true(td_fetch_hasher_give(hasher, block_of(hasher, bytes, FRONT + i * 10, 10)));
    struct td_fetch_block *last = block_of(hasher, bytes, FRONT + TD_FETCH_HELD_BLOCKS * 10, 10);
    assert_false(td_fetch_hasher_give(hasher, last));
    free(last);
    td_fetch_hasher_stop(hasher);
    (void)close(fd);
    free(bytes);
}

/* Git's name of a blob with the content "what is up, doc?", from the book Pro Git, section 10.2; and that of an empty
 * one, which git hash-object prints. */
static void names_of_git(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint8_t name[4];
    } cases[] = {{"what is up, doc?", {0xbd, 0x9d, 0xbf, 0x5a}}, {"", {0xe6, 0x9d, 0xe2, 0x9b}}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tree tree;
        struct td_fetch_hasher *hasher;
        struct td_fetch_sums sums;
        size_t len = strlen(cases[i].text);
        tree_open(&tree);
        int fd = open_new(&tree);
        write_at(fd, (const uint8_t *)cases[i].text, 0, len);
        assert_true(td_fetch_hasher_start(fd, len, true, &hasher, NULL));
        td_fetch_hasher_advance(hasher, len);
        assert_true(td_fetch_hasher_wait(hasher, NULL, &sums, NULL));
        assert_memory_equal(sums.git_sha1, cases[i].name, 4);
        td_fetch_hasher_stop(hasher);
        (void)close(fd);
        tree_close(&tree);
    }
}

static void a_cut_file_is_an_error(void **state)
{
    struct tree *tree = *state;
    struct td_fetch_hasher *hasher;
    struct td_fetch_sums sums;
    struct td_error err = TD_ERROR_INIT;
    int fd = open_new(tree);
    assert_true(td_fetch_hasher_start(fd, SIZE, false, &hasher, NULL));
    td_fetch_hasher_advance(hasher, SIZE);
    assert_false(td_fetch_hasher_wait(hasher, NULL, &sums, &err));
    assert_int_equal(err.code, TD_IO);
    td_fetch_hasher_stop(hasher);
    (void)close(fd);
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static void a_wait_can_be_cancelled(void **state)
{
    struct tree *tree = *state;
    struct td_fetch_hasher *hasher;
    struct td_fetch_sums sums;
    struct td_error err = TD_ERROR_INIT;
    const struct td_cancel cancel = {.is_asked = always};
    int fd = open_new(tree);
    assert_true(td_fetch_hasher_start(fd, SIZE, false, &hasher, NULL));
    assert_false(td_fetch_hasher_wait(hasher, &cancel, &sums, &err));
    assert_int_equal(err.code, TD_CONFLICT);
    td_fetch_hasher_stop(hasher);
    td_fetch_hasher_stop(NULL);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN(tree, digests_of_a_file_that_arrives), TEST_IN(tree, blocks_are_hashed_from_memory),
        TEST_IN(tree, blocks_that_wait_are_few),       cmocka_unit_test(names_of_git),
        TEST_IN(tree, a_cut_file_is_an_error),         TEST_IN(tree, a_wait_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
