/* The file is read whole, then token by token with core/json, so that each fault has a line and a column. The first
 * fault in the text is reported. */
#include "server/config/config_file.h"

#include "core/json/json.h"
#include "server/config/suggest.h"
#include "server/host/option_file.h"

#include <stdio.h>
#include <string.h>

/* Most bytes of a path and of a key or value that a message shows. */
enum { PATH_SHOWN = 160, VALUE_SHOWN = 64 };

/* ---- places -------------------------------------------------------------------------------------------- */

/* Sets *err to a fault of the JSON reader, with the path, the line and the column. Returns false. */
static bool report_fault(const char *path, struct td_text text, const struct td_error *fault, struct td_error *err)
{
    size_t line;
    size_t column;
    if (fault->pos == TD_ERROR_POS_NONE)
        return td_error_copy(err, fault);
    td_text_locate(text, fault->pos, &line, &column);
    return td_error_set(err, fault->code, "\"%.*s\", line %zu, column %zu: %s", TD_SHOW(td_text_of(path), PATH_SHOWN),
                        line, column, fault->message);
}

/* ---- keys and values ----------------------------------------------------------------------------------- */

static bool unknown_key(struct td_json *json)
{
    const char *names[TD_OPTIONS_MAX + 1];
    const struct td_option *option;
    struct td_text key = td_json_raw(json);
    size_t count = 0;
    for (size_t i = 0; (option = td_option_at(i)) != NULL; i++)
        if (option->place != TD_OPTION_NOT_IN_FILE)
            names[count++] = option->name;
    names[count] = NULL;
    const char *near = td_suggest_nearest(key, names);
    if (near != NULL)
        return td_json_fail(json, "unknown key \"%.*s\" (did you mean \"%s\"?)", TD_SHOW(key, VALUE_SHOWN), near);
    return td_json_fail(json,
                        "unknown key \"%.*s\"; the keys are \"directory\" and the options that tensord serve --help "
                        "lists, but for config and print-config",
                        TD_SHOW(key, VALUE_SHOWN));
}

/* Returns the option that the latest key names. Refuses a key that is unknown or was given before. places[i] is the
 * position of the key of option i, plus 1; 0: not given. */
static const struct td_option *find_key(struct td_json *json, size_t places[TD_OPTIONS_MAX])
{
    const struct td_option *option;
    size_t i = 0;
    while ((option = td_option_at(i)) != NULL && !td_json_equals(json, option->name))
        i++;
    if (option == NULL || option->place == TD_OPTION_NOT_IN_FILE) {
        (void)unknown_key(json);
        return NULL;
    }
    if (places[i] != 0) {
        size_t line;
        size_t column;
        td_text_locate(json->text, places[i] - 1, &line, &column);
        (void)td_json_fail(json, "the key \"%s\" is given twice, first in line %zu, column %zu", option->name, line,
                           column);
        return NULL;
    }
    places[i] = json->start + 1;
    return option;
}

/* Refuses a value of a type that the option does not take. `value` is how the message shows it. */
static bool wrong_type(struct td_json *json, const struct td_option *option, struct td_text value)
{
    struct td_buffer wanted;
    bool is_string = option->kind == TD_OPTION_WORD || option->kind == TD_OPTION_ADDRESS;
    td_buffer_init(&wanted);
    td_option_write_wanted(option, true, &wanted);
    struct td_text text = td_buffer_text(&wanted);
    (void)td_json_fail(json, "\"%s\" takes %.*s%s, not %.*s", option->name, (int)text.len, text.p,
                       is_string ? ", as a string" : "", TD_SHOW(value, VALUE_SHOWN));
    td_buffer_fini(&wanted);
    return false;
}

static bool set_value(struct td_config *config, const struct td_option *option, struct td_json *json, const char *value)
{
    struct td_error why = TD_ERROR_INIT;
    char shown[TD_SUGGEST_BYTES];
    (void)snprintf(shown, sizeof shown, "\"%s\"", option->name);
    return td_option_set(config, option, TD_CONFIG_FILE, shown, value, &why) || td_json_fail(json, "%s", why.message);
}

/* Sets the option to the string, in the form that the option takes on the command line. */
static bool set_string(struct td_config *config, const struct td_option *option, struct td_json *json)
{
    size_t len;
    char *value = td_arena_alloc(&config->strings, json->value_len + 1);
    if (value == NULL)
        return td_arena_refuse(&config->strings, "the configuration", json->err);
    return td_json_string(json, value, json->value_len + 1, &len) && set_value(config, option, json, value);
}

/* Sets the option to the number as it is spelled. No number that an option takes has more than 19 digits. */
static bool set_number(struct td_config *config, const struct td_option *option, struct td_json *json)
{
    char value[32];
    struct td_text digits = td_json_raw(json);
    bool takes_numbers = option->kind == TD_OPTION_COUNT || option->kind == TD_OPTION_COUNT_OR_AUTO ||
                         option->kind == TD_OPTION_SIZE || option->kind == TD_OPTION_TIME;
    if (!takes_numbers || digits.len >= sizeof value)
        return wrong_type(json, option, digits);
    (void)snprintf(value, sizeof value, "%.*s", (int)digits.len, digits.p);
    return set_value(config, option, json, value);
}

static bool read_value(struct td_config *config, const struct td_option *option, struct td_json *json)
{
    switch (td_json_next(json)) {
    case TD_JSON_STRING:
        return set_string(config, option, json);
    case TD_JSON_NUMBER:
        return set_number(config, option, json);
    case TD_JSON_TRUE:
        return option->kind == TD_OPTION_SWITCH ? set_value(config, option, json, "on")
                                                : wrong_type(json, option, TD_TEXT("true"));
    case TD_JSON_FALSE:
        return option->kind == TD_OPTION_SWITCH ? set_value(config, option, json, "off")
                                                : wrong_type(json, option, TD_TEXT("false"));
    case TD_JSON_NULL:
        return wrong_type(json, option, TD_TEXT("null; leave the key out for the default"));
    case TD_JSON_OBJECT_BEGIN:
        return wrong_type(json, option, TD_TEXT("an object"));
    case TD_JSON_ARRAY_BEGIN:
        return wrong_type(json, option, TD_TEXT("an array"));
    default:
        return false; /* the reader has reported the fault */
    }
}

static bool read_settings(struct td_config *config, struct td_text text, struct td_error *fault)
{
    struct td_json json;
    size_t places[TD_OPTIONS_MAX] = {0};
    enum td_json_token token;
    td_json_init(&json, text, 0, fault);
    if (!td_json_expect(&json, TD_JSON_OBJECT_BEGIN, "an object of settings"))
        return false;
    while ((token = td_json_next(&json)) == TD_JSON_KEY) {
        const struct td_option *option = find_key(&json, places);
        if (option == NULL || !read_value(config, option, &json))
            return false;
    }
    return token == TD_JSON_OBJECT_END && td_json_expect(&json, TD_JSON_END, "the end of the file");
}

bool td_config_file_read(struct td_config *config, const char *path, struct td_error *err)
{
    struct td_error fault = TD_ERROR_INIT;
    struct td_buffer content;
    td_buffer_init(&content);
    bool ok = td_whole_file_read(path, "configuration", TD_CONFIG_FILE_BYTES, &content, NULL, err);
    if (ok) {
        ok = read_settings(config, td_buffer_text(&content), &fault);
        if (!ok)
            (void)report_fault(path, td_buffer_text(&content), &fault, err);
    }
    td_buffer_fini(&content);
    return ok;
}
