/* How far FP8 products move the gradient of an adapter, on a trained model: within a tenth of its length, also where
 * some channels of the norms and rows of SwiGLU are a thousand times larger than the others. The same numbers come out
 * of every run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "support/model_runner.h"
#include "text/tokenizer.h"

#define MODEL TT_TEST_ROOT "/../examples/demo/model"
#define DATA TT_TEST_ROOT "/../examples/demo/data/test.jsonl"
/* The numbers of one adapter vary by a tenth of themselves from adapter to adapter: their mean is compared. */
enum { TOKENS = 1024, ROWS = 8, PLANTED = 3, ADAPTERS = 4 };

static void must(tt_status status)
{
    if (status != TT_OK) fail_msg("%s", tt_error_last()->message);
}

struct kind {
    const char *what;
    enum tt_quant_type type;
    enum tt_fp8_products products;
    enum tt_fp8_gate_up gate_up;
    tt_dtype compute;
    float factor; /* of planted outliers; 1: none */
    double most;
    bool head; /* lm_head too, which is then apart from the embeddings */
};

static struct tt_model_runner *make(const struct kind *kind, enum tt_quant_type type, tt_dtype compute)
{
    struct tt_model_facts facts;
    struct tt_model_options options = {
        .compute_dtype = compute,
        .lora = {.enabled = true, .r = 8, .alpha = 16, .target_modules = "all-linear"},
        .quant = {.type = type, .products = kind->products, .trains = true}};
    options.quant.recodes = type != TT_QUANT_NONE && type != TT_QUANT_FP8 && kind->products != TT_FP8_NONE;
    tt_runner_read_config(MODEL, NULL, &facts);
    if (type == TT_QUANT_FP8) {
        options.quant.gate_up = kind->gate_up;
        options.quant.head = kind->head;
        if (kind->head) facts.tie_word_embeddings = false;
    }
    return tt_runner_create(&facts, &options);
}

/* Multiplies a column (of [rows, cols]) or a row of a parameter, or of its gradient where `gradient`; nothing where the
 * parameter has none. */
struct change {
    const struct tt_model_runner *runner;
    int layer;
    bool gradient;
    float factor;
};

static void change(const struct change *how, const char *module, const char *kind, bool row, int64_t index,
                   bool divide)
{
    char name[128];
    (void)snprintf(name, sizeof name, "model.layers.%d.%s.%s", how->layer, module, kind);
    const tt_param *param = tt_model_find_param(how->runner->model, name);
    if (param == NULL) fail_msg("no parameter '%s'", name);
    float *values = how->gradient ? param->grad.data : param->value.data;
    if (values == NULL) return;
    int64_t rows = param->dims[0], cols = param->rank == 2 ? param->dims[1] : 1;
    float factor = divide ? 1 / how->factor : how->factor;
    for (int64_t i = 0; i < (row ? cols : rows); i++)
        values[row ? index * cols + i : i * cols + index] *= factor;
}

/* One channel of a norm becomes larger; what reads it, smaller. */
static void change_channel(const struct change *how, const char *norm, const char *const *readers,
                           int64_t channel)
{
    change(how, norm, "weight", true, channel, false);
    for (; *readers != NULL; readers++) {
        change(how, *readers, "weight", false, channel, true);
        change(how, *readers, "lora_A.weight", false, channel, true);
    }
}

/* Multiplies channels of the norms and rows of up by `factor` and divides the weights that follow by it: nothing
 * changes in exact arithmetic. With `gradient` it makes the gradients of a planted model those of the model before:
 * where a matrix of an adapter was multiplied, its gradient is too. */
