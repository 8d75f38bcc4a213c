#include "job/task.h"

#include "job/settings.h"

#define TASK(name, size, what) extern const struct tt_task_ops tt_task_##name;
#include "job/tasks.def"

const struct tt_task_ops *const tt_tasks[TT_TASKS] = {
#define TASK(name, size, what) &tt_task_##name,
#include "job/tasks.def"
};

const char *tt_task_name(int task)
{
    static const char *const names[TT_TASKS] = {
#define TASK(name, size, what) #name,
#include "job/tasks.def"
    };
    return names[task];
}

/* One row reads as one paragraph. */
/* clang-format off */
#define TASK(name, size, what) " " #name
static const char choices[] =
#include "job/tasks.def"
    ;
#define TASK(name, size, what) "; " #name ": " what
static const char help[] =
#include "job/tasks.def"
    ".";
#define TASK_LIKE(name, other) #name "=" #other " "
static const char like[] = ""
#include "job/tasks.def"
    ;

const struct tt_setting tt_task_settings[] = {
    {.name = "task", .type = TT_SETTING_CHOICE, .offset = offsetof(struct tt_job_spec, task),
     .default_text = "language", .choices = &choices[1], .changes = TT_CHANGES_OTHER, .is_axis = true,
     .like = like, .help = &help[2]},
    {.name = NULL},
};
/* clang-format on */
