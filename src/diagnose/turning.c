#include "diagnose/turning.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "diagnose/families.h"

/* Cosine between turns that are the same up to rounding. */
#define IN_PLACE 0.999

/* Where the two numbers of a pair are, before it is turned or behind. */
struct places {
    size_t first, apart, step;
};

static struct places places_of(const struct ts_turned_pairs *pairing, bool behind)
{
    bool neighbours = pairing->interleaved && !(behind && pairing->gathered);
    return (struct places){pairing->start, neighbours ? 1 : pairing->group / 2, neighbours ? 2 : 1};
}

void ts_find_turns(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                   const float *to, double complex *turns)
{
    const struct places before = places_of(pairing, false), behind = places_of(pairing, true);
    size_t pairs = pairing->group / 2;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double complex sum = 0;
            for (size_t head = 0; head < pairing->heads; head++) {
                const size_t at = row * actor->width + head * pairing->inner;
                const float *x = from + at + before.first + i * before.step,
                            *y = to + at + behind.first + i * behind.step;
                sum += ((double)y[0] + I * (double)y[behind.apart]) * ((double)x[0] - I * (double)x[before.apart]);
            }
            turns[row * pairs + i] = isfinite(creal(sum)) && isfinite(cimag(sum)) ? sum : 0;
        }
}

void ts_turn_by(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                const double *angles, double *out)
{
    const struct places before = places_of(pairing, false), behind = places_of(pairing, true);
    size_t pairs = pairing->group / 2;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        out[i] = (double)from[i];
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double cosine = cos(angles[row * pairs + i]), sine = sin(angles[row * pairs + i]);
            for (size_t head = 0; head < pairing->heads; head++) {
                const size_t at = row * actor->width + head * pairing->inner;
                const float *x = from + at + before.first + i * before.step;
                double *y = out + at + behind.first + i * behind.step;
                y[0] = (double)x[0] * cosine - (double)x[before.apart] * sine;
                y[behind.apart] = (double)x[0] * sine + (double)x[before.apart] * cosine;
            }
        }
}

void ts_find_steps(const double complex *turns, const double *places, size_t rows, size_t pairs, double *steps)
{
    double furthest = 0;
    for (size_t row = 0, from = 0; row < rows; row++) {
        from = row && places[row] <= places[row - 1] ? row : from;
        furthest = fmax(furthest, places[row] - places[from]);
    }
    for (size_t i = 0; i < pairs; i++) {
        double complex sum = 0;
        for (size_t row = 0; row + 1 < rows; row++)
            if (places[row + 1] - places[row] == 1)
                sum += turns[(row + 1) * pairs + i] * conj(turns[row * pairs + i]) /
                       (1e-300 + cabs(turns[row * pairs + i]));
        steps[i] = sum != 0 ? carg(sum) : 0;
        for (double reach = 2; reach < furthest + 2; reach *= 2) {
            double error = 0, weight = 0;
            for (size_t row = 0; row + 1 < rows; row++) {
                size_t other = row + 1;
                double complex turned;
                double distance, size;
                while (other + 1 < rows && places[other + 1] > places[other] &&
                       places[other + 1] - places[row] <= reach)
                    other++;
                distance = places[other] - places[row];
                if (distance <= 0 || distance > reach) /* positions begin anew */
                    continue;
                turned = turns[other * pairs + i] * conj(turns[row * pairs + i]) * cexp(-I * steps[i] * distance);
                size = sqrt(cabs(turned));
                error += turned != 0 ? carg(turned) * distance * size : 0;
                weight += distance * distance * size;
            }
            steps[i] += weight > 0 ? error / weight : 0;
        }
    }
}

/* Columns of a tensor, those that turn times a factor. */
static float *take_columns(const struct ts_turning *turning, const struct ts_actor *actor, const struct ts_actor *whole,
                           const float *values, double factor)
{
    float *taken = malloc(actor->rows * actor->width * sizeof *taken);
    for (size_t i = 0; taken && i < actor->rows * actor->width; i++)
        taken[i] = values[i / actor->width * whole->width + ts_turned_column(&turning->columns, i % actor->width)] *
                   (float)(ts_turns_at(&turning->own, i) ? factor : 1);
    return taken;
}

