/* Rotary: pairs of numbers keep their length and turn by another angle than the reference's.
 *
 * Per token and pair the turn from the candidate's input to what it holds is one complex number, summed over heads:
 * z = sum of found * conj(input). How well any table of angles p explains the candidate is then one sum over tokens and
 * pairs, |found|^2 + |input|^2 - 2 Re(z exp(-i p)), so that thousands of tables (bases, offsets, pairings) can be
 * tried. */
#include <complex.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/rotary.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.3
/* A simpler explanation is preferred unless another explains this much more. */
#define SIMPLER    0.02
#define FAR_OFFSET 256
#define FURTHEST   8192 /* padding of other sequences, where it is not known */
/* Two bases that are one: what else differs between the angles is no base. */
#define SAME_BASE 0.02
/* By so much of a radian the furthest token may be turned otherwise, beside rounding, where angles are those of a base.
 */
#define ABOUT_STRAIGHT 1e-3

struct guess {
    struct ts_turned_pairs pairing;
    struct ts_angles how;
    size_t freedom;
    double share;
    double *angles; /* [rows, pairing.group / 2] */
    bool order;     /* it is the order that is wrong, no angle */
    double height;  /* what turns is this many times too large; 0: it is not */
    char text[400];
};

/* How much of the turning a table explains: sum of Re(z exp(-i p)). */
static double agreement(const double complex *turns, const double *angles, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += creal(turns[i]) * cos(angles[i]) + cimag(turns[i]) * sin(angles[i]);
    return sum;
}

/* The usual base that is meant, where rounding left a little of it; 0 when it is none. */
static double near_usual(double base)
{
    static const double usual[] = {100, 1e3, 1e4, 2.5e4, 5e4, 1e5, 1.5e5, 5e5, 1e6, 2e6, 5e6, 8e6, 1e7, 1e8};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (fabs(base / usual[i] - 1) < 0.01)
            return usual[i];
    return 0;
}

static double usual_base(double base)
{
    double usual = near_usual(base);
    return usual > 0 ? usual : base;
}

/* Share of the case's error that a table leaves explained, from the turns alone. What turns is `height` times as large
 * as it was. */
static double share_of(const struct ts_rotary *rotary, const struct ts_turned_pairs *pairing,
                       const double complex *turns, const double *angles, double height)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t pairs = pairing->group / 2;
    double left = 0, made = rotary->the_case->error - rotary->the_case->noise;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t head = 0; head < pairing->heads; head++)
            for (size_t i = 0; i < pairing->inner; i++) {
                size_t at = row * actor->width + head * pairing->inner + i;
                double x = (double)rotary->turned[at], y = (double)actor->b[at];
                if (!isfinite(x) || !isfinite(y))
                    continue;
                left += ts_turns_at(pairing, i) ? height * height * x * x + y * y : (x - y) * (x - y);
            }
    left -= 2 * height * agreement(turns, angles, actor->rows * pairs);
    left = left > rotary->the_case->noise ? left - rotary->the_case->noise : 0;
    return made > 0 ? 1 - left / made : 0;
}

/* Keeps the guess when it explains clearly more than the best so far: guesses come simplest first. */
static void keep(struct guess *best, struct guess *guess)
{
    if (guess->share > WORTHWHILE && guess->share > best->share + SIMPLER) {
        free(best->angles);
        *best = *guess;
        guess->angles = NULL;
    }
}

static bool make_angles(const struct ts_rotary *rotary, struct guess *guess)
{
    free(guess->angles);
    guess->angles = calloc(rotary->the_case->actor->rows * guess->pairing.group / 2 + 1, sizeof *guess->angles);
    return guess->angles != NULL;
}

static const char *pairing_text(const struct ts_turned_pairs *pairing)
{
    return pairing->interleaved ? "interleaved pairs (2i, 2i + 1)" : "half-split pairs (i, i + half)";
}

