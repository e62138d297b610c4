/* Plan: build_dataset() collects the files of a repository that have rows (data_file.c), each with the name of its
 * split; the same file may be in several splits, when the card says so. After sorting, the files of one split follow
 * one another, and add_split() keeps those of the most common format. What is known only when all indexes are there,
 * the number of rows, is made by the first reader that asks for it (td_split_rows_get).
 *
 * What is hard: the order. A row's number is its place among the files of the split in the order of their paths, so
 * nothing may depend on the order in which indexes become ready. */
#include "catalog/dataset/dataset.h"

#include "catalog/dataset/card_splits.h"
#include "catalog/dataset/data_file.h"
#include "catalog/model/file_content.h"
#include "catalog/model/split_name.h"
#include "core/array.h"
#include "core/checked.h"
#include "parser/format/names.h"
#include "parser/rows/row_formats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The most work of matching a card's configurations with a repository's files, some 2 s. */
static const uint64_t most_card_steps = UINT64_C(1) << 30;

/* The most files that the splits of one dataset have together when a card declares them: a file may be in several. */
enum { MOST_CARD_FILES = 2000000 };

/* The most rows of a split, so that 64 bits hold every sum of their sizes in a table. */
static const uint64_t most_rows = UINT64_C(1) << 58;

/* A data file of the repository. */
struct item {
    size_t entry; /* number in the snapshot */
    struct td_data_file file;
};

/* A file with rows, in one split. */
struct member {
    struct td_text split;
    size_t entry; /* number in the snapshot */
    const struct td_row_format *format;
    const struct td_entry *table;
};

struct builder {
    struct td_snapshot *snapshot;
    struct td_datasets *datasets;
    const struct td_repo *repo;
    struct td_arena *scratch; /* emptied after each repository */
    struct td_card_splits card;
    bool *is_used;       /* for each pattern of the card: whether it matches a file */
    uint64_t card_steps; /* see td_card_pattern_matches */
    struct item *items;  /* sorted by path */
    size_t item_count, item_capacity;
    struct member *members;
    size_t member_count, member_capacity;
    size_t dataset_capacity;
    struct td_error *err;
};

/* ---- which repositories ---- */

/* Returns the repository's README.md, or NULL. */
static const struct td_file *card_of(const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    const struct td_entry *card = td_snapshot_find_in_run(snapshot, repo->first_entry, repo->entry_count,
                                                          repo->prefix_len, td_text_of("README.md"));
    return card == NULL ? NULL : card->file;
}

/* Returns whether a file in the repository's folder says that it is a model, which may have data files, too. */
static bool describes_model(const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model_index.json",
                                        "adapter_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (td_snapshot_find_in_run(snapshot, repo->first_entry, repo->entry_count, repo->prefix_len,
                                    td_text_of(names[i])) != NULL)
            return true;
    return false;
}

static bool may_be_dataset(const struct builder *b)
{
    const struct td_repo *repo = b->repo;
    return repo->is_dataset_folder || td_card_splits_declare(&b->card) ||
           (repo->prefix_len > 0 && !repo->has_checkpoint && !describes_model(b->snapshot, repo));
}

/* ---- the files of one repository ---- */

/* Lists the repository's data files. */
static bool list_items(struct builder *b)
{
    struct td_data_files files;
    struct item item;
    b->item_count = 0;
    td_data_files_init(&files, b->snapshot, b->repo);
    for (size_t i = 0; i < b->repo->entry_count; i++) {
        item.entry = b->repo->first_entry + i;
        if (!td_data_file_of(&files, &b->snapshot->entries[item.entry], &item.file))
            continue;
        if (!TD_ARRAY_GROW(b->items, b->item_count, b->item_capacity, b->err))
            return false;
        b->items[b->item_count++] = item;
    }
    return true;
}

static bool add_member(struct builder *b, const struct item *item, struct td_text split)
{
    if (!TD_ARRAY_GROW(b->members, b->member_count, b->member_capacity, b->err))
        return false;
    b->members[b->member_count++] =
        (struct member){.split = split, .entry = item->entry, .format = item->file.format, .table = item->file.table};
    return true;
}

static bool add_problem(struct builder *b, struct td_dataset *dataset, const char *path, const char *message)
{
    td_problems_add(&dataset->problems, &b->snapshot->arena, path, message);
    return !dataset->problems.incomplete || td_error_no_memory(b->err);
}

