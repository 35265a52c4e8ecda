/* Turned: queries or keys that differ from the reference by a turn of their pairs, where what was turned was not
 * captured (a norm stands between, or the projection itself is missing). The turn of the candidate against the
 * reference is the difference of their angles: the same in every token when positions are off, growing with the
 * position when the base or the scaling is another, any when single positions are wrong. */
#include <complex.h>
#include <stdlib.h>

#include "diagnose/families.h"
#include "diagnose/turned_rates.h"
#include "diagnose/turning.h"
#include "diagnose/variant.h"

#define WORTHWHILE 0.5
#define AS_WELL    0.01 /* what a base and a factor may explain less than an angle for each pair */
#define CHOSEN     64   /* a factor is a multiple of a 64th, as people choose them */
#define NO_WORSE   1e-4 /* what a number with a name may explain less than the one that fits best */
#define NEAR_WHOLE 0.01 /* how far a factor may be from one with a name */
#define NEARLY_ALL 0.9
#define SCAN       720 /* steps of a rate between two tokens, -pi to pi */
#define MOST_WORK  ((size_t)1 << 26)

struct turned {
    struct ts_case *the_case;
    size_t heads, inner, group;
    bool interleaved;
    double complex *turns; /* [rows, pairs]: the sum over heads of what takes the expected pair to the found one */
    double *angles;        /* [rows, pairs] */
    double *out;
};

static size_t first_of(const struct turned *turned, size_t head, size_t pair)
{
    return head * turned->inner + (turned->interleaved ? 2 * pair : pair);
}

static size_t second_of(const struct turned *turned, size_t head, size_t pair)
{
    return head * turned->inner + (turned->interleaved ? 2 * pair + 1 : pair + turned->group / 2);
}

/* Sums of turns; false when pairs do not keep their lengths, so that nothing turned. */
static bool find_turns(struct turned *turned)
{
    const struct ts_case *the_case = turned->the_case;
    size_t width = the_case->actor->width, pairs = turned->group / 2;
    double apart = 0, all = 0, limit;
    bool whole = true;
    for (size_t row = 0; row < the_case->actor->rows; row++)
        for (size_t pair = 0; pair < pairs; pair++) {
            double complex sum = 0;
            for (size_t head = 0; head < turned->heads; head++) {
                size_t a = row * width + first_of(turned, head, pair), b = row * width + second_of(turned, head, pair);
                double complex x = the_case->expected[a] + I * the_case->expected[b];
                double complex y = the_case->found[a] + I * the_case->found[b];
                double difference = cabs(x) - cabs(y);
                if (!isfinite(cabs(x)) || !isfinite(cabs(y))) {
                    whole = false;
                    continue;
                }
                sum += conj(x) * y;
                apart += difference * difference;
                all += cabs(x) * cabs(x);
            }
            turned->turns[row * pairs + pair] = sum;
        }
    limit = 0.1 * the_case->error;
    limit = limit > 2 * the_case->noise ? limit : 2 * the_case->noise;
    return whole && all > 0 && apart < limit;
}

static void turn(const struct turned *turned)
{
    const struct ts_case *the_case = turned->the_case;
    size_t width = the_case->actor->width, pairs = turned->group / 2;
    for (size_t i = 0; i < the_case->total; i++)
        turned->out[i] = the_case->expected[i];
    for (size_t row = 0; row < the_case->actor->rows; row++)
        for (size_t pair = 0; pair < pairs; pair++)
            for (size_t head = 0; head < turned->heads; head++) {
                size_t a = row * width + first_of(turned, head, pair), b = row * width + second_of(turned, head, pair);
                double c = cos(turned->angles[row * pairs + pair]), s = sin(turned->angles[row * pairs + pair]);
                turned->out[a] = c * the_case->expected[a] - s * the_case->expected[b];
                turned->out[b] = s * the_case->expected[a] + c * the_case->expected[b];
            }
}

/* One angle per pair, in every token. */
static void same_in_all(struct turned *turned)
{
    size_t rows = turned->the_case->actor->rows, pairs = turned->group / 2;
    for (size_t pair = 0; pair < pairs; pair++) {
        double complex sum = 0;
        for (size_t row = 0; row < rows; row++)
            sum += turned->turns[row * pairs + pair];
        for (size_t row = 0; row < rows; row++)
            turned->angles[row * pairs + pair] = carg(sum);
    }
}

