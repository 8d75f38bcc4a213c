/* Compares the identities of runs (resume.h), also with those of earlier versions. */
#include <string.h>

#include "optim/optimizer.h"
#include "run/resume.h"

enum { CHANGES_SHOWN = 6, WORDS_MAX = 16 };

/* Choices that versions before the words wrote as numbers: number n is the n-th word. Frozen, because these numbers lie
 * in checkpoints: a word that a choice gets later was never a number. */
static const struct {
    const char *name, *words[WORDS_MAX];
} numbered[] = {
    {"quantized base", {"none", "nf4", "fp4", "int8", "fp8"}},
    {"fp8_products", {"all", "forward", "none", "single"}},
    {"loss_type (dpo)",
     {"sigmoid", "robust", "hinge", "ipo", "exo_pair", "nca_pair", "bco_pair", "sppo_hard", "apo_zero",
      "apo_down", "discopop", "sigmoid_norm"}},
};

/* The word for the number of a choice; NULL: it is none. */
static const char *word_of(const char *name, const struct tt_json_value *value)
{
    if (!tt_json_is_number(value)) return NULL;
    double number = tt_json_number(value);
    for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++)
        for (int n = 0; strcmp(numbered[i].name, name) == 0 && n < WORDS_MAX; n++)
            if (number == n) return numbered[i].words[n];
    return NULL;
}

/* The identity with words in place of such numbers. Owned; NULL without memory. */
static struct tt_json_value *in_words(const struct tt_json_value *identity)
{
    struct tt_json_value *out = tt_json_new_object();
    const char *name;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(identity, &member, &name, &value);) {
        const char *word = word_of(name, value);
        tt_json_set(out, name, word != NULL ? tt_json_new_string(word) : tt_json_copy(value));
    }
    return tt_json_finish(out);
}

static bool is_among(const char *name, const char *const *names)
{
    while (names != NULL && *names != NULL)
        if (strcmp(name, *names++) == 0) return true;
    return false;
}

/* The differences found so far, as "learning_rate was 0.1 and is 0.2", unless there are many already. */
struct changes {
    struct tt_str *text;
    int count;
};

static tt_status add_change(struct changes *changes, const char *name, const struct tt_json_value *old,
                            const struct tt_json_value *value)
{
    struct tt_str was = {0}, is = {0};
    if (++changes->count > CHANGES_SHOWN) return TT_OK;
    tt_status status = tt_json_write(old, 0, true, &was);
    if (status == TT_OK) status = tt_json_write(value, 0, true, &is);
    if (status == TT_OK)
        status = tt_str_printf(changes->text, "%s%s was %s and is %s", changes->count > 1 ? "; " : "", name,
                               tt_str_text(&was), tt_str_text(&is));
    tt_str_deinit(&was);
    tt_str_deinit(&is);
    return status;
}

/* The values that only `one` has, which the other side has not written. */
static tt_status list_unwritten(struct changes *changes, const struct tt_json_value *one,
                                const struct tt_json_value *other, bool one_is_old)
{
    const char *name;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(one, &member, &name, &value);) {
        struct tt_json_value *rest = tt_json_get(other, name) == NULL ? tt_resume_unwritten(name) : NULL;
        if (rest == NULL) continue;
        tt_status status = tt_json_equal(rest, value) ? TT_OK
                                                      : add_change(changes, name, one_is_old ? value : rest,
                                                                   one_is_old ? rest : value);
        tt_json_release(rest);
        TT_TRY(status);
    }
    return TT_OK;
}

/* The same value, or another spelling of it. */
static bool is_same(const char *name, const struct tt_json_value *old, const struct tt_json_value *value)
{
    if (tt_json_equal(old, value)) return true;
    return strcmp(name, "optim") == 0 && tt_json_is_string(old) && tt_json_is_string(value) &&
           tt_optimizer_is_same(tt_json_text(old), tt_json_text(value));
}

static tt_status list_changes(struct changes *changes, const struct tt_json_value *before,
                              const struct tt_json_value *now, const char *const *except)
{
    const char *name;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(now, &member, &name, &value);) {
        const struct tt_json_value *old = tt_json_get(before, name);
        if (old == NULL || is_among(name, except) || is_same(name, old, value)) continue;
        TT_TRY(add_change(changes, name, old, value));
    }
    TT_TRY(list_unwritten(changes, before, now, true));
    TT_TRY(list_unwritten(changes, now, before, false));
    return changes->count > CHANGES_SHOWN ? tt_str_append_text(changes->text, "; ...") : TT_OK;
}

tt_status tt_resume_changes(const struct tt_json_value *before, const struct tt_json_value *now,
                            const char *const *except, struct tt_str *text)
{
    struct changes changes = {text, 0};
    struct tt_json_value *old = in_words(before);
    if (old == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for the settings to compare");
    tt_status status = list_changes(&changes, old, now, except);
    tt_json_release(old);
    return status;
}
