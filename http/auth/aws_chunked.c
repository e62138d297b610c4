/* A state for each element of the coding. Lines are collected in a buffer of fixed size; the bytes of chunks pass
 * through. A line ends with CR and LF; some clients end the lines of the trailer with LF alone, and some put an empty
 * line before it. */
#include "http/auth/aws_chunked.h"

#include "core/digits.h"

#include <string.h>

enum {
    IN_HEAD,    /* the line before a chunk */
    IN_BYTES,   /* of a chunk */
    AFTER,      /* the line end after a chunk */
    IN_TRAILER, /* a line after the last chunk */
    AT_END,
};

static const char signature_name[] = "chunk-signature", trailer_signature[] = "x-amz-trailer-signature";

/* Always returns false. */
static bool fail(struct td_aws_chunked *decoder, enum td_aws_chunked_fault fault)
{
    decoder->fault = fault;
    return false;
}

void td_aws_chunked_begin(struct td_aws_chunked *decoder, bool is_signed, bool has_trailer,
                          struct td_sigv4_chain *chain, uint64_t announced_bytes)
{
    *decoder = (struct td_aws_chunked){
        .is_signed = is_signed, .has_trailer = has_trailer, .chain = chain, .announced_bytes = announced_bytes};
}

void td_aws_chunked_fini(struct td_aws_chunked *decoder)
{
    char tag[TD_TAG_BYTES];
    (void)td_digest_finish(decoder->digest, tag);
    decoder->digest = NULL;
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

/* Reads the size at the beginning of a chunk's line. */
static bool take_size(struct td_text *line, uint64_t *size)
{
    size_t digits = 0;
    *size = 0;
    for (; line->len > 0 && td_hex_digit(*line->p) >= 0; digits++, *line = td_text_skip(*line, 1)) {
        if (*size > UINT64_MAX >> 4)
            return false;
        *size = *size << 4 | (uint64_t)td_hex_digit(*line->p);
    }
    return digits > 0;
}

/* Takes the extension with the signature off a chunk's line. */
static bool take_signature(struct td_aws_chunked *decoder, struct td_text line)
{
    if (!decoder->is_signed)
        return line.len == 0 || fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (line.len == 0)
        return fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
    struct td_text value = line;
    bool ok = td_text_take_char(&value, ';');
    struct td_text name = td_text_take_until(&value, '=');
    if (!ok || !td_text_equals(td_text_trim(name, " "), signature_name))
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (value.len != sizeof decoder->signature)
        return fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
    memcpy(decoder->signature, value.p, value.len);
    return true;
}

/* Checks the signature of the chunk whose bytes have all come. */
static bool check_chunk(struct td_aws_chunked *decoder)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (decoder->chain == NULL || !decoder->is_signed)
        return true;
    bool ok = td_digest_finish_binary(decoder->digest, sum);
    decoder->digest = NULL;
    if (!ok)
        return fail(decoder, TD_AWS_CHUNKED_NO_MEMORY);
    return td_sigv4_chain_take_chunk(decoder->chain, sum, td_text_n(decoder->signature, sizeof decoder->signature)) ||
           fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
}

static bool take_head(struct td_aws_chunked *decoder, struct td_text line)
{
    uint64_t size;
    if (!take_size(&line, &size))
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (!take_signature(decoder, line))
        return false;
    if (size > decoder->announced_bytes - decoder->got_bytes)
        return fail(decoder, TD_AWS_CHUNKED_LENGTH);
    if (decoder->is_signed && decoder->chain != NULL)
        decoder->digest = td_digest_create();
    decoder->chunk_left = size;
    decoder->state = size > 0 ? IN_BYTES : IN_TRAILER;
    return size > 0 || check_chunk(decoder);
}

/* ---- the trailer --------------------------------------------------------------------------------------- */

static bool take_trailer_signature(struct td_aws_chunked *decoder, struct td_text value)
{
    if (!decoder->is_signed || decoder->signature_len > 0)
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (value.len != sizeof decoder->signature)
        return fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
    memcpy(decoder->signature, value.p, value.len);
    decoder->signature_len = value.len;
    return true;
}

/* Keeps a field for td_aws_chunked_next_field and for the signature. */
static bool take_field(struct td_aws_chunked *decoder, struct td_text line)
{
    struct td_text value = line;
    struct td_text name = td_text_trim(td_text_take_until(&value, ':'), " \t");
    value = td_text_trim(value, " \t");
    if (name.len == 0 || name.len == line.len)
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (td_text_equals_ignore_case(name, trailer_signature))
        return take_trailer_signature(decoder, value);
    if (name.len + value.len + 2 > sizeof decoder->trailer - decoder->trailer_len || decoder->signature_len > 0)
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    char *at = decoder->trailer + decoder->trailer_len;
    for (size_t i = 0; i < name.len; i++)
        *at++ = (char)(name.p[i] >= 'A' && name.p[i] <= 'Z' ? name.p[i] + 'a' - 'A' : name.p[i]);
    *at++ = ':';
    if (value.len > 0)
        memcpy(at, value.p, value.len);
    at[value.len] = '\n';
    decoder->trailer_len += name.len + value.len + 2;
    return true;
}

