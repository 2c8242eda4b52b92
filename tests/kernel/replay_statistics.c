/* Computes a detector's statistics on whatever processor it is compiled for: reads rows, centres and the rest from
 * standard input, writes what each function gives to standard output; see test_statistics.py. */
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
static void *room(size_t n) {
    void *memory = calloc(n, 8);
    must(memory != 0, "no memory");
    return memory;
}
static void put(void *memory, size_t n) {
    must(fwrite(memory, 8, n, stdout) == n, "full");
    free(memory);
}

int main(int argc, char **argv) {
    must(!tolfl_use(argc > 1 ? argv[1] : ""), "this processor has no such variant");
    int64_t *sizes = get(8, 4), n = sizes[0], d = sizes[1], k = sizes[2], shift = sizes[3];
    float *rows = get(4, n * d);
    double *centres = get(8, k * d), *norms = get(8, k), *root = get(8, d * d), *added = get(8, k);
    double *median = get(8, d), *least = get(8, d), *wide = get(8, n * d);
    uint32_t *prefixes = get(4, d);
    int64_t *cells = room(n), *counts = room(d * 258);
    double *sums = room(k * d), *squares = room(k * d), *products = room(d * (d + 1) / 2), *found = room(5 * d);
    double *turned = room(n * d), *about = room(k * d), *lowest = room(n);
    must(!tolfl_sum_by_cell(rows, d, n, d, centres, norms, k, cells, sums, squares), "no memory");
    must(!tolfl_scatter(rows, d, n, d, centres, cells, products), "no memory");
    must(!tolfl_spread(wide, 0, n, d, median, least, found), "no memory");
    must(!tolfl_multiply(wide, root, n, d, d, turned), "no memory");
    must(!tolfl_multiply(centres, root, k, d, d, about), "no memory");
    must(!tolfl_nearest(turned, about, added, n, d, k, lowest), "no memory");
    must(!tolfl_count((const uint32_t *)rows, n, d, prefixes, (int32_t)shift, counts), "no memory");
    put(cells, n), put(sums, k * d), put(squares, k * d), put(products, d * (d + 1) / 2), put(found, 5 * d);
    put(turned, n * d), put(lowest, n), put(counts, d * 258);
    free(sizes), free(rows), free(centres), free(norms), free(root), free(added), free(median), free(least);
    free(wide), free(prefixes), free(about);
}
