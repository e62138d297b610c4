#include "server/cmd/plan_report.h"

#include "core/json/json_build.h"
#include "server/host/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- counting ------------------------------------------------------------------------------------------ */

void td_plan_tally_file(const struct td_rank_file *file, struct td_plan_tally *out)
{
    *out = (struct td_plan_tally){.nbytes = file->nbytes, .header_bytes = file->header_bytes};
    for (size_t i = 0; i < file->layout->block_count; i++) {
        const struct td_block *block = &file->layout->blocks[i];
        for (size_t k = 0; k < block->run_count; k++) {
            const struct td_run *run = &file->layout->runs[block->first_run + k];
            uint64_t count = run->count * block->rounds;
            if (run->source == TD_RUN_ZEROS)
                out->padding_bytes += run->len * count;
            if (run->source == TD_RANK_SOURCE_OWN)
                out->constant_bytes += run->len * count;
            if (run->source == TD_RUN_ZEROS || run->source == TD_RANK_SOURCE_OWN)
                continue;
            out->runs += count;
            out->largest_run = run->len > out->largest_run ? run->len : out->largest_run;
            out->smallest_run = out->smallest_run == 0 || run->len < out->smallest_run ? run->len : out->smallest_run;
        }
    }
    out->constant_bytes -= out->header_bytes; /* the file's own bytes are the header and the constants */
}

static void add_tally(struct td_plan_tally *all, const struct td_plan_tally *one)
{
    all->nbytes += one->nbytes;
    all->header_bytes += one->header_bytes;
    all->padding_bytes += one->padding_bytes;
    all->constant_bytes += one->constant_bytes;
    all->runs += one->runs;
    all->largest_run = one->largest_run > all->largest_run ? one->largest_run : all->largest_run;
    if (one->smallest_run > 0 && (all->smallest_run == 0 || one->smallest_run < all->smallest_run))
        all->smallest_run = one->smallest_run;
}

static struct td_plan_tally tally_all(const struct td_plan_report *report)
{
    struct td_plan_tally all = {0};
    for (uint64_t rank = 0; rank < report->tp_size; rank++)
        add_tally(&all, &report->ranks[rank]);
    return all;
}

/* Returns the bytes of tensors that the ranks have beyond one copy of each tensor. */
static uint64_t repeated_bytes(const struct td_plan_report *report, const struct td_plan_tally *all)
{
    uint64_t once = report->checkpoint->total_bytes;
    for (size_t i = 0; i < report->plan->dropped_count; i++) {
        struct td_tensor_ref ref;
        const char *name = report->plan->dropped[i];
        if (td_checkpoint_find(report->checkpoint, td_text_of(name), &ref) && ref.tensor->reason == NULL)
            once -= ref.tensor->nbytes;
    }
    return all->nbytes - all->header_bytes - all->padding_bytes - all->constant_bytes - once;
}

/* Returns the file's length as a part of the checkpoint's tensor bytes. */
static double share_of(const struct td_plan_tally *tally, const struct td_checkpoint *checkpoint)
{
    return checkpoint->total_bytes == 0 ? 0 : (double)tally->nbytes / (double)checkpoint->total_bytes;
}

/* ---- a table ------------------------------------------------------------------------------------------- */

static void print_row(const char *name, const struct td_plan_tally *tally, const struct td_checkpoint *checkpoint)
{
    char size[TD_TERMINAL_BYTES];
    char smallest[TD_TERMINAL_BYTES];
    char largest[TD_TERMINAL_BYTES];
    td_terminal_bytes(tally->nbytes, size, sizeof size);
    td_terminal_bytes(tally->smallest_run, smallest, sizeof smallest);
    td_terminal_bytes(tally->largest_run, largest, sizeof largest);
    (void)printf("  %-5s %12s %8.1f %% %12" PRIu64 " %12s %12s\n", name, size, 100 * share_of(tally, checkpoint),
                 tally->runs, tally->runs == 0 ? "-" : smallest, tally->runs == 0 ? "-" : largest);
}

static void print_heading(const struct td_plan_report *report)
{
    struct td_buffer memory;
    char size[TD_TERMINAL_BYTES];
    td_buffer_init(&memory);
    td_terminal_bytes(report->checkpoint->total_bytes, size, sizeof size);
    (void)printf("%s", td_terminal_name(report->model->id, &memory));
    size_t count = report->checkpoint->tensor_count;
    (void)printf("  checkpoint %s, %zu tensor%s, %s; %s%s, tp %" PRIu64 "\n",
                 td_terminal_name(report->checkpoint->id, &memory), count, count == 1 ? "" : "s", size,
                 report->engine != NULL ? "engine " : "",
                 report->engine != NULL ? report->engine
                 : report->covers       ? "a plan with rules"
                                        : "a plan with ranks",
                 report->tp_size);
    (void)printf("  %-5s %12s %10s %12s %12s %12s\n", "RANK", "BYTES", "SHARE", "RUNS", "SMALLEST", "LARGEST");
    td_buffer_fini(&memory);
}

/* Prints why all ranks together have more bytes than the checkpoint. */
static void print_surplus(const struct td_plan_report *report, const struct td_plan_tally *all)
{
    char header[TD_TERMINAL_BYTES];
    char padding[TD_TERMINAL_BYTES];
    char constants[TD_TERMINAL_BYTES];
    char repeated[TD_TERMINAL_BYTES];
    td_terminal_bytes(all->header_bytes, header, sizeof header);
    td_terminal_bytes(all->padding_bytes, padding, sizeof padding);
    (void)printf("  of all: headers %s, padding %s", header, padding);
    if (all->constant_bytes > 0) {
        td_terminal_bytes(all->constant_bytes, constants, sizeof constants);
        (void)printf(", constants %s", constants);
    }
    if (report->covers) {
        td_terminal_bytes(repeated_bytes(report, all), repeated, sizeof repeated);
        (void)printf(", repeated %s", repeated);
    }
    (void)printf("\n");
}

