#include "tolfl_kernel.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "floats must be computed as floats"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math changes results"
#endif
#if defined __arm__ && !defined __aarch64__
#error "the vectors of 32-bit ARM flush small numbers to zero"
#endif
/* Multiplications and additions are joined where this source says so, and nowhere else. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#pragma GCC optimize("fp-contract=off")
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* How a weight (n_out x n_in) is kept: in panels of 16 inputs, [in_panels][n_out][16], with its bias behind it; and
 * transposed, in panels of 16 outputs, [out_panels][n_in][16]. What fills the panels up is zero and stays zero. */
typedef struct {
    long n_in, n_out, in_panels, out_panels, in_stride, out_stride;
    long weight, bias, transposed; /* where they begin */
} Shape;

enum { SET, ADD, FROM, FOLD }; /* = alpha acc; += alpha acc; = other + alpha acc; += beta (alpha acc) */

typedef struct {
    const char *name;
    void (*forward)(long, const Shape *, const float *, const float *, const float *, float *, float);
    void (*backward)(long, const Shape *, const float *, const float *, float *, float);
    void (*gradient)(int, long, const Shape *, const float *, const float *, float *, const float *, float, float);
    void (*bias_gradient)(int, long, const Shape *, const float *, float *, const float *, float, float);
    void (*relu_all)(long, float *);
    void (*relu_and_drop)(long, long, float *, const uint16_t *, long, int);
    void (*cut)(long, float *, const float *);
    float (*row_error)(long, const float *, const float *, float *, float);
    void (*subtract_from)(long, float *, const float *);
    void (*fold)(long, float *, const float *, float);
    int (*is_finite)(long, const float *);
    void (*momentum)(long, float *, const float *, float *, float, float);
    void (*adam)(long, float *, const float *, float *, float *, float, float);
    void (*add_products)(long, long, const double *, long, long, const double *, long, double *, long);
    void (*add_differences)(long, long, const double *, long, const double *, double *, long);
    void (*spread)(long, const void *, int, long, long, const double *, const double *, double *, double *, double *,
                   double *, double *);
} Operations;

/* Of the logarithm; as in core/logarithm.py. */
static const double LOG_TERMS[7] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                                    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                                    1.479819860511658591e-01};
static const double LOG_2_HIGH = 6.93147180369123816490e-01, LOG_2_LOW = 1.90821492927058770002e-10;
static const double LOG_LEAST = 2.2250738585072014e-308, LOG_SCALE = 18014398509481984.0; /* 2^-1022, 2^54 */
static const double LOG_HALF_ROOT = 0.70710678118654752440;

/* Adam's usual constants (Kingma and Ba, 2015), each rounded once. */
#define ADAM_BETA_1 0.9
#define ADAM_BETA_2 0.999
static const float ADAM_NEW_MEAN = (float)(1 - ADAM_BETA_1), ADAM_NEW_SQUARE = (float)(1 - ADAM_BETA_2);
static const float ADAM_OLD_SQUARE = (float)ADAM_BETA_2, ADAM_EPSILON = 1e-8f;

/* a * b is exact in double. The sum is rounded to odd, so that the rounding to float is the only one that counts
 * (Boldo and Melquiond, 2008). */
