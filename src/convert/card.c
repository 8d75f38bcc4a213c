#include "convert/card.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

static const char card_name[] = "README.md";
enum { FRONT_BYTES_MAX = 256 << 10, TEXT_BYTES_MAX = 1 << 20, KEY_BYTES = 96 };

/* ---- Reading ---- */

/* The bytes of all texts, those of aliases each time. */
static size_t count_text(const struct tt_yaml_node *node)
{
    size_t bytes = 0;
    for (; node != NULL && bytes <= TEXT_BYTES_MAX; node = node->next)
        bytes += (node->text != NULL ? strlen(node->text) : 0) + count_text(node->first);
    return bytes;
}

/* Finds the lines between "---" and "---"; false: the file does not begin with such a line. */
static bool find_front(const struct tt_str *head, struct tt_span *front, bool *complete)
{
    const char *text = tt_str_text(head), *line = text, *end;
    *complete = false;
    for (bool first = true; (end = memchr(line, '\n', head->bytes - (size_t)(line - text))) != NULL;
         first = false) {
        size_t bytes = (size_t)(end - line);
        if (bytes > 0 && line[bytes - 1] == '\r') bytes--;
        bool border = bytes == 3 && memcmp(line, "---", 3) == 0;
        if (first && !border) return false;
        if (first) front->data = end + 1;
        if (!first && border) {
            front->bytes = (size_t)(line - front->data);
            *complete = true;
            return true;
        }
        line = end + 1;
    }
    if (front->data == NULL) return false;
    front->bytes = (size_t)(text + head->bytes - front->data);
    return true;
}

static tt_status read_head(const char *folder, struct tt_str *head, bool *whole)
{
    int descriptor = -1;
    uint64_t bytes = 0;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, card_name));
    TT_TRY(tt_file_open_inside(folder, card_name, INT64_MAX, &descriptor, &bytes));
    *whole = bytes <= FRONT_BYTES_MAX;
    if (!*whole) bytes = FRONT_BYTES_MAX;
    tt_status status = tt_str_append_fill(head, ' ', (size_t)bytes);
    if (status == TT_OK) status = tt_file_pread(descriptor, path.text, head->data, (size_t)bytes, 0);
    tt_file_close(descriptor);
    return status;
}

static tt_status parse(const char *folder, struct tt_card *card)
{
    struct tt_str head = {0};
    struct tt_span front = {0};
    struct tt_path path;
    bool whole = false, complete = false;
    tt_status status = TT_OK;
    TT_GO(tt_path_set(&path, folder, card_name));
    TT_GO(read_head(folder, &head, &whole));
    if (!find_front(&head, &front, &complete)) goto out;
    if (!complete && !whole)
        TT_GO(tt_fail(TT_ERR_DATA, "%s: its front matter has no end within %d KiB", path.text,
                      FRONT_BYTES_MAX >> 10));
    /* gguf-py does the same: tabs are no YAML, but stand in real cards. */
    for (char *c = head.data; c != NULL && c < head.data + head.bytes; c++)
        if (*c == '\t') *c = ' ';
    TT_GO(tt_yaml_parse(front.data, front.bytes, path.text, &card->yaml));
    if (card->yaml.root == NULL) goto out;
    if (card->yaml.root->kind != TT_YAML_MAP)
        TT_GO(tt_fail(TT_ERR_DATA, "%s: its front matter is not a map", path.text));
    if (count_text(card->yaml.root) > TEXT_BYTES_MAX)
        TT_GO(tt_fail(TT_ERR_DATA, "%s: the texts of its front matter have more than %d MiB", path.text,
                      TEXT_BYTES_MAX >> 20));
out:
    tt_str_deinit(&head);
    return status;
}

