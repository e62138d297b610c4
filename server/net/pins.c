#include "server/net/pins.h"

bool td_pins_add(struct td_pins *pins, const struct td_body *body)
{
    size_t count = 0;
    for (size_t i = 0; i < body->extent_count; i++) {
        const struct td_blob *blob = body->extents[i].blob;
        size_t k = 0;
        if (blob->class->pinned == NULL) /* memory of the program: nobody writes to it */
            continue;
        while (k < count && atomic_load_explicit(&pins->blobs[k], memory_order_relaxed) != blob)
            k++;
        if (k == TD_PINNED_BLOBS) {
            td_pins_clear(pins);
            return false;
        }
        if (k == count)
            atomic_store(&pins->blobs[count++], blob);
    }
    return true;
}

void td_pins_clear(struct td_pins *pins)
{
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        if (atomic_load_explicit(&pins->blobs[i], memory_order_relaxed) != NULL)
            atomic_store(&pins->blobs[i], NULL);
}

bool td_pins_have(const struct td_pins *pins, const struct td_blob *blob)
{
    bool have = false;
    for (size_t i = 0; i < TD_PINNED_BLOBS; i++)
        have = have || atomic_load(&pins->blobs[i]) == blob;
    return have;
}
