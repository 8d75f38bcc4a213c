/* data/dataset.h: row kinds, file kinds, what is supervised, what is refused and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/dataset.h"
#include "support/allocations.h"
#include "support/root.h"

static struct tt_tokenizer *tokenizer, *ending_tokenizer;
enum { VOCAB = 400 };

/* A byte-level tokenizer of single printable characters (id = code), with "ab" merged (id 300), <s> 0,
 * </s> 1. Its post-processor puts <s> first and, when asked, </s> last. */
static struct tt_tokenizer *make_tokenizer(const char *folder, bool ends)
{
    struct tt_str json = {0};
    assert_int_equal(tt_str_append_text(&json,
                                        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                                        "\"added_tokens\": ["),
                     TT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            tt_str_printf(&json,
                          "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false,"
                          " \"rstrip\": false, \"normalized\": false, \"special\": true}",
                          i > 0 ? ", " : "", i, i == 0 ? "<s>" : "</s>"),
            TT_OK);
    }
    assert_int_equal(
        tt_str_printf(&json,
                      "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                      "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, "
                      "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["
                      "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
                      "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}%s], \"pair\": ["
                      "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
                      "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {"
                      "\"<s>\": {\"id\": \"<s>\", \"ids\": [0], \"tokens\": [\"<s>\"]}, "
                      "\"</s>\": {\"id\": \"</s>\", \"ids\": [1], \"tokens\": [\"</s>\"]}}}, "
                      "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                      "\"trim_offsets\": true, \"use_regex\": true}, \"model\": {\"type\": \"BPE\", "
                      "\"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, "
                      "\"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
                      "\"vocab\": {\"<s>\": 0, \"</s>\": 1, \"\\u0120\": 32, \"\\u010a\": 10, "
                      "\"ab\": 300",
                      ends ? ", {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}" : ""),
        TT_OK);
    for (int c = '!'; c <= '~'; c++) {
        assert_int_equal(tt_str_printf(&json, ", \"%s%c\": %d", c == '"' || c == '\\' ? "\\" : "", c, c),
                         TT_OK);
    }
    assert_int_equal(tt_str_append_text(&json, "}, \"merges\": [\"a b\"]}}"), TT_OK);
    char name[128];
    assert_int_equal(tt_dir_create(test_at(folder)), TT_OK);
    snprintf(name, sizeof name, "%s/tokenizer.json", folder);
    test_put(name, json.data);
    snprintf(name, sizeof name, "%s/tokenizer_config.json", folder);
    test_put(name, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    tt_str_deinit(&json);
    struct tt_tokenizer *made = NULL;
    if (tt_tokenizer_load(test_at(folder), &made) != TT_OK) print_error("%s\n", tt_error_last()->message);
    return made;
}

static int setup(void **state)
{
    if (test_root_create(state) != 0) return -1;
    tokenizer = make_tokenizer("tok", false);
    ending_tokenizer = make_tokenizer("tok-ends", true);
    return tokenizer != NULL && ending_tokenizer != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    tt_tokenizer_destroy(tokenizer);
    tt_tokenizer_destroy(ending_tokenizer);
    return test_root_remove(state);
}

static struct tt_data_config defaults(void)
{
    return (struct tt_data_config){
        .dataset_text_field = "text",
        .dataset_prompt_field = "prompt",
        .dataset_completion_field = "completion",
        .max_length = 1024,
        .packing_strategy = TT_PACKING_BFD,
        .eval_packing = -1,
        .completion_only_loss = -1,
    };
}

static struct tt_dataset *load_with(const char *name, const char *text, const struct tt_data_config *config,
                                    const struct tt_tokenizer *with)
{
    struct tt_dataset *dataset = NULL;
    test_put(name, text);
    if (tt_dataset_load(test_at(name), config, with, VOCAB, 0, &dataset) != TT_OK) {
        fail_msg("%s / %s", tt_error_last()->message, tt_error_last()->context[0]);
    }
    return dataset;
}

static struct tt_dataset *load(const char *name, const char *text)
{
    struct tt_data_config config = defaults();
    return load_with(name, text, &config, tokenizer);
}

