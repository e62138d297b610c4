/* Plan: each id gives a base name; the names are sorted, those of one id first where the id is spelled so; in a run of
 * equal names all others get their digits; and the list is sorted again.
 *
 * What is hard: a name with digits may still equal another name, if a directory was named to collide. Then the
 * repository with exactly that id comes first in the list and is found, and the other one has no name. */
#include "catalog/names/oci_name.h"

#include "core/array.h"
#include "core/digest.h"
#include "core/digits.h"
#include "parser/format/names.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS = 8, DIGITS_END = 1 + DIGITS }; /* of a SHA-256; with the '-' before them */

/* ---- the grammar --------------------------------------------------------------------------------------- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Returns whether this run of bytes may stand between two words: one '.', one or two '_', or any number of '-'. */
static bool is_separator(struct td_text run)
{
    if (td_text_equals(run, ".") || td_text_equals(run, "_") || td_text_equals(run, "__"))
        return true;
    for (size_t i = 0; i < run.len; i++)
        if (run.p[i] != '-')
            return false;
    return run.len > 0;
}

/* Returns the length of the run of bytes from `at` on that are word characters, or that are not (of_words false). */
static size_t run_len(struct td_text text, size_t at, bool of_words)
{
    size_t len = 0;
    while (at + len < text.len && is_word(text.p[at + len]) == of_words)
        len++;
    return len;
}

static bool is_component(struct td_text text)
{
    size_t at = run_len(text, 0, true);
    bool ok = at > 0;
    while (ok && at < text.len) {
        size_t between = run_len(text, at, false);
        size_t word = run_len(text, at + between, true);
        ok = word > 0 && is_separator(td_text_n(text.p + at, between));
        at += between + word;
    }
    return ok;
}

bool td_oci_name_is_valid(struct td_text name)
{
    bool is_last = false;
    if (name.len > TD_OCI_NAME_MAX)
        return false;
    while (!is_last) {
        is_last = name.len == 0 || memchr(name.p, '/', name.len) == NULL;
        if (!is_component(td_text_take_until(&name, '/')))
            return false;
    }
    return true;
}

/* ---- names of ids -------------------------------------------------------------------------------------- */

/* Writes the name of one component, which is in lower case; returns its length, at most that of the component or 1. */
static size_t write_component(struct td_text from, char *to)
{
    size_t len = 0;
    size_t at = run_len(from, 0, false);
    while (at < from.len) {
        size_t word = run_len(from, at, true);
        memcpy(to + len, from.p + at, word);
        len += word;
        at += word;
        size_t between = run_len(from, at, false);
        if (at + between == from.len)
            break;
        if (is_separator(td_text_n(from.p + at, between)))
            memcpy(to + len, from.p + at, between);
        else
            memset(to + len, '-', between);
        len += between;
        at += between;
    }
    if (len == 0)
        to[len++] = 'x';
    return len;
}

/* Appends '-' and the digits of the id to a name of *len bytes, which it cuts so that the whole is not too long. */
static void add_digits(const char *id, char *name, size_t *len)
{
    char digits[2 * TD_SHA256_BYTES + 1];
    uint8_t sum[TD_SHA256_BYTES];
    td_sha256(id, strlen(id), sum);
    td_hex_write(sum, sizeof sum, digits);
    if (*len > TD_OCI_NAME_MAX - DIGITS_END)
        *len = TD_OCI_NAME_MAX - DIGITS_END;
    while (*len > 0 && !is_word(name[*len - 1]))
        (*len)--;
    name[(*len)++] = '-';
    memcpy(name + *len, digits, DIGITS);
    *len += DIGITS;
    name[*len] = '\0';
}

/* Returns the name that an id has if it meets no other, in the arena, with room for the digits; NULL for want of
 * memory. */
static char *base_name(struct td_arena *arena, const char *id)
{
    size_t id_len = strlen(id);
    char *lower = td_arena_alloc(arena, id_len + 1);
    char *name = td_arena_alloc(arena, 2 * id_len + 2 + DIGITS_END + 1); /* a component may be shorter than its name */
    size_t len = 0;
    if (lower == NULL || name == NULL)
        return NULL;
    for (size_t i = 0; i <= id_len; i++)
        lower[i] = (char)(id[i] >= 'A' && id[i] <= 'Z' ? id[i] - 'A' + 'a' : id[i]);
    struct td_text rest = td_text_n(lower, id_len);
    for (bool is_last = false; !is_last;) {
        is_last = rest.len == 0 || memchr(rest.p, '/', rest.len) == NULL;
        len += write_component(td_text_take_until(&rest, '/'), name + len);
        name[len++] = is_last ? '\0' : '/';
    }
    len--;
    if (len > TD_OCI_NAME_MAX)
        add_digits(id, name, &len);
    return name;
}

/* ---- the list ------------------------------------------------------------------------------------------ */

/* A name while the list is made. */
struct made_name {
    char *name;
    const struct td_repo *repo;
};

static int made_compare(const void *a, const void *b)
{
    const struct made_name *x = a;
    const struct made_name *y = b;
    int order = strcmp(x->name, y->name);
    if (order != 0)
        return order;
    bool x_is_spelled_so = strcmp(x->name, x->repo->id) == 0;
    bool y_is_spelled_so = strcmp(y->name, y->repo->id) == 0;
    return x_is_spelled_so != y_is_spelled_so ? (x_is_spelled_so ? -1 : 1) : strcmp(x->repo->id, y->repo->id);
}

