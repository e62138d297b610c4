/* Small checkpoints, written by hand: pickles of torch.save in the text opcodes of protocol 0, and archives around
 * them. */
#ifndef TD_TESTS_UNIT_PARSER_TORCH_FIXTURE_H
#define TD_TESTS_UNIT_PARSER_TORCH_FIXTURE_H

#include "parser/torch/torch.h"
#include "tests/unit/parser/format_fixture.h"
#include "tests/unit/parser/zip_file.h"

/* Arguments of these macros are opcodes too, numbers and tuples among them: "I4\n". */
#define ID(class, key, numel) "(S'storage'\nctorch\n" class "\nS'" key "'\nS'cpu'\nI" numel "\ntQ"
#define REBUILD(storage, offset, size, stride)                                                  \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "I" offset "\n(" size "t(" stride "tI00\n(d" \
    "tR"
#define FLOATS REBUILD(ID("FloatStorage", "0", "4"), "0", "I4\n", "I1\n")
#define DICT(item) "(dS'w'\n" item "s."
#define RECORD "0123456789abcdef" /* data/0: four floats */
#define GOOD DICT(FLOATS)

/* The pickles that a legacy file begins with. */
#define MAGIC "\x80\x02L119547037146038801333356L\n."
#define VERSION "I1001\n."
#define SYSTEM "(dS'little_endian'\nI01\ns."

/* Appends opcodes several times. */
static inline void put_times(struct td_buffer *out, const char *opcodes, size_t times)
{
    for (size_t i = 0; i < times; i++)
        td_buffer_puts(out, opcodes);
}

static inline struct zip_spec archive_of(const char *pickle, size_t pickle_len)
{
    return (struct zip_spec){
        .count = 2,
        .torch = true,
        .members = {{.name = "archive/data.pkl", .data = pickle, .data_len = pickle_len},
                    {.name = "archive/data/0", .data = RECORD, .data_len = 16}},
    };
}

static inline void parse_spec(const struct zip_spec *spec, struct parsed *p, struct zip_file *f)
{
    *f = zip_build(spec);
    parse_bytes(&td_format_torch, f->bytes, f->len, p);
}

static inline void parse_pickle(const char *pickle, size_t len, struct parsed *p, struct zip_file *f)
{
    struct zip_spec spec = archive_of(pickle, len);
    parse_spec(&spec, p, f);
}

/* Frees the manifest, then the file: the parse counts allocations from zero, so the file must outlive the manifest. */
static inline void done(struct parsed *p, struct zip_file *f)
{
    parsed_fini(p);
    __real_free(f->bytes);
}

static inline void check_refused(const struct parsed *p, const char *says, size_t len)
{
    CHECK(!p->ok, "accepted, not refused with '%s'", says);
    check_error(&p->err, len, false, says);
    check_says(&p->err, says, "refused");
}

#endif
