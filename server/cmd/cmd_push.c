/* `tensord push`: puts the files of a directory into a model on one server or several, as one commit on each.
 *
 * Plan for several: each is asked by a dry run what it lacks, all get that side by side, and then all get the commit,
 * so that they change as close together as can be. One server gets the commit at once. A server that fails is left out
 * of the next steps, and the others continue. */
#include "server/cmd/commands.h"

#include "core/clock.h"
#include "server/cmd/push_files.h"
#include "server/cmd/push_report.h"
#include "server/cmd/push_site.h"
#include "server/cmd/shared/command_line.h"
#include "server/cmd/shared/copying.h"
#include "server/host/terminal.h"
#include "storage/fetch/fetch_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *directory, *model, *revision, *message, *parent;
    struct td_copy_urls urls;
    bool keeps;
    struct td_copy_options copy;
};

struct push {
    const struct arguments *arguments;
    struct td_copying copying;
    struct td_push_files files;
    struct td_remote_commit_file *listed; /* the files of the commit */
    struct td_push_order order;
    struct td_push_site sites[TD_FETCH_MAX_SERVERS];
    size_t site_count; /* of those that were prepared, all or none */
    char title[64];    /* of the progress line */
};

/* ---- arguments ----------------------------------------------------------------------------------------- */

/* Checks that no URL is given twice, since the same server would get each blob twice at once. */
static bool check_urls(const struct td_command_line *line, const struct td_copy_urls *urls)
{
    for (size_t i = 0; i < urls->count; i++)
        for (size_t j = 0; j < i; j++) {
            struct td_text one;
            struct td_text other;
            (void)td_fetch_url_check(urls->items[i], &one, NULL);
            (void)td_fetch_url_check(urls->items[j], &other, NULL);
            if (td_text_compare(one, other) == 0)
                return td_command_line_refuse(line, "the same URL is given twice: ", urls->items[i]);
        }
    return true;
}

/* Checks what is not an option. */
static bool check_arguments(const struct td_command_line *line, const char *url_list, struct arguments *arguments)
{
    struct td_error err = TD_ERROR_INIT;
    if (arguments->model == NULL)
        return td_command_line_refuse(line, "give a directory, the URL of a server and a model", "");
    if (strstr(arguments->directory, "://") != NULL && strstr(url_list, "://") == NULL)
        return td_command_line_refuse(line, "the directory comes first, and then the URL, but the first argument is ",
                                      arguments->directory);
    if (!td_copy_urls_read(line, url_list, &arguments->urls) || !check_urls(line, &arguments->urls))
        return false;
    if (!td_remote_push_id_check(td_text_of(arguments->model), &err)) {
        td_terminal_complain("%s", err.message);
        return false;
    }
    return true;
}

/* Reads the arguments. Returns false after printing a message. */
static bool read_arguments(int argc, char **argv, struct arguments *out)
{
    const struct td_command_option options[] = {
        {"--revision", .value = &out->revision},
        {"--message", .value = &out->message, .may_be_empty = true},
        {"--parent", .value = &out->parent, .may_be_empty = true},
        {"--keep", .flag = &out->keeps},
        {.name = NULL},
    };
    struct td_command_option shared[TD_COPY_ROWS];
    const struct td_command_line line = {.options = options,
                                         .shared = shared,
                                         .usage = "tensord push DIR URL[,URL...] MODEL [options]; see push --help"};
    const char *others[4] = {NULL};
    size_t count;
    *out = (struct arguments){.revision = "main"};
    td_copy_options_list(&out->copy, shared);
    if (!td_command_line_read(&line, argc, argv, others, 3, &count))
        return false;
    out->directory = others[0];
    out->model = others[2];
    if (count >= 3 && td_copy_urls_refuse_space(&line, others[1], others[2]))
        return false;
    if (count > 3)
        return td_command_line_refuse(&line, "only one directory is pushed at a time, but there is also ", others[3]);
    return check_arguments(&line, others[1], out) && td_copy_options_check(&line, &out->copy);
}

/* ---- the push ------------------------------------------------------------------------------------------ */

