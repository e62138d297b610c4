/* Small HTML pages: for a person with a browser, and for clients that list folders by their links (fsspec). */
#ifndef TD_API_HTML_INDEX_H
#define TD_API_HTML_INDEX_H

#include "api/handlers.h"

/* Whether the path ends in '/', as a folder's does, and the request's Accept names text/html. */
bool td_html_is_wanted(const struct td_call *call);

/* All models; one model; a folder of a model's files (path without a '/' at its end, "" for all of them). */
void td_html_models(const struct td_call *call);
void td_html_model(const struct td_call *call);

/* False when there is no such folder; nothing was answered then. */
bool td_html_folder(const struct td_call *call, struct td_text path);

#endif
