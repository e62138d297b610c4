/* Tests which folders are datasets, and how the rows of their files are assigned to splits: the rules of
 * catalog/dataset/dataset.h, and for names of splits those of the datasets library. */
#include "catalog/dataset/dataset.h"

#include "core/buffer.h"
#include "core/log.h"
#include "tests/unit/catalog/rows_place.h"

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                              "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                              "size 12345\n";

/* Writes all datasets as "id{split:format=file,file;split:...} id{...}". */
static void list_datasets(const struct place *place, char out[4096])
{
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < td_datasets_of(snapshot)->count; i++) {
        const struct td_dataset *dataset = &td_datasets_of(snapshot)->items[i];
        used += (size_t)snprintf(out + used, 4096 - used, "%s%s{", i > 0 ? " " : "", dataset->id);
        for (size_t k = 0; k < dataset->split_count; k++) {
            const struct td_split *split = &dataset->splits[k];
            used += (size_t)snprintf(out + used, 4096 - used, "%s%s:%s=", k > 0 ? ";" : "", split->name,
                                     split->format->name);
            for (size_t f = 0; f < split->file_count; f++)
                used += (size_t)snprintf(out + used, 4096 - used, "%s%s", f > 0 ? "," : "",
                                         td_repo_relative(dataset->repo, split->files[f].entry));
        }
        used += (size_t)snprintf(out + used, 4096 - used, "}");
    }
}

static void expect_datasets(const struct place *place, const char *wanted)
{
    char got[4096];
    list_datasets(place, got);
    assert_string_equal(got, wanted);
}

/* A folder of a test: files separated by blanks, each with one row, and what they make. */
struct folder_case {
    const char *files, *wanted;
};

/* Makes the files. NAME.safetensors is a checkpoint, NAME.broken.safetensors is not what its name says, and a name
 * that ends in '@' a Git LFS pointer. */
static void make_files(const struct tree *tree, const char *names)
{
    while (*names != '\0') {
        char name[256];
        size_t len = strcspn(names, " ");
        memcpy(name, names, len);
        name[len] = '\0';
        if (strstr(name, ".broken.safetensors") == NULL && strstr(name, ".safetensors") != NULL) {
            tree_simple(tree, name, "w");
        } else if (name[len - 1] == '@') {
            name[len - 1] = '\0';
            tree_text(tree, name, pointer);
        } else {
            tree_text(tree, name, "{}\n");
        }
        names += len + strspn(names + len, " ");
    }
}

static void check_folders(const struct folder_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct place place;
        char got[4096];
        open_place(&place);
        make_files(&place.tree, cases[i].files);
        (void)scanner_scan(&place.scanner);
        list_datasets(&place, got);
        CHECK(strcmp(got, cases[i].wanted) == 0, "%s: %s, wanted %s", cases[i].files, got, cases[i].wanted);
        close_place(&place);
    }
}

