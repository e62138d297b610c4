/* Words of lines to copy: shells and Python read them, and must find the text that was quoted. */
#include "api/html/command_words.h"
#include "core/digits.h"
#include "tests/kit/tree.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No text has a NUL, since no argument of a program has one. */
static const char *const names[] = {
    "",
    "plain",
    "org/name",
    "a b",
    " a ",
    "it's",
    "'",
    "''",
    "'\\''",
    "\"quoted\"",
    "$HOME",
    "$(touch /tmp/x)",
    "`id`",
    "${IFS}",
    "a;b",
    "a&b|c",
    "a>b<c",
    "*",
    "?[a]",
    "~",
    "~root",
    "!!",
    "#no comment",
    "a=b",
    "{a,b}",
    "-n",
    "--help",
    "%s%n",
    "\\",
    "\\n",
    "a\\",
    "line\nfeed",
    "\n",
    "tab\tand\rreturn",
    "\x1b[31mred",
    "\x7f",
    "\x01\x32",
    "it's\n\"both\"\\",
    "\xc3\xa9t\xc3\xa9",
    "\xe4\xb8\xad\xe6\x96\x87",
    "\xf0\x9f\x98\x80",
    "\xe2\x80\xaegnp.exe",
    "bad \xff\xfe",
    "cut \xe2\x80",
    "\xc3\x61",
    "\xed\xa0\x80",
    "\"\"\"; import os; \"\"\"",
    "\\u0041\\x41",
    "{format} %d",
};

enum { BYTES = 255, ALL = COUNT_OF(names) + BYTES + BYTES, MOST_OUTPUT = 64 * ALL };

/* Returns name i of all: those above, then each byte alone, then each before a digit. */
static struct td_text name_at(size_t i, char room[3])
{
    if (i < COUNT_OF(names))
        return td_text_of(names[i]);
    const size_t byte = i - COUNT_OF(names);
    room[0] = (char)(byte % BYTES + 1);
    room[1] = '1';
    return td_text_n(room, byte < BYTES ? 1 : 2);
}

/* Runs `COMMAND FILE` over a file with this text, and copies at most `room` bytes of what it prints. Returns their
 * number. */
static size_t run(const char *command, const struct td_buffer *text, char *out, size_t room)
{
    char path[TREE_PATH_BYTES];
    char line[TREE_PATH_BYTES + 2048];
    struct tree tree;
    assert_false(text->failed);
    tree_open(&tree);
    tree_write(&tree, "text", text->data, text->len);
    tree_at(&tree, "text", path);
    assert_true(snprintf(line, sizeof line, "%s %s", command, path) < (int)sizeof line);
    FILE *pipe = popen(line, "re"); /* NOLINT(cert-env33-c): what a shell makes of words is the test */
    assert_non_null(pipe);
    const size_t len = fread(out, 1, room, pipe);
    CHECK(pclose(pipe) == 0, "%s failed: %.*s", command, (int)len, out);
    tree_close(&tree);
    return len;
}

/* Has the shell print all names, or those that print alone, a NUL after each. */
static void expect_of_shell(const char *shell, bool has_unprintable)
{
    char room[3];
    char *got = malloc(MOST_OUTPUT);
    struct td_buffer script;
    assert_non_null(got);
    td_buffer_init(&script);
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        const size_t len = pass == 0 ? 0 : run(shell, &script, got, MOST_OUTPUT);
        for (size_t i = 0; i < ALL; i++) {
            const struct td_text name = name_at(i, room);
            bool prints = true;
            for (size_t k = 0; k < name.len; k++)
                prints = prints && name.p[k] >= 0x20 && name.p[k] < 0x7f;
            if (!prints && !has_unprintable)
                continue;
            if (pass == 0) {
                td_buffer_puts(&script, "printf '%s\\0' ");
                td_command_word(&script, name);
                td_buffer_putc(&script, '\n');
                continue;
            }
            CHECK(at + name.len < len && memcmp(got + at, name.p, name.len) == 0 && got[at + name.len] == '\0',
                  "%s: name %zu", shell, i);
            at += name.len + 1;
        }
        assert_int_equal(at, len);
    }
    td_buffer_fini(&script);
    free(got);
}

