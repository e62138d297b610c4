#include "api/metrics.h"
#include "server/commands.h"
#include "server/config.h"
#include "server/mhd.h"

#include <stdio.h>
#include <string.h>

static void help(FILE *out)
{
    (void)fputs(
        "tensord serves the tensors of model checkpoints over HTTP, straight from mapped storage.\n"
        "\n"
        "usage:\n"
        "  tensord serve DIR [options]       serve every model below DIR\n"
        "  tensord inspect FILE|DIR [--json] print the tensors, without a server\n"
        "  tensord plan DIR MODEL --engine NAME --tp SIZE [--checkpoint ID] [--json]\n"
        "                                    what each rank gets: bytes, runs; or --plan FILE, see plan --help\n"
        "  tensord verify DIR [--state-dir DIR] [--json]\n"
        "                                    read all of every file, compare with what a server recorded in its\n"
        "                                    --state-dir (or TENSORD_STATE_DIR), and with the names in a Hugging\n"
        "                                    Face cache\n"
        "  tensord health URL                exit 0 when URL, such as http://127.0.0.1:8080, answers 2xx;\n"
        "                                    without a path /readyz\n"
        "  tensord --help | --version\n"
        "\n"
        "options of serve (default); each is also an environment variable, --max-files is TENSORD_MAX_FILES:\n",
        out);
    td_config_help(out);
    (void)fputs(
        "\n"
        "signals: SIGHUP scans DIR again; SIGTERM drains and exits 0, a second one exits at once.\n"
        "exit codes: 0 good; 1 could not start, refused a file or a plan, found a file that differs,\n"
        "            or is not healthy; 2 wrong usage.\n",
        out);
}

/* Says too whether this machine can serve: libmicrohttpd is not linked, but loaded. */
static int version(void)
{
    struct td_error err;
    td_error_init(&err);
    (void)puts("tensord " TD_VERSION);
    (void)fflush(stdout);
    if (!td_mhd_load(&err)) {
        (void)fprintf(stderr, "tensord: %s\n", err.message);
        return TD_EXIT_FAILED;
    }
    (void)printf("libmicrohttpd %s\n", td_mhd.get_version());
    return TD_EXIT_OK;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"serve", td_cmd_serve},
                    {"inspect", td_cmd_inspect},
                    {"plan", td_cmd_plan},
                    {"verify", td_cmd_verify},
                    {"health", td_cmd_health}};
    const char *name = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            if (strcmp(name, "plan") == 0)
                td_cmd_plan_help(stdout);
            else
                help(stdout);
            return TD_EXIT_OK;
        }
    }
    if (strcmp(name, "--version") == 0)
        return version();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    if (name[0] == '\0')
        help(stderr);
    else
        (void)fprintf(
            stderr,
            "tensord: unknown command \"%s\"; there are serve, inspect, plan, verify and health (tensord --help)\n",
            name);
    return TD_EXIT_USAGE;
}
