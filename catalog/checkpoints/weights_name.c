#include "catalog/checkpoints/weights_name.h"

#include "catalog/checkpoints/shard_group.h"
#include "parser/format/manifest.h"

#include <stdlib.h>
#include <string.h>

/* The stems that from_pretrained looks for. Stems with equal `weights` name the same weights. */
static const struct {
    const char *stem, *weights;
} library_stems[] = {
    {"model", "model"},
    {"pytorch_model", "model"},
    {"diffusion_pytorch_model", "diffusion_pytorch_model"},
    {"adapter_model", "adapter_model"},
};

/* Words that are variants after any stem. A word that ends with another one of the list precedes it. */
static const char *const variants[] = {
    "fp64", "fp32", "fp16", "bf16", "f32",     "f16",     "fp8",    "fp8_e4m3fn", "fp8_e5m2", "fp4", "nf4",
    "int8", "int4", "8bit", "4bit", "non_ema", "non-ema", "no_ema", "ema_only",   "emaonly",  "ema",
};

/* Equal for two names of the same weights. */
struct key {
    struct td_text stem, extension; /* the extension is empty for one of library_stems */
};

/* A name in components, without its shard's numbers. */
struct name {
    struct td_text stem, variant, extension; /* `variant`: in an index's name; else empty */
};

static struct td_text without_numbers(struct td_text stem)
{
    return td_text_n(stem.p, stem.len - td_shard_numbers_len(stem));
}

/* Splits the name of an index, STEM.safetensors.index.json or STEM.safetensors.index.VARIANT.json. Returns false for
 * another name. */
static bool read_index(const char *file_name, struct name *out)
{
    static const char *const extensions[] = {".safetensors", ".bin"};
    static const char middle[] = ".index.";
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        const size_t len = strlen(extensions[i]);
        const char *at = strstr(file_name, extensions[i]);
        if (at == NULL || strncmp(at + len, middle, sizeof middle - 1) != 0)
            continue;
        const char *variant = at + len + sizeof middle - 1;
        const char *end = strrchr(variant, '.');
        out->stem = td_text_n(file_name, (size_t)(at - file_name));
        out->variant = end == NULL ? td_text_n(variant, 0) : td_text_n(variant, (size_t)(end - variant));
        out->extension = td_text_of(extensions[i]);
        return true;
    }
    return false;
}

static void read_name(const char *file_name, struct name *out)
{
    *out = (struct name){0};
    if (!read_index(file_name, out)) {
        const char *dot = strrchr(file_name, '.');
        size_t len = dot == NULL ? strlen(file_name) : (size_t)(dot - file_name);
        out->stem = td_text_n(file_name, len);
        out->extension = td_text_of(file_name + len);
    }
    out->stem = without_numbers(out->stem);
}

/* Returns the weights that a library's stem stands for, or NULL. */
static const char *library_weights(struct td_text stem)
{
    for (size_t i = 0; i < sizeof library_stems / sizeof *library_stems; i++)
        if (td_text_equals(stem, library_stems[i].stem))
            return library_stems[i].weights;
    return NULL;
}

static struct key key_of(struct td_text stem, struct td_text extension)
{
    const char *weights = library_weights(stem);
    return weights == NULL ? (struct key){stem, extension} : (struct key){td_text_of(weights), TD_TEXT("")};
}

/* Removes the variant from the stem's end. Returns false when it has none. */
static bool take_variant(struct td_text *stem)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const size_t len = strlen(variants[i]);
        if (stem->len < len + 2)
            continue;
        struct td_text before = td_text_n(stem->p, stem->len - len - 1);
        if (strchr("._-", before.p[before.len]) == NULL ||
            !td_text_begins_ignore_case(td_text_skip(*stem, before.len + 1), variants[i]))
            continue;
        *stem = before;
        return true;
    }
    struct td_text before = *stem;
    (void)td_text_take_last(&before, '.');
    if (before.len == 0 || library_weights(without_numbers(before)) == NULL)
        return false;
    *stem = before;
    return true;
}

/* Sets *key to the key of the name without its variant. Returns false when the name has no variant. */
static bool plain_key(const struct name *name, struct key *key)
{
    struct td_text stem = name->stem;
    if (name->variant.len == 0 && !take_variant(&stem))
        return false;
    *key = key_of(without_numbers(stem), name->extension);
    return true;
}

static int key_compare(const void *a, const void *b)
{
    const struct key *x = a;
    const struct key *y = b;
    int order = td_text_compare(x->stem, y->stem);
    return order != 0 ? order : td_text_compare(x->extension, y->extension);
}

bool td_weights_find_variants(const char *const *names, size_t count, bool *is_variant, struct td_error *err)
{
    struct key *plain = calloc(count + 1, sizeof *plain);
    struct name name;
    struct key key;
    size_t plain_count = 0;
    if (plain == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < count; i++) {
        read_name(names[i], &name);
        if (name.variant.len == 0)
            plain[plain_count++] = key_of(name.stem, name.extension);
    }
    if (plain_count > 0)
        qsort(plain, plain_count, sizeof *plain, key_compare);
    for (size_t i = 0; i < count; i++) {
        read_name(names[i], &name);
        is_variant[i] = plain_count > 0 && plain_key(&name, &key) &&
                        bsearch(&key, plain, plain_count, sizeof *plain, key_compare) != NULL;
    }
    free(plain);
    return true;
}

bool td_weights_is_trainer_state(const char *file_name)
{
    static const char *const stems[] = {"optimizer", "optim", "scheduler", "rng_state", "random_states", "scaler"};
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++) {
        const size_t len = strlen(stems[i]);
        if (strncmp(file_name, stems[i], len) == 0 && !td_is_letter(file_name[len]))
            return true;
    }
    return false;
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

/* Returns the value of a key, as JSON, or NULL. */
static const char *value_of(const struct td_manifest *manifest, const char *key)
{
    return td_metadata_find(manifest->metadata, manifest->metadata_count, key);
}

static bool has_word(const char *file_name, const char *word)
{
    for (const char *p = file_name; *p != '\0'; p++)
        if (td_text_begins_ignore_case(td_text_of(p), word))
            return true;
    return false;
}

bool td_gguf_is_model(const struct td_manifest *manifest, const char *file_name)
{
    static const char *const other_keys[] = {"adapter.type", "imatrix.datasets", "imatrix.chunk_count"};
    static const char *const other_architectures[] = {"\"clip\"", "\"controlvector\""};
    static const char *const other_words[] = {"mmproj", "imatrix", "draft", "mtp-", "eagle3-", "dflash-", "dspark-"};
    const char *type = value_of(manifest, "general.type");
    const char *architecture = value_of(manifest, "general.architecture");
    bool is_model = type == NULL || strcmp(type, "\"model\"") == 0;
    for (size_t i = 0; i < sizeof other_keys / sizeof *other_keys; i++)
        is_model = is_model && value_of(manifest, other_keys[i]) == NULL;
    for (size_t i = 0; i < sizeof other_architectures / sizeof *other_architectures; i++)
        is_model = is_model && (architecture == NULL || strcmp(architecture, other_architectures[i]) != 0);
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words; i++)
        is_model = is_model && !has_word(file_name, other_words[i]);
    return is_model;
}

bool td_weights_name_is_skyrl_delta(const char *name)
{
    static const char form[] = "delta-rank00000-file000000.safetensors";
    size_t i = 0;
    while (name[i] != '\0' && (form[i] == '0' ? name[i] >= '0' && name[i] <= '9' : name[i] == form[i]))
        i++;
    return name[i] == '\0' && form[i] == '\0';
}
