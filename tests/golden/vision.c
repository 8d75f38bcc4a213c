/* The text part of vision folders against transformers + PEFT (vision/make_vision.py): logits with and without an
 * adapter, adapters made over the text model alone, 50 steps of LoRA, the older spelling of names, and the tensors of
 * the other parts in merged and fine-tuned models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "convert/merge.h"
#include "model/adapter_config.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden/vision/"
enum { STEPS = 50, TOKENS_MAX = 64 };

/* A class of folders, and how another version of transformers spells the names of its tensors. */
static const struct class
{
    const char *name;
    bool alone; /* has adapter_text */
    const char *rate;
    struct {
        const char *from, *to;
    } other[4];
} classes[] = {
    {"gemma3",
     true,
     "0.001",
     {{"language_model.model.", "model.language_model."},
      {"vision_tower.", "model.vision_tower."},
      {"multi_modal_projector.", "model.multi_modal_projector."}}},
    {"gemma4", true, "0.001", {{NULL, NULL}}},
    {"mistral3",
     true,
     "0.01",
     {{"language_model.model.", "model.language_model."},
      {"language_model.lm_head.", "lm_head."},
      {"vision_tower.", "model.vision_tower."},
      {"multi_modal_projector.", "model.multi_modal_projector."}}},
    {"ministral3", true, "0.01", {{NULL, NULL}}},
    {"mistral4", false, "0.01", {{NULL, NULL}}},
    {"qwen2_5_vl", false, "0.01", {{"model.", "model.language_model."}, {"visual.", "model.visual."}}},
    {"qwen3_vl", false, "0.01", {{NULL, NULL}}},
    {"qwen3_5", true, "0.001", {{NULL, NULL}}},
    {"qwen3_5_moe", true, "0.001", {{NULL, NULL}}},
    {"lfm2_vl", true, "0.01", {{NULL, NULL}}},
    {"smolvlm", true, "0.01", {{NULL, NULL}}},
    {"muse_glimmer", false, "0.01", {{NULL, NULL}}},
};
enum { CLASSES = sizeof classes / sizeof *classes };

static const char *at(const char *class, const char *name)
{
    static char paths[16][512];
    static int next;
    char *path = paths[next++ % 16];
    (void)snprintf(path, sizeof paths[0], GOLDEN "%s/%s", class, name);
    return path;
}

/* ---- Logits ---- */

struct reference {
    int32_t ids[TOKENS_MAX];
    int64_t lengths[8], sequences, tokens, vocab;
    float *logits;
};

static void read_reference(const char *class, const char *tensor, struct reference *reference)
{
    struct tt_safetensors *file = NULL;
    int64_t ids[TOKENS_MAX];
    test_must(tt_safetensors_open(at(class, "reference.safetensors"), &file));
    const struct tt_safetensors_entry *lengths = tt_safetensors_find(file, "seq_lens"),
                                      *tokens = tt_safetensors_find(file, "input_ids"),
                                      *logits = tt_safetensors_find(file, tensor);
    reference->sequences = lengths->dims[0];
    reference->tokens = tokens->dims[0];
    reference->vocab = logits->dims[1];
    assert_true(reference->tokens <= TOKENS_MAX && reference->sequences <= 8);
    test_must(tt_safetensors_read(file, lengths, 0, reference->sequences, reference->lengths, TT_I64));
    test_must(tt_safetensors_read(file, tokens, 0, reference->tokens, ids, TT_I64));
    for (int64_t i = 0; i < reference->tokens; i++) reference->ids[i] = (int32_t)ids[i];
    int64_t count = reference->tokens * reference->vocab;
    reference->logits = tt_calloc((size_t)count, sizeof(float));
    assert_non_null(reference->logits);
    test_must(tt_safetensors_read(file, logits, 0, count, reference->logits, TT_F32));
    tt_safetensors_close(file);
}

static void compare_logits(const char *class, const char *folder, const char *adapter, const char *tensor)
{
    struct reference reference = {0};
    struct tt_arena arena = {0};
    struct tt_model_facts facts;
    struct tt_model_options options = {.compute_dtype = TT_F32};
    double difference = 0, norm = 0;
    read_reference(class, tensor, &reference);
    tt_runner_read_config(folder, NULL, &facts);
    if (adapter != NULL) test_must(tt_adapter_config_read(adapter, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    tt_runner_load(runner, folder, adapter);
    tt_runner_set_batch(runner, reference.ids, reference.lengths, reference.sequences, NULL);
    int64_t count = reference.tokens * reference.vocab;
    float *logits = tt_calloc((size_t)count, sizeof *logits);
    assert_non_null(logits);
    tt_runner_logits(runner, logits);
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)logits[i] - reference.logits[i], 2);
        norm += pow(reference.logits[i], 2);
    }
    double error = sqrt(difference / norm);
    print_message("%s %s: %.2e\n", class, tensor, error);
    if (!(error <= 1e-5)) fail_msg("%s %s: error %g", class, tensor, error);
    tt_free(logits);
    tt_free(reference.logits);
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
}

