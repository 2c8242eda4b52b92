/* The arithmetic, compiled once for each instruction set. The file that includes it defines
 *   NAME(x)  a name for this instruction set     TARGET  the function attribute that selects it
 *   WIDTH    floats in a vector                  TILE_ROWS  rows of a tile that stay in registers
 *   LANE_FMA or VECTOR_FMA  one rounding for a * b + c
 * A vector holds different outputs, never parts of one sum: so WIDTH and TILE_ROWS cannot change a result. */
#define INLINE static inline TARGET __attribute__((always_inline))
#define PARTS (16 / WIDTH) /* vectors in a panel of 16 columns */
#define Vec NAME(Vec)
#define VecAt NAME(VecAt)
#define Ints NAME(Ints)
#define HalvesAt NAME(HalvesAt)
typedef float Vec __attribute__((vector_size(4 * WIDTH)));
typedef float VecAt __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));
typedef uint16_t HalvesAt __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));
#define LOAD(p) (*(const VecAt *)(p))
#define STORE(p, v) (*(VecAt *)(p) = (v))

#ifndef FMA_INLINE
#define FMA_INLINE INLINE
#endif
FMA_INLINE Vec NAME(fma)(Vec a, Vec b, Vec c) {
#ifdef VECTOR_FMA
    return (Vec)VECTOR_FMA(a, b, c);
#else
    Vec r;
    for (int lane = 0; lane < WIDTH; lane++) r[lane] = LANE_FMA(a[lane], b[lane], c[lane]);
    return r;
#endif
}
INLINE Vec NAME(all)(float x) { return x - (Vec){0}; }

/* Put alpha * acc where it belongs; FOLD rounds the product before it is added, as core/contribution.py does. */
INLINE Vec NAME(placed)(const int mode, Vec acc, const float *into, const float *from, Vec alpha, Vec beta) {
    if (mode == SET) return alpha * acc;
    if (mode == FROM) return NAME(fma)(alpha, acc, LOAD(from));
    if (mode == ADD) return NAME(fma)(alpha, acc, LOAD(into));
    return LOAD(into) + beta * (alpha * acc);
}

/* acc[i][j] = sum over k, in order, of a[i * row + k * step] * b[k * b_step + j], for `m` rows and 16 columns. */
INLINE void NAME(tile)(const int m, const int mode, long n_k, const float *a, long row, long step, const float *b,
                       long b_step, float *into, long into_row, const float *from, long from_row, float alpha,
                       float beta) {
    Vec acc[TILE_ROWS][PARTS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int p = 0; p < PARTS; p++) acc[i][p] = (Vec){0};
    for (long k = 0; k < n_k; k++, a += step, b += b_step) {
        Vec columns[PARTS];
        UNROLL
        for (int p = 0; p < PARTS; p++) columns[p] = LOAD(b + p * WIDTH);
        UNROLL
        for (int i = 0; i < m; i++) {
            Vec one = NAME(all)(a[i * row]);
            UNROLL
            for (int p = 0; p < PARTS; p++) acc[i][p] = NAME(fma)(one, columns[p], acc[i][p]);
        }
    }
    Vec alphas = NAME(all)(alpha), betas = NAME(all)(beta);
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int p = 0; p < PARTS; p++) {
            float *c = into + i * into_row + p * WIDTH;
            STORE(c, NAME(placed)(mode, acc[i][p], c, from + i * from_row + p * WIDTH, alphas, betas));
        }
}
#define CASE(m)                                                                                                      \
    case m: NAME(tile)(m, mode, n_k, a, row, step, b, b_step, into, into_row, from, from_row, alpha, beta); break;
/* Sixteen columns and any number of rows; the last rows are shared out evenly between two tiles. */
INLINE void NAME(panel)(const int mode, long n_rows, long n_k, const float *a, long row, long step, const float *b,
                        long b_step, float *into, long into_row, const float *from, long from_row, float alpha,
                        float beta) {
    while (n_rows > 0) {
        long m = n_rows >= 2 * TILE_ROWS ? TILE_ROWS : n_rows > TILE_ROWS ? (n_rows + 1) / 2 : n_rows;
        switch (m) {
            CASE(1) CASE(2)
#if TILE_ROWS > 2
            CASE(3) CASE(4) CASE(5) CASE(6)
#endif
#if TILE_ROWS > 6
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
        }
        n_rows -= m, a += m * row, into += m * into_row, from += m * from_row;
    }
}
#undef CASE

