/* Training and scoring of dense autoencoders in float32, and a detector's statistics in float64, with the same bits on
 * every processor.
 *
 * The order of every sum is fixed by this source and by nothing else: not by the width of the vectors, not by the
 * compiler, not by how many devices are trained in one call. */
#ifndef TOLFL_KERNEL_H
#define TOLFL_KERNEL_H
#include <stdint.h>

enum { TOLFL_MAX_LAYERS = 64 };
enum { TOLFL_SGD, TOLFL_MOMENTUM, TOLFL_ADAM };

/* One dense layer. Its weight (n_out x n_in) lies before its bias in the flat parameters. */
typedef struct {
    int64_t n_in, n_out;
    float gain; /* scales the inputs in training: makes up for what the layer below dropped */
    int32_t has_relu, has_dropout;
    int32_t is_residual; /* of the last layer, in scoring: its output is the error, the sample is not subtracted */
} TolflLayer;

typedef struct {
    int32_t optimizer;
    int32_t threshold; /* a unit is kept if its 16-bit number is below it */
    int64_t n_epochs;
    int64_t batch_size; /* 0: all rows at once, in their order */
    double lr, momentum;
} TolflSettings;

/* One device's training in one round. */
typedef struct {
    const float *start; /* flat parameters */
    const float *rows;  /* n_rows x n_features */
    int64_t n_rows;
    uint64_t order_key, dropout_key; /* of the device's streams in this round */
    float weight;                    /* of its delta in the sum */
    int32_t unused;
} TolflJob;

/* A hash of the source, by which a library made from another one is noticed. */
const char *tolfl_source(void);
/* The instruction set in use. */
const char *tolfl_variant(void);
/* Use this variant ("", the best; "avx512", "avx2", "base") from now on; -1 where the processor has no such thing. */
int tolfl_use(const char *variant);

/* Train every job: start minus trained into `deltas` (n_jobs x n_params) or, where that is NULL, added to `sum` in the
 * order of the jobs: sum = sum + weight * delta, each operation rounded. `losses`: of the last epoch, a mean over rows;
 * NaN where a delta is not finite. Returns 0, or -1 without memory. */
int tolfl_train(const TolflLayer *layers, int64_t n_layers, const TolflSettings *settings, const TolflJob *jobs,
                int64_t n_jobs, float *sum, float *deltas, double *losses);
/* Each row's squared error and, unless NULL, the outputs (n_rows x n_out of the last layer); dropout is off. */
int tolfl_score(const TolflLayer *layers, int64_t n_layers, const float *params, const float *rows, int64_t n_rows,
                float *errors, float *outputs);

/* Statistics of a detector's rounds, in float64. Each sum is taken in the order of the rows or columns. Numbers in
 * products have at most 26 bits: single precision, or multiples of 2^-16 below 2^10. Each returns 0, or -1 without
 * memory. */
/* out (n_rows x n_columns) = left right */
int tolfl_multiply(const double *left, const double *right, int64_t n_rows, int64_t n_k, int64_t n_columns,
                   double *out);
/* least[r] = the lowest over cells of |row - centre|^2 + added */
int tolfl_nearest(const double *rows, const double *centres, const double *added, int64_t n_rows, int64_t n_features,
                  int64_t n_cells, double *least);
/* Each row's nearest cell, the first of equals, by norms[j] - 2 row.centre; unless NULL, the sums of rows by cell and
 * those of 2^16 times their squares, each rounded to a whole number. */
int tolfl_sum_by_cell(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                      const double *norms, int64_t n_cells, int64_t *cells, double *sums, double *squares);
/* The upper half, row by row, of the sum of products of rows about the centres of their cells. */
int tolfl_scatter(const float *rows, int64_t stride, int64_t n_rows, int64_t n_features, const double *centres,
                  const int64_t *cells, double *products);
/* found (5 x n_features): how many values are there, how many differ from the median by more than `least`, the sum of
 * the logarithms of these differences (each rounded to a multiple of 2^-30; times 2^30), the lowest, the highest. */
int tolfl_spread(const void *values, int32_t is_single, int64_t n_rows, int64_t n_features, const double *median,
                 const double *least, double *found);
/* counts (n_features x 258): of keys that are not missing (all bits set), of those whose bits above the next eight are
 * less than the prefix, and of those where they equal it by the next eight bits; `shift` bits follow these. */
int tolfl_count(const uint32_t *keys, int64_t n_rows, int64_t n_features, const uint32_t *prefixes, int32_t shift,
                int64_t *counts);
#endif