/* Takes a line after the last chunk. Without a trailer that is the empty one. */
static bool take_trailer_line(struct td_aws_chunked *decoder, struct td_text line)
{
    if (line.len > 0)
        return decoder->has_trailer ? take_field(decoder, line) : fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    bool is_first = decoder->trailer_len == 0 && decoder->signature_len == 0;
    bool awaits_signature = decoder->is_signed && decoder->signature_len == 0;
    if (!decoder->has_trailer || !(is_first || awaits_signature))
        decoder->state = AT_END;
    return true;
}

/* ---- the body ------------------------------------------------------------------------------------------ */

static bool take_line(struct td_aws_chunked *decoder)
{
    struct td_text line = td_text_n(decoder->line, decoder->line_len);
    bool has_cr = line.len > 0 && line.p[line.len - 1] == '\r';
    line.len -= has_cr ? 1 : 0;
    decoder->line_len = 0;
    if (memchr(line.p, '\r', line.len) != NULL || memchr(line.p, '\0', line.len) != NULL ||
        (!has_cr && decoder->state != IN_TRAILER))
        return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
    if (decoder->state == IN_TRAILER)
        return take_trailer_line(decoder, line);
    if (decoder->state == IN_HEAD)
        return take_head(decoder, line);
    decoder->state = IN_HEAD;
    return line.len == 0 || fail(decoder, TD_AWS_CHUNKED_MALFORMED);
}

/* Takes the bytes up to the end of the line, or all. Returns their number, or 0 for a fault. */
static size_t take_line_bytes(struct td_aws_chunked *decoder, const char *bytes, size_t len)
{
    size_t room = sizeof decoder->line - decoder->line_len;
    const char *end = memchr(bytes, '\n', len < room ? len : room);
    size_t count = end == NULL ? len : (size_t)(end - bytes);
    if (count > room) {
        (void)fail(decoder, TD_AWS_CHUNKED_MALFORMED);
        return 0;
    }
    memcpy(decoder->line + decoder->line_len, bytes, count);
    decoder->line_len += count;
    if (end == NULL)
        return count;
    return take_line(decoder) ? count + 1 : 0;
}

/* Passes bytes of the chunk on. Returns their number, or 0 for a fault. */
static size_t take_chunk_bytes(struct td_aws_chunked *decoder, const char *bytes, size_t len, td_aws_chunked_take *take,
                               void *context)
{
    size_t count = len < decoder->chunk_left ? len : (size_t)decoder->chunk_left;
    td_digest_add_content(decoder->digest, bytes, count);
    if (!take(context, bytes, count)) {
        (void)fail(decoder, TD_AWS_CHUNKED_STOPPED);
        return 0;
    }
    decoder->chunk_left -= count;
    decoder->got_bytes += count;
    if (decoder->chunk_left > 0)
        return count;
    decoder->state = AFTER;
    return check_chunk(decoder) ? count : 0;
}

bool td_aws_chunked_write(struct td_aws_chunked *decoder, const char *bytes, size_t len, td_aws_chunked_take *take,
                          void *context)
{
    while (decoder->fault == TD_AWS_CHUNKED_OK && len > 0) {
        size_t used = 0;
        if (decoder->state == AT_END)
            return fail(decoder, TD_AWS_CHUNKED_MALFORMED);
        used = decoder->state == IN_BYTES ? take_chunk_bytes(decoder, bytes, len, take, context)
                                          : take_line_bytes(decoder, bytes, len);
        bytes += used;
        len -= used;
    }
    return decoder->fault == TD_AWS_CHUNKED_OK;
}

/* Checks the signature of the trailer. */
static bool check_trailer(struct td_aws_chunked *decoder)
{
    uint8_t sum[TD_SHA256_BYTES];
    if (!decoder->has_trailer || !decoder->is_signed)
        return true;
    if (decoder->signature_len == 0)
        return fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
    if (decoder->chain == NULL)
        return true;
    td_sha256(decoder->trailer, decoder->trailer_len, sum);
    return td_sigv4_chain_take_trailer(decoder->chain, sum, td_text_n(decoder->signature, sizeof decoder->signature)) ||
           fail(decoder, TD_AWS_CHUNKED_SIGNATURE);
}

bool td_aws_chunked_end(struct td_aws_chunked *decoder)
{
    if (decoder->fault != TD_AWS_CHUNKED_OK)
        return false;
    bool is_at_end = decoder->state == AT_END || (decoder->state == IN_TRAILER && decoder->line_len == 0);
    if (!is_at_end || decoder->got_bytes != decoder->announced_bytes)
        return fail(decoder, TD_AWS_CHUNKED_LENGTH);
    return check_trailer(decoder);
}

struct td_text td_aws_chunked_trailer(const struct td_aws_chunked *decoder)
{
    return td_text_n(decoder->trailer, decoder->trailer_len);
}

bool td_aws_chunked_next_field(struct td_text *rest, struct td_text *name, struct td_text *value)
{
    if (rest->len == 0)
        return false;
    *value = td_text_take_until(rest, '\n');
    *name = td_text_take_until(value, ':');
    return true;
}
