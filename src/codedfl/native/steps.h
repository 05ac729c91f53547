/* All gradient steps of a device or the server, for numbers of type REAL. Included by kernel.c once for each type and kind of
   processor.

   Step u computes g = scale * X_S^T (X_S W_u - Y_S) - make_up * W_u on the sampled rows S, adds g to the total, and moves to
   W_{u+1} = W_0 - step * total.

   Every sampled row is needed twice, for the product with W and for the product with the residual, but shall come from memory
   once. So a batch is cut into blocks of rows that fit in the level-2 cache, and both products are taken of one block before
   the next. While the arithmetic runs, the rows of the next block are asked for, also across the border of two steps, so that
   they are there when their turn comes.

   Models are held transposed, (o, width), with the width padded by zeros to whole cache lines: every load is then a vector of
   neighbours. Within a block, a product is cut into tiles whose sums stay in registers (see forward_tile, backward_tile). */

#define VECTOR NAME(vector)
#define LOOSE NAME(loose)
#define LANES (VECTOR_BYTES / (long)sizeof(REAL))
#define LINE (LINE_BYTES / (long)sizeof(REAL))
#define PARTS (LINE / LANES)

typedef REAL VECTOR __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL LOOSE __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias)); /* in memory, unaligned */

typedef struct {
    long width, outputs;
    const REAL *start, *now; /* W_0 and W_u */
    REAL *next, *total;      /* W_{u+1} and the sum of gradients */
    REAL step, make_up;
} NAME(models);

/* out (columns x rows) = in (rows x columns), by squares of 4 x 4 and what they leave over. */
INLINE void NAME(transpose)(const REAL *in, long in_width, long rows, long columns, REAL *out, long out_width) {
    typedef REAL quad __attribute__((vector_size(4 * sizeof(REAL))));
    typedef REAL loose __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
    const long whole_rows = rows & -4, whole_columns = columns & -4;
    for (long i = 0; i < whole_rows; i += 4)
        for (long j = 0; j < whole_columns; j += 4) {
            quad a[4], b[4];
            UNROLL for (long k = 0; k < 4; k++) a[k] = *(const loose *)(in + (i + k) * in_width + j);
            UNROLL for (long k = 0; k < 2; k++) {
                b[2 * k] = SHUFFLE(REAL, a[k], a[k + 2], 0, 4, 1, 5);
                b[2 * k + 1] = SHUFFLE(REAL, a[k], a[k + 2], 2, 6, 3, 7);
            }
            UNROLL for (long k = 0; k < 2; k++) {
                *(loose *)(out + (j + 2 * k) * out_width + i) = SHUFFLE(REAL, b[k], b[k + 2], 0, 4, 1, 5);
                *(loose *)(out + (j + 2 * k + 1) * out_width + i) = SHUFFLE(REAL, b[k], b[k + 2], 2, 6, 3, 7);
            }
        }
    for (long i = 0; i < rows; i++)
        for (long j = i < whole_rows ? whole_columns : 0; j < columns; j++) out[j * out_width + i] = in[i * in_width + j];
}

INLINE REAL NAME(sum)(const VECTOR *value) {
    typedef REAL half __attribute__((vector_size(VECTOR_BYTES / 2)));
    const union { VECTOR whole; half halves[2]; } parts = {*value};
    const half two = parts.halves[0] + parts.halves[1];
    REAL sum = 0;
    UNROLL for (long i = 0; i < LANES / 4; i++) sum += two[i] + two[i + LANES / 4];
    return sum;
}

/* r[a, j] += x_a . w_j over columns start to stop, for 1 or 2 rows and at most 5 outputs. The (up to) 10 running sums, the 2
   row vectors and 1 model vector take 13 of 16 registers, and 7 loads serve 10 multiply-adds. Half a chunk
   of a row to come is asked for on the way, no faster: requests that memory cannot keep up with hold up the loads. */
