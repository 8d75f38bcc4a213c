#include "infer/sampling_defaults.h"

#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "job/inputs.h"

static const char file_name[] = "generation_config.json";

static tt_status say(struct tt_str *said, const char *name, double value)
{
    char text[80];
    tt_snprintf(text, sizeof text, "%s%s %g", said->bytes > 0 ? ", " : "", name, value);
    return tt_str_append_text(said, text);
}

/* A number that takes the place of *value, unless it is `none`, which changes nothing. */
static tt_status take(const struct tt_json *json, const char *name, bool keep, double none, double *value,
                      struct tt_str *said)
{
    double number = none;
    if (keep) return TT_OK;
    TT_TRY(tt_json_opt_double(json, json->root, name, &number));
    *value = number;
    return number == none ? TT_OK : say(said, name, number);
}

static tt_status read(const struct tt_json *json, const struct tt_sampling_given *given,
                      struct tt_sampling_options *sampling, struct tt_str *said)
{
    bool draws = false;
    double top_k = (double)sampling->top_k;
    if (!given->draws) {
        TT_TRY(tt_json_opt_bool(json, json->root, "do_sample", &draws));
        sampling->sample = draws;
    }
    if (sampling->sample) {
        TT_TRY(take(json, "temperature", given->temperature, 1, &sampling->temperature, said));
        TT_TRY(take(json, "top_k", given->top_k, 0, &top_k, said));
        TT_TRY(take(json, "top_p", given->top_p, 1, &sampling->top_p, said));
        TT_TRY(take(json, "min_p", given->min_p, 0, &sampling->min_p, said));
        sampling->top_k = top_k >= 1 && top_k < 1 << 30 ? (int64_t)top_k : 0;
        if (sampling->temperature == 0) sampling->sample = false;
        if (draws && said->bytes == 0) TT_TRY(say(said, "temperature", sampling->temperature));
    }
    TT_TRY(
        take(json, "repetition_penalty", given->repetition_penalty, 1, &sampling->repetition_penalty, said));
    return tt_sampling_check(sampling);
}

tt_status tt_sampling_recommend(const struct tt_inputs *inputs, const struct tt_sampling_given *given,
                                struct tt_sampling_options *sampling, struct tt_str *said)
{
    struct tt_json json = {0};
    struct tt_path path;
    tt_status status = TT_OK;
    if (inputs->folder == NULL) return TT_OK;
    TT_TRY(tt_path_set(&path, tt_model_folder_path(inputs->folder), file_name));
    if (!tt_path_exists(path.text)) return TT_OK;
    TT_GO(tt_json_read(path.text, 1 << 20, &json));
    TT_GO(read(&json, given, sampling, said));
out:
    if (status != TT_OK) {
        tt_while("reading the settings of sampling in %s", path.text);
        tt_hint("--generation_config none goes without them");
    }
    tt_json_deinit(&json);
    return status;
}