/* The reference's own angles, used otherwise. */
static void try_fixed(const struct ts_rotary *rotary, const double complex *turns, struct guess *best)
{
    size_t count = rotary->the_case->actor->rows * rotary->pairing.group / 2;
    static const struct {
        double factor, constant;
        const char *text;
    } ways[] = {
        {-1, 0, "the candidate rotates every pair the other way: the sign of the angle (of the sine) is flipped"},
        {2, 0, "the candidate rotates every pair by twice the angle: the rotation is applied twice"},
        {-1, M_PI_2, "the candidate swaps cosine and sine"}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct guess guess = {.pairing = rotary->pairing,
                              .how = {TS_FROM_REFERENCE, ways[w].factor, ways[w].constant, 0}};
        if (!make_angles(rotary, &guess))
            return;
        for (size_t i = 0; i < count; i++)
            guess.angles[i] = ways[w].constant + ways[w].factor * rotary->angles[i];
        guess.share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
        snprintf(guess.text, sizeof guess.text, "%s", ways[w].text);
        keep(best, &guess);
        free(guess.angles);
    }
}

/* The other pairing with the same angles. */
static void try_pairing(const struct ts_rotary *rotary, double complex *scratch, struct guess *best)
{
    size_t count = rotary->the_case->actor->rows * rotary->pairing.group / 2;
    struct guess guess = {.pairing = rotary->pairing, .how = {TS_FROM_REFERENCE, 1, 0, 0}};
    guess.pairing.interleaved = !guess.pairing.interleaved;
    guess.pairing.gathered = false;
    if (!make_angles(rotary, &guess))
        return;
    memcpy(guess.angles, rotary->angles, count * sizeof *guess.angles);
    ts_find_turns(rotary->the_case->actor, &guess.pairing, rotary->turned, rotary->the_case->actor->b, scratch);
    guess.share = share_of(rotary, &guess.pairing, scratch, guess.angles, 1);
    snprintf(guess.text, sizeof guess.text,
             "the right angles on the wrong pairs: the candidate rotates %s, the reference %s",
             pairing_text(&guess.pairing), pairing_text(&rotary->pairing));
    keep(best, &guess);
    free(guess.angles);
}

/* The same angles for other numbers of each head: the first, or the last. */
static void try_start(const struct ts_rotary *rotary, double complex *scratch, struct guess *best)
{
    const struct ts_turned_pairs *own = &rotary->pairing;
    size_t count = rotary->the_case->actor->rows * own->group / 2, starts[2] = {0, own->inner - own->group};
    for (size_t k = 0; k < 2; k++) {
        struct guess guess = {.pairing = *own, .how = {TS_FROM_REFERENCE, 1, 0, 0}};
        guess.pairing.start = starts[k];
        if (starts[k] == own->start || !make_angles(rotary, &guess))
            continue;
        memcpy(guess.angles, rotary->angles, count * sizeof *guess.angles);
        ts_find_turns(rotary->the_case->actor, &guess.pairing, rotary->turned, rotary->the_case->actor->b, scratch);
        guess.share = share_of(rotary, &guess.pairing, scratch, guess.angles, 1);
        snprintf(guess.text, sizeof guess.text,
                 "the candidate rotates the %s %zu of %zu channels of each head, the reference those from %zu on",
                 k ? "last" : "first", own->group, own->inner, own->start);
        keep(best, &guess);
        free(guess.angles);
    }
}

/* Pairs that come as neighbours leave as such, or as halves. */
static void try_gathered(const struct ts_rotary *rotary, double complex *scratch, struct guess *best)
{
    const struct ts_turned_pairs *own = &rotary->pairing;
    size_t count = rotary->the_case->actor->rows * own->group / 2;
    struct guess guess = {.pairing = *own, .how = {TS_FROM_REFERENCE, 1, 0, 0}, .order = true};
    guess.pairing.gathered = !own->gathered;
    if (!own->interleaved || !make_angles(rotary, &guess))
        return;
    memcpy(guess.angles, rotary->angles, count * sizeof *guess.angles);
    ts_find_turns(rotary->the_case->actor, &guess.pairing, rotary->turned, rotary->the_case->actor->b, scratch);
    guess.share = share_of(rotary, &guess.pairing, scratch, guess.angles, 1);
    snprintf(guess.text, sizeof guess.text,
             "the candidate turns the right pairs (2i, 2i + 1) by the right angles and %s, where the reference %s: of "
             "each head, %zu channels from %zu on",
             own->gathered ? "leaves them side by side" : "leaves them as halves (i, i + half)",
             own->gathered ? "leaves them as halves (i, i + half)" : "leaves them side by side", own->group,
             own->start);
    keep(best, &guess);
    free(guess.angles);
}

