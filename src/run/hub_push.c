#include "run/hub_push.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/upload.h"
#include "run/model_card.h"

/* The files of a result: weights, configuration, tokenizer, templates, card. What else lies in output_dir stays. */
static const char *const result_files[] = {
    "*.safetensors",
    "*.safetensors.index.json",
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
    "additional_chat_templates/*",
    "preprocessor_config.json",
    "processor_config.json",
    "README.md",
};
/* Patterns match '/', too. */
static const char *const other_files[] = {"checkpoint-*", "runs/*", "optimizer*", "*state*"};

struct tt_hub_push {
    const struct tt_run_job *job;
    struct tt_hub *hub;
    struct tt_hub_upload upload; /* of the result */
    struct tt_thread *thread;    /* NULL: no checkpoint was on its way yet */
    struct tt_str folder, summary;
    pthread_mutex_t mutex;                   /* for what follows */
    bool busy;                               /* the checkpoint `folder` is on its way */
    tt_status (*remove)(const char *folder); /* what removes it when it has arrived; NULL: it stays */
};

static struct tt_hub_upload upload_of(const struct tt_run_job *job)
{
    const struct tt_watch_spec *watch = job->watch;
    const char *name = watch->hub_model_id;
    return (struct tt_hub_upload){
        .kind = "models",
        .name = name != NULL ? name : tt_path_basename(job->run->output_dir),
        .revision = watch->hub_revision,
        .folder = job->run->output_dir,
        .include = result_files,
        .include_count = sizeof result_files / sizeof *result_files,
        .exclude = other_files,
        .exclude_count = sizeof other_files / sizeof *other_files,
        .summary = "End of training",
        .is_private = watch->hub_private_repo,
    };
}

tt_status tt_hub_push_open(const struct tt_run_job *job, struct tt_hub_push **out)
{
    tt_status status = TT_OK;
    *out = NULL;
    if (!job->watch->push_to_hub) return TT_OK;
    struct tt_hub_push *push = tt_calloc(1, sizeof *push);
    if (push == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&push->mutex, NULL);
    push->job = job;
    push->upload = upload_of(job);
    const struct tt_hub_config config = {.token = job->watch->hub_token, .cancel = job->cancel};
    TT_GO(tt_hub_open(&config, &push->hub));
    TT_GO(tt_hub_prepare_upload(push->hub, &push->upload));
    *out = push;
    return TT_OK;
out:
    tt_hub_push_close(push);
    tt_while("preparing push_to_hub");
    return status;
}

/* The weights go to the root of the repository, then by the strategy the whole checkpoint to a folder of it. */
static tt_status send_parts(const struct tt_hub_push *push, char **address)
{
    const enum tt_hub_strategy strategy = push->job->watch->hub_strategy;
    struct tt_hub_upload upload = push->upload;
    struct tt_str summary = {0};
    tt_status status = TT_OK;
    upload.folder = push->folder.data;
    upload.summary = push->summary.data;
    TT_GO(tt_hub_upload(push->hub, &upload, address));
    if (strategy == TT_HUB_EVERY_SAVE) goto out;
    TT_GO(tt_str_printf(&summary, "%s, checkpoint", push->summary.data));
    upload.include_count = upload.exclude_count = 0;
    upload.below = strategy == TT_HUB_CHECKPOINT ? "last-checkpoint" : tt_path_basename(push->folder.data);
    upload.summary = summary.data;
    tt_free(*address);
    *address = NULL;
    TT_GO(tt_hub_upload(push->hub, &upload, address));
out:
    tt_str_deinit(&summary);
    return status;
}

static tt_status send_checkpoint(void *context)
{
    struct tt_hub_push *push = context;
    const char *folder = push->folder.data;
    char *address = NULL;
    if (send_parts(push, &address) != TT_OK) {
        tt_warn("%s is not on the hub: %s; training goes on", folder, tt_error_last()->message);
        tt_error_clear();
    } else {
        tt_info("pushed %s: %s", folder, address);
    }
    tt_free(address);
    pthread_mutex_lock(&push->mutex);
    if (push->remove != NULL && push->remove(folder) != TT_OK) {
        tt_warn("%s stays beyond save_total_limit: %s", folder, tt_error_last()->message);
        tt_error_clear();
    }
    push->busy = false;
    pthread_mutex_unlock(&push->mutex);
    return TT_OK;
}

static void wait_for_checkpoint(struct tt_hub_push *push)
{
    if (push->thread != NULL && tt_thread_join(push->thread) != TT_OK) tt_error_clear();
    push->thread = NULL;
}

static bool is_busy(struct tt_hub_push *push)
{
    pthread_mutex_lock(&push->mutex);
    bool busy = push->busy;
    pthread_mutex_unlock(&push->mutex);
    return busy;
}

void tt_hub_push_saved(struct tt_hub_push *push, const char *folder, int64_t step)
{
    if (push == NULL || push->job->watch->hub_strategy == TT_HUB_END) return;
    if (is_busy(push)) {
        tt_info("%s is not pushed: the one before it is still on its way", folder);
        return;
    }
    wait_for_checkpoint(push);
    tt_str_clear(&push->folder);
    tt_str_clear(&push->summary);
    push->remove = NULL;
    push->busy = true;
    if (tt_str_append_text(&push->folder, folder) == TT_OK &&
        tt_str_printf(&push->summary, "Training in progress, step %lld", (long long)step) == TT_OK &&
        tt_thread_start("push", send_checkpoint, push, &push->thread) == TT_OK)
        return;
    push->busy = false;
    tt_error_clear();
}

bool tt_hub_push_defers(struct tt_hub_push *push, const char *folder, tt_status (*remove)(const char *folder))
{
    if (push == NULL) return false;
    pthread_mutex_lock(&push->mutex);
    bool reads = push->busy && strcmp(tt_str_text(&push->folder), folder) == 0;
    if (reads) push->remove = remove;
    pthread_mutex_unlock(&push->mutex);
    return reads;
}

tt_status tt_hub_push_result(struct tt_hub_push *push, const struct tt_train_summary *summary)
{
    char *address = NULL;
    char line[600];
    if (push == NULL) return TT_OK;
    wait_for_checkpoint(push);
    tt_status status = tt_model_card_write(push->job, summary);
    if (status == TT_OK) status = tt_hub_upload(push->hub, &push->upload, &address);
    if (status != TT_OK) {
        tt_while("pushing the result, which is complete in '%s'", push->upload.folder);
        if (status == TT_ERR_CANCELLED) tt_hint("the same command pushes it; nothing is trained again");
        return status;
    }
    snprintf(line, sizeof line, "pushed the result: %s", address);
    tt_run_report_line(push->job, line);
    tt_free(address);
    return TT_OK;
}

void tt_hub_push_close(struct tt_hub_push *push)
{
    if (push == NULL) return;
    wait_for_checkpoint(push);
    tt_hub_close(push->hub);
    tt_str_deinit(&push->folder);
    tt_str_deinit(&push->summary);
    pthread_mutex_destroy(&push->mutex);
    tt_free(push);
}
