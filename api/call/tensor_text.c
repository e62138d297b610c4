#include "api/call/tensor_text.h"

#include "core/digits.h"
#include "http/uri.h"

#include <string.h>

/* Returns whether the name, which is not empty, has a segment that clients or proxies remove from a path: ".", ".." or
 * an empty one. */
static bool has_lost_segment(const char *name)
{
    for (;;) {
        size_t len = strcspn(name, "/");
        if (len == 0 || (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
            return true;
        if (name[len] == '\0')
            return false;
        name += len + 1;
    }
}

/* Returns whether the name is "." or "..", or one of them after '/'. As a segment of a path clients remove it even when
 * its dots are escaped (https://url.spec.whatwg.org/#double-dot-path-segment). */
static bool is_dots(struct td_text name)
{
    while (td_text_take_char(&name, '/'))
        continue;
    return td_text_equals(name, ".") || td_text_equals(name, "..");
}

/* Writes such a name as one segment, with every dot escaped. */
static void write_one_segment(struct td_buffer *out, const struct td_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->name_len; i++) {
        if (tensor->name[i] == '.')
            td_buffer_puts(out, "%2E");
        else
            td_uri_encode(out, td_text_n(tensor->name + i, 1), false);
    }
}

const char *td_checkpoint_write_query(struct td_buffer *out, const char *separator, const struct td_shown_model *shown,
                                      const struct td_model *model, const struct td_checkpoint *checkpoint)
{
    separator = td_shown_model_write_query(shown, separator, out);
    if (checkpoint->lacks != NULL) {
        td_buffer_printf(out, "%spartial=1", separator);
        separator = "&";
    }
    if (!td_model_is_default_checkpoint(model, checkpoint)) {
        td_buffer_printf(out, "%scheckpoint=", separator);
        td_uri_encode(out, td_text_of(checkpoint->id), false);
        separator = "&";
    }
    return separator;
}

const char *td_tensor_write_path(struct td_buffer *out, const char *word, const struct td_shown_model *shown,
                                 const struct td_model *model, const struct td_checkpoint *checkpoint,
                                 const struct td_tensor *tensor)
{
    td_shown_model_write_path(shown, word, out);
    td_buffer_putc(out, '/');
    if (is_dots(td_tensor_name(tensor)))
        td_buffer_puts(out, "%2F");
    if (tensor->name_len > 0 && has_lost_segment(tensor->name))
        write_one_segment(out, tensor);
    else
        td_uri_encode(out, td_tensor_name(tensor), true);
    return td_checkpoint_write_query(out, "?", shown, model, checkpoint);
}

bool td_tensor_find_in_path(const struct td_checkpoint *checkpoint, struct td_text name, size_t *number)
{
    struct td_text bare = name;
    return (td_text_take_char(&bare, '/') && is_dots(bare) && td_checkpoint_find_number(checkpoint, bare, number)) ||
           td_checkpoint_find_number(checkpoint, name, number);
}

void td_tensor_write_numbers(struct td_buffer *out, const uint64_t *numbers, uint32_t count)
{
    td_buffer_putc(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            td_buffer_putc(out, ',');
        td_buffer_u64(out, numbers[i]);
    }
    td_buffer_putc(out, ']');
}

void td_tensor_write_shape(struct td_buffer *out, const struct td_tensor *tensor)
{
    td_tensor_write_numbers(out, tensor->shape, tensor->rank);
}

void td_tensor_write_strides(struct td_buffer *out, const struct td_tensor *tensor)
{
    td_tensor_write_numbers(out, tensor->strides, tensor->rank);
}

void td_tensor_add_numbers(struct td_document *json, const char *key, const uint64_t *numbers, uint32_t count)
{
    td_document_begin_array(json, key);
    for (uint32_t i = 0; i < count; i++)
        td_document_add_u64(json, NULL, numbers[i]);
    td_document_end(json);
}

void td_tensor_add_facts(struct td_document *json, const struct td_tensor_facts *facts)
{
    td_document_add_text(json, "name", facts->name);
    td_document_add_string(json, "dtype", facts->dtype->name);
    td_tensor_add_numbers(json, "shape", facts->shape, facts->rank);
    td_document_add_u64(json, "nbytes", facts->nbytes);
}

void td_tensor_add_sha256(struct td_document *json, const uint8_t sum[TD_SHA256_BYTES])
{
    char text[TD_SHA256_TEXT_BYTES];
    td_hex_write(sum, TD_SHA256_BYTES, text);
    td_document_add_string(json, "sha256", text);
}
