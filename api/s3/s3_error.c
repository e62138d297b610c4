#include "api/s3/s3_error.h"

#include "core/utf8.h"
#include "http/xml.h"

#include <string.h>

/* Returns S3's code for a status, and sets the status to the one that S3 answers instead. Clients retry a 503 and never
 * a 4xx. GitLfsPointer is a code of our own: S3's codes for 409 make clients retry, or print a wrong reason (rclone:
 * "Object in GLACIER, restore first"). */
static const char *code_of(int *status)
{
    static const struct {
        int status, answered;
        const char *code;
    } codes[] = {
        {400, 400, "InvalidArgument"},    {403, 403, "AccessDenied"},       {404, 404, "NoSuchKey"},
        {405, 405, "MethodNotAllowed"},   {409, 409, "GitLfsPointer"},      {411, 411, "MissingContentLength"},
        {412, 412, "PreconditionFailed"}, {413, 400, "EntityTooLarge"},     {416, 416, "InvalidRange"},
        {422, 400, "InvalidArgument"},    {429, 503, "SlowDown"},           {431, 400, "RequestHeaderSectionTooLarge"},
        {501, 501, "NotImplemented"},     {503, 503, "ServiceUnavailable"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status != *status)
            continue;
        *status = codes[i].answered;
        return codes[i].code;
    }
    *status = 500;
    return "InternalError";
}

static void write_element(struct td_buffer *out, const char *name, const char *text)
{
    td_xml_element(out, name, td_text_of(text));
}

void td_s3_write_error(struct td_failure *failure, struct td_buffer *out)
{
    char shown[2048];
    const char *code = failure->code != NULL ? failure->code : code_of(&failure->status);
    td_xml_begin(out);
    td_buffer_puts(out, "<Error>");
    write_element(out, "Code", code);
    write_element(out, "Message", failure->message);
    td_utf8_escape(failure->resource, shown, sizeof shown);
    write_element(out, "Resource", shown);
    write_element(out, "RequestId", failure->request_id);
    td_buffer_puts(out, "</Error>\n");
}
