/* Lines with which people fetch or load a model, for the model's page. Each works with the server as the reader of the
 * page addresses it, and only lines that work for this model are given. */
#ifndef TD_API_HTML_MODEL_COMMANDS_H
#define TD_API_HTML_MODEL_COMMANDS_H

#include "api/call/call.h"

enum { TD_MODEL_COMMANDS = 8 };

struct td_model_command {
    const char *name;  /* "curl"; static */
    const char *label; /* for readers; static */
    char *text;        /* of one line or several */
};

struct td_model_commands {
    struct td_model_command items[TD_MODEL_COMMANDS];
    size_t count;
};

/* Makes the lines for a model of the call's snapshot. Without a host in the request there are none. A server with
 * tokens gets lines that take the token from the variable TENSORD_TOKEN. Call td_model_commands_fini in every case.
 * Errors: TD_RESOURCE_EXHAUSTED. */
bool td_model_commands_make(const struct td_call *call, const struct td_model *model, struct td_model_commands *out,
                            struct td_error *err);

void td_model_commands_fini(struct td_model_commands *commands);

#endif