/* Another number of turning dimensions: with the reference's base for that number, or with its first angles. */
static void try_group(const struct ts_rotary *rotary, double complex *scratch, size_t group, size_t freedom,
                      struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t own_pairs = rotary->pairing.group / 2, pairs = group / 2;
    if (group < 4 || group % 2 || group == rotary->pairing.group ||
        rotary->pairing.start + group > rotary->pairing.inner)
        return;
    for (int variant = 0; variant < 2; variant++) {
        struct guess guess = {.pairing = rotary->pairing,
                              .how = {variant ? TS_FROM_REFERENCE : TS_FROM_POSITION, 1, 0, 0},
                              .freedom = freedom};
        guess.pairing.group = group;
        if ((variant == 0 && rotary->base == 0) || (variant == 1 && pairs > own_pairs) || !make_angles(rotary, &guess))
            continue;
        for (size_t row = 0; row < actor->rows; row++)
            for (size_t i = 0; i < pairs; i++)
                guess.angles[row * pairs + i] =
                    variant ? rotary->angles[row * own_pairs + i]
                            : rotary->places[row] * pow(rotary->base, -(double)i / (double)pairs);
        ts_find_turns(actor, &guess.pairing, rotary->turned, actor->b, scratch);
        guess.share = share_of(rotary, &guess.pairing, scratch, guess.angles, 1);
        snprintf(guess.text, sizeof guess.text,
                 "the candidate rotates %zu channels of each head, the reference %zu of %zu (partial rotary)", group,
                 rotary->pairing.group, rotary->pairing.inner);
        keep(best, &guess);
        free(guess.angles);
    }
}

/* The shares of a head that most models turn. */
static void try_partial(const struct ts_rotary *rotary, double complex *scratch, struct guess *best)
{
    for (size_t n = 0; n < 3; n++)
        try_group(rotary, scratch, ts_turning_numbers(rotary->pairing.inner, n), 0, best);
}

/* Any other share, where nothing simpler holds. Another base fits nearly as well where neighbours turn in pairs, and is
 * refuted by numbers that it would turn and that did not, or the other way round. */
static void try_any_part(const struct ts_rotary *rotary, double complex *scratch, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t group;
    if (best->angles && best->pairing.group == rotary->pairing.group) {
        group = ts_rotary_numbers(rotary, rotary->turned, actor->b, actor->bits_b, best->angles, 0);
        best->share -= group != rotary->pairing.group ? 2 * SIMPLER : 0;
    }
    for (size_t n = 3; (group = ts_turning_numbers(rotary->pairing.inner, n)) > 0; n++)
        try_group(rotary, scratch, group, 1, best);
}

/* The right angles, with cosines and sines that are larger or smaller: of a part of each head only, or it is one factor
 * for all. */
static void try_height(const struct ts_rotary *rotary, const double complex *turns, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    const struct ts_turned_pairs *own = &rotary->pairing;
    size_t count = actor->rows * own->group / 2;
    double squares = 0, along = agreement(turns, rotary->angles, count), height;
    struct guess guess = {.pairing = *own, .how = {TS_FROM_REFERENCE, 1, 0, 0}, .freedom = 1};
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (ts_turns_at(own, i) && isfinite(rotary->turned[i]) && isfinite(actor->b[i]))
            squares += (double)rotary->turned[i] * (double)rotary->turned[i];
    height = squares > 0 ? along / squares : 0;
    if (own->group == own->inner || !(height > 0) || !make_angles(rotary, &guess))
        return;
    memcpy(guess.angles, rotary->angles, count * sizeof *guess.angles);
    guess.height = height;
    guess.share = share_of(rotary, own, turns, guess.angles, height);
    snprintf(
        guess.text, sizeof guess.text,
        "what turns, %zu of %zu channels of each head, is %.4g times what it should be, by the right angles: cosines "
        "and sines have another factor",
        own->group, own->inner, height);
    keep(best, &guess);
    free(guess.angles);
}

