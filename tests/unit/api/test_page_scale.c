/* A folder of 150,000 files is one page. The tests check its memory, alone and with many readers, that every file is on
 * the page, and that any part can be read by itself. */
#include "api/html/folder_page.h"
#include "api/html/page.h"
#include "test_templates.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/work.h"

enum {
    FILES = 150000 / (SANITIZED ? 5 : 1),
    PATH_BYTES = 64,
    WINDOW = 256 * 1024,
    PAGE_BYTES = 96 * 1024, /* limit per page: a piece of text in a growing buffer, and its marks */
    AT_ONCE = 64
};

struct place {
    struct td_snapshot snapshot;
    struct td_file file; /* all entries share this file */
    char (*paths)[PATH_BYTES];
    size_t count;
    char *window;
};

/* The last folder of the model holds half of the files, the model itself the others. */
static void open_place(struct place *place, size_t count)
{
    memset(place, 0, sizeof *place);
    atomic_init(&place->snapshot.refs, 1);
    place->file.source.id.size_bytes = 12345;
    place->count = count;
    place->paths = malloc(sizeof(char[PATH_BYTES]) * count);
    place->snapshot.entries = malloc(sizeof *place->snapshot.entries * count);
    place->window = malloc(WINDOW);
    assert_true(place->paths != NULL && place->snapshot.entries != NULL && place->window != NULL);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(place->paths[i], PATH_BYTES, "org/m/%spart <%06zu> of a data set.bin",
                       i < count / 2 ? "" : "sub/", i);
        place->snapshot.entries[i] = (struct td_entry){.path = place->paths[i], .file = &place->file};
    }
    place->snapshot.entry_count = count;
}

static void close_place(struct place *place)
{
    assert_int_equal(atomic_load(&place->snapshot.refs), 1);
    free(place->window);
    free(place->paths);
    free(place->snapshot.entries);
}

/* Requests the page of a folder of the model. */
static bool ask(struct place *place, const char *path, struct td_response *response, struct td_error *err)
{
    struct td_html_files files = {.prefix_len = strlen("org/m/"), .entry_count = place->count};
    struct td_call call = {.snapshot = &place->snapshot, .response = response};
    files.name = TD_TEXT("org/m");
    files.base = TD_TEXT("/b/");
    td_error_init(err);
    td_response_init(response);
    return td_html_files_page(&call, &files, td_text_of(path), err);
}

static struct td_blob *page_of(struct place *place, const char *path, struct td_response *response)
{
    struct td_error err;
    assert_true(ask(place, path, response, &err));
    assert_int_equal(response->status, 200);
    assert_int_equal(response->body.extent_count, 1);
    return response->body.extents[0].blob;
}

static void read_at(struct place *place, struct td_blob *blob, uint64_t off, size_t len)
{
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_blob_read(blob, off, place->window, len, &err));
}

/* Reads the page once, window by window; copies it to `text` unless that is NULL. */
static void read_all(struct place *place, struct td_blob *blob, char *text)
{
    for (uint64_t off = 0; off < blob->len_bytes;) {
        uint64_t n = blob->len_bytes - off < WINDOW ? blob->len_bytes - off : WINDOW;
        read_at(place, blob, off, (size_t)n);
        if (text != NULL)
            memcpy(text + off, place->window, (size_t)n);
        off += n;
    }
}

static char *text_of(struct place *place, struct td_blob *blob)
{
    char *text = malloc((size_t)blob->len_bytes + 1);
    assert_non_null(text);
    read_all(place, blob, text);
    text[blob->len_bytes] = '\0';
    return text;
}