static bool list_files(struct push *push, struct td_error *err)
{
    push->listed = calloc(push->files.count, sizeof *push->listed);
    if (push->listed == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < push->files.count; i++)
        push->listed[i] =
            (struct td_remote_commit_file){.path = push->files.files[i].path, .blob = push->files.files[i].blob};
    return true;
}

/* Prepares the sites. */
static bool make_sites(struct push *push, struct td_error *err)
{
    const struct arguments *arguments = push->arguments;
    push->order = (struct td_push_order){.commit = {.id = arguments->model,
                                                    .revision = arguments->revision,
                                                    .message = arguments->message,
                                                    .parent = arguments->parent,
                                                    .keeps = arguments->keeps,
                                                    .files = push->listed,
                                                    .count = push->files.count},
                                         .files = &push->files,
                                         .copying = &push->copying};
    bool ok = true;
    for (size_t i = 0; i < arguments->urls.count; i++)
        ok = td_push_site_init(&push->sites[i], &push->order, i, ok ? err : NULL) && ok;
    push->site_count = arguments->urls.count;
    atomic_store(&push->copying.total_bytes, push->files.digest_bytes * push->site_count);
    return ok;
}

/* Takes a site that has failed out of the progress line. */
static void end_site(struct td_push_site *site)
{
    struct td_copying *copying = site->order->copying;
    atomic_fetch_sub(&copying->total_bytes, site->order->files->digest_bytes);
    atomic_store(&copying->server_bytes[site->server], 0);
}

/* Calls `step` for a site that has not failed yet. */
static void *take_step(struct td_push_site *site, bool (*step)(struct td_push_site *, bool, struct td_error *),
                       bool is_dry_run)
{
    if (site->member.err.code == TD_OK && !step(site, is_dry_run, &site->member.err))
        end_site(site);
    return NULL;
}

static void *look(void *site)
{
    return take_step(site, td_push_site_ask, true);
}

static void *prepare(void *site)
{
    return take_step(site, td_push_site_send, true);
}

static void *ask(void *site)
{
    return take_step(site, td_push_site_ask, false);
}

static void *complete(void *site)
{
    return take_step(site, td_push_site_send, false);
}

/* Takes a step with all sites side by side. Returns whether none has failed so far; else sets *err. */
static bool take_all(struct push *push, void *(*step)(void *site), struct td_error *err)
{
    return td_crew_run(push->sites, push->site_count, sizeof *push->sites, step, err);
}

/* Takes a step in which files are sent, with progress. */
static bool send_all(struct push *push, void *(*step)(void *site), struct td_error *err)
{
    bool is_needed = false;
    for (size_t i = 0; i < push->site_count; i++)
        is_needed = is_needed || (push->sites[i].member.err.code == TD_OK && !push->sites[i].reply.is_made);
    if (!is_needed)
        return err->code == TD_OK;
    td_copying_show(&push->copying, push->title, push->arguments->model);
    bool ok = take_all(push, step, err);
    td_copying_show_end(&push->copying);
    return ok;
}

/* Makes the commit on all sites. */
static bool push_sites(struct push *push, struct td_error *err)
{
    if (push->site_count > 1) {
        (void)snprintf(push->title, sizeof push->title, "to %zu servers ", push->site_count);
        (void)take_all(push, look, err);
        (void)send_all(push, prepare, err);
    }
    (void)take_all(push, ask, err);
    return send_all(push, complete, err);
}

static bool push_directory(struct push *push, struct td_error *err)
{
    const struct arguments *arguments = push->arguments;
    struct td_copying *copying = &push->copying;
    return td_copying_connect(copying, arguments->urls.items, arguments->urls.count, err) &&
           td_push_files_find(&push->files, arguments->directory, copying, err) &&
           td_push_files_hash(&push->files, arguments->directory, copying, err) && list_files(push, err) &&
           make_sites(push, err) && push_sites(push, err);
}

/* ---- the result ---------------------------------------------------------------------------------------- */

/* Returns whether an earlier site has the same message, such as one about a file. */
static bool was_said(const struct push *push, size_t site)
{
    const struct td_error *err = &push->sites[site].member.err;
    bool is_stopped = err->code == TD_CONFLICT && td_copying_has_signal();
    for (size_t i = 0; i < site; i++) {
        const struct td_error *other = &push->sites[i].member.err;
        if (other->code == err->code && (is_stopped || strcmp(other->message, err->message) == 0))
            return true;
    }
    return false;
}

