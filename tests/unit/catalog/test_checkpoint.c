/* Which files make which checkpoint: docs/models.md, "Sharded checkpoints" and "Checkpoint ids". */
#include "catalog/checkpoints/checkpoint.h"

#include "catalog/model/dcp_checkpoint.h"
#include "tests/unit/catalog/scan_place.h"
#include "tests/unit/tree_fixture.h"

/* Makes the files of a model m: one per line,
 *   st NAME TENSOR...         a safetensors file
 *   index NAME TENSOR FILE... an index
 *   text NAME CONTENT         anything
 *   link NAME TARGET          a symlink
 *   data NAME FILE            a copy of tests/data/FILE, which a real writer made */
static void make_files(const struct tree *tree, const char *lines)
{
    while (*lines != '\0') {
        char line[512];
        char what[8];
        char file[256];
        int used = 0;
        size_t len = strcspn(lines, "\n");
        assert_true(len < sizeof line);
        memcpy(line, lines, len);
        line[len] = '\0';
        lines += len + (lines[len] == '\n' ? 1 : 0);
        char name[250];
        assert_int_equal(sscanf(line, "%7s", what), 1);
        assert_int_equal(sscanf(line + strlen(what), " %249s%n", name, &used), 1);
        const char *rest = line + strlen(what) + used;
        rest += *rest == ' ' ? 1 : 0;
        (void)snprintf(file, sizeof file, "m/%s", name);
        if (strcmp(what, "st") == 0)
            tree_simple(tree, file, rest);
        else if (strcmp(what, "index") == 0)
            tree_index(tree, file, rest);
        else if (strcmp(what, "text") == 0)
            tree_text(tree, file, rest);
        else if (strcmp(what, "data") == 0)
            copy_data(tree, rest, file);
        else
            tree_symlink(tree, file, rest);
    }
}

/* Writes the model's checkpoints in their order: "id{part part}(tensor tensor) id{...}(...)". */
static void describe(const struct td_model *model, char *out, size_t capacity)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const struct td_checkpoint *c = &model->checkpoints[i];
        used += (size_t)snprintf(out + used, capacity - used, "%s%s{", i > 0 ? " " : "", c->id);
        for (size_t k = 0; k < c->part_count; k++)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", k > 0 ? " " : "",
                                     td_model_relative(model, c->parts[k]));
        used += (size_t)snprintf(out + used, capacity - used, "}(");
        for (size_t k = 0; k < c->tensor_count; k++)
            used += (size_t)snprintf(out + used, capacity - used, "%s%s", k > 0 ? " " : "",
                                     td_checkpoint_tensor(c, k).tensor->name);
        used += (size_t)snprintf(out + used, capacity - used, ")");
    }
}

/* Checks what every checkpoint must have. */
static void check_checkpoint(const struct td_checkpoint *c, const char *what)
{
    uint64_t total = 0;
    CHECK(c->part_count == 0 || strcmp(c->format, c->parts[0]->file->format->name) == 0, "%s: %s", what, c->format);
    CHECK(strlen(c->tag) == TD_TAG_BYTES - 1, "%s", what);
    for (size_t i = 0; i < c->tensor_count; i++) {
        struct td_tensor_ref ref = td_checkpoint_tensor(c, i);
        struct td_tensor_ref found;
        CHECK(ref.part < c->part_count, "%s", what);
        const struct td_manifest *manifest = &c->parts[ref.part]->file->manifest;
        CHECK(c->join != NULL || td_manifest_find(manifest, td_tensor_name(ref.tensor)) == ref.tensor, "%s", what);
        CHECK(td_checkpoint_find(c, td_tensor_name(ref.tensor), &found) && found.tensor == ref.tensor &&
                  found.part == ref.part,
              "%s: %s", what, ref.tensor->name);
        CHECK(i == 0 || strcmp(td_checkpoint_tensor(c, i - 1).tensor->name, ref.tensor->name) < 0, "%s", what);
        total += ref.tensor->reason == NULL ? ref.tensor->nbytes : 0;
    }
    CHECK(total == c->total_bytes, "%s", what);
}

struct row {
    const char *name, *files;
    const char *checkpoints;
    const char *problem_path, *problem_text; /* NULL: none */
};

static void check_row(const struct row *row)
{
    struct place place;
    char got[2048];
    open_place(&place);
    make_files(&place.tree, row->files);
    (void)scanner_scan(&place.scanner);
    const struct td_model *model = scanner_model(&place.scanner, "m");
    CHECK(model != NULL, "%s: no model", row->name);
    describe(model, got, sizeof got);
    CHECK(strcmp(got, row->checkpoints) == 0, "%s: %s, wanted %s", row->name, got, row->checkpoints);
    for (size_t i = 0; i < model->checkpoint_count; i++) {
        const struct td_checkpoint *c = &model->checkpoints[i];
        check_checkpoint(c, row->name);
        CHECK(td_model_find_checkpoint(model, td_text_of(c->id)) == c, "%s: two are called %s", row->name, c->id);
    }
    if (row->problem_path == NULL) {
        CHECK(model->problems.count == 0, "%s: %s", row->name, model->problems.items[0].message);
    } else {
        const char *message = scanner_problem(&place.scanner, model, row->problem_path);
        CHECK(message != NULL, "%s: no problem at %s", row->name, row->problem_path);
        CHECK(strstr(message, row->problem_text) != NULL, "%s: %s", row->name, message);
    }
    close_place(&place);
}