/* shows: security.md client-html */
static void memory_does_not_grow_with_the_folder(void **state)
{
    (void)state;
    static const size_t counts[] = {200, FILES};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct place place;
        struct td_response response;
        open_place(&place, counts[i]);
        alloc_count_start();
        struct td_blob *blob = page_of(&place, "sub", &response);
        read_all(&place, blob, NULL);
        uint64_t len = blob->len_bytes;
        size_t peak = alloc_count_get().peak_bytes;
        td_response_fini(&response);
        CHECK(peak < PAGE_BYTES, "%zu bytes", peak);
        assert_int_equal(alloc_count_get().live_bytes, 0);
        print_message("%zu files: %llu bytes, peak %zu\n", counts[i], (unsigned long long)len, peak);
        /* the page is far longer than the memory it took */
        assert_true(counts[i] < FILES || len > (uint64_t)FILES / 2 * 100);
        close_place(&place);
    }
}

/* AT_ONCE readers, each at another place in its page. */
/* shows: security.md client-html */
static void many_at_once(void **state)
{
    (void)state;
    struct place place;
    struct td_response responses[AT_ONCE];
    open_place(&place, FILES);
    alloc_count_start();
    for (size_t i = 0; i < AT_ONCE; i++)
        (void)page_of(&place, i % 2 == 0 ? "sub" : "", &responses[i]);
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct td_blob *blob = responses[i].body.extents[0].blob;
        uint64_t off = blob->len_bytes / AT_ONCE * i;
        read_at(&place, blob, off, blob->len_bytes - off < WINDOW ? (size_t)(blob->len_bytes - off) : WINDOW);
    }
    size_t peak = alloc_count_get().peak_bytes;
    CHECK(peak < AT_ONCE * (size_t)PAGE_BYTES, "%zu bytes", peak);
    for (size_t i = 0; i < AT_ONCE; i++)
        td_response_fini(&responses[i]);
    assert_int_equal(alloc_count_get().live_bytes, 0);
    close_place(&place);
}

/* Reads the page row by row: no file is missing, none is there twice. */
static void every_file_is_on_it(void **state)
{
    (void)state;
    struct place place;
    struct td_response response;
    open_place(&place, FILES);
    for (size_t folder = 0; folder < 2; folder++) {
        char *text = text_of(&place, page_of(&place, folder == 0 ? "" : "sub", &response));
        const char *at = strstr(text, "<tr data-file=");
        char row[512];
        for (size_t i = folder * (FILES / 2); i < (folder + 1) * (FILES / 2); i++) {
            int len = snprintf(row, sizeof row,
                               "<tr data-file=\"part &lt;%06zu&gt; of a data set.bin\"><th scope=\"row\"><a "
                               "href=\"/b/%spart%%20%%3C%06zu%%3E%%20of%%20a%%20data%%20set.bin\"><bdi>"
                               "part &lt;%06zu&gt; of a data set.bin</bdi></a></th><td class=\"number\"><data "
                               "value=\"12345\">12.1 KiB</data></td>",
                               i, folder == 0 ? "" : "sub/", i, i);
            CHECK(strncmp(at, row, (size_t)len) == 0, "%zu: %.500s", i, at);
            at = strstr(at + len, "\n") + 1;
        }
        if (folder == 0) {
            static const char link[] =
                "<tr data-file=\"sub/\"><th scope=\"row\"><a href=\"/b/sub/\"><bdi>sub/</bdi></a>";
            assert_memory_equal(at, link, sizeof link - 1);
            at = strstr(at, "\n") + 1;
        }
        assert_memory_equal(at, "</tbody>\n</table>\n", strlen("</tbody>\n</table>\n"));
        free(text);
        td_response_fini(&response);
    }
    close_place(&place);
}

enum { ROW_BYTES = 100, ROWS = 1000000 / (SANITIZED ? 5 : 1) };

static size_t rows_written;

static void write_number(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    (void)slot;
    td_buffer_printf(out, "%0*zu", ROW_BYTES - 1, place->row[0]);
    rows_written++;
}

static size_t count_numbers(const struct td_page_place *place, unsigned section)
{
    (void)place;
    (void)section;
    return ROWS;
}

static void destroy_nothing(void *context)
{
    (void)context;
}

