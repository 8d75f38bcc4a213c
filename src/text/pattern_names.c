/* Named sets of patterns: general categories, scripts and other properties as defined by the reference library's
 * Oniguruma, which has Unicode 16. PCRE2's tables may be as old as Unicode 14. This file has the code points
 * that versions 15 to 16 added or changed, from Scripts.txt, DerivedCoreProperties.txt and emoji-data.txt;
 * unicode_new.h has the additions to general categories. Other names are refused, because another version of
 * PCRE2 may give them another meaning. */
#include <stdio.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/pattern_class.h"
#include "text/unicode.h"

#define BIT(category) (UINT32_C(1) << UTF8PROC_CATEGORY_##category)
#define LETTERS (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define MARKS (BIT(MN) | BIT(MC) | BIT(ME))
#define NUMBERS (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define SYMBOLS (BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO))

#define SPACE_ITEMS "\\x{9}-\\x{d}\\x{20}\\x{85}\\p{Z}"
#define HEX_ITEMS "0-9A-Fa-f"
#define CASED_LETTER "\\p{Lu}\\p{Ll}\\p{Lt}"
#define NEW_IDEOGRAPHS "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
/* Marks and modifier letters that have the property for other reasons than their category. */
#define ALPHABETIC                                                                                           \
    "\\p{Alphabetic}"                                                                                        \
    "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1dd3}-\\x{1de6}\\x{10d69}"                \
    "\\x{10efc}\\x{11080}-\\x{11081}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}"                     \
    "\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113cd}\\x{11f00}-\\x{11f01}\\x{11f03}"                              \
    "\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f40}\\x{1611e}-\\x{1612e}\\x{1e08f}"
#define LOWERCASE "\\p{Lowercase}\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{1e030}-\\x{1e06d}"
#define NEW_EMOJI                                                                                            \
    "\\x{1f6dc}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"                    \
    "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"                    \
    "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}"

#define SET(set, text, new, ...)                                                                             \
    {                                                                                                        \
        .name = set, .items = text, .added = new, __VA_ARGS__                                                \
    }

