/* The numbers are copied before the page is made, so that it is the same each time it is rendered. */
#include "api/html/status_page.h"

#include "api/call/server_status.h"
#include "api/html/page.h"
#include "api/html/shown.h"
#include "api/html/templates.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHART_WIDTH = 720, CHART_BASE = 190, CHART_HEIGHT = 180 };

/* How a number is shown. */
enum form { FORM_NUMBER, FORM_COUNT, FORM_BYTES };

struct number {
    const char *metric, *label; /* static */
    uint64_t value;
    enum form form;
};

enum { NUMBERS = 16 };

struct page {
    struct td_server_status status;
    struct number numbers[NUMBERS];
    size_t number_count;
};

static const struct {
    const char *name, *label, *class;
    enum form form;
} rates[TD_SAMPLED_COUNT] = {
    [TD_SAMPLED_REQUESTS] = {"requests", "Requests per second", "line2", FORM_COUNT},
    [TD_SAMPLED_SENT_BYTES] = {"bytes_sent", "Sent per second", "line1", FORM_BYTES},
    [TD_SAMPLED_UPLOAD_BYTES] = {"bytes_uploaded", "Uploaded per second", "line3", FORM_BYTES},
};

static void destroy(void *context)
{
    struct page *page = context;
    td_server_status_fini(&page->status);
    free(page);
}

static void write_number(struct td_buffer *out, uint64_t value, enum form form)
{
    if (form == FORM_BYTES)
        td_shown_bytes(out, value);
    else if (form == FORM_COUNT)
        td_shown_count(out, value);
    else
        td_shown_number(out, value);
}

static uint64_t most_of(const struct page *page, size_t rate)
{
    uint64_t most = 0;
    for (size_t i = 0; i < page->status.second_count; i++)
        most = page->status.seconds[i][rate] > most ? page->status.seconds[i][rate] : most;
    return most;
}

static uint64_t now_of(const struct page *page, size_t rate)
{
    const size_t count = page->status.second_count;
    return count == 0 ? 0 : page->status.seconds[count - 1][rate];
}

/* Writes a rate; in the first second after the start none is known. */
static void write_rate(const struct page *page, uint64_t value, enum form form, struct td_buffer *out)
{
    if (page->status.second_count > 0)
        write_number(out, value, form);
    else
        td_buffer_puts(out, "\xe2\x80\x93"); /* an en dash */
}

/* Writes the points of a rate's line: the newest second is at the right, and the most is at the top. The line of a
 * single second is level, and as long as one from second to second. */
static void write_points(const struct page *page, size_t rate, struct td_buffer *out)
{
    const uint64_t most = most_of(page, rate);
    const size_t count = page->status.second_count;
    const double step = (double)CHART_WIDTH / (TD_METRICS_SAMPLES - 2);
    for (size_t i = 0; i < count; i++) {
        const double part = most == 0 ? 0 : (double)page->status.seconds[i][rate] / (double)most;
        const double x = CHART_WIDTH - (double)(count - 1 - i) * step;
        const double y = CHART_BASE - part * CHART_HEIGHT;
        if (count == 1)
            td_buffer_printf(out, "%.1f,%.1f ", x - step, y);
        td_buffer_printf(out, "%s%.1f,%.1f", i > 0 ? " " : "", x, y);
    }
}

static void write_arrival(const struct td_upstream_arrival *arrival, enum td_status_slot slot, struct td_buffer *out)
{
    switch (slot) {
    case TD_SLOT_STATUS_ARRIVING_ID:
        td_buffer_puts(out, arrival->id);
        break;
    case TD_SLOT_STATUS_ARRIVED_BYTES:
        td_buffer_u64(out, arrival->progress.arrived_bytes);
        break;
    case TD_SLOT_STATUS_ARRIVED_SHOWN:
        td_shown_bytes(out, arrival->progress.arrived_bytes);
        break;
    case TD_SLOT_STATUS_ARRIVING_BYTES:
        td_buffer_u64(out, arrival->progress.total_bytes);
        break;
    default:
        if (arrival->progress.is_listed)
            td_shown_bytes(out, arrival->progress.total_bytes);
        else
            td_buffer_puts(out, "not known yet");
        break;
    }
}

