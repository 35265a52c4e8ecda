/* Owns the question on which axis of a tensor the tokens stand: how many there are and in how many sequences, which the
 * shapes of the whole trace tell, and where each tensor has them. */
#include "compare/scene_place.h"

#include <string.h>

#include "compare/gathered.h"
#include "compare/heads_order.h"
#include "tensor/mask.h"

#define PROJECTED_BEFORE 10 /* q, k and v are made first, then their norms, then what turns them */
#define FOLDED_NEAR      8  /* pairs to either side that may tell how wide a list of heads is */
#define MOST_HEADS       1024

/* The shape without its ones in front. */
static const uint64_t *squeezed(const struct ts_view *view, unsigned *rank, unsigned *dropped)
{
    *dropped = 0;
    while (*dropped + 1 < view->rank && view->shape[*dropped] == 1)
        ++*dropped;
    *rank = view->rank - *dropped;
    return view->shape + *dropped;
}

/* The shapes of a trace, counted: plain matrices, and the pairs of leading axes of [batch, tokens, ...]. */
struct census {
    uint64_t sizes[256];
    size_t votes[256], used;
};

static void census_add(struct census *census, uint64_t size, size_t votes)
{
    size_t k = 0;
    while (k < census->used && census->sizes[k] != size)
        k++;
    if (k == census->used && census->used < 256)
        census->sizes[census->used++] = size;
    if (k < census->used)
        census->votes[k] += votes;
}

static uint64_t census_winner(const struct census *census, size_t *votes)
{
    size_t best = 0;
    for (size_t k = 1; k < census->used; k++)
        if (census->votes[k] > census->votes[best])
            best = k;
    *votes = census->used ? census->votes[best] : 0;
    return census->used ? census->sizes[best] : 0;
}

