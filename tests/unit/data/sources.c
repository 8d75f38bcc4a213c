/* data/sources.h and tt_dataset_load_sources: the files of folders and patterns, mixtures with weights, refusals; masks
 * of pre-tokenized rows that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "data/dataset.h"
#include "data/sources.h"
#include "support/root.h"

static void put_rows(const char *name, int first, int count)
{
    struct tt_str text = {0};
    for (int i = 0; i < count; i++)
        assert_int_equal(tt_str_printf(&text, "{\"input_ids\": [%d, 1, 2]}\n", first + i), TT_OK);
    test_put(name, tt_str_text(&text));
    tt_str_deinit(&text);
}

/* Names of the files below the root, separated by blanks. */
static const char *list(const char *path, const char *split)
{
    static char names[1024];
    struct tt_sources sources = {0};
    char at[2048];
    snprintf(at, sizeof at, "%s/%s", test_root(), path);
    assert_int_equal(tt_sources_add(&sources, at, split, 1), TT_OK);
    names[0] = '\0';
    for (size_t i = 0; i < sources.file_count; i++) {
        if (i > 0) strcat(names, " ");
        strcat(names, sources.files[i].path + strlen(test_root()) + 1);
    }
    assert_int_equal(sources.count, sources.file_count > 0);
    tt_sources_deinit(&sources);
    return names;
}

static void files_of_names(void **state)
{
    (void)state;
    mkdir(test_at("a"), 0777);
    mkdir(test_at("a/data"), 0777);
    mkdir(test_at("a/dev"), 0777);
    assert_string_equal(list("a", "train"), "");
    test_put("a/data/train-00001-of-00002.jsonl.gz", "x");
    test_put("a/data/train-00000-of-00002.jsonl.gz", "x");
    test_put("a/data/README.md", "x");
    assert_string_equal(list("a", "train"),
                        "a/data/train-00000-of-00002.jsonl.gz a/data/train-00001-of-00002.jsonl.gz");
    test_put("a/dev/2.json", "x");
    test_put("a/dev/10.jsonl.zst", "x");
    test_put("a/dev/notes", "x");
    assert_string_equal(list("a", "dev"), "a/dev/10.jsonl.zst a/dev/2.json");
    test_put("a/train-b.jsonl", "x");
    test_put("a/train-a.jsonl", "x");
    test_put("a/training.jsonl", "x");
    assert_string_equal(list("a", "train"), "a/train-a.jsonl a/train-b.jsonl");
    test_put("a/train.json.gz", "x");
    assert_string_equal(list("a", "train"), "a/train.json.gz");
    test_put("a/train.jsonl", "x");
    assert_string_equal(list("a", "train"), "a/train.jsonl");
    assert_string_equal(list("a/train*", ""),
                        "a/train-a.jsonl a/train-b.jsonl a/train.json.gz a/train.jsonl a/training.jsonl");
    assert_string_equal(list("a/[x-z]*", ""), "");
    assert_string_equal(list("a/train.jsonl", ""), "a/train.jsonl");
    test_put("a/odd[1].jsonl", "x"); /* a name that is there is no pattern */
    assert_string_equal(list("a/odd[1].jsonl", ""), "a/odd[1].jsonl");
}

/* One file that has the name of a split, of each kind and compression. */
static void endings(void **state)
{
    (void)state;
    static const char *const kinds[] = {".jsonl", ".json", ".ndjson", ".csv", ".txt", ".parquet", ".arrow"};
    static const char *const packed[] = {"", ".gz", ".zst"};
    mkdir(test_at("kinds"), 0777);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t p = 0; p < sizeof packed / sizeof packed[0]; p++) {
            char name[80];
            snprintf(name, sizeof name, "kinds/dev%s%s", kinds[i], packed[p]);
            test_put(name, "x");
            assert_string_equal(list("kinds", "dev"), name);
            assert_int_equal(unlink(test_at(name)), 0);
        }
}

