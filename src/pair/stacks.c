/* Owns stacks: one tensor that holds what the other side has in several. Weights of a model that runs its layers in a
 * loop (decoder.layers.mlp.wi_0.kernel of [in, layers, out]), with an axis for experts or without, a cache of keys and
 * values, of one layer or of all. Which axis counts what is told by values; every piece is a pair of its own. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/stacks.h"

/* The parts of a cache of both, in their order. */
#define KEYS   "attn_k_cache"
#define VALUES "attn_v_cache"
#define BOTH   "attn_kv_cache"
/* Without names, tensors up to this error and from this correlation on are one, on so many runs of 16 elements: weights
 * of norms vary little around 1, and their errors say little. */
#define SURE      0.1
#define ALIKE     0.9
#define SURE_RUNS 32
/* More are none. */
#define MOST_EXPERTS 65536
/* Layers of which a stack holds the first or the last: no model has more. */
#define MOST_LAYERS 512

/* A tensor that may be one of a stack's, in the order of what its name says. */
struct called {
    const char *kind, *label, *scope;
    bool expert; /* one of several of its layer */
    size_t index;
};

int ts_by_called(const void *a, const void *b)
{
    const struct ts_called *left = a, *right = b;
    int order = strcmp(left->kind, right->kind);
    order = order ? order : strcmp(left->label, right->label);
    order = order ? order : strcmp(left->scope, right->scope);
    if (order)
        return order;
    if (left->layer != right->layer)
        return left->layer < right->layer ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static bool is_cache(const char *kind)
{
    return strcmp(kind, KEYS) == 0 || strcmp(kind, VALUES) == 0 || strcmp(kind, BOTH) == 0;
}

/* What stands on the other side. */
struct others {
    struct called *list;
    size_t count;
};

static int by_layer(const void *a, const void *b)
{
    const struct ts_stack_member *left = a, *right = b;
    if (left->layer != right->layer)
        return left->layer < right->layer ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

/* The layer in B's numbers. */
static int64_t shifted(const struct ts_pairer *pairer, const struct ts_side *side, size_t index)
{
    const int64_t layer = side->read.list[index].layer;
    return side == &pairer->a && layer >= 0 ? layer - pairer->offset : layer;
}

/* scope is NULL for any. */
static int compare_called(const struct called *one, const char *kind, const char *label, bool expert, const char *scope)
{
    int order = strcmp(one->kind, kind);
    order = order ? order : strcmp(one->label, label);
    order = order ? order : (int)one->expert - (int)expert;
    return order || !scope ? order : strcmp(one->scope, scope);
}

static int by_called(const void *a, const void *b)
{
    const struct called *left = a, *right = b;
    int order = compare_called(left, right->kind, right->label, right->expert, right->scope);
    return order ? order : left->index < right->index ? -1 : left->index > right->index;
}

static void list_others(const struct ts_stack *stack, struct others *others)
{
    const struct ts_side *other = stack->is_b ? &stack->pairer->a : &stack->pairer->b;
    for (size_t i = 0; i < other->count; i++) {
        const struct ts_name *name = &other->read.list[i];
        const bool part = strcmp(name->kind, KEYS) == 0 || strcmp(name->kind, VALUES) == 0;
        if (!other->taken[i] && name->rank < 0 && (name->layer >= 0 || part))
            others->list[others->count++] =
                (struct called){name->kind, other->labels[i], name->scope, name->expert >= 0, i};
    }
    qsort(others->list, others->count, sizeof *others->list, by_called);
}

/* What the entries of a stack are on the other side. */
struct sought {
    bool layers, both, experts; /* both: keys and values */
    bool first, last;           /* of the layers only as many as the stack has */
    bool scopes;                /* parts of the model have to be the same */
};

/* Adds those of one kind; false where sizes say that they are no parts of the stack. */
static bool add_members(struct ts_stack *stack, const struct others *others, const char *kind, unsigned part,
                        const struct sought *sought)
{
    const struct ts_pairer *pairer = stack->pairer;
    const struct ts_side *side = stack->is_b ? &pairer->b : &pairer->a, *other = stack->is_b ? &pairer->a : &pairer->b;
    const struct ts_name *own = &side->read.list[stack->whole];
    const char *label = side->labels[stack->whole], *scope = sought->scopes ? own->scope : NULL;
    const uint64_t count = side->bundle->tensors[stack->whole]->count;
    const bool expert = sought->experts || own->expert >= 0;
    size_t low = 0, high = others->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_called(&others->list[middle], kind, label, expert, scope) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < others->count && compare_called(&others->list[low], kind, label, expert, scope) == 0; low++) {
        const size_t i = others->list[low].index;
        const struct ts_name *name = &other->read.list[i];
        const uint64_t size = other->bundle->tensors[i]->count;
        if (other->taken[i] || (!sought->experts && name->expert != own->expert) ||
            (sought->layers
                 ? name->layer < 0
                 : name->stacked != own->stacked || shifted(pairer, other, i) != shifted(pairer, side, stack->whole)))
            continue;
        if (sought->experts && name->expert >= MOST_EXPERTS)
            return false;
        if (sought->experts) {
            part = (unsigned)name->expert;
            stack->parts = part >= stack->parts ? part + 1 : stack->parts;
        }
        stack->list[stack->count++] = (struct ts_stack_member){i, name->layer, 0, part};
        if (!size || size != other->bundle->tensors[stack->list[0].index]->count ||
            stack->count > (sought->first || sought->last ? MOST_LAYERS : count / size))
            return false;
    }
    return true;
}

/* What the other side has one by one: all layers, both parts, both of all, or the experts of all. *found is false where
 * it is not each of them once. */
static void find_members(struct ts_stack *stack, const struct others *others, const struct sought *sought, bool *found)
{
    const struct ts_pairer *pairer = stack->pairer;
    const struct ts_side *side = stack->is_b ? &pairer->b : &pairer->a, *other = stack->is_b ? &pairer->a : &pairer->b;
    const uint64_t count = side->bundle->tensors[stack->whole]->count;
    uint64_t size;
    stack->count = stack->layers = 0;
    stack->parts = sought->both ? 2 : 0;
    *found = sought->both ? add_members(stack, others, KEYS, 0, sought) && add_members(stack, others, VALUES, 1, sought)

                          : add_members(stack, others, side->read.list[stack->whole].kind, 0, sought);
    *found = *found && stack->count > 0;
    if (!*found)
        return;
    size = other->bundle->tensors[stack->list[0].index]->count;
    qsort(stack->list, stack->count, sizeof *stack->list, by_layer);
    if (sought->first || sought->last) {
        const size_t entries = (size_t)(count / size);
        *found = entries > 0 && entries < stack->count;
        if (*found && sought->last)
            memmove(stack->list, &stack->list[stack->count - entries], entries * sizeof *stack->list);
        stack->count = *found ? entries : stack->count;
    }
    for (size_t i = 0; i < stack->count && *found; i++) {
        struct ts_stack_member *member = &stack->list[i];
        const bool first = i == 0 || member->layer != member[-1].layer;
        *found = first || member->part != member[-1].part;
        stack->layers += first;
        member->entry = stack->layers - 1;
    }
    *found = *found && (!stack->parts || stack->count == stack->parts * stack->layers) &&
             (count / size * size == count || is_cache(side->read.list[stack->whole].kind));
    if (!sought->layers)
        stack->layers = 0;
}

/* A way to count the members along axes of the stack, if sizes allow it. A cache may have room for more tokens. */
static bool is_way(const struct ts_stack *stack, const struct ts_tensor *whole, const struct ts_tensor *piece,
                   struct ts_stack_way *way)
{
    const struct ts_pairer *pairer = stack->pairer;
    const struct ts_name *own = &(stack->is_b ? &pairer->b : &pairer->a)->read.list[stack->whole];
    uint64_t entries = 1;
    if (way->layer_axis == way->part_axis || (way->layer_axis == TS_NO_AXIS) != !stack->layers ||
        (way->part_axis == TS_NO_AXIS) != !stack->parts)
        return false;
    if (stack->layers) {
        const uint64_t size = whole->shape[way->layer_axis];
        const int64_t last = stack->list[stack->count - 1].layer;
        way->by_number = size != stack->layers;
        if (size < stack->layers || (way->by_number && (uint64_t)last >= size))
            return false;
        entries = size;
    }
    if (stack->parts && whole->shape[way->part_axis] != stack->parts)
        return false;
    entries *= stack->parts ? stack->parts : 1;
    way->roomy = whole->count / entries > piece->count && is_cache(own->kind);
    return way->roomy || whole->count == entries * piece->count;
}

/* The piece that a member stands against. */
static bool take(const struct ts_stack_way *way, const struct ts_stack_member *member, const struct ts_tensor *whole,
                 struct ts_arena *arena, struct ts_view *out)
{
    const unsigned axes[2] = {way->layer_axis, way->part_axis};
    const uint64_t entries[2] = {way->by_number ? (uint64_t)member->layer : member->entry, member->part};
    uint64_t shape[TS_MAX_RANK];
    unsigned rank = 0;
    if (!ts_view_of(whole, arena, out))
        return false;
    for (int i = 0; i < 2; i++)
        if (axes[i] != TS_NO_AXIS && !ts_view_slice(out, axes[i], entries[i], 1, 1, arena, out))
            return false;
    for (unsigned i = 0; i < whole->rank; i++)
        if (i != axes[0] && i != axes[1])
            shape[rank++] = whole->shape[i];
    return ts_view_reshape(out, shape, rank, arena, out);
}

/* Whether two tensors are one beyond doubt: in the layout that was found, or with what converters do to this kind. */
static enum ts_status look_closely(const struct ts_pairer *pairer, const char *kind, struct ts_alignment *alignment,
                                   bool *agrees, struct ts_error *error)
{
    struct ts_turn turns[TS_MAX_TURNS];
    size_t expected, count = ts_layout_list_turns(pairer, kind, &alignment->a, turns, &expected);
    enum ts_status status = TS_OK;
    *agrees = false;
    for (size_t i = 0; i < count && status == TS_OK && !*agrees; i++) {
        const struct ts_view *a = &alignment->a, *b = &alignment->b;
        struct ts_agreement agreement;
        struct ts_view turned;
        struct ts_arena trial; /* a view of many heads has many parts */
        ts_arena_init(&trial, (size_t)64 << 20);
        if (ts_layout_turn(&turns[i], turns[i].on_b ? b : a, &trial, &turned)) {
            status = ts_agree(turns[i].on_b ? a : &turned, turns[i].on_b ? &turned : b, SURE_RUNS, &agreement, error);
            *agrees = status == TS_OK && agreement.correlation > ALIKE && agreement.error < SURE;
            alignment->error = *agrees ? agreement.error : alignment->error;
        }
        ts_arena_release(&trial);
    }
    return status;
}

/* How many of some members agree with their pieces. */
static enum ts_status look(struct ts_stack *stack, struct ts_stack_way *way, struct ts_error *error)
{
    struct ts_pairer *pairer = stack->pairer;
    const struct ts_side *side = stack->is_b ? &pairer->b : &pairer->a, *other = stack->is_b ? &pairer->a : &pairer->b;
    const size_t looks = stack->count < TS_STACK_LOOKS ? stack->count : TS_STACK_LOOKS;
    enum ts_status status = TS_OK;
    way->agreeing = 0;
    way->agreeing_parts = 0;
    way->error = 0;
    for (size_t i = 0; i < looks && status == TS_OK; i++) {
        const struct ts_stack_member *member = &stack->list[looks > 1 ? i * (stack->count - 1) / (looks - 1) : 0];
        const size_t a = stack->is_b ? member->index : stack->whole, b = stack->is_b ? stack->whole : member->index;
        struct ts_align_hints hints = ts_layout_hints(pairer, a, b, true);
        struct ts_alignment alignment;
        struct ts_view piece, single;
        struct ts_arena arena;
        bool agrees;
        ts_arena_init(&arena, (size_t)64 << 20);
        hints.lengths = NULL;
        hints.axes_a = hints.axes_b = NULL;
        if (!take(way, member, side->bundle->tensors[stack->whole], &arena, &piece) ||
            !ts_view_of(other->bundle->tensors[member->index], &arena, &single))
            status = ts_fail_memory(error);
        else
            status = ts_align(stack->is_b ? &single : &piece, stack->is_b ? &piece : &single, &hints, &arena,
                              &alignment, error);
        agrees = status == TS_OK && !alignment.problem && !alignment.guess && alignment.error < TS_SAME_TENSOR;
        if (status == TS_OK && stack->by_values && !alignment.problem)
            status = look_closely(pairer, other->read.list[member->index].kind, &alignment, &agrees, error);
        if (agrees) {
            way->agreeing++;
            way->agreeing_parts |= member->part < 8 ? 1U << member->part : 0;
            way->error = fmax(way->error, alignment.error);
        }
        ts_arena_release(&arena);
    }
    return status;
}

static size_t votes_for(const struct ts_stack *stack, const struct ts_stack_way *way)
{
    return (way->layer_axis == TS_NO_AXIS ? 0 : stack->votes[way->layer_axis][0]) +
           (way->part_axis == TS_NO_AXIS ? 0 : stack->votes[way->part_axis][1]);
}

enum ts_status ts_stack_choose(struct ts_stack *stack, struct ts_stack_way *best, bool *tied, bool *any,
                               struct ts_error *error)
{
    const struct ts_pairer *pairer = stack->pairer;
    const struct ts_side *side = stack->is_b ? &pairer->b : &pairer->a, *other = stack->is_b ? &pairer->a : &pairer->b;
    const struct ts_tensor *whole = side->bundle->tensors[stack->whole];
    const struct ts_tensor *piece = other->bundle->tensors[stack->list[0].index];
    *any = *tied = false;
    for (unsigned layer = 0; layer <= TS_NO_AXIS; layer++)
        for (unsigned part = 0; part <= TS_NO_AXIS; part++) {
            struct ts_stack_way way = {.layer_axis = layer, .part_axis = part};
            bool alike;
            if ((layer >= whole->rank && layer != TS_NO_AXIS) || (part >= whole->rank && part != TS_NO_AXIS) ||
                !is_way(stack, whole, piece, &way))
                continue;
            TS_TRY(look(stack, &way, error));
            if ((way.by_number || way.roomy || stack->by_values) && !way.agreeing)
                continue;
            alike = *any && way.agreeing == best->agreeing && way.error <= TS_STACK_AS_WELL * best->error + 1e-12 &&
                    best->error <= TS_STACK_AS_WELL * way.error + 1e-12;
            if (alike ? votes_for(stack, &way) > votes_for(stack, best)
                      : !*any || way.agreeing > best->agreeing ||
                            (way.agreeing == best->agreeing && way.error < best->error)) {
                *best = way;
                *tied = false;
            }
            *tied = *tied || alike;
            *any = true;
        }
    return TS_OK;
}

/* "x[:,2]", as `tsleuth show` takes it, and "A: index 2 of 4 on axis 1". */
static bool put_words(const struct ts_stack *stack, const struct ts_stack_way *way,
                      const struct ts_stack_member *member, const struct ts_tensor *whole, const char **name,
                      const char **recipe)
{
    struct ts_arena *arena = &stack->pairer->out->arena;
    const uint64_t layer = way->by_number ? (uint64_t)member->layer : member->entry;
    const unsigned last = way->layer_axis == TS_NO_AXIS                                      ? way->part_axis
                          : way->part_axis == TS_NO_AXIS || way->part_axis < way->layer_axis ? way->layer_axis
                                                                                             : way->part_axis;
    struct ts_buffer out;
    ts_buffer_init(&out, 65536);
    for (unsigned i = 0; i <= last; i++) {
        ts_buffer_string(&out, i ? "," : "[");
        if (i == way->layer_axis || i == way->part_axis)
            ts_buffer_printf(&out, "%" PRIu64, i == way->layer_axis ? layer : member->part);
        else
            ts_buffer_byte(&out, ':');
    }
    *name = out.failed ? NULL : ts_arena_printf(arena, "%s%.*s]", whole->name, (int)out.size, out.data);
    ts_buffer_clear(&out);
    ts_buffer_printf(&out, "%c: ", stack->is_b ? 'B' : 'A');
    if (way->layer_axis != TS_NO_AXIS)
        ts_buffer_printf(&out, "index %" PRIu64 " of %" PRIu64 " on axis %u", layer, whole->shape[way->layer_axis],
                         way->layer_axis);
    if (way->part_axis != TS_NO_AXIS)
        ts_buffer_printf(&out, "%sindex %u of %u on axis %u", way->layer_axis != TS_NO_AXIS ? ", " : "", member->part,
                         stack->parts, way->part_axis - (way->layer_axis < way->part_axis));
    *recipe = out.failed ? NULL : ts_arena_copy(arena, out.data, out.size);
    ts_buffer_release(&out);
    return *name && *recipe;
}

enum ts_status ts_stack_pair(struct ts_stack *stack, const struct ts_stack_way *way, bool tied, const char *how,
                             struct ts_error *error)
{
    struct ts_pairer *pairer = stack->pairer;
    const struct ts_side *side = stack->is_b ? &pairer->b : &pairer->a, *other = stack->is_b ? &pairer->a : &pairer->b;
    const struct ts_tensor *whole = side->bundle->tensors[stack->whole];
    for (size_t i = 0; i < stack->count; i++) {
        const struct ts_stack_member *member = &stack->list[i];
        const struct ts_tensor *tensor = other->bundle->tensors[member->index];
        const size_t before = pairer->count;
        struct ts_view piece, single;
        const char *name, *recipe;
        if (!take(way, member, whole, &pairer->out->arena, &piece) ||
            !ts_view_of(tensor, &pairer->out->arena, &single) || !put_words(stack, way, member, whole, &name, &recipe))
            return ts_fail_memory(error);
        TS_TRY(ts_layout_views(pairer, stack->is_b ? member->index : stack->whole,
                               stack->is_b ? stack->whole : member->index, stack->is_b ? &single : &piece,
                               stack->is_b ? &piece : &single, recipe, stack->is_b ? tensor->name : name,
                               stack->is_b ? name : tensor->name, how, false, error));
        pairer->found[before].pair.ambiguous = pairer->found[before].pair.ambiguous || tied;
    }
    return TS_OK;
}

/* One tensor that may be a stack. proved: only where values agree, and where only one way does. */
static enum ts_status try_stack(struct ts_stack *stack, const struct others *others, bool proved, bool scopes,
                                struct ts_error *error)
{
    /* the last two: decoder.dense_layers holds the first layers of a model, decoder.moe_layers the others */
    static const struct sought ways[] = {{.layers = true},
                                         {.both = true},
                                         {.layers = true, .both = true},
                                         {.layers = true, .experts = true},
                                         {.layers = true, .first = true},
                                         {.layers = true, .last = true}};
    const struct ts_side *side = stack->is_b ? &stack->pairer->b : &stack->pairer->a;
    const struct ts_name *own = &side->read.list[stack->whole];
    const bool both = strcmp(own->kind, BOTH) == 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct sought sought = ways[i];
        struct ts_stack_way best = {.layer_axis = TS_NO_AXIS, .part_axis = TS_NO_AXIS};
        bool found, tied, any;
        if ((sought.layers && !own->stacked) || (sought.both && !both) || (sought.experts && own->expert >= 0) ||
            (sought.first && !strstr(own->scope, "dense")) || (sought.last && !strstr(own->scope, "moe")))
            continue;
        sought.scopes = scopes;
        find_members(stack, others, &sought, &found);
        if (!found)
            continue;
        TS_TRY(ts_stack_choose(stack, &best, &tied, &any, error));
        if (!any || (proved && (tied || !best.agreeing)))
            continue;
        if (proved && best.layer_axis != TS_NO_AXIS)
            stack->votes[best.layer_axis][0]++;
        if (proved && best.part_axis != TS_NO_AXIS)
            stack->votes[best.part_axis][1]++;
        return ts_stack_pair(stack, &best, tied && best.agreeing && !votes_for(stack, &best), "canonical name", error);
    }
    return TS_OK;
}

