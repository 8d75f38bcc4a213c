#include "optim/adamw.h"

#include "backend/ops/optim.h"

tt_status tt_adamw_state_init(struct tt_device *device, int64_t count, bool offload,
                              struct tt_adamw_state *state)
{
    *state = (struct tt_adamw_state){.count = count};
    if (count == 0) return TT_OK;
    size_t bytes = (size_t)count * 2 * sizeof(float);
    if (offload)
        TT_TRY(tt_host_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &state->buffer));
    else
        TT_TRY(tt_buffer_create(device, bytes, TT_PURPOSE_OPTIMIZER, &state->buffer));
    state->m = tt_buffer_data(state->buffer);
    state->v = state->m + count;
    return TT_OK;
}

void tt_adamw_state_deinit(struct tt_adamw_state *state)
{
    tt_buffer_destroy(state->buffer);
    *state = (struct tt_adamw_state){0};
}

tt_status tt_adamw_update(struct tt_stream *stream, const struct tt_optim_config *config,
                          struct tt_adamw_state *state, float *master, const float *grad,
                          const struct tt_adamw_run *runs, size_t run_count, double lr, float grad_scale,
                          int64_t step)
{
    for (size_t i = 0; i < run_count; i++) {
        int64_t offset = runs[i].offset, count = runs[i].count;
        struct tt_adamw_args args = {
            .param = tt_tensor_1d(master + offset, TT_F32, count),
            .grad = tt_tensor_1d((float *)grad + offset, TT_F32, count),
            .m = tt_tensor_1d(state->m + offset, TT_F32, count),
            .v = tt_tensor_1d(state->v + offset, TT_F32, count),
            .lr = lr,
            .beta1 = config->adam_beta1,
            .beta2 = config->adam_beta2,
            .eps = config->adam_epsilon,
            .weight_decay = runs[i].weight_decay ? config->weight_decay : 0.0,
            .grad_scale = grad_scale,
            .step = step,
        };
        TT_TRY(tt_adamw(stream, &args));
    }
    return TT_OK;
}