static void write_slot(const struct td_page_place *place, unsigned number, struct td_buffer *out)
{
    const struct page *page = place->context;
    const struct td_server_status *status = &page->status;
    const size_t row = place->row[0];
    const enum td_status_slot slot = (enum td_status_slot)number;
    switch (slot) {
    case TD_SLOT_STATUS_TITLE:
        td_buffer_puts(out, "Status");
        break;
    case TD_SLOT_STATUS_STATE:
        td_buffer_puts(out, status->state);
        break;
    case TD_SLOT_STATUS_STATE_CLASS:
        td_buffer_puts(out, status->ready ? "state" : "state bad");
        break;
    case TD_SLOT_STATUS_MESSAGE_TEXT:
        td_buffer_puts(out, status->catalog.message);
        break;
    case TD_SLOT_STATUS_METRIC:
        td_buffer_puts(out, page->numbers[row].metric);
        break;
    case TD_SLOT_STATUS_VALUE:
        td_buffer_u64(out, page->numbers[row].value);
        break;
    case TD_SLOT_STATUS_LABEL:
        td_buffer_puts(out, page->numbers[row].label);
        break;
    case TD_SLOT_STATUS_SHOWN:
        write_number(out, page->numbers[row].value, page->numbers[row].form);
        break;
    case TD_SLOT_STATUS_RATES_TITLE:
        if (status->second_count > 1)
            td_buffer_printf(out, "The last %zu seconds", status->second_count);
        else
            td_buffer_puts(out, status->second_count == 1 ? "The last second" : "Rates");
        break;
    case TD_SLOT_STATUS_LEGEND_CAPTION:
        td_buffer_puts(out, status->second_count > 0 ? "Each line has a scale of its own"
                                                     : "Rates follow a second after the start");
        break;
    case TD_SLOT_STATUS_RATES_LABEL:
        td_buffer_puts(out, status->second_count > 0 ? "Lines of the rates: " : "No rate is known yet");
        for (size_t i = 0; status->second_count > 0 && i < TD_SAMPLED_COUNT; i++) {
            td_buffer_printf(out, "%s%s, now ", i > 0 ? "; " : "", rates[i].label);
            write_number(out, now_of(page, i), rates[i].form);
        }
        break;
    case TD_SLOT_STATUS_LINE_CLASS:
    case TD_SLOT_STATUS_KEY_CLASS:
        td_buffer_puts(out, rates[row].class);
        break;
    case TD_SLOT_STATUS_POINTS:
        write_points(page, row, out);
        break;
    case TD_SLOT_STATUS_RATE:
        td_buffer_puts(out, rates[row].name);
        break;
    case TD_SLOT_STATUS_RATE_LABEL:
        td_buffer_puts(out, rates[row].label);
        break;
    case TD_SLOT_STATUS_RATE_NOW:
        write_rate(page, now_of(page, row), rates[row].form, out);
        break;
    case TD_SLOT_STATUS_RATE_MOST:
        write_rate(page, most_of(page, row), rates[row].form, out);
        break;
    case TD_SLOT_STATUS_ARRIVING_ID:
    case TD_SLOT_STATUS_ARRIVED_BYTES:
    case TD_SLOT_STATUS_ARRIVED_SHOWN:
    case TD_SLOT_STATUS_ARRIVING_BYTES:
    case TD_SLOT_STATUS_ARRIVING_SHOWN:
        write_arrival(&status->arrivals[row], slot, out);
        break;
    case TD_SLOT_STATUS_PROBLEM_ID:
        td_buffer_puts(out, status->problems[row].model);
        break;
    case TD_SLOT_STATUS_PROBLEM_PATH:
        td_buffer_puts(out, status->problems[row].path);
        break;
    case TD_SLOT_STATUS_PROBLEM_MESSAGE:
        td_buffer_puts(out, status->problems[row].message);
        break;
    }
}

