#include "diagnose/attention_mask.h"

#include <stdlib.h>
#include <string.h>

#include "diagnose/variant.h"

void ts_mask_close(struct ts_mask *mask)
{
    free(mask->allowed);
    free(mask->at);
}

bool ts_mask_open(struct ts_mask *mask, const struct ts_case *the_case)
{
    const struct ts_actor *actor = the_case->actor;
    *mask = (struct ts_mask){.rows = actor->rows, .keys = actor->inner};
    mask->allowed = calloc(actor->rows * actor->inner + 1, 1);
    mask->at = calloc(actor->rows + 1, sizeof *mask->at);
    for (size_t row = 0; row < actor->rows && mask->at; row++)
        mask->at[row] = (size_t)ts_case_row(the_case, row);
    return mask->allowed && mask->at;
}

void ts_mask_band(struct ts_mask *mask, const struct ts_mask_shape *shape)
{
    for (size_t row = 0; row < mask->rows; row++)
        for (size_t key = 0; key < mask->keys; key++) {
            long distance = (long)mask->at[row] - (long)key;
            bool hidden = (mask->at[row] >= shape->front && key < shape->front) || key + shape->back >= mask->keys;
            mask->allowed[row * mask->keys + key] =
                !hidden && distance >= -shape->shift && (shape->window <= 0 || distance < shape->window);
        }
}

/* Padding sees nothing, or itself, or everything; or what it sees in the reference. */
static bool may_be_padding(const unsigned char *allowed, const unsigned char *reference, size_t keys)
{
    size_t count = 0;
    for (size_t key = 0; key < keys; key++)
        count += allowed[key];
    return count <= 1 || count == keys || memcmp(allowed, reference, keys) == 0;
}

void ts_mask_fill(struct ts_mask *mask, const struct ts_mask_shape *shape, const struct ts_mask *found,
                  const struct ts_mask *reference)
{
    for (size_t row = 0; row < mask->rows; row++) {
        size_t start = row * mask->keys;
        bool padding = mask->at[row] < shape->front || mask->at[row] + shape->back >= mask->keys;
        if (!memchr(mask->allowed + start, 1, mask->keys) ||
            (padding && (!reference || may_be_padding(found->allowed + start, reference->allowed + start, mask->keys))))
            memcpy(mask->allowed + start, found->allowed + start, mask->keys);
    }
}

void ts_mask_read(struct ts_mask *mask, const struct ts_actor *actor, const float *values, bool scores)
{
    memset(mask->allowed, 0, mask->rows * mask->keys);
    for (size_t row = 0; row < mask->rows; row++)
        for (size_t head = 0; head < actor->heads; head++)
            for (size_t key = 0; key < mask->keys; key++) {
                float value = values[row * actor->width + head * actor->inner + key];
                if (scores ? ts_is_allowed((double)value) : value > 0)
                    mask->allowed[row * mask->keys + key] = 1;
            }
}

size_t ts_mask_differences(const struct ts_mask *a, const struct ts_mask *b)
{
    size_t count = 0;
    for (size_t i = 0; i < a->rows * a->keys; i++)
        count += a->allowed[i] != b->allowed[i];
    return count;
}

/* The first key that a row sees, and how many it sees. */
static size_t first_seen(const struct ts_mask *mask, size_t row, size_t *count)
{
    const unsigned char *allowed = mask->allowed + row * mask->keys;
    size_t first = mask->keys;
    *count = 0;
    for (size_t key = mask->keys; key-- > 0;)
        if (allowed[key]) {
            first = key;
            ++*count;
        }
    return first;
}

/* How many of the first tokens those behind them do not see, which see each other: those before the first key that
 * rows behind see, whichever rows of a sequence are at hand. More than one of these sees that key first: a window moves
 * on with every token. And the rows before see what padding may: nothing, themselves, everything, or none of what is
 * hidden. Chunks of a sequence see each other. */
static size_t hidden_in_front(const struct ts_mask *mask)
{
    size_t *first = calloc(2 * mask->rows + 1, sizeof *first), *count = first ? first + mask->rows : NULL;
    size_t smallest = mask->keys, seers = 0, together = 0, front = 0;
    for (size_t row = 0; row < mask->rows && first; row++)
        first[row] = first_seen(mask, row, &count[row]);
    for (size_t row = mask->rows; row-- > 0 && first && !front;) {
        const size_t place = mask->at[row];
        bool hidden;
        together = first[row] < smallest ? 1 : together + (first[row] == smallest);
        smallest = first[row] < smallest ? first[row] : smallest;
        seers += first[row] < place;
        hidden = seers && together > 1 && smallest < mask->keys && smallest <= place &&
                 (!row || mask->at[row - 1] < smallest);
        for (size_t other = 0; other < row && hidden; other++)
            hidden = count[other] <= 1 || count[other] == mask->keys || first[other] >= smallest;
        front = hidden ? smallest : 0;
    }
    free(first);
    return front;
}

/* How many of the last ones nobody sees, where all others see everything else. */
static size_t hidden_behind(const struct ts_mask *mask)
{
    size_t seen = 0, count = 0;
    for (size_t row = 0; row < mask->rows; row++) {
        size_t last = mask->keys;
        while (last > 0 && !mask->allowed[row * mask->keys + last - 1])
            last--;
        seen = row ? seen : last;
        /* padding itself may see nothing or everything, but not itself and what is before it */
        if (last != seen && (mask->at[row] < seen || (last && last != mask->keys)))
            return 0;
        count += mask->at[row] < seen;
    }
    return count < 3 ? 0 : mask->keys - seen;
}

