/* The facts that the page of a model shows: of its files, its default checkpoint, config.json, and the front matter of
 * README.md. */
#ifndef TD_API_HTML_MODEL_FACTS_H
#define TD_API_HTML_MODEL_FACTS_H

#include "api/call/incoming_call.h"
#include "catalog/model/facts.h"
#include "catalog/model/snapshot.h"
#include "core/buffer.h"

enum { TD_MODEL_FACTS = 15, TD_MODEL_TAGS = 40 };

/* How a fact is shown: as a text, or as a number. */
enum td_model_fact_form {
    TD_FACT_TEXT,
    TD_FACT_NUMBER,
    TD_FACT_COUNT, /* in short: "8.03 B" */
    TD_FACT_BYTES,
    TD_FACT_TIME,
    TD_FACT_PART, /* "3 of 7" */
};

struct td_model_fact {
    const char *name, *label; /* for programs and for people; static */
    enum td_model_fact_form form;
    const char *text;   /* of TD_FACT_TEXT; of the snapshot, or static */
    uint64_t value;     /* of the others; of a time: ns since 1970, 0 for earlier ones */
    uint64_t of;        /* of TD_FACT_PART: the whole */
    int64_t updated_ns; /* of TD_FACT_TIME */
};

/* The facts that are known, in the order of the page, and the first tags but licence and base model. */
struct td_model_facts {
    struct td_model_fact items[TD_MODEL_FACTS];
    size_t count;
    const struct td_fact_tag *tags[TD_MODEL_TAGS];
    size_t tag_count;
};

/* The facts that the snapshot does not have. */
struct td_model_sums {
    uint64_t elements;                        /* of the default checkpoint; tensors that share their bytes count once */
    size_t hashed_count;                      /* files whose SHA-256 is known */
    const struct td_incoming_state *upstream; /* NULL: the model does not come from an upstream */
};

/* Finds the facts of a model of the snapshot, which must outlive them. Overwrites *out. */
void td_model_facts_find(const struct td_snapshot *snapshot, const struct td_model *model,
                         const struct td_model_sums *sums, struct td_model_facts *out);

/* Append a fact for programs, and for people. */
void td_model_fact_write_value(const struct td_model_fact *fact, struct td_buffer *out);
void td_model_fact_write(const struct td_model_fact *fact, struct td_buffer *out);

#endif
