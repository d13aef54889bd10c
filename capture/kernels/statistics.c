/* Norms, extremes, counts, digest and sketch of one tensor, in one pass over its memory.
 *
 * docs/sketch.md specifies the digest and the sketch, capture/kernels/row.py the row that is filled and
 * capture/kernels/native.py the arguments. The order of every floating-point operation is fixed: it depends on the
 * number of elements alone, not on strides, threads or the machine, so compile without -ffast-math and with
 * -ffp-contract=off. Elements are taken in row-major order, CHUNK at a time through scratch on the stack, chunks are
 * summed in segments of SEGMENT elements (the unit that threads share), and segments in order.
 */

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the digest is that of little-endian bytes"
#endif

enum {
    CHUNK = 1024,
    SEGMENT = 1 << 15,
    BLOCK = 128,
    PROJECTIONS = 16,
    COLUMNS = 8,
    MAX_DIMS = 64,
    MAX_THREADS = 64,
    MAX_ITEM = 16,
    PANEL = 1 << 23,
    AHEAD = 32,           /* cache lines that a transposed tensor is fetched ahead */
    WORTH_START = 1 << 17 /* elements that take longer than a thread does to start */
};

enum { TAKE_DIGEST = 1, TAKE_SKETCH = 2, CONJUGATE = 4, NEGATE = 8, COMPLEX = 16 };

enum { BY_TABLE, F16, BF16, F32, F64, I16, I32, I64, U16, U32, U64 };

static const int part_sizes[] = {1, 2, 2, 4, 8, 2, 4, 8, 2, 4, 8};

/* What Python fills in; every field has 64 bits. */
struct arguments {
    const char *data;
    int64_t *row;
    int64_t numel;
    int64_t kind;
    int64_t flags;
    const double *table;     /* the value of each byte, for types of 8 bits */
    const int64_t *position; /* Positions.packed, or null where positions are element numbers */
    int64_t dims;            /* 0: contiguous */
    const int64_t *layout;   /* sizes, then strides in elements */
    int64_t threads;
    void (*team)(void (*)(void *), void *, unsigned, unsigned); /* runs a function in `threads` threads; null: start them */
};

/* ---- vectors --------------------------------------------------------------------------------------------------- */

/* Eight numbers at a time, in one register or in two; the results are the same. */
#ifdef __AVX512F__
#define WIDTH 8
#else
#define WIDTH 4
#endif
enum { HALVES = 8 / WIDTH };

typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef uint64_t bits __attribute__((vector_size(8 * WIDTH)));
typedef int64_t ints __attribute__((vector_size(8 * WIDTH)));
typedef double loose_vec __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef uint64_t loose_bits __attribute__((vector_size(8 * WIDTH), aligned(1), may_alias));

static inline bits all(uint64_t x) { return (bits){0} + x; }

/* ---- digest and signs ------------------------------------------------------------------------------------------ */

static const uint64_t GAMMA = 0x9E3779B97F4A7C15u;
static const uint64_t SEED = 0x6E756D7475690A02u;
static const uint16_t SIGNS[COLUMNS] = {0x0000, 0x6AC0, 0xC6A0, 0x24E8, 0x7228, 0xB848, 0x1E88, 0x5C60};