/* What a position adds to the angle of a pair, by trying: of a few tokens, which may turn by anything. */
static double scan_rate(const struct turned *turned, size_t pair)
{
    size_t rows = turned->the_case->actor->rows, pairs = turned->group / 2;
    double best = 0, most = -INFINITY, width = 2 * M_PI / SCAN;
    for (int pass = 0; pass < 7; pass++, width /= 10) {
        double middle = best;
        for (int step = pass ? -10 : -SCAN / 2; step <= (pass ? 10 : SCAN / 2); step++) {
            double rate = (pass ? middle : 0) + step * width, sum = 0;
            for (size_t row = 0; row < rows; row++)
                sum += creal(turned->turns[row * pairs + pair] *
                             cexp(-I * rate * (double)ts_case_row(turned->the_case, row)));
            if (sum > most) {
                most = sum;
                best = rate;
            }
        }
    }
    return best;
}

/* An angle per pair that grows with the position. */
static void growing(struct turned *turned)
{
    size_t rows = turned->the_case->actor->rows, pairs = turned->group / 2;
    double *places = malloc((rows + pairs) * sizeof *places), *rates = places ? places + rows : NULL;
    bool few = ts_case_row(turned->the_case, rows - 1) < SCAN / 2 && rows * pairs * SCAN <= MOST_WORK;
    if (!places)
        return;
    for (size_t row = 0; row < rows; row++)
        places[row] = (double)ts_case_row(turned->the_case, row);
    if (!few) /* a scan would be too coarse for what lies far apart */
        ts_find_steps(turned->turns, places, rows, pairs, rates);
    for (size_t pair = 0; pair < pairs; pair++) {
        rates[pair] = few ? scan_rate(turned, pair) : rates[pair];
        for (size_t row = 0; row < rows; row++)
            turned->angles[row * pairs + pair] = rates[pair] * places[row];
    }
    free(places);
}

/* Any angle in each token and pair, the same in all heads. */
static void any(struct turned *turned)
{
    size_t count = turned->the_case->actor->rows * (turned->group / 2);
    for (size_t i = 0; i < count; i++)
        turned->angles[i] = carg(turned->turns[i]);
}

/* Half a turn is the other sign, of all pairs or of those of one head beside others that do not turn: that has a name
 * of its own. Where rounding is coarse the angles of small pairs are anything, but most are not. */
static bool are_signs(const struct turned *turned)
{
    size_t count = turned->the_case->actor->rows * (turned->group / 2), between = 0, halves = 0;
    for (size_t i = 0; i < count; i++) {
        double cosine = cos(turned->angles[i]);
        between += fabs(cosine) < 0.98;
        halves += cosine < -0.98;
    }
    return halves && (!between || (10 * between < count && 10 * halves > 8 * count));
}

/* What turns other rows: pairs, and how their angles follow. An angle per pair is in the table: the same in all rows,
 * or what a position adds. */
struct turning {
    size_t heads, inner, group;
    bool interleaved;
    enum way { SAME, GROWING, ANY } way;
};

static bool predict(struct ts_case *the_case, const struct ts_formula *formula, double *out)
{
    const struct turning *how = formula->numbers;
    struct turned turned = {.the_case = the_case,
                            .heads = how->heads,
                            .inner = how->inner,
                            .group = how->group,
                            .interleaved = how->interleaved,
                            .out = out};
    size_t pairs = how->group / 2, count = the_case->actor->rows * pairs;
    bool good;
    turned.turns = how->way == ANY ? calloc(count, sizeof *turned.turns) : NULL;
    turned.angles = calloc(count, sizeof *turned.angles);
    good = turned.angles && (how->way != ANY || turned.turns);
    if (good && how->way == ANY) {
        (void)find_turns(&turned);
        any(&turned);
    }
    for (size_t i = 0; i < count && good && how->way != ANY; i++)
        turned.angles[i] =
            formula->table[i % pairs] * (how->way == SAME ? 1 : (double)ts_case_row(the_case, i / pairs));
    if (good)
        turn(&turned);
    free(turned.turns);
    free(turned.angles);
    return good;
}