#define S1 "model-00001-of-00002.safetensors"
#define S2 "model-00002-of-00002.safetensors"
#define IX "model.safetensors.index.json"
#define DELTA(map) "{\"metadata\":{\"delta_encoding\":\"xor\"},\"weight_map\":{" map "}}"

static const struct row rows[] = {
    {"one file, whatever its name", "st weights.safetensors b a", "safetensors{weights.safetensors}(a b)", NULL, NULL},
    {"an empty file", "st weights.safetensors", "safetensors{weights.safetensors}()", NULL, NULL},
    {"rule 1: model.safetensors", "st model.safetensors a\nst other.safetensors a",
     "safetensors{model.safetensors}(a) other.safetensors{other.safetensors}(a)", NULL, NULL},
    {"rule 1 before rule 5", "st model.safetensors a\nst other.safetensors b",
     "safetensors{model.safetensors}(a) other.safetensors{other.safetensors}(b)", NULL, NULL},
    {"rule 1 before rule 2", "st model.safetensors a b\nst " S1 " a\nst " S2 " b\nindex " IX " a " S1 " b " S2,
     "safetensors{model.safetensors}(a b) " IX "{" S1 " " S2 "}(a b)", NULL, NULL},
    {"rule 2: the index", "st " S1 " c a\nst " S2 " b\nindex " IX " b " S2 " a " S1 " c " S1,
     "safetensors{" S1 " " S2 "}(a b c)", NULL, NULL},
    {"rule 2 with a file beside it", "st " S1 " a\nst " S2 " b\nindex " IX " a " S1 " b " S2 "\nst extra.safetensors z",
     "safetensors{" S1 " " S2 "}(a b) extra.safetensors{extra.safetensors}(z)", NULL, NULL},
    {"rule 2: shards of any name",
     "st x.safetensors a\nst y.safetensors b\nindex " IX " a x.safetensors b y.safetensors",
     "safetensors{x.safetensors y.safetensors}(a b)", NULL, NULL},
    {"rule 4: another index",
     "st p.safetensors a\nst q.safetensors b\n"
     "index diffusion.safetensors.index.fp16.json a p.safetensors b q.safetensors",
     "safetensors{p.safetensors q.safetensors}(a b)", NULL, NULL},
    {"rule 4: a group", "st " S1 " b\nst " S2 " a", "safetensors{" S1 " " S2 "}(a b)", NULL, NULL},
    {"rule 4: a group of one", "st model-00001-of-00001.safetensors a",
     "safetensors{model-00001-of-00001.safetensors}(a)", NULL, NULL},
    {"a broken index leaves nothing beside it half known",
     "st " S1 " a\nst " S2 " b\nst c.safetensors c\ntext " IX " {", "", IX, "JSON"},
    {"a broken index leaves what is complete by its name", "st " S1 " a\nst model.safetensors m\ntext " IX " {",
     "safetensors{model.safetensors}(m)", IX, "JSON"},
    {"an index that names what is not there leaves nothing", "st " S1 " a\nindex " IX " a " S1 " b " S2, "", IX, S2},
    {"rule 5: disjoint files", "st a.safetensors z x\nst b.safetensors y",
     "safetensors{a.safetensors b.safetensors}(x y z)", NULL, NULL},
    {"a variant is not the default", "st w.fp16.safetensors a b\nst w.safetensors a b",
     "safetensors{w.safetensors}(a b) w.fp16.safetensors{w.fp16.safetensors}(a b)", NULL, NULL},
    {"a variant by itself", "st w.fp16.safetensors a b", "safetensors{w.fp16.safetensors}(a b)", NULL, NULL},
    {"a variant beside others that share no name",
     "st w.bf16.safetensors a b\nst w.safetensors a b\nst x.safetensors c",
     "safetensors{w.safetensors x.safetensors}(a b c) w.bf16.safetensors{w.bf16.safetensors}(a b)", NULL, NULL},
    {"files that share no name, one with a word behind a dot", "st w.one.safetensors a\nst w.safetensors b",
     "safetensors{w.one.safetensors w.safetensors}(a b)", NULL, NULL},
    {"a variant's shards",
     "st w-00001-of-00002.safetensors a\nst w-00002-of-00002.safetensors b\n"
     "st w.fp16-00001-of-00002.safetensors a\nst w.fp16-00002-of-00002.safetensors b",
     "safetensors{w-00001-of-00002.safetensors w-00002-of-00002.safetensors}(a b) "
     "w.fp16.safetensors{w.fp16-00001-of-00002.safetensors w.fp16-00002-of-00002.safetensors}(a b)",
     NULL, NULL},
    {"a variant of a pickle's weights", "st model.fp16.safetensors 0 1\ndata pytorch_model.bin torch/list.pt",
     "pytorch{pytorch_model.bin}(0 1) model.fp16.safetensors{model.fp16.safetensors}(0 1)", NULL, NULL},
    {"no rule: two files with the same names", "st v.safetensors a b\nst w.safetensors a b",
     "v.safetensors{v.safetensors}(a b) w.safetensors{w.safetensors}(a b)", NULL, NULL},
    {"rule 3: diffusers takes an index before a file",
     "st diffusion_pytorch_model.safetensors a\nst p.safetensors a\n"
     "index diffusion_pytorch_model.safetensors.index.json a p.safetensors",
     "safetensors{p.safetensors}(a) diffusion_pytorch_model.safetensors{diffusion_pytorch_model.safetensors}(a)", NULL,
     NULL},
    {"no rule: two groups",
     "st x-00001-of-00001.safetensors a\nst y-00001-of-00002.safetensors b\n"
     "st y-00002-of-00002.safetensors c",
     "x.safetensors{x-00001-of-00001.safetensors}(a) y.safetensors{y-00001-of-00002.safetensors "
     "y-00002-of-00002.safetensors}(b c)",
     NULL, NULL},
    {"no rule: a group and a file",
     "st x-00001-of-00002.safetensors a\nst x-00002-of-00002.safetensors b\nst extra.safetensors c",
     "extra.safetensors{extra.safetensors}(c) "
     "x.safetensors{x-00001-of-00002.safetensors x-00002-of-00002.safetensors}(a b)",
     NULL, NULL},
    {"a group called model", "st " S1 " a\nst " S2 " b\nst extra.safetensors c",
     "safetensors{" S1 " " S2 "}(a b) extra.safetensors{extra.safetensors}(c)", NULL, NULL},
    {"rule 1 before a group called model", "st " S1 " a\nst " S2 " b\nst model.safetensors c",
     "safetensors{model.safetensors}(c) " S1 "{" S1 " " S2 "}(a b)", NULL, NULL},
    {"two totals of one stem",
     "st m-00001-of-00001.safetensors a\nst m-00001-of-00002.safetensors b\n"
     "st m-00002-of-00002.safetensors c",
     "m-00001-of-00002.safetensors{m-00001-of-00002.safetensors m-00002-of-00002.safetensors}(b c) "
     "m.safetensors{m-00001-of-00001.safetensors}(a)",
     NULL, NULL},
    {"three totals of one stem",
     "st m-00001-of-00001.safetensors a\nst m-00001-of-00002.safetensors b\n"
     "st m-00002-of-00002.safetensors c\nst m-00001-of-00003.safetensors d\n"
     "st m-00002-of-00003.safetensors e\nst m-00003-of-00003.safetensors f\nst ma.safetensors x",
     "m-00001-of-00002.safetensors{m-00001-of-00002.safetensors m-00002-of-00002.safetensors}(b c) "
     "m-00001-of-00003.safetensors{m-00001-of-00003.safetensors m-00002-of-00003.safetensors "
     "m-00003-of-00003.safetensors}(d e f) m.safetensors{m-00001-of-00001.safetensors}(a) "
     "ma.safetensors{ma.safetensors}(x)",
     NULL, NULL},
    {"a delta: no file is a checkpoint",
     "st model-00000-of-00001.safetensors a\nst extra.safetensors b\ntext " IX
     " " DELTA("\"a\":\"model-00000-of-00001.safetensors\""),
     "", NULL, NULL},
    {"a delta without changes", "text " IX " " DELTA(""), "", NULL, NULL},
    {"a delta that lacks a file", "st " S1 " a\ntext " IX " " DELTA("\"a\":\"" S1 "\",\"b\":\"" S2 "\""), "", IX,
     "shard \"" S2 "\" is not there, so this delta cannot be applied"},
    {"only the index that libraries load makes a delta",
     "st " S1 " a\ntext other.safetensors.index.json " DELTA("\"a\":\"" S1 "\""), "safetensors{" S1 "}(a)", NULL, NULL},
    {"an index that maps nothing", "index " IX " ", "safetensors{}()", NULL, NULL},
    {"a tensor that is only in a shard is not shown", "st " S1 " a hidden\nindex " IX " a " S1,
     "safetensors{" S1 "}(a)", NULL, NULL},
    {"a tensor in two shards: the index decides", "st " S1 " a b\nst " S2 " a\nindex " IX " a " S2 " b " S1,
     "safetensors{" S1 " " S2 "}(a b)", NULL, NULL},
    {"index: a shard is missing", "st " S1 " a\nindex " IX " a " S1 " b " S2, "", IX, "\"" S2 "\" is not there"},
    {"index: a shard is missing, a file beside it",
     "st " S1 " a\nindex " IX " a " S1 " b " S2 "\nst good.safetensors g", "safetensors{good.safetensors}(g)", IX, S2},
    {"index: a shard is broken", "st " S1 " a\ntext " S2 " rubbish\nindex " IX " a " S1 " b " S2, "", IX,
     "\"" S2 "\" cannot be read"},
    {"index: the broken shard says why", "st " S1 " a\ntext " S2 " rubbish!\nindex " IX " a " S1 " b " S2, "", S2,
     "header"},
    {"index: a tensor is not in its shard", "st " S1 " a\nst " S2 " b\nindex " IX " a " S1 " c " S2, "", IX, "\"c\""},
    {"index: shards in folders",
     "st x/p.safetensors a\nst y/q.safetensors b\nst r.safetensors c\n"
     "index " IX " a x/p.safetensors b ./y/./q.safetensors c ./r.safetensors",
     "safetensors{r.safetensors x/p.safetensors y/q.safetensors}(a b c)", NULL, NULL},
    {"index: a shard in a folder is missing", "st x/p.safetensors a\nindex " IX " a x/p.safetensors b x/q.safetensors",
     "", IX, "\"x/q.safetensors\" is not there"},
    {"index: a shard in a folder is broken", "text x/p.safetensors rubbish!\nindex " IX " a x/p.safetensors", "", IX,
     "\"x/p.safetensors\" cannot be read"},
    {"index: a plain file in a folder", "text x/notes.txt hello\nindex " IX " a x/notes.txt", "", IX,
     "\"x/notes.txt\" holds no tensors"},
    {"index: it names itself", "index " IX " a " IX, "", IX, "holds no tensors"},
    {"index: a directory above", "st a.safetensors a\ntext " IX " {\"weight_map\":{\"a\":\"../a.safetensors\"}}", "",
     IX, ".."},
    {"index: no map", "st a.safetensors a\ntext " IX " {}", "", IX, "weight_map"},
    {"index: one is refused, another holds",
     "st a.safetensors a\nst b.safetensors b\ntext " IX " {\nindex other.safetensors.index.json a a.safetensors",
     "safetensors{a.safetensors}(a)", IX, "JSON"},
    {"group: counted from 0", "st x-00000-of-00002.safetensors a\nst x-00001-of-00002.safetensors b",
     "safetensors{x-00000-of-00002.safetensors x-00001-of-00002.safetensors}(a b)", NULL, NULL},
    {"group: counted from 0, and the total is the last number",
     "st x-00000-of-00002.safetensors a\nst x-00001-of-00002.safetensors b\nst x-00002-of-00002.safetensors c",
     "safetensors{x-00000-of-00002.safetensors x-00001-of-00002.safetensors x-00002-of-00002.safetensors}(a b c)", NULL,
     NULL},
    {"group: counted from 0, one file", "st x-00000-of-00001.safetensors a",
     "safetensors{x-00000-of-00001.safetensors}(a)", NULL, NULL},
    {"group: counted from 0, pickles",
     "data x-00000-of-00002.pth torch/list.pt\ndata x-00001-of-00002.pth torch/protocol4.pt",
     "x.pth{x-00000-of-00002.pth x-00001-of-00002.pth}(0 0.bias 0.weight 1 1.bias 1.weight)", NULL, NULL},
    {"group: counted from 0, a middle one is missing",
     "st x-00000-of-00003.safetensors a\nst x-00002-of-00003.safetensors c", "", "x-00000-of-00003.safetensors",
     "shard 1 of 3 is not there, so this sharded checkpoint is not published; its files are counted from 0"},
    {"group: counted from 0, the last is missing",
     "st x-00000-of-00003.safetensors a\nst x-00001-of-00003.safetensors c", "", "x-00000-of-00003.safetensors",
     "shard 2 of 3"},
    {"group: counted from 0, the total is the last number, and one is missing",
     "st x-00000-of-00002.safetensors a\nst x-00002-of-00002.safetensors c", "", "x-00000-of-00002.safetensors",
     "shard 1 of 2"},
    {"group: one more than the total", "st x-00001-of-00001.safetensors a\nst x-00002-of-00001.safetensors b",
     "safetensors{x-00001-of-00001.safetensors x-00002-of-00001.safetensors}(a b)", NULL, NULL},
    {"group: a gap past the total", "st x-00001-of-00001.safetensors a\nst x-00003-of-00001.safetensors b", "",
     "x-00001-of-00001.safetensors", "number of \"x-00003-of-00001.safetensors\" is past its total"},
    {"group: the first is missing", "st " S2 " b", "", S2, "shard 1 of 2"},
    {"group: the last is missing", "st " S1 " b", "", S1, "shard 2 of 2"},
    {"group: a middle one is missing", "st x-00001-of-00003.safetensors a\nst x-00003-of-00003.safetensors c", "",
     "x-00001-of-00003.safetensors", "shard 2 of 3"},
    {"group: far too few", "st x-00001-of-99999.safetensors a", "", "x-00001-of-99999.safetensors", "shard 2 of 99999"},
    {"group: a number past the total", "st x-00003-of-00002.safetensors a", "", "x-00003-of-00002.safetensors",
     "shard 1 of 2"},
    {"group: one is broken", "st " S1 " a\ntext " S2 " rubbish", "", S1, "shard \"" S2 "\" cannot be read"},
    {"group: the broken one says why", "st " S1 " a\ntext " S2 " rubbish", "", S2, "bytes"},
    {"group: one leads nowhere", "st " S1 " a\nlink " S2 " nowhere", "", S2, "does not exist"},
    {"group: a name twice", "st " S1 " a b\nst " S2 " b c", "", S1, "\"b\" is in two shards"},
    {"group: none of its members stands alone", "st " S1 " a\nst other.safetensors z",
     "safetensors{other.safetensors}(z)", S1, "shard 2 of 2"},
    {"a total of 0 is no group", "st x-00001-of-00000.safetensors a", "safetensors{x-00001-of-00000.safetensors}(a)",
     NULL, NULL},
    {"four digits are no group", "st x-0001-of-0002.safetensors a", "safetensors{x-0001-of-0002.safetensors}(a)", NULL,
     NULL},
    {"no stem is no group", "st -00001-of-00002.safetensors a", "safetensors{-00001-of-00002.safetensors}(a)", NULL,
     NULL},
    {"nothing readable", "text model.safetensors x", "", "model.safetensors", "bytes"},
    {"a broken file beside a good one", "text model.safetensors x\nst good.safetensors a",
     "safetensors{good.safetensors}(a)", "model.safetensors", "bytes"},
    {"a link out of the root", "link model.safetensors /etc/passwd\nst good.safetensors a",
     "safetensors{good.safetensors}(a)", "model.safetensors", "outside"},
    {"pytorch: one file", "data pytorch_model.bin torch/list.pt", "pytorch{pytorch_model.bin}(0 1)", NULL, NULL},
    {"pytorch: an index",
     "data pytorch_model-1.bin torch/list.pt\ndata pytorch_model-2.bin torch/protocol4.pt\n"
     "index pytorch_model.bin.index.json 0 pytorch_model-1.bin 1 pytorch_model-1.bin 1.bias pytorch_model-2.bin",
     "pytorch{pytorch_model-1.bin pytorch_model-2.bin}(0 1 1.bias)", NULL, NULL},
    {"pytorch: a group",
     "data pytorch_model-00001-of-00002.bin torch/list.pt\ndata pytorch_model-00002-of-00002.bin torch/protocol4.pt",
     "pytorch{pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin}(0 0.bias 0.weight 1 1.bias 1.weight)",
     NULL, NULL},
    {"pytorch: a shard that is missing", "data pytorch_model-00001-of-00002.bin torch/list.pt", "",
     "pytorch_model-00001-of-00002.bin", "shard 2 of 2 is not there"},
    {"safetensors first, then pytorch, then by name, then what holds no tensors",
     "data a.bin torch/scalars_only.pt\ndata pytorch_model.bin torch/list.pt\nst model.safetensors x\n"
     "data m.gguf gguf/split-00003-of-00003.gguf\ndata consolidated.00.pth torch/list.pt",
     "safetensors{model.safetensors}(x) pytorch{pytorch_model.bin}(0 1) consolidated.00.pth{consolidated.00.pth}(0 1) "
     "m.gguf{m.gguf}(t4) a.bin{a.bin}()",
     NULL, NULL},
    {"other files by their own names, whatever they share", "data a.pt torch/list.pt\ndata b.pth torch/list.pt",
     "a.pt{a.pt}(0 1) b.pth{b.pth}(0 1)", NULL, NULL},
    {"a file with tensors in other files", "data m.onnx onnx/external.onnx\ntext sub/data.0 junk\ntext sub/data.1 junk",
     "m.onnx{m.onnx sub/data.0 sub/data.1}(a b c)", NULL, NULL},
    {"a file with tensors in two other files, one missing", "data m.onnx onnx/external.onnx\ntext sub/data.1 junk",
     "m.onnx{m.onnx sub/data.1}(a b c)", "m.onnx", "\"sub/data.0\", which holds some of its tensors, is missing"},
    {"a .bin of another kind is no checkpoint", "text tokenizer.bin junk\ndata a.pt torch/list.pt", "a.pt{a.pt}(0 1)",
     NULL, NULL},
    {"a broken pytorch_model.bin is reported", "text pytorch_model.bin junk\ndata a.pt torch/list.pt",
     "a.pt{a.pt}(0 1)", "pytorch_model.bin", "neither a zip archive nor a pickle"},
    {"a refused index takes its siblings along only",
     "text pytorch_model.bin.index.json {\ndata pytorch_model-1.bin torch/list.pt\nst model.safetensors x\n"
     "data a.pt torch/list.pt",
     "safetensors{model.safetensors}(x) a.pt{a.pt}(0 1)", "pytorch_model.bin.index.json", ""},
    {"a split GGUF goes by its stem",
     "data q-00001-of-00003.gguf gguf/split-00001-of-00003.gguf\n"
     "data q-00002-of-00003.gguf gguf/split-00002-of-00003.gguf\n"
     "data q-00003-of-00003.gguf gguf/split-00003-of-00003.gguf",
     "q{q-00001-of-00003.gguf q-00002-of-00003.gguf q-00003-of-00003.gguf}(t0 t1 t2 t3 t4)", NULL, NULL},
    {"split.count 3 with two files",
     "data q-00001-of-00002.gguf gguf/split-00001-of-00003.gguf\n"
     "data q-00002-of-00002.gguf gguf/split-00002-of-00003.gguf",
     "", "q-00001-of-00002.gguf", "split.no 0 of split.count 3"},
    {"split.no twice",
     "data q-00001-of-00003.gguf gguf/split-00001-of-00003.gguf\n"
     "data q-00002-of-00003.gguf gguf/split-00001-of-00003.gguf\n"
     "data q-00003-of-00003.gguf gguf/split-00003-of-00003.gguf",
     "", "q-00001-of-00003.gguf", "shard 2 of 3 by its name says that it is split.no 0"},
    {"groups of one stem and two extensions",
     "st m-00001-of-00001.safetensors a\ndata m-00001-of-00001.gguf gguf/none.gguf",
     "safetensors{m-00001-of-00001.safetensors}(a) m{m-00001-of-00001.gguf}()", NULL, NULL},
    {"a split GGUF whose stem is a group's name",
     "st x-00001-of-00001.safetensors a\ndata x.safetensors-00001-of-00001.gguf gguf/version2.gguf",
     "safetensors{x-00001-of-00001.safetensors}(a) "
     "x.safetensors-00001-of-00001.gguf{x.safetensors-00001-of-00001.gguf}(last none scalar w)",
     NULL, NULL},
    {"a split GGUF whose stem is an id that another set gets",
     "data pytorch_model.bin torch/list.pt\ndata pytorch-00001-of-00001.gguf gguf/none.gguf",
     "pytorch{pytorch_model.bin}(0 1) pytorch-00001-of-00001.gguf{pytorch-00001-of-00001.gguf}()", NULL, NULL},
    {"groups of one stem and several formats",
     "st m-00001-of-00002.safetensors a\nst m-00002-of-00002.safetensors b\n"
     "data m-00001-of-00002.bin torch/list.pt\ndata m-00002-of-00002.bin torch/protocol4.pt\n"
     "data m-00002-of-00003.bin torch/list.pt",
     "safetensors{m-00001-of-00002.safetensors m-00002-of-00002.safetensors}(a b) "
     "m.bin{m-00001-of-00002.bin m-00002-of-00002.bin}(0 0.bias 0.weight 1 1.bias 1.weight)",
     "m-00002-of-00003.bin", "shard 1 of 3"},
};