/* Ways in which splits get their names. A configuration without patterns uses the first way by which some file has a
 * name. */
enum way { BY_SHARDS, BY_WORDS_OF_FOLDERS, BY_WORDS_OF_FILES, BY_NOTHING };

/* A configuration while its files are collected. */
struct collecting {
    const struct td_card_config *config;
    struct td_dataset *dataset;
    size_t first, end; /* the run of builder.items below the configuration's folder */
    enum way way;
    bool is_bounded; /* the work is counted in builder.card_steps: every configuration of the card but the first */
};

/* Most splits that one path can name: train, validation and test. */
enum { MOST_NAMES = 3 };

/* Sets the names of the splits that this way finds in a path below the configuration's folder. Returns their number. */
static size_t names_of(enum way way, struct td_text path, struct td_text names[MOST_NAMES])
{
    size_t count = 0;
    unsigned splits = 0;
    if (way == BY_SHARDS)
        return td_split_of_shard(path, &names[0]) ? 1 : 0;
    if (way == BY_NOTHING)
        splits = td_card_pattern_shows(TD_TEXT("**"), path) ? TD_SPLIT_TRAIN : 0;
    else
        splits = way == BY_WORDS_OF_FOLDERS ? td_splits_of_folders(path) : td_splits_of_file_name(path);
    for (; splits != 0; splits &= splits - 1)
        names[count++] = td_text_of(td_split_word(splits));
    return count;
}

/* Returns the name of a split of a configuration: "CONFIG/SPLIT" unless the configuration is the default one. Returns
 * an empty text when memory is short. */
static struct td_text label_of(struct builder *b, const struct td_card_config *config, struct td_text split)
{
    if (config->name == NULL)
        return split;
    size_t len = strlen(config->name);
    char *label = td_arena_alloc(b->scratch, len + 1 + split.len);
    if (label == NULL)
        return TD_TEXT("");
    memcpy(label, config->name, len);
    label[len] = '/';
    memcpy(label + len + 1, split.p, split.len);
    return td_text_n(label, len + 1 + split.len);
}

/* Returns the path below the dataset of a data file. */
static const char *item_path(const struct builder *b, const struct item *item)
{
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are no items where b->items is NULL
    return td_repo_relative(b->repo, &b->snapshot->entries[item->entry]);
}

/* Counts a visit to a file in card_steps. */
static void count_visit(struct builder *b, const struct collecting *c, struct td_text path)
{
    enum { VISIT_STEPS = 64 };
    b->card_steps += c->is_bounded ? VISIT_STEPS + path.len : 0;
}

/* Adds the file to the splits that its path names. Adds a problem if the path names no split, or if the file's rows are
 * not served. */
static bool add_by_name(struct builder *b, const struct collecting *c, const struct item *item, struct td_text path)
{
    struct td_text names[MOST_NAMES];
    const struct td_data_file *file = &item->file;
    count_visit(b, c, path);
    if (file->format == NULL) {
        bool is_named = td_splits_of_folders(path) != 0 || td_splits_of_file_name(path) != 0;
        return (file->is_only_by_name && !is_named) || add_problem(b, c->dataset, item_path(b, item), file->reason);
    }
    size_t count = names_of(c->way, path, names);
    if (count == 0)
        return add_problem(b, c->dataset, item_path(b, item),
                           c->way == BY_NOTHING ? "in no split: it is in a folder that begins with \"__\""
                                                : "in no split: other files have a split's name in their paths");
    if (c->is_bounded && b->member_count >= MOST_CARD_FILES)
        b->card_steps = most_card_steps + 1; /* no dataset, as after too much work */
    for (size_t i = 0; i < count; i++) {
        struct td_text label = label_of(b, c->config, names[i]);
        if (label.len == 0 || !add_member(b, item, label))
            return td_error_no_memory(b->err);
    }
    return true;
}

/* Adds the file to every split whose patterns match it. */
static bool add_by_patterns(struct builder *b, const struct collecting *c, const struct item *item, struct td_text path)
{
    const struct td_card_config *config = c->config;
    bool is_reported = false;
    for (size_t i = config->first; i < config->first + config->count && b->card_steps <= most_card_steps; i++) {
        const struct td_card_pattern *pattern = &b->card.items[i];
        if (!td_card_pattern_matches(pattern->pattern, path, &b->card_steps) ||
            !td_card_pattern_shows(td_text_of(pattern->pattern), path))
            continue;
        b->is_used[i] = true;
        if (item->file.format == NULL) {
            if (!is_reported && !add_problem(b, c->dataset, item_path(b, item), item->file.reason))
                return false;
            is_reported = true;
        } else if (b->member_count >= MOST_CARD_FILES) {
            b->card_steps = most_card_steps + 1; /* no dataset, as after too much work */
        } else if (!add_member(b, item, td_text_of(pattern->split))) {
            return false;
        }
    }
    return true;
}

