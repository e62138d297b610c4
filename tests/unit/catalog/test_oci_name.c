/* Names for clients of OCI registries: the grammar against the regular expression of the specification, and the rules
 * of catalog/names/oci_name.h for trees of directories. */
#include "catalog/names/oci_name.h"

#include "core/digest.h"
#include "core/digits.h"
#include "tests/unit/catalog/scan_place.h"

#include <regex.h>

/* distribution-spec 1.1, "Pulling manifests", as an extended expression of POSIX. */
#define COMPONENT "[a-z0-9]+((\\.|_|__|-+)[a-z0-9]+)*"
#define NAME "^" COMPONENT "(/" COMPONENT ")*$"

static void grammar_is_that_of_the_specification(void **state)
{
    (void)state;
    static const char alphabet[] = "a0._-/A";
    regex_t regex;
    uint64_t seed = 1;
    size_t valid = 0;
    assert_int_equal(regcomp(&regex, NAME, REG_EXTENDED | REG_NOSUB), 0);
    for (int i = 0; i < 20000; i++) {
        char text[12];
        size_t len = random_next(&seed) % 9;
        for (size_t k = 0; k < len; k++)
            text[k] = alphabet[random_next(&seed) % (sizeof alphabet - 1)];
        text[len] = '\0';
        bool wanted = regexec(&regex, text, 0, NULL, 0) == 0;
        CHECK(td_oci_name_is_valid(td_text_of(text)) == wanted, "\"%s\" is %s", text, wanted ? "a name" : "no name");
        valid += wanted ? 1 : 0;
    }
    assert_true(valid > 500);
    regfree(&regex);
}

static void digits_of(const char *id, char digits[9])
{
    char text[2 * TD_SHA256_BYTES + 1];
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(id, strlen(id), sum);
    td_hex_write(sum, sizeof sum, text);
    memcpy(digits, text, 8);
    digits[8] = '\0';
}

/* Makes a model with this id. */
static void add(struct place *place, const char *id)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", id);
    tree_simple(&place->tree, path, "w");
}

/* Returns the id of the repository that a client means; "" for none. */
static const char *meant(const struct place *place, const char *name)
{
    const struct td_repo *repo = td_oci_name_find(place->scanner.snapshot, td_text_of(name));
    return repo == NULL ? "" : repo->id;
}

static const char *name_of(const struct place *place, const char *id)
{
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    for (size_t i = 0; i < td_oci_names_of(snapshot)->count; i++)
        if (strcmp(td_oci_names_of(snapshot)->items[i].repo->id, id) == 0)
            return td_oci_names_of(snapshot)->items[i].name;
    return "";
}

/* Checks the list: sorted, valid, each name once, and each found. */
static void check_list(const struct place *place)
{
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    for (size_t i = 0; i < td_oci_names_of(snapshot)->count; i++) {
        const struct td_oci_name *item = &td_oci_names_of(snapshot)->items[i];
        CHECK(td_oci_name_is_valid(td_text_of(item->name)), "%s", item->name);
        assert_true(i == 0 || strcmp(td_oci_names_of(snapshot)->items[i - 1].name, item->name) < 0);
        assert_string_equal(meant(place, item->name), item->repo->id);
        assert_int_equal(td_oci_names_after(snapshot, td_text_of(item->name)), i + 1);
    }
    assert_int_equal(td_oci_names_after(snapshot, TD_TEXT("")), 0);
}

static void ids_become_names(void **state)
{
    static const char *const cases[][2] = {
        {"org/model", "org/model"},
        {"Org2/Model-7B.v1", "org2/model-7b.v1"},
        {"o3/a__b", "o3/a__b"},
        {"o4/a___b", "o4/a---b"},
        {"o5/a..b", "o5/a--b"},
        {"o6/a-.b", "o6/a--b"},
        {"o7/_a-", "o7/a"},
        {"o8/a b+c", "o8/a-b-c"},
        {"o9/---", "o9/x"},
        {"_/m", "x/m"},
        {"oa/\xC3\xA9t\xC3\xA9", "oa/t"},
        {"ob/a\xC3\xA9z", "ob/a--z"},
        {"alone", "alone"},
        {"Alone2", "alone2"},
    };
    struct place *place = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        add(place, cases[i][0]);
    (void)scanner_scan(&place->scanner);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        CHECK(strcmp(name_of(place, cases[i][0]), cases[i][1]) == 0, "%s: %s", cases[i][0],
              name_of(place, cases[i][0]));
        assert_string_equal(meant(place, cases[i][0]), cases[i][0]); /* as it is spelled */
    }
    assert_int_equal(td_oci_names_of(place->scanner.snapshot)->count, COUNT_OF(cases));
    assert_string_equal(meant(place, "local/alone"), "alone");
    assert_string_equal(meant(place, "local/alone2"), "Alone2");
    assert_string_equal(meant(place, "local/Alone2"), "Alone2");
    assert_string_equal(meant(place, "local/org/model"), "");
    assert_string_equal(meant(place, "local/"), "");
    assert_string_equal(meant(place, "ORG/MODEL"), "");
    assert_string_equal(meant(place, ""), "");
    check_list(place);
}

