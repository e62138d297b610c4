/* Plan: the signature is the last parameter, so that what it covers is the target up to there, byte by byte; nothing is
 * decoded or sorted before the comparison. What is hard is the other side: HTTP libraries change the spelling of a URL
 * before they send it, so that a URL is signed in the one spelling that they leave alone. */
#include "http/auth/signed_url.h"

#include "core/digits.h"
#include "http/auth/token_file.h"
#include "http/uri.h"

#include <ctype.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <string.h>

/* The first line of a signed text, by enum td_signed_method. GET stands for HEAD, too. */
static const struct td_text method_words[] = {
    [TD_SIGNED_GET] = {"GET", 3}, [TD_SIGNED_PUT] = {"PUT", 3}, [TD_SIGNED_POST] = {"POST", 4}};

enum { SIGNATURE_CHARS = 2 * TD_SHA256_BYTES };

/* Returns path and query of a target, without authority. */
static struct td_text path_and_query(struct td_text target)
{
    struct td_text path = td_uri_raw_path(target);
    return td_text_skip(target, (size_t)(path.p - target.p));
}

/* Returns whether a query has the parameter. */
static bool has_parameter(struct td_text query, const char *name)
{
    while (query.len > 0) {
        struct td_text item = td_text_take_until(&query, '&');
        if (td_text_equals(td_text_take_until(&item, '='), name))
            return true;
    }
    return false;
}

/* Sets *method to that of the word. Returns false for a method for which no URL is signed. */
static bool read_method(struct td_text word, enum td_signed_method *method)
{
    for (size_t i = 0; i < sizeof method_words / sizeof *method_words; i++) {
        if (td_text_compare(word, method_words[i]) != 0)
            continue;
        *method = (enum td_signed_method)i;
        return true;
    }
    return false;
}

bool td_signed_method_read(struct td_text word, enum td_signed_method *method)
{
    return read_method(word, method) && *method != TD_SIGNED_POST;
}

bool td_signed_url_is_meant(struct td_text target)
{
    return has_parameter(td_uri_raw_query(target), "signature");
}

/* Takes the last parameter off a text of path and query, if it has this name. mark: the place of the '?'. Returns false
 * when it has another, or when the target ends after the mark. */
static bool take_last(struct td_text *text, size_t mark, const char *name, struct td_text *value)
{
    size_t at = text->len;
    if (at <= mark)
        return false;
    while (at > mark + 1 && text->p[at - 1] != '&')
        at--;
    *value = td_text_skip(*text, at);
    text->len = at - 1;
    return memchr(value->p, '=', value->len) != NULL && td_text_equals(td_text_take_until(value, '='), name);
}

bool td_signed_url_parse(struct td_text target, struct td_signed_url *out)
{
    struct td_text value, expires;
    uint64_t expires_s;
    size_t mark = td_uri_raw_path(target).len;
    out->covered = path_and_query(target);
    if (!take_last(&out->covered, mark, "signature", &value) || value.len < SIGNATURE_CHARS)
        return false;
    out->bare = out->covered;
    if (!take_last(&out->bare, mark, "expires", &expires) || !td_number_read_strict(expires, INT64_MAX, &expires_s))
        return false;
    out->name = td_text_n(value.p, value.len - SIGNATURE_CHARS);
    out->digits = td_text_skip(value, out->name.len);
    if (out->name.len > 0 && (out->name.len < 2 || out->name.p[--out->name.len] != '.'))
        return false;
    out->expires_s = (int64_t)expires_s;
    return true;
}

/* Writes the digits that sign a path and query for the method, and a NUL. Returns false when memory is short. */
static bool sign_text(enum td_signed_method method, struct td_text text, const uint8_t key[TD_SHA256_BYTES],
                      char digits[SIGNATURE_CHARS + 1])
{
    struct td_buffer message;
    uint8_t sum[TD_SHA256_BYTES];
    td_buffer_init(&message);
    td_buffer_append(&message, method_words[method].p, method_words[method].len);
    td_buffer_putc(&message, '\n');
    td_buffer_append(&message, text.p, text.len);
    bool ok = !message.failed;
    if (ok)
        td_hmac_sha256(key, TD_SHA256_BYTES, message.data, message.len, sum);
    if (ok)
        td_hex_write(sum, sizeof sum, digits);
    td_buffer_fini(&message);
    return ok;
}

