/* The inputs of a run, once per process and shared by its ranks: model folder, tokenizer, adapter, data sets. Read-only
 * after opening. */
#ifndef TT_JOB_INPUTS_H
#define TT_JOB_INPUTS_H

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "data/chat.h"
#include "data/dataset.h"
#include "data/sources.h"
#include "job/input_part.h"
#include "job/new_tokens.h"
#include "job/parts.h"
#include "model/quantization.h"

struct tt_detect_spec;

/* Training rows that are read while they train (data/step_flow.h). */
struct tt_streamed {
    struct tt_data_config data; /* as rows are read by it */
    uint64_t sum, bytes;        /* of the files (tt_sources_sum) */
    int64_t samples;            /* of all steps; 0 until they are ordered */
};

struct tt_inputs_adapter {
    const char *name; /* the last part of the path that was given */
    char *folder;     /* owned */
    struct tt_safetensors *file;
    struct tt_lora_config lora; /* texts are in the arena of the inputs */
};

struct tt_inputs {
    int task;                       /* place in job/tasks.def */
    void *own;                      /* owned: what the task alone has (job/detect_inputs.h); NULL: nothing */
    struct tt_model_folder *folder; /* NULL: the model has none */
    struct tt_model_facts model_facts;
    struct tt_model_options model_options;
    struct tt_tokenizer *tokenizer; /* NULL if the folder has none and the data needs none */
    struct tt_new_tokens new_tokens;
    /* The weights of the first adapter; NULL: none. Lent by `adapters`. */
    struct tt_safetensors *adapter;
    const char *adapter_folder;
    struct tt_inputs_adapter *adapters; /* [adapter_count], owned: several of TT_INPUTS_GENERATE */
    size_t adapter_count;
    struct tt_arena arena; /* settings that came with the adapter */
    struct tt_load_source source;
    bool head_differs;  /* of the folder's tied tables, in the share of this process (checkpoint/unread.h) */
    int64_t max_length; /* tt_inputs_max_length; 0 for TT_INPUTS_GENERATE */
    struct tt_dataset *train, *eval;    /* NULL when not asked for */
    struct tt_streamed *streamed;       /* owned, in place of `train`; NULL: there are none */
    bool dated;                         /* as in the configuration */
    bool shares_prompts;                /* set where the rows are ordered (job/shared_prompt.h) */
    double train_seconds, eval_seconds; /* of reading, rendering and tokenizing them; 0: nothing was */
    /* Chat templates: those of chat_template_path, else those of the adapter's folder; empty: the model folder's */
    struct tt_chat_files templates;
    const char *template_path; /* where they are; lent, or NULL */
    /* [template_file_count], in `arena`: the files that are saved beside the trained weights in the place of the model
     * folder's: those of `templates`, and the tokenizer's with new tokens */
    struct tt_save_template *template_files;
    size_t template_file_count;
    /* files of the data sets; empty: none, or rows split off from `train` */
    struct tt_sources train_files, eval_files;
};

/* DATA: the data of a training, without its weights. */
enum tt_inputs_use { TT_INPUTS_TRAIN, TT_INPUTS_EVALUATE, TT_INPUTS_GENERATE, TT_INPUTS_DATA };

/* The parts of a job that name its inputs; all lent. */
struct tt_inputs_config {
    enum tt_inputs_use use;
    const struct tt_model_spec *model;
    const struct tt_lora_config *lora; /* of a training */
    bool sets_dropout; /* lora's dropout is that of an adapter, too: the objective has a default for it */
    const struct tt_quantization_config *quantization;
    const struct tt_device_spec *device;
    const struct tt_data_config *data;   /* NULL for TT_INPUTS_GENERATE */
    int task;                            /* place in job/tasks.def */
    const struct tt_detect_spec *detect; /* of a detection */
    int64_t seed;
    bool dated;     /* a date for chat templates was given: it is the same in every run */
    bool evaluates; /* evaluation data too */
    struct tt_compare_share share;
};
struct tt_job_spec;
struct tt_inputs_config tt_inputs_config_of(const struct tt_job_spec *job, enum tt_inputs_use use);

/* LoRA of every linear of the layers, for adapters that nobody knows yet; their scale is 1. */
struct tt_lora_config tt_inputs_reserved_lora(int64_t rank);
/* Opens an adapter folder for the model of open inputs, with texts in `arena`: the checks of the start but for its
 * tensors. `folder` is lent; the file is the caller's. */
TT_MUST_USE tt_status tt_inputs_open_adapter(const struct tt_inputs *inputs, const char *folder,
                                             struct tt_arena *arena, struct tt_inputs_adapter *adapter);
/* The tokenizer of the inputs, once more: of the model folder, or the one with new tokens. */
TT_MUST_USE tt_status tt_inputs_load_tokenizer(const struct tt_inputs *inputs, struct tt_tokenizer **out);
/* A zeroed struct is empty, as is the struct after an error. Settings that contradict the model are TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_inputs_open(const struct tt_inputs_config *config, struct tt_inputs *inputs);
/* Settles, after opening with a share, what the processes found together: `differs` in one of them. */
void tt_inputs_settle(struct tt_inputs *inputs, bool differs);
/* Checks that the weights to begin with are those of the model. */
TT_MUST_USE tt_status tt_inputs_check_model(const struct tt_inputs *inputs, const struct tt_model *model);
/* Visits the parts of the inputs that are no files of a folder or of the data. Stops at the first error. */
TT_MUST_USE tt_status tt_inputs_visit(const struct tt_inputs *inputs, tt_input_visit *visit, void *context);
void tt_inputs_close(struct tt_inputs *inputs);
/* The files that the evaluation data come from: those of the training data where their rows were held out. */
const struct tt_sources *tt_inputs_eval_files(const struct tt_inputs *inputs);

#endif