/* Ids as "12 34*": a star marks what is supervised. */
static void assert_sample(const struct tt_dataset *dataset, size_t index, const char *wanted)
{
    char text[1024] = "";
    size_t used = 0;
    struct tt_sample sample = tt_dataset_sample(dataset, index);
    int supervised = 0;
    for (int32_t i = 0; i < sample.count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d%s", i > 0 ? " " : "",
                                 (int)sample.ids[i], sample.supervised[i] ? "*" : "");
        supervised += i > 0 && sample.supervised[i];
    }
    assert_string_equal(text, wanted);
    assert_int_equal(sample.supervised_count, supervised);
}

static void prepared_rows(void **state)
{
    (void)state;
    struct tt_dataset *d = load(
        "a.jsonl", "{\"input_ids\": [5, 6, 7]}\n"
                   "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, -100], \"text\": \"x\"}\n"
                   "{\"input_ids\": [5, 6, 7], \"completion_mask\": [0, 0, 1]}\n"
                   "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7], \"completion_mask\": [1, 0, 1]}\n"
                   "{\"input_ids\": [5, 6], \"labels\": [5, -100]}\n"
                   "{\"input_ids\": [5]}\n{\"input_ids\": []}\n"
                   "{\"input_ids\": [8, 9], \"labels\": null}");
    assert_int_equal(tt_dataset_count(d), 5);
    assert_sample(d, 0, "5* 6* 7*");
    assert_sample(d, 1, "5 6* 7");
    assert_sample(d, 2, "5 6 7*");
    assert_sample(d, 3, "5 6 7*");
    assert_sample(d, 4, "8* 9*");
    struct tt_dataset_report report;
    tt_dataset_report(d, &report);
    assert_int_equal(report.rows, 8);
    assert_int_equal(report.samples, 5);
    assert_int_equal(report.without_supervision, 3);
    assert_int_equal(report.tokens, 14);
    assert_int_equal(report.supervised_tokens, 6);
    assert_int_equal(report.longest, 3);
    assert_null(tt_dataset_prompt(d, 0));
    tt_dataset_destroy(d);
    struct tt_data_config config = defaults();
    config.completion_only_loss = 0;
    d = load_with("a.jsonl", "{\"input_ids\": [5, 6, 7], \"completion_mask\": [0, 0, 1]}", &config, NULL);
    assert_sample(d, 0, "5* 6* 7*");
    tt_dataset_destroy(d);
    config.assistant_only_loss = true; /* assistant_masks count with and without it */
    for (int i = 0; i < 2; i++) {
        d = load_with(
            "a.jsonl",
            "{\"input_ids\": [5, 6, 7], \"assistant_masks\": [1, 0, 1], \"completion_mask\": [0, 0, 0]}",
            &config, NULL);
        assert_sample(d, 0, "5* 6 7*");
        tt_dataset_destroy(d);
        config.assistant_only_loss = false;
    }
}

static void text_rows(void **state)
{
    (void)state;
    /* h 104, i 105, a 97, b 98, ab 300. */
    struct tt_dataset *d =
        load("a.jsonl", "{\"text\": \"hi\"}\n{\"text\": \"hi</s>\"}\n{\"text\": \"\"}\n{\"text\": \"aab\"}");
    assert_sample(d, 0, "0* 104* 105* 1*");
    assert_sample(d, 1, "0* 104* 105* 1*");
    assert_sample(d, 2, "0* 1*");
    assert_sample(d, 3, "0* 97* 300* 1*");
    tt_dataset_destroy(d);
    struct tt_data_config config = defaults();
    /* A tokenizer that ends texts itself: one end token, whoever adds it. */
    d = load_with("a.jsonl",
                  "{\"text\": \"hi\"}\n{\"text\": \"hi</s>\"}\n{\"prompt\": \"h\", \"completion\": \"i\"}",
                  &config, ending_tokenizer);
    assert_sample(d, 0, "0* 104* 105* 1*");
    assert_sample(d, 1, "0* 104* 105* 1*");
    assert_sample(d, 2, "0 104 105* 1*");
    tt_dataset_destroy(d);
    config.dataset_text_field = "body";
    config.eos_token = "!";
    d = load_with("a.jsonl", "{\"body\": \"hi\", \"text\": 3}", &config, tokenizer);
    assert_sample(d, 0, "0* 104* 105* 33*");
    tt_dataset_destroy(d);
}

