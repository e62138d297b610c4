/* Files of images, by their names. */
#ifndef TD_CATALOG_MODEL_IMAGE_FILE_H
#define TD_CATALOG_MODEL_IMAGE_FILE_H

#include <stdbool.h>

/* Returns whether the name has the extension of an image, in upper or lower case: .jpg, .jpeg, .png, .webp, .gif, .bmp,
 * .tif, .tiff. */
bool td_is_image_file(const char *name);

#endif