tt_status tt_card_read(const char *folder, struct tt_card *card)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, card_name));
    if (!tt_path_exists(path.text) || tt_path_is_dir(path.text)) return TT_OK;
    tt_status status = parse(folder, card);
    if (status == TT_OK) return TT_OK;
    tt_card_deinit(card);
    if (status == TT_ERR_MEMORY) return status;
    tt_warn("the model card is ignored: %s", tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

void tt_card_deinit(struct tt_card *card)
{
    tt_yaml_deinit(&card->yaml);
    *card = (struct tt_card){0};
}

/* ---- Keys ---- */

/* A scalar that is not null or empty, else NULL. */
static const char *text_of(const struct tt_yaml_node *node)
{
    if (node == NULL || node->kind != TT_YAML_SCALAR || tt_yaml_is_null(node)) return NULL;
    return node->text != NULL && node->text[0] != '\0' ? node->text : NULL;
}

static const struct tt_yaml_node *find(const struct tt_card *card, const char *key)
{
    return card->yaml.root != NULL ? tt_yaml_find(card->yaml.root, key) : NULL;
}

static tt_status put_text(struct tt_gguf_header *header, const char *key, const char *text)
{
    return text != NULL && text[0] != '\0' ? tt_gguf_put_string(header, key, tt_span_of(text)) : TT_OK;
}

/* The first of `names` ("name model_name") that is a text. */
static const char *find_text(const struct tt_card *card, const char *names)
{
    char name[64];
    for (size_t bytes; *names != '\0'; names += bytes + (names[bytes] == ' ')) {
        bytes = strcspn(names, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)bytes, names);
        const char *text = text_of(find(card, name));
        if (text != NULL) return text;
    }
    return NULL;
}

/* The texts of one key or of a list, appended to `texts`. */
static tt_status collect(const struct tt_yaml_node *node, struct tt_span **texts, size_t *count,
                         size_t *capacity)
{
    if (node == NULL || node->kind == TT_YAML_MAP) return TT_OK;
    for (const struct tt_yaml_node *item = node->kind == TT_YAML_LIST ? node->first : node; item != NULL;
         item = item->next) {
        const char *text = text_of(item);
        if (text != NULL) {
            TT_TRY(tt_grow(texts, *count, capacity));
            (*texts)[(*count)++] = tt_span_of(text);
        }
        if (item == node) break;
    }
    return TT_OK;
}

static tt_status put_list(struct tt_gguf_header *header, const struct tt_card *card, const char *key,
                          const char *first, const char *second)
{
    struct tt_span *texts = NULL;
    size_t count = 0, capacity = 0;
    tt_status status = TT_OK;
    TT_GO(collect(find(card, first), &texts, &count, &capacity));
    TT_GO(collect(find(card, second), &texts, &count, &capacity));
    if (count > 0) TT_GO(tt_gguf_put_strings(header, key, texts, count));
out:
    tt_free(texts);
    return status;
}

/* One text or a list of them. */
static tt_status put_license(struct tt_gguf_header *header, const struct tt_card *card)
{
    struct tt_span *texts = NULL;
    size_t count = 0, capacity = 0;
    struct tt_str joined = {0};
    tt_status status = TT_OK;
    TT_GO(collect(find(card, "license"), &texts, &count, &capacity));
    for (size_t i = 0; i < count; i++) {
        if (i > 0) TT_GO(tt_str_append_char(&joined, ','));
        TT_GO(tt_str_append(&joined, texts[i].data, texts[i].bytes));
    }
    TT_GO(put_text(header, "general.license", tt_str_text(&joined)));
    TT_GO(put_text(header, "general.license.name", find_text(card, "license_name")));
    TT_GO(put_text(header, "general.license.link", find_text(card, "license_link")));
out:
    tt_str_deinit(&joined);
    tt_free(texts);
    return status;
}

static tt_status put_member(struct tt_gguf_header *header, const char *kind, size_t index, const char *member,
                            const char *text)
{
    char key[KEY_BYTES];
    (void)snprintf(key, sizeof key, "general.%s.%zu.%s", kind, index, member);
    return put_text(header, key, text);
}

static tt_status put_id(struct tt_gguf_header *header, const char *kind, size_t index, const char *text,
                        int64_t parameters)
{
    struct tt_model_id id = {0};
    tt_status status = TT_OK;
    TT_GO(tt_model_id_read(text, parameters, &id));
    TT_GO(put_member(header, kind, index, "name", tt_str_text(&id.name)));
    TT_GO(put_member(header, kind, index, "version", tt_str_text(&id.version)));
    TT_GO(put_member(header, kind, index, "organization", tt_str_text(&id.organization)));
    TT_GO(put_member(header, kind, index, "repo_url", tt_str_text(&id.url)));
out:
    tt_model_id_deinit(&id);
    return status;
}