/* Prints why the push has failed: for each site, or before a site was asked. */
static void complain(const struct push *push, const struct td_error *err)
{
    static const char kept[] = "the server keeps what has arrived, and the same command sends the rest";
    bool is_said = false;
    for (size_t i = 0; i < push->site_count; i++) {
        const struct td_push_site *site = &push->sites[i];
        if (site->member.err.code == TD_OK)
            continue;
        if (!was_said(push, i))
            td_copying_complain(&push->copying, &site->member.err, site->has_sent ? kept : NULL);
        is_said = true;
    }
    if (!is_said)
        td_copying_complain(&push->copying, err, NULL);
}

/* Prints the result of the push. Returns the exit code. */
static int report_result(const struct push *push, uint64_t begin_ns, const struct td_error *err)
{
    const struct arguments *arguments = push->arguments;
    const struct td_push_report report = {
        .model = arguments->model,
        .revision = arguments->revision,
        .urls = arguments->urls.items,
        .url_count = arguments->urls.count,
        .sites = push->site_count > 0 ? push->sites : NULL,
        .files = &push->files,
        .seconds = (double)(td_clock_ns() - begin_ns) / 1e9,
        .failure = err,
    };
    bool has_failed = err->code != TD_OK;
    if (has_failed)
        complain(push, err);
    if (has_failed && !arguments->copy.json && !arguments->copy.quiet)
        td_push_report_line(&report); /* of the sites that have the commit */
    return td_copying_finish(&push->copying,
                             &(struct td_copying_report){td_push_report_add, td_push_report_line, &report}, has_failed);
}

void td_cmd_push_help(FILE *out)
{
    (void)fputs(
        "tensord push puts the files of a directory into a model on a server, all at once, as a new commit.\n\n"
        "usage:\n"
        "  tensord push DIR URL[,URL...] MODEL [options]\n\n"
        "  DIR                the files are those that a server of DIR would list: none that are hidden or end in\n"
        "                     .tmp or .incomplete, and no symlinks that lead out of DIR\n"
        "  URL                a tensord that runs with --publish, such as http://weights:8080; with several, each\n"
        "                     gets what it lacks, then all get the commit, and one that fails stops no other\n"
        "  MODEL              the id of the model, such as org/name; datasets/org/name is a dataset\n"
        "\n"
        "options, defaults in parentheses; TIME is seconds, or a number with ms, s, m, h or d, such as 5m:\n"
        "  --revision NAME    branch or tag that the commit goes to; it is made when it is not there (main)\n"
        "  --message TEXT     description of the commit (none)\n"
        "  --parent COMMIT    fail unless the revision is at this commit; \"\": unless it is not there (not set)\n"
        "  --keep             files of the revision that DIR does not have stay; without it the revision then has\n"
        "                     the pushed files and no others\n",
        out);
    td_copy_options_help(
        out, "at once, to each server",
        "  --token-file FILE  file with the token to send to all URLs, which needs the right to write (the variable\n"
        "                     TENSORD_TOKEN)\n");
    (void)fputs(
        "\n"
        "Files that the server has are not sent again, under any name. An interrupted push sends only the rest when\n"
        "the same command is run again. Readers see all of the new files or none of them.\n"
        "\n"
        "exit codes: 0 the commit is made, or was there, on all servers; 1 it failed, or was stopped by a signal;\n"
        "2 wrong usage.\n",
        out);
}

int td_cmd_push(int argc, char **argv)
{
    struct arguments arguments;
    struct td_error err = TD_ERROR_INIT;
    struct push push = {.arguments = &arguments};
    int status = TD_EXIT_USAGE;
    if (read_arguments(argc, argv, &arguments)) {
        uint64_t begin_ns = td_clock_ns();
        td_copying_begin(&push.copying, &arguments.copy);
        (void)push_directory(&push, &err);
        status = report_result(&push, begin_ns, &err);
        for (size_t i = 0; i < push.site_count; i++)
            td_push_site_fini(&push.sites[i]);
        free(push.listed);
        td_push_files_fini(&push.files);
        td_copying_end(&push.copying);
    }
    td_copy_urls_fini(&arguments.urls);
    return status;
}
