#include "server/cmd/shared/copy_options.h"

#include "catalog/remote/remote_model.h"
#include "core/digits.h"
#include "core/glob.h"
#include "core/quantity.h"
#include "server/host/terminal.h"
#include "storage/fetch/fetch_url.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SECONDS = 30 * 86400 };

void td_copy_options_list(struct td_copy_options *options, struct td_command_option rows[TD_COPY_ROWS])
{
    const struct td_command_option all[TD_COPY_ROWS] = {
        {"--connections", .value = &options->given.connections},
        {"--retry-for", .value = &options->given.retry_for},
        {"--stall", .value = &options->given.stall},
        {"--include", .values = &options->include},
        {"--exclude", .values = &options->exclude},
        {"--token-file", .value = &options->token_file},
        {"--cacert", .value = &options->ca},
        {"--cert", .value = &options->cert},
        {"--key", .value = &options->key},
        {"--json", .flag = &options->json},
        {"--quiet", .flag = &options->quiet},
        {.name = NULL},
    };
    memcpy(rows, all, sizeof all);
}

bool td_copy_options_check(const struct td_command_line *line, struct td_copy_options *options)
{
    const char *connections = options->given.connections;
    const char *retry_for = options->given.retry_for;
    const char *stall = options->given.stall;
    char fault[64];
    (void)snprintf(fault, sizeof fault, "--connections takes a number from 1 to %d, not ", TD_FETCH_MAX_CONNECTIONS);
    options->connections = TD_COPY_CONNECTIONS;
    options->retry_s = TD_COPY_RETRY_S;
    options->stall_s = TD_FETCH_STALL_S;
    if ((options->cert == NULL) != (options->key == NULL))
        return td_command_line_refuse(line, "--cert and --key are given together, or none of them", "");
    if (connections != NULL &&
        (!td_number_read_strict(td_text_of(connections), TD_FETCH_MAX_CONNECTIONS, &options->connections) ||
         options->connections == 0))
        return td_command_line_refuse(line, fault, connections);
    if (retry_for != NULL && !td_duration_read_s(td_text_of(retry_for), 0, MAX_SECONDS, &options->retry_s))
        return td_command_line_refuse(
            line, "--retry-for takes whole seconds, or a time such as 60s or 5m, from 0s to 30d, not ", retry_for);
    if (stall != NULL && !td_duration_read_s(td_text_of(stall), 1, MAX_SECONDS, &options->stall_s))
        return td_command_line_refuse(
            line, "--stall takes whole seconds, or a time such as 30s or 5m, from 1s to 30d, not ", stall);
    return true;
}

static bool matches(const struct td_option_values *patterns, const char *path)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (td_glob_match(td_text_of(patterns->items[i]), td_text_of(path)))
            return true;
    return false;
}

bool td_copy_options_take(const struct td_copy_options *options, const char *path)
{
    return (options->include.count == 0 || matches(&options->include, path)) && !matches(&options->exclude, path);
}

void td_copy_options_help(FILE *out, const char *connections, const char *token)
{
    (void)fputs(
        "  --include GLOB     only files whose path matches; * stands for any text, / too; may be given several times\n"
        "                     (all files)\n"
        "  --exclude GLOB     no files whose path matches; may be given several times (not set)\n",
        out);
    (void)fprintf(out, "  --connections N    connections %s, 1 to 64 (8)\n", connections);
    (void)fputs("  --retry-for TIME   time to try again without any progress before giving up; 0 = not at all (60s)\n"
                "  --stall TIME       time after which a connection with less than 1 KiB/s has failed (30s)\n",
                out);
    (void)fputs(token, out);
    (void)fputs("  --cacert FILE      authorities in PEM to trust for https:// (those of the system)\n"
                "  --cert FILE        certificate of the client in PEM, with --key (not set)\n"
                "  --key FILE         private key of the certificate, in PEM (not set)\n"
                "  --json             one JSON object at the end, on standard output, instead of a line\n"
                "  --quiet            no progress and no notes\n",
                out);
}

