/* trimtab.h: the public interface of libtrimtab, all of it.
 *
 * The library fine-tunes language models (LoRA or every weight, sharded over ranks), evaluates them, generates text,
 * and converts text into token ids and back, as the program `trimtab` does. It reads and writes Hugging Face's files. A
 * job is configured by settings only; docs/settings.md lists their names and meaning.
 *
 *     struct tt_job *job = NULL;
 *     struct tt_train_summary summary;
 *     tt_status status = tt_job_create(&job);
 *     if (status == TT_OK) status = tt_job_read_yaml(job, "sft.yaml");
 *     if (status == TT_OK) status = tt_job_set(job, "learning_rate", "2e-4");
 *     if (status == TT_OK) status = tt_job_train(job, NULL, &summary);
 *     if (status != TT_OK) { char text[2048]; tt_error_format(tt_error_last(), text, sizeof text); puts(text); }
 *     tt_job_destroy(job);
 *
 * Rules that hold for every call
 * - A function that can fail returns a tt_status; outputs come last and are written only on success. The error record
 *   of the calling thread describes the failure (below).
 * - Handles are opaque. `create` and `open` return a handle that the caller owns and frees with `destroy` or `close`,
 *   which accept NULL. *Lends*: the library keeps ownership; valid until the next call on the same handle.
 * - A handle is used by one thread at a time; different handles may be used by different threads. tt_job_stop is the
 *   exception: it may be called from any thread and from a signal handler.
 * - All texts are UTF-8 and end in a zero byte, unless a count of bytes is passed with them.
 * - The library prints nothing, installs no signal handler and never calls exit().
 * - Under mpirun each process is one rank: all processes make the same calls, and call tt_job_train or tt_job_evaluate
 *   once, because MPI can be started only once in a process.
 *
 * Until version 1.0 a new minor version may change this interface; the library's soname changes with it.
 */
#ifndef TRIMTAB_H
#define TRIMTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TT_VERSION "0.1.0"

#if defined(__GNUC__)
#define TT_PUBLIC __attribute__((visibility("default")))
#define TT_MUST_USE __attribute__((warn_unused_result))
#else
#define TT_PUBLIC
#define TT_MUST_USE
#endif

/* Version of the library in use at run time; it may differ from the header's TT_VERSION. */
TT_PUBLIC const char *tt_version(void);

/* ---- errors ----
 *
 * Kinds of error. docs/errors.md lists the remedy and the program's exit code for each. */
typedef enum tt_status {
    TT_OK = 0,
    TT_ERR_USAGE, /* a call, the command line or the configuration is wrong */
    /* the content of a file (model, tokenizer, data set) is invalid, or a path is missing or not accessible */
    TT_ERR_DATA,
    /* reading or writing failed (disk full, network file system); a retry may succeed */
    TT_ERR_IO,
    TT_ERR_MEMORY,      /* host or device memory does not suffice */
    TT_ERR_DEVICE,      /* a device or its library failed */
    TT_ERR_COMM,        /* a collective failed */
    TT_ERR_PEER,        /* another rank failed; that rank's record has the cause */
    TT_ERR_UNSUPPORTED, /* a valid request that this build or device does not support */
    TT_ERR_CANCELLED,   /* stopped on request (tt_job_stop, SIGINT, SIGTERM) */
    TT_ERR_INTERNAL,    /* a bug of this library */
} tt_status;

/* An error record: a message, a few lines of context, innermost first, and sometimes a hint. */
struct tt_error;

/* Lends the record of this thread: the last failure, or status TT_OK when nothing failed since tt_error_clear. */
TT_PUBLIC const struct tt_error *tt_error_last(void);
TT_PUBLIC void tt_error_clear(void);
/* Writes the record as the program prints it ("error: ...", "  while ...", "  hint: ...") into `text`, always
 * terminated. Returns the full length, without the terminator, even if the text was truncated. */
TT_PUBLIC size_t tt_error_format(const struct tt_error *error, char *text, size_t text_bytes);
TT_PUBLIC tt_status tt_error_status(const struct tt_error *error);
TT_PUBLIC const char *tt_error_message(const struct tt_error *error);
/* Context line `index`, from 0; NULL after the last. */
TT_PUBLIC const char *tt_error_context(const struct tt_error *error, int index);
TT_PUBLIC const char *tt_error_hint(const struct tt_error *error); /* NULL: none */
TT_PUBLIC const char *tt_status_name(tt_status status);            /* "USAGE" */

