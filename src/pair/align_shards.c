/* Owns what is tried when a side is in shards: the forms of its ranks against the whole tensor of the other side, or
 * against the forms of the other side's ranks. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "pair/align_forms.h"

/* Pieces that agree this well are the right ones; the less likely forms are then not tried. */
#define GOOD 0.3
/* More forms than this on one side are not set against all of the other. */
#define MAX_CROSSED 256
/* No run has more. */
#define MAX_RANKS 4096
/* Of what is dealt out to ranks some of which are missing: above every plain way. */
#define COST_PARTS   30u
#define COST_TURNS   40u
#define MOST_QUERIES 32u    /* heads to one of keys */
#define MOST_WIDTH   65536u /* of a head */
/* Which of several equal ranks is read changes nothing; axes have the families below. */
#define FAMILY_RANKS 1000u

/* Candidates for a form of each side, or for a form and a whole tensor. The whole moves: a joined view cannot be cut
 * everywhere. */
static void add_forms(struct ts_align_search *search, const struct ts_align_form *a, const struct ts_align_form *b,
                      unsigned moving, size_t limit)
{
    struct ts_align_layouts layouts = {.view = {a->view, b->view},
                                       .words = {a->words, b->words},
                                       .cost = a->cost + b->cost,
                                       .family = a->copied || b->copied ? FAMILY_RANKS : 0,
                                       .moving = moving,
                                       .limit = limit};
    const size_t before = search->count;
    if (a->view.count != b->view.count)
        return;
    /* equal shapes need no other order of axes; but weights may be transposed */
    layouts.whole_axes = ts_align_equal_shapes(&a->view, &b->view);
    layouts.in_order = layouts.whole_axes && !search->hints->weights;
    ts_align_add_layouts(search, &layouts);
    for (size_t i = before; i < search->count; i++) {
        search->list[i].copied[0] = a->copied;
        search->list[i].copied[1] = b->copied;
        search->list[i].certain = layouts.whole_axes && (a->copied || b->copied) && search->list[i].cost == 0;
    }
}

/* Those from `first` on against the whole. */
static void add_against_whole(const struct ts_align_forms *forms, size_t first, const struct ts_view *whole)
{
    const struct ts_align_form other = {.view = *whole, .words = ""};
    for (size_t i = first; i < forms->form_count; i++)
        add_forms(forms->search, forms->side ? &other : &forms->list[i], forms->side ? &forms->list[i] : &other,
                  1 - forms->side, 24);
}

/* Joined as they are they may be larger than the whole (padding in each or at the end) or smaller (some ranks are
 * missing). */
static enum ts_status add_joined_slices(const struct ts_align_forms *forms, const struct ts_view *whole,
                                        struct ts_error *error)
{
    struct ts_arena *arena = &forms->search->scratch;
    for (unsigned axis = 0; axis < forms->shards->rank; axis++) {
        struct ts_align_layouts layouts = {.words = {"", ""}, .cost = 1, .moving = 1 - forms->side, .limit = 24};
        struct ts_view *joined = &layouts.view[forms->side];
        if (!ts_align_shards_fit(forms, axis) ||
            !ts_view_join(TS_JOIN_CONCAT, axis, forms->shards, forms->count, arena, joined) ||
            joined->count == whole->count)
            continue;
        layouts.view[1 - forms->side] = *whole;
        layouts.words[forms->side] = ts_arena_printf(arena, "join %zu shards on axis %u", forms->count, axis);
        if (layouts.words[forms->side])
            TS_TRY(ts_align_add_slices(forms->search, &layouts, error));
    }
    return TS_OK;
}

/* How an axis of the whole is dealt out: in one piece to each rank; in parts (q, k and v), of each of which every rank
 * has its piece; or heads of `width` in turn. */
struct deal {
    uint64_t parts[3], width;
    unsigned part_count;
    unsigned cost;
};

/* Of a rank's share. */
static size_t count_stretches(const struct deal *deal, uint64_t share)
{
    return deal->width ? (size_t)(share / deal->width) : deal->part_count;
}

/* Where the stretch of that index of a rank's share begins in the whole axis. */
static uint64_t stretch(const struct deal *deal, uint64_t rank, uint64_t of, size_t index, uint64_t *length)
{
    uint64_t begin = 0;
    if (deal->width) {
        *length = deal->width;
        return ((uint64_t)index * of + rank) * deal->width;
    }
    for (size_t i = 0; i < index; i++)
        begin += deal->parts[i];
    *length = deal->parts[index] / of;
    return begin + rank * *length;
}