static void completion_rows(void **state)
{
    (void)state;
    struct tt_dataset *d = load("a.jsonl", "{\"prompt\": \"h\", \"completion\": \"i\"}\n"
                                           "{\"prompt\": \"a\", \"completion\": \"b!</s>\"}\n"
                                           "{\"prompt\": \"\", \"completion\": \"i\"}");
    assert_sample(d, 0, "0 104 105* 1*");
    /* "ab" is one token: the border of the prompt lies inside it, and it is not in the ids of the prompt. */
    assert_sample(d, 1, "0 300* 33* 1*");
    assert_sample(d, 2, "0 105* 1*");
    assert_string_equal(tt_dataset_prompt(d, 0), "h");
    assert_string_equal(tt_dataset_completion(d, 1), "b!</s>");
    assert_string_equal(tt_dataset_prompt(d, 2), "");
    struct tt_dataset_report report;
    tt_dataset_report(d, &report);
    assert_int_equal(report.prompt_mismatch, 1);
    tt_dataset_destroy(d);
    struct tt_data_config config = defaults();
    config.completion_only_loss = 0;
    config.dataset_prompt_field = "question";
    config.dataset_completion_field = "answer";
    d = load_with("a.jsonl", "{\"question\": \"h\", \"answer\": \"i\"}", &config, tokenizer);
    assert_sample(d, 0, "0* 104* 105* 1*");
    tt_dataset_destroy(d);
    config.completion_only_loss = -1;
    config.assistant_only_loss = true; /* the completion is the answer */
    d = load_with("a.jsonl", "{\"question\": \"h\", \"answer\": \"i\"}", &config, tokenizer);
    assert_sample(d, 0, "0 104 105* 1*");
    tt_dataset_destroy(d);
}

static void prompt_template(void **state)
{
    (void)state;
    struct tt_data_config config = defaults();
    config.dataset_completion_field = "out";
    config.prompt_template = "{{{q}}}{n}:";
    struct tt_dataset *d = load_with(
        "a.jsonl", "{\"q\": \"h\", \"n\": 3, \"out\": \"i\"}\n{\"q\": \"\", \"n\": true, \"out\": \"i\"}",
        &config, tokenizer);
    assert_string_equal(tt_dataset_prompt(d, 0), "{h}3:");
    assert_string_equal(tt_dataset_prompt(d, 1), "{}true:");
    assert_sample(d, 0, "0 123 104 125 51 58 105* 1*");
    tt_dataset_destroy(d);
    static const char *const bad[] = {"{", "}", "{q", "q}", "{}", "{a{b}}", "{{}"};
    d = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.prompt_template = bad[i];
        assert_int_equal(tt_dataset_load(test_at("a.jsonl"), &config, tokenizer, VOCAB, 0, &d), TT_ERR_USAGE);
        assert_non_null(strstr(tt_error_last()->message, "' has a brace without a {field}"));
    }
    config.prompt_template = "{missing}";
    assert_int_equal(tt_dataset_load(test_at("a.jsonl"), &config, tokenizer, VOCAB, 0, &d), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message,
                        "the row has no field 'missing', which prompt_template names");
    assert_non_null(strstr(tt_error_last()->context[0], "row 1 (line 1)"));
    assert_null(d);
}

