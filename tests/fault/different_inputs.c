/* Processes whose input files differ, as those of two machines with copies of their own do: every kind of
 * file, found before the first step and named, under TCP and MPI, in training, evaluation and on a resume. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "cli/exit_codes.h"
#include "support/port.h"
#include "support/processes.h"
#include "support/train_run.h"
#include "support/workplace.h"

struct scene {
    struct test_workplace place;
    char machines[2][TEST_PATH_BYTES]; /* each with model/, adapter/, train.jsonl, eval.jsonl */
    char output[TEST_PATH_BYTES];
    struct test_program programs[2];
};

static void shell(const struct scene *scene, const char *command)
{
    char line[2048];
    snprintf(line, sizeof line, "cd '%s' && %s", scene->place.folder, command);
    if (system(line) != 0) fail_msg("%s", line);
}

static void begin(struct scene *scene)
{
    test_workplace_create("qwen2", &scene->place);
    test_workplace_path(&scene->place, "a", scene->machines[0]);
    test_workplace_path(&scene->place, "b", scene->machines[1]);
    test_workplace_path(&scene->place, "out", scene->output);
    shell(scene, "mkdir a && mv model a && cp -r '" TT_TEST_ROOT
                 "/golden/qwen2/adapter_random' a/adapter && chmod -R u+w a");
    shell(scene,
          "for i in $(seq 40); do echo \"{\\\"text\\\": \\\"row $i of some\\\"}\"; done > a/train.jsonl && "
          "head -n 9 a/train.jsonl > a/eval.jsonl && echo '{{ x }}' > a/model/chat_template.jinja && "
          "cp -r a b && touch -d 2001-01-01 b/model/* b/train.jsonl");
}

static void start(struct scene *scene, const char *command, const char *more)
{
    int port = test_free_port();
    for (int q = 0; q < 2; q++) {
        struct test_words words = {0}, line = {0};
        struct test_limits limits = {.change_dir = scene->machines[q]};
        char environment[160];
        snprintf(environment, sizeof environment,
                 "env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TRIMTAB_NODE=%d", q, port, q);
        test_words_add(&words, "device cpu threads 1 model_name_or_path model eval_dataset eval.jsonl");
        test_words_add(&words, more);
        if (strcmp(command, "train") == 0) {
            test_words_pair(&words, "output_dir", scene->output);
            test_words_add(&words,
                           "dataset_name train.jsonl max_steps 4 save_steps 2 "
                           "per_device_train_batch_size 2 eval_strategy steps eval_steps 2 bf16 false");
        }
        test_words_add(&line, environment);
        test_words_command(&line, test_trimtab(), command, &words);
        test_program_start(line.list, &limits, &scene->programs[q]);
    }
}

/* Both end with `code` and say `text`, one of them as the error. NULL: there is no error. */
static void expect(struct scene *scene, int code, const char *text, const char *what)
{
    int errors = 0, says = 0;
    for (int q = 0; q < 2; q++) {
        int got = test_program_wait(&scene->programs[q], TEST_RUN_SECONDS);
        if (got != code) fail_msg("%s: process %d ends with %d: %s", what, q, got, scene->programs[q].output);
        errors += test_count_text(scene->programs[q].output, "error:");
        says += text != NULL && strstr(scene->programs[q].output, text) != NULL;
    }
    if (errors != (text != NULL) || says != 2 * errors)
        fail_msg("%s: wanted '%s' once:\n%s\n%s", what, text != NULL ? text : "", scene->programs[0].output,
                 scene->programs[1].output);
}

/* Nothing of the run may be there: it ended before the first step. */
static void expect_no_step(const struct scene *scene)
{
    if (!tt_path_is_dir(scene->output)) return;
    assert_int_equal(test_count_entries(scene->output, "checkpoint"), 0);
    assert_int_equal(test_count_entries(scene->output, "adapter"), 0);
    assert_int_equal(test_count_entries(scene->output, "metrics"), 0);
}

struct change {
    const char *command; /* in the folder of the workplace */
    const char *more, *says;
};

/* Overwrites one byte of a file. */
#define FLIP(file, place) "printf '\\377' | dd of=" file " bs=1 seek=" place " conv=notrunc status=none"

