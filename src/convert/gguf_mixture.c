#include "convert/gguf_mixture.h"

#include <string.h>

/* The roles that the rule knows. */
enum role { HEAD, EMBEDDINGS, VALUES, KEYS, ATTENTION_OUTPUT, DOWN, OTHER };

enum { EIGHT_EXPERTS = 8, GROUP = 4, LARGE_LAYERS = 80 };

const struct tt_gguf_mixture *tt_gguf_mixture_at(int index)
{
    static const struct tt_gguf_mixture mixtures[] = {
#define MIXTURE(name_, file_type_, type_) {.name = name_, .file_type = file_type_, .type = TT_GGUF_##type_},
#include "convert/gguf_mixtures.def"
#undef MIXTURE
    };
    return index < (int)(sizeof mixtures / sizeof *mixtures) ? &mixtures[index] : NULL;
}

/* ---- Names ---- */

static enum role role_of(const char *name)
{
    static const struct {
        const char *part;
        enum role role;
    } parts[] = {
        {"attn_qkv.weight", VALUES},
        {"attn_kv_b.weight", VALUES},
        {"attn_v.weight", VALUES},
        {"attn_k.weight", KEYS},
        {"attn_output.weight", ATTENTION_OUTPUT},
        {"ffn_down", DOWN},
    };
    if (strcmp(name, "output.weight") == 0) return HEAD;
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0)
        return EMBEDDINGS;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part) != NULL) return parts[i].role;
    return OTHER;
}

/* Matrices that are left as they are: small ones, norms, and tensors that are no weights. */
static bool is_quantized(const char *name, int rank, const int64_t *dims)
{
    static const char *const whole[] = {"_norm.weight", "ffn_gate_inp.weight", "per_layer_model_proj",
                                        "ssm_conv1d", "shortconv.conv.weight"};
    size_t bytes = strlen(name), end = strlen("weight");
    int64_t rows = 1;
    for (int i = 0; i + 1 < rank; i++) rows *= dims[i];
    if (rank < 2 || rows == 1 || bytes < end || strcmp(name + bytes - end, "weight") != 0) return false;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strstr(name, whole[i]) != NULL) return false;
    return true;
}

void tt_gguf_rule_count(struct tt_gguf_rule *rule, const char *name)
{
    enum role role = role_of(name);
    rule->has_head |= role == HEAD;
    rule->values += role == VALUES;
}

/* ---- Types by role ---- */

/* The first and the last eighth of the layers, and every third between. */
static bool has_more_bits(int64_t at, int64_t count)
{
    return at < count / 8 || at >= 7 * count / 8 || (at - count / 8) % 3 == 2;
}

static bool is(const struct tt_gguf_rule *rule, const char *name)
{
    return strcmp(rule->mixture->name, name) == 0;
}

/* Four or more query heads share a key head. */
static bool is_grouped(const struct tt_gguf_rule *rule)
{
    return rule->key_heads > 0 && rule->heads / rule->key_heads >= GROUP;
}

/* llama.cpp's 70B. */
static bool is_large(const struct tt_gguf_rule *rule)
{
    bool shared = strcmp(rule->architecture, "llama") == 0 && rule->heads != rule->key_heads;
    return rule->layers == LARGE_LAYERS && (shared || strcmp(rule->architecture, "qwen2") == 0);
}

static enum tt_gguf_type type_of_head(const struct tt_gguf_rule *rule, int64_t columns)
{
    enum tt_gguf_type type = rule->mixture->type;
    bool whole = columns % tt_gguf_type_facts(type)->weights == 0;
    return !whole || type == TT_GGUF_Q8_0 ? TT_GGUF_Q8_0 : TT_GGUF_Q6_K;
}

