/* Expectations: RFC 9110, RFC 9112, RFC 3986, and the rules of this service: nothing with Transfer-Encoding, and no
 * Content-Length but one plain 0 unless the method is POST. */
#include "server/net/request_guard.h"

#include "tests/kit/loopback.h"
#include "tests/unit/unit.h"

enum { MOST_BYTES = 8192, MOST_BODY_BYTES = 1000 };

static const struct td_guard_limits most = {.max_header_bytes = MOST_BYTES, .max_body_bytes = MOST_BODY_BYTES};

#define H "Host: localhost"

static const struct {
    const char *what, *section;
    int status; /* 0: accepted */
    const char *method, *target, *version, *lines;
} cases[] = {
    /* --- what is well-formed passes */
    {"an ordinary request", "9112 2.1", 0, "GET", "/models", "HTTP/1.1", H},
    {"HEAD", "9110 9.3.2", 0, "HEAD", "/", "HTTP/1.1", H},
    {"a method that the service lacks; the router answers 405", "9110 9.1", 0, "POST", "/", "HTTP/1.1", H},
    {"a method of no standard", "9110 9.1", 0, "FR!BB-LE", "/", "HTTP/1.1", H},
    {"HTTP/1.0 without Host", "9112 3.2", 0, "GET", "/", "HTTP/1.0", ""},
    {"HTTP/1.0 with Host", "9112 3.2", 0, "GET", "/", "HTTP/1.0", H},
    {"every unreserved and sub-delimiter byte", "3986 3.3", 0, "GET", "/a-._~!$&'()*+,;=:@/Z9?x=/?&y", "HTTP/1.1", H},
    {"percent-encoding", "3986 2.1", 0, "GET", "/%2F%c3%A9", "HTTP/1.1", H},
    {"brackets in the query, which clients do not encode", "3986 3.4", 0, "GET", "/?a[]=1", "HTTP/1.1", H},
    {"absolute-form", "9112 3.2.2", 0, "GET", "http://localhost/models", "HTTP/1.1", H},
    {"absolute-form without a path", "9112 3.2.2", 0, "GET", "http://localhost", "HTTP/1.1", H},
    {"absolute-form with a query alone", "9112 3.2.2", 0, "GET", "http://localhost?a=b", "HTTP/1.1", H},
    {"absolute-form, scheme in capitals", "3986 3.1", 0, "GET", "HTTP://localhost/", "HTTP/1.1", H},
    {"absolute-form with a port", "9112 3.2.2", 0, "GET", "http://localhost:8080/", "HTTP/1.1", H},
    {"absolute-form, IPv6", "9112 3.2.2", 0, "GET", "https://[::1]:8080/", "HTTP/1.1", H},
    {"absolute-form and another Host: the target wins", "9112 3.2.2", 0, "GET", "http://a/", "HTTP/1.1", "Host: b"},
    {"Host with a port", "9110 7.2", 0, "GET", "/", "HTTP/1.1", "Host: localhost:8080"},
    {"Host with an empty port", "3986 3.2.3", 0, "GET", "/", "HTTP/1.1", "Host: localhost:"},
    {"Host is an IPv4 address", "9110 7.2", 0, "GET", "/", "HTTP/1.1", "Host: 127.0.0.1:80"},
    {"Host is an IPv6 address", "9110 7.2", 0, "GET", "/", "HTTP/1.1", "Host: [2001:db8::1]:80"},
    {"Host is empty", "9112 3.2: for a target without an authority", 0, "GET", "/", "HTTP/1.1", "Host:"},
    {"Host in another case", "9110 5.1", 0, "GET", "/", "HTTP/1.1", "hOST: localhost"},
    {"Host with an encoded byte", "3986 3.2.2", 0, "GET", "/", "HTTP/1.1", "Host: a%C3%A9b"},
    {"Host after others", "9110 5.3", 0, "GET", "/", "HTTP/1.1", "Accept: */*\n" H "\nX: y"},
    {"an empty field value", "9110 5.5", 0, "GET", "/", "HTTP/1.1", H "\nX-Empty:"},
    {"tab and blank within a value", "9110 5.5", 0, "GET", "/", "HTTP/1.1", H "\nX: a\tb c"},
    {"obs-text in a value", "9110 5.5", 0, "GET", "/", "HTTP/1.1", H "\nX: \xc3\xa9\xff"},
    {"a field name of every token byte", "9110 5.6.2", 0, "GET", "/", "HTTP/1.1", H "\n!#$%&'*+-.^_`|~09azAZ: x"},
    {"Content-Length: 0", "9112 6.2", 0, "GET", "/", "HTTP/1.1", H "\nContent-Length: 0"},
    {"an unknown field", "9110 5.1", 0, "GET", "/", "HTTP/1.1", H "\nX-Unknown: 1\nX-Unknown: 2"},
    {"Expect without a body", "9110 10.1.1", 0, "GET", "/", "HTTP/1.1", H "\nExpect: 100-continue"},
    /* --- versions */
    {"HTTP/1.2", "9112 2.3", 400, "GET", "/", "HTTP/1.2", H},
    {"HTTP/2.0 in HTTP/1 clothes", "9112 2.3", 400, "GET", "/", "HTTP/2.0", H},
    {"HTTP/0.9", "9112 2.3", 400, "GET", "/", "HTTP/0.9", H},
    {"HTTP/1.10", "9112 2.3: one digit each", 400, "GET", "/", "HTTP/1.10", H},
    {"HTTP/01.1", "9112 2.3", 400, "GET", "/", "HTTP/01.1", H},
    {"http/1.1", "9112 2.3: case-sensitive", 400, "GET", "/", "http/1.1", H},
    {"HTTP/1.1 and a blank", "9112 3", 400, "GET", "/", "HTTP/1.1 ", H},
    {"ICY/1.1", "9112 2.3", 400, "GET", "/", "ICY/1.1", H},
    {"no version", "9112 3", 400, "GET", "/", "", H},
    {"a version cut short", "9112 2.3", 400, "GET", "/", "HTTP/1", H},
    /* --- methods */
    {"an empty method", "9110 9.1", 400, "", "/", "HTTP/1.1", H},
    {"a method with a blank", "9110 5.6.2", 400, "GE T", "/", "HTTP/1.1", H},
    {"a method with a slash", "9110 5.6.2", 400, "GET/", "/", "HTTP/1.1", H},
    {"a method with a control byte", "9110 5.6.2", 400, "GET\x01", "/", "HTTP/1.1", H},
    {"a method with a high byte", "9110 5.6.2", 400, "G\xc3\x89T", "/", "HTTP/1.1", H},
    {"a method in brackets", "9110 5.6.2", 400, "(GET)", "/", "HTTP/1.1", H},
    {"a method with a colon", "9110 5.6.2", 400, "GET:", "/", "HTTP/1.1", H},
    {"a method after a line end", "9112 2.2", 400, "\rGET", "/", "HTTP/1.1", H},
    /* --- targets */
    {"an empty target", "9112 3.2", 400, "GET", "", "HTTP/1.1", H},
    {"a target without a slash", "9112 3.2.1", 400, "GET", "models", "HTTP/1.1", H},
    {"asterisk-form", "9112 3.2.4: for OPTIONS of a whole server", 400, "OPTIONS", "*", "HTTP/1.1", H},
    {"authority-form", "9112 3.2.3: for CONNECT", 400, "CONNECT", "localhost:80", "HTTP/1.1", H},
    {"another scheme", "9110 4.2", 400, "GET", "ftp://localhost/", "HTTP/1.1", H},
    {"a scheme alone", "9110 4.2.1", 400, "GET", "http:", "HTTP/1.1", H},
    {"a scheme and one slash", "9110 4.2.1", 400, "GET", "http:/models", "HTTP/1.1", H},
    {"an empty host", "9110 4.2.1: MUST reject", 400, "GET", "http:///models", "HTTP/1.1", H},
    {"an empty host with a port", "9110 4.2.1", 400, "GET", "http://:80/models", "HTTP/1.1", H},
    {"user information", "9110 4.2.4", 400, "GET", "http://user:word@localhost/", "HTTP/1.1", H},
    {"a bad port", "3986 3.2.3", 400, "GET", "http://localhost:8x/", "HTTP/1.1", H},
    {"a fragment", "9112 3.2.1: a target has none", 400, "GET", "/a#b", "HTTP/1.1", H},
    {"a blank in the target", "9112 3.2", 400, "GET", "/a b", "HTTP/1.1", H},
    {"a tab in the target", "9112 3.2", 400, "GET", "/a\tb", "HTTP/1.1", H},
    {"a line end in the target", "9112 3.2", 400, "GET", "/a\rb", "HTTP/1.1", H},
    {"DEL in the target", "3986 2", 400, "GET", "/a\x7f", "HTTP/1.1", H},
    {"a high byte in the target", "3986 2", 400, "GET", "/\xc3\xa9", "HTTP/1.1", H},
    {"a quote in the target", "3986 2", 400, "GET", "/\"a\"", "HTTP/1.1", H},
    {"angle brackets in the target", "3986 2", 400, "GET", "/<a>", "HTTP/1.1", H},
    {"a backslash in the target", "3986 2", 400, "GET", "/..\\a", "HTTP/1.1", H},
    {"braces in the target", "3986 2", 400, "GET", "/{a}", "HTTP/1.1", H},
    {"a bar in the target", "3986 2", 400, "GET", "/a|b", "HTTP/1.1", H},
    {"a caret in the target", "3986 2", 400, "GET", "/a^b", "HTTP/1.1", H},
    {"a back quote in the query", "3986 2", 400, "GET", "/?`a`", "HTTP/1.1", H},
    /* --- Host */
    {"no Host", "9112 3.2: MUST 400", 400, "GET", "/", "HTTP/1.1", ""},
    {"no Host in absolute-form", "9112 3.2", 400, "GET", "http://localhost/", "HTTP/1.1", ""},
    {"Host twice", "9112 3.2: MUST 400", 400, "GET", "/", "HTTP/1.1", H "\n" H},
    {"Host twice, in two cases", "9112 3.2", 400, "GET", "/", "HTTP/1.1", H "\nhost: other"},
    {"Host twice in HTTP/1.0", "9112 3.2", 400, "GET", "/", "HTTP/1.0", H "\n" H},
    {"Host is a list", "9110 7.2", 400, "GET", "/", "HTTP/1.1", "Host: a, b"},
    {"Host with a path", "9110 7.2", 400, "GET", "/", "HTTP/1.1", "Host: localhost/x"},
    {"Host with a user", "9110 7.2", 400, "GET", "/", "HTTP/1.1", "Host: user@localhost"},
    {"Host with a scheme", "9110 7.2", 400, "GET", "/", "HTTP/1.1", "Host: http://localhost"},
    {"Host with a blank", "9110 7.2", 400, "GET", "/", "HTTP/1.1", "Host: local host"},
    {"Host with a port of letters", "3986 3.2.3", 400, "GET", "/", "HTTP/1.1", "Host: localhost:http"},
    {"Host with two ports", "3986 3.2.3", 400, "GET", "/", "HTTP/1.1", "Host: localhost:80:80"},
    {"Host with a negative port", "3986 3.2.3", 400, "GET", "/", "HTTP/1.1", "Host: localhost:-1"},
    {"Host with a high byte", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1",
     "Host: b\xc3\xbc"
     "cher"},
    {"Host with an open bracket", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: [::1"},
    {"Host with empty brackets", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: []"},
    {"Host with something behind the brackets", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: [::1]x"},
    {"Host with a name in brackets", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: [localhost]"},
    {"Host is a bare IPv6 address", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: ::1"},
    {"Host with a quote", "3986 3.2.2", 400, "GET", "/", "HTTP/1.1", "Host: \"localhost\""},
    /* --- bodies */
    {"Transfer-Encoding: chunked", "9112 6.1", 400, "GET", "/", "HTTP/1.1", H "\nTransfer-Encoding: chunked"},
    {"Transfer-Encoding: identity", "9112 6.1", 400, "GET", "/", "HTTP/1.1", H "\nTransfer-Encoding: identity"},
    {"an empty Transfer-Encoding", "9112 6.1", 400, "GET", "/", "HTTP/1.1", H "\nTransfer-Encoding:"},
    {"transfer-encoding", "9110 5.1", 400, "GET", "/", "HTTP/1.1", H "\ntransfer-encoding: xchunked"},
    {"Transfer-Encoding in HTTP/1.0", "9112 6.1", 400, "GET", "/", "HTTP/1.0", "Transfer-Encoding: chunked"},
    {"Transfer-Encoding and Content-Length", "9112 6.3", 400, "GET", "/", "HTTP/1.1",
     H "\nContent-Length: 0\nTransfer-Encoding: chunked"},
    {"a body", "9110 8.6", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: 5"},
    {"Content-Length twice, equal", "9112 6.3", 400, "GET", "/", "HTTP/1.1",
     H "\nContent-Length: 0\nContent-Length: 0"},
    {"Content-Length twice, different", "9112 6.3", 400, "GET", "/", "HTTP/1.1",
     H "\nContent-Length: 0\nContent-Length: 5"},
    {"Content-Length is a list", "9112 6.3", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: 0, 0"},
    {"Content-Length: +0", "9110 8.6: 1*DIGIT", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: +0"},
    {"Content-Length: -0", "9110 8.6", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: -0"},
    {"Content-Length: 0x0", "9110 8.6", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: 0x0"},
    {"Content-Length: 00", "one plain 0", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: 00"},
    {"an empty Content-Length", "9110 8.6", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length:"},
    {"Content-Length: 2^64", "9110 8.6", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length: 18446744073709551616"},
    {"content-length", "9110 5.1", 400, "GET", "/", "HTTP/1.1", H "\ncontent-length: 5"},
    {"a folded line that became part of the name", "9112 5.2", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length5: 0"},
    {"a folded Transfer-Encoding", "9112 5.2", 400, "GET", "/", "HTTP/1.1", H "\nTransfer-Encodingchunked: x"},
    {"a name that ends like a framing field", "9110 5.1", 0, "GET", "/", "HTTP/1.1", H "\nX-Content-Length: 5"},
    {"a body in HTTP/1.0", "9112 6", 400, "GET", "/", "HTTP/1.0", "Content-Length: 5"},
    {"a body on HEAD", "9110 9.3.2", 400, "HEAD", "/", "HTTP/1.1", H "\nContent-Length: 5"},
    /* --- bodies of POST */
    {"a body with POST", "9110 9.3.3", 0, "POST", "/", "HTTP/1.1", H "\nContent-Length: 5"},
    {"the longest body", "9110 8.6", 0, "POST", "/", "HTTP/1.1", H "\nContent-Length: 1000"},
    {"a body with zeros before its length", "9110 8.6: 1*DIGIT", 0, "POST", "/", "HTTP/1.1",
     H "\nContent-Length: 0005"},
    {"POST without a body", "9110 8.6", 0, "POST", "/", "HTTP/1.1", H "\nContent-Length: 0"},
    {"a body with POST in HTTP/1.0", "9112 6", 0, "POST", "/", "HTTP/1.0", "Content-Length: 5"},
    {"too long a body", "9110 15.5.14", 413, "POST", "/", "HTTP/1.1", H "\nContent-Length: 1001"},
    {"a body of 2^64-1", "9110 15.5.14", 413, "POST", "/", "HTTP/1.1", H "\nContent-Length: 18446744073709551615"},
    {"a body of 2^64", "9110 8.6", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length: 18446744073709551616"},
    {"a body in chunks", "9112 7.1", 0, "POST", "/", "HTTP/1.1", H "\nTransfer-Encoding: Chunked"},
    {"a body in chunks in HTTP/1.0", "9112 6.1", 400, "POST", "/", "HTTP/1.0", "Transfer-Encoding: chunked"},
    {"Transfer-Encoding and a Content-Length of 0", "9112 6.3", 400, "POST", "/", "HTTP/1.1",
     H "\nTransfer-Encoding: chunked\nContent-Length: 0"},
    {"POST, Transfer-Encoding: identity", "9112 6.1", 400, "POST", "/", "HTTP/1.1", H "\nTransfer-Encoding: identity"},
    {"POST, chunked twice", "9112 6.1", 400, "POST", "/", "HTTP/1.1", H "\nTransfer-Encoding: chunked, chunked"},
    {"POST, Transfer-Encoding and Content-Length", "9112 6.3", 400, "POST", "/", "HTTP/1.1",
     H "\nContent-Length: 5\nTransfer-Encoding: chunked"},
    {"POST, another Transfer-Encoding", "9112 6.1", 400, "POST", "/", "HTTP/1.1",
     H "\nTransfer-Encoding: gzip, chunked"},
    {"POST, Transfer-Encoding twice", "9112 6.1", 400, "POST", "/", "HTTP/1.1",
     H "\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked"},
    {"POST, a folded Transfer-Encoding", "9112 5.2", 400, "POST", "/", "HTTP/1.1", H "\nTransfer-Encodingx: chunked"},
    {"POST, Content-Length twice, equal", "9112 6.3", 400, "POST", "/", "HTTP/1.1",
     H "\nContent-Length: 5\nContent-Length: 5"},
    {"POST, Content-Length is a list", "9112 6.3", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length: 5, 5"},
    {"POST, Content-Length: +5", "9110 8.6", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length: +5"},
    {"POST, Content-Length: 5 5", "9110 8.6", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length: 5 5"},
    {"POST, an empty Content-Length", "9110 8.6", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length:"},
    {"POST, a folded Content-Length", "9112 5.2", 400, "POST", "/", "HTTP/1.1", H "\nContent-Length5: 5"},
    {"a method that only resembles POST; the router answers 405", "9110 9.1: case-sensitive", 0, "post", "/",
     "HTTP/1.1", H "\nContent-Length: 5"},
    {"PUT with a body; the router answers 405", "9110 15.5.6", 0, "PUT", "/", "HTTP/1.1", H "\nContent-Length: 5"},
    /* --- field lines */
    {"an empty field name", "9112 5", 400, "GET", "/", "HTTP/1.1", H "\n: x"},
    {"a blank before the colon", "9112 5.1: MUST reject", 400, "GET", "/", "HTTP/1.1", H "\nX : y"},
    {"a blank before the name", "9112 5.2", 400, "GET", "/", "HTTP/1.1", H "\n X: y"},
    {"a blank before the first name", "9112 2.2", 400, "GET", "/", "HTTP/1.1", " Host: localhost"},
    {"a tab before the colon", "9112 5.1", 400, "GET", "/", "HTTP/1.1", H "\nContent-Length\t: 5"},
    {"a control byte in a name", "9110 5.6.2", 400, "GET", "/", "HTTP/1.1", H "\nX\x01: y"},
    {"a high byte in a name", "9110 5.6.2", 400, "GET", "/", "HTTP/1.1", H "\nX\xc3\xa9: y"},
    {"a bracket in a name", "9110 5.6.2", 400, "GET", "/", "HTTP/1.1", H "\nX(: y"},
    {"a slash in a name", "9110 5.6.2", 400, "GET", "/", "HTTP/1.1", H "\nX/Y: z"},
    {"a name with an equals sign", "9110 5.6.2", 400, "GET", "/", "HTTP/1.1", H "\nX=Y: z"},
    {"a bare CR in a value", "9112 2.2, 9110 5.5", 400, "GET", "/", "HTTP/1.1", H "\nX: a\rb"},
    {"a control byte in a value", "9110 5.5", 400, "GET", "/", "HTTP/1.1", H "\nX: a\x02"},
    {"an escape in a value", "9110 5.5", 400, "GET", "/", "HTTP/1.1", H "\nX: \x1b[31m"},
    {"DEL in a value", "9110 5.5", 400, "GET", "/", "HTTP/1.1", H "\nX: \x7f"},
    {"a bare CR in Host", "9110 5.5", 400, "GET", "/", "HTTP/1.1", "Host: local\rhost"},
};

static struct td_guard_verdict judge(const char *method, const char *target, const char *version, const char *lines)
{
    struct loopback_request request;
    loopback_request_init(&request, method, target, lines);
    return td_request_guard(&request.request, version, false, &most);
}

static void requests_are_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_guard_verdict verdict = judge(cases[i].method, cases[i].target, cases[i].version, cases[i].lines);
        CHECK(verdict.status == cases[i].status, "%s (RFC %s): %d, wanted %d", cases[i].what, cases[i].section,
              verdict.status, cases[i].status);
        CHECK((verdict.status == 0) == (verdict.message == NULL), "%s", cases[i].what);
    }
    print_message("%zu requests\n", COUNT_OF(cases));
}

/* A NUL cannot stand in the table's texts. */
static void nul_is_refused_everywhere(void **state)
{
    (void)state;
    struct loopback_request request;
    for (int place = 0; place < 4; place++) {
        loopback_request_init(&request, "GET", "/", H "\nX: y");
        struct td_text nul = {.p = "a\0b", .len = 3};
        struct td_text target = {.p = "/a\0b", .len = 4};
        if (place == 0)
            request.request.method = nul;
        else if (place == 1)
            request.request.target = target;
        else if (place == 2)
            request.headers[1].name = nul;
        else
            request.headers[1].value = nul;
        struct td_guard_verdict verdict = td_request_guard(&request.request, "HTTP/1.1", false, &most);
        CHECK(verdict.status == 400, "place %d", place);
    }
}

static bool in_list(int c, const char *list)
{
    return c != 0 && strchr(list, c) != NULL;
}

static bool is_alnum(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Every byte at every kind of place, against grammars that this test spells out. */
static void every_byte_in_its_place(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        struct loopback_request request;
        char byte[2] = {(char)c, 'x'};
        char in_path[4] = {'/', 'x', (char)c, 'x'};
        /* RFC 9110 section 5.6.2: tchar */
        bool token = is_alnum(c) || in_list(c, "!#$%&'*+-.^_`|~");
        /* RFC 3986 section 2: unreserved, reserved but '#', '%' */
        bool target = is_alnum(c) || in_list(c, "-._~:/?[]@!$&'()*+,;=%");
        /* RFC 3986 section 3.2.2: reg-name, and ':' without a port after it */
        bool host = is_alnum(c) || in_list(c, "-._~!$&'()*+,;=%:");
        /* RFC 9110 section 5.5: field-vchar, SP, HTAB */
        bool value = c == '\t' || (c >= 0x20 && c != 0x7F);
        for (int place = 0; place < 5; place++) {
            static const char *const places[] = {"method", "target", "name", "value", "host"};
            const bool wanted[] = {token, target, token, value, host};
            loopback_request_init(&request, "GET", "/", H "\nX: y");
            if (place == 0)
                request.request.method = td_text_n(byte, 1);
            else if (place == 1)
                request.request.target = td_text_n(in_path, sizeof in_path);
            else if (place == 2)
                request.headers[1].name = td_text_n(byte, 2);
            else if (place == 3)
                request.headers[1].value = td_text_n(byte, 2);
            else
                request.headers[0].value = td_text_n(in_path + 1, 2);
            struct td_guard_verdict verdict = td_request_guard(&request.request, "HTTP/1.1", false, &most);
            CHECK((verdict.status == 0) == wanted[place], "byte 0x%02x in a %s: %d", (unsigned)c, places[place],
                  verdict.status);
        }
    }
}

static void sizes_are_limited(void **state)
{
    (void)state;
    struct loopback_request request;
    char long_text[MOST_BYTES + 1];
    memset(long_text, 'a', sizeof long_text);
    long_text[0] = '/';
    /* the limit counts the target and all names and values: "Host" and "localhost" are 13 bytes */
    loopback_request_init(&request, "GET", "/", H);
    request.request.target = td_text_n(long_text, MOST_BYTES - 13);
    assert_int_equal(td_request_guard(&request.request, "HTTP/1.1", false, &most).status, 0);
    request.request.target.len++;
    assert_int_equal(td_request_guard(&request.request, "HTTP/1.1", false, &most).status, 431);
    loopback_request_init(&request, "GET", "/", H "\nX: y");
    request.headers[1].value = td_text_n(long_text, MOST_BYTES - 15);
    assert_int_equal(td_request_guard(&request.request, "HTTP/1.1", false, &most).status, 0);
    request.headers[1].name = TD_TEXT("XY");
    assert_int_equal(td_request_guard(&request.request, "HTTP/1.1", false, &most).status, 431);
    loopback_request_init(&request, "GET", "/", H); /* there were more fields than the server collects */
    assert_int_equal(td_request_guard(&request.request, "HTTP/1.1", true, &most).status, 431);
}

static void bodies_have_a_length(void **state)
{
    (void)state;
    assert_true(judge("POST", "/", "HTTP/1.1", H "\nContent-Length: 999").body_bytes == 999);
    assert_true(judge("POST", "/", "HTTP/1.1", H "\nContent-Length: 0").body_bytes == 0);
    assert_true(judge("POST", "/", "HTTP/1.1", H).body_bytes == 0);
    assert_true(judge("GET", "/", "HTTP/1.1", H "\nContent-Length: 0").body_bytes == 0);
}

/* RFC 9112 section 9.6: a server that does not read a body closes the connection, or the body becomes a request. */
static void bodies_of_other_methods_are_not_read(void **state)
{
    (void)state;
    static const char *const bodies[] = {H "\nContent-Length: 5", H "\nTransfer-Encoding: chunked",
                                         H "\nContent-Length: x", H "\nContent-Length: 0\nContent-Length: 0",
                                         H "\nContent-Length: 5\nTransfer-Encoding: chunked"};
    static const char *const methods[] = {"PUT", "DELETE", "PATCH", "post"};
    for (size_t i = 0; i < COUNT_OF(methods); i++) {
        for (size_t k = 0; k < COUNT_OF(bodies); k++)
            assert_true(judge(methods[i], "/", "HTTP/1.1", bodies[k]).has_unread_body);
        assert_false(judge(methods[i], "/", "HTTP/1.1", H).has_unread_body);
        assert_false(judge(methods[i], "/", "HTTP/1.1", H "\nContent-Length: 0").has_unread_body);
    }
    assert_false(judge("POST", "/", "HTTP/1.1", bodies[0]).has_unread_body);
}

static void refusals_close_with_a_message(void **state)
{
    (void)state;
    static const char *const lines[] = {"", H "\nTransfer-Encoding: x", H "\nContent-Length: 1", H "\n: x"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct td_guard_verdict verdict = judge("GET", "/", "HTTP/1.1", lines[i]);
        assert_true(strlen(verdict.message) > 10);
        assert_true(td_utf8_valid(verdict.message, strlen(verdict.message)));
        assert_null(strpbrk(verdict.message, "\r\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_judged),
        cmocka_unit_test(nul_is_refused_everywhere),
        cmocka_unit_test(every_byte_in_its_place),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(bodies_have_a_length),
        cmocka_unit_test(refusals_close_with_a_message),
        cmocka_unit_test(bodies_of_other_methods_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