/* All positions moved by the same number. */
static void try_offset(const struct ts_rotary *rotary, const double complex *turns, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t pairs = rotary->pairing.group / 2;
    double most = -INFINITY, found = 0;
    struct guess guess = {.pairing = rotary->pairing, .freedom = 1};
    if (!make_angles(rotary, &guess))
        return;
    for (int offset = -FAR_OFFSET; offset <= FAR_OFFSET; offset++) {
        double sum;
        for (size_t k = 0; k < actor->rows * pairs; k++)
            guess.angles[k] = rotary->angles[k] + offset * rotary->steps[k % pairs];
        sum = agreement(turns, guess.angles, actor->rows * pairs);
        if (offset != 0 && sum > most) {
            most = sum;
            found = offset;
        }
    }
    guess.how = (struct ts_angles){TS_FROM_REFERENCE, 1, 0, found};
    for (size_t k = 0; k < actor->rows * pairs; k++)
        guess.angles[k] = rotary->angles[k] + found * rotary->steps[k % pairs];
    guess.share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
    snprintf(guess.text, sizeof guess.text,
             "the candidate's positions are off by %+.0f: its first token is rotated like token %.0f of the reference",
             found, rotary->places[0] + found);
    keep(best, &guess);
    free(guess.angles);
}

/* theta^(-2i / n) with another n looks as another theta. That n, where the theta is none that anybody would choose and
 * n is a whole, even number, or where n is twice or half of what it should be; else 0. */
static size_t exponents_over(double reference, double base, size_t group)
{
    double digits = pow(10, floor(log10(base))), over, whole;
    if (!(base > 1.5) || !(reference > 1.5))
        return 0;
    over = (double)group * log(reference) / log(base);
    whole = 2 * nearbyint(over / 2);
    if (fabs(over - whole) > 5e-4 * over || whole < 8 || whole > 8192 || (size_t)whole == group)
        return 0;
    if (near_usual(base) > 0 || fabs(base / digits / nearbyint(base / digits) - 1) < 3e-3)
        return (size_t)whole == 2 * group || 2 * (size_t)whole == group ? (size_t)whole : 0;
    return (size_t)whole;
}

/* The reference's angles are those of its base in every pair, and not just in those that turn fast. */
static bool fits_its_base(const struct ts_rotary *rotary)
{
    const size_t pairs = rotary->pairing.group / 2;
    const double limit = ABOUT_STRAIGHT + ts_rounding(rotary->the_case->actor->bits_a);
    double furthest = 0;
    bool fits = rotary->base > 0;
    for (size_t row = 0; row < rotary->the_case->actor->rows; row++)
        furthest = fmax(furthest, fabs(rotary->places[row]));
    for (size_t i = 0; i < pairs; i++)
        fits = fits && fabs(rotary->steps[i] - pow(rotary->base, -(double)i / (double)pairs)) * furthest < limit;
    return fits;
}