static inline uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline bits mixed_words(bits z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* What is added to the word at byte `at` (a multiple of 8) and to those that follow it. */
static inline bits digest_steps(int64_t at) {
    uint64_t step = (uint64_t)(at / 8 + 2) * GAMMA; /* word 0 is the length, and counting begins at 1 */
    bits steps;
    for (int j = 0; j < WIDTH; j++) steps[j] = step + (uint64_t)j * GAMMA;
    return steps;
}

static inline uint64_t sum_of(bits terms) {
    uint64_t sum = 0;
    for (int j = 0; j < WIDTH; j++) sum += terms[j];
    return sum;
}

/* The digest's terms of `size` bytes that begin at byte `at` of the stream. */
static uint64_t digest_terms(const char *bytes, int64_t size, int64_t at) {
    bits sums = {0}, steps = digest_steps(at);
    int64_t i = 0;
    for (; i + 8 * WIDTH <= size; i += 8 * WIDTH) {
        sums += mixed_words(*(const loose_bits *)(bytes + i) + steps);
        steps += WIDTH * GAMMA;
    }
    uint64_t sum = sum_of(sums), step = steps[0];
    for (; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
        sum += mixed(word + step);
        step += GAMMA;
    }
    return sum;
}

/* ---- sketch ---------------------------------------------------------------------------------------------------- */

static inline vec flipped(vec x, bits sign) { return (vec)((bits)x ^ (sign & all(1ull << 63))); }

struct sketch {
    vec sums[PROJECTIONS][HALVES]; /* without V, which is constant along a column and can wait */
    double pending[BLOCK];              /* what is known of block `at` while it is incomplete */
    int64_t at;
};

/* The three words of each of some blocks. */
static inline void block_words(int64_t block, int64_t blocks, uint64_t *words) {
    uint64_t first = SEED + (3 * (uint64_t)block + 1) * GAMMA;
    for (int64_t i = 0; i < 3 * blocks; i++) words[i] = mixed(first + (uint64_t)i * GAMMA);
}

/* The signs of row 0 in the highest bits, those of the next rows below. */
static inline bits row_signs(const uint64_t *words, int half) {
#if WIDTH == 8
    (void)half;
    return (bits){words[0], words[0], words[0], words[0], words[1], words[1], words[1], words[1]}
           << (bits){0, 16, 32, 48, 0, 16, 32, 48};
#else
    return all(words[half]) << (bits){0, 16, 32, 48};
#endif
}

/* The Hadamard transform of the rows. */
static inline __attribute__((always_inline)) void transform(vec *y) {
#pragma GCC unroll 4
    for (int h = 1; h < 16; h *= 2)
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            if (!(r & h)) {
                vec a = y[r], b = y[r | h];
                y[r] = a + b;
                y[r | h] = a - b;
            }
}

static void add_block(struct sketch *s, int64_t block, const double *x) {
    uint64_t words[3];
    block_words(block, 1, words);
    for (int half = 0; half < HALVES; half++) {
        vec y[16];
        bits signs = row_signs(words, half);
        for (int r = 0; r < 16; r++) {
            y[r] = flipped(*(const loose_vec *)(x + COLUMNS * r + WIDTH * half), signs);
            signs += signs;
        }
        transform(y);
        signs = all(words[2]);
        for (int k = 0; k < PROJECTIONS; k++) {
            s->sums[k][half] += flipped(y[k], signs);
            signs += signs;
        }
    }
}

static void complete(struct sketch *s) {
    if (s->at >= 0) {
        add_block(s, s->at, s->pending);
        memset(s->pending, 0, sizeof s->pending);
        s->at = -1;
    }
}

/* Adds values at consecutive positions. */
static void add_run(struct sketch *s, int64_t position, const double *x, int64_t n) {
    while (n) {
        int64_t block = position / BLOCK, offset = position % BLOCK;
        int64_t m = BLOCK - offset < n ? BLOCK - offset : n;
        if (m == BLOCK) {
            add_block(s, block, x);
        } else {
            if (s->at != block) {
                complete(s);
                s->at = block;
            }
            for (int64_t i = 0; i < m; i++) s->pending[offset + i] += x[i];
        }
        position += m;
        x += m;
        n -= m;
    }
}

static void finish_sketch(struct sketch *s, double *out) {
    complete(s);
    for (int k = 0; k < PROJECTIONS; k++) {
        double sum = 0;
        for (int c = 0; c < COLUMNS; c++) {
            double x = s->sums[k][c / WIDTH][c % WIDTH];
            sum += SIGNS[c] >> k & 1 ? -x : x;
        }
        out[k] = sum;
    }
}

/* ---- positions ------------------------------------------------------------------------------------------------- */

/* Walks over Positions.packed: the runs of the inner dimensions, once for each combination of the outer ones. */
struct cursor {
    const int64_t *packed;
    int64_t repeat, run, inside, base;
};

static int64_t outer_offset(const int64_t *packed, int64_t repeat) {
    int64_t offset = 0;
    const int64_t *axis = packed + 1;
    for (int64_t left = packed[0]; left; left--) {
        axis += 3 + 2 * axis[2];
        int64_t index = repeat % axis[1];
        const int64_t *run = axis + 3;
        while (index >= run[1]) {
            index -= run[1];
            run += 2;
        }
        offset += (run[0] + index) * axis[0];
        repeat /= axis[1];
    }
    return offset;
}

static struct cursor cursor_at(const int64_t *packed, int64_t element) {
    struct cursor c = {packed, 0, 0, 0, 0};
    if (packed) {
        c.repeat = element / packed[2];
        c.inside = element % packed[2];
        c.base = outer_offset(packed, c.repeat);
        while (c.inside >= packed[5 + 2 * c.run]) c.inside -= packed[5 + 2 * c.run++];
    } else {
        c.inside = element;
    }
    return c;
}

/* Adds n elements of `parts` values each and moves on. */
static void add_elements(struct sketch *s, struct cursor *c, const double *x, int64_t n, int parts) {
    if (!c->packed) {
        add_run(s, c->inside * parts, x, n * parts);
        c->inside += n;
        return;
    }
    const int64_t *runs = c->packed + 4;
    while (n) {
        int64_t left = runs[2 * c->run + 1] - c->inside;
        int64_t m = left < n ? left : n;
        add_run(s, (c->base + runs[2 * c->run] + c->inside) * parts, x, m * parts);
        x += m * parts;
        n -= m;
        c->inside += m;
        if (m == left) {
            c->inside = 0;
            if (++c->run == c->packed[3]) {
                c->run = 0;
                c->base = outer_offset(c->packed, ++c->repeat);
            }
        }
    }
}

/* ---- sums over values ------------------------------------------------------------------------------------------ */

struct partial {
    int64_t nan, inf, zero;
    uint64_t digest;
    double l1, l2, min, max, sum; /* l2: sum of squares */
    double sketch[PROJECTIONS];
};

/* Eight running sums: element i of a chunk belongs to number i % 8. */
union lanes {
    vec half[HALVES];
    double each[8];
    int64_t count[8];
};

struct accumulators {
    union lanes l1, l2, sum, low, high, zero;
};

static inline vec chosen(ints mask, vec yes, vec no) { return (vec)(((ints)yes & mask) | ((ints)no & ~mask)); }

/* x < y ? x : y and x > y ? x : y: single instructions, which compilers do not find. */
#if defined __AVX512F__
#define smaller(x, y) (vec) _mm512_min_pd((__m512d)(x), (__m512d)(y))
#define larger(x, y) (vec) _mm512_max_pd((__m512d)(x), (__m512d)(y))
#elif defined __AVX__
#define smaller(x, y) (vec) _mm256_min_pd((__m256d)(x), (__m256d)(y))
#define larger(x, y) (vec) _mm256_max_pd((__m256d)(x), (__m256d)(y))
#else
#define smaller(x, y) chosen((x) < (y), x, y)
#define larger(x, y) chosen((x) > (y), x, y)
#endif

static inline vec magnitude(vec x) { return (vec)((bits)x & all(~0ull >> 1)); }

static inline void accumulate(struct accumulators *a, int half, vec x) {
    a->l1.half[half] += magnitude(x);
    a->l2.half[half] += x * x;
    a->sum.half[half] += x;
    a->low.half[half] = smaller(x, a->low.half[half]);
    a->high.half[half] = larger(x, a->high.half[half]);
    a->zero.half[half] = (vec)((ints)a->zero.half[half] - (x == 0));
}

static inline double total(const union lanes *l) {
    const double *x = l->each;
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* Fills everything but nan, inf, digest and sketch. */
static void reduce(const double *x, int64_t n, struct partial *p) {
    struct accumulators a = {0};
    for (int j = 0; j < 8; j++) {
        a.low.each[j] = INFINITY;
        a.high.each[j] = -INFINITY;
    }
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int half = 0; half < HALVES; half++) accumulate(&a, half, *(const loose_vec *)(x + i + WIDTH * half));
    for (int j = 0; i < n; i++, j++) {
        a.l1.each[j] += fabs(x[i]);
        a.l2.each[j] += x[i] * x[i];
        a.sum.each[j] += x[i];
        if (x[i] < a.low.each[j]) a.low.each[j] = x[i];
        if (x[i] > a.high.each[j]) a.high.each[j] = x[i];
        a.zero.count[j] += x[i] == 0;
    }
    p->l1 = total(&a.l1);
    p->l2 = total(&a.l2);
    p->sum = total(&a.sum);
    p->zero = 0;
    p->min = INFINITY;
    p->max = -INFINITY;
    for (int j = 0; j < 8; j++) {
        if (a.low.each[j] < p->min) p->min = a.low.each[j];
        if (a.high.each[j] > p->max) p->max = a.high.each[j];
        p->zero += a.zero.count[j];
    }
}

/* A complex number has one magnitude, and is zero as a whole. */
static void reduce_magnitudes(const double *x, int64_t n, struct partial *p) {
    double sizes[CHUNK];
    struct partial of_sizes;
    p->zero = 0;
    for (int64_t i = 0; i < n / 2; i++) {
        sizes[i] = sqrt(x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1]);
        p->zero += (x[2 * i] == 0) & (x[2 * i + 1] == 0); /* small numbers have squares of zero */
    }
    reduce(sizes, n / 2, &of_sizes);
    p->l1 = of_sizes.l1;
}

