/* Composed of products. */
#include "backend/compose.h"
#include "backend/cpu/cpu_ops.h"

tt_status tt_cpu_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args)
{
    return tt_compose_lora_gradients(stream, args);
}