static void sets_become_checkpoints(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_row(&rows[i]);
}

static void index_names(void **state)
{
    (void)state;
    static const char *const good[] = {"model.safetensors.index.json", "x.safetensors.index.json",
                                       "model.safetensors.index.fp16.json", "pytorch_model.bin.index.json",
                                       "pytorch_model.bin.index.fp16.json"};
    static const char *const bad[] = {
        "model.safetensors", ".safetensors.index.json",       "index.json",
        "model.index.json",  "model.safetensors.index.jsonl", "model.safetensors.index.txt",
        ".bin.index.json",   "pytorch_model.index.json",      "model.safetensors.indexjson"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_file_kind_of(good[i]) == TD_FILE_SHARD_INDEX, "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(td_file_kind_of(bad[i]) != TD_FILE_SHARD_INDEX, "%s", bad[i]);
}

/* A shard in a folder is no checkpoint of that folder, unless all shards are there. */
static void shards_in_folders(void **state)
{
    struct place *place = *state;
    char got[1024];
    make_files(&place->tree, "st x/p.safetensors a\nst x/z.safetensors a\nst q.safetensors b\nindex " IX
                             " a x/p.safetensors b q.safetensors");
    tree_simple(&place->tree, "n/x/p.safetensors", "a");
    tree_simple(&place->tree, "n/x/q.safetensors", "b");
    tree_index(&place->tree, "n/" IX, "a x/p.safetensors b x/q.safetensors");
    (void)scanner_scan(&place->scanner);
    describe(scanner_model(&place->scanner, "m"), got, sizeof got);
    assert_string_equal(got, "safetensors{q.safetensors x/p.safetensors}(a b)");
    describe(scanner_model(&place->scanner, "m/x"), got, sizeof got);
    assert_string_equal(got, "safetensors{z.safetensors}(a)");
    const char *message = scanner_problem(&place->scanner, scanner_model(&place->scanner, "m/x"), "p.safetensors");
    assert_string_equal(message, "a shard of \"m/" IX "\", and no checkpoint by itself");
    describe(scanner_model(&place->scanner, "n"), got, sizeof got);
    assert_string_equal(got, "safetensors{x/p.safetensors x/q.safetensors}(a b)");
    describe(scanner_model(&place->scanner, "n/x"), got, sizeof got);
    assert_string_equal(got, "safetensors{p.safetensors q.safetensors}(a b)");
}

/* Files with boxes of tensors are one set. A file beside them is another checkpoint, although they share no tensor. */
static void file_beside_boxes(void **state)
{
    static const char *const infos[] = {"{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[0]}}\"}",
                                        "{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[1]}}\"}",
                                        "{\"DCP_SHARDING_INFO\":\"{\\\"w\\\":{\\\"saved_offsets\\\":[2]}}\"}"};
    struct place *place = *state;
    struct tree_tensor box = {"w", "U8", "[1]", 1};
    char got[2048];
    char name[32];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "m/box-%zu.safetensors", i);
        (void)tree_tensors(&place->tree, name, &box, 1, infos[i], 0);
    }
    make_files(&place->tree, "st other.safetensors z");
    (void)scanner_scan(&place->scanner);
    const struct td_model *model = scanner_model(&place->scanner, "m");
    describe(model, got, sizeof got);
    assert_string_equal(got, "box-0.safetensors{box-0.safetensors box-1.safetensors box-2.safetensors}(w) "
                             "other.safetensors{other.safetensors}(z)");
    const struct td_tensor *tensor = td_checkpoint_tensor(&model->checkpoints[0], 0).tensor;
    assert_int_equal(tensor->piece_count, 3);
    for (uint32_t i = 0; i < tensor->piece_count; i++)
        assert_true(tensor->pieces[i].part < model->checkpoints[0].part_count);
}