/* Folders without the usual names are read as `datasets` does. */
static void folders_of_other_names(void **state)
{
    (void)state;
    mkdir(test_at("plain"), 0777);
    test_put("plain/chats-2.jsonl", "x");
    test_put("plain/chats-1.json", "x");
    test_put("plain/README.md", "x");
    assert_string_equal(list("plain", "train"), "plain/chats-1.json plain/chats-2.jsonl");
    assert_string_equal(list("plain", "test"), "");
    assert_string_equal(list("plain", "other"), "");
    test_put("plain/latest.jsonl", "x"); /* no word of its own */
    assert_string_equal(list("plain", "test"), "");
    test_put("plain/my_eval.jsonl", "x");
    test_put("plain/my_training_2.csv", "x");
    assert_string_equal(list("plain", "train"), "plain/my_training_2.csv");
    assert_string_equal(list("plain", "test"), "plain/my_eval.jsonl");
    assert_string_equal(list("plain", "validation"), "");
    mkdir(test_at("model"), 0777);
    test_put("model/config.json", "{}");
    test_put("model/tokenizer.json", "{}");
    assert_string_equal(list("model", "train"), "");
}

static struct tt_data_config ids_config(void)
{
    return (struct tt_data_config){.dataset_text_field = "text",
                                   .dataset_prompt_field = "prompt",
                                   .dataset_completion_field = "completion",
                                   .max_length = 16,
                                   .eval_packing = -1,
                                   .completion_only_loss = -1};
}

static struct tt_dataset *mix(const double *weights, int count, int64_t max, uint64_t seed)
{
    struct tt_data_config config = ids_config();
    struct tt_sources sources = {0};
    struct tt_dataset *dataset = NULL;
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "mix%d.jsonl", i);
        put_rows(name, 1000 * i, 100);
        assert_int_equal(tt_sources_add(&sources, test_at(name), "train", weights[i]), TT_OK);
    }
    const struct tt_dataset_request request = {&sources, &config, NULL, 100000, max, seed};
    assert_int_equal(tt_dataset_load_sources(&request, &dataset), TT_OK);
    tt_sources_deinit(&sources);
    return dataset;
}

/* How often the samples of source `source` are there; *different: how many different ones. */
static int count_of(const struct tt_dataset *dataset, int source, int *different)
{
    int seen[100] = {0}, count = 0;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++) {
        int32_t id = tt_dataset_sample(dataset, i).ids[0];
        if (id / 1000 == source) count += ++seen[id % 1000] > 0;
    }
    *different = 0;
    for (int i = 0; i < 100; i++) *different += seen[i] > 0;
    return count;
}

static void weights(void **state)
{
    (void)state;
    int different;
    struct tt_dataset *dataset = mix((const double[]){1, 2.5, 0.25}, 3, 0, 7);
    assert_int_equal(tt_dataset_count(dataset), 375);
    assert_int_equal(count_of(dataset, 0, &different), 100);
    assert_int_equal(count_of(dataset, 1, &different), 250);
    assert_int_equal(different, 100);
    assert_int_equal(count_of(dataset, 2, &different), 25);
    assert_int_equal(different, 25);
    struct tt_dataset_report report;
    tt_dataset_report(dataset, &report);
    assert_int_equal(report.rows, 300);
    assert_int_equal(report.samples, 375);
    assert_int_equal(report.tokens, 3 * 375);
    /* The same seed chooses the same rows, another one others. */
    struct tt_dataset *same = mix((const double[]){1, 2.5, 0.25}, 3, 0, 7);
    struct tt_dataset *other = mix((const double[]){1, 2.5, 0.25}, 3, 0, 8);
    int equal = 0;
    for (size_t i = 0; i < 375; i++) {
        assert_int_equal(tt_dataset_sample(same, i).ids[0], tt_dataset_sample(dataset, i).ids[0]);
        equal += tt_dataset_sample(other, i).ids[0] == tt_dataset_sample(dataset, i).ids[0];
    }
    assert_true(equal < 375);
    tt_dataset_destroy(dataset);
    tt_dataset_destroy(same);
    tt_dataset_destroy(other);
    dataset = mix((const double[]){1, 1}, 2, 130, 7); /* max_train_samples counts rows of all files */
    assert_int_equal(count_of(dataset, 0, &different), 100);
    assert_int_equal(count_of(dataset, 1, &different), 30);
    tt_dataset_destroy(dataset);
}

