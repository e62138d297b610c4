/* The page of a model for browsers: its facts, errors, types, modules, checkpoints, versions, files, and lines to copy.
 */
#ifndef TD_API_HTML_MODEL_PAGE_H
#define TD_API_HTML_MODEL_PAGE_H

#include "api/call/call.h"

/* Answers with the page of call->model. Opens no file; takes time in proportion to the tensors of the default
 * checkpoint and to the files of the model. */
void td_html_model(const struct td_call *call);

#endif