/* When several files have a metadata key, the first file's value is taken. */
static void metadata_of_all_parts(void **state)
{
    struct place *place = *state;
    struct tree_tensor a = {"a", "U8", "[1]", 1};
    struct tree_tensor b = {"b", "U8", "[1]", 1};
    (void)tree_tensors(&place->tree, "m/" S1, &a, 1, "{\"format\":\"pt\",\"one\":\"1\"}", 0);
    (void)tree_tensors(&place->tree, "m/" S2, &b, 1, "{\"two\":\"2\",\"format\":\"np\"}", 0);
    (void)scanner_scan(&place->scanner);
    const struct td_checkpoint *c = &scanner_model(&place->scanner, "m")->checkpoints[0];
    assert_int_equal(c->metadata_count, 3);
    static const char *const wanted[][2] = {{"format", "\"pt\""}, {"one", "\"1\""}, {"two", "\"2\""}};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(c->metadata[i].key, wanted[i][0]);
        assert_string_equal(c->metadata[i].value, wanted[i][1]);
    }
}

/* total_bytes counts the tensors that can be served: mixed.npz holds three arrays of 48 bytes, one of them deflated. */
static void total_of_what_can_be_served(void **state)
{
    struct place *place = *state;
    tree_copy(&place->tree, TD_TEST_DATA "/npz/mixed.npz", "m/x.npz");
    (void)scanner_scan(&place->scanner);
    const struct td_model *model = scanner_model(&place->scanner, "m");
    assert_int_equal(model->checkpoints[0].tensor_count, 3);
    assert_true(model->checkpoints[0].total_bytes == 144 && model->total_bytes == 144);
}

