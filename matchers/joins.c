/* Joins: the compiled twin of `matchers/joins.py`, which is the specification. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t place(uint64_t key, int bits)
{
    return (key * 0x9E3779B97F4A7C15u) >> (64 - bits); /* by the golden ratio, so that near keys lie apart */
}

/* The place of the first equal one among `many` other keys, of each of n keys; -1 where none is. Returns 0 without the
   memory for it. */
int64_t joins_first_equal(int64_t n, const uint64_t *keys, int64_t many, const uint64_t *among, int64_t *out)
{
    int bits = 1;
    while ((INT64_C(1) << bits) < 2 * many)
        bits++;
    uint32_t *taken = many < UINT32_MAX ? calloc((size_t)1 << bits, sizeof *taken) : NULL; /* places, and one more */
    if (!taken)
        return 0;
    uint64_t last = ((uint64_t)1 << bits) - 1;
    for (int64_t k = 0; k < many; k++) {
        uint64_t at = place(among[k], bits);
        while (taken[at] && among[taken[at] - 1] != among[k])
            at = (at + 1) & last;
        if (!taken[at])
            taken[at] = (uint32_t)(k + 1);
    }
    for (int64_t k = 0; k < n; k++) {
        uint64_t at = place(keys[k], bits);
        while (taken[at] && among[taken[at] - 1] != keys[k])
            at = (at + 1) & last;
        out[k] = (int64_t)taken[at] - 1;
    }
    free(taken);
    return 1;
}

/* Lines of n rows: the text of each column, by its number in the table of the column (-1: none), without the newline
   after it. Returns how many bytes they are; they are written if there is a place for them. */
int64_t joins_lines(int64_t n, int64_t columns, const uint8_t *const *blob, const int64_t *const *start,
                    const int64_t *const *number, uint8_t *out)
{
    int64_t at = 0;
    for (int64_t row = 0; row < n; row++) {
        for (int64_t column = 0; column < columns; column++) {
            int64_t which = number[column][row];
            if (which < 0)
                continue;
            int64_t from = start[column][which], size = start[column][which + 1] - 1 - from;
            if (out)
                memcpy(out + at, blob[column] + from, (size_t)size);
            at += size;
        }
        if (out)
            out[at] = '\n';
        at++;
    }
    return at;
}