/* Oniguruma's names of sets, and their definitions in PCRE2's syntax. */
static const struct named_set {
    const char *name, *items;
    uint32_t added;       /* general categories whose new code points belong to the set */
    uint32_t without_new; /* categories whose new code points do not, although PCRE2 may include them */
    const char *without;
    enum pattern_fold fold;
} named_sets[] = {
    SET("l", "\\p{L}", LETTERS, .fold = PATTERN_FOLD_LETTERS),
    SET("letter", "\\p{L}", LETTERS, .fold = PATTERN_FOLD_LETTERS),
    SET("lu", "\\p{Lu}", BIT(LU)),
    SET("uppercaseletter", "\\p{Lu}", BIT(LU)),
    SET("ll", "\\p{Ll}", BIT(LL)),
    SET("lowercaseletter", "\\p{Ll}", BIT(LL)),
    SET("lt", "\\p{Lt}", BIT(LT)),
    SET("titlecaseletter", "\\p{Lt}", BIT(LT)),
    SET("lm", "\\p{Lm}", BIT(LM)),
    SET("modifierletter", "\\p{Lm}", BIT(LM)),
    SET("lo", "\\p{Lo}", BIT(LO)),
    SET("otherletter", "\\p{Lo}", BIT(LO)),
    SET("m", "\\p{M}", MARKS),
    SET("mark", "\\p{M}", MARKS),
    SET("combiningmark", "\\p{M}", MARKS),
    SET("mn", "\\p{Mn}", BIT(MN), .without = "\\x{1171e}"),
    SET("nonspacingmark", "\\p{Mn}", BIT(MN), .without = "\\x{1171e}"),
    SET("mc", "\\p{Mc}\\x{1171e}", BIT(MC)),
    SET("spacingmark", "\\p{Mc}\\x{1171e}", BIT(MC)),
    SET("me", "\\p{Me}", BIT(ME)),
    SET("enclosingmark", "\\p{Me}", BIT(ME)),
    SET("n", "\\p{N}", NUMBERS, .fold = PATTERN_FOLD_CLOSED),
    SET("number", "\\p{N}", NUMBERS, .fold = PATTERN_FOLD_CLOSED),
    SET("nd", "\\p{Nd}", BIT(ND), .fold = PATTERN_FOLD_CLOSED),
    SET("decimalnumber", "\\p{Nd}", BIT(ND), .fold = PATTERN_FOLD_CLOSED),
    SET("digit", "\\p{Nd}", BIT(ND), .fold = PATTERN_FOLD_CLOSED),
    SET("nl", "\\p{Nl}", BIT(NL)),
    SET("letternumber", "\\p{Nl}", BIT(NL)),
    SET("no", "\\p{No}", BIT(NO)),
    SET("othernumber", "\\p{No}", BIT(NO)),
    SET("p", "\\p{P}", PUNCTUATION, .fold = PATTERN_FOLD_CLOSED),
    SET("punctuation", "\\p{P}", PUNCTUATION, .fold = PATTERN_FOLD_CLOSED),
    SET("punct", "\\p{P}", PUNCTUATION, .fold = PATTERN_FOLD_CLOSED),
    SET("pc", "\\p{Pc}", BIT(PC), .fold = PATTERN_FOLD_CLOSED),
    SET("connectorpunctuation", "\\p{Pc}", BIT(PC)),
    SET("pd", "\\p{Pd}", BIT(PD), .fold = PATTERN_FOLD_CLOSED),
    SET("dashpunctuation", "\\p{Pd}", BIT(PD)),
    SET("ps", "\\p{Ps}", BIT(PS)),
    SET("openpunctuation", "\\p{Ps}", BIT(PS)),
    SET("pe", "\\p{Pe}", BIT(PE)),
    SET("closepunctuation", "\\p{Pe}", BIT(PE)),
    SET("pi", "\\p{Pi}", BIT(PI)),
    SET("initialpunctuation", "\\p{Pi}", BIT(PI)),
    SET("pf", "\\p{Pf}", BIT(PF)),
    SET("finalpunctuation", "\\p{Pf}", BIT(PF)),
    SET("po", "\\p{Po}", BIT(PO)),
    SET("otherpunctuation", "\\p{Po}", BIT(PO)),
    SET("s", "\\p{S}", SYMBOLS, .fold = PATTERN_FOLD_CLOSED),
    SET("symbol", "\\p{S}", SYMBOLS, .fold = PATTERN_FOLD_CLOSED),
    SET("sm", "\\p{Sm}", BIT(SM), .fold = PATTERN_FOLD_CLOSED),
    SET("mathsymbol", "\\p{Sm}", BIT(SM)),
    SET("sc", "\\p{Sc}", BIT(SC), .fold = PATTERN_FOLD_CLOSED),
    SET("currencysymbol", "\\p{Sc}", BIT(SC)),
    SET("sk", "\\p{Sk}", BIT(SK), .fold = PATTERN_FOLD_CLOSED),
    SET("modifiersymbol", "\\p{Sk}", BIT(SK)),
    SET("so", "\\p{So}", BIT(SO)),
    SET("othersymbol", "\\p{So}", BIT(SO)),
    SET("z", "\\p{Z}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("separator", "\\p{Z}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("zs", "\\p{Zs}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("spaceseparator", "\\p{Zs}", 0),
    SET("zl", "\\p{Zl}", 0),
    SET("lineseparator", "\\p{Zl}", 0),
    SET("zp", "\\p{Zp}", 0),
    SET("paragraphseparator", "\\p{Zp}", 0),
    SET("c", "\\p{C}", 0, .without_new = ~BIT(CF)),
    SET("other", "\\p{C}", 0, .without_new = ~BIT(CF)),
    SET("cc", "\\p{Cc}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("control", "\\p{Cc}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("cntrl", "\\p{Cc}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("cf", "\\p{Cf}", BIT(CF)),
    SET("format", "\\p{Cf}", BIT(CF)),
    SET("co", "\\p{Co}", 0),
    SET("privateuse", "\\p{Co}", 0),
    SET("any", "\\x{0}-\\x{10ffff}", 0),
    SET("ascii", "\\x{0}-\\x{7f}", 0),
    SET("blank", "\\x{9}\\p{Zs}", 0, .fold = PATTERN_FOLD_CLOSED),
    SET("space", SPACE_ITEMS, 0, .fold = PATTERN_FOLD_CLOSED),
    SET("whitespace", SPACE_ITEMS, 0, .fold = PATTERN_FOLD_CLOSED),
    SET("xdigit", HEX_ITEMS, 0, .fold = PATTERN_FOLD_CLOSED),
    SET("alpha", ALPHABETIC, LETTERS | BIT(NL)),
    SET("alphabetic", ALPHABETIC, LETTERS | BIT(NL)),
    SET("alnum", ALPHABETIC "\\p{Nd}", LETTERS | BIT(ND) | BIT(NL)),
    SET("upper", "\\p{Uppercase}", BIT(LU)),
    SET("uppercase", "\\p{Uppercase}", BIT(LU)),
    SET("lower", LOWERCASE, BIT(LL)),
    SET("lowercase", LOWERCASE, BIT(LL)),
    SET("word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}", LETTERS | MARKS | BIT(ND) | BIT(NL) | BIT(PC)),
    SET("lc", CASED_LETTER, BIT(LU) | BIT(LL) | BIT(LT)),
    SET("casedletter", CASED_LETTER, BIT(LU) | BIT(LL) | BIT(LT)),
    SET("emoji", "\\p{Emoji}" NEW_EMOJI, 0),
    SET("emojipresentation", "\\p{Emoji_Presentation}" NEW_EMOJI, 0),
    SET("emojimodifier", "\\p{Emoji_Modifier}", 0),
    SET("emojimodifierbase", "\\p{Emoji_Modifier_Base}\\x{1faf7}-\\x{1faf8}", 0),
    SET("emojicomponent", "\\p{Emoji_Component}", 0),
    SET("extendedpictographic", "\\p{Extended_Pictographic}", 0),
    SET("regionalindicator", "\\p{Regional_Indicator}", 0),
    SET("variationselector", "\\p{Variation_Selector}", 0),
    SET("joincontrol", "\\p{Join_Control}", 0),
    SET("quotationmark", "\\p{Quotation_Mark}", 0),
    SET("ideographic", "\\p{Ideographic}\\x{18cff}" NEW_IDEOGRAPHS, 0),
    SET("unifiedideograph", "\\p{Unified_Ideograph}" NEW_IDEOGRAPHS, 0),
    SET("han", "\\p{sc:Han}" NEW_IDEOGRAPHS, 0, .fold = PATTERN_FOLD_CLOSED),
    SET("hani", "\\p{sc:Han}" NEW_IDEOGRAPHS, 0, .fold = PATTERN_FOLD_CLOSED),
};

/* The additions of Unicode 15 to 16 to scripts, by both of their names. */
static const struct new_in_script {
    const char *name, *code, *items;
} new_in_scripts[] = {
    {"arabic", "arab", "\\x{897}\\x{10ec2}-\\x{10ec4}\\x{10efc}-\\x{10eff}"},
    {"balinese", "bali", "\\x{1b4e}-\\x{1b4f}\\x{1b7f}"},
    {"common", "zyyy",
     "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{1cc00}-\\x{1ccf9}"
     "\\x{1cd00}-\\x{1ceb3}\\x{1d2c0}-\\x{1d2d3}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}"
     "\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}"
     "\\x{1fa8f}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}"
     "\\x{1fada}-\\x{1fadc}\\x{1fadf}\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"},
    {"cyrillic", "cyrl", "\\x{1c89}-\\x{1c8a}\\x{1e030}-\\x{1e06d}\\x{1e08f}"},
    {"devanagari", "deva", "\\x{11b00}-\\x{11b09}"},
    {"egyptianhieroglyphs", "egyp", "\\x{1342f}\\x{13439}-\\x{13455}\\x{13460}-\\x{143fa}"},
    {"hiragana", "hira", "\\x{1b132}"},
    {"kannada", "knda", "\\x{cf3}"},
    {"katakana", "kana", "\\x{1b155}"},
    {"khitansmallscript", "kits", "\\x{18cff}"},
    {"khojki", "khoj", "\\x{1123f}-\\x{11241}"},
    {"lao", "laoo", "\\x{ece}"},
    {"latin", "latn", "\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}"},
    {"myanmar", "mymr", "\\x{116d0}-\\x{116e3}"},
};

tt_status pattern_append_range(struct tt_str *items, int32_t first, int32_t last)
{
    if (first == last) return tt_str_printf(items, "\\x{%x}", (unsigned)first);
    return tt_str_printf(items, "\\x{%x}-\\x{%x}", (unsigned)first, (unsigned)last);
}

static tt_status append_visited(void *context, int32_t first, int32_t last)
{
    return pattern_append_range(context, first, last);
}

static bool compiles(const char *pattern)
{
    int error;
    PCRE2_SIZE offset;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* "sc:" is needed: without it PCRE2 would match the script extensions too. */
static tt_status append_script(const struct pattern_reader *reader, const char *name, struct tt_str *items)
{
    char item[96];
    snprintf(item, sizeof item, "\\p{sc:%s}", name);
    bool unassigned = strcmp(name, "unknown") == 0 || strcmp(name, "zzzz") == 0;
    if (unassigned || !compiles(item)) {
        return tt_fail(TT_ERR_UNSUPPORTED, "the property '%s' at byte %zu of a pattern is not supported",
                       name, reader->at);
    }
    TT_TRY(tt_str_append_text(items, item));
    for (size_t i = 0; i < sizeof new_in_scripts / sizeof new_in_scripts[0]; i++) {
        const struct new_in_script *script = &new_in_scripts[i];
        if (strcmp(script->name, name) != 0 && strcmp(script->code, name) != 0) continue;
        return tt_str_append_text(items, script->items);
    }
    return TT_OK;
}

tt_status pattern_append_named_set(const struct pattern_reader *reader, const char *name,
                                   struct pattern_set *set)
{
    for (size_t i = 0; i < sizeof named_sets / sizeof named_sets[0]; i++) {
        const struct named_set *known = &named_sets[i];
        if (strcmp(known->name, name) != 0) continue;
        set->fold = known->fold;
        TT_TRY(tt_str_append_text(&set->items, known->items));
        TT_TRY(tt_unicode_new_ranges(known->added, append_visited, &set->items));
        if (known->without != NULL) TT_TRY(tt_str_append_text(&set->without, known->without));
        return tt_unicode_new_ranges(known->without_new, append_visited, &set->without);
    }
    return append_script(reader, name, &set->items);
}