static inline ints of_neighbours(ints x) {
    ints swapped;
    for (int j = 0; j < WIDTH; j++) swapped[j] = x[j ^ 1];
    return swapped;
}

/* Counts the elements that are not finite, sets them to zero, and reduces the others: without a branch, as masked
 * attention scores are infinite by the million. Has room for numbers up to a multiple of 8. */
static void reduce_finite(double *x, int64_t n, int parts, struct partial *p) {
    int64_t padding = -n & 7;
    vec low = (vec){0} + INFINITY, high = -low;
    ints finite_count = {0}, nan_count = {0};
    for (int64_t i = 0; i < padding; i++) x[n + i] = INFINITY;
    for (int64_t i = 0; i < n; i += WIDTH) {
        vec y = *(loose_vec *)(x + i);
        ints finite = magnitude(y) <= DBL_MAX, nan = y != y;
        if (parts == 2) {
            finite &= of_neighbours(finite);
            nan |= of_neighbours(nan);
        }
        *(loose_vec *)(x + i) = (vec)((ints)y & finite);
        low = smaller(chosen(finite, y, low), low);
        high = larger(chosen(finite, y, high), high);
        finite_count -= finite;
        nan_count -= nan;
    }
    int64_t finite = 0, nan = 0;
    reduce(x, n, p);
    if (parts == 2) reduce_magnitudes(x, n, p);
    p->min = INFINITY;
    p->max = -INFINITY;
    for (int j = 0; j < WIDTH; j++) {
        finite += finite_count[j];
        nan += nan_count[j];
        if (low[j] < p->min) p->min = low[j];
        if (high[j] > p->max) p->max = high[j];
    }
    p->nan = nan / parts;
    p->inf = (n - finite) / parts - p->nan;
    p->zero -= p->nan + p->inf;
}

