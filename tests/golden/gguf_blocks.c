/* Encoded blocks, and the types of the tensors of a file, against what llama.cpp's quantizer makes
 * (gguf/make_quantized.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/error.h"
#include "base/file.h"
#include "convert/gguf_mixture.h"
#include "io/safetensors.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/gguf/"

static const char *const distributions[] = {"normal",    "long_tails", "bfloat16", "sparse",
                                            "positive",  "negative",   "wide",     "vanishing",
                                            "subnormal", "ties",       "constant", "zeros"};

static void *read_all(const struct tt_safetensors *file, const char *prefix, const char *name, tt_dtype dtype,
                      int64_t *count)
{
    char text[80];
    (void)snprintf(text, sizeof text, "%s.%s", prefix, name);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, text);
    if (entry == NULL) fail_msg("no '%s'", text);
    *count = 1;
    for (int d = 0; d < entry->rank; d++) *count *= entry->dims[d];
    void *values = malloc((size_t)*count * tt_dtype_bytes(dtype));
    test_must(tt_safetensors_read(file, entry, 0, *count, values, dtype));
    return values;
}

/* Blocks that differ. */
static int64_t compare(const struct tt_safetensors *file, const char *distribution, enum tt_gguf_type type)
{
    const struct tt_gguf_type_facts *facts = tt_gguf_type_facts(type);
    int64_t count, bytes, differ = 0;
    float *weights = read_all(file, distribution, "weights", TT_F32, &count);
    uint8_t *expected = read_all(file, distribution, facts->name, TT_U8, &bytes),
            *made = malloc((size_t)bytes);
    assert_int_equal(bytes, tt_gguf_type_bytes(type, count));
    test_must(tt_gguf_encode(type, weights, count, made));
    for (int64_t at = 0; at < bytes; at += (int64_t)facts->bytes)
        differ += memcmp(made + at, expected + at, facts->bytes) != 0;
    free(weights);
    free(expected);
    free(made);
    return differ;
}

static void blocks_as_llama_cpp(void **state)
{
    struct tt_safetensors *file;
    int64_t differ = 0;
    (void)state;
    test_must(tt_safetensors_open(GOLDEN "blocks.safetensors", &file));
    for (int type = 0; type < TT_GGUF_TYPES; type++) {
        if (tt_gguf_type_facts(type)->encode == NULL) continue;
        for (size_t d = 0; d < sizeof distributions / sizeof *distributions; d++) {
            int64_t here = compare(file, distributions[d], type);
            if (here > 0)
                print_message("%s of %s: %lld\n", distributions[d], tt_gguf_type_facts(type)->name,
                              (long long)here);
            differ += here;
        }
    }
    print_message("%lld blocks differ by a rounding\n", (long long)differ);
    assert_int_equal(differ, 0);
    tt_safetensors_close(file);
}

/* ---- Types ---- */

enum { WORDS = 32, TENSORS = 1024 };

struct model {
    char name[32], architecture[32];
    int64_t layers, heads, key_heads, experts, columns;
    char outside[WORDS][40], inside[WORDS][40];
    int outside_count, inside_count;
};

static int split(const char *line, char words[WORDS][40])
{
    int count = 0;
    for (const char *at = strchr(line, ' '); at != NULL; at = strchr(at, ' ')) {
        at++;
        (void)snprintf(words[count++], 40, "%.*s", (int)strcspn(at, " "), at);
    }
    return count;
}

static void read_model(const char *line, struct model *model)
{
    char words[WORDS][40];
    assert_int_equal(split(line, words), 7);
    *model = (struct model){.layers = atoi(words[2]),
                            .heads = atoi(words[3]),
                            .key_heads = atoi(words[4]),
                            .experts = atoi(words[5]),
                            .columns = atoi(words[6])};
    memcpy(model->name, words[0], sizeof model->name);
    memcpy(model->architecture, words[1], sizeof model->architecture);
}

/* The name of tensor `index` of a model, and its layer; false behind the last. */
static bool name_of(const struct model *model, int index, char name[80], int64_t *layer)
{
    *layer = -1;
    if (index < model->outside_count) {
        (void)snprintf(name, 80, "%s.weight", model->outside[index]);
        return true;
    }
    index -= model->outside_count;
    *layer = index / model->inside_count;
    (void)snprintf(name, 80, "blk.%d.%s.weight", (int)*layer, model->inside[index % model->inside_count]);
    return *layer < model->layers;
}

static int rank_of(const char *name)
{
    if (strstr(name, "_norm.") != NULL && strstr(name, "attn_q_norm.") == NULL) return 1;
    return strstr(name, "_exps.") != NULL ? 3 : 2;
}

