/* Computes recorded trainings and scorings with the kernel on whatever processor it is compiled for.
 * Reads a recording from standard input, writes what each call gives to standard output; see replaying.py. */
#include <stdio.h>

#include "../../src/tolfl/kernel/tolfl_kernel.c"

static void must(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "replay: %s\n", what);
        exit(1);
    }
}
static void *get(size_t size, size_t n) {
    void *memory = malloc(size * n + 1); /* of the exact size: what lies behind it is poisoned under a sanitizer */
    must(memory && fread(memory, size, n, stdin) == n, "the recording ends early");
    return memory;
}
static void put(const void *memory, size_t size, size_t n) { must(fwrite(memory, size, n, stdout) == n, "full"); }
static int64_t get_count(void) {
    int64_t *found = get(8, 1), count = *found;
    free(found);
    return count;
}

int main(int argc, char **argv) {
    must(!tolfl_use(argc > 1 ? argv[1] : ""), "this processor has no such variant");
    fprintf(stderr, "%s\n", tolfl_variant());
    for (int64_t n_calls = get_count(); n_calls > 0; n_calls--) {
        int64_t n_layers = get_count(), n_jobs = get_count(), n_params = get_count(), n_rows = get_count();
        TolflLayer *layers = get(sizeof *layers, n_layers);
        TolflSettings *settings = get(sizeof *settings, 1);
        TolflJob *jobs = get(sizeof *jobs, n_jobs);
        int64_t n_in = layers[0].n_in, n_out = layers[n_layers - 1].n_out;
        float *start = get(4, n_params), *rows = get(4, n_rows * n_in), *sum = get(4, n_params);
        float *deltas = malloc(4 * n_jobs * n_params), *errors = malloc(4 * n_rows), *outputs = malloc(4 * n_rows * n_out);
        double *losses = malloc(8 * n_jobs);
        must(deltas && errors && outputs && losses, "no memory");
        const float *at = rows;
        for (int64_t j = 0; j < n_jobs; j++) jobs[j].start = start, jobs[j].rows = at, at += jobs[j].n_rows * n_in;
        must(!tolfl_train(layers, n_layers, settings, jobs, n_jobs, 0, deltas, losses), "no memory");
        must(!tolfl_train(layers, n_layers, settings, jobs, n_jobs, sum, 0, losses), "no memory");
        must(!tolfl_score(layers, n_layers, start, rows, n_rows, errors, outputs), "no memory");
        put(deltas, 4, n_jobs * n_params), put(losses, 8, n_jobs), put(sum, 4, n_params);
        put(errors, 4, n_rows), put(outputs, 4, n_rows * n_out);
        free(layers), free(settings), free(jobs), free(start), free(rows), free(sum);
        free(deltas), free(losses), free(errors), free(outputs);
    }
}