static void reduce_chunk(double *x, int64_t n, int parts, struct partial *p) {
    p->nan = p->inf = 0;
    reduce(x, n, p);
    /* one NaN or infinity makes the sum of magnitudes NaN or infinite */
    if (!(p->l1 <= DBL_MAX))
        reduce_finite(x, n, parts, p);
    else if (parts == 2)
        reduce_magnitudes(x, n, p);
}

static void combine(struct partial *total, const struct partial *p) {
    total->nan += p->nan;
    total->inf += p->inf;
    total->zero += p->zero;
    total->digest += p->digest;
    total->l1 += p->l1;
    total->l2 += p->l2;
    total->sum += p->sum;
    total->min = p->min < total->min ? p->min : total->min;
    total->max = p->max > total->max ? p->max : total->max;
}

static const struct partial NOTHING = {.min = INFINITY, .max = -INFINITY};

/* ---- reading elements ------------------------------------------------------------------------------------------ */

#define LOOSE __attribute__((aligned(1), may_alias))
typedef uint8_t u8;
typedef uint16_t LOOSE u16;
typedef uint32_t LOOSE u32;
typedef uint64_t LOOSE u64;
typedef int16_t LOOSE i16;
typedef int32_t LOOSE i32;
typedef int64_t LOOSE i64;
typedef float LOOSE f32;
typedef double LOOSE f64;
typedef struct { uint64_t a, b; } LOOSE u128;

static inline float float_of(uint32_t word) {
    float x;
    memcpy(&x, &word, 4);
    return x;
}

static inline float from_f16(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7FFF) << 13;
    float x = float_of(magnitude) * 0x1p112f; /* exact, subnormal numbers included */
    float special = float_of(magnitude | 0x7F800000);
    return copysignf(magnitude >= 0x0F800000 ? special : x, float_of((uint32_t)h << 16));
}

#define EACH(type, expression)                       \
    {                                                \
        const type *restrict in = (const void *)raw; \
        for (int64_t i = 0; i < n; i++) out[i] = expression; \
        break;                                       \
    }

static void convert(int64_t kind, const double *table, const char *raw, int64_t n, double *restrict out) {
    switch (kind) {
    case BY_TABLE: EACH(u8, table[in[i]])
    case F16: EACH(u16, from_f16(in[i]))
    case BF16: EACH(u16, float_of((uint32_t)in[i] << 16))
    case F32: EACH(f32, in[i])
    case F64: EACH(f64, in[i])
    case I16: EACH(i16, in[i])
    case I32: EACH(i32, in[i])
    case I64: EACH(i64, (double)in[i])
    case U16: EACH(u16, in[i])
    case U32: EACH(u32, in[i])
    case U64: EACH(u64, (double)in[i])
    }
}

/* Sizes and strides (in bytes), with neighbours that are one dimension in memory merged. */
struct layout {
    int dims;
    int64_t size[MAX_DIMS], stride[MAX_DIMS];
};

static void set_layout(struct layout *l, const struct arguments *a, int item) {
    l->dims = 0;
    for (int64_t i = 0; i < a->dims; i++) {
        int64_t size = a->layout[i], stride = a->layout[a->dims + i] * item;
        if (size == 1) continue;
        int last = l->dims - 1;
        if (last >= 0 && l->stride[last] == stride * size) {
            l->size[last] *= size;
            l->stride[last] = stride;
        } else {
            l->size[l->dims] = size;
            l->stride[l->dims++] = stride;
        }
    }
    if (!l->dims) {
        l->dims = 1;
        l->size[0] = a->numel;
        l->stride[0] = item;
    }
}

/* Where row `row` (an index of all dimensions but the last) begins. */
static const char *row_start(const struct layout *l, const char *data, int64_t row) {
    for (int i = l->dims - 2; i >= 0; i--) {
        data += row % l->size[i] * l->stride[i];
        row /= l->size[i];
    }
    return data;
}

/* Copies items from `rows` rows of n items each: in[r * across + i * stride] to out[r * pitch + i]. */
#define COPY(type)                                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                                        \
        __builtin_prefetch(in + (i + AHEAD) * stride);                                                       \
        for (int64_t r = 0; r < rows; r++)                                                                   \
            *(type *)(out + (r * pitch + i) * sizeof(type)) = *(const type *)(in + i * stride + r * across); \
    }

#ifdef __AVX512F__
enum { SQUARE = 16 };