static void logits_and_adapters(void **state)
{
    (void)state;
    for (int c = 0; c < CLASSES; c++) {
        const char *name = classes[c].name, *model = at(name, "model");
        compare_logits(name, model, NULL, "logits");
        compare_logits(name, model, at(name, "adapter_random"), "logits_adapter");
        if (classes[c].alone) compare_logits(name, model, at(name, "adapter_text"), "logits_adapter");
    }
}

/* ---- Names ---- */

/* The folder with the names of the other version, in `to`. */
static void write_spelled(const struct class *class, const char *to)
{
    enum { TENSORS = 200, NAME = 160, FILE_BYTES = 1 << 20 };
    static char names[TENSORS][NAME], values[FILE_BYTES];
    static struct tt_safetensors_entry entries[TENSORS];
    const void *from[TENSORS];
    struct tt_safetensors *file = NULL;
    struct tt_str text = {0};
    struct tt_path path;
    uint64_t bytes;
    size_t used = 0;
    test_must(tt_safetensors_open(at(class->name, "model/model.safetensors"), &file));
    size_t count = tt_safetensors_count(file);
    assert_true(count <= TENSORS);
    for (size_t i = 0; i < count; i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        (void)snprintf(names[i], NAME, "%s", entry->name);
        for (int r = 0; r < 4 && class->other[r].from != NULL; r++)
            if (strncmp(entry->name, class->other[r].from, strlen(class->other[r].from)) == 0)
                (void)snprintf(names[i], NAME, "%s%s", class->other[r].to,
                               entry->name + strlen(class->other[r].from));
        entries[i] = *entry;
        entries[i].name = names[i];
        assert_true(used + entry->bytes <= FILE_BYTES);
        from[i] = values + used;
        test_must(tt_safetensors_read(file, entry, 0, (int64_t)entry->bytes / 4, values + used, TT_F32));
        used += entry->bytes;
    }
    test_must(tt_safetensors_layout(entries, count, &text, &bytes));
    size_t header = text.bytes;
    test_must(tt_str_append_fill(&text, 0, bytes - header));
    for (size_t e = 0; e < count; e++) {
        size_t i = (size_t)((const char(*)[NAME])entries[e].name - (const char(*)[NAME])names);
        memcpy(text.data + entries[e].offset, from[i], entries[e].bytes);
    }
    test_must(tt_path_set(&path, to, "model.safetensors"));
    test_must(tt_file_write_atomic(path.text, text.data, text.bytes));
    test_must(tt_file_copy_inside(at(class->name, "model"), "config.json", 1 << 20,
                                  (test_must(tt_path_set(&path, to, "config.json")), path.text)));
    tt_str_deinit(&text);
    tt_safetensors_close(file);
}

static void both_spellings(void **state)
{
    (void)state;
    for (int c = 0; c < CLASSES; c++) {
        if (classes[c].other[0].from == NULL) continue;
        char *folder = test_folder_create();
        write_spelled(&classes[c], folder);
        compare_logits(classes[c].name, folder, NULL, "logits");
        compare_logits(classes[c].name, folder, at(classes[c].name, "adapter_random"), "logits_adapter");
        test_folder_remove(folder);
    }
}

/* ---- Training ---- */

static void compare_losses(const char *class, const char *output)
{
    struct tt_json reference = {0};
    double loss[STEPS + 1];
    test_must(tt_json_read(at(class, "train_reference.json"), 1 << 24, &reference));
    assert_int_equal(test_read_log(output, "loss", loss, STEPS + 1), STEPS);
    for (int i = 0; i < STEPS; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(reference.root, "steps"), (size_t)i);
        double wanted = tt_json_number(tt_json_get(step, "loss"));
        if (fabs(loss[i] - wanted) > 1e-5 * wanted)
            fail_msg("%s step %d: loss %.8f, wanted %.8f", class, i + 1, loss[i], wanted);
    }
    tt_json_deinit(&reference);
}

