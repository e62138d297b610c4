#include "api/oci/oci_path.h"

#include "core/digits.h"

#include <string.h>

/* ---- paths --------------------------------------------------------------------------------------------- */

/* Removes and returns the last segment of the text, with its '/'; the whole text where it has no '/'. */
static struct td_text take_last(struct td_text *text)
{
    size_t at = text->len;
    while (at > 0 && text->p[at - 1] != '/')
        at--;
    struct td_text last = td_text_skip(*text, at);
    text->len = at > 0 ? at - 1 : 0;
    return last;
}

/* Finds "/blobs/uploads" at the end of the text or before a '/', and a name before it. */
static bool find_upload(struct td_text text, struct td_text *name)
{
    const struct td_text word = TD_TEXT("/blobs/uploads");
    for (size_t i = 1; i + word.len <= text.len; i++) {
        struct td_text rest = td_text_skip(text, i);
        if (td_text_begins(rest, word) && (rest.len == word.len || rest.p[word.len] == '/')) {
            *name = td_text_n(text.p, i);
            return true;
        }
    }
    return false;
}

/* Splits {name}/{word}/{reference}. */
static enum td_oci_endpoint split_name(struct td_text text, struct td_oci_path *path)
{
    struct td_text rest = text;
    struct td_text last = take_last(&rest);
    struct td_text word = take_last(&rest);
    enum td_oci_endpoint endpoint = TD_OCI_NONE;
    if (td_text_equals(word, "manifests"))
        endpoint = TD_OCI_MANIFEST;
    else if (td_text_equals(word, "blobs") && !td_text_equals(last, "uploads"))
        endpoint = TD_OCI_BLOB;
    else if (td_text_equals(word, "referrers"))
        endpoint = TD_OCI_REFERRERS;
    else if (td_text_equals(word, "tags") && td_text_equals(last, "list"))
        endpoint = TD_OCI_TAGS;
    path->name = rest;
    path->reference = last;
    if (endpoint != TD_OCI_NONE && rest.len > 0 && last.len > 0)
        return endpoint;
    return find_upload(text, &path->name) ? TD_OCI_UPLOAD : TD_OCI_NONE;
}

bool td_oci_path_parse(struct td_oci_path *path, struct td_text text)
{
    const struct td_text root = TD_TEXT("/v2/");
    *path = (struct td_oci_path){.endpoint = TD_OCI_NONE};
    if (!td_text_begins(text, root))
        return false;
    text = td_text_skip(text, root.len);
    if (text.len == 0)
        path->endpoint = TD_OCI_ROOT;
    else if (td_text_equals(text, "_catalog"))
        path->endpoint = TD_OCI_CATALOG;
    else
        path->endpoint = split_name(text, path);
    return path->endpoint != TD_OCI_NONE;
}

/* ---- references ---------------------------------------------------------------------------------------- */

static bool is_lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Returns whether the text is an algorithm: words of small letters and digits, with one of "+._-" between them. */
static bool is_algorithm(struct td_text text)
{
    bool is_word = false;
    for (size_t i = 0; i < text.len; i++) {
        bool was_word = is_word;
        is_word = is_lower_or_digit(text.p[i]);
        if (!is_word && (!was_word || memchr("+._-", text.p[i], 4) == NULL))
            return false;
    }
    return is_word;
}

enum td_oci_digest_kind td_oci_digest_read(struct td_text text, struct td_text *hex)
{
    struct td_text rest = text;
    struct td_text algorithm = td_text_take_until(&rest, ':');
    bool is_sha256 = td_text_equals(algorithm, "sha256");
    bool is_sha512 = td_text_equals(algorithm, "sha512");
    if (!is_algorithm(algorithm) || rest.len == 0)
        return TD_OCI_DIGEST_WRONG;
    for (size_t i = 0; i < rest.len; i++)
        if (!td_is_letter_or_digit(rest.p[i]) && memchr("=_-", rest.p[i], 3) == NULL)
            return TD_OCI_DIGEST_WRONG;
    if (is_sha256 || is_sha512) {
        if (rest.len != (is_sha256 ? 64U : 128U) || !td_hex_is_lower(rest))
            return TD_OCI_DIGEST_WRONG;
    }
    *hex = rest;
    return is_sha256 ? TD_OCI_DIGEST_SHA256 : TD_OCI_DIGEST_OTHER;
}

bool td_oci_tag_is_valid(struct td_text text)
{
    enum { TAG_MAX = 128 };
    if (text.len == 0 || text.len > TAG_MAX || text.p[0] == '.' || text.p[0] == '-')
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!td_is_letter_or_digit(text.p[i]) && memchr("_.-", text.p[i], 3) == NULL)
            return false;
    return true;
}
