#include "diagnose/turning.h"

#include <math.h>
#include <stdlib.h>

#include "diagnose/families.h"

static size_t at_first(const struct ts_turned_pairs *pairing, size_t head, size_t i)
{
    return head * pairing->inner + (pairing->interleaved ? 2 * i : i);
}

static size_t at_second(const struct ts_turned_pairs *pairing, size_t head, size_t i)
{
    return at_first(pairing, head, i) + (pairing->interleaved ? 1 : pairing->group / 2);
}

void ts_find_turns(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                   const float *to, double complex *turns)
{
    size_t pairs = pairing->group / 2;
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double complex sum = 0;
            for (size_t head = 0; head < pairing->heads; head++) {
                size_t x = row * actor->width + at_first(pairing, head, i),
                       y = row * actor->width + at_second(pairing, head, i);
                sum += ((double)to[x] + I * (double)to[y]) * ((double)from[x] - I * (double)from[y]);
            }
            turns[row * pairs + i] = isfinite(creal(sum)) && isfinite(cimag(sum)) ? sum : 0;
        }
}

void ts_turn_by(const struct ts_actor *actor, const struct ts_turned_pairs *pairing, const float *from,
                const double *angles, double *out)
{
    size_t pairs = pairing->group / 2;
    for (size_t i = 0; i < actor->rows * actor->width; i++)
        out[i] = (double)from[i];
    for (size_t row = 0; row < actor->rows; row++)
        for (size_t i = 0; i < pairs; i++) {
            double cosine = cos(angles[row * pairs + i]), sine = sin(angles[row * pairs + i]);
            for (size_t head = 0; head < pairing->heads; head++) {
                size_t x = row * actor->width + at_first(pairing, head, i),
                       y = row * actor->width + at_second(pairing, head, i);
                out[x] = (double)from[x] * cosine - (double)from[y] * sine;
                out[y] = (double)from[x] * sine + (double)from[y] * cosine;
            }
        }
}

/* Columns of a tensor, those that turn times a factor. */
static float *take_columns(const struct ts_turning *turning, const struct ts_actor *actor, const struct ts_actor *whole,
                           const float *values, double factor)
{
    float *taken = malloc(actor->rows * actor->width * sizeof *taken);
    for (size_t i = 0; taken && i < actor->rows * actor->width; i++)
        taken[i] = values[i / actor->width * whole->width + turning->offset + i % actor->width] *
                   (float)(i % turning->own.inner < turning->own.group ? factor : 1);
    return taken;
}

bool ts_predict_turned(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct ts_turning *turning = formula->numbers;
    const struct ts_angles *how = &turning->how;
    const struct ts_actor *actor = the_case->actor, *whole = ts_scene_actor(the_case->scene, formula->pairs[0]);
    size_t pairs = turning->pairing.group / 2, own = turning->own.group / 2;
    const double *reference = formula->table, *steps = formula->table + own;
    double *angles = NULL;
    double complex *turns = NULL;
    float *from = NULL, *right = NULL;
    bool good;
    if (!whole || whole->rows != actor->rows || turning->offset + actor->width > whole->width)
        return false;
    angles = calloc(actor->rows * pairs + 1, sizeof *angles);
    turns = calloc(actor->rows * own + 1, sizeof *turns);
    from = take_columns(turning, actor, whole, whole->b, turning->factor);
    right = formula->reference ? take_columns(turning, actor, whole, whole->a, 1) : NULL;
    good = angles && turns && from && (right || !formula->reference);
    if (good && formula->reference)
        ts_find_turns(actor, &turning->own, right, actor->a, turns);
    for (size_t k = 0; good && k < actor->rows * pairs; k++) {
        size_t row = k / pairs, i = k % pairs;
        double place = (double)ts_case_row(the_case, row), angle;
        if (how->follows == TS_FROM_POSITION) {
            angles[k] = (place + how->positions) * steps[i];
            continue;
        }
        angle = turns[row * own + i] != 0 ? carg(turns[row * own + i]) : 0;
        if (how->follows == TS_FROM_UNWOUND)
            angle = place * reference[i] + remainder(angle - place * reference[i], 2 * M_PI);
        angles[k] = how->constant + how->factor * angle + how->positions * reference[i];
    }
    if (good)
        ts_turn_by(actor, &turning->pairing, from, angles, out);
    free(angles);
    free(turns);
    free(from);
    free(right);
    return good;
}
