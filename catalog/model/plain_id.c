#include "catalog/model/plain_id.h"

#include <string.h>

/* Returns where "@commit" begins in the path, or NULL. */
static const char *find_commit(const struct td_model *model, const char *path)
{
    if (!model->is_other_revision || model->revision == NULL)
        return NULL;
    size_t len = strlen(model->revision);
    const char *mark = strchr(path, '@');
    while (mark != NULL &&
           (strncmp(mark + 1, model->revision, len) != 0 || (mark[1 + len] != '\0' && mark[1 + len] != '/')))
        mark = strchr(mark + 1, '@');
    return mark;
}

struct td_plain_path td_plain_path(const struct td_model *model, const char *path)
{
    const char *mark = find_commit(model, path);
    if (mark == NULL)
        return (struct td_plain_path){.before = td_text_of(path), .after = TD_TEXT("")};
    size_t before = (size_t)(mark - path);
    before -= model->is_of_subfolder && before > 0 ? 1 : 0; /* the first '@' of two */
    return (struct td_plain_path){.before = td_text_n(path, before),
                                  .after = td_text_of(mark + 1 + strlen(model->revision))};
}

void td_plain_path_digest(const struct td_model *model, const char *path, struct td_digest *digest)
{
    const struct td_plain_path plain = td_plain_path(model, path);
    uint64_t len = plain.before.len + plain.after.len;
    td_digest_add_content(digest, &len, sizeof len);
    td_digest_add_content(digest, plain.before.p, plain.before.len);
    td_digest_add_content(digest, plain.after.p, plain.after.len);
}