/* All but the one that is spelled so get digits; without such a one, all get them. */
static void names_that_meet_are_told_apart(void **state)
{
    static const char *const spelled[] = {"org/model", "Org/Model", "ORG/model"};
    static const char *const others[] = {"o/A B", "O/a+b"};
    struct place *place = *state;
    char digits[9];
    char wanted[64];
    for (size_t i = 0; i < COUNT_OF(spelled); i++)
        add(place, spelled[i]);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        add(place, others[i]);
    (void)scanner_scan(&place->scanner);
    assert_string_equal(name_of(place, spelled[0]), "org/model");
    for (size_t i = 1; i < COUNT_OF(spelled); i++) {
        digits_of(spelled[i], digits);
        (void)snprintf(wanted, sizeof wanted, "org/model-%s", digits);
        assert_string_equal(name_of(place, spelled[i]), wanted);
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        digits_of(others[i], digits);
        (void)snprintf(wanted, sizeof wanted, "o/a-b-%s", digits);
        assert_string_equal(name_of(place, others[i]), wanted);
    }
    assert_string_equal(meant(place, "o/a-b"), "");
    check_list(place);
}

/* Somebody names a directory like the name of another one with its digits. */
/* shows: security.md oci-names */
static void a_name_that_was_chosen_to_meet_is_found_once(void **state)
{
    struct place *place = *state;
    char digits[9];
    char chosen[64];
    digits_of("Org/Model", digits);
    (void)snprintf(chosen, sizeof chosen, "org/model-%s", digits);
    add(place, "org/model");
    add(place, "Org/Model");
    add(place, chosen);
    (void)scanner_scan(&place->scanner);
    assert_string_equal(meant(place, chosen), chosen);
    assert_string_equal(meant(place, "Org/Model"), "Org/Model");
    assert_int_equal(td_oci_names_of(place->scanner.snapshot)->count, 2);
    check_list(place);
}

static void long_names_are_cut(void **state)
{
    struct place *place = *state;
    char ids[2][300];
    for (int i = 0; i < 2; i++) {
        memset(ids[i], 'a', 299);
        ids[i][200] = '/';
        ids[i][298] = (char)('a' + i);
        ids[i][299] = '\0';
        add(place, ids[i]);
    }
    (void)scanner_scan(&place->scanner);
    for (int i = 0; i < 2; i++) {
        char digits[9];
        const char *name = name_of(place, ids[i]);
        digits_of(ids[i], digits);
        assert_int_equal(strlen(name), TD_OCI_NAME_MAX);
        assert_string_equal(name + strlen(name) - 8, digits);
        assert_memory_equal(name, ids[i], TD_OCI_NAME_MAX - 9);
    }
    check_list(place);
}

/* Datasets have no names, and neither do other revisions of a cache; files that are no models do. */
static void datasets_have_no_names(void **state)
{
    (void)state;
    struct place place;
    open_place_of_revisions(&place);
    tree_text(&place.tree, "datasets/org/rows/train.jsonl", "{}");
    tree_text(&place.tree, "org/data/train.jsonl", "{}"); /* counts as either */
    tree_simple(&place.tree, "models--org--m/snapshots/" C0 "/model.safetensors", "w");
    tree_simple(&place.tree, "models--org--m/snapshots/" C1 "/model.safetensors", "w");
    tree_text(&place.tree, "models--org--m/refs/main", C0);
    (void)scanner_scan(&place.scanner);
    assert_int_equal(td_oci_names_of(place.scanner.snapshot)->count, 2);
    assert_string_equal(meant(&place, "org/data"), "org/data");
    assert_string_equal(meant(&place, "org/m"), "org/m");
    assert_string_equal(meant(&place, "org/rows"), "");
    assert_string_equal(meant(&place, "datasets/org/rows"), "");
    check_list(&place);
    close_place(&place);
}

/* A file or model at the path local/demo owns that name. */
static void a_real_local_owns_its_names(void **state)
{
    struct place *place = *state;
    add(place, "Demo");
    add(place, "local/demo");
    add(place, "other");
    (void)scanner_scan(&place->scanner);
    assert_string_equal(meant(place, "local/demo"), "local/demo");
    assert_string_equal(meant(place, "demo"), "Demo");
    assert_string_equal(meant(place, "local/other"), "other");
    check_list(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar_is_that_of_the_specification),
        TEST_IN(place, ids_become_names),
        TEST_IN(place, names_that_meet_are_told_apart),
        TEST_IN(place, a_name_that_was_chosen_to_meet_is_found_once),
        TEST_IN(place, long_names_are_cut),
        cmocka_unit_test(datasets_have_no_names),
        TEST_IN(place, a_real_local_owns_its_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
