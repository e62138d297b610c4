/* The page of a dataset for browsers: its splits, and some rows of one of them. */
#ifndef TD_API_HTML_DATASET_PAGE_H
#define TD_API_HTML_DATASET_PAGE_H

#include "api/call/call.h"

/* Answers with the page of call->dataset: ten rows of ?split=, from number ?row= on, as a table with the types of their
 * columns if they are JSON or CSV; other texts as texts, images as images, and of other rows their sizes. Rows that
 * cannot be read just now are left out with the reason. */
void td_html_dataset(const struct td_call *call);

#endif