static void give_formula(const struct turned *turned, enum way way)
{
    struct turning how = {turned->heads, turned->inner, turned->group, turned->interleaved, way};
    size_t pairs = turned->group / 2, last = turned->the_case->actor->rows - 1;
    double place = (double)ts_case_row(turned->the_case, last), *table = calloc(pairs, sizeof *table);
    for (size_t i = 0; i < pairs && table; i++)
        table[i] = turned->angles[last * pairs + i] / (way == GROWING && place > 0 ? place : 1);
    if (table)
        ts_formula_next(
            turned->the_case,
            &(struct ts_formula){
                .predict = predict, .numbers = &how, .size = sizeof how, .table = table, .table_count = pairs});
    free(table);
}

static double rounded(double value)
{
    double unit = pow(10, floor(log10(value)) - 1), near = round(value / unit) * unit;
    return fabs(near - value) < 0.01 * value ? near : value;
}

/* Numbers that people choose, near those that were fitted: a long sequence tells the one from the other. */
static struct ts_turned_rates chosen_near(const struct ts_turned_rates *fitted)
{
    struct ts_turned_rates near = *fitted;
    near.theta = rounded(fitted->theta);
    near.theta_b = fitted->theta_b > 0 ? rounded(fitted->theta_b) : 0;
    near.factor = round(fitted->factor * CHOSEN) / CHOSEN;
    return near;
}

/* Turns the reference by this; the share of the error that it explains. */
static double turn_by_rates(struct turned *turned, const struct ts_turned_rates *rates, double *angles)
{
    size_t pairs = turned->group / 2, count = turned->the_case->actor->rows * pairs;
    bool grows = !(rates->positions < 0 || rates->positions > 0);
    ts_turned_angles(rates, pairs, angles);
    for (size_t i = 0; i < count; i++)
        turned->angles[i] = angles[i % pairs] * (grows ? (double)ts_case_row(turned->the_case, i / pairs) : 1);
    turn(turned);
    return ts_explained(turned->the_case, turned->out);
}

/* What the two sides' angles are, in words: they differ by a factor, by the base, or by positions. */
static const char *rates_text(struct ts_case *the_case, const struct ts_turned_rates *rates)
{
    const double theta = rounded(rates->theta), factor = rates->factor;
    if (rates->positions < 0 || rates->positions > 0)
        return ts_case_text(the_case, "positions are off by %+.0f (the angles fit theta = %.6g)", rates->positions,
                            theta);
    if (rates->theta_b > 0)
        return ts_case_text(the_case, "the candidate's angles fit theta = %.6g, the reference's theta = %.6g",
                            rounded(rates->theta_b), theta);
    if (fabs(factor) < NEAR_WHOLE)
        return ts_case_text(the_case, "only the reference is rotated, with theta = %.6g", theta);
    if (fabs(factor + 1) < NEAR_WHOLE)
        return ts_case_text(the_case,
                            "the candidate rotates the other way: the sign of the angle (of the sine) is flipped "
                            "(theta = %.6g)",
                            theta);
    if (fabs(factor - 2) < NEAR_WHOLE)
        return ts_case_text(the_case, "only the candidate is rotated, with theta = %.6g, or it is so twice", theta);
    return ts_case_text(the_case, "every angle is %.4g times the reference's: positions are scaled (theta = %.6g)",
                        factor, theta);
}

/* A base and a factor in place of an angle for each pair, where they explain as much; the angles and what they predict
 * are those then. NULL, and nothing is changed, when they do not. */
static const char *find_rates(struct turned *turned, enum way way)
{
    struct ts_case *the_case = turned->the_case;
    size_t rows = the_case->actor->rows, pairs = turned->group / 2, last = rows - 1;
    double place = (double)ts_case_row(the_case, last), least = ts_explained(the_case, turned->out) - AS_WELL;
    double *rates = calloc(3 * pairs, sizeof *rates), *weights = rates + pairs, *fitted = weights + pairs;
    double complex *sums = calloc(pairs, sizeof *sums);
    struct ts_turned_rates found, near;
    const char *text = NULL;
    for (size_t i = 0; i < rows * pairs && rates && sums; i++) {
        sums[i % pairs] += turned->turns[i];
        weights[i % pairs] += cabs(turned->turns[i]);
    }
    for (size_t i = 0; i < pairs && rates; i++)
        rates[i] = turned->angles[last * pairs + i] / (way == GROWING && place > 0 ? place : 1);
    if (rates && sums &&
        (way == SAME ? ts_read_shift(sums, pairs, &found) : ts_read_growth(rates, weights, pairs, &found))) {
        double as_fitted = turn_by_rates(turned, &found, fitted);
        near = chosen_near(&found);
        if (turn_by_rates(turned, &near, fitted) >= fmax(least, as_fitted - NO_WORSE))
            text = rates_text(the_case, &near);
        else if (turn_by_rates(turned, &found, fitted) >= least)
            text = rates_text(the_case, &found);
    }
    for (size_t i = 0; i < rows * pairs && rates && !text; i++)
        turned->angles[i] = rates[i % pairs] * (way == SAME ? 1 : (double)ts_case_row(the_case, i / pairs));
    if (rates && !text)
        turn(turned);
    free(rates);
    free(sums);
    return text;
}