INLINE void NAME(forward_tile)(const long rows, const long outputs, const REAL *const *x, const REAL *w, long width,
                               long start, long stop, REAL *r, long r_width, const REAL *ahead) {
    VECTOR sums[TILE_ROWS][TILE_OUTPUTS] = {{{0}}};
    for (long k = start; k < stop; k += LINE) {
        __builtin_prefetch(ahead + (k - start) / 2, 0, 2);
        UNROLL for (long part = k; part < k + LINE; part += LANES) {
            VECTOR row[TILE_ROWS];
            UNROLL for (long a = 0; a < rows; a++) row[a] = *(const LOOSE *)(x[a] + part);
            UNROLL for (long j = 0; j < outputs; j++) {
                VECTOR model = *(const LOOSE *)(w + j * width + part);
                IN_REGISTER(model);
                UNROLL for (long a = 0; a < rows; a++) sums[a][j] += row[a] * model;
            }
        }
    }
    UNROLL for (long a = 0; a < rows; a++)
        UNROLL for (long j = 0; j < outputs; j++) r[a * r_width + j] += NAME(sum)(&sums[a][j]);
}

/* total[j, line] += sum_i r[i, j] x_i[line] for one cache line of columns and at most 5 outputs; the running sums stay in
   registers over all rows of the block. With the last block of a step, the model of the next step is written as well. */
INLINE void NAME(backward_tile)(const long outputs, const REAL *const *x, long rows, long line, const REAL *r,
                                const NAME(models) *m, long j0, int last) {
    VECTOR sums[TILE_OUTPUTS][PARTS];
    const long at = j0 * m->width + line;
    UNROLL for (long j = 0; j < outputs; j++)
        UNROLL for (long p = 0; p < PARTS; p++) sums[j][p] = *(const LOOSE *)(m->total + at + j * m->width + p * LANES);
    for (long i = 0; i < rows; i++) {
        VECTOR row[PARTS];
        UNROLL for (long p = 0; p < PARTS; p++) row[p] = *(const LOOSE *)(x[i] + line + p * LANES);
        UNROLL for (long j = 0; j < outputs; j++)
            UNROLL for (long p = 0; p < PARTS; p++) sums[j][p] += row[p] * r[i * m->outputs + j0 + j];
    }
    UNROLL for (long j = 0; j < outputs; j++)
        UNROLL for (long p = 0; p < PARTS; p++) {
            const long here = at + j * m->width + p * LANES;
            if (last && m->make_up != 0) sums[j][p] -= *(const LOOSE *)(m->now + here) * m->make_up;
            if (last) *(LOOSE *)(m->next + here) = *(const LOOSE *)(m->start + here) - sums[j][p] * m->step;
            *(LOOSE *)(m->total + here) = sums[j][p];
        }
}

/* Residual of a block: tiles over rows, outputs, and chunks of columns so short that 5 outputs of W stay in the level-1 cache. */
INLINE void NAME(forward)(const REAL *const *x, long rows, long start, long stop, REAL *r, const NAME(models) *m,
                          const REAL *const *ahead, long to_come) {
    const long some = even(m->outputs, TILE_OUTPUTS);
    const long chunk = (even(stop - start, CHUNK_BYTES / (long)sizeof(REAL)) + LINE - 1) / LINE * LINE;
    for (long k = start; k < stop; k += chunk) {
        const long end = least(k + chunk, stop);
        long tile = 0;
        for (long j = 0; j < m->outputs; j += some)
            for (long i = 0; i < rows; i += TILE_ROWS, tile++) {
                const REAL *fetch = tile / 2 < to_come ? ahead[tile / 2] + k + tile % 2 * (end - k) / 2 : x[i];
#define TILE(a, b) case 8 * a + b: NAME(forward_tile)(a, b, x + i, m->now + j * m->width, m->width, k, \
                                     end, r + i * m->outputs + j, m->outputs, fetch); break;
                switch (8 * least(rows - i, TILE_ROWS) + least(m->outputs - j, some)) {
                    TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(1, 4) TILE(1, 5)
                    TILE(2, 1) TILE(2, 2) TILE(2, 3) TILE(2, 4) TILE(2, 5)
                }
#undef TILE
            }
    }
}

