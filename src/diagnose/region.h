/* Region: a set of elements of a case, in words. Internal to src/diagnose. */
#ifndef TS_DIAGNOSE_REGION_H
#define TS_DIAGNOSE_REGION_H

#include "diagnose/families.h"

struct ts_region {
    size_t count;          /* elements in it */
    size_t rows, channels; /* how many of each it touches */
    bool whole;            /* all there is */
    bool rectangle;        /* every touched channel of every touched row: all of them, a set of rows, heads ... */
    bool all_rows, all_channels;
    size_t pieces;  /* numbers it takes to say where it is: the freedom of a hypothesis about it */
    char text[160]; /* "rows 3 to 8", "head 2", "channels 0 to 15 of rows 4, 5", "scattered elements" */
};

/* Takes the few elements out of the mask that stand apart from where most of it is. */
void ts_region_trim(const struct ts_case *the_case, bool *mask);
/* mask has one entry per element. False without memory or when the mask is empty. */
bool ts_region_of(const struct ts_case *the_case, const bool *mask, struct ts_region *region);
/* "3", "3 to 8", "1, 4 to 6 and 2 more". rows: indices are rows of the case. Returns the number of runs. */
size_t ts_region_list(const struct ts_case *the_case, const bool *chosen, size_t count, bool rows, char *text,
                      size_t room);

/* The size of a head where heads are folded into the channels of queries, keys, values or a context, as other tensors
 * of the run show it; 0 when there are none, or they are an axis of their own. */
size_t ts_folded_head(const struct ts_case *the_case);
/* The largest number of heads that a tensor of the window shows, and their size; 0 when none does. */
size_t ts_head_size(const struct ts_case *the_case, size_t *heads);

#endif
