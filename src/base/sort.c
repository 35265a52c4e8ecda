/* qsort that keeps equal things in their order, for systems whose own does not: meson.build gives it that name. Reports
 * are then the same everywhere. glibc's keeps it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RUN 8 /* so many are sorted by insertion */

struct sorting {
    size_t size;
    int (*compare)(const void *a, const void *b);
    uint8_t *room; /* for half of all; NULL without memory */
};

static void swap(uint8_t *a, uint8_t *b, size_t size)
{
    uint8_t piece[64];
    for (size_t part; size; size -= part, a += part, b += part) {
        part = size < sizeof piece ? size : sizeof piece;
        memcpy(piece, a, part);
        memcpy(a, b, part);
        memcpy(b, piece, part);
    }
}

static void reverse(uint8_t *data, size_t count, size_t size)
{
    for (size_t i = 0; i < count / 2; i++)
        swap(data + i * size, data + (count - 1 - i) * size, size);
}

/* How many of sorted ones go before `one`: those below it, or those not above it. */
static size_t place_of(const struct sorting *sorting, const uint8_t *one, const uint8_t *data, size_t count,
                       bool behind_equals)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        int order = sorting->compare(data + middle * sorting->size, one);
        if (order < 0 || (behind_equals && order == 0))
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* Where there is no room: halves the longer side, turns round what is between, and does both ends by themselves. */
static void merge_in_place(const struct sorting *sorting, uint8_t *data, size_t left, size_t right)
{
    const size_t size = sorting->size;
    while (left && right) {
        size_t from_left = left / 2, from_right = right / 2;
        if (left + right == 2) {
            if (sorting->compare(data, data + size) > 0)
                swap(data, data + size, size);
            return;
        }
        if (left >= right)
            from_right = place_of(sorting, data + from_left * size, data + left * size, right, false);
        else
            from_left = place_of(sorting, data + (left + from_right) * size, data, left, true);
        reverse(data + from_left * size, left - from_left, size);
        reverse(data + left * size, from_right, size);
        reverse(data + from_left * size, left - from_left + from_right, size);
        merge_in_place(sorting, data, from_left, from_right);
        data += (from_left + from_right) * size;
        left -= from_left;
        right -= from_right;
    }
}

static void merge(const struct sorting *sorting, uint8_t *data, size_t left, size_t right)
{
    const size_t size = sorting->size;
    const uint8_t *a = sorting->room, *a_end, *b = data + left * size, *b_end = b + right * size;
    if (sorting->compare(b - size, b) <= 0)
        return;
    if (!sorting->room) {
        merge_in_place(sorting, data, left, right);
        return;
    }
    memcpy(sorting->room, data, left * size);
    a_end = a + left * size;
    for (; a < a_end && b < b_end; data += size) {
        const uint8_t **from = sorting->compare(a, b) <= 0 ? &a : &b;
        memcpy(data, *from, size);
        *from += size;
    }
    memcpy(data, a, (size_t)(a_end - a));
}

static void sort(const struct sorting *sorting, uint8_t *data, size_t count)
{
    const size_t size = sorting->size;
    if (count <= RUN) {
        for (size_t i = 1; i < count; i++)
            for (size_t k = i; k && sorting->compare(data + (k - 1) * size, data + k * size) > 0; k--)
                swap(data + (k - 1) * size, data + k * size, size);
        return;
    }
    sort(sorting, data, count / 2);
    sort(sorting, data + count / 2 * size, count - count / 2);
    merge(sorting, data, count / 2, count - count / 2);
}

/* Declared by stdlib.h, under this name. */
void ts_stable_sort(void *data, size_t count, size_t size, int (*compare)(const void *a, const void *b))
{
    struct sorting sorting = {.size = size, .compare = compare};
    if (count < 2 || !size)
        return;
    sorting.room = count > RUN ? malloc(count / 2 * size) : NULL;
    sort(&sorting, data, count);
    free(sorting.room);
}
