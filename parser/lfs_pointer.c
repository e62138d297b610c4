#include "parser/lfs_pointer.h"

#include "core/text.h"

#define VERSION "version https://git-lfs"

bool td_lfs_pointer_begins(const uint8_t *head, size_t len)
{
    return td_text_begins(td_text_n((const char *)head, len), TD_TEXT(VERSION));
}

bool td_lfs_pointer_check(const struct td_input *input, bool *is, struct td_error *err)
{
    uint8_t head[sizeof VERSION - 1];
    *is = false;
    if (input->size_bytes < sizeof head || input->size_bytes >= TD_LFS_POINTER_BYTES)
        return true;
    if (!td_input_read(input, 0, head, sizeof head, err))
        return false;
    *is = td_lfs_pointer_begins(head, sizeof head);
    return true;
}
