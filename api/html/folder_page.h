/* The page of a folder of files, for a person with a browser and for clients that list folders by their links (fsspec).
 * It is rendered while it is sent, so a folder of any length is one page. */
#ifndef TD_API_HTML_FOLDER_PAGE_H
#define TD_API_HTML_FOLDER_PAGE_H

#include "api/call/call.h"

/* Answers with the page of a folder of call->model's files. `path` has no '/' at its end; "" is the folder of all
 * files. Returns false, without an answer, when there is no such folder. */
bool td_html_folder(const struct td_call *call, struct td_text path);

/* Files on disk that share an address. */
struct td_html_files {
    struct td_text name;             /* name of the model or repository, for the title */
    struct td_text base;             /* beginning of their links: encoded, with a '/' at its end */
    struct td_text above;            /* link to the page above all of them, encoded; empty: none */
    size_t first_entry, entry_count; /* a run of the snapshot's entries */
    size_t prefix_len;               /* bytes at the beginning of each path that its link leaves out */
};

/* Answers with the page of a folder of these files. Errors: TD_NOT_FOUND when there is no such folder,
 * TD_RESOURCE_EXHAUSTED; then nothing was answered. */
bool td_html_files_page(const struct td_call *call, const struct td_html_files *files, struct td_text path,
                        struct td_error *err);

#endif
