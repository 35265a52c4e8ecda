/* Logs of llama.cpp's eval-callback and debug examples, which print every operation of a graph:
 *
 *     ggml_debug:     Qcur-0 = (f32)    MUL_MAT(blk.0.attn_q.weight{8, 8, 1, 1}, attn_norm-0{8, 5, 1, 1}}) = {8, 5, 1,
 * 1}
 *                                          [
 *                                           [
 *                                            [      0.0181,       0.0272, ...,       0.0272],
 *                                            ...,
 *                                           ],
 *                                          ]
 *                                          sum = -1.234567
 *
 * The function's name (ggml_debug, common_debug_cb_eval), the width of numbers and the indentation changed over the
 * years; first only the first three entries of an axis were printed with "..." behind them, later the first and the
 * last three, all of them where there are no more than six. The fourth axis is printed whole, one block and one sum for
 * each entry. Numbers have four decimals. Quantized tensors are named and not printed.
 *
 * Names are those of the graph. Where one pass has a name several times the last operation before the rotation keeps it
 * (a projection with its bias added), the others get theirs into it: Qcur_mul_mat-0, Qcur-0, Qcur_rope-0. Passes after
 * the first make all names begin with step_0/, step_1/ ... */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "base/text.h"
#include "read/call_name.h"
#include "read/corners.h"
#include "read/readers.h"
#include "read/text_plain.h"
#include "read/values.h"

#define AXES      4
#define MAX_WORD  512
#define LOOK_SIZE ((size_t)1 << 20)
#define SHARED    ((uint64_t)1 << 20)

static const char *const callers[] = {"ggml_debug: ", "common_debug_cb_eval: "};

struct operation {
    const char *name, *type, *op;
    size_t name_size, type_size, op_size;
    uint64_t ne[AXES];
    size_t line_end;
};

/* One printed axis: entries seen, and how many stood before the dots. */
struct axis {
    uint64_t count, head;
    bool known, dots;
    uint64_t now, now_head; /* of the list that is open */
    bool now_dots;
};

struct printed {
    struct ts_tensor *tensor;
    const char *op;
    uint64_t pass;
};