/* The tag changes with each file of the checkpoint and with no other file. */
static void tag_covers_the_parts(void **state)
{
    struct place *place = *state;
    char tag[TD_TAG_BYTES];
    make_files(&place->tree, "st " S1 " a\nst " S2 " b\nindex " IX " a " S1 " b " S2 "\ntext config.json {}");
    (void)scanner_scan(&place->scanner);
    memcpy(tag, scanner_model(&place->scanner, "m")->checkpoints[0].tag, sizeof tag);
    tree_text(&place->tree, "m/config.json", "{\"a\":1}");
    tree_simple(&place->tree, "other/x.safetensors", "a");
    (void)scanner_scan(&place->scanner);
    assert_string_equal(tag, scanner_model(&place->scanner, "m")->checkpoints[0].tag);
    static const char *const changes[] = {"st " S1 " a z", "st " S2 " b z", "index " IX " b " S2 " a " S1};
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        make_files(&place->tree, changes[i]);
        (void)scanner_scan(&place->scanner);
        const char *now = scanner_model(&place->scanner, "m")->checkpoints[0].tag;
        CHECK(strcmp(tag, now) != 0, "%s", changes[i]);
        memcpy(tag, now, sizeof tag);
    }
}

static const struct td_checkpoint *only_checkpoint(const struct scanner *scanner)
{
    const struct td_model *model = scanner_model(scanner, "m");
    assert_non_null(model);
    assert_int_equal(model->checkpoint_count, 1);
    return &model->checkpoints[0];
}