/* Transposes a square of items of 2 or 4 bytes, whose columns are `stride` bytes apart, into rows `pitch` bytes apart. */
static inline __attribute__((always_inline)) void copy_square(const char *in, int64_t stride, int item, char *out,
                                                              int64_t pitch) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i y[SQUARE];
#pragma GCC unroll 16
    for (int i = 0; i < SQUARE; i++)
        y[i] = item == 4 ? _mm512_loadu_si512(in + i * stride)
                         : _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(in + i * stride)));
#pragma GCC unroll 4
    for (int h = 1; h < SQUARE; h *= 2) {
        __m512i bit = _mm512_set1_epi32(h), other = _mm512_xor_si512(lane, bit);
        __mmask16 high = _mm512_test_epi32_mask(lane, bit);
        __m512i second = _mm512_set1_epi32(SQUARE); /* added to a lane: that of the second operand */
        __m512i low_half = _mm512_mask_add_epi32(lane, high, other, second);
        __m512i high_half = _mm512_mask_add_epi32(other, high, lane, second);
#pragma GCC unroll 16
        for (int i = 0; i < SQUARE; i++)
            if (!(i & h)) {
                __m512i a = y[i], b = y[i | h];
                y[i] = _mm512_permutex2var_epi32(a, low_half, b);
                y[i | h] = _mm512_permutex2var_epi32(a, high_half, b);
            }
    }
#pragma GCC unroll 16
    for (int i = 0; i < SQUARE; i++)
        if (item == 4)
            _mm512_storeu_si512(out + i * pitch, y[i]);
        else
            _mm256_storeu_si256((void *)(out + i * pitch), _mm512_cvtepi32_epi16(y[i]));
}
#endif

/* The same for rows that are neighbours in memory, as far as they make up squares; returns the number of items done of
 * each row. */
static int64_t copy_squares(const char *in, int64_t stride, int64_t rows, int64_t n, int item, char *out,
                            int64_t pitch) {
    int64_t i = 0;
#ifdef __AVX512F__
    if (rows % SQUARE || (item != 4 && item != 2)) return 0;
    for (; i + SQUARE <= n; i += SQUARE) {
        for (int k = 0; k < SQUARE; k++) __builtin_prefetch(in + (i + AHEAD + k) * stride);
        for (int64_t r = 0; r < rows; r += SQUARE) {
            const char *from = in + i * stride + r * item;
            char *to = out + (r * pitch + i) * item;
            if (item == 4)
                copy_square(from, stride, 4, to, pitch * 4);
            else
                copy_square(from, stride, 2, to, pitch * 2);
        }
    }
#else
    (void)in, (void)stride, (void)rows, (void)n, (void)item, (void)out, (void)pitch;
#endif
    return i;
}

static void copy_items(const char *in, int64_t stride, int64_t across, int64_t rows, int64_t n, int item, char *out,
                       int64_t pitch) {
    if (stride == item && rows == 1) {
        memcpy(out, in, n * item);
        return;
    }
    if (across == item) {
        int64_t done = copy_squares(in, stride, rows, n, item, out, pitch);
        in += done * stride;
        out += done * item;
        n -= done;
    }
    switch (item) {
    case 1: COPY(u8) break;
    case 2: COPY(u16) break;
    case 4: COPY(u32) break;
    case 8: COPY(u64) break;
    case 16: COPY(u128) break;
    }
}

/* Gives the elements of a tensor as contiguous memory. */
struct reader {
    const struct arguments *arguments;
    struct layout layout;
    int item, parts;
    /* Several rows at once, for a tensor whose rows lie across its memory: a transposed matrix is read by cache lines,
     * not by elements. */
    char *panel;
    int64_t panel_rows, panel_pitch, panel_start, panel_end; /* room for rows, items from row to row, rows it holds */
    int64_t group; /* segments to take one after the other, for rows to be read together that several of them share */
    int64_t end;   /* of the group: rows beyond are read by the thread that takes the next */
    const char *next; /* where the cache lines begin to fetch while the elements are used, as many as they fill */
    int64_t apart;    /* from one of these to the next */
    char scratch[CHUNK * MAX_ITEM] __attribute__((aligned(64)));
};

static void open_reader(struct reader *r, const struct arguments *a) {
    r->arguments = a;
    r->parts = a->flags & COMPLEX ? 2 : 1;
    r->item = part_sizes[a->kind] * r->parts;
    r->panel = 0;
    r->panel_start = r->panel_end = 0;
    r->group = 1;
    set_layout(&r->layout, a, r->item);
    struct layout *l = &r->layout;
    int last = l->dims - 1;
    if (last > 0 && l->stride[last] > 64 && l->stride[last - 1] < l->stride[last]) {
        /* rows without gaps, to be used where they are; but those at a distance of a power of two would share few lines
         * of the cache */
        int64_t line = 64 / r->item;
        r->panel_pitch = l->size[last] + (l->size[last] * r->item % 4096 ? 0 : line);
        int64_t rows = PANEL / (r->panel_pitch * r->item);
        r->panel_rows = rows < line ? rows : line;
        if (r->panel_rows >= 4) r->panel = malloc(r->panel_rows * r->panel_pitch * r->item);
        if (r->panel) r->group = (r->panel_rows * l->size[last] + SEGMENT - 1) / SEGMENT;
    }
}

