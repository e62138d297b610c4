/* Which task of the Hub a model of transformers is for, by its architecture. */
#ifndef TD_CATALOG_PIPELINE_TAG_H
#define TD_CATALOG_PIPELINE_TAG_H

/* "text-generation" of "LlamaForCausalLM"; NULL for an architecture that says nothing. The Hub takes the task from the
 * auto classes of transformers, whose mappings (models/auto/modeling_auto.py) are mostly regular in the names' ends; a
 * test holds this one to them. */
const char *td_pipeline_tag_of(const char *architecture);

#endif