/* A distributed checkpoint is joined again when one of its files changed, and not before. */
static void unchanged_files_are_joined_once(void **state)
{
    static const char *const files[] = {"data .metadata dcp/.metadata", "data __0_0.distcp dcp/__0_0.distcp"};
    struct place *place = *state;
    make_files(&place->tree, files[0]);
    make_files(&place->tree, files[1]);
    (void)scanner_scan(&place->scanner);
    struct td_joined_tensors *join = only_checkpoint(&place->scanner)->join;
    assert_non_null(join);
    tree_simple(&place->tree, "other/x.safetensors", "a");
    (void)scanner_scan(&place->scanner); /* this frees the snapshot before */
    const struct td_checkpoint *c = only_checkpoint(&place->scanner);
    assert_ptr_equal(c->join, join);
    assert_ptr_equal(c->refs, join->tensors);
    assert_int_equal(c->tensor_count, join->tensor_count);
    struct td_tensor_ref ref;
    assert_true(td_checkpoint_find(c, TD_TEXT("bytes"), &ref));
    assert_true(ref.tensor->reason == NULL && ref.tensor->nbytes == 5);
    const struct td_dcp *dcp = &scanner_entry(&place->scanner, "m/.metadata")->file->dcp;
    assert_true(join->arena.used_bytes + sizeof *join <= td_dcp_join_bytes(dcp));
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        join =
            td_joined_tensors_ref(only_checkpoint(&place->scanner)->join); /* so that its address is not used again */
        make_files(&place->tree, files[i]);
        (void)scanner_scan(&place->scanner);
        CHECK(only_checkpoint(&place->scanner)->join != join, "%s", files[i]);
        td_joined_tensors_unref(join);
    }
    make_files(&place->tree, "text __0_0.distcp rubbish");
    (void)scanner_scan(&place->scanner);
    assert_int_equal(scanner_model(&place->scanner, "m")->checkpoint_count, 0);
}

