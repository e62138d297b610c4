/* Answers what S3 says of an object besides its bytes: its checksum, and the document of GetObjectAttributes. Source:
 * Amazon S3 API Reference. Private to api/s3/. */
#ifndef TD_API_S3_S3_ATTRIBUTES_H
#define TD_API_S3_S3_ATTRIBUTES_H

#include "api/call/call.h"

#include <stdbool.h>

/* Adds x-amz-checksum-sha256 to the answer of a whole object, if the request asks for checksums (x-amz-checksum-mode)
 * and not for a part, and the file's SHA-256 is known. */
void td_s3_add_checksum(const struct td_call *call, const struct td_file *file);

/* Returns whether the request has the header field of GetObjectAttributes, x-amz-object-attributes. */
bool td_s3_names_attributes(const struct td_call *call);

/* Turns the whole answer of an object into the document of GetObjectAttributes, or into an error. file: the object's;
 * NULL: its SHA-256 is not known. */
void td_s3_answer_attributes(const struct td_call *call, const struct td_file *file);

#endif