static const struct change changes[] = {
    {"sed -i 's/\"rms_norm_eps\": 1e-0[0-9]/\"rms_norm_eps\": 1e-04/; s/^{/{ /' b/model/config.json", NULL,
     "'config.json' differs between "},
    {FLIP("b/model/model.safetensors", "$(($(stat -c %s b/model/model.safetensors) - 1))"), NULL,
     "' of 'model.safetensors' differs between "},
    {"printf ' ' >> b/model/tokenizer.json", NULL, "'tokenizer.json' differs between "},
    {"echo other > b/model/chat_template.jinja", NULL, "'chat_template.jinja' differs between "},
    {"rm b/model/chat_template.jinja", NULL, "'chat_template.jinja' where "},
    {FLIP("b/adapter/adapter_model.safetensors",
          "$(($(stat -c %s b/adapter/adapter_model.safetensors) - 1))"),
     "adapter_name_or_path adapter", "' of 'adapter_model.safetensors' differs between "},
    {"sed -i 's/^{/{ /' b/adapter/adapter_config.json", "adapter_name_or_path adapter",
     "the adapter's 'adapter_config.json' differs between "},
    {"sed -i '40d' b/train.jsonl", NULL, "the file of the training data differs between "},
    {"sed -i 's/row 7 /row 8 /' b/train.jsonl", NULL, "the file of the training data differs between "},
    {"sed -i '9d' b/eval.jsonl", NULL, "the file of the evaluation data differs between "},
};

static void training(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct scene scene;
        begin(&scene);
        shell(&scene, changes[i].command);
        start(&scene, "train", changes[i].more != NULL ? changes[i].more : "");
        expect(&scene, TT_EXIT_DATA, changes[i].says, changes[i].command);
        expect_no_step(&scene);
        test_workplace_remove(&scene.place);
    }
}

/* The message names both machines, by folder where they are one. */
static void machines_are_named(void **state)
{
    (void)state;
    struct scene scene;
    char host[64], text[TEST_PATH_BYTES * 3];
    begin(&scene);
    assert_int_equal(gethostname(host, sizeof host), 0);
    shell(&scene, "sed -i '40d' b/train.jsonl");
    start(&scene, "train", "");
    snprintf(text, sizeof text, "%s (rank 0, in %s) and %s (rank 1, in %s): ", host, scene.machines[0], host,
             scene.machines[1]);
    expect(&scene, TT_EXIT_DATA, text, "names");
    test_workplace_remove(&scene.place);
}

static void evaluation(void **state)
{
    (void)state;
    static const struct change of_evaluation[] = {
        {"sed -i '9d' b/eval.jsonl", "", "the file of the evaluation data differs between "},
        {FLIP("b/model/model.safetensors", "$(($(stat -c %s b/model/model.safetensors) - 1))"), "",
         "' of 'model.safetensors' differs between "},
    };
    struct scene scene;
    for (size_t i = 0; i < 2; i++) {
        begin(&scene);
        shell(&scene, of_evaluation[i].command);
        start(&scene, "eval", "");
        expect(&scene, TT_EXIT_DATA, of_evaluation[i].says, of_evaluation[i].command);
        test_workplace_remove(&scene.place);
    }
    begin(&scene);
    shell(&scene, "sed -i '40d' b/train.jsonl"); /* not read */
    start(&scene, "eval", "verify_inputs full");
    expect(&scene, 0, NULL, "the same files");
    test_workplace_remove(&scene.place);
}

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"

/* Makes the weights of machine `m` a link to the hub's blob whose name ends in `last`. */
static void link_blob(const struct scene *scene, const char *m, char last)
{
    char command[900];
    snprintf(
        command, sizeof command,
        "cd %s && if [ -L model ]; then rm model && mv snapshots/x model && cp --remove-destination blobs/* "
        "model/model.safetensors && rm -r blobs snapshots; fi && mkdir blobs snapshots && mv "
        "model/model.safetensors blobs/" DIGITS "%c && ln -s ../../blobs/" DIGITS
        "%c model/model.safetensors && mv model snapshots/x && ln -s snapshots/x model",
        m, last, last);
    shell(scene, command);
}

/* In the hub's cache the name of a file is its sum: another name is another version, although all bytes that are read
 * of it are the same. A machine that has the file elsewhere is not refused for it. */
static void another_blob_of_the_hub(void **state)
{
    (void)state;
    struct scene scene;
    begin(&scene);
    link_blob(&scene, "b", '1');
    start(&scene, "train", "");
    expect(&scene, 0, NULL, "one machine with a cache");
    shell(&scene, "rm -r out");
    link_blob(&scene, "a", '1');
    start(&scene, "train", "");
    expect(&scene, 0, NULL, "the same blob");
    shell(&scene, "grep -q \"the hub's sum of 'model.safetensors'\" out/checkpoint-2/training_state.json");
    link_blob(&scene, "b", '2');
    start(&scene, "eval", "");
    expect(&scene, TT_EXIT_DATA, "the hub's sum of 'model.safetensors' differs between ", "another blob");
    link_blob(&scene, "a", '2');
    shell(&scene, "rm -r out/checkpoint-4 out/adapter_model.safetensors");
    start(&scene, "train", "resume_from_checkpoint true");
    expect(&scene, TT_EXIT_USAGE, "the hub's sum of 'model.safetensors' has changed",
           "another version of the base");
    test_workplace_remove(&scene.place);
}

