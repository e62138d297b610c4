#include "server/cmd/take_option.h"

#include <stddef.h>
#include <string.h>

bool td_take_option(int argc, char **argv, int *i, const char *name, const char **value)
{
    size_t len = strlen(name);
    const char *argument = argv[*i];
    if (strncmp(argument, name, len) != 0 || (argument[len] != '\0' && argument[len] != '='))
        return false;
    if (argument[len] == '=')
        *value = argument + len + 1;
    else if (*i + 1 < argc)
        *value = argv[++*i];
    else
        *value = NULL;
    return true;
}