enum ts_status ts_match_stacks(struct ts_pairer *pairer, struct ts_error *error)
{
    for (int is_b = 0; is_b < 2; is_b++) {
        struct ts_side *side = is_b ? &pairer->b : &pairer->a, *other = is_b ? &pairer->a : &pairer->b;
        struct ts_stack stack = {.pairer = pairer, .is_b = is_b};
        struct others others = {0};
        bool listed = false;
        stack.list = ts_arena_array(&pairer->scratch, other->count, sizeof *stack.list);
        others.list = ts_arena_array(&pairer->scratch, other->count, sizeof *others.list);
        if (!stack.list || !others.list)
            return ts_fail_memory(error);
        for (int pass = 0; pass < 4; pass++) /* what values prove first: it tells the axes of the rest */
            for (size_t i = 0; i < side->count; i++) {
                const struct ts_name *name = &side->read.list[i];
                if (side->taken[i] || name->rank >= 0 || !side->bundle->tensors[i]->count ||
                    !(name->stacked || strcmp(name->kind, BOTH) == 0))
                    continue;
                if (atomic_load(&ts_cancelled))
                    return ts_fail(error, TS_ERR_CANCELLED, TS_NO_OFFSET, "interrupted");
                stack.whole = i;
                if (!listed)
                    list_others(&stack, &others);
                listed = true;
                TS_TRY(try_stack(&stack, &others, pass < 2, pass % 2 == 0, error));
            }
    }
    return TS_OK;
}
