#include "catalog/checkpoints/gguf_role.h"

#include "core/text.h"
#include "parser/format/metadata.h"

#include <string.h>

/* Returns the value of a key, as JSON, or NULL. */
static const char *value_of(const struct td_manifest *manifest, const char *key)
{
    return td_metadata_find(manifest->metadata, manifest->metadata_count, key);
}

static bool has_word(const char *file_name, const char *word)
{
    for (const char *p = file_name; *p != '\0'; p++)
        if (td_text_begins_ignore_case(td_text_of(p), word))
            return true;
    return false;
}

bool td_gguf_is_model(const struct td_manifest *manifest, const char *file_name)
{
    static const char *const other_keys[] = {"adapter.type", "imatrix.datasets", "imatrix.chunk_count"};
    static const char *const other_architectures[] = {"\"clip\"", "\"controlvector\""};
    static const char *const other_words[] = {"mmproj", "imatrix", "draft", "mtp-", "eagle3-", "dflash-", "dspark-"};
    const char *type = value_of(manifest, "general.type");
    const char *architecture = value_of(manifest, "general.architecture");
    bool is_model = type == NULL || strcmp(type, "\"model\"") == 0;
    for (size_t i = 0; i < sizeof other_keys / sizeof *other_keys; i++)
        is_model = is_model && value_of(manifest, other_keys[i]) == NULL;
    for (size_t i = 0; i < sizeof other_architectures / sizeof *other_architectures; i++)
        is_model = is_model && (architecture == NULL || strcmp(architecture, other_architectures[i]) != 0);
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words; i++)
        is_model = is_model && !has_word(file_name, other_words[i]);
    return is_model;
}