/* ---- log ----
 *
 * Messages that are not errors, such as a setting that is accepted without effect. Without a sink they are dropped.
 * TT_LOG_NOTICE: as TT_LOG_INFO, but about this process alone, for the log of every rank. */
enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_NOTICE, TT_LOG_WARNING };
typedef void tt_log_sink(void *context, enum tt_log_level level, const char *line);
/* Process-wide; call it before any other thread uses the library. Any thread may call the sink. */
TT_PUBLIC void tt_log_set_sink(tt_log_sink *sink, void *context);

/* ---- jobs ----
 *
 * A job is a set of settings and the operations on it. Settings may be set in any order; the last value of a setting
 * wins. The first call of tt_job_describe, tt_job_train, tt_job_evaluate or tt_completer_create resolves the settings,
 * which are read-only from then on. */
struct tt_job;
TT_PUBLIC TT_MUST_USE tt_status tt_job_create(struct tt_job **out);
TT_PUBLIC void tt_job_destroy(struct tt_job *job);

/* Sets one setting, written as on the command line: ("lora_r", "16"), ("lora_target_modules", "all-linear"). An unknown
 * name is TT_ERR_USAGE; the hint suggests the nearest known name. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_set(struct tt_job *job, const char *name, const char *value);
/* Reads a YAML file of settings, as --config does. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_read_yaml(struct tt_job *job, const char *path);
/* The same from memory; messages name `origin` instead of a path. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_parse_yaml(struct tt_job *job, const char *text, size_t bytes,
                                                  const char *origin);
/* Reads accelerate's FSDP file, as --config_file does. Settings that have a value already keep it. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_read_accelerate(struct tt_job *job, const char *path);
/* Checks the settings as tt_job_train does and lends the resolved configuration as YAML, with the origin of each value.
 * Does not open the files that settings name. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_describe(struct tt_job *job, const char **yaml);

/* Requests that the running call stop. Once: after the current step; training then saves a checkpoint. Twice: as soon
 * as possible. The stopped call returns TT_ERR_CANCELLED, as do later calls on the same job. */
TT_PUBLIC void tt_job_stop(struct tt_job *job);

/* ---- training and evaluation ---- */

struct tt_progress {
    int64_t step, max_steps;
    double epoch;
    double loss;              /* of this step */
    double tokens_per_second; /* over the last steps, all ranks */
    double seconds_left;      /* estimate; negative while unknown */
    const char *unit;         /* what tokens_per_second counts: "tokens", or "images" of a detection */
};

/* One row of the journal: a training row or an evaluation row, with the fields of trainer_state.json. */
struct tt_log_field {
    const char *name;
    double value;
};
struct tt_log_row {
    bool evaluation;
    int64_t step;
    double epoch;
    const struct tt_log_field *fields;
    int field_count;
};

/* Callbacks of a run; each may be NULL. They are called by one thread at a time, not always the caller's, and only on
 * global rank 0. Their arguments are lent until they return. A slow callback slows the run. */
struct tt_train_observer {
    void *context;
    /* a line for people: facts before the first step, saves, ... */
    void (*on_message)(void *context, const char *line);
    void (*on_progress)(void *context, const struct tt_progress *progress); /* after every step */
    void (*on_log)(void *context, const struct tt_log_row *row);
    /* the checkpoint or result in `folder` is complete, `seconds` after the save began */
    void (*on_save)(void *context, const char *folder, double seconds);
    /* about once a second while training: the estimated part, below 1, of the step behind progress->step that is done.
     * The other figures are those of the last step; before the first one loss and speed are 0 */
    void (*on_step_part)(void *context, const struct tt_progress *progress, double part);
};

struct tt_train_summary {
    int64_t steps;
    double epochs;
    double train_loss;     /* mean over the steps */
    double last_eval_loss; /* NaN when there was no evaluation */
    double seconds, tokens_per_second, samples_per_second;
    double first_step_seconds;        /* start of the run to the end of step 1 */
    double model_tflops;              /* per second, all ranks, recompute not counted */
    size_t planned_bytes, peak_bytes; /* device buffers of rank 0: planned, measured */
    char output[1024];                /* folder of the result */
    bool stopped;                     /* on request, before the last step */
    bool
        was_complete; /* the run had ended before: nothing was done, and of the numbers only steps is known */
    /* the longest save; the longest time that training waited for a save */
    double save_seconds, save_stall_seconds;
    const char *unit; /* what tokens_per_second counts, as in tt_progress; NULL: "tokens" */
};

