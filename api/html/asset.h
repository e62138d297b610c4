/* The files of the pages themselves: style, script and icon (assets/), which compile_templates.py compiles in. They are
 * answered at /-/NAME. Pages name them with a hash of their bytes, so that browsers keep them forever. */
#ifndef TD_API_HTML_ASSET_H
#define TD_API_HTML_ASSET_H

#include "api/call/call.h"

struct td_asset {
    const char *name, *type;
    const char *tag; /* a hash of the bytes, in hexadecimal */
    const unsigned char *bytes;
    size_t len;
};

extern const struct td_asset td_assets[];
extern const size_t td_asset_count;

/* Returns whether the path, decoded or not, is below /-/. Everybody may have what is there. */
bool td_asset_is_path(struct td_text path);

/* Answers the path with the asset; 404 if there is none. */
void td_html_asset(const struct td_call *call);

#endif