static struct td_text path_at(const void *context, size_t i)
{
    const struct builder *b = context;
    return td_text_of(item_path(b, &b->items[i]));
}

/* Sets the run of files below the configuration's folder. Paths are sorted, so these files follow one another. */
static void set_run(const struct builder *b, struct collecting *c)
{
    const struct td_names paths = {.count = b->item_count, .context = b, .get = path_at};
    const struct td_text folder = c->config->folder;
    c->first = folder.len == 0 ? 0 : td_names_search(&paths, folder, NULL);
    c->end = folder.len == 0 ? b->item_count : c->first;
    while (c->end < b->item_count && td_text_begins(path_at(b, c->end), folder))
        c->end++;
}

/* Returns the first way by which some file with rows has a name. */
static enum way find_way(struct builder *b, const struct collecting *c)
{
    enum way found = BY_NOTHING;
    struct td_text names[MOST_NAMES];
    for (size_t i = c->first; i < c->end && found != BY_SHARDS && b->card_steps <= most_card_steps; i++) {
        struct td_text path = td_text_skip(path_at(b, i), c->config->folder.len);
        count_visit(b, c, path);
        for (enum way way = BY_SHARDS; way < found && b->items[i].file.format != NULL; way++)
            if (names_of(way, path, names) > 0)
                found = way;
    }
    return found;
}

/* Adds the files of a configuration. */
static bool collect_config(struct builder *b, const struct td_card_config *config, bool is_bounded,
                           struct td_dataset *dataset)
{
    struct collecting c = {.config = config, .dataset = dataset, .is_bounded = is_bounded};
    size_t before = b->member_count;
    bool ok = true;
    if (config->has_patterns && config->count == 0)
        return true;
    set_run(b, &c);
    if (!config->has_patterns)
        c.way = find_way(b, &c);
    for (size_t i = c.first; ok && i < c.end && b->card_steps <= most_card_steps; i++) {
        struct td_text path = td_text_skip(path_at(b, i), config->folder.len);
        ok = config->has_patterns ? add_by_patterns(b, &c, &b->items[i], path) : add_by_name(b, &c, &b->items[i], path);
    }
    bool is_empty = config->folder.len > 0 && !config->has_patterns && b->member_count == before;
    struct td_error why = TD_ERROR_INIT;
    if (is_empty)
        (void)td_error_set(&why, TD_INVALID_ARGUMENT, "configuration \"%.100s\" has no file with rows",
                           config->name == NULL ? "default" : config->name);
    return ok && (!is_empty || add_problem(b, dataset, "README.md", why.message));
}

/* Adds a problem for a card that does not parse, for the first thing in it that is not understood, and for each pattern
 * that matches no file. */
static bool add_card_problems(struct builder *b, struct td_dataset *dataset)
{
    const struct td_file *card = card_of(b->snapshot, b->repo);
    const char *damage = card == NULL ? NULL : td_file_damage(card);
    if (damage != NULL && !add_problem(b, dataset, "README.md", damage))
        return false;
    if (b->card.fault != NULL && !add_problem(b, dataset, "README.md", b->card.fault))
        return false;
    for (size_t i = 0; i < b->card.count; i++) {
        const struct td_card_pattern *pattern = &b->card.items[i];
        struct td_error why = TD_ERROR_INIT;
        if (b->is_used[i])
            continue;
        (void)td_error_set(&why, TD_INVALID_ARGUMENT, "no data file matches \"%.100s\" of split \"%.100s\"",
                           pattern->pattern, pattern->split);
        if (!add_problem(b, dataset, "README.md", why.message))
            return false;
    }
    return true;
}

