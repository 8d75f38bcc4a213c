#include "run/model_card.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/hub_cache.h"
#include "base/number.h"

enum { CARD_BYTES_MAX = 4 << 20 };

static const char mark[] = "<!-- This card was written by Trimtab";

/* "owner/name" of the hub, also with ":configuration"; NULL for all else: a path of this machine is of no use there. */
static const char *hub_name(const char *given, char name[256])
{
    if (given == NULL || tt_path_exists(given) || strlen(given) >= 256) return NULL;
    tt_snprintf(name, 256, "%.*s", (int)strcspn(given, ":@"), given);
    return strchr(name, '/') != NULL && tt_hub_is_name(name) ? name : NULL;
}

static tt_status add_metadata(const struct tt_run_job *job, struct tt_str *card)
{
    char text[256];
    const char *base = hub_name(job->model->model_name_or_path, text);
    TT_TRY(tt_str_append_text(card, "---\n"));
    if (base != NULL) TT_TRY(tt_str_printf(card, "base_model: %s\n", base));
    const char *data = hub_name(job->data->dataset_name, text);
    if (data != NULL) TT_TRY(tt_str_printf(card, "datasets:\n- %s\n", data));
    TT_TRY(tt_str_printf(card, "library_name: %s\n", job->model->use_peft ? "peft" : "transformers"));
    return tt_str_printf(card, "tags:\n- trimtab\n%s---\n", job->model->use_peft ? "- lora\n" : "");
}

static tt_status add_number(struct tt_str *card, const char *name, double value)
{
    char text[TT_DOUBLE_TEXT_BYTES];
    return tt_str_printf(card, "| %s | %s |\n", name, tt_format_double(value, text, sizeof text));
}

static tt_status add_settings(const struct tt_run_job *job, struct tt_str *card)
{
    const struct tt_run_spec *run = job->run;
    const struct tt_optim_config *optim = job->optim;
    const struct tt_lora_config *lora = &job->all->lora;
    TT_TRY(tt_str_append_text(card, "\n## Settings\n\n| setting | value |\n|---|---|\n"));
    if (job->objective->ops != NULL)
        TT_TRY(tt_str_printf(card, "| objective | %s |\n", job->objective->ops->name));
    TT_TRY(add_number(card, "learning_rate", optim->learning_rate));
    TT_TRY(tt_str_printf(card, "| lr_scheduler_type | %s |\n| optim | %s |\n", optim->lr_scheduler_type,
                         optim->optim));
    TT_TRY(add_number(card, "per_device_train_batch_size", (double)run->per_device_train_batch_size));
    TT_TRY(add_number(card, "gradient_accumulation_steps", (double)run->gradient_accumulation_steps));
    if (run->max_steps > 0)
        TT_TRY(add_number(card, "max_steps", (double)run->max_steps));
    else
        TT_TRY(add_number(card, "num_train_epochs", run->num_train_epochs));
    TT_TRY(add_number(card, "seed", (double)run->seed));
    if (!job->model->use_peft) return TT_OK;
    TT_TRY(add_number(card, "lora_r", (double)lora->r));
    return add_number(card, "lora_alpha", lora->alpha);
}

static tt_status add_results(const struct tt_train_summary *summary, struct tt_str *card)
{
    TT_TRY(tt_str_append_text(card, "\n## Results\n\n| figure | value |\n|---|---|\n"));
    TT_TRY(add_number(card, "steps", (double)summary->steps));
    if (summary->was_complete) return TT_OK; /* nothing else of it is known */
    TT_TRY(tt_str_printf(card, "| epochs | %s |\n", tt_rounded(summary->epochs).text));
    TT_TRY(tt_str_printf(card, "| loss in training, the mean over the steps | %s |\n",
                         tt_rounded(summary->train_loss).text));
    if (!isnan(summary->last_eval_loss))
        TT_TRY(tt_str_printf(card, "| loss of the last evaluation | %s |\n",
                             tt_rounded(summary->last_eval_loss).text));
    return TT_OK;
}

static tt_status make(const struct tt_run_job *job, const struct tt_train_summary *summary,
                      struct tt_str *card)
{
    char text[256];
    const char *title = tt_path_basename(job->run->output_dir);
    if (job->watch->hub_model_id != NULL) title = tt_path_basename(job->watch->hub_model_id);
    TT_TRY(add_metadata(job, card));
    TT_TRY(tt_str_printf(card, "\n%s; the next run writes it anew. -->\n\n# %s\n\n", mark, title));
    const char *base = hub_name(job->model->model_name_or_path, text);
    TT_TRY(tt_str_printf(card, "%s of %s", job->model->use_peft ? "A LoRA adapter" : "A fine-tuned model",
                         base != NULL ? base : "a local model"));
    const char *data = hub_name(job->data->dataset_name, text);
    TT_TRY(tt_str_printf(card, ", trained on %s with Trimtab %s.\n", data != NULL ? data : "local data",
                         TT_VERSION));
    TT_TRY(add_settings(job, card));
    return add_results(summary, card);
}

/* A card without the mark is another author's. */
static tt_status is_other(const char *path, bool *other)
{
    struct tt_str text = {0};
    TT_TRY(tt_file_read(path, CARD_BYTES_MAX, &text));
    *other = strstr(tt_str_text(&text), mark) == NULL;
    tt_str_deinit(&text);
    return TT_OK;
}

tt_status tt_model_card_remove(const struct tt_run_job *job)
{
    struct tt_path path;
    bool other;
    TT_TRY(tt_path_set(&path, job->run->output_dir, "README.md"));
    if (!tt_path_exists(path.text)) return TT_OK;
    TT_TRY(is_other(path.text, &other));
    int failed = other ? 0 : tt_file_remove(path.text);
    return failed == 0 ? TT_OK : tt_fail_errno(failed, "cannot remove '%s'", path.text);
}

tt_status tt_model_card_write(const struct tt_run_job *job, const struct tt_train_summary *summary)
{
    struct tt_str card = {0};
    struct tt_path path;
    bool other = false, there;
    tt_status status = TT_OK;
    TT_TRY(tt_path_set(&path, job->run->output_dir, "README.md"));
    there = tt_path_exists(path.text);
    if (there) TT_TRY(is_other(path.text, &other));
    if (other || (there && summary->was_complete)) return TT_OK;
    TT_GO(make(job, summary, &card));
    status = tt_file_write_atomic(path.text, card.data, card.bytes);
out:
    tt_str_deinit(&card);
    return status;
}
