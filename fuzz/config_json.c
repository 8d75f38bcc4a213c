/* config.json of a model folder: a file that parses makes a model, or is refused; the sizes of parameters do not
 * overflow. */
/* links: tt_model */
#include <stdint.h>
#include <stdlib.h>

#include "model/model.h"

enum { LAYERS_MAX = 4 }; /* of models that are created: each layer takes time */

static void make_model(const struct tt_model_facts *config, bool train_base)
{
    struct tt_model_options options = {
        .compute_dtype = TT_BF16,
        .train_base = train_base,
        .random_init = true,
        .lora = {.enabled = !train_base, .r = 8, .alpha = 16, .target_modules = "all-linear"}};
    struct tt_model *model = NULL;
    if (tt_model_create(config, &options, &model) != TT_OK) return;
    for (size_t i = 0; i < model->param_count; i++) {
        if (model->params[i]->rank < 1) abort();
        for (int d = 0; d < model->params[i]->rank; d++)
            if (model->params[i]->dims[d] < 1) abort();
    }
    if (model->trainable_param_count <= 0) abort();
    tt_model_destroy(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_json json = {0};
    struct tt_model_facts config = {0};
    if (tt_json_parse((const char *)data, size, "config.json", &json) == TT_OK &&
        tt_model_facts_parse(&json, &config) == TT_OK && config.num_hidden_layers <= LAYERS_MAX) {
        make_model(&config, false);
        make_model(&config, true);
    }
    tt_json_deinit(&json);
    return 0;
}