bool td_signed_url_verify(const struct td_signed_url *url, enum td_signed_method method,
                          const uint8_t key[TD_SHA256_BYTES], struct td_error *err)
{
    char right[SIGNATURE_CHARS + 1];
    if (!sign_text(method, url->covered, key, right))
        return td_error_no_memory(err);
    return CRYPTO_memcmp(right, url->digits.p, SIGNATURE_CHARS) == 0;
}

/* Returns whether a byte may stand in a path or query as it is: pchar and what else queries may hold (RFC 3986 sections
 * 3.3 and 3.4). Not so the apostrophe, which browsers encode in queries. */
static bool is_legal(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~!$&()*+,;=:@/?", c) != NULL);
}

static bool has_dot_segment(struct td_text path)
{
    while (path.len > 0) {
        struct td_text segment = td_text_take_until(&path, '/');
        if (td_text_equals(segment, ".") || td_text_equals(segment, ".."))
            return true;
    }
    return false;
}

/* Appends the text with each byte spelled in one way. Returns false at a '%' that begins no escape. */
static bool append_normal(struct td_text text, struct td_buffer *out)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];
        if (c != '%') {
            if (is_legal(c))
                td_buffer_putc(out, c);
            else
                td_uri_encode(out, td_text_n(&c, 1), false);
            continue;
        }
        int high = text.len - i > 2 ? td_hex_digit(text.p[i + 1]) : -1;
        int low = high < 0 ? -1 : td_hex_digit(text.p[i + 2]);
        if (low < 0)
            return false;
        c = (char)(high * 16 + low);
        td_uri_encode(out, td_text_n(&c, 1), false); /* leaves letters, digits and "-._~" as they are */
        i += 2;
    }
    return true;
}

bool td_signed_url_normalise(struct td_text text, struct td_buffer *out, struct td_error *err)
{
    size_t at = out->len;
    if (text.len == 0 || text.p[0] != '/')
        return td_error_set(err, TD_INVALID_ARGUMENT, "the path to sign must begin with '/'");
    if (text.len > TD_SIGNED_URL_PATH_BYTES)
        return td_error_set(err, TD_INVALID_ARGUMENT, "the path to sign has %zu bytes, more than %d", text.len,
                            TD_SIGNED_URL_PATH_BYTES);
    if (memchr(text.p, '#', text.len) != NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the path to sign has a '#', which begins a fragment that no "
                            "client sends; if it belongs to a name, it is %%23");
    if (!append_normal(text, out))
        return td_error_set(err, TD_INVALID_ARGUMENT, "the path to sign has a '%%' without two hexadecimal digits");
    if (out->failed)
        return true;
    struct td_text normal = td_text_n(out->data + at, out->len - at);
    struct td_text query = td_uri_raw_query(normal);
    if (has_dot_segment(td_uri_raw_path(normal)))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the path to sign has a segment \".\" or \"..\", which clients take out");
    if (has_parameter(query, "expires") || has_parameter(query, "signature"))
        return td_error_set(
            err, TD_INVALID_ARGUMENT,
            "the path to sign has a parameter `expires` or `signature`: is it signed already? Sign it without them");
    return true;
}

void td_signed_url_append(struct td_buffer *url, size_t at, enum td_signed_method method, int64_t expires_s,
                          struct td_text name, const uint8_t key[TD_SHA256_BYTES])
{
    char digits[SIGNATURE_CHARS + 1];
    if (url->failed)
        return;
    bool has_query = memchr(url->data + at, '?', url->len - at) != NULL;
    td_buffer_printf(url, "%cexpires=%" PRId64, has_query ? '&' : '?', expires_s);
    url->failed = url->failed || !sign_text(method, td_text_n(url->data + at, url->len - at), key, digits);
    if (!url->failed)
        td_buffer_printf(url, "&signature=%.*s%s%s", (int)name.len, name.p, name.len > 0 ? "." : "", digits);
}