struct log {
    struct ts_input *input;
    struct ts_bundle *bundle;
    struct ts_values *values;
    const char *text;
    size_t size;
    struct printed *list; /* one for each tensor, in order */
    size_t count, room;
    const char *first_name, *first_op;
    uint64_t pass;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* "3, 5, 1, 1" up to '}' */
static bool read_ne(const char *text, const char *end, uint64_t ne[AXES])
{
    unsigned axis = 0;
    for (unsigned i = 0; i < AXES; i++)
        ne[i] = 1;
    while (text < end && axis < AXES) {
        struct ts_number number;
        size_t used;
        while (text < end && (is_blank(*text) || *text == ','))
            text++;
        used = ts_number_scan(text, (size_t)(end - text), false, &number);
        if (!used || !number.is_integer || number.integer < 0)
            return false;
        ne[axis++] = (uint64_t)number.integer;
        text += used;
        if (text < end && *text == '}')
            return true;
    }
    return false;
}

/* The line [from, end) says an operation, behind whatever a logger put in front. */
static bool read_operation(const char *from, const char *end, struct operation *operation)
{
    const char *name = NULL, *at, *open;
    for (size_t i = 0; i < sizeof callers / sizeof *callers && !name; i++) {
        name = memmem(from, (size_t)(end - from), callers[i], strlen(callers[i]));
        if (name)
            name += strlen(callers[i]);
    }
    if (!name)
        return false;
    while (name < end && is_blank(*name))
        name++;
    at = memmem(name, (size_t)(end - name), " = (", 4);
    if (!at || at == name || at - name > MAX_WORD)
        return false;
    operation->name = name;
    operation->name_size = (size_t)(at - name);
    operation->type = at += 4;
    at = memchr(at, ')', (size_t)(end - at));
    if (!at || at - operation->type > 64)
        return false;
    operation->type_size = (size_t)(at - operation->type);
    for (at++; at < end && is_blank(*at); at++)
        ;
    operation->op = at;
    at = memchr(at, '(', (size_t)(end - at));
    if (!at || at - operation->op > 64)
        return false;
    operation->op_size = (size_t)(at - operation->op);
    for (open = end; open > at && open[-1] != '{'; open--)
        ;
    return open > at && read_ne(open, end, operation->ne);
}

/* The next operation from *at on; *at moves behind its line. */
static bool next_operation(const struct log *log, size_t *at, struct operation *operation)
{
    while (*at < log->size) {
        const char *from = log->text + *at, *end = memchr(from, '\n', log->size - *at);
        if (!end)
            end = log->text + log->size;
        *at = (size_t)(end - log->text) + (end < log->text + log->size);
        operation->line_end = *at;
        if (read_operation(from, end, operation))
            return true;
    }
    return false;
}

static bool close_axis(struct axis *axis)
{
    const bool same = !axis->known || (axis->count == axis->now && axis->dots == axis->now_dots &&
                                       (!axis->dots || axis->head == axis->now_head));
    axis->known = true;
    axis->count = axis->now;
    axis->dots = axis->now_dots;
    axis->head = axis->now_dots ? axis->now_head : axis->now;
    axis->now = 0;
    axis->now_dots = false;
    return same;
}

static size_t escape_length(const char *text, size_t left)
{
    size_t length = 2;
    if (left < 3 || text[0] != '\033' || text[1] != '[')
        return 0;
    while (length < left && (isdigit((unsigned char)text[length]) || text[length] == ';'))
        length++;
    return length < left ? length + 1 : length;
}

static enum ts_status fail_at(const struct log *log, size_t at, const char *what, struct ts_error *error)
{
    return ts_fail(error, TS_ERR_FORMAT, at, "line %" PRIu64 ": %s", ts_plain_line(log->text, at), what);
}

/* Reads the blocks of one tensor from *at on: as many as its fourth axis has entries. *printed is false when something
 * else than a block follows. axes[0] is the fastest, as ggml counts. */
static enum ts_status read_blocks(struct log *log, size_t *at, const struct operation *operation, struct axis axes[3],
                                  bool *printed, struct ts_error *error)
{
    const char *text = log->text;
    unsigned depth = 0;
    uint64_t blocks = 0;
    *printed = false;
    memset(axes, 0, 3 * sizeof *axes);
    while (*at < log->size) {
        const char c = text[*at];
        const size_t left = log->size - *at, escape = escape_length(text + *at, left);
        struct ts_number number;
        size_t used;
        if (escape || c == '\n' || c == ',' || is_blank(c)) {
            *at += escape ? escape : 1;
        } else if (c == '[') {
            if (depth == 3)
                return fail_at(log, *at, "brackets nest deeper than three levels", error);
            if (depth)
                axes[3 - depth].now++;
            depth++;
            *printed = true;
            ++*at;
        } else if (c == ']') {
            if (depth == 0 || !close_axis(&axes[3 - depth]))
                return fail_at(log, *at, depth ? "its lists differ in length" : "a bracket closes that none opened",
                               error);
            depth--;
            blocks += depth == 0;
            ++*at;
        } else if (depth && left >= 3 && memcmp(text + *at, "...", 3) == 0) {
            axes[3 - depth].now_dots = true;
            axes[3 - depth].now_head = axes[3 - depth].now;
            *at += 3;
        } else if (depth == 3 && (used = ts_number_scan(text + *at, left, true, &number)) != 0 &&
                   (used == left || ts_plain_ends(text[*at + used]))) {
            TS_TRY(ts_values_add(log->values, &number, error));
            axes[0].now++;
            *at += used;
        } else if (depth == 0 && left >= 6 && memcmp(text + *at, "sum = ", 6) == 0) {
            const char *end = memchr(text + *at, '\n', left);
            *at = end ? (size_t)(end - text) : log->size;
            if (blocks >= operation->ne[3])
                return TS_OK;
        } else {
            break;
        }
    }
    if (depth && *at >= log->size)
        return fail_at(log, log->size, "the log ends inside its values", error);
    if (depth)
        return fail_at(log, *at, "is neither a number, a bracket nor dots, inside its values", error);
    return TS_OK;
}

/* From axes as ggml counts them to a shape, at least two long. */
static unsigned rank_of(const uint64_t ne[AXES])
{
    unsigned rank = AXES;
    while (rank > 2 && ne[rank - 1] == 1)
        rank--;
    return rank;
}

static enum ts_status check_axes(const struct operation *operation, const struct axis axes[3], uint64_t count,
                                 uint64_t shown[AXES], struct ts_error *error)
{
    uint64_t product;
    for (unsigned i = 0; i < AXES; i++) {
        shown[i] = i < 3 ? axes[i].count : operation->ne[i];
        if (shown[i] > operation->ne[i] || (shown[i] < operation->ne[i] && !axes[i].dots))
            return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                           "%" PRIu64 " entries are printed along ne[%u], which has %" PRIu64, shown[i], i,
                           operation->ne[i]);
    }
    if (!ts_shape_product(shown, AXES, &product) || product != count)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET,
                       "%" PRIu64 " values are printed, where its brackets have room for %" PRIu64, count, product);
    return TS_OK;
}