static void which_folders(void **state)
{
    (void)state;
    static const struct folder_case cases[] = {
        /* anywhere: data files and no model */
        {"squad/train.jsonl", "squad{train:jsonl=train.jsonl}"},
        {"org/squad/a.NDJSON", "org/squad{train:jsonl=a.NDJSON}"},
        {"org/squad/deep/er/a.jsonl", "org/squad{train:jsonl=deep/er/a.jsonl}"},
        {"a.jsonl", ""}, /* the root is no repository */
        {"notes/readme.md", ""},
        {"m/model.safetensors m/a.jsonl", ""},
        {"m/model.broken.safetensors m/a.jsonl", ""},
        {"m/unet/model.safetensors m/a.jsonl", ""},
        {"m/checkpoint.pt m/a.jsonl", ""},
        {"m/config.json m/a.jsonl", ""},
        {"m/tokenizer.json m/a.jsonl", ""},
        {"m/tokenizer_config.json m/a.jsonl", ""},
        {"m/model_index.json m/a.jsonl", ""},
        {"m/adapter_config.json m/a.jsonl", ""},
        {"m/sub/config.json m/a.jsonl", "m{train:jsonl=a.jsonl}"}, /* describes nothing here */
        {"m/a.jsonl@", ""},
        {"m/a.jsonl@ m/b.jsonl", "m{train:jsonl=b.jsonl}"},
        {"p/train/a.jsonl p/test/b.jsonl p/validation/c.jsonl",
         "p{train:jsonl=train/a.jsonl;validation:jsonl=validation/c.jsonl;test:jsonl=test/b.jsonl}"},
        {"p/data/a.jsonl p/Test/b.jsonl", "p{train:jsonl=Test/b.jsonl,data/a.jsonl}"},
        {"p/train/a.jsonl p/other/b.jsonl", "p/other{train:jsonl=b.jsonl} p/train{train:jsonl=a.jsonl}"},
        {"p/train/a.jsonl p/test/model.safetensors", "p/train{train:jsonl=a.jsonl}"}, /* a namespace of models */
        {"p/train/cat/a.jpg p/test/cat/b.jpg", "p{train:images=train/cat/a.jpg;test:images=test/cat/b.jpg}"},
        {"p/train/notes.md p/test/notes.md", ""},
        {"org/p/train/a.jsonl org/p/test/b.jsonl", "org/p{train:jsonl=train/a.jsonl;test:jsonl=test/b.jsonl}"},
        {"models--p--train/snapshots/" C0 "/x.jsonl p/test/a.jsonl",
         "p/test{train:jsonl=a.jsonl} p/train{train:jsonl=x.jsonl}"},
        /* below datasets/: all of them */
        {"datasets/d/a.jsonl", "d{train:jsonl=a.jsonl}"},
        {"datasets/org/d/a.jsonl", "org/d{train:jsonl=a.jsonl}"},
        {"datasets/org/d/config.json datasets/org/d/a.jsonl", "org/d{train:jsonl=a.jsonl}"},
        {"datasets/org/d/x.safetensors datasets/org/d/a.jsonl", "org/d{train:jsonl=a.jsonl}"},
        {"datasets/a.jsonl", ""}, /* directly in datasets/ */
        {"datasets/a.jsonl datasets/README.md datasets/d/b.jsonl", "d{train:jsonl=b.jsonl}"},
        {"datasets/d/data/a.jsonl", "d{train:jsonl=data/a.jsonl}"},
        {"datasets/d/train/a.jsonl datasets/d/test/b.jsonl", "d{train:jsonl=train/a.jsonl;test:jsonl=test/b.jsonl}"},
        {"datasets/d/data/x/a.jsonl datasets/d/my-dev-set/b.jsonl", "d{validation:jsonl=my-dev-set/b.jsonl}"},
        {"datasets/d/data/a.jsonl datasets/d/other/b.jsonl",
         "d/data{train:jsonl=a.jsonl} d/other{train:jsonl=b.jsonl}"},
        {"datasets/a/train/x.jsonl datasets/a-b/c/x.jsonl datasets/ab/d/x.jsonl",
         "a{train:jsonl=train/x.jsonl} a-b/c{train:jsonl=x.jsonl} ab/d{train:jsonl=x.jsonl}"},
        {"datasets/org/d/data/train/a.jsonl", "org/d{train:jsonl=data/train/a.jsonl}"},
        /* one id in two places: that below datasets/ */
        {"datasets/org/d/a.jsonl org/d/b.jsonl", "org/d{train:jsonl=a.jsonl}"},
        /* caches */
        {"datasets--org--name/snapshots/" C0 "/train.jsonl", "org/name{train:jsonl=train.jsonl}"},
        {"datasets--name/snapshots/" C0 "/data/train.jsonl", "name{train:jsonl=data/train.jsonl}"},
        {"models--org--name/snapshots/" C0 "/a.jsonl", "org/name{train:jsonl=a.jsonl}"},
        {"models--org--name/snapshots/" C0 "/a.jsonl models--org--name/snapshots/" C0 "/config.json", ""},
    };
    check_folders(cases, COUNT_OF(cases));
}

