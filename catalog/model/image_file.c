#include "catalog/model/image_file.h"

#include "core/text.h"

#include <stddef.h>

bool td_is_image_file(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (td_has_extension_any_case(name, extensions[i]))
            return true;
    return false;
}
