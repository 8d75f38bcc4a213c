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
                          const struct tt_adamw_update *update)
{
    int64_t offset = update->run.offset, count = update->run.count;
    struct tt_adamw_args args = {
        .param = tt_tensor_1d(update->master + offset, TT_F32, count),
        .grad = tt_tensor_1d((float *)update->grad + offset, TT_F32, count),
        .m = tt_tensor_1d(update->state->m + offset, TT_F32, count),
        .v = tt_tensor_1d(update->state->v + offset, TT_F32, count),
        .lr = update->lr,
        .beta1 = config->adam_beta1,
        .beta2 = config->adam_beta2,
        .eps = config->adam_epsilon,
        .weight_decay = update->run.weight_decay ? config->weight_decay : 0.0,
        .grad_scale = update->grad_scale,
        .step = update->step,
    };
    return tt_adamw(stream, &args);
}