static inline float soft_fmaf(float a, float b, float c) {
    double product = (double)a * b, sum = product + c, back = sum - product;
    double error = (product - (sum - back)) + (c - back);
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    if ((error < 0 || error > 0) && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    memcpy(&sum, &bits, 8);
    return (float)sum;
}
#if (defined __FP_FAST_FMAF || defined __FMA__ || defined __ARM_FEATURE_FMA) && !defined TOLFL_SOFT_FMA
#define HAS_FMA
#endif

#if defined __x86_64__ && !defined TOLFL_PORTABLE
#define NAME(x) x##_avx512
#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define WIDTH 16
#define TILE_ROWS 12
#define LANE_FMA __builtin_fmaf
#define DOUBLE_FMA __builtin_fma
#define VARIANT "avx512"
#include "kernel_body.h"
#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 8
#define TILE_ROWS 6
#define LANE_FMA __builtin_fmaf
#define DOUBLE_FMA __builtin_fma
#define VARIANT "avx2"
#include "kernel_body.h"
#endif

#define NAME(x) x##_base
#define TARGET
#define VARIANT "base"
#ifdef TOLFL_WIDTH
#define WIDTH TOLFL_WIDTH
#else
#define WIDTH 4
#endif
#if defined __aarch64__ && !defined TOLFL_PORTABLE
#include <arm_neon.h>
#define VECTOR_FMA(a, b, c) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define DOUBLE_FMA __builtin_fma
#define TILE_ROWS 6
#elif defined HAS_FMA
#define LANE_FMA __builtin_fmaf
#define DOUBLE_FMA __builtin_fma
#define TILE_ROWS 6
#else /* in software: out of line, or it takes minutes to compile */
#define LANE_FMA soft_fmaf
#define TILE_ROWS 2
#define FMA_INLINE static __attribute__((noinline))
#endif
#include "kernel_body.h"

static int is_able(const Operations *operations) {
#if defined __x86_64__ && !defined TOLFL_PORTABLE
    __builtin_cpu_init();
    if (operations == &operations_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (operations == &operations_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return operations == &operations_base;
}
static const Operations *const VARIANTS[] = {
#if defined __x86_64__ && !defined TOLFL_PORTABLE
    &operations_avx512, &operations_avx2,
#endif
    &operations_base, /* the best first */
};
static const Operations *in_use = 0;

int tolfl_use(const char *variant) {
    for (unsigned i = 0; i < sizeof VARIANTS / sizeof *VARIANTS; i++)
        if ((!*variant || !strcmp(variant, VARIANTS[i]->name)) && is_able(VARIANTS[i])) {
            in_use = VARIANTS[i];
            return 0;
        }
    return -1;
}
static const Operations *chosen(void) {
    if (!in_use) tolfl_use("");
    return in_use;
}
const char *tolfl_variant(void) { return chosen()->name; }
#ifndef TOLFL_SOURCE
#define TOLFL_SOURCE ""
#endif
const char *tolfl_source(void) { return TOLFL_SOURCE; }

/* SplitMix64 over a counter, as in core/seeding.py. */
static const uint64_t GAMMA = 0x9E3779B97F4A7C15ULL;
static uint64_t mixed(uint64_t word) {
    word ^= word >> 30, word *= 0xBF58476D1CE4E5B9ULL;
    word ^= word >> 27, word *= 0x94D049BB133111EBULL;
    return word ^ word >> 31;
}
/* Epoch (or step) i of a stream begins at word i * 2^32: no device's draws depend on another's size. */
static uint64_t word_of(uint64_t key, uint64_t epoch, uint64_t place) {
    return mixed(key + ((epoch << 32) + 1 + place) * GAMMA);
}

typedef struct {
    uint64_t key;
    int64_t row;
} Visit;
/* A merge sort: of equal keys the first stays first. */
static void sort_visits(Visit *visits, Visit *spare, long n) {
    if (n <= 16) {
        for (long i = 1; i < n; i++) {
            Visit one = visits[i];
            long j = i;
            for (; j && visits[j - 1].key > one.key; j--) visits[j] = visits[j - 1];
            visits[j] = one;
        }
        return;
    }
    long half = n / 2, left = 0, right = half, to = 0;
    sort_visits(visits, spare, half), sort_visits(visits + half, spare, n - half);
    memcpy(spare, visits, (size_t)half * sizeof *visits);
    while (left < half)
        visits[to++] = right < n && visits[right].key < spare[left].key ? visits[right++] : spare[left++];
}

typedef float Four __attribute__((vector_size(16)));
typedef float FourAt __attribute__((vector_size(16), aligned(4), may_alias));
#ifdef __clang__
#define SHUFFLE(a, b, w, x, y, z) __builtin_shufflevector(a, b, w, x, y, z)
#else
typedef int32_t FourInts __attribute__((vector_size(16)));
#define SHUFFLE(a, b, w, x, y, z) __builtin_shuffle(a, b, (FourInts){w, x, y, z})
#endif
static void transpose_four(const float *from, float *to) {
    Four a = *(const FourAt *)from, b = *(const FourAt *)(from + 16);
    Four c = *(const FourAt *)(from + 32), d = *(const FourAt *)(from + 48);
    Four ab_low = SHUFFLE(a, b, 0, 4, 1, 5), ab_high = SHUFFLE(a, b, 2, 6, 3, 7);
    Four cd_low = SHUFFLE(c, d, 0, 4, 1, 5), cd_high = SHUFFLE(c, d, 2, 6, 3, 7);
    *(FourAt *)to = SHUFFLE(ab_low, cd_low, 0, 1, 4, 5);
    *(FourAt *)(to + 16) = SHUFFLE(ab_low, cd_low, 2, 3, 6, 7);
    *(FourAt *)(to + 32) = SHUFFLE(ab_high, cd_high, 0, 1, 4, 5);
    *(FourAt *)(to + 48) = SHUFFLE(ab_high, cd_high, 2, 3, 6, 7);
}
static long width_of(const Shape *s, long panel) { return s->n_in - panel * 16 < 16 ? s->n_in - panel * 16 : 16; }
static void transpose(const Shape *s, const float *weight, float *transposed) {
    for (long panel = 0; panel < s->in_panels; panel++)
        for (long out = 0; out < s->n_out; out += 4) {
            const float *from = weight + (panel * s->n_out + out) * 16;
            float *to = transposed + (out / 16 * s->n_in + panel * 16) * 16 + out % 16;
            long width = width_of(s, panel);
            if (width == 16 && s->n_out - out >= 4) {
                for (int i = 0; i < 16; i += 4) transpose_four(from + i, to + i * 16);
                continue;
            }
            for (long i = 0; i < width; i++)
                for (long q = 0; q < 4 && out + q < s->n_out; q++) to[i * 16 + q] = from[q * 16 + i];
        }
}

typedef struct {
    long n_kept, n_transposed, n_flat; /* floats */
} Sizes;
static Sizes shapes_of(const TolflLayer *layers, long n_layers, Shape *shapes) {
    Sizes sizes = {0, 0, 0};
    for (long l = 0; l < n_layers; l++) {
        Shape s = {.n_in = (long)layers[l].n_in, .n_out = (long)layers[l].n_out};
        s.in_panels = (s.n_in + 15) / 16, s.out_panels = (s.n_out + 15) / 16;
        s.in_stride = s.in_panels * 16, s.out_stride = s.out_panels * 16;
        s.weight = sizes.n_kept, s.bias = s.weight + s.in_stride * s.n_out, s.transposed = sizes.n_transposed;
        sizes.n_kept = s.bias + s.out_stride;
        sizes.n_transposed += s.out_stride * s.n_in, sizes.n_flat += s.n_in * s.n_out + s.n_out;
        shapes[l] = s;
    }
    return sizes;
}
static void pack(long n_layers, const Shape *s, const float *flat, float *kept) {
    for (long l = 0; l < n_layers; l++, s++) {
        for (long panel = 0; panel < s->in_panels; panel++)
            for (long out = 0; out < s->n_out; out++)
                memcpy(kept + s->weight + (panel * s->n_out + out) * 16, flat + out * s->n_in + panel * 16,
                       (size_t)width_of(s, panel) * 4);
        flat += s->n_in * s->n_out;
        memcpy(kept + s->bias, flat, (size_t)s->n_out * 4), flat += s->n_out;
    }
}
static void unpack(long n_layers, const Shape *s, const float *kept, float *flat) {
    for (long l = 0; l < n_layers; l++, s++) {
        for (long panel = 0; panel < s->in_panels; panel++)
            for (long out = 0; out < s->n_out; out++)
                memcpy(flat + out * s->n_in + panel * 16, kept + s->weight + (panel * s->n_out + out) * 16,
                       (size_t)width_of(s, panel) * 4);
        flat += s->n_in * s->n_out;
        memcpy(flat, kept + s->bias, (size_t)s->n_out * 4), flat += s->n_out;
    }
}

/* Memory that is taken in pieces, all on cache lines: first counted, then handed out. */
typedef struct {
    char *base;
    size_t used;
} Arena;
static void *take(Arena *arena, size_t bytes) {
    void *piece = arena->base ? arena->base + arena->used : 0;
    arena->used += (bytes + 63) / 64 * 64 + 64;
    return piece;
}
static float *take_floats(Arena *arena, long n) { return take(arena, (size_t)n * 4); }

typedef struct {
    const Operations *ops;
    const TolflLayer *layers;
    const TolflSettings *settings;
    long n_layers, n_words; /* words of dropout numbers for each row */
    Shape shapes[TOLFL_MAX_LAYERS];
    Sizes sizes;
    /* start, own weights, running sum, gradient, and the optimiser's state, all in panels */
    float *start, *weights, *sum, *gradient, *means, *squares;
    float *start_transposed, *transposed;
    float *activations[TOLFL_MAX_LAYERS + 1], *errors, *below;
    uint64_t *words;
    Visit *visits, *spare;
} Trainer;

static void lay_out(Trainer *t, Arena *arena, long most_rows, long batch_rows) {
    long widest = t->shapes[0].in_stride;
    for (long l = 0; l < t->n_layers; l++)
        widest = t->shapes[l].out_stride > widest ? t->shapes[l].out_stride : widest;
    float **kept[] = {&t->start, &t->weights, &t->sum, &t->gradient, &t->means, &t->squares};
    for (int i = 0; i < 6; i++) *kept[i] = take_floats(arena, t->sizes.n_kept);
    t->start_transposed = take_floats(arena, t->sizes.n_transposed);
    t->transposed = take_floats(arena, t->sizes.n_transposed);
    t->activations[0] = take_floats(arena, batch_rows * t->shapes[0].in_stride);
    for (long l = 0; l < t->n_layers; l++)
        t->activations[l + 1] = take_floats(arena, batch_rows * t->shapes[l].out_stride);
    t->errors = take_floats(arena, batch_rows * widest);
    t->below = take_floats(arena, batch_rows * widest);
    t->words = take(arena, (size_t)(batch_rows * t->n_words) * 8 + 64); /* read by whole vectors */
    t->visits = take(arena, (size_t)most_rows * sizeof(Visit));
    t->spare = take(arena, (size_t)most_rows * sizeof(Visit));
}

static void draw_dropout(Trainer *t, uint64_t key, long step, long n_rows) {
    for (long i = 0; i < n_rows * t->n_words; i++) {
        uint64_t w = word_of(key, (uint64_t)step, (uint64_t)i);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        w = w << 48 | (w & 0xffff0000) << 16 | (w >> 16 & 0xffff0000) | w >> 48;
#endif
        t->words[i] = w;
    }
}

static void forward(Trainer *t, long n_rows, const float *weights, const float *transposed) {
    long unit = 0;
    for (long l = 0; l < t->n_layers; l++) {
        const Shape *s = t->shapes + l;
        float *out = t->activations[l + 1];
        t->ops->forward(n_rows, s, t->activations[l], transposed + s->transposed, weights + s->bias, out,
                        t->layers[l].gain);
        if (t->layers[l].has_dropout) {
            t->ops->relu_and_drop(n_rows, s->out_stride, out, (const uint16_t *)t->words + unit, t->n_words * 4,
                                  t->settings->threshold);
            unit += s->n_out;
        } else if (t->layers[l].has_relu) {
            t->ops->relu_all(n_rows * s->out_stride, out);
        }
    }
}

/* Write alpha * gradient by `mode`, layer after layer from the output; `read` are the weights of this step. A layer's
 * errors are passed on before its weights change. */
static void backward(Trainer *t, long n_rows, const float *read, float *into, int mode, float rate, float weight) {
    float *g = t->errors, *below = t->below, sign = mode == SET || mode == FOLD ? 1 : -1;
    for (long l = t->n_layers - 1; l >= 0; l--) {
        const Shape *s = t->shapes + l;
        if (l) {
            t->ops->backward(n_rows, s, g, read + s->weight, below, t->layers[l].gain);
            if (t->layers[l - 1].has_relu) t->ops->cut(n_rows * s->in_stride, below, t->activations[l]);
        }
        t->ops->gradient(mode, n_rows, s, g, t->activations[l], into + s->weight, t->start + s->weight,
                         sign * (rate * t->layers[l].gain), weight);
        t->ops->bias_gradient(mode, n_rows, s, g, into + s->bias, t->start + s->bias, sign * rate, weight);
        float *swap = g;
        g = below, below = swap;
    }
}

/* Train one device. Its delta is in t->weights afterwards or, where `is_folded`, in t->sum already. */
static double train_device(Trainer *t, const TolflJob *job, int is_folded) {
    const TolflSettings *set = t->settings;
    long n = (long)job->n_rows, n_features = t->shapes[0].n_in, stride = t->shapes[0].in_stride;
    long width = set->batch_size && set->batch_size < n ? (long)set->batch_size : n;
    long n_steps = (n + width - 1) / width, step = 0;
    int is_sgd = set->optimizer == TOLFL_SGD, is_single = is_sgd && n_steps * set->n_epochs == 1;
    double total = 0, beta_1 = 1, beta_2 = 1;
    size_t kept_bytes = (size_t)t->sizes.n_kept * 4;
    if (!is_sgd) {
        memcpy(t->weights, t->start, kept_bytes);
        memset(t->means, 0, kept_bytes), memset(t->squares, 0, kept_bytes);
    }
    for (int64_t epoch = 0; epoch < set->n_epochs; epoch++) {
        for (long i = 0; i < n; i++) t->visits[i] = (Visit){word_of(job->order_key, (uint64_t)epoch, (uint64_t)i), i};
        if (set->batch_size) sort_visits(t->visits, t->spare, n);
        for (long first = 0; first < n; first += width, step++) {
            long n_rows = n - first < width ? n - first : width;
            for (long r = 0; r < n_rows; r++)
                memcpy(t->activations[0] + r * stride, job->rows + t->visits[first + r].row * n_features,
                       (size_t)n_features * 4);
            draw_dropout(t, job->dropout_key, step, n_rows);
            const float *read = step || !is_sgd ? t->weights : t->start, *transposed = t->start_transposed;
            if (step) {
                transposed = t->transposed;
                for (long l = 0; l < t->n_layers; l++)
                    transpose(t->shapes + l, t->weights + t->shapes[l].weight, t->transposed + t->shapes[l].transposed);
            }
            forward(t, n_rows, read, transposed);
            for (long r = 0; r < n_rows; r++) {
                float loss = t->ops->row_error(stride, t->activations[t->n_layers] + r * stride,
                                               t->activations[0] + r * stride, t->errors + r * stride, 2.0f / (float)n_rows);
                if (epoch == set->n_epochs - 1) total += loss;
            }
            /* The first step of plain SGD reads the start and writes what it subtracts: if it is the only one, that
             * is the delta, and the device's own weights never exist. */
            if (is_folded) backward(t, n_rows, read, t->sum, FOLD, (float)set->lr, job->weight);
            else if (is_single) backward(t, n_rows, read, t->weights, SET, (float)set->lr, 0);
            else if (is_sgd) backward(t, n_rows, read, t->weights, step ? ADD : FROM, (float)set->lr, 0);
            else backward(t, n_rows, read, t->gradient, SET, 1, 0);
            if (set->optimizer == TOLFL_MOMENTUM)
                t->ops->momentum(t->sizes.n_kept, t->weights, t->gradient, t->means, (float)set->lr,
                                 (float)set->momentum);
            if (set->optimizer == TOLFL_ADAM) {
                beta_1 *= ADAM_BETA_1, beta_2 *= ADAM_BETA_2;
                t->ops->adam(t->sizes.n_kept, t->weights, t->gradient, t->means, t->squares,
                             (float)(set->lr / (1 - beta_1)), (float)sqrt(1 - beta_2));
            }
        }
    }
    if (!is_single) t->ops->subtract_from(t->sizes.n_kept, t->weights, t->start);
    if (!is_folded && !t->ops->is_finite(t->sizes.n_kept, t->weights)) return NAN;
    return total / (double)n;
}

static int train(const TolflLayer *layers, int64_t n_layers, const TolflSettings *settings, const TolflJob *jobs,
                 int64_t n_jobs, float *sum, float *deltas, double *losses) {
    Trainer t = {.ops = chosen(), .layers = layers, .settings = settings, .n_layers = (long)n_layers};
    t.sizes = shapes_of(layers, t.n_layers, t.shapes);
    long most_rows = 0, batch_rows = 0, n_units = 0;
    for (long l = 0; l < t.n_layers; l++) n_units += layers[l].has_dropout ? t.shapes[l].n_out : 0;
    t.n_words = (n_units + 3) / 4;
    for (int64_t j = 0; j < n_jobs; j++) most_rows = jobs[j].n_rows > most_rows ? (long)jobs[j].n_rows : most_rows;
    batch_rows = settings->batch_size && settings->batch_size < most_rows ? (long)settings->batch_size : most_rows;
    Arena arena = {0, 0};
    lay_out(&t, &arena, most_rows, batch_rows);
    char *memory = calloc(1, arena.used + 64);
    if (!memory) return -1;
    arena = (Arena){memory + (64 - (uintptr_t)memory % 64), 0};
    lay_out(&t, &arena, most_rows, batch_rows);
    if (!deltas) pack(t.n_layers, t.shapes, sum, t.sum);
    const float *packed = 0;
    for (int64_t j = 0; j < n_jobs; j++) {
        if (jobs[j].start != packed) {
            packed = jobs[j].start;
            pack(t.n_layers, t.shapes, packed, t.start);
            for (long l = 0; l < t.n_layers; l++)
                transpose(t.shapes + l, t.start + t.shapes[l].weight, t.start_transposed + t.shapes[l].transposed);
        }
        int is_one_step = settings->n_epochs == 1 && (!settings->batch_size || jobs[j].n_rows <= settings->batch_size);
        int is_folded = !deltas && settings->optimizer == TOLFL_SGD && is_one_step;
        losses[j] = train_device(&t, jobs + j, is_folded);
        if (deltas) unpack(t.n_layers, t.shapes, t.weights, deltas + j * t.sizes.n_flat);
        else if (!is_folded) t.ops->fold(t.sizes.n_kept, t.sum, t.weights, jobs[j].weight);
    }
    if (!deltas) unpack(t.n_layers, t.shapes, t.sum, sum);
    free(memory);
    return 0;
}

static int score(const TolflLayer *layers, int64_t n_layers, const float *params, const float *rows, int64_t n_rows,
                 float *errors, float *outputs) {
    enum { BLOCK = 96 };
    const Operations *ops = chosen();
    long n = (long)n_layers;
    Shape shapes[TOLFL_MAX_LAYERS];
    Sizes sizes = shapes_of(layers, n, shapes);
    long widest = shapes[0].in_stride, n_in = shapes[0].n_in, n_out = shapes[n - 1].n_out;
    for (long l = 0; l < n; l++) widest = shapes[l].out_stride > widest ? shapes[l].out_stride : widest;
    long block = n_rows < BLOCK ? (long)n_rows : BLOCK;
    size_t bytes = (size_t)(sizes.n_kept + sizes.n_transposed + 3 * block * widest) * 4 + 6 * 128;
    char *memory = calloc(1, bytes);
    if (!memory) return -1;
    Arena arena = {memory + (64 - (uintptr_t)memory % 64), 0};
    float *kept = take_floats(&arena, sizes.n_kept), *transposed = take_floats(&arena, sizes.n_transposed);
    float *x = take_floats(&arena, block * widest);
    float *turns[2] = {take_floats(&arena, block * widest), take_floats(&arena, block * widest)};
    pack(n, shapes, params, kept);
    for (long l = 0; l < n; l++) transpose(shapes + l, kept + shapes[l].weight, transposed + shapes[l].transposed);
    for (long first = 0; first < n_rows; first += block) {
        long here = n_rows - first < block ? (long)n_rows - first : block, stride = shapes[n - 1].out_stride;
        for (long r = 0; r < here; r++)
            memcpy(x + r * shapes[0].in_stride, rows + (first + r) * n_in, (size_t)n_in * 4);
        const float *in = x;
        for (long l = 0; l < n; l++) {
            float *out = turns[l % 2];
            ops->forward(here, shapes + l, in, transposed + shapes[l].transposed, kept + shapes[l].bias, out, 1);
            if (layers[l].has_relu) ops->relu_all(here * shapes[l].out_stride, out);
            in = out;
        }
        for (long r = 0; r < here; r++) {
            const float *target = layers[n - 1].is_residual ? 0 : x + r * stride;
            errors[first + r] = ops->row_error(stride, in + r * stride, target, 0, 1);
            if (outputs) memcpy(outputs + (first + r) * n_out, in + r * stride, (size_t)n_out * 4);
        }
    }
    free(memory);
    return 0;
}

/* -- statistics ------------------------------------------------------------------------------------------------- */

enum { ROWS_AT_ONCE = 192, PANEL = 8 };
static long up_to_panels(long n) { return (n + PANEL - 1) / PANEL * PANEL; }

/* right (n_k x n_columns), times `factor`, in panels of 8 columns: [panels][n_k][8], filled up with zeros. */
static void pack_columns(long n_k, long n_columns, const double *right, long row, long step, double factor,
                         double *packed) {
    for (long j = 0; j < up_to_panels(n_columns); j++)
        for (long k = 0; k < n_k; k++)
            packed[(j / PANEL * n_k + k) * PANEL + j % PANEL] =
                j < n_columns ? factor * right[k * row + j * step] : 0.0;
}

static int multiply(const double *left, const double *right, int64_t n_rows, int64_t n_k, int64_t n_columns,
                    double *out) {
    long width = up_to_panels((long)n_columns);
    double *packed = calloc((size_t)(width * n_k + ROWS_AT_ONCE * width + 1), 8), *into = packed + width * n_k;
    if (!packed) return -1;
    pack_columns((long)n_k, (long)n_columns, right, (long)n_columns, 1, 1.0, packed);
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        long here = n_rows - first < ROWS_AT_ONCE ? (long)(n_rows - first) : ROWS_AT_ONCE;
        memset(into, 0, (size_t)(here * width) * 8);
        for (long j = 0; j < width; j += PANEL)
            chosen()->add_products(here, (long)n_k, left + first * n_k, (long)n_k, 1, packed + j * n_k, PANEL,
                                   into + j, width);
        for (long r = 0; r < here; r++)
            memcpy(out + (first + r) * n_columns, into + r * width, (size_t)n_columns * 8);
    }
    free(packed);
    return 0;
}

static int nearest(const double *rows, const double *centres, const double *added, int64_t n_rows, int64_t n_features,
                   int64_t n_cells, double *least) {
    long width = up_to_panels((long)n_cells), d = (long)n_features;
    double *packed = calloc((size_t)(width * d + ROWS_AT_ONCE * width + 1), 8), *into = packed + width * d;
    if (!packed) return -1;
    pack_columns(d, (long)n_cells, centres, 1, d, 1.0, packed);
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        long here = n_rows - first < ROWS_AT_ONCE ? (long)(n_rows - first) : ROWS_AT_ONCE;
        memset(into, 0, (size_t)(here * width) * 8);
        for (long j = 0; j < width; j += PANEL)
            chosen()->add_differences(here, d, rows + first * d, d, packed + j * d, into + j, width);
        for (long r = 0; r < here; r++) {
            double lowest = INFINITY;
            for (long j = 0; j < n_cells; j++) {
                double distance = into[r * width + j] + added[j];
                if (distance < lowest) lowest = distance;
            }
            least[first + r] = lowest;
        }
    }
    free(packed);
    return 0;
}

static int sum_by_cell(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                       const double *norms, int64_t n_cells, int64_t *cells, double *sums, double *squares) {
    long width = up_to_panels((long)n_cells), d = (long)n_features;
    double *packed = calloc((size_t)(width * d + ROWS_AT_ONCE * (width + d) + 1), 8);
    double *into = packed + width * d, *wide = into + ROWS_AT_ONCE * width;
    if (!packed) return -1;
    pack_columns(d, (long)n_cells, centres, 1, d, -2.0, packed);
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        long here = n_rows - first < ROWS_AT_ONCE ? (long)(n_rows - first) : ROWS_AT_ONCE;
        for (long r = 0; r < here; r++)
            for (long j = 0; j < d; j++) wide[r * d + j] = (double)rows[(first + r) * stride + j];
        memset(into, 0, (size_t)(here * width) * 8);
        for (long j = 0; j < width; j += PANEL)
            chosen()->add_products(here, d, wide, d, 1, packed + j * d, PANEL, into + j, width);
        for (long r = 0; r < here; r++) {
            long best = 0;
            double lowest = INFINITY;
            for (long j = 0; j < n_cells; j++) {
                double distance = into[r * width + j] + norms[j];
                if (distance < lowest) lowest = distance, best = j;
            }
            cells[first + r] = best;
            if (!sums) continue;
            double *own = sums + best * d, *own_squares = squares ? squares + best * d : 0;
            const double *row = wide + r * d;
            for (long j = 0; j < d; j++) own[j] = own[j] + row[j];
            if (squares) /* on the grid of 2^-16; adding 1.5 * 2^52 rounds */
                for (long j = 0; j < d; j++) {
                    double square = row[j] * row[j] * 65536.0;
                    own_squares[j] = own_squares[j] + ((square + 6755399441055744.0) - 6755399441055744.0);
                }
        }
    }
    free(packed);
    return 0;
}

