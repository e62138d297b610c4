/* The comparison of two checkpoints: which tensors only one of them has, and which differ in type, shape or content.
 *
 * Two tensors of one name, type and shape have the same content if they are stored alike, at one offset of files with
 * equal SHA-256, or if they have equal content keys or equal digests (rank/tensor_sums.h). Where neither is known,
 * their bytes are read and compared, those of small tensors first, up to a number of bytes and for a limited time.
 * Nothing is hashed. For one thread. */
#ifndef TD_RANK_COMPARISON_H
#define TD_RANK_COMPARISON_H

#include "core/cancel.h"
#include "rank/tensor_sums.h"

enum td_change {
    TD_CHANGE_SAME,
    TD_CHANGE_ADDED,   /* b alone has a tensor of this name */
    TD_CHANGE_REMOVED, /* a alone has one */
    TD_CHANGE_DTYPE,   /* the types differ, and perhaps the shapes */
    TD_CHANGE_SHAPE,   /* the shapes differ */
    TD_CHANGE_CONTENT, /* only the bytes differ */
    TD_CHANGE_UNKNOWN, /* type and shape are the same, and the bytes were not compared */
    TD_CHANGES
};

/* Returns the change's name: "same", "added" and so on. Static. */
const char *td_change_name(enum td_change change);

/* Limits of reading. */
struct td_comparison_limits {
    uint64_t read_bytes;            /* the most bytes of tensors that are read of each checkpoint */
    uint64_t read_ns;               /* the most time that reading takes */
    const struct td_cancel *cancel; /* ends the comparison early; borrowed; may be NULL */
};

/* A tensor that is not the same on both sides. */
struct td_compared {
    uint32_t a, b; /* its number in each checkpoint, from 1 on; 0: the checkpoint has no tensor of the name */
    enum td_change change;
};

struct td_comparison {
    struct td_tensor_sums_source a, b; /* without files */
    struct td_budget *budget;
    struct td_compared *items; /* sorted by name; without TD_CHANGE_SAME */
    size_t count, capacity;
    uint64_t counts[TD_CHANGES]; /* tensors by change */
};

/* Compares checkpoint `a` with checkpoint `b`. Borrows the sources and the budget until td_comparison_fini. Takes 12
 * bytes of the budget for each difference, and while it runs 256 KiB and 4 bytes for each tensor of unknown content.
 * `digests` has the known digests of tensors. A tensor that cannot be read, since its file has changed or is damaged,
 * counts as TD_CHANGE_UNKNOWN. The caller calls td_comparison_fini in every case. Errors: as td_may_wait;
 * TD_UNAVAILABLE once limits->cancel is asked; TD_RESOURCE_EXHAUSTED; as td_budget_refuse. */
bool td_comparison_make(struct td_comparison *comparison, const struct td_tensor_sums_source *a,
                        const struct td_tensor_sums_source *b, struct td_virtual_digests *digests,
                        const struct td_comparison_limits *limits, struct td_budget *budget, struct td_error *err);

/* Frees the memory. */
void td_comparison_fini(struct td_comparison *comparison);

#endif
