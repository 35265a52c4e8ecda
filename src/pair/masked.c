/* Owns one question: are these scores of attention, with their mask in them? Where the mask was added every number
 * behind it is another one, and each side may have a mask of its own: only all of them together tell it from large
 * numbers that mean something. */
#include <math.h>
#include <string.h>

#include "pair/pair.h"
#include "tensor/mask.h"

#define ROWS     16  /* that are looked at, from the first to the last: what a mask hides is at one of their ends */
#define END      128 /* numbers of either end */
#define SMALLER  16  /* times: what is seen, beside the least constant */
#define SPREAD   4   /* times: what was masked may be so much larger than what is seen */
#define FEW_KEYS 2

/* Of one side. */
struct sight {
    double seen;     /* the largest that no mask hides, without its sign */
    uint64_t hidden; /* that a mask may have made */
    bool odd;        /* one of these is of no mask that is in use */
};

static bool names_scores(const char *name)
{
    static const char *const words[] = {"score", "attn_weight", "kq"};
    bool named = false;
    for (size_t i = 0; i < sizeof words / sizeof *words && !named; i++)
        named = strstr(name, words[i]) != NULL;
    return named;
}

/* A number for each key in the last axis, and a row for each of the tokens, which are the keys; or the name says so, as
 * one token may look at all of a cache, and a text at another one. */
static bool has_keys(const struct ts_pair *pair)
{
    const struct ts_view *view = &pair->a;
    const uint64_t keys = view->rank ? view->shape[view->rank - 1] : 0;
    if (keys >= FEW_KEYS && (names_scores(pair->name) || names_scores(pair->name_b)))
        return true;
    for (unsigned i = 0; i + 1 < view->rank && keys >= FEW_KEYS; i++)
        if (view->shape[i] == keys)
            return true;
    return false;
}

static bool is_float(const struct ts_view *view)
{
    const struct ts_type_info *info = ts_type_info(view->tensor->type);
    return info->kind == TS_CLASS_FLOAT && info->components == 1;
}

/* Numbers that are seen first: how far from its constant a masked one may be depends on them. */
static void look_at(const double *values, size_t count, bool first, struct sight *sight)
{
    for (size_t i = 0; i < count; i++) {
        const bool hidden = ts_is_masked_score(values[i]);
        if (!first)
            sight->odd = sight->odd || (hidden && !ts_is_near_mask_number(values[i], SPREAD * sight->seen));
        else if (hidden)
            sight->hidden++;
        else
            sight->seen = fmax(sight->seen, fabs(values[i]));
    }
}

static bool look(const struct ts_view *view, struct sight *sight)
{
    const uint64_t keys = view->shape[view->rank - 1], rows = view->count / keys;
    const uint64_t most = rows < ROWS ? rows : ROWS, end = keys < END ? keys : END;
    double values[END];
    struct ts_error ignored;
    *sight = (struct sight){0};
    for (int pass = 0; pass < 2 && (pass == 0 || sight->hidden); pass++)
        for (uint64_t i = 0; i < most; i++)
            for (int side = 0; side < (keys > END ? 2 : 1); side++) {
                const uint64_t row = most > 1 ? i * (rows - 1) / (most - 1) : 0;
                if (ts_view_read_f64(view, row * keys + (side ? keys - end : 0), (size_t)end, values, &ignored) !=
                    TS_OK)
                    return false;
                look_at(values, (size_t)end, pass == 0, sight);
            }
    return !sight->odd && sight->seen * SMALLER < -TS_MASKED_SCORE;
}

bool ts_pair_is_masked(const struct ts_pair *pair)
{
    struct sight a, b;
    return !pair->problem && ts_view_same_shape(&pair->a, &pair->b) && is_float(&pair->a) && is_float(&pair->b) &&
           has_keys(pair) && look(&pair->a, &a) && look(&pair->b, &b) && (a.hidden > 1 || b.hidden > 1);
}