/* Another base, or every angle times one factor. */
static void try_base(const struct ts_rotary *rotary, const double complex *turns, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t pairs = rotary->pairing.group / 2, over;
    struct guess guess = {.pairing = rotary->pairing, .freedom = 1};
    double base, upper = 0, lower = 0, factor, *steps = calloc(pairs, sizeof *steps);
    if (!steps || !make_angles(rotary, &guess)) {
        free(steps);
        return;
    }
    base = ts_rotary_find_base(rotary, turns, pairs);
    guess.how.follows = TS_FROM_POSITION;
    for (size_t k = 0; k < actor->rows * pairs; k++)
        guess.angles[k] = rotary->places[k / pairs] * pow(base, -(double)(k % pairs) / (double)pairs);
    guess.share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
    over = rotary->base > 0 ? exponents_over(rotary->base, base, rotary->pairing.group) : 0;
    if (over)
        snprintf(guess.text, sizeof guess.text,
                 "the candidate's angles fit theta = %s, which is the reference's theta = %s with exponents divided by "
                 "%zu instead of %zu: head_dim%s",
                 ts_plain_number(usual_base(base), 5, (char[32]){0}),
                 ts_plain_number(usual_base(rotary->base), 5, (char[32]){0}), over, rotary->pairing.group,
                 near_usual(base) > 0           ? " or rope_theta is different"
                 : over < rotary->pairing.group ? " is wrong, or only that many of its channels are rotated"
                                                : " is wrong");
    else if (rotary->base > 0 && fabs(base / rotary->base - 1) > SAME_BASE)
        snprintf(guess.text, sizeof guess.text,
                 "the candidate's angles fit theta = %s, the reference's theta = %s (%zu rotated channels per head)",
                 ts_plain_number(usual_base(base), 5, (char[32]){0}),
                 ts_plain_number(usual_base(rotary->base), 5, (char[32]){0}), rotary->pairing.group);
    else if (fits_its_base(rotary)) /* which is the same, and neither is scaled */
        guess.share = 0;
    else
        snprintf(guess.text, sizeof guess.text,
                 "the candidate's angles are unscaled with theta = %s; the reference's are scaled or come from a table",
                 ts_plain_number(usual_base(base), 5, (char[32]){0}));
    keep(best, &guess);
    ts_find_steps(turns, rotary->places, actor->rows, pairs, steps);
    for (size_t i = 0; i < pairs; i++) {
        upper += steps[i] * rotary->steps[i];
        lower += rotary->steps[i] * rotary->steps[i];
    }
    factor = lower > 0 ? upper / lower : 1;
    guess.how = (struct ts_angles){TS_FROM_UNWOUND, factor, 0, 0};
    guess.freedom = 1;
    if (make_angles(rotary, &guess)) {
        /* angles of the reference lie on the circle only: its steps tell how often they went around */
        for (size_t k = 0; k < actor->rows * pairs; k++) {
            double straight = rotary->places[k / pairs] * rotary->steps[k % pairs];
            double turned = straight + remainder(rotary->angles[k] - straight, 2 * M_PI);
            guess.angles[k] = factor * turned;
        }
        guess.share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
        snprintf(guess.text, sizeof guess.text,
                 "every angle is %.5g times the reference's: linear position scaling by %.5g", factor, 1 / factor);
        keep(best, &guess);
    }
    free(guess.angles);
    free(steps);
}

/* A frequency for each pair, of those that turn in the reference or of those in front of them as well. */
static void try_frequencies(const struct ts_rotary *rotary, double complex *turns, bool front, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    struct ts_turned_pairs pairing = rotary->pairing;
    size_t before = front ? pairing.start / 2 : 0, pairs = pairing.group / 2 + before;
    double *steps = calloc(2 * pairs, sizeof *steps), *own = steps ? steps + pairs : NULL;
    struct guess guess = {.how = {TS_FROM_POSITION, 1, 0, 0}, .freedom = pairs};
    pairing.start -= 2 * before;
    pairing.group = 2 * pairs;
    guess.pairing = pairing;
    if (steps && make_angles(rotary, &guess)) {
        ts_find_turns(actor, &pairing, rotary->turned, actor->b, turns);
        memcpy(own + before, rotary->steps, (pairs - before) * sizeof *own);
        ts_find_steps(turns, rotary->places, actor->rows, pairs, steps);
        for (size_t k = 0; k < actor->rows * pairs; k++)
            guess.angles[k] = rotary->places[k / pairs] * steps[k % pairs];
        guess.share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
        if (front)
            snprintf(guess.text, sizeof guess.text,
                     "the candidate rotates the first %zu channels of each head as well, which do not turn in the "
                     "reference",
                     rotary->pairing.start);
        else
            snprintf(guess.text, sizeof guess.text,
                     "the frequencies differ: per position the first pair rotates by %.5g (reference %.5g), the middle "
                     "one by %.5g (%.5g), the last by %.5g (%.5g)",
                     steps[0], own[0], steps[pairs / 2], own[pairs / 2], steps[pairs - 1], own[pairs - 1]);
        keep(best, &guess);
    }
    free(guess.angles);
    free(steps);
}

