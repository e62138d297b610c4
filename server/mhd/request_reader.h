/* Reads the header of a request from libmicrohttpd, and decides whether the request is refused, answered at once, or
 * answered after its body has arrived. */
#ifndef TD_SERVER_MHD_REQUEST_READER_H
#define TD_SERVER_MHD_REQUEST_READER_H

#include "server/mhd/session.h"

/* Judges a request with a complete header, in libmicrohttpd's first call for it. Returns MHD_YES to continue, MHD_NO to
 * drop the connection. Call on the connection's thread. */
enum MHD_Result td_request_reader_judge(struct MHD_Connection *mhd, struct td_session *session, const char *method,
                                        const char *version);

#endif