static void which_splits(void **state)
{
    (void)state;
    static const struct folder_case cases[] = {
        {"d/b.jsonl d/a.jsonl d/c/a.jsonl", "d{train:jsonl=a.jsonl,b.jsonl,c/a.jsonl}"},
        {"d/test.jsonl d/dev.jsonl d/train.jsonl d/train2.jsonl",
         "d{train:jsonl=train.jsonl,train2.jsonl;validation:jsonl=dev.jsonl;test:jsonl=test.jsonl}"},
        {"d/test.jsonl d/other.jsonl", "d{test:jsonl=test.jsonl}"},
        {"datasets/d/data/train-00001-of-00002.jsonl datasets/d/data/train-00000-of-00002.jsonl "
         "datasets/d/data/zz-00000-of-00001.jsonl datasets/d/data/b-00000-of-00001.jsonl datasets/d/test/x.jsonl",
         "d{train:jsonl=data/train-00000-of-00002.jsonl,data/train-00001-of-00002.jsonl;"
         "b:jsonl=data/b-00000-of-00001.jsonl;zz:jsonl=data/zz-00000-of-00001.jsonl}"},
        {"d/data/train-00000-of-00001.jsonl d/test/x.jsonl", "d{train:jsonl=data/train-00000-of-00001.jsonl}"},
        /* words in folders count before those in names, and a file may be in several splits */
        {"d/README.md d/train.jsonl d/train/1.jsonl d/test.jsonl", "d{train:jsonl=train/1.jsonl}"},
        {"d/README.md d/train/test/x.jsonl d/test/y.jsonl",
         "d{train:jsonl=train/test/x.jsonl;test:jsonl=test/y.jsonl,train/test/x.jsonl}"},
        {"d/train_test.jsonl", "d{train:jsonl=train_test.jsonl;test:jsonl=train_test.jsonl}"},
        {"d/Train.jsonl d/TEST.jsonl", "d{train:jsonl=TEST.jsonl,Train.jsonl}"},
        {"d/README.md d/a.jsonl d/__pycache__/b.jsonl", "d{train:jsonl=a.jsonl}"},
        {"d/README.md d/test.txt d/a.jsonl", "d{train:jsonl=a.jsonl}"}, /* only files with rows give names */
        /* JSON Lines in .json files, by their content: "{}" is one line */
        {"datasets/d/train.json datasets/d/test.jsonl", "d{train:jsonl=train.json;test:jsonl=test.jsonl}"},
        {"datasets/d/a.JSON", "d{train:jsonl=a.JSON}"},
        {"datasets/d/dataset_info.json datasets/d/state.json datasets/d/index.json", ""},
        {"d/a.json", ""}, /* elsewhere one line is not enough */
        {"d/a.json d/b.jsonl", "d{train:jsonl=b.jsonl}"},
        {"d/a-10.jsonl d/a-9.jsonl", "d{train:jsonl=a-10.jsonl,a-9.jsonl}"}, /* by bytes */
        /* images: with metadata, in train/CLASS/, or below datasets/ */
        {"i/a.jpg i/b.PNG", ""},
        {"i/a.jpg i/b.PNG i/metadata.csv", "i{train:images=a.jpg,b.PNG}"},
        {"i/a.jpg i/metadata.jsonl", "i{train:images=a.jpg}"},
        {"i/README.md i/train/cat/a.webp i/train/dog/b.gif i/test/cat/c.jpeg",
         "i{train:images=train/cat/a.webp,train/dog/b.gif;test:images=test/cat/c.jpeg}"},
        {"i/README.md i/train/a.webp", ""},
        {"datasets/i/a.tiff datasets/i/b.bmp", "i{train:images=a.tiff,b.bmp}"},
        {"datasets/i/metadata.jsonl", "i{train:jsonl=metadata.jsonl}"},
        {"x/metadata.jsonl", "x{train:jsonl=metadata.jsonl}"},
        /* the most common format; among equals the images */
        {"datasets/i/a.jpg datasets/i/b.jpg datasets/i/x.jsonl", "i{train:images=a.jpg,b.jpg}"},
        {"datasets/i/a.jpg datasets/i/x.jsonl datasets/i/y.jsonl", "i{train:jsonl=x.jsonl,y.jsonl}"},
        {"datasets/i/a.jpg datasets/i/x.jsonl", "i{train:images=a.jpg}"},
        {"datasets/i/train.jpg datasets/i/train.jsonl datasets/i/train2.jsonl datasets/i/test.jpg",
         "i{train:jsonl=train.jsonl,train2.jsonl;test:images=test.jpg}"},
    };
    check_folders(cases, COUNT_OF(cases));
}

static const char *problem_of(const struct td_dataset *dataset, const char *path)
{
    for (size_t i = 0; i < dataset->problems.count; i++)
        if (strcmp(dataset->problems.items[i].path, path) == 0)
            return dataset->problems.items[i].message;
    return NULL;
}

static void what_is_left_out_is_told(void **state)
{
    struct place *place = *state;
    make_files(&place->tree, "d/test.jsonl d/other.jsonl datasets/i/a.jpg datasets/i/b.jpg datasets/i/x.jsonl "
                             "datasets/org/d/a.jsonl org/d/b.jsonl");
    (void)scanner_scan(&place->scanner);
    assert_string_equal(problem_of(dataset_at(place, "d"), "other.jsonl"),
                        "in no split: other files have a split's name in their paths");
    assert_string_equal(problem_of(dataset_at(place, "i"), "x.jsonl"),
                        "left out: most files of its split have another format");
    assert_int_equal(dataset_at(place, "d")->problems.count, 1);
    assert_string_equal(scanner_problem(&place->scanner, NULL, "org/d"),
                        "not a dataset: one below datasets/ has its id");
}

