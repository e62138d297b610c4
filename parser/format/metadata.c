#include "parser/format/metadata.h"

#include "core/json/json.h"
#include "core/utf8.h"

#include <string.h>

static struct td_text metadata_key(const void *context, size_t i)
{
    const struct td_metadata *metadata = context;
    return td_text_of(metadata[i].key);
}

struct td_names td_metadata_keys(const struct td_metadata *metadata, size_t count)
{
    return (struct td_names){.count = count, .context = metadata, .get = metadata_key};
}

const char *td_metadata_find(const struct td_metadata *metadata, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(metadata[i].key, key) == 0)
            return metadata[i].value;
    return NULL;
}

void td_metadata_write_text(struct td_buffer *out, struct td_text shown, bool is_utf8, uint64_t len)
{
    char escaped[4 * TD_METADATA_TEXT_MAX + 1];
    if (shown.len < len) {
        td_buffer_puts(out, "{\"length\":");
        td_buffer_u64(out, len);
        td_buffer_puts(out, ",\"first\":");
    }
    if (is_utf8) {
        td_json_write_string(out, shown);
    } else {
        td_utf8_escape(shown, escaped, sizeof escaped);
        td_json_write_cstring(out, escaped);
    }
    if (shown.len < len)
        td_buffer_putc(out, '}');
}
