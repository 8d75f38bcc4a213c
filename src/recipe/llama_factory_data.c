/* LLaMA-Factory's data sets: dataset_info.json names files and says how their rows are written.
 *
 * Sources: LLaMA-Factory src/llamafactory/data/parser.py (members, defaults), data/README.md (forms of rows). */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "recipe/llama_factory.h"

enum { INFO_MAX = 1 << 24 };

/* Columns and tags that rows may have here. What an absent one is called is the first value. */
static const struct {
    const char *member, *name, *values;
} columns[] = {
    {"columns", "prompt", "instruction"},
    {"columns", "query", "input"},
    {"columns", "response", "output"},
    {"columns", "history", "history"},
    {"columns", "system", "system"},
    {"columns", "tools", "tools"},
    {"columns", "chosen", "chosen"},
    {"columns", "rejected", "rejected"},
    {"columns", "messages", "conversations messages conversation"},
    {"tags", "role_tag", "from role"},
    {"tags", "content_tag", "value content"},
    {"tags", "user_tag", "human user"},
    {"tags", "assistant_tag", "gpt assistant"},
    {"tags", "observation_tag", "observation tool tool_response"},
    {"tags", "function_tag", "function_call tool_call"},
    {"tags", "system_tag", "system"},
};

static tt_status check_columns(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *name,
                               const struct tt_json_value *info)
{
    const char *key;
    const struct tt_json_value *value;
    static const char *const members[] = {"columns", "tags"};
    for (size_t m = 0; m < 2; m++) {
        const struct tt_json_value *object = tt_json_get(info, members[m]);
        if (!tt_json_is_object(object)) continue;
        for (size_t at = 0; tt_json_next_member(object, &at, &key, &value);) {
            bool fits = false, known = false;
            const char *text = tt_json_text(value);
            for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
                if (strcmp(columns[i].member, members[m]) != 0 || strcmp(columns[i].name, key) != 0) continue;
                known = true;
                fits = text != NULL && tt_recipe_is_one(text, columns[i].values);
            }
            if (!fits)
                TT_TRY(tt_recipe_lack(recipe, node,
                                      known ? "data set %s has %s as '%s': write its rows with the "
                                              "usual name"
                                            : "data set %s has %s ('%s'), which is not read",
                                      name, key, text != NULL ? text : ""));
        }
    }
    return TT_OK;
}

/* Members of an entry that choose rows; of preferences of Alpaca's form the prompt is not where we read it. */
static tt_status check_entry(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *name,
                             const struct tt_json_value *info)
{
    static const char *const unread[] = {"subset", "folder", "num_samples", "script_url"};
    const char *form = tt_json_text(tt_json_get(info, "formatting"));
    bool ranking = tt_json_is_true(tt_json_get(info, "ranking"));
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (tt_json_get(info, unread[i]) != NULL)
            TT_TRY(tt_recipe_lack(recipe, node, "data set %s has %s: write a file with these rows", name,
                                  unread[i]));
    if (ranking && (form == NULL || strcmp(form, "alpaca") == 0))
        TT_TRY(tt_recipe_lack(recipe, node,
                              "data set %s prefers answers to an instruction: write its rows with "
                              "conversations, chosen and rejected",
                              name));
    return check_columns(recipe, node, name, info);
}

static tt_status add_entry(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *folder,
                           const char *name, const struct tt_json_value *info,
                           struct tt_recipe_sources *sources)
{
    struct tt_path path;
    const char *hub = tt_json_text(tt_json_get(info, "hf_hub_url"));
    const char *file = tt_json_text(tt_json_get(info, "file_name"));
    const char *split = tt_json_text(tt_json_get(info, "split"));
    TT_TRY(check_entry(recipe, node, name, info));
    if (split != NULL && strcmp(split, "train") == 0) split = NULL;
    if (hub != NULL) return tt_recipe_add_source(sources, hub, split, NULL);
    if (file == NULL)
        return tt_recipe_lack(recipe, node, "data set %s has neither file_name nor hf_hub_url: name its file",
                              name);
    TT_TRY(tt_path_set(&path, folder, file));
    return tt_recipe_add_source(sources, path.text, split, NULL);
}

static tt_status open_info(const struct tt_recipe *recipe, const char **folder, struct tt_str *text,
                           struct tt_json *json)
{
    struct tt_path path;
    *folder = tt_recipe_text(recipe, "dataset_dir");
    if (*folder == NULL) *folder = "data";
    TT_TRY(tt_path_set(&path, *folder, "dataset_info.json"));
    tt_status status = tt_file_read(path.text, INFO_MAX, text);
    if (status == TT_OK) status = tt_json_parse(tt_str_text(text), text->bytes, path.text, json);
    if (status != TT_OK)
        tt_hint("names of data sets are looked up in dataset_info.json of dataset_dir ('data', below the "
                "folder of "
                "the call, where it is not given)");
    return status;
}

static tt_status add_names(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *names,
                           struct tt_recipe_sources *sources)
{
    struct tt_str text = {0};
    struct tt_json json = {0};
    const char *folder;
    tt_status status = TT_OK;
    TT_GO(open_info(recipe, &folder, &text, &json));
    for (const char *at = names + strspn(names, " ,"); *at != '\0'; at += strspn(at, " ,")) {
        char name[200];
        size_t bytes = strcspn(at, " ,");
        (void)snprintf(name, sizeof name, "%.*s", (int)bytes, at);
        const struct tt_json_value *info = tt_json_get(json.root, name);
        if (info != NULL)
            TT_GO(add_entry(recipe, node, folder, name, info, sources));
        else
            TT_GO(
                tt_recipe_lack(recipe, node, "dataset_info.json of '%s' has no data set '%s'", folder, name));
        at += bytes;
    }
out:
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    return status;
}

/* The names as "a,b", of a text or a list. */
static tt_status join_names(const struct tt_yaml_node *node, struct tt_str *names)
{
    if (node->kind == TT_YAML_SCALAR) return tt_str_append_text(names, node->text);
    for (const struct tt_yaml_node *item = node->first; item != NULL; item = item->next)
        if (item->text != NULL) TT_TRY(tt_str_printf(names, "%s,", item->text));
    return TT_OK;
}

static tt_status read_names(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                            struct tt_recipe_sources *sources)
{
    struct tt_str names = {0};
    tt_status status = join_names(node, &names);
    if (status == TT_OK) status = add_names(recipe, node, tt_str_text(&names), sources);
    tt_str_deinit(&names);
    return status;
}

tt_status tt_llama_factory_read_dataset(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    struct tt_recipe_sources sources = {0};
    tt_status status = read_names(recipe, node, &sources);
    if (status == TT_OK) status = tt_recipe_put_sources(recipe, node, &sources);
    tt_str_deinit(&sources.list);
    return status;
}

tt_status tt_llama_factory_read_eval(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    struct tt_recipe_sources sources = {0};
    tt_status status = read_names(recipe, node, &sources);
    if (status == TT_OK && sources.count == 1)
        status = tt_recipe_put(recipe, node, "eval_dataset", sources.only);
    else if (status == TT_OK)
        status = tt_recipe_lack(recipe, node, "eval_dataset: one file or folder");
    tt_str_deinit(&sources.list);
    return status;
}
