#include "slicing/engine/model_config.h"
#include "tests/unit/unit.h"

static bool read_config(const char *text, struct td_model_config *config, struct td_error *err)
{
    size_t len = strlen(text);
    char *exact = malloc(len + (len == 0)); /* the sanitizer sees a read past it */
    assert_non_null(exact);
    memcpy(exact, text, len);
    td_error_init(err);
    bool ok = td_model_config_read(td_text_n(exact, len), config, err);
    assert_int_equal(ok, err->code == TD_OK);
    free(exact);
    return ok;
}

static struct td_model_config must_read(const char *text)
{
    struct td_model_config config;
    struct td_error err;
    CHECK(read_config(text, &config, &err), "%s: %s", text, err.message);
    return config;
}

static void numbers_and_names(void **state)
{
    (void)state;
    struct td_model_config c =
        must_read("{\"architectures\":[\"Qwen3ForCausalLM\",\"X\"],\"model_type\":\"qwen3\",\"hidden_size\":1024,"
                  "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"vocab_size\":151936,"
                  "\"num_hidden_layers\":28,\"rope_scaling\":{\"head_dim\":[7,{\"n_head\":3}]},\"attention_bias\":true,"
                  "\"num_experts\":4,\"num_nextn_predict_layers\":1,\"q_lora_rank\":1536}");
    assert_string_equal(c.architecture, "Qwen3ForCausalLM");
    assert_string_equal(c.model_type, "qwen3");
    assert_int_equal(c.heads, 16);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.hidden_size, 1024);
    assert_int_equal(c.vocab_size, 151936);
    assert_int_equal(c.layers, 28);
    assert_int_equal(c.nextn_layers, 1);
    assert_int_equal(c.experts, 4);
    assert_int_equal(c.q_lora_rank, 1536);
    assert_false(c.new_decoder_architecture || c.quantised || c.has_tied);
    assert_true(c.multi_query && c.attention_bias);
}

/* A missing flag is not the same as false: each architecture has a default of its own. */
static void tied_embeddings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool has_tied, tied;
    } cases[] = {
        {"{}", false, false},
        {"{\"tie_word_embeddings\":null}", false, false},
        {"{\"tie_word_embeddings\":true}", true, true},
        {"{\"tie_word_embeddings\":false}", true, false},
        {"{\"tie_word_embeddings\":true,\"text_config\":{\"n_head\":2}}", true, true},
        {"{\"text_config\":{\"n_head\":2,\"tie_word_embeddings\":true}}", true, true},
        {"{\"tie_word_embeddings\":true,\"text_config\":{\"n_head\":2,\"tie_word_embeddings\":false}}", true, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_model_config c = must_read(cases[i].text);
        CHECK(c.has_tied == cases[i].has_tied && c.tied == cases[i].tied, "%s", cases[i].text);
    }
}

static void what_is_missing_or_null(void **state)
{
    (void)state;
    struct td_model_config c = must_read("{\"num_attention_heads\":16,\"hidden_size\":1024,\"head_dim\":null,"
                                         "\"num_key_value_heads\":null,\"architectures\":null,\"model_type\":null,"
                                         "\"quantization_config\":null,\"text_config\":null,\"multi_query\":null}");
    assert_int_equal(c.kv_heads, 16);
    assert_int_equal(c.head_dim, 64);
    assert_string_equal(c.architecture, "");
    assert_string_equal(c.model_type, "");
    assert_false(c.quantised || c.multi_query);
    c = must_read("{\"architectures\":[],\"quantization_config\":{\"a\":[1]},\"new_decoder_architecture\":true}");
    assert_true(c.quantised && c.new_decoder_architecture);
    assert_int_equal(c.heads, 0);
    assert_int_equal(c.head_dim, 0);
    assert_int_equal(must_read("{\"n_head\":3,\"n_embed\":10}").head_dim, 0); /* 3 does not divide 10 */
    assert_int_equal(must_read("{\"quantization_config\":false}").quantised, true);
}

static void other_names(void **state)
{
    (void)state;
    struct td_model_config c =
        must_read("{\"n_head\":8,\"n_layer\":2,\"n_embed\":64,\"n_head_kv\":2,\"n_routed_experts\":5}");
    assert_int_equal(c.heads, 8);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.hidden_size, 64);
    assert_int_equal(c.experts, 5);
    assert_int_equal(must_read("{\"n_head\":8,\"num_attention_heads\":8}").heads, 8);
    assert_int_equal(must_read("{\"num_local_experts\":9,\"num_experts\":null}").experts, 9);
}

