/* The page of a dataset for browsers: its splits, and the first rows of each. */
#ifndef TD_API_HTML_HTML_DATASET_H
#define TD_API_HTML_HTML_DATASET_H

#include "api/call/call.h"

/* Answers with the page of call->dataset. Texts are shown up to 1,000 bytes a row, images as images, and of other rows
 * their sizes. Rows that cannot be read just now are left out with the reason. */
void td_html_dataset(const struct td_call *call);

#endif
