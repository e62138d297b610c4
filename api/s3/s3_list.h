/* Pages of a bucket's keys: ListObjectsV2 and ListObjects. Source: Amazon S3 API Reference. */
#ifndef TD_API_S3_S3_LIST_H
#define TD_API_S3_S3_LIST_H

#include "api/call.h"
#include "catalog/bucket.h"

/* Ends every entity tag of the S3 port. S3 writes "-N" behind the tag of an object that was uploaded in N parts.
 * Without it, clients take 32 hexadecimal digits for the MD5 of the content and drop what they fetched. Objects have
 * one part here
 * (?partNumber=1), and clients that size their ranges by N then do as with a tag that has no "-N". */
#define TD_S3_ETAG_END "-1"

#define TD_S3_XMLNS "http://s3.amazonaws.com/doc/2006-03-01/"

enum { TD_S3_PAGE_KEYS = 1000 };

/* Answers with the page that the query asks for. Work and memory are bounded by the page, whatever the bucket holds:
 * what a common prefix stands for is skipped. A page whose files have to be planned first ends early after a while. */
void td_s3_list(const struct td_call *call, const struct td_bucket *bucket);

/* A query parameter as a number from `least` to `most`, more being taken for `most`. False: an error was answered. */
bool td_s3_count(const struct td_call *call, const char *name, size_t least, size_t most, size_t *out);

/* Makes the buffer (emptied) the XML body of a 200 answer. */
void td_s3_set_xml(const struct td_call *call, struct td_buffer *xml);

/* Appends <name>2026-01-01T00:00:00.000Z</name>. */
void td_s3_date(struct td_buffer *out, const char *name, int64_t ns);

#endif
