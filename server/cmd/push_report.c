#include "server/cmd/push_report.h"

#include "core/digits.h"
#include "server/host/terminal.h"

#include <string.h>

/* Returns the bytes of all files, each once. */
static uint64_t file_bytes(const struct td_push_report *report)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < report->files->count; i++)
        bytes += report->files->files[i].blob.size_bytes;
    return bytes;
}

/* Returns the bytes of one file that were sent, to all servers together. */
static uint64_t sent_of_file(const struct td_push_report *report, size_t file)
{
    uint64_t bytes = 0;
    for (size_t i = 0; report->sites != NULL && i < report->url_count; i++)
        bytes += atomic_load(&report->sites[i].sendings[file].sent_bytes);
    return bytes;
}

/* Returns the bytes that were sent to one server. */
static uint64_t sent_to_site(const struct td_push_report *report, size_t site)
{
    uint64_t bytes = 0;
    for (size_t i = 0; report->sites != NULL && i < report->files->count; i++)
        bytes += atomic_load(&report->sites[site].sendings[i].sent_bytes);
    return bytes;
}

/* Returns the id of the commit that was made there; "": none was. */
static const char *commit_at(const struct td_push_report *report, size_t site)
{
    bool is_done = report->sites != NULL && report->sites[site].is_done;
    return is_done ? report->sites[site].reply.commit : "";
}

static bool has_changed(const struct td_push_report *report, size_t site)
{
    return commit_at(report, site)[0] != '\0' && report->sites[site].reply.has_changed;
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void add_file(struct td_document *json, const struct td_push_report *report, size_t i)
{
    char sha256[TD_SHA256_TEXT_BYTES];
    const struct td_push_file *file = &report->files->files[i];
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "path", file->path);
    td_document_add_u64(json, "bytes", file->blob.size_bytes);
    if (file->is_hashed) {
        td_hex_write(file->blob.sha256, TD_SHA256_BYTES, sha256);
        td_document_add_string(json, "sha256", sha256);
    }
    td_document_add_u64(json, "sent_bytes", sent_of_file(report, i));
    td_document_end(json);
}

/* Adds the members about a commit: of one server, or what all servers have in common. */
static void add_commit(struct td_document *json, const char *commit, bool is_changed)
{
    if (commit[0] != '\0')
        td_document_add_string(json, "commit", commit);
    td_document_add_bool(json, "changed", is_changed);
}

static void add_site(struct td_document *json, const struct td_push_report *report, size_t i)
{
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "url", report->urls[i]);
    add_commit(json, commit_at(report, i), has_changed(report, i));
    td_document_add_u64(json, "sent_bytes", sent_to_site(report, i));
    if (report->sites != NULL && report->sites[i].member.err.code != TD_OK)
        td_document_add_string(json, "error", report->sites[i].member.err.message);
    td_document_end(json);
}

void td_push_report_add(struct td_document *json, const void *context)
{
    const struct td_push_report *report = context;
    const char *common = commit_at(report, 0);
    bool is_changed = false;
    uint64_t sent_bytes = 0;
    for (size_t i = 0; i < report->url_count; i++) {
        is_changed = is_changed || has_changed(report, i);
        sent_bytes += sent_to_site(report, i);
        if (strcmp(commit_at(report, i), common) != 0)
            common = "";
    }
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "model", report->model);
    td_document_add_string(json, "revision", report->revision);
    add_commit(json, common, is_changed);
    if (report->url_count > 1) {
        td_document_begin_array(json, "sites");
        for (size_t i = 0; i < report->url_count; i++)
            add_site(json, report, i);
        td_document_end(json);
    }
    td_document_begin_array(json, "files");
    for (size_t i = 0; i < report->files->count; i++)
        add_file(json, report, i);
    td_document_end(json);
    td_document_add_u64(json, "bytes", file_bytes(report));
    td_document_add_u64(json, "sent_bytes", sent_bytes);
    td_document_add_seconds(json, "seconds", report->seconds);
    if (report->failure->code != TD_OK)
        td_document_add_string(json, "error", report->failure->message);
    td_document_end(json);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

void td_push_report_line(const void *context)
{
    const struct td_push_report *report = context;
    bool is_alone = report->url_count == 1;
    for (size_t i = 0; i < report->url_count; i++) {
        const char *commit = commit_at(report, i);
        uint64_t sent_bytes = sent_to_site(report, i);
        double rate = report->seconds > 0 ? (double)sent_bytes / report->seconds : 0;
        if (commit[0] == '\0')
            continue;
        td_terminal_line(stdout, "%s%s%s: %s is %s commit %.12s: %zu file%s, %s; sent %s in %.1f s (%s/s)",
                         report->model, is_alone ? "" : " at ", is_alone ? "" : report->urls[i], report->revision,
                         has_changed(report, i) ? "now" : "still", commit, report->files->count,
                         td_plural(report->files->count), td_terminal_size(file_bytes(report)).text,
                         td_terminal_size(sent_bytes).text, report->seconds, td_terminal_size((uint64_t)rate).text);
    }
}