/* out (n_rows x n_out) = bias + gain * x W^T, from the transposed weight */
static TARGET void NAME(forward)(long n_rows, const Shape *s, const float *x, const float *transposed,
                                 const float *bias, float *out, float gain) {
    for (long j = 0; j < s->out_panels; j++)
        NAME(panel)(FROM, n_rows, s->n_in, x, s->in_stride, 1, transposed + j * s->n_in * 16, 16, out + j * 16,
                    s->out_stride, bias + j * 16, 0, gain, 0);
}
/* below (n_rows x n_in) = gain * g W */
static TARGET void NAME(backward)(long n_rows, const Shape *s, const float *g, const float *weight, float *below,
                                  float gain) {
    for (long i = 0; i < s->in_panels; i++)
        NAME(panel)(SET, n_rows, s->n_out, g, s->out_stride, 1, weight + i * s->n_out * 16, 16, below + i * 16,
                    s->in_stride, below, 0, gain, 0);
}
/* weight by mode, from g^T x */
#define GRADIENT(mode)                                                                                               \
    NAME(panel)(mode, s->n_out, n_rows, g, 1, s->out_stride, x + i * 16, s->in_stride, weight + i * s->n_out * 16,  \
                16, from + i * s->n_out * 16, 16, alpha, beta)
static TARGET void NAME(gradient)(int mode, long n_rows, const Shape *s, const float *g, const float *x,
                                  float *weight, const float *from, float alpha, float beta) {
    for (long i = 0; i < s->in_panels; i++) {
        if (mode == SET) GRADIENT(SET);
        else if (mode == ADD) GRADIENT(ADD);
        else if (mode == FROM) GRADIENT(FROM);
        else GRADIENT(FOLD);
    }
}
#undef GRADIENT
static TARGET void NAME(bias_gradient)(int mode, long n_rows, const Shape *s, const float *g, float *bias,
                                       const float *from, float alpha, float beta) {
    Vec alphas = NAME(all)(alpha), betas = NAME(all)(beta);
    for (long j = 0; j < s->out_stride; j += WIDTH) {
        Vec sum = {0};
        for (long r = 0; r < n_rows; r++) sum = sum + LOAD(g + r * s->out_stride + j);
        STORE(bias + j, NAME(placed)(mode, sum, bias + j, from + j, alphas, betas));
    }
}
/* Keeps NaN: divergence must show. */
INLINE Vec NAME(relu)(Vec x) { return (Vec)((Ints)x & ~(Ints)(x <= (Vec){0})); }
static TARGET void NAME(relu_all)(long n, float *out) {
    for (long i = 0; i < n; i += WIDTH) STORE(out + i, NAME(relu)(LOAD(out + i)));
}
static TARGET void NAME(relu_and_drop)(long n_rows, long stride, float *out, const uint16_t *numbers, long n_numbers,
                                       int threshold) {
    Ints limit = threshold - (Ints){0};
    for (long r = 0; r < n_rows; r++, out += stride, numbers += n_numbers)
        for (long j = 0; j < stride; j += WIDTH) {
            Ints x = __builtin_convertvector(*(const HalvesAt *)(numbers + j), Ints);
            STORE(out + j, (Vec)((Ints)NAME(relu)(LOAD(out + j)) & (Ints)(x < limit)));
        }
}
/* g = 0 where the activation is 0: where ReLU cut or dropout dropped */
static TARGET void NAME(cut)(long n, float *g, const float *out) {
    for (long i = 0; i < n; i += WIDTH) STORE(g + i, (Vec)((Ints)LOAD(g + i) & (Ints)(LOAD(out + i) > (Vec){0})));
}
/* g = scale * (out - x), unless g is NULL; x NULL counts as zeros. Returns the row's squared error: sixteen running
 * sums over every sixteenth column, then a fixed tree. */