/* Files that the datasets library, but not the server, reads are reported, even when there are no others. */
static void what_is_not_read_is_told(void **state)
{
    static const char unpack[] = "its rows are not served because it is compressed; unpack it";
    static const char other[] = "its rows are not served: files of this format are not read row by row";
    static const struct {
        const char *name, *bytes, *message; /* message NULL: it has rows */
    } files[] = {
        {"lines.json", "{\"a\": 1}\n{\"a\": 2}\n", NULL},
        {"one.json", "{\"a\": 1}", NULL},
        {"empty.json", "", NULL},
        {"array.json", " [{\"a\": 1}]\n", "it holds one JSON array, and not one JSON object in each line (JSON Lines)"},
        {"object.json", "{\n\"a\": 1\n}\n",
         "it holds one JSON object over several lines, and not one in each line (JSON Lines)"},
        {"text.json", "nothing", "it does not hold one JSON object in each line (JSON Lines)"},
        {"cr.json", "{\"a\": 1}\r{\"a\": 2}\r", "its lines end with CR alone, and those of JSON Lines with LF"},
        {"a.jsonl.gz", "x", unpack},
        {"a.jsonl.zst", "x", unpack},
        {"a.json.bz2", "x", unpack},
        {"a.CSV.XZ", "x", unpack},
        {"a.tar.gz", "x", unpack},
        {"a.tgz", "x", unpack},
        {"train.txt", "x", other},
        {"test.ZIP", "x", other},
        {"train.txt.gz", "x", other},
        {"dev/a.xml.zst", "x", other},
        {"train.fasta", "x", other},
        {"test.lance", "x", other},
        {"p.jsonl", pointer, "a Git LFS pointer, not the file itself; run git lfs pull"},
        {"p.json", pointer, "a Git LFS pointer, not the file itself; run git lfs pull"},
        {"dev.txt", pointer, "a Git LFS pointer, not the file itself; run git lfs pull"},
    };
    struct place *place = *state;
    char name[64];
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        (void)snprintf(name, sizeof name, "datasets/d/%s", files[i].name);
        tree_text(&place->tree, name, files[i].bytes);
        (void)snprintf(name, sizeof name, "datasets/d%zu/%s", i, files[i].name);
        tree_text(&place->tree, name, files[i].bytes);
    }
    make_files(&place->tree, "datasets/d/notes.txt.gz datasets/d/notes.txt");
    tree_text(&place->tree, "datasets/d/words.txt", pointer);
    (void)scanner_scan(&place->scanner);
    const struct td_dataset *all = dataset_at(place, "d");
    assert_int_equal(all->problems.count, COUNT_OF(files) - 3);
    assert_int_equal(split_at(place, "d", "train")->file_count, 3);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        (void)snprintf(name, sizeof name, "d%zu", i);
        const struct td_dataset *alone = dataset_at(place, name);
        const char *messages[] = {problem_of(all, files[i].name), problem_of(alone, files[i].name)};
        for (size_t k = 0; k < 2; k++)
            CHECK(files[i].message == NULL ? messages[k] == NULL
                                           : messages[k] != NULL && strcmp(messages[k], files[i].message) == 0,
                  "%s: %s", files[i].name, messages[k] == NULL ? "nothing" : messages[k]);
        assert_int_equal(alone->split_count, files[i].message == NULL ? 1 : 0);
    }
}

/* ---- cards ---- */

static void write_card(const struct tree *tree, const char *name, const char *front_matter)
{
    char text[4096];
    (void)snprintf(text, sizeof text, "---\n%s---\n# Card\n", front_matter);
    tree_text(tree, name, text);
}

static void cards_name_splits(void **state)
{
    struct place *place = *state;
    make_files(&place->tree,
               "c/one.jsonl c/two.jsonl c/sub/three.jsonl c/x.txt m/model.safetensors m/a.jsonl m/b.jsonl "
               "n/model.safetensors n/a.jsonl e/a.jsonl p/test.jsonl p/b.jsonl");
    write_card(&place->tree, "c/README.md",
               "configs:\n"
               "- config_name: fr\n  data_files: sub/*.jsonl\n"
               "- config_name: en\n  default: true\n  data_files:\n"
               "  - split: zebra\n    path: [two.jsonl, 'o*.jsonl', one.jsonl]\n"
               "  - split: test\n    path: '**/*e*.jsonl'\n");
    write_card(&place->tree, "m/README.md", "configs:\n- data_files: a.jsonl\n");
    write_card(&place->tree, "n/README.md", "license: mit\n");
    write_card(&place->tree, "e/README.md", "configs:\n- data_files: nothing.jsonl\n");
    write_card(&place->tree, "p/README.md", "configs:\n- data_files: '*.jsonl'\n");
    (void)scanner_scan(&place->scanner);
    expect_datasets(place, "c{test:jsonl=one.jsonl,sub/three.jsonl;fr/train:jsonl=sub/three.jsonl;"
                           "zebra:jsonl=one.jsonl,two.jsonl} e{} m{train:jsonl=a.jsonl} "
                           "p{train:jsonl=b.jsonl,test.jsonl}");
    assert_string_equal(problem_of(dataset_at(place, "e"), "README.md"),
                        "no data file matches \"nothing.jsonl\" of split \"train\"");
    const struct td_split *split = split_at(place, "c", "fr/train");
    assert_ptr_equal(split->files[0].rows, split_at(place, "c", "test")->files[1].rows); /* indexed once */
}

/* A configuration's folder: paths below it name the splits, as in a dataset without a card, and patterns are relative
 * to it. */
