#include "http/trailers.h"

#include <stdlib.h>

bool td_trailers_add(struct td_trailers *trailers, const char *name, struct td_buffer *value)
{
    size_t len;
    td_buffer_putc(value, '\0');
    char *text = td_buffer_release(value, &len);
    if (text == NULL || trailers->count == TD_TRAILERS) {
        free(text);
        return false;
    }
    trailers->fields[trailers->count++] = (struct td_trailer){.name = name, .value = text};
    return true;
}

void td_trailers_fini(struct td_trailers *trailers)
{
    for (size_t i = 0; i < trailers->count; i++)
        free(trailers->fields[i].value);
    trailers->count = 0;
}
