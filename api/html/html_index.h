/* HTML pages: for a person with a browser, and for clients that list folders by their links (fsspec). They are rendered
 * while they are sent (html_view.h), so a folder of any length is one page. The functions that answer need
 * call->snapshot; those of a model need call->model as well. When memory is short they answer an error, unless they
 * return one. */
#ifndef TD_API_HTML_HTML_INDEX_H
#define TD_API_HTML_HTML_INDEX_H

#include "api/call/call.h"

/* Returns whether the request's Accept header names text/html, as a browser's does. */
bool td_html_is_accepted(const struct td_call *call);

/* Returns whether Accept names text/html and the path ends in '/', as a folder's does. */
bool td_html_is_wanted(const struct td_call *call);

/* Answers with the page of call->model. */
void td_html_model(const struct td_call *call);

/* Adds Vary: Accept to a JSON answer of status 200 whose path also has a page, so that caches keep the two apart. */
void td_html_add_vary(const struct td_call *call);

/* Answers a path in the form of the Hub's site, /org/name (api/call/find_name.h), with the model's page, or with the
 * files of a repository without a model. Ignores call->model. Answers 404 when nothing has that name. */
void td_html_named(const struct td_call *call);

#endif