/* Returns whether the path, which is decoded, is that of a blob or, for PUT, of a file of a model or a dataset, whose
 * id has one or two segments. Sets *id to the id as the patterns of tokens have it: "datasets/ID" for a dataset. */
static bool find_target(struct td_text path, enum td_signed_method method, struct td_text *id)
{
    const struct td_text models = TD_TEXT("/models/"), datasets = TD_TEXT("/datasets/"), sha256 = TD_TEXT("sha256:");
    uint8_t digest[TD_SHA256_BYTES];
    bool is_dataset = td_text_begins(path, datasets);
    if (!is_dataset && !td_text_begins(path, models))
        return false;
    struct td_text rest = td_text_skip(path, is_dataset ? datasets.len : models.len);
    const char *begin = is_dataset ? path.p + 1 : rest.p;
    for (int segments = 1; segments <= 2; segments++) {
        struct td_text segment = td_text_take_until(&rest, '/');
        struct td_text after = rest;
        struct td_text word = td_text_take_until(&after, '/');
        *id = td_text_n(begin, (size_t)(segment.p + segment.len - begin));
        if (segment.len == 0)
            return false;
        if (td_text_equals(word, "files"))
            return after.len > 0 && method == TD_SIGNED_PUT;
        if (td_text_equals(word, "blobs"))
            return td_text_begins(after, sha256) &&
                   td_hex_read_bytes(td_text_skip(after, sha256.len), digest, sizeof digest);
    }
    return false;
}

/* Checks that a signed PUT or POST may go to this path and query, and that the token may write there (NULL: it may
 * write everywhere). */
static bool check_write(const struct td_token *token, enum td_signed_method method, struct td_text target,
                        struct td_error *err)
{
    struct td_uri uri;
    struct td_text id = TD_TEXT("");
    bool ok = td_uri_parse(&uri, target, TD_URI_STRICT, err);
    if (ok && !find_target(uri.path, method, &id))
        ok = td_error_set(err, TD_INVALID_ARGUMENT,
                          "a URL is signed for PUT of a file or a blob alone: /models/ID/files/PATH or "
                          "/models/ID/blobs/sha256:HEX, or the same below /datasets/ID");
    if (ok && token != NULL && !td_token_may_write(token, id))
        ok = td_error_set(err, TD_PERMISSION_DENIED,
                          "the token \"%s\" may not sign a PUT to \"%.*s\": it needs the right to write, and a pattern "
                          "that matches (tensord token new NAME --write --models GLOB)",
                          token->name, TD_SHOW(id, 400));
    td_uri_fini(&uri);
    return ok;
}

/* Checks that there is something to sign at this path and query, which are normal. */
static bool check_target(const struct td_token *token, enum td_signed_method method, struct td_text target,
                         struct td_error *err)
{
    if (method != TD_SIGNED_GET)
        return check_write(token, method, target, err);
    return !td_text_equals(td_uri_raw_path(target), "/sign") ||
           td_error_set(err, TD_INVALID_ARGUMENT,
                        "the path to sign is that of POST /sign, but a signed URL is for GET and HEAD; give the "
                        "path of what is to be fetched");
}

bool td_signed_url_write(const struct td_token_set *set, const struct td_token *token, enum td_signed_method method,
                         struct td_text path_and_query, int64_t now_s, uint64_t valid_s, struct td_buffer *out,
                         int64_t *expires_s, struct td_error *err)
{
    uint8_t key[TD_SHA256_BYTES];
    size_t at = out->len;
    if (valid_s == 0 || valid_s > TD_SIGNED_URL_MOST_S)
        return td_error_set(err, TD_INVALID_ARGUMENT, "a signed URL is valid for 1 to %" PRIu64 " s (7 days)",
                            TD_SIGNED_URL_MOST_S);
    if (token != NULL && td_token_has_expired(token, now_s))
        return td_error_set(err, TD_PERMISSION_DENIED, "the token \"%s\" has expired", token->name);
    if (!td_signed_url_normalise(path_and_query, out, err))
        return false;
    if (!out->failed && !check_target(token, method, td_text_n(out->data + at, out->len - at), err))
        return false;
    *expires_s = now_s + (int64_t)valid_s;
    if (token != NULL && token->expires_s != 0 && token->expires_s < *expires_s)
        *expires_s = token->expires_s;
    td_token_url_key(set, token, key);
    td_signed_url_append(out, at, method, *expires_s, td_text_of(token == NULL ? "" : token->name), key);
    OPENSSL_cleanse(key, sizeof key);
    return !out->failed || td_buffer_refuse(out, err);
}