/* `trimtab train`. Requires at least model_name_or_path, dataset_name and output_dir. `observer` may be NULL. A stopped
 * run returns TT_ERR_CANCELLED once its checkpoint is complete, and fills `summary`. Only global rank 0 fills the
 * summary; elsewhere its steps are 0. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_train(struct tt_job *job, const struct tt_train_observer *observer,
                                             struct tt_train_summary *summary);

struct tt_eval_result {
    double loss, perplexity, token_accuracy;
    int64_t samples, tokens; /* supervised tokens */
    double seconds;          /* of the loss and, with exact_match, of the completions */
    int64_t exact_matches;   /* greedy completions equal to the row's completion; -1 without exact_match */
    int64_t exact_rows;
    double loss_seconds; /* the part of `seconds` for the loss */
};

/* `trimtab eval`. Requires model_name_or_path and eval_dataset; also reads adapter_name_or_path, exact_match and
 * max_new_tokens. `observer` may be NULL; only its on_message is called. */
TT_PUBLIC TT_MUST_USE tt_status tt_job_evaluate(struct tt_job *job, const struct tt_train_observer *observer,
                                                struct tt_eval_result *result);

/* ---- generation ----
 *
 * A completer is a loaded model that completes prompts. */
struct tt_completer;
/* Requires model_name_or_path; also reads adapter_name_or_path, max_new_tokens, do_sample, temperature, top_k, top_p,
 * min_p, repetition_penalty, seed, ignore_eos, max_prompt_tokens and per_device_eval_batch_size. Allocates the device
 * memory of that many prompts of the largest length; later calls allocate none. Borrows `job`, which must outlive the
 * completer. One rank. */
TT_PUBLIC TT_MUST_USE tt_status tt_completer_create(struct tt_job *job, struct tt_completer **out);
TT_PUBLIC void tt_completer_destroy(struct tt_completer *completer);

/* Called with each new piece of the completion of prompt `index`. `text` has `bytes` bytes, no terminator, and only
 * complete characters. Returning false ends that completion. */
typedef bool tt_completion_visitor(void *context, int index, const char *text, size_t bytes);
/* Completes `count` prompts, per_device_eval_batch_size at a time: where one ends, the next begins. The pieces of
 * prompt i, in the order of the calls of the visitor, are the text of completion i, without the token that ended it.
 * With do_sample each completion of a completer has random numbers of its own, whatever runs at the same time. A prompt
 * without tokens or with more than max_prompt_tokens is TT_ERR_DATA, before any is completed. */
TT_PUBLIC TT_MUST_USE tt_status tt_completer_run(struct tt_completer *completer, const char *const *prompts,
                                                 int count, tt_completion_visitor *visitor, void *context);

/* ---- tokenizers ----
 *
 * The tokenizer of a model folder (tokenizer.json), token for token like the reference library. `folder` may also be
 * the name of a model in the hub's local cache ("owner/model"), as in model_name_or_path. */
struct tt_codec;
TT_PUBLIC TT_MUST_USE tt_status tt_codec_open(const char *folder, struct tt_codec **out);
TT_PUBLIC void tt_codec_close(struct tt_codec *codec);
/* Lends the ids of `text`. `add_special`: with the tokens that the tokenizer adds around a text (BOS, EOS). Invalid
 * UTF-8 is TT_ERR_DATA. */
TT_PUBLIC TT_MUST_USE tt_status tt_codec_encode(struct tt_codec *codec, const char *text, size_t bytes,
                                                bool add_special, const int32_t **ids, size_t *count);
/* Lends the text of `ids`, terminated; `bytes` may be NULL. `skip_special`: without the text of special tokens. Ids
 * without a token add nothing; invalid UTF-8 becomes U+FFFD. */
TT_PUBLIC TT_MUST_USE tt_status tt_codec_decode(struct tt_codec *codec, const int32_t *ids, size_t count,
                                                bool skip_special, const char **text, size_t *bytes);
TT_PUBLIC int32_t tt_codec_vocab_size(const struct tt_codec *codec); /* one more than the largest id */
/* Id of the token of this text, such as "</s>"; -1 if there is none. */
TT_PUBLIC int32_t tt_codec_token_id(const struct tt_codec *codec, const char *token);

#ifdef __cplusplus
}
#endif

#endif