/* The POSIX shell reads no $'...': words that print have none. */
static void shells_read_words(void **state)
{
    (void)state;
    expect_of_shell("sh", false);
    expect_of_shell("bash", true);
}

static void words_are_one_line_of_ascii(void **state)
{
    (void)state;
    char room[3];
    for (size_t i = 0; i < ALL; i++) {
        struct td_buffer word;
        td_buffer_init(&word);
        td_command_word(&word, name_at(i, room));
        td_command_string(&word, name_at(i, room));
        for (size_t k = 0; k < word.len; k++)
            CHECK(word.data[k] >= 0x20 && word.data[k] < 0x7f, "name %zu: byte %zu", i, k);
        td_buffer_fini(&word);
    }
}

/* Python gets the names in hexadecimal and as strings of its own, one pair in a line. */
static void python_reads_strings(void **state)
{
    static const char command[] =
        "python3 -c '\n"
        "import ast, codecs, sys\n"
        "codecs.register_error(\"each\", lambda e: (\"\\ufffd\" * (e.end - e.start), e.end))\n"
        "for line in open(sys.argv[1], encoding=\"ascii\"):\n"
        "    name, _, text = line.rstrip(\"\\n\").partition(\" \")\n"
        "    want = bytes.fromhex(name).decode(\"utf-8\", \"each\")\n"
        "    got = ast.literal_eval(text)\n"
        "    if got != want:\n"
        "        sys.exit(print(ascii((want, got))) or 1)\n"
        "print(\"right\")'";
    (void)state;
    char room[3];
    char out[256];
    struct td_buffer lines;
    td_buffer_init(&lines);
    for (size_t i = 0; i < ALL; i++) {
        char hex[128];
        const struct td_text name = name_at(i, room);
        assert_true(2 * name.len < sizeof hex);
        td_hex_write((const uint8_t *)name.p, name.len, hex);
        td_buffer_printf(&lines, "%s ", hex);
        td_command_string(&lines, name);
        td_buffer_putc(&lines, '\n');
    }
    td_buffer_puts(&lines, "00610062 ");
    td_command_string(&lines, TD_TEXT("\0a\0b"));
    td_buffer_putc(&lines, '\n');
    const size_t len = run(command, &lines, out, sizeof out);
    CHECK(len == strlen("right\n") && memcmp(out, "right\n", len) == 0, "%.*s", (int)len, out);
    td_buffer_fini(&lines);
}

/* validate_repo_id of huggingface_hub 1.x: its documentation has these examples. */
static void ids_that_huggingface_hub_takes(void **state)
{
    static const struct {
        const char *id;
        bool takes;
    } cases[] = {
        {"foo", true},
        {"foo/bar", true},
        {"123", true},
        {"Foo-BAR_foo.bar123", true},
        {"a.b/c_d", true},
        {"", false},
        {"datasets/foo/bar", false},
        {".repo_id", false},
        {"foo--bar", false},
        {"foo.git", false},
        {"foo..bar", false},
        {"foo/", false},
        {"/foo", false},
        {"foo//bar", false},
        {"foo bar", false},
        {"foo/-bar", false},
        {"foo/bar-", false},
        {"caf\xc3\xa9", false},
        {"foo'", false},
        {"foo$", false},
    };
    char most[98];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_command_takes_hub_id(td_text_of(cases[i].id)) == cases[i].takes, "%s", cases[i].id);
    memset(most, 'a', sizeof most);
    assert_true(td_command_takes_hub_id(td_text_n(most, 96)));
    assert_false(td_command_takes_hub_id(td_text_n(most, 97)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shells_read_words),
        cmocka_unit_test(words_are_one_line_of_ascii),
        cmocka_unit_test(python_reads_strings),
        cmocka_unit_test(ids_that_huggingface_hub_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