static void fill_panel(struct reader *r, int64_t row) {
    const struct layout *l = &r->layout;
    int last = l->dims - 1;
    int64_t rows = l->size[last - 1] - row % l->size[last - 1];
    int64_t wanted = (r->end - 1) / l->size[last] + 1 - row;
    if (rows > r->panel_rows) rows = r->panel_rows;
    if (rows > wanted) rows = wanted;
    copy_items(row_start(l, r->arguments->data, row), l->stride[last], l->stride[last - 1], rows, l->size[last],
               r->item, r->panel, r->panel_pitch);
    r->panel_start = row;
    r->panel_end = row + rows;
}

static void gather(struct reader *r, int64_t start, int64_t n, char *out) {
    const struct layout *l = &r->layout;
    int last = l->dims - 1;
    while (n) {
        int64_t row = start / l->size[last], column = start % l->size[last];
        int64_t m = l->size[last] - column < n ? l->size[last] - column : n;
        if (r->panel) {
            if (row < r->panel_start || row >= r->panel_end) fill_panel(r, row);
            memcpy(out, r->panel + ((row - r->panel_start) * r->panel_pitch + column) * r->item, m * r->item);
        } else {
            copy_items(row_start(l, r->arguments->data, row) + column * l->stride[last], l->stride[last], 0, 1, m,
                       r->item, out, 0);
        }
        out += m * r->item;
        start += m;
        n -= m;
    }
}

/* Applies the conjugation and the minus sign that a tensor only remembers. */
static void resolve(const struct reader *r, char *raw, int64_t n) {
    int size = r->item / r->parts, negate = (r->arguments->flags & NEGATE) != 0;
    int flip[2] = {negate, negate ^ (r->arguments->flags & CONJUGATE) / CONJUGATE};
    for (int64_t i = 0; i < n * r->parts; i++)
        if (flip[i % r->parts]) raw[i * size + size - 1] ^= (char)0x80;
}

/* n <= CHUNK elements from element `start` on; valid until the next call. */
static const char *read_elements(struct reader *r, int64_t start, int64_t n) {
    const struct layout *l = &r->layout;
    int last = l->dims - 1, deferred = (r->arguments->flags & (CONJUGATE | NEGATE)) != 0;
    r->apart = 64;
    if (l->dims == 1 && l->stride[0] == r->item && !deferred) {
        const char *raw = r->arguments->data + start * r->item;
        r->next = raw + n * r->item;
        return raw;
    }
    r->next = r->scratch;
    if (r->panel) {
        int64_t row = start / l->size[last];
        if (row < r->panel_start || row >= r->panel_end) fill_panel(r, row);
        int64_t used = start - r->panel_start * l->size[last];
        r->apart = l->stride[last];
        /* a line of it is one item of each row */
        r->next = row_start(l, r->arguments->data, r->panel_end) + used * r->item / 64 * r->apart;
        if (!deferred && r->panel_pitch == l->size[last] && start + n <= r->panel_end * l->size[last])
            return r->panel + used * r->item;
    }
    gather(r, start, n, r->scratch);
    if (deferred) resolve(r, r->scratch, n);
    return r->scratch;
}

/* ---- a chunk --------------------------------------------------------------------------------------------------- */

