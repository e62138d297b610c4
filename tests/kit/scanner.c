#include "tests/kit/scanner.h"

#include "tests/kit/kit.h"

void scanner_open(struct scanner *scanner, const struct tree *tree)
{
    struct td_error err = TD_ERROR_INIT;
    memset(scanner, 0, sizeof *scanner);
    KIT_CHECK(td_root_create(tree->path, &scanner->root, &err));
    KIT_CHECK(td_mapping_cache_init(&scanner->maps, 64, 0, false, &err));
    scanner->config = td_scan_config_default();
    scanner->config.settle_ns = 0;
}

void scanner_close(struct scanner *scanner)
{
    td_snapshot_unref(scanner->snapshot);
    td_unsettled_list_fini(&scanner->unsettled);
    td_mapping_cache_fini(&scanner->maps);
    td_root_unref(scanner->root);
}

bool scanner_try(struct scanner *scanner, struct td_error *err)
{
    struct td_snapshot *snapshot = NULL;
    if (!td_scan(scanner->root, &scanner->maps, scanner->snapshot, &scanner->config, &scanner->unsettled,
                 &scanner->progress, &scanner->stop, &snapshot, err))
        return false;
    td_snapshot_unref(scanner->snapshot);
    scanner->snapshot = snapshot;
    return true;
}

const struct td_snapshot *scanner_scan(struct scanner *scanner)
{
    struct td_error err = TD_ERROR_INIT;
    KIT_CHECK(scanner_try(scanner, &err));
    return scanner->snapshot;
}

const struct td_model *scanner_model(const struct scanner *scanner, const char *id)
{
    return td_snapshot_find_model(scanner->snapshot, td_text_of(id));
}

const struct td_entry *scanner_entry(const struct scanner *scanner, const char *path)
{
    return td_snapshot_find_entry(scanner->snapshot, td_text_of(path));
}

const char *scanner_problem(const struct scanner *scanner, const struct td_model *model, const char *path)
{
    const struct td_problems *problems = model == NULL ? &scanner->snapshot->problems : &model->problems;
    for (size_t i = 0; i < problems->count; i++)
        if (strcmp(problems->items[i].path, path) == 0)
            return problems->items[i].message;
    return NULL;
}
