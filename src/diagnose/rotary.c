#include "diagnose/rotary.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/operation.h"
#include "diagnose/variant.h"

/* Bases that are looked for: from far below to far above what models use. */
#define LOWEST_BASE  2.0
#define HIGHEST_BASE 1e9
#define ANGLE_OFF    0.01 /* radians, on average */

double ts_turned_error(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                       const double *angles, const float *to, double *scratch)
{
    double error = 0, size = 0;
    ts_turn_by(actor, pairing, from, angles, scratch);
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        error += (scratch[i] - (double)to[i]) * (scratch[i] - (double)to[i]);
        size += (double)to[i] * (double)to[i];
    }
    return size > 0 ? sqrt(error / size) : 1;
}

void ts_angles_of(const double complex *turns, size_t count, double *angles)
{
    for (size_t i = 0; i < count; i++)
        angles[i] = turns[i] != 0 ? carg(turns[i]) : 0;
}

/* Sum over tokens up to `reach` of the agreement with angles place * base^(-2 i / group). */
static double base_agreement(const struct ts_rotary *rotary, const double complex *turns, size_t pairs,
                             double logarithm, double reach)
{
    size_t rows = rotary->the_case->actor->rows;
    double sum = 0;
    for (size_t i = 0; i < pairs; i++) {
        double step = exp(-logarithm * (double)i / (double)pairs);
        for (size_t row = 0; row < rows && rotary->places[row] - rotary->places[0] <= reach; row++) {
            double complex z = turns[row * pairs + i];
            double angle = rotary->places[row] * step;
            sum += creal(z) * cos(angle) + cimag(z) * sin(angle);
        }
    }
    return sum;
}

/* The base whose table fits best: a coarse look at the first tokens, where angles are not ambiguous, then ever finer
 * with ever more of them. */
double ts_rotary_find_base(const struct ts_rotary *rotary, const double complex *turns, size_t pairs)
{
    double step = 0.02, best = log(LOWEST_BASE), most = -INFINITY, last;
    size_t rows = rotary->the_case->actor->rows;
    last = rotary->places[rows - 1] - rotary->places[0];
    for (double logarithm = log(LOWEST_BASE); logarithm <= log(HIGHEST_BASE); logarithm += step) {
        double sum = base_agreement(rotary, turns, pairs, logarithm, 16);
        if (sum > most) {
            most = sum;
            best = logarithm;
        }
    }
    for (double reach = 16; step > 1e-7; reach *= 2, step /= 2) {
        double low = best - 1.5 * step, high = best + 1.5 * step;
        for (int i = 0; i < 12; i++) { /* golden section */
            double left = high - 0.618034 * (high - low), right = low + 0.618034 * (high - low);
            if (base_agreement(rotary, turns, pairs, left, reach) > base_agreement(rotary, turns, pairs, right, reach))
                high = right;
            else
                low = left;
        }
        best = 0.5 * (low + high);
        if (reach > last && step < 1e-4)
            break;
    }
    return exp(best);
}

size_t ts_rotary_numbers(const struct ts_rotary *rotary, const float *from, const float *to, int bits,
                         const double *angles, double base)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t inner = rotary->pairing.inner, start = rotary->pairing.start, own = rotary->pairing.group, count = 0;
    double seen = ldexp(4, -bits), moved = 0;
    if (!rotary->pairing.interleaved || rotary->pairing.gathered)
        return own;
    for (size_t i = 0; i < actor->rows * actor->width; i++) {
        double by = fabs((double)to[i] - (double)from[i]);
        if (i % inner >= start + count && by > (i % inner < start + own ? 0 : seen * fabs((double)from[i])))
            count = i % inner - start + 1;
    }
    count = (count + 1) / 2 * 2;
    for (size_t row = 0; row < actor->rows && count < own; row++)
        moved = fmax(moved, angles ? fabs(angles[row * own / 2 + count / 2])
                                   : rotary->places[row] * pow(base, -(double)count / (double)own));
    return count > own || (count >= 4 && count < own && moved > seen) ? count : own;
}

void ts_rotary_release(struct ts_rotary *rotary)
{
    free(rotary->angles);
    free(rotary->steps);
    free(rotary->places);
    free(rotary->turned);
    free(rotary->slice.a);
    free(rotary->slice.b);
}

