/* The commands of the program. td_cmd_NAME takes the arguments after the command's name, runs the command, and returns
 * the exit code of the process (server/cmd/shared/command_line.h). td_cmd_NAME_help writes the command's help to `out`.
 */
#ifndef TD_SERVER_CMD_COMMANDS_H
#define TD_SERVER_CMD_COMMANDS_H

#include <stdio.h>

int td_cmd_serve(int argc, char **argv);
void td_cmd_serve_help(FILE *out);
int td_cmd_inspect(int argc, char **argv);
void td_cmd_inspect_help(FILE *out);
int td_cmd_plan(int argc, char **argv);
void td_cmd_plan_help(FILE *out);
int td_cmd_verify(int argc, char **argv);
void td_cmd_verify_help(FILE *out);
int td_cmd_token(int argc, char **argv);
void td_cmd_token_help(FILE *out);
int td_cmd_health(int argc, char **argv);
void td_cmd_health_help(FILE *out);
int td_cmd_pull(int argc, char **argv);
void td_cmd_pull_help(FILE *out);
int td_cmd_push(int argc, char **argv);
void td_cmd_push_help(FILE *out);
int td_cmd_sign(int argc, char **argv);
void td_cmd_sign_help(FILE *out);
int td_cmd_apply(int argc, char **argv);
void td_cmd_apply_help(FILE *out);
int td_cmd_follow(int argc, char **argv);
void td_cmd_follow_help(FILE *out);

#endif
