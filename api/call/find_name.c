#include "api/call/find_name.h"

#include <stdio.h>
#include <string.h>

enum { MOST_MODELS = 3 };

/* Writes "; below it are a, b, ...". Returns false when nothing is below the name. */
static bool advise_below(const struct td_snapshot *snapshot, struct td_text id, char out[TD_NAME_ADVICE_BYTES])
{
    size_t first;
    size_t count;
    size_t listed = 0;
    td_snapshot_models_below(snapshot, id, &first, &count);
    size_t used = (size_t)snprintf(out, TD_NAME_ADVICE_BYTES, "; below it are");
    for (size_t i = first; i < first + count && listed <= MOST_MODELS; i++) {
        const struct td_model *model = &snapshot->models[i];
        if (model->is_other_revision)
            continue;
        listed++;
        used += listed > MOST_MODELS ? (size_t)snprintf(out + used, TD_NAME_ADVICE_BYTES - used, ", ...")
                                     : (size_t)snprintf(out + used, TD_NAME_ADVICE_BYTES - used, "%s \"%.200s\"",
                                                        listed > 1 ? "," : "", model->id);
    }
    return listed > 0;
}

void td_name_advise(const struct td_snapshot *snapshot, struct td_text id, char out[TD_NAME_ADVICE_BYTES])
{
    size_t len = id.len > 0 && id.p[id.len - 1] == '/' ? id.len - 1 : id.len;
    const char *name = td_repo_resolve(snapshot, id.p, &len);
    const struct td_repo *repo = td_repo_find(snapshot, false, td_text_n(name, len));
    bool is_dataset = repo == NULL || td_repo_is_dataset(repo);
    if (repo == NULL)
        repo = td_repo_find(snapshot, true, td_text_n(name, len));
    if (advise_below(snapshot, td_text_n(name, len), out))
        return;
    out[0] = '\0';
    if (repo != NULL)
        (void)snprintf(out, TD_NAME_ADVICE_BYTES,
                       "; there is a repository \"%.200s\": %s/%.200s/resolve/main/; GET /api/%s", repo->hub_id,
                       is_dataset ? "/datasets" : "", repo->hub_id,
                       is_dataset ? "datasets lists datasets" : "models lists repositories");
}

/* Returns the repository with an id that differs in the case of letters alone, or NULL. */
static const struct td_repo *find_ignoring_case(const struct td_snapshot *snapshot, bool as_dataset, struct td_text id)
{
    const struct td_repos *repos = td_repos_of(snapshot);
    for (size_t i = 0; i < repos->count; i++) {
        const struct td_repo *repo = &repos->items[i];
        if (!repo->is_other_revision && repo->is_dataset_folder == as_dataset &&
            (td_text_equals_ignore_case(id, repo->id) || td_text_equals_ignore_case(id, repo->hub_id)))
            return repo;
    }
    return NULL;
}

void td_name_advise_repo(const struct td_snapshot *snapshot, bool as_dataset, struct td_text path,
                         char out[TD_NAME_ADVICE_BYTES])
{
    const char *folder;
    const struct td_repo *repo = td_repo_above(snapshot, as_dataset, path, &folder);
    out[0] = '\0';
    if (repo == NULL) {
        repo = find_ignoring_case(snapshot, as_dataset, path);
        if (repo != NULL)
            (void)snprintf(out, TD_NAME_ADVICE_BYTES, "did you mean \"%.200s\"?; ", repo->hub_id);
        return;
    }
    struct td_text below = td_text_n(folder, (size_t)(path.p + path.len - folder));
    (void)snprintf(out, TD_NAME_ADVICE_BYTES,
                   "it is the folder \"%.*s\" of \"%.200s\": ask for that with subfolder=\"%.*s\"; ",
                   TD_SHOW(below, 200), repo->hub_id, TD_SHOW(below, 200));
}

/* ---- pages --------------------------------------------------------------------------------------------- */

bool td_name_find_page(const struct td_snapshot *snapshot, struct td_text path, struct td_named_page *out)
{
    static const char datasets[] = "datasets/";
    const size_t datasets_len = sizeof datasets - 1;
    memset(out, 0, sizeof *out);
    if (path.len > 0 && path.p[0] == '/')
        path = td_text_skip(path, 1);
    if (path.len > 0 && path.p[path.len - 1] == '/')
        path.len--;
    size_t len = path.len;
    const char *name = td_repo_resolve(snapshot, path.p, &len);
    out->model = td_snapshot_find_model(snapshot, td_text_n(name, len));
    if (out->model != NULL)
        return true;
    out->as_dataset = path.len > datasets_len && memcmp(path.p, datasets, datasets_len) == 0;
    if (out->as_dataset)
        out->repo = td_repo_find(snapshot, true, td_text_n(path.p + datasets_len, path.len - datasets_len));
    if (out->repo == NULL) {
        out->as_dataset = false;
        out->repo = td_repo_find(snapshot, false, td_text_n(name, len));
    }
    return out->repo != NULL;
}