/* Scores or probabilities of every key for every query, heads first: their first axis is no sequence. */
static bool is_of_keys(const char *name, const uint64_t *shape, unsigned rank)
{
    static const char *const words[] = {"score", "prob", "softmax", "attn_weight", "kq"};
    if (rank != 3 || shape[1] != shape[2])
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

/* Walks the squeezed shapes of the pairs that can be looked at. Experts have a row for each token that came to them,
 * which tells nothing of how many there are; they may be most of a trace. */
static bool next_shape(const struct ts_pair *pairs, size_t count, size_t *at, const uint64_t **shape, unsigned *rank)
{
    for (; *at < count; ++*at) {
        unsigned dropped;
        if (pairs[*at].problem || pairs[*at].a.rank < 2 || ts_is_gathered(pairs[*at].name))
            continue;
        *shape = squeezed(&pairs[*at].a, rank, &dropped);
        ++*at;
        return true;
    }
    return false;
}

/* The most common first axis of matrices and their kin is the sequence. */
uint64_t ts_place_tokens(const struct ts_pair *pairs, size_t count)
{
    struct census census = {0};
    const uint64_t *shape;
    unsigned rank;
    size_t votes;
    for (size_t i = 0; next_shape(pairs, count, &i, &shape, &rank);)
        /* hidden states are plain matrices; [1, hidden] is a single token */
        census_add(&census, rank < 2 ? 1 : shape[is_of_keys(pairs[i - 1].name, shape, rank) ? 1 : 0],
                   rank <= 2 ? 2 : 1);
    for (size_t i = 0; i < count && !census.used; i++) /* nothing but experts */
        if (!pairs[i].problem && pairs[i].a.rank >= 2)
            census_add(&census, pairs[i].a.shape[0], 1);
    return census_winner(&census, &votes);
}

/* Do these leading axes, which most tensors of three axes have, stand for a batch and its tokens? They may as well be
 * tokens and heads of a run without a batch. That one has plain matrices (of these axes too), or scores, [tokens,
 * heads, tokens] or [heads, tokens, tokens]; a batch has a fourth axis where heads are, hidden states of several
 * widths, or, with layer outputs alone, fewer sequences than tokens. */
static bool are_batch(const struct ts_pair *pairs, size_t count, uint64_t batch, uint64_t sequence, size_t votes)
{
    const uint64_t *shape;
    unsigned rank;
    size_t matrices = 0, own = 0, fours = 0;
    uint64_t width = 0;
    bool scores = false, widths = false;
    for (size_t i = 0; next_shape(pairs, count, &i, &shape, &rank);) {
        if (rank == 2) {
            matrices += shape[0] != batch && shape[0] != batch * sequence;
            own += shape[0] == batch;
        }
        if (rank == 3) {
            scores = scores || (shape[2] == shape[1] && shape[1] == sequence) || (shape[2] == shape[0]) ||
                     (shape[1] == batch && shape[2] == batch);
            if (shape[0] == batch && shape[1] == sequence) {
                widths = widths || (width && width != shape[2]);
                width = shape[2];
            }
        }
        fours += rank == 4 && shape[0] == batch && (shape[1] == sequence || shape[2] == sequence);
    }
    return votes > matrices && votes > own && (fours || (!scores && (widths || batch < sequence)));
}

/* Hidden states as one list of the tokens of all sequences, [batch * tokens, hidden], and an axis for the sequences
 * only where there are heads: [batch, tokens, heads, size] or [batch, heads, tokens, size]. */
static uint64_t folded_batch(const struct ts_pair *pairs, size_t count, uint64_t *sequence)
{
    struct census lists = {0}, batches = {0};
    const uint64_t *shape;
    unsigned rank;
    size_t matrices, votes, fours = 0;
    uint64_t tokens, batch;
    for (size_t i = 0; next_shape(pairs, count, &i, &shape, &rank);)
        if (rank == 2)
            census_add(&lists, shape[0], 1);
    tokens = census_winner(&lists, &matrices);
    for (size_t i = 0; next_shape(pairs, count, &i, &shape, &rank);)
        if (rank == 4) {
            fours++;
            if (shape[0] >= 2 && tokens % shape[0] == 0 && tokens / shape[0] >= 2 &&
                (shape[1] == tokens / shape[0] || shape[2] == tokens / shape[0]))
                census_add(&batches, shape[0], 1);
        }
    batch = census_winner(&batches, &votes);
    if (!matrices || !votes || votes * 2 <= fours)
        return 1;
    *sequence = tokens / batch;
    return batch;
}

uint64_t ts_place_batch(const struct ts_pair *pairs, size_t count, uint64_t *sequence)
{
    struct census census = {0};
    const uint64_t *shape;
    unsigned rank;
    size_t votes;
    uint64_t both;
    for (size_t i = 0; next_shape(pairs, count, &i, &shape, &rank);)
        if (rank == 3 && shape[0] >= 2 && shape[0] < 4096 && shape[1] >= 2 && shape[1] < (uint64_t)1 << 40)
            census_add(&census, shape[0] << 48 | shape[1], 1);
    both = census_winner(&census, &votes);
    if (!votes || !are_batch(pairs, count, both >> 48, both & (((uint64_t)1 << 48) - 1), votes))
        return folded_batch(pairs, count, sequence);
    *sequence = both & (((uint64_t)1 << 48) - 1);
    return both >> 48;
}

void ts_place_heads(struct ts_scene *scene)
{
    size_t first = 0, second = 0;
    uint64_t tokens = ts_scene_sequence(scene);
    const uint64_t *shape;
    unsigned rank;
    for (size_t i = 0; next_shape(scene->pairs, scene->pair_count, &i, &shape, &rank);) {
        if (scene->batch > 1) {
            if (rank != 4 || shape[0] != scene->batch)
                continue;
            shape++;
            rank--;
        }
        if (rank == 3 && (shape[0] == tokens) != (shape[1] == tokens))
            ++*(shape[0] == tokens ? &first : &second);
        if (rank == 3 && shape[1] == tokens && shape[2] == tokens && shape[0] <= 1024)
            scene->score_heads = (size_t)shape[0];
    }
    scene->heads_first = second > first;
}

uint64_t ts_place_scores(const struct ts_scene *scene)
{
    uint64_t tokens = ts_scene_sequence(scene), widest = 0;
    const uint64_t *shape;
    unsigned rank;
    for (size_t i = 0; tokens && next_shape(scene->pairs, scene->pair_count, &i, &shape, &rank);)
        if (rank >= 3 && shape[rank - 1] == tokens && (shape[rank - 2] == tokens || shape[rank - 3] == tokens)) {
            uint64_t width = scene->pairs[i - 1].a.count / scene->tokens;
            widest = width > widest ? width : widest;
        }
    return widest;
}

void ts_place_widths(const struct ts_scene *scene, uint64_t widest, uint64_t *mean, uint64_t *window)
{
    uint64_t ring[TS_SCENE_WINDOW] = {0}, all = 0, seen = 0, sum = 0;
    *window = 0;
    for (size_t i = 0; i < scene->pair_count; i++) {
        uint64_t *place = &ring[i % TS_SCENE_WINDOW];
        uint64_t width = scene->pairs[i].problem ? 0 : scene->pairs[i].a.count / (scene->tokens ? scene->tokens : 1);
        width = width <= widest ? width : 0;
        sum += width - *place;
        *place = width;
        *window = sum > *window ? sum : *window;
        all += width;
        seen += width > 0;
    }
    *mean = seen ? all / seen : 0;
}

uint64_t ts_place_numbers(const struct ts_scene *scene, size_t pair)
{
    const struct ts_view *view = &scene->pairs[pair].a;
    const uint64_t sequence = ts_scene_sequence(scene);
    if (scene->pairs[pair].problem || !scene->tokens)
        return 0;
    for (unsigned i = 0; i < view->rank && scene->tokens > 1; i++)
        if (view->shape[i] == sequence || view->shape[i] == scene->tokens)
            return view->count / scene->tokens * scene->taken_count;
    return view->count;
}

/* Equal but for one character: q and k. */
static bool are_siblings(const char *a, const char *b)
{
    size_t differences = 0;
    for (; *a && *b; a++, b++)
        differences += *a != *b;
    return !*a && !*b && differences == 1;
}

/* Scores or probabilities with as many heads as tokens: a causal mask tells rows from heads, as it hides the keys
 * behind a row. Are the rows in front? */
static bool is_masked_by_first(const struct ts_pair *pair, uint64_t size)
{
    float values[64];
    struct ts_error ignored;
    if (size > 64)
        return false;
    for (uint64_t i = 0; i < size * size; i++) {
        uint64_t row = i / size;
        if (ts_view_read_f32(&pair->a, i * size, (size_t)size, values, &ignored) != TS_OK)
            return false;
        for (uint64_t key = row + 1; key < size; key++)
            if (values[key] != 0 && !ts_is_masked_score((double)values[key]))
                return false;
    }
    return true;
}

/* The squeezed shape behind the axis of a batch. */
static bool inside_batch(const struct ts_scene *scene, const struct ts_view *view, const uint64_t **shape,
                         unsigned *rank)
{
    unsigned dropped;
    *shape = squeezed(view, rank, &dropped);
    if (scene->batch <= 1 || *rank < 2 || (*shape)[0] != scene->batch)
        return false;
    ++*shape;
    --*rank;
    return true;
}

/* As many heads as tokens: the axis is that of a sibling with another number of heads (keys have fewer), the one by
 * which heads look like those of a matrix just before, or that of most. Scores have their heads in front, unless a mask
 * on them or on their probabilities says otherwise. */
static unsigned ambiguous_axis(const struct ts_scene *scene, size_t pair, const uint64_t *shape)
{
    size_t first = pair > 4 ? pair - 4 : 0;
    uint64_t tokens = ts_scene_sequence(scene);
    for (size_t i = first; i <= pair + 4 && i < scene->pair_count; i++) {
        unsigned rank;
        const uint64_t *other;
        if (scene->pairs[i].problem || scene->pairs[i].a.rank < 3)
            continue;
        inside_batch(scene, &scene->pairs[i].a, &other, &rank);
        if (rank == 3 && shape[2] == tokens && memcmp(shape, other, 3 * sizeof *shape) == 0 &&
            is_masked_by_first(&scene->pairs[i], tokens))
            return 0;
        if (rank == 3 && are_siblings(scene->pairs[i].name, scene->pairs[pair].name) &&
            (other[0] == tokens) != (other[1] == tokens))
            return other[0] == tokens ? 0 : 1;
    }
    for (size_t i = pair; shape[2] != tokens && i-- > 0 && i + PROJECTED_BEFORE >= pair;) {
        unsigned rank;
        const uint64_t *other;
        enum ts_heads_order order = TS_HEADS_UNTOLD;
        if (scene->pairs[i].problem)
            continue;
        inside_batch(scene, &scene->pairs[i].a, &other, &rank);
        if (rank == 2 && other[0] == tokens && other[1] == shape[1] * shape[2])
            order = ts_heads_order(&scene->pairs[i].a, &scene->pairs[pair].a, tokens, shape[2]);
        if (order != TS_HEADS_UNTOLD)
            return order == TS_HEADS_FIRST ? 1 : 0;
    }
    return shape[2] == tokens || scene->heads_first ? 1 : 0;
}

/* Heads in one list, [tokens * heads, size], as norms of heads have them: a token has as many numbers as in a tensor
 * near it that shows its tokens. Rows inside of experts are such a list too, and in no order. */
static bool is_list_of_heads(const struct ts_scene *scene, size_t pair, const struct ts_place *place)
{
    const size_t first = pair > FOLDED_NEAR ? pair - FOLDED_NEAR : 0;
    const uint64_t width = scene->pairs[pair].a.count / scene->tokens;
    if (place->rank != 2 || place->shape[0] % scene->tokens || place->shape[0] / scene->tokens < 2 ||
        place->shape[0] / scene->tokens > MOST_HEADS || ts_is_gathered(scene->pairs[pair].name))
        return false;
    for (size_t i = first; i <= pair + FOLDED_NEAR && i < scene->pair_count; i++) {
        const struct ts_view *other = &scene->pairs[i].a;
        if (scene->pairs[i].problem || other->count / scene->tokens != width || other->count % scene->tokens)
            continue;
        for (unsigned k = 0; k + 1 < other->rank; k++)
            if (other->shape[k] == ts_scene_sequence(scene) || other->shape[k] == scene->tokens)
                return true;
    }
    return false;
}

void ts_place_find(const struct ts_scene *scene, size_t pair, struct ts_place *place)
{
    uint64_t tokens = ts_scene_sequence(scene);
    unsigned dropped;
    *place = (struct ts_place){0};
    place->shape = squeezed(&scene->pairs[pair].a, &place->rank, &dropped);
    place->axis = place->rank;
    if (scene->tokens <= 1)
        return;
    if (scene->batch > 1 && place->shape[0] == scene->tokens) { /* routers see one long list of tokens */
        place->axis = 0;
        place->all = true;
        return;
    }
    place->batched = inside_batch(scene, &scene->pairs[pair].a, &place->shape, &place->rank);
    place->axis = place->rank;
    for (unsigned i = 0; i < place->rank && place->axis == place->rank; i++)
        if (place->shape[i] == tokens)
            place->axis =
                i == 0 && place->rank == 3 && place->shape[1] == tokens ? ambiguous_axis(scene, pair, place->shape) : i;
    if (place->axis == place->rank && !place->batched && is_list_of_heads(scene, pair, place)) {
        place->folded[0] = scene->tokens;
        place->folded[1] = place->shape[0] / scene->tokens;
        place->folded[2] = place->shape[1];
        place->shape = place->folded;
        place->rank = 3;
        place->axis = 0;
        place->all = true;
    }
}

bool ts_scene_axis(const struct ts_scene *scene, size_t i, struct ts_token_axis *axis)
{
    struct ts_place place;
    if (scene->pairs[i].problem || scene->pairs[i].a.rank == 0 || !scene->pairs[i].a.count)
        return false;
    ts_place_find(scene, i, &place);
    if (place.axis == place.rank)
        return false;
    *axis = (struct ts_token_axis){.after = 1, .size = place.shape[place.axis], .length = 1};
    for (unsigned k = place.axis + 1; k < place.rank; k++)
        axis->after *= place.shape[k];
    for (unsigned k = 0; k < place.rank; k++)
        axis->length *= place.shape[k];
    axis->sequence = place.batched ? ts_scene_sequence(scene) : 0;
    return true;
}

bool ts_scene_token(const struct ts_scene *scene, size_t i, uint64_t index, uint64_t *token)
{
    struct ts_token_axis axis;
    if (index >= scene->pairs[i].a.count || !ts_scene_axis(scene, i, &axis))
        return false;
    *token = index / axis.after % axis.size + index / axis.length * axis.sequence;
    return true;
}

bool ts_scene_index(const struct ts_scene *scene, const struct ts_actor *actor, size_t i, uint64_t *index)
{
    struct ts_place place;
    uint64_t after = 1, length = 1, sequence = ts_scene_sequence(scene), column, token;
    if (!actor->usable || i >= actor->rows * actor->width)
        return false;
    ts_place_find(scene, actor->pair, &place);
    if (place.axis == place.rank) {
        *index = i;
        return actor->rows * actor->width == scene->pairs[actor->pair].a.count;
    }
    for (unsigned k = place.axis + 1; k < place.rank; k++)
        after *= place.shape[k];
    for (unsigned k = 0; k < place.rank; k++)
        length *= place.shape[k];
    token = scene->taken[i / actor->width];
    column = i % actor->width;
    *index = (place.batched ? token / sequence * length : 0) +
             (column / after * place.shape[place.axis] + (place.all ? token : token % sequence)) * after +
             column % after;
    return *index < scene->pairs[actor->pair].a.count;
}
