/* Names of tensors in GGUF: a family has only those that differ from most families', and each one once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/family.h"

static const struct tt_model_family *const families[] = {
#define FAMILY(name) &tt_family_##name,
#include "model/families.def"
#undef FAMILY
};

static size_t count(const struct tt_gguf_name *names, const char *module)
{
    size_t found = 0;
    for (; names != NULL && names->module != NULL; names++) found += strcmp(names->module, module) == 0;
    return found;
}

static void own_names_are_differences(void **state)
{
    (void)state;
    size_t own = 0;
    for (const struct tt_gguf_name *name = tt_gguf_names; name->module != NULL; name++)
        assert_int_equal(count(tt_gguf_names, name->module), 1);
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const struct tt_gguf_family *gguf = families[f]->gguf;
        const struct tt_gguf_family most = {.name = "most"};
        if (gguf == NULL) continue;
        for (const struct tt_gguf_name *name = gguf->names; name != NULL && name->module != NULL;
             name++, own++) {
            const struct tt_gguf_name *base = tt_gguf_find_name(&most, name->module);
            assert_int_equal(count(gguf->names, name->module), 1);
            assert_ptr_equal(tt_gguf_find_name(gguf, name->module), name);
            if (base != NULL && strcmp(base->name, name->name) == 0)
                fail_msg("%s repeats the name of %s", families[f]->model_type, name->module);
        }
        assert_string_equal(tt_gguf_find_name(gguf, "mlp.down_proj")->name, "ffn_down");
        assert_null(tt_gguf_find_name(gguf, "mlp"));
    }
    assert_true(own > 0);
}

/* The name of a family wins over that of most. */
static void differences_come_first(void **state)
{
    static const struct {
        const struct tt_model_family *family;
        const char *module, *name;
    } cases[] = {
        {&tt_family_llama, "post_attention_layernorm", "ffn_norm"},
        {&tt_family_gemma2, "post_attention_layernorm", "post_attention_norm"},
        {&tt_family_gemma3, "pre_feedforward_layernorm", "ffn_norm"},
        {&tt_family_phi3, "self_attn.qkv_proj", "attn_qkv"},
        {&tt_family_seed_oss, "post_attention_layernorm", "post_attention_norm"},
        {&tt_family_ernie4_5, "post_attention_layernorm", "ffn_norm"},
        {&tt_family_glm4, "post_self_attn_layernorm", "post_attention_norm"},
        {&tt_family_glm4, "post_mlp_layernorm", "post_ffw_norm"},
        {&tt_family_olmo3, "post_feedforward_layernorm", "post_ffw_norm"},
        {&tt_family_exaone4, "self_attn.q_norm", "attn_q_norm"},
        {&tt_family_hunyuan_v1_dense, "self_attn.key_layernorm", "attn_k_norm"},
        {&tt_family_cohere2, "input_layernorm", "attn_norm"},
        {&tt_family_gemma4, "layer_scalar", "layer_output_scale"},
        {&tt_family_gemma4, "per_layer_projection", "proj"},
        {&tt_family_muse_glimmer, "self_attn.gate_proj", "attn_gate"},
        {&tt_family_ministral3, "post_attention_layernorm", "ffn_norm"},
        {&tt_family_phi3, "post_attention_layernorm", "ffn_norm"},
        {&tt_family_qwen3, "self_attn.q_norm", "attn_q_norm"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(tt_gguf_find_name(cases[i].family->gguf, cases[i].module)->name, cases[i].name);
    assert_null(tt_gguf_find_name(tt_family_llama.gguf, "pre_feedforward_layernorm"));
}

/* A key that is there gets the new value, and stays where it is. */
static void keys_are_replaced(void **state)
{
    struct tt_gguf_keys keys = {0};
    (void)state;
    tt_gguf_add_u32(&keys, "a", 1);
    tt_gguf_add_f32(&keys, "b", 2);
    tt_gguf_add_layers_i32(&keys, "a", NULL);
    assert_int_equal(keys.count, 2);
    assert_string_equal(keys.items[0].key, "a");
    assert_int_equal(keys.items[0].type, TT_GGUF_KEY_I32S);
    assert_true(keys.items[1].value == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_names_are_differences),
        cmocka_unit_test(differences_come_first),
        cmocka_unit_test(keys_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