static void cards_name_folders(void **state)
{
    struct place *place = *state;
    make_files(&place->tree, "c/a/train.jsonl c/a/test.jsonl c/b/train.jsonl c/b/extra/x.jsonl c/b/extra/__y/x.jsonl "
                             "c/ab/train.jsonl c/all.jsonl c/d/data/x-00000-of-00001.jsonl c/f/train/test/x.jsonl");
    write_card(&place->tree, "c/README.md",
               "configs:\n"
               "- config_name: one\n  data_dir: a\n"
               "- config_name: two\n  data_dir: ./b/\n"
               "- config_name: three\n  data_dir: b\n  data_files: [extra/*, '**/*.jsonl']\n"
               "- config_name: four\n  data_dir: d\n"
               "- &five {config_name: five, data_dir: f}\n"
               "- {<<: *five, config_name: six}\n"
               "- config_name: seven\n  data_dir: none\n");
    (void)scanner_scan(&place->scanner);
    expect_datasets(place, "c{train:jsonl=a/train.jsonl;test:jsonl=a/test.jsonl;five/test:jsonl=f/train/test/x.jsonl;"
                           "five/train:jsonl=f/train/test/x.jsonl;four/x:jsonl=d/data/x-00000-of-00001.jsonl;"
                           "six/test:jsonl=f/train/test/x.jsonl;six/train:jsonl=f/train/test/x.jsonl;"
                           "three/train:jsonl=b/extra/x.jsonl,b/train.jsonl;two/train:jsonl=b/train.jsonl}");
    assert_string_equal(problem_of(dataset_at(place, "c"), "README.md"),
                        "configuration \"seven\" has no file with rows");
}

/* A card may not put many files into many configurations: the work and the memory would be their product. */
/* shows: security.md rows-patterns */
static void configurations_are_bounded(void **state)
{
    enum { FILES = 500, CONFIGS = 20000 };
    struct place *place = *state;
    struct td_buffer card;
    char name[64];
    td_buffer_init(&card);
    td_buffer_puts(&card, "---\nconfigs:\n");
    for (size_t i = 0; i < CONFIGS; i++)
        td_buffer_puts(&card, "- {}\n");
    td_buffer_puts(&card, "---\n");
    for (size_t i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "datasets/d/%zu.jsonl", i);
        tree_text(&place->tree, name, "1");
    }
    tree_text(&place->tree, "datasets/d/README.md", td_buffer_terminate(&card));
    (void)scanner_scan(&place->scanner);
    const struct td_snapshot *snapshot = place->scanner.snapshot;
    assert_int_equal(td_datasets_of(snapshot)->count, 0);
    assert_int_equal(snapshot->problems.count, 1);
    assert_non_null(strstr(snapshot->problems.items[0].message, "match too many files"));
    td_buffer_fini(&card);
}

/* Faults of a card are reported, and the rest of the card is used. */
static void faults_of_cards_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *card, *splits, *message;
    } cases[] = {
        {"configs:\n- data_files: [a.jsonl\n", "test:jsonl=test.jsonl;",
         "not valid YAML: did not find expected ',' or ']' (line 4 of the front matter)"},
        {"configs: {default: a.jsonl}\n", "test:jsonl=test.jsonl;", "configs is not a list"},
        {"configs:\n- config_name: x\n  data_files: {train: a.jsonl}\n- data_files: a.jsonl\n", "train:jsonl=a.jsonl;",
         "data_files of configuration \"x\" is neither a path nor a list"},
        {"configs:\n- data_files:\n  - {split: train, path: a.jsonl}\n  - {split: test, path: b.jsonl}\n",
         "train:jsonl=a.jsonl;", "no data file matches \"b.jsonl\" of split \"test\""},
        {"configs:\n- data_files: a.jsonl\n", "train:jsonl=a.jsonl;", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct place place;
        open_place(&place);
        make_files(&place.tree, "c/a.jsonl c/test.jsonl");
        write_card(&place.tree, "c/README.md", cases[i].card);
        (void)scanner_scan(&place.scanner);
        char wanted[256];
        (void)snprintf(wanted, sizeof wanted, "c{%.*s}", (int)strlen(cases[i].splits) - 1, cases[i].splits);
        expect_datasets(&place, wanted);
        const char *message = problem_of(dataset_at(&place, "c"), "README.md");
        CHECK(message == NULL ? cases[i].message == NULL
                              : cases[i].message != NULL && strcmp(message, cases[i].message) == 0,
              "case %zu: %s", i, message == NULL ? "nothing" : message);
        close_place(&place);
    }
}

/* A card with patterns that would take minutes to match ends the dataset, not the scan. */
/* shows: security.md rows-patterns */
static void a_card_that_takes_too_long(void **state)
{
    struct place *place = *state;
    enum { PATTERNS = 2300, STARS = 200, FILES = 7 }; /* 80,000 steps each; 1 MiB of card are read */
    size_t size = (size_t)PATTERNS * (2 * STARS + 16) + 64, used = 0;
    char *card = malloc(size);
    assert_non_null(card);
    used += (size_t)snprintf(card, size, "---\nconfigs:\n- data_files:\n");
    for (int i = 0; i < PATTERNS; i++) {
        memcpy(card + used, "  - '", 5);
        used += 5;
        for (int k = 0; k < STARS; k++, used += 2)
            memcpy(card + used, "*a", 2);
        used += (size_t)snprintf(card + used, size - used, "%d'\n", i);
    }
    memcpy(card + used, "---\n", 4);
    tree_write(&place->tree, "slow/README.md", card, used + 4);
    for (int i = 0; i < FILES; i++) {
        char name[256] = "slow/";
        memset(name + 5, 'a', 200);
        (void)snprintf(name + 205, sizeof name - 205, "%d.jsonl", i);
        tree_text(&place->tree, name, "{}\n");
    }
    tree_text(&place->tree, "good/a.jsonl", "{}\n");
    free(card);
    double began = cpu_seconds();
    (void)scanner_scan(&place->scanner);
    assert_true(cpu_seconds() - began < 60);
    expect_datasets(place, "good{train:jsonl=a.jsonl}");
    const char *problem = scanner_problem(&place->scanner, NULL, "slow");
    assert_true(problem != NULL && strstr(problem, "too long") != NULL);
}