static void over_length(void **state)
{
    (void)state;
    static const char rows[] = "{\"input_ids\": [5, 6, 7, 8, 9]}\n{\"input_ids\": [5, 6, 7]}\n"
                               "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, -100, 8]}";
    struct tt_data_config config = defaults();
    struct tt_dataset_report report;
    config.max_length = 3;
    struct tt_dataset *d = load_with("a.jsonl", rows, &config, NULL);
    tt_dataset_report(d, &report);
    assert_int_equal(tt_dataset_count(d), 2);
    assert_sample(d, 0, "5* 6* 7*");
    assert_int_equal(report.truncated, 2);
    assert_int_equal(report.without_supervision, 1);
    assert_int_equal(report.longest, 5);
    tt_dataset_destroy(d);
    config.over_length = TT_OVER_LENGTH_DROP;
    d = load_with("a.jsonl", rows, &config, NULL);
    tt_dataset_report(d, &report);
    assert_int_equal(report.dropped, 2);
    assert_int_equal(report.rows, 3);
    assert_int_equal(tt_dataset_count(d), 1);
    tt_dataset_destroy(d);
    config.over_length = TT_OVER_LENGTH_ERROR;
    d = NULL;
    assert_int_equal(tt_dataset_load(test_at("a.jsonl"), &config, NULL, VOCAB, 0, &d), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "row 1 (line 1): 5 tokens are more than max_length (3)"));
    /* One stream: nothing is lost. */
    config.packing = true;
    config.packing_strategy = TT_PACKING_WRAPPED;
    d = load_with("a.jsonl", rows, &config, NULL);
    assert_int_equal(tt_dataset_count(d), 3);
    assert_sample(d, 0, "5* 6* 7* 8* 9*");
    tt_dataset_destroy(d);
    config.packing = false;
    config.max_length = 0;
    d = load_with("a.jsonl", rows, &config, NULL);
    assert_int_equal(tt_dataset_count(d), 3);
    tt_dataset_destroy(d);
}

static void file_kinds(void **state)
{
    (void)state;
    struct tt_dataset *d = load("a.json", " [ {\"input_ids\": [1, 2]},\n{\"input_ids\": [3,\n4], \"s\": "
                                          "\"],[\\\"}\\\\\"} ,{\"input_ids\": [5, 6]}\n]\n ");
    assert_int_equal(tt_dataset_count(d), 3);
    assert_sample(d, 1, "3* 4*");
    assert_sample(d, 2, "5* 6*");
    tt_dataset_destroy(d);
    d = load("b.json", "\xef\xbb\xbf{\"input_ids\": [1, 2]}\r\n\r\n   \n{\"input_ids\": [3, 4]}\r\n");
    assert_int_equal(tt_dataset_count(d), 2);
    assert_sample(d, 1, "3* 4*");
    tt_dataset_destroy(d);
    struct tt_data_config config = defaults();
    config.max_length = 4;
    d = load_with("c.txt", "hihihihi", &config, tokenizer);
    assert_int_equal(tt_dataset_count(d), 3);
    assert_sample(d, 0, "0* 104* 105* 104*");
    assert_sample(d, 1, "105* 104* 105* 104*");
    assert_sample(d, 2, "105* 1*");
    tt_dataset_destroy(d);
    test_put("d.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4]}\n{broken");
    d = NULL;
    assert_int_equal(tt_dataset_load(test_at("d.jsonl"), &config, NULL, VOCAB, 2, &d), TT_OK);
    assert_int_equal(tt_dataset_count(d), 2);
    tt_dataset_destroy(d);
    d = NULL;
    assert_int_equal(tt_dataset_load(test_at("c.txt"), &config, tokenizer, VOCAB, 2, &d), TT_OK);
    assert_int_equal(tt_dataset_count(d), 2);
    tt_dataset_destroy(d);
}

struct refusal {
    const char *name, *text;
    tt_status status;
    const char *part;
};

