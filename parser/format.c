#include "parser/format.h"

#include "parser/safetensors.h"

#include <stddef.h>
#include <string.h>

static const struct td_format *const formats[] = {
    &td_format_safetensors,
};

static bool has_extension(const char *file_name, const char *extension)
{
    size_t len = strlen(file_name);
    size_t tail = strlen(extension);
    return len > tail && memcmp(file_name + len - tail, extension, tail) == 0;
}

const struct td_format *td_format_for_name(const char *file_name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (const char *const *extension = formats[i]->extensions; *extension != NULL; extension++)
            if (has_extension(file_name, *extension))
                return formats[i];
    return NULL;
}

bool td_format_parse(const char *file_name, const struct td_input *input, const struct td_limits *limits,
                     const struct td_format **format, struct td_manifest *manifest, struct td_error *err)
{
    *format = td_format_for_name(file_name);
    return *format == NULL || (*format)->parse(input, limits, manifest, err);
}