static size_t count_rows(const struct td_page_place *place, unsigned section)
{
    const struct page *page = place->context;
    const struct td_server_status *status = &page->status;
    switch ((enum td_status_section)section) {
    case TD_SECTION_STATUS_MESSAGE:
        return status->catalog.message[0] != '\0';
    case TD_SECTION_STATUS_NUMBERS:
        return page->number_count;
    case TD_SECTION_STATUS_RATES:
        return status->second_count > 0 ? TD_SAMPLED_COUNT : 0;
    case TD_SECTION_STATUS_LEGEND:
        return TD_SAMPLED_COUNT;
    case TD_SECTION_STATUS_WORK_SOME:
    case TD_SECTION_STATUS_WORK_END:
        return status->arrival_count > 0;
    case TD_SECTION_STATUS_ARRIVING:
        return status->arrival_count;
    case TD_SECTION_STATUS_PROBLEMS:
        return status->problem_count;
    case TD_SECTION_STATUS_PROBLEM_MODEL:
        return status->problems[place->row[0]].model[0] != '\0';
    case TD_SECTION_STATUS_NO_PROBLEMS:
        return status->problem_count == 0;
    case TD_SECTION_STATUS_MORE_PROBLEMS:
        return status->has_more_problems;
    }
    return 0;
}

static void add(struct page *page, const char *metric, const char *label, uint64_t value, enum form form)
{
    page->numbers[page->number_count++] = (struct number){metric, label, value, form};
}

static void choose_numbers(struct page *page, const struct td_call *call)
{
    const struct td_server_status *status = &page->status;
    const struct td_catalog_status *catalog = &status->catalog;
    add(page, "models", "Models", catalog->counts.models, FORM_NUMBER);
    add(page, "datasets", "Datasets", catalog->counts.datasets, FORM_NUMBER);
    add(page, "tensors", "Tensors", catalog->counts.tensors, FORM_NUMBER);
    add(page, "files", "Files", catalog->counts.files, FORM_NUMBER);
    add(page, "connections", "Connections", status->connections, FORM_NUMBER);
    add(page, "max_connections", "Connections at most", status->max_connections, FORM_NUMBER);
    add(page, "in_flight", "Requests in work", status->in_flight, FORM_NUMBER);
    add(page, "waiters", "Requests that wait", status->waiters, FORM_NUMBER);
    add(page, "requests", "Requests answered", status->requests, FORM_COUNT);
    add(page, "bytes_sent", "Sent", status->sent_bytes, FORM_BYTES);
    add(page, "hashed_bytes", "Hashed", catalog->hasher.known_bytes, FORM_BYTES);
    add(page, "hash_total_bytes", "Size of all files", catalog->hasher.file_bytes, FORM_BYTES);
    if (call->api->publish != NULL) {
        add(page, "uploads", "Uploads in work", status->uploads, FORM_NUMBER);
        add(page, "bytes_uploaded", "Uploaded", status->upload_bytes, FORM_BYTES);
    }
    if (call->api->upstream != NULL) {
        add(page, "fetches", "Models that arrive", status->upstream.fetching, FORM_NUMBER);
        add(page, "bytes_fetched", "Fetched", status->upstream.fetched_bytes, FORM_BYTES);
    }
}

void td_html_status(const struct td_call *call)
{
    static const struct td_page_class class = {
        .page = &td_template_status, .write = write_slot, .rows = count_rows, .destroy = destroy};
    struct page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        td_call_no_memory(call);
        return;
    }
    td_server_status_get(call, &page->status);
    choose_numbers(page, call);
    td_page_answer(call->response, &class, page);
    call->response->etag[0] = '\0'; /* no two answers are alike */
    call->response->accept_ranges = false;
}
