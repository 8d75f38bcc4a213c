/* Every option of PEFT's LoraConfig and every init_lora_weights (golden/adapters/make_kinds.py): the adapter that PEFT
 * saves is read and gives PEFT's logits, or is refused for the reason that the table of docs/lora.md names. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/load.h"
#include "model/adapter_config.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/words.h"

#define KINDS TT_TEST_ROOT "/golden/adapters/kinds/"
enum { TOKENS = 6, VOCAB = 61 };

struct kind {
    const char *row;    /* the option's row in docs/lora.md */
    const char *folder; /* the adapter; NULL: `plain` with `key` set to `value` */
    const char *key, *value;
    const char *refused; /* a part of the message and of the row; NULL: it is read */
};

static const struct kind kinds[] = {
    {"r", "r", NULL, NULL, NULL},
    {"target_modules", "target_modules", NULL, NULL, NULL},
    {"target_modules", "target_modules_head", NULL, NULL, NULL},
    {"target_modules", "target_modules_head_tied", NULL, NULL, NULL},
    {"target_modules: [embed_tokens]", "target_modules_embedding", NULL, NULL, "is not a linear layer"},
    {"exclude_modules", "exclude_modules", NULL, NULL, NULL},
    {"lora_alpha", "lora_alpha", NULL, NULL, NULL},
    {"lora_dropout", "lora_dropout", NULL, NULL, NULL},
    {"fan_in_fan_out", "fan_in_fan_out", NULL, NULL, NULL},
    {"bias", "bias_all", NULL, NULL, NULL},
    {"bias", "bias_lora_only", NULL, NULL, NULL},
    {"use_rslora", "use_rslora", NULL, NULL, NULL},
    {"modules_to_save", "modules_to_save", NULL, NULL, NULL},
    {"modules_to_save", "modules_to_save_tied", NULL, NULL, NULL},
    {"modules_to_save", "modules_to_save_head", NULL, NULL, NULL},
    {"modules_to_save", "modules_to_save_head_tied", NULL, NULL, NULL},
    {"ensure_weight_tying", "ensure_weight_tying_tied", NULL, NULL, NULL},
    {"layers_to_transform", "layers_to_transform", NULL, NULL, NULL},
    {"layers_pattern", "layers_pattern", NULL, NULL, NULL},
    {"rank_pattern", "rank_pattern", NULL, NULL, NULL},
    {"alpha_pattern", "alpha_pattern", NULL, NULL, NULL},
    {"use_dora", "use_dora", NULL, NULL, NULL},
    {"trainable_token_indices", "trainable_token_indices", NULL, NULL, NULL},
    {"trainable_token_indices", "trainable_token_indices_tied", NULL, NULL, NULL},
    {"trainable_token_indices", "trainable_token_indices_head", NULL, NULL, NULL},
    {"trainable_token_indices", "ensure_weight_tying_tokens_tied", NULL, NULL, NULL},
    {"target_parameters", "target_parameters", NULL, NULL, "unexpected"},
    {"lora_bias", "lora_bias", NULL, NULL, "a bias of B has no place in a merged linear that has none"},
    {"layer_replication", "layer_replication", NULL, NULL,
     "the model would have layers several times that its folder has once"},
    {"alora_invocation_tokens", "alora_invocation_tokens", NULL, NULL,
     "activated LoRA adapts only the tokens from an invocation on"},
    {"use_qalora", "use_qalora", NULL, NULL, NULL},
    {"use_qalora", "qalora_group_size", NULL, NULL, NULL},
    {"use_bdlora", "use_bdlora", NULL, NULL, "block-diagonal LoRA has matrices of other shapes"},
    {"velora_config", "velora_config", NULL, NULL, "VeLoRA has a projection beside its matrices"},
    {"monteclora_config", "monteclora_config", NULL, NULL, "MonteCLoRA draws samples of its matrices"},
    {"kasa_config", "kasa_config", NULL, NULL,
     "KaSA takes the smallest singular values out of the base weights"},
    {"arrow_config", NULL, "arrow_config", "{\"top_k\": 1}",
     "Arrow chooses among several adapters for each token"},
    {"megatron_config", NULL, "megatron_config", "{\"hidden_size\": 16}",
     "it is for modules of Megatron, which no model folder has"},
    {"eva_config", "eva_config", NULL, NULL, NULL},
    {"eva_config", "corda_config", NULL, NULL, NULL},
    {"eva_config", "lora_ga_config", NULL, NULL, NULL},
    {"eva_config", "loftq_config", NULL, NULL, NULL},
    {"init_lora_weights", "plain", NULL, NULL, NULL},
    {"init_lora_weights", "init_gaussian", NULL, NULL, NULL},
    {"init_lora_weights", "init_eva", NULL, NULL, NULL},
    {"init_lora_weights", "init_orthogonal", NULL, NULL, NULL},
    {"init_lora_weights", "init_mica", NULL, NULL, NULL},
    {"pissa", "init_pissa", NULL, NULL, "it takes the largest singular values out of the base weights"},
    {"pissa", "init_pissa_niter_4", NULL, NULL,
     "it takes the largest singular values out of the base weights"},
    {"olora", "init_olora", NULL, NULL, "it takes a part of a QR decomposition out of the base weights"},
    {"corda", "init_corda", NULL, NULL, "it takes directions of given inputs out of the base weights"},
    {"lora_ga", "init_lora_ga", NULL, NULL, "it takes directions of a gradient out of the base weights"},
    {"loftq", NULL, "init_lora_weights", "\"loftq\"", "it quantizes the base weights in its own way"},
    {"task_type", "plain", NULL, NULL, NULL},
    {"peft_type", "runtime_config", NULL, NULL, NULL},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static bool is_tied(const char *folder)
{
    size_t bytes = strlen(folder);
    return bytes > 5 && strcmp(folder + bytes - 5, "_tied") == 0;
}

static tt_status load(const char *folder, struct tt_arena *arena, struct tt_model_runner **out)
{
    char model[512], adapter[512];
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_safetensors *file = NULL;
    struct tt_model_folder *base = NULL;
    struct tt_model *shape = NULL;
    tt_status status = TT_OK;
    (void)snprintf(model, sizeof model, KINDS "%s", is_tied(folder) ? "tied" : "untied");
    (void)snprintf(adapter, sizeof adapter, "%s%s", folder[0] == '/' ? "" : KINDS, folder);
    tt_runner_read_config(model, NULL, facts);
    TT_GO(tt_adapter_config_read(adapter, arena, &options.lora));
    TT_GO(tt_adapter_config_check(&options.lora, facts));
    TT_GO(tt_adapter_open_for(adapter, facts, &options.lora, &file));
    TT_GO(tt_model_folder_open(model, true, &base));
    TT_GO(tt_model_create(facts, &options, &shape));
    TT_GO(tt_load_check(shape, &(struct tt_load_source){.folder = base, .adapter = file}));
    *out = tt_runner_create(facts, &options);
    tt_runner_load(*out, model, adapter);
out:
    tt_model_destroy(shape);
    tt_model_folder_close(base);
    tt_safetensors_close(file);
    tt_free(facts);
    return status;
}

static void compare_logits(const char *folder, struct tt_model_runner *runner)
{
    struct tt_safetensors *file = NULL;
    int64_t ids[TOKENS], length = TOKENS;
    int32_t narrow[TOKENS];
    static float want[TOKENS * VOCAB], got[TOKENS * VOCAB];
    double difference = 0, size = 0;
    test_must(tt_safetensors_open(KINDS "logits.safetensors", &file));
    const struct tt_safetensors_entry *logits = tt_safetensors_find(file, folder);
    if (logits == NULL) fail_msg("PEFT has no logits of '%s'", folder);
    assert_true(logits->dims[0] == TOKENS && logits->dims[1] == VOCAB);
    test_must(tt_safetensors_read(file, logits, 0, TOKENS * VOCAB, want, TT_F32));
    test_must(tt_safetensors_read(file, tt_safetensors_find(file, "ids"), 0, TOKENS, ids, TT_I64));
    tt_safetensors_close(file);
    for (int t = 0; t < TOKENS; t++) narrow[t] = (int32_t)ids[t];
    tt_runner_set_batch(runner, narrow, &length, 1, NULL);
    tt_runner_logits(runner, got);
    for (int i = 0; i < TOKENS * VOCAB; i++) {
        difference += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    if (!(sqrt(difference / size) < 1e-5))
        fail_msg("%s: logits differ from PEFT's by %.2e", folder, sqrt(difference / size));
}

/* The adapter `plain` with another value of a key, in `folder`. */
static void write_changed(const struct kind *kind, const char *folder)
{
    char from[512], to[512];
    struct tt_json json = {0};
    struct tt_json value = {0};
    (void)snprintf(from, sizeof from, KINDS "plain/adapter_model.safetensors");
    (void)snprintf(to, sizeof to, "%s/adapter_model.safetensors", folder);
    test_must(tt_file_copy(from, to));
    test_must(tt_json_read(KINDS "plain/adapter_config.json", 1 << 20, &json));
    (void)snprintf(from, sizeof from, "[%s]", kind->value);
    test_must(tt_json_parse(from, strlen(from), "value", &value));
    struct tt_json_value *root = tt_json_copy(json.root);
    assert_int_equal(tt_json_set(root, kind->key, tt_json_copy(tt_json_at(value.root, 0))), 0);
    test_must(tt_json_write_file(root, 1, true, folder, "adapter_config.json"));
    tt_json_release(root);
    tt_json_deinit(&value);
    tt_json_deinit(&json);
}

static void read_or_refused(void **state)
{
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        const struct kind *kind = &kinds[k];
        struct tt_arena arena = {0};
        struct tt_model_runner *runner = NULL;
        char *made = kind->folder == NULL ? test_folder_create() : NULL;
        const char *name = made != NULL ? kind->key : kind->folder;
        if (made != NULL) write_changed(kind, made);
        tt_status status = load(made != NULL ? made : kind->folder, &arena, &runner);
        if (status != TT_OK && kind->refused == NULL)
            fail_msg("%s is refused: %s", name, tt_error_last()->message);
        if (status == TT_OK && kind->refused != NULL) fail_msg("%s is read", name);
        if (status != TT_OK && strstr(tt_error_last()->message, kind->refused) == NULL)
            fail_msg("%s is refused, but not because '%s': %s", name, kind->refused,
                     tt_error_last()->message);
        if (status == TT_OK) compare_logits(name, runner);
        tt_runner_destroy(runner);
        tt_arena_deinit(&arena);
        if (made != NULL) test_folder_remove(made);
    }
}

static char *read_text(const char *path)
{
    struct tt_str text = {0};
    test_must(tt_file_read(path, 1 << 20, &text));
    char *copy = tt_strdup(tt_str_text(&text));
    tt_str_deinit(&text);
    assert_non_null(copy);
    return copy;
}

/* The row of the table that has `name` in its first column, with its end cut off; NULL: none. */
static char *find_row(char *table, const char *name)
{
    char cell[100];
    (void)snprintf(cell, sizeof cell, "`%s`", name);
    for (char *row = strstr(table, "\n| `"); row != NULL; row = strstr(row + 1, "\n| `")) {
        char *middle = strstr(row, "` | "), *found = strstr(row, cell);
        if (found != NULL && middle != NULL && found <= middle) return row;
    }
    return NULL;
}

/* Each option of PEFT is in a row; a row has kinds, which do what it says. */
static void the_table_says_so(void **state)
{
    (void)state;
    char *page = read_text(TT_TEST_ROOT "/../docs/lora.md"), *options = read_text(KINDS "options.txt");
    char *table = strstr(page, "## Every option of PEFT");
    assert_non_null(table);
    int rows = 0, tested = 0;
    for (char *row = strstr(table, "\n| `"); row != NULL; row = strstr(row + 1, "\n| `")) rows++;
    for (char *name = strtok(options, "\n"); name != NULL; name = strtok(NULL, "\n"))
        if (find_row(table, strncmp(name, "pissa", 5) == 0 ? "pissa" : name) == NULL)
            fail_msg("no row of docs/lora.md has '%s'", name);
    for (int k = 0; k < KIND_COUNT; k++) {
        const struct kind *kind = &kinds[k];
        const char *row = find_row(table, kind->row);
        if (row == NULL) fail_msg("docs/lora.md has no row '%s'", kind->row);
        char text[400];
        (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(row + 1, "\n"), row + 1);
        bool refused = strstr(text, "| refused: ") != NULL;
        if (refused != (kind->refused != NULL) || (!refused && strstr(text, "| read") == NULL) ||
            (refused && strstr(text, kind->refused) == NULL))
            fail_msg("the row of '%s' says otherwise: %s", kind->row, text);
        tested += k == 0 || strcmp(kind->row, kinds[k - 1].row) != 0;
    }
    assert_int_equal(tested, rows);
    tt_free(page);
    tt_free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_or_refused),
        cmocka_unit_test(the_table_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
