#include "catalog/sandbox/parse_message.h"
#include "catalog/sandbox/parse_worker.h"
#include "http/build_commit.h"
#include "server/cmd/commands.h"
#include "server/cmd/shared/command_line.h"
#include "server/config/config.h"
#include "server/config/suggest.h"
#include "server/host/terminal.h"
#include "server/mhd/http_server.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    void (*help)(FILE *out);
} commands[] = {
    {"serve", td_cmd_serve, td_cmd_serve_help},    {"inspect", td_cmd_inspect, td_cmd_inspect_help},
    {"plan", td_cmd_plan, td_cmd_plan_help},       {"verify", td_cmd_verify, td_cmd_verify_help},
    {"health", td_cmd_health, td_cmd_health_help}, {"token", td_cmd_token, td_cmd_token_help},
    {"sign", td_cmd_sign, td_cmd_sign_help},       {"pull", td_cmd_pull, td_cmd_pull_help},
    {"push", td_cmd_push, td_cmd_push_help},       {"apply", td_cmd_apply, td_cmd_apply_help},
    {"follow", td_cmd_follow, td_cmd_follow_help},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    (void)fputs(
        "tensord serves the tensors of model checkpoints over HTTP, directly from the files.\n"
        "\n"
        "usage:\n"
        "  tensord serve DIR [options]       serve every model below DIR; --config FILE has options\n"
        "  tensord inspect FILE|DIR [--json]\n"
        "                                    print the tensors, without a server\n"
        "  tensord plan DIR MODEL --engine NAME --tp SIZE [--checkpoint ID] [--json]\n"
        "                                    print the bytes and runs of each rank's file; see plan --help\n"
        "  tensord verify DIR [--state-dir DIR] [--json]\n"
        "                                    read every file to its end and compare its digest with the one that a\n"
        "                                    server recorded in its --state-dir (or TENSORD_STATE_DIR), and with the\n"
        "                                    blob's name in a Hugging Face cache\n"
        "  tensord verify PATH URL[,URL...] MODEL\n"
        "                                    compare each tensor with its digest on a server; see verify --help\n"
        "  tensord health URL [--ca FILE]    exit 0 when URL, such as http://127.0.0.1:8080, answers 2xx;\n"
        "                                    without a path it asks for /readyz; or health --local\n"
        "  tensord token new|list|revoke --tokens FILE\n"
        "                                    make, list and revoke tokens; see token --help\n"
        "  tensord pull URL[,URL...] MODEL [-o DIR] [--engine NAME --tp SIZE --rank R]\n"
        "                                    copy a model, or one rank's files, from a server; see pull --help\n"
        "  tensord follow URL[,URL...] MODEL [-o DIR] [--keep N] [--apply] [--exec CMD] [--once]\n"
        "                                    keep a directory at the newest version of a model; see follow --help\n"
        "  tensord push DIR URL MODEL        put the files of DIR into a model on a server, as one commit; see\n"
        "                                    push --help\n"
        "  tensord apply BASE DELTA [DELTA ...] -o OUT [--base-version TEXT] [--json]\n"
        "                                    make a full version of a model from a base and deltas; see apply --help\n"
        "  tensord sign URL --tokens FILE --expires TIME [--as NAME] [--json]\n"
        "                                    print the URL so that it answers without a token, until it expires\n"
        "  tensord help [COMMAND]            print this text, or the help of one command (also COMMAND --help, -h)\n"
        "  tensord --version\n"
        "\n"
        "options of serve, defaults in parentheses; in the environment, --max-files is TENSORD_MAX_FILES:\n",
        out);
    td_config_help(out);
    (void)fputs(
        "\n"
        "signals: SIGHUP reads the --config file, the certificate and the tokens again, opens the access log again\n"
        "         and scans DIR; SIGTERM drains and exits 0, a second one exits at once.\n"
        "exit codes: 0 success; 1 could not start, refused a file or a plan, found a file that differs, could not\n"
        "            read or change a tokens file, or is not healthy; 2 wrong usage or configuration; 3 verify had\n"
        "            nothing to compare.\n",
        out);
}

