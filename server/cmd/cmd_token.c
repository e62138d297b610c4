/* Creates, lists and revokes tokens in the tokens file. Running servers read the changed file again. */
#include "server/cmd/commands.h"

#include "core/clock.h"
#include "core/message/document.h"
#include "core/quantity.h"
#include "http/auth/token_file.h"
#include "server/cmd/shared/command_line.h"
#include "server/config/config.h"
#include "server/host/terminal.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

/* The longest time until a token expires: 100 years. */
#define MOST_EXPIRES_S (UINT64_C(36525) * 86400)

enum { TIME_BYTES = 40 };

enum verb { VERB_NONE, VERB_NEW, VERB_LIST, VERB_REVOKE };

struct arguments {
    enum verb verb;
    const char *name, *file, *expires;
    const char *models[TD_TOKEN_MODELS_MAX + 1];
    size_t model_count;
    bool may_write, json;
};

void td_cmd_token_help(FILE *out)
{
    (void)fputs(
        "tensord token makes, lists and revokes the tokens of a tokens file, which tensord serve --tokens reads.\n"
        "\n"
        "usage:\n"
        "  tensord token new NAME --tokens FILE [--models GLOB]... [--write] [--expires TIME] [--json]\n"
        "                    make a token, and FILE if it does not exist; print it, and its keys for clients\n"
        "                    of S3, once: FILE holds only its SHA-256\n"
        "  tensord token list --tokens FILE [--json]\n"
        "                    list names, models, rights and expiry\n"
        "  tensord token revoke NAME --tokens FILE\n"
        "                    remove a token; servers refuse it within 10 s\n"
        "\n"
        "  --tokens FILE     the tokens file (default: TENSORD_TOKENS)\n"
        "  --models GLOB     the models that the token may see, by id (default: all); datasets as datasets/ID; * also\n"
        "                    matches /; may be given several times\n"
        "  --write           the token may also publish these models, where tensord serve has --publish\n"
        "  --expires TIME    when it ends, from now: seconds, or a time such as 12h or 30d (default: never)\n"
        "  --json            one JSON object instead of lines for people\n"
        "\n"
        "exit codes: 0 success, 1 FILE could not be read or changed, 2 wrong usage.\n",
        out);
}

static int usage(const char *fault, const char *what)
{
    static const char *const options[] = {"tokens", "models", "write", "expires", "json", "help", NULL};
    return td_refuse_usage(fault, what, options,
                           "tensord token (new NAME [--models GLOB]... [--write] [--expires TIME] [--json] | list "
                           "[--json] | revoke NAME) --tokens FILE; tensord token --help");
}