#ifdef __AVX512F__
static inline __attribute__((always_inline)) __m512 load_floats(int64_t kind, const char *raw, int64_t i) {
    if (kind == F32) return _mm512_loadu_ps(raw + 4 * i);
    __m256i halves = _mm256_loadu_si256((const void *)(raw + 2 * i));
    if (kind == F16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Reduces, digests and projects n elements whose values are float32 numbers, in whole blocks, in registers alone. Their
 * squares are exact in float64, so a fused operation rounds as two do, and their extremes need no float64. Fetches as
 * many cache lines from `next` on meanwhile. Returns 0, and adds nothing to the sketch, if it met what is not finite
 * and was not told so. */
static inline __attribute__((always_inline)) int take_floats(int64_t kind, const char *raw, const char *next,
                                                             int64_t apart, int64_t n, int finite_only, int project,
                                                             int64_t position, struct sketch *s, struct partial *p) {
    const int item = kind == F32 ? 4 : 2, block_size = BLOCK * item;
    bits digests = {0}, steps = digest_steps(position * item);
    __m512d l1 = _mm512_setzero_pd(), l2 = l1, sum = l1;
    __m512 low = _mm512_set1_ps(INFINITY), high = _mm512_set1_ps(-INFINITY);
    uint64_t words[3 * CHUNK / BLOCK];
    double ones[CHUNK / BLOCK][PROJECTIONS] __attribute__((aligned(64)));
    int64_t nans = 0, infs = 0, zeros = 0;
    __m512d sums[PROJECTIONS];
    if (project) {
        memcpy(sums, s->sums, sizeof sums);
        block_words(position / BLOCK, n / BLOCK, words);
        for (int64_t b = 0; b < n / BLOCK; b++)
            for (int k = 0; k < PROJECTIONS; k += WIDTH) {
                bits signs = all(words[3 * b + 2] << k) << (bits){0, 1, 2, 3, 4, 5, 6, 7};
                *(loose_vec *)(ones[b] + k) = flipped((vec){0} + 1, signs);
            }
    }
    for (int64_t b = 0; b < n / BLOCK; b++) {
        for (int i = 0; i < block_size; i += 64, next += apart) __builtin_prefetch(next);
        vec y[16];
        bits signs = project ? row_signs(words + 3 * b, 0) : all(0);
#pragma GCC unroll 8
        for (int r = 0; r < 16; r += 2) {
            __m512 x = load_floats(kind, raw, b * BLOCK + r * COLUMNS);
            if (r * COLUMNS * item % 64 == 0) {
                digests += mixed_words(*(const loose_bits *)(raw + b * block_size + r * COLUMNS * item) + steps);
                steps += WIDTH * GAMMA;
            }
            if (finite_only) {
                __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(FLT_MAX), _CMP_LE_OQ);
                __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
                low = _mm512_mask_min_ps(low, finite, x, low);
                high = _mm512_mask_max_ps(high, finite, x, high);
                x = _mm512_maskz_mov_ps(finite, x);
                zeros += __builtin_popcount(_mm512_mask_cmp_ps_mask(finite, x, _mm512_setzero_ps(), _CMP_EQ_OQ));
                nans += __builtin_popcount(nan);
                infs += __builtin_popcount((__mmask16) ~(finite | nan));
            } else {
                low = _mm512_min_ps(x, low);
                high = _mm512_max_ps(x, high);
                zeros += __builtin_popcount(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ));
            }
            __m512d part[2] = {_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                               _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)))};
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                l1 += (__m512d)magnitude((vec)part[i]);
                l2 = _mm512_fmadd_pd(part[i], part[i], l2);
                sum += part[i];
                y[r + i] = flipped((vec)part[i], signs);
                signs += signs;
            }
        }
        if (!project) continue;
        transform(y);
#pragma GCC unroll 16
        for (int k = 0; k < PROJECTIONS; k++) /* a product with 1 or -1 is exact */
            sums[k] = _mm512_fmadd_pd((__m512d)y[k], _mm512_set1_pd(ones[b][k]), sums[k]);
    }
    p->l1 = total(&(union lanes){.half = {(vec)l1}});
    p->l2 = total(&(union lanes){.half = {(vec)l2}});
    p->sum = total(&(union lanes){.half = {(vec)sum}});
    p->min = _mm512_reduce_min_ps(low);
    p->max = _mm512_reduce_max_ps(high);
    p->nan = nans;
    p->inf = infs;
    p->zero = zeros;
    p->digest = sum_of(digests);
    if (!finite_only && !(p->l1 <= DBL_MAX)) return 0;
    if (project) memcpy(s->sums, sums, sizeof sums);
    return 1;
}

typedef int taker(const char *raw, const char *next, int64_t apart, int64_t n, int64_t position, struct sketch *s,
                  struct partial *p);

/* Functions of their own: compilers find registers for one of them at a time. */
#define TAKER(name, kind, finite_only, project)                                                            \
    static __attribute__((noinline)) int name(const char *raw, const char *next, int64_t apart, int64_t n, \
                                              int64_t position, struct sketch *s, struct partial *p) {     \
        return take_floats(kind, raw, next, apart, n, finite_only, project, position, s, p);               \
    }
