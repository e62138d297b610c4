/* `tensord sign`: signs a URL with the keys of a tokens file, without a server. */
#include "server/cmd/commands.h"

#include "core/clock.h"
#include "core/message/document.h"
#include "core/quantity.h"
#include "http/auth/signed_url.h"
#include "http/auth/token_file.h"
#include "server/cmd/shared/command_line.h"
#include "server/config/config.h"
#include "server/host/terminal.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

struct arguments {
    const char *url, *tokens, *expires, *name;
    enum td_signed_method method;
    uint64_t valid_s;
    bool json;
};

void td_cmd_sign_help(FILE *out)
{
    (void)fputs(
        "tensord sign prints a URL that answers GET and HEAD, or PUT, without a token, until it expires.\n"
        "\n"
        "usage:\n"
        "  tensord sign URL --tokens FILE --expires TIME [--method GET|PUT] [--as NAME] [--json]\n"
        "\n"
        "  URL             a URL of the server's main port, or its path and query; it must then be used\n"
        "                  byte for byte as it was printed. Clients of S3 presign by themselves\n"
        "  --tokens FILE   the server's tokens file (TENSORD_TOKENS)\n"
        "  --expires TIME  how long the URL is valid, at most 7d: seconds, or a time such as 90s, 1h or 2d\n"
        "  --method PUT    for a PUT of the URL, which is that of a file or a blob that a client may then publish:\n"
        "                  .../models/ID/files/PATH or .../models/ID/blobs/sha256:HEX, or below /datasets\n"
        "                  (default: GET)\n"
        "  --as NAME       with the rights of this token, and no longer than it lives; without it, with all\n"
        "                  rights\n"
        "  --json          one JSON object: \"url\" and \"expires\"\n"
        "\n"
        "Revoking the token, or another master key in the file, ends its URLs.\n"
        "\n"
        "exit codes: 0 success; 1 the file cannot be read, or has no such token, or the token may not write there;\n"
        "2 wrong usage.\n",
        out);
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    const char *method = "GET";
    const struct td_command_option options[] = {
        {"--tokens", .value = &out->tokens}, {"--expires", .value = &out->expires}, {"--as", .value = &out->name},
        {"--method", .value = &method},      {"--json", .flag = &out->json},        {.name = NULL}};
    const struct td_command_line line = {.options = options,
                                         .usage = "tensord sign URL --tokens FILE --expires TIME [--method GET|PUT] "
                                                  "[--as NAME] [--json]"};
    const char *others[2] = {NULL};
    size_t count;
    *out = (struct arguments){.tokens = td_config_environment("tokens")};
    if (!td_command_line_read(&line, argc, argv, others, 1, &count))
        return false;
    out->url = others[0];
    if (count > 1)
        return td_command_line_refuse(&line, "only one URL is allowed, but there is also ", others[1]);
    if (out->url == NULL)
        return td_command_line_refuse(&line, "give a URL", "");
    if (out->tokens == NULL || out->tokens[0] == '\0')
        return td_command_line_refuse(&line, "give the --tokens FILE of the server", "");
    if (out->expires == NULL)
        return td_command_line_refuse(&line, "say how long the URL is valid: --expires 1h", "");
    if (!td_signed_method_read(td_text_of(method), &out->method))
        return td_command_line_refuse(&line, "--method takes GET or PUT, not ", method);
    if (!td_duration_read_s(td_text_of(out->expires), 1, TD_SIGNED_URL_MOST_S, &out->valid_s))
        return td_command_line_refuse(
            &line, "--expires takes whole seconds, or a time such as 90s, 1h or 2d, from 1s to 7d, not ", out->expires);
    return true;
}

/* Splits a URL into scheme and authority, which may be missing, and path and query. Returns false for any other text.
 * The authority must be printable ASCII like any URL (RFC 3986 section 2). */
