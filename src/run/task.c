#include "run/task.h"

extern const struct tt_task_ops tt_task_language, tt_task_detection;

const struct tt_task_ops *tt_task_of(enum tt_task task)
{
    static const struct tt_task_ops *const tasks[] = {
        [TT_TASK_LANGUAGE] = &tt_task_language, [TT_TASK_DETECTION] = &tt_task_detection};
    return tasks[task];
}

void tt_task_data_deinit(struct tt_task_data *data)
{
    tt_sampler_destroy(data->sampler);
    *data = (struct tt_task_data){0};
}