static bool collect_splits(struct builder *b, struct td_dataset *dataset)
{
    static const struct td_card_config whole = {.folder = {.p = "", .len = 0}};
    b->is_used = td_arena_array(b->scratch, b->card.count, sizeof *b->is_used);
    if (b->is_used == NULL)
        return td_error_no_memory(b->err);
    memset(b->is_used, 0, b->card.count * sizeof *b->is_used);
    bool ok = list_items(b);
    if (ok && b->card.config_count == 0)
        ok = collect_config(b, &whole, false, dataset);
    for (size_t i = 0; ok && i < b->card.config_count; i++)
        ok = collect_config(b, &b->card.configs[i], i > 0, dataset);
    return ok && add_card_problems(b, dataset);
}

/* ---- splits ---- */

static int split_rank(struct td_text name)
{
    static const char *const first[] = {"train", "validation", "test"};
    int rank = 0;
    while (rank < 3 && !td_text_equals(name, first[rank]))
        rank++;
    return rank;
}

static int member_compare(const void *a, const void *b)
{
    const struct member *x = a;
    const struct member *y = b;
    int order = split_rank(x->split) - split_rank(y->split);
    if (order == 0)
        order = td_text_compare(x->split, y->split);
    return order != 0 ? order : (x->entry > y->entry) - (x->entry < y->entry); /* entries are sorted by path */
}

/* Returns the format of the most members; among equals the one that comes first. */
static const struct td_row_format *common_format(const struct member *members, size_t count)
{
    const struct td_row_format *best = NULL;
    size_t most = 0;
    const struct td_row_format *format = &td_row_format_images;
    for (size_t f = 0; format != NULL; format = td_row_format_at(f++)) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            n += members[i].format == format ? 1 : 0;
        if (n > most) {
            most = n;
            best = format;
        }
    }
    return best;
}

/* Makes both tags, of the split's name and of its files' paths and tags. */
static bool tag_split(struct builder *b, struct td_split *split)
{
    struct td_digest *digests[2] = {td_digest_create(), td_digest_create()};
    for (size_t k = 0; k < 2; k++) {
        td_digest_add_cstring(digests[k], split->name);
        td_digest_add_cstring(digests[k], split->format->name);
    }
    split->is_hashed = true;
    for (size_t i = 0; i < split->file_count; i++) {
        const struct td_split_file *file = &split->files[i];
        const struct td_entry *entries[2] = {file->entry, file->table};
        for (size_t k = 0; k < 2 && entries[k] != NULL; k++) {
            const char *path = td_repo_relative(b->repo, entries[k]);
            split->is_hashed = split->is_hashed && td_file_sha256(entries[k]->file) != NULL;
            td_digest_add_cstring(digests[0], path);
            td_digest_add_cstring(digests[0], td_file_tag(entries[k]->file));
            td_digest_add_cstring(digests[1], path);
            td_digest_add_cstring(digests[1], entries[k]->file->identity_tag);
        }
    }
    bool ok = td_digest_finish(digests[0], split->tag);
    ok = td_digest_finish(digests[1], split->former_tag) && ok;
    return ok || td_error_no_memory(b->err);
}

static bool add_file(struct builder *b, struct td_split *split, const struct member *member)
{
    const struct td_entry *entry = &b->snapshot->entries[member->entry];
    struct td_split_file *file = &split->files[split->file_count++];
    file->entry = entry;
    file->path = td_repo_relative(b->repo, entry);
    file->table = member->table;
    if (member->format->build != NULL) { // NOLINT(clang-analyzer-core.*): every member has its format
        file->rows = td_file_rows_get(&entry->file->rows, member->format,
                                      member->table == NULL ? 0 : member->table->file->number);
        if (file->rows == NULL)
            return td_error_no_memory(b->err);
    }
    if (!td_add_u64(split->file_bytes, entry->file->source.id.size_bytes, &split->file_bytes))
        split->file_bytes = UINT64_MAX; /* sparse files can be that large */
    return true;
}

/* Makes a split of its members, which follow one another. */
static bool add_split(struct builder *b, struct td_dataset *dataset, const struct member *members, size_t count)
{
    struct td_arena *arena = &b->snapshot->arena;
    struct td_split *split = &dataset->splits[dataset->split_count++];
    memset(split, 0, sizeof *split);
    split->format = common_format(members, count);
    split->name = td_arena_strndup(arena, members[0].split);
    split->files = td_arena_array(arena, count, sizeof *split->files);
    if (split->name == NULL || split->files == NULL)
        return td_error_no_memory(b->err);
    memset(split->files, 0, count * sizeof *split->files);
    for (size_t i = 0; i < count; i++) {
        const struct member *member = &members[i];
        bool fits = member->format == split->format;
        if (fits ? !add_file(b, split, member)
                 : !add_problem(b, dataset, td_repo_relative(b->repo, &b->snapshot->entries[member->entry]),
                                "left out: most files of its split have another format"))
            return false;
    }
    return tag_split(b, split);
}