double ts_find_place(const double complex *turns, const double *angles, const double *steps, size_t pairs, double place,
                     double most)
{
    double first = fmax(-place - 2, -most), best = -(double)INFINITY, found = 0;
    double complex *now = calloc(2 * pairs + 1, sizeof *now), *each = now ? now + pairs : NULL;
    for (size_t i = 0; i < pairs && now; i++) {
        now[i] = turns[i] * cexp(-I * (angles[i] + first * steps[i]));
        each[i] = cexp(-I * steps[i]);
    }
    for (double offset = first; offset <= most && now; offset++) {
        double sum = 0;
        for (size_t i = 0; i < pairs; i++) {
            double real = creal(now[i]), imaginary = cimag(now[i]), c = creal(each[i]), s = cimag(each[i]);
            sum += real;
            now[i] = real * c - imaginary * s + I * (real * s + imaginary * c);
        }
        if (sum > best) {
            best = sum;
            found = offset;
        }
    }
    free(now);
    return found;
}

/* What a formula makes its angles of, for the rows of a case. */
struct angles {
    float *from, *right;             /* the candidate's input as it is turned, and the reference's */
    double complex *turns, *reached; /* of the reference, and of the candidate */
    double *values;                  /* [rows, pairs] */
    double *offsets;                 /* per row, TS_FROM_PLACES */
    double *places;                  /* the position of each row */
};

static void close_angles(struct angles *angles)
{
    free(angles->from);
    free(angles->right);
    free(angles->turns);
    free(angles->reached);
    free(angles->values);
    free(angles->offsets);
    free(angles->places);
}

/* The reference turns a row as its place in the sequence says. */
static bool is_in_place(const double complex *turns, const double *straight, size_t pairs)
{
    double along = 0, size = 0;
    for (size_t i = 0; i < pairs; i++) {
        along += creal(turns[i] * cexp(-I * straight[i]));
        size += cabs(turns[i]);
    }
    return along >= IN_PLACE * size;
}

static void find_places(const struct ts_case *the_case, const struct ts_formula *formula, struct angles *angles)
{
    const struct ts_turning *turning = formula->numbers;
    size_t own = turning->own.group / 2;
    double *straight = calloc(own + 1, sizeof *straight);
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        const double complex *turns = angles->turns + row * own;
        const double place = (double)ts_case_row(the_case, row), before = row ? angles->places[row - 1] : place;
        /* as far from its place as the row before, or at its position, as padding is */
        const double likely[] = {before + (row ? place - (double)ts_case_row(the_case, row - 1) : 0), before, place};
        const bool placed = turning->placed && angles->right && straight;
        bool found = false;
        for (size_t k = placed ? 0 : 2; k < 3 && !found; k++) {
            angles->places[row] = likely[k];
            for (size_t i = 0; i < own && straight; i++)
                straight[i] = likely[k] * formula->table[i];
            found = !placed || is_in_place(turns, straight, own);
        }
        if (!found)
            angles->places[row] += ts_find_place(turns, straight, formula->table, own, place, turning->furthest);
    }
    free(straight);
}

static bool load_angles(struct ts_case *the_case, const struct ts_formula *formula, struct angles *angles)
{
    const struct ts_turning *turning = formula->numbers;
    const struct ts_actor *actor = the_case->actor, *whole = ts_scene_actor(the_case->scene, formula->pairs[0]);
    size_t pairs = turning->pairing.group / 2, own = turning->own.group / 2;
    bool shown = turning->how.follows == TS_FROM_FREE || turning->how.follows == TS_FROM_PLACES;
    *angles = (struct angles){0};
    if (!whole || whole->rows != actor->rows || ts_turned_column(&turning->columns, actor->width - 1) >= whole->width)
        return false;
    angles->values = calloc(actor->rows * pairs + 1, sizeof *angles->values);
    angles->offsets = calloc(actor->rows + 1, sizeof *angles->offsets);
    angles->places = calloc(actor->rows + 1, sizeof *angles->places);
    angles->turns = calloc(actor->rows * own + 1, sizeof *angles->turns);
    angles->reached = calloc(actor->rows * pairs + 1, sizeof *angles->reached);
    angles->from = take_columns(turning, actor, whole, whole->b, turning->factor);
    angles->right = formula->reference ? take_columns(turning, actor, whole, whole->a, 1) : NULL;
    if (!angles->values || !angles->offsets || !angles->places || !angles->turns || !angles->reached || !angles->from ||
        (formula->reference && !angles->right))
        return false;
    if (formula->reference)
        ts_find_turns(actor, &turning->own, angles->right, actor->a, angles->turns);
    if (shown)
        ts_find_turns(actor, &turning->pairing, angles->from, actor->b, angles->reached);
    find_places(the_case, formula, angles);
    return true;
}