/* ---- finding ---- */

static void datasets_are_found(void **state)
{
    struct place *place = *state;
    make_files(&place->tree, "a/x.jsonl c/x.jsonl datasets/b/x.jsonl datasets/org/d/x.jsonl");
    const struct td_snapshot *snapshot = scanner_scan(&place->scanner);
    expect_datasets(place, "a{train:jsonl=x.jsonl} b{train:jsonl=x.jsonl} c{train:jsonl=x.jsonl} "
                           "org/d{train:jsonl=x.jsonl}");
    assert_ptr_equal(dataset_at(place, "b"), &td_datasets_of(snapshot)->items[1]);
    assert_ptr_equal(dataset_at(place, "local/b"), &td_datasets_of(snapshot)->items[1]);
    assert_ptr_equal(dataset_at(place, "local/c"), &td_datasets_of(snapshot)->items[2]);
    assert_null(dataset_at(place, "local/org/d"));
    assert_null(dataset_at(place, "datasets/b"));
    assert_null(dataset_at(place, "org"));
    assert_null(dataset_at(place, ""));
    assert_null(dataset_at(place, "bb"));
    assert_int_equal(td_datasets_after(snapshot, TD_TEXT("")), 0);
    assert_int_equal(td_datasets_after(snapshot, TD_TEXT("a")), 1);
    assert_int_equal(td_datasets_after(snapshot, TD_TEXT("aa")), 1);
    assert_int_equal(td_datasets_after(snapshot, TD_TEXT("org/d")), 4);
    assert_non_null(td_dataset_find_split(dataset_at(place, "a"), TD_TEXT("train")));
    assert_null(td_dataset_find_split(dataset_at(place, "a"), TD_TEXT("trai")));
    assert_null(td_dataset_find_split(dataset_at(place, "a"), TD_TEXT("")));
}

/* ---- rows ---- */

