/* Writes the headers of layers, for tests/interop/test_tar_layer.py to compare with Python's own reading.
 *
 * Standard input: lines of a size in bytes, a blank, and a path. Standard output: an archive with the headers of each
 * file as if it were alone, without contents. */
#include "rank/tar_layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char line[8192];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *path;
        struct td_buffer out;
        uint64_t size_bytes = strtoull(line, &path, 10);
        if (*path++ != ' ' || strchr(path, '\n') == NULL)
            return 1;
        *strchr(path, '\n') = '\0';
        const struct td_tar_file file = {.path = path, .size_bytes = size_bytes, .sha256 = ""};
        td_buffer_init(&out);
        td_tar_write_header(&out, &file, NULL);
        if (out.failed || fwrite(out.data, 1, out.len, stdout) != out.len)
            return 1;
        td_buffer_fini(&out);
    }
    return 0;
}
