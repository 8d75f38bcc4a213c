#include "hub/card.h"

#include <fnmatch.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

enum { CARD_BYTES_MAX = 4 << 20 };

bool tt_hub_is_row_file(const char *path)
{
    static const char *const endings[] = {".parquet", ".jsonl", ".json", ".ndjson", ".csv", ".txt", ".arrow"};
    static const char *const packed[] = {"", ".gz", ".zst", ".xz", ".bz2"};
    const char *name = tt_path_basename(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        for (size_t p = 0; p < sizeof packed / sizeof *packed; p++) {
            size_t bytes = strlen(name), ending = strlen(endings[i]), more = strlen(packed[p]);
            if (bytes > ending + more && tt_ends_with(name, packed[p]) &&
                memcmp(name + bytes - more - ending, endings[i], ending) == 0)
                return true;
        }
    }
    return false;
}

bool tt_hub_matches(const char *pattern, const char *path)
{
    return fnmatch(pattern, path, strstr(pattern, "**") != NULL ? FNM_PERIOD : FNM_PATHNAME | FNM_PERIOD) ==
           0;
}

tt_status tt_hub_card_parse(const char *text, size_t bytes, struct tt_hub_card *card)
{
    *card = (struct tt_hub_card){0};
    if (bytes < 4 || memcmp(text, "---\n", 4) != 0) return TT_OK;
    const char *end = memmem(text + 3, bytes - 3, "\n---", 4);
    if (end == NULL) return TT_OK;
    if (tt_yaml_parse(text + 4, end > text + 4 ? (size_t)(end - text - 3) : 0, "README.md", &card->yaml) ==
        TT_OK)
        return TT_OK;
    tt_hub_card_deinit(card);
    if (tt_error_last()->status == TT_ERR_MEMORY) return TT_ERR_MEMORY;
    tt_error_clear();
    return TT_OK;
}

tt_status tt_hub_card_read(const char *folder, struct tt_hub_card *card)
{
    struct tt_path path;
    struct tt_str text = {0};
    *card = (struct tt_hub_card){0};
    TT_TRY(tt_path_set(&path, folder, "README.md"));
    if (!tt_path_exists(path.text)) return TT_OK;
    tt_status status = tt_file_read(path.text, CARD_BYTES_MAX, &text);
    if (status == TT_OK) status = tt_hub_card_parse(text.data, text.bytes, card);
    tt_str_deinit(&text);
    return status;
}

void tt_hub_card_deinit(struct tt_hub_card *card)
{
    tt_yaml_deinit(&card->yaml);
    *card = (struct tt_hub_card){0};
}

static const char *text_of(const struct tt_yaml_node *node)
{
    return node != NULL && node->kind == TT_YAML_SCALAR ? node->text : NULL;
}

static bool is_word(const struct tt_yaml_node *map, const char *key, const char *word)
{
    const char *text = text_of(tt_yaml_find(map, key));
    return text != NULL && strcmp(text, word) == 0;
}

/* NULL: the card has none, or several and no default. */
static const struct tt_yaml_node *find_config(const struct tt_yaml_node *configs, const char *name)
{
    for (const struct tt_yaml_node *config = configs->first; config != NULL; config = config->next)
        if (name != NULL ? is_word(config, "config_name", name) : is_word(config, "default", "true"))
            return config;
    if (name != NULL) return NULL;
    if (configs->first != NULL && configs->first->next == NULL) return configs->first;
    return find_config(configs, "default");
}

static tt_status fail_unknown(const struct tt_yaml_node *configs, const char *name)
{
    struct tt_str names = {0};
    tt_status status = TT_OK;
    for (const struct tt_yaml_node *config = configs->first; config != NULL && names.bytes < 300;
         config = config->next) {
        const char *text = text_of(tt_yaml_find(config, "config_name"));
        if (status == TT_OK && text != NULL)
            status = tt_str_printf(&names, "%s%.60s", names.bytes > 0 ? ", " : "", text);
    }
    if (status == TT_OK && name != NULL)
        status = tt_fail(TT_ERR_DATA, "the data set has no configuration '%.100s'", name);
    else if (status == TT_OK)
        status = tt_fail(TT_ERR_DATA, "the data set has several configurations and no default");
    tt_hint("name one of its own as NAME:CONFIGURATION: %.300s", tt_str_text(&names));
    tt_str_deinit(&names);
    return status;
}

static tt_status add_text(const char *text, struct tt_hub_patterns *patterns)
{
    if (text == NULL) return TT_OK;
    if (patterns->count == sizeof patterns->text / sizeof *patterns->text)
        return tt_fail(TT_ERR_DATA, "README.md names more than %zu patterns of files", patterns->count);
    if (text[0] == '/' || strstr(text, "..") != NULL || strstr(text, "://") != NULL)
        return tt_fail(TT_ERR_DATA, "README.md names '%.200s', which is no file of the data set", text);
    patterns->text[patterns->count++] = text;
    return TT_OK;
}

/* A text, or a list of texts. */
static tt_status add_paths(const struct tt_yaml_node *node, struct tt_hub_patterns *patterns)
{
    if (node == NULL || node->kind != TT_YAML_LIST) return add_text(text_of(node), patterns);
    for (const struct tt_yaml_node *one = node->first; one != NULL; one = one->next)
        TT_TRY(add_text(text_of(one), patterns));
    return TT_OK;
}

tt_status tt_hub_card_files(const struct tt_hub_card *card, const char *config, const char *split,
                            struct tt_hub_patterns *patterns)
{
    const struct tt_yaml_node *root = card->yaml.root;
    const struct tt_yaml_node *configs =
        root != NULL && root->kind == TT_YAML_MAP ? tt_yaml_find(root, "configs") : NULL;
    patterns->count = 0;
    if (configs == NULL || configs->kind != TT_YAML_LIST) return TT_OK;
    const struct tt_yaml_node *found = find_config(configs, config);
    if (found == NULL) return fail_unknown(configs, config);
    const struct tt_yaml_node *files = found->kind == TT_YAML_MAP ? tt_yaml_find(found, "data_files") : NULL;
    if (files == NULL) return TT_OK;
    bool by_split = files->kind == TT_YAML_LIST && files->first != NULL && files->first->kind == TT_YAML_MAP;
    /* Files without a split are those of train. */
    if (!by_split) return split == NULL || strcmp(split, "train") == 0 ? add_paths(files, patterns) : TT_OK;
    for (const struct tt_yaml_node *one = files->first; one != NULL; one = one->next)
        if (one->kind == TT_YAML_MAP && (split == NULL || is_word(one, "split", split)))
            TT_TRY(add_paths(tt_yaml_find(one, "path"), patterns));
    return TT_OK;
}