static int scatter(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                   const int64_t *cells, double *products) {
    long d = (long)n_features, width = up_to_panels(d);
    double *away = calloc((size_t)(ROWS_AT_ONCE * width + width * width + 1), 8), *sums = away + ROWS_AT_ONCE * width;
    if (!away) return -1;
    for (int64_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
        long here = n_rows - first < ROWS_AT_ONCE ? (long)(n_rows - first) : ROWS_AT_ONCE;
        for (long r = 0; r < here; r++)
            for (long j = 0; j < d; j++)
                away[r * width + j] = (double)rows[(first + r) * stride + j] - centres[cells[first + r] * d + j];
        for (long j = 0; j < width; j += PANEL) /* what is above the diagonal */
            chosen()->add_products(j + PANEL < d ? j + PANEL : d, here, away, 1, width, away + j, width, sums + j,
                                   width);
    }
    for (long i = 0; i < d; i++)
        for (long j = i; j < d; j++) *products++ = sums[i * width + j];
    free(away);
    return 0;
}

static int spread(const void *values, int is_single, int64_t n_rows, int64_t n_features, const double *median,
                  const double *least, double *found) {
    for (long first = 0; first < n_features; first += PANEL) {
        long width = n_features - first < PANEL ? (long)n_features - first : PANEL;
        double own[7][PANEL] = {{0}}, *rows[5] = {own[2], own[3], own[4], own[5], own[6]};
        for (long j = 0; j < PANEL; j++) own[5][j] = DBL_MAX, own[6][j] = -DBL_MAX;
        memcpy(own[0], median + first, (size_t)width * 8), memcpy(own[1], least + first, (size_t)width * 8);
        const char *start = (const char *)values + first * (is_single ? 4 : 8);
        chosen()->spread((long)n_rows, start, is_single, (long)n_features, width, own[0], own[1], own[2], own[3],
                         own[4], own[5], own[6]);
        for (int i = 0; i < 5; i++) memcpy(found + i * n_features + first, rows[i], (size_t)width * 8);
    }
    return 0;
}