static void check_refusals(const struct refusal *cases, size_t count, const struct tt_data_config *config)
{
    uint64_t live = tt_alloc_live();
    for (size_t i = 0; i < count; i++) {
        struct tt_dataset *d = NULL;
        test_put(cases[i].name, cases[i].text);
        tt_status status = tt_dataset_load(test_at(cases[i].name), config, tokenizer, VOCAB, 0, &d);
        const char *message = tt_error_last()->message;
        if (status != cases[i].status || strstr(message, cases[i].part) == NULL)
            fail_msg("case %zu: %s", i, message);
        assert_null(d);
        assert_int_equal(tt_alloc_live(), live);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct refusal cases[] = {
        {"r.jsonl", "", TT_ERR_DATA, "no rows"},
        {"r.json", "[]", TT_ERR_DATA, "no rows"},
        {"r.txt", "", TT_ERR_DATA, "no rows"},
        {"r.json", "[", TT_ERR_DATA, "has no end"},
        {"r.json", "[{\"input_ids\": [1, 2]}", TT_ERR_DATA, "has no end: row 1 begins on line 1"},
        {"r.json", "[{\"input_ids\": [1, 2]}]\n\n x", TT_ERR_DATA, "line 3: text after"},
        {"r.json", "[{\"input_ids\": [1, 2]},\n]", TT_ERR_DATA, "row 2"},
        {"r.json", "[\n{\"input_ids\": [1, 2]},\n{\"a\": 1,\n \"b\" 2}]", TT_ERR_DATA,
         "row 2: line 4, column"},
        {"r.jsonl", "\n{\"input_ids\": [1, 2]}\n\n{\"a\": }", TT_ERR_DATA, "row 2: line 4, column 7"},
        {"r.jsonl", "{\"input_ids\": [1, 2], \"input_ids\": [1, 2]}", TT_ERR_DATA, "duplicate"},
        {"r.jsonl", "{\"text\": \"\xff\"}", TT_ERR_DATA, "row 1: line 1"},
        {"r.txt", "ok \xff", TT_ERR_DATA, "UTF-8"},
        {"r.jsonl", "3", TT_ERR_DATA, "row 1 (line 1): a row must be an object"},
        {"r.jsonl", "{\"a\": 1, \"b\": 2}", TT_ERR_DATA,
         "neither 'messages', nor 'text', nor 'prompt' with 'completion', nor 'input_ids'; it has 'a', 'b'"},
        {"r.jsonl", "{}", TT_ERR_DATA, "it has no fields"},
        {"r.jsonl", "{\"prompt\": \"x\"}", TT_ERR_DATA, "it has 'prompt'"},
        {"r.jsonl", "{\"text\": 3}", TT_ERR_DATA, "'text' must be a string"},
        {"r.jsonl", "{\"prompt\": \"x\", \"completion\": null}", TT_ERR_DATA,
         "'completion' must be a string"},
        {"r.jsonl", "{\"messages\": []}", TT_ERR_DATA, "the conversation has no message"},
        {"r.jsonl", "{\"prompt\": [], \"completion\": []}", TT_ERR_DATA, "'prompt' has no message"},
        {"r.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", TT_ERR_DATA,
         "conversations need a chat template, and the tokenizer has none"},
        {"r.jsonl", "{\"messages\": [{\"content\": \"x\"}]}", TT_ERR_DATA, "messages[0] has no role"},
        {"r.jsonl", "{\"messages\": [\"x\"]}", TT_ERR_DATA, "messages[0] is not an object"},
        {"r.jsonl", "{\"prompt\": [1], \"completion\": \"x\"}", TT_ERR_DATA,
         "'completion' is a text and 'prompt' a list of messages"},
        {"r.jsonl", "{\"prompt\": \"x\", \"chosen\": \"\", \"rejected\": \"\"}", TT_ERR_DATA,
         "row 1 (line 1): the row has a preference ('chosen', 'rejected')"},
        {"r.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 400]}", TT_ERR_DATA,
         "row 2 (line 2): input_ids[1] is 400; the model's vocabulary has ids 0 to 399"},
        {"r.jsonl", "{\"input_ids\": [1, 4294967297]}", TT_ERR_DATA, "input_ids[1] is not a token id"},
        {"r.jsonl", "{\"input_ids\": [1, \"2\"]}", TT_ERR_DATA, "input_ids[1] is not a token id"},
        {"r.jsonl", "{\"input_ids\": 7}", TT_ERR_DATA, "'input_ids' must be a list of integers"},
        {"r.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1]}", TT_ERR_DATA,
         "'labels' has 1 entries, but input_ids has 2"},
        {"r.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 3]}", TT_ERR_UNSUPPORTED,
         "labels[1] is 3: a label must repeat its input id (2) or be -100"},
        {"r.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, null]}", TT_ERR_DATA,
         "labels[1] is not an integer"},
        {"r.jsonl", "{\"input_ids\": [1, 2], \"completion_mask\": [1, 2]}", TT_ERR_DATA,
         "completion_mask[1] must be 0 or 1"},
        {"r.jsonl", "{\"input_ids\": [1]}", TT_ERR_DATA, "no row that can be used"},
        {"r.jsonl", "{\"text\": \"<s>hi\"}", TT_ERR_DATA, "begins with '<s>', which the tokenizer adds"},
        {"r.tsv", "a,b", TT_ERR_UNSUPPORTED, ".jsonl, .json, .csv or .txt"},
        {"r.parquet", "{\"text\": \"a\"}", TT_ERR_DATA, "is not a Parquet file: it does not begin with"},
    };
    struct tt_data_config config = defaults();
    check_refusals(cases, sizeof cases / sizeof cases[0], &config);
    struct tt_dataset *d = NULL;
    assert_int_equal(tt_dataset_load(test_at("absent.jsonl"), &config, tokenizer, VOCAB, 0, &d), TT_ERR_DATA);
    assert_int_equal(tt_dataset_load(test_root(), &config, tokenizer, VOCAB, 0, &d), TT_ERR_DATA);
    test_put("t.jsonl", "{\"text\": \"hi\"}");
    assert_int_equal(tt_dataset_load(test_at("t.jsonl"), &config, NULL, VOCAB, 0, &d), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "text needs a tokenizer"));
    assert_int_equal(tt_dataset_load(test_at("t.jsonl"), &config, tokenizer, 105, 0, &d), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "the tokenizer gives id 105"));
    config.eos_token = "<none>";
    assert_int_equal(tt_dataset_load(test_at("t.jsonl"), &config, tokenizer, VOCAB, 0, &d), TT_ERR_USAGE);
    config.eos_token = NULL;
    config.completion_only_loss = 1;
    assert_int_equal(tt_dataset_load(test_at("t.jsonl"), &config, tokenizer, VOCAB, 0, &d), TT_ERR_DATA);
}