static void check_numbered(const struct place *place, uint64_t off, size_t len)
{
    char row[ROW_BYTES + 1];
    for (size_t i = 0; i < len; i++) {
        (void)snprintf(row, sizeof row, "%0*llu\n", ROW_BYTES - 1, (unsigned long long)((off + i) / ROW_BYTES));
        size_t from = (size_t)((off + i) % ROW_BYTES);
        size_t n = ROW_BYTES - from < len - i ? ROW_BYTES - from : len - i;
        CHECK(memcmp(place->window + i, row + from, n) == 0, "at %llu", (unsigned long long)off + i);
        i += n - 1;
    }
}

/* A range anywhere costs a small part of the page. A reader that continues renders no row twice. */
/* shows: security.md client-html */
static void any_part_can_be_read(void **state)
{
    (void)state;
    struct place place;
    static const struct td_page_class class = {
        .page = &td_template_numbers, .write = write_number, .rows = count_numbers, .destroy = destroy_nothing};
    struct td_response response;
    struct td_error err = TD_ERROR_INIT;
    uint64_t seed = 7;
    open_place(&place, 1);
    td_response_init(&response);
    assert_true(td_page_set(&response, &class, &place, &err));
    struct td_blob *blob = response.body.extents[0].blob;
    assert_true(blob->len_bytes == (uint64_t)ROWS * ROW_BYTES);
    rows_written = 0;
    for (uint64_t off = 0; off < blob->len_bytes; off += WINDOW) {
        size_t len = blob->len_bytes - off < WINDOW ? (size_t)(blob->len_bytes - off) : WINDOW;
        read_at(&place, blob, off, len);
        check_numbered(&place, off, len);
    }
    assert_int_equal(rows_written, ROWS);
    for (size_t i = 0; i < 3000; i++) {
        size_t off = random_below(&seed, (size_t)ROWS * ROW_BYTES);
        size_t len = random_below(&seed, i % 2 == 0 ? 10 : 1000);
        len = len < blob->len_bytes - off ? len : (size_t)blob->len_bytes - off;
        rows_written = 0;
        read_at(&place, blob, off, len);
        check_numbered(&place, off, len);
        CHECK(rows_written <= ROWS / 128 + 1000, "%zu rows for %zu bytes", rows_written, len);
    }
    td_response_fini(&response);
    close_place(&place);
}

/* A folder below costs one row, whatever the number of its files. */
static void folders_below_are_skipped(void **state)
{
    (void)state;
    struct place place;
    struct td_response response;
    struct td_error err;
    open_place(&place, FILES);
    for (size_t i = 0; i < FILES; i++)
        (void)snprintf(place.paths[i], PATH_BYTES, "org/m/sub/%06zu", i);
    uint64_t work = work_now();
    for (size_t i = 0; i < 1000; i++) {
        char *text = text_of(&place, page_of(&place, "", &response));
        CHECK(strlen(text) < 3000 && strstr(text, "href=\"/b/sub/\"") != NULL, "%.3000s", text);
        free(text);
        td_response_fini(&response);
    }
    work = work_now() - work;
    CHECK(work > 1000 && work < 1000 * (FILES / 6), "%llu blocks", (unsigned long long)work); /* for 1,000 pages */
    assert_false(ask(&place, "su", &response, &err));
    assert_int_equal(err.code, TD_NOT_FOUND);
    td_response_fini(&response);
    close_place(&place);
}

/* Every failing allocation is an error without a leak. */
static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    struct place place;
    struct alloc_trials trials = {.may_do_without = true};
    open_place(&place, 2000);
    while (alloc_try(&trials)) {
        struct td_response response;
        struct td_error err;
        bool ok = ask(&place, "sub", &response, &err);
        alloc_tried(&trials, ok, &err);
        td_response_fini(&response);
    }
    assert_true(trials.failed > 5);
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_folder),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(every_file_is_on_it),
        cmocka_unit_test(any_part_can_be_read),
        cmocka_unit_test(folders_below_are_skipped),
        cmocka_unit_test(want_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
