/* Owns masks of flags: what one side keeps as true and false (which entries are shown, or which are hidden) and the
 * other as what is added to scores, 0 and -inf or a number that stands for it. */
#include <math.h>
#include <string.h>

#include "pair/pairing.h"
#include "tensor/mask.h"

/* Elements that are looked at: the first rows of a causal mask have both. */
#define MOST_READ ((uint64_t)1 << 22)
#define AT_ONCE   512
/* Flags that mean the other thing in some places are a finding; where they do in more, they mean something else. */
#define MOSTLY     0.75
#define LEAST_SEEN 16

struct tally {
    uint64_t seen, set;         /* flags, and those that are true */
    uint64_t hidden;            /* entries that the other side hides */
    uint64_t shown_by_set;      /* where true is shown, and false hidden */
    bool flags_only, sums_only; /* nothing but 0 and 1; nothing but 0 and numbers that hide */
};

static bool are_flags(const struct ts_tensor *tensor)
{
    return tensor->type == TS_BOOL || (ts_type_is_integer(tensor->type) && ts_type_info(tensor->type)->components == 1);
}

static bool are_sums(const struct ts_tensor *tensor)
{
    return !ts_type_is_integer(tensor->type) && tensor->type != TS_BOOL && tensor->type != TS_CODED &&
           ts_type_info(tensor->type)->components == 1;
}

static enum ts_status tally_up(const struct ts_view *flags, const struct ts_view *sums, struct tally *tally,
                               struct ts_error *error)
{
    const bool together = flags->count == sums->count;
    const uint64_t count = flags->count > sums->count ? flags->count : sums->count;
    double flag[AT_ONCE], sum[AT_ONCE];
    *tally = (struct tally){.flags_only = true, .sums_only = true};
    for (uint64_t at = 0; at < count && at < MOST_READ && tally->flags_only && tally->sums_only; at += AT_ONCE) {
        const size_t flag_count =
            flags->count > at ? (flags->count - at < AT_ONCE ? (size_t)(flags->count - at) : AT_ONCE) : 0;
        const size_t sum_count =
            sums->count > at ? (sums->count - at < AT_ONCE ? (size_t)(sums->count - at) : AT_ONCE) : 0;
        TS_TRY(ts_view_read_f64(flags, at, flag_count, flag, error));
        TS_TRY(ts_view_read_f64(sums, at, sum_count, sum, error));
        for (size_t i = 0; i < flag_count; i++) {
            tally->flags_only = tally->flags_only && (flag[i] == 0 || flag[i] == 1);
            tally->set += flag[i] != 0;
        }
        for (size_t i = 0; i < sum_count; i++) {
            tally->sums_only = tally->sums_only && (sum[i] == 0 || ts_is_masked_score(sum[i]));
            tally->hidden += sum[i] != 0;
        }
        for (size_t i = 0; i < flag_count && together; i++)
            tally->shown_by_set += (flag[i] != 0) == (sum[i] == 0);
        tally->seen += flag_count;
    }
    return TS_OK;
}

static bool ends_in_mask(const char *name)
{
    const size_t length = strlen(name);
    return length >= 4 && strcmp(name + length - 4, "mask") == 0;
}

enum ts_status ts_layout_flags(struct ts_pairer *pairer, struct ts_pair *pair, struct ts_error *error)
{
    const bool of_b = pair->b.tensor && are_flags(pair->b.tensor);
    struct ts_view *flags = of_b ? &pair->b : &pair->a;
    const struct ts_view *sums = of_b ? &pair->a : &pair->b;
    const bool named = ends_in_mask(pair->name) || ends_in_mask(pair->name_b);
    struct tally tally;
    bool shown;
    const char *text;
    if (flags->join != TS_JOIN_NONE || sums->join != TS_JOIN_NONE || !are_flags(flags->tensor) ||
        !are_sums(sums->tensor) || !flags->count || !sums->count || ts_view_is_computed(flags))
        return TS_OK;
    TS_TRY(tally_up(flags, sums, &tally, error));
    /* all shown: flags of 0 are equal to it as they stand, and ones may be anything */
    if (!tally.flags_only || !tally.sums_only || (!tally.hidden && (!named || tally.set < tally.seen)))
        return TS_OK;
    if (flags->count != sums->count) {
        if (named)
            pair->problem = "flags of tokens against what is added to scores: they say different things";
        return TS_OK;
    }
    shown = 2 * tally.shown_by_set >= tally.seen;
    if (!named && (tally.seen < LEAST_SEEN || tally.hidden == tally.seen || !tally.set || tally.set == tally.seen ||
                   (double)(shown ? tally.shown_by_set : tally.seen - tally.shown_by_set) <
                       MOSTLY * (double)tally.seen)) /* one number of each is no mask */
        return TS_OK;
    flags->flags = shown ? TS_FLAGS_SHOW : TS_FLAGS_HIDE;
    if (flags->tensor->type == TS_BOOL)
        text = shown ? "true is 0, false -inf" : "false is 0, true -inf";
    else
        text = shown ? "1 is 0, 0 is -inf" : "0 is 0, 1 is -inf";
    text = ts_arena_printf(&pairer->out->arena, "%c: %s", of_b ? 'B' : 'A', text);
    return text ? ts_layout_recipes(pairer, pair->recipe, text, &pair->recipe, error) : ts_fail_memory(error);
}