static void plant(const struct tt_model_runner *runner, float factor, bool gradient)
{
    static const char *const attention[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", NULL};
    static const char *const mlp[] = {"mlp.gate_proj", "mlp.up_proj", NULL};
    for (int layer = 0; layer < runner->model->facts.num_hidden_layers; layer++) {
        const struct change how = {runner, layer, gradient, factor};
        for (int i = 0; i < PLANTED; i++) {
            int64_t channel = 17 + 71 * i + layer, row = 31 + 190 * i + layer;
            change_channel(&how, "input_layernorm", attention, channel);
            change_channel(&how, "post_attention_layernorm", mlp, channel);
            change(&how, "mlp.up_proj", "weight", true, row, false);
            change(&how, "mlp.up_proj", "lora_B.weight", true, row, false);
            change(&how, "mlp.down_proj", "weight", false, row, true);
            change(&how, "mlp.down_proj", "lora_A.weight", false, row, true);
        }
    }
}

static tt_status give(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

static void encode(const tt_param *param, const tt_param *from)
{
    const struct tt_quant_layout *layout = &param->quant;
    const float *values = from->value.data;
    float *weights = tt_calloc((size_t)layout->count, sizeof *weights);
    float *scales = tt_calloc((size_t)layout->blocks, sizeof *scales);
    for (int64_t r = 0; r < from->dims[0]; r++)
        for (int64_t c = 0; c < from->dims[1]; c++)
            weights[param->transposed_of != NULL ? c * from->dims[0] + r : r * from->dims[1] + c] =
                values[r * from->dims[1] + c];
    tt_quant_absmax(layout, 0, layout->blocks, weights, TT_F32, scales);
    struct tt_quant_source source = {.absmax = scales, .dtype = TT_F32, .read = give, .context = weights};
    must(tt_quant_encode(layout, &source, 0, layout->bytes, param->value.data));
    tt_free(weights);
    tt_free(scales);
}

/* The parameters of a model in fp32, in the types of another. */
static void copy_params(const struct tt_model_runner *to, const struct tt_model_runner *from)
{
    for (size_t i = 0; i < to->model->param_count; i++) {
        const tt_param *param = to->model->params[i];
        const char *name = param->transposed_of != NULL ? param->transposed_of->name : param->name;
        if (strcmp(name, to->model->head_name) == 0) name = from->model->embedding_name; /* tied there */
        const tt_param *same = tt_model_find_param(from->model, name);
        assert_non_null(same);
        if (tt_param_is_quantized(param))
            encode(param, same);
        else
            (void)tt_dtype_convert(param->value.data, param->value.dtype, same->value.data, same->value.dtype,
                                   (size_t)tt_param_count(param));
    }
}

/* Appends the ids of one field of a row; returns how many. */
static size_t add_text(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch *scratch,
                       const struct tt_json *row, const char *field, struct tt_ids *ids)
{
    const char *text = NULL;
    size_t before = ids->count;
    must(tt_json_string(row, row->root, field, &text));
    must(tt_tokenizer_encode(tokenizer, scratch, text, strlen(text), before == 0, ids));
    return ids->count - before;
}

/* Rows of the model's task, with labels on the completions, as in a training. */
static void set_batch(struct tt_model_runner *runner)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_str text = {0};
    struct tt_ids ids = {0};
    int32_t labels[TOKENS];
    int64_t lengths[ROWS];
    size_t rows = 0;
    char *rest = NULL;
    must(tt_tokenizer_load(MODEL, &tokenizer));
    must(tt_tokenizer_scratch_create(tokenizer, &scratch));
    must(tt_file_read(DATA, 1 << 20, &text));
    for (int i = 0; i < TOKENS; i++) labels[i] = -100;
    for (char *line = strtok_r(text.data, "\n", &rest); rows < ROWS; line = strtok_r(NULL, "\n", &rest)) {
        struct tt_json row = {0};
        must(tt_json_parse(line, strlen(line), DATA, &row));
        size_t first = ids.count, prompt = add_text(tokenizer, scratch, &row, "prompt", &ids);
        (void)add_text(tokenizer, scratch, &row, "completion", &ids);
        assert_true(ids.count <= TOKENS);
        for (size_t i = first + prompt; i < ids.count; i++) {
            labels[i - 1] = ids.data[i];
            runner->pass.in.loss_scale += 1;
        }
        lengths[rows++] = (int64_t)(ids.count - first);
        tt_json_deinit(&row);
    }
    tt_runner_set_batch(runner, ids.data, lengths, ROWS, labels);
    runner->pass.in.loss_scale = 1 / (runner->pass.in.loss_scale - 1); /* it began as 1 */
    runner->pass.in.training = true;
    tt_ids_deinit(&ids);
    tt_tokenizer_scratch_destroy(scratch);
    tt_str_deinit(&text);
    tt_tokenizer_destroy(tokenizer);
}

/* |g - exact| / |exact| over all gradients of the adapter. */
static double distance(const struct tt_model_runner *runner, const struct tt_model_runner *exact)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i], *same = exact->model->params[0];
        if (!param->trainable) continue;
        same = tt_model_find_param(exact->model, param->name);
        for (int64_t e = 0; e < tt_param_count(param); e++) {
            double a = ((const float *)param->grad.data)[e], b = ((const float *)same->grad.data)[e];
            off += (a - b) * (a - b);
            size += b * b;
        }
    }
    return sqrt(off / size);
}

