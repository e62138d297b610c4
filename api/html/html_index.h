/* Which requests get a page for browsers where programs get JSON, and the pages at paths as on the Hub's site. */
#ifndef TD_API_HTML_HTML_INDEX_H
#define TD_API_HTML_HTML_INDEX_H

#include "api/call/call.h"

/* Returns whether the request's Accept header names text/html, as a browser's does. */
bool td_html_is_accepted(const struct td_call *call);

/* Returns whether Accept names text/html and the path ends in '/', as a folder's does. */
bool td_html_is_wanted(const struct td_call *call);

/* Adds Vary: Accept to a JSON answer of status 200 whose path also has a page, so that caches keep the two apart. */
void td_html_add_vary(const struct td_call *call);

/* Answers a path in the form of the Hub's site, /org/name (api/call/find_name.h), with the model's page, or with the
 * files of a repository without a model. Ignores call->model. Answers 404 when nothing has that name. */
void td_html_named(const struct td_call *call);

#endif