static enum tt_gguf_type type_of_values(struct tt_gguf_rule *rule)
{
    enum tt_gguf_type type = rule->mixture->type;
    int64_t at = rule->values_at++;
    if (is(rule, "q2_k")) type = is_grouped(rule) ? TT_GGUF_Q4_K : TT_GGUF_Q3_K;
    if (is(rule, "q3_k_m")) type = at < 2 ? TT_GGUF_Q5_K : TT_GGUF_Q4_K;
    if (is(rule, "q3_k_l") || (is(rule, "q4_k_s") && at < 4)) type = TT_GGUF_Q5_K;
    if ((is(rule, "q4_k_m") || is(rule, "q5_k_m")) && has_more_bits(at, rule->values)) type = TT_GGUF_Q6_K;
    if (is_large(rule) && (type == TT_GGUF_Q3_K || type == TT_GGUF_Q4_K)) type = TT_GGUF_Q5_K;
    return rule->experts == EIGHT_EXPERTS ? TT_GGUF_Q8_0 : type;
}

static enum tt_gguf_type type_of_attention_output(const struct tt_gguf_rule *rule)
{
    enum tt_gguf_type type = rule->mixture->type;
    if (rule->experts == EIGHT_EXPERTS)
        return type == TT_GGUF_Q2_K || type == TT_GGUF_Q4_K || is(rule, "q3_k_s") || is(rule, "q3_k_m")
                   ? TT_GGUF_Q5_K
                   : type;
    if (is(rule, "q2_k")) return TT_GGUF_Q3_K;
    if (is(rule, "q3_k_m")) return TT_GGUF_Q4_K;
    return is(rule, "q3_k_l") ? TT_GGUF_Q5_K : type;
}

/* The n-th one counts, whatever its layer; with experts the layer does. */
static enum tt_gguf_type type_of_down(struct tt_gguf_rule *rule, int64_t layer)
{
    int64_t at = rule->experts > 1 ? layer : rule->downs_at, count = rule->layers;
    rule->downs_at++;
    if (is(rule, "q2_k")) return TT_GGUF_Q3_K;
    if (is(rule, "q3_k_m")) return at < count / 16 ? TT_GGUF_Q5_K : TT_GGUF_Q4_K;
    if (is(rule, "q3_k_l") || (is(rule, "q4_k_s") && at < count / 8)) return TT_GGUF_Q5_K;
    if ((is(rule, "q4_k_m") || is(rule, "q5_k_m")) && has_more_bits(at, count)) return TT_GGUF_Q6_K;
    return rule->mixture->type;
}

/* A type whose blocks fill rows of this length. */
static enum tt_gguf_type fit_rows(enum tt_gguf_type type, int64_t columns)
{
    if (columns % tt_gguf_type_facts(type)->weights == 0) return type;
    if (type == TT_GGUF_Q2_K || type == TT_GGUF_Q3_K) type = TT_GGUF_Q4_0;
    if (type == TT_GGUF_Q4_K) type = TT_GGUF_Q5_0;
    if (type == TT_GGUF_Q5_K) type = TT_GGUF_Q5_1;
    if (type == TT_GGUF_Q6_K) type = TT_GGUF_Q8_0;
    return columns % tt_gguf_type_facts(type)->weights == 0 ? type : TT_GGUF_F16;
}

enum tt_gguf_type tt_gguf_rule_type(struct tt_gguf_rule *rule, const char *name, int64_t layer, int rank,
                                    const int64_t *dims)
{
    enum tt_gguf_type type = rule->mixture->type;
    enum role role = role_of(name);
    if (!is_quantized(name, rank, dims)) return TT_GGUF_TYPES;
    int64_t columns = dims[rank - 1];
    if (role == HEAD || (role == EMBEDDINGS && !rule->has_head)) type = type_of_head(rule, columns);
    if (role == VALUES) type = type_of_values(rule);
    if (role == KEYS && rule->experts == EIGHT_EXPERTS) type = TT_GGUF_Q8_0;
    if (role == ATTENTION_OUTPUT) type = type_of_attention_output(rule);
    if (role == DOWN) type = type_of_down(rule, layer);
    return fit_rows(type, columns);
}
