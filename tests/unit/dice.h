/* Numbers that look random and are the same in every run. */
#ifndef TS_TEST_DICE_H
#define TS_TEST_DICE_H

#include <stdint.h>

/* Sanitizers look for something else than the right words, and take ten times as long: they need not try everything. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static uint64_t dice_state = 1;

__attribute__((unused)) static uint64_t dice(void)
{
    uint64_t z = dice_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* From -1 to 1. */
__attribute__((unused)) static double dice_number(void)
{
    return (double)(int64_t)dice() * 0x1p-63;
}

#endif
