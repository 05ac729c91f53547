/* The compiled part of codedfl: gradient steps on sampled rows (steps.h) and the sampling of those rows.

   Plain C with the vector extensions of GCC and Clang. Nothing here allocates or keeps state. */

#include <stdint.h>
#include <string.h>

#define VECTOR_BYTES 32
#define LINE_BYTES 64
#define TILE_ROWS 2
#define TILE_OUTPUTS 5
#define CHUNK_BYTES 4096
#define BLOCK_BYTES 200000
#define BLOCK_ROWS 64
#define DRAWN_AT_ONCE 512

#define EXPORT __attribute__((visibility("default")))
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 10")
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(name) JOIN(name, REAL, PROCESSOR)

/* All fields of these structs have 8 bytes; _library.py declares them with the same fields in the same order.

   A model to take steps with. */
typedef struct {
    const void *start; /* (d, o) */
    double step, make_up;
} model;

/* A device or the server: its data, the batches of its steps, and the models that take them one after the other. */
typedef struct {
    const void *X, *Y; /* (l, d) and (l, o), of floats or doubles */
    int64_t item_bytes, l, d, o, steps;
    double scale;
    const int64_t *rows, *ends; /* rows ends[u] to ends[u + 1] are the batch of step u; NULL: draw them from the stream */
    uint64_t key0, key1, device, round;
    double probability;
    int64_t first, count; /* of its models in the table of all models */
    char *totals;         /* (count, d, o) */
} party;

typedef int32_t lanes_float __attribute__((vector_size(16)));
typedef int64_t lanes_double __attribute__((vector_size(32)));
#ifdef __clang__
#define SHUFFLE(real, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE_(real, a, b, ...) __builtin_shuffle(a, b, (lanes_##real){__VA_ARGS__})
#define SHUFFLE(real, a, b, ...) SHUFFLE_(real, a, b, __VA_ARGS__)
#endif

static long least(long a, long b) { return a < b ? a : b; }
static long clamp(long n, long low, long high) { return n < low ? low : least(n, high); }

/* Size of the parts when n is cut into as few as possible, of at most ``most``, as even as possible. */
static long even(long n, long most) {
    const long parts = (n + most - 1) / most;
    return parts ? (n + parts - 1) / parts : 0;
}

/* Columns of a padded model: an odd number of lines, because rows a power of two apart compete for the same place in a cache. */
static long padded(long d, long line) { return (((d + line - 1) / line) | 1) * line; }

#ifdef __x86_64__
#define PROCESSOR avx2
#define TARGET __attribute__((target("avx2,fma")))
#define IN_REGISTER(value) __asm__("" : "+x"(value)) /* else GCC loads it again for every row of the tile */
#define REAL float
#include "steps.h"
#define REAL double
#include "steps.h"
#undef PROCESSOR
#undef TARGET
#undef IN_REGISTER
#endif

#define PROCESSOR any
#define TARGET
#define IN_REGISTER(value)
#define REAL float
#include "steps.h"
#define REAL double
#include "steps.h"

/* Raised whenever the arguments of a function or the fields of a struct change, so that a library built from older source is
   not called. */
EXPORT int64_t kernel_version(void) { return 2; }

/* Bytes in which ``accumulate`` computes the steps of a party: three models, the ends of rows and residuals. */
static int64_t steps_bytes(const party *p) {
    const long line = LINE_BYTES / p->item_bytes;
    return (3 * p->o * padded(p->d, line) + BLOCK_ROWS * (line + p->o)) * p->item_bytes;
}

/* Bytes for the batches that are drawn: their ends, as many rows as could possibly be in them, and one that is not kept. Hardly
   any are written, and pages never written to take no memory. */
static int64_t drawn_bytes(const party *p) {
    return p->ends ? 0 : (p->steps + 1 + p->steps * p->l + 1) * (int64_t)sizeof(int64_t);
}

/* Bytes that the workspace of ``take_steps`` has to hold. */
EXPORT int64_t workspace_bytes(const party *parties, int64_t count) {
    int64_t most = 0;
    for (const party *p = parties; p < parties + count; p++) {
        const int64_t needed = steps_bytes(p) + drawn_bytes(p);
        most = needed > most ? needed : most;
    }
    return most;
}

/* Whether every row of all steps is one of l. */
static int within(const int64_t *rows, int64_t chosen, int64_t l) {
    uint64_t largest = 0;
    for (int64_t i = 0; i < chosen; i++) largest = (uint64_t)rows[i] > largest ? (uint64_t)rows[i] : largest;
    return chosen == 0 || largest < (uint64_t)l;
}

/* Block ``number`` of the stream, Philox4x64-10 of a key and the counter (number, 0, device, round), as 32-bit halves in
   numpy's order: the low half of a word first. */
