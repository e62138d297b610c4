/* The Hub's task for a model of transformers, by its architecture. */
#ifndef TD_CATALOG_SCAN_PIPELINE_TAG_H
#define TD_CATALOG_SCAN_PIPELINE_TAG_H

/* Returns the task, "text-generation" for "LlamaForCausalLM"; NULL for an architecture that does not show it. The Hub
 * takes the task from the auto classes of transformers. Their mappings (models/auto/modeling_auto.py) mostly follow the
 * endings of the names; a test compares this function with them. */
const char *td_pipeline_tag_of(const char *architecture);

#endif