/* Turning changes no row's length: a quick look before many pairings are tried. */
static bool rows_keep_length(const struct ts_actor *input, const struct ts_actor *actor)
{
    for (size_t row = 0; row < actor->rows; row++) {
        double before = 0, after = 0;
        for (size_t i = row * actor->width; i < (row + 1) * actor->width; i++) {
            before += (double)input->a[i] * (double)input->a[i];
            after += (double)actor->a[i] * (double)actor->a[i];
        }
        if (!(fabs(before - after) <= 0.02 * before))
            return false;
    }
    return true;
}

/* Makes rotary->input columns of a tensor, as many as the case has. */
static bool take_columns(struct ts_rotary *rotary, const struct ts_actor *whole, struct ts_turned_columns columns)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t total = actor->rows * actor->width;
    rotary->input = whole;
    rotary->columns = columns;
    if (whole->width == actor->width)
        return true;
    if (!rotary->slice.a) {
        rotary->slice = *whole;
        rotary->slice.a = malloc(total * sizeof(float));
        rotary->slice.b = malloc(total * sizeof(float));
    }
    rotary->slice.pair = whole->pair;
    rotary->slice.width = actor->width;
    rotary->input = &rotary->slice;
    for (size_t i = 0; i < total && rotary->slice.a && rotary->slice.b; i++) {
        size_t at = i / actor->width * whole->width + ts_turned_column(&columns, i % actor->width);
        rotary->slice.a[i] = whole->a[at];
        rotary->slice.b[i] = whole->b[at];
    }
    return rotary->slice.a && rotary->slice.b;
}

bool ts_rotary_take_input(struct ts_rotary *rotary)
{
    const struct ts_operation *operation = &rotary->the_case->operation;
    const struct ts_actor *whole = ts_scene_actor(rotary->the_case->scene, operation->inputs[0]);
    struct ts_turned_columns columns = {operation->place, operation->stride, 1};
    if (whole && operation->stride)
        columns.inner = rotary->the_case->actor->width / (whole->width / operation->stride);
    return whole && take_columns(rotary, whole, columns);
}

/* Which pairs turn: of the first numbers of a head or of the last, as models have them whose other numbers carry no
 * position; and the pairs may leave as halves that came as neighbours. */
enum { HALVES, NEIGHBOURS, GATHERED, PAIRINGS };

static struct ts_turned_pairs pairing_of(size_t heads, size_t inner, size_t group, size_t variant)
{
    bool last = variant / PAIRINGS;
    return (struct ts_turned_pairs){
        heads, inner, group, variant % PAIRINGS != HALVES, last ? inner - group : 0, variant % PAIRINGS == GATHERED};
}

/* A row with what turns in front of each head, and pairs as they came. */
static void straighten(const struct ts_turned_pairs *pairing, const float *row, bool behind, float *out)
{
    size_t inner = pairing->inner, half = pairing->group / 2;
    for (size_t i = 0; i < pairing->heads * inner; i++) {
        size_t at = i % inner;
        if (behind && pairing->gathered && at < pairing->group)
            at = at / 2 + at % 2 * half;
        out[i] = row[i / inner * inner + (at + pairing->start) % inner];
    }
}

static bool may_turn(const struct ts_actor *input, const struct ts_actor *actor, const struct ts_turned_pairs *pairing,
                     double limit, float *room)
{
    const struct ts_operation guess = {
        .heads = pairing->heads, .group = pairing->group, .interleaved = pairing->interleaved};
    size_t last = (actor->rows - 1) * actor->width;
    straighten(pairing, input->a + last, false, room);
    straighten(pairing, actor->a + last, true, room + actor->width);
    return ts_may_turn(room, room + actor->width, actor->width, &guess, limit);
}

/* Heads and pairs that turn rotary->input into the reference, among those of one size. */
static bool fits_heads(struct ts_rotary *rotary, size_t heads, double complex *turns, double *scratch, double limit,
                       size_t *fitted, float *room)
{
    const struct ts_actor *actor = rotary->the_case->actor, *input = rotary->input;
    size_t inner = actor->width / heads, group;
    for (size_t n = 0; (group = ts_turning_numbers(inner, n)) > 0; n++)
        for (size_t variant = 0; variant < 2 * PAIRINGS && *fitted < TS_TURNS_FITTED; variant++) {
            struct ts_turned_pairs pairing = pairing_of(heads, inner, group, variant);
            if (group < 4 || group % 2 || (group == inner && variant >= PAIRINGS) ||
                !may_turn(input, actor, &pairing, limit, room))
                continue;
            ++*fitted;
            ts_find_turns(actor, &pairing, input->a, actor->a, turns);
            ts_angles_of(turns, actor->rows * pairing.group / 2, rotary->angles);
            if (ts_turned_error(actor, &pairing, input->a, rotary->angles, actor->a, scratch) > limit)
                continue;
            rotary->pairing = pairing;
            return true;
        }
    return false;
}