static const struct tt_gguf_mixture *find_mixture(const char *line)
{
    for (int i = 0; tt_gguf_mixture_at(i) != NULL; i++) {
        size_t bytes = strlen(tt_gguf_mixture_at(i)->name);
        if (strncmp(line, tt_gguf_mixture_at(i)->name, bytes) == 0 && line[bytes] == ' ')
            return tt_gguf_mixture_at(i);
    }
    fail_msg("there is no mixture of '%.20s'", line);
    return NULL;
}

/* A letter is a number of ggml_type, z any beyond: nobody quantizes here to bf16. */
static void check_types(const struct model *model, const char *line)
{
    const char *letters = strchr(line, ' ') + 1;
    char name[80];
    int64_t layer;
    struct tt_gguf_rule rule = {.mixture = find_mixture(line),
                                .architecture = model->architecture,
                                .layers = model->layers,
                                .experts = model->experts,
                                .heads = model->heads,
                                .key_heads = model->key_heads};
    for (int i = 0; name_of(model, i, name, &layer); i++) tt_gguf_rule_count(&rule, name);
    for (int i = 0; name_of(model, i, name, &layer); i++) {
        int rank = rank_of(name);
        int64_t dims[] = {2, 2, layer < 0 ? 256 : model->columns};
        enum tt_gguf_type type = tt_gguf_rule_type(&rule, name, layer, rank, dims + (3 - rank));
        char letter = type == TT_GGUF_TYPES ? 'a' : (char)('a' + tt_gguf_type_facts(type)->number);
        if (letter != letters[i])
            fail_msg("%s of %s in %s: type %d, not %d", name, model->name, rule.mixture->name, letter - 'a',
                     letters[i] - 'a');
    }
}

static void types_as_llama_cpp(void **state)
{
    struct tt_str text = {0};
    struct model *model = calloc(1, sizeof *model);
    bool seen[TENSORS] = {false};
    (void)state;
    test_must(tt_file_read(GOLDEN "types.txt", 1 << 20, &text));
    char *line = text.data;
    for (char *end = strchr(line, '\n'); end != NULL; line = end + 1, end = strchr(line, '\n')) {
        *end = '\0';
        if (strncmp(line, "model ", 6) == 0) {
            read_model(line, model);
        } else if (strncmp(line, "outside ", 8) == 0) {
            model->outside_count = split(line, model->outside);
        } else if (strncmp(line, "inside ", 7) == 0) {
            model->inside_count = split(line, model->inside);
        } else {
            check_types(model, line);
            seen[find_mixture(line)->file_type] = true;
        }
    }
    for (int i = 0; tt_gguf_mixture_at(i) != NULL; i++) assert_true(seen[tt_gguf_mixture_at(i)->file_type]);
    tt_str_deinit(&text);
    free(model);
}

/* llama.cpp ends with an error where rows of the head are no blocks of 32; gguf-py keeps such a tensor in fp16. */
static void rows_without_blocks(void **state)
{
    (void)state;
    for (int i = 0; tt_gguf_mixture_at(i) != NULL; i++) {
        struct tt_gguf_rule rule = {.mixture = tt_gguf_mixture_at(i), .architecture = "llama", .layers = 1};
        tt_gguf_rule_count(&rule, "output.weight");
        assert_int_equal(tt_gguf_rule_type(&rule, "output.weight", -1, 2, (int64_t[]){2, 40}), TT_GGUF_F16);
        assert_int_equal(tt_gguf_rule_type(&rule, "blk.0.ffn_up.weight", 0, 2, (int64_t[]){2, 40}),
                         TT_GGUF_F16);
        assert_int_equal(tt_gguf_rule_type(&rule, "blk.0.ffn_up.weight", 0, 2, (int64_t[]){1, 256}),
                         TT_GGUF_TYPES);
        assert_int_equal(tt_gguf_rule_type(&rule, "blk.0.ffn_up.bias", 0, 2, (int64_t[]){2, 256}),
                         TT_GGUF_TYPES);
    }
}

/* ---- Refused values ---- */

static void values_that_blocks_cannot_hold(void **state)
{
    float weights[256] = {0};
    uint8_t to[256];
    (void)state;
    for (int type = 0; type < TT_GGUF_TYPES; type++) {
        if (tt_gguf_type_facts(type)->encode == NULL) continue;
        weights[77] = NAN;
        assert_int_equal(tt_gguf_encode(type, weights, 256, to), TT_ERR_DATA);
        assert_string_equal(tt_error_last()->message, "a value is not finite");
        weights[77] = -INFINITY;
        assert_int_equal(tt_gguf_encode(type, weights, 256, to), TT_ERR_DATA);
        weights[77] = 3e8f;
        assert_int_equal(tt_gguf_encode(type, weights, 256, to), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "is too large for float16"));
        weights[77] = 3e4f;
        test_must(tt_gguf_encode(type, weights, 256, to));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_as_llama_cpp),
        cmocka_unit_test(types_as_llama_cpp),
        cmocka_unit_test(rows_without_blocks),
        cmocka_unit_test(values_that_blocks_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
