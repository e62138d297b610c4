/* The project's own interface: models, manifests, tensors, plans, rank files and the server's own pages. The contract
 * is api/openapi.yaml. */
#ifndef TD_API_NATIVE_NATIVE_H
#define TD_API_NATIVE_NATIVE_H

#include "http/facade.h"

/* Owns /models and all paths below it, and the paths of the system: /healthz, /metrics and others. It also answers the
 * paths that no facade of its port owns. */
extern const struct td_facade td_native_facade;

/* Returns the word that stands for an HTTP status in errors: "NOT_FOUND". Static. */
const char *td_status_word(int status);

#endif