/* Prints a rule with its number, counted from 1, and its pattern. */
static void print_rule(const struct td_plan_match *match, size_t rule, const char *of)
{
    struct td_buffer memory;
    td_buffer_init(&memory);
    (void)printf("rule %zu%s (\"%s\")", rule + 1, of, td_terminal_name(match->rules->rules[rule].match, &memory));
    td_buffer_fini(&memory);
}

/* Prints for each unused rule whether its pattern or its place in the list is the cause. */
static void print_unused_rules(const struct td_plan_match *match)
{
    char of[32];
    uint64_t steps = TD_PLAN_MAX_STEPS;
    (void)snprintf(of, sizeof of, " of %zu", match->rules->count);
    for (size_t i = 0; i < match->unused_count; i++) {
        struct td_unused_rule why = td_plan_match_explain(match, match->unused[i], &steps);
        (void)printf("  ");
        print_rule(match, match->unused[i], of);
        (void)printf(" is used for no tensor: ");
        if (!why.known) {
            (void)printf("it matches no tensor's name, or earlier rules take every tensor that it matches\n");
        } else if (why.taker == NULL) {
            (void)printf("it matches no tensor's name\n");
        } else {
            print_rule(match, (size_t)(why.taker - match->rules->rules), "");
            (void)printf("%s every tensor that it matches\n", why.several ? " and others before it take" : " takes");
        }
    }
}

void td_plan_report_table(const struct td_plan_report *report)
{
    struct td_buffer memory;
    struct td_plan_tally all = tally_all(report);
    td_buffer_init(&memory);
    print_heading(report);
    for (uint64_t rank = 0; rank < report->tp_size; rank++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%" PRIu64, rank);
        print_row(name, &report->ranks[rank], report->checkpoint);
    }
    print_row("all", &all, report->checkpoint);
    print_surplus(report, &all);
    for (size_t i = 0; i < report->plan->dropped_count; i++)
        (void)printf("  dropped %s\n", td_terminal_name(report->plan->dropped[i], &memory));
    td_buffer_fini(&memory);
    if (report->match != NULL)
        print_unused_rules(report->match);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void write_tally(struct td_json_builder *json, const struct td_plan_tally *tally,
                        const struct td_checkpoint *checkpoint)
{
    char share[32];
    (void)snprintf(share, sizeof share, "%.6f", share_of(tally, checkpoint));
    td_json_add_u64(json, "nbytes", tally->nbytes);
    td_json_add_raw(json, "share", td_text_of(share));
    td_json_add_u64(json, "header_bytes", tally->header_bytes);
    td_json_add_u64(json, "padding_bytes", tally->padding_bytes);
    td_json_add_u64(json, "constant_bytes", tally->constant_bytes);
    td_json_add_u64(json, "runs", tally->runs);
    td_json_add_u64(json, "smallest_run", tally->smallest_run);
    td_json_add_u64(json, "largest_run", tally->largest_run);
}

static void add_ranks(struct td_json_builder *json, const struct td_plan_report *report)
{
    td_json_begin_array(json, "ranks");
    for (uint64_t rank = 0; rank < report->tp_size; rank++) {
        td_json_begin_object(json, NULL);
        td_json_add_u64(json, "rank", rank);
        write_tally(json, &report->ranks[rank], report->checkpoint);
        td_json_end(json);
        td_json_flush(json);
    }
    td_json_end(json);
}

static void add_total(struct td_json_builder *json, const struct td_plan_report *report)
{
    struct td_plan_tally all = tally_all(report);
    td_json_begin_object(json, "total");
    write_tally(json, &all, report->checkpoint);
    if (report->covers)
        td_json_add_u64(json, "repeated_bytes", repeated_bytes(report, &all));
    td_json_end(json);
}

void td_plan_report_json(const struct td_plan_report *report)
{
    struct td_buffer out;
    struct td_json_builder json;
    td_buffer_init(&out);
    td_json_builder_init(&json, &out);
    td_json_begin_object(&json, NULL);
    td_json_add_string(&json, "model", report->model->id);
    td_json_add_string(&json, "checkpoint", report->checkpoint->id);
    td_json_add_string(&json, "engine", report->by_plan ? "plan" : report->engine);
    td_json_add_u64(&json, "tp_size", report->tp_size);
    td_json_add_u64(&json, "checkpoint_bytes", report->checkpoint->total_bytes);
    add_ranks(&json, report);
    add_total(&json, report);
    td_json_begin_array(&json, "dropped");
    for (size_t i = 0; i < report->plan->dropped_count; i++) {
        td_json_add_string(&json, NULL, report->plan->dropped[i]);
        td_json_flush(&json);
    }
    td_json_end(&json);
    td_json_begin_array(&json, "unused_rules");
    for (size_t i = 0; report->match != NULL && i < report->match->unused_count; i++)
        td_json_add_u64(&json, NULL, report->match->unused[i]);
    td_json_end(&json);
    td_json_end(&json);
    td_json_builder_fini(&json);
    td_buffer_putc(&out, '\n');
    (void)fwrite(out.data, 1, out.len, stdout);
    td_buffer_fini(&out);
}