static void check_sources(const struct tt_dataset *dataset)
{
    assert_int_equal(tt_dataset_source_count(dataset), 3);
    for (size_t i = 0; i < tt_dataset_count(dataset); i++)
        assert_int_equal(tt_dataset_source(dataset, i), tt_dataset_sample(dataset, i).ids[0] / 1000);
}

/* Samples keep their source, through shuffles and splits in any order. */
static void sources_of_samples(void **state)
{
    (void)state;
    struct tt_dataset *one = mix((const double[]){2}, 1, 0, 7), *held = NULL, *less = NULL;
    assert_int_equal(tt_dataset_source_count(one), 0);
    assert_int_equal(tt_dataset_source(one, 150), 0);
    assert_int_equal(tt_dataset_shuffle(one, 3), TT_OK);
    assert_int_equal(tt_dataset_source_count(one), 0);
    tt_dataset_destroy(one);
    struct tt_dataset *dataset = mix((const double[]){1, 2.5, 0.25}, 3, 0, 7);
    check_sources(dataset);
    assert_int_equal(tt_dataset_split(dataset, 150, 5, false, &held), TT_OK);
    check_sources(dataset);
    check_sources(held);
    assert_int_equal(tt_dataset_shuffle(held, 9), TT_OK);
    check_sources(held);
    assert_int_equal(tt_dataset_shuffle(dataset, 9), TT_OK);
    assert_int_equal(tt_dataset_split(dataset, 20, 5, false, &less), TT_OK);
    check_sources(dataset);
    check_sources(less);
    tt_dataset_destroy(less);
    tt_dataset_destroy(held);
    tt_dataset_destroy(dataset);
}

/* Different first ids. */
static int64_t count_different(const struct tt_dataset *dataset)
{
    bool seen[3000] = {false};
    int64_t count = 0;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++) {
        int32_t id = tt_dataset_sample(dataset, i).ids[0];
        count += !seen[id];
        seen[id] = true;
    }
    return count;
}

/* After a split rows are counted once on each side, in sum and for each source. */
static void check_rows(struct tt_dataset *dataset, struct tt_dataset *held)
{
    int64_t rows[2] = {0}, samples[2] = {0};
    for (int side = 0; side < 2; side++) {
        struct tt_dataset *one = side == 0 ? dataset : held;
        struct tt_dataset_report report;
        size_t count;
        tt_dataset_report(one, &report);
        const struct tt_dataset_part *parts = tt_dataset_parts(one, &count);
        assert_int_equal(count, 2);
        for (size_t i = 0; i < count; i++) {
            rows[side] += parts[i].report.rows;
            samples[side] += parts[i].report.samples;
        }
        assert_int_equal(report.rows, count_different(one));
        assert_int_equal(report.rows, rows[side]);
        assert_int_equal(report.samples, samples[side]);
        assert_int_equal(report.samples, tt_dataset_count(one));
    }
    assert_int_equal(rows[0] + rows[1], 200);
}

/* A row that is held out does not train, however often its source's weight has it. */
static void copies_stay_together(void **state)
{
    (void)state;
    int in_both = 0;
    for (int together = 0; together < 2; together++) {
        struct tt_dataset *dataset = mix((const double[]){1, 2.5}, 2, 0, 7), *held = NULL;
        size_t total = tt_dataset_count(dataset);
        assert_int_equal(tt_dataset_split(dataset, 70, 5, together, &held), TT_OK);
        assert_in_range(tt_dataset_count(held), 70, together ? 72 : 70);
        assert_int_equal(tt_dataset_count(dataset) + tt_dataset_count(held), total);
        if (together) check_rows(dataset, held);
        in_both = 0;
        for (size_t i = 0; i < tt_dataset_count(held); i++)
            for (size_t j = 0; j < tt_dataset_count(dataset); j++)
                in_both += tt_dataset_sample(held, i).ids[0] == tt_dataset_sample(dataset, j).ids[0];
        if (!together) assert_true(in_both > 0);
        tt_dataset_destroy(held);
        tt_dataset_destroy(dataset);
    }
    assert_int_equal(in_both, 0);
    struct tt_dataset *same = NULL, *held = NULL;
    assert_int_equal(tt_dataset_create_random(8, 2, 2, 1, 1, &same), TT_OK); /* a vocabulary of one token */
    assert_int_equal(tt_dataset_split(same, 1, 5, true, &held), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message,
                        "cannot hold out 1 of 8 samples: they are copies of each other");
    tt_dataset_destroy(same);
}

