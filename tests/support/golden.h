/* Inputs of tests/golden that several tests use. A failing call fails the running test. */
#ifndef TT_TESTS_SUPPORT_GOLDEN_H
#define TT_TESTS_SUPPORT_GOLDEN_H

#include "support/words.h"
#include "text/tokenizer.h"

/* The tokenizer golden/tokenizer/NAME with the special tokens of golden/chat/tokenizers/NAME, from a folder below
 * test_root(). */
struct tt_tokenizer *test_golden_tokenizer(const char *name);

/* Model and rows of golden/FAMILY; with `lora` its first adapter, otherwise full fine-tuning. */
void test_golden_inputs(struct test_words *settings, const char *family, bool lora);
/* Model, rows and first adapter of golden/dense/NAME. */
void test_golden_dense_inputs(struct test_words *settings, const char *name);
/* The 20 steps of AdamW of golden/make_models.py and golden/trainer/make_trainer.py. */
#define TEST_GOLDEN_STEPS                                                                                    \
    "bf16 false max_steps 20 weight_decay 0.01 warmup_steps 2 lr_scheduler_type linear "                     \
    "per_device_train_batch_size 2 gradient_accumulation_steps 2 train_sampling_strategy sequential "        \
    "logging_steps 1"

/* Writes the first `count` lines of the file `from` to `to`. */
void test_copy_lines(const char *from, int count, const char *to);

#endif
