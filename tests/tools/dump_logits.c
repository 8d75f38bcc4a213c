/* For scripts that compare with other programs (tests/golden/check_with_peft.py): the logits of one sequence
 * in fp32.
 *
 *     dump_logits MODEL_FOLDER ADAPTER_FOLDER|- ID ID ...   > float32 [ids, vocabulary], row by row
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/adapter_config.h"
#include "support/model_runner.h"

static int complain(void)
{
    char text[4096];
    (void)tt_error_format(tt_error_last(), text, sizeof text);
    fputs(text, stderr);
    return 1;
}

int main(int argc, char **argv)
{
    struct tt_arena arena = {0};
    struct tt_model_facts config;
    struct tt_model_options options = {.compute_dtype = TT_F32};
    if (argc < 4) {
        fputs("usage: dump_logits MODEL_FOLDER ADAPTER_FOLDER|- ID ID ...\n", stderr);
        return 2;
    }
    const char *adapter = strcmp(argv[2], "-") == 0 ? NULL : argv[2];
    int64_t count = argc - 3;
    tt_runner_read_config(argv[1], NULL, &config);
    if (adapter != NULL && tt_adapter_config_read(adapter, &arena, &options.lora) != TT_OK) return complain();
    int32_t *ids = tt_calloc((size_t)count, sizeof *ids);
    float *logits = tt_calloc((size_t)(count * config.vocab_size), sizeof *logits);
    if (ids == NULL || logits == NULL) return complain();
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)strtol(argv[3 + i], NULL, 10);
    struct tt_model_runner *runner = tt_runner_create(&config, &options);
    tt_runner_load(runner, argv[1], adapter);
    tt_runner_set_batch(runner, ids, &count, 1, NULL);
    tt_runner_logits(runner, logits);
    size_t written = fwrite(logits, sizeof *logits, (size_t)(count * config.vocab_size), stdout);
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
    tt_free(ids);
    tt_free(logits);
    return written == (size_t)(count * config.vocab_size) && fflush(stdout) == 0 ? 0 : 1;
}