static void labels(void **state)
{
    (void)state;
    struct tt_sources sources = {0};
    struct tt_str text = {0};
    put_rows("label.jsonl", 0, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tt_sources_add(&sources, test_at(i == 1 ? "mix0.jsonl" : "label.jsonl"), "train", 1),
                         TT_OK);
    static const char *const ends[] = {"/label.jsonl", "/mix0.jsonl", "/label.jsonl#2"};
    for (size_t i = 0; i < 3; i++) {
        tt_str_clear(&text);
        assert_int_equal(tt_sources_label(&sources, i, &text), TT_OK);
        assert_true(tt_ends_with(tt_str_text(&text), ends[i]));
    }
    tt_str_deinit(&text);
    tt_sources_deinit(&sources);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part; /* part NULL: it is read */
    } cases[] = {
        {"[{\"path\": \"a\", \"weight\": 2, \"split\": null}]", NULL},
        {"[{\"path\": \"a\", \"split\": \"dev\", \"data_files\": \"*.jsonl\"}]", NULL},
        {"[{\"path\": \"a\", \"name\": \"c\", \"revision\": \"v1\"}]", NULL},
        {"[{\"path\": \"a\", \"revision\": 1}]", "'revision' is not known, or not of its type"},
        {"[{\"path\": \"a\", \"weight\": 0}]", "datasets[0]: weight is 0"},
        {"[{\"path\": \"a\", \"weight\": -1}]", "above 0"},
        {"[{\"path\": \"a\", \"weight\": NaN}]", "weight is nan"},
        {"[{\"path\": \"a\", \"weight\": 1e9}]", "at most 1000"},
        {"[{\"path\": \"a\", \"weight\": \"1\"}]", "'weight' is not known, or not of its type"},
        {"[{\"path\": 1}]", "'path' is not known, or not of its type"},
        {"[{\"weight\": 1}]", "datasets[0] has no path"},
        {"[{\"path\": \"a\", \"columns\": []}]", "'columns' is not known"},
        {"[\"a\"]", "datasets[0] is not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_json json = {0};
        struct tt_mixture_entry entry;
        assert_int_equal(tt_json_parse(cases[i].text, strlen(cases[i].text), "datasets", &json), TT_OK);
        tt_status status = tt_mixture_read(json.root, 0, &entry);
        assert_int_equal(status, cases[i].part == NULL ? TT_OK : TT_ERR_USAGE);
        if (cases[i].part != NULL && strstr(tt_error_last()->message, cases[i].part) == NULL)
            fail_msg("'%s' is not in '%s'", cases[i].part, tt_error_last()->message);
        tt_json_deinit(&json);
    }
    struct tt_sources sources = {0};
    put_rows("twice.jsonl", 0, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tt_sources_add(&sources, test_at("twice.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_sources_check(&sources), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "twice.jsonl' is given twice"));
    assert_non_null(strstr(tt_error_last()->message, "the data file '"));
    for (int i = 2; i < TT_SOURCES_MAX; i++)
        assert_int_equal(tt_sources_add(&sources, test_at("twice.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_sources_add(&sources, test_at("twice.jsonl"), "train", 1), TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message, "a mixture has at most 256 sources");
    tt_sources_deinit(&sources);
}

/* Padding by attention_mask is no part of a sample. */
static void padding_is_stripped(void **state)
{
    (void)state;
    struct tt_data_config config = ids_config();
    static const struct {
        const char *row;
        int32_t first, count, supervised;
        const char *part;
    } cases[] = {
        {"{\"input_ids\": [5, 6, 7, 0, 0], \"attention_mask\": [1, 1, 1, 0, 0]}", 5, 3, 2, NULL},
        {"{\"input_ids\": [0, 0, 5, 6, 7], \"attention_mask\": [0, 0, 1, 1, 1]}", 5, 3, 2, NULL},
        {"{\"input_ids\": [0, 5, 6, 7, 0], \"attention_mask\": [0, 1, 1, 1, 0], \"labels\": [-100, 5, -100, "
         "7, "
         "0]}",
         5, 3, 1, NULL},
        {"{\"input_ids\": [5, 6, 7], \"attention_mask\": [1, 1, 1]}", 5, 3, 2, NULL},
        {"{\"input_ids\": [5, 6, 7], \"attention_mask\": [1, 0, 1]}", 0, 0, 0, "has zeros between ones"},
        {"{\"input_ids\": [5, 6, 7], \"attention_mask\": [1, 2, 1]}", 0, 0, 0, "[1] must be 0 or 1"},
        {"{\"input_ids\": [5, 6, 7], \"attention_mask\": [1, 1]}", 0, 0, 0, "has 2 entries"},
        {"{\"input_ids\": [5, 6, 7], \"attention_mask\": [0, 0, 0]}", 0, 0, 0, "no row that can be used"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_dataset *d = NULL;
        test_put("padded.jsonl", cases[i].row);
        tt_status status = tt_dataset_load(test_at("padded.jsonl"), &config, NULL, 100, 0, &d);
        if (cases[i].part != NULL) {
            assert_int_not_equal(status, TT_OK);
            if (strstr(tt_error_last()->message, cases[i].part) == NULL)
                fail_msg("'%s' is not in '%s'", cases[i].part, tt_error_last()->message);
            continue;
        }
        assert_int_equal(status, TT_OK);
        assert_int_equal(tt_dataset_sample(d, 0).ids[0], cases[i].first);
        assert_int_equal(tt_dataset_sample(d, 0).count, cases[i].count);
        assert_int_equal(tt_dataset_sample(d, 0).supervised_count, cases[i].supervised);
        tt_dataset_destroy(d);
    }
}

static void masks_that_do_not_fit(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"input_ids\": [1, 2], \"assistant_masks\": [1, 2]}", "assistant_masks[1] must be 0 or 1"},
        {"{\"input_ids\": [1, 2], \"assistant_masks\": [1]}", "'assistant_masks' has 1 entries"},
        {"{\"input_ids\": [1, 2]}", "assistant_only_loss is set, but the row has no assistant_masks"},
    };
    struct tt_data_config config = ids_config();
    config.assistant_only_loss = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_dataset *d = NULL;
        test_put("masks.jsonl", cases[i][0]);
        assert_int_equal(tt_dataset_load(test_at("masks.jsonl"), &config, NULL, 100, 0, &d), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, cases[i][1]));
    }
}

/* Every token of such a row would train, where only answers were asked for. */
static void texts_of_no_conversation(void **state)
{
    (void)state;
    static const struct {
        const char *name, *rows;
        int completion_only;
        const char *words; /* of the message or the hint */
    } cases[] = {
        {"a.jsonl", "{\"text\": \"hi\"}", -1,
         "row 1 (line 1): assistant_only_loss is set, and the row is no conversation"},
        {"a.jsonl", "{\"text\": \"hi\"}", -1, "leave assistant_only_loss out"},
        {"a.txt", "hi", -1, "assistant_only_loss is set, and the row is no conversation"},
        {"a.jsonl", "{\"prompt\": \"h\", \"completion\": \"i\"}", 0, "the row is no conversation"},
        {"a.jsonl", "{\"instruction\": \"h\", \"input\": \"\", \"output\": \"i\", \"text\": \"hi\"}", -1,
         "another dataset_text_field"},
    };
    struct tt_data_config config = ids_config();
    config.assistant_only_loss = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_dataset *d = NULL;
        char text[1024];
        config.completion_only_loss = cases[i].completion_only;
        test_put(cases[i].name, cases[i].rows);
        assert_int_equal(tt_dataset_load(test_at(cases[i].name), &config, NULL, 100, 0, &d), TT_ERR_DATA);
        (void)tt_error_format(tt_error_last(), text, sizeof text);
        if (strstr(text, cases[i].words) == NULL) fail_msg("'%s' is not in: %s", cases[i].words, text);
        tt_error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_of_names),
                                       cmocka_unit_test(endings),
                                       cmocka_unit_test(folders_of_other_names),
                                       cmocka_unit_test(weights),
                                       cmocka_unit_test(sources_of_samples),
                                       cmocka_unit_test(copies_stay_together),
                                       cmocka_unit_test(labels),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(padding_is_stripped),
                                       cmocka_unit_test(masks_that_do_not_fit),
                                       cmocka_unit_test(texts_of_no_conversation)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
