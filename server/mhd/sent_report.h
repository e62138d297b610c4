/* Reports an answer that has ended: counts it and the bytes that were really sent, and writes its line of the access
 * log. */
#ifndef TD_SERVER_MHD_SENT_REPORT_H
#define TD_SERVER_MHD_SENT_REPORT_H

#include "server/mhd/session.h"

/* Reports the answer of the session's exchange, if it has one, complete or broken off. code: libmicrohttpd's reason for
 * its end. Asks for a scan when a file had changed. Call on the connection's thread. */
void td_sent_report(struct td_session *session, enum MHD_RequestTerminationCode code);

#endif
