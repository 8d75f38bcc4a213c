#include "run/run_job.h"

#include <string.h>

#include "base/utf8.h"

struct tt_run_job tt_run_job_of(const struct tt_job_spec *job, const struct tt_settings *settings,
                                struct tt_cancel *cancel)
{
    return (struct tt_run_job){
        .all = job,
        .objective = &job->objective,
        .model = &job->model,
        .data = &job->data,
        .optim = &job->optim,
        .run = &job->run,
        .watch = &job->watch,
        .tuning = &job->device.tuning,
        .settings = settings,
        .cancel = cancel,
    };
}

/* A sample may be one line of any length: it is truncated, between characters. */
enum { SAID_BYTES_MAX = 4000 };

static void report_bytes(const struct tt_run_job *job, const char *line, size_t bytes)
{
    char shown[SAID_BYTES_MAX + sizeof " ..."];
    if (job->observer == NULL || job->observer->on_message == NULL) return;
    if (tt_utf8_printable(line, bytes, "\t", shown, SAID_BYTES_MAX + 1) > SAID_BYTES_MAX)
        strcat(shown, " ...");
    job->observer->on_message(job->observer->context, shown);
}

void tt_run_report_span(const struct tt_run_job *job, struct tt_span text)
{
    for (const char *line = text.data, *end = text.data + text.bytes; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        report_bytes(job, line, (size_t)((next != NULL ? next : end) - line));
        line = next != NULL ? next + 1 : end;
    }
}

void tt_run_report(const struct tt_run_job *job, const char *text)
{
    tt_run_report_span(job, tt_span_of(text));
}

void tt_run_report_line(const struct tt_run_job *job, const char *line)
{
    report_bytes(job, line, strlen(line));
}

tt_dtype tt_run_save_dtype(enum tt_save_type wanted, const struct tt_model *model)
{
    switch (wanted) {
    case TT_SAVE_FLOAT32:
        return TT_F32;
    case TT_SAVE_BFLOAT16:
        return TT_BF16;
    case TT_SAVE_FLOAT16:
        return TT_F16;
    case TT_SAVE_AS_MODEL:
        break;
    }
    if (model->adapter_param_count > 0) return TT_F32;
    return tt_dtype_is_float(model->facts.dtype) ? model->facts.dtype : TT_F32;
}