/* Most rows that do not see the first key see about as far back as the window is: chunks of a sequence reach from one
 * token to all of theirs. Probabilities may vanish at its end. */
static bool is_window(const struct ts_mask *mask, const struct ts_mask_shape *shape)
{
    size_t moving = 0, near = 0, count;
    for (size_t row = 0; row < mask->rows; row++) {
        const size_t first = first_seen(mask, row, &count);
        if (mask->at[row] < shape->front || !count || first <= shape->front)
            continue;
        moving++;
        near += 4 * ((long)mask->at[row] - (long)first + 1) >= 3 * shape->window;
    }
    return 2 * near >= moving;
}

/* How far ahead most rows see, and how far back the later ones do, unless others see the first key from further away.
 */
struct ts_mask_shape ts_mask_describe(const struct ts_mask *mask)
{
    struct ts_mask_shape shape = {.front = hidden_in_front(mask)};
    size_t votes = 0, keys;
    long ahead = 0, reach = 0;
    shape.back = shape.front ? 0 : hidden_behind(mask);
    keys = mask->keys - shape.back;
    shape.shift = (long)mask->keys;
    for (size_t row = 0; row < mask->rows; row++) {
        long last = -1, first = -1, before = 0, place = (long)mask->at[row];
        size_t same = 0;
        for (size_t key = 0; key < keys; key++)
            if (mask->allowed[row * mask->keys + key]) {
                last = (long)key;
                first = first < 0 ? (long)key : first;
            }
        if (mask->at[row] < shape.front)
            continue;
        if (first > (long)shape.front && place - first + 1 > shape.window)
            shape.window = place - first + 1;
        if (first == (long)shape.front && place - first + 1 > reach)
            reach = place - first + 1;
        if (last < 0 || last + 1 == (long)keys) /* sees to the end: that tells nothing about how far */
            continue;
        before = last - place;
        for (size_t other = 0; other < mask->rows; other++) {
            size_t key = mask->at[other] + (size_t)before;
            if (key < keys && mask->allowed[other * mask->keys + key] &&
                (key + 1 == keys || !mask->allowed[other * mask->keys + key + 1]))
                same++;
        }
        if (same > votes) {
            votes = same;
            ahead = before;
        }
    }
    if (reach > shape.window || !is_window(mask, &shape))
        shape.window = 0;
    if (votes)
        shape.shift = ahead;
    if (!votes && mask->rows) { /* everything ahead is visible; is everything behind? */
        size_t row = mask->rows - 1, key = shape.front;
        while (key < keys && !mask->allowed[row * mask->keys + key])
            key++;
        shape.window = key > shape.front && key < keys ? (long)(mask->at[row] - key) + 1 : 0;
    }
    return shape;
}

bool ts_is_padded(const struct ts_mask_shape *shape)
{
    return shape->front || shape->back;
}

bool ts_is_one_shape(const struct ts_mask_shape *a, const struct ts_mask_shape *b)
{
    return a->window == b->window && a->shift == b->shift && a->front == b->front && a->back == b->back;
}

const char *ts_mask_text(struct ts_case *the_case, const struct ts_mask_shape *shape, size_t keys)
{
    const char *back = shape->window > 0 ? ts_case_text(the_case, ", at most %ld tokens back (a window of %ld)",
                                                        shape->window - 1, shape->window)
                                         : "";
    size_t count = shape->front + shape->back;
    if (count)
        back = ts_case_text(the_case, "%s, and the %s token%s hidden%s, as padding is", back,
                            ts_case_text(the_case, count > 1 ? "%s %zu" : "%s", shape->front ? "first" : "last", count),
                            count > 1 ? "s are" : " is", shape->front ? " from those behind" : "");
    if (shape->shift >= (long)keys - 1 && shape->window == 1)
        return "each token sees itself and the tokens behind it, and none before it";
    if (shape->shift >= (long)keys - 1)
        return ts_case_text(the_case, "each token sees every token%s", back);
    if (shape->shift == 0)
        return ts_case_text(the_case, "each token sees itself and the tokens before it%s", back);
    if (shape->shift > 0)
        return ts_case_text(the_case, "each token sees %ld token%s ahead%s", shape->shift, shape->shift == 1 ? "" : "s",
                            back);
    if (shape->shift == -1)
        return ts_case_text(the_case, "each token sees the tokens before it but not itself%s", back);
    return ts_case_text(the_case, "each token sees only tokens at least %ld before it%s", -shape->shift, back);
}

const char *ts_mask_check(const struct ts_mask_shape *found, const struct ts_mask_shape *meant)
{
    if (found->front == meant->front && found->back == meant->back)
        return "the attention mask: its diagonal, and the sliding window of this layer";
    return found->window == meant->window && found->shift == meant->shift
               ? "the mask of padding (attention_mask) of this sequence: whether it reaches attention, and its side"
               : "the attention mask: its diagonal, the sliding window of this layer, and the padding of this sequence";
}

const char *ts_mask_first_difference(struct ts_case *the_case, const struct ts_mask *a, const struct ts_mask *b)
{
    for (size_t i = 0; i < a->rows * a->keys; i++)
        if (a->allowed[i] != b->allowed[i]) {
            size_t row = i / a->keys, key = i % a->keys, end = key;
            while (end + 1 < a->keys && a->allowed[row * a->keys + end + 1] != b->allowed[row * a->keys + end + 1])
                end++;
            return ts_case_text(the_case, ": from token %zu on, keys %zu to %zu are %s in the candidate", a->at[row],
                                key, end, b->allowed[i] ? "visible" : "masked");
        }
    return "";
}