/* Two models of the same bytes have different tags, because the hrefs in their manifests differ. */
static void tag_covers_the_model(void **state)
{
    struct place *place = *state;
    tree_simple(&place->tree, "m/x.safetensors", "a");
    tree_symlink(&place->tree, "n", "m");
    (void)scanner_scan(&place->scanner);
    const struct td_model *m = scanner_model(&place->scanner, "m");
    const struct td_model *n = scanner_model(&place->scanner, "n");
    assert_non_null(n);
    assert_string_not_equal(m->checkpoints[0].tag, n->checkpoints[0].tag);
}

/* Returns the CPU time to group n unreadable files, named by `format` from their numbers. */
static double group_seconds(const char *format, size_t n)
{
    struct td_snapshot snapshot = {0};
    struct td_model model = {.id = "m"};
    struct td_candidate *candidates = calloc(n, sizeof *candidates);
    char(*paths)[64] = calloc(n, sizeof *paths);
    struct td_error err = TD_ERROR_INIT;
    assert_true(candidates != NULL && paths != NULL);
    td_arena_init(&snapshot.arena, 0);
    for (size_t i = 0; i < n; i++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%05zu", i + 1);
        const char *gap = strchr(format, '#');
        (void)snprintf(paths[i], sizeof paths[i], "%.*s%s%s", (int)(gap - format), format, number, gap + 1);
        candidates[i] = (struct td_candidate){.path = paths[i],
                                              .directory_len = 1,
                                              .model_len = 1,
                                              .kind = td_file_kind_of(paths[i]),
                                              .error = "it is broken"};
    }
    double began = cpu_seconds();
    assert_true(td_checkpoints_build(&snapshot, NULL, &model, candidates, n, &err));
    double took = cpu_seconds() - began;
    assert_int_equal(model.checkpoint_count, 0);
    assert_true(model.problems.count > 0);
    free(model.checkpoints);
    free(model.problems.items);
    td_arena_fini(&snapshot.arena);
    free(candidates);
    free(paths);
    return took;
}