static enum ts_status note_printed(struct log *log, struct ts_tensor *tensor, const char *op, struct ts_error *error)
{
    if (log->count == log->room) {
        size_t more = log->room ? log->room * 2 : 64;
        struct printed *moved = ts_reallocarray(log->list, more, sizeof *moved);
        if (!moved)
            return ts_fail_memory(error);
        log->list = moved;
        log->room = more;
    }
    /* the graph begins anew with its first operation */
    if (!log->first_name) {
        log->first_name = tensor->name;
        log->first_op = op;
    } else if (strcmp(log->first_name, tensor->name) == 0 && strcmp(log->first_op, op) == 0) {
        log->pass++;
    }
    log->list[log->count++] = (struct printed){tensor, op, log->pass};
    return TS_OK;
}

static enum ts_status add_tensor(struct log *log, const struct operation *operation, const struct axis axes[3],
                                 const char *name, struct ts_error *error)
{
    struct ts_bundle *bundle = log->bundle;
    uint64_t shown[AXES], shape[AXES], whole[AXES], heads[AXES];
    const unsigned rank = rank_of(operation->ne);
    struct ts_tensor *tensor;
    const char *op = ts_arena_copy(&bundle->arena, operation->op, operation->op_size);
    bool partial;
    if (!op)
        return ts_fail_memory(error);
    TS_TRY(check_axes(operation, axes, log->values->count, shown, error));
    for (unsigned i = 0; i < rank; i++) {
        const unsigned from = rank - 1 - i;
        shape[i] = shown[from];
        whole[i] = operation->ne[from];
        heads[i] = from < 3 ? axes[from].head : whole[i];
    }
    TS_TRY(ts_values_tensor(log->values, bundle, name, shape, rank, &tensor, error));
    TS_TRY(ts_corners_set(bundle, tensor, whole, rank, heads, &partial, error));
    TS_TRY(ts_bundle_attribute(bundle, tensor, "operation", op, error));
    return note_printed(log, tensor, op, error);
}

static enum ts_status read_tensor(struct log *log, size_t *at, const struct operation *operation,
                                  struct ts_error *error)
{
    struct axis axes[3];
    struct ts_error why;
    enum ts_status status;
    bool printed = false;
    const char *name = ts_arena_copy(&log->bundle->arena, operation->name, operation->name_size);
    if (!name)
        return ts_fail_memory(error);
    ts_error_clear(&why);
    ts_values_begin(log->values, TS_F32);
    status = read_blocks(log, at, operation, axes, &printed, &why);
    if (status == TS_OK && !printed) {
        ts_values_cancel(log->values);
        ts_fail(&why, TS_ERR_UNSUPPORTED, TS_NO_OFFSET, "llama.cpp did not print its values (%.*s)",
                (int)operation->type_size, operation->type);
        return ts_bundle_skip_error(log->bundle, log->input->member, name, &why, error);
    }
    if (status == TS_OK)
        status = add_tensor(log, operation, axes, name, &why);
    if (status == TS_OK)
        return TS_OK;
    ts_values_cancel(log->values);
    if (status == TS_ERR_MEMORY || status == TS_ERR_CANCELLED) {
        *error = why;
        return status;
    }
    return ts_bundle_skip_error(log->bundle, log->input->member, name, &why, error);
}

/* "Qcur-0" and "ROPE" -> "Qcur_rope-0" */
static char *with_operation(struct ts_arena *arena, const char *name, const char *op)
{
    size_t length = strlen(name), end = length;
    char *out = ts_arena_printf(arena, "%s_%s", name, op);
    if (!out)
        return NULL;
    while (end > 0 && isdigit((unsigned char)name[end - 1]))
        end--;
    if (end == length || end < 2 || name[end - 1] != '-')
        end = length;
    else
        end--;
    out[end] = '_';
    for (size_t i = 0; op[i]; i++)
        out[end + 1 + i] = (char)tolower((unsigned char)op[i]);
    memcpy(out + end + 1 + strlen(op), name + end, length - end);
    return out;
}

static int by_pass_name_place(const void *a, const void *b)
{
    const struct printed *left = *(const struct printed *const *)a, *right = *(const struct printed *const *)b;
    int order;
    if (left->pass != right->pass)
        return left->pass < right->pass ? -1 : 1;
    order = strcmp(left->tensor->name, right->tensor->name);
    return order ? order : left < right ? -1 : left > right;
}

/* The graph calls every norm "norm" before its weight is multiplied: it is named by what comes out of that, so that
 * norm-0 and norm-0 are attn_norm_unscaled-0 and ffn_norm_unscaled-0. */
