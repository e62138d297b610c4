#include "api/s3/s3_attributes.h"

#include "api/s3/s3_list.h"
#include "core/base64.h"
#include "core/digits.h"
#include "http/xml.h"

#include <inttypes.h>
#include <string.h>

static const char attributes_field[] = "x-amz-object-attributes";

/* Writes the file's SHA-256 in base64. Returns false when it is not known. */
static bool write_checksum(const struct td_file *file, char text[TD_BASE64_LEN(TD_SHA256_BYTES) + 1])
{
    uint8_t sum[TD_SHA256_BYTES];
    const char *sha256 = file == NULL ? NULL : td_file_sha256(file);
    if (sha256 == NULL || !td_hex_read_bytes(td_text_of(sha256), sum, sizeof sum))
        return false;
    td_base64_write(sum, sizeof sum, text);
    return true;
}

void td_s3_add_checksum(const struct td_call *call, const struct td_file *file)
{
    char text[TD_BASE64_LEN(TD_SHA256_BYTES) + 1];
    const struct td_header *mode = td_request_single_header(call->request, "x-amz-checksum-mode");
    if (mode == NULL || !td_text_equals_ignore_case(mode->value, "ENABLED") ||
        td_request_has_header(call->request, "Range") || td_uri_parameter(call->uri, "partNumber") != NULL ||
        !write_checksum(file, text))
        return;
    td_response_add_header(call->response, "x-amz-checksum-sha256", "%s", text);
    td_response_add_header(call->response, "x-amz-checksum-type", "FULL_OBJECT");
}

bool td_s3_names_attributes(const struct td_call *call)
{
    return td_request_has_header(call->request, attributes_field);
}

/* The attributes, as bits, in the order of the document. HAS_PARTS adds nothing, since objects here were not uploaded
 * in parts. */
enum attribute { HAS_ETAG = 1, HAS_CHECKSUM = 2, HAS_PARTS = 4, HAS_CLASS = 8, HAS_SIZE = 16 };

static unsigned attribute_of(struct td_text name)
{
    static const char *const names[] = {"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (td_text_equals(name, names[i]))
            return 1U << i;
    return 0;
}

/* Reads the attributes that the request asks for. Returns false after answering an error. */
static bool read_attributes(const struct td_call *call, unsigned *wanted)
{
    size_t at = 0;
    const struct td_header *field;
    *wanted = 0;
    while ((field = td_request_next_header(call->request, attributes_field, &at)) != NULL) {
        struct td_text rest = field->value;
        while (rest.len > 0) {
            struct td_text name = td_text_trim(td_text_take_until(&rest, ','), " \t");
            unsigned attribute = attribute_of(name);
            if (attribute == 0) {
                td_response_fail(call->response, 400, NULL,
                                 "Invalid attribute name specified: \"%.*s\"; ETag, Checksum, ObjectParts, "
                                 "StorageClass and ObjectSize are known",
                                 TD_SHOW(name, 64));
                return false;
            }
            *wanted |= attribute;
        }
    }
    if (*wanted == 0)
        td_response_fail(call->response, 400, NULL, "The %s header is empty", attributes_field);
    return *wanted != 0;
}

/* Removes the body and the entity tag from the answer of an object; the date stays. */
static void drop_object(struct td_response *response)
{
    td_body_fini(&response->body);
    td_body_init(&response->body);
    response->etag[0] = response->former_etag[0] = '\0';
    response->accept_ranges = false;
}

void td_s3_answer_attributes(const struct td_call *call, const struct td_file *file)
{
    struct td_response *response = call->response;
    char etag[TD_ETAG_BYTES], checksum[TD_BASE64_LEN(TD_SHA256_BYTES) + 1];
    uint64_t size = response->body.total_bytes;
    struct td_buffer xml;
    unsigned wanted;
    if (!read_attributes(call, &wanted))
        return;
    struct td_text tag = td_text_of(memcpy(etag, response->etag, sizeof etag));
    drop_object(response);
    td_buffer_init(&xml);
    td_xml_begin(&xml);
    td_buffer_puts(&xml, "<GetObjectAttributesResponse xmlns=\"" TD_S3_XMLNS "\">");
    if ((wanted & HAS_ETAG) != 0 && tag.len > 2)
        td_xml_element(&xml, "ETag", td_text_n(tag.p + 1, tag.len - 2)); /* without its quotes */
    if ((wanted & HAS_CHECKSUM) != 0 && write_checksum(file, checksum))
        td_buffer_printf(&xml,
                         "<Checksum><ChecksumSHA256>%s</ChecksumSHA256><ChecksumType>FULL_OBJECT</ChecksumType>"
                         "</Checksum>",
                         checksum);
    if ((wanted & HAS_CLASS) != 0)
        td_xml_element(&xml, "StorageClass", TD_TEXT("STANDARD"));
    if ((wanted & HAS_SIZE) != 0)
        td_buffer_printf(&xml, "<ObjectSize>%" PRIu64 "</ObjectSize>", size);
    td_buffer_puts(&xml, "</GetObjectAttributesResponse>\n");
    td_response_set_text(call->response, TD_XML_TYPE, "no-cache", &xml);
    td_buffer_fini(&xml);
}
