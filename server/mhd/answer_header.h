/* The header of an answer: from a td_response to the fields of libmicrohttpd's response, and its length. */
#ifndef TD_SERVER_MHD_ANSWER_HEADER_H
#define TD_SERVER_MHD_ANSWER_HEADER_H

#include "http/response.h"

#include <microhttpd.h>

/* Adds all fields of the response, with "Connection: close" when response->close is set. Returns false when out of
 * memory. */
bool td_answer_header_add(struct MHD_Response *mhd_response, const struct td_response *response);

/* Returns the length of the header that libmicrohttpd will send: the status line, Date, Content-Length, the response's
 * own fields, and the empty line. */
uint64_t td_answer_header_bytes(const struct td_response *response, uint64_t content_bytes);

#endif
