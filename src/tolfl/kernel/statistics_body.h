/* Sums of a detector's rounds in float64, included by kernel_body.h for each instruction set. A vector holds different
 * columns, cells or outputs, never parts of one sum. Products are of numbers with at most 26 bits, so they are exact,
 * and a fused addition gives what a multiplication and an addition give. */
#define Doubles NAME(Doubles)
#define DoublesAt NAME(DoublesAt)
#define Longs NAME(Longs)
typedef double Doubles __attribute__((vector_size(4 * WIDTH)));
typedef double DoublesAt __attribute__((vector_size(4 * WIDTH), aligned(8), may_alias));
typedef int64_t Longs __attribute__((vector_size(4 * WIDTH)));
#define LANES (WIDTH / 2)
#define LOAD2(p) (*(const DoublesAt *)(p))
#define STORE2(p, v) (*(DoublesAt *)(p) = (v))

INLINE Doubles NAME(plus_product)(Doubles a, Doubles b, Doubles c) {
#ifdef DOUBLE_FMA
    Doubles r;
    for (int lane = 0; lane < LANES; lane++) r[lane] = DOUBLE_FMA(a[lane], b[lane], c[lane]);
    return r;
#else
    return a * b + c;
#endif
}
INLINE Doubles NAME(all2)(double x) { return x - (Doubles){0}; }
INLINE Doubles NAME(chosen)(Longs is_first, Doubles first, Doubles second) {
    return (Doubles)(((Longs)first & is_first) | ((Longs)second & ~is_first));
}

/* into[i][j] += sum over k, in order, of a * b or, where `is_difference`, of (a - b)^2; for `m` rows and 8 columns. */
INLINE void NAME(tile2)(const int m, const int is_difference, long n_k, const double *a, long row, long step,
                        const double *b, long b_step, double *into, long into_row) {
    Doubles acc[TILE_ROWS][PARTS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int p = 0; p < PARTS; p++) acc[i][p] = LOAD2(into + i * into_row + p * LANES);
    for (long k = 0; k < n_k; k++, a += step, b += b_step) {
        Doubles columns[PARTS];
        UNROLL
        for (int p = 0; p < PARTS; p++) columns[p] = LOAD2(b + p * LANES);
        UNROLL
        for (int i = 0; i < m; i++) {
            Doubles one = NAME(all2)(a[i * row]);
            UNROLL
            for (int p = 0; p < PARTS; p++) {
                if (is_difference) {
                    Doubles away = one - columns[p];
                    acc[i][p] = acc[i][p] + away * away;
                } else {
                    acc[i][p] = NAME(plus_product)(one, columns[p], acc[i][p]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
        for (int p = 0; p < PARTS; p++) STORE2(into + i * into_row + p * LANES, acc[i][p]);
}
#define CASE(m)                                                                                                      \
    case m: NAME(tile2)(m, is_difference, n_k, a, row, step, b, b_step, into, into_row); break;
INLINE void NAME(panel2)(const int is_difference, long n_rows, long n_k, const double *a, long row, long step,
                         const double *b, long b_step, double *into, long into_row) {
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
        n_rows -= m, a += m * row, into += m * into_row;
    }
}
#undef CASE
static TARGET void NAME(add_products)(long n_rows, long n_k, const double *a, long row, long step, const double *b,
                                      long b_step, double *into, long into_row) {
    NAME(panel2)(0, n_rows, n_k, a, row, step, b, b_step, into, into_row);
}
static TARGET void NAME(add_differences)(long n_rows, long n_k, const double *a, long row, const double *b,
                                         double *into, long into_row) {
    NAME(panel2)(1, n_rows, n_k, a, row, 1, b, 8, into, into_row);
}

/* The natural logarithm of positive finite numbers, by additions, multiplications and one division alone: those are
 * rounded the same everywhere. Coefficients and form are those of FreeBSD's e_log.c; core/logarithm.py is the same. */
INLINE Doubles NAME(log2)(Doubles x) {
    Longs is_small = (Longs)(x < NAME(all2)(LOG_LEAST));
    x = NAME(chosen)(is_small, x * NAME(all2)(LOG_SCALE), x);
    Longs bits = (Longs)x, exponent = bits >> 52;
    Doubles m = (Doubles)((bits & 0xfffffffffffffLL) | 0x3fe0000000000000LL); /* from 1/2 up to 1 */
    Longs is_low = (Longs)(m < NAME(all2)(LOG_HALF_ROOT));
    m = NAME(chosen)(is_low, m + m, m);
    Doubles k = (Doubles)(exponent | 0x4330000000000000LL) - NAME(all2)(4503599627370496.0 + 1022.0);
    k = k - (Doubles)(is_low & (Longs)NAME(all2)(1.0)) - (Doubles)(is_small & (Longs)NAME(all2)(54.0));
    Doubles f = m - NAME(all2)(1.0), s = f / (NAME(all2)(2.0) + f), z = s * s, r = NAME(all2)(LOG_TERMS[6]);
    for (int i = 5; i >= 0; i--) r = NAME(all2)(LOG_TERMS[i]) + z * r;
    r = z * r;
    Doubles half = NAME(all2)(0.5) * f * f;
    return k * NAME(all2)(LOG_2_HIGH) - ((half - (s * (half + r) + k * NAME(all2)(LOG_2_LOW))) - f);
}
/* Of eight columns: how many values there are, how many are not the median, the sum of the logarithms of how far they
 * are from it (whole multiples of 2^-30, so exact), the lowest and the highest. */
static TARGET void NAME(spread)(long n_rows, const void *values, int is_single, long stride, long width,
                                const double *median, const double *least, double *counts, double *moved,
                                double *logs, double *low, double *high) {
    double given[8] = {0};
    Doubles round = NAME(all2)(6755399441055744.0), one = NAME(all2)(1.0); /* 1.5 * 2^52: adding it rounds */
    for (long r = 0; r < n_rows; r++) {
        if (is_single)
            for (long j = 0; j < width; j++) given[j] = (double)((const float *)values)[r * stride + j];
        else memcpy(given, (const double *)values + r * stride, (size_t)width * 8);
        for (int p = 0; p < PARTS; p++) {
            long at = p * LANES;
            Doubles x = LOAD2(given + at), off = x - LOAD2(median + at);
            off = (Doubles)((Longs)off & 0x7fffffffffffffffLL);
            Longs has_moved = (Longs)(off > LOAD2(least + at));
            Doubles log = NAME(log2)(NAME(chosen)(has_moved, off, one)) * NAME(all2)(1073741824.0);
            STORE2(logs + at, LOAD2(logs + at) + ((log + round) - round));
            STORE2(counts + at, LOAD2(counts + at) + (Doubles)((Longs)(x == x) & (Longs)one));
            STORE2(moved + at, LOAD2(moved + at) + (Doubles)(has_moved & (Longs)one));
            STORE2(low + at, NAME(chosen)((Longs)(x < LOAD2(low + at)), x, LOAD2(low + at)));
            STORE2(high + at, NAME(chosen)((Longs)(x > LOAD2(high + at)), x, LOAD2(high + at)));
        }
    }
}
#undef Doubles
#undef DoublesAt
#undef Longs
#undef LANES
#undef LOAD2
#undef STORE2
#undef DOUBLE_FMA