bool td_copy_urls_read(const struct td_command_line *line, const char *list, struct td_copy_urls *out)
{
    struct td_text base;
    struct td_error err = TD_ERROR_INIT;
    char fault[32];
    (void)snprintf(fault, sizeof fault, "give at most %d URLs", TD_FETCH_MAX_SERVERS);
    out->list = strdup(list);
    if (out->list == NULL) {
        td_terminal_complain("out of memory");
        return false;
    }
    for (char *next = out->list, *one; (one = strsep(&next, ",")) != NULL;) {
        if (out->count == TD_FETCH_MAX_SERVERS)
            return td_command_line_refuse(line, fault, "");
        if (one[0] == '\0')
            return td_command_line_refuse(line, "there is a comma too many in the list of URLs: ", list);
        if (!td_fetch_url_check(one, &base, &err)) {
            td_terminal_complain("%s", err.message);
            return false;
        }
        out->items[out->count++] = one;
    }
    return true;
}

void td_copy_urls_fini(struct td_copy_urls *urls)
{
    free(urls->list);
    urls->list = NULL;
}

bool td_copy_urls_refuse_space(const struct td_command_line *line, const char *list, const char *argument)
{
    if (list[0] == '\0' || list[strlen(list) - 1] != ',')
        return false;
    (void)td_command_line_refuse(
        line, "no space may be after the comma between URLs, but there is one before another argument: ", argument);
    return true;
}

/* Returns whether the model is named like a dataset in URLs; if so, prints how to fetch datasets. */
static bool is_dataset(const struct td_copy_command *command, const char *model)
{
    static const char begin[] = "datasets/";
    if (strncmp(model, begin, sizeof begin - 1) != 0)
        return false;
    td_terminal_complain("%s copies models, and \"%s\" names a dataset: get it by HF_ENDPOINT=URL hf download "
                         "--repo-type dataset %s",
                         command->name, model, model + sizeof begin - 1);
    return true;
}

/* Prints why the id of the model was refused, with the likely mistake. Returns false. */
static bool refuse_model(const struct td_copy_command *command, const struct td_copy_model *given,
                         const struct td_error *err)
{
    bool has_url = strstr(given->model, "://") != NULL;
    bool has_space = has_url && given->list[0] != '\0' && given->list[strlen(given->list) - 1] == ',';
    const char *hint = has_space                             ? "no space after the comma?"
                       : has_url                             ? "URL and model are swapped?"
                       : strpbrk(given->model, ":@") != NULL ? command->about_revisions
                                                             : NULL;
    td_terminal_complain(hint == NULL ? "%s" : "%s (%s)", err->message, hint);
    return false;
}

bool td_copy_model_read(const struct td_copy_command *command, const struct td_command_line *line, int argc,
                        char **argv, struct td_copy_model *out)
{
    struct td_error err = TD_ERROR_INIT;
    const char *others[3] = {NULL};
    char fault[120];
    size_t count;
    if (!td_command_line_read(line, argc, argv, others, 2, &count))
        return false;
    out->list = others[0];
    out->model = others[1];
    if (count > 2) {
        (void)snprintf(fault, sizeof fault,
                       "only one model is %s at a time (its directory is given by -o DIR), but there is also ",
                       command->done);
        return !td_copy_urls_refuse_space(line, out->list, others[2]) && td_command_line_refuse(line, fault, others[2]);
    }
    if (count < 2)
        return td_command_line_refuse(line, "give the URL of a server and a model", "");
    if (is_dataset(command, out->model))
        return false;
    if (!td_remote_id_check(td_text_of(out->model), &err))
        return refuse_model(command, out, &err);
    const char *slash = strrchr(out->model, '/');
    if (out->directory == NULL)
        out->directory = slash == NULL ? out->model : slash + 1;
    return true;
}