static bool fits_turning(struct ts_rotary *rotary, double complex *turns, double *scratch, double limit)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    float *room = malloc(2 * actor->width * sizeof *room);
    size_t fitted = 0;
    bool found = false;
    /* most heads first: with fewer the same turns fit as well, with more freedom */
    for (size_t heads = actor->width < 512 ? actor->width / 4 : 128; heads >= 1 && room && !found; heads--)
        if (actor->width % heads == 0)
            found = fits_heads(rotary, heads, turns, scratch, limit, &fitted, room);
    free(room);
    return found;
}

/* What the turn was in the reference: from the learnt operation, or found here where heads are folded into one axis, or
 * there is a single head. */
bool ts_rotary_find_reference(struct ts_rotary *rotary, double complex *turns, double *scratch)
{
    const struct ts_case *the_case = rotary->the_case;
    const struct ts_actor *actor = the_case->actor;
    const struct ts_operation *operation = &the_case->operation;
    double limit = 6 * ts_rounding(actor->bits_a);
    limit = limit > 2e-5 ? limit : 2e-5;
    if (operation->kind == TS_OPERATION_ROTARY) {
        size_t count = actor->rows * operation->group / 2;
        rotary->pairing = (struct ts_turned_pairs){.heads = operation->heads,
                                                   .inner = actor->width / operation->heads,
                                                   .group = operation->group,
                                                   .interleaved = operation->interleaved};
        for (size_t i = 0; i < count; i++)
            rotary->angles[i] = atan2(operation->table[count + i], operation->table[i]);
        return ts_rotary_take_input(rotary);
    }
    if (operation->kind != TS_OPERATION_NONE)
        return false;
    for (size_t back = 1; back <= 12 && back <= actor->pair; back++) {
        const struct ts_actor *whole = ts_scene_actor(the_case->scene, actor->pair - back);
        size_t spare = whole && whole->rows == actor->rows && whole->width >= actor->width ? whole->width - actor->width
                                                                                           : SIZE_MAX;
        /* the whole tensor, or queries, keys or values of a fused one: from the front or from the back */
        size_t offsets[4] = {0, actor->width, spare, spare >= actor->width ? spare - actor->width : 0};
        for (int o = 0; o < (spare == SIZE_MAX ? 0 : spare ? 4 : 1); o++)
            if (offsets[o] <= spare && take_columns(rotary, whole, (struct ts_turned_columns){.first = offsets[o]}) &&
                rows_keep_length(rotary->input, actor) && fits_turning(rotary, turns, scratch, limit))
                return true;
    }
    return false;
}

/* Nothing turns at position 0. */
static bool is_at_zero(const struct ts_rotary *rotary, size_t row)
{
    size_t pairs = rotary->pairing.group / 2;
    double squares = 0, limit = 2 * ts_rounding(rotary->the_case->actor->bits_a);
    for (size_t i = 0; i < pairs; i++)
        squares += rotary->angles[row * pairs + i] * rotary->angles[row * pairs + i];
    return squares <= limit * limit * (double)pairs;
}

/* Two rows that turn by the same angles. */
static bool turn_alike(const struct ts_rotary *rotary, size_t row, size_t other)
{
    size_t pairs = rotary->pairing.group / 2;
    double squares = 0, limit = 3 * ts_rounding(rotary->the_case->actor->bits_a);
    for (size_t i = 0; i < pairs; i++) {
        double apart = remainder(rotary->angles[row * pairs + i] - rotary->angles[other * pairs + i], 2 * M_PI);
        squares += apart * apart;
    }
    return squares <= limit * limit * (double)pairs;
}

/* Tokens stand at their positions, but where a prompt is padded in front, or several are packed into one sequence: the
 * positions begin anew where nothing turns, and padding has the position 0 or 1. */
static void find_places(struct ts_rotary *rotary)
{
    const struct ts_case *the_case = rotary->the_case;
    size_t rows = the_case->actor->rows, zero = 0;
    rotary->placed = the_case->scene->batch > 1; /* other sequences may be padded */
    while (zero < rows && !is_at_zero(rotary, zero))
        zero++;
    for (size_t row = 0, from = zero; row < rows; row++) {
        from = row >= zero && is_at_zero(rotary, row) ? row : from;
        rotary->places[row] = (double)ts_case_row(the_case, row);
        if (zero < rows && row >= zero)
            rotary->places[row] -= (double)ts_case_row(the_case, from);
        else if (zero + 1 < rows && turn_alike(rotary, row, zero + 1))
            rotary->places[row] = 1;
        rotary->placed = rotary->placed || rotary->places[row] != (double)ts_case_row(the_case, row);
    }
}