/* Gradient of a block, cache line by cache line. */
INLINE void NAME(backward)(const REAL *const *x, long rows, long start, long stop, const REAL *r, const NAME(models) *m,
                           int last, const REAL *const *ahead, long to_come) {
    const long some = even(m->outputs, TILE_OUTPUTS);
    for (long line = start; line < stop; line += LINE) {
        for (long i = 0; i < to_come; i++) __builtin_prefetch(ahead[i] + line, 0, 2);
        for (long j = 0; j < m->outputs; j += some)
#define TILE(b) case b: NAME(backward_tile)(b, x, rows, line, r, m, j, last); break;
            switch (least(m->outputs - j, some)) { TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) }
#undef TILE
    }
}

/* All steps of one model; ``total`` becomes the sum of the gradients. The workspace starts on a cache line. */
TARGET static void NAME(accumulate)(const party *p, const model *model, const int64_t *rows, const int64_t *ends, void *total,
                                    void *workspace) {
    const REAL *X = p->X, *Y = p->Y;
    const long d = p->d, o = p->o, steps = p->steps;
    const long whole = d / LINE * LINE, stop = (d + LINE - 1) / LINE * LINE, width = padded(d, LINE), size = o * width;
    const long most = clamp(BLOCK_BYTES / (d * (long)sizeof(REAL)) / TILE_ROWS * TILE_ROWS, 2 * TILE_ROWS, BLOCK_ROWS);
    REAL *start = workspace, *next = start + size, *sum = next + size, *tails = sum + size, *r = tails + BLOCK_ROWS * LINE;
    NAME(models) m = {width, o, start, start, next, sum, (REAL)model->step, (REAL)model->make_up};
    const REAL *x[BLOCK_ROWS], *tail[BLOCK_ROWS], *ahead[BLOCK_ROWS]; /* tail: columns that do not fill a cache line, copied */
    memset(sum, 0, (size + BLOCK_ROWS * LINE) * sizeof(REAL));
    for (long j = 0; j < o; j++) memset(start + j * width + whole, 0, (stop - whole) * sizeof(REAL));
    NAME(transpose)(model->start, o, d, o, start, width);
    for (long u = 0; u < steps; u++, m.now = next) {
        long first = ends[u], n;
        do {
            n = even(ends[u + 1] - first, most);
            n = least(n + n % TILE_ROWS, ends[u + 1] - first);
            const int last = first + n == ends[u + 1];
            const long to_come = least(n, ends[steps] - first - n), half = to_come / 2;
            for (long i = 0; i < n; i++) {
                x[i] = X + rows[first + i] * d;
                tail[i] = tails + i * LINE - whole;
                for (long k = whole; k < d; k++) tails[i * LINE + k - whole] = x[i][k];
                for (long j = 0; j < o; j++) r[i * o + j] = -Y[rows[first + i] * o + j];
            }
            for (long i = 0; i < to_come; i++) {
                ahead[i] = X + rows[first + n + i] * d;
                __builtin_prefetch(Y + rows[first + n + i] * o, 0, 2);
            }
            NAME(forward)(x, n, 0, whole, r, &m, ahead, half);
            NAME(forward)(tail, n, whole, stop, r, &m, ahead, 0);
            for (long i = 0; i < n * o; i++) r[i] *= (REAL)p->scale;
            NAME(backward)(x, n, 0, whole, r, &m, last, ahead + half, to_come - half);
            NAME(backward)(tail, n, whole, stop, r, &m, last, ahead, 0);
            first += n;
        } while (first < ends[u + 1]);
    }
    NAME(transpose)(sum, width, o, d, total, o);
}

#undef VECTOR
#undef LOOSE
#undef LANES
#undef LINE
#undef PARTS
#undef REAL