static bool split_url(struct td_text url, struct td_text *before, struct td_text *path)
{
    static const char *const schemes[] = {"http://", "https://"};
    *before = TD_TEXT("");
    *path = url;
    for (size_t i = 0; i < 2; i++) {
        size_t begin = strlen(schemes[i]);
        size_t end = begin;
        if (!td_text_begins_ignore_case(url, schemes[i]))
            continue;
        while (end < url.len && url.p[end] > ' ' && url.p[end] < 0x7F && url.p[end] != '/' && url.p[end] != '?')
            end++;
        *before = td_text_n(url.p, end);
        *path = td_text_skip(url, end);
        return end > begin && (path->len == 0 || path->p[0] == '/' || path->p[0] == '?');
    }
    return url.len > 0 && url.p[0] == '/';
}

/* Appends the signed URL to `out`. */
static bool append_signed(const struct arguments *arguments, const struct td_token_set *set, struct td_buffer *out,
                          int64_t *expires_s, struct td_error *err)
{
    struct td_text before, path;
    struct td_buffer whole_path;
    const struct td_token *token =
        arguments->name == NULL ? NULL : td_token_set_find_name(set, td_text_of(arguments->name));
    if (arguments->name != NULL && token == NULL)
        return td_error_set(err, TD_NOT_FOUND, "%s has no token \"%s\"; tensord token list shows all",
                            arguments->tokens, arguments->name);
    if (!split_url(td_text_of(arguments->url), &before, &path))
        return td_error_set(err, TD_INVALID_ARGUMENT,
                            "the URL must begin with http://, https:// or '/', but it is \"%.200s\"", arguments->url);
    td_buffer_init(&whole_path);
    td_buffer_puts(&whole_path, path.len > 0 && path.p[0] == '/' ? "" : "/"); /* "http://host?query" */
    td_buffer_append(&whole_path, path.p, path.len);
    td_buffer_append(out, before.p, before.len);
    bool ok = !whole_path.failed || td_error_no_memory(err);
    ok = ok && td_signed_url_write(set, token, arguments->method, td_buffer_text(&whole_path), td_wall_now().seconds,
                                   arguments->valid_s, out, expires_s, err);
    td_buffer_fini(&whole_path);
    return ok;
}

/* Prints the URL, or the JSON object. */
static bool print_signed(const struct arguments *arguments, struct td_text url, int64_t expires_s, struct td_error *err)
{
    struct td_buffer json;
    struct td_document builder;
    char expires[40];
    if (!arguments->json) {
        (void)fwrite(url.p, 1, url.len, stdout);
        (void)putchar('\n');
        return td_output_flush(err);
    }
    (void)td_wall_rfc3339((struct td_wall){.seconds = expires_s}, expires, sizeof expires);
    td_buffer_init(&json);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_text(&builder, "url", url);
    td_document_add_string(&builder, "expires", expires);
    td_document_end(&builder);
    return td_output_json(&json, err);
}

int td_cmd_sign(int argc, char **argv)
{
    struct arguments arguments;
    struct td_token_set *set = NULL;
    struct td_buffer url;
    struct td_error err = TD_ERROR_INIT;
    int64_t expires_s = 0;
    if (!read_arguments(argc, argv, &arguments))
        return TD_EXIT_USAGE;
    td_buffer_init(&url);
    bool ok = td_token_file_read(arguments.tokens, &set, &err) &&
              append_signed(&arguments, set, &url, &expires_s, &err) &&
              print_signed(&arguments, td_buffer_text(&url), expires_s, &err);
    if (!ok)
        td_terminal_complain("%s", err.message);
    bool has_set = set != NULL;
    td_buffer_fini(&url);
    td_token_set_unref(set);
    if (ok)
        return TD_EXIT_OK;
    return has_set && err.code == TD_INVALID_ARGUMENT ? TD_EXIT_USAGE
                                                      : TD_EXIT_FAILED; /* of the URL, not of the file */
}
