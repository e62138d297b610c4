/* Pages of a bucket's keys: ListObjectsV2 and ListObjects. Source: Amazon S3 API Reference. */
#ifndef TD_API_S3_S3_LIST_H
#define TD_API_S3_S3_LIST_H

#include "api/call/call.h"
#include "catalog/names/bucket.h"

/* The end of every entity tag of the S3 port. S3 writes "-N" after the tag of an object that was uploaded in N parts.
 * Without it, clients take 32 hexadecimal digits for the MD5 of the content and drop what they fetched. Objects have
 * one part here (?partNumber=1), and clients that size their ranges by N then do as with a tag that has no "-N". */
#define TD_S3_ETAG_END "-1"

#define TD_S3_XMLNS "http://s3.amazonaws.com/doc/2006-03-01/"

/* The owner of all buckets and objects. */
#define TD_S3_OWNER "<Owner><ID>tensord</ID><DisplayName>tensord</DisplayName></Owner>"

/* The most items of a page: of objects, of uploads, or of parts. */
enum { TD_S3_PAGE_ITEMS = 1000 };

/* Answers with the page that the query asks for. The page bounds work and memory, whatever the bucket holds: keys below
 * a common prefix are skipped. A page ends early after 2 s if its files have to be planned first, and after 1 MiB of
 * XML. */
void td_s3_list(const struct td_call *call, const struct td_bucket *bucket);

/* Reads a query parameter as a number from `least` to `most`; a larger number counts as `most`, a missing one too.
 * Returns false after answering an error. */
bool td_s3_count(const struct td_call *call, const char *name, size_t least, size_t most, size_t *out);

/* Returns a query parameter, or an empty text. */
struct td_text td_s3_parameter(const struct td_call *call, const char *name);

/* Reads encoding-type. Returns false after answering an error. */
bool td_s3_read_encoding(const struct td_call *call, bool *is_encoded);

/* Returns the length of the key's common prefix, which ends with the first delimiter after the prefix; 0 when it has
 * none. delimiter may be empty. */
size_t td_s3_common_prefix(struct td_text key, struct td_text prefix, struct td_text delimiter);

/* Appends an element with the text; is_encoded: percent-encoded, as encoding-type=url wants keys and prefixes. Sets
 * out->failed when memory is short. */
void td_s3_element(struct td_buffer *out, const char *name, struct td_text text, bool is_encoded);

/* Appends a time, ns since 1970, as <name>2026-01-01T00:00:00.000Z</name>. Every time can be written; sets
 * out->failed when memory is short. */
void td_s3_date(struct td_buffer *out, const char *name, int64_t ns);

#endif
