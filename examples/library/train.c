/* Fine-tunes a model with LoRA through libtrimtab: what `trimtab train` does, in a program of your own.
 *
 *     cc train.c $(pkg-config --cflags --libs trimtab) -o train
 *     ./train MODEL_FOLDER DATA.jsonl OUTPUT_FOLDER [NAME VALUE]...
 *
 * The names are those of docs/settings.md: ./train model data.jsonl out learning_rate 2e-4 lora_r 8 */
#include <signal.h>
#include <stdio.h>
#include <trimtab.h>

static struct tt_job *job; /* for the signal handler, which gets no argument */

/* Once: finish the step, save a checkpoint and return. */
static void on_interrupt(int number)
{
    (void)number;
    tt_job_stop(job);
}

static void on_message(void *context, const char *line)
{
    (void)context;
    puts(line);
}

static void on_progress(void *context, const struct tt_progress *progress)
{
    (void)context;
    printf("step %lld of %lld: loss %.4f, %.0f tokens/s\n", (long long)progress->step,
           (long long)progress->max_steps, progress->loss, progress->tokens_per_second);
}

static tt_status run(int argc, char **argv)
{
    const struct tt_train_observer observer = {.on_message = on_message, .on_progress = on_progress};
    struct tt_train_summary summary;
    tt_status status = tt_job_create(&job);
    if (status == TT_OK) status = tt_job_set(job, "model_name_or_path", argv[1]);
    if (status == TT_OK) status = tt_job_set(job, "dataset_name", argv[2]);
    if (status == TT_OK) status = tt_job_set(job, "output_dir", argv[3]);
    for (int i = 4; i + 1 < argc && status == TT_OK; i += 2) status = tt_job_set(job, argv[i], argv[i + 1]);
    if (status != TT_OK) return status;
    signal(SIGINT, on_interrupt);
    status = tt_job_train(job, &observer, &summary);
    if (status == TT_OK)
        printf("mean loss %.4f; the adapter lies in %s\n", summary.train_loss, summary.output);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc % 2 != 0) {
        fprintf(stderr, "usage: train MODEL_FOLDER DATA.jsonl OUTPUT_FOLDER [NAME VALUE]...\n");
        return 2;
    }
    tt_status status = run(argc, argv);
    if (status != TT_OK) {
        char text[2048];
        tt_error_format(tt_error_last(), text, sizeof text);
        fprintf(stderr, "%s\n", text);
    }
    signal(SIGINT, SIG_DFL);
    tt_job_destroy(job);
    return status == TT_OK ? 0 : 1;
}