/* Steps per position and base of the reference's angles. */
static void fit_reference(struct ts_rotary *rotary, double complex *turns)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t pairs = rotary->pairing.group / 2;
    for (size_t k = 0; k < actor->rows * pairs; k++)
        turns[k] = cexp(I * rotary->angles[k]);
    ts_find_steps(turns, rotary->places, actor->rows, pairs, rotary->steps);
    rotary->base = ts_rotary_find_base(rotary, turns, pairs);
}

/* Where neighbours turn in pairs, those in front that do not turn look as if they had an angle of zero as well: but the
 * first pair that turns is the one that turns most. */
static void trim_front(struct ts_rotary *rotary)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    const float *from = rotary->input->a, *to = actor->a;
    size_t inner = rotary->pairing.inner, own = rotary->pairing.group, still = inner;
    if (!rotary->pairing.interleaved || rotary->pairing.start || own < 8)
        return;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (i % inner < still && (to[i] < from[i] || to[i] > from[i]))
            still = i % inner;
    still = still / 2 * 2;
    if (!still || still + 4 > own)
        return;
    rotary->pairing.start = still;
    rotary->pairing.group = own - still;
    for (size_t k = 0; k < actor->rows * (own - still) / 2; k++)
        rotary->angles[k] = rotary->angles[k / ((own - still) / 2) * (own / 2) + still / 2 + k % ((own - still) / 2)];
}

/* Of so many numbers of each head: whether their angles are those of a base. By how far they may be off, tables that
 * were rounded to sixteen bits allow for, and not those that are scaled in part. */
static bool fits_base(struct ts_rotary *rotary, double complex *turns)
{
    size_t count = rotary->the_case->actor->rows * rotary->pairing.group / 2;
    double off = fmax(6 * ts_rounding(rotary->the_case->actor->bits_a), ANGLE_OFF);
    fit_reference(rotary, turns);
    return !(base_agreement(rotary, turns, rotary->pairing.group / 2, log(rotary->base), INFINITY) <
             (1 - off * off / 2) * (double)count);
}

/* The last numbers of a head did not turn, to the last bit, and without them the angles are those of a base. */
static bool fits_fewer(struct ts_rotary *rotary, double complex *turns)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    const float *from = rotary->input->a, *to = actor->a;
    size_t inner = rotary->pairing.inner, start = rotary->pairing.start, own = rotary->pairing.group, group = 0;
    double *angles;
    if (!rotary->pairing.interleaved || rotary->pairing.gathered)
        return false;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        if (i % inner >= start + group && (to[i] < from[i] || to[i] > from[i]))
            group = i % inner - start + 1;
    group = (group + 1) / 2 * 2;
    angles = group >= 4 && group < own ? malloc(actor->rows * own / 2 * sizeof *angles) : NULL;
    if (!angles)
        return false;
    memcpy(angles, rotary->angles, actor->rows * own / 2 * sizeof *angles);
    for (size_t k = 0; k < actor->rows * group / 2; k++)
        rotary->angles[k] = angles[k / (group / 2) * (own / 2) + k % (group / 2)];
    rotary->pairing.group = group;
    if (fits_base(rotary, turns)) {
        free(angles);
        return true;
    }
    memcpy(rotary->angles, angles, actor->rows * own / 2 * sizeof *angles);
    rotary->pairing.group = own;
    free(angles);
    return false;
}

void ts_rotary_study_reference(struct ts_rotary *rotary, double complex *turns)
{
    const struct ts_actor *actor = rotary->the_case->actor;
    size_t own, group, pairs;
    trim_front(rotary);
    own = rotary->pairing.group;
    find_places(rotary);
    if (!fits_base(rotary, turns)) {
        if (fits_fewer(rotary, turns))
            return;
        fit_reference(rotary, turns);
    }
    group = ts_rotary_numbers(rotary, rotary->input->a, actor->a, actor->bits_a, NULL, rotary->base);
    group = group < own ? group : own;
    pairs = group / 2;
    for (size_t k = 0; group < own && k < actor->rows * pairs; k++)
        rotary->angles[k] = rotary->angles[k / pairs * (own / 2) + k % pairs];
    rotary->pairing.group = group;
    if (!fits_base(rotary, turns)) /* the table is not of that kind: scaled, or moved */
        rotary->base = 0;
}