/* The gradient's distance from that of fp32, with planted outliers where `factor` is not 1. */
static double error_of(const struct kind *kind, uint64_t adapter)
{
    struct tt_model_runner *exact = make(kind, TT_QUANT_NONE, TT_F32),
                           *coded = make(kind, kind->type, kind->compute);
    float factor = kind->factor;
    tt_runner_fill(exact, adapter, 0.02); /* B is not zero */
    tt_runner_load(exact, MODEL, NULL);
    plant(exact, factor, false);
    copy_params(coded, exact);
    set_batch(exact);
    set_batch(coded);
    double wanted = tt_runner_loss(exact, true), loss = tt_runner_loss(coded, true);
    plant(exact, factor, true);
    plant(coded, factor, true);
    assert_true(fabs(loss - wanted) < 0.05 * wanted);
    double error = distance(coded, exact), again;
    tt_runner_zero_grad(coded);
    again = tt_runner_loss(coded, true);
    plant(coded, factor, true);
    assert_true(again == loss && distance(coded, exact) == error); /* the same bits twice */
    tt_runner_destroy(exact);
    tt_runner_destroy(coded);
    return error;
}

static void gradients_stay_within_a_tenth(void **state)
{
    (void)state;
    const enum tt_quant_type none = TT_QUANT_NONE, fp8 = TT_QUANT_FP8;
    const enum tt_fp8_gate_up kept = TT_GATE_UP_COMPUTE, coded = TT_GATE_UP_E4M3;
    const struct kind kinds[] = {
        {"bf16", none, TT_FP8_ALL, kept, TT_BF16, 1, 0.02, false},
        {"fp8 products", fp8, TT_FP8_ALL, kept, TT_BF16, 1, 0.10, false},
        {"fp8 products, outliers x 100", fp8, TT_FP8_ALL, kept, TT_BF16, 100, 0.11, false},
        {"fp8 products, outliers x 1000", fp8, TT_FP8_ALL, kept, TT_BF16, 1000, 0.11, false},
        {"fp8 products, one copy", fp8, TT_FP8_SINGLE, kept, TT_BF16, 1, 0.11, false},
        {"fp8 products in fp32 runs", fp8, TT_FP8_ALL, kept, TT_F32, 1, 0.10, false},
        {"fp8 forward", fp8, TT_FP8_FORWARD, kept, TT_BF16, 1, 0.10, false},
        {"fp8 storage", fp8, TT_FP8_NONE, kept, TT_BF16, 1, 0.07, false},
        {"gate and up in fp8", fp8, TT_FP8_ALL, coded, TT_BF16, 1, 0.10, false},
        {"gate and up in fp8, outliers x 100", fp8, TT_FP8_ALL, coded, TT_BF16, 100, 0.11, false},
        {"gate and up in fp8, outliers x 1000", fp8, TT_FP8_ALL, coded, TT_BF16, 1000, 0.11, false},
        {"gate and up in fp8, fp32 runs", fp8, TT_FP8_ALL, coded, TT_F32, 1, 0.10, false},
        {"gate and up in fp8, fp8 storage", fp8, TT_FP8_NONE, coded, TT_BF16, 1, 0.07, false},
        {"int8, products in fp8", TT_QUANT_INT8, TT_FP8_SINGLE, kept, TT_BF16, 1, 0.13, false},
        {"int8, forward products in fp8", TT_QUANT_INT8, TT_FP8_FORWARD, kept, TT_BF16, 1, 0.12, false},
        {"nf4, products in the compute type", TT_QUANT_NF4, TT_FP8_NONE, kept, TT_BF16, 1, 0.24, false},
        {"nf4, products in fp8", TT_QUANT_NF4, TT_FP8_SINGLE, kept, TT_BF16, 1, 0.26, false},
        {"nf4, forward products in fp8", TT_QUANT_NF4, TT_FP8_FORWARD, kept, TT_BF16, 1, 0.26, false},
        {"lm_head in fp8", fp8, TT_FP8_ALL, kept, TT_BF16, 1, 0.12, true},
        {"lm_head in fp8, one copy", fp8, TT_FP8_SINGLE, kept, TT_BF16, 1, 0.12, true},
        {"lm_head in fp8, forward", fp8, TT_FP8_FORWARD, kept, TT_BF16, 1, 0.12, true},
        {"lm_head in fp8, outliers x 1000", fp8, TT_FP8_ALL, kept, TT_BF16, 1000, 0.14, true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double error = 0;
        for (uint64_t adapter = 1; adapter <= ADAPTERS; adapter++)
            error += error_of(&kinds[i], adapter) / ADAPTERS;
        print_message("%-36s %.4f\n", kinds[i].what, error);
        if (!(error <= kinds[i].most))
            fail_msg("%s: %.4f, at most %.2f", kinds[i].what, error, kinds[i].most);
        if (kinds[i].type != TT_QUANT_NONE) assert_true(error > 0.02); /* it is quantized */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_stay_within_a_tenth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