int tolfl_count(const uint32_t *keys, int64_t n_rows, int64_t n_features, const uint32_t *prefixes, int32_t shift,
                int64_t *counts) {
    for (int64_t r = 0; r < n_rows; r++, keys += n_features)
        for (int64_t j = 0; j < n_features; j++) {
            int64_t *own = counts + j * 258;
            if (keys[j] == UINT32_MAX) continue; /* missing */
            uint32_t begun = keys[j] >> shift, above = begun >> 8;
            own[0]++;
            if (above < prefixes[j]) own[1]++;
            else if (above == prefixes[j]) own[2 + (begun & 255)]++;
        }
    return 0;
}

/* Another library may have set flush-to-zero or another rounding in this thread (one that was linked with -ffast-math
 * does): compute in the usual environment, and put theirs back. */
#ifdef TOLFL_NO_GUARD
#define GUARDED(call) return call;
#else
#define GUARDED(call)                                                                                                \
    fenv_t theirs;                                                                                                   \
    fegetenv(&theirs);                                                                                               \
    fesetenv(FE_DFL_ENV);                                                                                            \
    int result = call;                                                                                               \
    fesetenv(&theirs);                                                                                               \
    return result;
#endif
int tolfl_train(const TolflLayer *layers, int64_t n_layers, const TolflSettings *settings, const TolflJob *jobs,
                int64_t n_jobs, float *sum, float *deltas, double *losses) {
    GUARDED(train(layers, n_layers, settings, jobs, n_jobs, sum, deltas, losses))
}
int tolfl_score(const TolflLayer *layers, int64_t n_layers, const float *params, const float *rows, int64_t n_rows,
                float *errors, float *outputs) {
    GUARDED(score(layers, n_layers, params, rows, n_rows, errors, outputs))
}
int tolfl_multiply(const double *left, const double *right, int64_t n_rows, int64_t n_k, int64_t n_columns,
                   double *out) {
    GUARDED(multiply(left, right, n_rows, n_k, n_columns, out))
}
int tolfl_nearest(const double *rows, const double *centres, const double *added, int64_t n_rows, int64_t n_features,
                  int64_t n_cells, double *least) {
    GUARDED(nearest(rows, centres, added, n_rows, n_features, n_cells, least))
}
int tolfl_sum_by_cell(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                      const double *norms, int64_t n_cells, int64_t *cells, double *sums, double *squares) {
    GUARDED(sum_by_cell(rows, stride, n_rows, n_features, centres, norms, n_cells, cells, sums, squares))
}
int tolfl_scatter(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                  const int64_t *cells, double *products) {
    GUARDED(scatter(rows, stride, n_rows, n_features, centres, cells, products))
}
int tolfl_spread(const void *values, int32_t is_single, int64_t n_rows, int64_t n_features, const double *median,
                 const double *least, double *found) {
    GUARDED(spread(values, is_single, n_rows, n_features, median, least, found))
}
