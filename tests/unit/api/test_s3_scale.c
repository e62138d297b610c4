/* A million files: the cost of a page depends on its items alone, in memory and in time. */
#include "api/s3/s3.h"
#include "api/s3/s3_list.h"
#include "tests/kit/xml_check.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"
#include "tests/unit/work.h"

enum { FILES = 1000000, FOLDERS = 1000, PATH_BYTES = 32 };

struct place {
    struct td_snapshot snapshot;
    struct td_file file; /* all entries share this file */
    char (*paths)[PATH_BYTES];
};

/* Makes one bucket of a thousand folders with a thousand files each. */
static void open_place(struct place *place)
{
    struct td_error err = TD_ERROR_INIT;
    memset(place, 0, sizeof *place);
    td_arena_init(&place->snapshot.arena, 0);
    place->paths = malloc(sizeof(char[PATH_BYTES]) * FILES);
    place->snapshot.entries = malloc(sizeof *place->snapshot.entries * FILES);
    assert_true(place->paths != NULL && place->snapshot.entries != NULL);
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(place->paths[i], PATH_BYTES, "b/%03zu/%03zu", i / FOLDERS, i % FOLDERS);
        place->snapshot.entries[i] = (struct td_entry){.path = place->paths[i], .file = &place->file};
    }
    place->snapshot.entry_count = FILES;
    assert_true(td_buckets_build(&place->snapshot, &err));
    assert_int_equal(td_buckets_of(&place->snapshot)->count, 1);
    assert_int_equal(td_buckets_of(&place->snapshot)->items[0].key_count, FILES);
}

static void close_place(struct place *place)
{
    free(place->paths);
    free(place->snapshot.entries);
    struct td_snapshot_part *part = td_snapshot_get_part(&place->snapshot, TD_PART_BUCKETS);
    part->destroy(part);
    td_arena_fini(&place->snapshot.arena);
}

/* Returns how often the word occurs in the document. */
static size_t count_of(const struct td_response *response, const char *word)
{
    size_t count = 0;
    const char *text = (const char *)response->body.extents[0].blob->bytes;
    const char *end = text + response->body.total_bytes;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), word, strlen(word))) != NULL; at++)
        count++;
    return count;
}

/* Makes one page and writes the work and memory that it took. */
static void list(struct place *place, const char *target, struct td_response *response, uint64_t *work, size_t *peak)
{
    struct td_api api = {0};
    struct td_request request = {.facade = &td_s3_facade, .target = {.p = target, .len = strlen(target)}};
    struct td_uri uri;
    struct td_error err = TD_ERROR_INIT;
    td_response_init_for(response, &request);
    assert_true(td_uri_parse(&uri, request.target, TD_URI_STRICT, &err));
    struct td_call call = {
        .api = &api, .request = &request, .uri = &uri, .snapshot = &place->snapshot, .response = response};
    *work = work_now();
    alloc_count_start();
    td_s3_list(&call, &td_buckets_of(&place->snapshot)->items[0]);
    *peak = alloc_count_get().peak_bytes;
    *work = work_now() - *work;
    CHECK(response->status == 200, "%s", target);
    td_uri_fini(&uri);
}

/* shows: security.md s3-listings */
static void pages_cost_what_is_on_them(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        size_t keys, prefixes;
    } cases[] = {
        {"/b?list-type=2", 1000, 0},
        {"/b?list-type=2&prefix=999/", 1000, 0},
        {"/b?list-type=2&start-after=999/998", 1, 0},
        {"/b?list-type=2&delimiter=/", 0, 1000},
        {"/b?list-type=2&delimiter=/&prefix=5", 0, 100},
        {"/b?list-type=2&delimiter=/999", 999, 1},
        {"/b?list-type=2&prefix=zzz", 0, 0},
        {"/b?delimiter=9&marker=899/999", 0, 1},
    };
    struct place place;
    open_place(&place);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_response response;
        uint64_t work;
        size_t peak;
        list(&place, cases[i].target, &response, &work, &peak);
        CHECK(xml_is_well_formed((const char *)response.body.extents[0].blob->bytes, response.body.total_bytes), "%s",
              cases[i].target);
        CHECK(count_of(&response, "<Contents>") == cases[i].keys, "%s: %zu", cases[i].target,
              count_of(&response, "<Contents>"));
        CHECK(count_of(&response, "<CommonPrefixes>") == cases[i].prefixes, "%s: %zu", cases[i].target,
              count_of(&response, "<CommonPrefixes>"));
        CHECK(peak < 1500000, "%s: %zu bytes", cases[i].target, peak);
        CHECK(work > 0 && work < FILES, "%s: %llu blocks", cases[i].target, (unsigned long long)work);
        td_response_fini(&response);
    }
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_cost_what_is_on_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
