/* Kinds of causes: their ids are told with diagnose.h, and how much one says is for those who rank them. */
#ifndef TS_DIAGNOSE_KINDS_H
#define TS_DIAGNOSE_KINDS_H

#include "diagnose/diagnose.h"

/* Kinds with a smaller bonus than this are relations between numbers, and places. */
#define TS_RELATIONS 0.04

/* Of two causes that explain as much the one with the greater bonus comes first. */
double ts_kind_bonus(const char *id);

#endif