/* Removes repeated members: a file that several patterns put into one split. The members must be sorted. */
static void drop_repeats(struct builder *b)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->member_count; i++)
        if (kept == 0 || member_compare(&b->members[kept - 1], &b->members[i]) != 0)
            b->members[kept++] = b->members[i];
    b->member_count = kept;
}

static bool add_splits(struct builder *b, struct td_dataset *dataset)
{
    size_t count = 1;
    qsort(b->members, b->member_count, sizeof *b->members, member_compare);
    drop_repeats(b);
    for (size_t i = 1; i < b->member_count; i++)
        count += td_text_compare(b->members[i - 1].split, b->members[i].split) != 0 ? 1 : 0;
    dataset->splits = td_arena_array(&b->snapshot->arena, count, sizeof *dataset->splits);
    if (dataset->splits == NULL)
        return td_error_no_memory(b->err);
    for (size_t first = 0, end; first < b->member_count; first = end) {
        end = first + 1;
        while (end < b->member_count && td_text_compare(b->members[first].split, b->members[end].split) == 0)
            end++;
        if (!add_split(b, dataset, b->members + first, end - first))
            return false;
    }
    return true;
}

static bool build_dataset(struct builder *b)
{
    struct td_snapshot *snapshot = b->snapshot;
    struct td_dataset dataset = {.id = b->repo->id, .repo = b->repo};
    b->member_count = 0;
    b->card_steps = 0;
    bool ok = collect_splits(b, &dataset);
    if (b->card_steps > most_card_steps) {
        td_problems_add(
            &snapshot->problems, &snapshot->arena, b->repo->folder,
            "not a dataset: the patterns of its README.md match too many files, or would take too long to match");
        b->member_count = 0;
    }
    ok = ok && (b->member_count == 0 || add_splits(b, &dataset));
    bool is_meant = b->repo->is_dataset_folder || (!b->repo->has_checkpoint && td_card_splits_declare(&b->card));
    bool is_dataset =
        b->member_count > 0 || (is_meant && dataset.problems.count > 0 && b->card_steps <= most_card_steps);
    if (ok && is_dataset && TD_ARRAY_GROW(b->datasets->items, b->datasets->count, b->dataset_capacity, b->err)) {
        b->datasets->items[b->datasets->count++] = dataset;
        return true;
    }
    free(dataset.problems.items);
    return ok && !is_dataset;
}

static int dataset_compare(const void *a, const void *b)
{
    const struct td_dataset *x = a;
    const struct td_dataset *y = b;
    int order = strcmp(x->id, y->id);
    return order != 0 ? order : (y->repo->is_dataset_folder ? 1 : 0) - (x->repo->is_dataset_folder ? 1 : 0);
}

/* Keeps one dataset for each id: that below datasets/. */
static void keep_one_of_each(struct td_snapshot *snapshot, struct td_datasets *datasets)
{
    size_t kept = 0;
    for (size_t i = 0; i < datasets->count; i++) {
        struct td_dataset *dataset = &datasets->items[i];
        if (kept > 0 && strcmp(datasets->items[kept - 1].id, dataset->id) == 0) {
            td_problems_add(&snapshot->problems, &snapshot->arena, dataset->repo->folder,
                            "not a dataset: one below datasets/ has its id");
            free(dataset->problems.items);
        } else {
            datasets->items[kept++] = *dataset;
        }
    }
    datasets->count = kept;
}

/* Frees what the datasets own beside the snapshot's arena. */
static void destroy_datasets(struct td_snapshot_part *part)
{
    struct td_datasets *datasets = (struct td_datasets *)(void *)part;
    for (size_t i = 0; i < datasets->count; i++) {
        struct td_dataset *dataset = &datasets->items[i];
        for (size_t k = 0; k < dataset->split_count; k++)
            free(atomic_load(&dataset->splits[k].rows));
        free(dataset->problems.items);
    }
    free(datasets->items);
    free(datasets);
}