/* The pieces of an axis that the ranks hold which are here; ranks are counted from `base`. */
static bool take_present(const struct ts_align_forms *forms, const struct ts_view *whole, unsigned axis, uint64_t of,
                         uint64_t base, const struct deal *deal, const char *before, struct ts_align_form *out)
{
    const uint64_t *ranks = forms->search->hints->ranks[forms->side], share = whole->shape[axis] / of;
    const size_t each = count_stretches(deal, share), most = each * forms->count;
    struct ts_arena *arena = &forms->search->scratch;
    struct ts_view *pieces = most <= MAX_RANKS ? ts_arena_array(arena, most, sizeof *pieces) : NULL;
    struct ts_buffer words;
    bool fits = pieces && whole->shape[axis] % of == 0;
    ts_buffer_init(&words, 16384);
    ts_buffer_printf(&words, "%s%sshards", before, *before ? ", " : "");
    for (size_t i = 0; i < forms->count && fits; i++) {
        fits = ranks[i] >= base && ranks[i] - base < of;
        for (size_t k = 0; k < each && fits; k++) {
            uint64_t length, begin = stretch(deal, ranks[i] - base, of, k, &length);
            fits = ts_view_slice(whole, axis, begin, length, 1, arena, &pieces[i * each + k]);
        }
        ts_buffer_printf(&words, " %" PRIu64, ranks[i] - base);
    }
    ts_buffer_printf(&words, " of %" PRIu64 " on axis %u", of, axis);
    if (deal->width == 1)
        ts_buffer_string(&words, ", interleaved");
    else if (deal->width)
        ts_buffer_printf(&words, ", heads of %" PRIu64 " interleaved", deal->width);
    if (deal->part_count > 1)
        ts_buffer_printf(&words, ", in %u parts %" PRIu64, deal->part_count, deal->parts[0]);
    for (unsigned i = 1; i < deal->part_count; i++)
        ts_buffer_printf(&words, "+%" PRIu64, deal->parts[i]);
    fits = fits && !words.failed && ts_view_join(TS_JOIN_CONCAT, axis, pieces, most, arena, &out->view) &&
           (out->words = ts_arena_copy(arena, words.data, words.size));
    ts_buffer_release(&words);
    return fits;
}

static void add_dealt(struct ts_align_forms *forms, const struct ts_view *whole, unsigned axis, uint64_t of,
                      const struct deal *deal, const char *before)
{
    struct ts_arena *arena = &forms->search->scratch;
    const unsigned side = forms->side;
    for (uint64_t base = 0; base < 2; base++) {
        struct ts_align_form present = {.cost = deal->cost + 4 * (unsigned)base}, joined = {.cost = 1};
        const struct ts_align_form *a = side ? &present : &joined, *b = side ? &joined : &present;
        size_t first = forms->search->count;
        joined.words = ts_arena_printf(arena, "join %zu shards on axis %u", forms->count, axis);
        if (!joined.words || !take_present(forms, whole, axis, of, base, deal, before, &present) ||
            !ts_view_join(TS_JOIN_CONCAT, axis, forms->shards, forms->count, arena, &joined.view))
            continue;
        add_forms(forms->search, a, b, 1 - side, 24);
        for (size_t i = first; i < forms->search->count; i++) {
            forms->search->list[i].ranks_of = of;
            forms->search->list[i].lacking = side;
        }
    }
}

/* Parts and heads in turn, as where all ranks are here. */
static void add_other_deals(struct ts_align_forms *forms, const struct ts_view *whole, unsigned axis, uint64_t of,
                            const char *before)
{
    const uint64_t share = forms->shards->shape[axis];
    if (share % 2 == 0)
        add_dealt(forms, whole, axis, of,
                  &(struct deal){.parts = {share / 2 * of, share / 2 * of}, .part_count = 2, .cost = COST_PARTS},
                  before);
    for (uint64_t group = 1; group <= MOST_QUERIES; group++) {
        const uint64_t keys = share / (group + 2) * of;
        if (share % (group + 2) == 0)
            add_dealt(forms, whole, axis, of,
                      &(struct deal){.parts = {group * keys, keys, keys}, .part_count = 3, .cost = COST_PARTS}, before);
    }
    for (uint64_t width = 1; width < share && width <= MOST_WIDTH; width++)
        if (share % width == 0)
            add_dealt(forms, whole, axis, of, &(struct deal){.width = width, .cost = COST_TURNS}, before);
}