static inline void draw_block(const party *p, uint64_t number, uint32_t *halves) {
    uint64_t c[4] = {number, 0, p->device, p->round}, k0 = p->key0, k1 = p->key1;
    UNROLL for (int i = 0; i < 10; i++) {
        const __uint128_t a = (__uint128_t)0xD2E7470EE14C6C93u * c[0], b = (__uint128_t)0xCA5A826395121157u * c[2];
        c[0] = (uint64_t)(b >> 64) ^ c[1] ^ k0;
        c[2] = (uint64_t)(a >> 64) ^ c[3] ^ k1;
        c[1] = (uint64_t)b;
        c[3] = (uint64_t)a;
        k0 += 0x9E3779B97F4A7C15u;
        k1 += 0xBB67AE8584CAA73Bu;
    }
    UNROLL for (int word = 0; word < 4; word++) {
        halves[2 * word] = (uint32_t)c[word];
        halves[2 * word + 1] = (uint32_t)(c[word] >> 32);
    }
}

/* Writes the numbers, from ``row`` on, of those of n halves that are below the limit; returns how many. Every number is
   written and kept if it is chosen: a branch would be a gamble. */
static inline long choose(const uint32_t *halves, long n, uint64_t limit, int64_t row, int64_t *rows) {
    long count = 0;
    for (long i = 0; i < n; i++) {
        rows[count] = row + i;
        count += halves[i] < limit;
    }
    return count;
}

/* The same for many halves, of which few are below the limit: groups of 8 that have none are passed over. */
static long choose_few(const uint32_t *halves, long n, uint64_t limit, int64_t row, int64_t *rows) {
    long count = 0, i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t lowest = UINT32_MAX;
        for (long k = i; k < i + 8; k++) lowest = halves[k] < lowest ? halves[k] : lowest;
        if (lowest < limit) count += choose(halves + i, 8, limit, row + i, rows + count);
    }
    return count + choose(halves + i, n - i, limit, row + i, rows + count);
}

/* Draws the batches of all steps: step u has rows ends[u] to ends[u + 1].

   numpy's ``random(dtype=float32)`` makes u = bits >> 8 over 2^24 of 32 bits; a row is chosen if u / 2^24 < p, which is
   bits < 2^8 ceil(2^24 p). */
static void draw(const party *p, int64_t *ends, int64_t *rows) {
    const double scaled = 16777216.0 * (float)p->probability;
    const uint32_t below = (uint32_t)scaled;
    const uint64_t limit = (uint64_t)(below + (below < scaled)) << 8;
    uint32_t halves[DRAWN_AT_ONCE];
    uint64_t number = 1;
    long used = DRAWN_AT_ONCE;
    ends[0] = 0;
    for (long u = 0; u < p->steps; u++) {
        ends[u + 1] = ends[u];
        for (long row = 0, some; row < p->l; row += some, used += some) {
            if (used == DRAWN_AT_ONCE) {
                for (long k = 0; k < DRAWN_AT_ONCE; k += 8) draw_block(p, number++, halves + k);
                used = 0;
            }
            some = least(DRAWN_AT_ONCE - used, p->l - row);
            ends[u + 1] += choose_few(halves + used, some, limit, row, rows + ends[u + 1]);
        }
    }
}

#ifdef __x86_64__
#define ACCUMULATE(real) \
    (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? accumulate_##real##_avx2 : accumulate_##real##_any)
#else
#define ACCUMULATE(real) accumulate_##real##_any
#endif

/* Takes the steps of parties that no other thread has taken, until none is left: ``next`` is shared by all threads that were
   given the same parties. Returns 0, or the number (from 1) of a party one of whose rows is out of range.

   The workspace starts on a cache line. */
EXPORT int64_t take_steps(const party *parties, int64_t count, const model *models, int64_t *next, char *workspace) {
    for (int64_t i; (i = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < count;) {
        const party *p = parties + i;
        const int64_t *rows = p->rows, *ends = p->ends;
        if (ends) {
            if (!within(rows, ends[p->steps], p->l)) return i + 1;
        } else {
            int64_t *drawn_ends = (int64_t *)(workspace + steps_bytes(p)), *drawn_rows = drawn_ends + p->steps + 1;
            draw(p, drawn_ends, drawn_rows);
            ends = drawn_ends;
            rows = drawn_rows;
        }
        for (int64_t m = 0; m < p->count; m++)
            (p->item_bytes == sizeof(float) ? ACCUMULATE(float) : ACCUMULATE(double))(
                p, models + p->first + m, rows, ends, p->totals + m * p->d * p->o * p->item_bytes, workspace);
    }
    return 0;
}