/* True when something is said that explains nearly all. */
static bool try_pairing(struct turned *turned)
{
    static const struct {
        void (*angles)(struct turned *);
        const char *text;
    } ways[] = {
        {same_in_all, "by the same angles in every token: positions are off by a constant"},
        {growing, "by angles that grow with the position: another theta or scaling, or a rotation on one side only"},
        {any, "by different angles in each token: other positions"}};
    struct ts_case *the_case = turned->the_case;
    size_t rows = the_case->actor->rows, pairs = turned->group / 2;
    const char *text, *which = turned->interleaved ? "2i, 2i + 1" : "i, i + half";
    bool said = false;
    if (!find_turns(turned))
        return false;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (way == ANY && turned->heads < 2)
            continue;
        ways[way].angles(turned);
        if (are_signs(turned))
            return said;
        turn(turned);
        if (ts_explained(the_case, turned->out) <= (way == ANY ? NEARLY_ALL : WORTHWHILE))
            continue;
        text = way == ANY ? NULL : find_rates(turned, (enum way)way);
        give_formula(turned, (enum way)way);
        ts_propose(the_case, "rotation", turned->out,
                   way == ANY ? rows * pairs
                   : text     ? 2
                              : pairs,
                   "rope_theta, rope_scaling, position ids, and the pairing (half-split or interleaved)", "%s",
                   text
                       ? ts_case_text(the_case, "%s: pairs (%s) keep their length and turn by just that", text, which)
                       : ts_case_text(the_case, "pairs (%s) keep their length but are rotated against the reference %s",
                                      which, ways[way].text));
        said = said || ts_explained(the_case, turned->out) > NEARLY_ALL;
    }
    return said;
}

/* Every pairing for heads of one size. */
static bool try_heads(struct turned *turned, size_t heads)
{
    bool said = false;
    turned->heads = heads;
    turned->inner = turned->the_case->actor->width / heads;
    for (int variant = 0; variant < 6; variant++) {
        turned->interleaved = variant % 2;
        turned->group = turned->inner >> variant / 2;
        if (turned->group >= 4 && turned->group % 2 == 0 && try_pairing(turned))
            said = true;
    }
    return said;
}

static void propose(struct ts_case *the_case)
{
    static const size_t usual[] = {128, 64, 96, 80, 256, 32, 16}; /* numbers of a head */
    const struct ts_actor *actor = the_case->actor;
    struct turned turned = {.the_case = the_case};
    size_t heads = actor->heads > 1 ? actor->heads : the_case->scene->score_heads;
    if (!ts_case_in_scene(the_case) || the_case->operation.kind != TS_OPERATION_NONE || actor->rows < 3 ||
        actor->width < 4 || !ts_names_operand(ts_case_name(the_case, actor)))
        return;
    heads = heads > 1 && actor->width % heads == 0 ? heads : 1;
    turned.turns = calloc(the_case->total, sizeof *turned.turns);
    turned.angles = calloc(the_case->total, sizeof *turned.angles);
    turned.out = ts_case_scratch(the_case);
    if (turned.turns && turned.angles && turned.out && !try_heads(&turned, heads))
        for (size_t i = 0; i < sizeof usual / sizeof *usual && heads == 1; i++) /* folded into the channels */
            if (actor->width % usual[i] == 0 && actor->width > usual[i] && try_heads(&turned, actor->width / usual[i]))
                break;
    free(turned.turns);
    free(turned.angles);
}

const struct ts_family ts_family_turned = {.name = "turned", .propose = propose};
