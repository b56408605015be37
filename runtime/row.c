/* row.c - reads the operand lists of operator rows ("x:T axes:I? rest:T*").
 *
 * In: such a text and the index of an operand. Out: its name, types, and whether it may be
 * missing or repeated; no list is ever built. */
#include "row.h"

#include <string.h>

#include "dtype.h"

struct word {
    const char *text;
    size_t length;
};

static bool next_word(const char **text, char separator, struct word *word)
{
    while (**text == separator)
        ++*text;
    word->text = *text;
    word->length = 0;
    while (**text != 0 && **text != separator) {
        ++*text;
        word->length++;
    }
    return word->length > 0;
}

static bool word_is(struct word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.text, text, word.length) == 0;
}

/* One name of a dtype or of a group of them; 0 where unknown. */
static uint32_t dtype_set(struct word word)
{
    static const struct {
        const char *name;
        uint32_t set;
    } groups[] = {
        { "all", (UINT32_C(1) << ATTNRUN_DTYPE_COUNT) - 2 },
        { "fixed", ((UINT32_C(1) << ATTNRUN_DTYPE_COUNT) - 2) & ~ATTN_DT(STRING) },
        { "float", ATTN_DT_FLOAT },
        { "int", ATTN_DT_SINT },
        { "uint", ATTN_DT_UINT },
        { "num", ATTN_DT_NUM },
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (word_is(word, groups[i].name))
            return groups[i].set;
    for (int32_t dtype = 1; dtype < ATTNRUN_DTYPE_COUNT; dtype++)
        if (word_is(word, attnrun_dtype_name(dtype)))
            return UINT32_C(1) << dtype;
    return 0;
}

static uint32_t dtype_list(const char *text, size_t length)
{
    uint32_t set = 0;
    char copy[256];
    if (length >= sizeof copy)
        return 0;
    memcpy(copy, text, length);
    copy[length] = 0;
    const char *rest = copy;
    struct word word;
    while (next_word(&rest, ',', &word)) {
        uint32_t one = dtype_set(word);
        if (one == 0)
            return 0;
        set |= one;
    }
    return set;
}

/* The set that `types` gives for a type variable; 0 where that is not there. */
static uint32_t type_set(const char *types, struct word type_variable)
{
    struct word word;
    while (types != NULL && next_word(&types, ' ', &word)) {
        if (word.length > type_variable.length &&
            word.text[type_variable.length] == '=' &&
            memcmp(word.text, type_variable.text, type_variable.length) == 0)
            return dtype_list(word.text + type_variable.length + 1,
                              word.length - type_variable.length - 1);
    }
    return 0;
}

static void copy_word(char *to, size_t room, struct word word)
{
    size_t n = word.length < room - 1 ? word.length : room - 1;
    memcpy(to, word.text, n);
    to[n] = 0;
}

static void read_type(const attnrun_op_def *row, struct word type,
                      struct attn_operand *operand)
{
    operand->kind = ATTNRUN_TENSOR;
    if (type.length > 5 && type.text[type.length - 1] == ')') {
        if (memcmp(type.text, "seq(", 4) == 0)
            operand->kind = ATTNRUN_SEQUENCE;
        else if (memcmp(type.text, "opt(", 4) == 0)
            operand->kind = ATTNRUN_OPTIONAL;
        else if (memcmp(type.text, "map(", 4) == 0)
            operand->kind = ATTNRUN_MAP;
        else if (memcmp(type.text, "maps(", 5) == 0)
            operand->kind = ATTNRUN_MAP_SEQUENCE;
        size_t prefix = operand->kind == ATTNRUN_MAP_SEQUENCE ? 5 : 4;
        type.text += prefix;
        type.length -= prefix + 1;
    }
    if (word_is(type, "any")) {
        operand->kind = ROW_ANY;
        operand->dtypes = (UINT32_C(1) << ATTNRUN_DTYPE_COUNT) - 2;
        return;
    }
    operand->dtypes = type_set(row->types, type);
    if (operand->dtypes != 0)
        copy_word(operand->type_variable, sizeof operand->type_variable, type);
    else
        operand->dtypes = dtype_list(type.text, type.length);
}

static void read_operand(const attnrun_op_def *row, struct word word,
                         struct attn_operand *operand)
{
    memset(operand, 0, sizeof *operand);
    for (; word.length > 0; word.length--) {
        char mark = word.text[word.length - 1];
        if (mark == '?')
            operand->optional = true;
        else if (mark == '*')
            operand->variadic = operand->optional = true;
        else if (mark == '!')
            operand->mixed = true;
        else
            break;
    }
    const char *colon = memchr(word.text, ':', word.length);
    if (colon == NULL)
        return;
    struct word name = { word.text, (size_t)(colon - word.text) };
    struct word type = { colon + 1, word.length - name.length - 1 };
    copy_word(operand->name, sizeof operand->name, name);
    read_type(row, type, operand);
}

bool attn_row_operand(const attnrun_op_def *row, const char *list, int index,
                      struct attn_operand *operand)
{
    struct word word, last = { NULL, 0 };
    while (list != NULL && next_word(&list, ' ', &word)) {
        last = word;
        if (index-- == 0) {
            read_operand(row, word, operand);
            return true;
        }
    }
    if (last.text == NULL)
        return false;
    read_operand(row, last, operand);
    return operand->variadic;
}

int attn_row_count(const char *list, bool *variadic)
{
    int count = 0;
    struct word word;
    *variadic = false;
    while (list != NULL && next_word(&list, ' ', &word)) {
        count++;
        *variadic = memchr(word.text, '*', word.length) != NULL;
    }
    return count;
}

const struct attn_row *attn_row_read(struct attn_row_table *table, struct attn_pool *pool,
                                     const attnrun_op_def *op)
{
    const uint64_t hash = (uintptr_t)op * UINT64_C(0x9E3779B97F4A7C15);
    struct attn_row **slot = &table->slots[hash >> 56];
    for (struct attn_row *row = *slot; row != NULL; row = row->next)
        if (row->op == op)
            return row;
    struct attn_row *made = attn_pool_alloc(pool, (int64_t)sizeof *made);
    bool variadic;
    const int n_in = attn_row_count(op->inputs, &variadic);
    const int n_out = attn_row_count(op->outputs, &variadic);
    struct attn_operand *operands =
        attn_pool_alloc(pool, (n_in + n_out) * (int64_t)sizeof *operands);
    if (made == NULL || operands == NULL)
        return NULL;
    for (int i = 0; i < n_in; i++)
        attn_row_operand(op, op->inputs, i, &operands[i]);
    for (int i = 0; i < n_out; i++)
        attn_row_operand(op, op->outputs, i, &operands[n_in + i]);
    *made = (struct attn_row){ .op = op,
                               .in = operands,
                               .out = operands + n_in,
                               .n_in = n_in,
                               .n_out = n_out,
                               .next = *slot };
    *slot = made;
    return made;
}

static attn_status row_check_list(const attnrun_op_def *row, const char *list)
{
    bool variadic;
    int count = attn_row_count(list, &variadic);
    for (int i = 0; i < count; i++) {
        struct attn_operand operand;
        attn_row_operand(row, list, i, &operand);
        if (operand.dtypes == 0 || operand.name[0] == 0)
            return attn_fail(ATTNRUN_E_USAGE,
                             "operator row %s-%d: operand %d of '%s' is malformed",
                             attn_quote(row->name), row->since, i, list);
        if (operand.variadic && i + 1 < count)
            return attn_fail(ATTNRUN_E_USAGE,
                             "operator row %s-%d: only the last can be '*'",
                             attn_quote(row->name), row->since);
    }
    return ATTNRUN_OK;
}

/* The size of the member of the args struct that an attribute of a kind is parsed into,
 * and to what it is aligned; 0 where the kind is unknown. */
static size_t member_bytes(int32_t kind, size_t *align)
{
#define MEMBER(kind, type)                                                               \
    case kind:                                                                           \
        *align = _Alignof(type);                                                         \
        return sizeof(type)
    switch (kind) {
        MEMBER(ATTNRUN_ATTR_INT, int64_t);
        MEMBER(ATTNRUN_ATTR_FLOAT, float);
        MEMBER(ATTNRUN_ATTR_STRING, attnrun_string);
        MEMBER(ATTNRUN_ATTR_ENUM, int32_t);
        MEMBER(ATTNRUN_ATTR_INTS, attnrun_ints);
        MEMBER(ATTNRUN_ATTR_FLOATS, attnrun_floats);
        MEMBER(ATTNRUN_ATTR_STRINGS, attnrun_strings);
        MEMBER(ATTNRUN_ATTR_TENSOR, attnrun_tensor);
        MEMBER(ATTNRUN_ATTR_GRAPH, int32_t);
        MEMBER(ATTNRUN_ATTR_TYPE, attnrun_type);
    default:
        return 0;
    }
#undef MEMBER
}

static bool attr_is_right(const attnrun_op_def *row, const attnrun_attr_def *attr)
{
    size_t align, bytes = member_bytes(attr->kind, &align);
    if (attr->name == NULL || (attr->flags & ~(uint32_t)ATTNRUN_ATTR_REQUIRED) != 0)
        return false;
    if (attr->kind == ATTNRUN_ATTR_IGNORED)
        return true;
    return bytes > 0 && bytes <= row->args_bytes &&
           attr->offset <= row->args_bytes - bytes && attr->offset % align == 0 &&
           (attr->kind != ATTNRUN_ATTR_ENUM || attr->text != NULL);
}

enum {
    KNOWN_FLAGS = ATTNRUN_OP_DYNAMIC | ATTNRUN_OP_IMPURE | ATTNRUN_OP_GRAPHS |
    ATTNRUN_OP_NO_PROMOTION
};

attn_status attn_row_check(const attnrun_op_def *row)
{
    if (row->name == NULL || row->name[0] == 0 || row->domain == NULL ||
        row->infer == NULL || row->since < 1 || row->inputs == NULL ||
        row->outputs == NULL)
        return attn_fail(
            ATTNRUN_E_USAGE,
            "an operator row needs domain, name, since, inputs, outputs, infer");
    if ((row->flags & ~KNOWN_FLAGS) != 0 || (row->storage_in & 1) != 0)
        return attn_fail(
            ATTNRUN_E_USAGE,
            "operator row %s-%d: flags %#x, storage_in %#x: expected those of "
            "attnrun.h, and not bit 0 of storage_in",
            attn_quote(row->name), row->since, row->flags, row->storage_in);
    TRY(row_check_list(row, row->inputs));
    TRY(row_check_list(row, row->outputs));
    for (const attnrun_attr_def *a = row->attrs; a != NULL && a->kind != ATTNRUN_ATTR_END;
         a++)
        if (!attr_is_right(row, a))
            return attn_fail(ATTNRUN_E_USAGE,
                             "operator row %s-%d: a malformed attribute row",
                             attn_quote(row->name), row->since);
    return ATTNRUN_OK;
}