/* Each token at a position of its own. */
static void try_positions(const struct ts_rotary *rotary, const double complex *turns, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t pairs = rotary->pairing.group / 2, moved = 0, said = 0;
    struct guess guess = {.pairing = rotary->pairing, .how = {TS_FROM_PLACES, 1, 0, 0}};
    if (!make_angles(rotary, &guess))
        return;
    for (size_t row = 0; row < actor->rows; row++) {
        double found = ts_find_place(turns + row * pairs, rotary->angles + row * pairs, rotary->steps, pairs,
                                     rotary->places[row], FAR_OFFSET);
        for (size_t i = 0; i < pairs; i++)
            guess.angles[row * pairs + i] = rotary->angles[row * pairs + i] + found * rotary->steps[i];
        if (found != 0) {
            uint64_t flat = UINT64_MAX;
            char token[64];
            moved++;
            (void)ts_case_index(rotary->the_case, row * actor->width, &flat);
            ts_turned_token_text(rotary->the_case, ts_case_row(rotary->the_case, row), flat, token, sizeof token);
            if (said < sizeof guess.text - 80)
                said += (size_t)snprintf(guess.text + said, sizeof guess.text - said,
                                         "%s%s is rotated as if at position %.0f", said ? ", " : "", token,
                                         rotary->places[row] + found);
        }
    }
    guess.freedom = moved;
    guess.share = moved ? share_of(rotary, &guess.pairing, turns, guess.angles, 1) : 0;
    keep(best, &guess);
    free(guess.angles);
}

/* Half a turn more for every pair: the other sign, which has its own name. */
static bool is_other_sign(const struct ts_rotary *rotary, const double complex *turns)
{
    const size_t count = rotary->the_case->actor->rows * rotary->pairing.group / 2;
    struct guess guess = {.pairing = rotary->pairing};
    double share;
    if (!make_angles(rotary, &guess))
        return false;
    for (size_t i = 0; i < count; i++)
        guess.angles[i] = rotary->angles[i] + M_PI;
    share = share_of(rotary, &guess.pairing, turns, guess.angles, 1);
    free(guess.angles);
    return share > 1 - SIMPLER;
}

/* Any angles at all: pairs keep their length and that is all there is to say. */
static void try_free(const struct ts_rotary *rotary, double complex *turns, double complex *scratch, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    if (is_other_sign(rotary, turns))
        return;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct guess guess = {.pairing = rotary->pairing, .how = {TS_FROM_FREE, 1, 0, 0}};
        size_t pairs = guess.pairing.group / 2;
        guess.pairing.interleaved = interleaved;
        guess.pairing.gathered = guess.pairing.gathered && interleaved;
        guess.freedom = actor->rows * pairs;
        if (!make_angles(rotary, &guess))
            return;
        ts_find_turns(actor, &guess.pairing, rotary->turned, actor->b, scratch);
        ts_angles_of(scratch, actor->rows * pairs, guess.angles);
        guess.share = share_of(rotary, &guess.pairing, scratch, guess.angles, 1);
        snprintf(guess.text, sizeof guess.text, "%s keep their length but are rotated by other angles",
                 pairing_text(&guess.pairing));
        if (guess.share > best->share + 0.1)
            keep(best, &guess);
        free(guess.angles);
    }
}

/* The reference does not turn (a layer without rotary, or a single token at position 0) and the candidate does. Heads
 * and pairing are those that keep the lengths; then the base and where the first token would be. */
