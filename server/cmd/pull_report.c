#include "server/cmd/pull_report.h"

#include "core/digits.h"
#include "core/json/json_build.h"
#include "server/cmd/command_line.h"
#include "server/host/terminal.h"

#include <stdio.h>

struct sums {
    uint64_t bytes, fetched_bytes, resumed_bytes;
    size_t done, there, unverified;
    const char *first_unverified; /* its name; NULL: none */
};

static struct sums add_up(const struct td_pull_report *report)
{
    struct sums sums = {0};
    for (size_t i = 0; i < report->list.count; i++) {
        const struct td_pull_file *file = &report->list.files[i];
        sums.fetched_bytes += file->older_bytes + file->outcome.fetched_bytes;
        sums.resumed_bytes += file->outcome.resumed_bytes;
        if (!file->is_done)
            continue;
        sums.bytes += file->expected->size_bytes;
        sums.done++;
        sums.there += file->outcome.was_there ? 1 : 0;
        if (!file->outcome.is_verified && sums.unverified++ == 0)
            sums.first_unverified = td_pull_file_name(file);
    }
    return sums;
}

static void add_file(struct td_json_builder *json, const struct td_pull_file *file)
{
    char sha256[TD_SHA256_TEXT_BYTES];
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "path", td_pull_file_name(file));
    td_json_add_u64(json, "bytes", file->expected->size_bytes);
    td_json_add_bool(json, "complete", file->is_done);
    if (file->is_done) {
        td_hex_write(file->outcome.sums.sha256, TD_SHA256_BYTES, sha256);
        td_json_add_string(json, "sha256", sha256);
    }
    td_json_add_bool(json, "verified", file->outcome.is_verified);
    td_json_add_bool(json, "present", file->outcome.was_there);
    td_json_add_u64(json, "fetched_bytes", file->older_bytes + file->outcome.fetched_bytes);
    td_json_add_u64(json, "resumed_bytes", file->outcome.resumed_bytes);
    td_json_end(json);
    td_json_flush(json);
}

static void add_all(struct td_json_builder *json, const struct td_pull_report *report)
{
    const struct sums sums = add_up(report);
    bool has_failed = report->failure->code != TD_OK;
    td_json_begin_object(json, NULL);
    td_json_add_string(json, "model", report->model);
    td_json_add_string(json, "revision", report->revision);
    if (report->commit[0] != '\0')
        td_json_add_string(json, "commit", report->commit);
    td_json_add_string(json, "directory", report->directory);
    td_json_add_bool(json, "complete", !has_failed);
    td_json_add_bool(json, "verified", !has_failed && sums.unverified == 0);
    td_json_begin_array(json, "files");
    for (size_t i = 0; i < report->list.count; i++)
        add_file(json, &report->list.files[i]);
    td_json_end(json);
    td_json_add_u64(json, "bytes", sums.bytes);
    td_json_add_u64(json, "fetched_bytes", sums.fetched_bytes);
    td_json_add_u64(json, "resumed_bytes", sums.resumed_bytes);
    td_json_add_seconds(json, "seconds", report->seconds);
    if (has_failed)
        td_json_add_string(json, "error", report->failure->message);
    td_json_end(json);
}

bool td_pull_report_json(const struct td_pull_report *report, struct td_error *err)
{
    struct td_buffer text;
    struct td_json_builder json;
    td_buffer_init(&text);
    td_json_builder_init(&json, &text);
    add_all(&json, report);
    td_json_builder_fini(&json);
    return td_output_json(&text, err);
}

void td_pull_report_line(const struct td_pull_report *report)
{
    const struct sums sums = add_up(report);
    double rate = report->seconds > 0 ? (double)sums.fetched_bytes / report->seconds : 0;
    char resumed[64] = "";
    char note[256] = "";
    if (sums.resumed_bytes > 0)
        (void)snprintf(resumed, sizeof resumed, " %s are of an earlier run,",
                       td_terminal_size(sums.resumed_bytes).text);
    if (sums.unverified > 0)
        (void)snprintf(note, sizeof note, "; %zu file%s (%.100s%s) %s checked by length and entity tag alone",
                       sums.unverified, td_plural(sums.unverified), sums.first_unverified,
                       sums.unverified > 1 ? ", ..." : "", sums.unverified > 1 ? "were" : "was");
    td_terminal_line(stdout, "%s: %zu file%s, %s, in %s; %zu %s there already;%s fetched %s in %.1f s (%s/s)%s",
                     report->model, sums.done, td_plural(sums.done), td_terminal_size(sums.bytes).text,
                     report->directory, sums.there, sums.there == 1 ? "was" : "were", resumed,
                     td_terminal_size(sums.fetched_bytes).text, report->seconds, td_terminal_size((uint64_t)rate).text,
                     note);
}
