#include "api/html/error_page.h"

#include "api/html/page.h"
#include "api/html/templates.h"

/* Returns what the status means for a person. */
static const char *title_of(int status)
{
    switch (status) {
    case 401:
        return "Sign in with a token";
    case 403:
        return "Not allowed";
    case 404:
        return "Not found";
    case 429:
    case 503:
        return "Not available now";
    default:
        return status < 500 ? "The request cannot be answered" : "The server failed";
    }
}

static void write_slot(const struct td_page_place *place, unsigned slot, struct td_buffer *out)
{
    const struct td_failure *failure = place->context;
    switch ((enum td_error_slot)slot) {
    case TD_SLOT_ERROR_TITLE:
        td_buffer_puts(out, title_of(failure->status));
        break;
    case TD_SLOT_ERROR_STATUS:
        td_buffer_u64(out, (uint64_t)failure->status);
        break;
    case TD_SLOT_ERROR_MESSAGE:
        td_buffer_puts(out, failure->message);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct td_failure *failure = place->context;
    return section == TD_SECTION_ERROR_SIGN_IN && failure->status == 401 ? 1 : 0;
}

void td_html_write_error(const struct td_failure *failure, struct td_buffer *out)
{
    static const struct td_page_class class = {.page = &td_template_error, .write = write_slot, .rows = count_rows};
    struct td_failure shown = *failure;
    td_page_write(&class, &shown, out);
}
