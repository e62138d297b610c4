/* The commands of the program. Each takes the arguments after its name and returns the process's exit code:
 * 0 good, 1 refused or unhealthy, 2 wrong usage. */
#ifndef TD_SERVER_COMMANDS_H
#define TD_SERVER_COMMANDS_H

#include <stdio.h>

enum { TD_EXIT_OK = 0, TD_EXIT_FAILED = 1, TD_EXIT_USAGE = 2 };

int td_cmd_serve(int argc, char **argv);
int td_cmd_inspect(int argc, char **argv);
int td_cmd_plan(int argc, char **argv);
void td_cmd_plan_help(FILE *out);
int td_cmd_verify(int argc, char **argv);
int td_cmd_health(int argc, char **argv);

#endif