static void text_config(void **state)
{
    (void)state;
    struct td_model_config c =
        must_read("{\"text_config\":{\"num_attention_heads\":8,\"head_dim\":4,\"model_type\":\"inner\","
                  "\"text_config\":{\"head_dim\":9}},\"architectures\":[\"Outer\"],\"model_type\":\"outer\","
                  "\"vocab_size\":7,\"quantization_config\":{}}");
    assert_string_equal(c.architecture, "Outer");
    assert_int_equal(c.heads, 8);
    assert_int_equal(c.head_dim, 4);
    assert_int_equal(c.vocab_size, 0); /* all numbers come from the inner object */
    assert_true(c.quantised);
    c = must_read("{\"model_type\":\"outer\",\"text_config\":{\"n_head\":8,\"architectures\":[\"Inner\"]}}");
    assert_string_equal(c.architecture, "Inner");
    c = must_read("{\"model_type\":\"outer\",\"text_config\":{\"n_head\":8,\"model_type\":\"inner\"}}");
    assert_string_equal(c.model_type, "outer");
    c = must_read("{\"n_head\":3,\"text_config\":{\"head_dim\":8}}"); /* the inner object has no heads */
    assert_int_equal(c.heads, 3);
    assert_int_equal(c.head_dim, 0);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "{",
        "[]",
        "3",
        "null",
        "{} {}",
        "{\"num_attention_heads\":\"16\"}",
        "{\"num_attention_heads\":16.0}",
        "{\"num_attention_heads\":1e1}",
        "{\"num_attention_heads\":-1}",
        "{\"num_attention_heads\":1073741825}",
        "{\"num_attention_heads\":18446744073709551616}",
        "{\"num_attention_heads\":[16]}",
        "{\"num_attention_heads\":16,\"num_attention_heads\":16}",
        "{\"num_attention_heads\":16,\"num_\\u0061ttention_heads\":8}",
        "{\"num_attention_heads\":16,\"n_head\":8}",
        "{\"multi_query\":1}",
        "{\"attention_bias\":1}",
        "{\"tie_word_embeddings\":\"true\"}",
        "{\"tie_word_embeddings\":true,\"tie_word_embeddings\":true}",
        "{\"architectures\":\"A\"}",
        "{\"architectures\":[1]}",
        "{\"architectures\":[null]}",
        "{\"architectures\":[\"A\",2]}",
        "{\"architectures\":[\"A\\u0000\"]}",
        "{\"architectures\":[\"A\"],\"architectures\":[\"B\"]}",
        "{\"model_type\":7}",
        ("{\"model_type\":"
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}"),
        "{\"text_config\":[]}",
        "{\"text_config\":{\"n_head\":true}}",
        "{\"text_config\":{},\"text_config\":{}}",
        "{\"quantization_config\":{},\"quantization_config\":null}",
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_model_config config;
        struct td_error err;
        CHECK(!read_config(cases[i], &config, &err), "accepted %s", cases[i]);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_error(&err, 0, false, cases[i]);
        CHECK(strncmp(err.message, "config.json: ", 13) == 0 && strstr(err.message, " (at byte ") != NULL, "%s",
              err.message);
    }
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"architectures\":[\"A\"],\"n_head\":8,\"text_config\":{\"n_head\":2,\"multi_query\":true},"
        "\"quantization_config\":{\"a\":1}}";
    char prefix[sizeof text];
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct td_model_config config;
        struct td_error err;
        memcpy(prefix, text, len);
        prefix[len] = '\0';
        CHECK(!read_config(prefix, &config, &err), "accepted %s", prefix);
    }
}

static void too_long(void **state)
{
    (void)state;
    size_t len = TD_CONFIG_MAX_BYTES + 1;
    char *text = malloc(len + 1);
    struct td_model_config config;
    struct td_error err;
    assert_non_null(text);
    memset(text, ' ', len);
    text[0] = '{';
    text[1] = '}';
    text[len] = '\0';
    assert_false(read_config(text, &config, &err));
    text[len - 1] = '\0';
    assert_true(read_config(text, &config, &err));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_names),
        cmocka_unit_test(what_is_missing_or_null),
        cmocka_unit_test(tied_embeddings),
        cmocka_unit_test(other_names),
        cmocka_unit_test(text_config),
        cmocka_unit_test(refusals),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
