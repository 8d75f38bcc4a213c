/* Tokenizers of SentencePiece's kind write U+2581 for each blank, so a text of blanks becomes three times as
 * long. If all later steps only search for U+2581, the blanks are left unchanged, and added tokens, splits and
 * the model treat them as U+2581. */
#include <string.h>

#include "base/alloc.h"
#include "text/tokenizer_impl.h"

/* A Replace of " " by U+2581. */
static bool replaces_blanks(const struct normalizer *step)
{
    return step->kind == NORMALIZE_REPLACE && tt_pattern_is_literal(step->pattern, " ") &&
           strcmp(step->content, TT_METASPACE) == 0;
}

/* A step that finds nothing, because no blank is left. */
static bool splits_at_blanks(const struct pretokenizer *step)
{
    return step->kind == PRETOKENIZE_PATTERN && !step->invert && tt_pattern_is_literal(step->pattern, " ");
}

static bool splits_at_metaspaces(const struct pretokenizer *step)
{
    return step->kind == PRETOKENIZE_CHARACTERS && step->code == TT_METASPACE_CODE;
}

static bool writes_metaspaces(const struct pretokenizer *step)
{
    return step->kind == PRETOKENIZE_METASPACE && step->code == TT_METASPACE_CODE;
}

static bool is_metaspace(int32_t code, int32_t wanted)
{
    return code == wanted || code == ' ';
}

static void remove_step(struct pretokenizers *pretokenizers, size_t at)
{
    struct pretokenizer *step = &pretokenizers->steps[at];
    tt_pattern_destroy(step->pattern);
    memmove(step, step + 1, (--pretokenizers->count - at) * sizeof *step);
}

void tokenizer_leave_blanks(struct tt_tokenizer *tokenizer)
{
    struct normalizers *normalizers = &tokenizer->normalizers;
    struct pretokenizers *pretokenizers = &tokenizer->pretokenizers;
    struct normalizer *last = normalizers->steps + normalizers->count - (normalizers->count > 0);
    bool replaced = normalizers->count > 0 && replaces_blanks(last);
    size_t first = 0;
    while (!replaced && first < pretokenizers->count && !writes_metaspaces(&pretokenizers->steps[first]))
        first++;
    if (!replaced && first == pretokenizers->count) return;
    if (tokenizer->model.byte_level || tokenizer->model.ignore_merges) return;
    for (size_t i = first; i < pretokenizers->count; i++) {
        const struct pretokenizer *step = &pretokenizers->steps[i];
        if (!splits_at_blanks(step) && !splits_at_metaspaces(step) && !writes_metaspaces(step)) return;
    }
    for (size_t i = pretokenizers->count; i-- > first;) {
        struct pretokenizer *step = &pretokenizers->steps[i];
        if (splits_at_blanks(step))
            remove_step(pretokenizers, i);
        else if (splits_at_metaspaces(step))
            step->is_delimiter = is_metaspace;
        else
            step->leaves_blanks = true;
    }
    if (replaced) {
        tt_pattern_destroy(last->pattern);
        tt_free(last->content);
        normalizers->count--;
        added_finder_take_blanks(&tokenizer->normalized);
    }
    tokenizer->model.blank_is_metaspace = true;
}
