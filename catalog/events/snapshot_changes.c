/* Plan: list_subjects() lists everything of a snapshot that events are about, sorted. find() walks through the lists of
 * both snapshots side by side. */
#include "catalog/events/snapshot_changes.h"

#include "catalog/dataset/dataset.h"
#include "catalog/names/repo.h"

#include <stdlib.h>
#include <string.h>

static const char main_revision[] = "main";

/* One name that events are about. All texts are the snapshot's. */
struct subject {
    bool is_dataset;
    const char *id;
    const char *revision, *commit; /* empty: not in a cache */
    /* at most one of the two: without both, the commit alone says what the name stands for */
    const struct td_model *model;
    const struct td_dataset *dataset;
};

struct subjects {
    struct subject *items; /* owned */
    size_t count;
};

static int compare_names(const struct subject *a, const struct subject *b)
{
    int order = (int)a->is_dataset - (int)b->is_dataset;
    if (order == 0)
        order = strcmp(a->id, b->id);
    return order != 0 ? order : strcmp(a->revision, b->revision);
}

static int compare_subjects(const void *a, const void *b)
{
    return compare_names(a, b);
}

/* Adds a model or a dataset. revision: its commit in a cache, or NULL. */
static void add_subject(struct subjects *subjects, struct subject subject, const char *revision)
{
    subject.revision = revision == NULL ? "" : main_revision;
    subject.commit = revision == NULL ? "" : revision;
    subjects->items[subjects->count++] = subject;
}

/* Returns whether the repository is in the list of datasets or of models, as a whole. */
static bool is_listed(const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    const struct td_model *model = td_snapshot_find_model(snapshot, td_text_of(repo->id));
    const struct td_dataset *dataset = td_dataset_find(snapshot, td_text_of(repo->id));
    return (model != NULL && !repo->is_dataset_folder && !model->is_other_revision) ||
           (dataset != NULL && dataset->repo == repo);
}

/* Adds the branches and tags of a repository in a cache. */
static void add_refs(struct subjects *subjects, const struct td_snapshot *snapshot, const struct td_repo *repo)
{
    bool is_dataset = td_repo_is_dataset(repo);
    if (repo->revision != NULL && !is_listed(snapshot, repo))
        add_subject(subjects, (struct subject){.is_dataset = is_dataset, .id = repo->id}, repo->revision);
    for (size_t i = 0; i < repo->ref_count; i++)
        if (strcmp(repo->refs[i].name, main_revision) != 0)
            subjects->items[subjects->count++] = (struct subject){.is_dataset = is_dataset,
                                                                  .id = repo->id,
                                                                  .revision = repo->refs[i].name,
                                                                  .commit = repo->refs[i].commit};
}

/* Lists the subjects of a snapshot, sorted by name. Returns false when memory is short. */
static bool list_subjects(const struct td_snapshot *snapshot, struct subjects *out)
{
    const struct td_repos *repos = td_repos_of(snapshot);
    const struct td_datasets *datasets = td_datasets_of(snapshot);
    size_t most = snapshot->model_count + datasets->count + repos->count;
    for (size_t i = 0; i < repos->count; i++)
        most += repos->items[i].ref_count;
    *out = (struct subjects){.items = malloc((most + 1) * sizeof *out->items)};
    if (out->items == NULL)
        return false;
    for (size_t i = 0; i < snapshot->model_count; i++)
        if (!snapshot->models[i].is_other_revision)
            add_subject(out, (struct subject){.id = snapshot->models[i].id, .model = &snapshot->models[i]},
                        snapshot->models[i].revision);
    for (size_t i = 0; i < datasets->count; i++)
        add_subject(out,
                    (struct subject){.is_dataset = true, .id = datasets->items[i].id, .dataset = &datasets->items[i]},
                    datasets->items[i].repo->revision);
    for (size_t i = 0; i < repos->count; i++)
        if (!repos->items[i].is_other_revision)
            add_refs(out, snapshot, &repos->items[i]);
    qsort(out->items, out->count, sizeof *out->items, compare_subjects);
    return true;
}

static bool have_same_problems(const struct td_problems *a, const struct td_problems *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i].path, b->items[i].path) != 0 || strcmp(a->items[i].message, b->items[i].message) != 0)
            return false;
    return true;
}

/* Returns whether the datasets have the same splits of the same files. */
static bool are_same_datasets(const struct td_dataset *a, const struct td_dataset *b)
{
    if (a->split_count != b->split_count || !have_same_problems(&a->problems, &b->problems))
        return false;
    for (size_t i = 0; i < a->split_count; i++)
        if (strcmp(a->splits[i].name, b->splits[i].name) != 0 ||
            strcmp(a->splits[i].former_tag, b->splits[i].former_tag) != 0)
            return false;
    return true;
}

/* Returns whether the name stands for the same content in both snapshots. */
static bool is_same_content(const struct subject *a, const struct subject *b)
{
    if (strcmp(a->commit, b->commit) != 0 || (a->model == NULL) != (b->model == NULL) ||
        (a->dataset == NULL) != (b->dataset == NULL))
        return false;
    if (a->model != NULL)
        return strcmp(a->model->tag, b->model->tag) == 0;
    return a->dataset == NULL || are_same_datasets(a->dataset, b->dataset);
}

static void add_event(struct td_snapshot_changes *changes, enum td_event_type type, const struct subject *subject)
{
    struct td_event *event = NULL;
    if (changes->count < TD_EVENTS_MAX && !changes->are_incomplete)
        event = td_event_create(type, subject->is_dataset, subject->id, subject->revision, subject->commit);
    if (event != NULL)
        changes->events[changes->count++] = event;
    else
        changes->are_incomplete = true;
}

/* Compares the two sorted lists. */
static void find(struct td_snapshot_changes *changes, const struct subjects *before, const struct subjects *after)
{
    size_t i = 0;
    size_t k = 0;
    while ((i < before->count || k < after->count) && !changes->are_incomplete) {
        int order = i == before->count  ? 1
                    : k == after->count ? -1
                                        : compare_names(&before->items[i], &after->items[k]);
        if (order < 0)
            add_event(changes, TD_EVENT_REMOVED, &before->items[i]);
        else if (order > 0)
            add_event(changes, TD_EVENT_PUBLISHED, &after->items[k]);
        else if (!is_same_content(&before->items[i], &after->items[k]))
            add_event(changes, TD_EVENT_REPLACED, &after->items[k]);
        i += order <= 0 ? 1 : 0;
        k += order >= 0 ? 1 : 0;
    }
}

struct td_snapshot_changes *td_snapshot_changes_find(const struct td_snapshot *before, const struct td_snapshot *after)
{
    struct subjects old = {.items = NULL};
    struct subjects now = {.items = NULL};
    struct td_snapshot_changes *changes = malloc(sizeof *changes);
    if (changes == NULL)
        return NULL;
    changes->count = 0;
    changes->are_incomplete = !list_subjects(before, &old) || !list_subjects(after, &now);
    find(changes, &old, &now);
    free(old.items);
    free(now.items);
    return changes;
}

void td_snapshot_changes_add(struct td_snapshot_changes *changes, struct td_event_ring *ring)
{
    if (changes != NULL && !changes->are_incomplete) {
        td_event_ring_add(ring, changes->events, changes->count);
    } else {
        td_event_ring_lose(ring);
        for (size_t i = 0; changes != NULL && i < changes->count; i++)
            td_event_unref(changes->events[i]);
    }
    free(changes);
}