static enum verb verb_of(const char *word)
{
    static const char *const words[] = {[VERB_NEW] = "new", [VERB_LIST] = "list", [VERB_REVOKE] = "revoke"};
    for (size_t i = VERB_NEW; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return (enum verb)i;
    return VERB_NONE;
}

/* Checks what the verb needs and allows. Returns 0, or the exit code after printing a message. */
static int check_arguments(struct arguments *arguments)
{
    bool needs_name = arguments->verb != VERB_LIST;
    if (arguments->verb == VERB_NONE)
        return usage("give new, list or revoke", "");
    if (needs_name != (arguments->name != NULL))
        return needs_name ? usage("give the token's name", "")
                          : usage("list takes no name, but there is ", arguments->name);
    if (arguments->verb != VERB_NEW &&
        (arguments->model_count > 0 || arguments->expires != NULL || arguments->may_write))
        return usage("--models, --write and --expires are for new alone", "");
    if (arguments->file == NULL)
        arguments->file = td_config_environment("tokens");
    if (arguments->file == NULL || arguments->file[0] == '\0')
        return usage("give --tokens FILE, or set TENSORD_TOKENS", "");
    return 0;
}

/* Reads the arguments. Returns 0, or the exit code after printing a message. */
static int read_arguments(int argc, char **argv, struct arguments *arguments)
{
    memset(arguments, 0, sizeof *arguments);
    for (int i = 0; i < argc; i++) {
        const char *option = argv[i];
        const char *value = "";
        if (strcmp(option, "--json") == 0) {
            arguments->json = true;
        } else if (strcmp(option, "--write") == 0) {
            arguments->may_write = true;
        } else if (td_take_option(argc, argv, &i, "--tokens", &value)) {
            arguments->file = value;
        } else if (td_take_option(argc, argv, &i, "--expires", &value)) {
            arguments->expires = value;
        } else if (td_take_option(argc, argv, &i, "--models", &value)) {
            if (arguments->model_count == TD_TOKEN_MODELS_MAX)
                return usage("too many --models; use a pattern, such as ", "org/*");
            arguments->models[arguments->model_count++] = value;
        } else if (option[0] == '-' && option[1] != '\0') {
            return usage("unknown option ", option);
        } else if (arguments->verb == VERB_NONE) {
            arguments->verb = verb_of(option);
            if (arguments->verb == VERB_NONE)
                return usage("the verbs are new, list and revoke, not ", option);
        } else if (arguments->name == NULL) {
            arguments->name = option;
        } else if (arguments->model_count > 0) {
            return usage(
                "only one name is allowed; quote globs, such as --models 'org/*', or else the shell puts names "
                "of files in their place; there is also ",
                option);
        } else {
            return usage("only one name is allowed, but there is also ", option);
        }
        if (value == NULL)
            return usage("a value is missing after ", option);
    }
    return check_arguments(arguments);
}

/* Writes an expiry, "never" for 0. */
static void write_time(int64_t seconds, char out[TIME_BYTES])
{
    if (seconds == 0)
        (void)snprintf(out, TIME_BYTES, "never");
    else
        (void)td_wall_rfc3339((struct td_wall){.seconds = seconds}, out, TIME_BYTES);
}

/* Appends the globs, separated by blanks, or "all" if the token has no globs. */
static void write_models(const struct td_token *token, struct td_buffer *out)
{
    for (size_t i = 0; token->models != NULL && token->models[i] != NULL; i++)
        td_buffer_printf(out, "%s%s", i == 0 ? "" : " ", token->models[i]);
    if (token->models == NULL)
        td_buffer_puts(out, "all");
    else if (out->len == 0)
        td_buffer_puts(out, "none");
    (void)td_buffer_terminate(out);
}

/* Returns the token's rights in words. */
static const char *rights_of(const struct td_token *token)
{
    bool may_write = (token->rights & TD_RIGHT_WRITE) != 0;
    return (token->rights & TD_RIGHT_READ) == 0 ? "write" : may_write ? "read,write" : "read";
}

/* Adds the members that new and list share. */
static void add_members(struct td_document *json, const struct td_token *token)
{
    td_document_add_string(json, "name", token->name);
    td_token_add_members(json, token);
}

/* ---- new ------------------------------------------------------------------------------------------------- */

static bool print_new_json(const struct td_token *token, const char *text, const char *secret, struct td_error *err)
{
    struct td_buffer out;
    struct td_document json;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_object(&json, NULL);
    add_members(&json, token);
    td_document_add_string(&json, "token", text);
    td_document_add_string(&json, "s3_access_key", token->access_key);
    td_document_add_string(&json, "s3_secret_key", secret);
    td_document_end(&json);
    return td_output_json(&out, err);
}

static void print_new(const struct td_token *token, const char *text, const char *secret)
{
    char expires[TIME_BYTES];
    struct td_buffer models;
    td_buffer_init(&models);
    write_models(token, &models);
    write_time(token->expires_s, expires);
    td_terminal_line(stdout, "name:           %s", token->name);
    td_terminal_line(stdout, "token:          %s", text);
    td_terminal_line(stdout, "s3_access_key:  %s", token->access_key);
    td_terminal_line(stdout, "s3_secret_key:  %s", secret);
    td_terminal_line(stdout, "models:         %s", models.failed ? "?" : models.data);
    td_terminal_line(stdout, "rights:         %s", rights_of(token));
    td_terminal_line(stdout, "expires:        %s", expires);
    td_terminal_line(stdout, "Keep the token and the secret key now: they are not shown again.");
    td_buffer_fini(&models);
}

/* Warns of globs with a comma, since a comma does not separate globs. */
static void warn_of_commas(const struct arguments *arguments)
{
    for (size_t i = 0; i < arguments->model_count; i++)
        if (strchr(arguments->models[i], ',') != NULL)
            td_terminal_complain("the comma in \"%.200s\" is part of one glob; for several give --models several times",
                                 arguments->models[i]);
}

static bool make_new(const struct arguments *arguments, int64_t expires_s, struct td_error *err)
{
    const struct td_new_token wanted = {.name = arguments->name,
                                        .models = arguments->model_count == 0 ? NULL : arguments->models,
                                        .expires_s = expires_s,
                                        .may_write = arguments->may_write};
    char text[TD_TOKEN_TEXT_BYTES];
    char secret[TD_S3_SECRET_BYTES];
    struct td_token_set *set = NULL;
    if (!td_token_file_add(arguments->file, &wanted, text, &set, err))
        return false;
    warn_of_commas(arguments);
    const struct td_token *token = td_token_set_find_name(set, td_text_of(arguments->name));
    td_token_s3_secret(set, token, secret);
    bool ok = true;
    if (arguments->json)
        ok = print_new_json(token, text, secret, err);
    else
        print_new(token, text, secret);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(secret, sizeof secret);
    td_token_set_unref(set);
    return ok;
}

/* ---- list ------------------------------------------------------------------------------------------------ */

static bool print_list_json(const struct td_token_set *set, int64_t now_s, struct td_error *err)
{
    struct td_buffer out;
    struct td_document json;
    td_buffer_init(&out);
    td_document_init(&json, &out);
    td_document_begin_object(&json, NULL);
    td_document_begin_array(&json, "tokens");
    for (size_t i = 0; i < td_token_set_count(set); i++) {
        const struct td_token *token = &td_token_set_tokens(set)[i];
        td_document_begin_object(&json, NULL);
        add_members(&json, token);
        td_document_add_bool(&json, "expired", td_token_has_expired(token, now_s));
        td_document_add_string(&json, "s3_access_key", token->access_key);
        td_document_end(&json);
    }
    td_document_end(&json);
    td_document_end(&json);
    return td_output_json(&out, err);
}

/* Returns the width of the column of names. */
static int name_width(const struct td_token_set *set)
{
    int width = (int)strlen("NAME");
    for (size_t i = 0; i < td_token_set_count(set); i++) {
        int len = td_terminal_width(td_token_set_tokens(set)[i].name);
        width = len > width ? len : width;
    }
    return width;
}

/* Returns whether any token has another right than to read. */
static bool any_writes(const struct td_token_set *set)
{
    for (size_t i = 0; i < td_token_set_count(set); i++)
        if (td_token_set_tokens(set)[i].rights != TD_RIGHT_READ)
            return true;
    return false;
}

/* Prints a column of rights if they differ from token to token. */
static void print_list(const struct td_token_set *set, int64_t now_s)
{
    enum { EXPIRES_WIDTH = 24 };
    int width = name_width(set);
    int rights_width = any_writes(set) ? (int)strlen("read,write  ") : 0;
    td_terminal_line(stdout, "%-*s  %-*s  %-7s  %-*s%s", width, "NAME", EXPIRES_WIDTH, "EXPIRES", "EXPIRED",
                     rights_width, rights_width > 0 ? "RIGHTS" : "", "MODELS");
    for (size_t i = 0; i < td_token_set_count(set); i++) {
        const struct td_token *token = &td_token_set_tokens(set)[i];
        char expires[TIME_BYTES];
        struct td_buffer models;
        td_buffer_init(&models);
        write_models(token, &models);
        write_time(token->expires_s, expires);
        td_terminal_line(stdout, "%-*s  %-*s  %-7s  %-*s%s", width, token->name, EXPIRES_WIDTH, expires,
                         td_token_has_expired(token, now_s) ? "yes" : "no", rights_width,
                         rights_width > 0 ? rights_of(token) : "", models.failed ? "?" : models.data);
        td_buffer_fini(&models);
    }
}

static bool list_tokens(const struct arguments *arguments, struct td_error *err)
{
    struct td_token_set *set = NULL;
    int64_t now_s = td_wall_now().seconds;
    if (!td_token_file_read(arguments->file, &set, err))
        return false;
    bool ok = true;
    if (arguments->json)
        ok = print_list_json(set, now_s, err);
    else
        print_list(set, now_s);
    td_token_set_unref(set);
    return ok;
}

static bool revoke_token(const struct arguments *arguments, struct td_error *err)
{
    if (!td_token_file_remove(arguments->file, arguments->name, err))
        return false;
    td_terminal_line(stdout, "revoked %s; servers refuse it within 10 s", arguments->name);
    return true;
}

/* ---- the command ----------------------------------------------------------------------------------------- */

static bool run_verb(const struct arguments *arguments, int64_t expires_s, struct td_error *err)
{
    switch (arguments->verb) {
    case VERB_NEW:
        return make_new(arguments, expires_s, err);
    case VERB_LIST:
        return list_tokens(arguments, err);
    default:
        return revoke_token(arguments, err);
    }
}

int td_cmd_token(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    uint64_t lifetime_s = 0;
    int status = read_arguments(argc, argv, &arguments);
    if (status != 0)
        return status;
    if (arguments.expires != NULL && !td_duration_read_s(td_text_of(arguments.expires), 1, MOST_EXPIRES_S, &lifetime_s))
        return usage("without --expires a token never ends; --expires takes whole seconds, or a time such as 12h or "
                     "30d, from 1s to 100 years, not ",
                     arguments.expires);
    bool ok = run_verb(&arguments, lifetime_s == 0 ? 0 : td_wall_now().seconds + (int64_t)lifetime_s, &err);
    ok = td_output_flush(&err) && ok;
    if (!ok)
        td_terminal_complain("%s", err.message);
    return ok ? TD_EXIT_OK : err.code == TD_INVALID_ARGUMENT ? TD_EXIT_USAGE : TD_EXIT_FAILED;
}