/* Frees the datasets of a view; their splits are the snapshot's. */
static void destroy_copies(struct td_snapshot_part *part)
{
    struct td_datasets *datasets = (struct td_datasets *)(void *)part;
    free(datasets->items);
    free(datasets);
}

/* Gives the snapshot its list, which is empty. Returns NULL when out of memory. */
static struct td_datasets *begin_datasets(struct td_snapshot *snapshot, void (*destroy)(struct td_snapshot_part *part))
{
    struct td_datasets *datasets = calloc(1, sizeof *datasets);
    if (datasets == NULL)
        return NULL;
    datasets->part.destroy = destroy;
    (void)td_snapshot_add_part(snapshot, TD_PART_DATASETS, &datasets->part);
    return datasets;
}

const struct td_datasets *td_datasets_of(const struct td_snapshot *snapshot)
{
    static const struct td_datasets none = {.count = 0};
    return (const struct td_datasets *)(const void *)td_snapshot_part_or(snapshot, TD_PART_DATASETS, &none.part);
}

bool td_datasets_copy(struct td_snapshot *view, const struct td_snapshot *base,
                      const struct td_repo *(*repo_of)(void *context, size_t number), void *context,
                      struct td_error *err)
{
    const struct td_datasets *from = td_datasets_of(base);
    struct td_datasets *to = begin_datasets(view, destroy_copies);
    if (to == NULL)
        return td_error_no_memory(err);
    to->items = calloc(from->count + 1, sizeof *to->items);
    if (to->items == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < from->count; i++) {
        const struct td_repo *repo = repo_of(context, i);
        if (repo == NULL)
            continue;
        to->items[to->count] = from->items[i];
        to->items[to->count++].repo = repo;
    }
    return true;
}

bool td_datasets_build(struct td_snapshot *snapshot, struct td_error *err)
{
    struct td_datasets *datasets = begin_datasets(snapshot, destroy_datasets);
    if (datasets == NULL)
        return td_error_no_memory(err);
    struct td_arena scratch;
    struct builder b = {.snapshot = snapshot, .datasets = datasets, .scratch = &scratch, .err = err};
    bool ok = true;
    td_arena_init(&scratch, 0);
    const struct td_repos *repos = td_repos_of(snapshot);
    for (size_t i = 0; ok && i < repos->count; i++) {
        b.repo = &repos->items[i];
        b.card = (struct td_card_splits){0};
        if (b.repo->is_other_revision)
            continue;
        const struct td_file *card = card_of(snapshot, b.repo);
        const struct td_facts *facts = card == NULL ? NULL : card->facts;
        ok = facts == NULL || td_card_splits_read(td_text_n(facts->json, facts->json_len), &scratch, &b.card, err);
        ok = ok && (!may_be_dataset(&b) || build_dataset(&b));
        td_arena_fini(&scratch);
    }
    free(b.items);
    free(b.members);
    if (ok && datasets->count > 0)
        qsort(datasets->items, datasets->count, sizeof *datasets->items, dataset_compare);
    if (ok)
        keep_one_of_each(snapshot, datasets);
    return ok;
}

/* ---- finding ---- */

static struct td_text dataset_id(const void *context, size_t i)
{
    return td_text_of(((const struct td_dataset *)context)[i].id);
}

static const struct td_dataset *find_by_id(const struct td_snapshot *snapshot, struct td_text id)
{
    const struct td_datasets *datasets = td_datasets_of(snapshot);
    struct td_names names = {.count = datasets->count, .context = datasets->items, .get = dataset_id};
    bool found;
    size_t at = td_names_search(&names, id, &found);
    return found ? &datasets->items[at] : NULL;
}

const struct td_dataset *td_dataset_find(const struct td_snapshot *snapshot, struct td_text id)
{
    const struct td_dataset *dataset = find_by_id(snapshot, id);
    const struct td_repo *repo = dataset == NULL ? td_repo_find(snapshot, true, id) : NULL;
    return repo == NULL ? dataset : find_by_id(snapshot, td_text_of(repo->id));
}

size_t td_datasets_after(const struct td_snapshot *snapshot, struct td_text id)
{
    const struct td_datasets *datasets = td_datasets_of(snapshot);
    struct td_names names = {.count = datasets->count, .context = datasets->items, .get = dataset_id};
    bool found;
    size_t at = td_names_search(&names, id, &found);
    return found ? at + 1 : at;
}

