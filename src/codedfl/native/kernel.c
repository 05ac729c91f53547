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

#define EXPORT __attribute__((visibility("default")))
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 10")
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(name) JOIN(name, REAL, PROCESSOR)

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

/* Raised whenever the arguments of a function change, so that a library built from older source is not called. */
EXPORT int64_t kernel_version(void) { return 1; }

/* Numbers of a given type that the workspace of ``accumulate`` has to hold. */
EXPORT int64_t workspace_size(int64_t d, int64_t o, int64_t item_bytes) {
    const long line = LINE_BYTES / item_bytes;
    return 3 * o * padded(d, line) + BLOCK_ROWS * (line + o);
}

/* Whether every row is one of l, and the batches are parts of ``rows`` in order. */
static int within(const int64_t *rows, int64_t chosen, int64_t l, const int64_t *ends, int64_t steps) {
    for (int64_t u = 0; u < steps; u++)
        if (ends[u] < 0 || ends[u] > ends[u + 1]) return 0;
    uint64_t largest = 0;
    for (int64_t i = 0; i < chosen; i++) largest = (uint64_t)rows[i] > largest ? (uint64_t)rows[i] : largest;
    return ends[steps] <= chosen && (chosen == 0 || largest < (uint64_t)l);
}

#ifdef __x86_64__
#define ACCUMULATE(real) \
    (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? accumulate_##real##_avx2 : accumulate_##real##_any)
#else
#define ACCUMULATE(real) accumulate_##real##_any
#endif
#define EXPORT_ACCUMULATE(name, real) \
    EXPORT int64_t name(const real *X, const real *Y, int64_t l, int64_t d, int64_t o, const real *model, \
                        const int64_t *rows, int64_t chosen, const int64_t *ends, int64_t steps, double scale, double step, \
                        double make_up, real *total, real *workspace) { \
        if (!within(rows, chosen, l, ends, steps)) return -1; \
        ACCUMULATE(real)(X, Y, d, o, model, rows, ends, steps, scale, step, make_up, total, workspace); \
        return 0; \
    }
EXPORT_ACCUMULATE(accumulate_float32, float)
EXPORT_ACCUMULATE(accumulate_float64, double)

/* Batches of Bernoulli(p) rows, from the Philox4x64-10 stream of a key and a counter (0, 0, device, round).

   numpy's ``random(dtype=float32)`` takes 32 bits at a time, the low half of a word first, and makes u = bits >> 8 over 2^24 of
   them; a row is chosen if u / 2^24 < p, which is bits < 2^8 ceil(2^24 p). Step t has its rows at ends[t] to ends[t + 1]. Returns
   how many rows were chosen, or -1 if there might be no ``room`` for the next 8. */
EXPORT int64_t sample(uint64_t key0, uint64_t key1, uint64_t device, uint64_t round, int64_t samples, float p, int64_t steps,
                      int64_t *rows, int64_t room, int64_t *ends) {
    const uint32_t below = (uint32_t)(16777216.0 * p);
    const uint64_t limit = (uint64_t)(below + (below < 16777216.0 * p)) << 8;
    int64_t count = 0, row = 0, step = 0;
    ends[0] = 0;
    for (uint64_t block = 1; step < steps; block++) {
        uint64_t c[4] = {block, 0, device, round}, k0 = key0, k1 = key1;
        UNROLL for (int i = 0; i < 10; i++) {
            const __uint128_t a = (__uint128_t)0xD2E7470EE14C6C93u * c[0], b = (__uint128_t)0xCA5A826395121157u * c[2];
            c[0] = (uint64_t)(b >> 64) ^ c[1] ^ k0;
            c[2] = (uint64_t)(a >> 64) ^ c[3] ^ k1;
            c[1] = (uint64_t)b;
            c[3] = (uint64_t)a;
            k0 += 0x9E3779B97F4A7C15u;
            k1 += 0xBB67AE8584CAA73Bu;
        }
        if (count + 8 > room) return -1;
        if (samples - row > 8) /* the usual case: no step ends here */
            UNROLL for (int word = 0; word < 4; word++, row += 2) {
                if ((uint32_t)c[word] < limit) rows[count++] = row;
                if (c[word] >> 32 < limit) rows[count++] = row + 1;
            }
        else
            for (int half = 0; half < 8 && step < steps; half++) {
                if ((uint32_t)(c[half / 2] >> 32 * (half % 2)) < limit) rows[count++] = row;
                if (++row == samples) {
                    row = 0;
                    ends[++step] = count;
                }
            }
    }
    return count;
}