static void rows_follow_the_files(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    tree_text(&place->tree, "d/b.jsonl", "1\n2\n3\n");
    tree_text(&place->tree, "d/a.jsonl", "1\n\n2\n");
    tree_text(&place->tree, "d/c.jsonl", "");
    tree_text(&place->tree, "d/d.jsonl", "\n \n");
    tree_text(&place->tree, "d/e.jsonl", "1");
    (void)scanner_scan(&place->scanner);
    const struct td_split *split = split_at(place, "d", "train");
    assert_int_equal(split->file_bytes, 6 + 5 + 0 + 3 + 1);
    assert_null(td_split_rows_get(split, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    assert_string_equal(err.message, "the index of split \"train\" is being made: 0 of 15 bytes are done; try again");
    index_all(place);
    const struct td_split_rows *rows = rows_of(place, "d", "train");
    assert_ptr_equal(rows, rows_of(place, "d", "train"));
    static const uint64_t ends[] = {2, 5, 5, 5, 6};
    assert_int_equal(rows->row_count, 6);
    assert_memory_equal(rows->ends, ends, sizeof ends);
    assert_null(rows->reason);
    static const struct {
        size_t file;
        uint64_t within;
    } places[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {4, 0}};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        uint64_t within;
        assert_int_equal(td_split_locate(split, rows, i, &within), places[i].file);
        assert_int_equal(within, places[i].within);
    }
    struct td_split_progress progress = td_split_progress(split);
    assert_int_equal(progress.ready_count, 5);
    assert_int_equal(progress.done_bytes, 15);
    assert_null(progress.failed);
}

static void images_are_rows_at_once(void **state)
{
    struct place *place = *state;
    make_files(&place->tree, "datasets/i/a.jpg datasets/i/b.png datasets/i/c.gif");
    (void)scanner_scan(&place->scanner);
    const struct td_split_rows *rows = rows_of(place, "i", "train");
    assert_true(rows->row_count == 3 && rows->ends[0] == 1 && rows->ends[2] == 3);
    assert_null(split_at(place, "i", "train")->files[0].rows);
}

static void a_file_without_an_index(void **state)
{
    struct place *place = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_row_indexer_config config = {.threads = 1, .limits = {.max_memory_bytes = 1}};
    config.root = place->tree.path;
    tree_text(&place->tree, "d/a.jsonl", "1\n");
    tree_text(&place->tree, "d/b.jsonl", "1\n22");
    tree_text(&place->tree, "d/c.jsonl", "");
    (void)scanner_scan(&place->scanner);
    td_log_set_level(TD_LOG_ERROR);
    struct td_row_indexer *indexer = open_indexer(&config);
    give(indexer, place);
    wait_indexed(indexer);
    const struct td_split *split = split_at(place, "d", "train");
    assert_null(td_split_rows_get(split, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_string_equal(err.message, "split \"train\": \"a.jsonl\" has no rows: its index would take more than 1 bytes "
                                     "of memory");
    struct td_split_progress progress = td_split_progress(split);
    assert_true(progress.failed == &split->files[0] && progress.failed_count == 2 && progress.ready_count == 1);
    assert_int_equal(progress.done_bytes, 6); /* nothing more will be done */
    td_row_indexer_destroy(indexer);
}

/* ---- tags and fingerprints ---- */

struct tags {
    char tag[TD_TAG_BYTES], former[TD_TAG_BYTES];
};

static struct tags tags_of(const struct place *place, const char *id)
{
    struct tags tags;
    const struct td_split *split = split_at(place, id, "train");
    memcpy(tags.tag, split->tag, sizeof tags.tag);
    memcpy(tags.former, split->former_tag, sizeof tags.former);
    return tags;
}

static bool equal(const struct tags *a, const struct tags *b)
{
    CHECK((strcmp(a->tag, b->tag) == 0) == (strcmp(a->former, b->former) == 0), "only one tag changed");
    return strcmp(a->tag, b->tag) == 0;
}

static void tags_change_with_the_files(void **state)
{
    struct place *place = *state;
    struct tags before, now;
    tree_text(&place->tree, "d/a.jsonl", "1\n2\n");
    tree_text(&place->tree, "d/b.jsonl", "3\n");
    tree_text(&place->tree, "other/a.jsonl", "3\n");
    (void)scanner_scan(&place->scanner);
    before = tags_of(place, "d");
    tree_text(&place->tree, "other/a.jsonl", "4\n");
    tree_text(&place->tree, "d/notes.txt", "no rows");
    (void)scanner_scan(&place->scanner);
    now = tags_of(place, "d");
    assert_true(equal(&before, &now));
    tree_poke(&place->tree, "d/a.jsonl", 0, "9", 1);
    (void)scanner_scan(&place->scanner);
    now = tags_of(place, "d");
    assert_false(equal(&before, &now));
    before = now;
    tree_rename(&place->tree, "d/b.jsonl", "d/c.jsonl");
    (void)scanner_scan(&place->scanner);
    now = tags_of(place, "d");
    assert_false(equal(&before, &now));
    before = now;
    tree_text(&place->tree, "d/x.jsonl", "");
    (void)scanner_scan(&place->scanner);
    now = tags_of(place, "d");
    assert_false(equal(&before, &now));
}

/* Once the contents are known, the tag is that of copies, and the former tag stays. */
static void tags_of_contents(void **state)
{
    struct place *place = *state;
    tree_text(&place->tree, "d/a.jsonl", "1\n2\n");
    tree_text(&place->tree, "e/a.jsonl", "1\n2\n");
    (void)scanner_scan(&place->scanner);
    struct tags d = tags_of(place, "d"), e = tags_of(place, "e");
    assert_false(equal(&d, &e));
    assert_string_equal(d.tag, d.former);
    static const uint8_t sum[TD_SHA256_BYTES] = {1, 2, 3};
    assert_true(td_file_set_sha256(file_at(place, "d/a.jsonl"), sum));
    assert_true(td_file_set_sha256(file_at(place, "e/a.jsonl"), sum));
    tree_text(&place->tree, "f/a.jsonl", "x"); /* something changed, so that there is a new snapshot */
    (void)scanner_scan(&place->scanner);
    struct tags d_later = tags_of(place, "d"), e_later = tags_of(place, "e");
    assert_string_equal(d_later.tag, e_later.tag);
    assert_string_not_equal(d_later.tag, d.tag);
    assert_string_equal(d_later.former, d.former);
    assert_string_equal(e_later.former, e.former);
}

enum { LARGE = 3 * 64 * 4096 };

static void write_large(const struct tree *tree, const char *name, size_t size, size_t changed_at)
{
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i % 80 == 79 ? '\n' : 'a' + i % 23);
    if (changed_at < size)
        bytes[changed_at] = 'Z';
    tree_write(tree, name, bytes, size);
    free(bytes);
}

/* shows: security.md rows-fingerprint */
static void fingerprints(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *id;
        const char *a, *b, *c; /* contents of a.jsonl, b.jsonl, c.jsonl; NULL: no such file */
        bool equal;            /* to the first one */
    } cases[] = {
        {"d0", "1\n2\n", "3\n", NULL, true},       {"d1", "1\n2\n", "3\n", NULL, true},
        {"d2", "1\n9\n", "3\n", NULL, false},      {"d3", "3\n", "1\n2\n", NULL, false},
        {"d4", "1\n2\n", "3\n", "4\n", false},     {"d5", "1\n2\n3\n", NULL, NULL, false},
        {"d6", "1\n2\n3\n", "", NULL, false},      {"d7", "1\n2\n", "3 \n", NULL, false},
        {"d8", "1\n2\n", "3", NULL, false},        {"d9", "1\n2\n", "3\n", "", false},
        {"local2/d", "1\n2\n", "3\n", NULL, true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *contents[] = {cases[i].a, cases[i].b, cases[i].c};
        for (size_t f = 0; f < 3; f++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s/%c.jsonl", cases[i].id, (char)('a' + f));
            if (contents[f] != NULL)
                tree_text(&place->tree, name, contents[f]);
        }
    }
    tree_text(&place->tree, "renamed/a.jsonl", "1\n2\n"); /* paths below the dataset matter, too */
    tree_text(&place->tree, "renamed/c.jsonl", "3\n");
    tree_text(&place->tree, "moved/x/a.jsonl", "1\n2\n");
    tree_text(&place->tree, "moved/b.jsonl", "3\n");
    make_files(&place->tree, "datasets/o/i0/a/x.jpg datasets/o/i1/a/x.jpg datasets/o/i2/b/x.jpg");
    write_large(&place->tree, "l0/x.jsonl", LARGE, LARGE);
    write_large(&place->tree, "l1/x.jsonl", LARGE, LARGE);
    write_large(&place->tree, "l2/x.jsonl", LARGE, 100);
    write_large(&place->tree, "l3/x.jsonl", LARGE, LARGE - 30);
    write_large(&place->tree, "l4/x.jsonl", LARGE - 1, LARGE);
    for (size_t size = 1, i = 0; size <= (size_t)40 * 4096; size = size * 2 + 1, i++)
        for (size_t k = 0; k < 3; k++) { /* small files are hashed as a whole */
            char name[64];
            (void)snprintf(name, sizeof name, "s%zu-%zu/x.jsonl", i, k);
            write_large(&place->tree, name, size, k == 0 ? size : k == 1 ? size / 2 : size / 3 * 2);
        }
    (void)scanner_scan(&place->scanner);
    index_all(place);
    const char *first = rows_of(place, "d0", "train")->fingerprint;
    assert_int_equal(strlen(first), TD_TAG_BYTES - 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK((strcmp(rows_of(place, cases[i].id, "train")->fingerprint, first) == 0) == cases[i].equal, "%s",
              cases[i].id);
    assert_string_not_equal(rows_of(place, "renamed", "train")->fingerprint, first);
    assert_string_not_equal(rows_of(place, "moved", "train")->fingerprint, first);
    first = rows_of(place, "o/i0", "train")->fingerprint; /* the folder is the image's class */
    assert_string_equal(rows_of(place, "o/i1", "train")->fingerprint, first);
    assert_string_not_equal(rows_of(place, "o/i2", "train")->fingerprint, first);
    first = rows_of(place, "l0", "train")->fingerprint;
    assert_string_equal(rows_of(place, "l1", "train")->fingerprint, first);
    for (char id[] = "l2"; id[1] <= '4'; id[1]++)
        assert_string_not_equal(rows_of(place, id, "train")->fingerprint, first);
    for (size_t size = 1, i = 0; size <= (size_t)40 * 4096; size = size * 2 + 1, i++) {
        char ids[3][64];
        for (size_t k = 0; k < 3; k++)
            (void)snprintf(ids[k], sizeof ids[k], "s%zu-%zu", i, k);
        CHECK(strcmp(rows_of(place, ids[0], "train")->fingerprint, rows_of(place, ids[1], "train")->fingerprint) != 0,
              "size %zu, byte %zu", size, size / 2);
        CHECK(strcmp(rows_of(place, ids[0], "train")->fingerprint, rows_of(place, ids[2], "train")->fingerprint) != 0,
              "size %zu, byte %zu", size, size / 3 * 2);
    }
}

/* Tests of one thread that take 48 s under ThreadSanitizer, which has nothing to find there. */
#ifdef __SANITIZE_THREAD__
enum { RUNS_COSTLY = 0 };
#else
enum { RUNS_COSTLY = 1 };
#endif

int main(void)
{
    const struct CMUnitTest costly[] = {
        TEST_IN(place, configurations_are_bounded),
        TEST_IN(place, a_card_that_takes_too_long),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_folders),
        cmocka_unit_test(which_splits),
        TEST_IN(place, what_is_left_out_is_told),
        TEST_IN(place, what_is_not_read_is_told),
        TEST_IN(place, cards_name_splits),
        TEST_IN(place, cards_name_folders),
        cmocka_unit_test(faults_of_cards_are_told),
        TEST_IN(place, datasets_are_found),
        TEST_IN(place, rows_follow_the_files),
        TEST_IN(place, images_are_rows_at_once),
        TEST_IN(place, a_file_without_an_index),
        TEST_IN(place, tags_change_with_the_files),
        TEST_IN(place, tags_of_contents),
        TEST_IN(place, fingerprints),
    };
    td_log_set_level(TD_LOG_ERROR);
    int failed = RUNS_COSTLY ? cmocka_run_group_tests(costly, NULL, NULL) : 0;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