static void try_unturned(struct ts_rotary *rotary, double complex *turns, double *scratch, struct guess *best)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    for (size_t heads = actor->heads > 1     ? actor->heads
                        : actor->width < 512 ? actor->width / 4
                                             : 128;
         heads >= 1; heads = actor->heads > 1 ? 0 : heads - 1)
        for (int variant = 0; variant < 4 && actor->width % heads == 0 && !best->angles; variant++) {
            struct ts_turned_pairs pairing = {.heads = heads,
                                              .inner = actor->width / heads,
                                              .group = (actor->width / heads) >> variant / 2,
                                              .interleaved = variant % 2};
            size_t pairs = pairing.group / 2, count = actor->rows * pairs;
            if (pairing.group < 4 || pairing.group % 2)
                continue;
            ts_find_turns(actor, &pairing, rotary->turned, actor->b, turns);
            ts_angles_of(turns, count, rotary->angles);
            rotary->pairing = pairing;
            if (ts_turned_error(actor, &pairing, rotary->turned, rotary->angles, actor->b, scratch) > 0.02)
                continue;
            for (int first = -2; first <= 4 && actor->rows * pairs < rotary->the_case->total / 2; first++) {
                struct guess guess = {.pairing = pairing, .how = {TS_FROM_POSITION, 1, 0, first}, .freedom = 2};
                double base;
                for (size_t row = 0; row < actor->rows; row++)
                    rotary->places[row] = (double)(ts_case_row(rotary->the_case, row)) + first;
                if ((first == 0 && actor->rows == 1) || !make_angles(rotary, &guess))
                    continue;
                base = ts_rotary_find_base(rotary, turns, pairs);
                for (size_t k = 0; k < count; k++)
                    guess.angles[k] = rotary->places[k / pairs] * pow(base, -(double)(k % pairs) / (double)pairs);
                guess.share = share_of(rotary, &pairing, turns, guess.angles, 1);
                snprintf(guess.text, sizeof guess.text,
                         "the candidate rotates this tensor and the reference does not: its first token as at position "
                         "%.0f, with theta = %s and %s",
                         rotary->places[0], ts_plain_number(base, 5, (char[32]){0}), pairing_text(&pairing));
                keep(best, &guess);
                free(guess.angles);
            }
        }
}

static void give_formula(const struct ts_rotary *rotary, const struct guess *guess, double factor)
{
    struct ts_turning turning = {rotary->pairing, guess->pairing, guess->how,     rotary->columns,
                                 factor,          FAR_OFFSET,     rotary->placed, 0};
    bool places = guess->how.follows == TS_FROM_PLACES;
    size_t own = rotary->pairing.group / 2, pairs = guess->pairing.group / 2;
    size_t last = rotary->the_case->actor->rows - 1;
    double *table, place = rotary->places[last] + guess->how.positions;
    if (!(table = calloc(own + pairs, sizeof *table)))
        return;
    turning.furthest = fmax(FAR_OFFSET, fmin(FURTHEST, (double)ts_scene_sequence(rotary->the_case->scene)));
    for (size_t row = 0; row <= last; row++)
        turning.furthest =
            fmax(turning.furthest, fabs((double)ts_case_row(rotary->the_case, row) - rotary->places[row]));
    memcpy(table, rotary->steps, own * sizeof *table);
    for (size_t i = 0; i < pairs; i++)
        table[own + i] = place != 0 ? guess->angles[last * pairs + i] / place : 0;
    ts_formula_next(rotary->the_case,
                    &(struct ts_formula){.predict = ts_predict_turned,
                                         .count = places ? ts_count_places : NULL,
                                         .tell = places ? ts_tell_places : NULL,
                                         .numbers = &turning,
                                         .size = sizeof turning,
                                         .table = table,
                                         .table_count = own + pairs,
                                         .pairs = {rotary->input->pair},
                                         .pair_count = 1,
                                         .reference = rotary->placed || (guess->how.follows != TS_FROM_POSITION &&
                                                                         guess->how.follows != TS_FROM_FREE)});
    free(table);
}

static void give_slice(const struct ts_rotary *rotary)
{
    size_t width = rotary->the_case->actor->width, *order = malloc(width * sizeof *order);
    for (size_t i = 0; order && i < width; i++)
        order[i] = ts_turned_column(&rotary->columns, i);
    if (order)
        ts_formula_slices(rotary->the_case, rotary->input->pair, order);
    free(order);
}