static void steps(void **state)
{
    (void)state;
    for (int c = 0; c < CLASSES; c++) {
        const char *name = classes[c].name;
        char worst[200], weights[512];
        struct test_words settings = {0};
        struct tt_train_summary summary;
        char *output = test_folder_create();
        test_words_pair(&settings, "model_name_or_path", at(name, "model"));
        test_words_pair(&settings, "adapter_name_or_path", at(name, "adapter_random"));
        test_words_pair(&settings, "dataset_name", at(name, "train.jsonl"));
        test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no");
        test_words_pair(&settings, "learning_rate", classes[c].rate);
        test_words_pair(&settings, "max_steps", "50");
        test_train_ok(settings.list, output, &summary);
        compare_losses(name, output);
        (void)snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
        double error = test_compare_weights(weights, at(name, "adapter_final/adapter_model.safetensors"),
                                            worst, sizeof worst);
        print_message("%s after %d steps: %.2e\n", name, STEPS, error);
        if (!(error <= 1e-3)) fail_msg("%s: '%s' is off by %.2e", name, worst, error);
        test_folder_remove(output);
    }
}

/* ---- Models that are written ---- */

/* The folder has each tensor of the base's under the base's name; those of other parts have its bytes. */
static void compare_folder(const char *class, const char *folder)
{
    struct tt_safetensors *base = NULL;
    struct tt_model_folder *made = NULL;
    size_t others = 0;
    char a[4096], b[4096];
    test_must(tt_safetensors_open(at(class, "model/model.safetensors"), &base));
    test_must(tt_model_folder_open(folder, true, &made));
    assert_int_equal(tt_safetensors_count(base), tt_model_folder_tensor_count(made));
    for (size_t i = 0; i < tt_safetensors_count(base); i++) {
        const struct tt_safetensors_entry *x = tt_safetensors_entry(base, i),
                                          *y = tt_model_folder_find_stored(made, x->name);
        if (y == NULL) fail_msg("%s: no '%s'", class, x->name);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->dims, y->dims, sizeof x->dims);
        if (strstr(x->name, "vision") == NULL && strstr(x->name, "visual") == NULL) continue;
        others++;
        for (int64_t done = 0, count = (int64_t)x->bytes / 4; done < count; done += 1024) {
            int64_t piece = count - done < 1024 ? count - done : 1024;
            test_must(tt_safetensors_read(base, x, done, piece, a, TT_F32));
            test_must(tt_model_folder_read(made, y, done, piece, b, TT_F32));
            assert_memory_equal(a, b, (size_t)piece * 4);
        }
    }
    assert_true(others > 5);
    tt_safetensors_close(base);
    tt_model_folder_close(made);
}

static void merged(void **state)
{
    (void)state;
    for (int c = 0; c < CLASSES; c++) {
        struct tt_merge merge;
        struct tt_merge_report report;
        const char *name = classes[c].name;
        char *parent = test_folder_create();
        struct tt_path out;
        test_must(tt_path_set(&out, parent, "merged"));
        struct tt_merge_options options = {.output_dir = out.text};
        test_must(tt_merge_open(at(name, "model"), at(name, "adapter_random"), &merge));
        test_must(tt_merge_write(&merge, &options, &report));
        tt_merge_report_deinit(&report);
        tt_merge_close(&merge);
        compare_folder(name, out.text);
        compare_logits(name, out.text, NULL, "logits_adapter");
        test_folder_remove(parent);
    }
}

/* Full fine-tuning trains the text model alone and saves the whole folder, which resumes. */
static void full(void **state)
{
    (void)state;
    for (int c = 0; c < CLASSES; c++) {
        const char *name = classes[c].name;
        struct test_words settings = {0};
        struct tt_train_summary summary;
        double loss[4];
        char *output = test_folder_create();
        test_words_pair(&settings, "model_name_or_path", at(name, "model"));
        test_words_pair(&settings, "dataset_name", at(name, "train.jsonl"));
        test_words_add(&settings, "use_peft false bf16 false learning_rate 0.01 save_steps 2 logging_steps 1 "
                                  "max_grad_norm 0 lr_scheduler_type constant");
        test_words_pair(&settings, "max_steps", "2");
        test_train_ok(settings.list, output, &summary);
        compare_folder(name, output);
        test_words_pair(&settings, "max_steps", "3");
        test_words_pair(&settings, "resume_from_checkpoint", "true");
        test_train_ok(settings.list, output, &summary);
        assert_int_equal(test_read_log(output, "loss", loss, 4), 3);
        assert_true(loss[2] < loss[0]);
        compare_folder(name, output);
        test_folder_remove(output);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_adapters),
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(steps),
        cmocka_unit_test(merged),
        cmocka_unit_test(full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