static TARGET float NAME(row_error)(long stride, const float *out, const float *x, float *g, float scale) {
    Vec sums[PARTS], scales = NAME(all)(scale);
    for (int p = 0; p < PARTS; p++) sums[p] = (Vec){0};
    for (long j = 0; j < stride; j += 16)
        for (int p = 0; p < PARTS; p++) {
            Vec e = LOAD(out + j + p * WIDTH);
            if (x) e = e - LOAD(x + j + p * WIDTH);
            if (g) STORE(g + j + p * WIDTH, scales * e);
            sums[p] = NAME(fma)(e, e, sums[p]);
        }
    float lanes[16];
    for (int p = 0; p < PARTS; p++) STORE(lanes + p * WIDTH, sums[p]);
    for (int half = 8; half; half /= 2)
        for (int q = 0; q < half; q++) lanes[q] = lanes[q] + lanes[q + half];
    return lanes[0];
}
static TARGET void NAME(subtract_from)(long n, float *values, const float *from) {
    for (long i = 0; i < n; i += WIDTH) STORE(values + i, LOAD(from + i) - LOAD(values + i));
}
static TARGET void NAME(fold)(long n, float *sum, const float *values, float weight) {
    Vec w = NAME(all)(weight);
    for (long i = 0; i < n; i += WIDTH) STORE(sum + i, LOAD(sum + i) + w * LOAD(values + i));
}
static TARGET int NAME(is_finite)(long n, const float *values) {
    Ints exponent = 0x7f800000 - (Ints){0}, found = {0};
    for (long i = 0; i < n; i += WIDTH) found = found | (Ints)(((Ints)LOAD(values + i) & exponent) == exponent);
    for (int lane = 0; lane < WIDTH; lane++)
        if (found[lane]) return 0;
    return 1;
}
static TARGET void NAME(momentum)(long n, float *weights, const float *gradient, float *velocity, float lr,
                                  float momentum) {
    Vec step = NAME(all)(-lr), kept = NAME(all)(momentum);
    for (long i = 0; i < n; i += WIDTH) {
        Vec v = NAME(fma)(kept, LOAD(velocity + i), LOAD(gradient + i));
        STORE(velocity + i, v);
        STORE(weights + i, NAME(fma)(step, v, LOAD(weights + i)));
    }
}
static TARGET void NAME(adam)(long n, float *weights, const float *gradient, float *means, float *squares, float step,
                              float root_correction) {
    Vec new_mean = NAME(all)(ADAM_NEW_MEAN), new_square = NAME(all)(ADAM_NEW_SQUARE);
    Vec old_square = NAME(all)(ADAM_OLD_SQUARE), epsilon = NAME(all)(ADAM_EPSILON);
    Vec roots = NAME(all)(root_correction), steps = NAME(all)(-step);
    for (long i = 0; i < n; i += WIDTH) {
        Vec g = LOAD(gradient + i), mean = LOAD(means + i), square = LOAD(squares + i), root;
        mean = NAME(fma)(new_mean, g - mean, mean);
        square = NAME(fma)(new_square, g * g, old_square * square);
        for (int lane = 0; lane < WIDTH; lane++) root[lane] = __builtin_sqrtf(square[lane]);
        STORE(means + i, mean);
        STORE(squares + i, square);
        STORE(weights + i, NAME(fma)(steps, mean / (root / roots + epsilon), LOAD(weights + i)));
    }
}
#include "statistics_body.h"
static const Operations NAME(operations) = {
    VARIANT,         NAME(forward),       NAME(backward), NAME(gradient),  NAME(bias_gradient),
    NAME(relu_all),  NAME(relu_and_drop), NAME(cut),      NAME(row_error), NAME(subtract_from),
    NAME(fold),      NAME(is_finite),     NAME(momentum), NAME(adam),      NAME(add_products),
    NAME(add_differences), NAME(spread),
};
#undef INLINE
#undef PARTS
#undef Vec
#undef VecAt
#undef Ints
#undef HalvesAt
#undef LOAD
#undef STORE
#undef FMA_INLINE
#undef NAME
#undef TARGET
#undef WIDTH
#undef TILE_ROWS
#undef LANE_FMA
#undef VECTOR_FMA
#undef VARIANT