/* A model or a data set: its id or page, or a map with the members of the keys. */
static tt_status put_source(struct tt_gguf_header *header, const char *kind, size_t index,
                            const struct tt_yaml_node *node, int64_t parameters)
{
    static const char *const members[] = {"name", "author", "version", "organization", "description",
                                          "url",  "doi",    "uuid",    "repo_url"};
    if (node->kind == TT_YAML_SCALAR) {
        const char *text = text_of(node);
        return text != NULL ? put_id(header, kind, index, text, parameters) : TT_OK;
    }
    for (size_t i = 0; node->kind == TT_YAML_MAP && i < sizeof members / sizeof members[0]; i++)
        TT_TRY(put_member(header, kind, index, members[i], text_of(tt_yaml_find(node, members[i]))));
    return TT_OK;
}

/* general.base_model.* and general.dataset.*: of the first of three keys that the card has. */
static tt_status put_sources(struct tt_gguf_header *header, const struct tt_card *card, const char *kind,
                             const char *const keys[3], int64_t parameters)
{
    const struct tt_yaml_node *node = NULL;
    char name[KEY_BYTES];
    size_t count = 0;
    for (int i = 0; i < 3 && node == NULL; i++) node = find(card, keys[i]);
    if (node == NULL) return TT_OK;
    bool list = node->kind == TT_YAML_LIST, single = node->kind == TT_YAML_SCALAR && !tt_yaml_is_null(node);
    for (const struct tt_yaml_node *item = list ? node->first : NULL; item != NULL; item = item->next)
        count++;
    (void)snprintf(name, sizeof name, "general.%s.count", kind);
    TT_TRY(tt_gguf_put_u32(header, name, single ? 1 : (int64_t)count));
    if (single) return put_source(header, kind, 0, node, parameters);
    count = 0;
    for (const struct tt_yaml_node *item = list ? node->first : NULL; item != NULL; item = item->next)
        TT_TRY(put_source(header, kind, count++, item, parameters));
    return TT_OK;
}

tt_status tt_gguf_put_card(struct tt_gguf_header *header, const struct tt_card *card,
                           const struct tt_card *more, const char *name, int64_t parameters)
{
    static const struct {
        const char *key, *names;
    } texts[] = {
        {"general.author", "author model_author model_creator"},
        {"general.version", "version model_version"},
        {"general.organization", "organization model_organization"},
        {"general.finetune", "finetune model_finetune"},
        {"general.basename", "basename model_basename model_type"},
        {"general.description", "description model_description"},
        {"general.size_label", "size_label model_size_label"},
    };
    static const struct {
        const char *key, *names;
    } pages[] = {
        {"general.source.url", "url model_url"},
        {"general.source.doi", "doi model_doi"},
        {"general.source.uuid", "uuid model_uuid"},
        {"general.source.repo_url", "repo_url model_repo_url"},
    };
    static const char *const models[3] = {"base_model", "base_models", "base_model_sources"};
    static const char *const datasets[3] = {"datasets", "dataset", "dataset_sources"};
    const char *own = find_text(card, "name model_name");
    bool licensed = find(card, "license") != NULL || find(card, "license_name") != NULL;
    bool spoken = find(card, "languages") != NULL || find(card, "language") != NULL;
    TT_TRY(put_text(header, "general.name", own != NULL ? own : name));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        TT_TRY(put_text(header, texts[i].key, find_text(card, texts[i].names)));
    TT_TRY(put_license(header, licensed ? card : more));
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        TT_TRY(put_text(header, pages[i].key, find_text(card, pages[i].names)));
    TT_TRY(put_sources(header, card, "base_model", models, parameters));
    TT_TRY(put_sources(header, card, "dataset", datasets, parameters));
    TT_TRY(put_list(header, card, "general.tags", "tags", "pipeline_tag"));
    return put_list(header, spoken ? card : more, "general.languages", "languages", "language");
}
