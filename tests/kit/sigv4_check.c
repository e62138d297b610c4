/* Verifies signed requests, for tests/interop/test_sigv4.py. Standard input: for each request the lines NOW,
 * ACCESS_KEY, SECRET_KEY and METHOD, a line with the target, lines with header fields, and an empty line; NOW is in
 * seconds since 1970. Standard output: a line for each request, "ok" or S3's code for the error. */
#include "http/auth/sigv4.h"

#include "core/digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADERS = 32 };

/* Reads all of standard input. Returns NULL when it cannot be read or memory is short. */
static char *read_all(size_t *len)
{
    size_t capacity = 1 << 16;
    char *text = malloc(capacity);
    *len = 0;
    while (text != NULL && !ferror(stdin)) {
        size_t count = fread(text + *len, 1, capacity - *len, stdin);
        *len += count;
        if (count == 0)
            return text;
        if (*len < capacity)
            continue;
        capacity *= 2;
        char *larger = realloc(text, capacity);
        if (larger == NULL)
            break;
        text = larger;
    }
    free(text);
    return NULL;
}

static struct td_text take_line(struct td_text *rest)
{
    return td_text_take_until(rest, '\n');
}

/* Takes a request off the input, and prints the outcome. */
static void check(struct td_text *rest)
{
    struct td_header headers[MOST_HEADERS];
    struct td_sigv4 signature;
    struct td_sigv4_refusal refusal;
    uint64_t now_s = 0;
    (void)td_number_read(take_line(rest), INT64_MAX, &now_s);
    struct td_text access_key = take_line(rest), secret_key = take_line(rest);
    struct td_request request = {.method = take_line(rest), .headers = headers};
    request.target = take_line(rest);
    for (struct td_text line = take_line(rest); line.len > 0 && request.header_count < MOST_HEADERS;
         line = take_line(rest)) {
        struct td_header *header = &headers[request.header_count++];
        header->name = td_text_take_until(&line, ':');
        header->value = line;
    }
    bool ok = td_sigv4_parse(&request, (int64_t)now_s, &signature, &refusal) &&
              (td_text_compare(signature.access_key, access_key) == 0 || td_sigv4_refuse_key(&signature, &refusal)) &&
              td_sigv4_verify(&signature, &request, secret_key, &refusal);
    (void)puts(ok ? "ok" : td_sigv4_code(refusal.fault));
}

int main(void)
{
    size_t len;
    char *text = read_all(&len);
    if (text == NULL)
        return 1;
    for (struct td_text rest = td_text_n(text, len); rest.len > 0;)
        check(&rest);
    free(text);
    return fflush(stdout) == 0 ? 0 : 1;
}