/* Sixteen times the files take about sixteen times as long; quadratic time would be 256 times. */
/* shows: security.md content-many-groups */
static void grouping_is_linear(void **state)
{
    (void)state;
    static const char *const formats[] = {
        "m/a-00001-of-#.gguf", /* each file is a group of its own, all of one stem */
        "m/a-#-of-99999.gguf", /* one group */
        "m/x#.bin.index.json", /* indexes: each hides the files of its kind */
        "m/x#.safetensors",
    };
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        double least_ratio = 1e9;
        for (size_t k = 0; k < 5; k++) {
            double few = group_seconds(formats[i], 2000);
            double many = group_seconds(formats[i], 32000);
            least_ratio = many / few < least_ratio ? many / few : least_ratio;
        }
        CHECK(least_ratio < 64, "%s: %.0f times as long", formats[i], least_ratio);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_become_checkpoints), cmocka_unit_test(index_names),
        TEST_IN(place, shards_in_folders),         TEST_IN(place, metadata_of_all_parts),
        TEST_IN(place, tag_covers_the_parts),      TEST_IN(place, unchanged_files_are_joined_once),
        TEST_IN(place, tag_covers_the_model),      TEST_IN(place, total_of_what_can_be_served),
        cmocka_unit_test(grouping_is_linear),      TEST_IN(place, file_beside_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
