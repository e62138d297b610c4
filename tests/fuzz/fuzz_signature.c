/* The input is a request: method, target, header fields. No input has a right signature by chance, so the target checks
 * what must hold of all: the canonical request of a canonical target is the same again; a target that can be signed is
 * good when it was, for its method alone, and no longer after any change; a log shows no signature. */
#include "http/auth/signed_url.h"
#include "http/auth/sigv4.h"
#include "http/auth/sigv4_canonical.h"

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/request_text.h"

static const uint8_t key[TD_SHA256_BYTES] = {1, 2, 3};
static const int64_t now_s = 1369353600; /* the time of the seeds */

/* Takes the next line off a canonical request. */
static struct td_text line_of(struct td_text *rest)
{
    return td_text_take_until(rest, '\n');
}

static void check_canonical(const struct td_request *request)
{
    struct td_buffer once, target, twice;
    struct td_text missing;
    td_buffer_init(&once);
    td_buffer_init(&target);
    td_buffer_init(&twice);
    if (td_sigv4_write_canonical(request, TD_TEXT(""), TD_TEXT("x"), &once, &missing)) {
        struct td_text rest = td_text_skip(td_buffer_text(&once), request->method.len + 1);
        struct td_text path = line_of(&rest), query = line_of(&rest);
        td_buffer_append(&target, path.p, path.len);
        td_buffer_putc(&target, '?');
        td_buffer_append(&target, query.p, query.len);
        struct td_request again = *request;
        again.target = td_buffer_text(&target);
        FUZZ_CHECK(path.len > 0);
        if (path.p[0] == '/') { /* else a target that the server refuses, and that may look like a scheme */
            FUZZ_CHECK(td_sigv4_write_canonical(&again, TD_TEXT(""), TD_TEXT("x"), &twice, &missing));
            FUZZ_CHECK(td_text_compare(td_buffer_text(&once), td_buffer_text(&twice)) == 0);
        }
    }
    td_buffer_fini(&once);
    td_buffer_fini(&target);
    td_buffer_fini(&twice);
}

static void check_sigv4(const struct td_request *request)
{
    struct td_sigv4 signature;
    struct td_sigv4_refusal refusal = {.message = ""};
    bool ok = td_sigv4_parse(request, now_s, &signature, &refusal);
    FUZZ_CHECK(ok || refusal.message[0] != '\0');
    if (!ok)
        return;
    FUZZ_CHECK(signature.access_key.len > 0 && strlen(signature.time) == 16);
    if (!td_sigv4_verify(&signature, request, TD_TEXT("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), &refusal))
        FUZZ_CHECK(td_sigv4_status(refusal.fault) >= 400 && refusal.message[0] != '\0');
}

static bool is_good(enum td_signed_method method, struct td_text target)
{
    struct td_signed_url url;
    return td_signed_url_parse(target, &url) && td_text_equals(url.name, "ci") &&
           td_signed_url_verify(&url, method, key, NULL);
}

/* Signs the target, and then changes one byte. */
static void check_signed(struct td_text target)
{
    struct td_buffer url, again;
    struct td_signed_url parts;
    td_buffer_init(&url);
    td_buffer_init(&again);
    if (td_signed_url_normalise(target, &url, NULL)) {
        size_t bare = url.len;
        FUZZ_CHECK(td_signed_url_normalise(td_buffer_text(&url), &again, NULL));
        FUZZ_CHECK(td_text_compare(td_buffer_text(&url), td_buffer_text(&again)) == 0);
        td_signed_url_append(&url, 0, TD_SIGNED_GET, now_s, TD_TEXT("ci"), key);
        FUZZ_CHECK(is_good(TD_SIGNED_GET, td_buffer_text(&url)) && !is_good(TD_SIGNED_PUT, td_buffer_text(&url)) &&
                   !is_good(TD_SIGNED_POST, td_buffer_text(&url)));
        FUZZ_CHECK(td_signed_url_parse(td_buffer_text(&url), &parts));
        FUZZ_CHECK(parts.bare.len == bare && parts.expires_s == now_s);
        url.data[target.len % url.len] ^= 1;
        FUZZ_CHECK(!is_good(TD_SIGNED_GET, td_buffer_text(&url)));
    }
    td_buffer_fini(&url);
    td_buffer_fini(&again);
}

/* Signs the target for PUT, if one may go there. */
static void check_put(struct td_text target)
{
    static struct td_token_set *set;
    struct td_buffer url;
    const struct td_token *signer;
    struct td_text bare;
    struct td_error err = TD_ERROR_INIT;
    int64_t expires_s;
    if (set == NULL)
        set = td_token_set_create(key, NULL, 0, NULL);
    td_buffer_init(&url);
    if (td_signed_url_write(set, NULL, TD_SIGNED_PUT, target, now_s, 60, &url, &expires_s, &err)) {
        FUZZ_CHECK(td_signed_url_check(set, TD_TEXT("PUT"), td_buffer_text(&url), now_s, &signer, &bare, &err));
        FUZZ_CHECK(!td_signed_url_check(set, TD_TEXT("GET"), td_buffer_text(&url), now_s, &signer, &bare, &err));
        FUZZ_CHECK(td_text_begins(bare, TD_TEXT("/models/")) || td_text_begins(bare, TD_TEXT("/datasets/")) ||
                   memchr(bare.p, '%', bare.len) != NULL);
    }
    td_buffer_fini(&url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request_text text;
    request_text_read(&text, data, size);
    struct td_text target = text.request.target;
    check_sigv4(&text.request);
    check_canonical(&text.request);
    check_signed(target);
    check_put(target);
    struct td_text shown = td_signed_url_without_secret(target);
    FUZZ_CHECK(shown.len <= target.len && td_signed_url_without_secret(shown).len == shown.len);
    FUZZ_CHECK(!is_good(TD_SIGNED_GET, target) && !is_good(TD_SIGNED_PUT, target) && !is_good(TD_SIGNED_POST, target) &&
               td_signed_url_is_meant(shown) <= td_signed_url_is_meant(target));
    return 0;
}