#define TAKERS(kind)                      \
    TAKER(take_##kind, kind, 0, 0)        \
    TAKER(project_##kind, kind, 0, 1)     \
    TAKER(take_finite_##kind, kind, 1, 0) \
    TAKER(project_finite_##kind, kind, 1, 1)
TAKERS(F16)
TAKERS(BF16)
TAKERS(F32)

/* By kind, with a sketch, the finite ones alone. */
#define ROW_OF(kind) {{take_##kind, take_finite_##kind}, {project_##kind, project_finite_##kind}}
static taker *const takers[][2][2] = {[F16] = ROW_OF(F16), [BF16] = ROW_OF(BF16), [F32] = ROW_OF(F32)};
#endif

/* Takes a chunk without a copy of it in float64, where there is a way; returns 0 where there is none.
 * `finite_only`, in and out: the chunk before it was not finite. */
static int take_in_place(const struct reader *r, const char *raw, int64_t start, int64_t n, int *finite_only,
                         struct sketch *s, struct partial *p) {
#ifdef __AVX512F__
    const struct arguments *a = r->arguments;
    int floats = (a->kind == F32 || a->kind == BF16 || a->kind == F16) && !(a->flags & COMPLEX);
    if (!floats || n % BLOCK || a->position) return 0;
    taker *const *take = takers[a->kind][s != 0];
    if (!take[*finite_only](raw, r->next, r->apart, n, start, s, p)) take[1](raw, raw, 0, n, start, s, p);
    *finite_only = p->nan || p->inf;
    return 1;
#else
    (void)r, (void)raw, (void)start, (void)n, (void)finite_only, (void)s, (void)p;
    return 0;
#endif
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static void measure_segment(struct reader *r, int64_t start, int64_t end, struct partial *total) {
    const struct arguments *a = r->arguments;
    struct sketch s;
    struct cursor c = cursor_at(a->position, start);
    double x[2 * CHUNK] __attribute__((aligned(64)));
    int finite_only = 0;
    if (a->flags & TAKE_SKETCH) {
        memset(&s, 0, sizeof s);
        s.at = -1;
    }
    *total = NOTHING;
    for (int64_t at = start; at < end; at += CHUNK) {
        int64_t n = end - at < CHUNK ? end - at : CHUNK;
        const char *raw = read_elements(r, at, n);
        struct partial p;
        if (take_in_place(r, raw, at, n, &finite_only, a->flags & TAKE_SKETCH ? &s : 0, &p)) {
            c.inside += n;
        } else {
            p.digest = a->flags & TAKE_DIGEST ? digest_terms(raw, n * r->item, at * r->item) : 0;
            convert(a->kind, a->table, raw, n * r->parts, x);
            reduce_chunk(x, n * r->parts, r->parts, &p);
            if (a->flags & TAKE_SKETCH) add_elements(&s, &c, x, n, r->parts);
        }
        combine(total, &p);
    }
    if (a->flags & TAKE_SKETCH) finish_sketch(&s, total->sketch);
}

struct work {
    const struct arguments *arguments;
    struct partial *partials;
    int64_t segments, next;
};

static int64_t end_of(const struct work *w, int64_t segment) {
    int64_t end = (segment + 1) * SEGMENT;
    return end < w->arguments->numel ? end : w->arguments->numel;
}

/* Takes segments until none is left. Rounding and flush-to-zero modes of the caller do not apply to the results. */
static void *measure_segments(void *argument) {
    struct work *w = argument;
    struct reader r;
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    open_reader(&r, w->arguments);
    for (;;) {
        int64_t i = __atomic_fetch_add(&w->next, r.group, __ATOMIC_RELAXED);
        if (i >= w->segments) break;
        int64_t last = i + r.group < w->segments ? i + r.group : w->segments;
        r.end = end_of(w, last - 1);
        for (; i < last; i++) measure_segment(&r, i * SEGMENT, end_of(w, i), &w->partials[i]);
    }
    free(r.panel);
    fesetenv(&environment);
    return 0;
}

static void join_team(void *argument) { measure_segments(argument); }

static void write_row(const struct arguments *a, const struct partial *p, int64_t *row) {
    int parts = a->flags & COMPLEX ? 2 : 1;
    int64_t size = a->numel * part_sizes[a->kind] * parts;
    double values[5] = {p->l1, sqrt(p->l2), p->min + 0.0, p->max + 0.0,
                        p->sum / (double)((a->numel - p->nan - p->inf) * parts)};
    row[0] = p->nan;
    row[1] = p->inf;
    row[2] = p->zero;
    row[3] = (int64_t)(p->digest + mixed((uint64_t)size + GAMMA));
    memcpy(row + 4, values, sizeof values);
    memcpy(row + 9, p->sketch, sizeof p->sketch);
}

/* Fills the row; 0, or 1 where there is no memory for it. */
int measure(const struct arguments *a) {
    struct partial one = NOTHING;
    struct work w = {a, &one, (a->numel + SEGMENT - 1) / SEGMENT, 0};
    pthread_t threads[MAX_THREADS];
    int started = 0;
    if (w.segments > 1) {
        w.partials = malloc(w.segments * sizeof *w.partials);
        if (!w.partials) return 1;
    }
    int64_t shares = a->team ? w.segments : a->numel / WORTH_START;
    int64_t helpers = (a->threads < shares ? a->threads : shares) - 1;
    if (a->team && helpers > 0) {
        /* all of them, even if some find nothing to do: a smaller team would end the threads left out */
        a->team(join_team, &w, (unsigned)a->threads, 0);
    } else {
        while (started < helpers && started < MAX_THREADS &&
               !pthread_create(&threads[started], 0, measure_segments, &w))
            started++;
        if (w.segments) measure_segments(&w);
        while (started) pthread_join(threads[--started], 0);
    }
    struct partial total = w.partials[0];
    for (int64_t i = 1; i < w.segments; i++) {
        combine(&total, &w.partials[i]);
        for (int k = 0; k < PROJECTIONS; k++) total.sketch[k] += w.partials[i].sketch[k];
    }
    if (w.partials != &one) free(w.partials);
    write_row(a, &total, a->row);
    return 0;
}