static enum ts_status name_norms(struct log *log, struct ts_error *error)
{
    for (size_t i = 0; i + 1 < log->count; i++) {
        struct ts_tensor *norm = log->list[i].tensor;
        const struct printed *behind = &log->list[i + 1];
        if (strncmp(norm->name, "norm", 4) != 0 || (norm->name[4] && norm->name[4] != '-') ||
            !ts_ends_with(log->list[i].op, "NORM") || strcmp(behind->op, "MUL") != 0 ||
            behind->pass != log->list[i].pass)
            continue;
        norm->name = with_operation(&log->bundle->arena, behind->tensor->name, "unscaled");
        if (!norm->name)
            return ts_fail_memory(error);
    }
    return TS_OK;
}

/* A group of one name in one pass. A rotated query or key is named so also where a filter left nothing else of it. */
static enum ts_status name_group(struct log *log, struct printed **group, size_t count, struct ts_error *error)
{
    size_t keeps = count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(group[i]->op, "ROPE") != 0)
            keeps = i;
    for (size_t i = 0; i < count; i++) {
        struct ts_tensor *tensor = group[i]->tensor;
        const bool turned = ts_starts_with(tensor->name, "Qcur") || ts_starts_with(tensor->name, "Kcur");
        if (i == keeps || (count == 1 && !turned))
            continue;
        tensor->name = with_operation(&log->bundle->arena, tensor->name, group[i]->op);
        if (!tensor->name)
            return ts_fail_memory(error);
    }
    for (size_t i = 0; i < count && log->pass; i++) {
        struct ts_tensor *tensor = group[i]->tensor;
        tensor->name = ts_arena_printf(&log->bundle->arena, "step_%" PRIu64 "/%s", group[i]->pass, tensor->name);
        if (!tensor->name)
            return ts_fail_memory(error);
    }
    return TS_OK;
}

static enum ts_status name_all(struct log *log, struct ts_error *error)
{
    struct printed **sorted = calloc(log->count + 1, sizeof(struct printed *));
    enum ts_status status = TS_OK;
    if (!sorted)
        return ts_fail_memory(error);
    for (size_t i = 0; i < log->count; i++)
        sorted[i] = &log->list[i];
    qsort(sorted, log->count, sizeof *sorted, by_pass_name_place);
    for (size_t i = 0; i < log->count && status == TS_OK;) {
        size_t end = i + 1;
        while (end < log->count && sorted[end]->pass == sorted[i]->pass &&
               strcmp(sorted[end]->tensor->name, sorted[i]->tensor->name) == 0)
            end++;
        status = name_group(log, sorted + i, end - i, error);
        i = end;
    }
    free(sorted);
    return status;
}

static enum ts_status read_log(struct log *log, struct ts_error *error)
{
    const size_t start = log->bundle->count;
    struct operation operation;
    size_t at = 0;
    while (next_operation(log, &at, &operation)) {
        TS_TRY(read_tensor(log, &at, &operation, error));
        ts_values_passed(log->values, log->text + at);
    }
    if (log->bundle->count == start)
        return ts_fail(error, TS_ERR_FORMAT, TS_NO_OFFSET, "the log names operations and holds no values");
    TS_TRY(name_norms(log, error));
    TS_TRY(name_all(log, error));
    TS_TRY(ts_call_number(log->bundle, start, error));
    log->bundle->order = "order of the log";
    return TS_OK;
}

static enum ts_status log_read(struct ts_input *input, struct ts_bundle *bundle, struct ts_error *error)
{
    struct log log = {.input = input, .bundle = bundle};
    const struct ts_source *source = input->source;
    enum ts_status status;
    log.text = ts_source_text(source, &log.size);
    log.values = ts_values_new(input->spool, source->path);
    if (!log.values)
        return ts_fail_memory(error);
    log.values->text = source;
    log.values->shared = source->size < SHARED / 4 ? (source->size * 4 + 63) / 64 * 64 : SHARED;
    status = read_log(&log, error);
    ts_values_free(log.values);
    free(log.list);
    return status;
}

/* A line that says an operation, behind the lines that llama.cpp prints while it loads a model. */
static unsigned log_bid(const struct ts_input *input)
{
    struct log log = {0};
    struct operation operation;
    size_t at = 0, look;
    log.text = ts_source_text(input->source, &log.size);
    look = log.size < 64 ? log.size : 64;
    if (log.size > LOOK_SIZE)
        log.size = LOOK_SIZE;
    if (look == 0 || memchr(log.text, '\0', look))
        return 0;
    for (size_t i = 0; i < sizeof callers / sizeof *callers; i++)
        if (memmem(log.text, log.size, callers[i], strlen(callers[i])))
            return next_operation(&log, &at, &operation) ? (unsigned)(8 * strlen(callers[0])) : 0;
    return 0;
}

const struct ts_reader ts_reader_ggml_log = {
    .name = "llama.cpp log",
    .summary = "what llama.cpp's eval-callback and debug examples print, in full or by its corners",
    .bid = log_bid,
    .read = log_read,
};