static void propose(struct ts_case *the_case)
{
    struct ts_rotary rotary = {.the_case = the_case};
    struct guess best = {0};
    double complex *turns = NULL, *spare = NULL;
    double *scratch, still = 0, factor = 1;
    size_t most;
    bool copied = the_case->operation.kind == TS_OPERATION_COPY;
    if (!ts_case_in_scene(the_case) || the_case->actor->width < 4 || (the_case->actor->rows < 2 && !copied) ||
        (the_case->operation.kind != TS_OPERATION_ROTARY && the_case->operation.kind != TS_OPERATION_NONE && !copied))
        return;
    most = the_case->total / 2 + 1;
    rotary.angles = calloc(most, sizeof *rotary.angles);
    rotary.steps = calloc(most, sizeof *rotary.steps);
    rotary.places = calloc(the_case->actor->rows, sizeof *rotary.places);
    rotary.turned = calloc(the_case->total, sizeof *rotary.turned);
    turns = calloc(most, sizeof *turns);
    spare = calloc(most, sizeof *spare);
    scratch = ts_case_scratch(the_case);
    if (!rotary.angles || !rotary.steps || !rotary.places || !rotary.turned || !turns || !spare || !scratch)
        goto done;
    if (copied) {
        if (!ts_rotary_take_input(&rotary))
            goto done;
        for (size_t i = 0; i < the_case->total; i++)
            rotary.turned[i] = rotary.input->b[i];
        try_unturned(&rotary, turns, scratch, &best);
        still = 0;
    } else if (ts_rotary_find_reference(&rotary, turns, scratch)) {
        factor = the_case->operation.kind == TS_OPERATION_ROTARY ? the_case->operation.factor : 1;
        ts_rotary_study_reference(&rotary, turns);
        for (size_t i = 0; i < the_case->total; i++) /* what does not turn is not multiplied */
            rotary.turned[i] = rotary.input->b[i] * (float)(ts_turns_at(&rotary.pairing, i) ? factor : 1);
        ts_find_turns(the_case->actor, &rotary.pairing, rotary.turned, the_case->actor->b, turns);
        for (size_t i = 0; i < the_case->total; i++)
            scratch[i] = (double)rotary.turned[i];
        still = ts_explained(the_case, scratch);
        try_fixed(&rotary, turns, &best);
        try_pairing(&rotary, spare, &best);
        try_gathered(&rotary, spare, &best);
        try_start(&rotary, spare, &best);
        try_partial(&rotary, spare, &best);
        try_offset(&rotary, turns, &best);
        try_base(&rotary, turns, &best);
        try_any_part(&rotary, spare, &best);
        try_frequencies(&rotary, spare, false, &best);
        if (rotary.pairing.interleaved && rotary.pairing.start)
            try_frequencies(&rotary, spare, true, &best);
        try_positions(&rotary, turns, &best);
        try_height(&rotary, turns, &best);
        try_free(&rotary, turns, spare, &best);
    }
    if (rotary.input == &rotary.slice && rotary.input && still > WORTHWHILE) {
        for (size_t i = 0; i < the_case->total; i++)
            scratch[i] = (double)rotary.turned[i];
        give_slice(&rotary);
        ts_propose(the_case, "skipped-op", scratch, 0, "whether the rotary embedding is applied to this tensor",
                   "the candidate holds its part of %s unchanged: the rotary embedding was not applied",
                   ts_case_name(the_case, rotary.input));
    }
    /* what does not turn at all was left out, which has its own name */
    if (best.angles && best.share > still + SIMPLER) {
        ts_turn_by(the_case->actor, &best.pairing, rotary.turned, best.angles, scratch);
        for (size_t i = 0; best.height > 0 && i < the_case->total; i++)
            scratch[i] *= ts_turns_at(&best.pairing, i) ? best.height : 1;
        give_formula(&rotary, &best, best.height > 0 ? factor * best.height : factor);
        ts_propose(the_case, best.order ? "permuted" : "rotation", scratch, best.freedom,
                   best.order ? "whether the rotary embedding writes pairs where it read them, or the first numbers of "
                                "all pairs before the second ones"
                   : best.height > 0
                       ? "the factor that rope_scaling puts on cosines and sines (attention_factor, mscale)"
                       : "rope_theta, rope_scaling, position ids, and the pairing (half-split or interleaved)",
                   "%s", best.text);
    }
done:
    free(best.angles);
    free(turns);
    free(spare);
    ts_rotary_release(&rotary);
}

const struct ts_family ts_family_rotary = {"rotary", propose};