static double angle_of(double complex turn)
{
    return turn != 0 ? carg(turn) : 0;
}

/* The position that each row shows. */
static void place_rows(const struct ts_case *the_case, const struct ts_formula *formula, struct angles *angles)
{
    const struct ts_turning *turning = formula->numbers;
    size_t pairs = turning->pairing.group / 2;
    for (size_t row = 0; row < the_case->actor->rows; row++) {
        double *values = angles->values + row * pairs;
        for (size_t i = 0; i < pairs; i++)
            values[i] = angle_of(angles->turns[row * pairs + i]);
        angles->offsets[row] = ts_find_place(angles->reached + row * pairs, values, formula->table, pairs,
                                             angles->places[row], turning->most);
        for (size_t i = 0; i < pairs; i++)
            values[i] += angles->offsets[row] * formula->table[i];
    }
}

bool ts_predict_turned(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_turning *turning = formula->numbers;
    const struct ts_angles *how = &turning->how;
    size_t pairs = turning->pairing.group / 2, own = turning->own.group / 2;
    const double *reference = formula->table, *steps = formula->table + own;
    struct angles angles;
    bool good = load_angles(the_case, formula, &angles);
    if (good && how->follows == TS_FROM_PLACES)
        place_rows(the_case, formula, &angles);
    for (size_t k = 0; good && how->follows != TS_FROM_PLACES && k < the_case->actor->rows * pairs; k++) {
        size_t row = k / pairs, i = k % pairs;
        double place = angles.places[row], angle;
        if (how->follows == TS_FROM_POSITION) {
            angles.values[k] = (place + how->positions) * steps[i];
            continue;
        }
        if (how->follows == TS_FROM_FREE) {
            angles.values[k] = angle_of(angles.reached[k]);
            continue;
        }
        angle = angle_of(angles.turns[row * own + i]);
        if (how->follows == TS_FROM_UNWOUND)
            angle = place * reference[i] + remainder(angle - place * reference[i], 2 * M_PI);
        angles.values[k] = how->constant + how->factor * angle + how->positions * reference[i];
    }
    if (good)
        ts_turn_by(the_case->actor, &turning->pairing, angles.from, angles.values, out);
    close_angles(&angles);
    return good;
}

bool ts_count_places(struct ts_case *the_case, const struct ts_formula *formula, const double *out,
                     struct ts_tally *tally)
{
    struct angles angles;
    bool good = load_angles(the_case, formula, &angles);
    (void)out;
    if (good)
        place_rows(the_case, formula, &angles);
    for (size_t row = 0; good && row < the_case->actor->rows; row++)
        if (angles.offsets[row] != 0) {
            size_t at = tally->place_count;
            tally->sums[0]++;
            ts_tally_place(tally, the_case, row * the_case->actor->width);
            if (tally->place_count > at)
                tally->places[at].found = angles.places[row] + angles.offsets[row];
        }
    close_angles(&angles);
    return good;
}

void ts_turned_token_text(const struct ts_case *the_case, uint64_t place, uint64_t flat, char *out, size_t size)
{
    const struct ts_scene *scene = the_case->scene;
    uint64_t token;
    if (scene->batch > 1 && ts_scene_token(scene, the_case->actor->pair, flat, &token))
        ts_scene_token_text(scene, token, out, size);
    else
        snprintf(out, size, "token %" PRIu64, place);
}

const char *ts_tell_places(struct ts_case *the_case, const struct ts_formula *formula, const struct ts_tally *tally,
                           double *share)
{
    const bool many = tally->sums[0] > (double)tally->place_count;
    char text[320], token[64];
    size_t used = 0;
    (void)formula;
    (void)share;
    for (size_t k = 0; k < tally->place_count && used < sizeof text; k++) {
        ts_turned_token_text(the_case, tally->places[k].row, tally->places[k].flat, token, sizeof token);
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 many ? "%s%s as at %.0f" : "%s%s is rotated as if at position %.0f", k ? ", " : "",
                                 token, tally->places[k].found);
    }
    if (!used)
        return NULL;
    if (many)
        return ts_case_text(the_case, "%.0f tokens are rotated as if at other positions: %s, and so on", tally->sums[0],
                            text);
    return ts_case_text(the_case, "%s", text);
}