static bool has_name(const struct td_repo *repo)
{
    return !repo->is_dataset_folder && !repo->is_other_revision;
}

/* Appends digits to names that are equal to others. The list is sorted. */
static void add_digits_to_equals(struct made_name *names, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && strcmp(names[first].name, names[end].name) == 0; end++)
            ;
        for (size_t i = first; end - first > 1 && i < end; i++) {
            size_t len = strlen(names[i].name);
            if (strcmp(names[i].name, names[i].repo->id) != 0)
                add_digits(names[i].repo->id, names[i].name, &len);
        }
    }
}

static bool add_made(struct td_snapshot *snapshot, struct made_name *made, const struct td_repo *repo)
{
    *made = (struct made_name){.name = base_name(&snapshot->arena, repo->id), .repo = repo};
    return made->name != NULL;
}

/* Makes the sorted list of the names of the repositories that have one, `count` at most. */
static bool make_names(struct td_snapshot *snapshot, struct made_name *names, size_t count)
{
    size_t n = 0;
    const struct td_repos *repos = td_repos_of(snapshot);
    for (size_t i = 0; i < repos->count && n < count; i++)
        if (has_name(&repos->items[i]) &&
            !add_made(snapshot, &names[n++], td_repo_find(snapshot, false, td_text_of(repos->items[i].id))))
            return false;
    for (size_t i = 0; i < repos->family_count && n < count; i++)
        if (repos->families[i]->is_added && !add_made(snapshot, &names[n++], repos->families[i]))
            return false;
    qsort(names, n, sizeof *names, made_compare);
    add_digits_to_equals(names, n);
    qsort(names, n, sizeof *names, made_compare);
    return true;
}

static void destroy_names(struct td_snapshot_part *part)
{
    struct td_oci_names *names = (struct td_oci_names *)(void *)part;
    free(names->items);
    free(names);
}

const struct td_oci_names *td_oci_names_of(const struct td_snapshot *snapshot)
{
    static const struct td_oci_names none = {.count = 0};
    return (const struct td_oci_names *)(const void *)td_snapshot_part_or(snapshot, TD_PART_OCI_NAMES, &none.part);
}

/* Fills the list with `count` names. Returns false when out of memory. */
static bool fill_names(struct td_snapshot *snapshot, struct td_oci_names *names, size_t count)
{
    struct made_name *made = calloc(count, sizeof *made);
    names->items = calloc(count, sizeof *names->items);
    bool ok = made != NULL && names->items != NULL && make_names(snapshot, made, count);
    for (size_t i = 0; ok && i < count; i++) /* of equal names, the first is found */
        if (i == 0 || strcmp(made[i].name, made[i - 1].name) != 0)
            names->items[names->count++] = (struct td_oci_name){.name = made[i].name, .repo = made[i].repo};
    free(made);
    return ok;
}

bool td_oci_names_build(struct td_snapshot *snapshot, struct td_error *err)
{
    const struct td_repos *repos = td_repos_of(snapshot);
    size_t count = 0;
    for (size_t i = 0; i < repos->count; i++)
        count += has_name(&repos->items[i]) ? 1 : 0;
    for (size_t i = 0; i < repos->family_count; i++)
        count += repos->families[i]->is_added ? 1 : 0;
    if (count == 0)
        return true;
    struct td_oci_names *names = calloc(1, sizeof *names);
    if (names == NULL)
        return td_error_no_memory(err);
    names->part.destroy = destroy_names;
    (void)td_snapshot_add_part(snapshot, TD_PART_OCI_NAMES, &names->part);
    return fill_names(snapshot, names, count) || td_error_no_memory(err);
}

/* ---- finding them -------------------------------------------------------------------------------------- */

static struct td_text name_at(const void *context, size_t i)
{
    return td_text_of(((const struct td_oci_name *)context)[i].name);
}

/* Returns the repository whose listed name is this one. */
static const struct td_repo *find_listed(const struct td_snapshot *snapshot, struct td_text name)
{
    const struct td_oci_names *list = td_oci_names_of(snapshot);
    const struct td_names names = {.count = list->count, .context = list->items, .get = name_at};
    bool found = false;
    size_t at = td_names_search(&names, name, &found);
    /* The analyzer does not know that a found name has at < count. */
    return found && at < list->count ? list->items[at].repo : NULL;
}

const struct td_repo *td_oci_name_find(const struct td_snapshot *snapshot, struct td_text name)
{
    const struct td_text local = TD_TEXT(TD_REPO_DEFAULT_NAMESPACE "/");
    const struct td_repo *repo = td_repo_find(snapshot, false, name);
    if (repo == NULL)
        repo = find_listed(snapshot, name);
    if (repo != NULL || !td_text_begins(name, local))
        return repo;
    repo = find_listed(snapshot, td_text_skip(name, local.len));
    return repo != NULL && repo->hub_id != repo->id ? repo : NULL; /* else something else has the name local/name */
}

size_t td_oci_names_after(const struct td_snapshot *snapshot, struct td_text name)
{
    const struct td_oci_names *list = td_oci_names_of(snapshot);
    const struct td_names names = {.count = list->count, .context = list->items, .get = name_at};
    bool found = false;
    size_t at = td_names_search(&names, name, &found);
    return found ? at + 1 : at;
}
