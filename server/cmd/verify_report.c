#include "server/cmd/verify_report.h"

#include "server/host/terminal.h"

#include <inttypes.h>
#include <stdio.h>

void td_verify_report_init(struct td_verify_report *report, bool as_json, struct td_progress *progress)
{
    *report = (struct td_verify_report){.as_json = as_json, .progress = progress};
    td_buffer_init(&report->text);
    td_buffer_init(&report->shown);
    td_document_init(&report->json, &report->text);
}

void td_verify_report_fini(struct td_verify_report *report)
{
    td_buffer_fini(&report->text);
    td_buffer_fini(&report->shown);
}

void td_verify_report_flush(struct td_verify_report *report)
{
    report->has_failed = report->has_failed || report->text.failed;
    (void)fwrite(report->text.data, 1, report->text.len, stdout);
    td_buffer_clear(&report->text);
}

void td_verify_report_begin(struct td_verify_report *report)
{
    td_document_begin_object(&report->json, NULL);
    td_document_begin_array(&report->json, "problems");
    td_verify_report_flush(report);
}

void td_verify_problem_begin(struct td_verify_report *report, const char *problem, const char *title, const char *key,
                             const char *name)
{
    td_progress_pause(report->progress);
    if (!report->as_json) {
        (void)printf("%-10s %s: ", title, td_terminal_name(name, &report->shown));
        return;
    }
    td_document_begin_object(&report->json, NULL);
    td_document_add_string(&report->json, "problem", problem);
    td_document_add_string(&report->json, key, name);
}

void td_verify_problem_end(struct td_verify_report *report)
{
    if (report->as_json) {
        td_document_end(&report->json);
        td_verify_report_flush(report);
    } else {
        (void)putchar('\n');
    }
    (void)fflush(stdout);
    td_progress_resume(report->progress);
}

void td_verify_problem_add(struct td_verify_report *report, const char *expected, const char *found)
{
    td_document_add_string(&report->json, "expected", expected);
    td_document_add_string(&report->json, "found", found);
}

void td_verify_print_unreadable(struct td_verify_report *report, const char *key, const char *name, const char *message)
{
    td_verify_problem_begin(report, "unreadable", "UNREADABLE", key, name);
    if (report->as_json)
        td_document_add_string(&report->json, "message", message);
    else
        (void)printf("%s", td_terminal_name(message, &report->shown));
    td_verify_problem_end(report);
}

bool td_verify_not_compared(uint64_t number, uint64_t count)
{
    enum { NAMED_MAX = 20 };
    if (number < NAMED_MAX)
        (void)printf("not compared: ");
    else
        (void)printf("not compared: and %" PRIu64 " more\n", count - NAMED_MAX);
    return number < NAMED_MAX;
}
