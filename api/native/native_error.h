/* The error model of the native interface: {"error":{"code","status","message","details"}}. */
#ifndef TD_API_NATIVE_NATIVE_ERROR_H
#define TD_API_NATIVE_NATIVE_ERROR_H

#include "http/facade.h"

/* Returns the word that stands for an HTTP status in errors: "NOT_FOUND". Static. */
const char *td_status_word(int status);

/* Implements td_facade.write_error. */
void td_native_write_error(struct td_failure *failure, struct td_buffer *out);

#endif