/* Returns whether the URL is signed for the method by the token of this name in the set, or by the holder of the tokens
 * file. Sets *token in the first case. Leaves err alone when it is not. */
static bool verify_signer(const struct td_token_set *set, const struct td_signed_url *url, enum td_signed_method method,
                          const struct td_token **token, struct td_error *err)
{
    uint8_t key[TD_SHA256_BYTES];
    const struct td_token *signer = url->name.len == 0 ? NULL : td_token_set_find_name(set, url->name);
    if (url->name.len > 0 && signer == NULL)
        return false;
    td_token_url_key(set, signer, key);
    bool ok = td_signed_url_verify(url, method, key, err);
    OPENSSL_cleanse(key, sizeof key);
    if (ok)
        *token = signer;
    return ok;
}

bool td_signed_url_check(const struct td_token_set *set, struct td_text method, struct td_text target, int64_t now_s,
                         const struct td_token **token, struct td_text *bare, struct td_error *err)
{
    struct td_signed_url url;
    enum td_signed_method signed_method = TD_SIGNED_GET;
    *token = NULL;
    bool has_method = td_text_equals(method, "HEAD") || read_method(method, &signed_method);
    bool is_parsed = td_signed_url_parse(target, &url);
    bool is_good = has_method && is_parsed && verify_signer(set, &url, signed_method, token, err);
    if (!has_method || (!is_good && signed_method == TD_SIGNED_POST && err->code == TD_OK))
        return td_error_set(err, TD_PERMISSION_DENIED, "a signed URL is for GET and HEAD, or for PUT");
    if (is_parsed && url.expires_s <= now_s)
        return td_error_set(err, TD_PERMISSION_DENIED, "the signed URL has expired, %" PRId64 " s ago",
                            now_s - url.expires_s);
    if (!is_good)
        return td_error_set(err, TD_PERMISSION_DENIED,
                            "the URL's signature is wrong: a signed URL must be used byte for byte as it was signed, "
                            "with the method that it was signed for, and ends with the token that signed it");
    if (*token != NULL && td_token_has_expired(*token, now_s))
        return td_error_set(err, TD_PERMISSION_DENIED, "the token that signed the URL has expired");
    *bare = url.bare;
    return true;
}

/* Returns the length of the '=' that the text begins with, as it is or percent-encoded; 0 when it begins otherwise. */
static size_t equals_sign_len(struct td_text text)
{
    if (text.p[0] == '=')
        return 1;
    return text.p[0] == '%' && td_text_begins_ignore_case(text, "%3d") ? strlen("%3d") : 0;
}

static bool ends_in(struct td_text text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && td_text_equals_ignore_case(td_text_skip(text, text.len - len), word);
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '_' || c == '-';
}

/* Returns whether the text ends in the name of a parameter that holds a secret: any that ends in "signature", and
 * "token" and "access_token" as whole names, since "page_token" holds none. */
static bool ends_in_secret_name(struct td_text text)
{
    static const char *const names[] = {"token", "access_token"};
    if (ends_in(text, "signature"))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i]);
        if (ends_in(text, names[i]) && (text.len == len || !is_name_char(text.p[text.len - len - 1])))
            return true;
    }
    return false;
}

struct td_text td_signed_url_without_secret(struct td_text target)
{
    for (size_t i = 0; i < target.len; i++) {
        size_t len = equals_sign_len(td_text_skip(target, i));
        if (len > 0 && ends_in_secret_name(td_text_n(target.p, i)))
            return td_text_n(target.p, i + len);
        if (td_token_file_is_token(td_text_skip(target, i)))
            return td_text_n(target.p, i);
    }
    return target;
}
