/* Owns axes in another order where no swap of neighbours, one or several taken together, says it: of three axes and
 * more, some of which have the same sizes. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "diagnose/layout.h"
#include "diagnose/match.h"

#define MOST_AXES 6 /* 720 orders */
#define PROBES    64
#define WORTH     0.5 /* share of the probes' energy that may be left */

struct order {
    unsigned axes[MOST_AXES]; /* axis i of the candidate is this one of the reference */
};

/* Where element i of the candidate is in the reference. */
static uint64_t source_of(const struct ts_view *view, const struct order *order, uint64_t i)
{
    uint64_t stride[MOST_AXES], at = 0, next = 1;
    for (unsigned k = view->rank; k-- > 0; next *= view->shape[k])
        stride[k] = next;
    for (unsigned k = view->rank; k-- > 0; i /= view->shape[k])
        at += i % view->shape[k] * stride[order->axes[k]];
    return at;
}

static void swap(unsigned *one, unsigned *other)
{
    const unsigned kept = *one;
    *one = *other;
    *other = kept;
}

/* The next order of the axes, as words follow each other in a dictionary; false behind the last. */
static bool next_order(struct order *order, unsigned rank)
{
    unsigned *axes = order->axes, i = rank - 1, k = rank - 1;
    while (i > 0 && axes[i - 1] > axes[i])
        i--;
    if (i == 0)
        return false;
    while (axes[k] < axes[i - 1])
        k--;
    swap(&axes[i - 1], &axes[k]);
    for (unsigned low = i, high = rank - 1; low < high; low++, high--)
        swap(&axes[low], &axes[high]);
    return true;
}

static bool keeps_shape(const struct ts_view *view, const struct order *order)
{
    for (unsigned i = 0; i < view->rank; i++)
        if (view->shape[order->axes[i]] != view->shape[i])
            return false;
    return true;
}

/* What is left of some elements, as a share of their size. */
static double left_of(const struct ts_case *the_case, const struct ts_view *view, const struct order *order)
{
    double left = 0, size = 0;
    for (size_t n = 0; n < PROBES; n++) {
        const size_t i = (size_t)((n * 0x9e3779b97f4a7c15u >> 11) % the_case->total);
        const double found = the_case->found[i], d = found - the_case->expected[source_of(view, order, i)];
        left += d * d;
        size += found * found;
    }
    return size > 0 ? left / size : 1;
}

static void put_axes(struct ts_buffer *text, const struct order *order, unsigned rank)
{
    for (unsigned i = 0; i < rank; i++)
        ts_buffer_printf(text, "%s%u", i ? ", " : "", order->axes[i]);
}

static void propose_order(struct ts_case *the_case, const struct ts_view *view, const struct order *order,
                          double *prediction)
{
    struct order back = {{0}};
    struct ts_buffer text, undo;
    ts_buffer_init(&text, 1024);
    ts_buffer_init(&undo, 1024);
    for (unsigned i = 0; i < view->rank; i++)
        back.axes[order->axes[i]] = i;
    put_axes(&text, order, view->rank);
    put_axes(&undo, &back, view->rank);
    for (size_t i = 0; i < the_case->total; i++)
        prediction[i] = the_case->expected[source_of(view, order, i)];
    if (!text.failed && !undo.failed)
        ts_propose(
            the_case, "permuted", prediction, 1,
            ts_case_text(the_case, "the reshapes and transposes around this tensor; to undo: permute(%s)", undo.data),
            "the same values in another order: the candidate's axes are %s of the expected ones", text.data);
    ts_buffer_release(&text);
    ts_buffer_release(&undo);
}

/* Of every token for every token: turned, they are those of queries and keys in each other's place, which says more. */
static bool are_scores(const struct ts_case *the_case, const struct ts_view *view)
{
    return view->rank == 3 && view->shape[0] == the_case->scene->tokens && view->shape[2] == the_case->scene->tokens;
}

void ts_layout_axes(struct ts_case *the_case, double *prediction)
{
    const struct ts_view *view = &ts_case_pair(the_case)->a;
    struct order order = {{0}}, best = {{0}};
    double least = WORTH;
    if (view->rank < 3 || view->rank > MOST_AXES || are_scores(the_case, view) || !ts_case_complete(the_case) ||
        the_case->total != view->count ||
        !(ts_case_direct(the_case) || ts_tokens_come_first(the_case) || the_case->actor->rows == 1))
        return; /* the case has its elements in another order than the pair, or not all of them */
    for (unsigned i = 0; i < view->rank; i++)
        order.axes[i] = i;
    while (next_order(&order, view->rank)) { /* the first one changes nothing */
        const double left = keeps_shape(view, &order) ? left_of(the_case, view, &order) : 1;
        if (left < least) {
            least = left;
            best = order;
        }
    }
    if (least < WORTH)
        propose_order(the_case, view, &best, prediction);
}