/* Prints the short help for a call without arguments. */
static void brief(FILE *out)
{
    (void)fputs("tensord serves the tensors of model checkpoints over HTTP, directly from the files.\n"
                "  tensord serve DIR          serve every model and dataset below DIR, on http://127.0.0.1:8080\n"
                "  tensord pull URL MODEL     copy a model, or one rank's files, from a server\n"
                "  tensord follow URL MODEL   keep a directory at the newest version of a model\n"
                "  tensord push DIR URL MODEL put the files of DIR into a model on a server\n"
                "  tensord apply BASE DELTA -o OUT   make a full version from a base and deltas\n"
                "  tensord inspect FILE|DIR   print the tensors of files\n"
                "  tensord plan DIR MODEL     print the bytes of each rank's file\n"
                "  tensord verify DIR         compare files with recorded digests\n"
                "  tensord health URL         ask whether a server is healthy\n"
                "  tensord token new NAME     make a token; also token list and token revoke\n"
                "  tensord sign URL           make a URL that needs no token\n"
                "  tensord help [COMMAND]     all options, or those of one command\n",
                out);
}

static int version(void)
{
    (void)printf("tensord " TD_VERSION " (commit %s)\nlibmicrohttpd %s\n", td_build_commit(), td_http_server_library());
    return TD_EXIT_OK;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* Complains, and suggests what was probably meant. A directory without a command is a common first try. */
static int unknown_command(const char *name)
{
    static const char *const options[] = {"help", "version", NULL};
    bool is_option = name[0] == '-';
    const char *words[COMMAND_COUNT + 2] = {NULL};
    char list[256];
    char near[TD_SUGGEST_BYTES];
    size_t len = 0;
    struct stat st;
    if (!is_option && stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
        td_terminal_complain("\"%s\" is a directory, not a command; to serve it: tensord serve %s", name, name);
        return TD_EXIT_USAGE;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        words[i] = commands[i].name;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    if (td_config_has_option(name)) {
        td_terminal_complain("%s is an option of tensord serve; usage: tensord serve DIR [options]", name);
        return TD_EXIT_USAGE;
    }
    if (td_config_is_address_option(name)) {
        td_terminal_complain("unknown option \"%s\"; to serve: tensord serve DIR --listen 127.0.0.1:8080", name);
        return TD_EXIT_USAGE;
    }
    words[COMMAND_COUNT] = "help";
    td_suggest(name, is_option ? "--" : "", is_option ? options : words, near);
    if (strcmp(name, "-v") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0)
        (void)snprintf(near, sizeof near, " (did you mean --version?)");
    td_terminal_complain("unknown %s \"%s\"%s; the commands are %s and help, the option is --version",
                         is_option ? "option" : "command", name, near, list);
    return TD_EXIT_USAGE;
}

static bool asks_for_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* Returns the exit code after a help text that the user asked for. */
static int helped(void)
{
    return fflush(stdout) == 0 ? TD_EXIT_OK : TD_EXIT_FAILED;
}

static int help_command(int argc, char **argv)
{
    if (argc == 0 || asks_for_help(argv[0]) || strcmp(argv[0], "help") == 0) {
        help(stdout);
        return helped();
    }
    const struct command *command = find_command(argv[0]);
    if (command == NULL)
        return unknown_command(argv[0]);
    command->help(stdout);
    return helped();
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        brief(stderr);
        return TD_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || asks_for_help(name))
        return help_command(argc - 2, argv + 2);
    if (strcmp(name, "--version") == 0)
        return version();
    if (strcmp(name, TD_PARSE_WORKER) == 0) /* by which this program starts itself */
        return td_parse_worker_run(argc - 2, argv + 2);
    const struct command *command = find_command(name);
    if (command == NULL)
        return unknown_command(name);
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (asks_for_help(argv[i])) {
            command->help(stdout);
            return helped();
        }
    }
    return command->run(argc - 2, argv + 2);
}