/* Copies with other times under other paths are the same. On a resume the checkpoint is compared too, and
 * what has changed since it was saved: evaluation data and tokenizer are a warning, the base model an error.
 */
static void resuming(void **state)
{
    (void)state;
    struct scene scene;
    char saved[TEST_PATH_BYTES];
    begin(&scene);
    start(&scene, "train", "");
    expect(&scene, 0, NULL, "the same files");
    shell(&scene, "rm -r out/checkpoint-4");
    test_join(scene.output, "checkpoint-2", saved);

    shell(&scene, "sed -i '9d' a/eval.jsonl b/eval.jsonl; echo y > a/model/chat_template.jinja; "
                  "echo y > b/model/chat_template.jinja");
    start(&scene, "train", "resume_from_checkpoint true");
    expect(&scene, 0, NULL, "other evaluation data and template");
    assert_non_null(strstr(scene.programs[0].output,
                           "input files have changed: 'chat_template.jinja' has changed; the file of the "
                           "evaluation data has changed"));
    assert_non_null(strstr(scene.programs[0].output, "resuming from"));

    shell(&scene, "rm -r out/checkpoint-4");
    start(&scene, "train", "resume_from_checkpoint true verify_inputs full");
    expect(&scene, 0, NULL, "every byte");
    shell(&scene,
          "grep -Eq '\"tensor .*: \"[0-9a-f]{16} [0-9a-f]{16}\"' out/checkpoint-4/training_state.json");
    shell(&scene, "rm -r out/checkpoint-4");
    shell(&scene, FLIP("b/model/model.safetensors", "$(($(stat -c %s b/model/model.safetensors) - 1))"));
    start(&scene, "train", "resume_from_checkpoint true");
    expect(&scene, TT_EXIT_DATA, "' of 'model.safetensors' differs between ", "one base");
    shell(&scene, "cp b/model/model.safetensors a/model/model.safetensors");
    start(&scene, "train", "resume_from_checkpoint true");
    expect(&scene, TT_EXIT_USAGE, "' of 'model.safetensors' has changed", "both bases");

    /* Machines with folders of their own that resume from checkpoints of their own. */
    shell(&scene, "cp -r out/checkpoint-2 a; cp -r out/checkpoint-2 b; printf ' ' >> "
                  "b/checkpoint-2/trainer_state.json");
    start(&scene, "train", "resume_from_checkpoint checkpoint-2");
    expect(&scene, TT_EXIT_DATA, "'checkpoint-2/trainer_state.json' differs between ", "checkpoints");
    test_workplace_remove(&scene.place);
}

/* Under mpirun settings are compared here too: their files may differ as others do. */
static void mpi(void **state)
{
    (void)state;
    const char *missing = test_mpi_is_missing();
    if (missing != NULL) {
        print_message("skipped: %s\n", missing);
        skip();
    }
    static const struct {
        const char *more[2], *change, *says;
    } cases[] = {
        {{"", ""},
         "sed -i 's/row 7 /row 8 /' b/train.jsonl",
         "the file of the training data differs between "},
        {{"", " --learning_rate 1"}, "true", "setting 'learning_rate' differs between "},
    };
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;
        struct test_program program;
        struct test_words command = {0};
        char scripts[2][3000];
        begin(&scene);
        shell(&scene, cases[i].change);
        for (int q = 0; q < 2; q++)
            snprintf(scripts[q], sizeof scripts[q],
                     "cd '%.600s' && exec '%.600s' train --device cpu --threads 1 --model_name_or_path model "
                     "--dataset_name train.jsonl --max_steps 1 --output_dir '%.600s'%s",
                     scene.machines[q], test_trimtab(), scene.output, cases[i].more[q]);
        test_words_two_ranks(&command, scripts[0], scripts[1]);
        int code = test_program_run(command.list, NULL, &program);
        if (code != TT_EXIT_DATA || strstr(program.output, cases[i].says) == NULL)
            fail_msg("exit %d: %s", code, program.output);
        expect_no_step(&scene);
        test_workplace_remove(&scene.place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training), cmocka_unit_test(machines_are_named),      cmocka_unit_test(evaluation),
        cmocka_unit_test(resuming), cmocka_unit_test(another_blob_of_the_hub), cmocka_unit_test(mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