static void use_processors(int count, cpu_set_t *before)
{
    if (count == 0) {
        assert_int_equal(sched_setaffinity(0, sizeof *before, before), 0);
        return;
    }
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof *before, before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, before)) continue;
        CPU_SET(i, &one);
        break;
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

/* One thread and several give the same samples, and name the same broken row. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    struct tt_str text = {0};
    enum { ROWS = 5000 };
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_int_equal(tt_str_printf(&text, "{\"prompt\": \"row %d \", \"completion\": \"%.*s\"}\n", (int)i,
                                       (int)(i % 17), "abcabcabcabcabcab"),
                         TT_OK);
    }
    cpu_set_t before;
    struct tt_dataset *many = load("big.jsonl", text.data);
    use_processors(1, &before);
    struct tt_dataset *one = load("big.jsonl", text.data);
    use_processors(0, &before);
    assert_int_equal(tt_dataset_count(many), ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        struct tt_sample a = tt_dataset_sample(many, i), b = tt_dataset_sample(one, i);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.ids, b.ids, (size_t)a.count * sizeof *a.ids);
        assert_memory_equal(a.supervised, b.supervised, (size_t)a.count);
        assert_string_equal(tt_dataset_prompt(many, i), tt_dataset_prompt(one, i));
        char prompt[32];
        snprintf(prompt, sizeof prompt, "row %zu ", i);
        assert_string_equal(tt_dataset_prompt(one, i), prompt);
    }
    tt_dataset_destroy(many);
    tt_dataset_destroy(one);
    /* Several broken rows; the first is named every time. */
    struct tt_data_config config = defaults();
    char *broken = text.data;
    for (int i = 0; i < 5000; i++) {
        if (i >= 1233 && i % 300 == 33) broken[0] = '[';
        broken = strchr(broken, '\n') + 1;
    }
    test_put("big.jsonl", text.data);
    for (int i = 0; i < 10; i++) {
        struct tt_dataset *d = NULL;
        assert_int_equal(tt_dataset_load(test_at("big.jsonl"), &config, tokenizer, VOCAB, 0, &d),
                         TT_ERR_DATA);
        if (strstr(tt_error_last()->message, "row 1234:") == NULL) fail_msg("%s", tt_error_last()->message);
    }
    tt_str_deinit(&text);
}