/* How many ranks there are where some are not here; 0 where none is missing, or it is not known which. */
static uint64_t ranks_in_all(const struct ts_align_forms *forms, const struct ts_view *whole)
{
    const struct ts_align_hints *hints = forms->search->hints;
    uint64_t of = hints->rank_count[forms->side];
    if (!hints->ranks[forms->side] || !ts_align_shards_fit(forms, UINT32_MAX))
        return 0;
    if (whole->count % forms->shards->count == 0)
        of = whole->count / forms->shards->count; /* also where the last ones are missing and no number tells */
    return of <= forms->count || of > MAX_RANKS ? 0 : of;
}

/* Some ranks are not here: of the whole only the pieces of those that are. `before`: what made the whole. plain: in one
 * piece each; else in all other ways. */
static void add_present(struct ts_align_forms *forms, const struct ts_view *whole, bool plain, const char *before)
{
    const uint64_t of = ranks_in_all(forms, whole);
    if (!of)
        return;
    for (unsigned axis = 0; axis < whole->rank && axis < forms->shards->rank; axis++) {
        const struct deal one = {.parts = {whole->shape[axis]}, .part_count = 1, .cost = 2};
        if (plain)
            add_dealt(forms, whole, axis, of, &one, before);
        else if (whole->shape[axis] == of * forms->shards->shape[axis])
            add_other_deals(forms, whole, axis, of, before);
    }
}

/* The same where the whole is put together of fused shards itself. */
static void add_present_of_fused(struct ts_align_forms *forms, const struct ts_align_forms *others)
{
    for (size_t i = 0; i < others->form_count && i < MAX_CROSSED; i++) {
        const struct ts_align_form *whole = &others->list[i];
        const uint64_t of = whole->kind == TS_FORM_FUSED ? ranks_in_all(forms, &whole->view) : 0;
        struct deal deal = {.parts = {whole->sizes[0], whole->sizes[1], whole->sizes[1]}, .cost = COST_PARTS};
        if (!of)
            continue;
        deal.part_count = whole->view.shape[whole->axis] == deal.parts[0] + deal.parts[1] ? 2 : 3;
        add_dealt(forms, &whole->view, whole->axis, of, &deal, whole->words);
    }
}