const struct td_split *td_dataset_find_split(const struct td_dataset *dataset, struct td_text name)
{
    for (size_t i = 0; i < dataset->split_count; i++)
        if (td_text_equals(name, dataset->splits[i].name))
            return &dataset->splits[i];
    return NULL;
}

/* ---- rows ---- */

struct td_split_progress td_split_progress(const struct td_split *split)
{
    struct td_split_progress progress = {0};
    for (size_t i = 0; i < split->file_count; i++) {
        const struct td_split_file *file = &split->files[i];
        uint64_t size = file->entry->file->source.id.size_bytes;
        enum td_rows_state state =
            file->rows == NULL ? TD_ROWS_READY : atomic_load_explicit(&file->rows->state, memory_order_acquire);
        uint64_t done = state == TD_ROWS_PENDING ? atomic_load(&file->rows->done_bytes) : size;
        progress.ready_count += state == TD_ROWS_READY ? 1 : 0;
        progress.failed_count += state == TD_ROWS_FAILED ? 1 : 0;
        if (state == TD_ROWS_FAILED && progress.failed == NULL)
            progress.failed = file;
        if (!td_add_u64(progress.done_bytes, done < size ? done : size, &progress.done_bytes))
            progress.done_bytes = UINT64_MAX;
    }
    return progress;
}

/* Returns a new description of the split's rows; NULL when memory is short. All indexes are there. */
static struct td_split_rows *make_rows(const struct td_split *split)
{
    struct td_split_rows *rows = calloc(1, sizeof *rows + split->file_count * sizeof *rows->ends);
    struct td_digest *digest = td_digest_create();
    for (size_t i = 0; i < split->file_count && rows != NULL; i++) {
        const struct td_split_file *file = &split->files[i];
        uint64_t count = file->rows == NULL ? 1 : file->rows->index.row_count;
        const char *sample = file->rows == NULL ? "" : file->rows->sample;
        uint64_t size = file->entry->file->source.id.size_bytes;
        bool fits = count <= most_rows && rows->row_count <= most_rows - count; /* rows of no bytes may be any number */
        rows->row_count += fits ? count : 0;
        rows->ends[i] = rows->row_count;
        if (rows->reason == NULL && !fits)
            rows->reason = "there are more rows than can be numbered";
        if (rows->reason == NULL && file->rows != NULL)
            rows->reason = file->rows->index.reason;
        td_digest_add(digest, &count, sizeof count);
        td_digest_add(digest, &size, sizeof size);
        td_digest_add_cstring(digest, sample);
        td_digest_add_cstring(digest, file->path);
    }
    char fingerprint[TD_TAG_BYTES];
    bool ok = td_digest_finish(digest, fingerprint) && rows != NULL;
    if (!ok) {
        free(rows);
        return NULL;
    }
    memcpy(rows->fingerprint, fingerprint, sizeof fingerprint);
    return rows;
}

const struct td_split_rows *td_split_rows_get(const struct td_split *split, struct td_error *err)
{
    _Atomic(struct td_split_rows *) *place = &((struct td_split *)(uintptr_t)split)->rows; /* a cache */
    struct td_split_rows *rows = atomic_load_explicit(place, memory_order_acquire), *none = NULL;
    if (rows != NULL)
        return rows;
    struct td_split_progress progress = td_split_progress(split);
    if (progress.failed != NULL) {
        (void)td_error_set(err, TD_FAILED_PRECONDITION, "split \"%.100s\": \"%.160s\" has no rows: %s", split->name,
                           td_base_name(progress.failed->entry->path), progress.failed->rows->error);
        return NULL;
    }
    if (progress.ready_count < split->file_count) {
        (void)td_error_set(err, TD_RESOURCE_EXHAUSTED,
                           "the index of split \"%.100s\" is being made: %" PRIu64 " of %" PRIu64
                           " bytes are done; try again",
                           split->name, progress.done_bytes, split->file_bytes);
        return NULL;
    }
    rows = make_rows(split);
    if (rows == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (atomic_compare_exchange_strong_explicit(place, &none, rows, memory_order_acq_rel, memory_order_acquire))
        return rows;
    free(rows); /* another thread was first */
    return none;
}

size_t td_split_locate(const struct td_split *split, const struct td_split_rows *rows, uint64_t row, uint64_t *within)
{
    size_t low = 0, high = split->file_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows->ends[middle] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    *within = row - (low == 0 ? 0 : rows->ends[low - 1]);
    return low;
}