static void split_and_shuffle(void **state)
{
    (void)state;
    struct tt_str text = {0};
    enum { ROWS = 100, HELD = 30 };
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(tt_str_printf(&text, "{\"input_ids\": [%d, 7]}\n", i), TT_OK);
    }
    int seen[2][ROWS] = {{0}};
    for (int again = 0; again < 2; again++) {
        struct tt_dataset *d = load("s.jsonl", text.data), *held = NULL;
        assert_int_equal(tt_dataset_split(d, 0, 1, false, &held), TT_ERR_USAGE);
        assert_int_equal(tt_dataset_split(d, ROWS, 1, false, &held), TT_ERR_USAGE);
        assert_int_equal(tt_dataset_split(d, HELD, 1, false, &held), TT_OK);
        assert_int_equal(tt_dataset_count(d), ROWS - HELD);
        assert_int_equal(tt_dataset_count(held), HELD);
        for (size_t i = 0; i < HELD; i++) seen[again][tt_dataset_sample(held, i).ids[0]] += 1;
        for (size_t i = 0; i < ROWS - HELD; i++) {
            seen[again][tt_dataset_sample(d, i).ids[0]] += 2;
            if (i > 0) assert_true(tt_dataset_sample(d, i).ids[0] > tt_dataset_sample(d, i - 1).ids[0]);
        }
        struct tt_dataset_report report;
        tt_dataset_report(d, &report);
        assert_int_equal(report.samples, ROWS - HELD);
        assert_int_equal(report.tokens, 2 * (ROWS - HELD));
        tt_dataset_report(held, &report);
        assert_int_equal(report.samples, HELD);
        assert_int_equal(report.supervised_tokens, HELD);
        tt_dataset_destroy(held);
        tt_dataset_destroy(d);
    }
    int run = 0;
    for (int i = 0; i < ROWS; i++) {
        assert_true(seen[0][i] == 1 || seen[0][i] == 2);
        if (i >= ROWS - HELD) run += seen[0][i] == 1;
    }
    assert_true(run < HELD);
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    struct tt_dataset *d = load("s.jsonl", text.data);
    assert_int_equal(tt_dataset_shuffle(d, 5), TT_OK);
    int order = 0, once[ROWS] = {0};
    for (size_t i = 0; i < ROWS; i++) {
        once[tt_dataset_sample(d, i).ids[0]]++;
        order += tt_dataset_sample(d, i).ids[0] == (int)i;
    }
    for (int i = 0; i < ROWS; i++) assert_int_equal(once[i], 1);
    assert_true(order < 10);
    tt_dataset_destroy(d);
    tt_str_deinit(&text);
}

static void show(void **state)
{
    (void)state;
    struct tt_dataset *d = load("a.jsonl", "{\"prompt\": \"say a \", \"completion\": \"b c\"}\n"
                                           "{\"input_ids\": [72, 105, 33], \"labels\": [-100, 105, -100]}");
    struct tt_str text = {0};
    assert_int_equal(tt_dataset_show(d, 0, tokenizer, "[[", "]]", &text), TT_OK);
    assert_string_equal(text.data, "<s>say a [[b c</s>]]");
    tt_str_clear(&text);
    assert_int_equal(tt_dataset_show(d, 1, tokenizer, "<", ">", &text), TT_OK);
    assert_string_equal(text.data, "H<i>!");
    tt_str_clear(&text);
    assert_int_equal(tt_dataset_show(d, 1, NULL, "<", ">", &text), TT_OK);
    assert_string_equal(text.data, "72<105>33");
    tt_str_deinit(&text);
    tt_dataset_destroy(d);
}

static tt_status load_and_split(void *context)
{
    struct tt_dataset *d = NULL, *held = NULL;
    tt_status status = tt_dataset_load(test_at("f.jsonl"), context, tokenizer, VOCAB, 0, &d);
    if (status == TT_OK) status = tt_dataset_shuffle(d, 1);
    if (status == TT_OK) status = tt_dataset_split(d, 1, 1, false, &held);
    tt_dataset_destroy(held);
    tt_dataset_destroy(d);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    cpu_set_t before;
    use_processors(1, &before);
    test_put("f.jsonl",
             "{\"prompt\": \"h\", \"completion\": \"i\"}\n{\"input_ids\": [5, 6, 7]}\n{\"text\": \"x\"}");
    struct tt_data_config config = defaults();
    test_allocations_fail(load_and_split, &config);
    use_processors(0, &before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_rows),
        cmocka_unit_test(text_rows),
        cmocka_unit_test(completion_rows),
        cmocka_unit_test(prompt_template),
        cmocka_unit_test(over_length),
        cmocka_unit_test(file_kinds),
        cmocka_unit_test(refusals),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(split_and_shuffle),
        cmocka_unit_test(show),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