static enum ts_status join_search(struct ts_align_forms *forms, const struct ts_view *whole, struct ts_error *error)
{
    double score;
    size_t plain;
    TS_TRY(ts_align_plain_forms(forms, error));
    add_against_whole(forms, 0, whole);
    TS_TRY(ts_align_best_score(forms->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    plain = forms->form_count;
    TS_TRY(ts_align_other_forms(forms, error));
    add_against_whole(forms, plain, whole);
    add_present(forms, whole, true, "");
    TS_TRY(ts_align_best_score(forms->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    add_present(forms, whole, false, "");
    TS_TRY(ts_align_best_score(forms->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    return add_joined_slices(forms, whole, error);
}

/* Two ways of dealing out that cannot be ways of dealing out one tensor are not worth a look. */
static bool may_meet(const struct ts_align_form *a, const struct ts_align_form *b)
{
    if (a->kind == TS_FORM_PLAIN && b->kind == TS_FORM_PLAIN)
        return true;
    if (a->kind == TS_FORM_PLAIN || b->kind == TS_FORM_PLAIN)
        return a->axis == b->axis || a->view.rank != b->view.rank;
    return a->kind == b->kind && a->sizes[0] == b->sizes[0] && a->sizes[1] == b->sizes[1];
}

/* Every form of A from first[0] on or of B from first[1] on against all of the other side. */
static void add_crossed(const struct ts_align_forms *a, const struct ts_align_forms *b, const size_t first[2],
                        size_t limit)
{
    for (size_t i = 0; i < a->form_count && i < MAX_CROSSED; i++)
        for (size_t k = i < first[0] ? first[1] : 0; k < b->form_count && k < MAX_CROSSED; k++)
            if (may_meet(&a->list[i], &b->list[k]))
                add_forms(a->search, &a->list[i], &b->list[k], 1, limit);
}

/* Joined as they are, one side may have padding, or lack ranks. */
static enum ts_status add_unequal(struct ts_align_forms *a, struct ts_align_forms *b, struct ts_error *error)
{
    struct ts_arena *arena = &a->search->scratch;
    add_present_of_fused(a, b);
    add_present_of_fused(b, a);
    for (unsigned axis = 0; axis < a->shards->rank && axis < b->shards->rank; axis++) {
        struct ts_align_layouts layouts = {.cost = 2, .moving = 1, .limit = 24};
        if (!ts_align_shards_fit(a, axis) || !ts_align_shards_fit(b, axis) ||
            !ts_view_join(TS_JOIN_CONCAT, axis, a->shards, a->count, arena, &layouts.view[0]) ||
            !ts_view_join(TS_JOIN_CONCAT, axis, b->shards, b->count, arena, &layouts.view[1]) ||
            layouts.view[0].count == layouts.view[1].count)
            continue;
        layouts.words[0] = ts_arena_printf(arena, "join %zu shards on axis %u", a->count, axis);
        layouts.words[1] = ts_arena_printf(arena, "join %zu shards on axis %u", b->count, axis);
        if (!layouts.words[0] || !layouts.words[1])
            continue;
        add_present(a, &layouts.view[1], true, layouts.words[1]);
        add_present(b, &layouts.view[0], true, layouts.words[0]);
        TS_TRY(ts_align_add_slices(a->search, &layouts, error));
    }
    return TS_OK;
}

static enum ts_status cross_search(struct ts_align_forms *a, struct ts_align_forms *b, struct ts_error *error)
{
    size_t plain[2] = {0, 0};
    double score;
    TS_TRY(ts_align_plain_forms(a, error));
    TS_TRY(ts_align_plain_forms(b, error));
    add_crossed(a, b, plain, 24);
    TS_TRY(ts_align_best_score(a->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    plain[0] = a->form_count;
    plain[1] = b->form_count;
    TS_TRY(ts_align_other_forms(a, error));
    TS_TRY(ts_align_other_forms(b, error));
    add_crossed(a, b, plain, 2);
    TS_TRY(ts_align_best_score(a->search, &score, error));
    if (score < GOOD)
        return TS_OK;
    return add_unequal(a, b, error);
}

static bool all_readable(const struct ts_view *shards, size_t count, const struct ts_view *other)
{
    for (size_t i = 0; i < count; i++)
        if (shards[i].count == 0 || other->count == 0 ||
            ts_type_info(shards[i].tensor->type)->components != ts_type_info(other->tensor->type)->components)
            return false;
    return true;
}

enum ts_status ts_align_shards(const struct ts_view *whole, struct ts_view *shards, size_t count, bool shards_are_b,
                               const struct ts_align_hints *hints, struct ts_arena *arena, struct ts_alignment *out,
                               struct ts_error *error)
{
    if (count == 0)
        return ts_fail(error, TS_ERR_USAGE, TS_NO_OFFSET, "there are no shards to align");
    if (count == 1)
        return ts_align(shards_are_b ? whole : shards, shards_are_b ? shards : whole, hints, arena, out, error);
    if (shards_are_b)
        return ts_align_ranks((struct ts_view[]){*whole}, 1, shards, count, hints, arena, out, error);
    return ts_align_ranks(shards, count, (struct ts_view[]){*whole}, 1, hints, arena, out, error);
}

/* Elements behind each axis and those before it, as one axis after the other is left out: 968, 121, 11, 1 of [8,11,11].
 * Axes of one element say nothing. */
static bool has_bound(const uint64_t *shape, unsigned rank, uint64_t bound)
{
    uint64_t behind = 1;
    for (unsigned i = rank; i-- > 0 && behind < bound;)
        behind *= shape[i];
    return behind == bound;
}

/* The whole one as it was given, read in that shape, is what was found: nothing but its axes were cut and joined. */
static bool is_reshaped(const struct ts_view *whole, const struct ts_view *found, struct ts_arena *arena)
{
    struct ts_view again;
    if (whole->join != TS_JOIN_NONE || found->join != TS_JOIN_NONE || whole->tensor != found->tensor ||
        !ts_view_reshape(whole, found->shape, found->rank, arena, &again) || again.offset != found->offset)
        return false;
    for (unsigned i = 0; i < found->rank; i++)
        if (found->shape[i] > 1 && again.strides[i] != found->strides[i])
            return false;
    return true;
}

/* Where heads go round the ranks, shards that are joined on the axis behind that of the heads agree with the whole one
 * when those axes are one: [2,44,11] for [8,11,11]. Then the pieces of the ranks are put one behind the other on the
 * axis that they are pieces of, so that tokens stay tokens. Leaves what it cannot do. */
static enum ts_status take_in_turns(const struct ts_view *whole, unsigned side, struct ts_arena *arena,
                                    struct ts_alignment *out, struct ts_error *error)
{
    const struct ts_view *joined = side ? &out->b : &out->a, *found = side ? &out->a : &out->b;
    const uint64_t shards = joined->part_count;
    uint64_t inner = 1, behind = 1, piece, pieces, *shape;
    struct ts_view *list, made;
    bool lost = false, done = true;
    unsigned axis;
    if (out->problem || joined->join != TS_JOIN_CONCAT || !shards || !is_reshaped(whole, found, arena))
        return TS_OK;
    for (size_t i = 0; i < shards; i++)
        if (joined->parts[i].count != joined->count / shards)
            return TS_OK;
    for (unsigned i = joined->axis; i < joined->rank; i++) /* of one shard, from its joined axis on */
        inner *= joined->parts[0].shape[i];
    for (unsigned i = whole->rank; i-- > 0;) {
        behind *= whole->shape[i];
        lost = lost || !has_bound(found->shape, found->rank, behind);
    }
    behind = 1;
    for (axis = whole->rank; axis-- > 0 && behind * whole->shape[axis] <= inner;)
        behind *= whole->shape[axis];
    if (!lost || axis >= whole->rank || inner % behind || whole->shape[axis] % (inner / behind * shards))
        return TS_OK;
    piece = inner / behind;
    pieces = whole->shape[axis] / piece;
    list = pieces <= MAX_RANKS ? ts_arena_array(arena, pieces, sizeof *list) : NULL;
    shape = ts_arena_array(arena, whole->rank, sizeof *shape);
    if (pieces > MAX_RANKS)
        return TS_OK;
    if (!list || !shape)
        return ts_fail_memory(error);
    memcpy(shape, whole->shape, whole->rank * sizeof *shape);
    shape[axis] /= shards;
    for (uint64_t i = 0; i < pieces && done; i++) {
        struct ts_view part;
        done = ts_view_reshape(&joined->parts[i % shards], shape, whole->rank, arena, &part) &&
               ts_view_slice(&part, axis, i / shards * piece, piece, 1, arena, &list[i]);
    }
    if (!done || !ts_view_join(TS_JOIN_CONCAT, axis, list, pieces, arena, &made))
        return TS_OK;
    out->recipe =
        piece > 1 ? ts_arena_printf(arena, "%c: join %" PRIu64 " shards on axis %u, heads of %" PRIu64 " interleaved",
                                    side ? 'B' : 'A', shards, axis, piece)
                  : ts_arena_printf(arena, "%c: join %" PRIu64 " shards on axis %u, interleaved", side ? 'B' : 'A',
                                    shards, axis);
    out->a = side ? *whole : made;
    out->b = side ? made : *whole;
    return out->recipe ? TS_OK : ts_fail_memory(error);
}

enum ts_status ts_align_ranks(struct ts_view *a, size_t count_a, struct ts_view *b, size_t count_b,
                              const struct ts_align_hints *hints, struct ts_arena *arena, struct ts_alignment *out,
                              struct ts_error *error)
{
    struct ts_align_search search;
    struct ts_align_forms of_a = {.search = &search, .shards = a, .count = count_a, .side = 0};
    struct ts_align_forms of_b = {.search = &search, .shards = b, .count = count_b, .side = 1};
    const struct ts_align_candidate *winner = NULL;
    size_t shards_a = count_a > 1 ? count_a : 0, shards_b = count_b > 1 ? count_b : 0;
    enum ts_status status;
    ts_alignment_init(out, a, b);
    if (!all_readable(a, count_a, b) || !all_readable(b, count_b, a))
        return ts_align_no_layout(a, b, shards_a, shards_b, arena, out, error);
    status = ts_align_search_init(&search, a, b, hints, error);
    if (status == TS_OK && shards_a && shards_b) {
        status = cross_search(&of_a, &of_b, error);
    } else if (status == TS_OK) {
        of_a.wanted = b->count;
        of_b.wanted = a->count;
        status = join_search(shards_a ? &of_a : &of_b, shards_a ? b : a, error);
    }
    if (status == TS_OK)
        status = ts_align_choose(&search, out, &winner, error);
    if (status == TS_OK && winner) {
        struct ts_align_candidate said = *winner;
        status = ts_align_look_at_rest(&search, &said, error);
        if (status == TS_OK)
            status = ts_align_finish(&said, arena, out, error);
    } else if (status == TS_OK)
        status = ts_align_no_layout(a, b, shards_a, shards_b, arena, out, error);
    if (status == TS_OK && winner && !shards_a != !shards_b && !winner->copied[0] && !winner->copied[1])
        status = take_in_turns(shards_a ? b : a, shards_b ? 1 : 0, arena, out, error);
    ts_align_search_release(&search);
    return status;
}
